"""Lists of images: one reader for all of them."""
import os
from pathlib import Path

from ccnn.errors import UserError
from ccnn.images import SUFFIXES


def read_list(path):
    """Image ids, one a line."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read the list: {getattr(error, 'strerror', None) or error}") from None
    return [image_id(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line]


def image_id(name, where):
    """The name of an image without its suffix. It cannot reach out of the folder in which it is looked up."""
    if os.path.isabs(name) or ".." in name.split("/") or "\0" in name:
        raise UserError(f"{where}: {name!r} reaches out of the data root; give a path below the folder of images")
    return name[:name.rindex(".")] if name.endswith(SUFFIXES) else name


def inside(path, folder):
    """Whether a path, links followed, lies in a folder."""
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))


def and_more(missing):
    return f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""


def read_names(path):
    """The first word of every line."""
    try:
        names = {line.split()[0] for line in path.read_text().splitlines() if line.strip()}
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file of names") from None
    if not names:
        raise UserError(f"{path}: names no photographs")
    return names


def read_split(voc, split):
    """The image ids of a split: the name of a VOC list, or the path of a file with one id a line."""
    path = voc / f"ImageSets/Segmentation/{split}.txt"
    if not path.is_file():
        if not Path(split).is_file():
            raise UserError(f"--split {split}: neither {path} nor a file of that name is there")
        path = Path(split)
    try:
        names = path.read_text().split()
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file") from None
    if not names:
        raise UserError(f"{path}: lists no images")
    for name in names:
        if Path(name).name != name:
            raise UserError(f"{path}: {name!r} is not an image id")
    if len(set(names)) < len(names):
        raise UserError(f"{path}: lists {len(names) - len(set(names))} ids twice")
    return names
