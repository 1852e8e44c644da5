"""Server-sent events: every change, sent to every open page.

    hub.send("status", {...})           # from the thread of the event loop
    async for text in hub.listen(): ...
"""
import asyncio
import json
from collections.abc import AsyncIterator

QUIET = 15              # seconds after which a comment keeps the connection open

WAITING = 1000          # events that a page may be behind; then it is dropped, comes back and asks for everything


def dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Hub:
    def __init__(self) -> None:
        self.pages: set = set()
        self.closed = False

    def send(self, event: str, data: object) -> None:
        text = f"event: {event}\ndata: {dump(data)}\n\n"
        for queue in list(self.pages):
            try:
                queue.put_nowait(text)
            except asyncio.QueueFull:
                self.drop(queue)

    def drop(self, queue: asyncio.Queue) -> None:
        self.pages.discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

    def close(self) -> None:
        """End every stream, so that the server can end."""
        self.closed = True
        for queue in list(self.pages):
            self.drop(queue)

    async def listen(self, hello: dict) -> AsyncIterator[str]:
        queue: asyncio.Queue = asyncio.Queue(WAITING)
        self.pages.add(queue)
        try:
            yield f"retry: 2000\nevent: hello\ndata: {dump(hello)}\n\n"
            while not self.closed:
                try:
                    text = await asyncio.wait_for(queue.get(), QUIET)
                except asyncio.TimeoutError:
                    text = ": still here\n\n"
                if text is None:
                    return
                yield text
        finally:
            self.pages.discard(queue)
