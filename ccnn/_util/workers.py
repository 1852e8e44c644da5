"""Work spread over processes that end with the one that started them."""
import contextlib
import itertools
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Callable, NoReturn, TypeVar, Union

from ccnn._util.cluster import Cluster
from ccnn._util.errors import UserError
from ccnn._util.system import end_with_parent

Result = TypeVar("Result")

Jobs = Union[int, Cluster]      # a number of processes, or the workers of a cluster

THREADS = "OPENBLAS_NUM_THREADS"

SHARED = "/dev/shm"         # where Linux keeps semaphores; containers and chroots may lack it

log = logging.getLogger(__name__)


# Without the current folder on the path, which `python -m` would put there: it may be a stranger's.
START = "import sys; sys.path = [place for place in sys.path if place]; from ccnn.cli import main; main()"


def own_command(*words: str) -> list[str]:
    """What starts `ccnn WORDS` as a process of its own."""
    return [sys.executable, "-c", START, *words]


def left_out(why: str, *task) -> NoReturn:
    raise UserError(f"{task[0]}: {why}")


def in_processes(function: Callable[..., Result], tasks: Iterable[tuple], jobs: Jobs,
                 method: str = "spawn", failed: Callable[..., Result] = left_out) -> Iterator[Result]:
    """Yield function(*task) for every task, in any order, from `jobs` processes; in this one if jobs is 1.

    tasks   may be a generator that computes. It runs in this process while the workers do, and is asked for at
            most two tasks per worker in advance, which bounds the memory.
    jobs    their number, or a cluster (ccnn._util.cluster.connected), which may be of many machines.
    method  "spawn": the workers hold neither Caffe nor its threads. Each gets the function once, so that it may keep
            what it loads, and has one thread for linear algebra: as many jobs as cores do not disturb each other.
            "fork": they share what this process has loaded, and the function need not be one that pickles.
            A cluster's workers are as those of "spawn".
    failed  failed(why, *task) is the result for a task that ends every worker of a cluster that tries it.

    Where the system ends a worker, most likely for lack of memory, the work goes on with one worker less: tasks that
    were not finished are done again. So a task must be safe to repeat.
    """
    if isinstance(jobs, Cluster):
        yield from jobs.run(function, tasks, failed)
        return
    if jobs == 1:
        yield from itertools.starmap(function, tasks)
        return
    tasks, waiting = iter(tasks), deque()
    while jobs:
        pool = new_pool(jobs, method, become_worker, os.getpid(), function)
        running: dict[futures.Future, tuple] = {}
        try:
            while True:
                while len(running) < 2 * jobs and (waiting or take(tasks, waiting)):
                    with one_thread():              # a worker may start here, and takes the environment over
                        running[pool.submit(call, *waiting[0])] = waiting[0]
                    waiting.popleft()
                if not running:
                    return
                for future in futures.wait(running, return_when=futures.FIRST_COMPLETED).done:
                    result = future.result()
                    del running[future]
                    yield result
        except BrokenProcessPool:
            waiting.extend(running.values())
            jobs -= 1
            if jobs:
                log.warning("a worker process was ended, most likely for lack of memory; going on with %d", jobs)
        finally:
            pool.shutdown(cancel_futures=True)
    raise UserError("the last worker process was ended, most likely for lack of memory; what is finished is kept: "
                    "free some memory and run again, with --jobs 1")


def new_pool(jobs: int, method: str, begin: Callable, *arguments) -> futures.ProcessPoolExecutor:
    """A pool of processes, each of which calls begin(*arguments) first."""
    try:
        return futures.ProcessPoolExecutor(jobs, get_context(method), begin, arguments)
    except (OSError, ImportError) as e:             # of the semaphores between them
        raise UserError(f"worker processes cannot be started: {SHARED} is missing or not writable "
                        f"({getattr(e, 'strerror', None) or e}); mount it (Docker: --shm-size 64m), or work in one "
                        "process with --jobs 1") from None


def one_blas_thread() -> contextlib.AbstractContextManager:
    """The linear algebra of this process on one thread, though NumPy is loaded: its matrices are so small that several
    threads wait for each other most of the time. And OpenBLAS ends its threads where a process forks: a product that
    another thread computes at that moment would never end, nor would the process."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return contextlib.nullcontext()
    return threadpool_limits(1, "blas")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Processes that start inside the `with` have one thread for linear algebra; OpenBLAS asks when it is loaded."""
    before = os.environ.get(THREADS)
    os.environ[THREADS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before


def take(tasks: Iterator[tuple], waiting: deque) -> bool:
    """Queue one more task; return whether there was one."""
    waiting.extend(itertools.islice(tasks, 1))
    return bool(waiting)


def become_worker(parent: int, function: Callable) -> None:
    """Called first in a worker. It ignores ^C, because its parent ends it then; and it ends when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent)
    call.function = function        # type: ignore[attr-defined]


def call(*task):
    return call.function(*task)     # type: ignore[attr-defined]
