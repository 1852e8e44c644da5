"""What differs between Linux, macOS and Windows, chosen here and nowhere else. For C: cython/ccnn/portable.h.

Everything of this module works everywhere. Where a system lacks something, the docstring says what is done instead.
"""
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Optional

LINUX, WINDOWS = sys.platform.startswith("linux"), sys.platform == "win32"

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)       # ends a process at once; Windows knows no other way

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

LIBC = ctypes.CDLL(None) if LINUX else None             # now: after a fork it may be too late
PR_SET_PDEATHSIG = 1


def cores() -> int:
    """Processors that this process may use; all of the machine where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Files

def try_lock(handle: int) -> bool:
    """Whether this process has the lock of an open file now; False if another process has it."""
    with contextlib.suppress(BlockingIOError, PermissionError):
        _lock(handle, wait=False)
        return True
    return False


def wait_for_lock(handle: int) -> None:
    """Lock an open file; wait as long as another process has it."""
    if not WINDOWS:
        _lock(handle, wait=True)
        return
    while not try_lock(handle):         # Windows' own waiting gives up after ten seconds
        time.sleep(0.1)


FAR = 1 << 30           # the byte of a file that Windows locks: nobody can read a locked one, and nobody reads there


def _lock(handle: int, wait: bool) -> None:
    if sys.platform == "win32":
        import msvcrt
        os.lseek(handle, FAR, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def release_lock(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt
        os.lseek(handle, FAR, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
    else:
        import fcntl
        fcntl.flock(handle, fcntl.LOCK_UN)


def user() -> Optional[int]:
    """The number of this process's user, which the files of this user have; None: the system has no such number."""
    return os.geteuid() if hasattr(os, "geteuid") else None


FOLDERS_OPEN = os.open in os.supports_dir_fd and os.unlink in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
NO_LINK = getattr(os, "O_NOFOLLOW", 0)          # os.open refuses a link; Windows' links are seen by lstat alone


# Processes

def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    if LINUX:
        with contextlib.suppress(OSError, IndexError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        return False
    if sys.platform == "win32":
        handle = _process(pid)
        ended = not handle or _wait(handle, 0)
        if handle:
            _kernel().CloseHandle(handle)
        return not ended
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def end_with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """See to it that this process ends when its parent has ended, and end if it has ended already.

    Linux: the kernel sends the signal. What counts is the end of the thread that has started this process.
    Elsewhere a thread of this process watches the parent.
    """
    if LIBC:
        LIBC.prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    if WINDOWS:
        handle = _process(parent)
        while handle and not _wait(handle, 1000):
            pass
    else:
        while os.getppid() == parent:
            time.sleep(0.5)
    os._exit(1)


def child_options(niceness: int, number: int) -> dict[str, Any]:
    """What subprocess takes for a program with a session of its own and a niceness, which is sent a signal when
    this process has ended. Where there is no such signal, the program notices that at the next line it writes."""
    if sys.platform == "win32":
        import subprocess
        low = subprocess.BELOW_NORMAL_PRIORITY_CLASS if niceness else 0
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | low}
    parent = os.getpid()

    def begin() -> None:
        lower_priority(niceness)
        begin_session(parent, number)
    return {"start_new_session": True, "preexec_fn": begin}


def begin_session(parent: int, number: int = KILL) -> None:
    """Called first in a program that has a session of its own: it is sent a signal when its parent has ended.

    Linux may share the processor among sessions first, and then heeds nice values inside of each alone
    (/proc/sys/kernel/sched_autogroup_enabled). The session gets the nice value of its program.
    """
    if LINUX:
        end_with_parent(parent, number)
        with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as file:
            file.write(str(os.nice(0)))


def lower_priority(by: int) -> None:
    """Nothing where processes have no nice value."""
    if hasattr(os, "nice"):
        os.nice(by)


def interrupt(process: Any) -> None:
    """What ^C does to a program in a session of its own; on Windows it ends at once, and resumes at its snapshot."""
    process.send_signal(signal.SIGTERM if WINDOWS else signal.SIGINT)


def _kernel() -> Any:
    return ctypes.windll.kernel32       # type: ignore[attr-defined,unused-ignore]


def _process(pid: int) -> Any:
    return _kernel().OpenProcess(0x00100000, False, pid)        # SYNCHRONIZE


def _wait(handle: Any, milliseconds: int) -> bool:
    """Whether a process has ended."""
    return _kernel().WaitForSingleObject(handle, milliseconds) == 0
