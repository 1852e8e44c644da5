from libc.math cimport fabs
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr

from ._memory cimport Memory


cdef class Dual:
    # the problem
    cdef Py_ssize_t k, L, n         # rows, labels, pixels
    cdef readonly object scores     # in,  L x n
    cdef const float* f32           # where they lie: one of the two is not NULL
    cdef const double* f64
    cdef object gradient            # the array of the gradient, kept alive, or None
    cdef float* diff32              # out, L x n  the gradient, in the scores' dtype, or both NULL
    cdef double* diff64
    cdef object mask                # in,  L, or L x n if per_pixel, kept alive; None: all labels
    cdef bint per_pixel
    cdef const uint8_t* allowed     # where the mask lies
    cdef double* b                  # in,  k      bounds
    cdef double* beta               # in,  k      prices; HARD for hard rows
    cdef double* low                # k           the smallest value that a row can have,
    cdef double* high               # k           the largest,
    cdef double* magnitude          # k           and mean_i max_l |a_jil|, which bounds its rounding errors
    cdef double* energy             # k           mean_i (max_l a_jil - min_l a_jil)^2
    cdef double* widest             # k           max_i (max_l a_jil - min_l a_jil)
    cdef double* largest            # k           max_il |a_jil|
    cdef double* unit               # k           the rows are multiplied by this power of 2, so that energy is about 1
    cdef double* tolerance          # k           a hard row holds if it is violated by at most this
    cdef bint rescaled              # is a unit not 1?
    cdef double hardness, tol
    cdef double share               # of a pixel in the gradient: weight / n
    cdef double known               # mean of hardness * f over the pixels that have one label only: a constant of D
    cdef double log_partition       # mean_i log sum_l exp(f_li), if there is diff

    # the point
    cdef double* lam                # out, k
    cdef double* v                  # out, k      the values of the rows
    cdef double* g                  # out, k      the gradient b - v; hard rows aim a little inside
    cdef double value               # D(lam) without its constants: mean_i log Z_i, and `known`
    cdef double gap, residual
    cdef bint rounded               # no row is further from where it aims than rounding errors reach
    cdef Py_ssize_t passes
    cdef const double* measured     # the point that p belongs to

    # its certificate
    cdef bint infeasible
    cdef double* ray                # out, k      proves that hard rows contradict
    cdef double* mark               # k           lam when this was last checked

    # the outcome of a call
    cdef double image_loss          # mean_i KL(p_i || softmax(f_i)), if there is diff
    cdef bint accepted              # are the scores finite, and not too large?
    cdef bint too_many_groups       # LabelSums only: GeneralRows must do it
    cdef object error               # an exception that a signal handler raised
    cdef bint polls                 # may this thread run signal handlers?
    cdef volatile int own_stop
    cdef volatile int* stop               # not 0: give up; shared by the problems of a batch
    cdef int64_t polled             # milliseconds, when signals were last checked

    cdef double* x                  # scratch, k  lam in the units of the caller
    cdef double* spare_v            # scratch, k
    cdef Memory memory

    # what a kind of rows defines
    cdef bint prepare(self) noexcept nogil
    cdef double evaluate(self, const double* lam, double* v, double* H) noexcept nogil
    cdef double support(self, const double* d) noexcept nogil
    cdef double spread(self) noexcept nogil
    cdef void set_hardness(self, double hardness, Py_ssize_t every) noexcept nogil
    cdef void set_p(self, const double* lam) noexcept nogil
    cdef double write_p(self, float* out32, double* out64, bint gradient) noexcept nogil

    # what follows from it
    cdef void normalise(self) noexcept nogil
    cdef void start(self, double* H) noexcept nogil
    cdef double measure(self, const double* lam, double* v, double* H) noexcept nogil
    cdef void certify(self, const double* H) noexcept nogil
    cdef bint certify_ahead(self, double* lam, const double* step, const double* H) noexcept nogil
    cdef bint is_feasible(self) noexcept nogil
    cdef bint is_optimal(self) noexcept nogil
    cdef bint is_infeasible(self) noexcept nogil
    cdef void finish(self) noexcept nogil
    cdef double dual_value(self) noexcept nogil
    cdef bint check_scores(self) noexcept nogil
    cdef void clear_diff(self) noexcept nogil
    cdef double loss(self) noexcept nogil
    cdef double callers_residual(self) noexcept nogil
    cdef bint interrupted(self) noexcept nogil
    cdef object in_callers_units(self, const double* x)

    cdef inline void add_range(self, Py_ssize_t j, double low, double high, double share) noexcept nogil:
        """At this share of the pixels, row j has entries from low to high."""
        self.low[j] += share * low
        self.high[j] += share * high
        self.magnitude[j] += share * max(fabs(low), fabs(high))
        self.energy[j] += share * (high - low) * (high - low)
        self.widest[j] = max(self.widest[j], high - low)
        self.largest[j] = max(self.largest[j], max(fabs(low), fabs(high)))

    cdef inline double score(self, Py_ssize_t l, Py_ssize_t i) noexcept nogil:
        return self.f32[l * self.n + i] if self.f32 != NULL else self.f64[l * self.n + i]

    cdef inline bint allows(self, Py_ssize_t l, Py_ssize_t i) noexcept nogil:
        """May pixel i have label l?"""
        return self.allowed[l * self.n + i if self.per_pixel else l]

    cdef inline bint appears(self, Py_ssize_t l) noexcept nogil:
        """May any pixel have label l?"""
        if self.per_pixel:
            return memchr(self.allowed + l * self.n, 1, self.n) != NULL
        return self.allowed[l]
