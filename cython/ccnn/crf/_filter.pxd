from libc.stdint cimport int32_t

from ._lattice cimport Lattice
from ._team cimport Team

cdef struct Rows:
    # the lattice, see _lattice.pxd
    Py_ssize_t points, part, parts, vertices
    int corners
    const Py_ssize_t* first_slot
    const int32_t* corner
    float* weight
    const int32_t* vertex
    const int32_t* first_copy
    const int32_t* copy
    const int32_t* before
    const int32_t* after
    # the values
    int width                       # floats of a row
    float* strength                 # n                 weight of the kernel, over its normalisation
    float* slots                    # slots x width     what the parts have splatted
    float* values                   # (M + 1) x width   sums of the slots; the last row is zero
    float* other                    # (M + 1) x width   like values: each blur writes the one that it does not read
    float* filtered                 # the one of the two that is written last

cdef class Filter:
    cdef readonly Lattice lattice
    cdef float[::1] strength
    cdef float[::1] slots
    cdef float[::1] values
    cdef float[::1] other
    cdef Rows rows                  # addresses of all of them, for code without the GIL
    cdef int prepare(self, int width) except -1

cdef void filter_vertices(Rows** filters, int count, Team* team) noexcept nogil
