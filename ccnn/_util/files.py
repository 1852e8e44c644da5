"""Files that are complete or absent, their checksums, and locks between processes."""
import contextlib
import errno
import hashlib
import io
import logging
import os
import shutil
import stat
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import IO, Callable, Optional, Union

import numpy as np

from ccnn._util import system, work_folder
from ccnn._util.errors import UserError

PathLike = Union[str, "os.PathLike[str]"]

log = logging.getLogger(__name__)


@contextlib.contextmanager
def whole_file(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` on success, remove it on failure.

    The suffix stays, because libraries read the format from it. Missing folders are made. The OSError of a full disk
    names the file, which that of write() does not; NumPy's and Pillow's have no number and no reason either.
    """
    path = Path(path)
    work_folder.check(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise UserError(f"{path}: is a folder, and a file is to be written there; remove or rename it")
    part = path.with_name(f".{path.stem}.{os.urandom(4).hex()}.part{path.suffix}")      # unique on all machines
    try:
        yield part
        os.replace(part, path)
    except OSError as e:
        if e.filename is not None:
            raise
        raise OSError(e.errno or errno.EIO, f"cannot be written ({e.strerror or e}); is the disk full? Free some "
                      "space, then run the same command again", str(path)) from e
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


def save(path: PathLike, data: bytes, mode: Optional[int] = None) -> None:
    """Write a file, whole or not at all. Its content is on the disk before it takes the place of the old file.

    mode : its permissions; nobody who has fewer opens it meanwhile
    """
    def private(name, flags):
        return os.open(name, flags, 0o666 if mode is None else 0o600)
    with whole_file(path) as part, open(part, "wb", opener=private) as file:
        if mode is not None:
            os.chmod(part, mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def rewrite(path: Path, data: bytes) -> None:
    """Save new content of a file that the user keeps. Its permissions stay. A link to a file in the same folder, or
    below it, stays: its target is rewritten. Others are refused: a folder may come from a stranger."""
    target = Path(os.path.realpath(path))
    if path.is_symlink():
        if not target.is_file():
            raise UserError(f"{path}: is a link to {target}, which is not a file; remove the link")
        if path.parent.resolve() not in target.parents:
            raise UserError(f"{path}: is a link out of its folder, to {target}, which is not changed; copy it here")
        work_folder.refuse_foreign(target, target.stat())
    save(target, data, stat.S_IMODE(target.stat().st_mode) if target.exists() else None)


def remove_parts(folder: Path, age: float = 3600) -> None:
    """Remove what whole_file has left of killed runs: the parts in a folder that are older than `age` seconds."""
    for part, found in work_folder.entries(folder):
        if work_folder.PART.fullmatch(part.name) and stat.S_ISREG(found.st_mode) and time.time() - found.st_mtime > age:
            part.unlink(missing_ok=True)                    # another run may be faster


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


def lock(path: PathLike, taken: str, patience: float = 10) -> FileIO:
    """Lock a file, which is created if it is missing. The lock lasts until this process, and every process that has
    inherited the open file, has closed it or ended. A link, or a file of somebody else, is refused and stays as it is.

    taken    : what the UserError says if another process has the lock; {holder} stands for its number
    patience : seconds to wait where that process has ended, because its children are about to
    """
    path = Path(path)
    work_folder.check(path.parent)
    file = open_own(path)
    end = time.monotonic() + patience
    while not system.try_lock(file.fileno()):
        file.seek(0)
        holder = file.read(20).decode(errors="replace").strip()
        if (holder.isdecimal() and system.is_running(int(holder))) or time.monotonic() > end:
            file.close()
            raise UserError(f"{path}: {taken.format(holder=holder if holder.isdecimal() else '(unknown)')}")
        time.sleep(0.05)
    file.truncate(0)
    with contextlib.suppress(OSError):      # a full disk: the number only makes the message better
        file.write(f"{os.getpid()}\n".encode())
    return file


@contextlib.contextmanager
def locked_folder(folder: Path, taken: str) -> Iterator[None]:
    """Lock a folder itself, without a file in it. taken : what the UserError says if another process has the lock"""
    handle = os.open(folder, os.O_RDONLY)
    try:
        if not system.try_lock(handle):
            raise UserError(f"{folder}: {taken}")
        yield
    finally:
        os.close(handle)


def open_own(path: Path) -> FileIO:
    """Open a file to append to it; UserError unless it is an ordinary file of the user's own under this name alone."""
    try:
        file = FileIO(path, "a+", opener=lambda name, flags: os.open(name, flags | system.NO_LINK, 0o666))
    except OSError as error:
        if error.errno == errno.ELOOP:
            work_folder.refuse_foreign(path, path.lstat())
        raise
    found = os.fstat(file.fileno())
    try:
        work_folder.refuse_foreign(path, found)
        if found.st_nlink > 1:
            raise UserError(f"{path}: is another file, too (a hard link); remove it")
    except UserError:
        file.close()
        raise
    return file


def append_text(path: PathLike) -> IO[str]:
    """A text file of the user's own, opened to add lines to it; UserError if it is a link, as for open_own."""
    return io.TextIOWrapper(io.BufferedWriter(open_own(Path(path))), encoding="utf-8", line_buffering=True)


@contextlib.contextmanager
def one_at_a_time(path: PathLike) -> Iterator[None]:
    """Hold a lock on a file, which is made if need be; wait as long as another process holds it."""
    with FileIO(path, "a+") as file:
        system.wait_for_lock(file.fileno())
        yield


def made_once(path: Path, make: Callable[[Path], object]) -> Path:
    """The path. make(path) writes the file if it is not there yet, once, however many processes ask for it."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(path.with_name(f".{path.name}.lock")):
            if not path.exists():
                make(path)
    return path


def unlock(file: FileIO) -> None:
    """Release a lock, also where other processes still have the file open."""
    if not file.closed:
        system.release_lock(file.fileno())
        file.close()


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
    name = Path(file.name).name.partition("#")[0]
    return tqdm.wrapattr(file, "read", total=os.fstat(file.fileno()).st_size, desc=f"{what} {name}", disable=None)


def load_array(path: PathLike) -> np.ndarray:
    """The array in an .npy file, read as it is used. ValueError unless the file is as long as its head says."""
    try:
        return np.load(path, mmap_mode="r")
    except OSError:
        raise
    except Exception:               # of a damaged head: ValueError, TokenError, SyntaxError, OverflowError, ...
        raise ValueError("is not a whole file of an array") from None       # NumPy's text advises to run its code


def warn_if_there(path: Path) -> None:
    """Warn before a file is overwritten."""
    if path.exists():
        log.warning("replacing %s", path)
