"""show.py: what stands in the figures, on real logs and real nets; wrong input."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from commands import run_command
from PIL import Image
from scipy.special import softmax
from test_caffelog import glog
from tiny_voc import save_mask as save

import ccnn
from ccnn._util.errors import ImageError, UserError
from ccnn._util.paths import ROOT
from ccnn.cli import show
from ccnn.evaluation import explanation, figures
from ccnn.images.labels import VOC_CLASSES
from ccnn.images.overlays import colours
from ccnn.inference.model_file import read_model, write_model
from ccnn.nets.caffe_files import read_net
from ccnn.supervision.tags_sizes_boxes import size_constraints, tag_constraints
from ccnn.training import caffe_log as caffelog

IDS = [f"2007_{k:06}" for k in range(20)]


def figure(*arguments):
    args = show.parse_args([*map(str, arguments), "--out", "unused.png"])
    return args.draw(args)


# --- panel -----------------------------------------------------------------------------------------------------

@pytest.fixture
def voc(tmp_path):
    """20 images of 12 x 8 pixels; image k is of class k mod 20 + 1, and a/, b/, c/ each see one row more of it."""
    root = tmp_path / "VOC2012"
    (root / "ImageSets/Segmentation").mkdir(parents=True)
    (root / "ImageSets/Segmentation/val.txt").write_text("\n".join(IDS))
    (root / "JPEGImages").mkdir()
    for k, name in enumerate(IDS):
        Image.new("RGB", (12, 8), (10 * k, 100, 100)).save(root / f"JPEGImages/{name}.jpg", quality=100)
        mask = np.zeros((8, 12))
        for rows, folder in ((3, "a"), (4, "b"), (5, "c")):
            mask[:rows] = k % 20 + 1
            save(tmp_path / f"{folder}/{name}.png", mask)
        mask[2:], mask[7] = 0, 255
        save(root / f"SegmentationClass/{name}.png", mask)
    return root


def test_panel_shows_image_truth_and_runs(voc):
    out = voc.parent
    drawn = figure("panel", f"tags={out / 'a'}", f"tags + size={out / 'b'},{out / 'c'}", "--voc", voc,
                   "--ids", f"{IDS[3]},{IDS[7]}")
    axes = np.array(drawn.axes).reshape(2, 5)
    assert [axis.get_title() for axis in axes[0]] == ["image", "truth", "tags", "tags + size", "tags + size with CRF"]
    for k, line in zip((3, 7), axes):
        image, *masks = [axis.images[0].get_array() for axis in line]
        assert abs(image[..., 0].mean() - 10 * k) < 4
        for rows, picture in zip((2, 3, 4, 5), masks):
            assert (picture[:rows] == figures.COLOURS[k + 1]).all()
            assert (picture[rows:7] == 0).all()
        assert (masks[0][7] == (224, 224, 192)).all()
    legend, = drawn.legends
    assert [text.get_text() for text in legend.texts] == ["background", "boat", "cat", "void: not scored"]
    assert legend.get_patches()[1].get_facecolor()[:3] == pytest.approx(figures.COLOURS[4] / 255)


def test_panel_spreads_over_the_split(voc):
    drawn = figure("panel", voc.parent / "a", "--voc", voc)
    reds = [axis.images[0].get_array()[..., 0].mean() / 10 for axis in drawn.axes[::3]]
    assert np.round(reds).tolist() == [0, 3, 7, 11, 15, 19]


@pytest.mark.parametrize("arguments, message", [
    (["--ids", "x"], "--ids: x is not in the split"),
    (["--ids", ","], "--ids: nothing is not in the split"),
    (["--voc", "nowhere"], "nowhere: no such folder"),
    (["--split", "nowhere"], "nowhere.txt: no such list of images"),
    (["--ids", IDS[1]], "000001.png: no such file"),
    (["--ids", IDS[2]], "000002.png: is 5 x 5, need 12 x 8"),
    (["--ids", IDS[3]], "000003.jpg: is damaged|000003.jpg: is not an image"),
    (["--ids", IDS[4]], "000004.png: is 12 x 8, its image 3 x 3"),
])
def test_panel_refuses(voc, arguments, message):
    (voc.parent / f"a/{IDS[1]}.png").unlink()
    save(voc.parent / f"a/{IDS[2]}.png", np.zeros((5, 5)))
    (voc / f"JPEGImages/{IDS[3]}.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut")
    Image.new("RGB", (3, 3)).save(voc / f"JPEGImages/{IDS[4]}.jpg")
    with pytest.raises((UserError, ImageError), match=message):
        figure("panel", voc.parent / "a", "--voc", voc, *arguments)


# --- log -------------------------------------------------------------------------------------------------------

NET = """
layer { name: "data"  type: "DummyData"  top: "data"  top: "tags"
  dummy_data_param { shape { dim: 2 dim: 1 dim: 4 dim: 4 } shape { dim: 2 dim: 3 }
                     data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "fc8"  type: "Convolution"  bottom: "data"  top: "fc8"
  convolution_param { num_output: 3  kernel_size: 1  weight_filler { type: "gaussian" std: 3 } } }
layer { name: "loss"  type: "Python"  bottom: "fc8"  bottom: "tags"  top: "loss"  top: "solver"
  loss_weight: 1  loss_weight: 0
  python_param { module: "constrained_loss"  layer: "ConstrainedLossLayer"  param_str: '{"bg_lower": 0.6}' } }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.02 lr_policy: "exp" gamma: 0.5 max_iter: 5 display: 1 random_seed: 1 ' \
    'average_loss: 1 snapshot: 0 snapshot_after_train: false'
TRAIN = """
import caffe, json
solver = caffe.get_solver("solver.prototxt")
for _ in range(5):
    solver.step(1)
    print(json.dumps([float(solver.net.blobs["loss"].data), solver.net.blobs["solver"].data.tolist()]))
"""


def test_log_of_real_caffe(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    done = subprocess.run([sys.executable, "-c", TRAIN], cwd=tmp_path, text=True, capture_output=True,
                          env={**os.environ, "GLOG_minloglevel": "0"})
    assert done.returncode == 0, done.stderr[-2000:]
    (tmp_path / "train.log").write_text(done.stderr)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    log = caffelog.read_log(tmp_path / "train.log")
    assert list(log.loss) == list(log.lr) == list(log.solver) == [0, 1, 2, 3, 4]
    assert list(log.loss.values()) == pytest.approx([loss for loss, _ in told], rel=1e-4)
    assert list(log.lr.values()) == pytest.approx([0.02 * 0.5 ** k for k in range(5)], rel=1e-4)
    for found, (_, rows) in zip(log.solver.values(), told):
        np.testing.assert_allclose(found, rows, rtol=1e-4)          # 2 images x 4
    assert log.solver[0][:, 0].max() > 0.01                      # something was violated

    loss, violation, seconds, rate = figure("log", tmp_path / "train.log").axes
    assert violation.lines[0].get_ydata() == pytest.approx([np.mean(rows, axis=0)[0] for _, rows in told], rel=1e-4)
    assert seconds.lines[0].get_ydata() == pytest.approx([1e3 * np.mean(rows, axis=0)[3] for _, rows in told], rel=1e-4)
    assert [axis.get_ylabel().split("\n")[0] for axis in (loss, violation, seconds, rate)] == \
        ["loss", "violation by q", "solver time (ms)", "learning rate"]


def test_nan_is_shown(tmp_path):
    path = tmp_path / "x.log"
    path.write_text(glog(0, 2) + glog(20, "nan") + glog(40, "-nan") + glog(60, "inf") + glog(80, 1))
    loss, rate = figure("log", path).axes                           # no solver: no axes for it
    line, crosses = loss.lines
    assert np.isnan(line.get_ydata()).tolist() == [False, True, True, True, False]
    assert list(crosses.get_xdata()) == [20, 40, 60] and crosses.get_color() == figures.ALARM
    assert "3 of the iterations shown, first 20" in loss.get_legend().texts[-1].get_text()
    path.write_text(glog(0, "nan"))
    assert list(figure("log", path).axes[0].lines[1].get_xdata()) == [0]


def test_contradictory_constraints_are_shown(tmp_path):
    path = tmp_path / "x.log"
    path.write_text(glog(0, 1, 0.1, [("solver", v) for v in (0.5, "inf", 3, 0.001)])
                    + glog(20, 1, 0.1, [("solver", v) for v in (0.2, 1e-9, 3, 0.001)]))
    crosses = figure("log", path).axes[1].lines[-1]
    assert list(crosses.get_xdata()) == [0] and "contradictory" in crosses.get_label()


def test_several_logs(tmp_path):
    for name, value in (("one", 1), ("two", 2)):
        (tmp_path / f"{name}.log").write_text(glog(0, value) + glog(20, value))
    axis = figure("log", tmp_path / "one.log", tmp_path / "two.log").axes[0]
    assert [text.get_text() for text in axis.get_legend().texts] == ["one", "two"]
    assert [set(line.get_ydata()) for line in axis.lines] == [{1}, {2}]


@pytest.mark.parametrize("text", [b"", b"no log\n", b"\x00\xff" * 99])
def test_not_a_log(tmp_path, text):
    (tmp_path / "x.log").write_bytes(text)
    with pytest.raises(UserError, match="x.log: has no line `Iteration N, loss = x`"):
        figure("log", tmp_path / "x.log")


# --- constraints -----------------------------------------------------------------------------------------------

def bars(drawn):
    return drawn.axes[-1].patches


def areas(drawn):
    """Widths of the bars of q and of p, one a label and one for all others."""
    widths = np.array([patch.get_width() for patch in bars(drawn)])
    return widths.reshape(2, -1)


def bounds(drawn):
    """{(label's line from above, bound): acts}."""
    axis = drawn.axes[-1]
    lines = [line for line in axis.lines if len(line.get_xdata()) == 4]
    top = round(max(axis.get_yticks()))
    return {(top - round(np.mean(line.get_ydata())), round(line.get_xdata()[1], 3)): line.get_color() == figures.ALARM
            for line in lines}


@pytest.fixture
def scores():
    """Label 0 nearly everywhere; labels 3 and 8 a little."""
    f = np.random.default_rng(0).normal(size=(21, 6, 7)).astype(np.float32)
    f[0] += 6
    return f


def test_explanation_of_tags(scores):
    rgb = np.zeros((48, 56, 3), np.uint8)
    c = tag_constraints(np.isin(np.arange(21), [0, 3, 8]))
    drawn = explanation.draw_explanation(rgb, scores, c, VOC_CLASSES)
    q = softmax(scores.reshape(21, -1).astype(float), axis=0)
    p = ccnn.maximize(np.ascontiguousarray(scores.reshape(21, -1)), c).p
    for found, values in zip(areas(drawn), (q, p)):
        mean = values.mean(axis=1)
        assert found == pytest.approx([mean[0], mean[3], mean[8], mean.sum() - mean[[0, 3, 8]].sum()], abs=1e-5)
    assert bounds(drawn) == {(0, 0.3): False, (0, 0.7): True, (1, 0.05): False, (2, 0.05): False}
    assert areas(drawn)[0, 0] > 0.7 and areas(drawn)[1, 0] == pytest.approx(0.7, abs=1e-4)
    axis = drawn.axes[-1]
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["background", "bird", "cat", "all others"]
    maps = {a.get_title(): a.images[0].get_array() for a in drawn.axes if a.images and a.get_title()}
    np.testing.assert_allclose(maps["p(bird)"].ravel(), p[3], atol=1e-6)
    np.testing.assert_allclose(maps["q(cat)"].ravel(), q[8], atol=1e-6)
    best, shown = p.argmax(axis=0), maps["labels of p"].reshape(-1, 3)
    assert (shown[best == 0] == explanation.PAPER).all() and (best == 3).any()
    assert (shown[best == 3] == colours()[3]).all()


def test_explanation_of_sizes(scores):
    present, large = np.isin(np.arange(21), [0, 3, 8]), np.isin(np.arange(21), [3])
    scores[8] += 6                                                  # the small cat wants too much
    c = size_constraints(present, large)
    drawn = explanation.draw_explanation(np.zeros((48, 56, 3), np.uint8), scores, c, VOC_CLASSES)
    acts = bounds(drawn)
    assert set(acts) == {(0, 0.2), (0, 0.7), (1, 0.1), (2, 0.01)} and acts[2, 0.01]
    assert areas(drawn)[1, 2] == pytest.approx(0.01, abs=1e-4)


DEPLOY = """
layer { name: "data"  type: "Input"  top: "data"  input_param { shape { dim: 1 dim: 3 dim: 33 dim: 33 } } }
layer { name: "fc8"  type: "Convolution"  bottom: "data"  top: "fc8"
  convolution_param { num_output: 3  kernel_size: 9  stride: 8  pad: 4
                      weight_filler { type: "gaussian" std: 0.001 } } }
"""


@pytest.fixture
def model(tmp_path):
    import caffe
    (tmp_path / "net.prototxt").write_text(DEPLOY)
    caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST).save(str(tmp_path / "net.caffemodel"))
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)).save(tmp_path / "photo.png")
    return tmp_path, ["constraints", tmp_path / "photo.png", "--net", tmp_path / "net.prototxt", "--weights",
                      tmp_path / "net.caffemodel", "--classes", tmp_path / "classes.txt"]


def test_constraints_of_a_real_net(model, caplog):
    folder, arguments = model
    out = folder / "new/figure.png"
    for _ in range(2):
        show.main([*map(str, arguments), "--tags", "cat, dog", "--large", "cat", "--out", str(out)])
    assert f"replacing {out}" in caplog.text
    assert np.asarray(Image.open(out)).std() > 10 and list(out.parent.iterdir()) == [out]


SIZE = {"supervision": "size", "bounds": {"fg_lower": 0.15, "fg_beta": "inf", "small_upper": 0.12}}
TAGS = {"supervision": "tags", "bounds": {"fg_lower": 0.07, "bg_upper": 0.6}}


def pack(folder, settings):
    write_model(folder / "model.ccnn", folder / "net.prototxt", folder / "net.caffemodel",
                ("background", "cat", "dog"), 48, settings)
    return ["constraints", folder / "photo.png", "--model", folder / "model.ccnn", "--tags", "cat,dog"]


@pytest.mark.parametrize("large, expected", [
    ("cat", {(0, 0.2), (0, 0.7), (1, 0.15), (2, 0.12)}),
    ("", {(0, 0.2), (1, 0.12), (2, 0.12)}),
])
def test_bounds_are_those_the_model_was_trained_with(model, large, expected, caplog):
    folder, with_net = model
    assert set(bounds(figure(*pack(folder, SIZE), "--large", large))) == expected
    (folder / "net.json").write_text(json.dumps({"size": 48, **SIZE}))          # beside the weights, the same
    assert set(bounds(figure(*with_net, "--tags", "cat,dog", "--large", large))) == expected
    assert "paper" not in caplog.text


def test_bounds_of_a_model_trained_on_tags(model):
    folder, _ = model
    assert set(bounds(figure(*pack(folder, TAGS)))) == {(0, 0.3), (0, 0.6), (1, 0.07), (2, 0.07)}


def test_a_model_that_tells_no_bounds_gets_the_papers_and_a_line_says_so(model, caplog):
    folder, _ = model
    caplog.set_level("INFO")
    assert set(bounds(figure(*pack(folder, {})))) == {(0, 0.3), (0, 0.7), (1, 0.05), (2, 0.05)}
    assert "model.ccnn: does not say which bounds it was trained with; these are the paper's" in caplog.text


@pytest.mark.parametrize("settings, arguments, message", [
    (SIZE, [], "model.ccnn: was trained with sizes: say with --large"),
    (TAGS, ["--large", "cat"], "--large: .*model.ccnn was trained on tags alone; leave it out"),
    ({"supervision": "boxes"}, [], "model.ccnn: was trained on boxes"),
    ({**TAGS, "bounds": {"fg_lower": 7}}, [], "model.ccnn: bounds: fg_lower"),
    ({**TAGS, "bounds": {"lower": 0.1}}, [], "model.ccnn: bounds: .*lower"),
    ({**TAGS, "bounds": {"fg_lower": []}}, [], "model.ccnn: bounds: fg_lower must be a number"),
    (TAGS, ["--size", "40"], "--model says it all"),
    (TAGS, ["--net", "n.prototxt"], "--model says it all"),
])
def test_a_model_refuses(model, settings, arguments, message):
    with pytest.raises(UserError, match=message):
        figure(*pack(model[0], settings), *arguments)


@pytest.mark.parametrize("name", ["head_size", "head_tags", "head_tags_cue"])
def test_the_models_we_ship_tell_the_bounds_of_their_nets(name):
    told = read_model(ROOT / f"models/{name}.ccnn").about["settings"]
    loss, = (layer for layer in read_net(ROOT / f"prototxt/{name.removesuffix('_cue')}.prototxt").layer
             if layer.name == "loss")
    assert {"supervision": told["supervision"], **told["bounds"]} == json.loads(loss.python_param.param_str)


@pytest.mark.parametrize("arguments, message", [
    (["--tags", "cow"], "--tags: tag 'cow' is not a class; known: cat, dog"),
    (["--tags", "cat", "--large", "dog"], "--large: 'dog' is large but not among the tags"),
    (["--tags", "cat", "--weights", "{}/photo.png"], "photo.png: is not a whole .caffemodel"),
    (["--tags", "cat", "--net", "{}/nowhere"], "nowhere"),
])
def test_constraints_refuses(model, arguments, message):
    folder, start = model
    with pytest.raises((UserError, OSError), match=message):
        figure(*start, *[a.format(folder) for a in arguments])


@pytest.mark.parametrize("out, says", [("x.png", "nowhere.log: No such file"),
                                       ("x.gif", "--out x.gif: need a name that ends in .png")])
def test_command(tmp_path, monkeypatch, out, says):
    monkeypatch.chdir(tmp_path)
    done = run_command("show", "log", "nowhere.log", "--out", out)
    assert done.status == 2 and done.err.startswith(f"ccnn show: error: {says}") and done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())
