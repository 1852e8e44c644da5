"""Which photographs: what the files, folders and patterns of a command line stand for."""
import glob
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Optional, Union

from PIL import Image

from ccnn._util.errors import UserError
from ccnn._util.text import and_more
from ccnn.images.ids import read_list


def find_photographs(arguments: Iterable[Union[str, Path]], only: Optional[Path], out: Path) -> list[tuple[Path, str]]:
    """[(path, name)] of the photographs; the name is the path below a folder, without suffix.

    arguments : files, folders, which are searched through, and patterns such as "holiday/**/*.jpg"
    only      : a file with the names to take, one per line; None takes all
    out       : where results go, which are no photographs
    """
    found: dict[Path, str] = {}
    for argument in arguments:
        folder = Path(argument)
        if folder.is_dir():
            names = {path: path.relative_to(folder) for path in photographs_below(folder, out)}
        else:
            names = {path: Path(path.name) for path in matching_files(str(argument))}
        if not names:
            raise UserError(f"{argument}: no such photograph, or a folder without any")
        found.update((path, str(name.with_suffix(""))) for path, name in names.items())
    return list((take_only(found, only) if only else found).items())


def is_photograph(path: Path) -> bool:
    """By its name. macOS leaves a file `._x.jpg` beside `x.jpg` on foreign disks, which is none."""
    return path.suffix.lower() in Image.registered_extensions() and not path.name.startswith("._") and path.is_file()


def photographs_below(folder: Path, out: Path) -> list[Path]:
    whole, out = folder.resolve(), out.resolve()
    if whole == out:
        raise UserError(f"--out {folder}: is a folder of photographs; name another for the masks")
    inner = folder / out.relative_to(whole) if whole in out.parents else None
    return [path for path in sorted(folder.rglob("*")) if is_photograph(path) and inner not in path.parents
            and not any(part.startswith(".") for part in path.relative_to(folder).parts[:-1])]     # such as .ccnn


def matching_files(argument: str) -> list[Path]:
    """A file of that name, or those that match the pattern."""
    if Path(argument).exists():
        return [Path(argument)]
    return [Path(path) for path in sorted(glob.glob(argument, recursive=True)) if os.path.isfile(path)]


def take_only(found: dict[Path, str], only: Path) -> dict[Path, str]:
    wanted = set(read_list(only))
    missing = sorted(wanted - set(found.values()))
    if missing:
        raise UserError(f"{only}: names {missing[0]!r}{and_more(missing)}, but no such photograph was given")
    return {path: name for path, name in found.items() if name in wanted}


def pair_with_photographs(sources: Sequence[Path], folder: Path) -> list[tuple[Path, Path]]:
    """(file, photograph) for every .npz file, those of folders included; the photograph in `folder` has its name."""
    if not folder.is_dir():
        raise UserError(f"--images {folder}: no such folder")
    photographs: dict[str, Path] = {}
    for path in sorted(filter(is_photograph, folder.iterdir())):
        photographs.setdefault(path.stem, path)
    files = [f for source in sources for f in (sorted(source.rglob("*.npz")) if source.is_dir() else [source])]
    if not files:
        raise UserError(f"{sources[0]}: holds no .npz files; make them with ccnn segment --probabilities")
    for path in files:
        if not path.is_file():
            raise UserError(f"{path}: no such file or folder")
        if path.stem not in photographs:
            raise UserError(f"{path}: there is no photograph named {path.stem} in {folder}")
    return [(path, photographs[path.stem]) for path in files]
