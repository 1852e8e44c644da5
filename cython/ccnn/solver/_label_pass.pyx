"""One pass over the pixels of a group: the mean of p and its covariance, without an exponential per pixel."""
from libc.math cimport log
from libc.string cimport memset

from ._constants cimport BLOCK

cdef extern from "_few_labels.h":
    double pass_few(
        int labels, const double* E, const double* w, Py_ssize_t size, double* mean, double* cov) noexcept nogil


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
    cdef Py_ssize_t l, m, past = padded(size) - size
    cdef double x, logs
    memset(mean, 0, labels * sizeof(double))
    if cov != NULL:
        memset(cov, 0, labels * labels * sizeof(double))
    if labels <= FEW:
        logs = pass_few(<int>labels, E, w, padded(size), mean, cov)
    else:
        logs = pass_many(labels, E, w, padded(size), p, mean, cov)
    mean[0] -= past
    logs -= past * log(w[0])
    if cov != NULL:                                   # rows of diag(p) - p p' sum to 0: no digits cancel
        for l in range(labels):
            for m in range(l):
                x = cov[l * labels + m]
                cov[m * labels + l] = x
                cov[l * labels + l] -= x
                cov[m * labels + m] -= x
    return logs


cdef double pass_many(
    Py_ssize_t labels, const double* E, const double* w, Py_ssize_t size, double* p, double* mean, double* cov,
) noexcept nogil:
    """pass_few for any number of labels: p of a block of pixels at a time."""
    cdef Py_ssize_t start = 0, count, part, l, m, i, j
    cdef double total[BLOCK]
    cdef double x, weight, logs = 0
    cdef const double* e
    cdef double* q
    while start < size:
        count = min(<Py_ssize_t>BLOCK, size - start)
        for i in range(count):
            total[i] = 0
        for l in range(labels):
            e, q, weight = E + l * size + start, p + l * BLOCK, w[l]
            for i in range(count):
                q[i] = weight * e[i]
                total[i] += q[i]
        part = count // FACTORS
        for i in range(part):
            x = 1
            for j in range(FACTORS):
                x *= total[j * part + i]
            logs += log(x)
        for i in range(count):
            total[i] = 1 / total[i]
        for l in range(labels):
            q, x = p + l * BLOCK, 0
            for i in range(count):
                q[i] *= total[i]
                x += q[i]
            mean[l] += x
        if cov != NULL:
            for l in range(labels):
                for m in range(l):
                    cov[l * labels + m] -= dot_block(p + l * BLOCK, p + m * BLOCK, count)
        start += BLOCK
    return logs


cdef inline double dot_block(const double* x, const double* y, Py_ssize_t count) noexcept nogil:
    """x'y in four strands; count is a multiple of FACTORS."""
    cdef Py_ssize_t i, quarter = count // 4
    cdef double a = 0, b = 0, c = 0, d = 0
    for i in range(quarter):
        a += x[i] * y[i]
        b += x[i + quarter] * y[i + quarter]
        c += x[i + 2 * quarter] * y[i + 2 * quarter]
        d += x[i + 3 * quarter] * y[i + 3 * quarter]
    return (a + b) + (c + d)
