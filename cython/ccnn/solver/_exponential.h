/* Exponentials that gcc inlines and vectorises with the loop around them: faster than libm's vector functions.

   exp(x) = 2^n exp(r) with n = round(x / ln 2) and r = x - n ln 2, |r| <= ln 2 / 2. A polynomial gives exp(r): its
   values at Chebyshev's points are exact, and exp(0) is 1. n is added to the bits of the exponent. ln 2 has one constant,
   so the error of n ln 2 grows with |x|.

   largest relative error (tests/test_exponential.py)      with FMA    without
     exp_within,    -200 <= x <= 200                        2e-14       5e-14
     exp_within_f,   -80 <= x <= 80                         5e-7        5e-6

   Beyond these ranges the result is wrong. Callers clip their arguments. */
#ifndef CCNN_EXPONENTIAL_H
#define CCNN_EXPONENTIAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline double exp_within(double x) {
    double n = rint(x * 1.4426950408889634), r = x - n * 0.6931471805599453;
    double y = 1 + r * (1 + r * (0.5 + r * (0.16666666666648288 + r * (0.041666666666651355 + r * (0.008333333353729397
             + r * (0.0013888888905881542 + r * (1.9841208732536383e-4 + r * (2.4801536388690768e-5
             + r * (2.762511557828763e-6 + r * 2.761380686153829e-7)))))))));
#ifdef __AVX512DQ__
    int64_t power = (int64_t)n;             /* one instruction for eight of them */
#else
    int64_t power = (int64_t)(int32_t)n;
#endif
    uint64_t bits;
    memcpy(&bits, &y, sizeof y);
    bits += (uint64_t)power << 52;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static inline float exp_within_f(float x) {
    float n = rintf(x * 1.44269504f), r = x - n * 0.693147181f;
    float y = 1 + r * (1 + r * (0.5f + r * (0.16666577f + r * (0.041666555f + r * (0.008363179f + r * 0.0013926184f)))));
    uint32_t bits;
    memcpy(&bits, &y, sizeof y);
    bits += (uint32_t)(int32_t)n << 23;
    memcpy(&y, &bits, sizeof y);
    return y;
}

#endif
