"""What one takes along: masks in an archive, and COCO's JSON."""
import io
import zipfile
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import numpy as np

from ccnn._util.errors import ImageError
from ccnn.images.labels import BACKGROUND, indexed
from ccnn.images.overlays import mask_text
from ccnn.images.reading import upright_shape
from ccnn.studio.album import NotThere
from ccnn.studio.view import Head, mask_of, read_features

# For the pool

def full_mask(head: Head, work: Path, id: str, file: Path) -> np.ndarray:
    size = upright_shape(str(file))
    return mask_of(head.scores(read_features(work, id), size), size)


def mask_file(head: Head, work: Path, id: str, file: Path):
    """The PNG that ccnn segment would write, with the names of the classes; None if it cannot be made."""
    try:
        mask = full_mask(head, work, id, file)
    except (NotThere, ImageError):
        return None
    data = io.BytesIO()
    indexed(mask).save(data, "PNG", pnginfo=mask_text(head.classes, {"tool": "studio", "model": head.version}))
    return data.getvalue()


def coco_regions(head: Head, work: Path, id: str, file: Path):
    """(height, width, [{category_id, segmentation, area, bbox}]) of the classes in a mask; None if there is none."""
    try:
        mask = full_mask(head, work, id, file)
    except (NotThere, ImageError):
        return None
    height, width = mask.shape
    regions = []
    for label in np.unique(mask[mask != BACKGROUND]):
        region = mask == label
        rows, columns = np.flatnonzero(region.any(axis=1)), np.flatnonzero(region.any(axis=0))
        x, y = int(columns[0]), int(rows[0])
        regions.append({"category_id": int(label), "area": int(region.sum()), "iscrowd": 0,
                        "bbox": [x, y, int(columns[-1]) - x + 1, int(rows[-1]) - y + 1],
                        "segmentation": {"size": [height, width], "counts": run_lengths(region)}})
    return height, width, regions


def run_lengths(region: np.ndarray) -> list:
    """COCO's uncompressed code: the lengths of runs, column by column; the first run is of pixels outside."""
    flat = np.concatenate([[False], region.ravel(order="F")])
    edges = np.flatnonzero(flat[1:] != flat[:-1])
    return np.diff(np.concatenate([[0], edges, [region.size]])).tolist()


# In the server

def coco(classes: Iterable[str], photographs: Iterable[tuple]) -> dict:
    """photographs : [(name, what coco_regions gave)]"""
    images, annotations = [], []
    for name, found in photographs:
        height, width, regions = found
        images.append({"id": len(images) + 1, "file_name": name, "height": height, "width": width})
        for region in regions:
            annotations.append({"id": len(annotations) + 1, "image_id": len(images), **region})
    categories = [{"id": label, "name": name, "supercategory": ""} for label, name in enumerate(classes)
                  if label != BACKGROUND]
    return {"info": {"description": "masks of CCNN's studio"}, "licenses": [], "images": images,
            "annotations": annotations, "categories": categories}


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
