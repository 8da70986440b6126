/* Linear predictors and sums over rows. Included once for every instruction set (every_isa.h).
 *
 * A dot product has eight lanes (column mod 8, in column order) and the tree j + 4, + 2, + 1; a sum over rows has eight
 * lanes (row mod 8) and the same tree; a gradient adds rows in order. So no bit depends on the width of vectors.
 */
typedef float FN(vh_loose) __attribute__((vector_size(MB_BYTES / 2), aligned(4), may_alias)); /* N_DOUBLE floats */
#define vh_loose FN(vh_loose)
/* N_DOUBLE floats as doubles; the compiler's conversion takes three instructions more */
#if MB_BYTES == 64
#define WIDE(p) ((vd)_mm512_cvtps_pd(_mm256_loadu_ps(p)))
#elif MB_BYTES == 32
#define WIDE(p) ((vd)_mm256_cvtps_pd(_mm_loadu_ps(p)))
#else
#define WIDE(p) __builtin_convertvector(*(const vh_loose *)(p), vd)
#endif

#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vl){__VA_ARGS__})
#endif

/* theta' x of N_DOUBLE rows, side by side so that their sums stay in registers */
ALWAYS_INLINE vd FN(dot)(const float *const *x, const double *theta, int64_t width) {
    enum { PARTS = 8 / N_DOUBLE };
    vd lanes[N_DOUBLE][PARTS];
    _Pragma("GCC unroll 8") for (int r = 0; r < N_DOUBLE; r++)
        _Pragma("GCC unroll 4") for (int i = 0; i < PARTS; i++)
            lanes[r][i] = WIDE(x[r] + i * N_DOUBLE) * LANES(theta + i * N_DOUBLE);
    for (int64_t c = 8; c < width; c += 8)
        _Pragma("GCC unroll 8") for (int r = 0; r < N_DOUBLE; r++)
            _Pragma("GCC unroll 4") for (int i = 0; i < PARTS; i++)
                lanes[r][i] += WIDE(x[r] + c + i * N_DOUBLE) * LANES(theta + c + i * N_DOUBLE);
#if MB_BYTES == 64
    vd four[4], two[2];
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
        four[i] = SHUFFLE(lanes[i][0], lanes[i + 4][0], 0, 1, 2, 3, 8, 9, 10, 11)
                  + SHUFFLE(lanes[i][0], lanes[i + 4][0], 4, 5, 6, 7, 12, 13, 14, 15);
    _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++)
        two[i] = SHUFFLE(four[i], four[i + 2], 0, 1, 8, 9, 4, 5, 12, 13)
                 + SHUFFLE(four[i], four[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    return SHUFFLE(two[0], two[1], 0, 8, 2, 10, 4, 12, 6, 14) + SHUFFLE(two[0], two[1], 1, 9, 3, 11, 5, 13, 7, 15);
#elif MB_BYTES == 32
    vd four[4], two[2];
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) four[i] = lanes[i][0] + lanes[i][1];
    _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++)
        two[i] = SHUFFLE(four[i], four[i + 2], 0, 1, 4, 5) + SHUFFLE(four[i], four[i + 2], 2, 3, 6, 7);
    return SHUFFLE(two[0], two[1], 0, 4, 2, 6) + SHUFFLE(two[0], two[1], 1, 5, 3, 7);
#else
    vd two[2];
    _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++)
        two[i] = (lanes[i][0] + lanes[i][2]) + (lanes[i][1] + lanes[i][3]);
    return SHUFFLE(two[0], two[1], 0, 2) + SHUFFLE(two[0], two[1], 1, 3);
#endif
}

/* eta (K, 8) = theta (K, W) times eight rows */
ALWAYS_INLINE void FN(dots)(const model_t *m, const eight_t *rows, const double *theta, double *eta) {
    for (int64_t k = 0; k < m->n_classes; k++, theta += m->width, eta += 8)
        EACH_LANE(j) LANES(eta + j) = FN(dot)(rows->x + j, theta, m->width);
}

/* Point to rows i..i+7 of a block, as far as they exist; returns their number. */
ALWAYS_INLINE int64_t FN(take_eight)(const model_t *m, const block_t *b, int64_t i, eight_t *rows) {
    int64_t n = b->n - i < 8 ? b->n - i : 8;
    for (int64_t r = 0; r < 8; r++) {
        int64_t at = r < n ? i + r : i;
        rows->x[r] = b->x + at * m->width;
        rows->bounds[r] = b->bounds + at * m->n_bounds;
        rows->y[r] = b->y[at];
    }
    return n;
}

/* gradient (K, W) += sum over rows of slope (K, 8) x', in row order; slopes of absent rows are 0 */
ALWAYS_INLINE void FN(add_rows)(const model_t *m, const eight_t *rows, const double *slope, double *gradient) {
    for (int64_t k = 0; k < m->n_classes; k++, slope += 8, gradient += m->width)
        for (int64_t c = 0; c < m->width; c += N_DOUBLE) {
            vd sum = LANES(gradient + c);
            _Pragma("GCC unroll 8") for (int r = 0; r < 8; r++) sum += slope[r] * WIDE(rows->x[r] + c);
            LANES(gradient + c) = sum;
        }
}

ALWAYS_INLINE double FN(tree_sum)(const double lane[8]) {
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* Sum over a block of log L~ (gaps to `gap`), or of log L if `full`. gradient (K, W), if any, is added to. scratch: see
 * rows_scratch. Groups of eight rows go through each stage together, so that the processor overlaps several of the long
 * dependency chains of a gap. */
ALWAYS_INLINE double FN(sum_of)(const model_t *m, const block_t *b, const double *theta, int full, double *gap,
                                double *gradient, double *scratch) {
    int64_t size = 8 * m->n_classes;
    double *eta = scratch, *slope = scratch + GROUPS * size;
    double total[8] __attribute__((aligned(64))) = {0}, value[GROUPS][8] __attribute__((aligned(64)));
    for (int64_t i = 0; i < b->n; i += 8 * GROUPS) {
        eight_t rows[GROUPS];
        int64_t left = b->n - i, groups = left < 8 * GROUPS ? (left + 7) / 8 : GROUPS;
        for (int64_t g = 0; g < groups; g++) {
            FN(take_eight)(m, b, i + 8 * g, &rows[g]);
            FN(dots)(m, &rows[g], theta, eta + g * size);
        }
        for (int64_t g = 0; g < groups; g++) {
            if (full) FN(likelihoods)(m, &rows[g], eta + g * size, value[g], slope + g * size);
            else FN(gaps)(m, &rows[g], eta + g * size, value[g], slope + g * size);
        }
        if (!full) {
            memcpy(gap + i, value[0], 8 * (size_t)(left < 8 * GROUPS ? left : 8 * GROUPS));
            for (int64_t g = 0; g < groups; g++) EACH_LANE(j) {
                vd weight;
                LANES(value[g] + j) = FN(log_brightness)(LANES(value[g] + j), &weight);
                for (int64_t k = 0; k < m->n_classes; k++) LANES(slope + g * size + 8 * k + j) *= weight;
            }
        }
        if (left < 8 * groups)
            for (int64_t r = left - 8 * (groups - 1); r < 8; r++) { /* absent rows */
                value[groups - 1][r] = 0;
                for (int64_t k = 0; k < m->n_classes; k++) slope[(groups - 1) * size + 8 * k + r] = 0;
            }
        for (int64_t g = 0; g < groups; g++) {
            EACH_LANE(j) LANES(total + j) += LANES(value[g] + j);
            if (gradient) FN(add_rows)(m, &rows[g], slope + g * size, gradient);
        }
    }
    return FN(tree_sum)(total);
}

static double FN(bright_sum)(const model_t *m, const block_t *b, const double *theta, double *gap, double *gradient,
                             double *scratch) {
    return FN(sum_of)(m, b, theta, 0, gap, gradient, scratch);
}
static double FN(likelihood_sum)(const model_t *m, const block_t *b, const double *theta, double *gradient,
                                 double *scratch) {
    return FN(sum_of)(m, b, theta, 1, NULL, gradient, scratch);
}

/* gap (n,) of every row of a block */
static void FN(all_gaps)(const model_t *m, const block_t *b, const double *theta, double *gap, double *scratch) {
    double value[8] __attribute__((aligned(64)));
    for (int64_t i = 0; i < b->n; i += 8) {
        eight_t rows;
        int64_t n = FN(take_eight)(m, b, i, &rows);
        FN(dots)(m, &rows, theta, scratch);
        FN(gaps)(m, &rows, scratch, value, scratch + 8 * m->n_classes);
        memcpy(gap + i, value, 8 * (size_t)n);
    }
}

/* eta (n, K) of every row */
static void FN(linear)(const model_t *m, const block_t *b, const double *theta, double *eta, double *scratch) {
    for (int64_t i = 0; i < b->n; i += 8) {
        eight_t rows;
        int64_t n = FN(take_eight)(m, b, i, &rows);
        FN(dots)(m, &rows, theta, scratch);
        for (int64_t r = 0; r < n; r++)
            for (int64_t k = 0; k < m->n_classes; k++) eta[(i + r) * m->n_classes + k] = scratch[8 * k + r];
    }
}

/* bounds (n, B) that are tight at theta; with theta NULL, at the linear predictor or residual xi for all */
static void FN(tune)(const model_t *m, const block_t *b, const double *theta, double xi, double *bounds,
                     double *scratch) {
    double *touching = scratch + 16 * m->n_classes; /* (8, B), B <= 2 K + 1 */
    for (int64_t i = 0; i < b->n; i += 8) {
        eight_t rows;
        int64_t n = FN(take_eight)(m, b, i, &rows);
        if (theta) FN(dots)(m, &rows, theta, scratch);
        else
            for (int64_t j = 0; j < 8 * m->n_classes; j++)
                scratch[j] = m->likelihood == STUDENT ? 0.0 : m->likelihood == SOFTMAX ? 0.0 : xi;
        if (!theta && m->likelihood == STUDENT)
            for (int r = 0; r < 8; r++) rows.y[r] = xi;
        FN(touch)(m, rows.y, scratch, scratch + 8 * m->n_classes, touching);
        memcpy(bounds + i * m->n_bounds, touching, 8 * (size_t)(n * m->n_bounds));
    }
}

/* gradient (K, W) += v' x, v (n, K) */
static void FN(combine)(const model_t *m, const block_t *b, const double *v, double *gradient, double *scratch) {
    for (int64_t i = 0; i < b->n; i += 8) {
        eight_t rows;
        int64_t n = FN(take_eight)(m, b, i, &rows);
        for (int64_t k = 0; k < m->n_classes; k++)
            for (int64_t r = 0; r < 8; r++) scratch[8 * k + r] = r < n ? v[(i + r) * m->n_classes + k] : 0.0;
        FN(add_rows)(m, &rows, scratch, gradient);
    }
}

/* gram (D, W) += sum of w x x', upper triangle and a little below, in row order. Blocks of rows stay in cache while
 * tiles of 4 x 2 vectors accumulate in registers. */
enum { FN(GRAM_ROWS) = 64 };
static void FN(gram)(const model_t *m, const block_t *b, const double *weight, double *gram, double *scratch) {
    int64_t width = m->width;
    double *wide = scratch, *weighted = scratch + FN(GRAM_ROWS) * width;
    for (int64_t first = 0; first < b->n; first += FN(GRAM_ROWS)) {
        int64_t n = b->n - first < FN(GRAM_ROWS) ? b->n - first : FN(GRAM_ROWS);
        for (int64_t r = 0; r < n; r++)
            for (int64_t c = 0; c < width; c += N_DOUBLE) {
                vd x = WIDE(b->x + (first + r) * width + c);
                LANES(wide + r * width + c) = x;
                LANES(weighted + r * width + c) = weight[first + r] * x;
            }
        for (int64_t i = 0; i < width; i += 4)
            for (int64_t j = i / N_DOUBLE * N_DOUBLE; j < width; j += 2 * N_DOUBLE) {
                int two = j + N_DOUBLE < width;
                int64_t other = two ? j + N_DOUBLE : j;
                vd sum[4][2];
                for (int p = 0; p < 4; p++)
                    sum[p][0] = LANES(gram + (i + p) * width + j), sum[p][1] = LANES(gram + (i + p) * width + other);
                for (int64_t r = 0; r < n; r++) {
                    vd left = LANES(wide + r * width + j), right = LANES(wide + r * width + other);
                    for (int p = 0; p < 4; p++) {
                        double w = weighted[r * width + i + p];
                        sum[p][0] += w * left, sum[p][1] += w * right;
                    }
                }
                for (int p = 0; p < 4; p++) {
                    LANES(gram + (i + p) * width + j) = sum[p][0];
                    if (two) LANES(gram + (i + p) * width + other) = sum[p][1];
                }
            }
    }
}

/* out (n_out) = x' A with A (n_in, n_out), rows in order; n_out is a multiple of 8, arrays are aligned */
static void FN(multiply)(const double *a, const double *x, int64_t n_in, int64_t n_out, double *out) {
    enum { TILE = 32 / N_DOUBLE };
    int64_t c = 0;
    for (; c + 32 <= n_out; c += 32) {
        vd sum[TILE];
        for (int i = 0; i < TILE; i++) sum[i] = SPREAD(0.0);
        for (int64_t j = 0; j < n_in; j++)
            for (int i = 0; i < TILE; i++) sum[i] += x[j] * LANES(a + j * n_out + c + i * N_DOUBLE);
        for (int i = 0; i < TILE; i++) LANES(out + c + i * N_DOUBLE) = sum[i];
    }
    for (; c < n_out; c += 8) {
        vd sum[8 / N_DOUBLE];
        for (int i = 0; i < 8 / N_DOUBLE; i++) sum[i] = SPREAD(0.0);
        for (int64_t j = 0; j < n_in; j++)
            for (int i = 0; i < 8 / N_DOUBLE; i++) sum[i] += x[j] * LANES(a + j * n_out + c + i * N_DOUBLE);
        for (int i = 0; i < 8 / N_DOUBLE; i++) LANES(out + c + i * N_DOUBLE) = sum[i];
    }
}

/* the same for a matrix in single precision that may be triangular */
static void FN(multiply_banded)(const banded_t *a, const double *x, double *out) {
    enum { TILE = 32 / N_DOUBLE };
    for (int64_t c = 0; c < a->stride; c += 32) {
        vd sum[TILE];
        for (int i = 0; i < TILE; i++) sum[i] = SPREAD(0.0);
        for (int64_t j = a->first[c / 32]; j < a->last[c / 32]; j++)
            for (int i = 0; i < TILE; i++) sum[i] += x[j] * WIDE(a->value + j * a->stride + c + i * N_DOUBLE);
        for (int i = 0; i < TILE; i++) LANES(out + c + i * N_DOUBLE) = sum[i];
    }
}

/* square (n) -> sqrt(-2 log square / square), the factor from points of the unit disc to normals; n is padded to 8 */
static void FN(polar_scales)(double *square, int64_t n) {
    for (int64_t i = 0; i < n; i += N_DOUBLE) LANES(square + i) = -2.0 * vlog(LANES(square + i)) / LANES(square + i);
    for (int64_t i = 0; i < n; i++) square[i] = sqrt(square[i]);
}
