"""A photograph under the colours of its labels."""
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ccnn.images import shrink
from ccnn.labels import BACKGROUND, palette


def overlay(rgb, mask, classes, long_side=1280):
    """The photograph under the labels' colours, and below it the names of those that cover 0.1 % of it or more."""
    rgb = shrink(rgb, long_side)
    height, width = rgb.shape[:2]
    colours = np.array(palette(), np.uint8).reshape(-1, 3)
    area = np.bincount(mask.ravel(), minlength=len(classes)) / mask.size
    mask = np.asarray(Image.fromarray(mask).resize((width, height), Image.NEAREST))
    mixed = np.where(mask[..., None] == BACKGROUND, rgb, rgb // 2 + colours[mask] // 2)     # background stays itself

    # one entry a label, largest first, wrapped to the width of the picture
    size = min(28, max(11, width // 32))
    font = ImageFont.load_default(size)
    entries = [(label, f"{classes[label]} {area[label]:.0%}") for label in np.argsort(-area) if area[label] >= 0.001]
    places, x, y = [], 0, height
    for label, text in entries:
        entry = int(font.getlength(text)) + 3 * size
        if x and x + entry > width:
            x, y = 0, y + 2 * size
        places.append((label, text, x + size // 2, y + size // 2))
        x += entry
    width_needed = max([width] + [x + int(font.getlength(text)) + 2 * size for _, text, x, _ in places])
    picture = Image.new("RGB", (width_needed, y + 2 * size), "white")
    picture.paste(Image.fromarray(mixed), (0, 0))
    draw = ImageDraw.Draw(picture)
    for label, text, x, y in places:
        draw.rectangle((x, y, x + size, y + size), tuple(map(int, colours[label])), "black")
        draw.text((x + size * 3 // 2, y + size // 2), text, "black", font, anchor="lm")
    return picture
