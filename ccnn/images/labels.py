"""Labels: their names, their numbers, their colours."""
import numpy as np

from ccnn._util.errors import UserError, suggest
from ccnn._util.foreign_files import decode
from ccnn.solver.constraints import BACKGROUND, VOID

VOC_CLASSES = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)

LABELS = len(VOC_CLASSES)

SHORT = dict(zip(VOC_CLASSES, (         # the headings of the paper's columns
    "bgnd", "aero", "bike", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "table", "dog", "horse",
    "mbike", "person", "plant", "sheep", "sofa", "train", "tv")))


def palette():
    """VOC's colours, 768 numbers: r, g, b of label 0, of label 1, and so on.

    Bits 0, 1, 2 of a label are the top bits of r, g, b; bits 3, 4, 5 are the next lower ones.
    """
    return [sum((label >> (3 * k + channel) & 1) << (7 - k) for k in range(3))
            for label in range(256) for channel in range(3)]


def indexed(labels):
    """H x W label ids as a picture of palette mode, in VOC's colours."""
    from PIL import Image
    picture = Image.fromarray(np.asarray(labels, np.uint8))
    picture.putpalette(palette())
    return picture


def read_classes(path):
    """The names of the labels, from a file with one name per line. `background` is label 0; it need not be listed."""
    names = [line.strip() for line in decode(path, "the class list")[0].splitlines() if line.strip()]
    names = [name for name in names if name != VOC_CLASSES[BACKGROUND]]
    if not 1 <= len(names) < VOID:
        raise UserError(f"{path}: lists {len(names)} classes besides the background; expected 1 to {VOID - 1}")
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UserError(f"{path}: class {min(twice)!r} is listed twice")
    return (VOC_CLASSES[BACKGROUND], *names)


def not_a_class(name, classes):
    """The message about a name that is not a class; the background cannot be named."""
    return f"{name!r} is not a class; {suggest(name, [known for known in classes if known != VOC_CLASSES[BACKGROUND]])}"
