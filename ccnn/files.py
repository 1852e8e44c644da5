"""Files that are whole or not there, and their checksums."""
import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Union

PathLike = Union[str, "os.PathLike[str]"]

log = logging.getLogger(__name__)


@contextlib.contextmanager
def whole_file(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` on success, remove it on failure.

    The suffix stays, because libraries read the format from it. Missing folders are made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield part
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside `path`; rename it to `path` on success. What a killed run left is removed first."""
    part = path.with_name(f".{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def digest(*paths: PathLike, algorithm: str = "sha256", bar: bool = False) -> str:
    """The checksum of a file, in hexadecimal; of several files, that of their contents one after the other.

    bar : show the progress of each file, for files that take long
    """
    found = hashlib.new(algorithm)
    for path in paths:
        with open(path, "rb") as file, read_with_bar(file, "checking") if bar else contextlib.nullcontext(file) as data:
            while block := data.read(1 << 20):
                found.update(block)
    return found.hexdigest()


def read_with_bar(file, what: str):
    """An open file whose read() moves a progress bar; a context manager."""
    from tqdm import tqdm
    return tqdm.wrapattr(file, "read", total=os.fstat(file.fileno()).st_size, desc=f"{what} {Path(file.name).name}",
                         disable=None)


def warn_if_there(path: Path) -> None:
    """Nothing is replaced without a word."""
    if path.exists():
        log.warning("replacing %s", path)
