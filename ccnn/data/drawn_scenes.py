"""Drawn photographs with their masks, from a seed: for a demonstration, and for tests that know the truth.

Five kinds of objects lie over clutter. Each kind has a pattern of its own, and nine times in ten its usual colour. The
clutter has the colours of all kinds, and its strokes, discs and patches have edges and corners as the objects have. So
only the way in which a pattern repeats tells an object from the clutter. The areas of the objects follow VOC's mixture:
in two images of three the foreground is as large as the paper's bounds expect, and in the third every object is small
(below 10 % of the image). Tags do not say which; the bit of size does.
"""
import numpy as np
from PIL import Image, ImageDraw

from ccnn.images.labels import VOID

CLASSES = ("fish", "beetle", "kite", "snail", "leaf")

HUES = (0.0, 0.2, 0.4, 0.6, 0.8)                    # of the classes' usual colours, as fractions of a turn

FAITHFUL = 0.9                                      # share of the objects that have their usual colour

SHAPES = ((97, 129), (129, 97), (113, 113))          # height, width: 8 k + 1, whole cells of the score grid

FINE = 2                                            # drawn at twice the size, then averaged


# The objects: functions (u, v, k, period) -> (outline, pattern). u and v are coordinates in units of the radius, k is
# the radius in fine pixels; outline is bool, pattern lies in 0..1 and repeats every `period` fine pixels.

def fish(u, v, k, period):
    body = u**2 + (v / 0.6)**2 < 1
    tail = (u > -1.45) & (u < -0.75) & (np.abs(v) < 0.75 * (-0.6 - u))
    return body | tail, wave(k * u, period)


def beetle(u, v, k, period):
    x, y = k * u / period, k * v / period
    odd = np.floor(y).astype(int) % 2 / 2           # shifts every second row of dots by half
    far = np.hypot((x + odd) % 1 - 0.5, y % 1 - 0.5)
    head = (u - 0.95)**2 + v**2 < 0.14
    return (u**2 + (v / 0.8)**2 < 1) | head, np.clip((0.34 - far) * period + 0.5, 0, 1)


def kite(u, v, k, period):
    checks = np.sin(np.pi * k * (u + v) / period) * np.sin(np.pi * k * (u - v) / period)
    return np.abs(u) + np.abs(v) / 0.8 < 1.15, np.clip(2 * checks + 0.5, 0, 1)


def snail(u, v, k, period):
    turn = np.arctan2(v, u) / (2 * np.pi)
    shell = u**2 + v**2 < 0.85
    foot = (v > 0.6) & (v < 0.95) & (u > -0.95) & (u < 1.05)
    return shell | foot, wave(k * np.hypot(u, v) + period * turn, period)


def leaf(u, v, k, period):
    return np.abs(v) < 0.75 * (1 - u**2), wave(k * (u + 1.3 * np.abs(v)), 1.3 * period)


def wave(x, period):
    """Stripes with soft edges, in 0..1."""
    return np.clip(1.5 * np.sin(2 * np.pi * x / period) + 0.5, 0, 1)


OBJECTS = (fish, beetle, kite, snail, leaf)

AREA = (2.2, 2.6, 2.1, 2.9, 2.0)                    # of each outline, in units of radius^2


def pigments(rng, c):
    """The colours of an object of class c, ground and figure of its pattern, 2 x 3 in 0..1.

    The ground mostly has the class's hue. The figure is paler, and lighter or darker.
    """
    hue = HUES[c if rng.random() < FAITHFUL else rng.integers(len(HUES))] + rng.normal(0, 0.03)
    wheel = np.cos(2 * np.pi * (hue - np.array([0, 1, 2]) / 3))
    grey = rng.uniform(0.35, 0.65)
    contrast = rng.uniform(0.25, 0.45) * rng.choice([-1, 1])
    return np.clip([grey + rng.uniform(0.2, 0.4) * wheel, grey + contrast + 0.1 * wheel], 0, 1)


def clutter(rng, h, w):
    """A background of patches, discs and strokes, H x W x 3 in 0..1."""
    canvas = Image.new("RGB", (w, h), paint(rng))
    pen = ImageDraw.Draw(canvas)
    for _ in range(rng.integers(20, 32)):
        x, y, angle = rng.uniform(0, w), rng.uniform(0, h), rng.uniform(0, 2 * np.pi)
        size, kind = FINE * rng.uniform(4, 24), rng.integers(3)
        if kind == 0:                               # a patch, turned
            corners = size * np.exp(1j * (angle + np.cumsum(rng.uniform(1, 2, 4)))) + complex(x, y)
            pen.polygon([(z.real, z.imag) for z in corners], paint(rng))
        elif kind == 1:                             # a disc
            a, b = size * rng.uniform(0.4, 0.7, 2)
            pen.ellipse((x - a, y - b, x + a, y + b), paint(rng))
        else:                                       # a bent stroke, as wide as a stripe
            start = np.degrees(angle)
            pen.arc((x - 2 * size, y - 2 * size, x + 2 * size, y + 2 * size), start, start + rng.uniform(30, 120),
                    paint(rng), FINE * rng.integers(3, 6))
    return np.asarray(canvas) / 255


def paint(rng):
    """A colour of the objects' grounds and figures, for Pillow."""
    return tuple((255 * pigments(rng, rng.integers(len(CLASSES)))[rng.integers(2)]).astype(int))


def areas(rng):
    """The fractions of the image that its one to three classes cover: all of them small, or 0.32 to 0.55 in total."""
    number = rng.choice([1, 2, 3], p=[0.45, 0.4, 0.15])
    if rng.random() < 0.35:
        return rng.uniform(0.012, 0.035, min(number, 2))
    return rng.uniform(0.32, 0.55) * rng.dirichlet(np.full(number, 6))


def scene(rng, objects=True):
    """Draw one image, with objects or the background alone.

    Returns (H x W x 3 uint8, H x W uint8 label ids with a void rim, [(label, x0, y0, x1, y1)]).
    """
    h, w = (FINE * s for s in SHAPES[rng.integers(len(SHAPES))])
    y, x = np.mgrid[:h, :w] + 0.5
    image, mask = clutter(rng, h, w), np.zeros((h, w), int)
    boxes = []
    wanted = areas(rng) if objects else np.array([])
    labels = rng.permutation(len(CLASSES))[:wanted.size]
    for c, area in sorted(zip(labels, wanted), key=lambda pair: -pair[1]):
        parts = 2 if area > 0.2 and rng.random() < 0.35 else 1          # sometimes two of a kind
        for _ in range(parts):
            k = np.sqrt(area / parts * h * w / AREA[c])
            where, pattern = place(rng, OBJECTS[c], k, y, x, mask > 0)
            ground, figure = pigments(rng, c)
            image[where] = ground + pattern[where, None] * (figure - ground)
            mask[where] = c + 1
            rows, columns = np.flatnonzero(where.any(1)), np.flatnonzero(where.any(0))
            boxes.append((c + 1, *(edge // FINE for edge in (columns[0], rows[0], columns[-1], rows[-1]))))

    ky, kx = rng.uniform(-2, 2, 2) / (h, w)           # light falls unevenly, over everything
    image *= 1 + 0.15 * np.sin(2 * np.pi * (ky * y + kx * x) + rng.uniform(0, 6))[..., None]
    image = image.reshape(h // FINE, FINE, w // FINE, FINE, 3).mean(axis=(1, 3))
    image += rng.normal(0, 0.025, image.shape)
    return (255 * image.clip(0, 1)).round().astype(np.uint8), coarse(mask), boxes


def place(rng, draw, k, y, x, taken):
    """(outline, pattern) of an object of radius k in the best of twelve random poses.

    The best one shows most of the object and hides least of the others.
    """
    (h, w), period = y.shape, FINE * rng.uniform(6.5, 8)
    margin = min(0.75 * k, 0.4 * min(h, w))
    poses = rng.uniform((-0.4, margin, margin), (0.4, h - margin, w - margin), (12, 3))

    def drawn(pose, step=1):
        angle, cy, cx = pose
        dx, dy = x[::step, ::step] - cx, y[::step, ::step] - cy
        u, v = dx * np.cos(angle) + dy * np.sin(angle), dy * np.cos(angle) - dx * np.sin(angle)
        return draw(u / k, v / k, k, period)

    def gain(pose):                                  # on every eighth pixel: enough to compare
        where = drawn(pose, 8)[0]
        return where.sum() - 2 * (where & taken[::8, ::8]).sum()
    return drawn(max(poses, key=gain))


def coarse(mask):
    """The mask at half the size; void where the four fine pixels differ."""
    h, w = (s // FINE for s in mask.shape)
    cells = mask.reshape(h, FINE, w, FINE)
    low, high = cells.min(axis=(1, 3)), cells.max(axis=(1, 3))
    return np.where(low == high, low, VOID).astype(np.uint8)
