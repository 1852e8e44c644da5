"""Photographs and masks: files in, arrays out."""
import numpy as np
from PIL import Image
from PIL.Image import Transpose

from ccnn._util.errors import ImageError
from ccnn.images.formats import PIXELS, open_image
from ccnn.images.labels import LABELS, VOID

MEAN_BGR = (104.00698793, 116.66876762, 122.67891434)   # the mean of ImageNet, published with VGG-16

ORIENTATION = 0x0112        # EXIF's tag

TURN = {2: Transpose.FLIP_LEFT_RIGHT, 3: Transpose.ROTATE_180, 4: Transpose.FLIP_TOP_BOTTOM, 5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270, 7: Transpose.TRANSVERSE, 8: Transpose.ROTATE_90}      # its values; 5 to 8 by a quarter

SCANS = 30                  # of the largest JPEG; a progressive one has about 10. Smaller ones may have more

STRIP = 1 << 22             # pixels that are converted at a time


def read_image(path, least_side=0):
    """H x W x 3 uint8 RGB, upright. Gray, CMYK, palette and 16-bit files are converted.

    least_side : a JPEG may be reduced while it is read, which is faster, to sides of at least this; 0: as it is
    """
    with open_image(path) as image:
        if image.mode == "F":
            raise ImageError(f"{path}: holds floating-point pixels of unknown range; save it with 8 bits per channel")
        return by_strips(to_rgb, load_upright(image, least_side))


def read_mask(path, labels=LABELS):
    """H x W uint8, the label id of every pixel, 255 where it is void. Palette and gray PNGs hold the ids themselves."""
    with open_image(path) as image:
        image = load_upright(image)
        mask = np.asarray(image)
        if mask.ndim != 2 or mask.dtype.kind not in "bui":
            raise ImageError(f"{path}: is a picture of mode {image.mode}; a mask holds one label id per pixel "
                             "(8-bit palette or gray PNG), not colours")
        values = np.flatnonzero(image.histogram()) if mask.dtype == np.uint8 else np.unique(mask)
        wrong = values[((values < 0) | (values >= labels)) & (values != VOID)]
        if wrong.size:
            raise ImageError(f"{path}: holds label {wrong[0]}; expected 0..{labels - 1} or {VOID} (void)")
        return mask.astype(np.uint8)


def read_painted(path, colours):
    """H x W uint8: the labels that were painted on a picture, 255 elsewhere. colours : {(r, g, b): label}

    Only opaque pixels of exactly that colour count.
    """
    def labels(part):
        rgba = np.asarray(part.convert("RGBA"))
        mask = np.full(rgba.shape[:2], VOID, np.uint8)
        for colour, label in colours.items():
            mask[(rgba == (*colour, 255)).all(axis=2)] = label
        return mask

    with open_image(path) as image:
        return by_strips(labels, load_upright(image))


def read_text(path, key):
    """A text that a PNG carries; None if it has none of that key. ImageError if it is not an image."""
    with open_image(path) as image:
        return image.info.get(key)


def upright_shape(path) -> tuple[int, int]:
    """(height, width) of an image as read_image has it, from the head of its file."""
    with open_image(path) as image:
        return (image.width, image.height) if orientation(image) >= 5 else (image.height, image.width)


def load_upright(image, least_side=0):
    """An opened image, decoded and turned as its EXIF says. least_side : as for read_image"""
    check_scans(image)
    if least_side:
        image.draft(None, (least_side, least_side))
    image.load()
    turn = TURN.get(orientation(image))
    return image if turn is None else image.transpose(turn)     # Pillow's exif_transpose fails where other tags are odd


def check_scans(image):
    """ValueError if a JPEG has so many scans that decoding would not end: each goes over all pixels, in a few bytes."""
    if image.format in ("JPEG", "MPO"):
        image.fp.seek(0)
        scans = image.fp.read().count(b"\xff\xda")
        if scans * image.width * image.height > SCANS * PIXELS:
            raise ValueError(f"has {scans} scans of {image.width} x {image.height} pixels")


def orientation(image) -> int:
    """1 to 8, as EXIF has it; 1 where EXIF cannot be read."""
    try:
        found = image.getexif().get(ORIENTATION)
    except Exception:               # Pillow raises almost anything at damaged EXIF; the pixels may be whole
        return 1
    return found if found in TURN else 1


def by_strips(convert, image):
    """convert(image), an array of uint8, one strip after the other: the whole at once takes two copies more."""
    step = max(1, STRIP // image.width)
    if step >= image.height:
        return convert(image)
    strips = (convert(image.crop((0, top, image.width, min(top + step, image.height))))
              for top in range(0, image.height, step))
    first = next(strips)
    pixels = np.empty((image.height, *first.shape[1:]), np.uint8)
    pixels[:step] = first
    for number, strip in enumerate(strips, 1):
        pixels[number * step:number * step + len(strip)] = strip
    return pixels


def to_rgb(image):
    if image.mode.startswith("I"):      # 16 bits: Pillow's own conversion clips at 255, it does not scale
        gray = (np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8)
        return np.repeat(gray[:, :, None], 3, axis=2)
    return np.asarray(image.convert("RGB"))


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
