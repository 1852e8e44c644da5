"""Files that are whole or not there, their checksums, and locks between processes."""
import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import shutil
import stat
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Optional, Union

from ccnn._util import work_folder
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
    """Write a file, whole or not at all. Its content is on the disk before it takes the place of the old file."""
    with whole_file(path) as part, open(part, "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def rewrite(path: Path, data: bytes) -> None:
    """Save new content of a file that the user keeps. Its permissions stay. A link stays: its target is rewritten."""
    target = Path(os.path.realpath(path))
    if path.is_symlink():
        if not target.is_file():
            raise UserError(f"{path}: is a link to {target}, which is not a file; remove the link")
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
    while not try_lock(file.fileno()):
        holder = os.pread(file.fileno(), 20, 0).decode(errors="replace").strip()
        if is_running(holder) or time.monotonic() > end:
            file.close()
            raise UserError(f"{path}: {taken.format(holder=holder if holder.isdecimal() else '(unknown)')}")
        time.sleep(0.05)
    file.truncate(0)
    with contextlib.suppress(OSError):      # a full disk: the number only makes the message better
        file.write(f"{os.getpid()}\n".encode())
    return file


def try_lock(handle: int) -> bool:
    """Whether this process has the lock of an open file or folder now; False if another process has it."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@contextlib.contextmanager
def locked_folder(folder: Path, taken: str) -> Iterator[None]:
    """Lock a folder itself, without a file in it. taken : what the UserError says if another process has the lock"""
    handle = os.open(folder, os.O_RDONLY)
    try:
        if not try_lock(handle):
            raise UserError(f"{folder}: {taken}")
        yield
    finally:
        os.close(handle)


def open_own(path: Path) -> FileIO:
    """Open a file to append to it; UserError unless it is an ordinary file of the user's own under this name alone."""
    try:
        file = FileIO(path, "a+", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666))
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


@contextlib.contextmanager
def one_at_a_time(path: PathLike) -> Iterator[None]:
    """Hold a lock on a file, which is made if need be; wait as long as another process holds it."""
    with FileIO(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def unlock(file: FileIO) -> None:
    """Release a lock, also where other processes still have the file open."""
    if not file.closed:
        fcntl.flock(file, fcntl.LOCK_UN)
        file.close()


def is_running(pid: str) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (ValueError, OSError):
        return False


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
    """Warn before a file is overwritten."""
    if path.exists():
        log.warning("replacing %s", path)
