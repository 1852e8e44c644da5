ctypedef fused real:
    float
    double

cdef bint within(const real* x, Py_ssize_t size, double limit) noexcept nogil
cdef bint check_and_softmax(
    const real* f, Py_ssize_t L, Py_ssize_t n, double limit, double share, real* q, double* mean) noexcept nogil
