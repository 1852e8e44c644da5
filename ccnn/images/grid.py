"""The score grid: which pixel a cell sits on, and how scores are enlarged to pixels."""
from collections import namedtuple

import numpy as np


def score_size(size, stride=8):
    """Cells along a side of `size` pixels: ceil((size - 1) / stride) + 1, so 321 -> 41.

    Caffe rounds pooling up: 3x3, stride 2, pad 1 maps n to ceil((n - 1) / 2) + 1, and three of them to the
    formula above. Cell k sits at pixel k * stride; the last may sit up to stride - 1 pixels outside.
    """
    return (size + stride - 2) // stride + 1


class Axis:
    """The rows, or the columns, of a sample: which part of the image it shows, and where its cells sit.

    size        pixels in the image file
    window      slice: what is shown of the net's input, in pixels of the reduced image or in cells of its features
    low, high   what is shown in pixels of the file, half-open
    cells       the pixel of the file at every cell of the score grid

    A crop begins at `fraction`, in [0, 1), of the way from the first possible place to the last; crop 0 shows all.
    """

    def __init__(self, size, scale, start, span, centres, window):
        """scale : pixels of the file per pixel of the reduced image, in which start, span and centres are given."""
        self.size, self.window = size, window
        self.low = max(0, int(start * scale))
        self.high = min(size, int(np.ceil((start + span) * scale)))
        self.cells = np.rint(centres * scale - 0.5).astype(int).clip(self.low, self.high - 1)

    @classmethod
    def of_image(cls, size, length, stride, crop, fraction):
        """An image of `size` pixels, reduced to `length`. Cell k sits on pixel k * stride of the crop."""
        span = min(crop or length, length)
        start = int(fraction * (length - span + 1))
        centres = start + stride * np.arange(score_size(span, stride)) + 0.5
        return cls(size, size / length, start, span, centres, slice(start, start + span))

    @classmethod
    def of_features(cls, size, length, backbone, crop, fraction, cells, flipped):
        """The features of such an image, `cells` of them, which sit where the backbone (ccnn.nets.backbones) says."""
        stride, count = backbone.stride, min(backbone.cells(crop) if crop else cells, cells)
        first = int(fraction * (cells - count + 1))
        # a flipped grid begins with the last cell, which sits on the border or up to stride - 1 pixels outside
        border = length - stride * (cells - 1) if flipped else 0
        start = border + stride * first
        centres = start + stride * np.arange(count) + 0.5 + backbone.offset
        return cls(size, size / length, start, stride * (count - 1), centres, slice(first, first + count))

    def meets(self, low, high):
        """Whether some of the pixels [low, high) are shown."""
        return low < self.high and high > self.low

    def cells_of(self, low, high):
        """The cells [first, end) on the pixels [low, high), or else the cell nearest to their middle."""
        first, end = np.searchsorted(self.cells, (low, high))
        if first == end:
            first = np.abs(self.cells - (low + high - 1) / 2).argmin()
            end = first + 1
        return first, end


STRIP = 1 << 22         # scores that are enlarged at a time: 16 MB

HAIR = 1e-6             # of the largest value: more than float32 loses in a mean of four


def positions(size, source):
    """Where the pixels 0..size-1 of a side lie on the same side scaled to `source` pixels (centres, in pixels)."""
    return (np.arange(size) + 0.5) * (source / size) - 0.5


def sample(values, y, x):
    """L x h x w values at rows y and columns x, bilinearly, the border repeated: L x len(y) x len(x)."""
    for axis, at in ((1, y), (2, x)):
        at = np.clip(at, 0, values.shape[axis] - 1)
        low = np.minimum(at.astype(int), max(values.shape[axis] - 2, 0))
        if np.array_equal(at, np.arange(values.shape[axis])):
            continue
        high = np.minimum(low + 1, values.shape[axis] - 1)
        t = (at - low).astype(np.float32)[:, None] if axis == 1 else (at - low).astype(np.float32)
        below = values.take(low, axis)
        values = below + t * (values.take(high, axis) - below)
    return values


def label_map(values, y, x):
    """argmax over labels of sample(values, y, x), uint8; in strips of rows: L x 20 megapixels fit nowhere."""
    strip = max(1, STRIP // (values.shape[0] * len(x)))
    found = []
    for k in range(0, len(y), strip):
        rows = np.clip(y[k:k + strip], 0, values.shape[1] - 1)
        first, last = int(rows.min()), int(np.ceil(rows.max()))
        part = values[:, first:last + 1]
        if part[0].size < len(rows) * len(x):           # they are enlarged; else leaving labels out would take longer
            labels = possible_labels(part)
            found.append(labels[sample(part[labels], rows - first, x).argmax(axis=0)])
        else:
            found.append(sample(part, rows - first, x).argmax(axis=0).astype(np.uint8))
    return np.concatenate(found)


def possible_labels(values):
    """The labels that may be the largest somewhere between the cells, uint8, ascending; values : L x h x w.

    Between four cells a value is a mean of theirs. So a label whose four values are all less than the least four of
    another label's is never the largest there. A hair is added for the rounding of that mean.
    """
    least, most = values, values
    for axis in (1, 2):
        if values.shape[axis] > 1:
            pairs = [range(values.shape[axis] - 1), range(1, values.shape[axis])]
            least = np.minimum(*(least.take(pair, axis) for pair in pairs))
            most = np.maximum(*(most.take(pair, axis) for pair in pairs))
    sure = least.max(axis=0)
    return np.flatnonzero((most >= sure - HAIR * np.abs(values).max()).any(axis=(1, 2))).astype(np.uint8)


class Scores(namedtuple("Scores", "values shape stride offset")):
    """values L x h x w on the score grid of an image of `shape`: cell k lies at pixel offset + stride * k."""

    def cells(self, height, width):
        """Where the rows and the columns of that image, enlarged to height x width, lie on the grid."""
        return [(positions(size, source) - self.offset) / self.stride
                for size, source in zip((height, width), self.shape)]

    def cells_of(self, other):
        """Where the cells of `other` lie on this grid; both are of one image, reduced to different sizes."""
        def on_this(cell, scale):
            return ((other.offset + other.stride * cell + 0.5) * scale - 0.5 - self.offset) / self.stride
        return [on_this(np.arange(cells), own / seen)
                for cells, own, seen in zip(other.values.shape[1:], self.shape, other.shape)]


def mean_scores(several):
    """The mean of the Scores of one image at different sizes, on the finest of their grids."""
    finest = max(several, key=lambda scores: scores.values.size)
    values = [sample(scores.values, *scores.cells_of(finest)) for scores in several]
    return finest._replace(values=np.mean(values, axis=0, dtype=np.float32))


def mirrored(scores):
    """The Scores of an image from those of its mirror image, on the grid that the image itself has.

    Column x of the image is column width - 1 - x of the mirror image, which may lie between two of its cells.
    """
    columns = scores.offset + scores.stride * np.arange(scores.values.shape[2])
    there = (scores.shape[1] - 1 - columns - scores.offset) / scores.stride
    return scores._replace(values=sample(scores.values, np.arange(scores.values.shape[1]), there))
