"""Work spread over processes that end with the one that started them."""
import ctypes
import os
import signal
from collections.abc import Iterable, Iterator
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Callable, TypeVar

from ccnn.errors import UserError

Result = TypeVar("Result")


def in_processes(function: Callable[..., Result], tasks: Iterable[tuple], jobs: int) -> Iterator[Result]:
    """Yield function(*task) for every task, in any order, from `jobs` processes; in this one if jobs is 1.

    tasks may be a generator that computes. It runs in this process while the workers do, and is asked for at
    most two tasks per worker in advance, which bounds the memory.
    """
    if jobs == 1:
        for task in tasks:
            yield function(*task)
        return
    # spawn: the workers hold neither Caffe nor its threads
    pool = futures.ProcessPoolExecutor(jobs, get_context("spawn"), become_worker, (os.getpid(),))
    running: set[futures.Future] = set()
    try:
        for task in tasks:
            if len(running) == 2 * jobs:
                done, running = futures.wait(running, return_when=futures.FIRST_COMPLETED)
                yield from (future.result() for future in done)
            running.add(pool.submit(function, *task))
        yield from (future.result() for future in futures.as_completed(running))
    except BrokenProcessPool:
        raise UserError(f"one of {jobs} worker processes was ended, most likely for lack of memory; "
                        "what is finished is kept: run again with fewer --jobs") from None
    finally:
        pool.shutdown(cancel_futures=True)


def become_worker(parent: int) -> None:
    """Called first in a worker. It ignores ^C, because its parent ends it then; and it ends when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    if os.getppid() != parent:              # the parent has ended before this
        os._exit(1)


def end_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when its parent has ended."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)      # PR_SET_PDEATHSIG
