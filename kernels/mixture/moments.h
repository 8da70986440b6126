/* Sums over the rows of each cluster, for the means and scatters of real columns. Included once for every instruction
 * set (every_isa.h).
 *
 * Accumulators are [cluster][column], columns padded to 8: the columns are the lanes. Every cluster and column is
 * summed in row order, whatever the width. cluster[i] is -1 for a row to skip. Cost: a few operations per vector.
 */

/* Run one statement block for every vector of every row, and `SINGLY` for the cells of rows whose last vector would
 * reach beyond the table. */
#define EACH_ROW(SINGLY, BY_VECTORS)                                                                                   \
    for (int64_t i = 0; i < rows->n; i++) {                                                                            \
        if (cluster[i] < 0) continue;                                                                                  \
        const double *x = rows->reals + i * R;                                                                         \
        int64_t at = cluster[i] * pad;                                                                                 \
        if ((rows->n - i) * R < pad)                                                                                   \
            for (int64_t c = 0; c < R; c++) {                                                                          \
                if (x[c] != x[c]) continue;                                                                            \
                SINGLY                                                                                                 \
            }                                                                                                          \
        else                                                                                                           \
            for (int64_t c = 0; c < R; c += N_DOUBLE) {                                                                \
                vd cell = *(const FN(vd_loose) *)(x + c);                                                              \
                vl seen = cell == cell;                                                                                \
                BY_VECTORS                                                                                             \
            }                                                                                                          \
    }

static void FN(add_cells)(const rows_t *rows, const int32_t *cluster, int64_t pad, double *sum, int64_t *count) {
    int64_t R = rows->n_reals;
    EACH_ROW(sum[at + c] += x[c]; count[at + c]++;,
             *(vd *)(sum + at + c) += (vd)((vl)cell & seen); *(vl *)(count + at + c) -= seen;)
}

static void FN(add_squares)(const rows_t *rows, const int32_t *cluster, int64_t pad, const double *mean,
                            double *scatter) {
    int64_t R = rows->n_reals;
    EACH_ROW(double d = x[c] - mean[at + c]; scatter[at + c] += d * d;,
             vd d = (vd)((vl)(cell - *(const vd *)(mean + at + c)) & seen); *(vd *)(scatter + at + c) += d * d;)
}
#undef EACH_ROW
