/* Exponentials that gcc inlines and vectorises with the loop around them: faster than libm's vector functions.

   exp(x) = 2^n exp(r) with n = round(x / ln 2) and r = x - n ln 2, |r| <= ln 2 / 2. A Taylor polynomial gives exp(r);
   n goes into the bits of the exponent. ln 2 has one constant, so the error of n ln 2 grows with |x|.

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
    double y = 1 + r * (1 + r * (1/2. + r * (1/6. + r * (1/24. + r * (1/120. + r * (1/720. + r * (1/5040.
             + r * (1/40320. + r * (1/362880. + r * (1/3628800. + r * (1/39916800.)))))))))));
    int64_t bits = ((int64_t)(int32_t)n + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return y * power;
}

static inline float exp_within_f(float x) {
    float n = rintf(x * 1.44269504f), r = x - n * 0.693147181f;
    float y = 1 + r * (1 + r * (1/2.f + r * (1/6.f + r * (1/24.f + r * (1/120.f + r * (1/720.f))))));
    int32_t bits = ((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return y * power;
}

#endif
