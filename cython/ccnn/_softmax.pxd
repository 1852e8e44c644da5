ctypedef fused real:
    float
    double

cdef bint check_and_softmax(
    const real* f, Py_ssize_t L, Py_ssize_t n, double limit, real* q, double* mean) noexcept nogil
