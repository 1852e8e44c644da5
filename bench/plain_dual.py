"""The dual in plain NumPy, float64, and the two methods that SciPy's users have for it: the baselines of the solver."""
import numpy as np
from scipy import optimize


class PlainRows:
    """What a baseline prepares once, outside the measured time: the labels that occur, and the rows on them.

    A, k x L', if the rows are sums of labels over the image; else M, k x (L' n), in CSR, and its transpose.
    """

    def __init__(self, c, n):
        allowed = np.ones(c.labels, bool) if c.allowed is None else c.allowed
        self.b, self.beta = c.b, c.beta
        self.keep = allowed if allowed.ndim == 1 else allowed.any(axis=1)
        self.barred = None if allowed.ndim == 1 else ~allowed[self.keep]
        self.A = self.M = None
        if c.regions is None and c.matrix is None:
            self.A = c.A[:, self.keep]
        else:
            self.M = c.as_matrix(n)[:, np.repeat(self.keep, n)].tocsr()
            self.transposed = self.M.T.tocsr()


class PlainDual:
    """D(lam) = lam' b - mean_i log sum_l exp(hardness f_li + (M' lam)_li), its gradient b - M p / n, and p."""

    def __init__(self, f, rows, hardness=1.0):
        self.rows, self.b, self.beta = rows, rows.b, rows.beta
        self.f = hardness * f[rows.keep].astype(np.float64)
        if rows.barred is not None:
            self.f[rows.barred] = -np.inf
        self.evaluations = 0

    def __call__(self, lam):
        self.evaluations += 1
        rows = self.rows
        if rows.M is None:
            z = self.f + (lam @ rows.A)[:, None]
        else:
            z = self.f + (rows.transposed @ lam).reshape(self.f.shape)
        top = z.max(axis=0)
        z -= top
        p = np.exp(z, out=z)
        Z = p.sum(axis=0)
        p /= Z
        value = lam @ self.b - (top + np.log(Z)).mean()
        held = rows.A @ p.mean(axis=1) if rows.M is None else rows.M @ p.ravel() / len(Z)
        return value, self.b - held, p


def plain_pga(dual, tol=1e-5, limit=20000):
    """Projected gradient ascent; the step doubles after a success and halves until Armijo's condition holds.

    Stops when max |lam - clip(lam + gradient)| < tol. Returns lam.
    """
    lam, step = np.zeros(len(dual.b)), 1.0
    value, gradient, _ = dual(lam)
    while np.abs(lam - np.clip(lam + gradient, 0, dual.beta)).max(initial=0) >= tol and dual.evaluations < limit:
        step *= 2
        while dual.evaluations < limit:
            trial = np.clip(lam + step * gradient, 0, dual.beta)
            trial_value, trial_gradient, _ = dual(trial)
            if trial_value >= value + 1e-4 * gradient @ (trial - lam):
                lam, value, gradient = trial, trial_value, trial_gradient
                break
            step /= 2
    return lam


def plain_lbfgsb(dual, tol=1e-7, limit=20000):
    """SciPy's L-BFGS-B on -D over 0 <= lam <= beta, to a projected gradient below tol. Returns lam."""
    def negated(lam):
        value, gradient, _ = dual(lam)
        return -value, -gradient
    bounds = [(0, None if np.isinf(price) else price) for price in dual.beta]
    return optimize.minimize(negated, np.zeros(len(dual.b)), jac=True, method="L-BFGS-B", bounds=bounds,
                             options=dict(gtol=tol, ftol=1e-14, maxiter=limit, maxfun=limit)).x
