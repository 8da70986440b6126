/* Responsibilities of blocks of rows, and sums weighted by these, for one instruction set (every_isa.h).
 *
 * A row costs K (D^2 + 3 D) operations for its responsibilities, and D^2 + 3 D for the sums of each component that it
 * may belong to. Rows are lanes, and sums are kept by lane until the end: no bit depends on the vectors' width.
 */
#include "lanes.h"
#define PER_GROUP (LANES / N_DOUBLE) /* vectors */
#define AT(p, i) (*(vd *)((p) + (i)))

/* e^x for LOG_LEAST <= x <= 0, relative error below 3e-16. Adding 1.5 * 2^52 rounds to a whole number and leaves it in
 * the low bits; the remainder, at most log(2) / 2, needs Taylor's series to the 13th power. log 2 is split as in
 * fdlibm. */
ALWAYS_INLINE vd FN(exp)(vd x) {
    const double shifter = 6755399441055744.0;
    static const double c[12] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                                 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0};
    vd t = x * LOG2_E + shifter, k = t - shifter;
    vd r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    vd y = r * (1.0 / 6227020800.0) + c[0];
    UNROLL for (int i = 1; i < 12; i++) y = y * r + c[i];
    y = y * r + 1.0;
    return y * (vd)(((vul)t + 1023u) << 52);
}

/* Load rows[first], rows[first + 1], ... column by column; copies of the last one pad the block. */
static void FN(load)(const double *x, const int64_t *rows, int64_t first, int64_t n, int64_t D, const double *numbers,
                     scratch_t *s) {
    for (int64_t r = 0; r < BLOCK; r++) {
        int64_t i = first + r < n ? first + r : n - 1;
        const double *from = x + (rows ? rows[i] : i) * D;
        for (int64_t d = 0; d < D; d++) s->x[d * BLOCK + r] = from[d];
        s->row[2 * BLOCK + r] = numbers ? numbers[i] : 0.0;
        s->row[3 * BLOCK + r] = first + r < n ? 1.0 : 0.0;
    }
}

/* Log weights of 4 vectors of rows under a component. */
ALWAYS_INLINE void FN(log_weights)(const mixture_t *m, int64_t j, int64_t at, scratch_t *s) {
    const int64_t D = m->D;
    const double *f = m->factor + j * (D * (D + 1) / 2), *mean = m->mean + j * D;
    vd square[4];
    UNROLL for (int u = 0; u < 4; u++) square[u] = SPREAD(0.0);
    for (int64_t d = 0; d < D; d++) {
        UNROLL for (int u = 0; u < 4; u++)
            AT(s->y, d * BLOCK + at + u * N_DOUBLE) = AT(s->x, d * BLOCK + at + u * N_DOUBLE) - mean[d];
        vd z[4];
        UNROLL for (int u = 0; u < 4; u++) z[u] = SPREAD(0.0);
        for (int64_t k = 0; k <= d; k++, f++) {
            UNROLL for (int u = 0; u < 4; u++) z[u] += AT(s->y, k * BLOCK + at + u * N_DOUBLE) * *f;
        }
        UNROLL for (int u = 0; u < 4; u++) square[u] += z[u] * z[u];
    }
    UNROLL for (int u = 0; u < 4; u++) {
        vd log = m->constant[j] - square[u];
        AT(s->log, j * BLOCK + at + u * N_DOUBLE) = log;
        AT(s->row, at + u * N_DOUBLE) = MORE(AT(s->row, at + u * N_DOUBLE), log);
    }
}

/* Convert log weights to unnormalised responsibilities; the rows' log sums are added to `total`, by lane. */
static void FN(normalise)(const mixture_t *m, scratch_t *s, double *total) {
    for (int64_t at = 0; at < BLOCK; at += N_DOUBLE) {
        vd most = AT(s->row, at), sum = SPREAD(0.0), there = AT(s->row, 3 * BLOCK + at);
        for (int64_t j = 0; j < m->K; j++) {
            vd log = AT(s->log, j * BLOCK + at) - most, share = SPREAD(0.0);
            vl likely = log > LOG_LEAST;
            if (FN(any)(likely)) {
                share = (vd)((vl)FN(exp)(SELECT(likely, log, SPREAD(0.0))) & likely);
                sum += share;
            }
            AT(s->log, j * BLOCK + at) = share;
        }
        AT(s->row, BLOCK + at) = there / sum;
        AT(total, at & (LANES - 1)) += SELECT(there > 0.0, most + vlog(sum), SPREAD(0.0));
    }
}

/* Add the rows' weighted moments to the sums of a component; y, weight: of the `n` groups that count. */
ALWAYS_INLINE void FN(add)(int64_t D, const double *weight, const double *y, double *weighted, int64_t n, double *sums) {
    vd sum[PER_GROUP];
    UNROLL for (int h = 0; h < PER_GROUP; h++) sum[h] = AT(sums, h * N_DOUBLE);
    for (int64_t g = 0; g < n; g++)
        UNROLL for (int h = 0; h < PER_GROUP; h++) sum[h] += AT(weight, g * LANES + h * N_DOUBLE);
    UNROLL for (int h = 0; h < PER_GROUP; h++) AT(sums, h * N_DOUBLE) = sum[h];
    sums += LANES;
    for (int64_t d = 0; d < D; d++, sums += LANES) {
        UNROLL for (int h = 0; h < PER_GROUP; h++) sum[h] = AT(sums, h * N_DOUBLE);
        for (int64_t g = 0; g < n; g++)
            UNROLL for (int h = 0; h < PER_GROUP; h++) {
                int64_t at = g * LANES + h * N_DOUBLE;
                vd one = AT(weight, at) * AT(y, d * BLOCK + at);
                AT(weighted, d * BLOCK + at) = one;
                sum[h] += one;
            }
        UNROLL for (int h = 0; h < PER_GROUP; h++) AT(sums, h * N_DOUBLE) = sum[h];
    }
    for (int64_t d = 0; d < D; d++)
        for (int64_t k = 0; k <= d; k++, sums += LANES) {
            UNROLL for (int h = 0; h < PER_GROUP; h++) sum[h] = AT(sums, h * N_DOUBLE);
            for (int64_t g = 0; g < n; g++)
                UNROLL for (int h = 0; h < PER_GROUP; h++) {
                    int64_t at = g * LANES + h * N_DOUBLE;
                    sum[h] += AT(weighted, d * BLOCK + at) * AT(y, k * BLOCK + at);
                }
            UNROLL for (int h = 0; h < PER_GROUP; h++) AT(sums, h * N_DOUBLE) = sum[h];
        }
}

/* Sums of one component, over the groups in which some row may belong to it. */
static void FN(tally)(const mixture_t *m, int64_t j, int numbered, scratch_t *s) {
    const int64_t D = m->D, width = (1 + D + D * (D + 1) / 2) * LANES;
    double weight[BLOCK] __attribute__((aligned(64))), other[BLOCK] __attribute__((aligned(64)));
    int64_t n = 0;
    for (int64_t g = 0; g < GROUPS; g++) {
        vl likely = {0};
        UNROLL for (int h = 0; h < PER_GROUP; h++) {
            int64_t at = g * LANES + h * N_DOUBLE, to = n * LANES + h * N_DOUBLE;
            vd share = AT(s->log, j * BLOCK + at);
            likely |= share > 0.0;
            AT(weight, to) = share * AT(s->row, BLOCK + at);
            AT(other, to) = AT(weight, to) * AT(s->row, 2 * BLOCK + at);
        }
        if (!FN(any)(likely)) continue;
        for (int64_t d = 0; d < D; d++)
            UNROLL for (int h = 0; h < PER_GROUP; h++)
                AT(s->y, d * BLOCK + n * LANES + h * N_DOUBLE) =
                    AT(s->x, d * BLOCK + g * LANES + h * N_DOUBLE) - m->mean[j * D + d];
        n++;
    }
    if (!n) return;
    FN(add)(D, weight, s->y, s->weighted, n, s->plain + j * width);
    if (numbered) FN(add)(D, other, s->y, s->weighted, n, s->numbered + j * width);
}

static double FN(gaussian_pass)(const mixture_t *m, const double *x, const int64_t *rows, int64_t n,
                                const double *numbers, scratch_t *s) {
    double total[LANES] __attribute__((aligned(64))) = {0};
    for (int64_t first = 0; first < n; first += BLOCK) {
        FN(load)(x, rows, first, n, m->D, numbers, s);
        for (int64_t r = 0; r < BLOCK; r++) s->row[r] = -INFINITY;
        for (int64_t j = 0; j < m->K; j++)
            for (int64_t at = 0; at < BLOCK; at += 4 * N_DOUBLE) FN(log_weights)(m, j, at, s);
        FN(normalise)(m, s, total);
        for (int64_t j = 0; j < m->K; j++) FN(tally)(m, j, numbers != 0, s);
    }
    return FN(sum8)((const vd *)total);
}
#undef PER_GROUP
#undef AT
#include "lanes_end.h"
