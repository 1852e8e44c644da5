"""Photographs and masks: files in, arrays out."""
import os

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ccnn._util.errors import ImageError
from ccnn.images.labels import LABELS, VOID

MEAN_BGR = (104.00698793, 116.66876762, 122.67891434)   # the mean of ImageNet, published with VGG-16


def read_image(path, least_side=0):
    """H x W x 3 uint8 RGB, upright. Gray, CMYK, palette and 16-bit files are converted.

    least_side : a JPEG may be reduced while it is read, which is faster, to sides of at least this; 0: as it is
    """
    image = open_image(path, least_side)
    if image.mode == "F":
        raise ImageError(f"{path}: holds floating-point pixels of unknown range; save it with 8 bits per channel")
    if image.mode.startswith("I"):      # 16 bits: Pillow's own conversion clips at 255, it does not scale
        image = Image.fromarray((np.asarray(image).astype(np.int64).clip(0, 65535) >> 8).astype(np.uint8))
    return np.asarray(image.convert("RGB"))


def read_mask(path, labels=LABELS):
    """H x W uint8, the label id of every pixel, 255 where it is void. Palette and gray PNGs hold the ids themselves."""
    image = open_image(path)
    mask = np.asarray(image)
    if mask.ndim != 2 or mask.dtype.kind not in "bui":
        raise ImageError(f"{path}: is a picture of mode {image.mode}; a mask holds one label id per pixel "
                         "(8-bit palette or gray PNG), not colours")
    values = np.unique(mask) if mask.dtype != np.uint8 else np.flatnonzero(np.bincount(mask.ravel()))
    wrong = values[((values < 0) | (values >= labels)) & (values != VOID)]
    if wrong.size:
        raise ImageError(f"{path}: holds label {wrong[0]}; expected 0..{labels - 1} or {VOID} (void)")
    return mask.astype(np.uint8)


def open_image(path, least_side=0):
    """A picture of Pillow's, loaded and upright. least_side : as for read_image"""
    if not os.path.isfile(path):
        raise ImageError(f"{path}: no such file")
    if not os.path.getsize(path):
        raise ImageError(f"{path}: is empty (0 bytes)")
    try:
        with Image.open(path) as image:
            if least_side:
                image.draft(None, (least_side, least_side))
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            return image
    except UnidentifiedImageError:
        raise ImageError(f"{path}: is not an image that can be read") from None
    except PermissionError:
        raise ImageError(f"{path}: may not be read; give yourself the permission") from None
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise ImageError(f"{path}: is damaged: {error}") from None      # Pillow raises SyntaxError for a broken PNG


def to_blob(rgb):
    """H x W x 3 uint8 RGB -> 3 x H x W float32, BGR, mean subtracted: the nets' `data` blob."""
    mean = np.array(MEAN_BGR, np.float32)[:, None, None]
    return np.ascontiguousarray(rgb.transpose(2, 0, 1)[::-1]) - mean     # copying first is five times faster


def fit(height, width, long_side):
    """(height, width) with the long side reduced to `long_side`. Smaller images stay as they are; 0: all do."""
    scale = long_side / max(height, width) if long_side else 1
    return (height, width) if scale >= 1 else (max(1, round(height * scale)), max(1, round(width * scale)))


def shrink(rgb, long_side):
    """The image with its long side reduced to `long_side` pixels (antialiased bicubic)."""
    height, width = fit(rgb.shape[0], rgb.shape[1], long_side)
    if (height, width) == rgb.shape[:2]:
        return rgb
    return np.asarray(Image.fromarray(rgb).resize((width, height), Image.Resampling.BICUBIC))
