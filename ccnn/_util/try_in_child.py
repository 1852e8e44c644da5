"""Whatever may abort the process is tried in a child first."""
import os
import signal
import sys
import tempfile
from typing import Callable, Optional


def try_in_child(action: Callable[[], object]) -> Optional[str]:
    """Call action() in a forked child. None if it returns; else one line: why it did not.

    Nothing is tried where processes do not fork: Windows, for which there is no such Caffe.
    """
    if not hasattr(os, "fork"):
        return None
    with tempfile.TemporaryFile() as output:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            act(action, output.fileno())
        status = os.waitpid(child, 0)[1]
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    return explain(status, lines) if status else None


def act(action: Callable[[], object], output: int) -> None:
    """The child's life: call action() with stdout and stderr in a file, and end the process."""
    import resource
    status = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        signal.signal(signal.SIGABRT, signal.SIG_DFL)       # no handler's traceback
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))      # a damaged size must not make it swap
        action()
        status = 0
    except BaseException as e:
        os.write(2, f"\n! {' '.join(str(e).split()) or type(e).__name__}".encode())
    finally:
        os._exit(status)


def explain(status: int, lines: list[str]) -> str:
    """Our own line; or what Caffe logged as errors, "F0101 12:00:00.000000  1234 net.cpp:757] why"; or the status."""
    said = [line[2:] for line in lines if line.startswith("! ")]
    said = said or [line.partition("] ")[2] for line in lines if line[:1] in "EF" and "] " in line]
    if not said and os.WIFSIGNALED(status):
        said = [f"Caffe ended with signal {os.WTERMSIG(status)}; is there enough memory?"]
    return "; ".join(said) or f"Caffe ended with status {status}"
