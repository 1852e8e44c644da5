"""The image formats that CCNN reads, and the one place where an image file is opened.

Pillow knows about forty formats, and one of them (EPS) starts another program. A file is therefore opened as one of
FORMATS, whatever its name says. Its size is checked before a pixel is decoded, and whatever a decoder raises becomes
an ImageError: one line that names the file and what to do.
"""
import contextlib
import functools
import importlib.util
import os
import re
import warnings
from collections.abc import Iterator
from typing import IO, Union

from PIL import Image, UnidentifiedImageError

from ccnn._util.errors import ImageError

FORMATS = {"JPEG": (".jpg", ".jpeg", ".jfif", ".jpe"), "PNG": (".png",), "WEBP": (".webp",), "TIFF": (".tif", ".tiff"),
           "BMP": (".bmp",), "GIF": (".gif",)}          # the first frame of several

HEIC = {"HEIF": (".heic", ".heif")}                     # with pillow-heif installed

READ = "JPEG, PNG, WebP, TIFF, BMP or GIF"              # the formats, in sentences

INSTALL_HEIC = "install pillow-heif (pip install ccnn[heic]), or convert it to JPEG"

SUFFIXES = tuple(suffix for suffixes in {**FORMATS, **HEIC}.values() for suffix in suffixes)

SUFFIX = re.compile(f"({'|'.join(map(re.escape, SUFFIXES))})$", re.IGNORECASE)

PIXELS = 120_000_000        # of one image; the largest phones have 108 million. Decoding takes up to 8 bytes for each

TILE_WIDTH, TILE_LENGTH = 322, 323          # tags of TIFF

warnings.filterwarnings("ignore", module="PIL")     # of many pixels, of odd EXIF: what matters becomes an ImageError

Source = Union[str, "os.PathLike[str]", IO[bytes]]


@contextlib.contextmanager
def open_image(source: Source, name: object = None) -> Iterator[Image.Image]:
    """An image of Pillow's. Its head has been read and its size checked; load() decodes it.

    What is raised in the body is taken for the decoder's: it becomes an ImageError.
    name : what a message calls the file; by default its path
    """
    name = source if name is None else name
    if isinstance(source, (str, os.PathLike)):
        if not os.path.isfile(source):
            raise ImageError(f"{name}: no such file")
        if not os.path.getsize(source):
            raise ImageError(f"{name}: is empty (0 bytes)")
    try:
        with Image.open(source, formats=readable_formats()) as image:
            check_pixels(image, name)
            yield image
    except ImageError:
        raise
    except UnidentifiedImageError:
        raise ImageError(f"{name}: {why_unreadable(source)}") from None
    except Image.DecompressionBombError:
        raise ImageError(f"{name}: has too many pixels; reduce it to {PIXELS // 1_000_000} megapixels") from None
    except PermissionError:
        raise ImageError(f"{name}: may not be read; give yourself the permission") from None
    except MemoryError:
        raise ImageError(f"{name}: decoding it takes more memory than there is; reduce it") from None
    except Exception as error:      # of a damaged file: OSError, SyntaxError, struct.error, ZeroDivisionError and more
        raise ImageError(f"{name}: is damaged: {str(error) or type(error).__name__}; "
                         "save it again from another program, or remove it") from None


def check_pixels(image: Image.Image, name: object) -> None:
    """ImageError if an image, or one of a TIFF's tiles, which may be larger and is decoded as a whole, is too large."""
    tags = getattr(image, "tag_v2", {})
    sizes = {"": image.size, "a tile of ": (tags.get(TILE_WIDTH, 0), tags.get(TILE_LENGTH, 0))}
    for what, (width, height) in sizes.items():
        if width * height > PIXELS:
            raise ImageError(f"{name}: has {what}{width} x {height} pixels; "
                             f"reduce it to {PIXELS // 1_000_000} megapixels")


def why_unreadable(source: Source) -> str:
    """Why a file is not an image that CCNN reads."""
    head = b""
    if isinstance(source, (str, os.PathLike)):
        with contextlib.suppress(OSError), open(source, "rb") as file:
            head = file.read(16)
    if head[4:8] == b"ftyp" and head[8:11] in (b"hei", b"hev", b"mif", b"msf") and not heic_is_readable():
        return f"is a HEIC image; {INSTALL_HEIC}"
    return f"is not an image that can be read; need {READ}"


@functools.lru_cache(maxsize=1)
def heic_is_readable() -> bool:
    """Whether pillow-heif is installed, which is then made known to Pillow."""
    if importlib.util.find_spec("pillow_heif") is None:
        return False
    import pillow_heif
    pillow_heif.register_heif_opener()
    return True


def readable_formats() -> list[str]:
    return [*FORMATS, *(HEIC if heic_is_readable() else ())]


def suffix_of(path: Source) -> str:
    """The suffix that suits the content of a file, whatever its name is."""
    with open_image(path) as image:
        return {**FORMATS, **HEIC}.get(image.format or "", FORMATS["JPEG"])[0]      # else MPO: several JPEGs in one
