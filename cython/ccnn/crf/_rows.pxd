from libc.stdint cimport int32_t, int64_t

cdef extern from "_rows.h" nogil:
    ctypedef struct Message:
        int corners
        const int32_t* corner
        const float* weight
        const float* strength
        float* within "in"
        float* out
    int row_width(int labels)
    void sum_copies(int width, int64_t lo, int64_t hi, const int32_t* first_copy, const int32_t* copy, float* slots,
                    float* values)
    void blur(int width, int64_t lo, int64_t hi, const int32_t* before, const int32_t* after, float* values, float* out)
    void step(int width, int64_t pixels, const float* unary, const Message* message, int kernels, int sliced,
              int splats, float* q, float* scale)
