"""Which photographs a folder holds, and which of them a name or an argument means: the same for every command.

A photograph is a file whose name ends in one of ccnn.images.formats.SUFFIXES, in the folder or below it. Hidden files
and folders do not count (macOS writes ._a.jpg beside a.jpg), nor does `scribbles` beside constraints.toml, which holds
marks. Files that look like photographs and cannot be read are listed with the reason, so that a command can name them.
"""
import glob
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional, Union

from ccnn._util.errors import UserError
from ccnn._util.text import and_more, plain, some
from ccnn.images.formats import HEIC, INSTALL_HEIC, READ, SUFFIX, heic_is_readable
from ccnn.images.ids import read_list

OTHER = re.compile(r"\.(avif|jxl|jp2|dng|cr2|cr3|nef|arw|orf|raf|rw2)$", re.IGNORECASE)     # photographs, but not ours

UPLOAD = re.compile(r"^[0-9a-f]{8}-")       # Label Studio puts this before the name of a file that it is given

MARKS, RULES = "scribbles", "constraints.toml"      # marked pixels, and the file beside them

AnyPath = Union[str, "os.PathLike[str]"]


class Listing(NamedTuple):
    """The photographs below a folder. Paths are from that folder, with / between names, in alphabetical order."""
    paths: list[str]
    skipped: dict[str, str]         # {path: why it is not read} of the others


def list_photographs(folder: AnyPath, leave: Optional[Path] = None) -> Listing:
    """leave : a folder that is not searched"""
    found = Listing([], {})
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".")
                            and not (name == MARKS and RULES in files)
                            and not (leave and Path(place, name).resolve() == leave))
        inner = os.path.relpath(place, folder).replace(os.sep, "/")
        for name in sorted(files):
            if name.startswith(".") or not (SUFFIX.search(name) or OTHER.search(name)):
                continue
            path = name if inner == "." else f"{inner}/{name}"
            why = why_skipped(os.path.join(place, name))
            if why:
                found.skipped[path] = why
            else:
                found.paths.append(path)
    return found


def why_skipped(path: str) -> Optional[str]:
    """Why a file with the name of a photograph is not read; None if it is."""
    if not os.path.isfile(path):
        return "is a link to a file that does not exist" if os.path.islink(path) else "is not a file"
    if OTHER.search(path):
        return f"need {READ}; convert it"
    if path.lower().endswith(HEIC["HEIF"]) and not heic_is_readable():
        return INSTALL_HEIC
    return None


def skipped_sentence(skipped: Mapping[str, str]) -> str:
    """One sentence about the files that are not read: "2 files are skipped: a.avif (need JPEG ...), ..."; or ""."""
    by_reason: dict[str, list[str]] = {}
    for path, why in skipped.items():
        by_reason.setdefault(why, []).append(path)
    if not skipped:
        return ""
    what = "1 file is" if len(skipped) == 1 else f"{len(skipped):,} files are"
    return f"{what} skipped: " + "; ".join(f"{some(paths)} ({why})" for why, paths in by_reason.items())


def image_folder(root: AnyPath) -> str:
    """JPEGImages in a VOC folder, else the folder itself."""
    inner = os.path.join(root, "JPEGImages")
    return inner if os.path.isdir(inner) else str(root)


# What a name means

class PhotographIndex:
    """Finds photographs by names as people write them: with or without suffix, folder, upper case, composed accents.

    A file of exactly that path comes first. Else paths, then names of files, are compared in lower case and NFC, with
    and without suffix. Among several the one in the fewest folders is meant.
    """

    def __init__(self, folder: AnyPath) -> None:
        self.folder = folder
        self.paths, self.skipped = list_photographs(folder)
        self.by_path: dict[str, list[str]] = {}
        self.by_name: dict[str, list[str]] = {}
        for path in self.paths:
            for table, name in ((self.by_path, path), (self.by_name, path.rpartition("/")[2])):
                for key in dict.fromkeys(_keys(name)):
                    table.setdefault(key, []).append(path)

    def at(self, name: str) -> Optional[str]:
        """The path of the photograph at the place that a name says; None if there is none."""
        if name in self.by_path.get(_keys(name)[0], ()):
            return name
        return _nearest(self.by_path, name.replace("\\", "/"))

    def find(self, name: str) -> Optional[str]:
        """The same, but a photograph of that name in any folder will do."""
        base = name.replace("\\", "/").rpartition("/")[2]
        return self.at(name) or _nearest(self.by_name, base) or _nearest(self.by_name, UPLOAD.sub("", base))

    def why_not_found(self, name: str) -> str:
        """Why a name means no photograph: what is there is not read, or nothing of that name is there."""
        return self.why_not_read(name) or f"there is no such photograph in {self.folder}"

    def why_not_read(self, name: str) -> Optional[str]:
        """Why the file that a name means is not read; None if there is no such file."""
        wanted = {*_keys(name), *_keys(name.rpartition("/")[2])}
        for path, why in self.skipped.items():
            if wanted & {*_keys(path), *_keys(path.rpartition("/")[2]), _keys(OTHER.sub("", path))[0]}:
                return f"{os.path.join(self.folder, path)} is not read: {why}"
        if os.path.isfile(os.path.join(self.folder, name)):
            return f"{os.path.join(self.folder, name)} has no suffix of a photograph (.jpg, .png, ...); rename it"
        return None


def _nearest(table: Mapping[str, list[str]], name: str) -> Optional[str]:
    """The path in the fewest folders of those that a table has for a name; None if it has none."""
    paths: Collection[str] = next((table[key] for key in _keys(name) if key in table), [])
    depth = min((path.count("/") for path in paths), default=0)
    nearest = [path for path in paths if path.count("/") == depth]
    if nearest[1:]:
        raise UserError(f"{name!r} may be {nearest[0]!r} or {nearest[1]!r}; write one of these")
    return nearest[0] if nearest else None


def same_name(name: str) -> str:
    """What the names of a photograph have in common, however people write them."""
    return _keys(name)[1]


def _keys(name: str) -> tuple[str, str]:
    """What a name is compared by: itself, then without suffix."""
    name = plain(name).casefold()
    return name, SUFFIX.sub("", name)


# What the arguments of a command mean

class Found(NamedTuple):
    photographs: list[tuple[Path, str]]     # (path, name); the name is the path below a folder, without suffix
    skipped: dict[str, str]                 # {path: why} of files that are not read


def find_photographs(arguments: Iterable[Union[str, Path]], only: Optional[Path], out: Path) -> Found:
    """The photographs that a command line names.

    arguments : files, folders, which are searched through, and patterns such as "holiday/**/*.jpg"
    only      : a file with the names to take, one per line; None takes all
    out       : where results go, which are not photographs
    """
    found: dict[Path, str] = {}
    skipped: dict[str, str] = {}
    for argument in arguments:
        folder = Path(argument)
        if folder.is_dir():
            if folder.resolve() == out.resolve():
                raise UserError(f"--out {folder}: is a folder of photographs; name another for the masks")
            listing = list_photographs(folder, leave=out.resolve())
            skipped.update((str(folder / path), why) for path, why in listing.skipped.items())
            names = {folder / path: Path(path) for path in listing.paths}
        else:
            names = {path: Path(path.name) for path in matching_files(str(argument))}
        if not names:
            why = skipped_sentence(skipped) if skipped else f"need {READ}"
            raise UserError(f"{argument}: " + (f"holds no photographs; {why}" if folder.is_dir() else
                                               "no such file or folder"))
        found.update((path, str(name.with_suffix(""))) for path, name in names.items())
    return Found(list((take_only(found, only) if only else found).items()), skipped)


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
    for name in list_photographs(folder).paths:
        if "/" not in name:
            photographs.setdefault(SUFFIX.sub("", name), folder / name)
    files = [f for source in sources for f in (sorted(source.rglob("*.npz")) if source.is_dir() else [source])]
    if not files:
        raise UserError(f"{sources[0]}: holds no .npz files; make them with ccnn segment --probabilities")
    for path in files:
        if not path.is_file():
            raise UserError(f"{path}: no such file or folder")
        if path.stem not in photographs:
            raise UserError(f"{path}: there is no photograph named {path.stem} in {folder}")
    return [(path, photographs[path.stem]) for path in files]
