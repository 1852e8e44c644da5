"""Memory of one problem: many arrays from few pieces, returned all at once.

Nothing here needs the interpreter, so threads without the GIL allocate. A request that fails returns NULL and is
remembered in `failed`: allocate several arrays, then check once.
"""
from libc.string cimport memset

cdef extern from "portable.h" nogil:
    void* aligned_memory(size_t alignment, size_t size)
    void aligned_release(void* memory)

cdef enum:
    LINE = 64           # bytes of a cache line; every array starts on one
    PIECE = 8192        # bytes of a piece that small arrays share

cdef struct Memory:
    void* newest        # the newest piece; its first bytes hold the address of the piece before it
    char* spare         # the unused rest of the newest shared piece, already zero,
    Py_ssize_t left     # and its bytes
    Py_ssize_t failed   # bytes of the request that could not be met, or 0


cdef inline void* allocate(Memory* memory, Py_ssize_t size, bint zeroed) noexcept nogil:
    """`size` bytes at the start of a cache line, zero if `zeroed`; NULL if there is no memory."""
    cdef void* piece
    cdef char* place
    size = max((size + LINE - 1) // LINE * LINE, <Py_ssize_t>LINE)
    if size > memory.left:
        piece = aligned_memory(LINE, LINE + max(size, <Py_ssize_t>PIECE))
        if piece == NULL:
            memory.failed = size
            return NULL
        (<void**>piece)[0] = memory.newest
        memory.newest = piece
        place = <char*>piece + LINE
        if size > PIECE:
            if zeroed:
                memset(place, 0, size)
            return place
        memset(place, 0, PIECE)
        memory.spare, memory.left = place, PIECE
    place = memory.spare
    memory.spare, memory.left = place + size, memory.left - size
    return place


cdef inline double* reals(Memory* memory, Py_ssize_t count) noexcept nogil:
    """`count` zeros."""
    return <double*>allocate(memory, count * sizeof(double), True)


cdef inline double* unset_reals(Memory* memory, Py_ssize_t count) noexcept nogil:
    """`count` numbers of any value."""
    return <double*>allocate(memory, count * sizeof(double), False)


cdef inline Py_ssize_t* integers(Memory* memory, Py_ssize_t count) noexcept nogil:
    """`count` zeros."""
    return <Py_ssize_t*>allocate(memory, count * sizeof(Py_ssize_t), True)


cdef inline Py_ssize_t* unset_integers(Memory* memory, Py_ssize_t count) noexcept nogil:
    """`count` integers of any value."""
    return <Py_ssize_t*>allocate(memory, count * sizeof(Py_ssize_t), False)


cdef inline void release(Memory* memory) noexcept nogil:
    """Return every piece."""
    cdef void* piece
    while memory.newest != NULL:
        piece = memory.newest
        memory.newest = (<void**>piece)[0]
        aligned_release(piece)
    memory.spare, memory.left = NULL, 0
