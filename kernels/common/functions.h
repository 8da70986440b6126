/* log Gamma of doubles, one at a time: the rational approximations of Cephes' lgam, as in SciPy's gammaln.
 *
 * The same operations in the same order, with the C library's logarithm: the same bits as SciPy on the same machine.
 */
#ifndef MPIBAYES_FUNCTIONS_H
#define MPIBAYES_FUNCTIONS_H
#include <math.h>

/* log Gamma(2 + x) = x P(x) / Q(x) for 0 <= x < 1; Q's first coefficient is 1 */
static const double near_two_p[6] = {-1.37825152569120859100e3, -3.88016315134637840924e4, -3.31612992738871184744e5,
    -1.16237097492762307383e6, -1.72173700820839662146e6, -8.53555664245765465627e5};
static const double near_two_q[6] = {-3.51815701436523470549e2, -1.70642106651881159223e4, -2.20528590553854454839e5,
    -1.13933444367982507207e6, -2.53252307177582951285e6, -2.01889141433532773231e6};
/* Stirling's remainder times x, in 1 / x^2, for 13 <= x < 1000 */
static const double stirling[5] = {8.11614167470508450300e-4, -5.95061904284301438324e-4, 7.93650340457716943945e-4,
    -2.77777777730099687205e-3, 8.33333333333331927722e-2};

static double polynomial(double x, double first, const double *rest, int n) {
    for (int i = 0; i < n; i++) first = first * x + rest[i];
    return first;
}

/* x >= 0, infinity or NaN */
static double log_gamma_of(double x) {
    double z = 1.0, p = 0.0, u = x;
    if (!isfinite(x)) return x;
    if (x < 13.0) {
        for (; u >= 3.0; z *= u) p -= 1.0, u = x + p;
        for (; u < 2.0; u = x + p) {
            if (u == 0.0) return INFINITY;
            z /= u, p += 1.0;
        }
        if (u == 2.0) return log(z);
        x += p - 2.0;
        p = x * polynomial(x, near_two_p[0], near_two_p + 1, 5) / polynomial(x, x + near_two_q[0], near_two_q + 1, 5);
        return log(z) + p;
    }
    if (x > 2.556348e305) return INFINITY;
    z = (x - 0.5) * log(x) - x + 0.91893853320467274178;
    if (x > 1e8) return z;
    p = 1.0 / (x * x);
    if (x < 1000.0) return z + polynomial(p, stirling[0], stirling + 1, 4) / x;
    return z + ((7.9365079365079365079365e-4 * p - 2.7777777777777777777778e-3) * p + 0.0833333333333333333333) / x;
}

#endif
