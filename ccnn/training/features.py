"""Features of a frozen backbone, computed once per image.

A folder of features holds ID.npy for every image, float16, channels x rows x columns, and index.json, which says what
they were computed with. A folder of another blob of the backbone (VGG-16 has pool4 and pool3) is the same.

    files = find_images(root, ["train"])        # {id: file}
    plan = plan_features(backbone, files, out, size)    # what is to be done, and how much disk that takes
    broken = compute(backbone, weights, plan.todo, out, size, jobs)
"""
import functools
import json
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np

from ccnn._util.errors import ImageError, UserError
from ccnn._util.files import digest, load_array, remove_parts, whole_file
from ccnn._util.foreign_files import parse_json
from ccnn._util.progress import Progress
from ccnn._util.text import duration
from ccnn._util.workers import Jobs, in_processes
from ccnn.data.samples import Samples, folder_settings
from ccnn.images.formats import SUFFIX, SUFFIXES
from ccnn.images.listing import list_photographs, skipped_sentence
from ccnn.images.reading import fit, read_image, shrink, upright_shape
from ccnn.inference.engines import Forward, load_forward
from ccnn.nets.backbones import Backbone

log = logging.getLogger(__name__)


def find_images(root: str, splits: Optional[Sequence[str]]) -> dict[str, str]:
    """{id: file} of the images in a folder.

    With splits, those of the lists. Else, in a folder with classes.txt or tags.csv, those that have labels; in a VOC
    folder, those of the list train; in any other folder, all.
    """
    if not splits and any(os.path.isfile(os.path.join(root, name)) for name in ("classes.txt", "tags.csv")):
        samples = Samples({**folder_settings(root), "tops": ["data"]})
        return dict(zip(samples.ids, samples.files))
    if not splits and os.path.isdir(root) and not os.path.isdir(os.path.join(root, "ImageSets/Segmentation")):
        return all_images(root)
    files: dict[str, str] = {}
    for split in splits or ["train"]:
        samples = Samples({"root": root, "split": split, "tops": ["data"]})
        files.update(zip(samples.ids, samples.files))
    return files


def all_images(folder: str) -> dict[str, str]:
    paths, skipped = list_photographs(folder)
    if skipped:
        log.warning("%s: %s", folder, skipped_sentence(skipped))
    names = [path for path in paths if "/" not in path]
    if not names:
        raise UserError(f"{folder}: holds no image ({', '.join(SUFFIXES)}) and no ImageSets/Segmentation")
    return {SUFFIX.sub("", name): os.path.join(folder, name) for name in names}


def check_index(backbone: Backbone, out: Path, size: int, weights: Path, blob: str = "features") -> None:
    """Make the folder, or see that what is in it was made with the same settings."""
    settings = {"size": size, "weights": digest(weights), "trunk": digest(backbone.net), "blob": blob}
    index = out / "index.json"
    remove_parts(out)
    if not index.exists():
        with whole_file(index) as part:
            part.write_text(json.dumps(settings, indent=1) + "\n")
        return
    try:
        stored = {"blob": "features", **parse_json(index)}
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


def plan_features(backbone: Backbone, files: dict[str, str], out: Path, size: int, blob: str = "features") -> Plan:
    """What of {id: file} is still to be computed."""
    plan = Plan({}, {}, 0)
    total = 0
    for id, file in files.items():
        try:
            shape = features_shape(backbone, file, size, blob)
        except ImageError as error:
            plan.broken[id] = error
            continue
        if not is_whole(out / f"{id}.npy", shape):
            plan.todo[id] = file
            total += 2 * int(np.prod(shape)) + 128
    return plan._replace(size=total)


def features_shape(backbone: Backbone, file: str, size: int, blob: str = "features") -> tuple[int, int, int]:
    """Shape of the features of an image, from the head of its file."""
    channels, fewer = backbone.blobs[blob]
    rows, columns = (backbone.cells(length) - fewer for length in fit(*upright_shape(file), size))
    return channels, rows, columns


def is_whole(path: Path, shape: tuple[int, ...]) -> bool:
    """Whether a file holds all of an image's features."""
    try:
        stored = load_array(path)
    except (OSError, ValueError):
        return False
    return stored.shape == shape and stored.dtype == np.float16


def compute(backbone: Backbone, weights: Path, files: dict[str, str], out: Path, size: int, jobs: Jobs, **options: Any
            ) -> dict[str, ImageError]:
    """Write the features of {id: file}, on `jobs` cores or on a cluster; return {id: why} of the images that cannot be
    read.

    weights : of the backbone
    options : blob of the backbone, and engine and gpu of ccnn.inference.engines.load_forward
    """
    broken = {}
    if isinstance(jobs, int):
        jobs = min(jobs, len(files))
    write = FeatureWriter(backbone.net, weights, out, size, **options)
    with Progress(total=len(files), unit="image", desc=f"features at {size} pixels", smoothing=0.02) as bar:
        for id, error, seconds in in_processes(write, files.items(), jobs, failed=no_features):
            if error:
                broken[id] = error
            elif bar.n == 0:
                number = jobs if isinstance(jobs, int) else len(jobs.workers)
                total = duration(seconds * len(files) / number)
                log.info("computing features: %.2f s per image, %d at a time, about %s in all", seconds, number, total)
            bar.update()
    return broken


def no_features(why: str, id: str, file: str) -> tuple[str, ImageError, float]:
    """The result for an image that ends its worker."""
    return id, ImageError(f"{file}: {why}"), 0


class FeatureWriter:
    """Writes the features of one image after the other: writer(id, file) -> (id, why not, or None; seconds).

    It can be sent to other processes. The net is not sent: each process loads it when it needs it first.
    """

    def __init__(self, net: Path, weights: Path, out: Path, size: int, blob: str = "features", **options: Any) -> None:
        self.net, self.weights, self.out, self.size, self.blob, self.options = net, weights, out, size, blob, options

    def __getstate__(self) -> dict:
        return {key: value for key, value in vars(self).items() if key != "forward"}

    @functools.cached_property
    def forward(self) -> Forward:
        return load_forward(self.net, [self.weights], self.blob, **self.options)

    def __call__(self, id: str, file: str) -> tuple[str, Optional[ImageError], float]:
        forward = self.forward
        begin = time.time()
        try:
            save_features(self.out / f"{id}.npy", image_features(forward, file, self.size))
            return id, None, time.time() - begin
        except ImageError as error:
            return id, error, 0


def image_features(forward: Forward, file: str, size: int) -> np.ndarray:
    value = forward(shrink(read_image(file), size)).astype(np.float16)
    if not np.isfinite(value).all():
        raise ImageError(f"{file}: its features are not finite; are these the backbone's weights?")
    return value


def save_features(path: Path, value: np.ndarray) -> None:
    with whole_file(path) as part, open(part, "wb") as file:
        np.save(file, value)
        file.flush()
        os.fsync(file.fileno())         # renamed only when it is on the disk

