"""One pass over the pixels of a group: the mean of p and its covariance, without an exponential per pixel."""
from libc.math cimport log
from libc.string cimport memset

cdef enum:
    LOGS = 16       # factors multiplied before one logarithm is taken; a factor is at most labels * exp(30), so 16 are finite


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
    if cov != NULL:                                   # rows of diag(p) - p p' sum to 0: no digits cancel
        for l in range(labels):
            for m in range(l):
                x = cov[l * labels + m]
                cov[m * labels + l] = x
                cov[l * labels + l] -= x
                cov[m * labels + m] -= x
    return logs


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
