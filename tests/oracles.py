"""Slow twins of the solver, float64, written from the paper and not from the compiled solver.

primal   minimise   mean_i KL(p_i || q_i) + beta' xi,    q = softmax(hardness f) over all labels
         subject to (1/n) M p >= b - xi,  xi >= 0,  p_i on the simplex,  p_i(l) = 0 where l is not allowed
dual     maximise   D(lam) = lam' b - mean_i [ log sum_{l allowed} exp(hardness f_li + (M' lam)_li)
                                              - log sum_l exp(hardness f_li) ]    over 0 <= lam <= beta

A Problem holds M as one sparse matrix, k x (L n), column l n + i, whatever form the rows came in.
"""
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import optimize, sparse
from scipy.special import logsumexp, xlogy


class Problem:
    """f, c as ccnn.maximize takes them; M, b, beta, allowed (L x n) as the formulas above."""

    def __init__(self, f, c, hardness=1.0):
        self.L, self.n = f.shape
        self.f = hardness * np.asarray(f, np.float64)
        self.M = rows(c, self.n)
        self.b, self.beta = np.asarray(c.b, np.float64), np.asarray(c.beta, np.float64)
        self.allowed = np.ones((self.L, self.n), bool)
        if c.allowed is not None:
            self.allowed &= np.asarray(c.allowed, bool).reshape(self.L, -1)
        self.log_q = self.f - logsumexp(self.f, axis=0)

    def values(self, p):
        """(k,) what the rows bound from below."""
        return self.M @ np.asarray(p, np.float64).ravel() / self.n

    def range(self):
        """(k,) how far the rows can vary at all: from the label that gives least at every pixel to the one most."""
        a = self.M.toarray().reshape(-1, self.L, self.n)
        most, least = np.where(self.allowed, a, -np.inf).max(axis=1), np.where(self.allowed, a, np.inf).min(axis=1)
        return (most - least).mean(axis=1)

    def p(self, lam):
        return np.exp(self._log_p(lam)[0])

    def _log_p(self, lam):
        z = np.where(self.allowed, self.log_q + (self.M.T @ lam).reshape(self.L, self.n), -np.inf)
        log_Z = logsumexp(z, axis=0)
        return z - log_Z, log_Z

    def dual(self, lam):
        """D(lam)."""
        return lam @ self.b - self._log_p(lam)[1].mean()

    def gradient(self, lam):
        return self.b - self.values(self.p(lam))

    def kl(self, p):
        """mean_i KL(p_i || q_i); log q rather than q, which may underflow."""
        p = np.asarray(p, np.float64)
        return (xlogy(p, p) - p * np.where(p > 0, self.log_q, 0)).sum() / self.n

    def primal(self, p):
        """KL + beta' xi with the least slack; infinite where a hard row does not hold."""
        short = np.maximum(self.b - self.values(p), 0)
        return self.kl(p) + short[short > 0] @ self.beta[short > 0]

    def residual(self, lam):
        """How far one projected gradient step moves lam: zero exactly at the optimum."""
        return np.abs(lam - np.clip(lam + self.gradient(lam), 0, self.beta)).max(initial=0)


def rows(c, n):
    """The rows of c as one CSR matrix: outer(A_j, r_j) for rank-one rows, and the general ones."""
    A = np.asarray(c.A, np.float64)
    if not A.shape[1]:          # a matrix that leaves the number of labels open
        return c.matrix.tocsr()
    regions = np.ones((len(A), n)) if c.regions is None else np.asarray(c.regions, np.float64)
    M = sparse.csr_matrix((A[:, :, None] * regions[:, None, :]).reshape(len(A), A.shape[1] * n))
    return M if c.matrix is None else (M + c.matrix).tocsr()


def pga(problem, tol=1e-7, limit=20000):
    """The paper's projected gradient ascent with a halving and doubling step. Returns lam."""
    lam, step = np.zeros(len(problem.b)), 1.0
    for _ in range(limit):
        if problem.residual(lam) < tol:
            return lam
        value, gradient = problem.dual(lam), problem.gradient(lam)
        step *= 4
        while True:
            step /= 2
            trial = np.clip(lam + step * gradient, 0, problem.beta)
            if problem.dual(trial) >= value + 0.1 * gradient @ (trial - lam):
                break
            assert step > 1e-18, "no ascent along the gradient"
        lam = trial
    raise AssertionError(f"the oracle did not converge: residual {problem.residual(lam):.2g}")


def lbfgsb(problem):
    """SciPy's L-BFGS-B on the CSR matrix, begun again where its line search gives up. Returns lam."""
    bounds = [(0, None if np.isinf(price) else price) for price in problem.beta]
    lam = np.zeros(len(problem.b))
    for _ in range(30):
        lam = optimize.minimize(lambda x: (-problem.dual(x), -problem.gradient(x)), lam, jac=True, method="L-BFGS-B",
                                bounds=bounds, options=dict(gtol=1e-10, ftol=1e-16, maxiter=5000, maxfun=20000)).x
        if problem.residual(lam) < 1e-7:
            return lam
    raise AssertionError(f"the oracle did not converge: residual {problem.residual(lam):.2g}")


def clarabel(problem):
    """An interior-point method that never sees our dual. Returns value, p, lam (its own multipliers)."""
    cp = pytest.importorskip("cvxpy")
    at = problem.allowed.ravel()
    pixel = np.tile(np.arange(problem.n), problem.L)[at]
    sums = sparse.csr_matrix((np.ones(at.sum()), (pixel, np.arange(at.sum()))))
    p = cp.Variable(int(at.sum()), nonneg=True)
    soft = np.isfinite(problem.beta)
    xi = cp.Variable(len(problem.b), nonneg=True)
    price = np.where(soft, problem.beta, 0)
    held = problem.M.tocsc()[:, at] @ p / problem.n >= problem.b - cp.multiply(soft.astype(float), xi)
    loss = (-cp.sum(cp.entr(p)) - problem.log_q.ravel()[at] @ p) / problem.n + price @ xi
    task = cp.Problem(cp.Minimize(loss), [sums @ p == 1, held])
    task.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    full = np.zeros(problem.L * problem.n)
    full[at] = p.value
    return SimpleNamespace(value=task.value, p=full.reshape(problem.L, problem.n), lam=held.dual_value)


def slsqp(problem):
    """Sequential quadratic programming on the primal of a few pixels, slack as variables. Returns value, p."""
    at = problem.allowed.ravel()
    size, k = int(at.sum()), len(problem.b)
    soft = np.isfinite(problem.beta)
    M, log_q = problem.M.toarray()[:, at], problem.log_q.ravel()[at]
    sums = (np.tile(np.arange(problem.n), problem.L)[at] == np.arange(problem.n)[:, None]).astype(float)
    price = np.where(soft, problem.beta, 0)

    def loss(x):
        p = np.maximum(x[:size], 1e-300)
        return (p @ (np.log(p) - log_q)) / problem.n + price @ x[size:]

    def slope(x):
        p = np.maximum(x[:size], 1e-300)
        return np.concatenate([(np.log(p) + 1 - log_q) / problem.n, price])

    x0 = np.concatenate([(sums / sums.sum(axis=1, keepdims=True)).sum(axis=0), np.maximum(problem.b, 0) + 1])
    bounds = [(1e-12, 1)] * size + [(0, None) if s else (0, 0) for s in soft]
    held = dict(type="ineq", fun=lambda x: M @ x[:size] / problem.n - problem.b + x[size:],
                jac=lambda x: np.hstack([M / problem.n, np.eye(k)]))
    whole = dict(type="eq", fun=lambda x: sums @ x[:size] - 1,
                 jac=lambda x: np.hstack([sums, np.zeros((problem.n, k))]))
    found = optimize.minimize(loss, x0, jac=slope, method="SLSQP", bounds=bounds, constraints=[held, whole],
                              options=dict(ftol=1e-14, maxiter=2000))
    full = np.zeros(problem.L * problem.n)
    full[at] = found.x[:size]
    return SimpleNamespace(value=found.fun, p=full.reshape(problem.L, problem.n))


def largest_margin(problem):
    """max over p of min over hard rows of (1/n) M p - b: >= 0 exactly if the hard rows agree (a linear program)."""
    at = problem.allowed.ravel()
    hard = np.isinf(problem.beta)
    if not hard.any():
        return np.inf
    pixel = np.tile(np.arange(problem.n), problem.L)[at]
    sums = sparse.csr_matrix((np.ones(at.sum()), (pixel, np.arange(at.sum()))), shape=(problem.n, at.sum()))
    M = problem.M.tocsc()[:, at][hard] / problem.n
    found = optimize.linprog(np.r_[np.zeros(at.sum()), -1.0],
                             A_ub=sparse.hstack([-M, np.ones((hard.sum(), 1))]).tocsr(), b_ub=-problem.b[hard],
                             A_eq=sparse.hstack([sums, np.zeros((problem.n, 1))]).tocsr(), b_eq=np.ones(problem.n),
                             bounds=[(0, 1)] * int(at.sum()) + [(None, None)])
    assert found.status == 0, found.message
    return -found.fun


def distance(p, other):
    """Root mean square over pixels of |p_i - other_i|_1. By Pinsker at most sqrt(2 gap) from the optimum."""
    return np.sqrt((np.abs(np.asarray(p, float) - other).sum(axis=0) ** 2).mean())
