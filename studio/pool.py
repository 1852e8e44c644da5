"""A few processes of low priority that end with this one: whatever takes longer than a page may wait.

    pool = Pool(2)
    result = await pool.run(function, *arguments)       # function of a module; its arguments and result pickle
"""
import asyncio
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from ccnn._util.errors import UserError
from ccnn._util.workers import end_with_parent

NICE, NICER = 5, 15         # of what a page waits for; of trainings


def begin(parent: int) -> None:
    """Called first in each process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(parent, signal.SIGKILL)
    os.nice(NICE)


def import_work() -> None:
    """Import what the work will need; Caffe's messages hold the weights."""
    import exports  # noqa: F401
    import photo_work  # noqa: F401

    from ccnn.inference.caffe_net import load_caffe
    load_caffe()


class Pool:
    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.executor = self.new()

    def new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.jobs, get_context("spawn"), begin, (os.getpid(),))

    def warm(self) -> None:
        """Start the processes now: the first page must not wait for their imports."""
        for _ in range(self.jobs):
            self.executor.submit(import_work)

    async def run(self, function, *arguments):
        """function(*arguments), computed in one of the processes. Where the system ends that, new ones are started."""
        executor = self.executor
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, function, *arguments)
        except BrokenProcessPool:
            if executor is self.executor:
                self.executor = self.new()
            raise UserError("a process was ended, most likely for lack of memory; try again") from None

    def close(self) -> None:
        processes = list((self.executor._processes or {}).values())
        self.executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
