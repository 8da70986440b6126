/* Sides of a proposed split: every row of a group is given to side 0 or 1, independently, by log odds that are a sum
 * over its cells. One table look-up a categorical cell; sums in column order, in double precision.
 */
#ifndef MPIBAYES_SPLIT_H
#define MPIBAYES_SPLIT_H
#include "philox.h"
#include "special.h"

/* exp(x) for x <= 0, relative error below 1e-15; 0 below -708. x = n log 2 + r, |r| <= log(2)/2, Taylor's series. */
ALWAYS_INLINE double exp_negative(double x) {
    if (!(x > -708.0)) return 0.0;
    double n = (x * 1.4426950408889634074 + 0x1.8p52) - 0x1.8p52;
    double r = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6, p = 1.0 / 6227020800;
    static const double inverse_factorial[13] = {1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720,
        1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600};
    for (int i = 12; i >= 0; i--) p = p * r + inverse_factorial[i];
    return p * double_of_bits((uint64_t)((int64_t)n + 1023) << 52);
}

/* log of 1 / (1 + exp(-x)); NaN unless x is finite, so that a proposal with such odds is rejected */
ALWAYS_INLINE double log_logistic(double x) {
    double far = x < 0 ? x : -x, e = exp_negative(far);
    return (x < 0 ? x : 0.0) - log_positive(1.0 + e) + (x - x);
}

/* whether a uniform falls to the side of log odds x */
ALWAYS_INLINE int falls_to(double x, double u) {
    double e = exp_negative(x < 0 ? x : -x);
    return u * (1.0 + e) < (x < 0 ? e : 1.0);
}
#endif
