"""Tags: which classes an image shows, from a table or from the command line."""
import csv
import re

import numpy as np

from ccnn.errors import UserError, reason
from ccnn.labels import BACKGROUND, not_a_class
from ccnn.lists import image_id


def read_tags(path, classes):
    """{id: (present, large)}, each (L,) bool, from a CSV file with the columns image, tags and, if wished, large.

    A first line `image,tags` or `image,tags,large` is a header. parse_tags says how tags are written.
    """
    table = {}
    for number, row in enumerate(_read_rows(path), 1):
        where = f"{path}, line {number}"
        if not any(row) or (number == 1 and row[:2] == ["image", "tags"]):
            continue
        if not 2 <= len(row) <= 3 or not row[0]:
            raise UserError(f"{where}: expected image,tags or image,tags,large with ; between tags; got {row!r}")
        name, tags, large = ([*row, ""])[:3]
        id = image_id(name, where)
        if id in table:
            raise UserError(f"{where}: image {name!r} has a row already; remove one of them")
        present = parse_tags(tags, classes, where)
        table[id] = present, parse_large(large, present, classes, where)
    return table


def _read_rows(path):
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return [[field.strip() for field in row] for row in csv.reader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot read the tags: {reason(error)}") from None


def parse_tags(text, classes, where):
    """(L,) bool from class names with ; or , between them, or else spaces.

    A name may hold spaces where ; or , separates the names, or where it stands alone. `where` opens the error message.
    """
    if text.strip() in classes:
        names = [text]
    else:
        names = re.split("[;,]", text) if re.search("[;,]", text) else text.split()
    present = np.zeros(len(classes), bool)
    for name in filter(None, map(str.strip, names)):
        if name not in classes:
            raise UserError(f"{where}: tag {not_a_class(name, classes)}")
        present[classes.index(name)] = True
    return present


def parse_large(text, present, classes, where):
    """(L,) bool: which of the classes that are present are large."""
    large = parse_tags(text, classes, where)
    if (large & ~present).any():
        raise UserError(f"{where}: {classes[(large & ~present).argmax()]!r} is large but not among the tags")
    return large


def tagged(tags, classes):
    """The labels that may appear if the user gives --tags: the background and the tags; every label for None."""
    if tags is None:
        return list(range(len(classes)))
    present = parse_tags(tags, classes, "--tags")
    if not present.any():
        raise UserError(f"--tags: names no class; known: {', '.join(classes[1:])}")
    present[BACKGROUND] = True
    return np.flatnonzero(present).tolist()
