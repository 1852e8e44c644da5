"""Photographs and masks: what files become."""
import numpy as np
import pytest
from PIL import Image
from tiny_voc import save_mask

from ccnn._util.errors import ImageError
from ccnn.images.labels import palette
from ccnn.images.reading import fit, read_image, read_mask, shrink


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
