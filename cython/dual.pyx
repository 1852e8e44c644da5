# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The latent distribution of CCNN: the nearest one to the net's output that obeys linear constraints.

With scores f (L labels x n pixels) and q = softmax(f), the paper's problem (equation 7), per pixel, is

    minimise    mean_i KL(p_i || q_i) + beta' xi
    subject to  v_j(p) >= b_j - xi_j,   xi >= 0,   p_i a distribution on the labels allowed at pixel i
    where       v_j(p) = (1/n) sum_il a_jil p_i(l)

and its dual (equation 4; the price beta bounds lam, supplement II) is

    maximise    D(lam) = lam' b - mean_i log sum_l exp(f_li + sum_j lam_j a_jil) + mean_i log Z_i
    subject to  0 <= lam <= beta

with gradient b - v(p), Hessian -(covariance of the rows under p), and p_i(l) proportional to
exp(f_li + sum_j lam_j a_jil). For that p the duality gap needs nothing but the rows' values:

    primal(p) - D(lam) = sum_j  (beta_j - lam_j) * (b_j - v_j)    where the row is violated
                                lam_j * (v_j - b_j)               where it holds

so every pass over the pixels prices its own point. All arithmetic is in float64; the scores are
read where they lie. Files: constraints.py makes the rows; nothing here knows what a label means.
"""

import numpy as np

from libc.math cimport INFINITY, exp, expf, fabs, log, logf
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

ctypedef fused real:
    float
    double

cdef enum:
    BLOCK = 256           # pixels handled at a time: a few labels of them stay in the first-level cache
    LOGS = 12             # factors multiplied before one logarithm is taken: exp(+-RANGE)^LOGS is finite
    NEWTON_PASSES = 300   # bounds on the work, whatever the scores
    PGA_PASSES = 20000

cdef double RANGE = 30          # E is made anew when a bias moves this far from where E was made
cdef double HARD = 1e300        # the price of a hard row in here: compiled with -ffast-math, there is no infinity
cdef double FEASIBLE = 1e-9     # a hard row holds if it is violated by less: a billionth of the image
cdef double MARGIN = 5e-10      # hard rows aim this far inside, so that the returned p obeys them


class Solution:
    """What maximize returns.

    p          (L, n)  the latent distribution, in the scores' dtype
    lam        (k,)    the dual variables
    gap        primal - dual at this point, float64
    residual   the largest violation of the optimality conditions, |lam - clip(lam + b - v, 0, beta)|
    iterations passes over the pixels
    status     "optimal": gap <= tol, and hard rows hold to a billionth of the image
               "infeasible": hard rows contradict; `ray` proves it
               "stalled": neither was reached
    ray        None, or (k,) d >= 0, on hard rows only, with d'b > mean_i max_l sum_j d_j a_jil: no p
               can make d'v(p) that large
    """

    def __init__(self, p, lam, gap, residual, iterations, status, ray, rest):
        self.p, self.lam, self.gap, self.residual = p, lam, gap, residual
        self.iterations, self.status, self.ray = iterations, status, ray
        self._rest = rest

    @property
    def value(self):
        """The optimal value, mean_i KL(p_i || q_i) + beta' xi. Reads the scores again: ask before they change."""
        dual, f, hardness = self._rest
        return dual + mean_log_partition(f, hardness)

    def __repr__(self):
        return (f"Solution({self.status}, gap={self.gap:.1e}, residual={self.residual:.1e}, "
                f"iterations={self.iterations}, lam={np.array2string(self.lam, precision=3)})")


def maximize(f, constraints, double hardness=1.0, str method="newton", double tol=1e-6):
    """The latent distribution: maximise D(lam) for the scores hardness * f over 0 <= lam <= beta.

    f            (L, n) float32 or float64, labels first as in a Caffe blob; read in place if contiguous
    constraints  constraints.Constraints
    hardness     sharpens the scores: 1 is the paper's; 1000 the authors' in the size experiments
    method       "newton", or "pga", the paper's projected gradient ascent; both reach the same p
    tol          "optimal" is said only when the duality gap is at most this
    """
    f = _checked_scores(f)
    cdef Py_ssize_t L = f.shape[0], n = f.shape[1], k = len(constraints)
    _check_fit(constraints, L, n)
    if not 0 < hardness < INFINITY:
        raise ValueError(f"hardness must be positive and finite; got {hardness}")
    if not tol > 0:
        raise ValueError(f"tol must be positive; got {tol}")
    if method != "newton" and method != "pga":
        raise ValueError(f"method must be 'newton' or 'pga'; got {method!r}")

    cdef Dual problem = _problem(f, constraints, hardness)
    cdef bint newton = method == "newton"
    with nogil:
        if newton:
            problem.climb(tol)
        else:
            problem.ascend(tol)
    p = np.empty_like(f)
    if f.dtype == np.float32:
        problem.write_f(p)
    else:
        problem.write_d(p)
    ray = None
    if problem.infeasible:
        ray = np.asarray(problem.ray)
    status = "infeasible" if ray is not None else "optimal" if problem.is_optimal(tol) else "stalled"
    return Solution(p, np.asarray(problem.lam), problem.gap, problem.residual, problem.passes, status, ray,
                    (problem.value, f, hardness))


def kl_loss(const real[:, ::1] f, const real[:, ::1] p, real[:, ::1] diff=None):
    """The loss mean_i KL(p_i || q_i), q = softmax(f), and in `diff` its gradient (q - p) / n for fixed p: one pass.

    f, p, diff   L x n, contiguous; diff may be None
    """
    cdef Py_ssize_t L = f.shape[0], n = f.shape[1]
    for name, shape in (("p", (p.shape[0], p.shape[1])), ("diff", (L, n) if diff is None else (diff.shape[0], diff.shape[1]))):
        if shape != (L, n):
            raise ValueError(f"{name} must be {L} x {n}, like the scores; got {shape[0]} x {shape[1]}")
    cdef double loss
    cdef real[:, ::1] space = np.empty((L, BLOCK), np.float32 if real is float else np.float64)
    with nogil:
        loss = softmax_kl(&f[0, 0], &p[0, 0], NULL if diff is None else &diff[0, 0], L, n, &space[0, 0])
    return loss / n


cdef double softmax_kl(const real* f, const real* p, real* diff, Py_ssize_t L, Py_ssize_t n, real* q) noexcept nogil:
    """sum_i KL(p_i || q_i); q is scratch, L x BLOCK."""
    cdef Py_ssize_t block, start, count, l, i
    cdef real top[BLOCK]
    cdef real total[BLOCK]
    cdef real logs[BLOCK]
    cdef real x, part, scale = <real>(1.0 / n)
    cdef double loss = 0
    for block in range((n + BLOCK - 1) // BLOCK):
        start = block * BLOCK
        count = min(<Py_ssize_t>BLOCK, n - start)
        for i in range(count):
            top[i] = f[start + i]
            total[i] = 0
        for l in range(1, L):
            for i in range(count):
                x = f[l * n + start + i]
                top[i] = x if x > top[i] else top[i]
        for l in range(L):
            for i in range(count):
                x = f[l * n + start + i] - top[i]
                x = expf(x) if real is float else exp(x)
                q[l * BLOCK + i] = x
                total[i] += x
        for i in range(count):
            logs[i] = top[i] + (logf(total[i]) if real is float else log(total[i]))
            total[i] = 1 / total[i]
        for l in range(L):
            part = 0
            for i in range(count):
                part = max(part, p[l * n + start + i])
            if part > 0:
                part = 0
                for i in range(count):
                    x = p[l * n + start + i]
                    # x log x is 0 at x = 0: the smallest normal number stands in under the logarithm
                    part += x * ((logf(max(x, <real>1.2e-38)) if real is float else log(max(x, <real>1e-300)))
                                 - f[l * n + start + i] + logs[i])
                loss += part
            if diff != NULL:
                for i in range(count):
                    diff[l * n + start + i] = scale * (q[l * BLOCK + i] * total[i] - p[l * n + start + i])
    return loss


def exp_pass(const float[::1] x):
    """Sum of exp(x): one exponential pass over x in compiled float32, the yardstick of the benchmarks."""
    cdef Py_ssize_t i
    cdef float total = 0
    with nogil:
        for i in range(x.shape[0]):
            total += expf(x[i])
    return total


def mean_log_partition(const real[:, ::1] f, double hardness):
    """mean_i log sum_l exp(hardness * f_li) over all labels, in float64."""
    cdef Py_ssize_t L = f.shape[0], n = f.shape[1], l, i
    cdef double[::1] top = np.empty(n), total = np.zeros(n)
    cdef double logs = 0
    with nogil:
        for i in range(n):
            top[i] = f[0, i]
        for l in range(1, L):
            for i in range(n):
                top[i] = f[l, i] if f[l, i] > top[i] else top[i]
        for l in range(L):
            for i in range(n):
                total[i] += exp(hardness * (f[l, i] - top[i]))
        for i in range(n):
            logs += log(total[i]) + hardness * top[i]
    return logs / n


# ------------------------------------------------------------------------------------------------
# What comes in


def _checked_scores(f):
    """f as a contiguous L x n array of finite float32 or float64; no copy if it is one."""
    f = np.asarray(f)
    if f.ndim != 2 or not f.size:
        raise ValueError(f"scores must be labels x pixels; got shape {f.shape}")
    if f.dtype != np.float32 and f.dtype != np.float64:
        raise ValueError(f"scores must be float32 or float64; got {f.dtype}")
    f = np.ascontiguousarray(f)
    cdef const uint32_t[::1] words
    cdef const uint64_t[::1] long_words
    cdef uint32_t top = 0
    cdef uint64_t long_top = 0
    cdef Py_ssize_t i
    # the bits of NaN and infinity are the largest of all once the sign is off; floats themselves cannot be asked
    # here, where the compiler assumes they are finite
    if f.dtype == np.float32:
        words = f.reshape(-1).view(np.uint32)
        for i in range(words.shape[0]):
            top = max(top, words[i] & <uint32_t>0x7fffffff)
        finite = top < 0x7f800000
    else:
        long_words = f.reshape(-1).view(np.uint64)
        for i in range(long_words.shape[0]):
            long_top = max(long_top, long_words[i] & <uint64_t>0x7fffffffffffffff)
        finite = long_top < <uint64_t>0x7ff0000000000000
    if not finite:
        wrong = np.argwhere(~np.isfinite(f))
        raise ValueError(f"scores hold {len(wrong)} NaN or infinite values, the first at label {wrong[0][0]}, pixel {wrong[0][1]}")
    return f


def _check_fit(c, Py_ssize_t L, Py_ssize_t n):
    if c.labels is not None and c.labels != L:
        raise ValueError(f"scores have {L} labels; the constraints need {c.labels}")
    if c.pixels is not None and c.pixels != n:
        raise ValueError(f"scores have {n} pixels; the constraints need {c.pixels}")
    if c.matrix is not None and c.matrix.shape[1] != L * n:
        raise ValueError(f"scores have {L} x {n} entries; the constraint matrix needs {c.matrix.shape[1]}")


def _problem(f, c, double hardness):
    """The quickest form of the dual for these rows."""
    n = f.shape[1]
    if c.matrix is None:
        groups = _groups(c, f.shape[0], n)
        if groups is not None:
            return LabelSums(c, n, f, hardness, groups)
    return GeneralRows(c, n, f, hardness)


def _groups(c, Py_ssize_t L, Py_ssize_t n):
    """Group the pixels that are alike: same labels allowed, same weight in every row.

    Returns (pixels sorted by group or None if there is one group, its G + 1 bounds, G x L allowed, G x k weights);
    None if nearly every pixel is a group of its own.
    """
    cdef Py_ssize_t k = len(c), i, j, s, count = 0, limit = max(n // 4, 1)
    allowed_ = np.ones(L, bool) if c.allowed is None else c.allowed
    if allowed_.ndim == 1 and c.regions is None:
        return None, np.array([0, n]), allowed_.reshape(1, L).view(np.uint8), np.ones((1, k))

    # a fingerprint of every pixel's column; the columns themselves are compared below
    cdef uint64_t[::1] key = np.zeros(n, np.uint64)
    cdef const uint8_t[:, ::1] allowed
    cdef const uint64_t[:, ::1] weights
    if allowed_.ndim == 2:
        allowed = allowed_.view(np.uint8)
        for j in range(L):
            for i in range(n):
                key[i] = (key[i] + allowed[j, i] + 1) * <uint64_t>0x9e3779b97f4a7c15
    if c.regions is not None:
        weights = c.regions.view(np.uint64)
        for j in range(k):
            for i in range(n):
                key[i] = ((key[i] ^ (key[i] >> 29)) + weights[j, i] + 1) * <uint64_t>0xbf58476d1ce4e5b9

    cdef Py_ssize_t mask = 1
    while mask < 2 * limit + 2:
        mask *= 2
    mask -= 1
    cdef Py_ssize_t[::1] slot = np.full(mask + 1, -1, np.intp)     # hash table: groups by fingerprint
    cdef Py_ssize_t[::1] example = np.empty(limit + 1, np.intp), group = np.empty(n, np.intp)
    for i in range(n):
        if i and key[i] == key[i - 1]:
            group[i] = group[i - 1]
            continue
        s = <Py_ssize_t>(key[i] >> 20) & mask
        while slot[s] >= 0 and key[example[slot[s]]] != key[i]:
            s = (s + 1) & mask
        if slot[s] < 0:
            if count == limit:
                return None
            slot[s] = count
            example[count] = i
            count += 1
        group[i] = slot[s]

    same = np.asarray(example[:count]), np.asarray(group)
    cdef Py_ssize_t[::1] first = np.zeros(count + 1, np.intp), pixel = np.empty(n, np.intp), at
    for i in range(n):
        first[group[i] + 1] += 1
    for i in range(count):
        first[i + 1] += first[i]
    at = np.array(first)
    for i in range(n):
        pixel[at[group[i]]] = i
        at[group[i]] += 1
    columns = allowed_.view(np.uint8)[:, same[0]].T if allowed_.ndim == 2 else np.tile(allowed_.view(np.uint8), (count, 1))
    rows = np.ones((count, k)) if c.regions is None else c.regions[:, same[0]].T
    if not _alike(allowed_, c.regions, example, group):
        return None
    return np.asarray(pixel), np.asarray(first), np.ascontiguousarray(columns), np.ascontiguousarray(rows)


cdef bint _alike(allowed_, regions, Py_ssize_t[::1] example, Py_ssize_t[::1] group):
    """Is every pixel's column its group's? Two columns of one fingerprint are one in 2^64, but this is a proof."""
    cdef Py_ssize_t i, j, n = group.shape[0]
    cdef const uint8_t[:, ::1] allowed
    cdef const double[:, ::1] weights
    cdef bint differ = False
    if allowed_.ndim == 2:
        allowed = allowed_.view(np.uint8)
        for j in range(allowed.shape[0]):
            for i in range(n):
                differ |= allowed[j, i] != allowed[j, example[group[i]]]
    if regions is not None:
        weights = regions
        for j in range(weights.shape[0]):
            for i in range(n):
                differ |= weights[j, i] != weights[j, example[group[i]]]
    return not differ


# ------------------------------------------------------------------------------------------------
# The dual and its two maximisers


cdef class Dual:
    """D, its gradient and Hessian at lam come from `measure`; the maximisers below know nothing else."""

    cdef Py_ssize_t k, n
    cdef const double[::1] b, beta # in,  k
    cdef double[::1] low, high     # in,  k      the values a row can take at all
    cdef double[::1] lam, v        # out, k      the point, and the rows there
    cdef double[::1] g             # out, k      gradient, hard rows aimed MARGIN inside
    cdef double[:, ::1] H          # out, k x k  covariance of the rows: minus the Hessian
    cdef double[::1] new_lam, new_v, new_g, step, lower, upper, pull, ray
    cdef double[:, ::1] new_H, factor
    cdef double value, gap, residual, hardness
    cdef Py_ssize_t passes
    cdef bint infeasible

    def __cinit__(self, constraints, Py_ssize_t n, *rest):
        k = len(constraints)
        self.k, self.n = k, n
        self.b, self.beta = constraints.b, np.minimum(constraints.beta, HARD)
        space = np.zeros((12, k))
        (self.low, self.high, self.lam, self.v, self.g, self.new_lam, self.new_v, self.new_g, self.step, self.lower,
         self.upper, self.pull) = space
        self.ray = np.zeros(k)
        self.H, self.new_H, self.factor = np.zeros((3, k, k))

    cdef double measure(self, double[::1] lam, double[::1] v, double[:, ::1] H, bint second) noexcept nogil:
        """Return D(lam) without its constant; fill v and, if `second`, H."""
        return 0

    cdef double most(self, double[::1] d) noexcept nogil:
        """mean_i max_l sum_j d_j a_jil: the most that d'v(p) can be."""
        return 0

    cdef double spread(self) noexcept nogil:
        """How much the scores vary from pixel to pixel."""
        return 0

    cdef void sharpen(self, double hardness) noexcept nogil:
        """Go on with another hardness."""

    cdef void write_f(self, float[:, ::1] p):
        pass

    cdef void write_d(self, double[:, ::1] p):
        pass

    cdef void arrive(self) noexcept nogil:
        """At a new lam: gradient, gap and residual (see the module's docstring)."""
        cdef Py_ssize_t j
        cdef double short, target
        self.gap = self.residual = 0
        for j in range(self.k):
            short = self.b[j] - self.v[j]
            if self.beta[j] < HARD:
                self.g[j] = short
                self.gap += (self.beta[j] - self.lam[j]) * short if short > 0 else -self.lam[j] * short
            else:
                self.g[j] = short + MARGIN
                self.gap += self.lam[j] * fabs(short)
            target = self.lam[j] + short
            target = 0 if target < 0 else self.beta[j] if target > self.beta[j] else target
            self.residual = max(self.residual, fabs(self.lam[j] - target))

    cdef bint is_optimal(self, double tol) noexcept nogil:
        cdef Py_ssize_t j
        for j in range(self.k):
            if self.beta[j] == HARD and self.b[j] - self.v[j] > FEASIBLE:
                return False
        return self.gap <= tol

    cdef bint is_infeasible(self) noexcept nogil:
        """Do the hard rows contradict each other? lam itself, scaled, is the proof if it is one."""
        cdef Py_ssize_t j
        cdef double top = 0, claim = 0
        for j in range(self.k):
            if self.beta[j] == HARD:
                top = max(top, self.lam[j])
        if top == 0:
            return False
        for j in range(self.k):
            self.ray[j] = self.lam[j] / top if self.beta[j] == HARD else 0
            claim += self.ray[j] * self.b[j]
        self.infeasible = claim > self.most(self.ray) + 1e-12
        return self.infeasible

    cdef bint out_of_reach(self) noexcept nogil:
        """A hard row that no p at all satisfies."""
        cdef Py_ssize_t j
        for j in range(self.k):
            if self.beta[j] == HARD and self.b[j] > self.high[j] + 1e-12:
                self.ray[j] = 1
                self.infeasible = True
                return True
        return False

    cdef void start(self) noexcept nogil:
        self.value = self.measure(self.lam, self.v, self.H, True)
        self.passes += 1
        self.arrive()

    # Newton's method in a box --------------------------------------------------------------------
    #
    # 1. If the scores are sharp, first solve blunter problems: lam grows in proportion to them.
    # 2. At lam, solve the model: maximise pull'd - d'Hd/2 in the box 0 <= lam + d <= beta, |d| <= radius.
    # 3. Go there. D is concave, so it rose if it is still rising there along d; else compare D.
    # 4. If it fell, shrink the radius to where the slope along d would vanish; if the step met the
    #    radius and D rose, widen it.
    # 5. Stop at a gap below tol; when lam runs off, see whether its direction proves a contradiction.

    cdef void climb(self, double tol) noexcept nogil:
        cdef double goal = self.hardness, blunt = 8 / max(self.spread(), 1e-300), ratio
        cdef Py_ssize_t j
        if self.out_of_reach():
            self.start()
            return
        if goal > 2 * blunt:                                                                  # 1
            self.sharpen(blunt)
            self.start()
            while True:
                self.rise(tol, 6, 0.01)
                ratio = min(goal / self.hardness, 8.0)
                for j in range(self.k):
                    self.lam[j] = min(self.lam[j] * ratio, self.beta[j])
                self.sharpen(min(self.hardness * ratio, goal))
                self.start()
                if self.hardness == goal:
                    break
        else:
            self.start()
        self.rise(tol, NEWTON_PASSES - self.passes, 0)

    cdef void rise(self, double tol, Py_ssize_t passes, double rough) noexcept nogil:
        """Newton's steps until the point is optimal, or its residual below `rough`."""
        cdef double radius = 20, slope, new_slope, new_value, reach
        cdef Py_ssize_t j, t
        for t in range(passes):
            if self.residual < rough or self.is_optimal(tol):                                 # 5
                return
            self.aim()
            slope = self.model(radius)                                                        # 2
            if not slope > 0:                         # the pull of several rows may point downhill
                self.pull[:] = self.g
                slope = self.model(radius)
                if not slope > 0:
                    return
            reach = 0
            for j in range(self.k):
                self.new_lam[j] = self.lam[j] + self.step[j]
                if self.step[j] >= self.upper[j] and self.upper[j] == self.beta[j] - self.lam[j]:
                    self.new_lam[j] = self.beta[j]
                reach = max(reach, fabs(self.step[j]))
            new_value = self.measure(self.new_lam, self.new_v, self.new_H, True)              # 3
            self.passes += 1
            new_slope = 0
            for j in range(self.k):
                new_slope += self.step[j] * (self.g[j] + self.v[j] - self.new_v[j])
            if new_slope >= 0 or new_value > self.value:
                self.lam, self.new_lam = self.new_lam, self.lam
                self.v, self.new_v = self.new_v, self.v
                self.H, self.new_H = self.new_H, self.H
                self.value = new_value
                self.arrive()
                if reach > 0.99 * radius and new_slope >= 0:                                  # 4
                    radius *= 4
                    if self.is_infeasible():
                        return
            else:
                radius = reach * min(max(slope / (slope - new_slope), 0.1), 0.7)              # 4
                if radius < 1e-14:
                    return

    cdef void aim(self) noexcept nogil:
        """What pulls on each dual: the gradient, straightened.

        A label's area t = (v - low) / (high - low) follows its bias like a logistic curve, so logit t
        is nearly linear where t is not: Newton's step on logit t = logit target is the plain step with
        the residual below in place of target - t. It has the same sign, and the same limit.
        """
        cdef Py_ssize_t j
        cdef double width, t, target
        for j in range(self.k):
            self.pull[j] = self.g[j]
            width = self.high[j] - self.low[j]
            if width <= 0:
                continue
            t = (self.v[j] - self.low[j]) / width
            target = t + self.g[j] / width
            if t > 1e-300 and t < 1 and target > 1e-9 and target < 1 - 1e-9:
                self.pull[j] = width * t * (1 - t) * (log(target / (1 - target)) - log(t / (1 - t)))

    cdef double model(self, double radius) noexcept nogil:
        """The step: maximise pull'd - d'Hd/2 over the box; return the slope of D along it.

        Coordinate ascent finds which duals end on a side of the box; Cholesky's method settles the rest.
        """
        cdef Py_ssize_t j, m, sweep
        cdef double change, d, slope = 0
        for j in range(self.k):
            self.lower[j] = max(-self.lam[j], -radius)
            self.upper[j] = min(self.beta[j] - self.lam[j], radius)
            self.step[j] = 0
        for sweep in range(40):
            change = 0
            for j in range(self.k):
                d = self.pull[j]
                for m in range(self.k):
                    if m != j:
                        d -= self.H[j, m] * self.step[m]
                # a row that does not respond (H_jj = 0) goes to the side it is pulled to
                d = d / self.H[j, j] if self.H[j, j] > 1e-30 else d * HARD
                d = min(max(d, self.lower[j]), self.upper[j])
                change = max(change, fabs(d - self.step[j]))
                self.step[j] = d
            if change < 1e-3 * radius or self.k == 1:
                break
        if self.k > 1:
            self.settle()
        for j in range(self.k):
            slope += self.g[j] * self.step[j]
        return slope

    cdef void settle(self) noexcept nogil:
        """Solve H d = pull in the duals strictly inside the box, the others held; keep it if it stays inside."""
        cdef Py_ssize_t j, m, r, free = 0
        cdef double x
        cdef double[:, ::1] C = self.factor
        cdef double[::1] y = self.new_g
        for j in range(self.k):                       # new_lam: the free duals' numbers, until the step is taken
            if self.lower[j] < self.step[j] < self.upper[j]:
                self.new_lam[free] = j
                free += 1
        for j in range(free):                         # C C' = H, y = C^-1 (pull - H d), on the free duals
            r = <Py_ssize_t>self.new_lam[j]
            for m in range(j + 1):
                x = self.H[r, <Py_ssize_t>self.new_lam[m]]
                if m == j:
                    x *= 1 + 1e-12
                x -= dot(&C[j, 0], &C[m, 0], m)
                if m < j:
                    C[j, m] = x / C[m, m]
                elif x > 1e-14 * self.H[r, r]:
                    C[j, j] = x ** 0.5
                else:
                    return                            # rows that depend on each other: keep the ascent's answer
            x = self.pull[r] - dot(&self.H[r, 0], &self.step[0], self.k)
            y[j] = (x - dot(&C[j, 0], &y[0], j)) / C[j, j]
        for j in range(free - 1, -1, -1):
            x = y[j]
            for m in range(j + 1, free):
                x -= C[m, j] * y[m]
            y[j] = x / C[j, j]
        for j in range(free):
            r = <Py_ssize_t>self.new_lam[j]
            x = self.step[r] + y[j]
            if x < self.lower[r] or x > self.upper[r]:
                return
        for j in range(free):
            self.step[<Py_ssize_t>self.new_lam[j]] += y[j]

    # The paper's projected gradient ascent ---------------------------------------------------------

    cdef void ascend(self, double tol) noexcept nogil:
        """lam <- clip(lam + alpha (b - v), 0, beta), alpha halved until D rises as it should, then doubled."""
        cdef double alpha = 1, slope, new_slope, new_value
        cdef Py_ssize_t j
        if self.out_of_reach():
            self.start()
            return
        self.start()
        while self.passes < PGA_PASSES and not self.is_optimal(tol):
            slope = 0
            for j in range(self.k):
                self.new_lam[j] = min(max(self.lam[j] + alpha * self.g[j], 0), self.beta[j])
                self.step[j] = self.new_lam[j] - self.lam[j]
                slope += self.step[j] * self.g[j]
            if not slope > 0:
                return
            new_value = self.measure(self.new_lam, self.new_v, self.new_H, False)
            self.passes += 1
            new_slope = 0
            for j in range(self.k):
                new_slope += self.step[j] * (self.g[j] + self.v[j] - self.new_v[j])
            if new_slope >= 0 or new_value >= self.value + 0.3 * slope:
                self.lam, self.new_lam = self.new_lam, self.lam
                self.v, self.new_v = self.new_v, self.v
                self.value = new_value
                self.arrive()
                alpha *= 2
                if alpha > 1e6 and self.is_infeasible():
                    return
            else:
                alpha *= 0.5


cdef inline double dot(const double* x, const double* y, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef double total = 0
    for i in range(n):
        total += x[i] * y[i]
    return total


# ------------------------------------------------------------------------------------------------
# Rows that weigh labels, over the image or over regions


cdef class LabelSums(Dual):
    """Rows a_jil = A_jl * regions_ji: pixels alike to all rows share their biases.

    Pixels are grouped by which labels they may take and by their weight in every row; in group g row j
    adds lam_j J_lj to the score of label l, J = A_jl * regions_jg. So the exponentials are taken once,

        E_li = exp(f_li + ref_l - max_l),      p_i(l) = w_l E_li / sum_m w_m E_mi,      w = exp(J lam - ref)

    and a pass is a product and a division per pixel. E is made anew where w would leave exp(+-RANGE).
    A pixel with one label left has p = 1 and costs nothing.
    """

    cdef Py_ssize_t groups
    cdef const float[:, ::1] f32        # in, L x n  the scores, one of the two
    cdef const double[:, ::1] f64
    cdef bint single, sorted, made
    cdef Py_ssize_t[::1] only           # G       the label of a group that has just one
    cdef Py_ssize_t[::1] pixel          # n       pixels, group by group; not used if there is one group
    cdef Py_ssize_t[::1] first          # G + 1   a group's place in `pixel`
    cdef Py_ssize_t[::1] label, row     #         labels and rows of the groups, end to end
    cdef Py_ssize_t[::1] label_at, row_at, J_at, E_at   # G + 1  a group's place in label, row, J, E
    cdef double[::1] J                  #         labels x rows, group after group
    cdef double[::1] E                  #         labels x pixels, group after group
    cdef double[::1] ref, bias, w       # like label
    cdef double[::1] fixed              # k       what pixels with a single label give to the rows
    cdef double[::1] mean, second       # scratch, labels and labels x labels
    cdef double[::1] p                  # scratch, labels x BLOCK
    cdef double shift                   # sum over pixels of max_l

    def __init__(self, constraints, Py_ssize_t n, f, double hardness, groups):
        cdef Py_ssize_t g, j, l, i, m, r, L = f.shape[0], at
        cdef double[:, ::1] A = constraints.A
        cdef double a, size, low, high
        self.hardness = hardness
        self.single = f.dtype == np.float32
        if self.single:
            self.f32 = f
        else:
            self.f64 = f
        pixel, first, allowed_, weights_ = groups
        self.sorted = pixel is None
        self.groups = len(first) - 1
        if not self.sorted:
            self.pixel = pixel
        self.first = first
        cdef const uint8_t[:, ::1] allowed = allowed_      # G x L
        cdef const double[:, ::1] weights = weights_       # G x k

        self.fixed, self.only = np.zeros(self.k), np.empty(self.groups, np.intp)
        self.label, self.label_at = np.empty(self.groups * L, np.intp), np.zeros(self.groups + 1, np.intp)
        self.row, self.row_at = np.empty(self.groups * self.k, np.intp), np.zeros(self.groups + 1, np.intp)
        self.J_at, self.E_at = np.zeros((2, self.groups + 1), np.intp)
        cdef Py_ssize_t most = 0
        for g in range(self.groups):
            m = r = 0
            for l in range(L):
                if allowed[g, l]:
                    self.label[self.label_at[g] + m] = l
                    m += 1
            size = (self.first[g + 1] - self.first[g]) / <double>n
            for j in range(self.k):
                low, high = HARD, -HARD
                for l in range(m):
                    a = A[j, self.label[self.label_at[g] + l]] * weights[g, j]
                    low, high = min(low, a), max(high, a)
                self.low[j] += size * low
                self.high[j] += size * high
                if m == 1:
                    self.fixed[j] += size * high
                elif low != 0 or high != 0:
                    self.row[self.row_at[g] + r] = j
                    r += 1
            if m == 1:
                self.only[g] = self.label[self.label_at[g]]
                m = 0
            most = max(most, m)
            self.label_at[g + 1] = self.label_at[g] + m
            self.row_at[g + 1] = self.row_at[g] + r
            self.J_at[g + 1] = self.J_at[g] + m * r
            self.E_at[g + 1] = self.E_at[g] + m * (self.first[g + 1] - self.first[g])
        self.J = np.empty(self.J_at[self.groups])
        self.E = np.empty(self.E_at[self.groups])
        self.ref, self.bias, self.w = np.zeros((3, self.label_at[self.groups]))
        self.mean, self.second, self.p = np.empty(most), np.empty(most * most), np.empty(most * BLOCK)
        for g in range(self.groups):
            at = self.J_at[g]
            for l in range(self.label_at[g], self.label_at[g + 1]):
                for j in range(self.row_at[g], self.row_at[g + 1]):
                    self.J[at] = A[self.row[j], self.label[l]] * weights[g, self.row[j]]
                    at += 1

    cdef void weigh(self, double[::1] lam) noexcept nogil:
        """w for this lam, and E if w asks for it."""
        cdef Py_ssize_t g, l, j, at
        cdef double drift = 0
        for g in range(self.groups):
            at = self.J_at[g]
            for l in range(self.label_at[g], self.label_at[g + 1]):
                self.bias[l] = 0
                for j in range(self.row_at[g], self.row_at[g + 1]):
                    self.bias[l] += self.J[at] * lam[self.row[j]]
                    at += 1
                drift = max(drift, fabs(self.bias[l] - self.ref[l]))
        if drift > RANGE or not self.made:
            self.ref[:] = self.bias
            self.shift = 0
            for g in range(self.groups):
                if self.single:
                    self.shift += exponentiate(self, g, &self.f32[0, 0])
                else:
                    self.shift += exponentiate(self, g, &self.f64[0, 0])
            self.made = True
        for l in range(self.label_at[self.groups]):
            self.w[l] = exp(self.bias[l] - self.ref[l])

    cdef double measure(self, double[::1] lam, double[::1] v, double[:, ::1] H, bint second) noexcept nogil:
        cdef Py_ssize_t g, l, m, j, h, labels, rows
        cdef double logs = self.shift, x, linear = 0
        cdef double* J
        cdef double* C = NULL
        self.weigh(lam)
        logs = self.shift
        for j in range(self.k):
            v[j] = self.fixed[j]
            linear += lam[j] * (self.b[j] - self.fixed[j])
        if second:
            H[:, :] = 0
        for g in range(self.groups):
            labels = self.label_at[g + 1] - self.label_at[g]
            rows = self.row_at[g + 1] - self.row_at[g]
            if labels == 0:
                continue
            C = &self.second[0] if second else NULL
            logs += pass_over_pixels(&self.E[self.E_at[g]], &self.w[self.label_at[g]], labels,
                                     self.first[g + 1] - self.first[g], &self.p[0], &self.mean[0], C)
            if rows == 0:
                continue
            J = &self.J[self.J_at[g]]
            for j in range(rows):
                for l in range(labels):
                    v[self.row[self.row_at[g] + j]] += J[l * rows + j] * self.mean[l] / self.n
            if not second:
                continue
            for j in range(rows):                     # H += J' (diag(mean) - second) J
                for l in range(labels):
                    x = J[l * rows + j] * self.mean[l]
                    for m in range(labels):
                        x -= C[l * labels + m] * J[m * rows + j]
                    x /= self.n
                    for h in range(rows):
                        H[self.row[self.row_at[g] + j], self.row[self.row_at[g] + h]] += x * J[l * rows + h]
        return linear - logs / self.n

    cdef double most(self, double[::1] d) noexcept nogil:
        cdef Py_ssize_t g, l, j, at, rows
        cdef double total = 0, top, x
        for j in range(self.k):
            total += self.fixed[j] * d[j]
        for g in range(self.groups):
            if self.label_at[g] == self.label_at[g + 1]:
                continue
            top = -HARD
            at = self.J_at[g]
            for l in range(self.label_at[g], self.label_at[g + 1]):
                x = 0
                for j in range(self.row_at[g], self.row_at[g + 1]):
                    x += self.J[at] * d[self.row[j]]
                    at += 1
                top = max(top, x)
            total += top * (self.first[g + 1] - self.first[g]) / self.n
        return total

    cdef double spread(self) noexcept nogil:
        """Standard deviation of the labels' scores against their pixel's mean, at 64 pixels of every group."""
        cdef Py_ssize_t g, i, l, labels, at, count = 0
        cdef double x, here, total = 0
        for g in range(self.groups):
            labels = self.label_at[g + 1] - self.label_at[g]
            if labels == 0:
                continue
            for i in range(64):
                at = self.first[g] + i * (self.first[g + 1] - self.first[g]) // 64
                at = at if self.sorted else self.pixel[at]
                here = 0
                for l in range(self.label_at[g], self.label_at[g + 1]):
                    here += self.score(self.label[l], at) / labels
                for l in range(self.label_at[g], self.label_at[g + 1]):
                    x = self.score(self.label[l], at) - here
                    total += x * x
                    count += 1
        return (total / count) ** 0.5 if count else 0

    cdef inline double score(self, Py_ssize_t l, Py_ssize_t i) noexcept nogil:
        return self.f32[l, i] if self.single else self.f64[l, i]

    cdef void sharpen(self, double hardness) noexcept nogil:
        self.hardness = hardness
        self.made = False

    cdef void write_f(self, float[:, ::1] p):
        distribute(self, p)

    cdef void write_d(self, double[:, ::1] p):
        distribute(self, p)


cdef double exponentiate(LabelSums s, Py_ssize_t g, const real* f) noexcept nogil:
    """E of group g for the biases ref; return the sum over its pixels of the maximum taken off."""
    cdef Py_ssize_t labels = s.label_at[g + 1] - s.label_at[g], size = s.first[g + 1] - s.first[g]
    cdef Py_ssize_t block, start, count, l, i
    cdef double top[BLOCK]
    cdef double ref, h = s.hardness, total = 0
    cdef double* E
    cdef const real* row
    cdef const Py_ssize_t* pixel
    for block in range((size + BLOCK - 1) // BLOCK if labels else 0):
        start = block * BLOCK
        count = min(<Py_ssize_t>BLOCK, size - start)
        for l in range(labels):
            E = &s.E[s.E_at[g]] + l * size + start
            ref = s.ref[s.label_at[g] + l]
            row = f + s.label[s.label_at[g] + l] * s.n
            if s.sorted:
                row = row + start
                for i in range(count):
                    E[i] = h * row[i] + ref
            else:
                pixel = &s.pixel[s.first[g] + start]
                for i in range(count):
                    E[i] = h * row[pixel[i]] + ref
            if l == 0:
                for i in range(count):
                    top[i] = E[i]
            else:
                for i in range(count):
                    top[i] = E[i] if E[i] > top[i] else top[i]
        for l in range(labels):
            E = &s.E[s.E_at[g]] + l * size + start
            for i in range(count):
                E[i] = exp(E[i] - top[i])
        for i in range(count):
            total += top[i]
    return total


cdef double pass_over_pixels(
    const double* E,       # in,  labels x size
    const double* w,       # in,  labels
    Py_ssize_t labels,
    Py_ssize_t size,
    double* p,             # scratch, labels x BLOCK
    double* mean,          # out, labels            sum over the pixels of p
    double* second,        # out, labels x labels   sum over the pixels of p p', or NULL
) noexcept nogil:
    """Return sum_i log sum_l w_l E_li."""
    cdef Py_ssize_t block, start, count, l, m, i, taken = 0
    cdef double total[BLOCK]
    cdef double product[BLOCK]     # of LOGS totals, so that one logarithm does for all of them
    cdef double x, weight, logs = 0
    cdef const double* e
    cdef double* q
    for l in range(labels):
        mean[l] = 0
        if second != NULL:
            for m in range(labels):
                second[l * labels + m] = 0
    for i in range(BLOCK):
        product[i] = 1
    for block in range((size + BLOCK - 1) // BLOCK):
        start = block * BLOCK
        count = min(<Py_ssize_t>BLOCK, size - start)
        for i in range(count):
            total[i] = 0
        for l in range(labels):
            e = E + l * size + start
            q = p + l * BLOCK
            weight = w[l]
            for i in range(count):
                q[i] = weight * e[i]
                total[i] += q[i]
        for i in range(count):
            product[i] *= total[i]
            total[i] = 1 / total[i]
        for l in range(labels):
            q = p + l * BLOCK
            x = 0
            for i in range(count):
                q[i] *= total[i]
                x += q[i]
            mean[l] += x
        if second != NULL:
            for l in range(labels):
                for m in range(l + 1):
                    second[l * labels + m] += dot(p + l * BLOCK, p + m * BLOCK, count)
        taken += 1
        if taken == LOGS or start + BLOCK >= size:
            for i in range(BLOCK):
                logs += log(product[i])
                product[i] = 1
            taken = 0
    if second != NULL:
        for l in range(labels):
            for m in range(l):
                second[m * labels + l] = second[l * labels + m]
    return logs


cdef void distribute(LabelSums s, real[:, ::1] p) noexcept:
    """Write p at lam, 0 where a label may not be."""
    cdef Py_ssize_t g, l, i, block, start, count, size, labels
    cdef double total[BLOCK]
    cdef double weight
    cdef double* e
    cdef real* out
    cdef const Py_ssize_t* pixel
    with nogil:
        s.weigh(s.lam)
        for l in range(p.shape[0]):
            if s.groups > 1 or not member(l, &s.label[0], s.label_at[1]):
                memset(&p[l, 0], 0, s.n * sizeof(real))
        for g in range(s.groups):
            size = s.first[g + 1] - s.first[g]
            labels = s.label_at[g + 1] - s.label_at[g]
            if labels == 0:
                l = s.only[g]
                for i in range(s.first[g], s.first[g + 1]):
                    p[l, i if s.sorted else s.pixel[i]] = 1
                continue
            for block in range((size + BLOCK - 1) // BLOCK):
                start = block * BLOCK
                count = min(<Py_ssize_t>BLOCK, size - start)
                for i in range(count):
                    total[i] = 0
                for l in range(labels):
                    e = &s.E[s.E_at[g]] + l * size + start
                    weight = s.w[s.label_at[g] + l]
                    for i in range(count):
                        total[i] += weight * e[i]
                for i in range(count):
                    total[i] = 1 / total[i]
                for l in range(labels):
                    e = &s.E[s.E_at[g]] + l * size + start
                    weight = s.w[s.label_at[g] + l]
                    out = &p[s.label[s.label_at[g] + l], 0]
                    if s.sorted:
                        out = out + start
                        for i in range(count):
                            out[i] = <real>(weight * e[i] * total[i])
                    else:
                        pixel = &s.pixel[s.first[g] + start]
                        for i in range(count):
                            out[pixel[i]] = <real>(weight * e[i] * total[i])


cdef inline bint member(Py_ssize_t l, const Py_ssize_t* labels, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        if labels[i] == l:
            return True
    return False


# ------------------------------------------------------------------------------------------------
# Rows of any kind


cdef class GeneralRows(Dual):
    """Rows a_jil from a sparse matrix: a bias of its own for every pixel and label, exponentials in every pass."""

    cdef Py_ssize_t labels
    cdef double[:, ::1] f               # in, labels x n  hardness-free scores of the labels that appear, -1e300: not here
    cdef Py_ssize_t[::1] label          # labels          their numbers
    cdef const int[::1] start, row      # the matrix by columns (csc)
    cdef const double[::1] entry
    cdef double[:, ::1] p               # labels x n
    cdef double[::1] top, u             # n; k

    def __init__(self, constraints, Py_ssize_t n, f, double hardness):
        cdef Py_ssize_t j, i, l, c, e
        cdef double x
        matrix = constraints.as_matrix(n)
        matrix.sort_indices()
        self.start, self.row = matrix.indptr.astype(np.intc, copy=False), matrix.indices.astype(np.intc, copy=False)
        self.entry = matrix.data
        self.hardness = hardness
        allowed = constraints.allowed
        if allowed is None:
            allowed = np.ones(len(f), bool)
        if allowed.ndim == 1:
            allowed = allowed[:, None]
        label = np.flatnonzero(allowed.any(axis=1))
        self.label, self.labels = label, len(label)
        self.f = np.where(allowed[label], np.asarray(f, float)[label], -HARD)
        self.p = np.empty((len(label), n))
        self.top, self.u = np.empty(n), np.empty(self.k)
        # the least and the most a row can be: pixel by pixel its smallest and largest entry, 0 for a label it skips
        cdef double[::1] low = np.empty(self.k), high = np.empty(self.k)
        cdef Py_ssize_t[::1] seen = np.empty(self.k, np.intp)
        cdef Py_ssize_t present
        with nogil:
            for i in range(n):
                present = 0
                seen[:] = 0
                for l in range(self.labels):
                    if self.f[l, i] == -HARD:
                        continue
                    present += 1
                    c = self.label[l] * n + i
                    for e in range(self.start[c], self.start[c + 1]):
                        j, x = self.row[e], self.entry[e]
                        if seen[j] == 0:
                            low[j], high[j] = x, x
                        else:
                            low[j], high[j] = min(low[j], x), max(high[j], x)
                        seen[j] += 1
                for j in range(self.k):
                    if seen[j]:
                        if seen[j] < present:
                            low[j], high[j] = min(low[j], 0), max(high[j], 0)
                        self.low[j] += low[j] / n
                        self.high[j] += high[j] / n

    cdef double measure(self, double[::1] lam, double[::1] v, double[:, ::1] H, bint second) noexcept nogil:
        cdef Py_ssize_t n = self.n, i, l, c, e, d, j
        cdef double x, logs = 0, linear = 0
        cdef double* p
        cdef double* top = &self.top[0]
        for l in range(self.labels):                  # f + A' lam, and its maximum
            p = &self.p[l, 0]
            for i in range(n):
                c = self.label[l] * n + i
                x = self.hardness * self.f[l, i]
                for e in range(self.start[c], self.start[c + 1]):
                    x += lam[self.row[e]] * self.entry[e]
                p[i] = x
            if l == 0:
                for i in range(n):
                    top[i] = p[i]
            else:
                for i in range(n):
                    top[i] = p[i] if p[i] > top[i] else top[i]
        for i in range(n):
            logs += top[i]
        for l in range(self.labels):
            p = &self.p[l, 0]
            for i in range(n):
                p[i] = exp(p[i] - top[i])
        for i in range(n):
            top[i] = 0
        for l in range(self.labels):
            p = &self.p[l, 0]
            for i in range(n):
                top[i] += p[i]
        for i in range(n):
            logs += log(top[i])
            top[i] = 1 / top[i]
        for l in range(self.labels):
            p = &self.p[l, 0]
            for i in range(n):
                p[i] *= top[i]

        v[:] = 0
        for j in range(self.k):
            linear += lam[j] * self.b[j]
        if second:
            H[:, :] = 0
        for i in range(n):
            if second:
                self.u[:] = 0
            for l in range(self.labels):
                c = self.label[l] * n + i
                for e in range(self.start[c], self.start[c + 1]):
                    x = self.entry[e] * self.p[l, i] / n
                    v[self.row[e]] += x
                    if second:
                        self.u[self.row[e]] += x
                        for d in range(self.start[c], e + 1):
                            H[self.row[e], self.row[d]] += x * self.entry[d]
            if second:
                for j in range(self.k):
                    x = self.u[j] * n
                    if x != 0:
                        for d in range(j + 1):
                            H[j, d] -= x * self.u[d]
        if second:
            for j in range(self.k):
                for d in range(j):
                    H[d, j] = H[j, d]
        return linear - logs / n

    cdef double most(self, double[::1] d) noexcept nogil:
        cdef Py_ssize_t i, l, c, e
        cdef double total = 0, top, x
        for i in range(self.n):
            top = -HARD
            for l in range(self.labels):
                if self.f[l, i] == -HARD:
                    continue
                c = self.label[l] * self.n + i
                x = 0
                for e in range(self.start[c], self.start[c + 1]):
                    x += d[self.row[e]] * self.entry[e]
                top = max(top, x)
            total += top / self.n
        return total

    cdef double spread(self) noexcept nogil:
        cdef Py_ssize_t s, i, l, count = 0, here_count
        cdef double x, here, total = 0
        for s in range(64):
            i = s * self.n // 64
            here, here_count = 0, 0
            for l in range(self.labels):
                if self.f[l, i] != -HARD:
                    here += self.f[l, i]
                    here_count += 1
            for l in range(self.labels):
                if self.f[l, i] != -HARD:
                    x = self.f[l, i] - here / here_count
                    total += x * x
                    count += 1
        return (total / count) ** 0.5 if count else 0

    cdef void sharpen(self, double hardness) noexcept nogil:
        self.hardness = hardness

    cdef void write_f(self, float[:, ::1] p):
        self.write(np.asarray(p))

    cdef void write_d(self, double[:, ::1] p):
        self.write(np.asarray(p))

    cdef void write(self, p):
        with nogil:
            self.measure(self.lam, self.new_v, self.new_H, False)
        p[...] = 0
        p[np.asarray(self.label)] = self.p
