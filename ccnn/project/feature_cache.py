"""The features of a folder's photographs, in photos/.ccnn/features: computed once, by ccnn learn or ahead of it.

    broken = update_features(work, RECIPE.sizes, VGG16.fetch_weights(), files, digests, jobs=2)

There is one folder of ccnn.training.features per size at which the trunk sees the photographs. Its photographs.json
holds the digest of the content that the features were computed from: a photograph that was replaced is computed again.
"""
import json
import logging
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from ccnn._util.errors import ImageError, UserError
from ccnn._util.files import whole_file
from ccnn._util.foreign_files import parse_json
from ccnn._util.text import plural
from ccnn._util.work_folder import entries, remove
from ccnn.training.features import check_index, compute, plan_features

log = logging.getLogger(__name__)


def update_features(work: Path, sizes: Sequence[int], trunk: Path, files: dict[str, str], digests: dict[str, str],
                    jobs: int, keep: Collection[str] = ()) -> dict[str, ImageError]:
    """Compute the features that are missing, and remove those of photographs that were replaced or are gone.
    Returns {id: why} of the photographs that cannot be read.

    files   : {id: photograph}
    digests : {id: checksum of its content}
    keep    : ids of other photographs, whose features stay if there are some
    """
    folders = {size: work / "features" / str(size) for size in sizes}
    remove_other_sizes(work / "features", folders.values())
    for size, out in folders.items():
        prepare_folder(out, size, trunk)
        remove_stale(out, digests, keep)
    plans = {size: plan_features(files, out, size) for size, out in folders.items()}
    need, free = sum(plan.size for plan in plans.values()), shutil.disk_usage(work).free
    if need > free:
        raise UserError(f"{work}: the features of {plural(len(files), 'photograph')} need {need / 1e9:.2f} GB more, "
                        f"and {free / 1e9:.2f} GB are free; free some")
    broken: dict[str, ImageError] = {}
    for size, plan in plans.items():
        broken.update(plan.broken)
        if plan.todo:
            broken.update(compute(trunk, plan.todo, folders[size], size, jobs))
    return broken


def remove_other_sizes(place: Path, folders: Collection[Path]) -> None:
    """Remove features that this version does not use."""
    if [path for path in place.glob("*") if path not in folders and remove(path)]:
        log.warning("%s: held features of an earlier version; computing them again", place)


def prepare_folder(out: Path, size: int, trunk: Path) -> None:
    """Make the folder of one size. Features of another trunk or size are removed."""
    try:
        check_index(out, size, trunk)
    except UserError as error:
        log.warning("%s; computing them again", str(error).partition(";")[0])
        remove(out)
        check_index(out, size, trunk)


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
