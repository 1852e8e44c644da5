from libc.stdint cimport uint8_t

from ._memory cimport Memory

cdef struct Groups:
    Py_ssize_t count
    Py_ssize_t* pixel       # n          the pixels, group by group; NULL if there is only one group
    Py_ssize_t* first       # count + 1  where a group begins in `pixel`
    Py_ssize_t* example     # count      one pixel of each group

cdef bint group_pixels(
    const uint8_t* allowed, Py_ssize_t masks, const double* regions, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t limit,
    Memory* memory, Groups* groups) noexcept nogil
