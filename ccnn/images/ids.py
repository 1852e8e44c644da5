"""Lists of images: one reader for every list, and the rules for an image id.

An image id is the path of an image below the folder of images, without its suffix: `2007_000032`, `my cats/a cat`.
A list is a text file with one id per line. Blanks around an id and empty lines do not count, a suffix (.jpg, .PNG) is
dropped, and an id may hold spaces. A list names every image once.

VOC's lists in ImageSets/Main with a second column (1: the class is there, -1: it is not, 0: hard to say) are refused.
A list cannot say which of these images are meant.
"""
import os
import re
from pathlib import Path

from ccnn._util.errors import UserError, reason
from ccnn.images.formats import SUFFIX

SEGMENTATION = "ImageSets/Segmentation"

TWO_COLUMNS = re.compile(r"\S+(  1|  0| -1)")       # VOC aligns the second column to the right


def read_list(path):
    """The image ids of a list, in its order."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = {number: line.strip() for number, line in enumerate(file, 1) if line.strip()}
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file; a list has one image id per line") from None
    except OSError as error:
        raise UserError(f"{path}: cannot read the list: {reason(error)}") from None
    if not lines:
        raise UserError(f"{path}: lists no images; write one image id per line")
    if all(TWO_COLUMNS.fullmatch(line) for line in lines.values()):
        raise UserError(f"{path}: has VOC's second column (1, 0 or -1); keep the ids that you want, one per line: "
                        f"awk '$2 == 1 {{print $1}}' {path}")
    first_line = {}
    for number, line in lines.items():
        id = image_id(line, f"{path}, line {number}")
        if id in first_line:
            raise UserError(f"{path}, line {number}: lists {id!r} twice, first in line {first_line[id]}; "
                            "remove one of them")
        first_line[id] = number
    return list(first_line)


def read_split(root, split):
    """The image ids of a split of the data in `root`; see find_list."""
    return read_list(find_list(root, split))


def find_list(root, split):
    """The path of a list: `split` names a list in ROOT/ImageSets/Segmentation, or is a path from root or from here."""
    folder = os.path.join(root, SEGMENTATION)
    listed = os.path.join(folder, f"{split}.txt")
    for path in (listed, os.path.join(root, split), split):
        if os.path.isfile(path):
            return path
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    have = ", ".join(name[:-4] for name in names if name.endswith(".txt"))
    alone = split == "train_aug" and "train.txt" in names
    raise UserError(f"{listed}: no such list of images (there: {have or 'none'}), and {split!r} is not a file; "
                    "ccnn get-voc fetches VOC 2012 with train, val and train_aug"
                    + ("; without SBD, train on VOC alone with ccnn train --split train" if alone else ""))


def image_id(name, where=""):
    """The name of an image without its suffix. It cannot leave the folder in which it is looked up.

    where : opens the error message
    """
    where = f"{where}: " if where else ""
    if os.path.isabs(name) or ".." in name.split("/") or "\0" in name:
        raise UserError(f"{where}{name!r} is not an image id, because it leaves the folder of images; "
                        "give a path below that folder")
    return SUFFIX.sub("", name)


def inside(path, folder):
    """Whether a path lies in a folder after links are followed."""
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))


def truth_paths(voc, names):
    """Where the true masks lie: SegmentationClass, or SegmentationClassAug for images that only SBD labelled."""
    places = [Path(voc, "SegmentationClass"), Path(voc, "SegmentationClassAug")]
    paths, missing = [], []
    for name in names:
        found = [place / f"{name}.png" for place in places if (place / f"{name}.png").is_file()]
        paths += found[:1]
        missing += [] if found else [name]
    if missing:
        raise UserError(f"{places[0] / missing[0]}.png: missing; "
                        f"{len(missing)} of {len(names)} images have no true mask")
    return paths
