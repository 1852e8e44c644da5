"""p held fixed for some visits of an image: the energy falls, p is what it should be, and wrong use is named."""
import caffe
import numpy as np
import pytest
from data_nets import blobs as next_blobs
from data_nets import make_net as make_data_net
from scipy.special import softmax
from test_losses import CCNN, POINTS, TAGS, H, L, W, input_layer, inputs, known, loss_layer, make_net, scores
from tiny_voc import make_voc

import ccnn
from ccnn._util.errors import UserError

BOUNDS = {"fg_lower": 0.25, "fg_beta": 0.25, "bg_lower": 0.1, "bg_upper": 0.7}    # slack is cheap, and is bought


def numbers(*images, mirrored=0):
    return np.array([(number, mirrored) for number in images], np.float32)


def latent(net, blob):
    """p of every image after forward and backward: the gradient is (q - p) / (images * pixels)."""
    f = net.blobs[blob].data.astype(float)
    return softmax(f, axis=1) - net.blobs[blob].diff * len(f) * f[0, 0].size


def energy(p, f, c):
    """KL(p || q) and the price of the slack, of one image; hard rows must hold."""
    log_q = f - np.log(np.exp(f).sum(axis=0))
    on = p > 1e-12
    slack = np.maximum(c.b - c.values(p), 0)
    hard = np.isinf(c.beta)
    assert slack[hard].max(initial=0) < 1e-4
    return (p[on] * (np.log(p[on]) - log_q[on])).sum() / p.shape[1], c.beta[~hard] @ slack[~hard]


# --- the energy, on a net of one layer that sees three images at every step

@pytest.fixture(params=[1, 2, 5])
def steps(request, tmp_path):
    """hold, and what 20 steps of gradient descent on all three images did: (p, f, turn, loss) of every step. p and f
    are as in the image; turn is -1 if it was mirrored."""
    hold, rate = request.param, 0.5
    rng = np.random.default_rng(0)
    data = rng.normal(size=(3, 4, H, W)).astype(np.float32)
    bottoms = ["fc8", "tags", *["number"] * (hold > 1)]
    (tmp_path / "net.prototxt").write_text(
        input_layer("data", data.shape) + input_layer("tags", TAGS.shape) + input_layer("number", (3, 2)) * (hold > 1)
        + """
layer { name: "fc8" type: "Convolution" bottom: "data" top: "fc8"
  convolution_param { num_output: 5 kernel_size: 1 weight_filler { type: "gaussian" std: 2 } } }
""" + loss_layer(CCNN, {"hold": hold, "tol": 1e-8, **BOUNDS}, bottoms))
    caffe.set_random_seed(3)
    net = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TRAIN)
    net.params["fc8"][1].data[1:] = -2             # objects are behind at first
    net.blobs["tags"].data[...] = TAGS
    done = []
    for _ in range(20):
        turn = -1 if rng.random() < 0.5 else 1
        net.blobs["data"].data[...] = data[..., ::turn]
        if hold > 1:
            net.blobs["number"].data[...] = numbers(7, 8, 9, mirrored=turn < 0)
        net.clear_param_diffs()
        loss = net.forward()["loss"].item()
        net.backward()
        p, f = (x[..., ::turn].reshape(3, L, -1) for x in (latent(net, "fc8"), net.blobs["fc8"].data.astype(float)))
        done.append((p, f, turn, loss))
        for blob in net.params["fc8"]:
            blob.data[...] -= rate * blob.diff
    return hold, done


def test_the_energy_falls_at_every_step(steps):
    """Section 4: neither the step in p nor a small step in the weights raises it. Images are mirrored at random."""
    _, done = steps
    c = [known("tags", {"tags": TAGS}, k, **BOUNDS) for k in range(3)]
    parts = np.array([[energy(p[k], f[k], c[k]) for k in range(3)] for p, f, _, _ in done])     # steps x images x 2
    total = parts.sum(axis=(1, 2))
    assert (np.diff(total) < 0).all() and total[-1] < 0.9 * total[0]
    assert parts[..., 1].max() > 0.01 and {turn for _, _, turn, _ in done} == {-1, 1}      # else they prove nothing
    np.testing.assert_allclose([loss for *_, loss in done], parts[..., 0].mean(axis=1), rtol=1e-4)


def test_p_is_held_and_found_again(steps):
    hold, done = steps
    for t, (p, f, _, _) in enumerate(done):
        if t % hold:
            np.testing.assert_allclose(p, done[t - 1][0], atol=1e-5)
        else:
            for k in range(3):
                nearest = ccnn.maximize(f[k], known("tags", {"tags": TAGS}, k, **BOUNDS), tol=1e-8).p
                np.testing.assert_allclose(p[k], nearest, atol=1e-4)
            assert t == 0 or np.abs(p - done[t - 1][0]).max() > 1e-3


# --- visits

def test_every_image_has_visits_of_its_own(tmp_path):
    """Diagnostics tell when the solver ran, and for which image of the batch."""
    net = make_net(tmp_path, CCNN, {"hold": 3}, {**inputs("tags", 2), "number": numbers(0, 1)}, diagnostics=True)
    for images, found in (((0, 1), [True, True]), ((1, 2), [False, True]), ((2, 1), [False, False]),
                          ((1, 0), [True, False]), ((0, 2), [False, False]), ((2, 0), [True, True])):
        net.blobs["number"].data[...] = numbers(*images)
        net.forward()
        violated, gap, iterations, _ = net.blobs["diagnostics"].data.T
        assert (iterations > 0).tolist() == found, images
        assert (violated > 0.01).all() and (gap <= 1e-6).all()


def test_known_pixels_and_a_held_p(tmp_path):
    """The bottoms are scores, tags, labels, number; p obeys the labels at both visits."""
    net = make_net(tmp_path, CCNN, {"hold": 2}, {**inputs("tags+points", 3), "number": numbers(4, 5, 6)})
    marked = np.argwhere(POINTS[:, 0] != 255)
    for _ in range(2):
        net.forward()
        net.backward()
        p = latent(net, "scores")
        assert all(p[k, int(POINTS[k, 0, y, x]), y, x] > 0.999 for k, y, x in marked)
        net.blobs["scores"].data[...] += scores(3, seed=1)


def test_the_second_visit_of_the_same_scores_is_like_the_first(tmp_path):
    """Also where the loss has a weight, and is a sum."""
    blobs = {**inputs("tags", 3), "number": numbers(0, 1, 2)}
    net = make_net(tmp_path, CCNN, {"hold": 2, "normalize": False}, blobs, weight=0.5)
    seen = []
    for _ in range(2):
        seen.append(net.forward()["loss"].item())
        net.backward()
        seen.append(net.blobs["scores"].diff.copy())
    assert seen[2] == pytest.approx(seen[0], rel=1e-4) and seen[0] > 0
    np.testing.assert_allclose(seen[3], seen[1], atol=1e-6)


def test_data_layers_tell_which_image_they_show(tmp_path):
    root = make_voc(tmp_path / "voc")
    usual = {"root": str(root), "split": "train", "tops": ["data", "number"]}
    still, mixed = (make_data_net(tmp_path, {**usual, **options})
                    for options in ({"mirror": False, "shuffle": False}, {}))
    images = [next_blobs(still) for _ in range(4)]
    assert [image["number"].tolist() for image in images] == [[k, 0] for k in range(4)]
    seen = set()
    for _ in range(30):
        got = next_blobs(mixed)
        number, mirrored = got["number"].astype(int)
        assert np.array_equal(got["data"], images[number]["data"][..., ::-1 if mirrored else 1])
        seen.add((number, mirrored))
    assert len(seen) > 6


# --- wrong use

@pytest.mark.parametrize("settings, change, complaint", [
    ({"hold": 2, "hardness": 1000}, {}, "hold = 2 needs hardness 1, with which p and q share one energy"),
    ({"hold": 0}, {}, "hold must be a whole number, 1 or more; got 0"),
    ({"hold": 2}, {"number": None}, r"takes bottoms scores, tags\[, labels\], number with .* got 2 and 1"),
    ({"hold": 2}, {"number": np.zeros((1, 3))}, r"number must be 1 x 2 \(the number of the image.* got shape \(1, 3\)"),
])
def test_wrong_settings_fail_in_setup(tmp_path, settings, change, complaint):
    blobs = {**inputs("tags", 1), "number": numbers(0), **change}
    with pytest.raises(UserError, match=f"^ConstrainedLossLayer: {complaint}") as error:
        make_net(tmp_path, CCNN, settings, {name: x for name, x in blobs.items() if x is not None})
    assert "\n" not in str(error.value)


def test_several_processes_are_refused(tmp_path):
    """An image comes to another of them each time: its p would be held elsewhere."""
    caffe.set_multiprocess(True)
    caffe.set_solver_count(2)
    try:
        with pytest.raises(UserError, match="^ConstrainedLossLayer: hold = 2 needs one process: with several, an"):
            make_net(tmp_path, CCNN, {"hold": 2}, {**inputs("tags", 1), "number": numbers(0)})
        make_net(tmp_path, CCNN, {}, inputs("tags", 1))
    finally:
        caffe.set_solver_count(1)
        caffe.set_multiprocess(False)


def test_an_image_of_another_size_is_named(tmp_path):
    net = make_net(tmp_path, CCNN, {"hold": 2}, {**inputs("tags", 1), "number": numbers(5)})
    net.forward()
    net.blobs["scores"].reshape(1, L, W, H)
    with pytest.raises(UserError, match=r"^ConstrainedLossLayer: image 5 has scores of shape \(5, 6, 4\), and had "
                       r"\(5, 4, 6\) .* hold needs whole images, of one size each \(forward pass 2 of this run, "
                       r"image 0 of the batch\)$"):
        net.forward()


@pytest.mark.parametrize("visit", [1, 2])
def test_scores_that_are_no_numbers_are_named(tmp_path, visit):
    net = make_net(tmp_path, CCNN, {"hold": 2}, {**inputs("tags", 2), "number": numbers(0, 1)})
    for _ in range(visit - 1):
        net.forward()
    net.blobs["scores"].data[1, 2, 1, 1] = np.inf
    with pytest.raises(UserError, match=r"^ConstrainedLossLayer: scores hold 1 NaN or infinite values \(forward pass "
                       rf"{visit} of this run, image 1 of the batch\)$"):
        net.forward()
