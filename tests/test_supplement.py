"""The claims of the paper's section 4 and of its supplement, each against a computation that does not assume it."""
import itertools

import numpy as np
import oracles
import pytest
from oracles import Problem, distance
from scipy import optimize
from scipy.special import log_softmax, logsumexp, softmax, xlogy

import ccnn
from ccnn import Constraints, tag_constraints

inf = np.inf


def enumerate_joint(f, c):
    """Minimise KL(P || Q) + n beta' xi over all distributions P on all L^n labellings.

    Nothing is assumed of P: rows act on its marginals, as in the paper. Returns value / n, P, marginals, labellings.
    """
    cp = pytest.importorskip("cvxpy")
    twin = Problem(f, c)
    L, n = f.shape
    labellings = np.array(list(itertools.product(range(L), repeat=n)))              # L^n x n
    log_Q = twin.log_q[labellings, np.arange(n)].sum(axis=1)
    indicator = (labellings[:, None, :] == np.arange(L)[:, None]).reshape(len(labellings), -1).T   # P to marginals
    soft = np.isfinite(twin.beta)
    P, xi = cp.Variable(len(labellings), nonneg=True), cp.Variable(len(c.b), nonneg=True)
    held = twin.M.toarray() @ indicator @ P / n >= twin.b - cp.multiply(soft.astype(float), xi)
    loss = -cp.sum(cp.entr(P)) - log_Q @ P + n * np.where(soft, twin.beta, 0) @ xi
    task = cp.Problem(cp.Minimize(loss), [cp.sum(P) == 1, held])
    task.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return task.value / n, P.value, (indicator @ P.value).reshape(L, n), labellings


JOINT = {
    "label sums": lambda: Constraints(np.eye(3)[[1, 2]], [0.4, 0.35], [inf, inf]),
    "slack": lambda: Constraints(np.eye(3)[[1, 2]], [0.6, 0.6], [0.8, inf]),
    "regions": lambda: Constraints([[0, 1, 0.5], [0, -1, 1]], [0.4, 0.1], [inf, 0.3], regions=[[1, 2, 0], [0, 1, 1]]),
    "general": lambda: Constraints.from_matrix([[0, 0, 1, 2, -1, 0, 0, 3, 0.5]], [0.7], [inf]),
}


@pytest.mark.parametrize("kind", JOINT)
def test_the_optimum_over_all_joint_distributions_factorises(kind):
    """Supplement I: 3 pixels, 3 labels, 27 labellings; the best P is the product of our p."""
    f, c = np.random.default_rng(4).normal(size=(3, 3)) + np.array([[2], [0], [0]]), JOINT[kind]()
    value, P, marginals, labellings = enumerate_joint(f, c)
    s = ccnn.maximize(f, c, tol=1e-9 if np.isfinite(c.beta).all() else 1e-8)
    assert s.status == "optimal" and s.lam.any()
    assert s.value == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(marginals, s.p, atol=1e-3)
    np.testing.assert_allclose(P, s.p[labellings, np.arange(3)].prod(axis=1), atol=1e-3)


@pytest.mark.parametrize("kind", JOINT)
def test_strong_duality(kind):
    """The largest dual value, found from the dual alone, is the least primal value, found from the primal alone."""
    twin = Problem(np.random.default_rng(4).normal(size=(3, 3)) + np.array([[2], [0], [0]]), JOINT[kind]())
    largest, least = twin.dual(oracles.lbfgsb(twin)), oracles.slsqp(twin).value
    assert largest == pytest.approx(least, abs=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(100):                                   # weak duality, everywhere
        lam = rng.uniform(0, np.minimum(twin.beta, 5))
        assert twin.dual(lam) <= least + 1e-6
        assert twin.primal(rng.dirichlet(np.ones(3), 3).T) >= largest - 1e-6


@pytest.mark.parametrize("kind", JOINT)
def test_the_dual_is_concave(kind):
    """Section 4.1: between two points it lies above the line through them."""
    rng = np.random.default_rng(1)
    twin = Problem(rng.normal(size=(3, 3)), JOINT[kind]())
    bends = []
    for _ in range(100):
        one, two = rng.uniform(0, np.minimum(twin.beta, 5), (2, len(twin.beta)))
        t = rng.random()
        bend = twin.dual(t * one + (1 - t) * two) - t * twin.dual(one) - (1 - t) * twin.dual(two)
        assert bend >= -1e-12
        bends.append(bend)
    assert np.median(bends) > 1e-4


def test_the_loss_of_a_linear_model_is_convex_where_p_is_held():
    """Section 4.2: between two models it lies below the line through them; where p follows the model, it need not."""
    rng = np.random.default_rng(0)
    x, c = rng.normal(size=(4, 30)), Constraints(np.eye(3)[[1, 2]], [0.4, 0.3], [inf, 2.0])
    held = ccnn.maximize(rng.normal(size=(3, 4)) @ x, c).p

    def cross_entropy(W):
        return -(held * log_softmax(W @ x, axis=0)).sum(axis=0).mean()

    def optimal(W):
        return ccnn.maximize(W @ x, c).value

    bends = {cross_entropy: [], optimal: []}
    for _ in range(50):
        one, two = 3 * rng.normal(size=(2, 3, 4))
        for loss, found in bends.items():
            found.append((loss(one) + loss(two)) / 2 - loss((one + two) / 2))
    assert min(bends[cross_entropy]) > 1e-3
    assert min(bends[optimal]) < -1e-3


def test_the_gradient_of_the_dual_is_b_minus_the_rows():
    """Section 4.1, by finite differences of the dual as the paper prints it (scores, not log q)."""
    rng = np.random.default_rng(0)
    L, n, k = 4, 7, 3
    f, A, b, lam = rng.normal(size=(L, n)), rng.normal(size=(k, L * n)), rng.normal(size=k), rng.random(k)

    def printed(lam):
        return lam @ b - logsumexp(f + (A.T @ lam).reshape(L, n), axis=0).mean()

    p = Problem(f, Constraints.from_matrix(A, b, [inf] * k)).p(lam)
    np.testing.assert_allclose(optimize.approx_fprime(lam, printed, 1e-6), b - A @ p.ravel() / n, atol=1e-5)


def test_the_price_bounds_the_dual():
    """Supplement II, one row: a price below the hard row's dual is met and slack bought; one above is as hard."""
    f = np.random.default_rng(0).normal(size=(3, 50)) + np.array([[3], [0], [0]])

    def row(beta):
        return Constraints(np.eye(3)[[1]], [0.4], [beta])

    hard = ccnn.maximize(f, row(inf), tol=1e-8)
    assert hard.lam[0] > 1
    for beta in (0.01, 0.5, 0.99 * hard.lam[0], 1.01 * hard.lam[0], 100):
        s = ccnn.maximize(f, row(beta), tol=1e-8)
        assert s.status == "optimal"
        assert s.lam[0] == pytest.approx(min(beta, hard.lam[0]), abs=1e-4) and s.lam[0] <= beta
        slack = 0.4 - s.p[1].mean()
        assert slack > 1e-4 if beta < hard.lam[0] else abs(slack) < 1e-5
        kl = Problem(f, row(beta)).kl(s.p)
        assert s.value == pytest.approx(kl + beta * max(slack, 0), abs=1e-6)


def test_our_duals_are_the_multipliers_of_the_primal_with_slack():
    """An interior-point solver of the primal, slack as its variables, reports the same, within the price."""
    pytest.importorskip("cvxpy")
    rng = np.random.default_rng(2)
    f = rng.normal(size=(5, 30)) + 3 * (np.arange(5) == 0)[:, None]
    c = Constraints(np.eye(5)[[1, 2, 3]], [0.2, 0.25, 0.15], [inf, 0.7, 2.0])
    other, s = oracles.clarabel(Problem(f, c)), ccnn.maximize(f, c, tol=1e-8)
    np.testing.assert_allclose(s.lam, other.lam, atol=1e-3)
    assert s.lam[1] == pytest.approx(0.7, abs=1e-6) and (s.lam <= c.beta).all()


def test_a_price_makes_any_rows_satisfiable():
    """Section 4.3: guaranteed to be satisfiable for any linear constraint."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        c = Constraints(rng.normal(size=(6, 3)) * 5, rng.normal(size=6) * 5, rng.uniform(0.1, 3, 6))
        twin = Problem(rng.normal(size=(3, 12)), c)
        s = ccnn.maximize(twin.f, c)
        assert s.status == "optimal", s
        assert s.value == pytest.approx(twin.primal(twin.p(s.lam)), abs=2e-6)


def test_fewer_than_fifty_iterations():
    """Section 4.1: "usually converges within fewer than 50 iterations", the paper's method on its own problems."""
    counts = {"pga": [], "newton": []}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        f = rng.normal(size=(21, 400)).astype(np.float32) + rng.normal(size=(21, 1)).astype(np.float32)
        present = np.isin(np.arange(21), rng.choice(21, rng.integers(1, 6)))
        for method in counts:
            s = ccnn.maximize(f, tag_constraints(present), method=method, tol=1e-4)
            assert s.status == "optimal"
            counts[method].append(s.iterations)
    assert np.median(counts["pga"]) < 50
    assert max(counts["newton"]) < 50


def adaptive_biases(f, allowed, portion, sweeps=400):
    """EM-Adapt's view: raise each present label's bias until it holds its portion of the image, never below zero.

    One label at a time by bisection, until no bias moves; labels that hold their portion unaided keep bias 0.
    """
    bias = np.zeros(len(f))
    scores = np.where(allowed[:, None], f, -np.inf)

    def short(b, l):
        trial = bias.copy()
        trial[l] = b
        return softmax(scores + trial[:, None], axis=0)[l].mean() - portion

    for _ in range(sweeps):
        before = bias.copy()
        for l in np.flatnonzero(allowed)[1:]:
            bias[l] = 0 if short(0, l) >= 0 else optimize.brentq(short, 0, 50, args=(l,), xtol=1e-12)
        if np.abs(bias - before).max() < 1e-11:
            break
    return bias


def test_em_adapt_is_the_special_case_of_suppression_and_foreground_only():
    """Section 5: its adaptive biases are our duals."""
    rng = np.random.default_rng(1)
    f = rng.normal(size=(6, 80)) + np.array([[3], [0], [0], [2], [-1], [4]])
    allowed = np.array([True, True, True, True, False, False])
    tags = tag_constraints(allowed, fg_lower=0.12, fg_beta=inf)
    foreground = tags.A[:, 0] == 0
    c = Constraints(tags.A[foreground], tags.b[foreground], tags.beta[foreground], tags.allowed)
    s = ccnn.maximize(f, c, tol=1e-8)
    bias = adaptive_biases(f, allowed, 0.12)
    assert (bias > 0).sum() == 2 and bias[3] == 0                  # the third holds its portion unaided
    np.testing.assert_allclose(c.A.T @ s.lam, bias, atol=1e-5)
    np.testing.assert_allclose(s.p, softmax(np.where(allowed[:, None], f + bias[:, None], -np.inf), axis=0), atol=1e-6)


def test_mean_form_is_the_papers_sum_form():
    """Per pixel and per image are one problem: n times the value, the same p, the price as the paper quotes it."""
    f = np.random.default_rng(0).normal(size=(3, 6)) + np.array([[3], [0], [0]])
    c = Constraints(np.eye(3)[[1, 2]], [0.3, 0.4], [inf, 0.9])
    twin, n = Problem(f, c), 6

    def summed(x):                      # sum_i KL + beta' (n xi): a_l = 0.3 n pixels, slack in pixels
        p = x[:18].reshape(3, n)
        return xlogy(p, p).sum() - (p * twin.log_q).sum() + 0.9 * x[18]
    held = [dict(type="ineq", fun=lambda x: x[6:12].sum() - 0.3 * n),
            dict(type="ineq", fun=lambda x: x[12:18].sum() - 0.4 * n + x[18]),
            dict(type="eq", fun=lambda x: x[:18].reshape(3, n).sum(axis=0) - 1)]
    found = optimize.minimize(summed, np.r_[np.full(18, 1 / 3), 1], bounds=[(1e-12, 1)] * 18 + [(0, None)],
                              method="SLSQP", constraints=held, options=dict(ftol=1e-14, maxiter=1000))
    s = ccnn.maximize(f, c, tol=1e-8)
    assert found.fun / n == pytest.approx(s.value, abs=1e-5)
    assert distance(s.p, found.x[:18].reshape(3, n)) < 5e-3
