"""Pictures one can read: a photograph under its labels, with outlines, and a legend in any script.

Masks as files keep VOC's colours (ccnn.images.labels.palette); everything made for the eye takes colours().
"""
import functools
import importlib.util
import json
import unicodedata
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo
from scipy.ndimage import distance_transform_edt

from ccnn.images.labels import BACKGROUND, VOID
from ccnn.images.reading import shrink

# --- colours -------------------------------------------------------------------------------------------------------

FIRST = ("#0072B2", "#D55E00", "#F0E442", "#009E73")        # blue, vermilion, yellow, green of Okabe and Ito

DARK, LIGHT, GREY = (17, 20, 26), (255, 255, 255), (128, 128, 128)

# How linear RGB looks to the two common kinds of colour-blindness (Machado, Oliveira, Fernandes 2009, severity 1)
SIGHTS = np.array([
    np.eye(3),
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],   # deuteranopia
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],  # protanopia
])

# Linear RGB to the responses of the eye's cones, and their cube roots to lightness, green-red, blue-yellow (Oklab)
CONES = np.array([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
                  [0.0883024619, 0.2817188376, 0.6299787005]])
OPPONENTS = np.array([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
                      [0.0259040371, 0.7827717662, -0.8086757660]])


def linear(rgb):
    """sRGB, 0..255, as light: 0..1."""
    v = np.asarray(rgb, float) / 255
    return np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)


def seen(rgb):
    """Colours, n x 3 in 0..255, in Oklab, where distance is difference to the eye: sights x n x 3."""
    light = (linear(rgb) @ SIGHTS.transpose(0, 2, 1)).clip(0, 1)
    return np.cbrt(light @ CONES.T) @ OPPONENTS.T


def difference(rgb, others):
    """How far colours are from others, for the eye that tells them apart least: n x m; 0.02 is just visible.

    Full sight counts half: it is used to more.
    """
    apart = np.linalg.norm(seen(rgb)[:, :, None] - seen(others)[:, None], axis=-1)
    return (apart * np.array([0.5, 1, 1])[:, None, None]).min(axis=0)


@functools.cache
def colours():
    """256 x 3 uint8, by label. Each differs from those before it, from the lines around regions and from grey as much
    as can be; GREY stands for the background and void."""
    chosen = [GREY] + [tuple(bytes.fromhex(colour[1:])) for colour in FIRST]
    steps = np.arange(0, 256, 15)
    candidates = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(-1, 3)
    lightness, *chroma = seen(candidates)[0].T
    candidates = candidates[(0.45 < lightness) & (lightness < 0.93) & (np.hypot(*chroma) > 0.1)]
    nearest = difference(candidates, [DARK, LIGHT, *chosen]).min(axis=1)
    while len(chosen) < VOID:
        chosen.append(tuple(candidates[nearest.argmax()]))
        nearest = np.minimum(nearest, difference(candidates, [chosen[-1]])[:, 0])
    return np.array([*chosen, GREY], np.uint8)


# --- photographs under their labels --------------------------------------------------------------------------------

def thumbnail(rgb, mask, long_side=320):
    """The photograph under its labels' colours, long side at most `long_side`: h x w x 3 uint8.

    Around a region runs a double line: white outside, dark inside. So it stays visible whatever the colour of the
    photograph. Next comes a band in the label's full colour, and then the photograph shines through.
    """
    rgb = shrink(rgb, long_side)
    height, width = rgb.shape[:2]
    mask = np.asarray(Image.fromarray(np.asarray(mask, np.uint8)).resize((width, height), Image.Resampling.NEAREST))
    inside = (mask != BACKGROUND) & (mask != VOID)
    edge = np.zeros(mask.shape, bool)
    for a, b in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        edge[a] |= mask[a] != mask[b]
        edge[b] |= mask[a] != mask[b]
    away = distance_transform_edt(~edge) if edge.any() else np.full(mask.shape, np.inf)     # 0 on both sides
    line = max(1, round(max(height, width) / 640))
    full = colours()[mask]
    out = np.where(inside[..., None], (0.55 * rgb + 0.45 * full).astype(np.uint8), rgb)
    out[inside & (away < 3 * line)] = full[inside & (away < 3 * line)]
    out[inside & (away < line)] = DARK
    out[~inside & (away < line)] = LIGHT
    return out


def overlay(rgb, mask, classes, long_side=1280):
    """The photograph under its labels, and below it the names of those that cover 0.1 % of it or more."""
    picture = thumbnail(rgb, mask, long_side)
    height, width = picture.shape[:2]
    size = min(28, max(11, width // 32))
    area = np.bincount(np.ravel(mask), minlength=len(classes))[:len(classes)] / np.size(mask)
    entries = [(label, f" {percent(area[label])}") for label in np.argsort(-area, kind="stable")
               if area[label] >= 0.001]
    spans = [3 * size + int(text_width(classes[label], size) + text_width(share, size)) for label, share in entries]
    width = max([width, *spans])

    # one entry per label, largest first, wrapped to the width
    places, x, y = [], 0, height
    for span in spans:
        if x + span > width:
            x, y = 0, y + 2 * size
        places.append((x + size // 2, y + size // 2))
        x += span
    sheet = Image.new("RGB", (width, y + 2 * size), LIGHT)
    sheet.paste(Image.fromarray(picture), (0, 0))
    draw = ImageDraw.Draw(sheet)
    for (label, share), (x, y) in zip(entries, places):
        colour = LIGHT if label == BACKGROUND else tuple(map(int, colours()[label]))
        draw.rectangle((x, y, x + size, y + size), colour, DARK)
        end = draw_text(draw, (x + size * 3 // 2, y + size // 2), classes[label], size)
        draw_text(draw, (end, y + size // 2), share, size)
    return sheet


def percent(share):
    """A share of an image for people: what is there is never called 0 %."""
    return "<1\u00a0%" if 0 < share < 0.005 else f"{100 * share:.0f}\u00a0%"


# --- text in any script --------------------------------------------------------------------------------------------

FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts", "/System/Library/Fonts",
           "/Library/Fonts", "C:/Windows/Fonts")


@functools.cache
def font_files():
    """Fonts of this machine, the plain ones first; the first is matplotlib's DejaVu Sans: Latin, Greek, Cyrillic..."""
    found = importlib.util.find_spec("matplotlib")
    first = [path for folder in ((found and found.submodule_search_locations) or ())
             for path in Path(folder).glob("mpl-data/fonts/ttf/DejaVuSans.ttf")]
    others = [path for folder in FOLDERS for path in Path(folder).expanduser().rglob("*.[tToO][tT][fFcC]")]
    special = ("bold", "italic", "oblique", "mono", "serif", "light", "thin", "black", "condensed", "narrow")
    return first + sorted(others, key=lambda path: (sum(word in path.name.lower() for word in special), str(path)))


@functools.lru_cache(maxsize=256)
def open_font(path, size):
    """None if Pillow cannot use it: a font of pictures, a damaged file."""
    try:
        return ImageFont.truetype(str(path), size) if path else ImageFont.load_default(size)
    except (OSError, ValueError):
        return None


@functools.lru_cache(maxsize=4096)
def has_glyph(path, character):
    """Whether a font can draw a character: what it cannot draw looks as a character that exists in no font."""
    font = open_font(path, 20)
    if font is None or character.isspace() or unicodedata.category(character) == "Cf":      # joiners are invisible
        return font is not None
    drawn, absent = (font.getmask(text) for text in (character, "\U0010fffe"))
    return (drawn.size, bytes(drawn)) != (absent.size, bytes(absent))


@functools.lru_cache(maxsize=1024)
def runs(text):
    """[(font's path, text)]: one font for all if there is one, else the first per character that has it.

    A character that no font has is spelt out: a name in another script must not become a row of boxes.
    """
    for path in (*font_files(), None):
        if all(has_glyph(path, character) for character in text):
            return [(path, text)]
    found = []
    for character in text:
        path = next((path for path in (*font_files(), None) if has_glyph(path, character)), None)
        part = character if has_glyph(path, character) else spelt(character)
        if found and found[-1][0] == path:
            part = found.pop()[1] + part
        found.append((path, part))
    return found


def spelt(character):
    """A character in ASCII: "ka" for a letter or syllable of that name, else the name or the number in brackets."""
    plain = unicodedata.normalize("NFKD", character)
    if plain.isascii() and plain.strip():
        return plain
    name = unicodedata.name(character, "")
    if any(word in name for word in ("LETTER", "SYLLABLE", "VOWEL SIGN")):
        return name.split()[-1].lower()
    return f"[{ord(character):X}]" if not name or "IDEOGRAPH" in name else f"[{name.lower()}]"


def text_width(text, size):
    return sum(open_font(path, size).getlength(part) for path, part in runs(text))


def draw_text(draw, at, text, size):
    """Draw at the left end of the text's middle line; return where it ends."""
    x, y = at
    for path, part in runs(text):
        font = open_font(path, size)
        draw.text((x, y), part, DARK, font, anchor="lm")
        x += font.getlength(part)
    return x


# --- masks as files ------------------------------------------------------------------------------------------------

def mask_text(classes, settings, source=None):
    """What a mask's PNG carries: its class names, by label, the settings that it was made with, and the checksum of its
    source."""
    text = PngInfo()
    text.add_itxt("classes", json.dumps(list(classes), ensure_ascii=False))
    text.add_text("settings", json.dumps(settings))
    if source:
        text.add_text("source", json.dumps(source))
    return text
