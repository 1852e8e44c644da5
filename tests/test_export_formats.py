"""Masks in the formats of other programs: written, read back by our own readers and by the programs' libraries."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from ccnn._util.errors import UserError
from ccnn.annotations.export_formats import FORMATS, describe
from ccnn.annotations.import_formats import draw, read_masks, read_source
from ccnn.annotations.outlines import LEAST, TOLERANCE, area, fill, outlines
from ccnn.annotations.regions import Brush, packed, run_lengths, uncompressed
from ccnn.cli import convert, import_tags
from ccnn.images.labels import VOID
from ccnn.images.masks import mask_classes, save_mask
from ccnn.images.reading import read_mask
from ccnn.project.folder import read_folder

CLASSES = ("background", "cat", "polar bear & co")

EXACT = ("masks", "coco", "label-studio", "cvat")


def drawn_masks():
    """{name: mask}: holes, several parts, neighbours, single pixels, the border, nothing."""
    rng = np.random.default_rng(0)
    masks = {f"in/p {k}.jpg": ndimage.gaussian_filter(rng.normal(size=(3, *shape)), (0, 5, 5)).argmax(0)
             for k, shape in enumerate([(120, 160), (150, 100)])}
    masks = {name: mask.astype(np.uint8) for name, mask in masks.items()}
    rings = np.zeros((60, 80), np.uint8)
    rings[5:55, 5:70], rings[10:50, 10:60], rings[20:30, 20:40] = 1, 0, 2         # a hole, and something in it
    rings[22:25, 24:30], rings[0, 79], rings[1, 78], rings[59, :9] = 0, 2, 2, 1       # parts that touch at a corner
    return {**masks, "rings.jpg": rings, "all.jpg": np.full((4, 7), 2, np.uint8),
            "none.jpg": np.zeros((5, 6), np.uint8)}


MASKS = drawn_masks()


def write(format, folder, masks=MASKS, classes=CLASSES):
    """What to read: the folder, or the one file of labels."""
    described = [(name, describe(format, name, mask, classes)) for name, mask in masks.items()]
    for path, data in FORMATS[format].files(described, classes):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return next((folder / name for name in ("tasks.json", FORMATS[format].file) if (folder / name).is_file()), folder)


def farthest(found, mask):
    """How far the pixels that differ are from an edge of the mask."""
    depths = [ndimage.distance_transform_edt(np.pad(mask == label, 1, mode="edge"))[1:-1, 1:-1]
              for label in np.unique(mask)]
    wrong = found != mask
    return max((depth[wrong].max() for depth in depths), default=0) if wrong.any() else 0


# Outlines

@pytest.mark.parametrize("seed", range(40))
def test_exact_outlines_are_the_region(seed):
    rng = np.random.default_rng(seed)
    region = rng.random(rng.integers(1, 30, 2)) < rng.random()
    found = outlines(region, tolerance=0)
    assert (fill(found, region.shape) == region).all()
    assert len(found) == ndimage.label(region)[1]
    assert np.isclose(sum(map(area, found)), region.sum())      # slits take nothing: also by the other rule


@pytest.mark.parametrize("scale, iou", [(2, 0.96), (6, 0.985), (15, 0.99)])
def test_simplified_outlines_stay_within_a_pixel(scale, iou):
    region = ndimage.gaussian_filter(np.random.default_rng(1).normal(size=(200, 300)), scale) > 0
    found = outlines(region)
    again = fill(found, region.shape)
    assert sum(map(len, found)) < 0.6 * sum(map(len, outlines(region, tolerance=0)))
    assert farthest(again, region) <= TOLERANCE + 0.5
    assert (again & region).sum() > iou * (again | region).sum()
    parts, count = ndimage.label(region)
    for points in found:                                        # each part has its own bound
        alone = fill([points], region.shape)
        label = np.bincount(parts[alone & region]).argmax()
        assert (alone & (parts == label)).sum() >= LEAST * (alone | (parts == label)).sum()


def test_thin_lines_do_not_vanish():
    region = np.eye(30, dtype=bool) | np.eye(30, k=1, dtype=bool)
    again = fill(outlines(region), region.shape)
    assert (again & region).sum() >= LEAST * (again | region).sum()


# Round trips

@pytest.mark.parametrize("format", FORMATS)
def test_what_is_written_is_read_again(format, tmp_path):
    source = read_masks(str(write(format, tmp_path)))
    assert sorted(source.classes[1:]) == sorted(CLASSES[1:]) and not source.skipped
    found = {photograph.name.removesuffix(".jpg"): photograph for photograph in source.photographs}
    assert set(found) == {name.removesuffix(".jpg") for name in MASKS}
    order = np.array([source.classes.index(name) for name in CLASSES], np.uint8)
    for name, mask in MASKS.items():
        again = draw(source, found[name.removesuffix(".jpg")], mask.shape)
        if format in EXACT:
            assert (again == order[mask]).all(), name
        assert farthest(again, order[mask]) <= TOLERANCE + 0.5, name
    tags = {name.removesuffix(".jpg"): set(labels.tags) for name, labels in read_source(str(tmp_path if source.kind in (
        "masks", "YOLO", "LabelMe") else write(format, tmp_path)))[1].items()}
    assert tags == {name.removesuffix(".jpg"): {CLASSES[label] for label in np.unique(mask) if label}
                    for name, mask in MASKS.items()}


def test_run_lengths_of_other_programs():
    """What pycocotools.mask.encode and label_studio_sdk.converter.brush.mask2rle make of two regions."""
    region = np.zeros((40, 50), bool)
    region[3:30, 7:40], region[10:12, 9:20] = True, False
    theirs = "k8k0=00\\OE;;EE;;EE;;EE;;EE;;EE;;EE;;EE;;EE;;EE;;EE;;9" + "0" * 38 + "]<"
    assert uncompressed(theirs, "") == run_lengths(region)
    region = np.zeros((6, 9), bool)
    region[1:3, 2:8] = region[4] = True
    theirs = [0, 0, 0, 216, 57, 27, 254, 43, 0, 194, 255, 246, 192, 48, 191, 254, 39, 0, 196, 127, 248, 140, 0]
    assert (Brush(theirs, region.shape, "").draw(region.shape) == region).all()
    for shape in ((5, 7), (1, 9), (300, 400)):
        region = np.random.default_rng(2).random(shape) < 0.5
        assert (Brush(packed(region), shape, "").draw(shape) == region).all()


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "masks"])
def test_the_programs_own_libraries_read_it(format, tmp_path, root):
    """Of regions with an outline the pixels that differ lie on it: LabelMe and YOLO draw the line itself, too."""
    python = root / ".formats/bin/python"
    if not (root / ".formats/complete").exists():
        pytest.skip("needs the programs' libraries: make test-formats")
    (tmp_path / "labels").mkdir()
    for name, mask in MASKS.items():
        path = tmp_path / "photographs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", mask.shape[::-1]).save(path)
    write(format, tmp_path / "labels")
    done = subprocess.run([python, root / "tests/read_with_tools.py", format, tmp_path / "labels",
                           tmp_path / "photographs", tmp_path / "found.npz"], capture_output=True, text=True,
                          env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr[-3000:]
    found = np.load(tmp_path / "found.npz")
    assert {name.replace("|", "/") + ".jpg" for name in found.files} >= {name for name in MASKS if name != "none.jpg"}
    for name in found.files:
        mask = MASKS[name.replace("|", "/") + ".jpg"]
        if format in EXACT:
            assert (found[name] == mask).all(), name
        far = 2.3 if format in ("yolo", "labelme") else TOLERANCE + 0.5
        assert farthest(found[name], mask) <= far, name
        assert not mask.any() or (found[name] == mask).mean() > 0.8, name


# ccnn convert

@pytest.fixture
def folder(tmp_path, monkeypatch):
    """masks/, as ccnn segment writes them, and photos/"""
    monkeypatch.chdir(tmp_path)
    for name, mask in MASKS.items():
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", mask.shape[::-1]).save(tmp_path / "photos" / name)
        save_mask((tmp_path / "masks" / name).with_suffix(".png"), mask, {}, CLASSES)
    return tmp_path


@pytest.mark.parametrize("format", FORMATS)
def test_convert_there_and_back(format, folder, capsys):
    convert.main(["masks", "--photos", "photos", "--to", format, "--out", "out.zip"])
    assert "5 photographs; cat in 3, polar bear & co in 4" in capsys.readouterr().out
    shutil.unpack_archive("out.zip", "out")
    back = next((name for name in ("out/tasks.json", f"out/{FORMATS[format].file}") if os.path.isfile(name)), "out")
    convert.main([back, "--photos", "photos", "--to", "masks", "--out", "again"])
    for name, mask in MASKS.items():
        path = (folder / "again" / name).with_suffix(".png")
        names = mask_classes(path)
        order = np.array([names.index(name) for name in CLASSES])
        found = read_mask(path, 3)
        assert farthest(found, order[mask]) <= (0 if format in EXACT else TOLERANCE + 0.5)


@pytest.mark.parametrize("arguments, message", [
    ("nowhere --to coco --out a.json", "nowhere: no such file or folder"),
    ("photos --to coco --out a.json", "tags or boxes alone, which says nothing of pixels"),
    ("masks --to coco --out photos", "--out photos: is a folder; name the file, such as photos/coco.json"),
    ("masks --to yolo --out a.json", "has several files; name a folder, or an archive .zip"),
    ("masks --to masks --out photos", "--out photos: exists already; --force overwrites it"),
    ("masks --to coco --out a.json --classes zebra", ""),
    ("yolo --to masks --out a", "does not say how large 'all' is; name the folder of the photographs with --photos"),
    ("own --photos photos --to coco --out a.json", "own: has model.ccnn, .*; leave out --photos"),
    ("tags.csv --to masks --out a", "is a table .*, which says nothing of pixels; ccnn import-tags reads it"),
    ("other.json --photos photos --to masks --out a", "a mask of 9 x 9 pixels, for a photograph of 7 x 4"),
    ("twice.json --to masks --out a", "labels 'all.jpg' more than once"),
])
def test_convert_says_what_is_wrong(arguments, message, folder):
    write("yolo", folder / "yolo")
    (folder / "own").mkdir()
    (folder / "own/model.ccnn").write_bytes(b"")
    write("coco", folder, {"all.jpg": np.ones((9, 9), np.uint8)})
    os.rename("coco.json", "other.json")
    write("coco", folder, {"all.jpg": np.ones((9, 9), np.uint8)})
    data = json.loads((folder / "coco.json").read_text())
    data["images"].append({**data["images"][0], "id": 2})
    (folder / "twice.json").write_text(json.dumps(data))
    (folder / "tags.csv").write_text("image,tags\nall.jpg,cat\n")
    if "zebra" in arguments:
        convert.main(arguments.split())         # nothing of that class: masks without it
        assert not json.loads((folder / "a.json").read_text())["annotations"]
        return
    with pytest.raises(UserError, match=message) as error:
        convert.main(arguments.split())
    assert "\n" not in str(error.value)
    assert not (folder / "a").exists() and not (folder / "a.json").exists()


@pytest.mark.parametrize("rules, link, option", [
    ('[scribbles]\nfolder = "../home"\n', None, "--marks"), ("[scribbles]\n", "scribbles", "--marks"),
    ("", "scribbles", "--marks"), ("", "Annotations", "--boxes")])
def test_marks_and_boxes_stay_in_the_folder(rules, link, option, folder):
    write("coco", folder, {"all.jpg": MASKS["all.jpg"]})
    (folder / "home").mkdir()
    Path("photos/constraints.toml").write_text(rules)
    if link:
        Path("photos", link).symlink_to("../home")
    with pytest.raises(UserError, match="lies outside of photos"):
        import_tags.main(["coco.json", "--photos", "photos", option, "--write", "--force"])
    assert not any(Path("home").iterdir()) and not Path("photos/classes.txt").exists()


@pytest.mark.parametrize("out", ["a/b/out", "a/b/out.zip"])
@pytest.mark.parametrize("names, message", [
    (["good.jpg", "../../escaped.jpg"], "is not the name of a photograph below a folder"),
    (["/absolute.jpg"], "is not the name of a photograph below a folder"),
    (["..\\..\\escaped.jpg"], "is not the name of a photograph below a folder"),
    ([""], "is not the name of a photograph below a folder"),
    (["a.jpg", "a.png"], "labels 'a.jpg' and 'a.png' more than once"),         # both would be a.png
])
def test_names_of_a_strangers_labels_stay_in_the_folder(names, message, out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [name.replace("/absolute", f"{tmp_path}/absolute") for name in names]
    write("coco", tmp_path, {name: np.ones((4, 5), np.uint8) for name in map(str, range(len(names)))})
    data = json.loads(Path("coco.json").read_text())
    for image, name in zip(data["images"], names):
        image["file_name"] = name
    Path("coco.json").write_text(json.dumps(data))
    for format in ("masks", "yolo", "labelme"):
        with pytest.raises(UserError, match=message):
            convert.main(["coco.json", "--to", format, "--out", out])
    assert os.listdir(tmp_path) == ["coco.json"]


# ccnn import-tags: what can be trained on

@pytest.mark.parametrize("format", FORMATS)
def test_masks_become_marks_that_learn_reads(format, folder):
    source = write(format, folder / "labels")
    import_tags.main([str(source), "--photos", "photos", "--marks", "--write"])
    found = read_folder("photos")
    assert set(found.classes) == set(CLASSES) and len(found.photographs) == len(MASKS)
    order = np.array([found.classes.index(name) for name in CLASSES])
    found.rules.scribbles.check({id: known.present for id, known in found.photographs.items()})
    for name, mask in MASKS.items():
        marks = found.rules.scribbles.read(name.removesuffix(".jpg"))
        if not mask.any() and format != "masks":
            assert marks is None
            continue
        known = marks != VOID
        assert format != "masks" or known.all()
        wrong = known & (marks != order[mask])
        assert (known == (mask > 0)).all() or format not in EXACT[1:], name
        assert not wrong.any() or format not in EXACT, name
        assert wrong.sum() < 0.1 * mask.size, name
    import_tags.main([str(source), "--photos", "photos", "--marks", "--write"])         # again: nothing is said twice
    assert (folder / "photos/constraints.toml").read_text() == "[scribbles]\n"


@pytest.mark.parametrize("format", ["coco", "yolo", "labelme"])
def test_boxes_become_annotations_that_learn_reads(format, folder):
    with pytest.raises(UserError, match="in/p 0.jpg: lies in a folder of its own"):
        import_tags.main([str(write(format, folder / "deep")), "--photos", "photos", "--boxes"])
    masks = {name: mask for name, mask in MASKS.items() if "/" not in name}
    source = write(format, folder / "labels", masks)
    import_tags.main([str(source), "--photos", "photos", "--boxes", "--write"])
    found = read_folder("photos")
    assert found.system == "boxes" and not (folder / "photos/tags.csv").exists()
    for name, mask in masks.items():
        boxes = found.photographs[name.removesuffix(".jpg")].boxes
        covered = np.zeros(mask.shape, bool)
        for label, y0, x0, y1, x1 in boxes:
            covered[int(y0):int(y1), int(x0):int(x1)] = True
            assert found.classes[label] in CLASSES
        assert (covered | (mask == 0)).all(), name
    (folder / "photos/tags.csv").write_text("image,tags\nall.jpg,cat\n")
    with pytest.raises(UserError, match="tags.csv exists, and ccnn learn would use it"):
        import_tags.main([str(source), "--photos", "photos", "--boxes"])
