"""Tags as people have them: the files are written here as the real programs write them."""
import csv
import itertools
import json
import os
import re
import unicodedata
from functools import partial

import pytest
from commands import run_command
from PIL import Image

from ccnn._util.errors import Mistakes, UserError
from ccnn._util.foreign_files import parse_json, parse_xml
from ccnn.annotations.import_formats import read_source, voc_objects
from ccnn.annotations.table_reader import Labels, read_table
from ccnn.annotations.yolo import read_line
from ccnn.cli import import_tags
from ccnn.images.labels import read_classes
from ccnn.images.listing import PhotographIndex, list_photographs

CLASSES = ("background", "cat", "dog", "polar bear", "große Katze")


def tags_of(images):
    return {name: labels.tags for name, labels in images.items()}


# Tables

SAME = {"a.jpg": (("cat", "dog"), ("cat",)), "b.jpg": (("große Katze",), ()), "c.jpg": ((), ())}

TABLES = {      # one table, as Excel, LibreOffice and people write it
    "as README says": ("image,tags,large\na.jpg,cat;dog,cat\nb.jpg,große Katze,\nc.jpg,,\n", "utf-8"),
    "without a header": ("a.jpg,cat;dog,cat\nb.jpg,große Katze,\nc.jpg,,\n", "utf-8"),
    "Excel, CSV UTF-8": ("image,tags,large\r\na.jpg,cat;dog,cat\r\nb.jpg,große Katze,\r\nc.jpg,,\r\n", "utf-8-sig"),
    "Excel, German CSV": ('image;tags;large\r\na.jpg;"cat;dog";cat\r\nb.jpg;große Katze;\r\nc.jpg;;\r\n', "cp1252"),
    "no header, ; and ,": ("a.jpg;cat,dog;cat\r\nb.jpg;große Katze;\r\nc.jpg;;\r\n", "cp1252"),
    "Excel, Unicode text": (
        "image\ttags\tlarge\r\na.jpg\tcat;dog\tcat\r\nb.jpg\tgroße Katze\t\r\nc.jpg\r\n", "utf-16"),
    "big-endian": (
        "\ufeffimage\ttags\tlarge\r\na.jpg\tcat|dog\tcat\r\nb.jpg\tgroße Katze\t\r\nc.jpg\t\t\r\n", "utf-16-be"),
    "sep=": ('sep=;\r\na.jpg;"cat;dog";cat\r\nb.jpg;große Katze;\r\nc.jpg;;\r\n\r\n;;\r\n', "utf-8-sig"),
    "any order, any case": (
        "Large;Comment;File Name;Labels\ncat;nice;a.jpg;cat dog\n;;b.jpg;große Katze\n;;c.jpg\n", "utf-8"),
    "old Macintosh": ("image,tags,large\ra.jpg,cat dog,cat\rb.jpg,große Katze,\rc.jpg,,\r", "utf-8"),
    "a column per class": (
        "image,cat,dog,große Katze,large\na.jpg,1,x,0,cat\nb.jpg,,,2,\nc.jpg,0,no,FALSCH,\n", "utf-8"),
    "a row per tag": ("image,tag,large\na.jpg,cat,1\na.jpg,dog,0\nb.jpg,große Katze,\nc.jpg,,\na.jpg,dog,\n", "utf-8"),
    "decomposed accents": (
        unicodedata.normalize("NFD", "image,tags,large\na.jpg,cat;dog,cat\nb.jpg,große Katze,\nc.jpg,,\n"), "utf-8"),
}


@pytest.mark.parametrize("classes", [CLASSES, None])
@pytest.mark.parametrize("name", TABLES)
def test_one_table_in_many_forms(tmp_path, name, classes):
    text, encoding = TABLES[name]
    path = tmp_path / "Tags.csv"
    path.write_bytes(text.encode(encoding))
    expected = SAME
    if classes is None and name in ("any order, any case", "old Macintosh"):
        expected = {**SAME, "b.jpg": (("große", "Katze"), ())}      # as cat dog there: only the classes could tell
    images, skipped = read_table(path, classes)
    assert {name: labels[:2] for name, labels in images.items()} == expected
    unused = ["column 'Comment' is neither image, tags, large nor a class"]
    assert list(skipped) == (unused if "Comment" in text else [])


def test_names_with_separators_in_them(tmp_path):
    path = tmp_path / "t.csv"
    for text in ('"Smith, J.jpg",cat\nb b.jpg,dog\n', '"Smith, J.jpg", "cat"\nb b.jpg, dog\n',
                 "Smith, J.jpg;cat\nb b.jpg;dog\n",
                 "Smith, J.jpg\tcat\nb b.jpg\tdog\n"):
        path.write_text(text)
        assert tags_of(read_table(path, CLASSES)[0]) == {"Smith, J.jpg": ("cat",), "b b.jpg": ("dog",)}


def test_the_size_is_not_known_without_its_column(tmp_path):
    (tmp_path / "t.csv").write_text("a.jpg,cat\n")
    assert read_table(tmp_path / "t.csv")[0]["a.jpg"].large is None


def test_all_mistakes_of_a_table_are_reported_at_once(tmp_path):
    path = tmp_path / "tags.csv"
    path.write_text("image,tags,large\na.jpg,cat,\nb.jpg,dgo,\na.jpg,dog,\nd.jpg,cat,dog\n,cat,\nf.jpg,cat,,x\n"
                    "g.jpg,polar bear;Cat,\n")
    with pytest.raises(Mistakes) as error:
        read_table(path, CLASSES)
    expected = ["line 3: tag 'dgo' is not a class; did you mean 'dog'?",
                "line 4: image 'a.jpg' has a row already, line 2; remove one",
                "line 5: 'dog' is large but not among the tags",
                "line 6: expected an image's name and 3 fields as in the header; got ['', 'cat', '']",
                "line 7: expected an image's name and 3 fields",
                "line 8: tag 'Cat' is not a class; did you mean 'cat'?"]
    assert len(error.value.lines) == len(expected)
    for line, text in zip(error.value.lines, expected):
        assert line.startswith(f"{path}, {text}")
        assert text in str(error.value)
    assert str(error.value).startswith(f"{path}: 6 mistakes (1) line 3: ") and "\n" not in str(error.value)


def test_many_mistakes_are_counted(tmp_path):
    (tmp_path / "t.csv").write_text("".join(f"{k}.jpg,dgo\n" for k in range(100)))
    with pytest.raises(Mistakes, match="100 mistakes .* and 80 more$"):
        read_table(tmp_path / "t.csv", CLASSES)


@pytest.mark.parametrize("content, message", [
    (b"", "lists no image"),
    (b"a.jpg\n", "line 1: expected image,tags or image,tags,large with ; between tags; got \\['a.jpg'\\]"),
    (b"Bild,Wort\na.jpg,cat\n",
     "line 1: 'Bild' is not a photograph; if the line names the columns, call them image,tags"),
    (b'a.jpg,"cat\nb.jpg,dog\n', "line 1: the field 'cat' goes on in the next line; close its quotation mark"),
    (b"image,cat,dgo\na.jpg,1,0\n", "line 1: column 'dgo' is not a class; did you mean 'dog'?"),
    (b"image,cat,dog\na.jpg,1,perhaps\n", "line 2: column 'dog' holds 'perhaps'; expected 1"),
    ("a.jpg,cat\n".encode("utf-16-le"), "not text in UTF-8, UTF-16 or cp1252; save it as UTF-8"),
    (b"PK\x03\x04workbook", "is an archive or an Excel workbook; unpack it, or save the sheet as CSV UTF-8"),
    (b"a.jpg," + b"x" * 200000, "line 1: cannot read the table: field larger than field limit"),
    (b"image," + b"c," * 20_000 + b"\na.jpg\n" * 10_000, "line 1: has 20002 columns; expected at most 10000"),
    (b"a.jpg;cat\n" + b" " * 100_000 + b"x\n", "line 2: expected image,tags"),       # not in cubic time
])
def test_wrong_tables_end_in_one_line(tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_table(tmp_path / "t.csv", CLASSES)


# Other programs

def photographs(folder, *names):
    for k, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 10), (k, 50, 60)).save(path)


def test_a_folder_per_class(tmp_path):
    photographs(tmp_path, "cat/1.jpg", "dog/1.jpg", "dog/2.JPG", "background/3.png", "loose.jpg", "cat/deep/4.jpg")
    (tmp_path / "dog/copy.jpg").write_bytes((tmp_path / "cat/1.jpg").read_bytes())
    (tmp_path / "dog/._2.JPG").write_bytes(b"macOS writes these")
    kind, images, skipped = read_source(tmp_path)
    assert kind == "a folder per class"
    assert tags_of(images) == {"background/3.png": (), "cat/1.jpg": ("cat", "dog"), "dog/1.jpg": ("dog",),
                               "dog/2.JPG": ("dog",)}
    assert skipped == {"photographs that lie in no folder of a class": 1,
                       "photographs that lie deeper than path/CLASS/": 1,
                       "'1.jpg' is the name of 2 different photographs: each has its own tag": 1}


VOC = """<annotation>
\t<folder>photos</folder>
\t<filename>a.jpg</filename>
\t<path>/pictures/of/me/photos/a.jpg</path>
\t<source>
\t\t<database>Unknown</database>
\t</source>
\t<size>
\t\t<width>200</width>
\t\t<height>100</height>
\t\t<depth>3</depth>
\t</size>
\t<segmented>0</segmented>
\t<object>
\t\t<name>cat</name>
\t\t<pose>Unspecified</pose>
\t\t<truncated>0</truncated>
\t\t<difficult>1</difficult>
\t\t<bndbox>
\t\t\t<xmin>1</xmin>
\t\t\t<ymin>51</ymin>
\t\t\t<xmax>100</xmax>
\t\t\t<ymax>100</ymax>
\t\t</bndbox>
\t</object>
\t<object>
\t\t<name>tree</name>
\t\t<bndbox><xmin>150.5</xmin><ymin>1</ymin><xmax>220</xmax><ymax>50</ymax></bndbox>
\t\t<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>
\t</object>
</annotation>
"""


def test_voc_xml(tmp_path):
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "Annotations/a.xml").write_text(VOC)
    (tmp_path / "Annotations/b.xml").write_text("<annotation><filename>b.jpg</filename></annotation>")
    for source in (tmp_path, tmp_path / "Annotations"):
        kind, images, skipped = read_source(source)
        assert kind == "VOC XML" and not skipped
        boxes = [("cat", 0.5, 0, 1, 0.5), ("tree", 0, 149.5 / 200, 0.5, 1)]
        assert images["a"] == (("cat", "tree"), None, boxes, "a.xml")
        assert images["b"] == ((), (), None, "b.xml")
    assert voc_objects(tmp_path / "Annotations/a.xml")[0] == (100, 200)

    _, images, skipped = read_source(tmp_path, CLASSES)
    assert images["a"].tags == ("cat",)
    assert skipped == {"objects of class 'tree', which is not listed; --classes lists it": 1}


COCO = {
    "info": {"year": 2014, "version": "1.0"},
    "licenses": [{"id": 1, "name": "CC-BY", "url": ""}],
    "images": [
        {"id": 9, "license": 1, "file_name": "a.jpg", "height": 100, "width": 200,
         "date_captured": "2013-11-14 17:02:52"},
        {"id": 12, "file_name": "sub/b.jpg", "height": 100, "width": 100},
        {"id": 13, "file_name": "c.jpg"},
    ],
    "annotations": [
        {"id": 1, "image_id": 9, "category_id": 17, "bbox": [10, 20, 100, 40], "area": 1900.5, "iscrowd": 0,
         "segmentation": [[10, 20, 110, 20, 110, 60]]},
        {"id": 2, "image_id": 9, "category_id": 17, "bbox": [0, 0, 20, 10], "area": 150, "iscrowd": 1,
         "segmentation": {"counts": [4, 150], "size": [100, 200]}},
        {"id": 3, "image_id": 9, "category_id": 18, "bbox": [0, 0, 20, 10], "area": 200, "iscrowd": 0},
        {"id": 4, "image_id": 99, "category_id": 18, "bbox": [0, 0, 1, 1], "area": 1},
        {"id": 5, "image_id": 13, "category_id": 18, "bbox": [0, 0, 1, 1], "area": 1},
    ],
    "categories": [{"id": 17, "name": "cat", "supercategory": "animal"}, {"id": 18, "name": "dog"}],
}


def test_coco_json(tmp_path):
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(COCO))
    kind, images, skipped = read_source(path)
    assert kind == "COCO JSON"
    assert images["a.jpg"][:3] == (("cat", "dog"), ("cat",),            # 1900.5 + 150 of 20000 are more than a tenth
                                   [("cat", 0.2, 0.05, 0.6, 0.55), ("cat", 0, 0, 0.1, 0.1), ("dog", 0, 0, 0.1, 0.1)])
    assert images["sub/b.jpg"][:3] == ((), (), None)
    assert images["c.jpg"][:3] == (("dog",), None, None)                # its size is not known
    assert skipped == {"annotations of an image that is not listed": 1}


def studio_task(number, image, results, **more):
    """A task as Label Studio 1.x exports it."""
    return {"id": number, "annotations": [{"id": number, "completed_by": 1, "result": results, "was_cancelled": False,
                                           "ground_truth": False, "created_at": "2024-01-01T00:00:00.000000Z",
                                           "lead_time": 3.2, "prediction": {}, "result_count": len(results),
                                           "task": number}],
            "file_upload": os.path.basename(image), "drafts": [], "predictions": [
                {"result": [{"type": "choices", "value": {"choices": ["never read"]}}]}],
            "data": {"image": image}, "meta": {}, "created_at": "2024-01-01T00:00:00.000000Z", "project": 1, **more}


RECTANGLE = {"original_width": 600, "original_height": 400, "image_rotation": 0,
             "value": {"x": 10, "y": 20.0, "width": 50, "height": 40, "rotation": 0, "rectanglelabels": ["dog"]},
             "id": "Dx_aB91ISN", "from_name": "label", "to_name": "image", "type": "rectanglelabels",
             "origin": "manual"}
CHOICE = {"value": {"choices": ["cat", "große Katze"]}, "id": "kj3", "from_name": "choice", "to_name": "image",
          "type": "choices", "origin": "manual"}


def test_label_studio_json(tmp_path):
    turned = {**RECTANGLE, "value": {**RECTANGLE["value"], "rotation": 30}}
    text = {"type": "textarea", "from_name": "note", "to_name": "image", "value": {"text": ["hello"]}}
    cancelled = studio_task(5, "e.jpg", [CHOICE])
    cancelled["annotations"][0]["was_cancelled"] = True
    path = tmp_path / "project-1-at-2024-01-01-00-00-5c5b3a5d.json"
    path.write_text(json.dumps([
        studio_task(1, "/data/upload/1/1a2b3c4d-a.jpg", [CHOICE, RECTANGLE]),
        studio_task(2, "/data/local-files/?d=photos/b%20b.jpg", []),
        studio_task(3, "https://example.com/sub/c%C3%A4.jpg?x=1", [turned, text]),
        studio_task(4, "s3://bucket/d.jpg", [], annotations=[]), cancelled]))
    kind, images, skipped = read_source(path)
    assert kind == "Label Studio JSON"
    assert images == {"1a2b3c4d-a.jpg": (("cat", "große Katze", "dog"), None, [("dog", 0.2, 0.1, 0.6, 0.6)], "task 1"),
                      "photos/b b.jpg": ((), (), None, "task 2"), "cä.jpg": (("dog",), None, None, "task 3")}
    assert skipped == {"tasks that nobody labelled": 2, "annotations that were cancelled": 1,
                       "results of type 'textarea', which name no class": 1,
                       "boxes that are turned: their tags were taken": 1}


def test_label_studio_json_min(tmp_path):
    region = {**RECTANGLE["value"], "original_width": 600, "original_height": 400}
    own = {"annotator": 1, "annotation_id": 1, "created_at": "2024-01-01T00:00:00Z", "updated_at": "x",
           "lead_time": 3.2}
    path = tmp_path / "min.json"
    tasks = [{"image": "/data/upload/1/1a2b3c4d-a.jpg", "id": 1, "choice": "cat", "label": [region], **own},
             {"image": "/data/upload/1/5e6f7a8b-b.jpg", "id": 2, "choice": {"choices": ["cat", "dog"]}, **own},
             {"image": "/data/upload/1/5e6f7a8b-c.jpg", "id": 3, **own}]
    path.write_text(json.dumps(tasks))
    kind, images, _ = read_source(path)
    assert kind == "Label Studio JSON-MIN"
    assert [labels[:3] for labels in images.values()] == [
        (("cat", "dog"), None, [("dog", 0.2, 0.1, 0.6, 0.6)]), (("cat", "dog"), None, None), ((), (), None)]
    tasks[1]["comment"] = "which of the two texts is the class?"
    path.write_text(json.dumps(tasks))
    with pytest.raises(UserError, match="choice and comment all hold text, .*; export as JSON instead of JSON-MIN"):
        read_source(path)


CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta>
    <task>
      <id>4</id>
      <name>animals</name>
      <mode>annotation</mode>
      <labels>
        <label><name>cat</name><color>#ff00ff</color><type>any</type><attributes></attributes></label>
      </labels>
    </task>
    <dumped>2024-01-01 00:00:00.000000+00:00</dumped>
  </meta>
  <image id="0" name="sub/a.jpg" width="200" height="100">
    <box label="cat" source="manual" occluded="0" xtl="20.00" ytl="10.00" xbr="120.00" ybr="60.00" z_order="0">
      <attribute name="age">old</attribute>
    </box>
    <box label="cat" source="manual" occluded="0" xtl="1" ytl="1" xbr="9" ybr="9" rotation="30.5" z_order="0">
    </box>
    <polygon label="dog" source="manual" occluded="0" points="1.0,2.0;3.0,4.0;5.0,1.0" z_order="0">
    </polygon>
    <tag label="große Katze" source="manual">
    </tag>
  </image>
  <image id="1" name="b.jpg" width="200" height="100">
  </image>
</annotations>
"""


def test_cvat_for_images(tmp_path):
    (tmp_path / "annotations.xml").write_text(CVAT, encoding="utf-8")
    for source in (tmp_path, tmp_path / "annotations.xml"):
        kind, images, skipped = read_source(source)
        assert kind == "CVAT for images"
        assert images == {"sub/a.jpg": (("cat", "dog", "große Katze"), None, [("cat", 0.1, 0.1, 0.6, 0.6)], "image 1"),
                          "b.jpg": ((), (), None, "image 2")}
        assert skipped == {"boxes that are turned: their tags were taken": 1}


def without(data, *path):
    """A copy of nested data without one entry."""
    data = json.loads(json.dumps(data))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return json.dumps(data)


BOMB = ('<!DOCTYPE a [<!ENTITY x0 "ha">' + "".join(f'<!ENTITY x{k + 1} "{f"&x{k};" * 10}">' for k in range(9))
        + "]>\n<annotation><object><name>&x9;</name></object></annotation>")


@pytest.mark.parametrize("text, message", [
    (BOMB, "x: has a DOCTYPE"),
    (BOMB.encode("utf-16"), "x: has a DOCTYPE"),
    ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><annotation/>', "x: has a DOCTYPE"),
    ("<annotation><object>", "x: is not XML: no element found: line 1"),
    ("<html></html>", "x: is XML of the kind <html>; expected VOC's <annotation> or CVAT's <annotations>"),
    ("<annotation><object></object></annotation>", "x, object 1: has no <name>"),
    (VOC.replace(">51<", ">5l<"), "x, object 1: bndbox/ymin must be a number; got '5l'"),
    (VOC.replace("<ymin>51</ymin>", ""), "x, object 1: bndbox/ymin must be a number; got nothing"),
    (CVAT.replace(' label="dog"', ""), "x, image 1: <polygon> has no label"),
    (CVAT.replace('xtl="20.00"', 'xtl="nan"'), "x, image 1: box xtl must be a number; got 'nan'"),
    (CVAT.replace("<image", "<track/><image", 1), 'x: is CVAT\'s format for videos; export as "CVAT for images 1.1"'),
    ("{", "x: is not JSON"),
    ("[" * 100000, "x: is not JSON: its brackets are nested"),
    ("{}", "x: is JSON, but neither COCO"),
    (without(COCO, "categories"), "x: categories must be a list; got nothing"),
    (without(COCO, "images", 1, "file_name"), r"x, images\[1\]: file_name must be text; got nothing"),
    (without(COCO, "annotations", 2, "category_id"),
     r"x, annotations\[2\]: category_id must be a whole number or text"),
    (without(COCO, "annotations", 0, "bbox", 3), r"x, annotations\[0\]: bbox must be 4 numbers; got \[10, 20, 100\]"),
    ('{"images": [7], "annotations": [], "categories": []}', r"x, images\[0\]: must be an object, \{...\}; got 7"),
    (json.dumps([studio_task(1, "a.jpg", [7])]), r"x, task 1, result\[0\]: must be an object"),
    (json.dumps([studio_task(1, "a.txt", [])]), r"x, task 1: names no photograph .*; got \{'image': 'a.txt'\}"),
    (without([studio_task(1, "a.jpg", [RECTANGLE])], 0, "annotations", 0, "result", 0, "value", "x"),
     r"x, task 1, result\[0\]: x must be a number; got nothing"),
    ("[7]", r"x, task 1: must be an object, \{...\}; got 7"),
    ("<annotation", "x: is not XML: unclosed token: line 1"),
    ("just text".join("<>"), "x: is not XML"),
    ("<!--" + ">" * 70000 + "--><annotation/>", "x: is not XML: unclosed token"),
], ids=itertools.count())
def test_wrong_files_end_in_one_line_that_names_the_place(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match="^" + message):
        read_source("x")


def test_sizes_are_bounded(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    path.write_text('{"n": ' + "9" * 1000000 + "}")
    with pytest.raises(UserError, match="a number has 1000000 digits"):         # at once: to read it takes minutes
        parse_json(path)
    monkeypatch.setattr("ccnn._util.foreign_files.LIMIT", 1000)
    for reader in (parse_json, parse_xml, read_table):
        with pytest.raises(UserError, match="x.json: has 0 MB; expected at most 0: split it"):
            reader(path)


def label_studio_min(*values):
    return json.dumps([{"id": k, "image": f"/data/upload/{k}.jpg", "choice": value} for k, value in enumerate(values)])


def test_controls_that_nobody_used(tmp_path):
    (tmp_path / "x.json").write_text(label_studio_min("cat", None, {"choices": None}))
    _, images, skipped = read_source(tmp_path / "x.json")
    assert {name: labels.tags for name, labels in images.items()} == {"0.jpg": ("cat",), "2.jpg": ()}
    assert skipped == {"tasks that nobody labelled": 1}


@pytest.mark.parametrize("value", [1.5, True, {"choices": 1.5}, {"choices": "cat"}, {"choices": [None]},
                                   [{"polygonlabels": 3}], [{"polygonlabels": [None]}], [None]])
def test_controls_of_a_wrong_shape_are_one_line(tmp_path, value):
    (tmp_path / "x.json").write_text(label_studio_min("cat", value))
    with pytest.raises(UserError, match="x.json, task 2: choice: .*; got "):
        read_source(tmp_path / "x.json")


# Names

def test_names_as_people_write_them(tmp_path):
    composed, apart = (unicodedata.normalize(form, "Bär.jpg") for form in ("NFC", "NFD"))
    assert composed != apart
    photographs(tmp_path, apart, "a cat.JPG", "sub/B.jpg", "sub/x.png", "other/x.png", "._a cat.JPG", "UP.jpg",
                "up.jpg", "y.jpg", "masks/y.png")
    found = PhotographIndex(tmp_path)
    assert "._a cat.JPG" not in list_photographs(tmp_path).paths
    for name, path in [(apart, apart), (composed, apart), ("bär", apart), ("a cat.jpg", "a cat.JPG"),
                       ("A Cat", "a cat.JPG"), ("sub/b.JPG", "sub/B.jpg"), ("b.jpg", "sub/B.jpg"),
                       (r"C:\me\sub\B.jpg", "sub/B.jpg"),
                       ("/pictures/of/me/b", "sub/B.jpg"), ("1a2b3c4d-b.jpg", "sub/B.jpg"), ("UP.jpg", "UP.jpg"),
                       ("up.jpg", "up.jpg"), ("sub/x", "sub/x.png"), ("y", "y.jpg"), ("c.jpg", None), ("", None)]:
        assert found.find(name) == path, name
    with pytest.raises(UserError, match="'x.png' may be 'other/x.png' or 'sub/x.png'; write one of these"):
        found.find("x.png")


# The tool

@pytest.fixture
def tool(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return partial(run_command, "import-tags")


def test_the_tool_shows_and_then_writes(tool, tmp_path):
    photos = tmp_path / "photos"
    photographs(photos, "a.jpg", "Bär.JPG", "c.jpg", "left.jpg")
    (photos / "Tags.csv").write_bytes('sep=;\r\nFile;Tags;Large\r\na;"cat;polar bear";cat\r\nBär.jpg;"polar bear;";\r\n'
                                      "c.jpg;;\r\ncc.jpg;cat;\r\n".encode("cp1252"))
    done = tool("photos/Tags.csv")
    assert done.status == 0, done.err
    assert done.out.splitlines() == [
        "photos/Tags.csv: a table (cp1252)",
        "3 photographs, 1 of them without a class",
        "  cat             1, large in 1",
        "  polar bear      2, large in 0",
        "names that are not a photograph: 1",
        "  line 6: 'cc.jpg'; did you mean 'c.jpg'?",
        "photographs that the source does not name: 1",
        "  left.jpg",
        "nothing was written; --write writes photos/tags.csv and photos/classes.txt"]
    assert not (photos / "tags.csv").exists() and not (photos / "classes.txt").exists()

    assert tool("photos/Tags.csv", "--write").status == 0
    assert (photos / "tags.csv").read_text() == \
        "image,tags,large\nBär.JPG,polar bear,\na.jpg,cat;polar bear,cat\nc.jpg,,\n"
    assert (photos / "classes.txt").read_text() == "cat\npolar bear\n"
    images, _ = read_table(photos / "tags.csv", read_classes(photos / "classes.txt"))
    assert tags_of(images) == {"Bär.JPG": ("polar bear",), "a.jpg": ("cat", "polar bear"), "c.jpg": ()}

    # again: the same; then a tag changes
    done = tool("photos/Tags.csv", "--write")
    assert done.status == 0 and "photos/tags.csv is up to date" in done.out
    before = (photos / "tags.csv").read_bytes()
    (photos / "Tags.csv").write_text("a.jpg,cat\n")
    done = tool("photos/Tags.csv", "--write")
    assert done.status == 2 and (photos / "tags.csv").read_bytes() == before
    assert done.err == "ccnn import-tags: error: photos/tags.csv: exists and differs; --force overwrites\n"
    assert tool("photos/Tags.csv", "--write", "--force").status == 0
    assert (photos / "tags.csv").read_text() == "image,tags\na.jpg,cat\n"
    assert (photos / "classes.txt").read_text() == "cat\npolar bear\n"      # the order of classes is never changed

    # classes.txt is obeyed: every mistake has its line
    (photos / "Tags.csv").write_text("a.jpg,cta\nc.jpg,polar baer\n")
    done = tool("photos/Tags.csv", "--write", "--force")
    assert done.status == 2 and done.err.splitlines() == [
        "ccnn import-tags: error: photos/Tags.csv: 2 mistakes",
        "  line 1: tag 'cta' is not a class; did you mean 'cat'?",
        "  line 2: tag 'polar' is not a class; did you mean 'polar bear'?"]


@pytest.mark.parametrize("name, message", [
    ("\ud800", "holds control characters"), ("\x1b[2J", "holds control characters"),
    ("a\nb", "holds control characters"),
    ("a;b", "holds one of ; , |, which stand between tags; rename it")])
def test_a_class_that_no_list_can_hold_is_not_written(tmp_path, name, message):
    photographs(tmp_path, "a.jpg")
    categories = [{**one, "name": name + one["name"]} for one in COCO["categories"]]
    (tmp_path / "export.json").write_text(json.dumps({**COCO, "categories": categories}))
    with pytest.raises(UserError, match=f"export.json: .*{re.escape(message)}"):
        import_tags.main([str(tmp_path / "export.json"), "--write"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jpg", "export.json"]


def test_names_that_are_lost_are_compared_as_long_as_they_are_shown(monkeypatch, tmp_path):
    """A comparison of each with each takes an hour where thousands of names are those of other photographs."""
    photographs(tmp_path, "a.jpg")
    asked = []
    monkeypatch.setattr(import_tags, "nearest", lambda name, known: asked.append(name))
    named = {f"{k}.jpg": Labels((), None, None, f"line {k}") for k in range(100)}
    _, lost = import_tags.match_names(named, PhotographIndex(tmp_path))
    assert len(lost) == 100 and asked == [f"{k}.jpg" for k in range(import_tags.SHOWN)]


def test_a_box_of_yolo_is_centre_width_and_height():
    """In fractions of the photograph, x before y. Ours: upper, left, lower and right edge."""
    found = read_line("1 0.5 0.4 0.2 0.6", ["cat", "dog"], "a.txt")
    assert found.label == "dog" and found.area == pytest.approx(0.12)
    assert found.box == pytest.approx((0.1, 0.4, 0.7, 0.6))


def test_the_tool_on_an_export_from_elsewhere(tool, tmp_path):
    photographs(tmp_path / "mine", "sub/a.jpg", "b.jpg")
    (tmp_path / "export.json").write_text(json.dumps(COCO))
    done = tool("export.json", "--photos", "mine", "--classes", "dog", "--write")
    assert done.status == 0, done.err
    assert done.out.splitlines() == [
        "export.json: COCO JSON; classes of --classes",
        "2 photographs, 1 of them without a class",
        "  dog      1, large in 0",
        "  1 boxes, which --boxes writes",
        "left out: 2",
        "  2 x objects of class 'cat', which is not listed; --classes lists it",
        "  1 x annotations of an image that is not listed",
        "names that are not a photograph: 1",
        "  images[2]: 'c.jpg'; did you mean 'b.jpg'?",
        "writing mine/tags.csv",
        "writing mine/classes.txt"]
    assert list(csv.reader(open(tmp_path / "mine/tags.csv"))) == [["image", "tags", "large"], ["b.jpg", "", ""],
                                                                 ["sub/a.jpg", "dog", ""]]


@pytest.mark.parametrize("arguments, message", [
    (["nowhere.csv"], "nowhere.csv: no such file or folder"),
    (["t.csv"], ".: has no photographs (JPEG, PNG, WebP, TIFF, BMP or GIF); name their folder with --photos"),
    (["t.csv", "--photos", "p"], "t.csv: tags none of the photographs in p; name their folder with --photos"),
    (["p"], "p: has neither masks, Annotations/*.xml, labels of YOLO or LabelMe nor a folder per class "
     "with photographs in it; name the file with the labels"),
    (["twins.csv", "--photos", "twins"], "a.jpg and a.png differ in the suffix alone; rename one of them"),
])
def test_mistakes_in_the_call(tool, tmp_path, arguments, message):
    if arguments != ["t.csv"]:
        photographs(tmp_path, "p/x.jpg", "twins/a.jpg", "twins/b/a.png")
        os.rename(tmp_path / "twins/b/a.png", tmp_path / "twins/a.png")
    (tmp_path / "t.csv").write_text("a.jpg,cat\n")
    (tmp_path / "twins.csv").write_text("image,tag\na.jpg,cat\n")
    if "twins.csv" in arguments:        # two entries that a table cannot tell apart, but COCO can
        (tmp_path / "twins.csv").write_text(json.dumps({"images": [{"id": 1, "file_name": "a.jpg"},
            {"id": 2, "file_name": "a.png"}], "annotations": [{"image_id": 1, "category_id": 1}],
            "categories": [{"id": 1, "name": "cat"}]}))
    done = tool(*arguments)
    assert done.status == 2 and done.err == f"ccnn import-tags: error: {message}\n"
