"""ccnn.torch: the same loss and gradient as the solver, in every kind of tensor. Needs PyTorch: make test-torch."""
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch installs it beside this Python")

import ccnn  # noqa: E402
from ccnn.torch import ConstrainedLoss  # noqa: E402

N, L, H, W = 3, 5, 9, 11
TAGS = np.array([[1, 1, 0, 0, 0], [1, 0, 1, 1, 0], [1, 0, 0, 0, 1]], bool)


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
        assert np.array_equal(f.grad[k].numpy().reshape(L, -1), diff / N)
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


def test_gradcheck_of_the_optimal_value():
    """With hard rows there is no slack: the loss is the optimal value, and its gradient is that of the loss."""
    f = torch.randn(2, 3, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    rows = ccnn.Constraints([[0, 1, 0], [-1, 0, 0]], [0.5, -0.3], [np.inf, np.inf])
    assert torch.autograd.gradcheck(lambda f: ConstrainedLoss(tol=1e-12)(f, [rows, rows]), f, atol=1e-6)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-6), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_other_types(scores, constraints, dtype, tolerance):
    wide = scores.to(dtype).float().requires_grad_()
    expected = ConstrainedLoss()(wide, constraints)
    expected.backward()
    f = scores.to(dtype).requires_grad_()
    value = ConstrainedLoss()(f, constraints)
    value.backward()
    assert value.dtype == f.grad.dtype == dtype
    assert value.item() == pytest.approx(expected.item(), rel=tolerance)
    assert torch.allclose(f.grad.float(), wide.grad, atol=tolerance * wide.grad.abs().max().item())


def test_memory_formats_and_three_dimensions(scores, constraints):
    expected = ConstrainedLoss()(scores, constraints)
    assert ConstrainedLoss()(scores.contiguous(memory_format=torch.channels_last), constraints) == expected
    assert ConstrainedLoss()(scores[..., None].transpose(-1, -2).flatten(2), constraints) == expected


def test_autocast_and_compile(scores, constraints):
    net = torch.nn.Conv2d(L, L, 1)
    plain = ConstrainedLoss()(net(scores), constraints)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = ConstrainedLoss()(net(scores), constraints)
    assert low.item() == pytest.approx(plain.item(), rel=0.03)
    loss = ConstrainedLoss()
    compiled = torch.compile(lambda x: loss(net(x), constraints), backend="eager")
    assert compiled(scores).item() == pytest.approx(plain.item(), rel=1e-5)


def test_no_gradient_where_none_is_wanted(scores, constraints):
    assert not ConstrainedLoss()(scores, constraints).requires_grad
    with torch.no_grad():
        assert not ConstrainedLoss()(scores.clone().requires_grad_(), constraints).requires_grad


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
