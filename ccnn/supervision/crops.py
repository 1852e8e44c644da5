"""The annotation of an image, and the part of it that a crop shows."""
from functools import cached_property
from typing import NamedTuple, Optional

import numpy as np

from ccnn.images.grid import sample
from ccnn.images.labels import BACKGROUND, VOID
from ccnn.supervision.marks import known_cells


class Annotation(NamedTuple):
    """What the files say about an image; None where it was not asked for."""

    labels: int                             # L
    tags_from: str                          # "masks", "annotations", or the path of a table
    labelled: bool                          # whether the mask may be used as supervision of pixels
    mask: Optional[np.ndarray] = None       # H x W label ids
    boxes: Optional[list] = None            # [(label, y0, x0, y1, x1)] in pixels of the file
    row: Optional[tuple] = None             # (present, large) from the table
    shapes: Optional[dict] = None           # {file: (height, width) of the image it was made for}
    scribble: Optional[np.ndarray] = None   # H x W label ids of some pixels, VOID elsewhere
    share: Optional[float] = None           # of the background, known or guessed
    number: Optional[int] = None            # of the image in the list
    cue: Optional[np.ndarray] = None        # h x w, 0..1: the map of a cue, of the whole image at any resolution


class CroppedAnnotation:
    """The annotation of an image, mirrored if `flip`, inside the crop with rows y and columns x (Axis).

    large_share : a label is large if it covers more than this share of the labelled pixels
    """

    def __init__(self, annotation, y, x, flip, large_share):
        self.annotation, self.labels = annotation, annotation.labels
        self.y, self.x, self.mirrored, self.large_share = y, x, flip, large_share
        self.mask, self.scribble, self.cue = (
            array[:, ::-1] if flip and array is not None else array
            for array in (annotation.mask, annotation.scribble, annotation.cue))
        self.boxes = annotation.boxes
        if flip and self.boxes is not None:
            self.boxes = [(label, y0, x.size - x1, y1, x.size - x0) for label, y0, x0, y1, x1 in self.boxes]
        if self.boxes is not None:
            self.boxes = [box for box in self.boxes if y.meets(box[1], box[3]) and x.meets(box[2], box[4])]

    @cached_property
    def areas(self):
        """(L,) pixels of every label in the crop, by the mask."""
        crop = self.mask[self.y.low:self.y.high, self.x.low:self.x.high]
        return np.bincount(crop.ravel(), minlength=VOID + 1)[:self.labels]

    @property
    def present(self):
        """(L,) bool, the labels in the crop."""
        if self.annotation.row:
            return self.annotation.row[0]
        if self.annotation.tags_from == "masks":
            return self.areas > 0
        return np.isin(np.arange(self.labels), [box[0] for box in self.boxes])

    @property
    def background(self):
        """Whether the crop contains background. A whole image always counts as having some; a crop does unless its
        mask shows objects only."""
        cropped = any(axis.high - axis.low < axis.size for axis in (self.y, self.x))
        from_mask = cropped and self.annotation.tags_from == "masks" and self.areas[1:].any()
        return not from_mask or self.areas[BACKGROUND] > 0

    @property
    def large(self):
        """(L,) bool, the labels that are large in the crop."""
        if self.annotation.row:
            return self.annotation.row[1]
        return self.areas > self.large_share * self.areas.sum()

    def box_cells(self):
        """[(label, y0, x0, y1, x1)] on the score grid."""
        cells = []
        for label, y0, x0, y1, x1 in self.boxes:
            (top, bottom), (left, right) = self.y.cells_of(y0, y1), self.x.cells_of(x0, x1)
            cells.append((label, top, left, bottom, right))
        return cells

    def filled_boxes(self):
        """h x w, at every cell of the score grid the label of the smallest box around it, else background."""
        cells = np.full((len(self.y.cells), len(self.x.cells)), BACKGROUND, np.uint8)
        for label, y0, x0, y1, x1 in sorted(self.box_cells(), key=lambda box: (box[1] - box[3]) * (box[4] - box[2])):
            cells[y0:y1, x0:x1] = label
        return cells

    def cue_cells(self):
        """h x w float32, the cue's map at every cell of the score grid."""
        at = [(axis.cells + 0.5) * (length / axis.size) - 0.5 for axis, length in zip((self.y, self.x), self.cue.shape)]
        return sample(np.asarray(self.cue, np.float32)[None], *at)[0]

    def label_cells(self):
        """h x w, the label at every cell of the score grid; of a scribble, the label marked around the cell."""
        if self.annotation.labelled:
            return self.mask[np.ix_(self.y.cells, self.x.cells)]
        if self.scribble is not None:
            y, x = self.y, self.x
            return known_cells(self.scribble[y.low:y.high, x.low:x.high], y.cells - y.low, x.cells - x.low)
        return np.full((len(self.y.cells), len(self.x.cells)), VOID, np.uint8)
