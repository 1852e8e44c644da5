"""VOC's XML: which boxes it holds."""
import pytest
from tiny_voc import annotation

from ccnn.annotations import read_boxes
from ccnn.errors import ImageError

CLASSES = ("background", "cat", "dog")


def read(tmp_path, *boxes, size=(64, 48)):
    path = tmp_path / "a.xml"
    path.write_text(annotation("a", size, boxes))
    return read_boxes(path, CLASSES)


def test_boxes_are_half_open_and_clipped(tmp_path):
    shape, boxes = read(tmp_path, ("cat", 1, 2, 64, 48), ("dog", -30, 40, 80, 90), ("cat", 10, 11.5, 10, 12))
    assert shape == (48, 64)
    assert boxes == [(1, 1, 0, 48, 64), (2, 39, 0, 48, 64), (1, 10.5, 9, 12, 10)]
    assert read(tmp_path) == ((48, 64), [])


@pytest.mark.parametrize("box, message", [
    (("cta", 1, 1, 2, 2), r"object 'cta' is not a class; did you mean 'cat'\?"),
    (("unicorn", 1, 1, 2, 2), "object 'unicorn' is not a class; known: cat, dog"),
    (("background", 1, 1, 2, 2), "object 'background' is not a class"),
    (("cat", 65, 1, 70, 20), "the box of 'cat', x 65..70, y 1..20, is empty or outside the image of 64 x 48 pixels"),
    (("cat", 9, 1, 8, 20), "x 9..8, y 1..20, is empty"),
    (("cat", "nan", 1, 8, 20), "is empty or outside"),
    (("cat", "left", 1, 8, 20), "is not a VOC annotation: could not convert"),
])
def test_boxes_that_are_none(tmp_path, box, message):
    with pytest.raises(ImageError, match=f"a.xml: .*{message}"):
        read(tmp_path, box)


@pytest.mark.parametrize("text", ["", "<annotation>", "<annotation/>", "<a><size><height>x</height></size></a>",
                                  "<annotation><size><width>4</width><height>4</height></size><object/></annotation>"])
def test_files_that_are_no_annotation(tmp_path, text):
    (tmp_path / "b.xml").write_text(text)
    with pytest.raises(ImageError, match="b.xml: is not a VOC annotation"):
        read_boxes(tmp_path / "b.xml", CLASSES)
    with pytest.raises(ImageError, match="c.xml: cannot read the annotation: No such file"):
        read_boxes(tmp_path / "c.xml", CLASSES)
