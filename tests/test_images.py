"""Photographs and masks: what files become."""
import ast
import contextlib
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from broken_photographs import EPS, broken_files, photograph, png
from PIL import Image, ImageOps
from tiny_voc import save_mask

from ccnn._util.errors import ImageError
from ccnn.images import regions
from ccnn.images.formats import FORMATS, SUFFIX, heic_is_readable, suffix_of
from ccnn.images.labels import palette
from ccnn.images.reading import fit, read_image, read_mask, read_painted, shrink, upright_shape

ROOT = Path(__file__).parents[1]


def test_unusual_images_are_converted(tmp_path):
    y, x = np.mgrid[:20, :30]
    rgb = np.dstack([8 * x, 12 * y, 100 + 0 * x]).astype(np.uint8)
    gray = rgb[:, :, 0]
    same_gray = np.repeat(gray[:, :, None], 3, axis=2)
    image = Image.fromarray(rgb)
    Image.fromarray(gray).save(tmp_path / "gray.jpg", quality=100)
    image.convert("CMYK").save(tmp_path / "cmyk.jpg", quality=100)
    Image.fromarray(gray.astype(np.uint16) * 256 + 77).save(tmp_path / "16-bit.png")
    Image.fromarray(np.dstack([rgb, gray])).save(tmp_path / "alpha.png")
    image.quantize(256).save(tmp_path / "palette.png")
    Image.fromarray(gray > 100).save(tmp_path / "bits.png")
    exif = Image.Exif()
    exif[0x0112] = 6            # to be shown turned by a quarter
    image.save(tmp_path / "turned.jpg", exif=exif, quality=100, subsampling=0)
    for name, expected, tolerance in (
            ("gray.jpg", same_gray, 3), ("cmyk.jpg", rgb, 12), ("16-bit.png", same_gray, 0), ("alpha.png", rgb, 0),
            ("palette.png", rgb, 30), ("bits.png", 255 * (same_gray > 100), 0), ("turned.jpg", np.rot90(rgb, -1), 12)):
        got = read_image(tmp_path / name)
        assert got.dtype == np.uint8 and got.shape == expected.shape, name
        assert np.abs(got.astype(int) - expected).max() <= tolerance, name
    with pytest.raises(ImageError, match="nowhere.jpg: no such file"):
        read_image(tmp_path / "nowhere.jpg")


def test_masks_keep_their_labels(tmp_path):
    mask = np.array([[0, 20, 255], [1, 2, 3]], np.uint8)
    save_mask(tmp_path / "palette.png", mask)
    Image.fromarray(mask).save(tmp_path / "gray.png")
    Image.fromarray(mask.astype(np.uint16)).save(tmp_path / "16-bit.png")
    for name in ("palette.png", "gray.png", "16-bit.png"):
        assert np.array_equal(read_mask(tmp_path / name), mask) and read_mask(tmp_path / name).dtype == np.uint8
    with pytest.raises(ImageError, match="holds label 20; expected 0..19"):
        read_mask(tmp_path / "gray.png", labels=20)
    assert [palette()[3 * k:3 * k + 3] for k in (1, 2, 15, 20, 255)] == [
        [128, 0, 0], [0, 128, 0], [192, 128, 128], [0, 64, 128], [224, 224, 192]]


def test_the_long_side_is_reduced_and_never_enlarged():
    assert fit(300, 500, 100) == (60, 100) and fit(500, 300, 100) == (100, 60)
    assert fit(60, 100, 321) == (60, 100) and fit(3000, 5000, 0) == (3000, 5000)
    assert fit(1, 5000, 100) == (1, 100)
    rgb = np.zeros((30, 50, 3), np.uint8)
    assert shrink(rgb, 10).shape == (6, 10, 3) and shrink(rgb, 50) is rgb


# What may be opened

def test_no_other_program_is_started(tmp_path, monkeypatch):
    """Pillow hands EPS to Ghostscript, whatever the file is called."""
    gs = tmp_path / "bin/gs"
    gs.parent.mkdir()
    gs.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    gs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gs.parent}:/usr/bin:/bin")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    (tmp_path / "cat.jpg").write_bytes(EPS)
    with pytest.raises(OSError):
        Image.open(tmp_path / "cat.jpg").load()
    assert (tmp_path / "started").exists()              # Pillow alone does start it
    (tmp_path / "started").unlink()
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    for read in (read_image, read_mask, upright_shape):
        with pytest.raises(ImageError, match="cat.jpg: is not an image that can be read; need JPEG, PNG, WebP"):
            read(tmp_path / "cat.jpg")
    assert not (tmp_path / "started").exists()


def test_image_files_are_opened_in_one_place():
    """Everything else would miss the list of formats and the limit of pixels."""
    def calls(path):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("open", "imread") and \
                    isinstance(node.value, ast.Name) and node.value.id in ("Image", "PIL", "plt", "cv2", "imageio"):
                yield f"{path.relative_to(ROOT)}"
    rooms = ("ccnn", "layers", "tools", "study", "bench", "demo", "examples")
    found = [call for room in rooms for path in sorted((ROOT / room).rglob("*.py")) for call in calls(path)]
    assert found == ["ccnn/images/formats.py"]


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF"])
def test_every_format_is_read_whatever_its_name(tmp_path, format):
    options = {"append_images": [Image.new("RGB", (50, 40))], "save_all": True} if format == "GIF" else {}
    rgb = np.full((40, 50, 3), 200, np.uint8)
    Image.fromarray(rgb).save(tmp_path / "a.jpg", format=format, **options)
    assert np.abs(read_image(tmp_path / "a.jpg").astype(int) - 200).max() < 3       # of a GIF the first frame
    assert upright_shape(tmp_path / "a.jpg") == (40, 50)
    assert SUFFIX.search(suffix_of(tmp_path / "a.jpg")) and format in FORMATS


def test_heic_is_read_or_named(tmp_path, monkeypatch):
    (tmp_path / "a.jpg").write_bytes(b"\0\0\0\x24ftypheic\0\0\0\0mif1" + bytes(40))
    heic_is_readable.cache_clear()
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImageError, match=r"a.jpg: is a HEIC image; install pillow-heif .pip install ccnn\[heic\]"):
        read_image(tmp_path / "a.jpg")
    heic_is_readable.cache_clear()
    monkeypatch.undo()
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.from_pillow(Image.new("RGB", (64, 48), (10, 200, 30))).save(tmp_path / "b.jpg")
    assert read_image(tmp_path / "b.jpg").shape == (48, 64, 3) and suffix_of(tmp_path / "b.jpg") == ".heic"


def test_bombs_are_refused_before_they_are_decoded(tmp_path):
    """One limit of pixels, whatever the reader; no warning of Pillow's, and hardly any memory."""
    for name, data in (("bits.png", png(30000, 5000)), ("16-bit.png", png(12000, 12000, 16)),
                       ("palette.png", png(65000, 65000, 8, 3)), ("huge.png", png(2 ** 31 - 1, 2 ** 31 - 1))):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "canvas.gif").write_bytes(b"GIF89a\1\0\1\0\0\0\0,\0\0\0\0\x30\x75\x30\x75\0\2\2\x4c\1\0;")
    program = """
import resource, sys
from ccnn.images.reading import read_image, read_mask, read_painted, upright_shape
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    for read in (read_image, read_mask, upright_shape, lambda path: read_painted(path, {(255, 0, 0): 1})):
        try:
            read(path)
            print("read", path)
        except ValueError as error:
            assert "pixels; reduce it to 120 megapixels" in str(error), error
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000     # kB
"""
    done = subprocess.run([sys.executable, "-c", program, *map(str, sorted(tmp_path.iterdir()))], capture_output=True,
                          text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def exif_with(*tags):
    """EXIF of little-endian (tag, kind, count, value)."""
    return b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + \
        b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(24)


TURNED = (0x0112, 3, 1, 6)


@pytest.mark.parametrize("odd", [
    (0x011A, 6, 1, 2 ** 32 - 1), (0xA005, 1, 1, 0), (0x011A, 1, 1, 0), (0x8769, 6, 1, 2 ** 32 - 1), (0x010F, 5, 1, 0)])
def test_odd_exif_costs_no_photograph(tmp_path, odd):
    """Pillow's exif_transpose fails with struct.error, TypeError, ValueError and AttributeError here."""
    path = photograph(tmp_path / "a.jpg", exif=exif_with(TURNED, odd))
    with pytest.raises((struct.error, TypeError, ValueError, AttributeError)):
        ImageOps.exif_transpose(Image.open(path))
    assert read_image(path).shape == (50, 40, 3) and upright_shape(path) == (50, 40)


def test_all_orientations(tmp_path):
    for value in range(10):
        path = photograph(tmp_path / "a.png", exif=exif_with((0x0112, 3, 1, value)))
        assert np.array_equal(read_image(path), np.asarray(ImageOps.exif_transpose(Image.open(path)))), value
        assert upright_shape(path) == read_image(path).shape[:2]
    path = photograph(tmp_path / "b.jpg", exif=b"Exif\0\0II*\0\x08\0")
    assert read_image(path).shape == (40, 50, 3)


def test_whatever_a_decoder_raises_is_one_line(tmp_path, monkeypatch):
    for path in broken_files(tmp_path):
        for read in (read_image, read_mask, lambda path: read_painted(path, {(255, 0, 0): 1})):
            with pytest.raises(ImageError) as error:
                read(path)
            assert str(error.value).startswith(str(path)) and ("; " in str(error.value) or path.stem == "empty")
        with contextlib.suppress(ImageError):       # a truncated file has a whole head
            upright_shape(path)
    path = photograph(tmp_path / "a.jpg")
    for raised in (struct.error("unpack"), NotImplementedError("pixel format 7"), ZeroDivisionError(), TypeError("x"),
                   Image.DecompressionBombError("x"), MemoryError(), OverflowError(), RecursionError(), KeyError(3)):
        def load(self, raised=raised):
            raise raised
        monkeypatch.setattr("PIL.JpegImagePlugin.JpegImageFile.load", load)
        with pytest.raises(ImageError, match="a.jpg: (is damaged|has too many pixels|decoding it takes).*; "):
            read_image(path)


def test_large_images_are_converted_in_strips(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 255, (40, 50, 3), np.uint8)
    Image.fromarray(rgb).save(tmp_path / "rgb.png")
    Image.fromarray(rgb[..., 0].astype(np.uint16) << 8).save(tmp_path / "16-bit.png")
    Image.fromarray(np.dstack([rgb // 128 * 255, rgb[..., 0] // 64 * 85])).save(tmp_path / "painted.png")
    colours = {(255, 0, 0): 1, (255, 255, 0): 2}
    whole = [read_image(tmp_path / "rgb.png"), read_image(tmp_path / "16-bit.png"),
             read_painted(tmp_path / "painted.png", colours)]
    assert np.array_equal(whole[0], rgb) and set(np.unique(whole[2])) == {1, 2, 255}
    monkeypatch.setattr("ccnn.images.reading.STRIP", 333)
    assert np.array_equal(read_image(tmp_path / "rgb.png"), whole[0])
    assert np.array_equal(read_image(tmp_path / "16-bit.png"), whole[1])
    assert np.array_equal(read_painted(tmp_path / "painted.png", colours), whole[2])


def test_pieces_follow_the_edges_of_a_photograph():
    rgb = np.full((90, 120, 3), 200, np.uint8)
    rgb[30:60, 40:90] = (20, 90, 40)
    pieces = regions.find_pieces(rgb)
    inside = regions.at(pieces, 0.5, 0.5, (180, 240), smooth=True)          # of a photograph twice as large
    truth = np.zeros((180, 240), bool)
    truth[60:120, 80:180] = True
    assert inside[90, 120] and (inside & ~truth).sum() < 0.1 * inside.sum()


def test_a_region_hangs_together_and_comes_back_from_its_runs():
    labels = np.zeros((6, 8), np.uint8)
    labels[1:3, 1:3] = labels[4:, 5:] = 1
    region = regions.at(labels, 1.5 / 8, 1.5 / 6, labels.shape)
    assert region.sum() == 4 and region[1:3, 1:3].all()
    runs = regions.to_runs(region)
    assert runs == [9, 2, 17, 2]
    mask = np.full((6, 8), 255, np.uint8)
    regions.fill_runs(mask, runs, 1)
    assert np.array_equal(mask == 1, region) and (mask[~region] == 255).all()
    hairs = np.zeros((9, 9), np.uint8)
    hairs[2:7, 2:7], hairs[4, 4], hairs[0:2, 3] = 1, 0, 1               # a hole, and a spike of a pixel
    smooth = regions.at(hairs, 3.5 / 9, 3.5 / 9, hairs.shape, smooth=True)
    assert smooth[2:7, 2:7].all() and smooth.sum() == 25


def tiled(path, tile):
    """A TIFF of 16 x 16 pixels in one tile of tile x tile, of which there is not one byte: libtiff makes room first."""
    tags = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: tile, 323: tile, 324: 8, 325: 8}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    path.write_bytes(b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4))
    return path


def test_a_tile_counts_like_an_image(tmp_path):
    """A tile is decoded as a whole, however small the image: 2 GB for this one."""
    assert upright_shape(tiled(tmp_path / "a.tif", 10_000)) == (16, 16)
    with pytest.raises(ImageError, match="b.tif: has a tile of 40000 x 40000 pixels; reduce it to 120 megapixels"):
        read_image(tiled(tmp_path / "b.tif", 40_000))


def test_scans_of_a_jpeg_are_bounded(tmp_path):
    """Each scan of a progressive JPEG goes over all pixels: 500 of them, in some kilobytes, take minutes."""
    Image.new("L", (8, 8)).save(tmp_path / "a.jpg", progressive=True)
    data = (tmp_path / "a.jpg").read_bytes()
    size, scan = data.index(b"\xff\xc2") + 5, data.index(b"\xff\xda")
    head = data[:size] + struct.pack(">HH", 10_000, 11_000) + data[size + 4:scan]
    (tmp_path / "b.jpg").write_bytes(head + 500 * data[scan:scan + 12] + b"\xff\xd9")
    with pytest.raises(ImageError, match="b.jpg: is damaged: has 500 scans of 11000 x 10000 pixels"):
        read_image(tmp_path / "b.jpg")
    assert read_image(tmp_path / "a.jpg").shape == (8, 8, 3)
