"""The data layers, through real Caffe nets: what arrives in the blobs, and what wrong input says."""
import itertools
import json
import shutil
import xml.etree.ElementTree as ElementTree
from functools import partial

import caffe
import numpy as np
import pytest
from data_nets import TOPS, blobs, coded_voc, expected_supervision, make_net, own_data, prototxt, same, still
from PIL import Image
from tiny_voc import annotation, make_voc, save_mask

from ccnn._util.errors import ImageError, UserError
from ccnn.data.samples import FeatureSamples
from ccnn.images.labels import VOC_CLASSES, VOID
from ccnn.images.reading import MEAN_BGR
from ccnn.nets.backbones import VGG16


@pytest.fixture
def voc(tmp_path):
    return make_voc(tmp_path / "voc")


@pytest.fixture
def net(tmp_path):
    return partial(make_net, tmp_path)

# What arrives

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
@pytest.mark.parametrize("blob, fewer", [("features", 0), ("pool3", 1)])
def test_features_and_supervision_fit(tmp_path, net, crop, scale, blob, fewer):
    """The same for features, whose cells sit on edges between pixels: channel 0 is the cell's row, 1 its column.

    The cells of pool3 sit in the middle between two of these edges. The supervision is of the edges all the same.
    """
    root, mask, objects = coded_voc(tmp_path / "voc", scale=scale)
    rows, columns = np.arange(0, 81, 8), np.arange(0, 105, 8)       # the last is outside: 75 and 100 are the borders
    if fewer:
        rows, columns = rows[:-1] + 4, columns[:-1] + 4
    features = tmp_path / "features"
    features.mkdir()
    (features / "index.json").write_text(json.dumps({"size": 100, "blob": blob}))
    coded = np.zeros((VGG16.blobs[blob].channels, rows.size, columns.size), np.float16)
    coded[:2] = np.meshgrid(rows, columns, indexing="ij")
    np.save(features / "2007_000000.npy", coded)
    data = net({"root": str(root), "split": "train", "features": str(features), "blob": blob, "crop": crop,
                "tops": ["features", *TOPS[1:]]}, "FeatureDataLayer")
    flips = set()
    for _ in range(25):
        got = blobs(data)
        rows, columns = got["features"][0][:, 0].astype(int), got["features"][1][0].astype(int)
        assert got["features"].shape == ((coded.shape[0], 5 - fewer, 5 - fewer) if crop else coded.shape)
        if fewer:
            rows, columns = map(edges_beside, (rows, columns))
        # the pixels between the first and the last cell, in the order shown; a cell's own is that after its edge
        flips.add(flipped := columns[0] > columns[-1])
        columns = columns - flipped
        spans = [[p for p in np.arange(cells[0], cells[-1], step) if 0 <= p < border]
                 for cells, border, step in ((rows, 75, 1), (columns, 100, -1 if flipped else 1))]
        cells = [side.clip(min(span), max(span)) for side, span in zip((rows, columns), spans)]
        same(got, expected_supervision(*spans, *cells, mask, objects))
    assert flips == {False, True}
    (features / "index.json").write_text(json.dumps({"size": 64, "blob": blob}))
    message = f"has {11 - fewer} x {14 - fewer} cells; .* at size 64 and stride 8 has {7 - fewer} x {9 - fewer};"
    with pytest.raises(ImageError, match=f"2007_000000.npy: {message}"):
        FeatureSamples(still(root, features=str(features), blob=blob))[0]


def edges_beside(middles):
    """The edges before, between and after cells of 8 pixels, in their order."""
    half = 4 if middles[0] < middles[-1] else -4
    return np.append(middles - half, middles[-1] + half)


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
    got = blobs(net(still(voc, tops=["data", "boxes", "tags", "filled_boxes"], tags_from="annotations")))
    cat, dog, sheep = (VOC_CLASSES.index(name) for name in ("cat", "dog", "sheep"))
    assert got["boxes"].tolist() == [
        [cat, 0, 1, 7, 3],          # columns 8..16: cells 1 and 2; all rows
        [dog, 1, 1, 2, 2],          # between cells: the nearest, (8, 8)
        [sheep, 5, 0, 7, 9],        # rows 39..47, clipped: cells 40 and 47; all columns
    ]
    assert np.flatnonzero(got["tags"]).tolist() == sorted([0, cat, dog, sheep])
    filled = np.zeros((7, 9))       # the smaller the box, the more it says: 18, 14 and 1 cells
    filled[5:7] = sheep
    filled[:, 1:3] = cat
    filled[1, 1] = dog
    assert np.array_equal(got["filled_boxes"], [filled])


def test_features_of_another_blob_have_its_channels_and_cells(voc, tmp_path):
    shapes = {"features": (VGG16.channels, 7, 9), "pool4": (512, 7, 9), "pool3": (256, 6, 8)}
    for blob, shape in shapes.items():
        (tmp_path / blob).mkdir()
        (tmp_path / f"{blob}/index.json").write_text(json.dumps({"size": 64, "blob": blob}))
        for k in range(4):
            np.save(tmp_path / f"{blob}/2007_{k:06d}.npy", np.full(shape, k, np.float16))
        sample, _ = FeatureSamples(still(voc, features=str(tmp_path / blob), blob=blob, tops=["features", "labels"]))[3]
        assert sample["features"].shape == shape and (sample["features"] == 3).all()
        assert sample["labels"].shape == (1, 7, 9)
    for given, wanted in itertools.permutations(shapes, 2):
        with pytest.raises(UserError, match=f"{given}: holds the backbone's {given}, the net needs {wanted}; ccnn"):
            FeatureSamples(still(voc, features=str(tmp_path / given), blob=wanted))
    with pytest.raises(UserError, match="pool4: holds the backbone's pool4"):
        FeatureSamples(still(voc, features=[str(tmp_path / "features"), str(tmp_path / "pool4")]))
    (tmp_path / "pool4/2007_000000.npy").write_bytes((tmp_path / "features/2007_000000.npy").read_bytes())
    with pytest.raises(ImageError, match=r"2007_000000.npy: holds float16 of shape \(1024, 7, 9\); .* of 512 channels"):
        FeatureSamples(still(voc, features=str(tmp_path / "pool4"), blob="pool4"))[0]


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


def test_a_folder_of_images_and_a_csv_are_enough(tmp_path, net):
    table = "image,tags,large\none.jpg,cat,\ntwo 2.png,traffic light; cat,cat\nthree,,\n"
    data = net(own_data(tmp_path / "own", table))
    expected = [(40, [1, 1, 0], [0, 0, 0]), (41, [1, 1, 1], [0, 1, 0]), (42, [1, 0, 0], [0, 0, 0])]
    for width, tags, sizes in expected:
        got = blobs(data)
        assert got["data"].shape == (3, 30, width) and got["tags"].tolist() == tags and got["sizes"].tolist() == sizes


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
             "box of no class": ("unicorn", 1, 1, 20, 20), "box that is not a number": ("cat", "left", 1, 20, 20)}
    if kind in boxes:
        xml.write_text(annotation("2007_000000", (64, 48), [boxes[kind]]))
        return f"{xml}(: the box of 'cat'.*outside the image of 64 x 48|: object 'unicorn' is not|, object 1: bndbox)"
    if kind == "no annotation":
        xml.unlink()
        return f"{xml}: cannot read it: No such file"
    xml.write_text("<annotation><size>")
    return f"{xml}: is not XML"


@pytest.mark.parametrize("kind", [
    "zero-byte image", "truncated image", "no image", "float image", "truncated mask", "label 21", "label 254",
    "RGB mask", "16-bit mask", "mask of another size", "annotation of another size", "box outside", "box inside out",
    "box of no class", "box that is not a number", "no annotation", "half an annotation"])
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


@pytest.mark.parametrize("line", ["../../secret", "/etc/secret", "a/../../../secret", "link"])
def test_lists_cannot_reach_outside_the_root(voc, net, line, tmp_path):
    Image.new("RGB", (64, 48)).save(tmp_path / "secret.jpg")
    (voc / "JPEGImages/link.jpg").symlink_to(tmp_path / "secret.jpg")
    (voc / "ImageSets/Segmentation/train.txt").write_text(f"2007_000000\n{line}\n")
    with pytest.raises(UserError, match="line 2: .* leaves the folder of images|is a link out of the data root"):
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


def test_the_number_of_tops_must_be_right(voc):
    with pytest.raises(UserError, match="needs 1 tops and no bottom; the layer has 5 and 0"):
        text = prototxt({}).replace("param_str: '{", "param_str: '" + json.dumps(still(voc))[:-1] + ", ")
        path = voc / "net.prototxt"
        path.write_text(text.replace(json.dumps(TOPS), '["data"]'))
        caffe.Net(str(path), caffe.TRAIN)
