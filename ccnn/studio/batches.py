"""Other photographs, brought by the browser, segmented with the model by ccnn segment. One batch at a time."""
import asyncio
import os
from pathlib import Path
from typing import Optional

from ccnn._util.errors import UserError
from ccnn._util.work_folder import check, remove
from ccnn.images.formats import suffix_of
from ccnn.studio.album import NotThere
from ccnn.studio.processes import Child

MOST = 500              # photographs of a batch

MOST_BYTES = 4 << 30    # of all of them

TICK = 0.5              # seconds between two looks at what is done


class Batch(Child):
    def __init__(self, number: int, place: Path) -> None:
        super().__init__()
        self.number, self.place = number, place
        self.names: list[str] = []
        self.bytes = 0
        self.phase = "open"
        self.done: set = set()
        self.masks.mkdir(parents=True)
        self.photographs.mkdir()

    @property
    def photographs(self) -> Path:
        return self.place / "photographs"

    @property
    def masks(self) -> Path:
        return self.place / "masks"

    def add(self, name: str, part: Path) -> None:
        """Take a file that can be read. It gets a number; its name is used in the archive alone."""
        suffix = suffix_of(part)
        self.bytes += part.stat().st_size
        check(self.photographs)
        os.replace(part, self.photographs / f"{len(self.names):04}{suffix}")
        self.names.append(name)

    def poll(self) -> None:
        self.done = {int(path.stem) for path in self.masks.glob("*.png") if path.stem.isdecimal()}      # else a part

    def describe(self) -> dict:
        return {"batch": self.number, "phase": self.phase, "done": len(self.done), "total": len(self.names),
                "photographs": [{"name": name, "done": k in self.done} for k, name in enumerate(self.names)],
                "error": self.problem, "lines": list(self.lines)}

    def members(self):
        """(path, name in the archive) of everything that was made."""
        taken: set = set()
        for k, name in enumerate(self.names):
            stem, number = Path(name).stem, 2
            while stem.casefold() in taken:
                stem, number = f"{Path(name).stem}-{number}", number + 1
            taken.add(stem.casefold())
            yield self.masks / f"{k:04}.png", f"masks/{stem}.png"
            yield self.masks / f"overlay/{k:04}.jpg", f"overlay/{stem}.jpg"


class Batches:
    def __init__(self, session) -> None:
        self.session = session
        self.number = 0
        self.batch: Optional[Batch] = None

    @property
    def place(self) -> Path:
        return self.session.place / "batches"

    def clear(self) -> None:
        remove(self.place)

    def get(self, number: int) -> Batch:
        if not self.batch or self.batch.number != number:
            raise NotThere(f"there is no batch {number}")
        return self.batch

    async def new(self) -> Batch:
        await self.close()
        await asyncio.to_thread(self.clear)
        check(self.place)
        self.number += 1
        while (self.place / str(self.number)).exists():     # something in it is not ours
            self.number += 1
        self.batch = Batch(self.number, self.place / str(self.number))
        return self.batch

    async def segment(self, batch: Batch) -> None:
        model = self.session.root / "model.ccnn"
        if not model.is_file():
            raise UserError("there is no model yet; train first")
        if not batch.names:
            raise UserError("bring some photographs first")
        if batch.running:
            raise UserError("it is being segmented")
        batch.phase = "segmenting"
        await batch.start("segment", "--model", str(model), "--jobs", "1", "--force", "--out", str(batch.masks),
                          str(batch.photographs))
        self.watching = asyncio.ensure_future(self.watch(batch))

    async def watch(self, batch: Batch) -> None:
        while batch.running:
            await self.send_status(batch)
            await asyncio.sleep(TICK)
        await self.send_status(batch)
        batch.phase = "done" if batch.done else "failed"
        batch.lines = type(batch.lines)((self.named(batch, line) for line in batch.lines), batch.lines.maxlen)
        batch.problem = batch.problem and self.named(batch, batch.problem)
        self.session.hub.send("batch", batch.describe())

    async def send_status(self, batch: Batch) -> None:
        before = len(batch.done)
        await asyncio.to_thread(batch.poll)
        if len(batch.done) != before or not before:
            self.session.hub.send("batch", batch.describe())

    def named(self, batch: Batch, line: str) -> str:
        """A line with the names of the photographs in place of their numbers."""
        for path in sorted(batch.photographs.iterdir()):
            line = line.replace(str(path), batch.names[int(path.stem)])
        return self.session.plain(line)

    async def close(self) -> None:
        if self.batch:
            await self.batch.end()
            self.batch = None
