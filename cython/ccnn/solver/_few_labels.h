/* The two loops over the pixels of a group, for a number of labels that the compiler knows: 2 to FEW.

   The loops over labels are then unrolled, the loop over pixels is vectorised, and what belongs to a pixel stays in
   registers. With more labels there are not enough registers, and the blocks of _label_pass.pyx are as fast. */
#ifndef CCNN_FEW_LABELS_H
#define CCNN_FEW_LABELS_H

#include <math.h>
#include <stddef.h>
#include "_exponential.h"
#include "portable.h"

#define FEW 6
#define STRETCH 512     /* pixels between two horizontal sums; their totals stay in the first-level cache */
#define FACTORS 16      /* totals multiplied before one logarithm: each is at most labels * exp(30), so 16 are finite */

/* mean += sum_i p_i,  cov -= sum_i p_i(l) p_i(m) for m < l unless it is NULL;  return sum_i log sum_l w_l E_li.
   p_i(l) = w_l E_li / sum_m w_m E_mi.  E: labels x size, size a multiple of FACTORS. */
ALWAYS_INLINE double pass_unrolled(const int labels, const double* restrict E, const double* restrict w, ptrdiff_t size,
                              double* restrict mean, double* restrict cov) {
    double total[STRETCH], logs = 0;
    for (ptrdiff_t start = 0; start < size; start += STRETCH) {
        const ptrdiff_t count = size - start < STRETCH ? size - start : STRETCH, part = count / FACTORS;
        double sum[FEW] = {0}, cross[FEW][FEW] = {{0}};
        for (ptrdiff_t i = 0; i < count; i++) {
            double p[FEW], t = 0;
            for (int l = 0; l < labels; l++) {
                p[l] = w[l] * E[l * size + start + i];
                t += p[l];
            }
            total[i] = t;
            t = 1 / t;
            for (int l = 0; l < labels; l++) {
                p[l] *= t;
                sum[l] += p[l];
                if (cov)
                    for (int m = 0; m < labels; m++)    /* a bound that the compiler knows: m < l is not unrolled */
                        if (m < l)
                            cross[l][m] += p[l] * p[m];
            }
        }
        for (int l = 0; l < labels; l++) {
            mean[l] += sum[l];
            if (cov)
                for (int m = 0; m < l; m++)
                    cov[l * labels + m] -= cross[l][m];
        }
        for (ptrdiff_t i = 0; i < part; i++) {
            double product = 1;
            for (int j = 0; j < FACTORS; j++)
                product *= total[j * part + i];
            logs += log(product);
        }
    }
    return logs;
}

/* E_li = exp(x_li - max_l x_li) with x_li = hardness * f_li + bias_l, no exponent below clip;  return sum_i max_l x_li.
   row[l] points to the scores of label l.  E: labels x stride; INDEPENDENT: it overlaps no scores. */
#define EXPONENTIATE(NAME, REAL)                                                                                        \
    ALWAYS_INLINE double NAME##_unrolled(const int labels, const REAL* const* row, double hardness, const double* bias,      \
                                    double clip, ptrdiff_t count, double* restrict E, ptrdiff_t stride) {               \
        double maxima = 0;                                                                                              \
        INDEPENDENT                                                                                                     \
        for (ptrdiff_t i = 0; i < count; i++) {                                                                         \
            double x[FEW], top = 0;                                                                                     \
            for (int l = 0; l < labels; l++) {                                                                          \
                x[l] = hardness * row[l][i] + bias[l];                                                                  \
                top = l && top > x[l] ? top : x[l];                                                                     \
            }                                                                                                           \
            maxima += top;                                                                                              \
            for (int l = 0; l < labels; l++) {                                                                          \
                x[l] -= top;                                                                                            \
                E[l * stride + i] = exp_within(x[l] > clip ? x[l] : clip);                                              \
            }                                                                                                           \
        }                                                                                                               \
        return maxima;                                                                                                  \
    }                                                                                                                   \
    static inline double NAME(int labels, const REAL* const* row, double hardness, const double* bias, double clip,     \
                       ptrdiff_t count, double* E, ptrdiff_t stride) {                                                  \
        switch (labels) {                                                                                               \
        case 2: return NAME##_unrolled(2, row, hardness, bias, clip, count, E, stride);                                 \
        case 3: return NAME##_unrolled(3, row, hardness, bias, clip, count, E, stride);                                 \
        case 4: return NAME##_unrolled(4, row, hardness, bias, clip, count, E, stride);                                 \
        case 5: return NAME##_unrolled(5, row, hardness, bias, clip, count, E, stride);                                 \
        default: return NAME##_unrolled(6, row, hardness, bias, clip, count, E, stride);                                \
        }                                                                                                               \
    }
EXPONENTIATE(exponentiate_few_f, float)
EXPONENTIATE(exponentiate_few, double)

#define PASS(LABELS)                                                                                                    \
    cov ? pass_unrolled(LABELS, E, w, size, mean, cov) : pass_unrolled(LABELS, E, w, size, mean, NULL)
static inline double pass_few(int labels, const double* E, const double* w, ptrdiff_t size, double* mean, double* cov) {
    switch (labels) {
    case 2: return PASS(2);
    case 3: return PASS(3);
    case 4: return PASS(4);
    case 5: return PASS(5);
    default: return PASS(6);
    }
}

#endif
