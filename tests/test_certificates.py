"""What a solution claims about its own point, checked by the float64 twin; the loops behind it, size by size."""
import numpy as np
import pytest
from oracles import Problem
from problems import KINDS

import ccnn
from ccnn import Constraints, box_constraints, tag_constraints


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_point_that_no_pass_has_seen_is_known_as_well(kind, dtype):
    """The last small step is certified ahead of it. On enough problems that some of them end so, and some do not."""
    for seed in range(25):
        f, c = KINDS[kind](np.random.default_rng(100 + seed), 8 + seed % 5)
        f = f.astype(dtype)
        s, twin = ccnn.maximize(f, c), Problem(f, c)
        short = twin.b - twin.values(twin.p(s.lam))
        hard = np.isinf(twin.beta)
        assert s.status == "optimal"
        assert (short <= 1.001e-9 * twin.range())[hard].all()
        gap = ((twin.beta - s.lam)[~hard] @ np.maximum(short[~hard], 0) + s.lam[~hard] @ np.maximum(-short[~hard], 0)
               + s.lam[hard] @ np.abs(short[hard]))
        unsure = 1.2e-10 * np.where(hard, s.lam, twin.beta) @ twin.range()      # a tenth of the tolerance of a row
        assert gap <= s.gap * (1 + 1e-9) + 1e-12                                # never less than it is,
        assert s.gap <= gap + 2 * unsure + 1e-12                                # and hardly more
        assert s.value == pytest.approx(twin.dual(s.lam), abs=1e-11)
        assert s.residual == pytest.approx(twin.residual(s.lam), abs=2e-10 * max(1, twin.range().max()))
        np.testing.assert_allclose(s.p, twin.p(s.lam), atol=1e-12 if dtype == np.float64 else 1e-7)


def test_the_last_step_needs_no_pass():
    """Two passes: at 0, and after a step that ends within 1e-5 of the optimum."""
    f = np.zeros((2, 100))
    f[0] = np.linspace(-1, 1, 100)
    passes = [ccnn.maximize(f, Constraints([[0, 1]], [bound], [np.inf]), tol=1e-9).iterations
              for bound in np.linspace(0.5001, 0.501, 20)]
    assert max(passes) == 2


@pytest.mark.parametrize("labels", range(2, 10))
@pytest.mark.parametrize("pixels", [1, 2, 15, 16, 17, 127, 128, 129, 255, 257, 511, 512, 513, 1100])
def test_p_of_every_number_of_labels_and_pixels(labels, pixels):
    """The loops are compiled for each number of labels up to 6; they take 16, 128, 256 or 512 pixels at a time."""
    f = np.random.default_rng(labels).normal(size=(labels + 1, pixels)).astype(np.float32)
    f[2] -= 3
    c = Constraints(np.eye(labels + 1)[[0, 2]], [0.45, 0.3], [2.0, np.inf], np.arange(labels + 1) != 1)
    diff = np.full_like(f, np.nan)
    s, twin = ccnn.maximize(f, c, diff=diff), Problem(f, c)
    p = twin.p(s.lam)
    assert s.status == "optimal" and s.lam.any()
    np.testing.assert_allclose(s.p, p, atol=1e-7)
    np.testing.assert_allclose(diff * pixels, np.exp(twin.log_q) - p, atol=1e-6)
    assert s.value == pytest.approx(twin.dual(s.lam), abs=1e-11)
    assert s.loss == pytest.approx(twin.kl(p), rel=1e-5)
    double = ccnn.maximize(f.astype(float), c)
    np.testing.assert_allclose(double.p, twin.p(double.lam), atol=1e-13)


def absent_labels():
    yield "tags", tag_constraints([True, False, True, False])
    yield "boxes", box_constraints([(2, 0, 0, 9, 11)], (9, 11), labels=4)


@pytest.mark.parametrize("c", [pytest.param(c, id=name) for name, c in absent_labels()])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_scores_of_labels_that_cannot_appear_are_read_for_the_gradient_only(c, dtype, bad):
    f = np.random.default_rng(0).normal(size=(4, 99)).astype(dtype)
    f[0] += 2
    same = ccnn.maximize(f, c)
    f[3, 50] = bad
    s = ccnn.maximize(f, c)
    assert s.status == "optimal" and s.p.tobytes() == same.p.tobytes() and s.lam.tobytes() == same.lam.tobytes()
    assert np.isnan(s.value) or np.isfinite(bad)                # KL(p || softmax(f)) is not a number
    if not np.isfinite(bad):
        diff = np.full_like(f, 7)
        with pytest.raises(ValueError, match="label 3, pixel 50$"):
            ccnn.maximize(f, c, diff=diff)
        assert not diff.any()
    f[2, 7] = np.nan                                            # this one may appear
    with pytest.raises(ValueError, match="label 2, pixel 7$" if np.isfinite(bad) else "scores hold 2 NaN"):
        ccnn.maximize(f, c)


# Rows at high prices, whose rounding errors count

def expensive(rng):
    """Scores, and rows of any unit whose price times their entries is 1e5 to 1e10."""
    L, n, k = rng.integers(2, 6), rng.integers(4, 100), rng.integers(1, 4)
    A = rng.normal(size=(k, L)) * 10 ** rng.uniform(-2, 4, (k, 1))
    regions = rng.random((k, n)) if rng.random() < 0.3 else np.ones((k, n))
    low, high = (regions.mean(axis=1) * side for side in (A.min(axis=1), A.max(axis=1)))
    beta = 10 ** rng.uniform(5, 10, k) / np.abs(A).max(axis=1)
    return rng.normal(0, rng.choice([0.1, 1, 5]), (L, n)), Constraints(
        A, low + (high - low) * rng.uniform(-0.1, 1.1, k), beta, None, regions)


def exact_gap(f, c, lam):
    """primal - dual at p(lam) in numbers of 64 bits after the point, for soft rows."""
    a = (c.A[:, :, None] * c.regions[:, None]).astype(np.longdouble)                    # k x L x n
    z = f + np.tensordot(lam.astype(np.longdouble), a, 1)
    p = np.exp(z - z.max(axis=0))
    short = c.b - (a * (p / p.sum(axis=0))).sum(axis=(1, 2)) / f.shape[1]
    return float(np.where(short > 0, (c.beta - lam.astype(np.longdouble)) * short, -lam * short).sum())


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="needs numbers that are longer than float64")
def test_no_rounding_error_makes_a_point_optimal():
    """The gap is an upper bound, whatever the prices; and most points can still be certified."""
    optimal = 0
    for seed in range(300):
        f, c = expensive(np.random.default_rng(seed))
        s = ccnn.maximize(f, c)
        assert s.status in ("optimal", "stalled") and s.gap >= 0
        assert exact_gap(f, c, s.lam) <= s.gap + 1e-13, f"problem {seed}: {s}"
        optimal += s.status == "optimal"
        assert s.iterations < 100, "it searches on where only rounding errors are left"
    assert optimal > 200
    # the authors' 1e10 for infinity, on a problem of usual size
    f = np.random.default_rng(0).normal(size=(3, 1000))
    assert ccnn.maximize(f, Constraints(np.eye(3)[1:], [0.6, 0.1], [1e10, 1e10])).status == "optimal"
