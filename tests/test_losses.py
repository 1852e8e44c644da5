"""The loss layers in real Caffe nets: values, gradients, learning, and what they refuse."""
import json
import os
import subprocess
from functools import partial

import caffe
import numpy as np
import pytest

import ccnn
from ccnn._util.errors import UserError
from ccnn.solver.constraints import Constraints
from ccnn.supervision.baselines import adaptive_bias
from ccnn.supervision.tags_sizes_boxes import box_constraints, mask_constraints, size_constraints, tag_constraints

L, H, W = 5, 4, 6
CCNN = "constrained_loss", "ConstrainedLossLayer"
EM = "baseline_losses", "EMAdaptLossLayer"
MIL_FCN = "baseline_losses", "MILFCNLossLayer"
MIL_BASE = "baseline_losses", "MILBaseLossLayer"


# --- nets of one loss layer ---------------------------------------------------------------------------------

def input_layer(name, shape):
    dims = " ".join(f"dim: {d}" for d in shape)
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}\n'


def loss_layer(kind, settings, bottoms, weight=1, diagnostics=False):
    module, layer = kind
    param = settings if isinstance(settings, str) else json.dumps(settings)
    blobs = " ".join(f'bottom: "{b}"' for b in bottoms) + ' top: "loss"' + ' top: "diagnostics"' * diagnostics
    return (f'layer {{ name: "loss" type: "Python" {blobs} loss_weight: {weight} ' + "loss_weight: 0 " * diagnostics +
            f"python_param {{ module: \"{module}\" layer: \"{layer}\" param_str: '{param}' }} }}\n")


def make_net(tmp_path, kind, settings, blobs, **more):
    """A caffe.Net whose inputs are the arrays `blobs`, in the order of the layer's bottoms."""
    path = tmp_path / "net.prototxt"
    path.write_text("force_backward: true\n" + "".join(input_layer(name, x.shape) for name, x in blobs.items()) +
                    loss_layer(kind, settings, blobs, **more))
    net = caffe.Net(str(path), caffe.TRAIN)
    for name, x in blobs.items():
        net.blobs[name].data[...] = x
    return net


def run(tmp_path, kind, settings, blobs, **more):
    """loss, gradient of the scores, and the net, after one forward and one backward pass."""
    net = make_net(tmp_path, kind, settings, blobs, **more)
    loss = net.forward()["loss"].item()
    for name in blobs:
        net.blobs[name].diff[...] = 7           # backward must overwrite, not add
    net.backward()
    return loss, net.blobs["scores"].diff.copy(), net


# --- three images that constraints bite on -------------------------------------------------------------------

TAGS = np.array([[1, 1, 0, 1, 0], [1, 1, 0, 0, 0], [1, 0, 1, 1, 1]], np.float32)
LARGE = np.array([[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 1, 0]], np.float32)
BOXES = np.array([[(1, 0, 0, 3, 3), (-1, 0, 0, 0, 0), (1, 1, 4, 4, 6)],
                  [(1, 1, 1, 4, 4), (3, 0, 2, 2, 6), (-1, 0, 0, 0, 0)],
                  [(2, 0, 0, 4, 2), (4, 2, 3, 4, 6), (4, 0, 4, 1, 6)]], np.float32)
POINTS = np.full((3, 1, H, W), 255, np.float32)
POINTS[0, 0, 1, 1:3] = 1
POINTS[1, 0, 1, 1] = 1
POINTS[1, 0, 3, 3] = 0
POINTS[2, 0, 2, 3] = 4
FULL = np.array([[[[0, 1, 1, 0, 3, 255]] * H],
                 [[[0, 1, 1, 1, 255, 255]] * H],
                 [[[0, 2, 2, 0, 255, 255]] * H]], np.float32)


def scores(images, seed=0):
    """Background far ahead everywhere and labels 1 and 2 far behind: bounds are violated, and slack is bought."""
    f = np.random.default_rng(seed).normal(size=(images, L, H, W))
    f[:, 0] += 4
    f[:, 1:3] -= 3
    return f.astype(np.float32)


def inputs(mode, images):
    names = {"tags": ["tags"], "size": ["tags", "sizes"], "boxes": ["boxes"]}[mode.split("+")[0]]
    data = {"tags": TAGS, "sizes": LARGE, "boxes": BOXES}
    blobs = {"scores": scores(images), **{name: data[name][:images] for name in names}}
    if "+" in mode:
        blobs["labels"] = {"points": POINTS, "full": FULL}[mode.split("+")[1]][:images]
    return blobs


def known(mode, blobs, k, **bounds):
    """The constraints of image k, put together by hand from the documented rule."""
    kind, _, mask = mode.partition("+")
    if kind == "boxes":
        boxes = blobs["boxes"][k]
        c = box_constraints(boxes[boxes[:, 0] > 0], (H, W), L, **bounds)
    elif kind == "size":
        c = size_constraints(blobs["tags"][k], blobs["sizes"][k], **bounds)
    else:
        c = tag_constraints(blobs["tags"][k], **bounds)
    if mask == "points":
        c = c & mask_constraints(blobs["labels"][k], L)
    if mask == "full":
        own = mask_constraints(blobs["labels"][k], L)
        allowed = np.where(blobs["labels"][k].ravel() == 255, c.allowed.reshape(L, -1), own.allowed)
        c = Constraints(own.A, own.b, own.beta, allowed)
    return c


def kl(p, f):
    """mean_i KL(p_i || softmax(f_i)), float64."""
    log_q = f - np.log(np.exp(f).sum(axis=0))
    return np.where(p > 0, p * (np.log(np.where(p > 0, p, 1)) - log_q), 0).sum(axis=0).mean()


def slope(function, f, step=1e-4):
    """Central differences of function at f, float64."""
    d = np.zeros(f.shape)
    for i in np.ndindex(f.shape):
        old = f[i]
        f[i] = old + step
        up = function(f)
        f[i] = old - step
        d[i] = (up - function(f)) / (2 * step)
        f[i] = old
    return d


def check(tmp_path, kind, settings, blobs, value, objective, weight, scale=1):
    """Loss = mean of value over images; gradient = weight * that of the mean of objective."""
    loss, diff, net = run(tmp_path, kind, settings, blobs, weight=weight)
    f = blobs["scores"].astype(np.float64).reshape(len(blobs["scores"]), L, -1)
    values = [value(k, f[k]) for k in range(len(f))]
    expected = np.array([slope(lambda x, k=k: objective(k, x), f[k]) for k in range(len(f))]) * weight * scale / len(f)
    assert loss == pytest.approx(np.mean(values) * scale, rel=1e-5, abs=1e-6)
    assert np.abs(expected).max() > 1e-4                         # else the next line proves nothing
    np.testing.assert_allclose(diff.reshape(f.shape), expected, rtol=2e-3, atol=1e-4 * np.abs(expected).max())
    for name in blobs:
        if name != "scores":
            assert not net.blobs[name].diff.any()


# --- gradients --------------------------------------------------------------------------------------------------

batches = pytest.mark.parametrize("images, weight", [(1, 1), (1, 0.5), (3, 1), (3, 0.5)])


MODES = {       # settings, and whether slack is bought with them on the first image
    "tags": ({"fg_beta": 1.5, "bg_upper": 1}, True), "tags+points": ({}, False), "tags+full": ({}, False),
    "size": ({"fg_beta": 1.5, "bg_upper": 1}, True), "size+points": ({"small_upper": 0.1}, False),
    "size+full": ({}, False),
    "boxes": ({"beta": 3}, True), "boxes+points": ({"beta": 3}, True), "boxes+full": ({}, False),
}


@batches
@pytest.mark.parametrize("mode", MODES)
def test_gradient_is_that_of_the_optimal_value(tmp_path, mode, images, weight, method="newton"):
    blobs = inputs(mode, images)
    bounds, slack = MODES[mode]

    def solve(k, f):
        return ccnn.maximize(f, known(mode, blobs, k, **bounds), tol=1e-8)

    check(tmp_path, CCNN, {"supervision": mode.split("+")[0], "method": method, "tol": 1e-7, **bounds}, blobs,
          lambda k, f: kl(solve(k, f).p, f), lambda k, f: solve(k, f).value, weight)
    f = blobs["scores"][0].reshape(L, -1).astype(float)
    bought = solve(0, f).value - kl(solve(0, f).p, f)
    assert (bought > 1e-3) == slack


@pytest.mark.parametrize("mode", ["tags", "size", "boxes"])
def test_gradient_by_the_papers_method(tmp_path, mode):
    test_gradient_is_that_of_the_optimal_value(tmp_path, mode, 3, 0.5, method="pga")


@batches
@pytest.mark.parametrize("mode", ["tags", "size+points", "boxes"])
def test_gradient_at_another_hardness_holds_p_fixed(tmp_path, mode, images, weight):
    blobs = inputs(mode, images)
    bounds, _ = MODES[mode]
    p = [ccnn.maximize(f.reshape(L, -1).astype(float), known(mode, blobs, k, **bounds), hardness=4, tol=1e-8).p
         for k, f in enumerate(blobs["scores"])]
    settings = {"supervision": mode.split("+")[0], "hardness": 4, "tol": 1e-7, **bounds}
    check(tmp_path, CCNN, settings, blobs, lambda k, f: kl(p[k], f), lambda k, f: kl(p[k], f), weight)


@batches
def test_gradient_of_the_sum_over_pixels(tmp_path, images, weight):
    blobs = inputs("tags", images)

    def value(k, f):
        return ccnn.maximize(f, known("tags", blobs, k, fg_beta=np.inf, bg_upper=0.5), tol=1e-8).value

    check(tmp_path, CCNN, {"normalize": False, "fg_beta": "inf", "bg_upper": 0.5, "tol": 1e-7}, blobs,
          value, value, weight, scale=H * W)


@batches
def test_gradient_of_em_adapt_holds_the_segmentation_fixed(tmp_path, images, weight):
    blobs = inputs("tags", images)
    p = np.zeros((images, L, H * W))
    for k in range(images):
        f = blobs["scores"][k].reshape(L, -1)
        z = np.flatnonzero(TAGS[k])
        y = z[(f[z] + adaptive_bias(f[z], 0.25, 0.3)[:, None]).argmax(axis=0)]
        p[k, y, np.arange(H * W)] = 1
        assert set(y) == set(z)
    settings = {"rho_fg": 0.25, "rho_bg": 0.3}
    check(tmp_path, EM, settings, blobs, lambda k, f: kl(p[k], f), lambda k, f: kl(p[k], f), weight)


@batches
def test_em_adapt_with_a_cue_weighs_its_segmentation_alone(tmp_path, images, weight):
    """The map moves objects to where it is high; loss and gradient are those of the net's own scores."""
    blobs = inputs("tags", images)
    S = np.random.default_rng(2).random((3, 1, H, W)).astype(np.float32)[:images]
    blobs["cue"] = S
    p, moved = np.zeros((images, L, H * W)), 0
    for k in range(images):
        f = blobs["scores"][k].reshape(L, -1).astype(float)
        z, kept = np.flatnonzero(TAGS[k]), np.clip(S[k].ravel(), 0.02, 0.98)
        weighed = f[z] + np.where(z[:, None] > 0, np.log(kept) - np.log(1 - kept), 0)
        y = z[(weighed + adaptive_bias(weighed)[:, None]).argmax(axis=0)]
        moved += np.count_nonzero(y != z[(f[z] + adaptive_bias(f[z])[:, None]).argmax(axis=0)])
        p[k, y, np.arange(H * W)] = 1
    assert moved
    check(tmp_path, EM, {"cue": True}, blobs, lambda k, f: kl(p[k], f), lambda k, f: kl(p[k], f), weight)


def mil_fcn(k, f, tags=TAGS):
    log_q = f - np.log(np.exp(f).sum(axis=0))
    return -np.mean([log_q[l].max() for l in np.flatnonzero(tags[k] == 1)])


def mil_base(k, f, r, tags=TAGS):
    s = np.log(np.exp(r * f).mean(axis=1)) / r
    return -np.mean([s[l] - np.log(np.exp(s).sum()) for l in np.flatnonzero(tags[k] == 1)])


@batches
def test_gradient_of_mil_fcn(tmp_path, images, weight):
    check(tmp_path, MIL_FCN, {}, inputs("tags", images), mil_fcn, mil_fcn, weight)


def test_mil_fcn_with_one_pixel_for_all_labels(tmp_path):
    blobs = {"scores": np.zeros((1, L, 1, 1), np.float32), "tags": np.ones((1, L), np.float32)}
    blobs["scores"][0, 2] = 3
    loss, diff, _ = run(tmp_path, MIL_FCN, {}, blobs)
    q = np.exp([0, 0, 3, 0, 0]) / np.exp([0, 0, 3, 0, 0]).sum()
    assert loss == pytest.approx(-np.log(q).mean(), rel=1e-5)
    np.testing.assert_allclose(diff.ravel(), q - 1 / L, atol=1e-6)


@batches
@pytest.mark.parametrize("r", [5, 1.5])
def test_gradient_of_mil_base(tmp_path, r, images, weight):
    check(tmp_path, MIL_BASE, {"r": r}, inputs("tags", images), lambda k, f: mil_base(k, f, r),
          lambda k, f: mil_base(k, f, r), weight)


def test_defaults_of_the_baselines_are_the_papers(tmp_path):
    blobs = inputs("tags", 1)
    assert run(tmp_path, EM, {}, blobs)[0] == run(tmp_path, EM, {"rho_fg": 0.2, "rho_bg": 0.4}, blobs)[0]
    assert run(tmp_path, MIL_BASE, "", blobs)[0] == run(tmp_path, MIL_BASE, {"r": 5}, blobs)[0]


# --- what the layers agree with ------------------------------------------------------------------------------------

def test_a_whole_mask_is_softmax_cross_entropy(tmp_path):
    """Full supervision through the constrained loss is Caffe's own SoftmaxWithLoss, gradient included."""
    blobs = inputs("tags", 3)
    blobs["labels"] = np.random.default_rng(1).integers(0, L, (3, 1, H, W)).astype(np.float32)
    loss, diff, _ = run(tmp_path, CCNN, {"bg_lower": 0.6}, blobs)          # the mask shows labels that tags deny
    path = tmp_path / "softmax.prototxt"
    path.write_text("force_backward: true\n" + input_layer("scores", blobs["scores"].shape) +
                    input_layer("labels", blobs["labels"].shape) +
                    'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "labels" top: "loss" '
                    "propagate_down: true propagate_down: false }")
    net = caffe.Net(str(path), caffe.TRAIN)
    net.blobs["scores"].data[...] = blobs["scores"]
    net.blobs["labels"].data[...] = blobs["labels"]
    assert loss == pytest.approx(net.forward()["loss"].item(), rel=1e-5)
    net.backward()
    np.testing.assert_allclose(diff, net.blobs["scores"].diff, atol=1e-7)


def test_labels_win_over_tags_and_boxes(tmp_path):
    """A point of an absent label, outside every box: it has its label, the image is not infeasible."""
    for mode in "tags", "size", "boxes":
        blobs = inputs(mode, 1)
        blobs["labels"] = np.full((1, 1, H, W), 255, np.float32)
        blobs["labels"][0, 0, 3, 5] = 4
        _, diff, net = run(tmp_path, CCNN, {"supervision": mode}, blobs, diagnostics=True)
        q = np.exp(blobs["scores"][0, :, 3, 5])
        p = q / q.sum() - diff[0, :, 3, 5] * H * W
        np.testing.assert_allclose(p, np.eye(L)[4], atol=1e-5)
        assert np.isfinite(net.blobs["diagnostics"].data).all()


def test_a_mask_with_nothing_known_changes_nothing(tmp_path):
    blobs = inputs("size", 3)
    plain, gradient, _ = run(tmp_path, CCNN, {"supervision": "size"}, blobs)
    blobs["labels"] = np.full((3, 1, H, W), 255, np.float32)
    masked, same, _ = run(tmp_path, CCNN, {"supervision": "size"}, blobs)
    assert plain == masked and (gradient == same).all()


def test_mask_share_parts_segmentations_from_scribbles(tmp_path):
    """10 of 24 pixels known, all background: the bounds speak of the rest only as long as it is a scribble."""
    blobs = inputs("tags", 1)
    blobs["labels"] = np.full((1, 1, H, W), 255, np.float32)
    blobs["labels"].flat[:10] = 0
    scribble = run(tmp_path, CCNN, {}, blobs)[0]
    mask = run(tmp_path, CCNN, {"mask_share": 0.4}, blobs)[0]
    assert mask < scribble / 2                     # bg_upper pulls most of the other 14 off the background


RULES = """
[c1]
least = 0.3
touches = "lower"
share = 0.3

[[rule]]
larger = ["c3", "c1"]
"""


def rules(tmp_path, text=RULES):
    """The settings for rules about c1 .. c4."""
    (tmp_path / "classes.txt").write_text("c1\nc2\nc3\nc4\n")
    (tmp_path / "constraints.toml").write_text(text)
    return {"priors": str(tmp_path / "constraints.toml"), "classes": str(tmp_path / "classes.txt")}


@pytest.mark.parametrize("mode", ["tags", "size", "boxes", "tags+points"])
def test_priors_hold_where_their_classes_are(tmp_path, mode):
    blobs = inputs(mode, 3)
    settings = {"supervision": mode.split("+")[0], **rules(tmp_path)}
    loss, diff, _ = run(tmp_path, CCNN, settings, blobs)
    plain, _, _ = run(tmp_path, CCNN, {"supervision": settings["supervision"]}, blobs)
    assert abs(loss - plain) > 0.01             # bounds of the sizes give way, so the loss may fall
    f = blobs["scores"].astype(float).reshape(3, L, -1)
    p = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True) - 3 * H * W * diff.reshape(f.shape)
    areas, lower = p.mean(axis=2), p.reshape(3, L, H, W)[:, :, -1].mean(axis=2)
    present = np.array([known(mode, blobs, k).allowed.reshape(L, -1).any(axis=1) for k in range(3)])
    for k in np.flatnonzero(present[:, 1]):
        assert areas[k, 1] > 0.3 - 1e-4 and lower[k, 1] > 0.3 - 1e-4
    both = np.flatnonzero(present[:, 1] & present[:, 3])
    assert both.size and (areas[both, 3] > areas[both, 1] - 1e-4).all()
    assert (areas[2, 1] < 1e-4) == (not present[2, 1])              # c1 is not in the third image


@pytest.mark.parametrize("text, complaint", [
    ("[c1]\nleast = 1.5", r"constraints.toml, \[c1\]: least = 1.5 must be a fraction, 0 to 1"),
    ("[c9]", "constraints.toml, c9: is not a class; known: background, c1"),
    ("c1", "constraints.toml: is not TOML"),
    (None, "constraints.toml: cannot read the rules: No such file"),
])
def test_wrong_priors_fail_in_setup(tmp_path, text, complaint):
    settings = rules(tmp_path, text or "")
    if text is None:
        (tmp_path / "constraints.toml").unlink()
    with pytest.raises(UserError, match=complaint) as error:
        make_net(tmp_path, CCNN, settings, inputs("tags", 1))
    assert "\n" not in str(error.value)


def test_priors_need_the_classes_of_the_scores(tmp_path):
    settings = rules(tmp_path, "[cat]\nleast = 0.3")
    with pytest.raises(UserError, match="scores have 5 labels; VOC has 21, with the background; \"classes\" names"):
        make_net(tmp_path, CCNN, {"priors": settings["priors"]}, inputs("tags", 1))
    with pytest.raises(UserError, match="nowhere.txt: cannot read the class list: No such file"):
        make_net(tmp_path, CCNN, {**settings, "classes": "nowhere.txt"}, inputs("tags", 1))


def test_contradictory_constraints_are_reported_and_trained_without_bounds(tmp_path, capfd):
    blobs = inputs("tags", 3)
    blobs["labels"] = np.full((3, 1, H, W), 255, np.float32)
    blobs["labels"][1].flat[:10] = 0               # 42 % background: more than bg_upper
    settings = {"bg_lower": 0.1, "bg_upper": 0.3}
    loss, diff, net = run(tmp_path, CCNN, settings, blobs, diagnostics=True)
    gap = net.blobs["diagnostics"].data[:, 1]
    assert np.isinf(gap[1]) and (gap[[0, 2]] < 1e-6).all()
    f = blobs["scores"][1].reshape(L, -1).astype(float)
    allowed = (TAGS[1] > 0)[:, None] & (mask_constraints(blobs["labels"][1], L).allowed)
    p = np.exp(f) * allowed
    expected = (np.exp(f) / np.exp(f).sum(axis=0) - p / p.sum(axis=0)) / (3 * H * W)
    np.testing.assert_allclose(diff[1].reshape(L, -1), expected, atol=1e-7)
    for _ in range(9):
        net.forward()
    told = capfd.readouterr().err.splitlines()
    assert [line for line in told if "infeasible" in line] == [
        "ConstrainedLossLayer: infeasible image no. 1: the constraints contradict each other, trained without the "
        "bounds (forward pass 1 of this run, image 1 of the batch)",
        "ConstrainedLossLayer: infeasible image no. 10: the constraints contradict each other, trained without the "
        "bounds (forward pass 10 of this run, image 1 of the batch)"]


def test_diagnostics_say_what_the_solver_did(tmp_path):
    blobs = inputs("tags", 3)
    blobs["scores"][1, 4] += 12                     # a label that is not there takes nearly all
    _, _, net = run(tmp_path, CCNN, {}, blobs, diagnostics=True)
    before, gap, iterations, seconds = net.blobs["diagnostics"].data.T
    for k, f in enumerate(blobs["scores"].reshape(3, L, -1)):
        q = np.exp(f) / np.exp(f).sum(axis=0)
        c = known("tags", blobs, k)
        broken = max((c.b - c.values(q)).max(), q[~c.allowed].sum() / (H * W))
        assert before[k] == pytest.approx(broken, rel=1e-4)
    assert (gap >= 0).all() and (gap <= 1e-6).all()
    assert (iterations >= 1).all() and (0 < seconds).all() and (seconds < 60).all()
    assert before[1] > 0.9 and before[0] < 0.8
    _, _, slow = run(tmp_path, CCNN, {"method": "pga"}, blobs, diagnostics=True)
    _, _, rough = run(tmp_path, CCNN, {"method": "pga", "tol": 0.01}, blobs, diagnostics=True)
    iterations_of = [net.blobs["diagnostics"].data[:, 2].sum() for net in (net, rough, slow)]
    assert iterations_of == sorted(set(iterations_of))


def test_no_violation_no_loss(tmp_path):
    """Scores that obey the constraints: p = q, loss and gradient vanish."""
    f = np.full((1, L, H, W), -40, np.float32)
    f[0, 0, :2] = f[0, 1, 2:] = 40
    loss, diff, net = run(tmp_path, CCNN, {}, {"scores": f, "tags": TAGS[1:2]}, diagnostics=True)
    assert abs(loss) < 1e-6 and np.abs(diff).max() < 1e-6
    assert net.blobs["diagnostics"].data[0, 0] < 1e-6


def test_images_of_a_batch_do_not_meet(tmp_path):
    blobs = inputs("size", 3)
    together, gradient, _ = run(tmp_path, CCNN, {"supervision": "size"}, blobs)
    apart = [run(tmp_path, CCNN, {"supervision": "size"}, {name: x[k:k + 1] for name, x in blobs.items()})
             for k in range(3)]
    assert together == pytest.approx(np.mean([loss for loss, _, _ in apart]), rel=1e-6)
    np.testing.assert_allclose(gradient, np.concatenate([diff for _, diff, _ in apart]) / 3, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("kind", [CCNN, EM, MIL_FCN, MIL_BASE])
def test_background_needs_no_tag(tmp_path, kind):
    blobs = inputs("tags", 3)
    tagged, gradient, _ = run(tmp_path, kind, {}, blobs)
    blobs["tags"] = blobs["tags"] * [0, 1, 1, 1, 1]
    untagged, same, _ = run(tmp_path, kind, {}, blobs)
    assert tagged == untagged and (gradient == same).all()


INSIDE = np.where(np.arange(L) == 0, -1, TAGS).astype(np.float32)       # crops inside objects: -1 for the background


@pytest.mark.parametrize("kind", [CCNN, EM])
def test_a_crop_without_background_has_none_in_p(tmp_path, kind):
    """The gradient is (q - p) / n: what is not among the tags has no p. Every label that is has a share of it."""
    blobs = {"scores": scores(3), "tags": INSIDE}
    _, diff, _ = run(tmp_path, kind, {}, blobs)
    e = np.exp(blobs["scores"].reshape(3, L, -1))
    p = e / e.sum(axis=1, keepdims=True) - 3 * H * W * diff.reshape(e.shape)
    assert np.allclose(p.sum(axis=1), 1, atol=1e-5)
    assert np.array_equal(p.mean(axis=2) > 1e-4, INSIDE == 1)
    if kind == EM:          # of labels that are all objects, each wins on a fifth of the pixels or more: 5 of 24
        assert (p.round().sum(axis=2)[INSIDE == 1] >= 5).all()


def test_mil_of_a_crop_without_background(tmp_path):
    """The mean is over the labels that are there; one of them alone, in the second image."""
    blobs = {"scores": scores(3), "tags": INSIDE}
    f = blobs["scores"].reshape(3, L, -1).astype(float)
    for kind, expected in ((MIL_FCN, mil_fcn), (MIL_BASE, partial(mil_base, r=5))):
        loss, _, _ = run(tmp_path, kind, {}, blobs)
        assert loss == pytest.approx(np.mean([expected(k, f[k], tags=INSIDE) for k in range(3)]), rel=1e-5)
        assert loss != pytest.approx(np.mean([expected(k, f[k]) for k in range(3)]), rel=1e-2)


def test_images_of_other_sizes_may_follow(tmp_path):
    net = make_net(tmp_path, CCNN, {}, inputs("tags", 1))
    net.forward()
    for shape in (1, L, 7, 3), (2, L, 2, 2), (1, L, H, W):
        net.blobs["scores"].reshape(*shape)
        net.blobs["tags"].reshape(shape[0], L)
        net.blobs["scores"].data[...] = np.random.default_rng(2).normal(size=shape)
        net.blobs["tags"].data[...] = 1
        first = net.forward()["loss"].item()
        net.backward()
        assert net.blobs["scores"].diff.shape == shape and net.blobs["scores"].diff.any()
        assert first == net.forward()["loss"].item()


def test_backward_twice_is_backward_once(tmp_path):
    _, diff, net = run(tmp_path, CCNN, {}, inputs("tags", 3), weight=0.5)
    net.backward()
    assert (net.blobs["scores"].diff == diff).all()


# --- learning ------------------------------------------------------------------------------------------------------

def four_images():
    """16 x 16 colour patches on gray: image k shows labels 1..2, each in its own colour; label 3 never occurs."""
    rng = np.random.default_rng(0)
    data = rng.normal(0, 0.1, (4, 3, 16, 16)).astype(np.float32)
    masks = np.zeros((4, 1, 16, 16), np.float32)
    for k, places in enumerate([[(1, 2, 2)], [(2, 4, 6)], [(1, 0, 0), (2, 8, 8)], [(2, 1, 7)]]):
        for label, y, x in places:
            data[k, label, y:y + 8, x:x + 8] += 1
            masks[k, 0, y:y + 8, x:x + 8] = label
    present = (masks.reshape(4, 1, -1) == np.arange(4)[None, :, None])
    boxes = np.array([[(1, 2, 2, 10, 10), (-1, 0, 0, 0, 0)], [(2, 4, 6, 12, 14), (-1, 0, 0, 0, 0)],
                      [(1, 0, 0, 8, 8), (2, 8, 8, 16, 16)], [(2, 1, 7, 9, 15), (-1, 0, 0, 0, 0)]], np.float32)
    semi = masks.copy()
    semi[2:] = 255
    return {"data": data, "tags": present.any(axis=2).astype(np.float32), "boxes": boxes, "labels": masks, "semi": semi,
            "sizes": (present.mean(axis=2) > 0.1).astype(np.float32)}


SYSTEMS = {     # layer, settings, bottoms, the loss must fall to this part of the first
    "tags": (CCNN, {"supervision": "tags"}, ["tags"], 0.2),
    "size": (CCNN, {"supervision": "size"}, ["tags", "sizes"], 0.2),
    "boxes": (CCNN, {"supervision": "boxes"}, ["boxes"], 0.2),
    "semi": (CCNN, {"supervision": "tags"}, ["tags", "semi"], 0.2),
    "em_adapt": (EM, {}, ["tags"], 0.6),                     # the wrong shares (0.4 background) leave a remainder
    "mil_fcn": (MIL_FCN, {}, ["tags"], 0.2),
    "mil_base": (MIL_BASE, {}, ["tags"], 0.9),               # bounded by the entropy of the tags: log 2 and log 3
    "full": (None, {}, ["labels"], 0.2),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_loss_falls_on_four_images(tmp_path, system):
    kind, settings, bottoms, part = SYSTEMS[system]
    images = four_images()
    net = "".join(input_layer(name, images[name].shape) for name in ["data", *bottoms])
    net += """
layer { name: "hidden" type: "Convolution" bottom: "data" top: "hidden"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.2 } } }
layer { name: "relu" type: "ReLU" bottom: "hidden" top: "hidden" }
layer { name: "fc8" type: "Convolution" bottom: "hidden" top: "fc8"
  convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: "gaussian" std: 0.2 } } }
"""
    net += (loss_layer(kind, settings, ["fc8", *bottoms]) if kind else
            'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc8" bottom: "labels" top: "loss" }')
    (tmp_path / "net.prototxt").write_text(net)
    (tmp_path / "solver.prototxt").write_text(
        f'net: "{tmp_path}/net.prototxt" base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" random_seed: 1 snapshot: 0')
    solver = caffe.get_solver(str(tmp_path / "solver.prototxt"))
    for name in ["data", *bottoms]:
        solver.net.blobs[name].data[...] = images[name]
    solver.step(1)
    first = solver.net.blobs["loss"].data.item()
    solver.step(150)
    last = solver.net.blobs["loss"].data.item()
    floor = np.mean([np.log(2), np.log(2), np.log(3), np.log(2)]) if system == "mil_base" else 0
    assert last - floor < part * (first - floor)
    if system not in ("em_adapt", "mil_fcn", "mil_base"):    # wrong shares; no area asked for
        found = solver.net.blobs["fc8"].data.argmax(axis=1)
        assert (found == images["labels"][:, 0]).mean() > 0.8


# --- what they refuse ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind, settings, complaint", [
    (CCNN, '{"supervision": "tags"', "the settings are not JSON"),
    (CCNN, "[1, 2]", "the settings must be a JSON object"),
    (CCNN, {"fg_lowr": 0.1}, r"unknown setting 'fg_lowr'; did you mean 'fg_lower'\?"),
    (CCNN, {"small_upper": 0.1}, "unknown setting 'small_upper'"),                # belongs to "size"
    (CCNN, {"supervision": "points"}, "supervision must be one of tags, share, size, boxes; got 'points'"),
    (CCNN, {"supervision": ["tags"]}, r"supervision must be one of tags, share, size, boxes; got \['tags'\]"),
    (CCNN, {"fg_lower": "much"}, 'fg_lower must be a number or "inf"; got "much"'),
    (CCNN, {"fg_lower": True}, 'fg_lower must be a number or "inf"; got true'),
    (CCNN, {"fg_lower": None}, 'fg_lower must be a number or "inf"; got null'),
    (CCNN, {"fg_lower": 1.2}, "fg_lower must be a fraction of the image"),
    (CCNN, {"bg_lower": 0.8}, "bg_lower = 0.8 is above bg_upper = 0.7"),
    (CCNN, {"fg_beta": -1}, "prices must be positive"),
    (CCNN, '{"fg_beta": NaN}', "prices must be positive"),
    (CCNN, {"hardness": 0}, "hardness must be a positive number; got 0"),
    (CCNN, {"hardness": "inf"}, 'hardness must be a positive number; got "inf"'),
    (CCNN, {"tol": -1e-6}, "tol must be a positive number"),
    (CCNN, {"mask_share": 0}, "mask_share must be a positive number"),
    (CCNN, {"normalize": 1}, "normalize must be true or false; got 1"),
    (CCNN, {"method": "sgd"}, "method must be 'newton' or 'pga'; got 'sgd'"),
    (CCNN, {"method": 3}, "method must be text; got 3"),
    (EM, {"rho": 0.2}, "unknown setting 'rho'; did you mean 'rho_fg'"),
    (EM, {"rho_fg": 1.5}, "rho_fg must be a share of the image, above 0 and below 1; got 1.5"),
    (EM, {"rho_bg": -0.1}, "rho_bg must be a share of the image, above 0 and below 1; got -0.1"),
    (EM, {"rounds": 2.5}, "rounds must be a whole number, 1 or more; got 2.5"),
    (MIL_FCN, {"r": 5}, "unknown setting 'r'; known: none"),
    (MIL_BASE, {"r": "inf"}, 'r must be a positive number; got "inf"'),
])
def test_bad_settings_fail_in_setup(tmp_path, kind, settings, complaint):
    with pytest.raises(UserError, match=f"{kind[1]}: {complaint}") as error:
        make_net(tmp_path, kind, settings, inputs("tags", 1))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind, settings, change, complaint", [
    (CCNN, {}, {"tags": np.ones((1, L - 1))}, r"tags must be 1 x 5 \(1 .* scores of 1 x 5 x 4 x 6; got shape \(1, 4\)"),
    (CCNN, {}, {"tags": np.ones((2, L))}, r"tags must be 1 x 5.*got shape \(2, 5\)"),
    (EM, {}, {"tags": np.ones((1, L + 1))}, r"tags must be 1 x 5.*got shape \(1, 6\)"),
    (CCNN, {"supervision": "size"}, {"sizes": np.ones((1, L + 1))}, r"sizes must be 1 x 5.*got shape \(1, 6\)"),
    (CCNN, {}, {"scores": np.zeros((1, L))}, r"scores must be N x L x H x W; got shape \(1, 5\)"),
    (CCNN, {}, {"labels": np.zeros((1, 1, H + 1, W))}, r"labels must be 1 x 1 x 4 x 6 .* got shape \(1, 1, 5, 6\)"),
    (CCNN, {}, {"labels": np.zeros((1, 1, W, H))}, "labels must be 1 x 1 x 4 x 6"),          # turned
    (CCNN, {"supervision": "boxes"}, {"boxes": np.zeros((1, 2, 4))}, r"boxes must be 1 x B x 5 .*shape \(1, 2, 4\)"),
    (CCNN, {"supervision": "size"}, {}, r"takes bottoms scores, tags, sizes\[, labels\] .*'size'.*got 2 and 1"),
    (CCNN, {}, {"labels": FULL[:1], "more": FULL[:1]}, r"takes bottoms scores, tags\[, labels\].*got 4 and 1"),
    (MIL_BASE, {}, {"labels": FULL[:1]}, "takes bottoms scores, tags and one top; got 3 and 1"),
])
def test_wrong_blobs_fail_in_setup(tmp_path, kind, settings, change, complaint):
    mode = settings.get("supervision", "tags")
    blobs = {**inputs("tags" if mode == "size" and not change else mode, 1), **change}
    with pytest.raises(UserError, match=f"{kind[1]}: {complaint}"):
        make_net(tmp_path, kind, settings, blobs)


@pytest.mark.parametrize("kind, mode, blob, index, value, complaint", [
    (CCNN, "tags", "tags", (1, 2), 0.5, "tags must be 0 or 1; got 0.5"),
    (CCNN, "size", "sizes", (1, 2), np.nan, "sizes must be 0 or 1; got nan"),
    (MIL_FCN, "tags", "tags", (1, 2), 3, "tags must be 0 or 1; got 3"),
    (CCNN, "tags+full", "labels", (1, 0, 1, 1), 5, "label 5"),
    (CCNN, "tags+full", "labels", (1, 0, 1, 1), 21, "label 21"),
    (CCNN, "tags+full", "labels", (1, 0, 1, 1), 254, "label 254"),
    (CCNN, "boxes+full", "labels", (1, 0, 1, 1), -1, "label -1"),
    (CCNN, "boxes", "boxes", (1, 0, 3), H + 1, "box 0: .*not inside the 4 x 6 grid"),
    (CCNN, "boxes", "boxes", (1, 1, 1), -2, "box 1: .*not inside the 4 x 6 grid"),
    (CCNN, "boxes", "boxes", (1, 0, 0), L, "box 0: label 5"),
    (CCNN, "boxes", "boxes", (1, 0, 0), -3, "box 0: label -3"),
    (CCNN, "tags", "scores", (1, 0, 1, 1), np.nan, "scores hold 1 NaN or infinite values"),
    (CCNN, "boxes+points", "scores", (1, 0, 1, 1), np.inf, "scores hold 1 NaN or infinite values"),
    (CCNN, "tags+full", "scores", (1, 4, 1, 1), -np.inf, "scores hold 1 NaN"),                 # of an absent label
    (EM, "tags", "scores", (1, 2, 1, 1), np.nan, "scores hold 1 NaN or infinite values"),
    (MIL_FCN, "tags", "scores", (1, 2, 1, 1), np.inf, "scores hold 1 NaN or infinite values"),
    (MIL_BASE, "tags", "scores", (1, 2, 1, 1), -np.inf, "scores hold 1 NaN or infinite values"),
])
def test_wrong_values_name_pass_and_image(tmp_path, kind, mode, blob, index, value, complaint):
    blobs = inputs(mode, 3)
    net = make_net(tmp_path, kind, {"supervision": mode.split("+")[0]} if kind == CCNN else {}, blobs)
    net.forward()
    net.blobs[blob].data[index] = value
    place = r"\(forward pass 2 of this run, image 1 of the batch\)"
    with pytest.raises(UserError, match=f"^{kind[1]}: .*{complaint}.* {place}$"):
        net.forward()


def test_a_loss_beyond_float32_is_refused(tmp_path):
    f = np.full((1, L, H, W), -3e38, np.float32)
    f[0, 2] = 3e38                                  # finite, but absent from the image and 6e38 ahead
    with pytest.raises(UserError, match="ConstrainedLossLayer: the loss is 6e\\+38"):
        make_net(tmp_path, CCNN, {}, {"scores": f, "tags": TAGS[:1]}).forward()


def caffe_train(program, tmp_path, kind, settings="{}", lr=0.1, labels=5):
    """`caffe train` on random data, as a user sees it: its status and stderr."""
    (tmp_path / "net.prototxt").write_text("""
layer { name: "data" type: "DummyData" top: "data" top: "tags"
  dummy_data_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } shape { dim: 2 dim: LABELS }
    data_filler { type: "gaussian" std: 100 } data_filler { type: "constant" value: 1 } } }
layer { name: "fc8" type: "Convolution" bottom: "data" top: "fc8"
  convolution_param { num_output: 5 kernel_size: 1 weight_filler { type: "gaussian" std: 0.1 } } }
""".replace("LABELS", str(labels)) + loss_layer(kind, settings, ["fc8", "tags"], diagnostics=kind == CCNN))
    solver = tmp_path / "solver.prototxt"
    solver.write_text(f'net: "{tmp_path}/net.prototxt" base_lr: {lr} lr_policy: "fixed" max_iter: 4 '
                      f'display: 1 snapshot: 1 snapshot_prefix: "{tmp_path}/snapshot"')
    done = subprocess.run([program, "train", "-solver", str(solver)], capture_output=True, text=True,
                          env={**os.environ, "GLOG_minloglevel": "0"})
    return done.returncode, done.stderr


@pytest.mark.parametrize("kind, lr, settings, labels, complaint", [
    (CCNN, 1e38, "{}", 5, "ConstrainedLossLayer: scores hold"),
    (MIL_FCN, 1e38, "{}", 5, "MILFCNLossLayer: scores hold"),
    (CCNN, 0.1, '{"fg_lowr": 1}', 5, "ConstrainedLossLayer: unknown setting 'fg_lowr'"),
    (EM, 0.1, "{}", 4, "EMAdaptLossLayer: tags must be 2 x 5"),
])
def test_caffe_train_ends_in_one_line(tmp_path, caffe_bin, kind, lr, settings, labels, complaint):
    status, told = caffe_train(caffe_bin, tmp_path, kind, settings, lr, labels)
    lines = told.splitlines()
    assert status == 2
    assert lines[-1].startswith(complaint)
    assert "Traceback" not in told and "***" not in told and "terminate" not in told
    if "scores" in complaint:
        assert (tmp_path / "snapshot_iter_1.solverstate").exists()       # what was saved before stays


def test_caffe_train_logs_the_diagnostics(tmp_path, caffe_bin):
    status, told = caffe_train(caffe_bin, tmp_path, CCNN)
    assert status == 0 and (tmp_path / "snapshot_iter_4.caffemodel").exists()
    assert sum("Train net output" in line and "diagnostics = " in line for line in told.splitlines()) >= 4 * 2 * 4
    assert sum("loss = " in line and "Iteration" in line for line in told.splitlines()) >= 4
