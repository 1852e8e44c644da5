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
    """The rows, or columns, of a sample: where its crop and the cells of its score grid lie in the image file.

    size    pixels in the file; length: after the image was reduced
    start   first pixel of the crop in the reduced image; span: their number
    count   cells; cell k sits on pixel start + k * stride, or with centre=0 on the edge before that pixel
    low, high, cells    the crop, [low, high), and its cells, in pixels of the file
    """

    def __init__(self, size, length, start, span, stride, count, centre=0.5):
        self.size, self.start, self.span = size, start, span
        scale = size / length
        self.low = max(0, int(start * scale))
        self.high = min(size, int(np.ceil((start + span) * scale)))
        centres = start + stride * np.arange(count) + centre
        self.cells = np.rint(centres * scale - 0.5).astype(int).clip(self.low, self.high - 1)

    def meets(self, low, high):
        return low < self.high and high > self.low

    def cells_of(self, low, high):
        """The cells [first, end) between pixels low and high; the one nearest to their middle if there is none."""
        first, end = np.searchsorted(self.cells, (low, high))
        if first == end:
            first = np.abs(self.cells - (low + high - 1) / 2).argmin()
            end = first + 1
        return first, end

STRIP = 1 << 22         # scores that are enlarged at a time: 16 MB


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
    return np.concatenate([sample(values, y[k:k + strip], x).argmax(axis=0).astype(np.uint8)
                           for k in range(0, len(y), strip)])


class Scores(namedtuple("Scores", "values shape stride offset")):
    """values L x h x w on the score grid of an image of `shape`: cell k lies at pixel offset + stride * k."""

    def cells(self, height, width):
        """Where the rows and the columns of that image, enlarged to height x width, lie on the grid."""
        return [(positions(size, source) - self.offset) / self.stride
                for size, source in zip((height, width), self.shape)]
