"""Kinds of supervision: the tables agree with themselves, and a new kind is one entry that trains in real Caffe."""
import json

import caffe
import numpy as np
import pytest
from data_nets import still
from sample_voc import make_sample
from scipy.special import softmax
from tiny_voc import make_voc

import ccnn
from ccnn._util.errors import UserError
from ccnn.data.samples import Samples
from ccnn.images.labels import BACKGROUND, VOC_CLASSES, VOID
from ccnn.solver.constraints import Constraints
from ccnn.supervision.baselines import log_softmax
from ccnn.supervision.constraint_builder import violation
from ccnn.supervision.kinds import (
    SIZES_BLOB,
    SUPERVISION,
    TAGS_BLOB,
    TRIAL,
    Supervision,
    SupervisionBlob,
    all_blobs,
    flags,
)
from ccnn.supervision.tags_sizes_boxes import tag_constraints

# The entries

def test_the_kinds_and_their_blobs():
    assert {name: kind.names for name, kind in SUPERVISION.items()} == {
        "tags": ("tags",), "share": ("tags", "share"), "size": ("tags", "sizes"), "boxes": ("boxes",)}
    assert list(all_blobs()) == ["tags", "share", "sizes", "boxes", "cue", "labels", "filled_boxes", "number"]
    assert SUPERVISION["boxes"].bounds == {"fraction": 0.75, "beta": 10.0}
    assert "shape" not in SUPERVISION["size"].bounds and SUPERVISION["size"].fits_any_image
    assert not SUPERVISION["boxes"].fits_any_image


@pytest.mark.parametrize("kind", SUPERVISION.values(), ids=lambda kind: kind.function.__name__)
def test_examples_are_what_the_blobs_hold(kind):
    """The trial is the same as a call with blobs that hold the examples."""
    arrays = [np.array(blob.example, np.float32) for blob in kind.blobs]
    c, expected = kind.constraints(arrays, TRIAL["labels"], TRIAL["shape"]), kind.trial()
    assert np.array_equal(c.A, expected.A) and np.array_equal(c.b, expected.b)
    assert np.array_equal(c.allowed, expected.allowed)
    assert ccnn.maximize(np.zeros((2, 4), np.float32), c).status == "optimal"
    for blob, array in zip(kind.blobs, arrays):
        assert np.prod([size or 1 for size in blob.expected(1, 2, 2, 2)]) == array.size


@pytest.mark.parametrize("blob, shape, fits, words", [
    ("tags", (3, 21), True, "3 x 21"), ("tags", (3, 21, 1, 1), True, "3 x 21"), ("tags", (3, 20), False, "3 x 21"),
    ("tags", (1, 21), False, "3 x 21"), ("tags", (63,), False, "3 x 21"), ("tags", (1, 3, 21), False, "3 x 21"),
    ("boxes", (3, 7, 5), True, "3 x B x 5"), ("boxes", (3, 7, 4), False, "3 x B x 5"),
    ("boxes", (3, 5), False, "3 x B x 5"),
    ("labels", (3, 1, 4, 6), True, "3 x 1 x 4 x 6"), ("labels", (3, 4, 6), True, "3 x 1 x 4 x 6"),
    ("labels", (3, 1, 6, 4), False, "3 x 1 x 4 x 6"), ("labels", (1, 3, 4, 6), False, "3 x 1 x 4 x 6"),
])
def test_shapes_that_fit_scores(blob, shape, fits, words):
    scores = 3, 21, 4, 6
    blob = all_blobs()[blob]
    assert blob.fits(shape, *scores) == fits and blob.words(*scores) == words


def test_bits_are_bits():
    assert flags("tags", np.array([[1, 0, 1]], np.float32)).tolist() == [True, False, True]
    with pytest.raises(ValueError, match="sizes must be 0 or 1; got 0.5"):
        SIZES_BLOB.read(np.array([1, 0.5]))


# A kind of one's own

def mostly_above(crop):
    """(L,) 1 where at least half of a label lies in the upper half of the grid."""
    cells = crop.label_cells()
    rows = np.arange(len(cells))[:, None] < len(cells) / 2
    return np.array([np.sum((cells == l) & rows) >= np.sum((cells == l) & ~rows) and l in cells
                     for l in range(crop.labels)], np.float32)


UPPER = SupervisionBlob("upper", "1 where a label lies in the upper half", ("L",), "mask", make=mostly_above,
             read=lambda values: flags("upper", values), example=np.array([False, True]))


def halves_constraints(present, upper, shape, upper_beta=5.0):
    """As many pixels of every upper label above the middle as below, besides the tags' constraints."""
    height, width = shape
    above = np.where(np.arange(height) < height / 2, 1.0, -1.0).repeat(width)
    labels = np.flatnonzero(upper & present)
    rows = Constraints(np.eye(len(present))[labels], np.zeros(len(labels)), np.full(len(labels), upper_beta), None,
                       np.tile(above, (len(labels), 1)))
    return tag_constraints(present) & rows


@pytest.fixture
def halves(monkeypatch):
    monkeypatch.setitem(SUPERVISION, "halves", Supervision([TAGS_BLOB, UPPER], halves_constraints))


def net_of_halves(root, **settings):
    tops = ["data", *SUPERVISION["halves"].names]
    blobs = " ".join(f'top: "{top}"' for top in tops)
    bottoms = " ".join(f'bottom: "{top}"' for top in ["fc8", *tops[1:]])
    data, loss = still(root, tops=tops), {"supervision": "halves", **settings}
    return f"""
        layer {{ name: "data" type: "Python" {blobs}
          python_param {{ module: "voc_data" layer: "VOCDataLayer" param_str: '{json.dumps(data)}' }} }}
        layer {{ name: "fc8" type: "Convolution" bottom: "data" top: "fc8"
          convolution_param {{ num_output: 21 kernel_size: 1 stride: 8
                              weight_filler {{ type: "gaussian" std: 0.01 }} }} }}
        layer {{ name: "loss" type: "Python" {bottoms} top: "loss" loss_weight: 1
          python_param {{ module: "constrained_loss" layer: "ConstrainedLossLayer"
                         param_str: '{json.dumps(loss)}' }} }}"""


def test_a_new_kind_is_one_entry(halves, tmp_path):
    """One iteration of SGD on a photograph: data layer, net, loss layer, and weights that moved."""
    root = make_sample(tmp_path / "voc")
    (root / "ImageSets/Segmentation/train.txt").write_text("astronaut\n")
    (tmp_path / "net.prototxt").write_text(net_of_halves(root))
    (tmp_path / "solver.prototxt").write_text(
        f'net: "{tmp_path}/net.prototxt" base_lr: 0.001 lr_policy: "fixed" random_seed: 1 snapshot: 0')
    solver = caffe.get_solver(str(tmp_path / "solver.prototxt"))
    before = solver.net.params["fc8"][0].data.copy()
    solver.step(1)

    # 1. the blob says what the mask does: the background is above, the person below
    person = VOC_CLASSES.index("person")
    blobs = solver.net.blobs
    assert np.flatnonzero(blobs["tags"].data[0]).tolist() == [0, person]
    assert np.flatnonzero(blobs["upper"].data[0]).tolist() == [0]
    # 2. the latent distribution obeys the new row, which that of the tags alone breaks
    f = blobs["fc8"].data[0].reshape(21, -1)
    p = softmax(f, axis=0) - blobs["fc8"].diff[0].reshape(21, -1) * f.shape[1]
    height, width = blobs["fc8"].data.shape[2:]
    present = np.isin(np.arange(21), [0, person])
    c = halves_constraints(present, np.arange(21) == 0, (height, width))
    assert violation(c, p) < 1e-4 and violation(c, ccnn.maximize(f, tag_constraints(present)).p) > 0.01
    # 3. the weights moved
    assert np.isfinite(blobs["loss"].data).all() and (solver.net.params["fc8"][0].data != before).any()


def test_its_settings_and_blobs_are_checked_like_any(halves, tmp_path):
    root = make_sample(tmp_path / "voc")
    for settings, message in (({"upper_bta": 1}, "unknown setting 'upper_bta'; did you mean 'upper_beta'"),
                              ({"upper_beta": -1}, "prices must be positive"),
                              ({"upper_beta": "much"}, 'upper_beta must be a number or "inf"; got "much"'),
                              ({"shape": 1}, "unknown setting 'shape'")):
        (tmp_path / "net.prototxt").write_text(net_of_halves(root, **settings))
        with pytest.raises(UserError, match=f"ConstrainedLossLayer: {message}"):
            caffe.Net(str(tmp_path / "net.prototxt"), caffe.TRAIN)
    sample, _ = Samples(still(root, tops=["data", "upper"]))[0]
    assert sample["upper"].shape == (21,)


def test_without_the_entry_nobody_knows_it(tmp_path):
    with pytest.raises(UserError, match="'upper' is none of them"):
        Samples(still(make_sample(tmp_path / "voc"), tops=["data", "upper"]))


def test_crops_of_one_pixel_are_full_supervision(tmp_path):
    """Section 7.2: the tags of a crop of one pixel are its label, and the loss is the cross entropy."""
    samples = Samples({"root": str(make_voc(tmp_path / "voc", images=4, size=(33, 25))), "split": "train", "crop": 1,
                       "tops": ["data", "tags", "labels"]})
    seen, rng = set(), np.random.default_rng(0)
    for t in range(300):
        sample, _ = samples[t]
        label = int(sample["labels"].item())
        if label != VOID:
            seen.add(label)
            f = rng.normal(size=(21, 1)).astype(np.float32)
            c = SUPERVISION["tags"].constraints([sample["tags"]], 21, (1, 1), fg_lower=0.05)
            loss = ccnn.maximize(f, c, diff=np.empty_like(f)).loss
            assert loss == pytest.approx(-log_softmax(f)[label, 0], abs=1e-5)
    assert BACKGROUND in seen and len(seen) > 2


def test_a_crop_inside_an_object_has_no_background(tmp_path):
    """It has the tags of its labels alone; the whole image, and an image without tags, has background."""
    c = SUPERVISION["tags"].constraints([np.array([-1, 1, 1, 0], np.float32)], 4, (2, 2))
    assert c.allowed.tolist() == [False, True, True, False] and (c.A[:, BACKGROUND] == 0).all() and len(c.b) == 2
    p = ccnn.maximize(np.zeros((4, 4), np.float32), c).p
    assert np.allclose(p.sum(axis=1), [0, 2, 2, 0])
    tags, sizes = np.array([-1, 1, 1, 0], np.float32), np.array([0, 1, 0, 0], np.float32)
    sized = SUPERVISION["size"].constraints([tags, sizes], 4, (2, 2))
    assert sized.allowed.tolist() == c.allowed.tolist() and (sized.A[:, BACKGROUND] == 0).all() and len(sized.b) == 2
    for tags in ([0, 0, 0, 0], [1, 0, 0, 0]):
        c = SUPERVISION["tags"].constraints([np.array(tags, np.float32)], 4, (2, 2))
        assert c.allowed.tolist() == [True, False, False, False]
    with pytest.raises(ValueError, match="no label"):
        SUPERVISION["tags"].constraints([np.array([-1, 0, 0, 0], np.float32)], 4, (2, 2))
