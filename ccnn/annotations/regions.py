"""What a label file says of a photograph: its objects, and which pixels they cover.

A reader yields LabelledPhotograph(name, [Object], place, shape). The pixels of an object are a region: Polygons or
Runs, with a method draw(shape) that makes a bool array of them.

Run lengths are as COCO counts them: how many pixels are outside, then inside, then outside, and so on.
"""
from typing import Any, Callable, Literal, NamedTuple, Optional

import numpy as np

from ccnn._util.errors import UserError
from ccnn._util.foreign_files import number
from ccnn._util.text import shortened
from ccnn.annotations.outlines import area, fill
from ccnn.images.formats import PIXELS

POINTS = 1 << 20            # of one polygon


class Object(NamedTuple):
    label: str                      # the name of its class
    box: Optional[tuple] = None     # (y0, x0, y1, x1) in fractions of the photograph; None: not known
    area: Optional[float] = None    # its share of the photograph; None: not known
    region: Any = None              # Polygons, Runs or another with a method draw; None: not known


class LabelledPhotograph(NamedTuple):
    name: str
    objects: list                   # Object, or a tuple of its first fields
    place: str                      # where the file says it: "image 3"
    shape: Optional[tuple] = None   # (height, width) in pixels; None: not known


class Polygons(NamedTuple):
    """One or several polygons, n x 2 arrays of x and y, in fractions of the photograph."""
    points: list

    def draw(self, shape):
        return fill([polygon * (shape[1], shape[0]) for polygon in self.points], shape)

    @property
    def area(self):
        """Their share of the photograph, if they do not overlap."""
        return sum(abs(area(points)) for points in self.points)

    @property
    def box(self):
        return box_of(np.concatenate(self.points))


class Later(NamedTuple):
    """A region that is read from its file's values when it is drawn; who wants tags alone does not need it."""
    read: Callable                  # read(*arguments): a region, or None
    arguments: tuple

    def draw(self, shape):
        found = self.read(*self.arguments)
        return np.zeros(shape, bool) if found is None else found.draw(shape)


class Runs(NamedTuple):
    """The run lengths of a window of the photograph."""
    counts: list
    shape: tuple                    # of the photograph
    window: tuple                   # top, left, height, width
    order: Literal["F", "C"]        # "F": column by column; "C": row by row

    def draw(self, shape):
        if tuple(shape) != tuple(self.shape):
            raise UserError(f"a mask of {self.shape[1]} x {self.shape[0]} pixels, for a photograph of {shape[1]} x "
                            f"{shape[0]}; label the photograph as it is now")
        top, left, height, width = self.window
        region = np.zeros(shape, bool)
        inside = np.repeat(np.arange(len(self.counts)) % 2 == 1, self.counts).reshape((height, width), order=self.order)
        part = region[max(top, 0):max(top + height, 0), max(left, 0):max(left + width, 0)]
        part[:] = inside[max(-top, 0):, max(-left, 0):][:part.shape[0], :part.shape[1]]
        return region


def box_of(points):
    """(y0, x0, y1, x1) of points in fractions, clipped to the photograph; None if it is empty."""
    (x0, y0), (x1, y1) = points.min(axis=0).clip(0, 1), points.max(axis=0).clip(0, 1)
    return (float(y0), float(x0), float(y1), float(x1)) if y0 < y1 and x0 < x1 else None


# From files

def read_polygon(values, shape, where):
    """[x, y, x, y, ...] or [[x, y], ...] in the unit of `shape`, (height, width), as fractions; None if it has no
    area, because it has fewer than three points."""
    if not isinstance(values, (list, tuple)) or len(values) > 2 * POINTS:
        raise UserError(f"{where}: points must be a list of at most {POINTS} points; got {shortened(values)}")
    if values and isinstance(values[0], (list, tuple)):
        if not all(isinstance(point, (list, tuple)) and len(point) == 2 for point in values):
            raise UserError(f"{where}: points must be pairs [x, y]; got {shortened(values)}")
        values = [side for point in values for side in point]
    if len(values) % 2:
        raise UserError(f"{where}: points must be pairs of x and y; got {len(values)} numbers")
    points = np.array([number(value, where) for value in values]).reshape(-1, 2)
    if len(points) < 3:
        return None
    return (points / (shape[1], shape[0])).clip(-1, 2)         # far outside; products stay finite


def checked_shape(height, width, where):
    """(height, width) of a photograph, whole numbers of pixels; None if one of them is not known."""
    sides = [number(side or 0, where) for side in (height, width)]
    if min(sides) <= 0:
        return None
    if any(side != int(side) for side in sides) or sides[0] * sides[1] > PIXELS:
        raise UserError(f"{where}: {sides[1]:g} x {sides[0]:g} is not the size of a photograph of at most "
                        f"{PIXELS // 1_000_000} megapixels")
    return int(sides[0]), int(sides[1])


def checked_runs(counts, shape, window, order, where):
    """Runs, if the lengths are those of the window."""
    height, width = window[2:]
    if not isinstance(counts, list) or not all(type(count) is int and count >= 0 for count in counts):
        raise UserError(f"{where}: run lengths must be whole numbers; got {shortened(counts)}")
    if height < 1 or width < 1 or height * width > PIXELS or sum(counts) != height * width:
        raise UserError(f"{where}: the run lengths are those of {sum(counts)} pixels; expected {width} x {height}")
    return Runs(counts, tuple(shape), tuple(window), order)


# Into files

def run_lengths(region, order="F"):
    """The lengths of runs, column by column ("F") or row by row ("C"); the first run is of pixels outside."""
    flat = np.concatenate([[False], region.ravel(order=order)])
    edges = np.flatnonzero(flat[1:] != flat[:-1])
    return np.diff(np.concatenate([[0], edges, [region.size]])).tolist()


def bounds(region):
    """(top, left, height, width) of the smallest window around a region that is not empty."""
    rows, columns = (np.flatnonzero(region.any(axis=axis)) for axis in (1, 0))
    return int(rows[0]), int(columns[0]), int(rows[-1] - rows[0]) + 1, int(columns[-1] - columns[0]) + 1


# COCO's compressed run lengths: text of six bits a letter, five of them digits, from the third run on as differences

def uncompressed(text, where):
    counts, value, shift = [], 0, 0
    for letter in text:
        bits = ord(letter) - 48
        if not 0 <= bits < 64 or shift > 60:
            raise UserError(f"{where}: counts holds {letter!r}, which COCO's run lengths do not have")
        value |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            if bits & 16:
                value -= 1 << shift
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
            value = shift = 0
    return counts


# Label Studio's run lengths: a stream of bits, of the values of a picture with four channels

WORDS = (3, 4, 8, 16)       # bits of a length, of which two bits choose


def packed(region):
    """The bytes of a brush stroke: each pixel is four values, 255 inside and 0 outside."""
    runs = run_lengths(region, "C")
    bits = [f"{4 * region.size:032b}", f"{7:05b}", *(f"{size - 1:04b}" for size in WORDS)]
    for k, run in enumerate(runs):
        left, value = 4 * run, "11111111" if k % 2 else "00000000"
        while left:
            length = min(left, 1 << WORDS[-1])
            word = next(k for k, size in enumerate(WORDS) if length <= 1 << size)
            bits.append(f"1{word:02b}{length - 1:0{WORDS[word]}b}{value}")
            left -= length
    text = "".join(bits)
    text += "0" * (-len(text) % 8)
    return np.packbits(np.frombuffer(text.encode(), np.uint8) - 48).tolist()


class Brush(NamedTuple):
    """The bytes of a brush stroke; a pixel is inside if its last channel is not 0."""
    values: list
    shape: tuple
    where: str

    def draw(self, shape):
        inside = unpacked(self.values, self.shape, self.where)
        return Runs(run_lengths(inside, "C"), self.shape, (0, 0, *self.shape), "C").draw(shape)


def unpacked(values, shape, where):
    if not isinstance(values, list) or not all(type(value) is int and 0 <= value < 256 for value in values):
        raise UserError(f"{where}: rle must be a list of bytes; got {shortened(values)}")
    text = (np.unpackbits(np.array(values, np.uint8)) + 48).tobytes().decode()
    at = 0

    def take(bits):
        nonlocal at
        at += bits
        if at > len(text):
            raise UserError(f"{where}: rle ends too early; export it again")
        return int(text[at - bits:at], 2)

    total, size = take(32), take(5) + 1
    words = [take(4) + 1 for _ in range(4)]
    if total != 4 * shape[0] * shape[1]:
        raise UserError(f"{where}: rle is of {total // 4} pixels; expected {shape[1]} x {shape[0]}")
    done, lengths, found = 0, [], []
    while done < total:
        same, length = take(1), take(words[take(2)]) + 1
        if done + length > total:
            raise UserError(f"{where}: rle has more than its {total} values")
        for _ in range(1 if same else length):
            lengths.append(length if same else 1)
            found.append(take(size) > 0)
        done += length
    return np.repeat(found, lengths)[3::4].reshape(shape)
