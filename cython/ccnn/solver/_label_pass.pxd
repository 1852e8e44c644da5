cdef extern from "_few_labels.h":
    Py_ssize_t FEW          # with at most so many labels, a pixel's p stays in registers
    Py_ssize_t FACTORS      # pixels that share a logarithm
    double exponentiate_few_f(
        int labels, const float* const* row, double hardness, const double* bias, double clip, Py_ssize_t count,
        double* E, Py_ssize_t stride) noexcept nogil
    double exponentiate_few(
        int labels, const double* const* row, double hardness, const double* bias, double clip, Py_ssize_t count,
        double* E, Py_ssize_t stride) noexcept nogil

cdef inline Py_ssize_t padded(Py_ssize_t size) noexcept nogil:
    """The length of a row of E; the pixels past the end are certain of the group's first label."""
    return (size + FACTORS - 1) // FACTORS * FACTORS

cdef double pass_over_pixels(
    const double* E, const double* w, Py_ssize_t labels, Py_ssize_t size, double* p, double* mean, double* cov,
) noexcept nogil
