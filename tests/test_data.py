"""The data layers, through real Caffe nets: what arrives in the blobs, in which order, and what wrong input says."""
import json
import os
import shutil
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree

import cache_features
import caffe
import numpy as np
import pytest
from PIL import Image
from tiny_voc import annotation, make_voc, save_mask
from voc_data import read_ahead, widen

from ccnn.errors import ImageError, UserError
from ccnn.grid import score_size
from ccnn.images import MEAN_BGR, read_image, read_mask
from ccnn.labels import VOC_CLASSES, VOID, palette
from ccnn.samples import FeatureSamples, Samples
from ccnn.trunk import VGG16

TOPS = ["data", "tags", "sizes", "boxes", "labels"]


@pytest.fixture
def voc(tmp_path):
    return make_voc(tmp_path / "voc")


@pytest.fixture
def net(tmp_path):
    """net(options) -> a caffe.Net of one data layer."""
    def make(options, layer="VOCDataLayer", phase=caffe.TRAIN):
        path = tmp_path / f"net{len(list(tmp_path.iterdir()))}.prototxt"
        path.write_text(prototxt(options, layer))
        return caffe.Net(str(path), phase)
    return make


def prototxt(options, layer="VOCDataLayer"):
    options = {"tops": TOPS, **options}
    return f"""layer {{ name: "in"  type: "Python"  {' '.join(f'top: "{top}"' for top in options["tops"])}
        python_param {{ module: "voc_data"  layer: "{layer}"  param_str: '{json.dumps(options)}' }} }}"""


def still(root, **options):
    """Settings that show every image of a folder as it is, in the order of the list."""
    return {"root": str(root), "split": "train", "mirror": False, "shuffle": False, **options}


def blobs(net):
    net.forward()
    return {name: blob.data[0].copy() for name, blob in net.blobs.items()}


def coded_voc(folder, width=100, height=75, scale=1):
    """A VOC folder with one image that tells where each of its pixels comes from: red is its column, green its row."""
    root = make_voc(folder, images=1, size=(width * scale, height * scale))
    y, x = np.mgrid[:height, :width].astype(np.uint8)
    coded = Image.fromarray(np.dstack([x, y, 0 * x])).resize((width * scale, height * scale), Image.NEAREST)
    (root / "JPEGImages/2007_000000.jpg").unlink()
    coded.save(root / "JPEGImages/2007_000000.png")
    mask = np.zeros((height, width), np.uint8)
    objects = [(1, 3, 5, 40, 60), (2, 50, 8, 72, 19), (3, 33, 70, 35, 72), (4, 60, 60, 75, 100), (5, 0, 90, 12, 94)]
    for label, y0, x0, y1, x1 in objects:
        mask[y0:y1, x0:x1] = label
    mask[20:24] = VOID
    save_mask(root / "SegmentationClass/2007_000000.png", np.kron(mask, np.ones((scale, scale), np.uint8)))
    (root / "Annotations/2007_000000.xml").write_text(annotation("2007_000000", (width * scale, height * scale), [
        (VOC_CLASSES[label], scale * x0 + 1, scale * y0 + 1, scale * x1, scale * y1)
        for label, y0, x0, y1, x1 in objects]))
    return root, mask, objects


def expected_supervision(rows, columns, cell_rows, cell_columns, mask, objects):
    """Tags, sizes, boxes and labels of the pixels rows x columns with cells at cell_rows x cell_columns, by loops."""
    pixels = [int(mask[y, x]) for y in rows for x in columns]
    known = [label for label in pixels if label != VOID]
    tags = [float(label == 0 or label in known) for label in range(21)]
    sizes = [float(known.count(label) > 0.1 * len(known)) for label in range(21)]
    boxes = []
    for label, y0, x0, y1, x1 in objects:
        if any(y0 <= y < y1 for y in rows) and any(x0 <= x < x1 for x in columns):
            box = [float(label)]
            for cells, low, high in ((cell_rows, y0, y1), (cell_columns, x0, x1)):
                hit = [k for k, pixel in enumerate(cells) if low <= pixel < high]
                if not hit:
                    distances = [abs(pixel - (low + high - 1) / 2) for pixel in cells]
                    hit = [distances.index(min(distances))]
                box.append((hit[0], hit[-1] + 1))
            boxes.append((box[0], box[1][0], box[2][0], box[1][1], box[2][1]))
    labels = [[float(mask[y, x]) for x in cell_columns] for y in cell_rows]
    return {"tags": tags, "sizes": sizes, "boxes": boxes or [(-1, 0, 0, 0, 0)], "labels": [labels]}


def same(got, expected):
    for name, value in expected.items():
        assert np.array_equal(got[name], value), name


# What arrives

def test_score_size_is_that_of_caffes_pooling(tmp_path):
    path = tmp_path / "pools.prototxt"
    text = 'layer { name: "0" type: "Input" top: "0" input_param { shape { dim: 1 dim: 1 dim: 9 dim: 9 } } }'
    for k in (1, 2, 3):
        text += f"""layer {{ name: "{k}" type: "Pooling" bottom: "{k - 1}" top: "{k}"
                    pooling_param {{ kernel_size: 3 stride: 2 pad: 1 }} }}"""
    path.write_text(text)
    pools = caffe.Net(str(path), caffe.TEST)
    for size in [*range(1, 60), 320, 321, 322, 375, 500, 513]:
        pools.blobs["0"].reshape(1, 1, size, 1)
        pools.reshape()
        assert [pools.blobs[str(k)].data.shape[2] for k in (2, 3)] == [score_size(size, 4), score_size(size)]
    assert score_size(321) == 41


def test_blobs_of_a_still_image(voc, net):
    data = net(still(voc))
    for i in range(4):
        got = blobs(data)
        rgb = np.asarray(Image.open(voc / f"JPEGImages/2007_{i:06d}.jpg"), np.float32)
        mask = np.asarray(Image.open(voc / f"SegmentationClass/2007_{i:06d}.png"))
        boxes = [(VOC_CLASSES.index(item.findtext("name")), *(int(item.findtext(f"bndbox/{side}")) - first
                  for side, first in (("ymin", 1), ("xmin", 1), ("ymax", 0), ("xmax", 0))))
                 for item in ElementTree.parse(voc / f"Annotations/2007_{i:06d}.xml").iter("object")]
        bgr = rgb[:, :, ::-1].transpose(2, 0, 1)
        assert np.allclose(got["data"], bgr - np.array(MEAN_BGR)[:, None, None], atol=1e-4)
        # 64 x 48: the last cell of either side is outside, and takes the nearest pixel
        cells = [*range(0, 48, 8), 47], [*range(0, 64, 8), 63]
        same(got, expected_supervision(range(48), range(64), *cells, mask, boxes))
        assert got["tags"].sum() == 2 + i % 2 and got["sizes"].sum() == 2


@pytest.mark.parametrize("scale", [1, 3])
@pytest.mark.parametrize("crop", [0, 33, 20])
def test_supervision_is_of_the_very_pixels_shown(tmp_path, net, crop, scale):
    """Crops, mirroring and reduction, checked by an image whose colours say where its pixels are from."""
    root, mask, objects = coded_voc(tmp_path / "voc", scale=scale)
    data = net({"root": str(root), "split": "train", "crop": crop, "size": 100 if scale > 1 else 0})
    flips, corners = set(), set()
    for _ in range(25):
        got = blobs(data)
        blue, green, red = np.rint(got["data"] + np.array(MEAN_BGR)[:, None, None]).astype(int)
        rows, columns = green[:, 0], red[0]
        # the crop is one piece of the image, unstretched
        assert (np.abs(np.diff(rows)) == 1).all() and (np.abs(np.diff(columns)) == 1).all()
        assert (red == columns).all() and (green == rows[:, None]).all()
        assert got["data"].shape[1:] == ((crop, crop) if crop else (75, 100))
        cells = [[*side[::8], *([] if len(side) % 8 == 1 else side[-1:])] for side in (rows, columns)]
        same(got, expected_supervision(rows, columns, *cells, mask, objects))
        flips.add(columns[0] > columns[-1])
        corners.add((rows[0], min(columns)))
    assert flips == {False, True}
    assert len(corners) > 15 if crop else len(corners) == 1
    assert not crop or len({y % 8 for y, _ in corners}) > 5     # anywhere, not on a grid


@pytest.mark.parametrize("crop", [0, 32])
@pytest.mark.parametrize("scale", [1, 2])
def test_features_and_supervision_fit(tmp_path, net, crop, scale):
    """The same for features, whose cells sit on edges between pixels: channel 0 is the cell's row, 1 its column."""
    root, mask, objects = coded_voc(tmp_path / "voc", scale=scale)
    rows, columns = np.arange(0, 81, 8), np.arange(0, 105, 8)       # the last is outside: 75 and 100 are the borders
    features = tmp_path / "features"
    features.mkdir()
    (features / "index.json").write_text('{"size": 100}')
    coded = np.zeros((VGG16.channels, rows.size, columns.size), np.float16)
    coded[:2] = np.meshgrid(rows, columns, indexing="ij")
    np.save(features / "2007_000000.npy", coded)
    data = net({"root": str(root), "split": "train", "features": str(features), "tops": ["features", *TOPS[1:]],
                "crop": crop}, "FeatureDataLayer")
    flips = set()
    for _ in range(25):
        got = blobs(data)
        rows, columns = got["features"][0][:, 0].astype(int), got["features"][1][0].astype(int)
        assert got["features"].shape == ((VGG16.channels, 5, 5) if crop else coded.shape)
        # the pixels between the first and the last cell, in the order shown; a cell's own is that after its edge
        flips.add(flipped := columns[0] > columns[-1])
        columns = columns - flipped
        spans = [[p for p in np.arange(cells[0], cells[-1], step) if 0 <= p < border]
                 for cells, border, step in ((rows, 75, 1), (columns, 100, -1 if flipped else 1))]
        cells = [side.clip(min(span), max(span)) for side, span in zip((rows, columns), spans)]
        same(got, expected_supervision(*spans, *cells, mask, objects))
    assert flips == {False, True}
    (features / "index.json").write_text('{"size": 64}')
    with pytest.raises(ImageError, match="2007_000000.npy: has 11 x 14 cells; .* at size 64 and stride 8 has 7 x 9"):
        FeatureSamples(still(root, features=str(features)))[0]


def test_half_floats_are_widened_exactly():
    half = np.arange(65536, dtype=np.uint16).view(np.float16)
    half = half[np.isfinite(half)].reshape(2, -1)
    out = np.empty(half.shape, np.float32)
    for view in (half, half[:, ::-1]):
        widen(view, out)
        assert np.array_equal(out, view.astype(np.float32)) and np.array_equal(np.signbit(out), np.signbit(view))


def test_boxes_by_hand(voc, net):
    """64 x 48 pixels, cells at 0, 8, ..., 56, 63 and 0, 8, ..., 40, 47."""
    (voc / "Annotations/2007_000000.xml").write_text("""<annotation><size><width>64</width><height>48</height></size>
        <object><name>cat</name><difficult>1</difficult>
          <bndbox><xmin>9</xmin><ymin>1</ymin><xmax>17</xmax><ymax>48</ymax></bndbox>
          <part><name>head</name>
            <bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part></object>
        <object><name>dog</name>
          <bndbox><xmin>10</xmin><ymin>11.7</ymin><xmax>15.2</xmax><ymax>12</ymax></bndbox></object>
        <object><name>sheep</name>
          <bndbox><xmin>-30</xmin><ymin>40</ymin><xmax>80</xmax><ymax>90</ymax></bndbox></object>
        </annotation>""")
    got = blobs(net(still(voc, tops=["data", "boxes", "tags"], tags_from="annotations")))
    cat, dog, sheep = (VOC_CLASSES.index(name) for name in ("cat", "dog", "sheep"))
    assert got["boxes"].tolist() == [
        [cat, 0, 1, 7, 3],          # columns 8..16: cells 1 and 2; all rows
        [dog, 1, 1, 2, 2],          # between cells: the nearest, (8, 8)
        [sheep, 5, 0, 7, 9],        # rows 39..47, clipped: cells 40 and 47; all columns
    ]
    assert np.flatnonzero(got["tags"]).tolist() == sorted([0, cat, dog, sheep])


def test_large_is_more_than_a_tenth_of_what_is_not_void(voc, net):
    mask = np.zeros((48, 64), np.uint8)
    for void, large in ((0, 0), (1, 1)):        # 300 of 3000, then of 2999
        mask.flat[:72 + void] = VOID
        mask.flat[1000:1300] = 7
        save_mask(voc / "SegmentationClass/2007_000000.png", mask)
        assert blobs(net(still(voc)))["sizes"][7] == large
    assert blobs(net(still(voc, large=0.2)))["sizes"][7] == 0


def test_only_listed_images_keep_their_masks(voc, net, tmp_path):
    (tmp_path / "some.txt").write_text("2007_000003\n2007_000000.jpg\n")
    for supervised, kept in ((None, [1, 1, 1, 1]), (0, [0, 0, 0, 0]), (3, [1, 1, 1, 0]), (9, [1, 1, 1, 1]),
                             (str(tmp_path / "some.txt"), [1, 0, 0, 1])):
        data = net(still(voc, supervised=supervised))
        whole = net(still(voc))
        for keeps in kept:
            got, full = blobs(data), blobs(whole)
            assert np.array_equal(got["labels"], full["labels"] if keeps else np.full((1, 7, 9), VOID))
            assert np.array_equal(got["tags"], full["tags"])        # the weak supervision stays


# In which order

def test_every_epoch_is_a_permutation(voc):
    samples = Samples({"root": str(voc), "split": "train", "seed": 3})
    epochs = [[samples.image(4 * epoch + k) for k in range(4)] for epoch in range(20)]
    assert all(sorted(epoch) == samples.files for epoch in epochs)
    assert len(set(map(tuple, epochs))) > 8
    other = Samples({"root": str(voc), "split": "train", "seed": 4})
    assert [other.image(t) for t in range(80)] != sum(epochs, [])


def test_a_resumed_run_sees_what_an_uninterrupted_one_sees(voc, net, monkeypatch):
    options = {"root": str(voc), "split": "train", "crop": 25}
    data = net(options)
    whole = [blobs(data) for _ in range(12)]
    assert any(not np.array_equal(a["data"], b["data"]) for a, b in zip(whole, whole[4:]))
    monkeypatch.setenv("CCNN_START_ITERATION", "7")
    resumed, test = net(options), net(options, phase=caffe.TEST)
    for first, data in ((7, resumed), (0, test)):
        for t in range(first, first + 5):
            got = blobs(data)
            assert all(np.array_equal(got[name], whole[t][name]) for name in TOPS)
    monkeypatch.setenv("CCNN_START_ITERATION", "-1")
    with pytest.raises(UserError, match="CCNN_START_ITERATION .* got '-1'"):
        net(options)


def test_reshaping_uses_no_sample_up(voc, net):
    data = net(still(voc))
    data.reshape()
    data.reshape()
    assert blobs(data)["tags"][1] == 1          # image 0 shows class 1


# Files that are not as they should be

def write(voc, kind):
    """Damage image 0 of the folder; return what the message says."""
    jpg, png, xml = (voc / f"{folder}/2007_000000.{suffix}" for folder, suffix in (
        ("JPEGImages", "jpg"), ("SegmentationClass", "png"), ("Annotations", "xml")))
    mask = np.zeros((48, 64), np.uint8)
    if kind == "zero-byte image":
        jpg.write_bytes(b"")
        return f"{jpg}: is empty"
    if kind == "truncated image":
        jpg.write_bytes(jpg.read_bytes()[:-700])
        return f"{jpg}: is damaged: .*truncated"
    if kind == "no image":
        jpg.write_text("<html>404</html>")
        return f"{jpg}: is not an image"
    if kind == "float image":
        Image.fromarray(mask.astype(np.float32)).save(jpg, format="TIFF")
        return f"{jpg}: holds floating-point"
    if kind == "truncated mask":
        png.write_bytes(png.read_bytes()[:120])
        return f"{png}: is damaged"
    if kind in ("label 21", "label 254"):
        mask[3, 4] = int(kind.split()[1])
        save_mask(png, mask)
        return f"{png}: holds {kind}; expected 0..20 or 255"
    if kind == "RGB mask":
        Image.fromarray(mask).convert("RGB").save(png)
        return f"{png}: is a picture of mode RGB"
    if kind == "16-bit mask":
        Image.fromarray(mask.astype(np.uint16) + 300).save(png)
        return f"{png}: holds label 300"
    if kind == "mask of another size":
        save_mask(png, mask[:, :60])
        return f"{png}: is for an image of 60 x 48 pixels, but {jpg} has 64 x 48"
    if kind == "annotation of another size":
        xml.write_text(annotation("2007_000000", (128, 96), [("cat", 1, 1, 9, 9)]))
        return f"{xml}: is for an image of 128 x 96 pixels"
    boxes = {"box outside": ("cat", 65, 1, 70, 20), "box inside out": ("cat", 30, 1, 20, 20),
             "box of no class": ("unicorn", 1, 1, 20, 20), "box that is no number": ("cat", "left", 1, 20, 20)}
    if kind in boxes:
        xml.write_text(annotation("2007_000000", (64, 48), [boxes[kind]]))
        return f"{xml}: (the box of 'cat'.*outside the image of 64 x 48|object 'unicorn' is not|is not a VOC annot)"
    if kind == "no annotation":
        xml.unlink()
        return f"{xml}: cannot read the annotation: No such file"
    xml.write_text("<annotation><size>")
    return f"{xml}: is not a VOC annotation"


@pytest.mark.parametrize("kind", [
    "zero-byte image", "truncated image", "no image", "float image", "truncated mask", "label 21", "label 254",
    "RGB mask", "16-bit mask", "mask of another size", "annotation of another size", "box outside", "box inside out",
    "box of no class", "box that is no number", "no annotation", "half an annotation"])
def test_damaged_files_stop_or_are_skipped(voc, net, kind, capfd):
    message = write(voc, kind)
    with pytest.raises(ImageError, match=message) as stop:
        blobs(net(still(voc)))
    assert "\n" not in str(stop.value) and '"skip"' in str(stop.value)

    capfd.readouterr()
    data = net(still(voc, damaged="skip"))
    shown = [np.flatnonzero(blobs(data)["tags"])[1] for _ in range(8)]
    assert shown == [2, 2, 3, 4, 2, 2, 3, 4]        # image 1 in the place of image 0
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2 and "skipped (2 so far)" in lines[1] and lines[1].endswith(lines[0].split("): ")[1])


def test_nothing_but_damaged_files(voc, net):
    for path in (voc / "JPEGImages").iterdir():
        path.write_bytes(b"")
    with pytest.raises(UserError, match="every image of .*train.txt is damaged; the last: .* is empty"):
        net(still(voc, damaged="skip"))


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


# Lists and settings that are not as they should be

@pytest.mark.parametrize("line", ["../../secret", "/etc/secret", "a/../../../secret", "link"])
def test_lists_cannot_reach_outside_the_root(voc, net, line, tmp_path):
    Image.new("RGB", (64, 48)).save(tmp_path / "secret.jpg")
    (voc / "JPEGImages/link.jpg").symlink_to(tmp_path / "secret.jpg")
    (voc / "ImageSets/Segmentation/train.txt").write_text(f"2007_000000\n{line}\n")
    with pytest.raises(UserError, match="line 2: .* reaches out of the data root|is a link out of the data root"):
        net(still(voc, tops=["data"]))


def test_folders_may_be_links_and_ids_may_have_folders_and_spaces(voc, net, tmp_path):
    shutil.move(voc / "JPEGImages", tmp_path / "elsewhere")
    (voc / "JPEGImages").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/my cats").mkdir()
    Image.new("RGB", (10, 20), (255, 0, 0)).save(tmp_path / "elsewhere/my cats/a cat.png")
    (tmp_path / "list").write_text("\ufeffmy cats/a cat.png\r\n\r\n2007_000000\n", encoding="utf-8")
    data = net(still(voc, split=str(tmp_path / "list"), tops=["data"]))
    assert blobs(data)["data"].shape == (3, 20, 10)
    assert blobs(data)["data"].shape == (3, 48, 64)


@pytest.mark.parametrize("options, message", [
    ({"root": "nowhere"}, "nowhere: no such folder; tools/get_voc.py fetches VOC 2012"),
    ({"root": None}, "root in param_str must be the path of a folder; got null"),
    ({"split": "train_awg"}, r"train_awg.txt: no such list of images \(there: empty, gone, train, train_aug, val\); "
                             "tools/get_voc.py"),
    ({"split": None}, "split in param_str must name a list"),
    ({"split": "empty"}, "empty.txt: lists no image"),
    ({"split": "gone"}, "JPEGImages/gone with space.jpg: no such image; .*gone.txt lists 'gone with space', and has "
                        "one image id"),
    ({"masks": "Masks"}, "Masks: no such folder"),
    ({"classes": "no.txt"}, "no.txt: cannot read the class list: No such file"),
    ({"tags_from": "no.csv"}, "no.csv: cannot read the tags: No such file"),
    ({"miror": True}, "unknown setting 'miror' in param_str; did you mean 'mirror'"),
    ({"tops": ["data", "tag"]}, "tops in param_str must be a list of some of data, tags, sizes, boxes, labels"),
    ({"tops": ["tags", "tags"]}, "tops in param_str"),
    ({"tops": []}, "tops in param_str"),
    ({"crop": -3}, "crop in param_str must be a whole number, 0 or more; got -3"),
    ({"crop": 2.5}, "crop in param_str"),
    ({"seed": True}, "seed in param_str"),
    ({"stride": 0}, "stride in param_str must be a whole number, 1 or more"),
    ({"large": 10}, "large in param_str must be a fraction"),
    ({"mirror": "yes"}, 'mirror in param_str must be true or false; got "yes"'),
    ({"damaged": "ignore"}, 'damaged in param_str must be "stop" or "skip"'),
    ({"supervised": -1}, "supervised in param_str"),
    ({"supervised": "gone"}, "gone: cannot read the list"),
    ({"supervised": "ImageSets/Segmentation/gone.txt"}, "lists 'gone with space', which is not an image of"),
    ({"tags_from": "annotations", "tops": ["data", "sizes"]}, "sizes need tags_from"),
    ({"tags_from": "tags.csv", "crop": 9}, "crop needs tags_from"),
    ({"features": "f"}, "unknown setting 'features'"),
])
def test_wrong_settings_are_named(voc, options, message):
    (voc / "ImageSets/Segmentation/empty.txt").write_text("\n")
    (voc / "ImageSets/Segmentation/gone.txt").write_text("gone with space\n")
    with pytest.raises(UserError, match=message) as error:
        Samples(json.dumps({**still(voc), "tops": TOPS, **options}))
    assert "\n" not in str(error.value)


def test_missing_masks_and_wrong_number_of_tops(voc, net):
    with pytest.raises(UserError, match="param_str is not JSON"):
        Samples("{root: 1}")
    with pytest.raises(UserError, match="must be a JSON object"):
        Samples("[1]")
    for i in (2, 3):
        (voc / f"SegmentationClass/2007_{i:06d}.png").unlink()
    with pytest.raises(UserError, match=r"2007_000002.png: no such mask \(and 1 more\)"):
        net(still(voc))
    data = net(still(voc, tags_from="annotations", tops=["data", "tags", "labels"], supervised=2))
    assert blobs(data)["tags"][1] == 1
    with pytest.raises(UserError, match="needs 1 tops and no bottom; the layer has 5 and 0"):
        text = prototxt({}).replace("param_str: '{", "param_str: '" + json.dumps(still(voc))[:-1] + ", ")
        path = voc / "net.prototxt"
        path.write_text(text.replace(json.dumps(TOPS), '["data"]'))
        caffe.Net(str(path), caffe.TRAIN)


# Data of one's own

def own_data(folder, table):
    folder.mkdir()
    for k, name in enumerate(["one.jpg", "two 2.png", "three.jpg"]):
        Image.new("RGB", (40 + k, 30), (40 * k, 50, 60)).save(folder / name)
    (folder / "classes.txt").write_text("cat\ntraffic light\n")
    (folder / "tags.csv").write_text(table)
    return {"root": str(folder), "classes": str(folder / "classes.txt"), "tags_from": "tags.csv", "shuffle": False,
            "mirror": False, "tops": ["data", "tags", "sizes"]}


def test_a_folder_of_images_and_a_csv_are_enough(tmp_path, net):
    table = "image,tags,large\none.jpg,cat,\ntwo 2.png,traffic light; cat,cat\nthree,,\n"
    data = net(own_data(tmp_path / "own", table))
    expected = [(40, [1, 1, 0], [0, 0, 0]), (41, [1, 1, 1], [0, 1, 0]), (42, [1, 0, 0], [0, 0, 0])]
    for width, tags, sizes in expected:
        got = blobs(data)
        assert got["data"].shape == (3, 30, width) and got["tags"].tolist() == tags and got["sizes"].tolist() == sizes


@pytest.mark.parametrize("table, message", [
    ("one.jpg,dog\n", "tags.csv, line 1: tag 'dog' is not a class"),
    ("one.jpg,cats\n", "line 1: tag 'cats' is not a class; did you mean 'cat'?"),
    ("one.jpg;cat\n", "line 1: expected image,tags"),
    ("one.jpg,cat\none.jpg,cat\n", "line 2: image 'one.jpg' has a row already"),
    ("one.jpg,cat,traffic light\n", "line 1: 'traffic light' is large but not among the tags"),
    ("image,tags\n", "tags.csv: lists no image"),
    ("../one.jpg,cat\n", "line 1: '../one.jpg' reaches out"),
    ("four.jpg,cat\n", "four.jpg: no such image"),
])
def test_wrong_tables_are_named(tmp_path, table, message):
    with pytest.raises(UserError, match=message):
        Samples(own_data(tmp_path / "own", table))


# The process that reads ahead, and the real `caffe train`

def children(pid):
    return [int(child) for child in open(f"/proc/{pid}/task/{pid}/children").read().split()]


def running(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition):
    limit = time.time() + 60
    while not condition():
        assert time.time() < limit, "did not happen"
        time.sleep(0.05)


def test_readers_end_when_nobody_reads(voc):
    samples = Samples(still(voc))
    before = set(children(os.getpid()))
    first, second = read_ahead(samples, 0), read_ahead(samples, 1)
    assert next(first)[0]["tags"][1] == 1 and next(second)[0]["tags"][2] == 1
    readers = [pid for pid in children(os.getpid()) if pid not in before]
    assert len(readers) == 2
    first.close()                       # the second reader holds the first one's pipe open
    assert [os.path.exists(f"/proc/{pid}") for pid in readers] == [False, True]
    os.kill(readers[1], signal.SIGKILL)
    with pytest.raises(UserError, match="the process that reads the images was ended"):
        for _ in range(99):
            next(second)
    assert not os.path.exists(f"/proc/{readers[1]}")


def test_errors_of_the_reader_are_raised_here(voc):
    samples = Samples(still(voc))
    samples.files[1] = str(voc / "nowhere.jpg")
    samples.files[2] = None             # a mistake in the program, with its traceback
    stream = read_ahead(samples, 0)
    next(stream)
    with pytest.raises(ImageError, match="nowhere.jpg: no such file"):
        next(stream)
    with pytest.raises(RuntimeError, match="Traceback(.|\n)*TypeError"):
        next(read_ahead(samples, 2))


@pytest.fixture
def train(tmp_path, caffe_bin):
    """train(options) -> a running `caffe train` on a data layer and a tiny net."""
    def start(options):
        (tmp_path / "train.prototxt").write_text(prototxt({"tops": ["data", "tags"], **options}) + """
            layer { name: "c" type: "InnerProduct" bottom: "tags" top: "c" inner_product_param { num_output: 1 } }
            layer { name: "loss" type: "Reduction" bottom: "c" top: "loss" loss_weight: 1 }
            layer { name: "silence" type: "Silence" bottom: "data" }""")
        (tmp_path / "solver.prototxt").write_text(f"""net: "{tmp_path}/train.prototxt" base_lr: 0 lr_policy: "fixed"
            display: 1 max_iter: 1000000 snapshot_prefix: "{tmp_path}/snap" solver_mode: CPU""")
        return subprocess.Popen([caffe_bin, "train", "-solver", "solver.prototxt"], cwd=tmp_path, text=True,
                                env={**os.environ, "GLOG_minloglevel": "0", "GLOG_logtostderr": "1"},
                                stderr=subprocess.PIPE, start_new_session=True)
    return start


def read_until(process, text):
    seen = []
    for line in process.stderr:
        seen.append(line)
        if text in line:
            return
    pytest.fail(f"{text!r} was not said:\n{''.join(seen[-9:])}")


def test_caffe_train_says_what_is_missing_in_one_line(train):
    process = train({"root": "data/VOCdevkit/VOC2012", "split": "train_aug"})
    lines = process.communicate(timeout=100)[1].splitlines()
    assert process.returncode == 2
    assert lines[-1].startswith("data/VOCdevkit/VOC2012: no such folder; tools/get_voc.py fetches")
    assert not any("Traceback" in line or line.startswith(("    @", "***", "F")) for line in lines)


def test_caffe_train_survives_interrupts_and_leaves_no_process(train, voc):
    (voc / "JPEGImages/2007_000002.jpg").write_bytes(b"")
    process = train({"root": str(voc), "split": "train", "damaged": "skip"})
    read_until(process, "Iteration 20")
    reader, = children(process.pid)
    os.kill(reader, signal.SIGINT)
    os.killpg(process.pid, signal.SIGHUP)       # the terminal's signals reach the whole group
    read_until(process, "Snapshotting to binary proto file")
    read_until(process, "skipped (")
    assert running(reader)
    os.killpg(process.pid, signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=100) == 0 and "Snapshotting to binary proto file" in rest
    assert "Traceback" not in rest and "was ended" not in rest
    wait_until(lambda: not running(reader))

    process = train({"root": str(voc), "split": "train", "damaged": "skip"})
    read_until(process, "Iteration 3")
    reader, = children(process.pid)
    process.kill()
    wait_until(lambda: not running(reader))

    process = train({"root": str(voc), "split": "train"})
    lines = process.communicate(timeout=100)[1].splitlines()
    assert process.returncode == 2 and "2007_000002.jpg: is empty (0 bytes)" in lines[-1]


# Cached features

@pytest.fixture(scope="module")
def weights(tmp_path_factory, root):
    path = tmp_path_factory.mktemp("weights") / "random.caffemodel"
    trunk = caffe.Net(str(root / "prototxt/trunk.prototxt"), caffe.TEST)
    trunk.save(str(path))
    return path


def test_cached_features_are_the_trunks(voc, weights, tmp_path, root, net, capsys, monkeypatch):
    out = tmp_path / "features"
    arguments = [str(voc), "--out", str(out), "--weights", str(weights), "--size", "48", "--jobs", "2"]
    assert cache_features.main(arguments) == 0
    assert "4 images, 0 done already; 4 to do take 0.00 GB" in capsys.readouterr().out

    # 1. what the trunk gives for the reduced image
    trunk = caffe.Net(str(root / "prototxt/trunk.prototxt"), str(weights), caffe.TEST)
    small = Image.open(voc / "JPEGImages/2007_000001.jpg").resize((48, 36), Image.BICUBIC)
    trunk.blobs["data"].reshape(1, 3, 36, 48)
    trunk.blobs["data"].data[0] = np.asarray(small).transpose(2, 0, 1)[::-1] - np.array(MEAN_BGR)[:, None, None]
    expected = trunk.forward()["features"][0]
    data = net(still(voc, features=str(out), tops=["features", "labels"]), "FeatureDataLayer")
    blobs(data)
    got = blobs(data)
    assert got["features"].shape == (VGG16.channels, 6, 7) and expected.std() > 0
    assert np.allclose(got["features"], expected, rtol=1e-3, atol=1e-4 * expected.max())
    assert got["labels"].shape == (1, 6, 7)

    # 2. what is whole stays, what is not is done again
    stamps = {path: path.stat().st_mtime_ns for path in out.glob("*.npy")}
    other, cut = (out / f"2007_00000{i}.npy" for i in (0, 2))
    np.save(other, np.zeros((VGG16.channels, 6, 6), np.float16))
    cut.write_bytes(cut.read_bytes()[:-2])
    (voc / "JPEGImages/2007_000003.jpg").write_bytes(b"")
    assert cache_features.main(arguments) == 1
    text = capsys.readouterr().out
    assert "1 done already; 2 to do" in text and "3 of 4 images have features" in text
    assert "2007_000003.jpg: is not an image that can be read" in text
    kept = [path.name for path, stamp in stamps.items() if path.stat().st_mtime_ns == stamp]
    assert sorted(kept) == ["2007_000001.npy", "2007_000003.npy"]

    # 3. other settings do not mix, and a full disk is noticed before
    with pytest.raises(UserError, match="holds features of another size"):
        cache_features.main([*arguments, "--size", "64"])
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 100))
    other.unlink()
    with pytest.raises(UserError, match="GB needed, 0.00 GB free"):
        cache_features.main(arguments)
    with pytest.raises(UserError, match="2007_000000.npy: no features of '2007_000000'; run tools/cache_features.py"):
        FeatureSamples(still(voc, features=str(out)))


def test_features_of_any_folder_and_what_is_missing(voc, weights, tmp_path):
    options = own_data(tmp_path / "own", "one,cat\ntwo 2.png,cat;traffic light\n")
    out = tmp_path / "features"
    assert cache_features.main([options["root"], "--out", str(out), "--weights", str(weights), "--jobs", "1"]) == 0
    samples = FeatureSamples({**options, "features": str(out), "tops": ["features", "tags", "labels"], "supervised": 0})
    sample, skipped = samples[1]
    assert sample["features"].shape == (VGG16.channels, 5, 7) and sample["tags"].tolist() == [1, 1, 1] and not skipped
    assert sample["labels"].shape == (1, 5, 7) and (sample["labels"] == VOID).all()

    for shape in ((5, 6), (512, 5, 7)):         # the second is what conv5_3 alone would be
        np.save(out / "one.npy", np.zeros(shape, np.float16))
        with pytest.raises(ImageError, match="one.npy: holds float16 of shape .*; expected float16 of 1024 channels"):
            samples[0]
    (out / "one.npy").write_bytes(b"no array")
    with pytest.raises(ImageError, match="one.npy: is damaged"):
        samples[0]
    with pytest.raises(UserError, match="nowhere/index.json: is missing or damaged; tools/cache_features.py"):
        FeatureSamples(still(voc, features="nowhere"))
    for arguments, message in ((["--weights", "no.caffemodel"], "no.caffemodel: no such file; tools/init_weights.py"),
                               (["--weights", str(weights), "--size", "3"], "--size 3")):
        with pytest.raises(UserError, match=message):
            cache_features.main([str(voc), *arguments])
    with pytest.raises(UserError, match="no such folder"):
        cache_features.main([str(tmp_path / "no"), "--weights", str(weights), "--out", str(out)])


# Real images

def test_real_voc(shared):
    samples = Samples({"root": str(shared / "voc321/VOCdevkit/VOC2012"), "split": "train", "tops": TOPS})
    assert len(samples) == 1464
    agree = []
    for t in range(0, 60):
        sample, _ = samples[t]
        height, width = sample["data"].shape[:2]
        assert max(height, width) == 321 and sample["labels"].shape == (1, score_size(height), score_size(width))
        assert set(np.unique(sample["labels"])) - {VOID} <= set(np.flatnonzero(sample["tags"]))
        assert (sample["sizes"] <= sample["tags"]).all()
        # boxes come from other files than masks: nearly every labelled cell must lie in a box of its label
        covered = np.zeros((21, *sample["labels"].shape[1:]), bool)
        for label, y0, x0, y1, x1 in sample["boxes"].astype(int):
            assert 0 <= y0 < y1 <= covered.shape[1] and 0 <= x0 < x1 <= covered.shape[2]
            covered[label, y0:y1, x0:x1] = True
        y, x = np.nonzero((sample["labels"][0] != VOID) & (sample["labels"][0] != 0))
        agree += list(covered[sample["labels"][0, y, x], y, x])
    assert len(agree) > 5000 and np.mean(agree) > 0.98


