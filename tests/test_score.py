"""score.py: against scikit-learn on random and real masks; the tables; the server's archive; wrong input."""
import json
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
from commands import run_command
from PIL import Image
from sklearn.metrics import confusion_matrix, jaccard_score, recall_score
from tiny_voc import save_mask as save

from ccnn._util.errors import ImageError, UserError
from ccnn.cli import score
from ccnn.images import labels, read_mask
from ccnn.images.labels import VOC_CLASSES, palette

IDS = ["2007_000001", "2007_000002", "2007_000003"]


@pytest.fixture
def voc(tmp_path):
    """A VOC folder with random truth (void included), and random predictions in a/, a_crf/ and b/."""
    rng = np.random.default_rng(0)
    root = tmp_path / "VOC2012"
    for split in ("val", "test"):
        path = root / f"ImageSets/Segmentation/{split}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{name}\n" for name in IDS))
    for k, name in enumerate(IDS):
        shape = 20 + k, 30
        truth = rng.integers(0, 21, shape) ** 2 // 20           # high labels are rarer and harder
        truth[rng.random(shape) < 0.2] = 255
        save(root / f"SegmentationClass/{name}.png", truth)
        (root / "JPEGImages").mkdir(exist_ok=True)
        Image.new("RGB", shape[::-1]).save(root / f"JPEGImages/{name}.jpg")
        for folder, errors in (("a", 0.5), ("a_crf", 0.3), ("b", 0.8)):
            wrong = (rng.random(shape) < errors * truth / 10) | (truth == 255)
            save(tmp_path / f"{folder}/{name}.png", np.where(wrong, rng.integers(0, 21, shape), truth))
    return root


def run(voc, *arguments):
    score.main([*map(str, arguments), "--voc", str(voc)])


def result(voc, *arguments):
    """The rows of the JSON."""
    path = voc.parent / "result.json"
    path.unlink(missing_ok=True)
    run(voc, *arguments, "--out", path)
    return json.loads(path.read_text())["rows"]


def pixels(root, folder, names):
    """All labelled pixels of the truth and their predictions, flat."""
    pairs = [(read_mask(root / f"SegmentationClass/{n}.png"), read_mask(folder / f"{n}.png")) for n in names]
    return [np.concatenate(arrays) for arrays in zip(*((t[t != 255], p[t != 255]) for t, p in pairs))]


def assert_agrees_with_sklearn(row, truth, prediction):
    labels = np.arange(21)
    assert row["confusion"] == confusion_matrix(truth, prediction, labels=labels).tolist()
    seen = np.union1d(truth, prediction)
    iou = jaccard_score(truth, prediction, labels=seen, average=None, zero_division=0)
    np.testing.assert_allclose([row["iou"][l] for l in seen], 100 * iou)
    assert all(row["iou"][l] is None for l in set(labels) - set(seen))
    assert row["miou"] == pytest.approx(100 * iou.mean())
    assert row["overall"] == pytest.approx(100 * (truth == prediction).mean())
    recall = recall_score(truth, prediction, labels=np.unique(truth), average=None)
    assert row["mean"] == pytest.approx(100 * recall.mean())


def test_random_masks(voc):
    rows = result(voc, f"A={voc.parent / 'a'},{voc.parent / 'a_crf'}", voc.parent / "b")
    assert [(row["name"], row["crf"]) for row in rows] == [("A", False), ("A", True), ("b", False)]
    for row, folder in zip(rows, ("a", "a_crf", "b")):
        assert_agrees_with_sklearn(row, *pixels(voc, voc.parent / folder, IDS))


def test_real_masks(tmp_path):
    real = Path(__file__).parent / "sample"
    names = (real / "ImageSets/Segmentation/train.txt").read_text().split()
    split = tmp_path / "some.txt"
    split.write_text("\n".join(names))
    for name in names:                          # shifted truth, void painted over
        mask = np.roll(read_mask(real / f"SegmentationClass/{name}.png"), (5, -9), (0, 1))
        mask[mask == 255] = 0
        save(tmp_path / f"shifted/{name}.png", mask)
    run(real, tmp_path / "shifted", "--split", split, "--out", tmp_path / "r.json")
    row, = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert_agrees_with_sklearn(row, *pixels(real, tmp_path / "shifted", names))
    assert 20 < row["miou"] < 95 and row["split"] == "some"


def test_absent_class_is_left_out_and_invented_class_counts_as_0(tmp_path, capsys):
    """Truth: background and cats. A prediction of birds gives bird an IoU of 0; cow stays without one."""
    root = tmp_path / "VOC2012"
    (root / "ImageSets/Segmentation").mkdir(parents=True)
    (root / "ImageSets/Segmentation/val.txt").write_text("x\n")
    save(root / "SegmentationClass/x.png", [[0, 0, 8, 8, 255]])
    save(tmp_path / "good/x.png", [[0, 0, 8, 8, 10]])          # the cow is on a void pixel
    save(tmp_path / "bird/x.png", [[0, 0, 8, 3, 10]])
    good, bird = result(root, tmp_path / "good", tmp_path / "bird")
    assert good["miou"] == 100 and good["iou"] == [100 if l in (0, 8) else None for l in range(21)]
    assert bird["miou"] == pytest.approx((100 + 50 + 0) / 3)
    assert bird["iou"][3] == 0 and bird["iou"][10] is None
    assert bird["mean"] == 75                                   # over the true labels only
    assert " - " in capsys.readouterr().out


def test_truth_is_vocs_mask_and_sbds_only_where_voc_has_none(voc):
    expected = result(voc, voc.parent / "a")
    for name in IDS:
        save(voc / f"SegmentationClassAug/{name}.png", np.zeros((5, 5)))
    (voc / f"SegmentationClass/{IDS[0]}.png").replace(voc / f"SegmentationClassAug/{IDS[0]}.png")
    assert result(voc, voc.parent / "a") == expected


def test_one_confusion_matrix_not_a_mean_over_images(tmp_path):
    root = tmp_path / "VOC2012"
    (root / "ImageSets/Segmentation").mkdir(parents=True)
    (root / "ImageSets/Segmentation/val.txt").write_text("x\ny\n")
    save(root / "SegmentationClass/x.png", [[1] * 9])
    save(root / "SegmentationClass/y.png", [[1]])
    save(tmp_path / "p/x.png", [[1] * 9])
    save(tmp_path / "p/y.png", [[0]])
    row, = result(root, tmp_path / "p")
    assert row["iou"][:2] == [0, 90] and row["miou"] == 45


# --- the tables ------------------------------------------------------------------------------------------------

def table(text, start):
    """{first cell: other cells} of the table that begins so, from text or Markdown."""
    lines = text[text.index(start):].split("\n\n")[0].splitlines()
    rows = [re.split(r"\s*\|\s*|\s{2,}", line.strip("| ")) for line in lines if not line.startswith("| ---")]
    return {row[0]: row[1:] for row in rows}


def test_text_markdown_and_json_say_the_same(voc, capsys):
    out = voc.parent
    run(voc, f"my tags={out / 'a'},{out / 'a_crf'}", f"only crf=,{out / 'b'}", "--paper",
        "--out", out / "r.txt", "--out", out / "r.md", "--out", out / "r.json")
    printed, markdown = capsys.readouterr().out, (out / "r.md").read_text()
    rows = json.loads((out / "r.json").read_text())["rows"]
    assert (out / "r.txt").read_text() in printed

    summary, detail = table(printed, "method"), table(printed, "IoU  ")
    assert summary == table(markdown, "| method") and detail == table(markdown, "| IoU")
    assert summary["my tags"][1:3] == [f"{row['miou']:.1f}" for row in rows[:2]]
    assert summary["only crf"][1:3] == ["-", f"{rows[2]['miou']:.1f}"]
    assert abs(rows[0]["overall"] - rows[0]["mean"]) > 1        # else they could be swapped
    assert summary["my tags"][3:] == [f"{row[k]:.1f}" for k in ("overall", "mean") for row in rows[:2]]
    assert summary["paper: CCNN size"] == ["test", "-", "43.3", "-", "-", "-", "-"]     # after val's, which is
    assert printed.index("40.5         42.4") < printed.index("43.3")                   # side by side
    assert detail["IoU"][1:] == "bgnd aero bike bird boat bottle bus car cat chair cow table dog horse mbike person " \
        "plant sheep sofa train tv mIoU".split()
    assert detail["my tags w/ CRF"] == ["val"] + [f"{v:.1f}" for v in rows[1]["iou"] + [rows[1]["miou"]]]
    assert list(detail)[1:4] == ["my tags w/o CRF", "my tags w/ CRF", "only crf w/ CRF"]


def test_without_crf_the_tables_do_not_mention_it(voc, capsys):
    run(voc, voc.parent / "a")
    printed = capsys.readouterr().out
    assert "CRF" not in printed and table(printed, "method")["method"] == ["set", "mIoU", "accuracy", "mean acc."]


def test_runs_of_one_name_are_kept_apart(voc, capsys):
    run(voc, f"seeds={voc.parent / 'a'}", f"seeds={voc.parent / 'b'}")
    assert len(re.findall("^seeds ", capsys.readouterr().out, re.M)) == 4


def test_stored_results_join_the_table(voc, capsys):
    first = result(voc, f"A={voc.parent / 'a'},{voc.parent / 'a_crf'}", "--paper")
    stored = voc.parent / "stored.json"
    (voc.parent / "result.json").rename(stored)
    second = result(voc, voc.parent / "b", stored)
    assert [row["name"] for row in second] == ["b", "A", "A"] and second[1:] == first[:2]
    assert result(voc, stored) == first[:2]
    (voc / "ImageSets/Segmentation/val.txt").write_text("\n".join(IDS[:2]))
    with pytest.raises(UserError, match="stored.json: was scored with images 3, this with 2"):
        run(voc, voc.parent / "b", stored)
    whole = stored.read_text()
    for text in ("{", "[]", "{}", '{"rows": [{}]}', '{"rows": [], "split": 1}', whole.replace("[[", "[[-"),
                 whole.replace("[[", "[[1, "), whole.replace("[[", "[[0.5+"), whole.replace('"A"', "7")):
        stored.write_text(text)
        with pytest.raises(UserError, match="stored.json: not a result"):
            run(voc, stored)


def test_own_classes(voc, capsys):
    names = voc.parent / "classes.txt"
    names.write_text("\n".join(f"thing{k}" for k in range(1, 21)))
    run(voc, voc.parent / "a", "--classes", names)
    assert "thing20" in capsys.readouterr().out
    names.write_text("\n".join(f"thing{k}" for k in range(1, 20)))
    with pytest.raises(ImageError, match="holds label 20"):
        run(voc, voc.parent / "a", "--classes", names)


def test_confusion_picture(voc, monkeypatch):
    import matplotlib.axes
    drawn, imshow = [], matplotlib.axes.Axes.imshow
    monkeypatch.setattr(matplotlib.axes.Axes, "imshow", lambda self, a, **k: drawn.append(a) or imshow(self, a, **k))
    path = voc.parent / "confusion.png"
    run(voc, f"A={voc.parent / 'a'},{voc.parent / 'a_crf'}", voc.parent / "b", "--confusion", path)
    assert len(drawn) == 3
    truth, prediction = pixels(voc, voc.parent / "a_crf", IDS)
    C = confusion_matrix(truth, prediction, labels=range(21))
    np.testing.assert_allclose(drawn[1], 100 * C / np.maximum(C.sum(axis=1, keepdims=True), 1))  # rows: true labels
    assert np.asarray(Image.open(path)).std() > 10


# --- the server's archive --------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["results.tar", "results.tgz"])
def test_server_archive(voc, name):
    for png in (voc.parent / "a").glob("*.png"):                # gray masks are made indexed
        Image.fromarray(read_mask(png)).save(png)
    (voc / "SegmentationClass").rename(voc / "hidden")          # the test set has no truth
    run(voc, voc.parent / "a", "--split", "test", "--server", voc.parent / name)
    with tarfile.open(voc.parent / name) as tar:
        assert tar.getnames() == [f"results/VOC2012/Segmentation/comp6_test_cls/{i}.png" for i in IDS]
        for member in tar:
            mask = Image.open(tar.extractfile(member))
            assert member.isreg() and mask.mode == "P" and mask.getpalette() == palette()
            assert (np.asarray(mask) == read_mask(voc.parent / "a" / Path(member.name).name)).all()


def test_server_archive_is_whole_or_not_there(voc, caplog):
    path = voc.parent / "results.tar"
    (voc / "SegmentationClass").rename(voc / "hidden")
    run(voc, voc.parent / "a", "--split", "test", "--server", path)
    before = path.read_bytes()
    save(voc.parent / f"a/{IDS[2]}.png", np.zeros((5, 5)))
    with pytest.raises(UserError, match=r"000003.png: is 5 x 5, need 30 x 22 as .*000003.jpg"):
        run(voc, voc.parent / "a", "--split", "test", "--server", path)
    assert path.read_bytes() == before and not list(voc.parent.glob(".*"))
    assert f"replacing {path}" in caplog.text
    (voc / f"JPEGImages/{IDS[0]}.jpg").write_bytes(b"")
    with pytest.raises(ImageError, match="000001.jpg"):
        run(voc, voc.parent / "a", "--split", "test", "--server", path)


def test_the_server_gets_no_images_whose_masks_are_known(voc):
    path = voc.parent / "results.tar"
    with pytest.raises(UserError, match="--split val: 2007_000001 has a true mask in .*; pack .* with --split test"):
        run(voc, voc.parent / "a", "--server", path)
    assert not path.exists()


# --- wrong input -----------------------------------------------------------------------------------------------

def prediction(content):
    def change(voc):
        path = voc.parent / "a/2007_000002.png"
        path.write_bytes(content) if isinstance(content, bytes) else save(path, content)
    return change


def truncated(voc):
    path = voc.parent / "a/2007_000002.png"
    path.write_bytes(path.read_bytes()[:-40])


def colours(voc):
    Image.new("RGB", (30, 21)).save(voc.parent / "a/2007_000002.png")


def listed(text):
    return lambda voc: (voc / "ImageSets/Segmentation/val.txt").write_bytes(text)


@pytest.mark.parametrize("change, arguments, message", [
    (lambda voc: (voc.parent / "a/2007_000002.png").unlink(), [], r"a/2007_000002.png: missing; ccnn segment"),
    (lambda voc: [p.unlink() for p in (voc.parent / "a").glob("*")], [], "000001.png: missing, as are 2 more of 3"),
    (lambda voc: (voc / "SegmentationClass/2007_000002.png").unlink(), [], "000002.png: missing; 1 of 3 images"),
    (prediction(np.zeros((30, 21))), [], "000002.png: is 21 x 30, need 30 x 21 as .*SegmentationClass"),
    (prediction(np.full((21, 30), 21)), [], "000002.png: holds label 21"),
    (prediction(np.full((21, 30), 255)), [], r"000002.png: holds 255 \(void\)"),
    (prediction(b""), [], "000002.png: is empty"),
    (truncated, [], "000002.png: is damaged"),
    (colours, [], "000002.png: is a picture of mode RGB"),
    (listed(b""), [], "val.txt: lists no images"),
    (listed(b"../../x\n"), [], "not an image id"),
    (listed(b"x\nx\n"), [], "val.txt, line 2: lists 'x' twice, first in line 1"),
    (listed(b"\xff\xfe"), [], "not a text file"),
    (None, ["--split", "none"], r"none.txt: no such list of images \(there: .*val\), and 'none' is not a file"),
    (None, ["nowhere"], "nowhere: no such folder of masks"),
    (None, ["x=nowhere,"], "nowhere: no such folder"),
    (None, ["x=,"], "'x=,': names no folder"),
    (None, ["x=a,b,c"], "3 folders; a run has one, or two"),
    (None, ["nowhere.json"], "nowhere.json"),
    (None, ["--out", "x.csv"], "need a name that ends in .txt, .md or .json"),
    (None, ["--confusion", "x.jpg"], "need a name that ends in .png"),
    (None, ["--server", "x.zip"], "need a name that ends in .tar"),
    (None, [".", "--server", "x.tar"], "give one RUN"),
    (None, ["--classes", "nowhere.txt"], "nowhere.txt: cannot read the class list"),
    (None, ["--paper", "--classes", "any.txt"], "--paper has VOC's classes"),
])
def test_wrong_input(voc, change, arguments, message):
    if change:
        change(voc)
    out = voc.parent / "result.json"
    with pytest.raises((UserError, ImageError, OSError, ValueError), match=message):
        run(voc, voc.parent / "a", *arguments, "--out", out)
    assert not out.exists()


def test_command(voc):
    done = run_command("score", voc.parent / "a", "--voc", voc)
    assert done.status == 0 and "mIoU" in done.out and not done.err
    colours(voc)
    done = run_command("score", voc.parent / "a", "--voc", voc)
    assert done.status == 2 and done.err.startswith("ccnn score: error: ") and done.err.count("\n") == 1



def test_replacing_is_said(voc, caplog):
    run(voc, voc.parent / "a", "--out", voc.parent / "r.md")
    assert "replacing" not in caplog.text
    run(voc, voc.parent / "a", "--out", voc.parent / "r.md")
    assert f"replacing {voc.parent / 'r.md'}" in caplog.text


def test_classes_are_vocs():
    assert tuple(labels.SHORT) == VOC_CLASSES
