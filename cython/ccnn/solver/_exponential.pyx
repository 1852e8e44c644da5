"""The exponentials of _exponential.h as functions of arrays, for tests and benchmarks."""
from libc.math cimport expf


def exp64(const double[::1] x, double[::1] y):
    """y = exp(x) by exp_within, -200 <= x <= 200."""
    cdef Py_ssize_t i
    _check_lengths(x.shape[0], y.shape[0])
    for i in range(x.shape[0]):
        y[i] = exp_within(x[i])


def exp32(const float[::1] x, float[::1] y):
    """y = exp(x) by exp_within_f, -80 <= x <= 80."""
    cdef Py_ssize_t i
    _check_lengths(x.shape[0], y.shape[0])
    for i in range(x.shape[0]):
        y[i] = exp_within_f(x[i])


def exp_pass(const float[::1] x):
    """The sum of exp(x) by libm's float32 exponential: one pass over x, the yardstick of the benchmarks."""
    cdef Py_ssize_t i
    cdef float total = 0
    with nogil:
        for i in range(x.shape[0]):
            total += expf(x[i])
    return total


def _check_lengths(Py_ssize_t x, Py_ssize_t y):
    if x != y:
        raise ValueError(f"x has {x} elements, y has {y}")
