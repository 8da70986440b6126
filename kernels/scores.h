/* Scores of one row under many clusters: the inner loops. Included once for every instruction set (mixture.h).
 *
 * All functions add to out[0..n), n a multiple of 8 (categories: 16). Cost per row: one add per (column x cluster) for
 * categories, a few multiplications for reals and counts; in the tail about one logarithm a cell and cluster, one for
 * four reals where no cell is missing.
 */
#define ADD_BLOCK 32 /* columns summed in float32 before they go to the float64 score: keeps the error near 1e-5 */

/* out[k] += sum over columns of table[level[c]][k], for a tile of `vectors` * N_FLOAT clusters held in registers */
#define ADD_TILE(VECTORS)                                                                                              \
    do {                                                                                                               \
        for (int64_t c0 = 0; c0 < n_codes; c0 += ADD_BLOCK) {                                                          \
            int64_t c1 = c0 + ADD_BLOCK < n_codes ? c0 + ADD_BLOCK : n_codes;                                          \
            vf sum[VECTORS];                                                                                           \
            _Pragma("GCC unroll 16") for (int j = 0; j < VECTORS; j++) sum[j] = (vf){0};                               \
            for (int64_t c = c0; c < c1; c++) {                                                                        \
                const vf *t = (const vf *)(table + (int64_t)level[c] * stride + k);                                    \
                _Pragma("GCC unroll 16") for (int j = 0; j < VECTORS; j++) sum[j] += t[j];                             \
            }                                                                                                          \
            _Pragma("GCC unroll 16") for (int j = 0; j < VECTORS; j++) FN(widen_add)(out + k + j * N_FLOAT, sum[j]);   \
        }                                                                                                              \
    } while (0)

ALWAYS_INLINE void FN(widen_add)(double *out, vf x) {
    union { vf whole; vh half[2]; } u = {x};
    *(vd *)out += __builtin_convertvector(u.half[0], vd);
    *(vd *)(out + N_DOUBLE) += __builtin_convertvector(u.half[1], vd);
}

APART void FN(add_categories)(const float *table, int64_t stride, const int32_t *level, int64_t n_codes,
                              double *out, int64_t n) {
    int64_t k = 0;
    for (; k + MB_TILE <= n; k += MB_TILE) ADD_TILE(MB_TILE / N_FLOAT);
    for (; k < n; k += 16) ADD_TILE(16 / N_FLOAT);
}

/* normal columns under given parameters: constant - half_precision (x - location)^2 */
APART void FN(add_normal)(const instantiated_t *g, const work_t *w, double *out, int64_t n) {
    for (int64_t k = 0; k < n; k += 16) {
        vd sum[16 / N_DOUBLE];
        _Pragma("GCC unroll 8") for (int j = 0; j < 16 / N_DOUBLE; j++) sum[j] = ((const vd *)(out + k))[j];
        for (int64_t i = 0; i < w->n_real; i++) {
            int64_t at = (int64_t)w->real_c[i] * g->base + k;
            const vd *location = (const vd *)(g->location + at), *constant = (const vd *)(g->constant + at);
            const vd *half_precision = (const vd *)(g->half_precision + at);
            double x = w->real_x[i];
            _Pragma("GCC unroll 8") for (int j = 0; j < 16 / N_DOUBLE; j++) {
                vd d = x - location[j];
                sum[j] += constant[j] - half_precision[j] * (d * d);
            }
        }
        _Pragma("GCC unroll 8") for (int j = 0; j < 16 / N_DOUBLE; j++) ((vd *)(out + k))[j] = sum[j];
    }
}

/* counts under given rates: x log rate - rate - log x! */
APART void FN(add_poisson)(const instantiated_t *g, const work_t *w, double *out, int64_t n) {
    for (int64_t i = 0; i < w->n_tally; i++) {
        const double *log_rate = g->log_rate + (int64_t)w->tally_c[i] * g->base;
        const double *rate = g->rate + (int64_t)w->tally_c[i] * g->base;
        double x = w->tally_x[i], log_x = w->tally_log_factorial[i];
        for (int64_t k = 0; k < n; k += N_DOUBLE)
            *(vd *)(out + k) += (x * *(const vd *)(log_rate + k) - log_x) - *(const vd *)(rate + k);
    }
}

/* log density of Student t: constant - half log(1 + ((x - location) scale)^2). The square is capped at 1e300, so that a
 * row 1e150 scales away from every cluster still has finite scores. */
ALWAYS_INLINE vd FN(student)(double x, vd location, vd scale, vd half, vd constant) {
    vd d = (x - location) * scale;
    vd y = d * d;
    y = SELECT(y > 1e300, SPREAD(1e300), y);
    return constant - half * vlog(y + 1.0);
}

APART void FN(add_student)(const tail_t *t, const work_t *w, double *out, int64_t n) {
    for (int64_t i = 0; i < w->n_real; i++) {
        int64_t at = (int64_t)w->real_c[i] * t->capacity;
        const double *location = t->t_location + at, *scale = t->t_scale + at;
        const double *half = t->t_half + at, *constant = t->t_constant + at;
        double x = w->real_x[i];
        for (int64_t k = 0; k < n; k += N_DOUBLE)
            *(vd *)(out + k) += FN(student)(x, *(const vd *)(location + k), *(const vd *)(scale + k),
                                            *(const vd *)(half + k), *(const vd *)(constant + k));
    }
}

/* The same where every slot has one `half` for all its columns (no missing cells, one prior nu): sum of logarithms =
 * the logarithm of a product, taken 4 columns at a time; factors are capped at 1e75, 3e37 scales away. */
APART void FN(add_student_even)(const tail_t *t, const work_t *w, double *out, int64_t n) {
    for (int64_t k = 0; k < n; k += N_DOUBLE) {
        vd sum = *(vd *)(out + k), logs = SPREAD(0.0);
        for (int64_t i0 = 0; i0 < w->n_real; i0 += 4) {
            int64_t i1 = i0 + 4 < w->n_real ? i0 + 4 : w->n_real;
            vd product = SPREAD(1.0);
            for (int64_t i = i0; i < i1; i++) {
                int64_t at = (int64_t)w->real_c[i] * t->capacity + k;
                vd d = (w->real_x[i] - *(const vd *)(t->t_location + at)) * *(const vd *)(t->t_scale + at);
                vd y = d * d + 1.0;
                product *= SELECT(y > 1e75, SPREAD(1e75), y);
                sum += *(const vd *)(t->t_constant + at);
            }
            logs += vlog(product);
        }
        *(vd *)(out + k) = sum - *(const vd *)(t->t_half + (int64_t)w->real_c[0] * t->capacity + k) * logs;
    }
}

/* t - log(1 + t) for |t| <= 0.1 without cancellation: with s = t / (2 + t), log(1 + t) = 2 atanh s and t - 2 s = t s */
ALWAYS_INLINE vd FN(small_deviance)(vd t) {
    vd s = t / (t + 2.0), z = s * s;
    vd series = z * (z * (z * (z * (z * (2.0 / 13) + 2.0 / 11) + 2.0 / 9) + 2.0 / 7) + 2.0 / 5) + 2.0 / 3;
    return t * s - s * z * series;
}

/* log of the negative binomial probability of x, Gamma(a + x) / (Gamma(a) x!) p^a q^x with p = b / (b + 1), q = 1 - p.
 *
 * usual_count: 16 <= a + x < 1e7, log Gamma(a + x) by Stirling's series (its terms stay below 2e8, their rounding below
 * 1e-7); base = a log p - log Gamma(a). small_count: x < 16, log of the product a (a + 1) ... (a + x - 1).
 * large_count: Loader's saddle point form (2000, "Fast and accurate
 * computation of binomial probabilities"), which stays accurate for sums of any size: with N = a + x,
 *   a log(N p / a) + x log(N q / x) + 1/2 log(a / (N x 2 pi)) + rest(N) - rest(a) - rest(x),
 * rest being Stirling's remainder; e = N p - a = x - N q, and where a logarithm's argument is near 1 its linear part,
 * which cancels between the two terms, is left out of both. */
ALWAYS_INLINE vd FN(usual_count)(vd x, vd log_factorial, vd a, vd base, vd log_q) {
    vd total = a + x, i = 1.0 / total;
    vd log_gamma = ((total - 0.5) * vlog(total) - total) + (STIRLING_SERIES(i, i * i) + HALF_LOG_TWO_PI);
    return (log_gamma + base) + (x * log_q - log_factorial);
}
ALWAYS_INLINE vd FN(small_count)(vd x, double most, vd log_factorial, vd a, vd zero, vd log_q) {
    vd product = SPREAD(1.0);
    for (double j = 0; j < most; j += 1.0) product *= SELECT(x > j, a + j, SPREAD(1.0));
    return (vlog(product) + zero) + (x * log_q - log_factorial);
}
ALWAYS_INLINE vd FN(large_count)(vd x, vd saddle, vd a, vd b, vd log_p, vd remainder) {
    vd total = a + x, b1 = b + 1.0;
    vd e = (x * b - a) / b1;
    vd t1 = e / a, t2 = -e / x;
    vd log1 = vlog((total * b) / (b1 * a)), log2 = vlog(total / (b1 * x));
    vd part1 = SELECT((t1 > -0.1) & (t1 < 0.1), -a * FN(small_deviance)(t1), a * log1 - e);
    vd part2 = SELECT((t2 > -0.1) & (t2 < 0.1), -x * FN(small_deviance)(t2), x * log2 + e);
    vd i = 1.0 / total, z = i * i;
    return (part1 + part2) + 0.5 * (log_p - log1) + (STIRLING_SERIES(i, z) - remainder) + saddle;
}

APART void FN(add_negative_binomial)(const tail_t *t, const work_t *w, double *out,
                                                                  int64_t n) {
    for (int64_t i = 0; i < w->n_tally; i++) {
        int64_t at = (int64_t)w->tally_c[i] * t->capacity;
        const double *shape = t->nb_shape + at, *rate = t->nb_rate + at, *zero = t->nb_zero + at;
        const double *log_p = t->nb_log_p + at, *log_q = t->nb_log_q + at, *remainder = t->nb_remainder + at;
        const double *base = t->nb_base + at;
        double x = w->tally_x[i];
        vd xs = SPREAD(x), log_factorial = SPREAD(w->tally_log_factorial[i]), saddle = SPREAD(w->tally_saddle[i]);
        for (int64_t k = 0; k < n; k += N_DOUBLE) {
            vd a = *(const vd *)(shape + k);
            vd score = FN(usual_count)(xs, log_factorial, a, *(const vd *)(base + k), *(const vd *)(log_q + k));
            vl unusual = (a + x < 16.0) | (a + x >= 1e7);
            if (FN(any)(unusual)) {
                vd other = x < 16 ? FN(small_count)(xs, x, log_factorial, a, *(const vd *)(zero + k),
                                                    *(const vd *)(log_q + k))
                                  : FN(large_count)(xs, saddle, a, *(const vd *)(rate + k), *(const vd *)(log_p + k),
                                                    *(const vd *)(remainder + k));
                score = SELECT(unusual, other, score);
            }
            *(vd *)(out + k) += score;
        }
    }
}

/* scores of one row under the first `allowed` instantiated clusters; -infinity up to the next multiple of 16 */
static int64_t FN(score_instantiated)(const instantiated_t *g, const rows_t *rows, const work_t *w, int64_t allowed,
                                      double *out) {
    int64_t n = (allowed + 15) & ~(int64_t)15;
    for (int64_t k = 0; k < n; k += N_DOUBLE) *(vd *)(out + k) = *(const vd *)(g->log_weight + k);
    for (int64_t k = allowed; k < n; k++) out[k] = -INFINITY;
    FN(add_categories)(g->table, g->base, w->level, rows->n_codes, out, n);
    if (w->n_real) FN(add_normal)(g, w, out, n);
    if (w->n_tally) FN(add_poisson)(g, w, out, n);
    if (w->n_vector) FN(add_vectors)(g, rows, w, out, n);
    return n;
}

/* scores of one row, in no cluster, under slots 0..n-1: shift + log_size - norm + predictive. Slots from n_used on, a
 * multiple of 8, are vacant and stay at -infinity. */
static void FN(score_slots)(const tail_t *t, const rows_t *rows, const work_t *w, double shift, double *out, int64_t n,
                            int64_t n_used) {
    for (int64_t k = 0; k < n; k += N_DOUBLE)
        *(vd *)(out + k) = (*(const vd *)(t->log_size + k) - *(const vd *)(t->norm + k)) + shift;
    FN(add_categories)(t->table, t->capacity, w->level, rows->n_codes, out, n);
    if (w->n_real && t->n_uneven == 0) FN(add_student_even)(t, w, out, n_used);
    else if (w->n_real) FN(add_student)(t, w, out, n_used);
    if (w->n_tally) FN(add_negative_binomial)(t, w, out, n_used);
    if (w->n_vector) FN(add_vectors_student)(t, w, out, n_used);
}
