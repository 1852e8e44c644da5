"""A folder of label PNGs, as ccnn segment, VOC and many programs write them."""
import functools
import io
import os
from typing import NamedTuple

import numpy as np

from ccnn._util.errors import UserError
from ccnn.annotations.regions import LabelledPhotograph, Object
from ccnn.images.labels import VOC_CLASSES, VOID, indexed, read_classes
from ccnn.images.masks import mask_classes
from ccnn.images.overlays import mask_text
from ccnn.images.reading import read_mask

OTHERS = ("overlay", "probabilities")       # folders that ccnn segment puts beside masks


def list_masks(folder):
    """([path of each mask], names of its labels); ([], ()) if the folder has none.

    The first PNG decides: it carries names, or classes.txt beside it has them, or it has VOC's palette.
    """
    paths: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in OTHERS)
        paths += [os.path.join(place, name) for name in sorted(files)
                  if name.lower().endswith(".png") and not name.startswith(".")]
    names = names_of(folder, paths[0]) if paths else None
    return (paths, names) if names else ([], ())


def names_of(folder, path):
    carried = mask_classes(path)
    if carried:
        return carried if isinstance(carried, list) and all(isinstance(name, str) for name in carried) else None
    try:
        read_mask(path, VOID)
    except UserError:                       # a photograph
        return None
    listed = os.path.join(folder, "classes.txt")
    return read_classes(listed) if os.path.isfile(listed) else VOC_CLASSES


class Pixels(NamedTuple):
    """The pixels of a label in a mask."""
    path: str
    labels: int
    label: int

    def draw(self, shape):
        mask = mask_of(self.path, self.labels)
        if mask.shape != tuple(shape):
            raise UserError(f"{self.path}: has {mask.shape[1]} x {mask.shape[0]} pixels, and its photograph has "
                            f"{shape[1]} x {shape[0]}")
        return mask == self.label


@functools.lru_cache(maxsize=1)
def mask_of(path, labels):
    return read_mask(path, labels)


def read_mask_files(folder, content, skipped):
    paths, common = content
    for path in paths:
        names = mask_classes(path) or common
        mask = mask_of(path, len(names))
        counts = np.bincount(mask.ravel(), minlength=256)
        objects = [Object(names[label], None, counts[label] / mask.size, Pixels(path, len(names), int(label)))
                   for label in np.flatnonzero(counts[:VOID])]
        name = os.path.relpath(path, folder).replace(os.sep, "/")
        yield LabelledPhotograph(name[:-4], objects, name, mask.shape)


# Into files

def describe(name, mask, classes):
    """An indexed PNG in VOC's colours that carries the names of its labels."""
    data = io.BytesIO()
    indexed(mask).save(data, "PNG", pnginfo=mask_text(classes, {"tool": "convert"}))
    return data.getvalue()
