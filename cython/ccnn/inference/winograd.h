/* 3 x 3 convolutions by Winograd's algorithm F(4 x 4, 3 x 3) (Lavin and Gray, "Fast algorithms for convolutional neural
 * networks", 2016): a tile of 4 x 4 outputs costs 36 multiplications per pair of channels instead of 144.
 *
 *     Y = A' [ (G g G') * (B' d B) ] A        d: 6 x 6 inputs, g: 3 x 3 weights, Y: 4 x 4 outputs, * per element
 *
 * Per element e of the 6 x 6, the sum over input channels is a product of matrices:
 *
 *     M[e] = V[e] U[e]        V: tiles x inputs, U: inputs x outputs, M: tiles x outputs
 *
 * The polynomials behind A, B and G are interpolated at 0, +-a, +-b and infinity, with a = sqrt(1/2) and b = sqrt(2):
 * rounding errors are smaller than with the usual 0, +-1, +-2.
 *
 * Images are rows x columns x channels, so that LANES channels of a pixel are one vector. U is four times as large as
 * the weights. It is made of them for one panel of outputs at a time: that takes less time than reading it from memory.
 */
#include <stddef.h>
#include <string.h>

#include "portable.h"

#if !HAS_VECTORS
#define LANES 1
#define ROWS 6
#elif defined(__AVX512F__)
#define LANES 16
#define ROWS 12             /* of a block of M in registers: ROWS x 2 vectors, of 32 */
#else
#define LANES 8
#define ROWS 6              /* of 16 */
#endif
#define PANEL (2 * LANES)   /* columns of that block: weights are stored in panels of so many outputs */

#define A 0.70710678118654752f
#define B 1.41421356237309505f

typedef VECTOR_OF(LANES, float) vec;

static inline vec positive(vec value)
{
#if HAS_VECTORS
    typedef VECTOR_OF(LANES, int) mask;
    return (vec)((mask)value & (mask)(value > 0));
#else
    return value > 0 ? value : 0;
#endif
}

/* M block of `rows` x PANEL = V rows (`rows` x n, `stride` apart) times a panel of U (n x PANEL) */
ALWAYS_INLINE void block_product(
    const int rows, const float *V, ptrdiff_t stride, const float *U, ptrdiff_t n, float *M, ptrdiff_t M_stride)
{
    vec sum[ROWS][2];
    for (int r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = (vec){0};
    for (ptrdiff_t k = 0; k < n; k++) {
        const vec u0 = *(const vec *)(U + k * PANEL), u1 = *(const vec *)(U + k * PANEL + LANES);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const float v = V[r * stride + k];
            sum[r][0] += v * u0;
            sum[r][1] += v * u1;
        }
    }
    for (int r = 0; r < rows; r++) {
        *(vec *)(M + r * M_stride) = sum[r][0];
        *(vec *)(M + r * M_stride + LANES) = sum[r][1];
    }
}

/* Columns of M (rows x PANEL, `M_stride` apart) = V (rows x inputs, `stride` apart) U (inputs x PANEL) */
static void product(ptrdiff_t rows, ptrdiff_t inputs, const float *V, ptrdiff_t stride, const float *U, float *M,
                    ptrdiff_t M_stride)
{
    ptrdiff_t r = 0;
    for (; r + ROWS <= rows; r += ROWS)
        block_product(ROWS, V + r * stride, stride, U, inputs, M + r * M_stride, M_stride);
    for (; r + ROWS / 3 <= rows; r += ROWS / 3)
        block_product(ROWS / 3, V + r * stride, stride, U, inputs, M + r * M_stride, M_stride);
    for (; r < rows; r++)
        block_product(1, V + r * stride, stride, U, inputs, M + r * M_stride, M_stride);
}

/* out = B' d, six values each, `step` vectors apart */
ALWAYS_INLINE void input_transform(const vec *d, vec *out, const int step)
{
    const vec d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step], d5 = d[5 * step];
    const vec even = d4 - 2 * d2, odd = A * (d3 - 2 * d1), far_even = d4 - 0.5f * d2, far_odd = B * (d3 - 0.5f * d1);
    out[0] = d0 - 2.5f * d2 + d4;
    out[step] = even + odd;
    out[2 * step] = even - odd;
    out[3 * step] = far_even + far_odd;
    out[4 * step] = far_even - far_odd;
    out[5 * step] = d1 - 2.5f * d3 + d5;
}

/* out = G g, six values of three, `step` vectors apart */
ALWAYS_INLINE void weight_transform(const vec *g, vec *out, const int step)
{
    const vec g0 = g[0], g1 = g[step], g2 = g[2 * step];
    const vec even = (g0 + 0.5f * g2) * (-2 / 3.f), odd = g1 * (-2 / 3.f * A);
    const vec far_even = (g0 + 2 * g2) * (1 / 6.f), far_odd = g1 * (1 / 6.f * B);
    out[0] = g0;
    out[step] = even + odd;
    out[2 * step] = even - odd;
    out[3 * step] = far_even + far_odd;
    out[4 * step] = far_even - far_odd;
    out[5 * step] = g2;
}

/* out = A' m, four values of six */
ALWAYS_INLINE void output_transform(const vec *m, vec *out, const int step)
{
    const vec m0 = m[0], m1 = m[step], m2 = m[2 * step], m3 = m[3 * step], m4 = m[4 * step], m5 = m[5 * step];
    const vec sum = m1 + m2, difference = A * (m1 - m2), far_sum = m3 + m4, far_difference = B * (m3 - m4);
    out[0] = m0 + sum + far_sum;
    out[step] = difference + far_difference;
    out[2 * step] = 0.5f * sum + 2 * far_sum;
    out[3 * step] = 0.5f * difference + 2 * far_difference + m5;
}

/* U (36 x inputs x PANEL) of a panel of weights (inputs x 9 x PANEL) */
static void transform_weights(const float *weights, ptrdiff_t inputs, float *U)
{
    for (ptrdiff_t k = 0; k < inputs; k++)
        for (int half = 0; half < PANEL; half += LANES) {
            vec g[9], rows[18], out[36];
            for (int e = 0; e < 9; e++)
                g[e] = *(const vec *)(weights + (9 * k + e) * PANEL + half);
            for (int j = 0; j < 3; j++)
                weight_transform(g + j, rows + j, 3);
            for (int i = 0; i < 6; i++)
                weight_transform(rows + 3 * i, out + 6 * i, 1);
            for (int e = 0; e < 36; e++)
                *(vec *)(U + (e * inputs + k) * PANEL + half) = out[e];
        }
}

/* Where a tile begins in the image, and its pixels' distance */
typedef struct { ptrdiff_t row, column, step; } tile_place;

/* V[e][channels] of one tile; `zeros` stands for pixels outside the image; elements are `apart` floats apart */
static void transform_tile(const float *x, ptrdiff_t height, ptrdiff_t width, ptrdiff_t channels, tile_place at,
                           const float *zeros, float *V, ptrdiff_t apart)
{
    const float *pixel[36];
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++) {
            const ptrdiff_t row = at.row + at.step * (i - 1), column = at.column + at.step * (j - 1);
            const int inside = row >= 0 && row < height && column >= 0 && column < width;
            pixel[6 * i + j] = inside ? x + (row * width + column) * channels : zeros;
        }
    for (ptrdiff_t c = 0; c < channels; c += LANES) {
        vec d[36];
        for (int e = 0; e < 36; e++)
            d[e] = *(const vec *)(pixel[e] + c);
        for (int j = 0; j < 6; j++)
            input_transform(d + j, d + j, 6);
        for (int i = 0; i < 6; i++)
            input_transform(d + 6 * i, d + 6 * i, 1);
        for (int e = 0; e < 36; e++)
            *(vec *)(V + e * apart + c) = d[e];
    }
}

/* The 4 x 4 pixels of y that a tile gives, as far as they are in the image: A' M A + bias, or 0 if less and `relu` */
static void place_tile(const float *M, ptrdiff_t apart, const float *bias, int relu, float *y, ptrdiff_t height,
                       ptrdiff_t width, ptrdiff_t channels, tile_place at)
{
    for (ptrdiff_t c = 0; c < channels; c += LANES) {
        const vec b = *(const vec *)(bias + c);
        vec m[36], half[24], out[16];
        for (int e = 0; e < 36; e++)
            m[e] = *(const vec *)(M + e * apart + c);
        for (int j = 0; j < 6; j++)
            output_transform(m + j, half + j, 6);
        for (int i = 0; i < 4; i++)
            output_transform(half + 6 * i, out + 4 * i, 1);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                const ptrdiff_t row = at.row + at.step * i, column = at.column + at.step * j;
                if (row < height && column < width) {
                    const vec value = out[4 * i + j] + b;
                    *(vec *)(y + (row * width + column) * channels + c) = relu ? positive(value) : value;
                }
            }
    }
}

/* One convolution: y (height x width x outputs) of x (height x width x inputs) */
typedef struct {
    const float *x, *weights, *bias;        /* weights: panels x inputs x 9 x PANEL */
    float *y;
    ptrdiff_t height, width, inputs, outputs, dilation;
    int relu;
    ptrdiff_t block;                /* tiles, or pixels, that are in work at the same time */
    const float *zeros;             /* `inputs` of them */
    float *U, *V, *M;               /* room for 36 x inputs x PANEL, 36 x block x V_STRIDE(inputs), 36 x block x outputs */
    tile_place *places;             /* room for `block` */
} convolution;

/* A stride that is a power of two would have all rows of V share a few lines of the cache. */
#define V_STRIDE(inputs) ((inputs) + LANES)

/* From V of `count` tiles to their pixels of y */
static void finish_tiles(const convolution *c, ptrdiff_t count)
{
    const ptrdiff_t stride = V_STRIDE(c->inputs);
    for (ptrdiff_t first = 0; first < c->outputs && count; first += PANEL) {
        transform_weights(c->weights + 9 * c->inputs * first, c->inputs, c->U);
        for (int e = 0; e < 36; e++)
            product(count, c->inputs, c->V + e * c->block * stride, stride, c->U + e * c->inputs * PANEL,
                    c->M + e * c->block * c->outputs + first, c->outputs);
    }
    for (ptrdiff_t t = 0; t < count; t++)
        place_tile(c->M + t * c->outputs, c->block * c->outputs, c->bias, c->relu, c->y, c->height, c->width,
                   c->outputs, c->places[t]);
}

/* 3 x 3, stride 1, zeros around the image, the kernel's pixels `dilation` apart. Pixels that are `dilation` apart are an
 * image of their own, with tiles of its own. */
static void winograd(const convolution *c)
{
    const ptrdiff_t stride = V_STRIDE(c->inputs), d = c->dilation;
    ptrdiff_t count = 0;
    for (ptrdiff_t top = 0; top < d; top++)
        for (ptrdiff_t left = 0; left < d; left++)
            for (ptrdiff_t row = top; row < c->height; row += 4 * d)
                for (ptrdiff_t column = left; column < c->width; column += 4 * d) {
                    c->places[count] = (tile_place){row, column, d};
                    transform_tile(c->x, c->height, c->width, c->inputs, c->places[count], c->zeros,
                                   c->V + count * stride, c->block * stride);
                    if (++count == c->block) {
                        finish_tiles(c, count);
                        count = 0;
                    }
                }
    finish_tiles(c, count);
}

/* The same for few input channels, by the sum itself: V is block x 9 inputs, and U the weights. */
static void direct(const convolution *c)
{
    const ptrdiff_t n = 9 * c->inputs, d = c->dilation, pixels = c->height * c->width;
    for (ptrdiff_t first = 0; first < pixels; first += c->block) {
        const ptrdiff_t count = pixels - first < c->block ? pixels - first : c->block;
        for (ptrdiff_t t = 0; t < count; t++) {
            const ptrdiff_t row = (first + t) / c->width, column = (first + t) % c->width;
            for (int k = 0; k < 9; k++) {
                const ptrdiff_t i = row + d * (k / 3 - 1), j = column + d * (k % 3 - 1);
                const int inside = i >= 0 && i < c->height && j >= 0 && j < c->width;
                const float *pixel = inside ? c->x + (i * c->width + j) * c->inputs : c->zeros;
                for (ptrdiff_t channel = 0; channel < c->inputs; channel++)
                    c->V[t * n + 9 * channel + k] = pixel[channel];
            }
        }
        float *y = c->y + first * c->outputs;
        for (ptrdiff_t panel = 0; panel < c->outputs; panel += PANEL)
            product(count, n, c->V, n, c->weights + n * panel, y + panel, c->outputs);
        for (ptrdiff_t t = 0; t < count; t++)
            for (ptrdiff_t channel = 0; channel < c->outputs; channel++) {
                const float value = y[t * c->outputs + channel] + c->bias[channel];
                y[t * c->outputs + channel] = c->relu && value < 0 ? 0 : value;
            }
    }
}

/* y (rows x columns x channels) = the largest of a window of kernel x kernel pixels of x, `stride` apart, from -pad on */
static void largest(const float *x, ptrdiff_t height, ptrdiff_t width, ptrdiff_t channels, ptrdiff_t kernel,
                    ptrdiff_t stride, ptrdiff_t pad, float *y, ptrdiff_t rows, ptrdiff_t columns)
{
    for (ptrdiff_t row = 0; row < rows; row++)
        for (ptrdiff_t column = 0; column < columns; column++, y += channels) {
            int any = 0;
            for (ptrdiff_t i = row * stride - pad; i < row * stride - pad + kernel; i++)
                for (ptrdiff_t j = column * stride - pad; j < column * stride - pad + kernel; j++)
                    if (i >= 0 && i < height && j >= 0 && j < width) {
                        const float *restrict pixel = x + (i * width + j) * channels;
                        float *restrict out = y;
                        if (!any)
                            memcpy(out, pixel, channels * sizeof(float));
                        else
                            for (ptrdiff_t c = 0; c < channels; c++)
                                out[c] = out[c] > pixel[c] ? out[c] : pixel[c];
                        any = 1;
                    }
        }
}
