/* Categorical columns in the global update: draws of level probabilities, marginal likelihoods, scores of grids, levels
 * shared by two clusters. Included once for every instruction set (updates.h).
 *
 * levels is [level row][cluster], K clusters side by side without padding; a column's last level row counts its missing
 * cells. A pass works on blocks of 8 clusters (or of 8 grid points), whatever the width of a vector.
 */
#define BLOCK 8

/* 8 counts of a level row from cluster k on, as doubles; 0 beyond the last cluster */
ALWAYS_INLINE int FN(load_counts)(const int32_t *row, int64_t k, int64_t K, double *out) {
    int32_t n[BLOCK] = {0}, any = 0;
    memcpy(n, row + k, (K - k < BLOCK ? K - k : BLOCK) * sizeof(int32_t));
    for (int j = 0; j < BLOCK; j++) any |= n[j], out[j] = n[j];
    return any != 0;
}

/* Level rows of columns first..last-1 that are met, one column after another: row[], of which those of column first + i
 * start at start[i]; rest[i]: the sum of the beta of its other levels. met: NULL if there are none. */
static void FN(list_rows)(const double *beta, const uint8_t *met, const int64_t *offsets, int64_t first, int64_t last,
                          int32_t *row, int64_t *start, double *rest) {
    int64_t n = 0;
    for (int64_t c = first; c < last; c++) {
        start[c - first] = n;
        rest[c - first] = 0;
        for (int64_t l = offsets[c]; l < offsets[c + 1] - 1; l++) {
            int here = !met || met[l];
            row[n] = (int32_t)l;
            n += here;
            rest[c - first] += here ? 0.0 : beta[l];
        }
    }
    start[last - first] = n;
}

/* Shapes and ids of the gammas of a column in clusters k..k+width-1, cluster by cluster within a level row: of its n_rows
 * `row`, and of the total of its other levels, whose shape is `rest` and row `missing`, if that is not 0. */
ALWAYS_INLINE void FN(shapes_of)(const int32_t *levels, const double *beta, const int32_t *row, int64_t n_rows,
                                 double rest, int64_t missing, int64_t k, int64_t width, int64_t K, double *shape,
                                 uint64_t *id) {
    int64_t n = 0;
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t l = row[i];
        for (int64_t j = 0; j < width; j++, n++) {
            shape[n] = levels[l * K + k + j] + beta[l];
            id[n] = ((uint64_t)l << 32) | (uint64_t)(k + j);
        }
    }
    for (int64_t j = 0; j < width && rest > 0; j++, n++)
        shape[n] = rest, id[n] = ((uint64_t)missing << 32) | (uint64_t)(k + j);
}

/* table[l][k] = log theta of the n_rows level rows of a column in clusters k..k+width-1, given the logs of n_gammas
 * gammas; the table starts at row l0. Vectors reach beyond the width: into the next gammas, of which there are 8 more than
 * needed, and into rows of the table that follow, before `end`. */
ALWAYS_INLINE void FN(divide_gammas)(const double *gammas, int64_t n_gammas, const int32_t *row, int64_t n_rows,
                                     int64_t l0, int64_t missing, int64_t k, int64_t width, int64_t K, const float *end,
                                     float *table) {
    enum { N = BLOCK / N_DOUBLE };
    vd most[N], total[N];
    for (int v = 0; v < N; v++) most[v] = SPREAD(-INFINITY), total[v] = SPREAD(0.0);
    for (int64_t r = 0; r < n_gammas; r++)
        for (int v = 0; v < N; v++) {
            vd x = *(const FN(vd_loose) *)(gammas + r * width + v * N_DOUBLE);
            most[v] = SELECT(x > most[v], x, most[v]);
        }
    for (int64_t r = 0; r < n_gammas; r++)
        for (int v = 0; v < N; v++)
            total[v] += FN(exp_negative)(*(const FN(vd_loose) *)(gammas + r * width + v * N_DOUBLE) - most[v]);
    for (int v = 0; v < N; v++) most[v] += vlog(total[v]);
    for (int64_t i = 0; i < n_rows; i++) {
        float *to = table + (row[i] - l0) * K + k, log_theta[BLOCK];
        for (int v = 0; v < N; v++) {
            vd x = *(const FN(vd_loose) *)(gammas + i * width + v * N_DOUBLE) - most[v];
            for (int j = 0; j < N_DOUBLE; j++) log_theta[v * N_DOUBLE + j] = (float)x[j];
        }
        if (width == BLOCK || to + BLOCK <= end)
            memcpy(to, log_theta, sizeof log_theta);
        else
            for (int64_t j = 0; j < width; j++) to[j] = log_theta[j];
    }
    for (int64_t j = 0; j < width; j++) table[(missing - l0) * K + k + j] = 0;
}

/* table[l][k] = log theta of columns first..last-1, theta_ck ~ Dirichlet(beta + n); 0 in missing rows. Row 0 of `table`
 * is the first column's first level. met: 0 for levels that no row has, NULL if there are none: their total is drawn
 * instead, Gamma(sum of their beta), and the table, which has zeros, keeps them there. shape, id: room for `room` draws, at
 * least 8 per level row of the widest column, and 16 more. row, start, rest: room for these level rows, and for as many
 * columns and one. The id of a draw is (level row, k); that of a total has the missing row. Draws of several columns are
 * made side by side. */
static void FN(draw_levels)(const stream_key *key, const int32_t *levels, const double *beta, const uint8_t *met,
                            const int64_t *offsets, int64_t first, int64_t last, int64_t K, float *table,
                            double *shape, uint64_t *id, int64_t room, int32_t *row, int64_t *start, double *rest) {
    const float *end = table + (K <= BLOCK && !met ? (offsets[last] - offsets[first]) * K : 0);
    int64_t c = first, k = 0, l0 = offsets[first];
    FN(list_rows)(beta, met, offsets, first, last, row, start, rest);
    while (c < last) {
        int64_t next = c, from = k, n = 0;
        while (next < last) { /* blocks of clusters of columns, as long as there is room */
            int64_t i = next - first, width = K - from < BLOCK ? K - from : BLOCK, n_rows = start[i + 1] - start[i];
            int64_t n_gammas = n_rows ? n_rows + (rest[i] > 0) : 0;
            if (n + n_gammas * width > room) break;
            if (n_rows)
                FN(shapes_of)(levels, beta, row + start[i], n_rows, rest[i], offsets[next + 1] - 1, from, width, K,
                              shape + n, id + n);
            n += n_gammas * width;
            from += width;
            if (from == K) next += 1, from = 0;
        }
        for (int64_t i = n; i % BLOCK; i++) shape[i] = 1.0, id[i] = 0;
        FN(log_gammas)(key, shape, id, (n + BLOCK - 1) / BLOCK * BLOCK, shape);
        for (int64_t at = 0; c < next || (c == next && k < from);) {
            int64_t i = c - first, width = K - k < BLOCK ? K - k : BLOCK, n_rows = start[i + 1] - start[i];
            int64_t n_gammas = n_rows ? n_rows + (rest[i] > 0) : 0;
            if (n_rows)
                FN(divide_gammas)(shape + at, n_gammas, row + start[i], n_rows, l0, offsets[c + 1] - 1, k, width, K, end,
                                  table);
            at += n_gammas * width;
            k += width;
            if (k == K) c += 1, k = 0;
        }
    }
}

/* out[n] = log Gamma(n + a) for n = 0, ..., n_kept - 1; n_kept is a multiple of 8 */
static void FN(keep_log_gammas)(double a, int64_t n_kept, double *out) {
    for (int64_t n = 0; n < n_kept; n += N_DOUBLE) {
        vd x;
        for (int j = 0; j < N_DOUBLE; j++) x[j] = (double)(n + j);
        *(FN(vd_loose) *)(out + n) = FN(log_gamma)(x + a);
    }
}

/* out[j] = log Gamma(n[j] + a), from the cache if all n are small */
ALWAYS_INLINE void FN(log_gammas_of)(const int64_t n[BLOCK], double a, const double *kept, int64_t n_kept, double *out) {
    int64_t most = 0;
    for (int j = 0; j < BLOCK; j++) most |= n[j];
    if (most < n_kept) { /* n_kept is a power of 2 */
        for (int j = 0; j < BLOCK; j++) out[j] = kept[n[j]];
        return;
    }
    for (int j = 0; j < BLOCK; j++) out[j] = (double)n[j];
    for (int j = 0; j < BLOCK; j += N_DOUBLE)
        *(FN(vd_loose) *)(out + j) = FN(log_gamma)(*(FN(vd_loose) *)(out + j) + a);
}

/* 8 counts of a level row, 0 beyond its end; returns 0 if all of them are */
ALWAYS_INLINE int64_t FN(load_whole)(const int32_t *row, int64_t k, int64_t K, int64_t out[BLOCK]) {
    int64_t any = 0;
    if (k + BLOCK <= K) { /* mostly none */
        int32_t some = 0;
        for (int j = 0; j < BLOCK; j++) some |= row[k + j];
        if (!some) {
            memset(out, 0, BLOCK * sizeof *out);
            return 0;
        }
    }
    for (int j = 0; j < BLOCK; j++) any |= out[j] = k + j < K ? row[k + j] : 0;
    return any;
}

/* Log marginal likelihood of columns first..last-1: by_column[c - first] over all clusters, and added to by_cluster[k]
 * over these columns (docs/math.md 1.3). K8 = K rounded up to 8; by_cluster has room for K8. kept: for each column, log
 * Gamma of whole numbers below n_kept plus the pseudo-count of all its levels, and plus their sum; NULL if they are not
 * cached. */
static void FN(marginals)(const int32_t *levels, const double *beta, const int64_t *offsets, int64_t first, int64_t last,
                          int64_t K, const double *const *kept, int64_t n_kept, double *by_column, double *by_cluster) {
    for (int64_t c = first; c < last; c++) {
        int64_t missing = offsets[c + 1] - 1, n[BLOCK], in_all[BLOCK];
        const double *of_level = kept[2 * (c - first)], *of_all = kept[2 * (c - first) + 1];
        double prior = 0, sum = 0, last_beta = 1.0, of_n[BLOCK];
        vd log_gamma_beta = SPREAD(0.0);
        for (int64_t l = offsets[c]; l < missing; l++) prior += beta[l];
        double log_gamma_prior = of_all ? of_all[0] : FN(log_gamma)(SPREAD(prior))[0];
        for (int64_t k = 0; k < K; k += BLOCK) {
            double score[BLOCK] = {0};
            for (int j = 0; j < BLOCK; j++) in_all[j] = 0;
            for (int64_t l = offsets[c]; l < missing; l++) {
                if (FN(load_whole)(levels + l * K, k, K, n) == 0) continue;
                if (beta[l] != last_beta) { /* mostly all equal */
                    log_gamma_beta = SPREAD(of_level ? of_level[0] : FN(log_gamma)(SPREAD(beta[l]))[0]);
                    last_beta = beta[l];
                }
                FN(log_gammas_of)(n, beta[l], of_level, of_level ? n_kept : 0, of_n);
                for (int j = 0; j < BLOCK; j++) in_all[j] += n[j];
                for (int j = 0; j < BLOCK; j += N_DOUBLE)
                    *(FN(vd_loose) *)(score + j) += *(FN(vd_loose) *)(of_n + j) - log_gamma_beta;
            }
            FN(log_gammas_of)(in_all, prior, of_all, of_all ? n_kept : 0, of_n);
            for (int j = 0; j < BLOCK; j++) score[j] -= of_n[j] - log_gamma_prior;
            for (int64_t j = 0; j < BLOCK; j++) {
                if (k + j >= K) score[j] = 0;
                by_cluster[k + j] += score[j];
            }
            sum += ((score[0] + score[4]) + (score[2] + score[6])) + ((score[1] + score[5]) + (score[3] + score[7]));
        }
        by_column[c - first] = sum;
    }
}

/* log Gamma(x), a value kept at `at` of `kept` once tags[at / N_DOUBLE] says so */
APART vd FN(kept_log_gamma)(vd x, int64_t tag, int64_t at, double *kept, int64_t *tags) {
    if (tags[at / N_DOUBLE] != tag) *(FN(vd_loose) *)(kept + at) = FN(log_gamma)(x), tags[at / N_DOUBLE] = tag;
    return *(FN(vd_loose) *)(kept + at);
}

/* scores[g0...] of `blocks` times 8 grid points, at most 3, given the counts that are not 0 and the observed cells; see
 * grid_scores. Several blocks are scored side by side, since each sum waits for its last addition. */
ALWAYS_INLINE void FN(score_points)(const int blocks, int64_t n_levels, int64_t K, const double *grid, int64_t G8,
                                    int64_t g0, const double *rising, int64_t tabulated, const int64_t *observed,
                                    const int32_t *found, int64_t n_found, double *of_totals, int64_t *totals_of,
                                    int64_t n_totals, double *scores) {
    const int V = blocks * BLOCK / N_DOUBLE;
    vd a[3 * BLOCK / N_DOUBLE], sum[3 * BLOCK / N_DOUBLE];
    UNROLL for (int j = 0; j < V; j++) {
        a[j] = *(const FN(vd_loose) *)(grid + g0 + j * N_DOUBLE);
        sum[j] = SPREAD(0.0);
    }
    for (int64_t i = 0; i < n_found; i++) {
        int64_t n = found[i];
        if (n < tabulated) {
            UNROLL for (int j = 0; j < V; j++) sum[j] += *(const FN(vd_loose) *)(rising + n * G8 + g0 + j * N_DOUBLE);
            continue;
        }
        UNROLL for (int j = 0; j < V; j++)
            sum[j] += FN(log_gamma_large)(a[j] + (double)n)
                      - FN(kept_log_gamma)(a[j], n_levels, n_totals * G8 + g0 + j * N_DOUBLE, of_totals, totals_of);
    }
    for (int64_t k = 0; k < K; k++) {
        int64_t n = observed[k];
        if (!n) continue;
        UNROLL for (int j = 0; j < V; j++) {
            int64_t at = n * G8 + g0 + j * N_DOUBLE;
            if (n < n_totals && totals_of[at / N_DOUBLE] == n_levels) {
                sum[j] -= *(FN(vd_loose) *)(of_totals + at);
                continue;
            }
            vd total = (double)n_levels * a[j], part = FN(log_gamma)(total + (double)n);
            part -= FN(kept_log_gamma)(total, n_levels, g0 + j * N_DOUBLE, of_totals, totals_of);
            sum[j] -= part;
            if (n < n_totals) *(FN(vd_loose) *)(of_totals + at) = part, totals_of[at / N_DOUBLE] = n_levels;
        }
    }
    UNROLL for (int j = 0; j < V; j++) *(FN(vd_loose) *)(scores + g0 + j * N_DOUBLE) = sum[j];
}

/* scores[g] = log marginal likelihood of one column under the pseudo-count grid[g] of every level, over all clusters.
 * rising[n][g] = log Gamma(grid[g] + n) - log Gamma(grid[g]) for n < tabulated; G8 grid points, padded to a multiple of
 * 8. observed: K integers of scratch; found: room for all counts, of which those that are not 0 are visited. Counts from
 * `tabulated` >= 16 on take Stirling's series. of_totals [n_totals + 1][G8]: the part of n observed cells of a column of
 * `totals_of[n]` levels, kept between calls, which start with zeros; of 0 cells, and at the end, the log Gamma functions of
 * the total and of the grid. */
static void FN(grid_scores)(const int32_t *levels, int64_t first_row, int64_t missing_row, int64_t K, const double *grid,
                            int64_t G8, const double *rising, int64_t tabulated, int64_t *observed, int32_t *found,
                            double *of_totals, int64_t *totals_of, int64_t n_totals, double *scores) {
    int64_t n_found = 0;
    for (int64_t k = 0; k < K; k++) observed[k] = 0;
    const int32_t *count = levels + first_row * K;
    int64_t n_counts = (missing_row - first_row) * K;
    for (int64_t i = 0; i < n_counts; i += BLOCK) { /* mostly none */
        int32_t some = 0;
        if (i + BLOCK <= n_counts) {
            for (int j = 0; j < BLOCK; j++) some |= count[i + j];
            if (!some) continue;
        }
        int64_t k = (uint32_t)i % (uint32_t)K;
        for (int64_t j = i; j < i + BLOCK && j < n_counts; j++) {
            if (count[j]) observed[k] += count[j], found[n_found++] = count[j];
            k = k + 1 < K ? k + 1 : 0;
        }
    }
    int64_t g0 = 0;
    for (; g0 + 3 * BLOCK <= G8; g0 += 3 * BLOCK)
        FN(score_points)(3, missing_row - first_row, K, grid, G8, g0, rising, tabulated, observed, found, n_found, of_totals,
                         totals_of, n_totals, scores);
    for (; g0 < G8; g0 += BLOCK)
        FN(score_points)(1, missing_row - first_row, K, grid, G8, g0, rising, tabulated, observed, found, n_found, of_totals,
                         totals_of, n_totals, scores);
}

/* The same if level l has pseudo-count grid[g] base[l]. A rising factorial of few factors is computed as a product. */
static void FN(grid_scores_of_base)(const int32_t *levels, int64_t first_row, int64_t missing_row, int64_t K,
                                    const double *grid, int64_t G8, const double *base, int64_t *observed,
                                    double *scores) {
    enum { N = BLOCK / N_DOUBLE, FEW = 8 };
    double all = 0;
    for (int64_t l = first_row; l < missing_row; l++) all += base[l];
    for (int64_t k = 0; k < K; k++) observed[k] = 0;
    for (int64_t g0 = 0; g0 < G8; g0 += BLOCK) {
        vd a[N], x[N], alone[N], sum[N];
        for (int j = 0; j < N; j++) a[j] = *(const FN(vd_loose) *)(grid + g0 + j * N_DOUBLE), sum[j] = SPREAD(0.0);
        for (int64_t l = first_row; l < missing_row; l++) {
            int known = 0;
            for (int j = 0; j < N; j++) x[j] = a[j] * base[l];
            for (int64_t k = 0; k < K; k++) {
                int64_t n = levels[l * K + k];
                if (n == 0) continue;
                if (g0 == 0) observed[k] += n;
                if (n <= FEW) {
                    for (int j = 0; j < N; j++) {
                        vd product = x[j];
                        for (int64_t i = 1; i < n; i++) product *= x[j] + (double)i;
                        sum[j] += vlog(product);
                    }
                    continue;
                }
                for (int j = 0; j < N; j++) {
                    if (!known) alone[j] = FN(log_gamma)(x[j]);
                    sum[j] += FN(log_gamma)(x[j] + (double)n) - alone[j];
                }
                known = 1;
            }
        }
        for (int j = 0; j < N; j++) {
            vd total = all * a[j], log_gamma_total = FN(log_gamma)(total);
            for (int64_t k = 0; k < K; k++)
                if (observed[k]) sum[j] -= FN(log_gamma)(total + (double)observed[k]) - log_gamma_total;
            *(FN(vd_loose) *)(scores + g0 + j * N_DOUBLE) = sum[j];
        }
    }
}

/* score[c][k] = log probability, over a share ~ Beta(spread, spread) for every level of column c, including missing
 * cells, that the cells of clusters `label` and k are divided between the two as observed: sum over levels of log B(n_k
 * + spread, n_label + spread) - log B(spread, spread). score is [column][K8], K8 = K rounded up to 8; one, two: cached
 * log Gamma functions of whole numbers plus spread and plus twice it. */
static void FN(shares)(const int32_t *levels, const int64_t *offsets, int64_t C, int64_t K, int64_t label, double spread,
                       const double *one, const double *two, int64_t n_kept, double *score) {
    int64_t K8 = (K + BLOCK - 1) / BLOCK * BLOCK;
    double alone = 2.0 * one[0] - two[0];
    for (int64_t c = 0; c < C; c++, score += K8) {
        for (int64_t k = 0; k < K8; k++) score[k] = 0;
        for (int64_t l = offsets[c]; l < offsets[c + 1]; l++) {
            int64_t own = levels[l * K + label], n[BLOCK] = {own};
            double of_own[BLOCK], of_n[BLOCK], of_both[BLOCK];
            FN(log_gammas_of)(n, spread, one, n_kept, of_own);
            double log_gamma_own = of_own[0] - alone;
            for (int64_t k = 0; k < K; k += BLOCK) {
                if ((FN(load_whole)(levels + l * K, k, K, n) | own) == 0) continue;
                FN(log_gammas_of)(n, spread, one, n_kept, of_n);
                for (int j = 0; j < BLOCK; j++) n[j] += own;
                FN(log_gammas_of)(n, spread + spread, two, n_kept, of_both);
                for (int j = 0; j < BLOCK; j++) score[k + j] += (of_n[j] + log_gamma_own) - of_both[j];
            }
        }
    }
}

/* out[k] = log of the sum over i < n of exp(score[i][k]), k < K8; score is (n, K8) */
static void FN(log_sums)(double *score, int64_t n, int64_t K8, double *out) {
    for (int64_t k = 0; k < K8; k += N_DOUBLE) {
        vd top = *(FN(vd_loose) *)(score + k), total = SPREAD(0.0);
        for (int64_t i = 1; i < n; i++) {
            vd x = *(FN(vd_loose) *)(score + i * K8 + k);
            top = SELECT(x > top, x, top);
        }
        for (int64_t i = 0; i < n; i++) total += FN(exp_negative)(*(FN(vd_loose) *)(score + i * K8 + k) - top);
        *(FN(vd_loose) *)(out + k) = top + vlog(total);
    }
}

/* out[i][j] = log of the sum over l < n_inner of exp(a[i][l] + b[l][j]), for n rows and j < K8. Terms e^-45 times as
 * large as the largest are lost in rounding, and left out. */
#define NEGLIGIBLE -45.0
static void FN(log_product)(const double *a, const double *b, int64_t n, int64_t n_inner, int64_t K8, double *out) {
    for (int64_t j = 0; j < K8; j += 8) {
        for (int64_t i = 0; i < n; i++) {
            const double *of = a + i * n_inner;
            vd top[8 / N_DOUBLE], total[8 / N_DOUBLE];
            UNROLL for (int v = 0; v < 8 / N_DOUBLE; v++) top[v] = SPREAD(-INFINITY), total[v] = SPREAD(0.0);
            for (int64_t l = 0; l < n_inner; l++) {
                UNROLL for (int v = 0; v < 8 / N_DOUBLE; v++)
                    top[v] = MORE(*(FN(vd_loose) *)(b + l * K8 + j + v * N_DOUBLE) + of[l], top[v]);
            }
            UNROLL for (int v = 0; v < 8 / N_DOUBLE; v++) top[v] = SELECT(top[v] > -INFINITY, top[v], SPREAD(0.0));
            for (int64_t l = 0; l < n_inner; l++) {
                UNROLL for (int v = 0; v < 8 / N_DOUBLE; v++) {
                    vd x = *(FN(vd_loose) *)(b + l * K8 + j + v * N_DOUBLE) + of[l] - top[v];
                    if (FN(any)(x > NEGLIGIBLE)) total[v] += SELECT(x > NEGLIGIBLE, FN(exp_negative)(x), SPREAD(0.0));
                }
            }
            UNROLL for (int v = 0; v < 8 / N_DOUBLE; v++)
                *(FN(vd_loose) *)(out + i * K8 + j + v * N_DOUBLE) =
                    SELECT(total[v] > 0.0, top[v] + vlog(total[v]), SPREAD(-INFINITY));
        }
    }
}
#undef NEGLIGIBLE
#undef BLOCK
