/* Log weights and terms of normal and count columns under drawn parameters. Included once for every instruction set
 * (every_isa.h).
 *
 * Rows are scored four at a time, so that a parameter is loaded once for several of them. Of a row that lacks many
 * cells only the others are visited: in some tables most are missing. The order of a row's sums depends on its cells
 * alone.
 */

/* g->start - half_precision (x - location)^2 of normal columns, for ROWS rows of the block, those in row[] */
#define ADD_NORMAL(ROWS)                                                                                               \
    for (int64_t k = 0; k < n; k += 2 * N_DOUBLE) {                                                                    \
        vd sum[ROWS][2];                                                                                               \
        UNROLL for (int j = 0; j < ROWS; j++) UNROLL for (int v = 0; v < 2; v++)                                       \
            sum[j][v] = ((const vd *)(g->start + k))[v];                                                               \
        for (int64_t r = 0; r < n_columns; r++) {                                                                      \
            const vd *location = (const vd *)(g->location + r * g->base + k);                                          \
            const vd *half_precision = (const vd *)(g->half_precision + r * g->base + k);                              \
            vd location0 = location[0], location1 = location[1];                                                       \
            vd half_precision0 = half_precision[0], half_precision1 = half_precision[1];                               \
            UNROLL for (int j = 0; j < ROWS; j++) {                                                                    \
                vd x = SPREAD(block->reals[row[j]][r]);                                                                \
                vd d0 = x - location0, d1 = x - location1;                                                             \
                sum[j][0] -= half_precision0 * (d0 * d0), sum[j][1] -= half_precision1 * (d1 * d1);                    \
            }                                                                                                          \
        }                                                                                                              \
        UNROLL for (int j = 0; j < ROWS; j++) UNROLL for (int v = 0; v < 2; v++)                                       \
            ((vd *)(out + row[j] * stride + k))[v] = sum[j][v];                                                        \
    }
#define DEFINE_NORMAL(NAME, ROWS)                                                                                      \
    APART void FN(NAME)(const instantiated_t *g, const block_t *block, const int *row, int64_t n_columns, double *out, \
                        int64_t stride, int64_t n) {                                                                   \
        ADD_NORMAL(ROWS)                                                                                               \
    }
DEFINE_NORMAL(normal_4, 4)
DEFINE_NORMAL(normal_1, 1)

/* The same for rows that lack some cells: such a cell removes its column's constant again. Added to `out` if that is
 * set already. Without a branch: missing cells are unpredictable. */
#if MB_BYTES == 64 /* a masked multiplication */
#define seen_t __mmask8
#define SEEN(x) ((__mmask8)(x))
#define PRODUCT_OR(seen, a, b, other) ((vd)_mm512_mask_mul_pd((__m512d)(other), seen, (__m512d)(a), (__m512d)(b)))
#elif MB_BYTES == 32
#define seen_t vl
#define SEEN(x) ((vl){0} + (x))
#define PRODUCT_OR(seen, a, b, other) ((vd)_mm256_blendv_pd((__m256d)(other), (__m256d)((a) * (b)), (__m256d)(seen)))
#else
#define seen_t vl
#define SEEN(x) ((vl){0} + (x))
#define PRODUCT_OR(seen, a, b, other) SELECT(seen, (a) * (b), other)
#endif
#define ADD_NORMAL_SEEN(ROWS)                                                                                          \
    for (int64_t k = 0; k < n; k += 2 * N_DOUBLE) {                                                                    \
        vd sum[ROWS][2];                                                                                               \
        UNROLL for (int j = 0; j < ROWS; j++) UNROLL for (int v = 0; v < 2; v++)                                       \
            sum[j][v] = ((const vd *)((started ? out + row[j] * stride : g->start) + k))[v];                           \
        for (int64_t r = 0; r < n_columns; r++) {                                                                      \
            int64_t at = r * g->base + k;                                                                              \
            const vd *location = (const vd *)(g->location + at), *constant = (const vd *)(g->constant + at);           \
            const vd *half_precision = (const vd *)(g->half_precision + at);                                           \
            UNROLL for (int j = 0; j < ROWS; j++) {                                                                    \
                vd x = SPREAD(block->reals[row[j]][r]);                                                                \
                seen_t seen = SEEN(block->reals_seen[row[j] * n_columns + r]);                                         \
                UNROLL for (int v = 0; v < 2; v++) {                                                                   \
                    vd d = x - location[v];                                                                            \
                    sum[j][v] -= PRODUCT_OR(seen, half_precision[v], d * d, constant[v]);                              \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        UNROLL for (int j = 0; j < ROWS; j++) UNROLL for (int v = 0; v < 2; v++)                                       \
            ((vd *)(out + row[j] * stride + k))[v] = sum[j][v];                                                        \
    }
#define DEFINE_NORMAL_SEEN(NAME, ROWS)                                                                                 \
    APART void FN(NAME)(const instantiated_t *g, const block_t *block, const int *row, int64_t n_columns, int started, \
                        double *out, int64_t stride, int64_t n) {                                                      \
        ADD_NORMAL_SEEN(ROWS)                                                                                          \
    }
DEFINE_NORMAL_SEEN(normal_seen_4, 4)
DEFINE_NORMAL_SEEN(normal_seen_1, 1)
#undef seen_t
#undef SEEN
#undef PRODUCT_OR

/* x log rate of counts, added to g->start, or to `out` if that is set. log x! is the same under every cluster. */
#define ADD_POISSON(ROWS)                                                                                              \
    for (int64_t k = 0; k < n; k += 2 * N_DOUBLE) {                                                                    \
        vd sum[ROWS][2];                                                                                               \
        UNROLL for (int j = 0; j < ROWS; j++) UNROLL for (int v = 0; v < 2; v++)                                       \
            sum[j][v] = ((const vd *)((started ? out + row[j] * stride : g->start) + k))[v];                           \
        for (int64_t q = 0; q < n_columns; q++) {                                                                      \
            const vd *log_rate = (const vd *)(g->log_rate + q * g->base + k);                                          \
            vd log_rate0 = log_rate[0], log_rate1 = log_rate[1];                                                       \
            UNROLL for (int j = 0; j < ROWS; j++) {                                                                    \
                vd x = SPREAD(block->tallies[row[j]][q]);                                                              \
                sum[j][0] += x * log_rate0, sum[j][1] += x * log_rate1;                                                \
            }                                                                                                          \
        }                                                                                                              \
        UNROLL for (int j = 0; j < ROWS; j++) UNROLL for (int v = 0; v < 2; v++)                                       \
            ((vd *)(out + row[j] * stride + k))[v] = sum[j][v];                                                        \
    }
#define DEFINE_POISSON(NAME, ROWS)                                                                                     \
    APART void FN(NAME)(const instantiated_t *g, const block_t *block, const int *row, int64_t n_columns, int started, \
                        double *out, int64_t stride, int64_t n) {                                                      \
        ADD_POISSON(ROWS)                                                                                              \
    }
DEFINE_POISSON(poisson_4, 4)
DEFINE_POISSON(poisson_1, 1)

/* Start a row that lacks some counts: their terms in g->start are removed again. */
ALWAYS_INLINE void FN(start_without)(const instantiated_t *g, const int64_t *seen, int64_t n_columns, double *out,
                                     int64_t n) {
    for (int64_t k = 0; k < n; k += N_DOUBLE) *(vd *)(out + k) = *(const vd *)(g->start + k);
    for (int64_t q = 0; q < n_columns; q++) {
        const double *rate = g->rate + q * g->base;
        for (int64_t k = 0; !seen[q] && k < n; k += N_DOUBLE) *(vd *)(out + k) += *(const vd *)(rate + k);
    }
}

/* Cells among 64 columns from c0 on that a row has, as bits. */
ALWAYS_INLINE uint64_t FN(present)(const int64_t *seen, int64_t c0, int64_t n_columns) {
    uint64_t bits = 0;
    int64_t end = c0 + 64 < n_columns ? c0 + 64 : n_columns;
    for (int64_t c = c0; c < end; c += N_DOUBLE)
        bits |= (uint64_t)FN(lanes)(*(const FN(vl_loose) *)(seen + c) & FN(own_lanes)(c, n_columns)) << (c - c0);
    return bits;
}
#define EACH_PRESENT(c, seen, n_columns)                                                                               \
    for (int64_t c0 = 0; c0 < n_columns; c0 += 64)                                                                     \
        for (uint64_t bits = FN(present)(seen, c0, n_columns), c; bits; bits &= bits - 1)                              \
            if (c = c0 + __builtin_ctzll(bits), 1)

/* Normal and count columns of a row that lacks many cells: as many steps as it has others. */
#define ADD_PRESENT(VECTORS)                                                                                           \
    {                                                                                                                  \
        vd sum[VECTORS];                                                                                               \
        UNROLL for (int v = 0; v < VECTORS; v++) sum[v] = ((const vd *)(g->log_weight + k))[v];                        \
        EACH_PRESENT(r, reals_seen, n_reals) {                                                                         \
            int64_t at = (int64_t)r * g->base + k;                                                                     \
            const vd *location = (const vd *)(g->location + at), *constant = (const vd *)(g->constant + at);           \
            const vd *half_precision = (const vd *)(g->half_precision + at);                                           \
            vd x = SPREAD(reals[r]);                                                                                   \
            UNROLL for (int v = 0; v < VECTORS; v++) {                                                                 \
                vd d = x - location[v];                                                                                \
                sum[v] += constant[v] - half_precision[v] * (d * d);                                                   \
            }                                                                                                          \
        }                                                                                                              \
        EACH_PRESENT(q, tallies_seen, n_tallies) {                                                                     \
            int64_t at = (int64_t)q * g->base + k;                                                                     \
            const vd *log_rate = (const vd *)(g->log_rate + at), *rate = (const vd *)(g->rate + at);                   \
            vd x = SPREAD(tallies[q]);                                                                                 \
            UNROLL for (int v = 0; v < VECTORS; v++) sum[v] += x * log_rate[v] - rate[v];                              \
        }                                                                                                              \
        UNROLL for (int v = 0; v < VECTORS; v++) ((vd *)(out + k))[v] = sum[v];                                        \
        k += VECTORS * N_DOUBLE;                                                                                       \
    }
APART void FN(score_present)(const instantiated_t *g, const double *reals, const int64_t *reals_seen, int64_t n_reals,
                             const double *tallies, const int64_t *tallies_seen, int64_t n_tallies, double *out,
                             int64_t n) {
    int64_t k = 0;
    while (k + 8 * N_DOUBLE <= n) ADD_PRESENT(8)
    while (k < n) ADD_PRESENT(2)
}
#undef ADD_PRESENT
#undef EACH_PRESENT

/* All the rows in row[], four at a time while there are as many. */
#define IN_FOURS(NAME, ...)                                                                                            \
    {                                                                                                                  \
        int i = 0;                                                                                                     \
        for (; i + 4 <= n_rows; i += 4) FN(NAME##_4)(g, block, row + i, __VA_ARGS__, out, stride, n);                  \
        for (; i < n_rows; i++) FN(NAME##_1)(g, block, row + i, __VA_ARGS__, out, stride, n);                          \
    }

/* Set `out` to the log weights and the terms of normal and count columns. */
static void FN(score_numbers)(const instantiated_t *g, const rows_t *rows, const block_t *block, double *out,
                              int64_t stride, int64_t n) {
    int64_t n_reals = rows->n_reals, n_tallies = rows->n_tallies;
    int row[BLOCK], n_rows = 0, lacking = 0, started = 0;
    for (int j = 0; j < block->n; j++) {
        if (block->many_missing >> j & 1)
            FN(score_present)(g, block->reals[j], block->reals_seen + j * n_reals, n_reals, block->tallies[j],
                              block->tallies_seen + j * n_tallies, n_tallies, out + j * stride, n);
        else
            row[n_rows++] = j, lacking |= block->some_missing >> j & 1;
    }
    if (lacking && n_tallies) {
        for (int i = 0; i < n_rows; i++)
            if (block->some_missing >> row[i] & 1)
                FN(start_without)(g, block->tallies_seen + row[i] * n_tallies, n_tallies, out + row[i] * stride, n);
            else
                memcpy(out + row[i] * stride, g->start, n * sizeof *out);
        started = 1;
    }
    if (n_reals && lacking) IN_FOURS(normal_seen, n_reals, started)
    else if (n_reals) IN_FOURS(normal, n_reals)
    if (n_tallies) IN_FOURS(poisson, n_tallies, started || n_reals)
}
#undef IN_FOURS
