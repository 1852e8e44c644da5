from libc.stdint cimport int32_t

cdef class Lattice:
    cdef readonly Py_ssize_t points         # n
    cdef readonly int dimensions            # d
    cdef readonly Py_ssize_t vertices       # M
    cdef readonly Py_ssize_t slots          # of all parts
    cdef readonly Py_ssize_t most_slots     # of one part
    cdef readonly Py_ssize_t part           # points of a part, but for the last
    cdef readonly Py_ssize_t parts
    cdef Py_ssize_t[::1] first_slot         # parts + 1
    cdef int32_t[::1] corner                # n x (d+1)     slot of each corner, counted from the part's first
    cdef float[::1] weight                  # n x (d+1)     of each corner
    cdef int32_t[::1] vertex                # slots         the vertex of a slot
    cdef int32_t[::1] first_copy            # M + 1         the slots of vertex v are
    cdef int32_t[::1] copy                  # slots         copy[first_copy[v]:first_copy[v + 1]]
    cdef int32_t[:, ::1] before             # (d+1) x M     the vertices on both sides along each direction,
    cdef int32_t[:, ::1] after              #               M if there is none
