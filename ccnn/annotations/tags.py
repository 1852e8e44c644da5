"""Tags: which classes an image shows, from a table or from the command line."""
import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.text import plain
from ccnn.annotations.table_reader import read_table, split_tags
from ccnn.images.ids import image_id
from ccnn.images.labels import BACKGROUND, not_a_class


def read_tags(path, classes):
    """{id: (present, large)}, each (L,) bool, from a table, written as ccnn.annotations.table_reader says.

    Where it does not say what is large, nothing is.
    """
    table, _ = read_table(path, classes, check_name=image_id)
    return {image_id(name): (_flags(labels.tags, classes), _flags(labels.large or (), classes))
            for name, labels in table.items()}


def tag_places(path, classes):
    """{id: "line 3"}: where the table names each image."""
    return {image_id(name): labels.place for name, labels in read_table(path, classes)[0].items()}


def parse_tags(text, classes, where):
    """(L,) bool from class names with ; , or | between them, or else spaces.

    A name may hold spaces where a separator stands between names, or where it is alone. `where` opens the error
    message.
    """
    known = {plain(name): name for name in classes}
    names = split_tags(text, known)
    for name in names:
        if name not in known:
            raise UserError(f"{where}: tag {not_a_class(name, classes)}")
    return _flags([known[name] for name in names], classes)


def parse_large(text, present, classes, where):
    """(L,) bool: which of the classes that are present are large."""
    large = parse_tags(text, classes, where)
    if (large & ~present).any():
        raise UserError(f"{where}: {classes[(large & ~present).argmax()]!r} is large but not among the tags")
    return large


def _flags(names, classes):
    """(L,) bool, True for these classes."""
    return np.isin(np.arange(len(classes)), [classes.index(name) for name in names])


def tagged(tags, classes):
    """The labels that may appear if the user gives --tags: the background and the tags; every label for None."""
    if tags is None:
        return list(range(len(classes)))
    present = parse_tags(tags, classes, "--tags")
    if not present.any():
        raise UserError(f"--tags: names no class; known: {', '.join(classes[1:])}")
    present[BACKGROUND] = True
    return np.flatnonzero(present).tolist()
