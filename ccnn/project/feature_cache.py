"""Features and cue maps of a folder's photographs, in photos/.ccnn: computed once, by ccnn learn or ahead of it.

    broken = update_features(work, recipe.backbone, recipe.sizes, files, digests, jobs=2)
    update_maps(work, "u2netp", files, digests, jobs=2)

There is one folder of ccnn.training.features per size at which the backbone sees the photographs. Its photographs.json
holds the digest of the content that the features were computed from: a photograph that was replaced is computed again.
So does the one folder of maps, cues/NAME-SIZE.
"""
import json
import logging
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Optional

import numpy as np

from ccnn._util.errors import ImageError, UserError
from ccnn._util.files import remove_parts, whole_file
from ccnn._util.foreign_files import parse_json
from ccnn._util.progress import Progress
from ccnn._util.text import plural
from ccnn._util.work_folder import entries, remove
from ccnn._util.workers import in_processes
from ccnn.images.reading import read_image
from ccnn.inference.cue_maps import load_cue
from ccnn.nets.backbones import Backbone
from ccnn.nets.cues import CUES
from ccnn.training.features import check_index, compute, is_whole, plan_features, save_features

log = logging.getLogger(__name__)


def update_features(work: Path, backbone: Backbone, sizes: Sequence[int], files: dict[str, str],
                    digests: dict[str, str], jobs: int, keep: Collection[str] = ()) -> dict[str, ImageError]:
    """Compute the features that are missing, and remove those of photographs that were replaced or are gone.
    Returns {id: why} of the photographs that cannot be read.

    files   : {id: photograph}
    digests : {id: checksum of its content}
    keep    : ids of other photographs, whose features stay if there are some
    """
    weights = backbone.fetch_weights()
    folders = {size: work / "features" / str(size) for size in sizes}
    remove_other_sizes(work / "features", folders.values())
    for size, out in folders.items():
        prepare_folder(backbone, out, size, weights)
        remove_stale(out, digests, keep)
    plans = {size: plan_features(backbone, files, out, size) for size, out in folders.items()}
    need, free = sum(plan.size for plan in plans.values()), shutil.disk_usage(work).free
    if need > free:
        raise UserError(f"{work}: the features of {plural(len(files), 'photograph')} need {need / 1e9:.2f} GB more, "
                        f"and {free / 1e9:.2f} GB are free; free some")
    broken: dict[str, ImageError] = {}
    for size, plan in plans.items():
        broken.update(plan.broken)
        if plan.todo:
            broken.update(compute(backbone, weights, plan.todo, folders[size], size, jobs))
    return broken


def maps_folder(work: Path, cue: str) -> Path:
    """Where the maps of a cue are; its name holds all that they depend on besides the photograph."""
    return work / "cues" / f"{cue}-{CUES[cue].size}"


def update_maps(work: Path, cue: str, files: dict[str, str], digests: dict[str, str], jobs: int,
                keep: Collection[str] = ()) -> None:
    """Compute the maps that are missing, and remove those of photographs that were replaced or are gone. The arguments
    are those of update_features. Photographs that cannot be read get no map."""
    out = maps_folder(work, cue)
    out.mkdir(parents=True, exist_ok=True)
    remove_parts(out)
    remove_stale(out, digests, keep)
    compute_maps(out, cue, files, jobs)


def compute_maps(out: Path, cue: str, files: dict[str, str], jobs: int) -> None:
    """Compute the maps of {id: file} that are not in the folder `out`, or are damaged there."""
    shape = (CUES[cue].size, CUES[cue].size)
    todo = [(file, out / f"{id}.npy") for id, file in files.items() if not is_whole(out / f"{id}.npy", shape)]
    if todo:
        for _ in Progress(in_processes(MapWriter(cue), todo, min(jobs, len(todo)), failed=no_map), total=len(todo),
                          unit="image", desc="what stands out"):
            pass


class MapWriter:
    """Writes the map of one photograph after the other, rows x columns float16. It can be sent to other processes;
    each loads the net when it needs it first."""

    def __init__(self, cue: str) -> None:
        self.cue = cue

    def __call__(self, file: str, path: Path) -> Optional[ImageError]:
        try:
            save_features(path, load_cue(self.cue)(read_image(file)).astype(np.float16))
            return None
        except ImageError as error:
            return error


def no_map(why: str, file: str, path: Path) -> ImageError:
    """The result for a photograph that ends its worker."""
    return ImageError(f"{file}: {why}")


def remove_other_sizes(place: Path, folders: Collection[Path]) -> None:
    """Remove features that this version does not use."""
    if [path for path in place.glob("*") if path not in folders and remove(path)]:
        log.warning("%s: held features of an earlier version; computing them again", place)


def prepare_folder(backbone: Backbone, out: Path, size: int, weights: Path) -> None:
    """Make the folder of one size. Features of another backbone or size are removed."""
    try:
        check_index(backbone, out, size, weights)
    except UserError as error:
        log.warning("%s; computing them again", str(error).partition(";")[0])
        remove(out)
        check_index(backbone, out, size, weights)


def remove_stale(out: Path, digests: dict[str, str], keep: Collection[str]) -> None:
    """Remove the features of photographs that were replaced or are gone, and note what the others are computed from."""
    index = out / "photographs.json"
    try:
        before = dict(parse_json(index))
    except (ValueError, TypeError):             # missing or damaged
        before = {}
    now = {**{id: before[id] for id in keep if id in before}, **digests}
    for path, _ in entries(out):
        id = path.relative_to(out).as_posix()[:-len(".npy")]
        if path.suffix == ".npy" and (id not in now or before.get(id) != now[id]):
            remove(path)
    with whole_file(index) as part:             # first: features that are not computed yet are missing, not stale
        part.write_text(json.dumps(now))
