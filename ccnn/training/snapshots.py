"""Snapshots of a training: which of them are whole, which is the newest, whether more fit on the disk."""
import logging
import math
import re
import shutil
from pathlib import Path
from typing import Optional

from ccnn._util.errors import UserError
from ccnn._util.files import PathLike
from ccnn.nets.caffe_files import MOMENTS, Arrays, read_caffemodel, read_state
from ccnn.nets.weights import Shapes

log = logging.getLogger(__name__)


def snapshots(prefix: Path, suffix: str = ".solverstate") -> dict[int, Path]:
    """{iteration: file} of the snapshots with this prefix, in order, whole or not."""
    name = re.compile(re.escape(prefix.name) + r"_iter_(\d+)" + re.escape(suffix))
    if not prefix.parent.is_dir():
        return {}
    found = ((name.fullmatch(path.name), path) for path in prefix.parent.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def newest_snapshot(solver, shapes: Shapes) -> tuple[int, Optional[Path]]:
    """(iteration, .solverstate file) of the newest whole snapshot; (0, None) if there is none."""
    for path in reversed(snapshots(Path(solver.snapshot_prefix)).values()):
        try:
            return check_snapshot(path, shapes, solver), path
        except (UserError, OSError) as e:
            log.warning("passing over a snapshot: %s", e)
    return 0, None


def check_snapshot(state_file: Path, shapes: Shapes, solver) -> int:
    """The iteration of a snapshot; UserError unless state and weights are whole, finite and of this net.

    A file cut between two of its fields is still valid protobuf, so the blobs are counted and compared too.
    """
    state = read_state(state_file)
    weights = check_model(state.weights, shapes)
    wanted = [array.shape for arrays in weights.values() for array in arrays] * MOMENTS[solver.type]
    history = [array.shape for array in state.history]
    if history != wanted or state.step is None:
        raise UserError(f"{state_file}: keeps {len(history)} of {len(wanted)} blobs, or another net's")
    return state.iteration


def check_model(path: PathLike, shapes: Shapes) -> Arrays:
    """The weights of a trained model; UserError unless they are whole, finite and of this net."""
    weights = read_caffemodel(path)
    for name, shape in shapes.items():
        had = [array.shape for array in weights.get(name, [])]
        if had != [shape, shape[:1]]:
            raise UserError(f"{path}: has no whole layer {name}, or that of another net")
    return weights


def remove_cut(solver, shapes: Shapes, start: int) -> None:
    """Remove what Caffe was writing when it was ended, in a run from iteration `start` on: it may fill the disk."""
    prefix = Path(solver.snapshot_prefix)
    for suffix in (".solverstate", ".caffemodel"):
        iteration, path = max(snapshots(prefix, suffix).items(), default=(0, None))
        if path and iteration > start:
            try:
                check_snapshot(path, shapes, solver) if suffix == ".solverstate" else check_model(path, shapes)
            except (UserError, OSError) as e:
                log.warning("removing a part of a snapshot: %s", e)
                path.unlink()


def check_links(prefix: Path, start: int) -> None:
    """UserError if a snapshot after iteration `start` is a link: Caffe would write to the file that it names."""
    for suffix in (".solverstate", ".caffemodel"):
        for iteration, path in snapshots(prefix, suffix).items():
            if iteration > start and path.is_symlink():
                raise UserError(f"{path}: is a link, to which Caffe would write; remove it")


def remove_snapshots(prefix: Path) -> None:
    for suffix in (".solverstate", ".caffemodel"):
        for path in snapshots(prefix, suffix).values():
            path.unlink()


def check_space(solver, shapes: Shapes, start: int) -> None:
    """UserError unless all the snapshots to come, from iteration `start` on, fit on the disk."""
    size = 4 * sum(math.prod(shape) + shape[0] for shape in shapes.values()) * (1 + MOMENTS[solver.type])
    number = 1 + ((solver.max_iter - start - 1) // solver.snapshot if solver.snapshot else 0)
    free = shutil.disk_usage(Path(solver.snapshot_prefix).parent).free
    if size * number > free:
        raise UserError(f"{number} snapshots of {size / 1e6:.1f} MB do not fit into the {free / 1e6:.0f} MB free at "
                        f"{solver.snapshot_prefix}: free some, or take fewer with --set snapshot=N")
