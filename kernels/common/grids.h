/* Real and count columns in the global update: marginal likelihoods, and draws of hyperparameters from their grids.
 * Included once for every instruction set (updates.h).
 *
 * Statistics are [column][cluster], K clusters side by side without padding. A pass works on blocks of 8 clusters,
 * whatever the width of a vector; sums over clusters add the blocks in order.
 */
#define BLOCK 8

/* log x for any x >= 0, subnormal ones included; infinity and NaN are returned unchanged */
ALWAYS_INLINE vd FN(log_any)(vd x) {
    vl small = x < 0x1p-1022;
    vd found = vlog(SELECT(small, x * 0x1p54, x)) - SELECT(small, SPREAD(54.0 * LOG_TWO), SPREAD(0.0)) + (x - x);
    found = SELECT(x == 0.0, SPREAD(-INFINITY), found);
    return SELECT(x > 0x1.fffffffffffffp1023, x, found);
}

/* 8 numbers of a column from cluster k on; 0 beyond the last cluster */
ALWAYS_INLINE void FN(load_numbers)(const double *row, int64_t k, int64_t K, double *out) {
    for (int j = 0; j < BLOCK; j++) out[j] = k + j < K ? row[k + j] : 0.0;
}
ALWAYS_INLINE void FN(load_wholes)(const int64_t *row, int64_t k, int64_t K, double *out) {
    for (int j = 0; j < BLOCK; j++) out[j] = k + j < K ? (double)row[k + j] : 0.0;
}

/* Sum of the scores of 8 cells of a column, without the cells beyond the last cluster. */
ALWAYS_INLINE double FN(sum_block)(double *score, int64_t width) {
    for (int64_t j = width; j < BLOCK; j++) score[j] = 0;
    return ((score[0] + score[4]) + (score[2] + score[6])) + ((score[1] + score[5]) + (score[3] + score[7]));
}

/* The statistics of 8 clusters in one column. A count column's `mean` is its sum, and it has no scatter. */
typedef struct { double n[BLOCK], mean[BLOCK], scatter[BLOCK]; } FN(block);

ALWAYS_INLINE void FN(load_block)(const numbers_t *s, int64_t column, int64_t k, FN(block) *out) {
    int64_t K = s->n_clusters;
    FN(load_wholes)(s->n + column * K, k, K, out->n);
    FN(load_numbers)(s->mean + column * K, k, K, out->mean);
    if (s->scatter) FN(load_numbers)(s->scatter + column * K, k, K, out->scatter);
}

/* The part of a real cell's log marginal likelihood that depends on nu0 and n alone (docs/math.md 1.5). */
ALWAYS_INLINE vd FN(normal_by_nu)(double nu0, vd n) {
    return (FN(log_gamma)(0.5 * (nu0 + n)) - FN(log_gamma)(SPREAD(0.5 * nu0))) - (0.5 * LOG_PI) * n;
}

/* The remaining terms. h: mean, kappa, nu, variance. */
ALWAYS_INLINE vd FN(normal_rest)(const double *h, vd n, vd mean, vd scatter) {
    vd kappa = h[1] + n, nu = h[2] + n, off = h[0] - mean, alone = SPREAD(h[2] * h[3]);
    vd spread = (alone + scatter) + (n * h[1] / kappa) * (off * off);
    vd by_kappa = 0.5 * FN(log_any)(h[1] / kappa);
    return by_kappa + ((0.5 * h[2]) * FN(log_any)(alone) - (0.5 * nu) * FN(log_any)(spread));
}

/* Log marginal likelihood of 8 count cells without the 1 / x! (docs/math.md 1.4). h: shape, rate. */
ALWAYS_INLINE vd FN(poisson_cells)(const double *h, vd n, vd sum) {
    vd shape = SPREAD(h[0]);
    vd of_shape = FN(log_gamma)(shape + sum) - FN(log_gamma)(shape);
    return of_shape + (h[0] * FN(log_any)(SPREAD(h[1])) - (shape + sum) * FN(log_any)(h[1] + n));
}

/* score[0..7] of a block under the hyperparameters h; by_nu: its normal_by_nu if computed already, or NULL */
ALWAYS_INLINE void FN(score_block)(const numbers_t *s, const double *h, const FN(block) *of, const double *by_nu,
                                   double *score) {
    for (int j = 0; j < BLOCK; j += N_DOUBLE) {
        vd n = *(const FN(vd_loose) *)(of->n + j), mean = *(const FN(vd_loose) *)(of->mean + j), found;
        if (s->scatter) {
            if (by_nu)
                found = *(const FN(vd_loose) *)(by_nu + j);
            else
                found = FN(normal_by_nu)(h[2], n);
            found += FN(normal_rest)(h, n, mean, *(const FN(vd_loose) *)(of->scatter + j));
        } else
            found = FN(poisson_cells)(h, n, mean);
        *(FN(vd_loose) *)(score + j) = found;
    }
}

/* Log marginal likelihood of columns first..last-1: by_column[c - first] over all clusters, and added to by_cluster[k]
 * over these columns. hyper: F numbers per column. */
static void FN(number_marginals)(const numbers_t *s, const double *hyper, int64_t F, int64_t first, int64_t last,
                                 double *by_column, double *by_cluster) {
    FN(block) of;
    double score[BLOCK];
    for (int64_t c = first; c < last; c++) {
        double sum = 0;
        for (int64_t k = 0; k < s->n_clusters; k += BLOCK) {
            int64_t width = s->n_clusters - k < BLOCK ? s->n_clusters - k : BLOCK;
            FN(load_block)(s, c, k, &of);
            FN(score_block)(s, hyper + c * F, &of, NULL, score);
            sum += FN(sum_block)(score, width);
            for (int64_t j = 0; j < width; j++) by_cluster[k + j] += score[j];
        }
        by_column[c - first] = sum;
    }
}

/* Draw the index of a grid point by log weights score[0..G-1]; -1 if these are NaN. score has room for G rounded up to
 * 8. */
static int64_t FN(pick)(double *score, int64_t G, double u) {
    double top = -INFINITY, total = 0, below;
    int64_t G8 = (G + BLOCK - 1) / BLOCK * BLOCK, found = 0;
    for (int64_t g = 0; g < G; g++) {
        if (score[g] != score[g]) return -1;
        top = score[g] > top ? score[g] : top;
    }
    if (!(top - top == 0)) return -1;
    for (int64_t g = G; g < G8; g++) score[g] = -INFINITY;
    for (int64_t g = 0; g < G8; g += N_DOUBLE)
        *(FN(vd_loose) *)(score + g) = FN(exp_negative)(*(FN(vd_loose) *)(score + g) - top);
    for (int64_t g = 0; g < G; g++) total += score[g];
    below = score[0];
    while (found < G - 1 && below <= u * total) below += score[++found];
    return found;
}

/* Draw the hyperparameters of columns first..last-1 from their grids, one after another given the others, by uniforms
 * u[c - first][f]. hyper: F numbers per column, changed in place. scores: room for the longest grid rounded up to 8.
 * Returns 0 if a weight is NaN. */
static int FN(draw_numbers)(const numbers_t *s, double *hyper, int64_t F, int64_t first, int64_t last, const grid_t *grid,
                            const double *u, double *scores) {
    enum { NU = 2 };
    FN(block) of;
    double score[BLOCK], by_nu[BLOCK];
    for (int64_t c = first; c < last; c++)
        for (int64_t f = 0; f < F; f++) {
            double *h = hyper + c * F, now = h[f];
            int64_t G = grid[f].length[c], at;
            const double *points = grid[f].points + c * grid[f].width;
            if (G < 2) continue;
            for (int64_t g = 0; g < G; g++) scores[g] = 0;
            for (int64_t k = 0; k < s->n_clusters; k += BLOCK) {
                int64_t width = s->n_clusters - k < BLOCK ? s->n_clusters - k : BLOCK;
                int known = s->scatter && f != NU;
                FN(load_block)(s, c, k, &of);
                for (int j = 0; known && j < BLOCK; j += N_DOUBLE)
                    *(FN(vd_loose) *)(by_nu + j) = FN(normal_by_nu)(h[NU], *(FN(vd_loose) *)(of.n + j));
                for (int64_t g = 0; g < G; g++) {
                    h[f] = points[g];
                    FN(score_block)(s, h, &of, known ? by_nu : NULL, score);
                    scores[g] += FN(sum_block)(score, width);
                }
            }
            h[f] = now;
            at = FN(pick)(scores, G, u[(c - first) * F + f]);
            if (at < 0) return 0;
            h[f] = points[at];
        }
    return 1;
}
#undef BLOCK
