/* One sweep of single-row Gibbs steps over a shard, steps of a list of visits, and predictive densities. Included once
 * for every instruction set (mixture.h).
 *
 * Leaves invariant: the posterior of the labels given the instantiated clusters' weights and parameters, the tail
 * integrated out and the anchors' rows fixed (MATH 2.1 step 6, 2.2; Neal 2000, Algorithms 3 and 7). `visit` does so
 * where every step seats the row that it takes out; else it grows or churns a subsample, and no law is invariant (MATH
 * 4.2).
 * Cost per row: O((columns x candidates)); a move into or out of the tail adds O(columns). Random numbers per row: one
 * uniform, and one priority where anchors are in force.
 */

/* lanes where one of n cells is not a finite number */
ALWAYS_INLINE vl FN(odd_cells)(const double *x, int64_t n) {
    vl odd = {0};
    int64_t i = 0;
    if (n >= N_DOUBLE) {
        for (; i + N_DOUBLE < n; i += N_DOUBLE) {
            vd v = *(const FN(vd_loose) *)(x + i);
            odd |= (vl)(v - v != 0.0);
        }
        vd v = *(const FN(vd_loose) *)(x + n - N_DOUBLE);
        return odd | (vl)(v - v != 0.0);
    }
    for (; i < n; i++) odd[0] |= -(int64_t)!(x[i] - x[i] == 0);
    return odd;
}

/* cells of a row with zeros where one is missing, in kept[column] and seen[column]; whether one is infinite */
static int FN(keep_cells)(const double *x, int64_t n, double *kept, int64_t *seen) {
    int infinite = 0;
    for (int64_t c = 0; c < n; c++) {
        seen[c] = -(int64_t)(x[c] == x[c]);
        kept[c] = seen[c] ? x[c] : 0.0;
        infinite |= !(kept[c] - kept[c] == 0);
    }
    return infinite;
}

/* the cells of rows at[0..n-1], n <= BLOCK */
APART void FN(read_block)(const rows_t *rows, const int64_t *at, int64_t n, block_t *block) {
    int64_t R = rows->n_reals, Q = rows->n_tallies, C8 = rows->n_codes8;
    block->n = n;
    block->infinite = 0;
    vl odd = {0};
    for (int64_t j = 0; j < n; j++) {
        const uint8_t *x8 = rows->codes8 + at[j] * C8;
        const uint16_t *x16 = rows->codes16 + at[j] * rows->n_codes16;
        int32_t *level = block->level + j * block->level_stride;
        for (int64_t c = 0; c < C8; c++) level[c] = (int32_t)rows->offsets[c] + x8[c];
        for (int64_t c = 0; c < rows->n_codes16; c++) level[C8 + c] = (int32_t)rows->offsets[C8 + c] + x16[c];
        block->reals[j] = rows->reals + at[j] * R;
        block->tallies[j] = rows->tallies + at[j] * Q;
        odd |= FN(odd_cells)(block->reals[j], R) | FN(odd_cells)(block->tallies[j], Q);
    }
    block->some_missing = FN(any)(odd);
    if (block->some_missing)
        for (int64_t j = 0; j < n; j++) {
            double *reals = block->reals_kept + j * R, *tallies = block->tallies_kept + j * Q;
            block->infinite |= FN(keep_cells)(block->reals[j], R, reals, block->reals_seen + j * R);
            block->infinite |= FN(keep_cells)(block->tallies[j], Q, tallies, block->tallies_seen + j * Q);
            block->reals[j] = reals, block->tallies[j] = tallies;
        }
}

/* Row i as a block of one and, for the tail, its observed real and count cells. */
ALWAYS_INLINE void FN(read_row)(const rows_t *rows, int64_t i, work_t *w) {
    const block_t *block = &w->block;
    FN(read_block)(rows, &i, 1, &w->block);
    w->n_real = w->n_tally = 0;
    /* from the table itself where its end is not near: a vector that was just stored by parts is slow to load */
    w->x = block->some_missing || (rows->n - i) * rows->n_reals < rows->n_reals + 8 ? w->x_kept : block->reals[0];
    for (int64_t r = 0; r < rows->n_reals; r++) {
        w->real_c[w->n_real] = (int32_t)r;
        w->real_x[w->n_real] = w->x_kept[r] = block->reals[0][r];
        w->n_real += !block->some_missing || block->reals_seen[r];
    }
    for (int64_t q = 0; q < rows->n_tallies; q++)
        if (!block->some_missing || block->tallies_seen[q]) {
            double x = block->tallies[0][q];
            count_t terms = count_of(x);
            w->tally_c[w->n_tally] = (int32_t)q;
            w->tally_x[w->n_tally] = x;
            w->tally_log_factorial[w->n_tally] = terms.log_factorial;
            w->tally_saddle[w->n_tally++] = terms.saddle;
        }
}

/* how many anchors (ascending) lie below a priority */
ALWAYS_INLINE int64_t FN(anchors_below)(const uint64_t *anchors, int64_t n, uint64_t priority) {
    int64_t low = 0;
    if (n && anchors[n - 1] < priority) return n; /* so it is for most rows */
    while (low < n) {
        int64_t middle = (low + n) / 2;
        if (anchors[middle] < priority) low = middle + 1;
        else n = middle;
    }
    return low;
}

/* out[k] = x by a whole vector, which can be loaded again at once */
ALWAYS_INLINE void FN(put)(double *out, int64_t k, double x) {
    vd *at = (vd *)(out + (k & ~(int64_t)(N_DOUBLE - 1)));
    vl lane;
    for (int j = 0; j < N_DOUBLE; j++) lane[j] = j;
    *at = SELECT(lane == (k & (N_DOUBLE - 1)), SPREAD(x), *at);
}

/* scores of the row at hand under the tail, as seen without that row. `own` is its slot or -1. The new cluster takes
 * the lane *fresh, the lowest slot that is vacant once the row is out. Returns the number of lanes. Needs t->vacant <
 * capacity. */
static int64_t FN(score_tail)(tail_t *t, const rows_t *rows, const work_t *w, int64_t own, double *out,
                              int64_t *fresh) {
    int64_t alone = own >= 0 && t->size[own] == 1;
    int64_t others = t->n_rows - (own >= 0), occupied = t->n_occupied - alone, vacant = t->vacant;
    int64_t used = vacant >= t->n_slots ? vacant + 1 : t->n_slots, n = (used + 15) & ~(int64_t)15;
    double shift = t->log_weight, opening = 0; /* with no other row, concentration cancels (and may be <= 0) */
    if (others) {
        shift -= own >= 0 ? t->log_rows_without : t->log_rows;
        opening = alone ? log_or_never(t->concentration + occupied * t->discount) : t->log_open;
    }
    if (t->log_size[vacant] != opening) t->log_size[vacant] = opening; /* rarely: what was just stored is slow to load */
    double own_row = own >= 0 && !alone ? (shift + t->log_size_without[own]) + FN(own_score)(t, w, own) : 0;
    FN(score_slots)(t, rows, w, shift, out, n, (used + 7) & ~(int64_t)7);
    *fresh = vacant;
    if (alone) { /* its slot is vacant without it: the new cluster sits at the lower of the two */
        out[own] = -INFINITY;
        if (own < vacant) {
            out[own] = out[vacant];
            out[vacant] = -INFINITY;
            *fresh = own;
        }
    } else if (own >= 0)
        FN(put)(out, own, own_row);
    return n;
}

ALWAYS_INLINE int FN(is_anchor)(const instantiated_t *g, int64_t label, uint64_t priority) {
    return label >= g->free && label < g->n && priority == g->anchors[label - g->free];
}

/* the tail slot of a label, -1 for every other label that may stand, -2 for one that may not */
ALWAYS_INLINE int64_t FN(slot_of)(const instantiated_t *g, const tail_t *t, int64_t label) {
    if (label >= g->base && t && label - g->base < t->n_slots && t->size[label - g->base] > 0) return label - g->base;
    return label < -1 || label >= g->n ? -2 : -1;
}

/* scores of the row at hand under the first `allowed` instantiated clusters, on the scale of score_tail where there is a
 * tail, and -infinity for n - allowed more */
ALWAYS_INLINE void FN(score_prefix)(const instantiated_t *g, const tail_t *t, const rows_t *rows, work_t *w,
                                    int64_t allowed, int64_t n) {
    double log_factorials = 0;
    FN(score_block)(g, rows, &w->block, w->scores, n);
    for (int64_t k = allowed; k < n; k++) w->scores[k] = -INFINITY;
    if (!t || !w->n_tally) return;
    for (int64_t i = 0; i < w->n_tally; i++) log_factorials += w->tally_log_factorial[i];
    for (int64_t k = 0; k < n; k += N_DOUBLE) *(vd *)(w->scores + k) -= log_factorials;
}

/* One Gibbs step of row i, or its seating when z[i] = -1, by word `at` of `words`. Returns a status; an anchor stays.
 * Without a tail, and with a priority below every anchor's, all instantiated clusters are open to the row: such a row
 * has just come into the subsample (MATH 4.3), or did so earlier in this cycle. */
ALWAYS_INLINE int FN(step_label)(const rows_t *rows, int32_t *z, int64_t i, const instantiated_t *g, tail_t *t,
                                 work_t *w, int anchored, philox_stream *priorities, uint64_t row0,
                                 philox_stream *words, uint64_t at, int64_t *moved) {
    int64_t allowed = g->n, old = z[i], own = FN(slot_of)(g, t, old), fresh = -1, n_prefix = 0, n = 0, chosen;
    if (own < -1) return STATUS_BAD_LABEL;
    if (anchored) {
        uint64_t priority = philox_word(priorities, row0 + i);
        if (FN(is_anchor)(g, old, priority)) return STATUS_DONE;
        allowed = g->free + FN(anchors_below)(g->anchors, g->n - g->free, priority);
        if (allowed == 0 && !t) allowed = g->n;
    }
    if (t && t->vacant >= t->capacity) return STATUS_GROW;
    FN(read_row)(rows, i, w);
    if (w->block.infinite) return STATUS_NOT_A_NUMBER;
    int64_t alone = own >= 0 && t->size[own] == 1;
    if (t && allowed == 0 && t->n_occupied - alone == 0) { /* nothing but the new cluster: no draw */
        fresh = alone && own < t->vacant ? own : t->vacant;
        chosen = fresh;
    } else {
        if (allowed) {
            n_prefix = n = (allowed + 15) & ~(int64_t)15;
            FN(score_prefix)(g, t, rows, w, allowed, n);
        }
        if (t) n += FN(score_tail)(t, rows, w, own, w->scores + n_prefix, &fresh);
        int status = FN(draw_row)(w->scores, n, w, philox_uniform(philox_word(words, at)), &chosen);
        if (status != STATUS_DONE) return status;
        if (chosen < n_prefix) {
            if (chosen == old) return STATUS_DONE;
            if (own >= 0) FN(step_row)(t, w, own, -1);
            z[i] = (int32_t)chosen;
            ++*moved;
            return STATUS_DONE;
        }
        chosen -= n_prefix;
    }
    if (chosen == own) return STATUS_DONE;
    if (own >= 0) FN(step_row)(t, w, own, -1);
    FN(step_row)(t, w, chosen, +1);
    z[i] = (int32_t)(g->base + chosen);
    *moved += !(alone && chosen == fresh); /* a row alone that opens a cluster stays alone: no move */
    return STATUS_DONE;
}

/* The rows of a block that wait for their steps: where they are, how many instantiated clusters are open to each, and
 * their uniforms. */
typedef struct {
    int64_t n, at[BLOCK], allowed[BLOCK];
    double u[BLOCK];
} FN(waiting_t);

/* Steps of the waiting rows, which no step of theirs can change for another: there is no tail. A row with no draw here,
 * because something is wrong with it or rounding had the last word, is left to step_label. */
static outcome_t FN(step_block)(const rows_t *rows, int32_t *z, const FN(waiting_t) *waiting, const instantiated_t *g,
                                work_t *w, int anchored, philox_stream *priorities, uint64_t row0,
                                philox_stream *words, int64_t *moved) {
    outcome_t done = {0, 0, STATUS_DONE};
    int undrawn = -1;
    int64_t chosen[BLOCK], n = (g->n + 15) & ~(int64_t)15;
    FN(read_block)(rows, waiting->at, waiting->n, &w->block);
    if (!w->block.infinite && n) {
        FN(score_block)(g, rows, &w->block, w->scores, n);
        if (anchored)
            for (int64_t j = 0; j < waiting->n; j++)
                for (int64_t k = waiting->allowed[j]; k < g->n; k++) w->scores[j * n + k] = -INFINITY;
        undrawn = FN(draw_block)(w, n, waiting->u, chosen);
    }
    for (int64_t j = 0; j < waiting->n; j++) {
        int64_t i = waiting->at[j];
        if (undrawn >> j & 1) {
            done.row = i;
            done.status = FN(step_label)(rows, z, i, g, NULL, w, anchored, priorities, row0, words, row0 + i, moved);
            if (done.status != STATUS_DONE) return done;
        } else {
            *moved += z[i] != chosen[j];
            z[i] = (int32_t)chosen[j];
        }
    }
    return done;
}

/* a step of every row in order where there is no tail */
static outcome_t FN(sweep_blocks)(const rows_t *rows, int32_t *z, int64_t first, const instantiated_t *g, work_t *w,
                                  uint64_t row0, philox_stream *priorities, philox_stream *words, int anchored) {
    FN(waiting_t) waiting = {0};
    outcome_t done = {first, 0, STATUS_DONE};
    int64_t moved = 0, i = first;
    while (i < rows->n || waiting.n) {
        int bad = 0;
        for (; i < rows->n && waiting.n < BLOCK; i++) {
            int64_t j = waiting.n, n_free = g->free;
            if (z[i] < -1) continue;
            if ((bad = z[i] >= g->n)) break;
            waiting.allowed[j] = g->n;
            if (anchored) {
                uint64_t priority = philox_word(priorities, row0 + i);
                if (FN(is_anchor)(g, z[i], priority)) continue;
                waiting.allowed[j] = n_free + FN(anchors_below)(g->anchors, g->n - n_free, priority);
                if (waiting.allowed[j] == 0) waiting.allowed[j] = g->n; /* as in step_label */
            }
            waiting.u[j] = philox_uniform(philox_word(words, row0 + i));
            waiting.at[j] = i;
            waiting.n++;
        }
        if (waiting.n) done = FN(step_block)(rows, z, &waiting, g, w, anchored, priorities, row0, words, &moved);
        waiting.n = 0;
        if (done.status == STATUS_DONE && bad) done.row = i, done.status = STATUS_BAD_LABEL;
        if (done.status != STATUS_DONE) break;
    }
    done.moved = moved;
    return done;
}

/* a step of every row in order; idle rows (label below -1) are passed over */
static outcome_t FN(sweep)(const rows_t *rows, int32_t *z, int64_t first, const instantiated_t *g, tail_t *t, work_t *w,
                           uint64_t row0, uint64_t seed, uint64_t cycle, uint64_t sweep, uint64_t chain, int anchored) {
    outcome_t done = {first, 0, STATUS_DONE};
    philox_stream assign = philox_open(seed, PURPOSE_ASSIGN, sweep, cycle, chain);
    philox_stream priorities = philox_open(seed, PURPOSE_PRIORITY, 0, cycle, chain);
    int64_t moved = 0;
    anchored = anchored && g->free < g->n;
    if (!t) return FN(sweep_blocks)(rows, z, first, g, w, row0, &priorities, &assign, anchored);
    for (; done.row < rows->n; done.row++) {
        if (z[done.row] < -1) continue;
        done.status = FN(step_label)(rows, z, done.row, g, t, w, anchored, &priorities, row0, &assign, row0 + done.row,
                                     &moved);
        if (done.status != STATUS_DONE) break;
    }
    done.moved = moved;
    return done;
}

/* Takes row i out of its cluster and makes it idle, unless it is an anchor: then *stays is 1. Returns a status. */
ALWAYS_INLINE int FN(take_out)(const rows_t *rows, int32_t *z, int64_t i, const instantiated_t *g, tail_t *t, work_t *w,
                               int anchored, philox_stream *priorities, uint64_t row0, int *stays) {
    if (z[i] < -1) return STATUS_DONE;
    int64_t own = FN(slot_of)(g, t, z[i]);
    if (own < -1) return STATUS_BAD_LABEL;
    *stays = anchored && z[i] >= g->free && z[i] < g->n && FN(is_anchor)(g, z[i], philox_word(priorities, row0 + i));
    if (*stays) return STATUS_DONE;
    if (own >= 0) {
        FN(read_row)(rows, i, w);
        FN(step_row)(t, w, own, -1);
    }
    z[i] = -2;
    return STATUS_DONE;
}

/* Ask for the cells of a row that comes soon: rows are met in random order, and the table does not fit the cache. */
ALWAYS_INLINE void FN(fetch_cells)(const void *cells, int64_t n_bytes) {
    for (int64_t b = 0; b < n_bytes; b += 64) __builtin_prefetch((const char *)cells + b);
}
ALWAYS_INLINE void FN(fetch_row)(const rows_t *rows, const int32_t *z, int64_t i) {
    if (i < 0) return;
    FN(fetch_cells)(z + i, 4);
    FN(fetch_cells)(rows->codes8 + i * rows->n_codes8, rows->n_codes8);
    FN(fetch_cells)(rows->codes16 + i * rows->n_codes16, 2 * rows->n_codes16);
    FN(fetch_cells)(rows->reals + i * rows->n_reals, 8 * rows->n_reals);
    FN(fetch_cells)(rows->tallies + i * rows->n_tallies, 8 * rows->n_tallies);
}

/* Step s takes row out[s] out and then seats row in[s]; -1: nobody. With out[s] = in[s] it is a Gibbs step of that row.
 * On STATUS_GROW .row is the step to go on from, on any other status but STATUS_DONE it is the row at hand.
 * The word of step s is that of row s mod n, and counts its passes in the upper half of `sub`, beside the sweep. */
static outcome_t FN(visit)(const rows_t *rows, int32_t *z, const int32_t *out, const int32_t *in, int64_t first,
                           int64_t n_steps, const instantiated_t *g, tail_t *t, work_t *w, uint64_t row0, uint64_t seed,
                           uint64_t cycle, uint64_t sweep, uint64_t chain, int anchored) {
    outcome_t done = {n_steps, 0, STATUS_DONE};
    philox_stream words = {0}, priorities = philox_open(seed, PURPOSE_PRIORITY, 0, cycle, chain);
    int64_t moved = 0;
    anchored = anchored && g->free < g->n;
    for (int64_t s = first; s < n_steps; s++) {
        int64_t i = in[s];
        int stays = 0;
        if (s + 2 < n_steps) FN(fetch_row)(rows, z, in[s + 2]), FN(fetch_row)(rows, z, out[s + 2]);
        if (t && t->vacant >= t->capacity) {
            done.row = s, done.status = STATUS_GROW;
            break;
        }
        if (s == first || s % rows->n == 0)
            words = philox_open(seed, PURPOSE_VISIT, sweep + ((uint64_t)(s / rows->n) << 32), cycle, chain);
        if (out[s] >= 0 && out[s] != i) {
            done.status = FN(take_out)(rows, z, out[s], g, t, w, anchored, &priorities, row0, &stays);
            if (done.status != STATUS_DONE) {
                done.row = out[s];
                break;
            }
        }
        if (i < 0 || stays || (z[i] >= 0 && out[s] != i)) continue;
        if (z[i] < 0) {
            z[i] = -2;
            if (!t && g->n == 0) continue; /* nowhere to go: it stays idle */
            z[i] = -1;
        }
        done.status = FN(step_label)(rows, z, i, g, t, w, anchored, &priorities, row0, &words,
                                     row0 + (uint64_t)(s % rows->n), &moved);
        if (done.status != STATUS_DONE) {
            done.row = i;
            break;
        }
    }
    done.moved = moved;
    return done;
}

/* terms[i][0..n_slots-1]: log of the predictive weight of row i with slot k (vacant: -infinity), terms[i][n_slots]:
 * with a new cluster; or, with terms NULL, totals[i] = log of their sum. Rows are in no cluster. Needs t->vacant <
 * capacity. */
static outcome_t FN(predictive)(const rows_t *rows, tail_t *t, work_t *w, double *terms, double *totals) {
    outcome_t done = {0, 0, STATUS_DONE};
    for (int64_t i = 0; i < rows->n; i++) {
        int64_t fresh, n;
        double highest, total;
        done.row = i;
        FN(read_row)(rows, i, w);
        if (w->block.infinite) {
            done.status = STATUS_NOT_A_NUMBER;
            return done;
        }
        n = FN(score_tail)(t, rows, w, -1, w->scores, &fresh);
        highest = FN(weigh)(w->scores, n, w->weights, w->part, 8);
        total = FN(add_tiles)(w->part, n, w->sums);
        if (!(total > 0)) {
            done.status = FN(fault_of)(w->scores, n);
            return done;
        }
        if (totals) totals[i] = highest + log_positive(total);
        if (terms) {
            double *term = terms + i * (t->n_slots + 1);
            for (int64_t k = 0; k < t->n_slots; k++) term[k] = k == fresh ? -INFINITY : w->scores[k];
            term[t->n_slots] = w->scores[fresh];
        }
    }
    return done;
}
