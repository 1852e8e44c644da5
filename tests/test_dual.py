"""The solver: optimality conditions one per line, other solvers, invariances, certificates, adversaries."""
import copy
import pickle
import sys
import threading
import time

import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import Problem, distance
from problems import KINDS, flags, priced, random_rows, run, tags
from scipy import optimize, sparse
from scipy.special import softmax

import ccnn
from ccnn import Constraints, box_constraints, mask_constraints, size_constraints, tag_constraints

METHODS = ["newton", "pga"]
PASSES = {"newton": 300, "pga": 20000}          # the documented bounds on the work
properties = settings(max_examples=40)


@pytest.fixture(params=KINDS)
def problem(request):
    """(size, seed) -> f, c."""
    return lambda size=9, seed=0: KINDS[request.param](np.random.default_rng(seed), size)


def solve(f, c, **options):
    """Solve, and check what holds of every solution."""
    s = ccnn.maximize(f, c, **options)
    assert s.status in ("optimal", "infeasible", "stalled")
    assert s.p.shape == f.shape and s.p.dtype == f.dtype and s.lam.shape == (len(c.b),)
    assert np.isfinite(s.p).all() and (s.p >= 0).all()
    np.testing.assert_allclose(s.p.sum(axis=0, dtype=float), 1, atol=1e-5 if f.dtype == np.float32 else 1e-12)
    if c.allowed is not None:
        assert not s.p[~np.broadcast_to(np.asarray(c.allowed).reshape(len(f), -1), f.shape)].any()
    assert (s.status == "infeasible") == (s.ray is not None)
    if s.status == "optimal":
        assert s.gap <= options.get("tol", 1e-6)
    return s


def optimal(f, c, **options):
    s = solve(f, c, **options)
    assert s.status == "optimal", s
    return s


# ---- optimality ------------------------------------------------------------------------------

@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("beta", [None, 2.0, 0.1])
def test_solution_satisfies_kkt(problem, beta, method):
    f, c = problem()
    c = c if beta is None else priced(c, beta)
    twin = Problem(f, c)
    assert twin.residual(np.zeros(len(c.b))) > 0.01        # q violates a row, else the test proves nothing
    s = optimal(f, c, method=method, tol=1e-9)
    surplus = c.values(s.p) - c.b

    assert s.lam.any()
    assert (0 <= s.lam).all() and (s.lam <= c.beta).all()
    assert (surplus[s.lam < c.beta] >= -2e-5).all()        # violated only where slack is bought
    assert (surplus[s.lam > 1e-3] <= 2e-5).all()           # complementary slackness
    assert (surplus >= -1.1e-9 * twin.range())[np.isinf(c.beta)].all()  # hard rows hold
    np.testing.assert_allclose(s.p, twin.p(s.lam), atol=1e-9)           # stationarity: p is softmax(f + M' lam)
    np.testing.assert_allclose(c.values(s.p), twin.values(s.p), atol=1e-12)
    assert s.residual == pytest.approx(twin.residual(s.lam), abs=1e-8)
    assert s.residual < 2e-5


@pytest.mark.parametrize("hardness, tol", [(1, 1e-6), (1000, 1e-4)])
def test_hard_rows_hold_to_a_billionth_in_the_returned_float64(problem, hardness, tol):
    f, c = problem(seed=3)
    s = optimal(f, c, hardness=hardness, tol=tol)
    assert (c.values(s.p) >= c.b - 1.1e-9 * Problem(f, c).range())[np.isinf(c.beta)].all()


def recomputed_gap(twin, lam):
    """Primal at p(lam) minus D(lam), row by row; a hard row a billionth of its range short counts as held."""
    short = twin.b - twin.values(twin.p(lam))
    hard = np.isinf(twin.beta)
    assert (short <= 1.1e-9 * twin.range())[hard].all()
    return (twin.beta - lam)[~hard] @ np.maximum(short[~hard], 0) + lam @ np.maximum(-short, 0)


@pytest.mark.parametrize("method", METHODS)
def test_gap_is_the_one_recomputed_in_float64(problem, method):
    """The certificate from lam alone, by the float64 twin."""
    for seed in range(4):
        f, c = problem(seed=seed)
        for rows in (c, priced(c, 0.7)):
            for tol in (1e-2, 1e-6):
                s = optimal(f.astype(np.float32), rows, method=method, tol=tol)
                twin = Problem(f.astype(np.float32), rows)
                assert s.gap == pytest.approx(recomputed_gap(twin, s.lam), rel=1e-3, abs=1e-8)
                assert s.value == pytest.approx(twin.dual(s.lam), abs=max(1e-8, s.gap))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gap_never_understates_the_distance_to_the_optimum(problem, dtype):
    for seed in range(3):
        f, c = problem(seed=seed)
        f = f.astype(dtype)
        twin = Problem(f, c)
        lam = oracles.lbfgsb(twin)
        best = twin.dual(lam)
        for tol in (1e-1, 1e-3, 1e-6):
            s = optimal(f, c, tol=tol)
            assert s.gap >= best - twin.dual(s.lam) - 1e-8
            assert abs(s.value - best) <= s.gap + 1e-8
            assert distance(s.p, twin.p(lam)) <= np.sqrt(2 * s.gap) + 1e-4


# ---- agreement with methods that share no code -----------------------------------------------

def test_newton_agrees_with_pga_and_with_two_float64_twins(problem):
    for seed in range(3):
        f, c = problem(seed=seed)
        twin = Problem(f, c)
        lam = oracles.lbfgsb(twin)
        for method in METHODS:
            s = optimal(f, c, method=method, tol=1e-8)
            assert s.value == pytest.approx(twin.dual(lam), abs=1e-7)
            assert distance(s.p, twin.p(lam)) < 2e-4
    lam = oracles.pga(Problem(f, c), tol=1e-5)
    assert s.value == pytest.approx(Problem(f, c).dual(lam), abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_agrees_with_an_interior_point_method(problem, method):
    pytest.importorskip("cvxpy")
    f, c = problem(size=6)
    other = oracles.clarabel(Problem(f, c))
    s = optimal(f, c, method=method, tol=1e-8)
    assert s.value == pytest.approx(other.value, abs=1e-6)
    assert distance(s.p, other.p) < 1e-3


def tiny(kind, rng):
    """Five pixels in a row, three labels, everything bites."""
    f = rng.normal(size=(3, 5)) + np.array([[2.5], [0], [0]])
    present, large = flags(3, 0, 1, 2), flags(3, 0, 1)
    return f, dict(
        tags=lambda: tag_constraints(present, fg_lower=0.25),
        sizes=lambda: size_constraints(present, large, fg_lower=0.4, small_upper=0.05),
        boxes=lambda: box_constraints([(1, 0, 0, 1, 3), (2, 0, 2, 1, 5)], (1, 5), labels=3, beta=1.0),
        general=lambda: Constraints.from_matrix([[0] * 5 + [1, 2, 3, 4, 5] + [-1] * 5, [0] * 10 + [1, 0, 4, 0, 1]],
                                                [1.0, 0.5], [np.inf, 0.4]))[kind]()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["tags", "sizes", "boxes", "general"])
def test_agrees_with_slsqp_on_a_tiny_primal(kind, method):
    f, c = tiny(kind, np.random.default_rng(1))
    twin = Problem(f, c)
    other = oracles.slsqp(twin)
    s = optimal(f, c, method=method, tol=1e-9)
    assert s.lam.any()
    assert s.value == pytest.approx(other.value, abs=1e-6)
    assert distance(s.p, other.p) < 2e-3
    soft = np.isfinite(c.beta)
    slack = np.maximum(c.b - c.values(s.p), 0)
    assert s.value == pytest.approx(twin.kl(s.p) + c.beta[soft] @ slack[soft], abs=1e-7)


@properties
@given(seed=st.integers(0, 10 ** 6), L=st.integers(2, 5), n=st.integers(2, 25), k=st.integers(1, 6),
       regions=st.booleans(), hardness=st.sampled_from([0.1, 1.0, 30.0]), method=st.sampled_from(METHODS))
def test_random_rows_reach_the_twins_optimum(seed, L, n, k, regions, hardness, method):
    rng = np.random.default_rng(seed)
    f, c = rng.normal(size=(L, n)), random_rows(rng, L, n, k, regions=regions)
    twin = Problem(f, c, hardness)
    s = solve(f, c, hardness=hardness, method=method, tol=1e-5)
    assert s.status != "infeasible"                              # rows were built around a p
    assert s.status == "optimal" or method == "pga"              # first order may need more passes than it has
    if s.status == "optimal":
        assert s.value == pytest.approx(twin.dual(oracles.lbfgsb(twin)), abs=3e-5)


# ---- properties ------------------------------------------------------------------------------

@properties
@given(seed=st.integers(0, 10 ** 6), dtype=st.sampled_from([np.float32, np.float64]),
       hardness=st.sampled_from([1.0, 1000.0]))
def test_invariant_to_a_constant_per_pixel(seed, dtype, hardness):
    """Scores are multiples of 1/256 and shifts whole numbers up to 1e4, so float32 holds the sums exactly."""
    rng = np.random.default_rng(seed)
    f, c = tags(rng, 5)
    f = (np.round(256 * f) / 256).astype(dtype)
    moved = f + rng.integers(-10 ** 4, 10 ** 4 + 1, f.shape[1]).astype(dtype)
    s, t = optimal(f, c, hardness=hardness, tol=1e-4), optimal(moved, c, hardness=hardness, tol=1e-4)
    np.testing.assert_allclose(t.p, s.p, atol=1e-6 if hardness == 1 else 2e-3)
    np.testing.assert_allclose(t.lam, s.lam, rtol=1e-5, atol=1e-5 * hardness)
    assert t.value == pytest.approx(s.value, rel=1e-6, abs=1e-6 * hardness)


@properties
@given(seed=st.integers(0, 10 ** 6), regions=st.booleans())
def test_invariant_to_permuting_pixels_labels_and_rows(seed, regions):
    rng = np.random.default_rng(seed)
    L, n, k = 5, 23, 4
    f, c = rng.normal(size=(L, n)), random_rows(rng, L, n, k, regions=regions)
    allowed = rng.random((L, n)) < 0.8
    allowed[0] = True
    A, b, beta, weights = c.A, c.b, np.full(k, 1.5), np.ones((k, n)) if c.regions is None else c.regions
    s = optimal(f, Constraints(A, b, beta, allowed, weights), tol=1e-9)
    pixels, labels, rows = rng.permutation(n), rng.permutation(L), rng.permutation(k)
    t = optimal(f[:, pixels], Constraints(A, b, beta, allowed[:, pixels], weights[:, pixels]), tol=1e-9)
    np.testing.assert_allclose(t.p, s.p[:, pixels], atol=1e-4)
    t = optimal(f[labels], Constraints(A[:, labels], b, beta, allowed[labels], weights), tol=1e-9)
    np.testing.assert_allclose(t.p, s.p[labels], atol=1e-4)
    t = optimal(f, Constraints(A[rows], b[rows], beta[rows], allowed, weights[rows]), tol=1e-9)
    np.testing.assert_allclose(t.p, s.p, atol=1e-4)
    assert b @ t.lam[np.argsort(rows)] == pytest.approx(b @ s.lam, abs=1e-2)


@properties
@given(seed=st.integers(0, 10 ** 6), method=st.sampled_from(METHODS), dtype=st.sampled_from([np.float32, np.float64]),
       hardness=st.sampled_from([0.5, 1.0, 50.0]))
def test_p_is_q_where_q_is_feasible(seed, method, dtype, hardness):
    rng = np.random.default_rng(seed)
    f, c = rng.normal(size=(4, 30)).astype(dtype), random_rows(rng, 4, 30, 5, regions=True)
    q = softmax(hardness * f.astype(float), axis=0)
    c = Constraints(c.A, c.values(q) - rng.uniform(1e-4, 1, 5), c.beta, regions=c.regions)
    s = optimal(f, c, method=method, hardness=hardness)
    assert not s.lam.any()
    np.testing.assert_allclose(s.p, q, atol=1e-5 if dtype == np.float32 else 1e-12)
    assert abs(s.value) < 1e-6 and abs(s.gap) < 1e-12 and s.iterations <= 2


@pytest.mark.parametrize("kind", ["tags", "sizes", "boxes"])
def test_hardness_to_infinity_gives_one_hot_pixels_and_the_linear_program(kind):
    """As the entropy's weight 1/hardness vanishes, p maximises mean f'p: a vertex, at most k pixels undecided."""
    f, c = KINDS[kind](np.random.default_rng(5), 7)
    twin = Problem(f, c)
    at = twin.allowed.ravel()
    pixel = np.tile(np.arange(twin.n), twin.L)[at]
    sums = sparse.csr_matrix((np.ones(at.sum()), (pixel, np.arange(at.sum()))))
    hard = np.isinf(c.beta)
    rows = twin.M.tocsc()[:, at][hard] / twin.n
    best = optimize.linprog(-twin.f.ravel()[at] / twin.n, A_ub=-rows, b_ub=-c.b[hard], A_eq=sums, b_eq=np.ones(twin.n))
    hardness = 1e5
    s = optimal(f, c, hardness=hardness, tol=1e-2)          # soft rows, priced at a few, no longer count against 1e5
    assert np.sum(s.p.max(axis=0) < 0.999) <= len(c.b)
    assert (twin.f * s.p).sum() / twin.n == pytest.approx(-best.fun, abs=2e-3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("beta, hardness", [(np.inf, 1), (0.05, 1), (0.05, 4)])
def test_gradient_of_the_optimal_value_is_q_minus_p(problem, method, beta, hardness):
    f, c = problem(size=4, seed=2)
    if beta < np.inf:
        c = priced(c, beta)
    s = optimal(f, c, method=method, hardness=hardness, tol=1e-9)
    slack = np.maximum(c.b - c.values(s.p), 0)
    assert s.lam.any() and (slack.max() > 1e-3 or beta == np.inf)          # slack is bought, or there is none
    gradient = hardness * (softmax(hardness * f, axis=0) - s.p) / f.shape[1]
    rng, step = np.random.default_rng(0), 1e-3
    for _ in range(4):
        d = rng.normal(size=f.shape)
        up, down = (optimal(f + h * d, c, method=method, hardness=hardness, tol=1e-9).value for h in (step, -step))
        assert (up - down) / (2 * step) == pytest.approx((gradient * d).sum(), abs=2e-5)


# ---- infeasible and borderline ---------------------------------------------------------------

def check_ray(f, c, ray):
    """A direction d >= 0 on hard rows with d'b beyond what any p can give proves that none exists."""
    twin = Problem(f, c)
    assert ray.shape == c.b.shape and np.isfinite(ray).all() and (ray >= 0).all() and ray.any()
    assert not ray[np.isfinite(c.beta)].any()
    reach = np.where(twin.allowed, (twin.M.T @ ray).reshape(f.shape), -np.inf).max(axis=0).mean()
    assert ray @ c.b > reach


def contradictions(rng):
    L, n, inf = 4, 30, np.inf
    e = np.eye(L)
    box = np.zeros((3, n))
    box[0, :10], box[1, :10], box[2] = 1, 1, 1
    M = sparse.csr_matrix(np.vstack([np.outer(e[1], np.arange(n)).ravel(), -np.outer(e[1], np.arange(n)).ravel()]))
    yield "two labels want 60 %", Constraints(e[[1, 2]], [0.6, 0.6], [inf, inf])
    yield "by one in a thousand", Constraints(e[[1, 2]], [0.6, 0.401], [inf, inf])
    yield "with soft rows around", Constraints(e[[3, 1, 0, 2]], [0.5, 0.6, 0.3, 0.6], [2, inf, 0.1, inf])
    yield "lower above upper", Constraints(np.array([e[1], -e[1]]), [0.5, -0.4], [inf, inf])
    yield "a box", Constraints(e[[1, 2, 0]], [0.2, 0.2, 0.1], [inf] * 3, regions=box)
    yield "a matrix", Constraints.from_matrix(M, [5.0, -4.0], [inf, inf])
    yield "suppressed but wanted", Constraints(e[[1]], [0.1], [inf], allowed=[True, False, True, True])
    yield "known pixels", Constraints(e[[1]], [0.5], [inf]) & mask_constraints([0] * 20 + [255] * 10, labels=L)
    yield "more than all", Constraints(e[[1]], [1.5], [inf])
    yield "one pixel in thirty short", Constraints(e[[1]], [0.98], [inf]) & mask_constraints([0] + [255] * 29, labels=L)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("std", [0.1, 1, 20])
def test_contradictory_hard_rows_are_infeasible_with_a_proof(method, std):
    rng = np.random.default_rng(0)
    for why, c in contradictions(rng):
        f = std * rng.normal(size=(4, 30))
        assert oracles.largest_margin(Problem(f, c)) < 0
        s = solve(f, c, method=method)
        assert s.status == "infeasible", why
        check_ray(f, c, s.ray)
        assert not s.gap <= 1e-6
        assert s.iterations <= PASSES[method]
        soft = priced(c, 3.0)
        assert solve(f, soft, method=method, tol=1e-4).status == "optimal", why        # and slack resolves it


@pytest.mark.parametrize("method", METHODS)
def test_rows_that_only_just_agree_are_never_called_infeasible(method):
    """One p satisfies them, with zeros that no finite lam reaches: optimal or stalled, and soon."""
    rng = np.random.default_rng(0)
    e, inf = np.eye(3), np.inf
    for A, b in [(e[[0, 1]], [0.6, 0.4]), (e[[0, 1, 2]], [0.5, 0.25, 0.25]), (np.array([e[0], -e[0]]), [0.5, -0.5]),
                 (e[[1]], [1.0]), (-e[[1]], [0.0]), (e[[0, 1]], [0.6, 0.4 - 1e-7])]:
        s = solve(rng.normal(size=(3, 40)), Constraints(A, b, [inf] * len(b)), method=method)
        assert s.status in ("optimal", "stalled") and s.iterations <= PASSES[method]


@pytest.mark.parametrize("scale", [1e-6, 1, 1e6, 1e9])
def test_all_that_a_row_can_give_is_not_too_much_in_any_unit(scale):
    """Every pixel must take label 1, weighed 1 to 3: feasible, though sums round."""
    rng = np.random.default_rng(0)
    for n in (7, 49, 1000):
        w = rng.integers(1, 4, n).astype(float)
        M = sparse.csr_matrix(np.outer([0, scale, 0], w).ravel())
        for c in (Constraints([[0, scale, 0]], [scale * w.mean()], [np.inf], regions=[w]),
                  Constraints.from_matrix(M, [scale * w.mean()], [np.inf])):
            s = solve(rng.normal(size=(3, n)), c)
            assert s.status == "optimal" and s.p[1].min() > 0.99, s


# ---- adversaries -----------------------------------------------------------------------------

def adversaries():
    rng = np.random.default_rng(0)
    wild = rng.choice([-1e30, 0, 1, 1e30], (4, 50))
    yield "+-1e30", wild, tag_constraints(flags(4, 0, 1, 2))
    yield "+-1e30 in float32", wild.astype(np.float32), size_constraints(flags(4, 0, 1, 2), flags(4, 1))
    yield "one pixel", rng.normal(size=(21, 1)), tag_constraints(flags(21, 0, 4))
    yield "one label", rng.normal(size=(1, 30)), tag_constraints(flags(1, 0))
    yield "one of each", np.zeros((1, 1)), Constraints([[1.0]], [0.5], [np.inf])
    yield "ties", np.zeros((21, 64), np.float32), tag_constraints(flags(21, 0, 3, 9))
    yield "pixels alike", np.tile(rng.normal(size=(21, 1)) * 50, 64), size_constraints(flags(21, 0, 3, 9), flags(21, 3))
    yield "all labels", rng.normal(size=(21, 100)) * 5, tag_constraints(np.ones(21))
    yield "all labels large", rng.normal(size=(21, 100)) * 5, size_constraints(np.ones(21), np.ones(21))
    yield "200 rows", rng.normal(size=(8, 20)), random_rows(rng, 8, 20, 200, hard=0, regions=True)
    yield "1100 rows", rng.normal(size=(3, 20)), Constraints([[0, 1, 0]] * 1100, [0.5] * 1100, [0.01] * 1100)
    yield "200 equal rows", rng.normal(size=(4, 60)), Constraints([[0, 1, 0, 0]] * 200, [0.6] * 200, [np.inf] * 200)
    far = np.array([[0], [0], [0], [-500]]) * np.ones(60)
    yield "a label nowhere competitive", far, Constraints(np.eye(4)[[3]], [0.3], [np.inf])
    yield "tiny coefficients", rng.normal(size=(3, 60)), Constraints(1e-6 * np.eye(3)[[1]], [0.9e-6], [np.inf])
    yield "huge coefficients", rng.normal(size=(3, 60)), Constraints(1e6 * np.eye(3)[[1]], [0.9e6], [np.inf])
    yield "no rows", rng.normal(size=(3, 60)), Constraints(np.zeros((0, 3)), [], [])
    yield "a whole mask", rng.normal(size=(3, 60)), mask_constraints(rng.integers(0, 3, 60), labels=3)


@pytest.mark.parametrize("hardness", [1, 1000])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("why, f, c", [pytest.param(*a, id=a[0].replace(" ", "_")) for a in adversaries()])
def test_adversarial_input_ends_with_a_distribution_and_an_honest_status(why, f, c, method, hardness):
    s = solve(f, c, method=method, hardness=hardness, tol=1e-6 if hardness == 1 else 1e-4)
    assert s.iterations <= PASSES[method]
    assert s.status != "infeasible"
    if method == "newton" and not why.startswith("+-1e30") and (why, hardness) != ("tiny coefficients", 1000):
        assert s.status == "optimal", s
    if s.status == "optimal" and not why.startswith("+-1e30"):
        assert recomputed_gap(Problem(f, c, hardness), s.lam) <= 1.01 * (1e-6 if hardness == 1 else 1e-4)


@properties
@given(seed=st.integers(0, 10 ** 6), scale=st.sampled_from([1e-30, 1e-3, 10, 1e3, 1e6, 1e30]),
       method=st.sampled_from(METHODS), dtype=st.sampled_from([np.float32, np.float64]))
def test_scores_of_any_scale_end_within_the_bound_on_iterations(seed, scale, method, dtype):
    rng = np.random.default_rng(seed)
    f = (scale * rng.choice([rng.normal(size=(5, 12)), rng.integers(-1, 2, (5, 12))])).astype(dtype)
    c = tag_constraints(rng.random(5) < 0.7)
    s = solve(f, c, method=method)
    assert s.status != "infeasible" and s.iterations <= PASSES[method]


HUGE = """
import numpy as np, ccnn
from ccnn import tag_constraints
for scale in (1e100, 1e200, 1.7e308):
    for method in ("newton", "pga"):
        f = np.random.default_rng(0).choice([-1, 0, 1], (4, 30)) * scale
        try:
            s = ccnn.maximize(f, tag_constraints(np.ones(4)), method=method)
            assert np.isfinite(s.p).all() and np.allclose(s.p.sum(axis=0), 1) and s.iterations <= 20000
        except ValueError as e:
            assert str(scale) in str(e)
"""


def test_scores_beyond_any_net_end_too():
    """A distribution, or an error that names the size; in a process of its own, which can be stopped."""
    said = run(HUGE)
    assert said.returncode == 0, said.stderr


# ---- bad input -------------------------------------------------------------------------------

F = np.zeros((3, 8))
C = Constraints(np.eye(3)[[1]], [0.5], [2.0])


@pytest.mark.parametrize("bad, count", [([np.nan], 1), ([np.inf, -np.inf, np.nan], 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_and_infinite_scores_are_counted(bad, count, dtype):
    f = F.astype(dtype)
    f[1, 2:2 + count] = bad
    with pytest.raises(ValueError, match=rf"\b{count}\b.*(NaN|infinite)"):
        ccnn.maximize(f, C)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("label, pixel", [(0, 0), (1, 255), (2, 256), (0, 599), (2, 599)])
def test_one_bad_score_is_found_wherever_it_is(label, pixel, gradient):
    f = np.zeros((3, 600), np.float32)
    f[label, pixel] = np.nan
    with pytest.raises(ValueError, match=f"label {label}, pixel {pixel}$"):
        ccnn.maximize(f, C, diff=f.copy() if gradient else None)


@pytest.mark.parametrize("f, c, words", [
    (np.zeros(8), C, r"\(8,\)"),
    (np.zeros((2, 3, 8)), C, r"\(2, 3, 8\)"),
    (np.zeros((4, 8)), C, "3.*4|4.*3"),
    (np.zeros((3, 0)), C, "0"),
    (np.zeros((3, 9)), Constraints(np.eye(3)[[1]], [0.5], [2.0], regions=np.ones((1, 8))), "8.*9|9.*8"),
    (np.zeros((3, 9)), mask_constraints(np.full(8, 255), labels=3), "8.*9|9.*8"),
    (np.zeros((3, 9)), Constraints.from_matrix(np.ones((1, 24)), [0.1], [1.0]), "3 x 9.*24"),
    (np.zeros((4, 6)), Constraints.from_matrix(np.ones((1, 24)), [0.1], [1.0], allowed=np.ones(3, bool)), "3.*4|4.*3"),
])
def test_wrong_shapes_name_both_numbers(f, c, words):
    with pytest.raises(ValueError, match=words):
        ccnn.maximize(f, c)


@pytest.mark.parametrize("options, words", [
    (dict(hardness=0.0), "hardness"), (dict(hardness=-1.0), "hardness"), (dict(hardness=np.nan), "hardness"),
    (dict(hardness=np.inf), "hardness"), (dict(tol=0.0), "tol"), (dict(tol=np.nan), "tol"), (dict(tol=-1e-6), "tol"),
    (dict(method="adam"), "newton.*pga"),
])
def test_wrong_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        ccnn.maximize(F, C, **options)


@pytest.mark.parametrize("f", [[["a", "b"]], None, np.zeros((3, 8), complex)])
def test_scores_that_are_no_numbers_are_refused(f):
    with pytest.raises((ValueError, TypeError)):
        ccnn.maximize(f, C)


# ---- memory, threads, types ------------------------------------------------------------------

@pytest.mark.parametrize("method", METHODS)
def test_deterministic_and_the_input_is_left_alone(problem, method):
    f, c = problem()
    f = f.astype(np.float32)
    before, rows = f.copy(), c.b.copy()
    s, t = (ccnn.maximize(f, c, method=method) for _ in range(2))
    assert s.p.tobytes() == t.p.tobytes() and s.lam.tobytes() == t.lam.tobytes()
    assert (s.gap, s.value, s.iterations) == (t.gap, t.value, t.iterations)
    assert (f == before).all() and (c.b == rows).all()
    assert not np.shares_memory(s.p, f)


def test_float32_and_float64_and_strided_scores_agree(problem):
    f, c = problem()
    f = f.astype(np.float32)
    s = optimal(f, c)
    for same in (f.astype(np.float64), np.asfortranarray(f), np.repeat(f, 2, axis=1)[:, ::2], f[::-1][::-1]):
        t = optimal(same, c)
        assert t.p.dtype == same.dtype
        np.testing.assert_allclose(t.p, s.p, atol=2e-3)
        assert distance(t.p, s.p) < 2e-3
        assert t.value == pytest.approx(s.value, abs=2e-6)


def test_read_only_scores_are_read():
    f = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    f.setflags(write=False)
    optimal(f, C)


MEMORY = """
import resource, sys
import numpy as np, ccnn
from ccnn import tag_constraints
blob = np.random.default_rng(0).standard_normal((21, 400, 400), np.float32)
blob[0] += 3
f, c = blob.reshape(21, -1), tag_constraints(np.arange(21) % 5 == 0)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
ccnn.maximize(f[:, :100].copy(), c)
before = peak()
s = ccnn.maximize(f, c, method=sys.argv[1], tol=10)
once = peak()
passes, s = s.iterations, None
s = ccnn.maximize(f, c, method=sys.argv[1], tol=1e-6)
assert s.iterations >= passes
print((once - before) / f.nbytes, (peak() - once) / f.nbytes)
"""


@pytest.mark.parametrize("method", METHODS)
def test_a_contiguous_blob_is_not_copied_and_memory_does_not_grow_with_iterations(method):
    """21 labels, 5 of them present: p and the work space of 5 labels, in float64, but no second blob."""
    said = run(MEMORY, method)
    assert said.returncode == 0, said.stderr
    once, later = map(float, said.stdout.split())
    assert once < 1 + 2 * 5 / 21 + 0.2          # in units of the blob
    assert later < 0.1


def test_the_gil_is_released():
    """Without forced switches another thread runs only while the solver has let go of the interpreter."""
    rng = np.random.default_rng(0)
    f = rng.normal(size=(21, 100 * 100)).astype(np.float32) + 3 * flags(21, 0)[:, None].astype(np.float32)
    c = tag_constraints(np.ones(21))
    ticks, done = [], threading.Event()

    def count():
        while not done.is_set():
            ticks.append(None)
            time.sleep(1e-4)            # hands the interpreter back

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    try:
        sys.setswitchinterval(1000)
        thread.start()
        start = len(ticks)
        for _ in range(100):
            ccnn.maximize(f, c, method="pga", tol=1e-3)
            if len(ticks) > start + 20:
                break
        during = len(ticks) - start
    finally:
        done.set()
        sys.setswitchinterval(interval)
        thread.join()
    assert during > 20          # held throughout: none, however many solves


def test_threads_do_not_disturb_each_other():
    problems = [KINDS[kind](np.random.default_rng(seed), 12) for kind in KINDS for seed in range(3)]
    alone = [ccnn.maximize(f, c) for f, c in problems]
    found = [None] * len(problems)

    def work(start):
        for j in range(start, len(problems), 3):
            found[j] = ccnn.maximize(*problems[j])

    threads = [threading.Thread(target=work, args=(start,)) for start in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for s, t in zip(alone, found):
        assert s.p.tobytes() == t.p.tobytes() and s.iterations == t.iterations


def test_the_library_imports_no_caffe():
    assert run("import ccnn, sys; sys.exit('caffe' in sys.modules)").returncode == 0


# ---- the loss of one image -------------------------------------------------------------------

@pytest.mark.parametrize("dtype, tol", [(np.float32, 2e-6), (np.float64, 1e-9)])
@pytest.mark.parametrize("hardness, shift", [(1, 0), (7, 0), (7, -1e4)])
def test_loss_and_gradient_are_those_of_p(problem, dtype, tol, hardness, shift):
    """What maximize adds up without p, from p."""
    f, c = problem(20)                                    # more than one block of pixels, and a part of one
    f = (np.round(256 * f) / 256 + shift).astype(dtype)   # exact: all are multiples of 1/256
    diff = np.full_like(f, np.nan)
    s = ccnn.maximize(f, c, hardness, diff=diff)
    assert s.status == "optimal" and s.lam.any()
    q, p = softmax(f.astype(float), axis=0), s.p.astype(float)
    assert s.loss == pytest.approx(Problem(f, c).kl(p), rel=10 * tol) and s.loss > 1e-3
    np.testing.assert_allclose(diff, (q - p) / f.shape[1], atol=tol / f.shape[1])
    plain = ccnn.maximize(f, c, hardness)
    assert plain.loss is None and plain.p.tobytes() == s.p.tobytes()


@pytest.mark.parametrize("hardness", [1, 300])
@pytest.mark.parametrize("std", [10, 100])
def test_a_gradient_has_no_denormal_numbers(problem, std, hardness):
    """They would slow the layers below: products of 1e-38 and a weight take a processor 150 cycles each."""
    f, c = problem(20)
    f = (std * f).astype(np.float32)
    diff = np.full_like(f, np.nan)
    s = ccnn.maximize(f, c, hardness, tol=1e-3, diff=diff)
    size = np.abs(diff[diff != 0]) * f.shape[1]
    assert size.min() > 1e-28 and (diff == 0).any()
    q = softmax(f.astype(float), axis=0)
    np.testing.assert_allclose(diff * f.shape[1], q - s.p, atol=2e-6)


def test_p_is_that_of_the_scores_as_they_were(problem):
    f, c = problem()
    same = ccnn.maximize(f.copy(), c).p
    s = ccnn.maximize(f, c)
    f[...] = np.nan                                       # as when a net goes on before p is asked for
    assert s.p.tobytes() == same.tobytes()


def test_no_loss_is_below_0():
    """q obeys the constraints, so p = q: rounding must not make the loss negative."""
    f = np.random.default_rng(0).normal(size=(5, 400)).astype(np.float32)
    for shift in np.linspace(-1000, 1000, 20, dtype=np.float32):
        assert 0 <= ccnn.maximize(f + shift, Constraints(np.ones((1, 5)), [0.5], [1]), diff=f.copy()).loss < 1e-6


@pytest.mark.parametrize("diff", [np.zeros((3, 7), np.float32), np.zeros((3, 8)), np.zeros((8, 3), np.float32).T])
def test_a_gradient_unlike_the_scores_is_refused(diff):
    with pytest.raises(ValueError):
        ccnn.maximize(np.zeros((3, 8), np.float32), C, diff=diff)


# ---- rows that trouble a solver --------------------------------------------------------------

def constant_rows():
    """(why, c, status): rows that have one value for every p, alone or beside a row that bites."""
    inf, bites = np.inf, ([[0, 1, 0]], [0.6], [np.inf])
    zero = [[3, -1, -2] + [0] * 9]                                  # a region that sums to 0
    everything, none = np.ones((1, 3)), np.zeros((1, 3))
    box = (np.arange(12) < 4)[None].astype(float)
    known = mask_constraints([1] * 4 + [255] * 8, labels=3)
    for beta in (inf, 0.5):
        yield "a region that sums to 0", Constraints(0.1 * everything, [0.0], [beta], None, zero), "optimal"
        yield "all labels", Constraints(everything, [1.0], [beta]), "optimal"
        yield "all labels, at most", Constraints(-everything, [-1.0], [beta]), "optimal"
        yield "nothing", Constraints(none, [0.0], [beta]), "optimal"
        yield "in thirds", Constraints(everything / 3, [1 / 3], [beta]), "optimal"
        yield "a known box", Constraints([[0, 1, 0]], [4 / 12], [beta], None, box) & known, "optimal"
        yield "large and small", Constraints(everything, [0.0], [beta], None, [[1e9, -1e9] + [0] * 10]), "optimal"
    yield "all labels, too much", Constraints(everything, [1 + 1e-6], [inf]), "infeasible"
    yield "a known box, too much", Constraints([[0, 1, 0]], [4.001 / 12], [inf], None, box) & known, "infeasible"
    yield "a region that sums to 0, too much", Constraints(0.1 * everything, [1e-6], [inf], None, zero), "infeasible"
    yield "beside another", Constraints(np.vstack([everything, bites[0]]), [1.0, 0.6], [inf, inf]), "optimal"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("why, c, status", [pytest.param(*a, id=a[0].replace(" ", "_")) for a in constant_rows()])
def test_rows_with_one_value_for_every_p_are_decided_by_that_value(why, c, status, method):
    f = np.random.default_rng(0).normal(size=(3, 12))
    for same in (c, Constraints.from_matrix(c.as_matrix(12), c.b, c.beta, c.allowed)):
        s = solve(f, same, method=method)
        assert s.status == status, s
        if status == "infeasible":
            check_ray(f, c, s.ray)
        assert s.residual < 1e-4 or status == "infeasible"


def test_the_row_of_the_report():
    c = Constraints([[.1, .1]], [0.], [np.inf], None, [[3, -1, -2]])
    assert optimal(np.zeros((2, 3)), c).iterations == 1


def test_a_constant_row_is_bought_at_its_price():
    s = optimal(np.zeros((3, 10)), Constraints(np.ones((2, 3)), [1.5, 0.5], [2.0, 3.0]))
    np.testing.assert_allclose(s.lam, [2, 0])
    assert s.value == pytest.approx(2 * 0.5)


@pytest.mark.parametrize("L, k, n, std, regions",
                         [(5, 60, 100, 1, False), (21, 500, 5, 10, False), (21, 500, 5, 1, True)])
def test_many_rows_that_depend_on_each_other(L, k, n, std, regions):
    """The factor of their covariance has pivots that are 0 but for rounding."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        p = softmax(rng.normal(size=(L, n)), axis=0)
        A, f = rng.normal(size=(k, L)), std * rng.normal(size=(L, n))
        weights = rng.uniform(0, 2, (k, n)) if regions else None
        free = Constraints(A, np.zeros(k), np.full(k, np.inf), None, weights)
        optimal(f, Constraints(A, free.values(p) - 0.01, free.beta, None, weights))


@pytest.mark.parametrize("scale", [0.01, 100])
def test_the_unit_of_a_row_does_not_matter(scale):
    """Size rows at hardness 1000, each times 100 or a hundredth."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        f, present = 5 * rng.normal(size=(21, 1681)), rng.random(21) < 0.2
        c = size_constraints(present, present & (rng.random(21) < 0.6))
        unit = scale ** rng.choice([-1.0, 1.0], len(c))
        s = optimal(f, Constraints(c.A * unit[:, None], c.b * unit, c.beta, c.allowed), hardness=1000, tol=1e-4)
        if seed < 5:
            t = optimal(f, c, hardness=1000, tol=1e-4)
            assert distance(s.p, t.p) < 2e-2 and s.value == pytest.approx(t.value, abs=2e-4)


def test_powers_of_two_change_no_digit():
    f, c = tags(np.random.default_rng(0), 9)
    s, t = ccnn.maximize(f, c), ccnn.maximize(f, Constraints(c.A / 64, c.b / 64, c.beta * 64, c.allowed))
    assert s.p.tobytes() == t.p.tobytes() and (t.lam == 64 * s.lam).all()


MANY_GROUPS = """
import resource
import numpy as np, ccnn
n, rng = 100_000, np.random.default_rng(0)
weights = np.repeat(rng.random((1, n // 5)), 5, axis=1)         # 20,000 groups of 5 pixels
f = rng.normal(size=(4, n)).astype(np.float32)
c = ccnn.Constraints([[0, 1, 0, 0]], [0.3], [np.inf], None, weights)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
s = ccnn.maximize(f, c)
assert s.status == "optimal", s
print((peak() - before) / f.nbytes)
"""


def test_small_groups_of_pixels_are_not_padded():
    said = run(MANY_GROUPS)
    assert said.returncode == 0, said.stderr
    assert float(said.stdout) < 12          # in units of the scores; a block of 256 pixels for each group would be 200


def test_fractional_regions_need_no_matrix(monkeypatch):
    """SciPy would take longer to build it than the solver to solve."""
    rng = np.random.default_rng(0)
    f, c = rng.normal(size=(5, 300)), random_rows(rng, 5, 300, 3, regions=True)
    same = optimal(f, Constraints.from_matrix(c.as_matrix(300), c.b, c.beta), tol=1e-9)
    monkeypatch.setattr(Constraints, "as_matrix", None)
    np.testing.assert_allclose(optimal(f, c, tol=1e-9).p, same.p, atol=1e-4)


def test_a_thousand_labels():
    """Cost must not be cubic in the labels: with 13 s on this problem, the suite would show it."""
    f = np.random.default_rng(0).normal(size=(1000, 100)).astype(np.float32)
    f[0] += 3
    optimal(f, tag_constraints(np.ones(1000), fg_lower=3e-4))


# ---- memory, again ---------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shift", [0, 1, 23, -1])
def test_a_gradient_that_overlaps_the_scores_is_refused(dtype, shift):
    room = np.random.default_rng(0).normal(size=100).astype(dtype)
    f, diff = room[30:54].reshape(3, 8), room[30 + shift:54 + shift].reshape(3, 8)
    before = room.copy()
    with pytest.raises(ValueError, match="diff overlaps the scores"):
        ccnn.maximize(f, C, diff=diff)
    assert (room == before).all()


def test_a_gradient_beside_the_scores_is_taken():
    blob = np.random.default_rng(0).normal(size=(2, 3, 8))
    assert ccnn.maximize(blob[0], C, diff=blob[1]).status == "optimal"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_after_an_error_the_gradient_is_0(bad, dtype):
    f = np.zeros((3, 600), dtype)
    f[1, 500] = bad
    diff = np.full_like(f, 7)
    with pytest.raises(ValueError, match="label 1, pixel 500$"):
        ccnn.maximize(f, C, diff=diff)
    assert not diff.any()


def test_a_solution_is_made_by_the_solver_only():
    with pytest.raises(TypeError, match="maximize"):
        ccnn.Solution()
    empty = ccnn.Solution.__new__(ccnn.Solution)
    for name in ("p", "value"):
        with pytest.raises(TypeError):
            getattr(empty, name)
    with pytest.raises(TypeError):
        empty.write(np.zeros((3, 8)))
    repr(empty)


@pytest.mark.parametrize("gradient", [False, True])
def test_a_solution_pickles(problem, gradient):
    f, c = problem()
    s = ccnn.maximize(f, c, diff=np.empty_like(f) if gradient else None)
    for t in (pickle.loads(pickle.dumps(s)), copy.copy(s), copy.deepcopy(s)):
        assert t.p.tobytes() == s.p.tobytes() and t.lam.tobytes() == s.lam.tobytes() and t.value == s.value
        for name in ("status", "gap", "residual", "iterations", "loss"):
            assert getattr(t, name) == getattr(s, name)
        assert t.write(np.zeros_like(f)).tobytes() == s.p.tobytes() and repr(t) == repr(s)
        with pytest.raises(ValueError):
            t.write(np.zeros((1, 1)))


class Shorter:
    """Constraints whose arrays do not fit each other; made by hand, as by a careless subclass."""

    def __init__(self, c, **other):
        for name in ("A", "b", "beta", "allowed", "regions", "matrix", "labels", "pixels"):
            setattr(self, name, other.get(name, getattr(c, name)))


@pytest.mark.parametrize("other", [dict(A=np.zeros((1, 3))), dict(beta=np.ones(1)), dict(allowed=np.ones(2, bool)),
                                   dict(regions=np.ones((1, 8))), dict(regions=np.ones((2, 7))),
                                   dict(allowed=np.ones((3, 7), bool)), dict(A=np.zeros((2, 0)))])
def test_arrays_that_are_too_short_are_refused(other):
    c = Constraints(np.eye(3)[[1, 2]], [0.5, 0.1], [2.0, 2.0])
    with pytest.raises(ValueError, match="do not fit|scores have"):
        ccnn.maximize(F, Shorter(c, **other))


INTERRUPTED = """
import signal, sys, threading, time
import numpy as np, ccnn
rng = np.random.default_rng(0)
f, A = rng.normal(size=(8, 400_000)), rng.normal(size=(30, 8))
c = ccnn.Constraints(A, A @ rng.dirichlet(np.full(8, 0.3)), [1e6] * 30)
F, diff = np.stack([f, f]), np.ones((2, *f.shape))
solve = {"one": lambda: ccnn.maximize(f, c, method="pga", tol=1e-300, diff=diff[0]),
         "batch": lambda: ccnn.maximize_batch(F, [c, c], method="pga", tol=1e-300, threads=2, diff=diff)}
threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
try:
    solve[sys.argv[1]]()
except KeyboardInterrupt:
    print("interrupted", set(np.unique(diff)) <= {0, 1})         # 1: before it was written to
"""


@pytest.mark.parametrize("call", ["one", "batch"])
def test_control_c_ends_a_long_solve(call):
    """Left alone, this one takes its 20,000 passes: a minute and more."""
    said = run(INTERRUPTED, call)
    assert said.stdout.strip() == "interrupted True", said
