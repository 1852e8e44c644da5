"""Points and scribbles: pixels whose label somebody marked, in a PNG per photograph.

The PNG has the size of its photograph. Either it holds label ids (gray or palette), 255 where the label is unknown;
or it is a picture, and `colours` says which colour is which class: every other colour is unknown, so that one may
paint on a copy of the photograph, or on a transparent layer.
"""
import os
import re
from functools import cached_property

import numpy as np

from ccnn._util.errors import ImageError, Mistakes, UserError, suggest
from ccnn.images.labels import BACKGROUND, VOID
from ccnn.images.listing import PhotographIndex, same_name
from ccnn.images.reading import read_mask, read_painted


class Scribbles:
    def __init__(self, folder, classes, colours=None):
        """colours : {class name: "#rrggbb"}; None: the PNGs hold label ids."""
        self.folder, self.classes = folder, list(classes)
        self.colours = None if colours is None else dict(self.checked(colours))

    def checked(self, colours):
        """(r, g, b), label"""
        if not isinstance(colours, dict) or not colours:
            raise UserError(f'colours = {colours}: expected {{cat = "#ff0000"}}')
        seen = {}
        for name, colour in colours.items():
            if name not in self.classes:
                raise UserError(f"colours: {name!r} is not a class; {suggest(name, self.classes)}")
            if not isinstance(colour, str) or not re.fullmatch("#[0-9a-fA-F]{6}", colour):
                raise UserError(f'colours: {name} = {colour!r} is not a colour such as "#ff0000"')
            if seen.setdefault(colour.lower(), name) != name:
                raise UserError(f"colours: {seen[colour.lower()]} and {name} have the same colour {colour}")
            yield tuple(bytes.fromhex(colour[1:])), self.classes.index(name)

    @cached_property
    def pictures(self):
        return PhotographIndex(self.folder)

    def file(self, id):
        """The PNG for a photograph, whether or not it is there. Accents and upper case do not matter."""
        path = self.pictures.at(f"{id}.png")
        return os.path.join(self.folder, path if path and is_png(path) else f"{id}.png")

    def read(self, id):
        """H x W uint8, label ids and 255 where unknown; None if nobody marked the photograph."""
        path = self.file(id)
        if not os.path.isfile(path):
            return None
        if self.colours is None:
            return read_mask(path, len(self.classes))
        mask = read_painted(path, self.colours)
        if (mask == VOID).all():
            colours = ", ".join("#" + bytes(colour).hex() for colour in self.colours)
            raise ImageError(f"{path}: has none of the colours {colours}; "
                             "paint without soft edges, or remove the file")
        return mask

    def check(self, photographs):
        """Report all scribbles that cannot be meant so. photographs : {id: present}, present (L,) bool."""
        mistakes = []
        id_of = {same_name(id): id for id in photographs}
        for name in self.pictures.paths:
            id = id_of.get(same_name(name))
            if not is_png(name):
                mistakes.append((name, "is not a PNG, the format that keeps colours; save it as PNG"))
                continue
            if id is None:
                mistakes.append((name, f"there is no photograph of that name; {suggest(name[:-4], photographs)}"))
                continue
            try:
                labels = np.unique(self.read(id))
            except UserError as error:
                mistakes.append((name, str(error)))
                continue
            mistakes += [(name, f"marks {self.classes[label]!r}, which is not among the tags of {id!r}")
                         for label in labels if label not in (BACKGROUND, VOID) and not photographs[id][label]]
        if mistakes:
            raise Mistakes(self.folder, mistakes)


def known_cells(mask, rows, columns):
    """The mask on a score grid whose cells sit on these rows and columns of pixels: H x W uint8, 255 where unknown.

    Every marked pixel votes for the cell nearest to it, and the most votes win; a tie leaves the cell unknown. So a
    single point is never lost between cells, as it would be if the mask were sampled at them.
    """
    y, x = np.nonzero(mask != VOID)
    cells = [np.searchsorted((np.asarray(at)[1:] + np.asarray(at)[:-1]) / 2, side)
             for at, side in ((rows, y), (columns, x))]
    votes = np.zeros((len(rows), len(columns), VOID), np.int32)
    np.add.at(votes, (*cells, mask[y, x]), 1)
    first = votes.argmax(axis=2)
    most = votes.max(axis=2)
    clear = (most > 0) & ((votes == most[..., None]).sum(axis=2) == 1)
    return np.where(clear, first, VOID).astype(np.uint8)


def is_png(name):
    return name.casefold().endswith(".png")
