"""Features of the frozen trunk, computed once per image.

A folder of features holds ID.npy for every image, float16, 1024 x rows x columns, and index.json, which says with
what they were made.

    files = find_images(root, ["train"])        # {id: file}
    plan = plan_features(files, out, size)      # what is to be done, and how much disk that takes
    broken = compute(net, plan.todo, out, size, jobs)
"""
import json
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np
from PIL import Image

from ccnn.errors import ImageError, UserError
from ccnn.files import digest, remove_parts, whole_file
from ccnn.images import fit, read_image, shrink, to_blob
from ccnn.lists import SUFFIX, SUFFIXES
from ccnn.progress import Progress
from ccnn.samples import Samples, own_folder
from ccnn.text import duration
from ccnn.trunk import VGG16
from ccnn.workers import in_processes

log = logging.getLogger(__name__)


def find_images(root: str, splits: Optional[Sequence[str]]) -> dict[str, str]:
    """{id: file} of the images in a folder.

    With splits, those of the lists. Else, in a folder with classes.txt or tags.csv, those that have labels; in a VOC
    folder, those of the list train; in any other folder, all.
    """
    if not splits and any(os.path.isfile(os.path.join(root, name)) for name in ("classes.txt", "tags.csv")):
        samples = Samples({**own_folder(root), "tops": ["data"]})
        return dict(zip(samples.ids, samples.files))
    if not splits and os.path.isdir(root) and not os.path.isdir(os.path.join(root, "ImageSets/Segmentation")):
        return all_images(root)
    files: dict[str, str] = {}
    for split in splits or ["train"]:
        samples = Samples({"root": root, "split": split, "tops": ["data"]})
        files.update(zip(samples.ids, samples.files))
    return files


def all_images(folder: str) -> dict[str, str]:
    names = sorted(name for name in os.listdir(folder) if SUFFIX.search(name) and not name.startswith("._"))
    if not names:
        raise UserError(f"{folder}: holds no image ({', '.join(SUFFIXES)}) and no ImageSets/Segmentation")
    return {name[:name.rindex(".")]: os.path.join(folder, name) for name in names}


def check_index(out: Path, size: int, weights: Path) -> None:
    """Make the folder, or see that what is in it was made with the same settings."""
    settings = {"size": size, "weights": digest(weights), "trunk": digest(VGG16.net)}
    index = out / "index.json"
    remove_parts(out)
    if not index.exists():
        with whole_file(index) as part:
            part.write_text(json.dumps(settings, indent=1) + "\n")
        return
    try:
        stored = json.loads(index.read_text())
        other = [key for key in settings if stored[key] != settings[key]]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{index}: is damaged; remove {out} and start again") from None
    if other:
        raise UserError(f"{out}: holds features of another {other[0]} ({str(stored[other[0]])[:12]}, now "
                        f"{str(settings[other[0]])[:12]}); give another --out, or remove it")


class Plan(NamedTuple):
    todo: dict[str, str]                # {id: file} of the images without features
    broken: dict[str, ImageError]       # {id: why} of those that cannot be read
    size: int                           # bytes that the features to come take


def plan_features(files: dict[str, str], out: Path, size: int) -> Plan:
    """What of {id: file} is still to be computed."""
    plan = Plan({}, {}, 0)
    total = 0
    for id, file in files.items():
        try:
            shape = features_shape(file, size)
        except ImageError as error:
            plan.broken[id] = error
            continue
        if not is_whole(out / f"{id}.npy", shape):
            plan.todo[id] = file
            total += 2 * int(np.prod(shape)) + 128
    return plan._replace(size=total)


def features_shape(file: str, size: int) -> tuple[int, int, int]:
    """Shape of the features of an image, from the head of its file."""
    return VGG16.channels, *map(VGG16.cells, fit(*upright_shape(file), size))


def upright_shape(file: str) -> tuple[int, int]:
    """(height, width) of an image, from the head of its file."""
    try:
        with Image.open(file) as image:
            lying = image.getexif().get(0x0112, 1) >= 5
            return (image.width, image.height) if lying else (image.height, image.width)
    except PermissionError:
        raise ImageError(f"{file}: may not be read; give yourself the permission") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise ImageError(f"{file}: is not an image that can be read") from None


def is_whole(path: Path, shape: tuple[int, ...]) -> bool:
    """Whether a file holds all of an image's features."""
    try:
        stored = np.load(path, mmap_mode="r")           # fails where the file is shorter than its head says
    except (OSError, ValueError, EOFError):
        return False
    return stored.shape == shape and stored.dtype == np.float16


def compute(net: Any, files: dict[str, str], out: Path, size: int, jobs: int) -> dict[str, ImageError]:
    """Write the features of {id: file}; return {id: why} of the images that cannot be read."""
    def features(id, file):
        """(id, features or error, seconds)"""
        begin = time.time()
        try:
            return id, image_features(net, file, size), time.time() - begin
        except ImageError as error:
            return id, error, 0

    broken = {}
    jobs = min(jobs, len(files))
    with Progress(total=len(files), unit="image", desc=f"features at {size} pixels", smoothing=0.02) as bar:
        for id, value, seconds in in_processes(features, files.items(), jobs, "fork"):
            if isinstance(value, ImageError):
                broken[id] = value
            else:
                if bar.n == 0:
                    total = duration(seconds * len(files) / jobs)
                    log.info("%.2f s per image, %d at a time: about %s in all", seconds, jobs, total)
                save_features(out / f"{id}.npy", value)
            bar.update()
    return broken


def image_features(net: Any, file: str, size: int) -> np.ndarray:
    rgb = shrink(read_image(file), size)
    net.blobs["data"].reshape(1, 3, *rgb.shape[:2])
    net.blobs["data"].data[0] = to_blob(rgb)
    value = net.forward()[net.outputs[0]][0].astype(np.float16)
    if not np.isfinite(value).all():
        raise ImageError(f"{file}: its features are not finite; are these VGG-16's weights?")
    return value


def save_features(path: Path, value: np.ndarray) -> None:
    with whole_file(path) as part, open(part, "wb") as file:
        np.save(file, value)
        file.flush()
        os.fsync(file.fileno())         # renamed only when it is on the disk

