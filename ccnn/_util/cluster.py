"""Work spread over a Dask cluster: on this machine, or on many.

    with connected("local", jobs=4) as jobs:                    # or tcp://HOST:PORT, tls://HOST:PORT, FILE
        for result in in_processes(function, tasks, jobs):      # as with a number of processes
            ...

Workers run what they are sent. The workers of "local" listen on 127.0.0.1 alone and accept nobody without the
certificate of this run; elsewhere use TLS. Without a cluster nothing here imports Dask.
"""
import asyncio
import contextlib
import functools
import ipaddress
import itertools
import logging
import os
import pickle
import platform
import queue
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, TypeVar, Union
from urllib.parse import urlsplit

from ccnn._util.errors import UserError, reason
from ccnn._util.foreign_files import load_json
from ccnn._util.paths import packages
from ccnn._util.text import plural

Result = TypeVar("Result")

AHEAD = 4               # tasks per worker that the scheduler knows of
INTERVAL = 5            # seconds between two checks of which workers there are
IN_A_ROW = 8            # tasks in a row whose workers end: the cause is then not the tasks
CONNECT = 20            # seconds in which a scheduler must answer
START = 600             # seconds in which the first local worker must start; a machine may be busy

LOCAL = {
    "distributed.scheduler.allowed-failures": 1,            # a task that has ended two workers is tried alone later
    "distributed.worker.profile.enabled": False,            # 100 stack traces per second
    "distributed.worker.memory.pause": False,               # the net may take most of the memory
    "distributed.worker.memory.terminate": False,
    "distributed.scheduler.http.routes": [],                # no pages about the work
    "distributed.worker.http.routes": [],
    "distributed.admin.system-monitor.log-length": 100,     # samples; else they grow for an hour
}

ONE_AT_A_TIME = threading.Lock()        # Caffe's nets and the current folder belong to the process

log = logging.getLogger(__name__)


class Cluster:
    """The workers of a Dask scheduler, in the place of a number of processes."""

    def __init__(self, client: Any, where: str) -> None:
        self.client, self.where = client, where
        self.workers: set[str] = set()      # addresses
        self.next_look = 0.0                # at the workers, on the monotonic clock

    def run(self, function: Callable[..., Result], tasks: Iterable[tuple],
            failed: Callable[..., Result]) -> Iterator[Result]:
        """Yield function(*task) for every task, in any order; see ccnn._util.workers.in_processes.

        A task whose worker ends is done again by another. Where that happens again and again, the cause may be
        another task of the same worker: such tasks wait until all others are done. Then they are tried one at a
        time, and one that ends its worker again gets the result failed(why, *task).
        """
        import cloudpickle
        from distributed.scheduler import KilledWorker

        import ccnn
        call = functools.partial(call_in_worker, cloudpickle.dumps(function), os.getcwd(), ccnn.__version__)
        suspects: list[tuple] = []
        in_a_row = 0
        for task, future in self.finished(call, tasks):
            try:
                result = self.result(future)
            except KilledWorker:
                suspects.append(task)
                in_a_row += 1
                if in_a_row == IN_A_ROW:
                    raise UserError(f"--cluster {self.where}: {IN_A_ROW} tasks in a row ended their worker processes, "
                                    "most likely for lack of memory; finished work is kept: run again with fewer "
                                    "workers per machine") from None
                continue
            in_a_row = 0
            yield result
        for task, future in self.finished(call, suspects, alone=True):
            try:
                result = self.result(future)
            except KilledWorker as e:
                result = failed(f"ended its worker process {2 * (e.allowed_failures + 1)} times, the last "
                                f"{e.allowed_failures + 1} alone; left out. Is it too large for the memory?", *task)
            yield result

    def finished(self, call: Callable, tasks: Iterable[tuple], alone: bool = False) -> Iterator[tuple]:
        """Yield (task, future) as tasks finish. The scheduler knows of a few tasks per worker at a time, or of a
        single one: that bounds the memory, whatever the number of tasks."""
        tasks, keys = iter(tasks), zip(itertools.repeat(f"ccnn-{os.urandom(8).hex()}"), itertools.count())
        done: queue.SimpleQueue = queue.SimpleQueue()
        running: dict = {}                  # {key: (future, task)}
        try:
            while True:
                if self.client.status != "running":
                    raise self.scheduler_ended()
                self.look_at_workers()
                window = 1 if alone else AHEAD * max(len(self.workers), 2)
                for task in itertools.islice(tasks, max(window - len(running), 0)):
                    future = self.client.submit(call, pickle.dumps(task), key=next(keys), pure=False)
                    running[future.key] = future, task
                    future.add_done_callback(done.put)
                if not running:
                    return
                with contextlib.suppress(queue.Empty):
                    future = done.get(timeout=INTERVAL)
                    yield running.pop(future.key)[1], future
        finally:
            if running and self.client.status == "running":
                self.client.cancel([future for future, _ in running.values()])

    def look_at_workers(self) -> None:
        """Now and then, see which workers there are, and say so if some have ended."""
        if time.monotonic() < self.next_look:
            return
        try:
            present = set(self.client.scheduler_info()["workers"])
        except OSError:
            raise self.scheduler_ended() from None
        ended = len(self.workers - present)
        if ended:
            log.warning("%s ended; its unfinished tasks are done again", plural(ended, "worker"))
        if not present and (self.workers or not self.next_look):
            log.warning("%s has no worker now; waiting for one", self.where)
        self.workers, self.next_look = present, time.monotonic() + INTERVAL

    def result(self, future: Any) -> Any:
        """What the function has returned; or raise what it raised."""
        from concurrent.futures import CancelledError
        try:
            return future.result()
        except CancelledError:
            raise self.scheduler_ended() from None
        except OSError:
            if self.client.status == "running":
                raise                       # the function's own
            raise self.scheduler_ended() from None
        except ModuleNotFoundError as e:
            raise UserError(f"--cluster {self.where}: on a worker: {e}; start the workers with this repository's "
                            "Python (docs/scale.md)") from None

    def scheduler_ended(self) -> UserError:
        return UserError(f"--cluster {self.where}: the scheduler has ended or is out of reach; what is "
                         "finished is kept: start it and run the same command again")


def call_in_worker(function: bytes, folder: str, version: str, task: bytes):
    """function(*task), in a worker: in the client's folder, and with what the function has loaded before. Both come
    pickled: Dask would take tuples for tasks of its own."""
    import ccnn
    if version != ccnn.__version__:
        raise UserError(f"a worker has version {ccnn.__version__} of ccnn, this command {version}; start the workers "
                        "from the same repository")
    with ONE_AT_A_TIME:
        try:
            os.chdir(folder)
        except OSError as e:
            raise UserError(f"{folder}: {e.strerror} on a worker ({platform.node()}); the photographs and the "
                            "results must lie on a disk that all machines have at the same place") from None
        return unpickled(function)(*pickle.loads(task))


@functools.lru_cache(maxsize=1)
def unpickled(function: bytes) -> Callable:
    """The function of this run, once per worker process: a net that it loads is loaded once. The next run's function
    takes its place, also after a client that was killed."""
    import cloudpickle
    return cloudpickle.loads(function)


@contextlib.contextmanager
def connected(where: Optional[str], jobs: int) -> Iterator[Union[int, Cluster]]:
    """What ccnn._util.workers.in_processes takes as its `jobs`: the number itself, or the workers of a cluster.

    where : None; "local", which starts `jobs` workers; a scheduler's address, tcp://HOST:PORT or tls://HOST:PORT; or
            the file that a scheduler has written
    """
    if where is None:
        yield jobs
        return
    try:
        os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")      # read by the import
        from distributed import Client
    except ImportError as e:
        raise UserError(f"--cluster {where}: {e}; get it with: {packages('cluster', make='cluster')}") from None
    with local_scheduler(jobs) if where == "local" else contextlib.nullcontext(find_scheduler(where)) as found:
        try:
            client = Client(found.address, security=found.security, timeout=CONNECT, set_as_default=False)
        except (OSError, ValueError) as e:
            raise UserError(f"--cluster {where}: no scheduler answers at {found.address} ({reason(e)})") from None
        with client:
            if where == "local":
                wait_for_a_worker(client)
            yield Cluster(client, where)


def wait_for_a_worker(client: Any) -> None:
    try:
        client.wait_for_workers(1, timeout=START)
    except asyncio.TimeoutError:
        raise UserError(f"--cluster local: no worker has started in {START} seconds; is there enough memory? Without "
                        "--cluster, --jobs 1 needs no other process") from None


class Scheduler(NamedTuple):
    address: str                # tcp://HOST:PORT, or tls://HOST:PORT
    security: Any               # distributed.Security; None: what Dask's configuration says


@contextlib.contextmanager
def local_scheduler(jobs: int) -> Iterator[Scheduler]:
    """A scheduler in this process and `jobs` worker processes. They end with this process, however it ends."""
    import dask
    from distributed import LocalCluster, Security
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)     # tracebacks of connections to workers that were killed
    with dask.config.set(LOCAL), LocalCluster(n_workers=0, threads_per_worker=1, host="127.0.0.1", memory_limit=None,
                                              dashboard_address="127.0.0.1:0", security=Security.temporary(),
                                              silence_logs=logging.CRITICAL) as cluster:
        found = Scheduler(cluster.scheduler_address, cluster.security)
        stop = threading.Event()
        keeper = threading.Thread(target=keep_workers, args=(found, jobs, stop))
        keeper.start()
        try:
            yield found
        finally:
            stop.set()
            keeper.join()


def keep_workers(scheduler: Scheduler, jobs: int, stop: threading.Event) -> None:
    """Let there be `jobs` local workers until `stop`. Dask's own nanny does not start a worker again that is killed
    before it has reported to the nanny, and then waits for it for ever."""
    from ccnn._util.workers import one_thread
    processes: list = []
    while not stop.wait(0.2):
        processes = [process for process in processes if process.is_alive()]
        while len(processes) < jobs:
            processes.append(get_context("spawn").Process(target=be_worker, args=(scheduler, os.getpid()), daemon=True))
            with one_thread():
                processes[-1].start()
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def be_worker(scheduler: Scheduler, parent: int) -> None:
    """The life of a local worker. ^C is for its parent, which ends it then."""
    import dask
    from distributed import Worker

    from ccnn._util.system import KILL, end_with_parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent, KILL)

    async def serve():
        async with Worker(scheduler.address, security=scheduler.security, nthreads=1, host="127.0.0.1",
                          dashboard_address="127.0.0.1:0", memory_limit=0) as worker:
            await worker.finished()
    with dask.config.set(LOCAL):
        asyncio.run(serve())


def find_scheduler(where: str) -> Scheduler:
    """The scheduler at an address or of a scheduler file. The certificates of TLS are those of Dask's configuration."""
    import dask
    address = where if "://" in where else read_address(Path(where))
    scheme = address.partition("://")[0]
    if scheme not in ("tcp", "tls"):
        raise UserError(f"--cluster {where}: need local, tcp://HOST:PORT, tls://HOST:PORT, or a scheduler's file; got "
                        f"the address {address}")
    if scheme == "tls":
        for key in ("ca-file", "client.cert", "client.key"):
            file = dask.config.get(f"distributed.comm.tls.{key}", None)
            if not file:
                raise UserError(f"--cluster {where}: {address} needs certificates; name them in Dask's configuration "
                                "(docs/scale.md)")
            with open(file, "rb"):          # a missing or unreadable file is an OSError that names it
                pass
    elif not is_loopback(address):
        log.warning("%s is neither encrypted nor authenticated: whoever reaches its port can run programs on the "
                    "workers and on this machine; use TLS unless you trust the whole network (docs/scale.md)", address)
    return Scheduler(address, None)


def read_address(path: Path) -> str:
    """The address in a file that `dask scheduler --scheduler-file` has written."""
    try:
        return str(load_json(path.read_text())["address"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"--cluster {path}: is not a scheduler's file; let `dask scheduler --scheduler-file {path}` "
                        "write it (docs/scale.md)") from None


def is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
