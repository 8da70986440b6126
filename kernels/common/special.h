/* Scalar special functions, and the logarithm's formula that scalars and vectors share.
 *
 * Own code instead of libm for two reasons: libm picks variants by processor, so its last bits differ between machines;
 * and the vector and scalar results have to agree. Only + - * / and bit patterns are used, each correctly rounded.
 */
#ifndef MPIBAYES_SPECIAL_H
#define MPIBAYES_SPECIAL_H
#include <math.h>
#include <stdint.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define APART static __attribute__((noinline)) /* not inlined, so that the loop has all the registers */
#define HALF_LOG_TWO_PI 0.91893853320467274178
#define LOG2_E 1.44269504088896340736
#define LOG_TWO 6.93147180559945309417e-01
#define LOG_PI 1.14472988584940017414

ALWAYS_INLINE uint64_t bits_of_double(double x) {
    union { double d; uint64_t u; } both = {x};
    return both.u;
}
ALWAYS_INLINE double double_of_bits(uint64_t u) {
    union { uint64_t u; double d; } both = {u};
    return both.d;
}

/* Natural logarithm of a positive normal number, within 2 ulp: x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), s =
 * f / (2 + f), log(1 + f) = 2 s + s R(s^2), R being the polynomial of fdlibm's e_log.c. D is the floating type, U the
 * unsigned integer type of the same shape; TO_U and TO_D reinterpret bits. 2^52 + exponent is the double whose low
 * mantissa bits are the exponent, which converts it without an instruction that older processors lack. Infinity and NaN
 * give finite results: callers must not pass them. */
#define DEFINE_LOG(NAME, D, U, TO_U, TO_D)                                                                             \
    ALWAYS_INLINE D NAME(D x) {                                                                                        \
        U t = TO_U(x) + (0x3ff0000000000000ull - 0x3fe6a09e667f3bcdull);                                               \
        D k = TO_D((t >> 52) | 0x4330000000000000ull) - (4503599627370496.0 + 1023.0);                                 \
        D f = TO_D((t & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull) - 1.0;                                         \
        D s = f / (f + 2.0), z = s * s, w = z * z;                                                                     \
        D odd = w * (w * 1.531383769920937332e-01 + 2.222219843214978396e-01) + 3.999999999940941908e-01;              \
        D even = w * (w * (w * 1.479819860511658591e-01 + 1.818357216161805012e-01) + 2.857142874366239149e-01)        \
                 + 6.666666666666735130e-01;                                                                           \
        return k * LOG_TWO + s * (z * (z * odd + even) + 2.0);                                      \
    }
DEFINE_LOG(log_finite, double, uint64_t, bits_of_double, double_of_bits)

/* the same, but NaN for infinity and NaN */
ALWAYS_INLINE double log_positive(double x) { return log_finite(x) + (x - x); }

/* log(x), with log(x <= 0) = -infinity: the weight of an impossible candidate */
ALWAYS_INLINE double log_or_never(double x) { return x > 0 ? log_positive(x) : -INFINITY; }

/* log(1 + 1/b), b > 0, without cancellation for large b: 2 atanh(1 / (2 b + 1)) */
static inline double log1p_inverse(double b) {
    if (b < 8) return log_positive((b + 1.0) / b);
    double s = 1.0 / (2.0 * b + 1.0), z = s * s; /* s <= 1/17: the first term left out is below 1e-18 */
    return 2.0 * s * (1.0 + z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11 + z / 13))))));
}

/* Stirling's series for log Gamma(y) - [(y - 1/2) log y - y + 1/2 log 2 pi], y >= 16 (next term below 1e-14) */
#define STIRLING_SERIES(y_inverse, z)                                                                                  \
    ((y_inverse) * ((z) * ((z) * ((z) * (-1.0 / 1680) + 1.0 / 1260) - 1.0 / 360) + 1.0 / 12))

/* the same remainder for any y > 0 */
static inline double stirling_remainder(double y) {
    double up = y, product = 1.0, i;
    if (y >= 16) {
        i = 1.0 / y;
        return STIRLING_SERIES(i, i * i);
    }
    while (up < 16) product *= up, up += 1.0; /* Gamma(y) = Gamma(up) / product */
    i = 1.0 / up;
    return ((up - 0.5) * log_positive(up) - up + STIRLING_SERIES(i, i * i)) - log_positive(product)
           - ((y - 0.5) * log_positive(y) - y);
}

/* log x! of a whole number x >= 0 */
static inline double log_factorial(double x) {
    double product = 1.0;
    if (x >= 16) {
        double i = 1.0 / x;
        return ((x + 0.5) * log_positive(x) - x) + (HALF_LOG_TWO_PI + STIRLING_SERIES(i, i * i));
    }
    for (double j = 2; j <= x; j += 1.0) product *= j;
    return log_positive(product);
}

/* Terms in the likelihood of a count x that are the same in every cluster: log x!, and for x >= 16 the part of Loader's
 * form that depends on x alone (scores.h). Counts are mostly small and these are needed for every cell, so the first
 * ones are cached; so are their scores in a new cluster (scores.h). */
#define N_COUNTS_KEPT 1024
typedef struct { double log_factorial, saddle; } count_t;
static count_t counts_kept[N_COUNTS_KEPT];

static inline count_t count_terms(double x) {
    count_t terms = {log_factorial(x), 0.0};
    if (x >= 16) {
        double i = 1.0 / x;
        terms.saddle = -0.5 * log_positive(x) - HALF_LOG_TWO_PI - STIRLING_SERIES(i, i * i);
    }
    return terms;
}
static inline void keep_counts(void) {
    for (int x = 0; x < N_COUNTS_KEPT; x++) counts_kept[x] = count_terms(x);
}
ALWAYS_INLINE count_t count_of(double x) { return x < N_COUNTS_KEPT ? counts_kept[(int)x] : count_terms(x); }

/* log Gamma(y + 1/2) - log Gamma(y), y > 0, by its asymptotic series at y + m >= 12 and the recurrence down */
static inline double log_gamma_half_step(double y) {
    double ratio = 1.0;
    while (y < 12) ratio *= (y + 0.5) / y, y += 1.0;
    double i = 1.0 / y, z = i * i;
    double series = i * (-1.0 / 8 + z * (1.0 / 192 + z * (-1.0 / 640 + z * (17.0 / 14336 - z * (31.0 / 18432)))));
    return 0.5 * log_positive(y) + (ratio == 1.0 ? series : series - log_positive(ratio));
}
/* exp(x) for x <= 0, relative error below 1e-15; 0 below -708. x = n log 2 + r, |r| <= log(2)/2, Taylor's series.
 * Adding 1.5 * 2^52 rounds to a whole number and leaves it in the low bits. Without branches: loops over it are vectors. */
ALWAYS_INLINE double exp_negative(double x) {
    double t = x * 1.4426950408889634074 + 0x1.8p52, n = t - 0x1.8p52;
    double r = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6, p = 1.0 / 6227020800;
    static const double inverse_factorial[13] = {1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720,
        1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600};
    for (int i = 12; i >= 0; i--) p = p * r + inverse_factorial[i];
    p *= double_of_bits((bits_of_double(t) + 1023) << 52);
    return double_of_bits(bits_of_double(p) & -(uint64_t)(x > -708.0));
}

#endif
