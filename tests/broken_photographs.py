"""Photographs that a decoder fails at, in different ways."""
import struct
import zlib

import numpy as np
from PIL import Image

EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 20 10
%%EndComments
0 0 20 10 rectfill
showpage
%%EOF
"""


def png(width, height, depth=1, colour=0):
    """A small PNG that says that it is large; its pixels are missing."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")


def photograph(path, **options):
    Image.fromarray(np.arange(6000, dtype=np.uint16).reshape(40, 50, 3).astype(np.uint8)).save(path, **options)
    return path


def broken_files(folder):
    """The paths of photographs that cannot be read, one for each way to fail."""
    photograph(folder / "whole.jpg", quality=90)
    data = (folder / "whole.jpg").read_bytes()
    (folder / "whole.jpg").unlink()
    files = {
        "truncated.jpg": data[:len(data) // 2], "head.jpg": data[:30], "empty.jpg": b"", "text.jpg": b"hello",
        "texture.jpg": b"DDS " + struct.pack("<7I", 124, 0x1007, 8, 8, 0, 0, 0) + bytes(44)
                       + struct.pack("<2I4s5I", 32, 4, b"XXXX", 0, 0, 0, 0, 0) + bytes(20 + 64),
        "vector.jpg": EPS, "large.png": png(20000, 20000), "missing rows.png": png(50, 50)}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in files]
