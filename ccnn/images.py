"""Photographs and masks: files in, arrays out."""
import os

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ccnn.errors import ImageError
from ccnn.labels import LABELS, VOID

MEAN_BGR = (104.00698793, 116.66876762, 122.67891434)   # of ImageNet, as published with VGG-16

SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")


def read_image(path):
    """H x W x 3 uint8 RGB, upright. Gray, CMYK, palette and 16-bit files are converted."""
    image = _open(path)
    if image.mode == "F":
        raise ImageError(f"{path}: holds floating-point pixels of unknown range; save it with 8 bits a channel")
    if image.mode.startswith("I"):      # 16 bits: Pillow would clip at 255 instead of scaling
        image = Image.fromarray((np.asarray(image).astype(np.int64).clip(0, 65535) >> 8).astype(np.uint8))
    return np.asarray(image.convert("RGB"))


def read_mask(path, labels=LABELS):
    """H x W uint8, one label id a pixel, 255 where void. Palette and gray PNGs hold the ids themselves."""
    image = _open(path)
    mask = np.asarray(image)
    if mask.ndim != 2 or mask.dtype.kind not in "bui":
        raise ImageError(f"{path}: is a picture of mode {image.mode}; a mask holds one label id a pixel "
                         "(8-bit palette or gray PNG), not colours")
    values = np.unique(mask) if mask.dtype != np.uint8 else np.flatnonzero(np.bincount(mask.ravel()))
    wrong = values[((values < 0) | (values >= labels)) & (values != VOID)]
    if wrong.size:
        raise ImageError(f"{path}: holds label {wrong[0]}; expected 0..{labels - 1} or {VOID} (void)")
    return mask.astype(np.uint8)


def _open(path):
    if not os.path.isfile(path):
        raise ImageError(f"{path}: no such file")
    if not os.path.getsize(path):
        raise ImageError(f"{path}: is empty (0 bytes)")
    try:
        with Image.open(path) as image:
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            return image
    except UnidentifiedImageError:
        raise ImageError(f"{path}: is not an image that can be read") from None
    except PermissionError:
        raise ImageError(f"{path}: may not be read; give yourself the permission") from None
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise ImageError(f"{path}: is damaged: {error}") from None      # SyntaxError: Pillow's for a broken PNG


def to_blob(rgb):
    """H x W x 3 uint8 RGB -> 3 x H x W float32, BGR, mean subtracted: what the nets' `data` blob takes."""
    mean = np.array(MEAN_BGR, np.float32)[:, None, None]
    return np.ascontiguousarray(rgb.transpose(2, 0, 1)[::-1]) - mean     # five times faster than subtracting first


def fit(height, width, long_side):
    """(height, width) with the long side reduced to `long_side`; smaller images, and 0, change nothing."""
    scale = long_side / max(height, width) if long_side else 1
    return (height, width) if scale >= 1 else (max(1, round(height * scale)), max(1, round(width * scale)))


def shrink(rgb, long_side):
    """The image with its long side reduced to `long_side` pixels (antialiased bicubic)."""
    height, width = fit(*rgb.shape[:2], long_side)
    if (height, width) == rgb.shape[:2]:
        return rgb
    return np.asarray(Image.fromarray(rgb).resize((width, height), Image.BICUBIC))
