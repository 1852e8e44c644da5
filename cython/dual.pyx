# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The latent distribution of CCNN: the nearest one to the net's output that obeys linear constraints.

With scores f (L labels x n pixels) and q = softmax(f), the paper's problem (equation 6), per pixel, is

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

so every pass over the pixels prices its own point. The solver computes in float64 and reads the scores where
they lie. constraints.py makes the rows; nothing here knows what a label means.
"""

import numpy as np

from libc.math cimport exp, expf, fabs, log, logf
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset
from posix.stdlib cimport posix_memalign

cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <string.h>

    /* exp(x) for -200 <= x <= 200, to 1e-14: x = n ln 2 + r, a polynomial for exp(r), n into the exponent's bits.
       Inlined, it is vectorised with the loop around it, and faster than calls of libm's vector functions. */
    static inline double exp_within(double x) {
        double n = rint(x * 1.4426950408889634), r = x - n * 0.6931471805599453;
        double y = 1 + r * (1 + r * (1/2. + r * (1/6. + r * (1/24. + r * (1/120. + r * (1/720. + r * (1/5040.
                 + r * (1/40320. + r * (1/362880. + r * (1/3628800. + r * (1/39916800.)))))))))));
        int64_t bits = ((int64_t)(int32_t)n + 1023) << 52;
        double power;
        memcpy(&power, &bits, sizeof power);
        return y * power;
    }

    /* The same in float32, to 2e-7, for -80 <= x <= 80. */
    static inline float exp_within_f(float x) {
        float n = rintf(x * 1.44269504f), r = x - n * 0.693147181f;
        float y = 1 + r * (1 + r * (1/2.f + r * (1/6.f + r * (1/24.f + r * (1/120.f + r * (1/720.f))))));
        int32_t bits = ((int32_t)n + 127) << 23;
        float power;
        memcpy(&power, &bits, sizeof power);
        return y * power;
    }
    """
    double exp_within(double x) noexcept nogil
    float exp_within_f(float x) noexcept nogil

ctypedef fused real:
    float
    double

ctypedef fused word:
    uint32_t
    uint64_t

FLOAT, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)

cdef enum:
    BLOCK = 256           # pixels handled at a time: a few labels of them stay in the first-level cache
    QUARTER = 64          # of a block: four pixels share a division, and sums run in four strands
    SAMPLE = 4            # one pixel of so many will do for the blunter problems
    LOGS = 16             # factors multiplied before one logarithm is taken: exp(+-RANGE)^LOGS is finite
    NEWTON_PASSES = 300   # bounds on the work, whatever the scores
    PGA_PASSES = 20000

cdef double RANGE = 30          # E is made anew when a bias moves this far from where E was made
cdef double FLOOR = -200        # exponents end here: exp(-200) is nothing beside 1, yet no denormal number
cdef double NOTHING = 1e-18     # probabilities below are 0 in a gradient: denormal numbers make the layers below crawl
cdef double HARD = 1e300        # the price of a hard row in here: compiled with -ffast-math, there is no infinity
cdef double FEASIBLE = 1e-9     # a hard row holds if it is violated by less: a billionth of what it can range over
cdef double MARGIN = 5e-10      # hard rows aim this far inside, so that the returned p obeys them


cdef class Dual


cdef class Solution:
    """What maximize returns.

    p          (L, n)  the latent distribution, in the scores' dtype
    lam        (k,)    the dual variables
    value      the optimal value, mean_i KL(p_i || softmax(hardness * f_i)) + beta' xi
    gap        primal - dual at this point, float64; inf if a hard row does not hold
    residual   the largest violation of the optimality conditions, |lam - clip(lam + b - v, 0, beta)|
    iterations passes over the pixels
    status     "optimal": gap <= tol, and hard rows hold to a billionth of their range
               "infeasible": hard rows contradict; `ray` proves it
               "stalled": neither was reached
    ray        None, or (k,) d >= 0, on hard rows only, with d'b > mean_i max_l sum_j d_j a_jil: no p
               can make d'v(p) that large
    loss       None, or mean_i KL(p_i || softmax(f_i)) if its gradient was asked for

    p is written when it is asked for. value reads the scores again: ask before they change.
    """

    cdef readonly object lam, ray, status, loss
    cdef readonly double gap, residual
    cdef readonly Py_ssize_t iterations
    cdef Dual problem
    cdef object written

    @property
    def p(self):
        if self.written is None:
            self.written = self.write(np.zeros_like(self.problem.scores))
        return self.written

    def write(self, zeros):
        """p into an array like the scores that is 0 where a label may not be; return it."""
        cdef float[:, ::1] p32
        cdef double[:, ::1] p64
        if zeros.shape != self.problem.scores.shape:
            raise ValueError(f"p must be like the scores, {self.problem.scores.shape}; got {zeros.shape}")
        if self.problem.f32 != NULL:
            p32 = zeros
            with nogil:
                self.problem.put(&p32[0, 0], NULL, False)
        else:
            p64 = zeros
            with nogil:
                self.problem.put(NULL, &p64[0, 0], False)
        return zeros

    @property
    def value(self):
        return self.problem.dual_value() + mean_log_partition(self.problem.scores, self.problem.hardness)

    def __repr__(self):
        return (f"Solution({self.status}, gap={self.gap:.1e}, residual={self.residual:.1e}, "
                f"iterations={self.iterations}, lam={np.array2string(self.lam, precision=3)})")


def maximize(f, constraints, hardness=1.0, method="newton", tol=1e-6, diff=None):
    """The latent distribution: maximise D(lam) for the scores hardness * f over 0 <= lam <= beta.

    f            (L, n) float32 or float64, labels first as in a Caffe blob; read in place if contiguous
    constraints  constraints.Constraints
    hardness     sharpens the scores: 1 is the paper's; 1000 the authors' in the size experiments
    method       "newton", or "pga", the paper's projected gradient ascent; both reach the same p
    tol          "optimal" is said only when the duality gap is at most this
    diff         None, or an array like f, filled with the gradient of the loss for fixed p: (softmax(f) - p) / n
    """
    if not 0 < hardness < 1e100:                      # compared by Python: NaN fails, which C would not promise here
        raise ValueError(f"hardness must be positive and finite; got {hardness}")
    if not tol > 0:
        raise ValueError(f"tol must be positive; got {tol}")
    if method not in ("newton", "pga"):
        raise ValueError(f"method must be 'newton' or 'pga'; got {method!r}")
    f = _checked_scores(f, hardness)
    _check_fit(constraints, f.shape[0], f.shape[1])
    if diff is not None and diff.shape != f.shape:
        raise ValueError(f"diff must be like the scores, {f.shape}; got {diff.shape}")

    cdef Dual problem = None
    if constraints.matrix is None:
        problem = LabelSums(constraints, f, hardness, diff)
    if problem is None or not (<LabelSums>problem).groups:
        problem = GeneralRows(constraints, f, hardness, diff)
    cdef bint newton = method == "newton", gradient = diff is not None, finite
    cdef double loss = 0
    cdef Py_ssize_t j
    problem.tol = tol
    with nogil:
        finite = problem.look()
    if not finite:
        wrong = np.argwhere(~np.isfinite(f))
        raise ValueError(f"scores hold {len(wrong)} NaN or infinite values, the first at label {wrong[0][0]}, "
                         f"pixel {wrong[0][1]}")
    with nogil:
        if newton:
            problem.climb()
        else:
            problem.ascend()
        problem.land()
        if gradient:
            loss = problem.loss()

    cdef Solution s = Solution.__new__(Solution)
    s.problem, s.iterations, s.residual = problem, problem.passes, problem.residual
    s.gap = problem.gap if problem.holds() else float("inf")
    s.status = "infeasible" if problem.infeasible else "optimal" if problem.is_optimal() else "stalled"
    s.lam = np.array([problem.lam[j] for j in range(problem.k)])
    s.ray = np.array([problem.ray[j] for j in range(problem.k)]) if problem.infeasible else None
    s.loss = loss if gradient else None
    return s


cdef bint softmax(
    const real* f,         # in,  L x n
    Py_ssize_t L,
    Py_ssize_t n,
    real* q,               # out, L x n  softmax(f) / n, or NULL
    double* mean,          # out         mean_i log sum_l exp(f_li), unless q is NULL
) noexcept nogil:
    """Return whether f is finite.

    Block by block, so that the processor fetches the next scores while it computes: memory is the bottleneck.
    """
    cdef Py_ssize_t start = 0, l, i, at, count
    cdef real top[BLOCK]
    cdef real total[BLOCK]
    cdef real x, nothing = <real>NOTHING
    cdef double logs = 0
    cdef bint all_finite = True
    while start < n:
        count = min(<Py_ssize_t>BLOCK, n - start)
        for l in range(L):
            all_finite &= finite(f + l * n + start, count)
        if q == NULL:
            start += BLOCK
            continue
        for i in range(count):
            top[i] = f[start + i]
            total[i] = 0
        for l in range(1, L):
            at = l * n + start
            for i in range(count):
                top[i] = f[at + i] if f[at + i] > top[i] else top[i]
        for l in range(L):
            at = l * n + start
            for i in range(count):
                x = max(f[at + i] - top[i], <real>-80)
                x = exp_within_f(x) if real is float else exp_within(x)
                q[at + i] = x
                total[i] += x
        for i in range(count):
            logs += <double>top[i] + (logf(total[i]) if real is float else log(total[i]))
            total[i] = 1 / (n * total[i])
        for l in range(L):
            at = l * n + start
            for i in range(count):
                q[at + i] = q[at + i] * total[i] if q[at + i] > nothing else 0
        start += BLOCK
    mean[0] = logs / n
    return all_finite


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
                total[i] += exp_within(max(hardness * (f[l, i] - top[i]), FLOOR))
        for i in range(n):
            logs += log(total[i]) + hardness * top[i]
    return logs / n


# ------------------------------------------------------------------------------------------------
# What comes in


def _checked_scores(f, double hardness):
    """f as a contiguous L x n array of float32 or float64; no copy if it is one."""
    f = np.asarray(f)
    if f.ndim != 2 or not f.size:
        raise ValueError(f"scores must be labels x pixels; got shape {f.shape}")
    if f.dtype != FLOAT and f.dtype != DOUBLE:
        raise ValueError(f"scores must be float32 or float64; got {f.dtype}")
    f = np.ascontiguousarray(f)
    if f.dtype == DOUBLE and not np.abs(f).max() * hardness < 1e60 and np.isfinite(f).all():
        raise ValueError(f"scores reach {np.abs(f).max():.3g}, hardness is {hardness:.3g}: the net has diverged")
    return f


cdef bint finite(const real* x, Py_ssize_t size) noexcept nogil:
    """Without their sign the bits of NaN and infinity are the largest of all; the numbers themselves cannot be
    asked here, where the compiler assumes they are finite."""
    if real is float:
        return largest(<const uint32_t*>x, size) < <uint32_t>0x7f800000
    else:
        return largest(<const uint64_t*>x, size) < <uint64_t>0x7ff0000000000000


cdef word largest(const word* bits, Py_ssize_t size) noexcept nogil:
    """The largest, but for the first bit."""
    cdef word top = 0, rest = <word>-1 >> 1
    cdef Py_ssize_t i
    for i in range(size):
        top = max(top, bits[i] & rest)
    return top


def _check_fit(c, Py_ssize_t L, Py_ssize_t n):
    if c.labels is not None and c.labels != L:
        raise ValueError(f"scores have {L} labels; the constraints need {c.labels}")
    if c.pixels is not None and c.pixels != n:
        raise ValueError(f"scores have {n} pixels; the constraints need {c.pixels}")
    if c.matrix is not None and c.matrix.shape[1] != L * n:
        raise ValueError(f"scores have {L} x {n} entries; the constraint matrix needs {c.matrix.shape[1]}")


# ------------------------------------------------------------------------------------------------
# The dual and its two maximisers


cdef class Dual:
    """D, its gradient and Hessian at lam come from `measure`; the maximisers below know nothing else."""

    cdef Py_ssize_t k, L, n     # rows, labels, pixels
    cdef object scores          # in,  L x n  and where they lie, one of the two not NULL
    cdef const float* f32
    cdef const double* f64
    cdef float* diff32          # out, L x n  and the gradient, like the scores, or both NULL
    cdef double* diff64
    cdef object mask            # in,  L, or L x n if
    cdef bint per_pixel
    cdef const uint8_t* allowed # where it lies
    cdef double* b              # in,  k      bounds
    cdef double* beta           # in,  k      prices
    cdef double* low            # in,  k      the least and the most
    cdef double* high           #             that a row can be
    cdef double* lam            # out, k      the point
    cdef double* v              # out, k      the rows there
    cdef double* g              # out, k      the gradient; hard rows aim MARGIN inside
    cdef double* H              # out, k x k  covariance of the rows: minus the Hessian
    cdef double* ray            # out, k      proof that hard rows contradict
    cdef double* mark           # lam when a contradiction was last looked for
    cdef double* new_lam        # the next point
    cdef double* new_v
    cdef double* new_H
    cdef double* pull           # the model of D at lam, and the step to its maximum
    cdef double* lower
    cdef double* upper
    cdef double* step
    cdef double* factor
    cdef Py_ssize_t* free
    cdef double logs            # mean_i log sum_l exp(f_li), if there is diff
    cdef double known           # mean of f over pixels that have one label only: a constant of D
    cdef double value, gap, residual, hardness, tol
    cdef Py_ssize_t passes
    cdef bint infeasible
    cdef void* rooms[64]        # all memory of the problem, given back with it
    cdef Py_ssize_t taken
    cdef char* spare            # what is left of the last small piece
    cdef Py_ssize_t left

    def __cinit__(self, constraints, f, double hardness, diff):
        cdef const double[::1] b = constraints.b, beta = constraints.beta
        cdef Py_ssize_t j, k = b.shape[0]
        cdef const float[:, ::1] f32
        cdef const double[:, ::1] f64
        cdef float[:, ::1] diff32
        cdef double[:, ::1] diff64
        self.k, self.L, self.n, self.hardness, self.scores = k, f.shape[0], f.shape[1], hardness, f
        if f.dtype == FLOAT:
            f32, diff32 = f, diff
            self.f32, self.diff32 = &f32[0, 0], NULL if diff is None else &diff32[0, 0]
        else:
            f64, diff64 = f, diff
            self.f64, self.diff64 = &f64[0, 0], NULL if diff is None else &diff64[0, 0]
        self.mask = np.ones(self.L, bool) if constraints.allowed is None else constraints.allowed
        self.per_pixel = self.mask.ndim == 2
        cdef const uint8_t[::1] allowed = self.mask.reshape(-1).view(np.uint8)
        self.allowed = &allowed[0]
        self.b, self.beta, self.low, self.high = self.reals(k), self.reals(k), self.reals(k), self.reals(k)
        self.lam, self.v, self.g, self.H = self.reals(k), self.reals(k), self.reals(k), self.reals(k * k)
        self.new_lam, self.new_v, self.new_H = self.reals(k), self.reals(k), self.reals(k * k)
        self.pull, self.lower, self.upper, self.step = self.reals(k), self.reals(k), self.reals(k), self.reals(k)
        self.ray, self.mark, self.factor, self.free = self.reals(k), self.reals(k), self.reals(k * k), self.whole(k)
        for j in range(k):
            self.b[j], self.beta[j] = b[j], min(beta[j], HARD)

    def __dealloc__(self):
        cdef Py_ssize_t j
        for j in range(self.taken):
            free(self.rooms[j])

    cdef void* room(self, Py_ssize_t size, bint cleared=True) except NULL:
        """Memory that lives as long as the problem, from a cache line's start; zero if `cleared`."""
        cdef void* place
        cdef Py_ssize_t whole = max((size + 63) // 64 * 64, 64)
        if whole > self.left:
            if posix_memalign(&place, 64, max(whole, 8192)):
                raise MemoryError(f"the solver needs {size} bytes more")
            self.rooms[self.taken] = place
            self.taken += 1
            if whole > 8192:
                if cleared:
                    memset(place, 0, whole)
                return place
            self.spare, self.left = <char*>place, 8192
            memset(place, 0, 8192)
        place = self.spare
        self.spare, self.left = self.spare + whole, self.left - whole
        return place

    cdef double* reals(self, Py_ssize_t count, bint cleared=True) except NULL:
        return <double*>self.room(count * sizeof(double), cleared)

    cdef Py_ssize_t* whole(self, Py_ssize_t count) except NULL:
        return <Py_ssize_t*>self.room(count * sizeof(Py_ssize_t))

    cdef inline double score(self, Py_ssize_t l, Py_ssize_t i) noexcept nogil:
        return self.f32[l * self.n + i] if self.f32 != NULL else self.f64[l * self.n + i]

    cdef double measure(self, const double* lam, double* v, double* H) noexcept nogil:
        """Return D(lam) without its constant; fill v and, if not NULL, H."""
        return 0

    cdef double most(self, const double* d) noexcept nogil:
        """mean_i max_l sum_j d_j a_jil: the most that d'v(p) can be."""
        return 0

    cdef double spread(self) noexcept nogil:
        """How far apart the labels' scores are, at a sample of pixels."""
        return 0

    cdef void sharpen(self, double hardness, Py_ssize_t every) noexcept nogil:
        """Go on with another hardness, on all pixels or on one of `every` few."""

    cdef void land(self) noexcept nogil:
        """lam is final: from here on `put` has its p, whatever becomes of the scores."""

    cdef double put(self, float* out32, double* out64, bint gradient) noexcept nogil:
        """p into zeros, L x n, one of the two; or, if `gradient`, take p / n off them, and return
        (hardness - 1) mean_i sum_l p_i(l) f_li."""
        return 0

    cdef bint look(self) noexcept nogil:
        """Are the scores finite? From here on diff, if there is one, is softmax(f) / n."""
        if self.f32 != NULL:
            return softmax(self.f32, self.L, self.n, self.diff32, &self.logs)
        return softmax(self.f64, self.L, self.n, self.diff64, &self.logs)

    cdef double loss(self) noexcept nogil:
        """mean_i KL(p_i || softmax(f_i)); from here on diff is its gradient (softmax(f) - p) / n.

        As log p_i(l) = hardness * f_li + sum_j lam_j a_jil - log Z_i, no logarithm of p is needed: the loss is
        D(lam) - lam' (b - v) + (hardness - 1) mean_i sum_l p_i(l) f_li + mean_i log sum_l exp(f_li), D without
        its constant.
        """
        cdef Py_ssize_t j
        cdef double loss = self.dual_value() + self.put(self.diff32, self.diff64, True) + self.logs
        for j in range(self.k):
            loss -= self.lam[j] * (self.b[j] - self.v[j])
        return max(loss, 0)

    cdef double dual_value(self) noexcept nogil:
        """D(lam) without its constant."""
        return self.value - self.known

    cdef inline bint allows(self, Py_ssize_t l, Py_ssize_t i) noexcept nogil:
        """May pixel i have label l?"""
        return self.allowed[l * self.n + i if self.per_pixel else l]

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
                # MARGIN inside, but never at a cost that tol would notice
                self.g[j] = short + min(MARGIN * (self.high[j] - self.low[j]),
                                        0.2 * self.tol / (self.k * max(self.lam[j], 1e-9)))
                self.gap += self.lam[j] * fabs(short)
            target = self.lam[j] + short
            target = 0 if target < 0 else self.beta[j] if target > self.beta[j] else target
            self.residual = max(self.residual, fabs(self.lam[j] - target))

    cdef bint is_optimal(self) noexcept nogil:
        return self.gap <= self.tol and self.holds()

    cdef bint holds(self) noexcept nogil:
        """Is p feasible? Soft rows always are, at their price."""
        cdef Py_ssize_t j
        for j in range(self.k):
            if self.beta[j] == HARD and self.b[j] - self.v[j] > FEASIBLE * (self.high[j] - self.low[j]):
                return False
        return True

    cdef bint is_infeasible(self) noexcept nogil:
        """Do the hard rows contradict each other? Then lam runs off; its way since the last look proves it."""
        cdef Py_ssize_t j
        cdef double top = 0, claim = 0, rounding = 0
        for j in range(self.k):
            self.ray[j] = max(self.lam[j] - self.mark[j], 0) if self.beta[j] == HARD else 0
            self.mark[j] = self.lam[j]
            top = max(top, self.ray[j])
        if top == 0:
            return False
        for j in range(self.k):
            self.ray[j] /= top
            claim += self.ray[j] * self.b[j]
            rounding += 1e-10 * self.ray[j] * (fabs(self.b[j]) + fabs(self.high[j]) + fabs(self.low[j]))
        self.infeasible = claim > self.most(self.ray) + rounding
        return self.infeasible

    cdef bint out_of_reach(self) noexcept nogil:
        """A hard row that no p at all satisfies."""
        cdef Py_ssize_t j
        for j in range(self.k):
            if self.beta[j] == HARD and self.b[j] > self.high[j] + 1e-10 * (fabs(self.high[j]) + fabs(self.low[j])):
                self.ray[j] = 1
                self.infeasible = True
                return True
        return False

    cdef void start(self) noexcept nogil:
        self.value = self.measure(self.lam, self.v, self.H)
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

    cdef void climb(self) noexcept nogil:
        cdef double goal = self.hardness, blunt = 8 / max(self.spread(), 1e-300), next
        cdef Py_ssize_t j
        if self.out_of_reach():
            self.start()
            return
        if goal > 2 * blunt:                                                                  # 1
            self.sharpen(blunt, SAMPLE)
        self.start()
        while self.hardness < goal:
            self.rise(6, 0.01)
            next = min(8 * self.hardness, goal)
            if self.infeasible or self.passes > NEWTON_PASSES // 2:
                next = goal
            for j in range(self.k):
                self.lam[j] = min(self.lam[j] * next / self.hardness, self.beta[j])
            self.sharpen(next, SAMPLE if next < goal else 1)
            self.start()
        if not self.infeasible:
            self.rise(NEWTON_PASSES - self.passes, 0)

    cdef void rise(self, Py_ssize_t passes, double rough) noexcept nogil:
        """Newton's steps until the point is optimal, or its residual below `rough`."""
        cdef double radius = 20, slope, new_slope, new_value, reach
        cdef Py_ssize_t j, t
        for t in range(passes):
            if self.residual < rough or self.is_optimal() or t % 8 == 7 and self.is_infeasible():  # 5
                return
            self.aim()
            slope = self.model(radius)                                                        # 2
            if not slope > 0:                         # the pull of several rows may point downhill
                for j in range(self.k):
                    self.pull[j] = self.g[j]
                slope = self.model(radius)
                if not slope > 0:
                    return
            reach = 0
            for j in range(self.k):
                self.new_lam[j] = self.lam[j] + self.step[j]
                if self.step[j] >= self.upper[j] and self.upper[j] == self.beta[j] - self.lam[j]:
                    self.new_lam[j] = self.beta[j]
                reach = max(reach, fabs(self.step[j]))
            new_value = self.measure(self.new_lam, self.new_v, self.new_H)              # 3
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

        Sweeps over the coordinates find which duals end on a side of the box; the others are solved for
        together. One that leaves the box on the way joins those on the side.
        """
        cdef Py_ssize_t j, turn
        cdef double slope = 0
        for j in range(self.k):
            self.lower[j] = max(-self.lam[j], -radius)
            self.upper[j] = min(self.beta[j] - self.lam[j], radius)
            self.step[j] = 0
        for turn in range(3):
            self.sweep(4)
            for j in range(self.k):
                if self.settle():
                    break
        for j in range(self.k):
            slope += self.g[j] * self.step[j]
        return slope

    cdef void sweep(self, Py_ssize_t times) noexcept nogil:
        """Maximise the model over one coordinate after the other."""
        cdef Py_ssize_t j, t
        cdef double d, own
        for t in range(times):
            for j in range(self.k):
                own = self.H[j * self.k + j]
                d = self.pull[j] - dot(self.H + j * self.k, self.step, self.k) + own * self.step[j]
                # a row that does not respond goes to the side it is pulled to
                d = d / own if own > 1e-30 else d * HARD
                self.step[j] = min(max(d, self.lower[j]), self.upper[j])

    cdef bint settle(self) noexcept nogil:
        """Move the duals inside the box, the others held, to where H d = pull; False if a side stopped one."""
        cdef Py_ssize_t j, m, r, k = self.k, free = 0, stopped = -1
        cdef double x, part = 1
        cdef bint nearer_top
        cdef double* C = self.factor                  # Cholesky's factor of H on the free duals: H = C C'
        cdef double* y = self.new_v
        for j in range(k):
            if self.lower[j] < self.step[j] < self.upper[j]:
                self.free[free] = j
                free += 1
        for j in range(free):                         # y = C^-1 (pull - H d)
            r = self.free[j]
            for m in range(j):
                C[j * k + m] = (self.H[r * k + self.free[m]] - dot(C + j * k, C + m * k, m)) / C[m * k + m]
            x = self.H[r * k + r]
            C[j * k + j] = max(x - dot(C + j * k, C + j * k, j), 1e-9 * x + 1e-30) ** 0.5     # dependent rows: damped
            x = self.pull[r] - dot(self.H + r * k, self.step, k)
            y[j] = (x - dot(C + j * k, y, j)) / C[j * k + j]
        for j in range(free - 1, -1, -1):             # y = C'^-1 y
            for m in range(j + 1, free):
                y[j] -= C[m * k + j] * y[m]
            y[j] /= C[j * k + j]
        for j in range(free):
            r = self.free[j]
            x = self.upper[r] - self.step[r] if y[j] > 0 else self.lower[r] - self.step[r]
            if fabs(y[j]) * part > fabs(x):
                part, stopped = x / y[j], r
        for j in range(free):
            self.step[self.free[j]] += part * y[j]
        if stopped < 0:
            return True
        nearer_top = self.upper[stopped] - self.step[stopped] < self.step[stopped] - self.lower[stopped]
        self.step[stopped] = self.upper[stopped] if nearer_top else self.lower[stopped]
        return False

    # The paper's projected gradient ascent ---------------------------------------------------------

    cdef void ascend(self) noexcept nogil:
        """lam <- clip(lam + alpha (b - v), 0, beta), alpha halved until D rises as it should, then doubled."""
        cdef double alpha = 1, slope, new_slope, new_value
        cdef Py_ssize_t j, look = 64
        if self.out_of_reach():
            self.start()
            return
        self.start()
        while self.passes < PGA_PASSES and not self.is_optimal():
            slope = 0
            for j in range(self.k):
                self.new_lam[j] = min(max(self.lam[j] + alpha * self.g[j], 0), self.beta[j])
                self.step[j] = self.new_lam[j] - self.lam[j]
                slope += self.step[j] * self.g[j]
            if not slope > 0:
                return
            new_value = self.measure(self.new_lam, self.new_v, NULL)
            self.passes += 1
            if self.passes == look:
                look *= 2                             # steps to and fro even out over longer and longer ways
                if self.is_infeasible():
                    return
            new_slope = 0
            for j in range(self.k):
                new_slope += self.step[j] * (self.g[j] + self.v[j] - self.new_v[j])
            if new_slope >= 0 or new_value >= self.value + 0.3 * slope:
                self.lam, self.new_lam = self.new_lam, self.lam
                self.v, self.new_v = self.new_v, self.v
                self.value = new_value
                self.arrive()
                alpha *= 2
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

    Pixels are grouped by the labels they may take and by their weight in every row; in group g row j
    adds lam_j J_lj to the score of label l, J_lj = A_jl * regions_jg. So the exponentials are taken once,

        E_li = exp(f_li + ref_l - max_l),      p_i(l) = w_l E_li / sum_m w_m E_mi,      w = exp(J lam - ref)

    and a pass is a product and a division per pixel. E is made anew where w would leave exp(+-RANGE).
    A pixel with one label left has p = 1 and costs nothing. The labels, rows, J and E of all groups lie
    end to end; group g's begin at label_at[g], row_at[g], J_at[g], E_at[g].
    """

    cdef Py_ssize_t groups      # 0: nearly every pixel is a group of its own, and this is the wrong class
    cdef Py_ssize_t* pixel      # n       the pixels, group by group; NULL if there is only one
    cdef Py_ssize_t* first      # G + 1   a group's place in pixel
    cdef Py_ssize_t* example    # G       one of its pixels
    cdef Py_ssize_t* label
    cdef Py_ssize_t* row
    cdef Py_ssize_t* label_at
    cdef Py_ssize_t* row_at
    cdef Py_ssize_t* J_at
    cdef Py_ssize_t* E_at
    cdef Py_ssize_t* only       # G       the label of a group that has just one
    cdef double* J              # labels x rows
    cdef double* F              # the scores in the order of E; NULL if there is only one group
    cdef double* E              # labels x pixels, rows padded to whole blocks
    cdef double* ref            # like label
    cdef double* bias
    cdef double* w
    cdef double* fixed          # k       what pixels with a single label give to the rows
    cdef double* mean           # scratch, labels
    cdef double* cov            # scratch, labels x labels
    cdef double* p              # scratch, labels x BLOCK
    cdef double shift           # mean over the pixels of max_l
    cdef bint made              # is E?
    cdef Py_ssize_t every       # E holds one pixel of so many

    def __init__(self, constraints, f, double hardness, diff):
        cdef Py_ssize_t g, i, j, l, m, r, at, size_, most = 0, k = self.k, L = self.L
        cdef double a, size, low, high
        cdef double* F
        cdef const double[:, ::1] A = constraints.A, regions = constraints.regions
        self.every = 1
        if not self.group(regions):
            return
        cdef Py_ssize_t G = self.groups
        self.fixed, self.only = self.reals(k), self.whole(G)
        self.label, self.label_at = self.whole(G * L), self.whole(G + 1)
        self.row, self.row_at = self.whole(G * k), self.whole(G + 1)
        self.J_at, self.E_at, self.J = self.whole(G + 1), self.whole(G + 1), self.reals(G * L * k)
        for g in range(G):
            m = r = 0
            for l in range(L):
                if self.allows(l, self.example[g]):
                    self.label[self.label_at[g] + m] = l
                    m += 1
            size = (self.first[g + 1] - self.first[g]) / <double>self.n
            for j in range(k):
                a = 1 if regions is None else regions[j, self.example[g]]
                low, high = HARD, -HARD
                for l in range(m):
                    low = min(low, a * A[j, self.label[self.label_at[g] + l]])
                    high = max(high, a * A[j, self.label[self.label_at[g] + l]])
                self.low[j] += size * low
                self.high[j] += size * high
                if m == 1:
                    self.fixed[j] += size * high
                elif low != 0 or high != 0:
                    self.row[self.row_at[g] + r] = j
                    r += 1
            if m == 1:
                l = self.only[g] = self.label[self.label_at[g]]
                for i in range(self.first[g], self.first[g + 1]):
                    self.known += self.score(l, i if self.pixel == NULL else self.pixel[i]) * hardness / self.n
                m = 0
            at = self.J_at[g]
            for l in range(m):
                for j in range(self.row_at[g], self.row_at[g] + r):
                    a = 1 if regions is None else regions[self.row[j], self.example[g]]
                    self.J[at] = a * A[self.row[j], self.label[self.label_at[g] + l]]
                    at += 1
            most = max(most, m)
            self.label_at[g + 1] = self.label_at[g] + m
            self.row_at[g + 1] = self.row_at[g] + r
            self.J_at[g + 1] = at
            self.E_at[g + 1] = self.E_at[g] + m * padded(self.first[g + 1] - self.first[g])
        m = self.label_at[G]
        self.ref, self.bias, self.w = self.reals(m), self.reals(m), self.reals(m)
        self.E = self.reals((1 if self.pixel == NULL else 2) * self.E_at[G], False)
        self.mean, self.cov, self.p = self.reals(most), self.reals(most * most), self.reals(most * BLOCK)
        if self.pixel != NULL:
            self.F = self.E + self.E_at[G]
            for g in range(G):
                size_ = self.first[g + 1] - self.first[g]
                for l in range(self.label_at[g + 1] - self.label_at[g]):
                    F, at = self.F + self.E_at[g] + l * padded(size_), self.label[self.label_at[g] + l] * self.n
                    if self.f32 != NULL:
                        for i in range(size_):
                            F[i] = self.f32[at + self.pixel[self.first[g] + i]]
                    else:
                        for i in range(size_):
                            F[i] = self.f64[at + self.pixel[self.first[g] + i]]

    cdef bint group(self, const double[:, ::1] regions) except -1:
        """Sort the pixels into groups: same labels allowed, same weight in every row. False if there are too many."""
        cdef Py_ssize_t n = self.n, i, j, s, mask, G = 0, limit = max(n // 4, 1)
        if not self.per_pixel and regions is None:
            self.first, self.example = self.whole(2), self.whole(1)
            self.first[1] = n
            self.groups = 1
            return True

        # a fingerprint of every pixel's column of allowed and regions; the columns themselves are compared below
        cdef Py_ssize_t rows = 0 if regions is None else regions.shape[0]
        cdef uint64_t[::1] key_ = np.zeros(n, np.uint64)
        cdef uint64_t* key = &key_[0]
        cdef uint64_t salt = 0x9e3779b97f4a7c15, bits
        cdef const uint64_t* weight
        cdef const uint8_t* may
        cdef Py_ssize_t* varies = self.whole(self.L)                 # labels allowed here and not there
        cdef Py_ssize_t varying = 0
        cdef uint8_t other
        for j in range(self.L if self.per_pixel else 0):
            may, other = self.allowed + j * n, 0
            for i in range(n):
                other |= may[i] ^ may[0]
            if other:
                varies[varying] = j
                varying += 1
                salt = salt * <uint64_t>0xd1342543de82ef95 + 1
                for i in range(n):
                    key[i] += salt & -<uint64_t>may[i]
        for j in range(rows):
            salt = salt * <uint64_t>0xd1342543de82ef95 + 1
            weight = <const uint64_t*>&regions[j, 0]
            for i in range(n):
                bits = (weight[i] ^ (weight[i] >> 32)) * salt
                key[i] += bits ^ (bits >> 29)

        # neighbours are alike: from here on runs of pixels with one fingerprint are looked at, not pixels
        cdef Py_ssize_t[::1] run_ = np.empty(n + 1, np.intp), group_ = np.empty(n, np.intp)
        cdef Py_ssize_t* run = &run_[0]               # where a run begins
        cdef Py_ssize_t* group = &group_[0]           # its group
        cdef Py_ssize_t runs = 0
        for i in range(n):
            if i == 0 or key[i] != key[i - 1]:
                run[runs] = i
                runs += 1
        run[runs] = n
        mask = 1
        while mask < 2 * min(limit, runs) + 2:
            mask *= 2
        mask -= 1
        cdef Py_ssize_t[::1] slot = np.full(mask + 1, -1, np.intp)     # hash table: groups by fingerprint
        self.example = self.whole(min(limit, runs))
        for j in range(runs):
            i = run[j]
            s = <Py_ssize_t>(key[i] >> 20) & mask
            while slot[s] >= 0 and key[self.example[slot[s]]] != key[i]:
                s = (s + 1) & mask
            if slot[s] < 0:
                if G == limit:
                    return False
                slot[s] = G
                self.example[G] = i
                G += 1
            group[j] = slot[s]

        # what a pixel has, is it what its group's example has?
        cdef uint64_t differ = 0, value
        cdef Py_ssize_t r
        for j in range(varying):
            may = self.allowed + varies[j] * n
            for r in range(runs):
                other = may[self.example[group[r]]]
                for i in range(run[r], run[r + 1]):
                    differ |= may[i] ^ other
        for j in range(rows):
            weight = <const uint64_t*>&regions[j, 0]
            for r in range(runs):
                value = weight[self.example[group[r]]]
                for i in range(run[r], run[r + 1]):
                    differ |= weight[i] ^ value
        if differ:                                    # two columns of one fingerprint: one chance in 2^64
            return False

        self.first, self.pixel = self.whole(G + 2), self.whole(n)
        for r in range(runs):                         # counting sort; first runs one group ahead until it is done
            self.first[group[r] + 2] += run[r + 1] - run[r]
        for i in range(G):
            self.first[i + 2] += self.first[i + 1]
        for r in range(runs):
            s = self.first[group[r] + 1] - run[r]
            for i in range(run[r], run[r + 1]):
                self.pixel[s + i] = i
            self.first[group[r] + 1] = s + run[r + 1]
        self.groups = G
        return True

    cdef void weigh(self, const double* lam) noexcept nogil:
        """w for this lam, and E if w asks for it."""
        cdef Py_ssize_t g, l, j, at, size
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
            for l in range(self.label_at[self.groups]):
                self.ref[l] = self.bias[l]
            self.shift = 0
            for g in range(self.groups):
                if self.pixel != NULL:
                    size = self.first[g + 1] - self.first[g]
                    self.shift += exponentiate(self, g, self.F + self.E_at[g], padded(size))
                elif self.f32 != NULL:
                    self.shift += exponentiate(self, g, self.f32, self.n)
                else:
                    self.shift += exponentiate(self, g, self.f64, self.n)
            self.made = True
        for l in range(self.label_at[self.groups]):
            self.w[l] = exp(self.bias[l] - self.ref[l])

    cdef double measure(self, const double* lam, double* v, double* H) noexcept nogil:
        cdef Py_ssize_t g, l, m, j, h, size, labels, rows
        cdef double logs, x, share, linear = 0
        cdef double* J
        cdef Py_ssize_t* row
        self.weigh(lam)
        logs = self.shift
        for j in range(self.k):
            v[j] = self.fixed[j]
            linear += lam[j] * (self.b[j] - self.fixed[j])
        if H != NULL:
            memset(H, 0, self.k * self.k * sizeof(double))
        for g in range(self.groups):
            labels, rows = self.label_at[g + 1] - self.label_at[g], self.row_at[g + 1] - self.row_at[g]
            if labels == 0:
                continue
            size = self.first[g + 1] - self.first[g]
            share = size / <double>((size + self.every - 1) // self.every * self.n)
            logs += share * pass_over_pixels(self.E + self.E_at[g], self.w + self.label_at[g], labels,
                                             (size + self.every - 1) // self.every, self.p, self.mean,
                                             self.cov if H != NULL else NULL)
            J, row = self.J + self.J_at[g], self.row + self.row_at[g]
            for j in range(rows):
                for l in range(labels):
                    v[row[j]] += share * J[l * rows + j] * self.mean[l]
            if H == NULL:
                continue
            for j in range(rows):                     # H += J' cov J, per pixel
                for l in range(labels):
                    x = 0
                    for m in range(labels):
                        x += self.cov[l * labels + m] * J[m * rows + j]
                    x *= share
                    for h in range(rows):
                        H[row[j] * self.k + row[h]] += x * J[l * rows + h]
        return linear - logs

    cdef double most(self, const double* d) noexcept nogil:
        cdef Py_ssize_t g, l, j, at
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
        cdef Py_ssize_t g, s, l, at, count = 0
        cdef double x, y, total = 0
        for g in range(self.groups):
            for s in range(64):
                at = self.first[g] + s * (self.first[g + 1] - self.first[g]) // 64
                at = at if self.pixel == NULL else self.pixel[at]
                for l in range(self.label_at[g] + 1, self.label_at[g + 1]):
                    x = self.score(self.label[l], at) - self.score(self.label[l - 1], at)
                    total += x * x
                    count += 1
        return (0.5 * total / count) ** 0.5 if count else 0

    cdef void sharpen(self, double hardness, Py_ssize_t every) noexcept nogil:
        self.hardness, self.every, self.made = hardness, every, False

    cdef void land(self) noexcept nogil:
        self.weigh(self.lam)

    cdef double put(self, float* out32, double* out64, bint gradient) noexcept nogil:
        if out32 != NULL:
            return put_groups(self, self.f32, out32, gradient)
        return put_groups(self, self.f64, out64, gradient)


cdef double exponentiate(LabelSums s, Py_ssize_t g, const real* f, Py_ssize_t stride) noexcept nogil:
    """E of group g for the biases ref; return what its pixels' maxima, taken off, add to the mean of the logarithms."""
    cdef Py_ssize_t labels = s.label_at[g + 1] - s.label_at[g], size = s.first[g + 1] - s.first[g], every = s.every
    cdef Py_ssize_t all = size, start = 0, count, l, i
    cdef double top[BLOCK]
    cdef double x, ref, h = s.hardness, total = 0
    cdef double* E
    cdef const real* row
    size = (size + every - 1) // every
    while start < size and labels:
        count = min(<Py_ssize_t>BLOCK, size - start)
        for i in range(count):
            top[i] = -HARD
        for l in range(labels):
            E = s.E + s.E_at[g] + l * padded(size) + start
            ref = s.ref[s.label_at[g] + l]
            row = f + (s.label[s.label_at[g] + l] if s.pixel == NULL else l) * stride + start * every
            if every == 1:
                for i in range(count):
                    E[i] = h * row[i] + ref
            else:
                for i in range(count):
                    E[i] = h * row[i * every] + ref
            for i in range(count):
                top[i] = E[i] if E[i] > top[i] else top[i]
        for l in range(labels):
            E = s.E + s.E_at[g] + l * padded(size) + start
            for i in range(count):
                E[i] = exp_within(max(E[i] - top[i], FLOOR))
            for i in range(count, BLOCK):
                E[i] = l == 0
        for i in range(count):
            total += top[i]
        start += BLOCK
    return total * all / (size * s.n) if size else 0


cdef double pass_over_pixels(
    const double* E,       # in,  labels x padded(size)
    const double* w,       # in,  labels
    Py_ssize_t labels,
    Py_ssize_t size,
    double* p,             # scratch, labels x BLOCK
    double* mean,          # out, labels           sum over the pixels of p
    double* cov,           # out, labels x labels  sum over the pixels of diag(p) - p p', or NULL
) noexcept nogil:
    """Return sum_i log sum_l w_l E_li."""
    cdef Py_ssize_t start = 0, l, m, i, factors = 0, stride = padded(size)
    cdef double total[BLOCK]
    cdef double product[QUARTER]   # of many totals, so that one logarithm does for all of them
    cdef double x, y, z, weight, logs = 0
    cdef const double* e
    cdef double* q
    memset(mean, 0, labels * sizeof(double))
    if cov != NULL:
        memset(cov, 0, labels * labels * sizeof(double))
    for i in range(QUARTER):
        product[i] = 1
    while start < size:
        for i in range(BLOCK):
            total[i] = 0
        for l in range(labels):
            e, q, weight = E + l * stride + start, p + l * BLOCK, w[l]
            for i in range(BLOCK):
                q[i] = weight * e[i]
                total[i] += q[i]
        for i in range(QUARTER):                      # four reciprocals by one division
            x = total[i] * total[i + QUARTER]
            y = total[i + 2 * QUARTER] * total[i + 3 * QUARTER]
            product[i] *= x * y
            z = 1 / (x * y)
            x, y = x * z, y * z
            z = total[i]
            total[i] = total[i + QUARTER] * y
            total[i + QUARTER] = z * y
            z = total[i + 2 * QUARTER]
            total[i + 2 * QUARTER] = total[i + 3 * QUARTER] * x
            total[i + 3 * QUARTER] = z * x
        for l in range(labels):
            q = p + l * BLOCK
            for i in range(BLOCK):
                q[i] *= total[i]
            mean[l] += sum_block(q)
        if cov != NULL:
            for l in range(labels):
                for m in range(l):
                    cov[l * labels + m] -= dot_block(p + l * BLOCK, p + m * BLOCK)
        start += BLOCK
        factors += 4
        if factors == LOGS or start >= size:
            for i in range(QUARTER):
                logs += log(product[i])
                product[i] = 1
            factors = 0
    mean[0] -= stride - size                          # the pixels past the end
    logs -= (stride - size) * log(w[0])
    if cov != NULL:                                   # rows of diag(p) - p p' add up to 0: no variance is a difference
        for l in range(labels):
            for m in range(l):
                x = cov[l * labels + m]
                cov[m * labels + l] = x
                cov[l * labels + l] -= x
                cov[m * labels + m] -= x
    return logs


cdef inline Py_ssize_t padded(Py_ssize_t size) noexcept nogil:
    """A row of E has whole blocks; the pixels past the end are certain of the group's first label."""
    return (size + BLOCK - 1) // BLOCK * BLOCK


cdef inline double sum_block(const double* x) noexcept nogil:
    cdef Py_ssize_t i
    cdef double a = 0, b = 0, c = 0, d = 0
    for i in range(QUARTER):
        a += x[i]
        b += x[i + QUARTER]
        c += x[i + 2 * QUARTER]
        d += x[i + 3 * QUARTER]
    return (a + b) + (c + d)


cdef inline double dot_block(const double* x, const double* y) noexcept nogil:
    cdef Py_ssize_t i
    cdef double a = 0, b = 0, c = 0, d = 0
    for i in range(QUARTER):
        a += x[i] * y[i]
        b += x[i + QUARTER] * y[i + QUARTER]
        c += x[i + 2 * QUARTER] * y[i + 2 * QUARTER]
        d += x[i + 3 * QUARTER] * y[i + 3 * QUARTER]
    return (a + b) + (c + d)


cdef double put_groups(LabelSums s, const real* f, real* out, bint gradient) noexcept nogil:
    """See Dual.put."""
    cdef Py_ssize_t g, l, i, at, start, count, size, labels
    cdef double total[BLOCK]
    cdef double p[BLOCK]
    cdef double weight, scores = 0, scale = 1.0 / s.n if gradient else -1, least = NOTHING if gradient else -1
    cdef bint sharper = gradient and s.hardness != 1
    cdef double* E
    cdef const Py_ssize_t* pixel
    for g in range(s.groups):
        size, labels = s.first[g + 1] - s.first[g], s.label_at[g + 1] - s.label_at[g]
        start = 0
        while start < size:
            count = min(<Py_ssize_t>BLOCK, size - start)
            pixel = NULL if s.pixel == NULL else s.pixel + s.first[g] + start
            for i in range(BLOCK):
                total[i] = 0
            for l in range(labels):
                E, weight = s.E + s.E_at[g] + l * padded(size) + start, s.w[s.label_at[g] + l]
                for i in range(BLOCK):
                    total[i] += weight * E[i]
            for i in range(BLOCK):
                total[i] = 1 / total[i]
            for l in range(max(labels, 1)):
                if labels == 0:
                    at = s.only[g] * s.n
                    for i in range(BLOCK):
                        p[i] = 1
                else:
                    at = s.label[s.label_at[g] + l] * s.n
                    E, weight = s.E + s.E_at[g] + l * padded(size) + start, s.w[s.label_at[g] + l]
                    for i in range(BLOCK):
                        p[i] = weight * E[i] * total[i]
                        p[i] = p[i] if p[i] > least else 0
                if pixel == NULL:
                    at += start
                    for i in range(count):
                        out[at + i] = (out[at + i] if gradient else 0) - <real>(scale * p[i])
                else:
                    for i in range(count):
                        out[at + pixel[i]] = (out[at + pixel[i]] if gradient else 0) - <real>(scale * p[i])
                for i in range(count if sharper else 0):
                    scores += p[i] * f[at + (i if pixel == NULL else pixel[i])]
            start += BLOCK
    return (s.hardness - 1) * scores / s.n


# ------------------------------------------------------------------------------------------------
# Rows of any kind


cdef class GeneralRows(Dual):
    """Rows a_jil from a sparse matrix: every pixel and label has a bias of its own, so every pass exponentiates.

    A column of the matrix is a label l at a pixel i. Those that have entries lie pixel by pixel.
    """

    cdef Py_ssize_t labels, columns
    cdef Py_ssize_t* label          # labels      the labels that appear
    cdef uint8_t* may               # labels x n  may the label be here?
    cdef Py_ssize_t* place          # columns     of p: label * n + pixel
    cdef int* begin                 # columns     a column's entries
    cdef int* end
    cdef uint8_t* last              # columns     is it the last of its pixel?
    cdef const int[::1] row         # in          the entries' rows
    cdef const double[::1] entry    # in          and values
    cdef double* p                  # labels x n
    cdef double* top                # n
    cdef double* u                  # k           mean of the rows at a pixel
    cdef Py_ssize_t* seen           # k           has the row an entry at the pixel? how many?
    cdef const double* measured     # the lam that p belongs to

    def __init__(self, constraints, f, double hardness, diff):
        matrix = constraints.as_matrix(self.n)
        matrix.sort_indices()
        cdef const int[::1] start = matrix.indptr.astype(np.intc, copy=False)
        self.row, self.entry = matrix.indices.astype(np.intc, copy=False), matrix.data
        cdef Py_ssize_t n = self.n, k = self.k, L = self.L, i, j, l, m, c, e, here
        cdef uint8_t any
        cdef double x
        self.label = self.whole(L)
        for l in range(L):
            any = 0
            for i in range(n if self.per_pixel else 1):
                any |= self.allows(l, i)
            if any:
                self.label[self.labels] = l
                self.labels += 1
        cdef Py_ssize_t labels = self.labels, size = labels * n, most = min(labels * n, <Py_ssize_t>len(matrix.data))
        self.p, self.u, self.seen = self.reals(size + n, False), self.reals(k), self.whole(k)
        self.top, self.may, self.last = self.p + size, <uint8_t*>self.room(size), <uint8_t*>self.room(most)
        self.place, self.begin, self.end = self.whole(most), <int*>self.room(4 * most), <int*>self.room(4 * most)
        cdef uint8_t* may = self.may
        for l in range(labels):
            for i in range(n):
                may[l * n + i] = self.allows(self.label[l], i)

        # the columns, and the least and the most of a row: at every pixel its smallest and largest entry, 0 for a
        # label it skips
        cdef double* low = self.new_v
        cdef double* high = self.pull
        cdef Py_ssize_t* seen = self.seen
        cdef Py_ssize_t* touched = self.free
        cdef Py_ssize_t rows
        cdef const int* row = &self.row[0] if most else NULL
        cdef const double* entry = &self.entry[0] if most else NULL
        cdef const int* at = &start[0]
        m = 0
        for i in range(n):
            here = rows = 0
            for l in range(labels):
                c = self.label[l] * n + i
                here += may[l * n + i]
                if may[l * n + i] and at[c] < at[c + 1]:
                    self.place[m], self.begin[m], self.end[m], self.last[m] = l * n + i, at[c], at[c + 1], 0
                    m += 1
                    for e in range(at[c], at[c + 1]):
                        j, x = row[e], entry[e]
                        if seen[j] == 0:
                            low[j] = high[j] = x
                            touched[rows] = j
                            rows += 1
                        else:
                            low[j], high[j] = min(low[j], x), max(high[j], x)
                        seen[j] += 1
            if rows:
                self.last[m - 1] = 1
            for e in range(rows):
                j = touched[e]
                self.low[j] += (low[j] if seen[j] == here else min(low[j], 0)) / n
                self.high[j] += (high[j] if seen[j] == here else max(high[j], 0)) / n
                seen[j] = 0
        self.columns = m

    cdef double measure(self, const double* lam, double* v, double* H) noexcept nogil:
        cdef Py_ssize_t n = self.n, k = self.k, i, l, c, e, d, j
        cdef double x, y, logs = 0, linear = 0
        cdef double* p
        cdef double* top = self.top
        cdef double* u = self.u
        cdef Py_ssize_t* seen = self.seen
        cdef Py_ssize_t* touched = self.free
        cdef Py_ssize_t rows = 0
        cdef const uint8_t* may
        cdef const int* row = &self.row[0]
        cdef const double* entry = &self.entry[0]
        self.measured = lam
        for l in range(self.labels):                  # f + A' lam
            p, c = self.p + l * n, self.label[l] * n
            if self.f32 != NULL:
                for i in range(n):
                    p[i] = self.hardness * self.f32[c + i]
            else:
                for i in range(n):
                    p[i] = self.hardness * self.f64[c + i]
        for c in range(self.columns):
            x = 0
            for e in range(self.begin[c], self.end[c]):
                x += lam[row[e]] * entry[e]
            self.p[self.place[c]] += x
        for i in range(n):
            top[i] = -HARD
        for l in range(self.labels):
            p, may = self.p + l * n, self.may + l * n
            for i in range(n):
                p[i] = p[i] if may[i] else -HARD
                top[i] = p[i] if p[i] > top[i] else top[i]
        for i in range(n):
            logs += top[i]
        for l in range(self.labels):
            p, may = self.p + l * n, self.may + l * n
            for i in range(n):
                x = exp_within(max(p[i] - top[i], FLOOR))
                p[i] = x if may[i] else 0
        for i in range(n):
            top[i] = 0
        for l in range(self.labels):
            p = self.p + l * n
            for i in range(n):
                top[i] += p[i]
        for i in range(n):
            logs += log(top[i])
        for i in range(n):
            top[i] = 1 / top[i]
        for l in range(self.labels):
            p = self.p + l * n
            for i in range(n):
                p[i] *= top[i]

        for j in range(k):
            v[j] = 0
            linear += lam[j] * self.b[j]
        if H != NULL:
            memset(H, 0, k * k * sizeof(double))
        for c in range(self.columns):                 # H = mean over the pixels of E[a a'] - u u', u = E[a]
            y = self.p[self.place[c]]
            for e in range(self.begin[c], self.end[c]):
                j, x = row[e], entry[e] * y
                if seen[j] == 0:
                    seen[j] = 1
                    u[j] = 0
                    touched[rows] = j
                    rows += 1
                u[j] += x
                if H != NULL:
                    for d in range(self.begin[c], self.end[c]):
                        H[j * k + row[d]] += x * entry[d]
            if self.last[c]:
                for e in range(rows):
                    j = touched[e]
                    seen[j] = 0
                    v[j] += u[j]
                    if H != NULL:
                        for d in range(rows):
                            H[j * k + touched[d]] -= u[j] * u[touched[d]]
                rows = 0
        for j in range(k):
            v[j] /= n
            if H != NULL:
                for d in range(k):
                    H[j * k + d] /= n
        return linear - logs / n

    cdef double most(self, const double* d) noexcept nogil:
        cdef Py_ssize_t i, l, c, e
        cdef double total = 0, top
        self.measured = NULL
        memset(self.p, 0, self.labels * self.n * sizeof(double))
        for c in range(self.columns):
            for e in range(self.begin[c], self.end[c]):
                self.p[self.place[c]] += d[self.row[e]] * self.entry[e]
        for i in range(self.n):
            top = -HARD
            for l in range(self.labels):
                if self.may[l * self.n + i]:
                    top = max(top, self.p[l * self.n + i])
            total += top / self.n
        return total

    cdef double spread(self) noexcept nogil:
        cdef Py_ssize_t s, i, l
        cdef double x, total = 0
        if self.labels < 2:
            return 0
        for s in range(64):
            i = s * self.n // 64
            for l in range(1, self.labels):
                x = self.score(self.label[l], i) - self.score(self.label[l - 1], i)
                total += x * x
        return (0.5 * total / (64 * (self.labels - 1))) ** 0.5

    cdef void sharpen(self, double hardness, Py_ssize_t every) noexcept nogil:
        self.hardness, self.measured = hardness, NULL

    cdef void land(self) noexcept nogil:
        if self.measured != self.lam:                 # the last step was not taken
            self.measure(self.lam, self.new_v, NULL)

    cdef double put(self, float* out32, double* out64, bint gradient) noexcept nogil:
        if out32 != NULL:
            return put_rows(self, self.f32, out32, gradient)
        return put_rows(self, self.f64, out64, gradient)


cdef double put_rows(GeneralRows s, const real* f, real* out, bint gradient) noexcept nogil:
    """See Dual.put."""
    cdef Py_ssize_t l, i, at
    cdef double x, scores = 0, scale = 1.0 / s.n if gradient else -1, least = NOTHING if gradient else -1
    cdef double* p
    for l in range(s.labels):
        p, at = s.p + l * s.n, s.label[l] * s.n
        for i in range(s.n):
            x = p[i] if p[i] > least else 0
            out[at + i] = (out[at + i] if gradient else 0) - <real>(scale * x)
        for i in range(s.n if gradient else 0):
            scores += p[i] * f[at + i]
    return (s.hardness - 1) * scores / s.n
