/* Users of a factorization, eight at a time, for one instruction set (every_isa.h).
 *
 * A rating costs a row of the items' table, and a row of their sums, both prefetched. Users are lanes while they are
 * solved; sums over ratings are added one by one. So no bit depends on the vectors' width.
 */
#include "lanes.h"
#define AT(p, i) (*(vd *)((p) + (i) * LANES + h))
#define LOOSE(p) (*(FN(vd_loose) *)(p))

/* --- lanes: h is the first of N_DOUBLE of them -------------------------------------------------------------------- */

/* L D L' of packed matrices: unit L below the diagonal of `root`, 1 / D on it. Mask of the positive definite ones. */
ALWAYS_INLINE vl FN(factor)(int64_t D, const double *a, double *root, double *row, int h) {
    vl sound = (vl)(SPREAD(0.0) == 0.0);
    for (int64_t i = 0; i < D; i++) {
        for (int64_t j = 0; j < i; j++) {
            vd sum = AT(a, TRIANGLE(i, j));
            for (int64_t k = 0; k < j; k++) sum -= AT(row, k) * AT(root, TRIANGLE(j, k));
            AT(row, j) = sum;
        }
        vd d = AT(a, TRIANGLE(i, i));
        for (int64_t j = 0; j < i; j++) {
            vd l = AT(row, j) * AT(root, TRIANGLE(j, j));
            d -= l * AT(row, j);
            AT(root, TRIANGLE(i, j)) = l;
        }
        sound &= (vl)(d > 0.0);
        AT(root, TRIANGLE(i, i)) = 1.0 / d;
    }
    return sound;
}

/* L^-1 h in `row`; returns h' A^-1 h */
ALWAYS_INLINE vd FN(half_solve)(int64_t D, const double *root, const double *linear, double *row, int h) {
    vd square = SPREAD(0.0);
    for (int64_t i = 0; i < D; i++) {
        vd sum = AT(linear, i);
        for (int64_t j = 0; j < i; j++) sum -= AT(root, TRIANGLE(i, j)) * AT(row, j);
        AT(row, i) = sum;
        square += sum * sum * AT(root, TRIANGLE(i, i));
    }
    return square;
}

ALWAYS_INLINE vd FN(log_det)(int64_t D, const double *root, int h) {
    vd sum = SPREAD(0.0);
    for (int64_t i = 0; i < D; i++) sum -= vlog(AT(root, TRIANGLE(i, i)));
    return sum;
}

/* mean and covariance from a factor, and `row` from half_solve */
ALWAYS_INLINE void FN(invert)(int64_t D, const double *root, const double *row, double *inverse, double *mean,
                              double *covariance, int h) {
    for (int64_t i = 0; i < D; i++)
        for (int64_t j = 0; j < i; j++) {
            vd sum = -AT(root, TRIANGLE(i, j));
            for (int64_t k = j + 1; k < i; k++) sum -= AT(root, TRIANGLE(i, k)) * AT(inverse, TRIANGLE(k, j));
            AT(inverse, TRIANGLE(i, j)) = sum;
        }
    for (int64_t i = D - 1; i >= 0; i--) {
        vd sum = AT(row, i) * AT(root, TRIANGLE(i, i));
        for (int64_t k = i + 1; k < D; k++) sum -= AT(root, TRIANGLE(k, i)) * AT(mean, k);
        AT(mean, i) = sum;
    }
    for (int64_t i = 0; i < D; i++)
        for (int64_t j = 0; j <= i; j++) {
            vd first = AT(root, TRIANGLE(i, i));
            vd sum = first;
            if (j < i) sum *= AT(inverse, TRIANGLE(i, j));
            for (int64_t k = i + 1; k < D; k++)
                sum += AT(inverse, TRIANGLE(k, i)) * AT(root, TRIANGLE(k, k)) * AT(inverse, TRIANGLE(k, j));
            AT(covariance, TRIANGLE(i, j)) = sum;
        }
}

ALWAYS_INLINE vl FN(holds)(int64_t D, const double *sure, const double *noise, vd share, double *tried, double *root,
                           double *row, int h) {
    for (int64_t k = 0; k < TRIANGLE(D, 0); k++) AT(tried, k) = (1.0 - KEPT) * AT(sure, k) + share * AT(noise, k);
    return FN(factor)(D, tried, root, row, h);
}

/* The largest share <= 1 of the noise that leaves sure + share noise - KEPT sure positive definite, within 2^-HALVINGS
 * from below. */
ALWAYS_INLINE vd FN(share)(int64_t D, const double *sure, const double *noise, double *tried, double *root, double *row,
                           int h) {
    vl whole = FN(holds)(D, sure, noise, SPREAD(1.0), tried, root, row, h);
    if (!FN(any)(~whole)) return SPREAD(1.0);
    vd low = SPREAD(0.0), high = SPREAD(1.0);
    for (int i = 0; i < HALVINGS; i++) {
        vd middle = 0.5 * (low + high);
        vl sound = FN(holds)(D, sure, noise, middle, tried, root, row, h);
        low = SELECT(sound, middle, low);
        high = SELECT(sound, high, middle);
    }
    return SELECT(whole, SPREAD(1.0), low);
}

/* --- ratings ------------------------------------------------------------------------------------------------------ */

/* Sums of items' rows over a user's ratings, the second zone times the rating; `more`: these times `numbers`. */
ALWAYS_INLINE void FN(gather)(const int once, const int times, const int noisy, const pass_t *p, const int32_t *columns,
                              const float *values, int64_t n, int64_t there, const double *numbers, double *into,
                              double *scalar) {
    const int width = once + times, last = width / N_DOUBLE, cut = once / N_DOUBLE;
    const double *table = p->table;
    double sum_r = 0, square = 0, sum_e = 0, sum_er = 0;
    vd sum[WIDEST / N_DOUBLE], other[WIDEST / N_DOUBLE];
    _Pragma("GCC unroll 64") for (int k = 0; k < last; k++) sum[k] = SPREAD(0.0);
    if (noisy) _Pragma("GCC unroll 64") for (int k = 0; k < last; k++) other[k] = SPREAD(0.0);
    for (int64_t i = 0; i < n; i++) {
        const double *row = table + (int64_t)columns[i] * width;
        if (i + AHEAD < there) {
            const double *next = table + (int64_t)columns[i + AHEAD] * width;
            _Pragma("GCC unroll 16") for (int k = 0; k < width; k += 8) __builtin_prefetch(next + k);
        }
        double r = (double)values[i] - p->center;
        sum_r += r, square += r * r;
        if (!noisy) {
            _Pragma("GCC unroll 64") for (int k = 0; k < cut; k++) sum[k] += *(const vd *)(row + k * N_DOUBLE);
            _Pragma("GCC unroll 64") for (int k = cut; k < last; k++) sum[k] += *(const vd *)(row + k * N_DOUBLE) * r;
        } else {
            double e = numbers[i];
            sum_e += e, sum_er += e * r;
            _Pragma("GCC unroll 64") for (int k = 0; k < last; k++) {
                vd one = *(const vd *)(row + k * N_DOUBLE);
                if (k >= cut) one *= r;
                sum[k] += one, other[k] += one * e;
            }
        }
    }
    _Pragma("GCC unroll 64") for (int k = 0; k < last; k++) *(vd *)(into + k * N_DOUBLE) = sum[k];
    if (noisy)
        _Pragma("GCC unroll 64") for (int k = 0; k < last; k++) *(vd *)(into + width + k * N_DOUBLE) = other[k];
    scalar[0] = (double)n, scalar[LANES] = sum_r, scalar[2 * LANES] = square;
    scalar[3 * LANES] = sum_e, scalar[4 * LANES] = sum_er;
}

/* the same for any width: sums stay in memory */
static void FN(gather_any)(const pass_t *p, const int32_t *columns, const float *values, int64_t n, int64_t there,
                           const double *numbers, double *into, double *scalar) {
    const int64_t once = p->once, width = once + p->times;
    double sum_r = 0, square = 0, sum_e = 0, sum_er = 0;
    memset(into, 0, (size_t)(2 * width) * sizeof(double));
    for (int64_t i = 0; i < n; i++) {
        const double *row = p->table + (int64_t)columns[i] * width;
        if (i + AHEAD < there) {
            const double *next = p->table + (int64_t)columns[i + AHEAD] * width;
            for (int64_t k = 0; k < width; k += 8) __builtin_prefetch(next + k);
        }
        double r = (double)values[i] - p->center, e = numbers ? numbers[i] : 0.0;
        sum_r += r, square += r * r;
        if (numbers) sum_e += e, sum_er += e * r;
        for (int64_t k = 0; k < width; k += N_DOUBLE) {
            vd one = *(const vd *)(row + k);
            if (k >= once) one *= r;
            *(vd *)(into + k) += one;
            if (numbers) *(vd *)(into + width + k) += one * e;
        }
    }
    scalar[0] = (double)n, scalar[LANES] = sum_r, scalar[2 * LANES] = square;
    scalar[3 * LANES] = sum_e, scalar[4 * LANES] = sum_er;
}

/* Add a solved user to the sums of the rated items. */
ALWAYS_INLINE void FN(scatter)(const int once, const int times, const int noisy, const pass_t *p,
                               const int32_t *columns, const float *values, int64_t n, int64_t there,
                               const double *numbers, const double *value) {
    const int width = once + times, last = width / N_DOUBLE, cut = once / N_DOUBLE;
    for (int64_t i = 0; i < n; i++) {
        double *row = p->sums + (int64_t)columns[i] * width;
        double *other = noisy ? p->numbered + (int64_t)columns[i] * width : 0;
        if (i + AHEAD < there) {
            int64_t at = (int64_t)columns[i + AHEAD] * width;
            _Pragma("GCC unroll 16") for (int k = 0; k < width; k += 8) __builtin_prefetch(p->sums + at + k, 1);
            if (noisy)
                _Pragma("GCC unroll 16") for (int k = 0; k < width; k += 8) __builtin_prefetch(p->numbered + at + k, 1);
        }
        double r = (double)values[i] - p->center, e = noisy ? numbers[i] : 0.0;
        _Pragma("GCC unroll 64") for (int k = 0; k < last; k++) {
            vd one = *(const vd *)(value + k * N_DOUBLE);
            if (k >= cut) one = one * r - *(const vd *)(value + times + k * N_DOUBLE);
            LOOSE(row + k * N_DOUBLE) += one;
            if (noisy) LOOSE(other + k * N_DOUBLE) += one * e;
        }
    }
}

/* Widths with specialized loops: ranks 5, 10 and 20, without and with biases. */
#define OF_WIDTH(once_, times_)                                                                                        \
    if (p->once == once_ && p->times == times_) {                                                                      \
        if (numbers) FN(gather)(once_, times_, 1, p, columns, values, n, there, numbers, into, scalar);                \
        else FN(gather)(once_, times_, 0, p, columns, values, n, there, numbers, into, scalar);                        \
        return;                                                                                                        \
    }
APART void FN(gather_one)(const pass_t *p, const int32_t *columns, const float *values, int64_t n, int64_t there,
                          const double *numbers, double *into, double *scalar) {
    OF_WIDTH(16, 8)
    OF_WIDTH(32, 8)
    OF_WIDTH(56, 16)
    OF_WIDTH(80, 16)
    OF_WIDTH(216, 24)
    OF_WIDTH(256, 24)
    FN(gather_any)(p, columns, values, n, there, numbers, into, scalar);
}
#undef OF_WIDTH
#define OF_WIDTH(once_, times_)                                                                                        \
    if (p->into_once == once_ && p->into_times == times_) {                                                            \
        if (numbers) FN(scatter)(once_, times_, 1, p, columns, values, n, there, numbers, value);                      \
        else FN(scatter)(once_, times_, 0, p, columns, values, n, there, numbers, value);                              \
        return;                                                                                                        \
    }
APART void FN(scatter_one)(const pass_t *p, const int32_t *columns, const float *values, int64_t n, int64_t there,
                           const double *numbers, const double *value) {
    OF_WIDTH(16, 8)
    OF_WIDTH(24, 8)
    OF_WIDTH(56, 16)
    OF_WIDTH(72, 16)
    OF_WIDTH(216, 24)
    OF_WIDTH(232, 24)
    if (numbers)
        FN(scatter)((int)p->into_once, (int)p->into_times, 1, p, columns, values, n, there, numbers, value);
    else
        FN(scatter)((int)p->into_once, (int)p->into_times, 0, p, columns, values, n, there, numbers, value);
}
#undef OF_WIDTH

/* --- users --------------------------------------------------------------------------------------------------------- */

/* Convert sums over the rows of the table to G and h, the user's precision and linear term divided by the ratings'
 * sharpness; returns the squares for the bound. With biases the last of x is 1, and the table has other entries in its
 * place (factors.pyx). */
ALWAYS_INLINE void FN(collect)(const pass_t *p, const double *from, const double *scalar, int numbered, double *into,
                               double *squares) {
    const int64_t D = p->D, T = TRIANGLE(D, 0), width = p->once + p->times;
    for (int64_t u = 0; u < LANES; u++) {
        const double *row = from + (2 * u + numbered) * width, *x = row + p->once;
        double count = scalar[(numbered ? 3 : 0) * LANES + u], rated = scalar[(numbered ? 4 : 1) * LANES + u];
        for (int64_t k = 0; k < T; k++) into[k * LANES + u] = row[k];
        if (!p->biased) {
            for (int64_t k = 0; k < D; k++) into[(T + k) * LANES + u] = x[k];
            if (squares) squares[u] = scalar[2 * LANES + u];
        } else {
            for (int64_t k = 0; k < D; k++) into[(T + k) * LANES + u] = (k < D - 1 ? x[k] : rated) - row[T + k];
            if (squares) squares[u] = (scalar[2 * LANES + u] - 2.0 * x[D - 1]) + row[T - 1];
            into[(T - 1) * LANES + u] = count;
        }
    }
}

/* Add users with ratings to the sums over users: moments, and the residual squares of their ratings. */
ALWAYS_INLINE void FN(tally)(const pass_t *p, factor_scratch_t *s, int h) {
    const int64_t D = p->D, T = TRIANGLE(D, 0), W = T + D;
    vd there = AT(s->scalar, 6), left = AT(s->scalar, 5);
    for (int64_t i = 0; i < D; i++) {
        vd m = AT(s->mean, i);
        for (int64_t j = 0; j <= i; j++) {
            vd second = AT(s->covariance, TRIANGLE(i, j)) + m * AT(s->mean, j);
            vd part = second * AT(s->plain, TRIANGLE(i, j));
            AT(s->total, TRIANGLE(i, j)) += there * second;
            left += part;
            if (j < i) left += part;
        }
        left -= 2.0 * m * AT(s->plain, T + i);
        AT(s->total, T + i) += there * m;
    }
    AT(s->total, W) += there * left;
    AT(s->total, W + 2) += there * AT(s->scalar, 0);
    AT(s->total, W + 3) += there;
}

/* The users' step, in lanes: from `plain` and `noise` to means and covariances. */
APART void FN(solve)(const pass_t *p, const int64_t *user, factor_scratch_t *s) {
    const int64_t D = p->D, T = TRIANGLE(D, 0), W = T + D;
    const int stepped = p->old != 0 || p->numbers != 0;
    if (p->old)
        for (int64_t u = 0; u < LANES; u++)
            for (int64_t k = 0; k < W; k++) s->sure[k * LANES + u] = p->old[user[u] * W + k];
    for (int h = 0; h < LANES; h += N_DOUBLE) {
        vd there = AT(s->scalar, 6);
        for (int64_t k = 0; k < W; k++) AT(s->target, k) = p->prior[k] + p->sharpness * AT(s->plain, k);
        FN(factor)(D, s->target, s->root, s->row, h);
        vd square = FN(half_solve)(D, s->root, s->target + T * LANES, s->row, h);
        vd bound = 0.5 * ((square - FN(log_det)(D, s->root, h)) - p->sharpness * AT(s->scalar, 5));
        AT(s->total, W + 1) += bound * there;
        FN(invert)(D, s->root, s->row, s->inverse, s->mean, s->covariance, h);
        FN(tally)(p, s, h);
        if (stepped) {
            for (int64_t k = 0; k < W; k++) {
                vd target = AT(s->target, k);
                if (p->old) target = (1.0 - p->rate) * AT(s->sure, k) + p->rate * target;
                AT(s->sure, k) = target;
            }
            if (p->numbers) {
                vd count = AT(s->scalar, 0), average = SPREAD(p->average), spread = SPREAD(p->spread);
                if (p->effective > 0) {
                    vd excess = count / p->effective - 1.0;
                    vl more = (vl)(excess > 0.0);
                    average = (vd)((vl)(AT(s->scalar, 3) / count) & more);
                    spread = SELECT(more, excess, SPREAD(0.0));
                    double root[N_DOUBLE];
                    LOOSE(root) = spread;
                    for (int l = 0; l < N_DOUBLE; l++) root[l] = sqrt(root[l]);
                    spread = LOOSE(root);
                }
                vd by = p->rate * p->sharpness * spread;
                for (int64_t k = 0; k < W; k++)
                    AT(s->noise, k) = by * (AT(s->noise, k) - average * AT(s->plain, k));
                vd share = SPREAD(1.0);
                if (p->guard) share = FN(share)(D, s->sure, s->noise, s->tried, s->root, s->row, h);
                double held[N_DOUBLE], is[N_DOUBLE];
                LOOSE(held) = share, LOOSE(is) = there;
                for (int l = 0; l < N_DOUBLE; l++) s->held += held[l] < 1.0 && is[l] > 0;
                for (int64_t k = 0; k < W; k++) AT(s->sure, k) += share * AT(s->noise, k);
            }
            vl sound = FN(factor)(D, s->sure, s->root, s->row, h);
            double broken[N_DOUBLE];
            LOOSE(broken) = (vd)(~sound & (vl)(there > 0.0) & (vl)SPREAD(1.0));
            for (int l = 0; l < N_DOUBLE; l++) s->broken += broken[l] > 0;
            FN(half_solve)(D, s->root, s->sure + T * LANES, s->row, h);
            FN(invert)(D, s->root, s->row, s->inverse, s->mean, s->covariance, h);
        }
    }
}

/* A user's terms in the sums of a rated item: E zz', and r E z - E zb. */
ALWAYS_INLINE void FN(spell)(const pass_t *p, const factor_scratch_t *s, int64_t u, double *value) {
    const int64_t D = p->D, T = TRIANGLE(D, 0), d = p->biased ? D - 1 : D;
    double *slope = value + p->into_once, *less = slope + p->into_times;
    for (int64_t i = 0; i < d; i++) {
        double m = s->mean[i * LANES + u];
        for (int64_t j = 0; j <= i; j++)
            value[TRIANGLE(i, j)] = s->covariance[TRIANGLE(i, j) * LANES + u] + m * s->mean[j * LANES + u];
        slope[i] = m;
    }
    if (!p->biased) {
        value[T] = 1.0;
        return;
    }
    double b = s->mean[d * LANES + u];
    for (int64_t i = 0; i < d; i++) {
        value[TRIANGLE(d, i)] = slope[i];
        less[i] = s->covariance[TRIANGLE(d, i) * LANES + u] + slope[i] * b;
    }
    value[T - 1] = slope[d] = 1.0, less[d] = b;
}

static void FN(factor_pass)(const pass_t *p, const int64_t *starts, const int64_t *users, int64_t n,
                            const int32_t *columns, const float *values, factor_scratch_t *s) {
    const int64_t D = p->D, T = TRIANGLE(D, 0), W = T + D, width = p->once + p->times;
    int64_t at = 0; /* position in `numbers` */
    for (int64_t first = 0; first < n; first += LANES) {
        int64_t user[LANES], from[LANES];
        for (int64_t u = 0; u < LANES; u++) {
            int64_t here = first + u < n, i = here ? first + u : n - 1;
            user[u] = users ? users[i] : i, from[u] = at;
            int64_t start = starts[user[u]], count = here ? starts[user[u] + 1] - start : 0;
            const double *numbers = p->numbers ? p->numbers + at : 0;
            s->scalar[6 * LANES + u] = (double)(here && count > 0);
            /* this user's rows are followed by the next one's */
            int64_t there = users ? count : starts[n] - start;
            FN(gather_one)(p, columns + start, values + start, count, there, numbers, s->by_user + 2 * u * width,
                           s->scalar + u);
            at += count;
        }
        FN(collect)(p, s->by_user, s->scalar, 0, s->plain, s->scalar + 5 * LANES);
        if (p->numbers) FN(collect)(p, s->by_user, s->scalar, 1, s->noise, 0);
        FN(solve)(p, user, s);
        for (int64_t u = 0; u < LANES && first + u < n; u++) {
            if (p->fresh)
                for (int64_t k = 0; k < W; k++) p->fresh[user[u] * W + k] = s->sure[k * LANES + u];
            if (p->moments) {
                double *out = p->moments + (first + u) * W;
                for (int64_t k = 0; k < D; k++) out[k] = s->mean[k * LANES + u];
                for (int64_t k = 0; k < T; k++) out[D + k] = s->covariance[k * LANES + u];
            }
            if (!p->sums) continue;
            int64_t start = starts[user[u]], count = starts[user[u] + 1] - start;
            int64_t there = users ? count : starts[n] - start;
            FN(spell)(p, s, u, s->value);
            FN(scatter_one)(p, columns + start, values + start, count, there, p->numbers ? p->numbers + from[u] : 0,
                            s->value);
        }
    }
}

/* --- rows of precision (T) and linear term (D) --------------------------------------------------------------------- */

static void FN(load_lanes)(const double *rows, int64_t width, int64_t first, int64_t n, double *into) {
    for (int64_t u = 0; u < LANES; u++) {
        const double *row = rows + (first + u < n ? first + u : n - 1) * width;
        for (int64_t k = 0; k < width; k++) into[k * LANES + u] = row[k];
    }
}

static void FN(factor_moments)(int64_t D, const double *natural, int64_t n, double *moments, double *log_det,
                               factor_scratch_t *s) {
    const int64_t T = TRIANGLE(D, 0), W = T + D;
    for (int64_t first = 0; first < n; first += LANES) {
        FN(load_lanes)(natural, W, first, n, s->sure);
        for (int h = 0; h < LANES; h += N_DOUBLE) {
            vl sound = FN(factor)(D, s->sure, s->root, s->row, h);
            FN(half_solve)(D, s->root, s->sure + T * LANES, s->row, h);
            FN(invert)(D, s->root, s->row, s->inverse, s->mean, s->covariance, h);
            AT(s->scalar, 0) = SELECT(sound, FN(log_det)(D, s->root, h), SPREAD(NAN));
        }
        for (int64_t u = 0; u < LANES && first + u < n; u++) {
            double *out = moments + (first + u) * W;
            log_det[first + u] = s->scalar[u];
            for (int64_t k = 0; k < D; k++) out[k] = s->mean[k * LANES + u];
            for (int64_t k = 0; k < T; k++) out[D + k] = s->covariance[k * LANES + u];
        }
    }
}

static void FN(factor_shares)(int64_t D, const double *sure, const double *noise, int64_t n, double *share,
                              factor_scratch_t *s) {
    const int64_t T = TRIANGLE(D, 0);
    for (int64_t first = 0; first < n; first += LANES) {
        FN(load_lanes)(sure, T, first, n, s->sure);
        FN(load_lanes)(noise, T, first, n, s->noise);
        for (int h = 0; h < LANES; h += N_DOUBLE)
            AT(s->scalar, 0) = FN(share)(D, s->sure, s->noise, s->tried, s->root, s->row, h);
        for (int64_t u = 0; u < LANES && first + u < n; u++) share[first + u] = s->scalar[u];
    }
}
#undef AT
#undef LOOSE
#include "lanes_end.h"
