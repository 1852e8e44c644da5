"""Bounding boxes from VOC's XML."""
from collections import Counter

from ccnn._util.errors import ImageError, UserError
from ccnn._util.text import plain
from ccnn.annotations.import_formats import voc_objects
from ccnn.images.labels import BACKGROUND, not_a_class


def read_boxes(path, classes, unlisted="stop"):
    """(height, width), [(label, y0, x0, y1, x1)] of the image that a VOC annotation describes.

    Boxes are in pixels, counted from 0, half-open, clipped to the image. Objects marked difficult are in the image and
    therefore in the list.

    unlisted : an object of a class that is not in `classes` is a mistake ("stop"), or it is left out ("skip"), so that
    its pixels are background. count_unlisted says how often that happens.
    """
    (height, width), objects = _read(path)
    known = _labels(classes)
    boxes = []
    for name, ymin, xmin, ymax, xmax in objects:
        label = known.get(plain(name))
        if label is None and unlisted == "skip":
            continue
        if label is None:
            raise ImageError(f"{path}: object {not_a_class(name, classes)}; "
                             '"unlisted": "skip" in param_str passes over such objects')
        # VOC counts pixels from 1 and includes the last one
        y0, x0, y1, x1 = max(ymin - 1, 0), max(xmin - 1, 0), min(ymax, height), min(xmax, width)
        if not (y0 < y1 and x0 < x1):
            raise ImageError(f"{path}: the box of {name!r}, x {xmin:g}..{xmax:g}, y {ymin:g}..{ymax:g}, is empty or "
                             f"outside the image of {width} x {height} pixels")
        boxes.append((label, y0, x0, y1, x1))
    return (height, width), boxes


def count_unlisted(paths, classes):
    """{name: number of objects} of the classes that are in these annotations and not in `classes`."""
    known = _labels(classes)
    names = (name for path in paths for name, *_ in _read(path)[1])
    return Counter(name for name in names if plain(name) not in known)


def _labels(classes):
    return {plain(name): label for label, name in enumerate(classes) if label != BACKGROUND}


def _read(path):
    """(height, width) and the objects as voc_objects returns them."""
    try:
        size, objects = voc_objects(path)
    except UserError as error:
        raise ImageError(error) from None
    if size is None:
        raise ImageError(f"{path}: has no size/width and size/height, in pixels")
    return size, objects
