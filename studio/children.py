"""Child processes of low priority that end with this one, however it ends."""
import asyncio
import os
import signal
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from pool import NICER

from ccnn._util.workers import begin_session

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

    async def start(self, command: Sequence[str]) -> None:
        """Start a program. It is the child of this thread, which lives as long as the server."""
        parent = os.getpid()

        def begin():
            os.nice(NICER)
            begin_session(parent, signal.SIGTERM)

        self.lines.clear()
        self.problem = self.code = None
        self.process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE, env=environment(), start_new_session=True, preexec_fn=begin)
        self.listening = asyncio.ensure_future(self.listen(Path(command[1]).name))

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
            self.process.send_signal(signal.SIGINT)

    async def end(self) -> None:
        """End it, and wait for that."""
        if not self.running:
            return
        assert self.process and self.listening
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                self.process.send_signal(number)
            except ProcessLookupError:
                break
            done, _ = await asyncio.wait([self.listening], timeout=PATIENCE)
            if done:
                break


def environment() -> dict:
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
