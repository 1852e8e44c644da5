"""Points and scribbles: pixels whose label somebody marked, in a PNG per photograph.

The PNG has the size of its photograph. Either it holds label ids (gray or palette), 255 where the label is unknown;
or it is a picture, and `colours` says which colour is which class: every other colour is unknown, so that one may
paint on a copy of the photograph, or on a transparent layer.
"""
import os
import re
from functools import cached_property
from typing import NamedTuple

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


class Spread(NamedTuple):
    """How far a mark reaches, in spread_marks."""
    near: float = 4.0       # cells: the standard deviation of the distance
    alike: float = 0.1      # the distance of features, 1 - cosine, at which the influence has fallen e-fold
    margin: float = 1.0     # by which the label of a marked cell leads


SPREAD = Spread()


def spread_marks(f, x, cells, spread=SPREAD):
    """The scores of a photograph whose cells are partly known: each cell follows the mark that it is most like.

    f      L x H x W scores     x  C x H x W features of the cells     cells  H x W known labels, 255 elsewhere

    Let l_j be the label of a marked cell j, and t_j >= 0 what it lacks to lead by `margin`. For each cell i

        k_ij = exp(-|i - j|^2 / 2 near^2 - (1 - cos(x_i, x_j)) / alike)         j = the mark with the largest k_ij

    and f_i(l_j) rises by k_ij t_j. A mark that the scores agree with has t = 0 and holds its surroundings as they are.
    """
    labels, n = len(f), f[0].size
    raised, known = f.reshape(labels, n).astype(np.float32), np.flatnonzero(cells.ravel() != VOID)
    if not known.size:
        return f
    label = cells.ravel()[known]
    others = raised[:, known]
    others[label, np.arange(known.size)] = -np.inf
    lacks = np.maximum(0, others.max(axis=0) + spread.margin - raised[label, known])
    x = x.reshape(len(x), n).astype(np.float32)
    x /= np.maximum(np.linalg.norm(x, axis=0), 1e-12)
    place = np.array(np.unravel_index(np.arange(n), f.shape[1:]), np.float32)
    far = ((place[:, known, None] - place[:, None]) ** 2).sum(axis=0)
    exponents = -far / (2 * spread.near ** 2) - (1 - x[:, known].T @ x) / spread.alike          # marks x cells
    best = exponents.argmax(axis=0)
    raised[label[best], np.arange(n)] += np.exp(exponents[best, np.arange(n)]) * lacks[best]
    return raised.reshape(f.shape)


def is_png(name):
    return name.casefold().endswith(".png")
