from ._constants cimport BLOCK, QUARTER

cdef inline Py_ssize_t padded(Py_ssize_t size) noexcept nogil:
    """A row of E has whole blocks; the pixels past the end are certain of the group's first label."""
    return (size + BLOCK - 1) // BLOCK * BLOCK

cdef double pass_over_pixels(
    const double* E, const double* w, Py_ssize_t labels, Py_ssize_t size, double* p, double* mean, double* cov,
) noexcept nogil
