"""The problem and its certificate.

With scores f (L labels x n pixels, multiplied by the hardness), q_i = softmax(f_i) and Z_i = sum_l exp(f_li), the
paper's problem (equation 6), per pixel, is

    minimise    mean_i KL(p_i || q_i) + beta' xi
    subject to  v_j(p) >= b_j - xi_j,   xi >= 0,   p_i a distribution on the labels allowed at pixel i
    where       v_j(p) = (1/n) sum_il a_jil p_i(l)

and its dual (equation 4; the price beta bounds lam, supplement II) is

    maximise    D(lam) = lam' b - mean_i log sum_l exp(f_li + sum_j lam_j a_jil) + mean_i log Z_i
    subject to  0 <= lam <= beta

with gradient b - v(p), Hessian -(covariance of the rows under p), and p_i(l) proportional to
exp(f_li + sum_j lam_j a_jil). For this p the duality gap needs only the values of the rows:

    primal(p) - D(lam) = sum_j  (beta_j - lam_j) * (b_j - v_j)    where the row is violated
                                lam_j * (v_j - b_j)               where it holds

so every pass over the pixels certifies its own point. All sums are float64.

Rounding makes v_j uncertain by e_j. The error of the sum is in proportion to m_j = mean_i max_l |a_jil|, the error of the
exponents to sum_h lam_h M_h, M_h = max_il |a_hil|. An error of at most x in the exponents of a pixel changes v_j there by
at most x times the standard deviation of the row under p, and the mean of these is at most sqrt(H_jj), so

    e_j = ERROR (m_j + |b_j| + sqrt(H_jj) (1 + sum_h lam_h M_h))

The gap is the largest that any v_j within e_j has. At prices up to 1e5 this changes nothing; a row at a price of 1e10
would seem violated or not by chance. So a row at such a price aims inside by 1.2 e_j, as hard rows do.

Where lam_j M_j is above 1e6, two neighbouring float64 of lam_j may differ by more than tol in their gap. A point that is
within rounding errors of where it aims is then `rounded`, and the search ends there: "stalled" unless certified.

A step d that is small enough needs no pass. Let u_il = sum_j d_j a_jil, and H the covariance of the rows. On the way from
lam to lam + d the second derivative of v_j is mean_i E[(a_j - E a_j) (u - E u)^2], at most w_j times d'Hd exp(r), where
w_j is the widest range of row j at a pixel and r = sum_j |d_j| w_j bounds how much p can change: by exp(+-r). So

    v_j(lam + d) = (v + H d)_j,   wrong by at most   w_j d'Hd exp(r) / 2

and the last step of Newton's method, whose d'Hd is about 1e-10, is certified by the pass before it.

Rows come in any unit. The maximisers see them multiplied by `unit`, and lam divided by it.
"""
import numpy as np

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport fabs, frexp, ldexp, sqrt
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset

from ._constants cimport HARD, POLL
from ._memory cimport Memory, allocate, reals, release
from ._softmax cimport check_and_softmax, within

cdef extern from "portable.h" nogil:
    int64_t milliseconds()

cdef extern from *:
    """
    #define FEASIBLE 1e-9       /* a hard row holds if it is violated by at most this part of its range, */
    #define AHEAD 0.1           /* a row is known without a pass if its error is at most this part of its tolerance */
    #define ROUNDING 1e-12      /* or by this part of its entries: what rounding may change */
    #define CONTRADICTION 1e-10 /* a bound beyond reach by this part of the entries proves a contradiction */
    #define ERROR 5e-16         /* of a sum over pixels, an exponent or an exponential, as a part of its size */
    #define LARGEST_SCORE 1e60  /* hardness * f: larger scores come from a net that has diverged */
    """
    const double FEASIBLE, AHEAD, ROUNDING, CONTRADICTION, ERROR, LARGEST_SCORE

FLOAT = np.dtype(np.float32)


cdef void* data(array) except? NULL:
    """Where the elements of a contiguous array lie. The caller keeps the array."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS)
    PyBuffer_Release(&view)
    return view.buf


cdef inline double finite(double price) noexcept nogil:
    """The price, HARD instead of infinity. By its bits: -ffast-math knows no infinity."""
    cdef uint64_t bits
    memcpy(&bits, &price, sizeof(bits))
    return HARD if bits >= <uint64_t>0x7ff << 52 else min(price, HARD)


cdef inline double within_box(double lam, double beta) noexcept nogil:
    return 0 if lam < 0 else beta if lam > beta else lam


cdef class Dual:
    """D, its gradient and its Hessian at lam come from `measure`; the maximisers know nothing else.

    A kind of rows is a subclass. It defines prepare, evaluate, support, spread, set_hardness, set_p and write_p.
    """

    def __cinit__(self, constraints, f, diff, double hardness, double tol, double weight):
        cdef const double[::1] b = constraints.b, beta = constraints.beta
        cdef Py_ssize_t j, k = b.shape[0]
        cdef const float[:, ::1] f32
        cdef const double[:, ::1] f64
        cdef float[:, ::1] diff32
        cdef double[:, ::1] diff64
        cdef Memory* m = &self.memory
        if f.dtype == FLOAT:
            f32, diff32 = f, diff
            self.L, self.n = f32.shape[0], f32.shape[1]
            self.f32, self.diff32 = &f32[0, 0], NULL if diff is None else &diff32[0, 0]
        else:
            f64, diff64 = f, diff
            self.L, self.n = f64.shape[0], f64.shape[1]
            self.f64, self.diff64 = &f64[0, 0], NULL if diff is None else &diff64[0, 0]
        self.k, self.hardness, self.tol, self.scores, self.gradient = k, hardness, tol, f, diff
        self.share = weight / self.n
        self.mask = constraints.allowed
        self.per_pixel = self.mask is not None and self.mask.ndim == 2
        if self.mask is None:
            self.allowed = <uint8_t*>allocate(m, self.L, True)
            if not m.failed:
                memset(<void*>self.allowed, 1, self.L)
        else:
            self.allowed = <const uint8_t*>data(self.mask)
        self.b, self.beta, self.unit, self.tolerance = reals(m, k), reals(m, k), reals(m, k), reals(m, k)
        self.low, self.high, self.magnitude, self.energy = reals(m, k), reals(m, k), reals(m, k), reals(m, k)
        self.lam, self.v, self.g, self.x, self.spare_v = reals(m, k), reals(m, k), reals(m, k), reals(m, k), reals(m, k)
        self.ray, self.mark, self.widest, self.largest = reals(m, k), reals(m, k), reals(m, k), reals(m, k)
        if m.failed:
            raise MemoryError(f"the solver needs {m.failed} bytes more")
        for j in range(k):
            self.b[j], self.beta[j] = b[j], finite(beta[j])
        self.stop = &self.own_stop
        self.polls = True

    def __dealloc__(self):
        release(&self.memory)

    # ---- what a kind of rows defines --------------------------------------------------------------

    cdef bint prepare(self) noexcept nogil:
        """Allocate, arrange the scores; fill low, high, magnitude and energy. False if there is no memory, or if there
        are too_many_groups."""
        return False

    cdef double evaluate(self, const double* lam, double* v, double* H) noexcept nogil:
        """Return -mean_i log sum_l exp(f_li + sum_j lam_j a_jil); fill v and, if it is not NULL, H: the covariance of
        the rows. A pixel with one label may count lam'a only: its score is in `known`."""
        return 0

    cdef double support(self, const double* d) noexcept nogil:
        """mean_i max_l sum_j d_j a_jil: the largest value that d'v(p) can have."""
        return 0

    cdef double spread(self) noexcept nogil:
        """How far apart the labels' scores are, at a sample of pixels."""
        return 0

    cdef void set_hardness(self, double hardness, Py_ssize_t every) noexcept nogil:
        """Go on with another hardness, on all pixels or on one of `every` pixels."""

    cdef void set_p(self, const double* lam) noexcept nogil:
        """p becomes that of lam; evaluate without its results."""

    cdef double write_p(self, float* out32, double* out64, bint gradient) noexcept nogil:
        """Write p of the last point into zeros, L x n, one of the two arrays. Or, if `gradient`, subtract
        share * p from the array and return (hardness - 1) mean_i sum_l p_i(l) f_li."""
        return 0

    # ---- rows in a unit of their own --------------------------------------------------------------

    cdef void normalise(self) noexcept nogil:
        """Multiply every row by `unit`, a power of 2, which changes no digit. Its range at a pixel is then about 1.

        A row with the same value for every p is decided here. If it is soft, its dual is 0 or beta. If it is hard,
        it contradicts by itself or holds; a price of 0 then takes it out of the problem.
        """
        cdef Py_ssize_t j
        cdef double size
        cdef bint constant
        cdef int exponent
        for j in range(self.k):
            size = self.high[j] - self.low[j]
            constant = size <= ROUNDING * self.magnitude[j]
            if self.beta[j] == HARD and self.b[j] - self.high[j] > CONTRADICTION * self.magnitude[j]:
                if not self.infeasible:
                    self.ray[j] = 1
                self.infeasible = True
            elif constant and self.beta[j] == HARD:
                self.beta[j] = 0
            size = self.magnitude[j] if constant else sqrt(self.energy[j])
            exponent = 0
            if size > 0:
                frexp(size * 1.414, &exponent)                  # 2^(exponent - 1) is within sqrt(2) of size
                exponent = 1 - min(max(exponent, -300), 300)
            self.unit[j] = ldexp(1.0, exponent)
            self.rescaled |= exponent != 0
            self.b[j] *= self.unit[j]
            self.low[j] *= self.unit[j]
            self.high[j] *= self.unit[j]
            self.magnitude[j] *= self.unit[j]
            self.widest[j] *= self.unit[j]
            self.largest[j] *= self.unit[j]
            self.ray[j] /= self.unit[j]
            if self.beta[j] < HARD:
                self.beta[j] = min(self.beta[j] / self.unit[j], 0.1 * HARD)
                if constant and self.b[j] > self.high[j]:
                    self.lam[j] = self.beta[j]
            self.tolerance[j] = max(FEASIBLE * (self.high[j] - self.low[j]), ROUNDING * self.magnitude[j])

    cdef double measure(self, const double* lam, double* v, double* H) noexcept nogil:
        """Return D(lam) without its constant; fill v and, if it is not NULL, H."""
        cdef Py_ssize_t j, h, k = self.k
        cdef double value
        for j in range(k):
            self.x[j] = lam[j] * self.unit[j]
        value = self.evaluate(self.x, v, H if k else NULL)
        for j in range(k):
            v[j] *= self.unit[j]
            value += lam[j] * self.b[j]
        if H != NULL and self.rescaled:
            for j in range(k):
                for h in range(k):
                    H[j * k + h] *= self.unit[j] * self.unit[h]
        self.measured = lam
        self.passes += 1
        return value

    cdef object in_callers_units(self, const double* x):
        """A copy of x, a vector like lam, for the caller's rows."""
        cdef Py_ssize_t j
        copy = np.empty(self.k)
        cdef double* place = <double*>data(copy)
        for j in range(self.k):
            place[j] = x[j] * self.unit[j]
        return copy

    cdef double callers_residual(self) noexcept nogil:
        """max_j |lam - clip(lam + b - v, 0, beta)| for the caller's rows."""
        cdef Py_ssize_t j
        cdef double lam, target, largest = 0
        for j in range(self.k):
            lam = self.lam[j] * self.unit[j]
            target = max(lam + (self.b[j] - self.v[j]) / self.unit[j], 0)
            if self.beta[j] < HARD:
                target = min(target, self.beta[j] * self.unit[j])
            largest = max(largest, fabs(lam - target))
        return largest

    # ---- the certificate --------------------------------------------------------------------------

    cdef void start(self, double* H) noexcept nogil:
        self.value = self.measure(self.lam, self.v, H)
        self.certify(H)

    cdef void certify(self, const double* H) noexcept nogil:
        """At a new lam: gradient, duality gap and residual (see the module's docstring). H may be NULL."""
        cdef Py_ssize_t j
        cdef double short, target, deviation, error, exponent = 1, notable = 0.2 * self.tol
        self.gap = self.residual = 0
        self.rounded = True
        for j in range(self.k):
            exponent += self.lam[j] * self.largest[j]
        for j in range(self.k):
            short = self.b[j] - self.v[j]
            deviation = self.widest[j]
            if H != NULL:                                       # which has rounding errors, too
                deviation = min(deviation, sqrt(1.05 * max(H[j * self.k + j], 0) + ROUNDING))
            error = ERROR * (self.magnitude[j] + fabs(self.b[j]) + deviation * exponent)
            if self.beta[j] < HARD:
                self.g[j] = short
                if (self.beta[j] - self.lam[j]) * error > notable / self.k:
                    self.g[j] += 1.2 * error
                self.gap += max((self.beta[j] - self.lam[j]) * (short + error), self.lam[j] * (error - short))
            else:
                # aim inside, so that the returned p obeys the row; but never at a cost that tol would notice
                self.g[j] = short + min(0.5 * self.tolerance[j], notable / (self.k * max(self.lam[j], 1e-9)))
                self.gap += self.lam[j] * (fabs(short) + error)
            if fabs(self.lam[j] - within_box(self.lam[j] + self.g[j], self.beta[j])) > 2 * error:
                self.rounded = False
            target = within_box(self.lam[j] + short, self.beta[j])
            self.residual = max(self.residual, fabs(self.lam[j] - target))

    cdef bint certify_ahead(self, double* lam, const double* step, const double* H) noexcept nogil:
        """Is the point a `step` ahead, `lam`, optimal? Then move there, without a pass (see the module's docstring).

        H belongs to the point of the last pass. The gap includes what is not known of the rows ahead.
        """
        cdef Py_ssize_t j, h, k = self.k
        cdef double reach = 0, decrement = 0, slope = 0, doubt = 0, x
        cdef double* here = self.lam
        cdef double* v = self.v
        cdef double* ahead = self.spare_v
        for j in range(k):
            reach += fabs(step[j]) * self.widest[j]
        if reach > 0.01:                                        # below, exp(0.01) / 2 < 0.51
            return False
        for j in range(k):
            x = 0
            for h in range(k):
                x += H[j * k + h] * step[h]
            ahead[j] = v[j] + x
            decrement += step[j] * x
            slope += step[j] * (self.b[j] - v[j])
        for j in range(k):
            x = 0.51 * self.widest[j] * decrement
            if x > AHEAD * self.tolerance[j] or self.beta[j] == HARD and self.b[j] - ahead[j] + x > self.tolerance[j]:
                return False
            doubt += x * max(lam[j], self.beta[j] - lam[j] if self.beta[j] < HARD else 0)
        self.lam, self.v, self.spare_v = lam, ahead, v
        self.certify(H)                                         # exp(0.01) times H at most, there
        self.gap += doubt
        if self.is_optimal():
            self.value += slope - 0.5 * decrement
            return True
        self.lam, self.v, self.spare_v = here, v, ahead
        self.certify(H)
        return False

    cdef bint is_optimal(self) noexcept nogil:
        return 0 <= self.gap <= self.tol and self.is_feasible()

    cdef bint is_feasible(self) noexcept nogil:
        """Do the hard rows hold? Soft rows always do, at their price."""
        cdef Py_ssize_t j
        for j in range(self.k):
            if self.beta[j] == HARD and self.b[j] - self.v[j] > self.tolerance[j]:
                return False
        return not self.infeasible

    cdef bint is_infeasible(self) noexcept nogil:
        """Do the hard rows contradict each other? Then lam grows without bound.

        Its direction d since the last check proves it, if d'b is larger than d'v(p) can be for any p.
        """
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
            self.x[j] = self.ray[j] * self.unit[j]
            claim += self.ray[j] * self.b[j]
            rounding += CONTRADICTION * self.ray[j] * (fabs(self.b[j]) + self.magnitude[j])
        self.infeasible = claim > self.support(self.x) + rounding
        return self.infeasible

    # ---- the end ----------------------------------------------------------------------------------

    cdef void finish(self) noexcept nogil:
        """lam is final: from here on `write_p` has its p, even if the scores change."""
        cdef Py_ssize_t j
        if self.measured != self.lam:                       # the last step needed no pass, or was not taken
            for j in range(self.k):
                self.x[j] = self.lam[j] * self.unit[j]
            self.set_p(self.x)

    cdef double dual_value(self) noexcept nogil:
        """D(lam) without mean_i log Z_i."""
        return self.value - self.known

    cdef bint check_scores(self) noexcept nogil:
        """Are the scores finite, and not too large? From here on diff, if there is one, is share * softmax(f).

        With diff, all scores are read; without it, those of labels that may appear. If they are not accepted, diff is 0.
        """
        cdef double limit = LARGEST_SCORE / self.hardness
        cdef Py_ssize_t l
        self.accepted = True
        if self.diff32 != NULL:
            self.accepted = check_and_softmax(self.f32, self.L, self.n, limit, self.share, self.diff32, &self.log_partition)
        elif self.diff64 != NULL:
            self.accepted = check_and_softmax(self.f64, self.L, self.n, limit, self.share, self.diff64, &self.log_partition)
        else:
            for l in range(self.L):
                if not self.appears(l):
                    continue
                if self.f32 != NULL:
                    self.accepted &= within(self.f32 + l * self.n, self.n, limit)
                else:
                    self.accepted &= within(self.f64 + l * self.n, self.n, limit)
        if not self.accepted:
            self.clear_diff()
        return self.accepted

    cdef void clear_diff(self) noexcept nogil:
        if self.diff32 != NULL:
            memset(self.diff32, 0, self.L * self.n * sizeof(float))
        if self.diff64 != NULL:
            memset(self.diff64, 0, self.L * self.n * sizeof(double))

    cdef double loss(self) noexcept nogil:
        """mean_i KL(p_i || softmax(f_i)); from here on diff is its gradient, share * (softmax(f) - p).

        As log p_i(l) = hardness * f_li + sum_j lam_j a_jil - the log of its denominator, no logarithm of p is needed: the loss is
        D(lam) - lam' (b - v) + (hardness - 1) mean_i sum_l p_i(l) f_li + mean_i log sum_l exp(f_li), with D as
        `dual_value` returns it.
        """
        cdef Py_ssize_t j
        cdef double loss = self.dual_value() + self.write_p(self.diff32, self.diff64, True) + self.log_partition
        for j in range(self.k):
            loss -= self.lam[j] * (self.b[j] - self.v[j])
        return max(loss, 0)

    cdef bint interrupted(self) noexcept nogil:
        """Should the solver give up? ^C or another signal said so, here or in another problem of the batch."""
        cdef int64_t now
        if self.stop[0] or not self.polls:
            return self.stop[0]
        now = milliseconds()
        if self.polled == 0:
            self.polled = now
        if now - self.polled < POLL:
            return False
        self.polled = now
        with gil:
            try:
                PyErr_CheckSignals()
            except BaseException as error:
                self.error = error
                self.stop[0] = 1
        return self.stop[0]
