"""VOC's XML: which boxes it holds."""
import pytest
from tiny_voc import annotation

from ccnn._util.errors import ImageError
from ccnn.annotations.voc_boxes import count_unlisted, read_boxes

CLASSES = ("background", "cat", "dog")


def read(tmp_path, *boxes, size=(64, 48), **more):
    path = tmp_path / "a.xml"
    path.write_text(annotation("a", size, boxes))
    return read_boxes(path, CLASSES, **more)


def test_boxes_are_half_open_and_clipped(tmp_path):
    shape, boxes = read(tmp_path, ("cat", 1, 2, 64, 48), ("dog", -30, 40, 80, 90), ("cat", 10, 11.5, 10, 12))
    assert shape == (48, 64)
    assert boxes == [(1, 1, 0, 48, 64), (2, 39, 0, 48, 64), (1, 10.5, 9, 12, 10)]
    assert read(tmp_path) == ((48, 64), [])


def test_classes_that_are_not_listed_can_be_left_out(tmp_path):
    boxes = ("unicorn", 1, 1, 9, 9), ("dog", 1, 1, 9, 9), ("unicorn", 5, 5, 5, 4), ("dgo", 1, 1, 9, 9)
    with pytest.raises(ImageError, match='"unlisted": "skip" in param_str passes over such objects'):
        read(tmp_path, *boxes)
    assert read(tmp_path, *boxes, unlisted="skip") == ((48, 64), [(2, 0, 0, 9, 9)])
    assert count_unlisted([tmp_path / "a.xml"] * 2, CLASSES) == {"unicorn": 4, "dgo": 2}


def test_class_names_may_be_decomposed(tmp_path):
    (tmp_path / "a.xml").write_text(annotation("a", (4, 4), [("Ba\u0308r", 1, 1, 2, 2)]))
    assert read_boxes(tmp_path / "a.xml", ("background", "Bär"))[1] == [(1, 0, 0, 2, 2)]


@pytest.mark.parametrize("box, message", [
    (("cta", 1, 1, 2, 2), r"object 'cta' is not a class; did you mean 'cat'\?"),
    (("unicorn", 1, 1, 2, 2), "object 'unicorn' is not a class; known: cat, dog"),
    (("background", 1, 1, 2, 2), "object 'background' is not a class"),
    (("cat", 65, 1, 70, 20), "the box of 'cat', x 65..70, y 1..20, is empty or outside the image of 64 x 48 pixels"),
    (("cat", 9, 1, 8, 20), "x 9..8, y 1..20, is empty"),
    (("cat", "nan", 1, 8, 20), "bndbox/xmin must be a number; got 'nan'"),
    (("cat", "left", 1, 8, 20), "object 1: bndbox/xmin must be a number; got 'left'"),
])
def test_boxes_that_are_none(tmp_path, box, message):
    with pytest.raises(ImageError, match=f"a.xml.*{message}"):
        read(tmp_path, box)


SIZE = "<size><width>4</width><height>4</height></size>"
BOMB = '<!DOCTYPE a [<!ENTITY b "b"><!ENTITY c "&b;&b;">]>'


@pytest.mark.parametrize("text, message", [
    ("", "is not XML"), ("<annotation>", "is not XML"), ("<a/>", "is XML of the kind <a>; expected VOC's <annotation>"),
    ("<annotation/>", "has no size/width and size/height, in pixels"),
    ("<annotation><size><height>x</height></size></annotation>", "has no size"),
    (f"<annotation>{SIZE}<object/></annotation>", ", object 1: has no <name>"),
    (f"{BOMB}<annotation>{SIZE}</annotation>", "has a DOCTYPE, with which a small file can ask for unbounded memory"),
])
def test_files_that_are_no_annotation(tmp_path, text, message):
    (tmp_path / "b.xml").write_text(text)
    with pytest.raises(ImageError, match=f"b.xml.*{message}"):
        read_boxes(tmp_path / "b.xml", CLASSES)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ImageError, match="c.xml: cannot read it: No such file"):
        read_boxes(tmp_path / "c.xml", CLASSES)
