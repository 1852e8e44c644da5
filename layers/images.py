"""What every part of the project agrees on about images: classes, colours, mean, files, score grid.

Nothing here needs Caffe. Wrong input raises InputError, whose text is one line.
"""
import functools
import os
import sys
import traceback

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

BACKGROUND = 0
VOID = 255      # label of a pixel that nobody labelled
VOC_CLASSES = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
LABELS = len(VOC_CLASSES)
MEAN_BGR = (104.00698793, 116.66876762, 122.67891434)   # of ImageNet, as published with VGG-16
FEATURES = 1024         # channels of prototxt/trunk.prototxt's `features`
SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")


class InputError(ValueError):
    """Something the user gave is wrong; the text is one line that names it and the remedy."""

    def __init__(self, text):
        super().__init__(" ".join(str(text).split()))


class ImageError(InputError):
    """An image, a mask or an annotation cannot be used; the text names the file."""


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
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise ImageError(f"{path}: is damaged: {error}") from None      # SyntaxError: Pillow's for a broken PNG


def to_blob(rgb):
    """H x W x 3 uint8 RGB -> 3 x H x W float32, BGR, mean subtracted: what the nets' `data` blob takes."""
    mean = np.array(MEAN_BGR, np.float32)[:, None, None]
    return np.ascontiguousarray(rgb.transpose(2, 0, 1)[::-1]) - mean     # five times faster than subtracting first


def score_size(size, stride=8):
    """Cells along a side of `size` pixels: ceil((size - 1) / stride) + 1, so 321 -> 41.

    Caffe rounds pooling up: 3x3, stride 2, pad 1 maps n to ceil((n - 1) / 2) + 1, and three of them to the
    formula above. Cell k sits at pixel k * stride; the last may sit up to stride - 1 pixels outside.
    """
    return (size + stride - 2) // stride + 1


def feature_size(size, stride=8):
    """The same in prototxt/trunk.prototxt, where VGG's own 2x2 pooling puts cell k on the edge before pixel
    k * stride: 224 -> 29. Of these edges `size` pixels have size + 1."""
    return score_size(size + 1, stride)


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


def palette():
    """VOC's colours, 768 ints: r, g, b of label 0, 1, ... Bits 0, 1, 2 of the label are the top bits of r, g, b,
    bits 3, 4, 5 the next, and so on."""
    return [sum((label >> (3 * k + channel) & 1) << (7 - k) for k in range(3))
            for label in range(256) for channel in range(3)]


def indexed(labels):
    """H x W label ids as a picture of palette mode, in VOC's colours."""
    picture = Image.fromarray(np.asarray(labels, np.uint8))
    picture.putpalette(palette())
    return picture


def read_classes(path):
    """Names of the labels from a file with one name a line; `background` is label 0, added if not there."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            names = [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read the class list: {getattr(error, 'strerror', None) or error}") from None
    names = [name for name in names if name != VOC_CLASSES[BACKGROUND]]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InputError(f"{path}: class {min(twice)!r} is listed twice")
    if not 1 <= len(names) < VOID:
        raise InputError(f"{path}: lists {len(names)} classes besides the background; expected 1 to {VOID - 1}")
    return (VOC_CLASSES[BACKGROUND], *names)


class Reporting:
    """Base, before caffe.Layer, of a layer whose errors show under `caffe train`: an InputError as its one line.

    Debian's `caffe` lets a Python exception through to std::terminate: an abort with a page of C++ addresses, and
    not a word of the exception. So the outermost Python frame, which has no caller, ends the process itself: with
    status 2 after an InputError, 1 after anything else. Where Python called Caffe, exceptions pass as usual.
    """

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        for name in {"setup", "reshape", "forward", "backward"}.intersection(vars(cls)):
            setattr(cls, name, _reporting(vars(cls)[name]))


def _reporting(method):
    @functools.wraps(method)
    def report(*arguments):
        try:
            return method(*arguments)
        except BaseException as error:
            if sys._getframe().f_back is not None:
                raise
            if isinstance(error, InputError):
                print(error, file=sys.stderr, flush=True)
                os._exit(2)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    return report
