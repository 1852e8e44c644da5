/* Arithmetic on rows of labels: one float for each label of a pixel or vertex, padded to whole vectors.

   Every function exists for the usual widths, where the compiler keeps a row in registers, and for any multiple of 8. */
#ifndef CCNN_ROWS_H
#define CCNN_ROWS_H

#include <stdint.h>
#include <string.h>

#include "../solver/_exponential.h"
#include "portable.h"

#define NOTHING -40.0f      /* logarithm of a probability that is 0: products of smaller ones would be denormal numbers */

#define TILE 16             /* pixels of a step */

/* One kernel, as some pixels of a part see it. */
typedef struct {
    int corners;
    const int32_t *corner;      /* pixels x corners     slots of the part */
    const float *weight;        /* pixels x corners */
    const float *strength;      /* pixels               weight of the kernel, over its normalisation */
    float *in;                  /* slots x width        filtered */
    float *out;                 /* slots x width        sums of this step */
} Message;

typedef VECTOR_OF(4, float) Four;
typedef VECTOR_OF(8, float) Eight;

#define CONSTANT
#define WIDTH 4
#define VECTOR Four
#define NAME(f) f##_4
#include "_rows_of.h"
#undef WIDTH
#undef VECTOR
#undef NAME
#define VECTOR Eight
#define WIDTH 8
#define NAME(f) f##_8
#include "_rows_of.h"
#undef WIDTH
#undef NAME
#define WIDTH 16
#define NAME(f) f##_16
#include "_rows_of.h"
#undef WIDTH
#undef NAME
#define WIDTH 24
#define NAME(f) f##_24
#include "_rows_of.h"
#undef WIDTH
#undef NAME
#define WIDTH 32
#define NAME(f) f##_32
#include "_rows_of.h"
#undef WIDTH
#undef NAME
#undef CONSTANT
#define WIDTH width
#define NAME(f) f##_any
#include "_rows_of.h"
#undef VECTOR
#undef NAME
#define VECTOR float
#define NAME(f) f##_float
#include "_rows_of.h"
#undef WIDTH
#undef VECTOR
#undef NAME

#define CHOOSE(f, width, ...)                                                                                     \
    switch (width) {                                                                                              \
        case 1: f##_float(width, __VA_ARGS__); break;                                                             \
        case 4: f##_4(width, __VA_ARGS__); break;                                                                 \
        case 8: f##_8(width, __VA_ARGS__); break;                                                                 \
        case 16: f##_16(width, __VA_ARGS__); break;                                                               \
        case 24: f##_24(width, __VA_ARGS__); break;                                                               \
        case 32: f##_32(width, __VA_ARGS__); break;                                                               \
        default: f##_any(width, __VA_ARGS__);                                                                     \
    }

/* The width of rows for so many labels. */
static inline int row_width(int labels) { return labels <= 4 ? 4 : (labels + 7) / 8 * 8; }

static inline void sum_copies(int width, int64_t lo, int64_t hi, const int32_t *first_copy, const int32_t *copy,
                              float *slots, float *values) {
    CHOOSE(sum_copies, width, lo, hi, first_copy, copy, slots, values)
}

static inline void blur(int width, int64_t lo, int64_t hi, const int32_t *before, const int32_t *after, float *in,
                        float *out) {
    CHOOSE(blur, width, lo, hi, before, after, in, out)
}

static inline void step(int width, int64_t pixels, const float *unary, const Message *message, int kernels, int sliced,
                        int splats, float *q, float *scale) {
    CHOOSE(step, width, pixels, unary, message, kernels, sliced, splats, q, scale)
}

#endif
