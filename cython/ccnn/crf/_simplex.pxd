from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef extern from "_simplex.h" nogil:
    enum:
        DIMENSIONS
    ctypedef struct Vertices:
        uint64_t* key
        uint8_t* colour
        int32_t* place
        int32_t count
    int vertices_init(Vertices* vertices, int32_t expected)
    void vertices_free(Vertices* vertices)
    int32_t vertices_add(Vertices* vertices, uint64_t key, uint8_t colour)
    int locate(Vertices* vertices, int d, int64_t points, const float* f, int64_t stride, int32_t* corner, float* weight)
    int32_t next_along(const Vertices* vertices, int d, int j, int32_t vertex, int32_t none)
