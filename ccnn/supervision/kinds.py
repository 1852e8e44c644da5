"""Kinds of supervision: what is known of an image, from the files to the constraints.

A kind is one entry of SUPERVISION:

    "size": Supervision([TAGS_BLOB, SIZES_BLOB], for_crops(size_constraints))

A blob is an array that travels with an image from the data layer to the loss layer. It says how it is made from what a
sample shows, which shape it has, and how it is read back. The constraint function gets what the blobs hold, and
`shape` (H, W) and `labels` (L) of the score grid if it has parameters of these names. Its other parameters are
settings of the loss layer, in param_str. The data layers deliver the blobs of every kind as tops.
"""
import inspect
from functools import partial, wraps
from typing import Any, Callable, NamedTuple

import numpy as np

from ccnn._util.settings import NUMBER, Setting
from ccnn.solver.constraints import BACKGROUND, Constraints
from ccnn.supervision.tags_sizes_boxes import box_constraints, size_constraints, tag_constraints

TRIAL = {"labels": 2, "shape": (2, 2)}       # the score grid of every SupervisionBlob.example


class SupervisionBlob(NamedTuple):
    """An array that tells something about an image."""

    name: str
    meaning: str
    dims: tuple         # of one image: numbers; "L", "H", "W" as in the scores; another letter for any number
    needs: str          # what the data layer must read: "tags", "boxes", "mask", "share" or "cue"
    make: Callable      # ccnn.supervision.crops.CroppedAnnotation -> the array
    read: Callable      # the array -> what the constraint function takes; ValueError if the array holds anything else
    example: Any        # such a value for 2 labels on a grid of 2 x 2 cells, with which settings are tried

    def expected(self, images, labels, height, width):
        """The shape of the blob for scores N x L x H x W; None for any number."""
        sizes = {"L": labels, "H": height, "W": width}
        return (images, *(sizes.get(dim) if isinstance(dim, str) else dim for dim in self.dims))

    def fits(self, shape, *scores):
        """Whether a blob of this shape fits the scores. Extra dimensions of 1 do no harm."""
        expected = self.expected(*scores)
        if len(shape) == len(expected):
            return all(want in (None, have) for want, have in zip(expected, shape))
        return None not in expected and shape[0] == expected[0] and \
            [size for size in shape if size != 1] == [size for size in expected if size != 1]

    def words(self, *scores):
        """The expected shape, to be read by people: "1 x B x 5"."""
        images, *sizes = self.expected(*scores)
        return " x ".join(map(str, [images, *(dim if size is None else size for dim, size in zip(self.dims, sizes))]))


def flags(name, values):
    """Entries that are 0 or 1, as (L,) bool."""
    on = values.ravel() == 1
    wrong = values.ravel()[~on & (values.ravel() != 0)]
    if wrong.size:
        raise ValueError(f"{name} must be 0 or 1; got {wrong[0]:g}")
    return on


def fraction(name, values):
    """A number in 0..1."""
    value = values.item()
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in 0..1; got {value:g}")
    return value


ABSENT = -1         # the tag of the background where a crop shows none


def read_tags(values):
    """(L,) bool, the labels that are there. The background always is, tagged or not, unless its entry is ABSENT."""
    tags = values.ravel().copy()
    absent = tags[BACKGROUND] == ABSENT
    tags[BACKGROUND] = 0 if absent else tags[BACKGROUND]
    there = flags("tags", tags)
    there[BACKGROUND] = not absent
    if not there.any():
        raise ValueError(f"tags have no label, and {ABSENT} for the background")
    return there


TAGS_BLOB = SupervisionBlob(
    "tags", "1 where a label is in the image; the background always is, but -1 says that a crop shows none",
    ("L",), "tags",
    make=lambda crop: np.where(np.arange(crop.labels) == BACKGROUND, 1 if crop.background else ABSENT,
                               crop.present).astype(np.float32),
    read=read_tags, example=np.array([True, True]))

SIZES_BLOB = SupervisionBlob(
    "sizes", "1 where a label covers a large part of the image", ("L",), "tags",
    make=lambda crop: crop.large.astype(np.float32), read=partial(flags, "sizes"), example=np.array([False, True]))

SHARE_BLOB = SupervisionBlob(
    "share", "the part of the image that is background, known or guessed", (1,), "share",
    make=lambda crop: np.array([crop.annotation.share], np.float32), read=partial(fraction, "share"), example=0.5)

NUMBER_BLOB = SupervisionBlob(
    "number", "the number of the image in the list, and 1 if it is mirrored", (2,), "tags",
    make=lambda crop: np.array([crop.annotation.number, crop.mirrored], np.float32),
    read=lambda values: tuple(int(value) for value in values.ravel()), example=(0, 0))

BOXES_BLOB = SupervisionBlob(
    "boxes", "label, y0, x0, y1, x1 on the score grid, half-open; label -1: no box", ("B", 5), "boxes",
    make=lambda crop: np.array(crop.box_cells() or [(-1, 0, 0, 0, 0)], np.float32),
    read=lambda values: values[values[:, 0] != -1], example=[(1, 0, 0, 1, 1)])

FILLED_BOXES_BLOB = SupervisionBlob(
    "filled_boxes", "the label of the smallest box around every cell of the score grid, else 0", (1, "H", "W"), "boxes",
    make=lambda crop: crop.filled_boxes()[None], read=np.ravel, example=np.array([0, 1, 1, 0]))

LABELS_BLOB = SupervisionBlob(
    "labels", "the label at every cell of the score grid, 255 where it is unknown", (1, "H", "W"), "mask",
    make=lambda crop: crop.label_cells()[None], read=np.ravel, example=np.array([0, 1, 255, 255]))


CUE_BLOB = SupervisionBlob(
    "cue", "the map of a cue at every cell of the score grid, 0..1: how much it belongs to an object", (1, "H", "W"),
    "cue", make=lambda crop: crop.cue_cells()[None], read=np.ravel, example=np.array([0.0, 1.0, 1.0, 0.0]))


class Supervision:
    """A kind of supervision: its blobs, in the order of the loss layer's bottoms, and its constraint function."""

    def __init__(self, blobs, function):
        self.blobs = tuple(blobs)
        self.function = function
        parameters = inspect.signature(function).parameters
        self.grid = [name for name in ("labels", "shape") if name in parameters]
        # the settings, with their defaults
        self.bounds = {name: parameter.default for name, parameter in parameters.items()
                       if parameter.default is not parameter.empty and name not in self.grid}

    @property
    def names(self):
        """The names of the blobs: tops of the data layer, bottoms of the loss layer."""
        return tuple(blob.name for blob in self.blobs)

    @property
    def settings(self):
        """The table of the bounds, for read_settings."""
        return {name: Setting(NUMBER, default, f"of {self.function.__name__}") for name, default in self.bounds.items()}

    @property
    def fits_any_image(self):
        """Whether the constraints depend on no pixel, so that they serve every image with the same blobs."""
        return "shape" not in self.grid

    def constraints(self, arrays, labels, shape, **bounds):
        """The constraints on an image from the arrays in its blobs."""
        values = [blob.read(array) for blob, array in zip(self.blobs, arrays)]
        return self._call(values, {"labels": labels, "shape": shape}, bounds)

    def trial(self, **bounds):
        """Constraints of an example on 2 labels and 4 pixels: fails if the bounds make no sense."""
        return self._call([blob.example for blob in self.blobs], TRIAL, bounds)

    def _call(self, values, grid, bounds):
        return self.function(*values, **{name: grid[name] for name in self.grid}, **bounds)


def for_crops(function):
    """The constraints of `function`, also for a crop without background: then only the other labels have bounds."""
    @wraps(function)
    def constraints(present, *others, **bounds):
        c = function(present, *others, **bounds)
        if present[BACKGROUND] or not present.any():
            return c
        rows = c.A[:, BACKGROUND] == 0
        return Constraints(c.A[rows], c.b[rows], c.beta[rows], present)
    return constraints


def share_constraints(present, share, margin=0.05, fg_lower=0.05, fg_beta=2.0):
    """tag_constraints where the background covers about `share` of the image: share - margin .. share + margin."""
    return tag_constraints(present, fg_lower, fg_beta, max(share - margin, 0.0), min(share + margin, 1.0))


SUPERVISION = {
    "tags": Supervision([TAGS_BLOB], for_crops(tag_constraints)),
    "share": Supervision([TAGS_BLOB, SHARE_BLOB], share_constraints),
    "size": Supervision([TAGS_BLOB, SIZES_BLOB], for_crops(size_constraints)),
    "boxes": Supervision([BOXES_BLOB], box_constraints),
}


def all_blobs():
    """{name: SupervisionBlob} of every kind: what the data layers can deliver."""
    of_kinds = [blob for kind in SUPERVISION.values() for blob in kind.blobs]
    return {blob.name: blob for blob in [*of_kinds, CUE_BLOB, LABELS_BLOB, FILLED_BOXES_BLOB, NUMBER_BLOB]}
