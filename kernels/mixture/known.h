/* Draws beside a tail from the scores of a few instantiated clusters (docs/math.md 2.13). Included once for every
 * instruction set (every_isa.h).
 */

/* Copy the known scores of the block's rows to w->scores, with -infinity for the other clusters of n. Returns 1 if all
 * rows have known scores; else the block has to be scored. */
ALWAYS_INLINE int FN(put_survivors)(work_t *w, const int64_t *at, int64_t stride, int64_t n) {
    const survivors_t *known = w->survivors;
    if (!known || stride == 16) return 0; /* draw_tile keeps no sums */
    for (int64_t j = 0; j < w->block.n; j++)
        if (known->start[at[j]] < 0) return 0;
    for (int64_t j = 0; j < w->block.n; j++) {
        double *out = w->scores + j * stride;
        int64_t start = known->start[at[j]];
        for (int64_t k = 0; k < n; k += N_DOUBLE) *(vd *)(out + k) = SPREAD(-INFINITY);
        for (int64_t s = start; s < start + known->count[at[j]]; s++) out[known->position[s]] = known->score[s];
    }
    return 1;
}

/* Rows of the block, as bits, whose target is so near to an adjacent sum of weights that clusters without known scores
 * could change the draw. They are scored in full. */
static int FN(undecided)(const work_t *w, int64_t n, const double u[BLOCK], const int64_t chosen[BLOCK]) {
    int rows = 0;
    for (int64_t j = 0; j < w->block.n; j++) {
        int64_t tile = chosen[j] / 16;
        const double *sums = w->sums + j; /* cumulative, with stride BLOCK */
        double total = sums[BLOCK * (n / 16 - 1)], target = u[j] * total;
        double margin = (w->survivors->margin + n * 0x1p-50) * total, below = 0, above;
        if (chosen[j] >= n) continue; /* it already has no draw */
        if (chosen[j] < 0) {
            rows |= !(target < w->first[j] - margin) << j;
            continue;
        }
        above = tile > 0 ? sums[BLOCK * (tile - 1)] : w->first[j];
        for (int64_t k = 16 * tile; k <= chosen[j]; k++) below = above, above += w->weights[j * n + k];
        rows |= !(target > below + margin && target < above - margin) << j;
    }
    return rows;
}
