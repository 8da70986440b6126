/* The gap delta = log L - log B of the three models, its slope in the linear predictor, and the log likelihood itself
 * (docs/math.md 4.1, 4.2). Lane by lane; included once for every instruction set (every_isa.h).
 *
 * Gaps are differences of terms of order one: the absolute error is some 1e-16 times the largest term. Rounding below 0
 * is clamped. A row whose gap is 0 (below 1e-300) is never bright.
 */
#define LEAST_GAP 1e-300

/* exp(x) for x <= 0; e^-708 below -708. *rest = 1 - exp(x), to full relative precision. x = n log 2 + r, |r| <=
 * log(2)/2, Taylor's series of e^r - 1 (terms left out: below 1e-17) in Estrin's order. */
ALWAYS_INLINE vd FN(decay)(vd x, vd *rest) {
    x = SELECT(x > SPREAD(-708.0), x, SPREAD(-708.0));
    vd t = x * 1.4426950408889634074 + 0x1.8p52, n = t - 0x1.8p52;
    vd r = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6, r2 = r * r, r4 = r2 * r2;
    vd low = (0.5 + r * (1.0 / 6)) + r2 * (1.0 / 24 + r * (1.0 / 120));
    vd middle = (1.0 / 720 + r * (1.0 / 5040)) + r2 * (1.0 / 40320 + r * (1.0 / 362880));
    vd high = (1.0 / 3628800 + r * (1.0 / 39916800)) + r2 * (1.0 / 479001600 + r * (1.0 / 6227020800));
    vd power = (vd)(((vul)t + 1023) << 52);
    vd p = power * (r + r2 * (low + r4 * (middle + r4 * high)));
    *rest = (1.0 - power) - p;
    return power + p;
}

/* u - log(1 + u) for u > -1, to full relative precision; NaN for infinity. 1 + u = 2^k (1 + f), s = f / (2 + f): f -
 * log(1 + f) = s (f - R(s^2)), the polynomial of DEFINE_LOG. */
ALWAYS_INLINE vd FN(above_log1p)(vd u) {
    vul t = (vul)(u + 1.0) + (0x3ff0000000000000ull - 0x3fe6a09e667f3bcdull);
    vd k = (vd)((t >> 52) | 0x4330000000000000ull) - (4503599627370496.0 + 1023.0);
    vd f = (vd)((t & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull) - 1.0;
    f = SELECT(k == 0.0, u, f);
    vd s = f / (f + 2.0), z = s * s, w = z * z;
    vd odd = w * (w * 1.531383769920937332e-01 + 2.222219843214978396e-01) + 3.999999999940941908e-01;
    vd even = w * (w * (w * 1.479819860511658591e-01 + 1.818357216161805012e-01) + 2.857142874366239149e-01)
              + 6.666666666666735130e-01;
    return (((u - f) - k * 6.93147180559945309417e-01) + s * (f - z * (z * odd + even))) + (u - u);
}

ALWAYS_INLINE vd FN(clamp)(vd gap) { return SELECT(gap > SPREAD(LEAST_GAP), gap, SPREAD(0.0)); }
ALWAYS_INLINE vd FN(size_of)(vd x) { return (vd)((vul)x & 0x7fffffffffffffffull); }
ALWAYS_INLINE vd FN(with_sign)(vd x, vd sign) { return (vd)((vul)x | ((vul)sign & 0x8000000000000000ull)); }

/* log 2 cosh(s/2); *slope its derivative, tanh(s/2)/2 */
ALWAYS_INLINE vd FN(log_two_cosh)(vd s, vd *slope) {
    vd size = FN(size_of)(s), rest, e = FN(decay)(-size, &rest);
    *slope = FN(with_sign)(0.5 * rest / (1.0 + e), s);
    return 0.5 * size + vlog(1.0 + e);
}

/* log L~ = log(e^gap - 1), -infinity for a gap of 0; *weight = 1 / (1 - e^-gap), the factor from slopes of the gap to
 * slopes of log L~ */
ALWAYS_INLINE vd FN(log_brightness)(vd gap, vd *weight) {
    vd rest;
    FN(decay)(-gap, &rest);
    *weight = 1.0 / rest;
    return SELECT(gap > SPREAD(0.0), gap + vlog(rest), SPREAD(-INFINITY));
}

/* ---- eight rows: eta (K, 8) linear predictors in, slopes (K, 8) in eta out; bounds and y by row ---- */

typedef struct { /* pointers to eight rows; if there are fewer, the first one is repeated */
    const float *x[8];
    const double *bounds[8];
    double y[8];
} FN(eight);
#define eight_t FN(eight)

#define EACH_LANE(j) for (int j = 0; j < 8; j += N_DOUBLE)
#define LANES(p) (*(vd *)(p))
#define LOOSE(p) (*(const FN(vd_loose) *)(p))

ALWAYS_INLINE vd FN(column)(const eight_t *rows, int64_t b, int j) {
    vd v;
    for (int i = 0; i < N_DOUBLE; i++) v[i] = rows->bounds[j + i][b];
    return v;
}

ALWAYS_INLINE void FN(gaps_logistic)(const eight_t *rows, const double *eta, double *gap, double *slope) {
    EACH_LANE(j) {
        vd s = LANES(eta + j), a = FN(column)(rows, 0, j), c = FN(column)(rows, 1, j), half_tanh;
        vd log_cosh = FN(log_two_cosh)(s, &half_tanh);
        LANES(gap + j) = FN(clamp)((-(a * (s * s)) - c) - log_cosh);
        LANES(slope + j) = -half_tanh - 2.0 * (a * s);
    }
}

ALWAYS_INLINE void FN(gaps_student)(const model_t *m, const eight_t *rows, const double *eta, double *gap,
                                    double *slope) {
    EACH_LANE(j) {
        vd r = LOOSE(rows->y + j) - LANES(eta + j), xi2 = FN(column)(rows, 0, j);
        vd scale = 1.0 / (m->nu_scale2 + xi2), u = (r * r - xi2) * scale;
        LANES(gap + j) = FN(clamp)(m->half_nu_plus_one * FN(above_log1p)(u));
        LANES(slope + j) = (-2.0 * m->half_nu_plus_one) * (u * (r * scale)) / (1.0 + u);
    }
}

/* log sum of exp(eta_k) over classes; p (K, 8) the probabilities */
ALWAYS_INLINE vd FN(log_sum)(int64_t n_classes, const double *eta, double *p, int j) {
    vd top = LANES(eta + j), total = SPREAD(0.0), rest;
    for (int64_t k = 1; k < n_classes; k++) {
        vd x = LANES(eta + 8 * k + j);
        top = SELECT(x > top, x, top);
    }
    for (int64_t k = 0; k < n_classes; k++) {
        vd e = FN(decay)(LANES(eta + 8 * k + j) - top, &rest);
        LANES(p + 8 * k + j) = e;
        total += e;
    }
    vd inverse = 1.0 / total;
    for (int64_t k = 0; k < n_classes; k++) LANES(p + 8 * k + j) *= inverse;
    return top + vlog(total);
}

/* bounds: log g_k, then g_k, the probabilities at the touching point. Boehning's bound depends on d = eta - log g up to
 * a constant, so log g serves as psi, and no g underflows below. */
ALWAYS_INLINE void FN(gaps_softmax)(const model_t *m, const eight_t *rows, const double *eta, double *gap,
                                    double *slope) {
    int64_t n_classes = m->n_classes;
    EACH_LANE(j) {
        vd lse = FN(log_sum)(n_classes, eta, slope, j), mean = SPREAD(0.0), along = SPREAD(0.0), squares = SPREAD(0.0);
        for (int64_t k = 0; k < n_classes; k++) {
            vd d = LANES(eta + 8 * k + j) - FN(column)(rows, k, j);
            mean += d;
            along += FN(column)(rows, n_classes + k, j) * d;
        }
        mean = mean / (double)n_classes;
        for (int64_t k = 0; k < n_classes; k++) {
            vd d = (LANES(eta + 8 * k + j) - FN(column)(rows, k, j)) - mean;
            squares += d * d;
            LANES(slope + 8 * k + j) = 0.5 * d - (LANES(slope + 8 * k + j) - FN(column)(rows, n_classes + k, j));
        }
        LANES(gap + j) = FN(clamp)(0.25 * squares - (lse - along));
    }
}

ALWAYS_INLINE void FN(gaps)(const model_t *m, const eight_t *rows, const double *eta, double *gap, double *slope) {
    if (m->likelihood == LOGISTIC) FN(gaps_logistic)(rows, eta, gap, slope);
    else if (m->likelihood == SOFTMAX) FN(gaps_softmax)(m, rows, eta, gap, slope);
    else FN(gaps_student)(m, rows, eta, gap, slope);
}

/* log L of eight rows */
ALWAYS_INLINE void FN(likelihoods)(const model_t *m, const eight_t *rows, const double *eta, double *value,
                                   double *slope) {
    int64_t n_classes = m->n_classes;
    EACH_LANE(j) {
        vd y = LOOSE(rows->y + j), s = LANES(eta + j);
        if (m->likelihood == LOGISTIC) {
            vd half_tanh, log_cosh = FN(log_two_cosh)(s, &half_tanh);
            LANES(value + j) = 0.5 * (y * s) - log_cosh;
            LANES(slope + j) = 0.5 * y - half_tanh;
        } else if (m->likelihood == STUDENT) {
            vd r = y - s, v = r * r / m->nu_scale2;
            LANES(value + j) = m->log_constant - m->half_nu_plus_one * (vlog(1.0 + v) + (v - v));
            LANES(slope + j) = (2.0 * m->half_nu_plus_one) * r / (m->nu_scale2 + r * r);
        } else {
            vd lse = FN(log_sum)(n_classes, eta, slope, j), own = SPREAD(0.0);
            for (int64_t k = 0; k < n_classes; k++) {
                vl is = (vl)(y == SPREAD((double)k));
                own = SELECT(is, LANES(eta + 8 * k + j), own);
                LANES(slope + 8 * k + j) = SELECT(is, SPREAD(1.0), SPREAD(0.0)) - LANES(slope + 8 * k + j);
            }
            LANES(value + j) = own - lse;
        }
    }
}

/* bounds (8, B) that are tight at eta */
ALWAYS_INLINE void FN(touch)(const model_t *m, const double *y, const double *eta, double *scratch, double *bounds) {
    int64_t n_bounds = m->n_bounds, n_classes = m->n_classes;
    EACH_LANE(j) {
        if (m->likelihood == LOGISTIC) {
            vd s = LANES(eta + j), xi = FN(size_of)(s), x2 = xi * xi, half_tanh, log_cosh;
            log_cosh = FN(log_two_cosh)(xi, &half_tanh);
            vd series = -0.125 * (1.0 - x2 * (1.0 / 12 - x2 * (1.0 / 120)));
            vd a = SELECT(xi < SPREAD(1e-3), series, half_tanh / (-2.0 * xi)), c = -(a * x2) - log_cosh;
            for (int i = 0; i < N_DOUBLE; i++) bounds[(j + i) * 2] = a[i], bounds[(j + i) * 2 + 1] = c[i];
        } else if (m->likelihood == STUDENT) {
            for (int i = 0; i < N_DOUBLE; i++) {
                double r = y[j + i] - eta[j + i];
                bounds[j + i] = r * r;
            }
        } else {
            vd lse = FN(log_sum)(n_classes, eta, scratch, j);
            for (int64_t k = 0; k < n_classes; k++) {
                vd log_g = LANES(eta + 8 * k + j) - lse;
                for (int i = 0; i < N_DOUBLE; i++) {
                    bounds[(j + i) * n_bounds + k] = log_g[i];
                    bounds[(j + i) * n_bounds + n_classes + k] = scratch[8 * k + j + i];
                }
            }
        }
    }
}
