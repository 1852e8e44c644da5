"""photos/.ccnn, the working folder: what may be written and removed in it.

A folder of photographs may come from a stranger, and bring a .ccnn of its own. Three rules keep the user's other files
safe; everything that writes or removes below a .ccnn goes through this module.

    work = claim("photos")          # before a command begins: no link anywhere in it, and all of it is the user's
    check(work / "features/224")    # before a file is written there: the same for each folder on the way
    remove(work / "features/224")   # removes what matches OURS, the names that we write; anything else stays
"""
import contextlib
import errno
import itertools
import os
import re
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Optional, Union

from ccnn._util import system
from ccnn._util.errors import UserError

WORK = ".ccnn"              # in the folder of the photographs

PART = re.compile(r"\..*\.[0-9a-f]{8}\.part(\.\w+)?", re.DOTALL)        # names that ccnn._util.files.whole_file gives

OURS = re.compile(          # paths from .ccnn of the files that are removed again
    r"features/.+\.npy"
    r"|features/(\d+/)?(index|photographs)\.json"
    r"|cues/[\w-]+/.+\.npy"
    r"|cues/[\w-]+/photographs\.json"
    r"|labels/.+\.png"
    r"|runs/[0-9a-f]{16}/(first|second)(_iter_\d+)?\.[\w.]+"
    r"|folds/[0-9a-f]{16}/((fold)?\d+(_iter_\d+)?\.[\w.]+|\d+-held\.txt)"
    r"|thumbnails/[0-9a-f]{16}-[0-9a-f]+-[0-9a-f]+-\d+\.jpg"
    r"|studio/history/[0-9a-f]{16}/(undo|redo)-\d{6}\.png"
    r"|studio/uploads/\d+(\.\w+)?"
    r"|studio/batches/\d+/(photographs|masks|masks/overlay)/\d{4}\.\w+", re.DOTALL)


def claim(root: Union[str, Path]) -> Path:
    """The working folder of a folder of photographs, which is made if it is not there.

    UserError if something in it is a link, or belongs to another user.
    """
    root = Path(root)
    if WORK in root.resolve().parts:
        raise UserError(f"{root}: lies in a folder {WORK}, where ccnn keeps its own files; move the photographs out")
    work = root / WORK
    try:
        with contextlib.suppress(FileExistsError):
            work.mkdir()
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise UserError(f"{root}: cannot be written ({error.strerror}), and ccnn keeps tags, models and its own files "
                        "in it; copy the photographs to a folder of your own") from None
    for path, found in itertools.chain(lstat(work), entries(work)):     # not followed if it is a link: refused first
        refuse_foreign(path, found)
    return work


def check(path: Path) -> None:
    """UserError if a folder on the way from .ccnn to `path`, or `path` itself, is a link or belongs to another user.
    Paths that are not below a .ccnn, or not there yet, pass, but the folder of the photographs must be there."""
    if WORK in path.parts:
        photographs = Path(*path.parts[:path.parts.index(WORK)])
        if not photographs.is_dir():
            raise UserError(f"{photographs}: the folder is no longer there; start again where it is now")
        with contextlib.suppress(FileNotFoundError), opened(path):
            pass


def check_links(path: Path, root: Path) -> None:
    """UserError if a component of `path` below `root` is a link."""
    for part in [path, *path.parents]:
        if part == root:
            return
        if part.is_symlink():
            refuse_foreign(part, part.lstat())


def remove(path: Path) -> bool:
    """Remove a file or a folder, as far as we wrote it. Whether something was removed."""
    work = Path(*path.parts[:path.parts.index(WORK) + 1])
    folders, removed = [], False
    for found, about in itertools.chain(lstat(path), () if path.is_symlink() else entries(path)):
        if stat.S_ISDIR(about.st_mode):
            folders.append(found)
        elif OURS.fullmatch(found.relative_to(work).as_posix()) or PART.fullmatch(found.name):
            removed |= _remove(os.unlink, found)
    for folder in reversed(folders):            # what is in a folder comes after it
        with contextlib.suppress(OSError):      # something in it is not ours
            _remove(os.rmdir, folder)
    return removed


def _remove(function, path: Path) -> bool:
    """os.unlink or os.rmdir, by the descriptor of the folder: nobody can exchange that for a link meanwhile."""
    with contextlib.suppress(FileNotFoundError), opened(path.parent) as folder:
        if folder is None:
            function(path)
        else:
            function(path.name, dir_fd=folder)
        return True
    return False


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Optional[int]]:
    """A descriptor of .ccnn or a folder in it, reached without following a link below the photographs' folder; None
    where the system opens no folders, and each on the way is checked by its name."""
    place = folder.parts.index(WORK)
    if not system.FOLDERS_OPEN:
        for end in range(place + 1, 1 + len(folder.parts)):
            reached = Path(*folder.parts[:end])
            refuse_foreign(reached, reached.lstat())
            if not reached.is_dir():
                raise UserError(f"{reached}: is a file where ccnn needs a folder; remove it")
        yield None
        return
    reached = Path(*folder.parts[:place])
    handle = os.open(reached, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in folder.parts[place:]:
            reached /= name
            try:
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    refuse_foreign(reached, os.stat(name, dir_fd=handle, follow_symlinks=False))
                    raise UserError(f"{reached}: is a file where ccnn needs a folder; remove it") from None
                raise
            os.close(handle)
            handle = inner
            refuse_foreign(reached, os.fstat(handle))
        yield handle
    finally:
        os.close(handle)


def entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """(path, lstat) of everything below a folder, each folder before what is in it. No link is followed."""
    todo = [folder]
    while todo:
        place = todo.pop()
        try:
            paths = [Path(entry.path) for entry in os.scandir(place)]
        except (FileNotFoundError, NotADirectoryError):         # removed by another process; a file
            continue
        for path in paths:
            for found, about in lstat(path):
                yield found, about
                if stat.S_ISDIR(about.st_mode):
                    todo.append(found)


def lstat(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """(path, lstat), or nothing if it is not there (any more)."""
    with contextlib.suppress(FileNotFoundError):
        yield path, path.lstat()


def refuse_foreign(path: Path, found: os.stat_result) -> None:
    """UserError unless this is a file or folder of the user's own. found : its lstat"""
    why: Optional[str] = None
    if stat.S_ISLNK(found.st_mode):
        why = f"is a link, which ccnn does not follow here: remove it (rm {shlex.quote(str(path))})"
    elif not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
        why = "is neither a file nor a folder; remove it"
    elif system.user() is not None and found.st_uid != system.user():
        why = f"belongs to user {found.st_uid}, and you are {system.user()}; remove it, or make it yours with chown"
    if why:
        raise UserError(f"{path}: {why}")
