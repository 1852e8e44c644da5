"""The first pass over the scores: are they numbers, and what is softmax(f)?"""
import numpy as np

from libc.float cimport DBL_MAX, FLT_MAX
from libc.math cimport log, logf
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from ._constants cimport CLIP, NEGLIGIBLE
from ._exponential cimport exp_within, exp_within_f

ctypedef fused word:
    uint32_t
    uint64_t


cdef extern from "portable.h" nogil:
    void PREFETCH(const void* address)
    void PREFETCH_TO_WRITE(const void* address)

cdef enum:
    SPAN = 128      # pixels at a time: the scores and q of 21 labels, and the next ones, stay in the caches near the core
    LINE = 64       # bytes that the processor fetches at a time


cdef bint check_and_softmax(
    const real* f,         # in,  L x n
    Py_ssize_t L,
    Py_ssize_t n,
    double limit,          # in          the largest score that is accepted
    double share,          # in          what softmax(f) is multiplied by
    real* q,               # out, L x n  share * softmax(f)
    double* mean,          # out         mean_i log sum_l exp(f_li)
) noexcept nogil:
    """Return whether every score is a number of at most `limit`; otherwise q is of no use.

    The rows of f and q lie far apart, and the processor does not foresee the jumps from one to the next. So the next
    span of a row is asked for while the exponentials of this one are computed.
    """
    cdef Py_ssize_t start = 0, l, i, at, count
    cdef real top[SPAN]
    cdef real total[SPAN]
    cdef real x, negligible = <real>NEGLIGIBLE
    cdef double logs = 0
    cdef bint accepted = True
    while start < n:
        count = min(<Py_ssize_t>SPAN, n - start)
        for i in range(count):
            top[i] = f[start + i]
            total[i] = 0
        for l in range(L):
            at = l * n + start
            accepted &= within(f + at, count, limit)
            for i in range(count):
                top[i] = f[at + i] if f[at + i] > top[i] else top[i]
        for l in range(L):
            at = l * n + start
            prefetch(f + at + SPAN, q + at + SPAN, SPAN * sizeof(real))
            for i in range(count):
                x = max(f[at + i] - top[i], <real>-80)
                x = exp_within_f(x) if real is float else exp_within(x)
                q[at + i] = x
                total[i] += x
        for i in range(count):
            logs += <double>top[i] + (logf(total[i]) if real is float else log(total[i]))
            total[i] = <real>share / total[i]
        for l in range(L):
            at = l * n + start
            for i in range(count):
                q[at + i] = q[at + i] * total[i] if q[at + i] > negligible else 0
        start += SPAN
    mean[0] = logs / n
    return accepted


cdef inline void prefetch(const void* f, const void* q, Py_ssize_t size) noexcept nogil:
    """So many bytes of both, into the second-level cache. Past the end of an array this does nothing."""
    cdef Py_ssize_t i
    for i in range(size // LINE):
        PREFETCH(<const char*>f + i * LINE)
        PREFETCH_TO_WRITE(<const char*>q + i * LINE)


cdef bint within(const real* x, Py_ssize_t size, double limit) noexcept nogil:
    """|x| <= limit, by their bits: these grow with |x|, and those of infinity and NaN are the largest.

    The compiler assumes that all numbers are finite (-ffast-math), so it may drop a comparison of x itself.
    """
    cdef real bound = <real>min(limit, FLT_MAX if real is float else DBL_MAX)
    cdef uint32_t bits32
    cdef uint64_t bits64
    if real is float:
        memcpy(&bits32, &bound, sizeof(bound))
        return largest(<const uint32_t*>x, size) <= bits32
    else:
        memcpy(&bits64, &bound, sizeof(bound))
        return largest(<const uint64_t*>x, size) <= bits64


cdef inline word largest(const word* bits, Py_ssize_t size) noexcept nogil:
    """The largest of the words, each without its first bit: the sign."""
    cdef word top = 0, rest = <word>-1 >> 1
    cdef Py_ssize_t i
    for i in range(size):
        top = max(top, bits[i] & rest)
    return top


def mean_log_partition(const real[:, ::1] f, double hardness):
    """mean_i log sum_l exp(hardness * f_li) over all labels, in float64."""
    cdef Py_ssize_t L = f.shape[0], n = f.shape[1], l, i
    if not L or not n:
        raise ValueError(f"scores must be labels x pixels; got shape {(L, n)}")
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
                total[i] += exp_within(max(hardness * (f[l, i] - top[i]), CLIP))
        for i in range(n):
            logs += log(total[i]) + hardness * top[i]
    return logs / n
