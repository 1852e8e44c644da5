"""Downloads: masks in any of the formats of ccnn.annotations.export_formats."""
import io
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Optional

import numpy as np

from ccnn._util.errors import ImageError, UserError
from ccnn._util.text import some
from ccnn.annotations.export_formats import describe
from ccnn.annotations.import_formats import MaskSource
from ccnn.studio.album import Album, NotThere, Photograph
from ccnn.studio.predictions import Head, Known, all_classes, computed, full_mask, known_of, read_model_head

# For the pool

def described(format: str, head: Head, work: Path, name: str, id: str, file: Path, known: Optional[Known]):
    """What a format of labels has of the mask of a photograph; None if there is no mask."""
    try:
        return describe(format, name, *full_mask(head, work, id, file, known))
    except (NotThere, ImageError):
        return None


def folder_masks(root: Path) -> tuple:
    """(MaskSource, {name: what draws its mask}) of a folder that the studio or ccnn learn has trained on."""
    head, album = read_model_head(root / "model.ccnn"), Album(root)
    album.refresh()
    there, done = [found for found in album.there() if not found.problem], computed(album.work)
    missing = [found.path for found in there if found.id not in done]
    if missing:
        raise UserError(f"{root}: there are no features yet of {some(missing, 2)}; run ccnn ahead {root}")

    def drawn(found: Photograph) -> np.ndarray:
        try:
            return full_mask(head, album.work, found.id, album.images / found.path, known_of(album, found)).labels
        except NotThere as problem:
            raise UserError(f"{found.path}: {problem}; run ccnn ahead {root}") from None
    return MaskSource("the masks of its model", all_classes(head, album.classes), [], Counter()), {
        found.path: partial(drawn, found) for found in there}


# In the server

class Stream(io.RawIOBase):
    """Collects what an archive writes; it cannot go back."""

    def __init__(self) -> None:
        self.waiting, self.at = [], 0

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self.waiting.append(bytes(data))
        self.at += len(data)
        return len(data)

    def tell(self) -> int:
        return self.at

    def take(self) -> bytes:
        data = b"".join(self.waiting)
        self.waiting.clear()
        return data


async def zipped(members: AsyncIterator) -> AsyncIterator[bytes]:
    """An archive of (name, bytes), given away as it grows."""
    stream = Stream()
    with zipfile.ZipFile(stream, "w") as archive:
        async for name, data in members:
            archive.writestr(name, data)
            yield stream.take()
    yield stream.take()


def parts(items: list, number: int) -> Iterator[list]:
    for start in range(0, len(items), number):
        yield items[start:start + number]
