"""Tags: which classes an image shows."""
import csv
import difflib
import re

import numpy as np

from ccnn.errors import UserError
from ccnn.labels import BACKGROUND
from ccnn.lists import image_id


def read_tags(path, classes):
    """{id: (present, large)}, each (L,) bool, from a CSV with the columns image, tags and, if there are three, large.

    Tags are class names separated by ; or spaces. A header line may be there.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = [[field.strip() for field in row] for row in csv.reader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot read the tags: {getattr(error, 'strerror', None) or error}") from None
    table = {}
    for number, row in enumerate(rows, 1):
        where = f"{path}, line {number}"
        if not any(row) or number == 1 and row[:2] == ["image", "tags"]:
            continue
        if not 2 <= len(row) <= 3 or not row[0]:
            raise UserError(f"{where}: expected image,tags or image,tags,large, and ; between tags; got {row!r}")
        present, large = (flags_of(field, classes, where) for field in (row + [""])[1:3])
        if (large & ~present).any():
            raise UserError(f"{where}: {classes[(large & ~present).argmax()]!r} is large but not among the tags")
        id = image_id(row[0], where)
        if id in table:
            raise UserError(f"{where}: image {row[0]!r} has a row already")
        table[id] = present, large
    return table


def flags_of(field, classes, where):
    """(L,) bool from class names. A name may have spaces where ; separates, or where it stands alone."""
    names = [field] if field in classes else re.split("[;,]", field) if re.search("[;,]", field) else field.split()
    flags = np.zeros(len(classes), bool)
    for name in filter(None, map(str.strip, names)):
        if name not in classes:
            near = difflib.get_close_matches(name, classes, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected some of {', '.join(classes)}"
            raise UserError(f"{where}: tag {name!r} is not a class; {hint}")
        flags[classes.index(name)] = True
    return flags


def tagged(tags, classes):
    """The labels that may appear: background and those named by "cat,person"; all of them if tags is None."""
    if tags is None:
        return list(range(len(classes)))
    names = [name.strip() for name in tags.split(",") if name.strip()]
    unknown = [name for name in names if name not in classes]
    if unknown or not names:
        raise UserError(f"--tags {tags}: {unknown[0] if unknown else 'nothing'} is not a class of this model; "
                        f"it knows {', '.join(classes[1:])}")
    return sorted({BACKGROUND, *map(classes.index, names)})
