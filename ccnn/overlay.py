"""A photograph under the colours of its labels, with a legend."""
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ccnn.images import shrink
from ccnn.labels import BACKGROUND, palette

COLOURS = np.array(palette(), np.uint8).reshape(-1, 3)

SMALLEST = 0.001        # share of the photograph from which on a label is named


def overlay(rgb: np.ndarray, mask: np.ndarray, classes: Sequence[str], long_side: int = 1280) -> Image.Image:
    """The photograph, its long side at most `long_side`, half under the labels' colours; the background stays as it is.

    Below it stand the names of the labels that cover at least 0.1 % of it, the largest first.
    """
    rgb = shrink(rgb, long_side)
    height, width = rgb.shape[:2]
    area = np.bincount(mask.ravel(), minlength=len(classes)) / mask.size
    mask = np.asarray(Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST))
    mixed = np.where(mask[..., None] == BACKGROUND, rgb, rgb // 2 + COLOURS[mask] // 2)

    size = min(28, max(11, width // 32))                # of the letters, in pixels
    font = ImageFont.load_default(size)
    largest_first = [int(label) for label in np.argsort(-area) if area[label] >= SMALLEST]
    names = {label: f"{classes[label]} {area[label]:.0%}" for label in largest_first}
    entries, needed, bottom = arrange(names, font, size, width, height)
    picture = Image.new("RGB", (needed, bottom), "white")
    picture.paste(Image.fromarray(mixed), (0, 0))
    draw = ImageDraw.Draw(picture)
    for label, text, x, y in entries:
        draw.rectangle((x, y, x + size, y + size), tuple(map(int, COLOURS[label])), "black")
        draw.text((x + size * 3 // 2, y + size // 2), text, "black", font, anchor="lm")
    return picture


class Entry(NamedTuple):
    """An entry of the legend: a square of the label's colour at x, y, and its name to the right."""
    label: int
    text: str
    x: int
    y: int


def arrange(names: dict[int, str], font, size: int, width: int, top: int) -> tuple[list[Entry], int, int]:
    """One entry per label, wrapped to the width; the width that the longest needs, and where the legend ends."""
    entries, x, y, needed = [], 0, top, width
    for label, text in names.items():
        length = int(font.getlength(text))
        if x and x + length + 3 * size > width:
            x, y = 0, y + 2 * size
        entries.append(Entry(label, text, x + size // 2, y + size // 2))
        needed = max(needed, entries[-1].x + length + 2 * size)
        x += length + 3 * size
    return entries, needed, y + 2 * size
