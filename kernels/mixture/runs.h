/* The sweep over rows most of which equal their predecessors, without a tail. Included once for every instruction set
 * (every_isa.h).
 *
 * Labels of equal rows are independent draws from one law: its scores, weights and cumulative sums are computed once,
 * and each row looks its own uniform up in these. So labels are those of the sweep, bit for bit, and the same
 * distribution is left invariant. Cost per row: two random words, a comparison per (tile + 16); per run of equal rows:
 * O((columns x clusters)).
 */

/* Weights of row i under its allowed clusters, and below[k]: their cumulative sums, as draw_row adds them, but within a
 * tile from the sum of the tiles before it, w->sums. Returns a status. */
APART int FN(weigh_row)(const rows_t *rows, int64_t i, const instantiated_t *g, work_t *w, int64_t allowed, int64_t n,
                        double *below, double *total) {
    FN(read_row)(rows, i, w);
    if (w->block.infinite) return STATUS_NOT_A_NUMBER;
    FN(score_prefix)(g, NULL, rows, w, &allowed, w->scores, n, n, 0);
    FN(weigh)(w->scores, n, -INFINITY, w->weights, w->part, 8);
    *total = FN(add_tiles)(w->part, n, 0.0, w->sums);
    if (!(*total > 0)) return FN(fault_of)(w->scores, n, -INFINITY);
    double cumulative = 0.0;
    for (int64_t tile = 0; tile < n / 16; tile++) {
        double sum = cumulative;
        for (int64_t k = 16 * tile; k < 16 * tile + 16; k++) below[k] = sum += w->weights[k];
        w->sums[tile] = cumulative += w->sums[tile];
    }
    return STATUS_DONE;
}

/* The draw of draw_row from cumulative sums. */
ALWAYS_INLINE int64_t FN(look_up)(const work_t *w, const double *below, int64_t n, double target) {
    int64_t tile = 0, lane = 0;
    for (int64_t i = 0; i < n / 16; i++) tile += w->sums[i] <= target;
    if (tile < n / 16) {
        for (int64_t k = 0; k < 16; k += N_DOUBLE)
            lane += FN(count_lanes)((vl)(*(const vd *)(below + 16 * tile + k) <= target));
        if (lane < 16) return 16 * tile + lane;
    } else
        tile = n / 16 - 1;
    return FN(last_weighed)(w->weights, tile);
}

static outcome_t FN(sweep_runs)(const rows_t *rows, int32_t *z, int64_t first, const instantiated_t *g, work_t *w,
                                uint64_t row0, uint64_t seed, uint64_t cycle, uint64_t sweep, uint64_t chain,
                                int anchored) {
    philox_stream words = philox_open(seed, PURPOSE_ASSIGN, sweep, cycle, chain);
    philox_stream priorities = philox_open(seed, PURPOSE_PRIORITY, 0, cycle, chain);
    outcome_t done = {first, 0, STATUS_DONE};
    int64_t like = -1, open = -1, n = 0;
    double total = 0, *below = w->scores + g->base;
    anchored = anchored && g->free < g->n;
    for (int64_t i = first; i < rows->n; i++) {
        if (z[i] < -1) continue;
        done.row = i;
        done.status = z[i] < g->n ? STATUS_DONE : STATUS_BAD_LABEL;
        if (done.status != STATUS_DONE) break;
        int64_t allowed = FN(open_to)(g, 0, anchored, z[i], &priorities, row0 + i);
        if (allowed < 0) continue;
        if (allowed != open || !same_cells(rows, like, i)) {
            n = (allowed + 15) & ~(int64_t)15;
            done.status = FN(weigh_row)(rows, i, g, w, allowed, n, below, &total);
            if (done.status != STATUS_DONE) break;
            like = i, open = allowed;
        }
        int64_t chosen = FN(look_up)(w, below, n, philox_uniform(philox_word(&words, row0 + i)) * total);
        done.moved += z[i] != chosen;
        z[i] = (int32_t)chosen;
    }
    return done;
}
