"""ccnn.torch: the loss and gradient of the solver and of the Caffe layer, in every kind of tensor; training with it.

Needs PyTorch: make test-torch.
"""
import copy
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch installs it beside this Python")

import ccnn  # noqa: E402
from ccnn.supervision.constraint_builder import with_known_pixels as one_with_known_pixels  # noqa: E402
from ccnn.torch import (  # noqa: E402
    ConstrainedLoss,
    box_constraints,
    mask_constraints,
    size_constraints,
    tag_constraints,
    with_known_pixels,
)

N, L, H, W = 3, 5, 9, 11
TAGS = np.array([[1, 1, 0, 0, 0], [1, 0, 1, 1, 0], [1, 0, 0, 0, 1]], bool)
LARGE = np.array([[0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]], bool)
BOXES = np.array([[[1, 0, 0, 5, 5], [-1, 0, 0, 0, 0]], [[2, 1, 1, 9, 4], [3, 2, 5, 8, 11]],
                  [[4, 3, 3, 9, 9], [4, 0, 0, 2, 2]]])
POINTS = np.full((N, H, W), 255)
POINTS[:, 4, 5:7], POINTS[1, 2, 2:4] = 0, 3


@pytest.fixture
def scores():
    return 2 * torch.randn(N, L, H, W, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def constraints():
    return [ccnn.tag_constraints(present) for present in TAGS]


def test_loss_and_gradient_are_the_solvers(scores, constraints):
    f = scores.requires_grad_()
    loss = ConstrainedLoss()
    value = loss(f, constraints)
    value.backward()
    solved = []
    for k, c in enumerate(constraints):
        diff = np.empty((L, H * W), np.float32)
        solved.append(ccnn.maximize(scores[k].detach().numpy().reshape(L, -1), c, diff=diff))
        rounding = 1e-6 / (N * H * W)           # q - p cancels
        assert np.allclose(f.grad[k].numpy().reshape(L, -1), diff / N, rtol=1e-6, atol=rounding)
        assert np.array_equal(loss.solutions[k].p, solved[k].p)
    assert value.item() == pytest.approx(np.mean([s.loss for s in solved]), rel=1e-6)
    assert f.grad.abs().max() > 1e-3                # else the test proves nothing


def test_the_loss_weight_reaches_the_gradient(scores, constraints):
    grads = []
    for weight in (1, -3.5):
        f = scores.clone().requires_grad_()
        (weight * ConstrainedLoss()(f, constraints)).backward()
        grads.append(f.grad)
    assert torch.allclose(grads[1], -3.5 * grads[0])


@pytest.mark.parametrize("beta", [np.inf, 0.5])
def test_gradcheck_of_the_optimal_value(beta):
    """The gradient is that of the optimal value KL + beta' xi. Without slack (hard rows) that is the loss itself."""
    f = torch.randn(2, 3, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    rows = ccnn.Constraints([[0, 1, 0], [-1, 0, 0]], [0.5, -0.3], [beta, beta])
    loss = ConstrainedLoss(tol=1e-12)

    def optimal_value(f):
        value = loss(f, [rows, rows])
        slack = np.mean([s.value for s in loss.solutions]) - value.item()
        assert slack == pytest.approx(0, abs=1e-9) if beta == np.inf else slack > 0.01
        return value + slack
    assert torch.autograd.gradcheck(optimal_value, f, atol=1e-6)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-6), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_other_types(scores, constraints, dtype, tolerance):
    wide = scores.to(dtype).float().requires_grad_()
    expected = ConstrainedLoss()(wide, constraints)
    expected.backward()
    f = scores.to(dtype).requires_grad_()
    value = ConstrainedLoss()(f, constraints)
    value.backward()
    assert f.grad.dtype == dtype
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    assert torch.allclose(f.grad.float(), wide.grad, atol=tolerance * wide.grad.abs().max().item())


def test_a_scaled_loss_keeps_small_gradients_in_float16(scores, constraints):
    """The scale of a GradScaler arrives before the gradient becomes float16: what float16 would drop survives."""
    wide = (scores / 100).requires_grad_()
    (1e-5 * ConstrainedLoss()(wide, constraints)).backward()
    small = wide.grad.abs() < 3e-8                          # rounded to 0 in float16
    assert small.float().mean() > 0.3
    half = wide.detach().half().requires_grad_()
    (65536 * (1e-5 * ConstrainedLoss()(half, constraints))).backward()
    found = half.grad.float() / 65536
    assert (found[small & (wide.grad != 0)] != 0).float().mean() > 0.99
    assert torch.allclose(found, wide.grad, rtol=0.01, atol=1e-11)


def loss_and_gradient(f, constraints):
    f = f.detach().requires_grad_()
    value = ConstrainedLoss()(f, constraints)
    value.backward()
    return value, f.grad


def test_memory_formats_and_three_dimensions(scores, constraints):
    expected, gradient = loss_and_gradient(scores, constraints)
    last = scores.contiguous(memory_format=torch.channels_last)
    assert not last.is_contiguous()
    wider = torch.zeros(N, L, H, 2 * W)[..., ::2].copy_(scores)          # strides that no format has
    for other in (last, wider):
        value, own = loss_and_gradient(other, constraints)
        assert value == expected and torch.equal(own, gradient)
    value, own = loss_and_gradient(scores.flatten(2), constraints)
    assert value == expected and torch.equal(own, gradient.flatten(2))


def test_channels_last_nets_learn_the_same(scores, constraints):
    grads = []
    for layout in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(3)
        net = torch.nn.Conv2d(L, L, 3, padding=1).to(memory_format=layout)
        ConstrainedLoss()(net(scores.to(memory_format=layout)), constraints).backward()
        grads.append(net.weight.grad)
    assert torch.allclose(*grads, rtol=1e-4, atol=1e-6) and grads[0].abs().max() > 1e-3


def test_autocast(scores, constraints):
    net = torch.nn.Conv2d(L, L, 1)
    plain = ConstrainedLoss()(net(scores), constraints)
    plain.backward()
    expected, net.weight.grad = net.weight.grad, None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = net(scores)
        value = ConstrainedLoss()(low, constraints)
    value.backward()
    assert low.dtype == torch.bfloat16 and value.dtype == net.weight.grad.dtype == torch.float32
    assert value.item() == pytest.approx(plain.item(), rel=0.03)
    assert torch.allclose(net.weight.grad, expected, atol=0.03 * expected.abs().max().item())


def test_compile(scores):
    """A compiled step gives the same loss and gradient, and new constraints compile nothing again."""
    net, loss = torch.nn.Conv2d(L, L, 1), ConstrainedLoss()
    compiled = []

    def backend(graph, _):
        compiled.append(graph)
        return graph

    def step(x, constraints):
        return 2 * loss(net(x).relu(), constraints)
    fast = torch.compile(step, backend=backend)
    for k in range(4):
        constraints = tag_constraints(np.roll(TAGS, k, axis=0))
        grads = []
        for call in (step, fast):
            net.zero_grad()
            value = call(scores + k, constraints)
            value.backward()
            grads.append((value.item(), net.weight.grad.clone()))
        assert grads[0][0] == pytest.approx(grads[1][0], rel=1e-6)
        assert torch.allclose(grads[0][1], grads[1][1])
        if k == 0:
            before = len(compiled)
    assert before == len(compiled) > 0
    torch._dynamo.reset()


def test_no_gradient_where_none_is_wanted(scores, constraints):
    value = ConstrainedLoss()(scores, constraints)
    assert not value.requires_grad and value.grad_fn is None
    with torch.no_grad():
        assert not ConstrainedLoss()(scores.clone().requires_grad_(), constraints).requires_grad
    head, trunk = torch.nn.Conv2d(L, L, 1), torch.nn.Conv2d(L, L, 1).requires_grad_(False)
    ConstrainedLoss()(head(trunk(scores)), constraints).backward()
    assert head.weight.grad is not None and trunk.weight.grad is None


def test_a_retained_graph_gives_the_gradient_again(scores, constraints):
    f = scores.clone().requires_grad_()
    value = ConstrainedLoss()(f, constraints)
    first, = torch.autograd.grad(value, f, retain_graph=True)
    kept = first.clone()
    second, = torch.autograd.grad(3 * value, f)
    assert torch.equal(first, kept) and torch.allclose(second, 3 * first)
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()


def test_second_derivatives_are_refused(scores, constraints):
    net = torch.nn.Conv2d(L, L, 1)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(ConstrainedLoss()(net(scores), constraints), net.weight, create_graph=True)


def test_two_losses_of_the_same_scores_add_up(scores, constraints):
    f = scores.clone().requires_grad_()
    (ConstrainedLoss()(f, constraints) + ConstrainedLoss()(f, constraints)).backward()
    assert torch.allclose(f.grad, 2 * loss_and_gradient(scores, constraints)[1])


def test_a_loss_can_be_copied_and_pickled(scores, constraints):
    loss = ConstrainedLoss(hardness=2.0)
    expected = loss(scores, constraints)
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert other(scores, constraints) == expected
    assert "hardness=2.0" in repr(loss)


# --- constraints from tensors ---------------------------------------------------------------------------------

def equal(ours, theirs):
    """Whether two lists of constraints have the same arrays."""
    return len(ours) == len(theirs) and all(
        np.array_equal(getattr(a, name), getattr(b, name)) if getattr(b, name) is not None else getattr(a, name) is None
        for a, b in zip(ours, theirs) for name in ("A", "b", "beta", "allowed", "regions"))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.bfloat16])
def test_tags_and_sizes(dtype):
    present, large = torch.tensor(TAGS).to(dtype), torch.tensor(LARGE).to(dtype)
    assert equal(tag_constraints(present), [ccnn.tag_constraints(row) for row in TAGS])
    assert equal(tag_constraints(present, bg_lower=0.1), [ccnn.tag_constraints(row, bg_lower=0.1) for row in TAGS])
    assert equal(size_constraints(present, large), [ccnn.size_constraints(*rows) for rows in zip(TAGS, LARGE)])
    assert not equal(size_constraints(present, large), size_constraints(present, present))


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_boxes(dtype):
    expected = [ccnn.box_constraints([box for box in own if box[0] != -1], (H, W), L) for own in BOXES]
    padded = torch.tensor(BOXES).to(dtype)
    assert equal(box_constraints(padded, (H, W), L), expected)
    assert equal(box_constraints([own[own[:, 0] != -1] for own in padded], torch.Size((H, W)), L), expected)
    nothing = box_constraints([torch.zeros(0, 5), []], (H, W), L, fraction=0.5)
    assert equal(nothing, [ccnn.box_constraints([], (H, W), L)] * 2)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_masks(dtype):
    masks = torch.tensor(POINTS).to(dtype)
    expected = [ccnn.mask_constraints(mask, L) for mask in POINTS]
    assert equal(mask_constraints(masks, L), expected)
    assert equal(mask_constraints(torch.where(torch.tensor(POINTS) == 255, -100, torch.tensor(POINTS)), L,
                                  ignore_index=-100), expected)
    known = [one_with_known_pixels(ccnn.tag_constraints(row), c, 0.5) for row, c in zip(TAGS, expected)]
    assert equal(with_known_pixels(tag_constraints(TAGS), masks, L), known)
    assert len(with_known_pixels(tag_constraints(TAGS), masks, L, mask_share=0.01)[0]) == 0       # rows left out


def test_a_data_loader_delivers_tags(scores):
    data = torch.utils.data.TensorDataset(scores, torch.tensor(TAGS))
    for f, present in torch.utils.data.DataLoader(data, batch_size=2):
        assert ConstrainedLoss()(f, tag_constraints(present)) > 0


@pytest.mark.parametrize("call, message", [
    (lambda: tag_constraints(torch.ones(5)), r"present must be N x L, one row per image; got shape \(5,\)"),
    (lambda: tag_constraints(torch.full((2, 5), 2)), "present must be True or False, 1 or 0; got 2"),
    (lambda: tag_constraints(torch.full((2, 5), np.nan)), "present must be True or False, 1 or 0; got nan"),
    (lambda: tag_constraints(torch.ones(2, 5), bg_lower=2), "bg_lower must be a fraction"),
    (lambda: size_constraints(torch.ones(2, 5), torch.ones(3, 5)), "present has 2 images, large has 3"),
    (lambda: size_constraints(torch.ones(2, 5), torch.ones(2, 4)), "present has 5 labels, large has 4"),
    (lambda: box_constraints(torch.ones(2, 5), (H, W), L), r"image 0: boxes must be B x 5 .*; got shape \(5,\)"),
    (lambda: box_constraints([[], [[1, 0, 0, 99, 2]]], (H, W), L), r"image 1: box 0: \(0, 0, 99, 2\) is empty or not"),
    (lambda: box_constraints([[[1, 0.5, 0, 3, 2]]], (H, W), L), "image 0: box 0: need five whole numbers"),
    (lambda: mask_constraints(torch.zeros(N, H, W), L), "masks must be N x H x W integers; got torch.float32"),
    (lambda: mask_constraints(torch.zeros(H, W).long(), L), r"masks must be N x H x W integers; got .* \(9, 11\)"),
    (lambda: mask_constraints(torch.full((1, H, W), 5), L), "image 0: mask holds label 5; need 0 .. 4, or 255 where"),
    (lambda: mask_constraints(torch.full((1, H, W), 255), L, ignore_index=-1), "mask holds label 255; .* or -1 where"),
    (lambda: with_known_pixels(tag_constraints(TAGS), POINTS[:2], L), "need one mask per image, 3; got 2"),
    (lambda: ConstrainedLoss()(torch.zeros(N, L, H, W), torch.tensor(TAGS)), "image 0: need ccnn.Constr.*Tensor"),
])
def test_wrong_tensors(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change, message", [
    (lambda f, c: (f, c[:2]), "one set of constraints per image, 3; got 2"),
    (lambda f, c: (f[0, 0], c), "scores must be N x L x H x W floats"),
    (lambda f, c: (f.long(), c), "scores must be N x L x H x W floats"),
    (lambda f, c: (f[:, :4], c), "image 0: scores have 4 labels; the constraints need 5"),
    (lambda f, c: (f * float("nan"), c), "image 0: scores hold 495 NaN"),
    (lambda f, c: (f, [ccnn.Constraints([[1, 0, 0, 0, 0]], [1.5], [np.inf])] * 3), "of image 0 contradict each other"),
])
def test_wrong_input(scores, constraints, change, message):
    with pytest.raises(ValueError, match=message):
        ConstrainedLoss()(*change(scores, constraints))


# --- beside the Caffe layer -----------------------------------------------------------------------------------

CAFFE_LAYER = """
import json, pathlib, sys
import numpy as np
import test_losses
folder = pathlib.Path(sys.argv[1])
blobs = dict(np.load(folder / "blobs.npz"))
loss, diff, _ = test_losses.run(folder, test_losses.CCNN, json.loads(sys.argv[2]), blobs)
np.savez(folder / "found.npz", loss=loss, diff=diff)
"""

MASKS = np.where(np.arange(N)[:, None, None] == 1, 3, POINTS)           # a full mask, and points

KINDS = {           # settings of the layer, its blobs, and the same for the loss
    "tags": ({"fg_lower": 0.1}, {"tags": TAGS}, lambda: tag_constraints(TAGS, fg_lower=0.1)),
    "size": ({}, {"tags": TAGS, "sizes": LARGE}, lambda: size_constraints(TAGS, LARGE)),
    "boxes": ({}, {"boxes": BOXES}, lambda: box_constraints(BOXES, (H, W), L)),
    "tags and masks": ({}, {"tags": TAGS, "labels": MASKS[:, None]},
                       lambda: with_known_pixels(tag_constraints(TAGS), MASKS, L)),
}


@pytest.mark.parametrize("hardness", [1.0, 20.0])
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_are_the_caffe_layers(root, python_bin, tmp_path, scores, kind, hardness):
    if not Path(python_bin).exists():
        pytest.skip("needs Caffe: make")
    settings, blobs, constraints = KINDS[kind]
    settings = {"supervision": kind.split()[0], "hardness": hardness, **settings}
    np.savez(tmp_path / "blobs.npz", scores=scores.numpy(), **{name: x.astype(np.float32) for name, x in blobs.items()})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root / "layers", root / "tests")))}
    done = subprocess.run([python_bin, "-c", CAFFE_LAYER, tmp_path, json.dumps(settings)], env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "found.npz")
    f = scores.clone().requires_grad_()
    value = ConstrainedLoss(hardness=hardness)(f, constraints())
    value.backward()
    assert value.item() == pytest.approx(found["loss"].item(), rel=1e-6)
    assert np.abs(f.grad.numpy() - found["diff"]).max() <= 1e-6 * np.abs(found["diff"]).max()
    assert np.abs(found["diff"]).max() > 1e-4


# --- training -------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def drawn(root, python_bin, tmp_path_factory):
    """A few of the demo's images."""
    folder = tmp_path_factory.mktemp("drawn") / "demo"
    subprocess.run([python_bin, root / "demo/draw_demo.py", folder, "--train", "24", "--val", "4"], check=True,
                   capture_output=True)
    return folder


def run_example(launcher, *arguments):
    done = subprocess.run([*launcher, Path(__file__).parents[1] / "examples/train_torch.py", *arguments],
                          env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_two_processes_reach_the_weights_of_one(drawn, tmp_path):
    weights = []
    for number in (1, 2):
        launcher = [sys.executable] if number == 1 else \
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(number)]
        out = tmp_path / f"{number}.pt"
        code, said, errors = run_example(launcher, drawn, "--epochs", "3", "--out", out)
        assert code == 0, errors
        losses = [float(x) for x in re.findall(r"^epoch \d of 3: loss (\S+)$", said, re.M)]
        assert len(losses) == 3 and losses[-1] < losses[0], said
        assert re.search(r"^mean IoU on 4 images that it has not seen: \d+\.\d %$", said, re.M), said
        weights.append(torch.load(out))
    for name, one in weights[0].items():
        assert (one - weights[1][name]).abs().max() <= 1e-5 * one.abs().max(), name


def test_the_example_says_what_is_missing(tmp_path):
    code, _, errors = run_example([sys.executable], tmp_path)
    assert code == 2 and "classes.txt does not exist; draw the images first" in errors


def test_the_bench_writes_its_table(root, tmp_path):
    done = subprocess.run([sys.executable, root / "bench/bench_torch.py", "--quick", "--out", tmp_path],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = (tmp_path / "bench_torch.md").read_text()
    assert report in done.stdout
    for line in ("| 2 x 21 x 9 x 9 | ", "| linear head, tags, 4 images | PyTorch | ",
                 "Limit for the loss: 1.3 times the solver", "<!-- measured with"):
        assert line in report


def test_the_dense_crf_takes_tensors():
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 255, (3, 3, 20, 30), np.uint8))
    scores = torch.from_numpy(rng.normal(size=(3, 4, 20, 30)).astype(np.float32)).requires_grad_()
    q = ccnn.torch.dense_crf(images, scores, "tuned")
    assert q.dtype == torch.float32 and not q.requires_grad
    for k in range(3):
        expected = ccnn.dense_crf(images[k].permute(1, 2, 0).numpy(), scores[k].detach().numpy(), "tuned")
        assert np.array_equal(q[k].numpy(), expected)
    assert ccnn.torch.dense_crf(images, scores.bfloat16()).dtype == torch.bfloat16
    assert ccnn.torch.dense_crf(images[:0], scores[:0]).shape == (0, 4, 20, 30)
    for wrong in ((images.float(), scores), (images[0], scores), (images, scores[0]), (images, scores.long()),
                  (images[:2], scores), (images[:, :, 1:], scores)):
        with pytest.raises(ValueError, match="must be|need scores"):
            ccnn.torch.dense_crf(*wrong)
