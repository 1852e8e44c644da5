"""Processes that end with this one: a pool for what a page waits for, children for what is a command of its own.

What a person waits for has the priority of any program; what runs ahead yields to it (`child.start(..., ahead=True)`).

    pool = Pool(2)
    result = await pool.run(function, *arguments)       # function of a module; its arguments and result pickle
"""
import asyncio
import os
import signal
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Optional

from ccnn._util import system
from ccnn._util.errors import UserError
from ccnn._util.workers import new_pool, own_command

AHEAD = 15                  # niceness of what nobody waits for


def begin(parent: int) -> None:
    """Called first in each process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    system.end_with_parent(parent, system.KILL)


def import_work() -> None:
    """Import what the work will need."""
    from ccnn.studio import exports, predictions  # noqa: F401


class Pool:
    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.executor = self.new()

    def new(self) -> ProcessPoolExecutor:
        return new_pool(self.jobs, "spawn", begin, os.getpid())

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


# Children

LINES = 30              # that are kept of what a child says

PATIENCE = 5            # seconds to end by itself


class Child:
    """A program that is started, listened to, stopped, and started again."""

    def __init__(self) -> None:
        self.process: Optional[asyncio.subprocess.Process] = None
        self.lines: deque = deque(maxlen=LINES)
        self.problem: Optional[str] = None      # the line with which it failed
        self.code: Optional[int] = None         # with which it ended
        self.listening: Optional[asyncio.Task] = None

    @property
    def running(self) -> bool:
        return self.listening is not None and not self.listening.done()

    async def start(self, *words: str, ahead: bool = False) -> None:
        """Start `ccnn WORDS`. It is the child of this thread, which lives as long as the server."""
        self.lines.clear()
        self.problem = self.code = None
        self.process = await asyncio.create_subprocess_exec(
            *own_command(*words), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE, env=environment(),
            **system.child_options(AHEAD if ahead else 0, signal.SIGTERM))
        self.listening = asyncio.ensure_future(self.listen(f"ccnn {words[0]}"))

    async def listen(self, name: str) -> int:
        """Keep what it says; its exit status."""
        assert self.process and self.process.stderr
        async for line in self.process.stderr:
            text = line.decode(errors="replace").strip().removeprefix(f"{name}: ")
            if text.startswith("error: "):
                self.problem = text.removeprefix("error: ")
            elif text:
                self.lines.append(text)
        self.code = status = await self.process.wait()
        if status in (0, 130, -signal.SIGTERM, -signal.SIGINT):
            self.problem = None
        elif not self.problem:
            self.problem = f"{name} ended with status {status}" + (f": {self.lines[-1]}" if self.lines else "")
        return status

    def interrupt(self) -> None:
        if self.running and self.process:
            system.interrupt(self.process)

    async def end(self) -> None:
        """End it, and wait for that."""
        if not self.running:
            return
        assert self.process and self.listening
        for number in (signal.SIGTERM, system.KILL):
            try:
                self.process.send_signal(number)
            except ProcessLookupError:
                break
            done, _ = await asyncio.wait([self.listening], timeout=PATIENCE)
            if done:
                break


def environment() -> dict:
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
