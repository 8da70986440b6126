/* One sweep of single-row Gibbs steps over a shard, steps of a list of visits, and predictive densities. Included once
 * for every instruction set (every_isa.h).
 *
 * Leaves invariant: the posterior of the labels given the instantiated clusters' weights and parameters, the tail
 * integrated out and the anchors' rows fixed (docs/math.md 2.1, step 6; 2.3; Neal 2000, Algorithms 3 and 7). `visit`
 * does so if every step seats the row that it takes out; else it grows or churns a subsample, and leaves no
 * distribution invariant (docs/math.md 3.2). Cost per row: O((columns x candidates)); a move into or out of the tail
 * adds O(columns). Random numbers per row: one uniform, and one priority if anchors are in force.
 */

/* Set out[k] = x by storing a whole vector, which can be loaded again at once. */
ALWAYS_INLINE void FN(put)(double *out, int64_t k, double x) {
    vd *at = (vd *)(out + (k & ~(int64_t)(N_DOUBLE - 1)));
    vl lane;
    for (int j = 0; j < N_DOUBLE; j++) lane[j] = j;
    *at = SELECT(lane == (k & (N_DOUBLE - 1)), SPREAD(x), *at);
}

/* Number of slots used so far, with the next vacant one; rounded up to 16, the number of lanes of the tail. */
ALWAYS_INLINE int64_t FN(slots_in_use)(const tail_t *t) {
    return t->vacant >= t->n_slots ? t->vacant + 1 : t->n_slots;
}

/* Scores of the block's rows under the tail, each without that row; own[j] is its slot or -1. A row alone in its slot
 * is in a block of its own. The new cluster takes the lane *fresh, the lowest slot that is vacant once the row is
 * removed. out[row * stride + slot], in as many lanes as slots_in_use requires. Needs t->vacant < capacity. */
static void FN(score_tail)(tail_t *t, const rows_t *rows, work_t *w, const int64_t *at, const int64_t *own, double *out,
                           int64_t stride, int64_t *fresh) {
    int64_t n_rows = w->block.n, alone = own[0] >= 0 && t->size[own[0]] == 1, vacant = t->vacant;
    int64_t used = FN(slots_in_use)(t), n = (used + 15) & ~(int64_t)15;
    double opening = t->log_open, shift[BLOCK], own_row[BLOCK];
    for (int64_t j = 0; j < n_rows; j++) shift[j] = t->log_weight - (own[j] >= 0 ? t->log_rows_without : t->log_rows);
    if (alone) opening = log_or_never(t->concentration + (t->n_occupied - 1) * t->discount);
    if (t->n_rows - (own[0] >= 0) == 0) { /* no other row: concentration, which may be <= 0, cancels */
        for (int64_t j = 0; j < n_rows; j++) shift[j] = t->log_weight; /* with several rows none is in the tail */
        opening = 0;
    }
    if (t->log_size[vacant] != opening) t->log_size[vacant] = opening; /* rarely: fresh stores are slow to load */
    for (int64_t j = 0; j < n_rows; j++)
        if (own[j] >= 0 && !alone) {
            if (n_rows > 1) FN(take_up)(rows, w, j, at[j]);
            own_row[j] = (shift[j] + t->log_size_without[own[j]]) + FN(own_score)(t, w, own[j]);
        }
    FN(score_slots)(t, rows, w, at, shift, out, stride, n, (used + 7) & ~(int64_t)7);
    *fresh = vacant;
    if (alone) { /* without the row its slot is vacant, and the new cluster takes the lower one */
        out[own[0]] = -INFINITY;
        if (own[0] < vacant) {
            out[own[0]] = out[vacant];
            out[vacant] = -INFINITY;
            *fresh = own[0];
        }
    } else
        for (int64_t j = 0; j < n_rows; j++)
            if (own[j] >= 0) FN(put)(out + j * stride, own[j], own_row[j]);
}

/* True if the tail is empty: its new cluster is then a candidate by itself, before all others in the draw. */
ALWAYS_INLINE int FN(is_empty)(const tail_t *t) { return t && t->n_occupied == 0; }

/* out[row]: score of the new cluster, slot 0, of an empty tail, without - log x! of the counts; -infinity if the tail
 * is not empty, or there is none. */
ALWAYS_INLINE void FN(score_new)(const tail_t *t, const rows_t *rows, work_t *w, const int64_t *at, double out[BLOCK]) {
    double *slots = w->part; /* 8 per row; unused until the draw */
    for (int64_t j = 0; j < BLOCK; j++) out[j] = FN(is_empty)(t) ? t->log_weight : -INFINITY;
    if (!FN(is_empty)(t)) return;
    if (rows->n_codes) FN(add_prior)(t, &w->block, out);
    if (!rows->n_reals && !rows->n_tallies && !rows->n_blocks && !rows->n_spells) return;
    memset(slots, 0, 8 * sizeof *slots * w->block.n);
    FN(add_predictives)(t, rows, w, at, slots, 8, 8, 1);
    for (int64_t j = 0; j < w->block.n; j++) out[j] += slots[8 * j];
}

/* The tail slot of a label, -1 for any other valid label, -2 for an invalid one. */
ALWAYS_INLINE int64_t FN(slot_of)(const instantiated_t *g, const tail_t *t, int64_t label) {
    if (label >= g->base && t && label - g->base < t->n_slots && t->size[label - g->base] > 0) return label - g->base;
    return label < -1 || label >= g->n ? -2 : -1;
}

/* Scores of the block's rows under the first allowed[row] instantiated clusters, and -infinity for the others of n. On
 * the scale of score_tail if the tail has rows; else, as in score_new, without - log x! of the counts. */
ALWAYS_INLINE void FN(score_prefix)(const instantiated_t *g, const tail_t *t, const rows_t *rows, work_t *w,
                                    const int64_t *allowed, double *out, int64_t stride, int64_t n, const int known) {
    const block_t *block = &w->block;
    if (!known) FN(score_block)(g, rows, block, out, stride, n);
    for (int64_t j = 0; j < block->n; j++) {
        int64_t end = n <= g->n || rows->n_reals ? n : g->n; /* the padding of reals may not be a number */
        for (int64_t k = allowed[j]; k < end; k++) out[j * stride + k] = -INFINITY;
        if (!t || FN(is_empty)(t) || !rows->n_tallies) continue;
        double log_factorials = 0; /* a missing count is stored as 0 and adds 0 */
        for (int64_t q = 0; q < rows->n_tallies; q++) log_factorials += count_of(block->tallies[j][q]).log_factorial;
        for (int64_t k = 0; k < n; k += N_DOUBLE) *(vd *)(out + j * stride + k) -= log_factorials;
    }
}

/* Move row i, the current row, to the drawn candidate: an instantiated cluster below n_prefix, else a slot. Returns 1
 * if this changed the tail. */
ALWAYS_INLINE int FN(settle)(int32_t *z, int64_t i, const instantiated_t *g, tail_t *t, work_t *w, int64_t own,
                             int64_t fresh, int64_t n_prefix, int64_t chosen, int64_t *moved) {
    int64_t alone = own >= 0 && t->size[own] == 1, slot = chosen - n_prefix;
    if (slot < 0) {
        *moved += z[i] != chosen;
        z[i] = (int32_t)chosen;
        if (own >= 0) FN(step_row)(t, w, own, -1);
        return own >= 0;
    }
    if (slot == own) return 0;
    if (own >= 0) FN(step_row)(t, w, own, -1);
    FN(step_row)(t, w, slot, +1);
    z[i] = (int32_t)(g->base + slot);
    *moved += !(alone && slot == fresh); /* a single row that opens a cluster stays single: no move */
    return 1;
}

/* One Gibbs step of row i, or its seating if z[i] = -1, by word `at` of `words`. Returns a status. An anchor stays. */
static int FN(step_label)(const rows_t *rows, int32_t *z, int64_t i, const instantiated_t *g, tail_t *t, work_t *w,
                          int anchored, philox_stream *priorities, uint64_t row0, philox_stream *words, uint64_t at,
                          int64_t *moved) {
    int64_t own = FN(slot_of)(g, t, z[i]), fresh = -1, n_prefix, n, chosen;
    if (own < -1) return STATUS_BAD_LABEL;
    int64_t allowed = FN(open_to)(g, t != NULL, anchored, z[i], priorities, row0 + i);
    if (allowed < 0) return STATUS_DONE;
    if (t && t->vacant >= t->capacity) return STATUS_GROW;
    FN(read_row)(rows, i, w);
    if (w->block.infinite) return STATUS_NOT_A_NUMBER;
    int64_t alone = own >= 0 && t->size[own] == 1;
    n = n_prefix = (allowed + 15) & ~(int64_t)15;
    if (t && allowed == 0 && t->n_occupied - alone == 0) { /* the new cluster is the only candidate: no draw */
        fresh = alone && own < t->vacant ? own : t->vacant;
        chosen = n_prefix + fresh;
    } else {
        double before[BLOCK];
        if (allowed) FN(score_prefix)(g, t, rows, w, &allowed, w->scores, n, n, 0);
        FN(score_new)(t, rows, w, &i, before);
        if (t && !FN(is_empty)(t)) {
            n += (FN(slots_in_use)(t) + 15) & ~(int64_t)15;
            FN(score_tail)(t, rows, w, &i, &own, w->scores + n_prefix, n, &fresh);
        }
        if (w->response) FN(add_responses)(w->response, t, w, &i, &own, n_prefix, n, before, fresh);
        int status = FN(draw_row)(w->scores, n, before[0], w, philox_uniform(philox_word(words, at)), &chosen);
        if (status != STATUS_DONE) return status;
        if (chosen < 0) chosen = n_prefix;
    }
    if (w->response && chosen >= n_prefix && (t->size[chosen - n_prefix] == 0 || (alone && chosen - n_prefix == own)))
        FN(open_slot)(w->response, i, alone ? own : -1, chosen - n_prefix);
    FN(settle)(z, i, g, t, w, own, fresh, n_prefix, chosen, moved);
    return STATUS_DONE;
}

/* Rows waiting for their steps: their indices, their slots or -1, the number of instantiated clusters open to each, and
 * their uniforms. */
typedef struct {
    int64_t n, at[BLOCK], own[BLOCK], allowed[BLOCK];
    double u[BLOCK];
} FN(waiting_t);

/* Steps of waiting rows on the assumption that none of them changes the tail. They end with the first row that does:
 * the rows after it have to be scored again. A row without a draw here, because of an error or rounding, is left to
 * step_label. *settled: number of rows that have made their step, at least one if none fails.
 */
static outcome_t FN(step_block)(const rows_t *rows, int32_t *z, const FN(waiting_t) *waiting, const instantiated_t *g,
                                tail_t *t, work_t *w, int anchored, philox_stream *priorities, uint64_t row0,
                                philox_stream *words, int64_t *settled, int64_t *moved) {
    outcome_t done = {0, 0, STATUS_DONE};
    int undrawn = -1, known = 0;
    int64_t chosen[BLOCK], fresh = -1, n_prefix = g->base, n = n_prefix;
    vd before[BLOCK / N_DOUBLE];
    if (t && !FN(is_empty)(t)) n += (FN(slots_in_use)(t) + 15) & ~(int64_t)15;
    FN(read_block)(rows, waiting->at, waiting->n, &w->block);
    if (!w->block.infinite && n) {
        known = FN(put_survivors)(w, waiting->at, n, n_prefix);
        if (n_prefix) FN(score_prefix)(g, t, rows, w, waiting->allowed, w->scores, n, n_prefix, known);
        FN(score_new)(t, rows, w, waiting->at, (double *)before);
        if (n > n_prefix) FN(score_tail)(t, rows, w, waiting->at, waiting->own, w->scores + n_prefix, n, &fresh);
        if (w->response)
            FN(add_responses)(w->response, t, w, waiting->at, waiting->own, n_prefix, n, (double *)before, fresh);
        undrawn = FN(draw_block)(w, n, before, waiting->u, chosen);
        if (known) undrawn |= FN(undecided)(w, n, waiting->u, chosen);
    }
    int64_t j = 0;
    for (int changed = 0; j < waiting->n && !changed; j++) {
        int64_t i = waiting->at[j];
        if (undrawn >> j & 1) {
            done.row = i;
            done.status = FN(step_label)(rows, z, i, g, t, w, anchored, priorities, row0, words, row0 + i, moved);
            if (done.status != STATUS_DONE) break;
            changed = t != NULL;
        } else if (t) {
            if (chosen[j] < 0) chosen[j] = n_prefix;
            if (waiting->own[j] >= 0 && chosen[j] == n_prefix + waiting->own[j]) continue;
            if (chosen[j] >= n_prefix || waiting->own[j] >= 0) FN(take_up)(rows, w, j, i);
            if (w->response && chosen[j] >= n_prefix && t->size[chosen[j] - n_prefix] == 0)
                FN(open_slot)(w->response, i, -1, chosen[j] - n_prefix);
            changed = FN(settle)(z, i, g, t, w, waiting->own[j], fresh, n_prefix, chosen[j], moved);
        } else {
            *moved += z[i] != chosen[j];
            z[i] = (int32_t)chosen[j];
        }
    }
    *settled = j;
    return done;
}

/* A step of every row in order; idle rows (label below -1) are skipped. Rows are stepped in blocks: of BLOCK without a
 * tail; with one, of as many as recently left it unchanged. The block size changes no result. */
static outcome_t FN(sweep)(const rows_t *rows, int32_t *z, int64_t first, const instantiated_t *g, tail_t *t, work_t *w,
                           uint64_t row0, uint64_t seed, uint64_t cycle, uint64_t sweep, uint64_t chain, int anchored) {
    philox_stream words = philox_open(seed, PURPOSE_ASSIGN, sweep, cycle, chain);
    philox_stream priorities = philox_open(seed, PURPOSE_PRIORITY, 0, cycle, chain);
    FN(waiting_t) waiting;
    outcome_t done = {first, 0, STATUS_DONE};
    int64_t moved = 0, width = t ? 1 : BLOCK, i = first;
    anchored = anchored && g->free < g->n;
    while (i < rows->n) {
        int64_t next = i, settled = 0, in_blocks = !t || t->vacant < t->capacity;
        waiting.n = 0;
        for (; next < rows->n && waiting.n < width && in_blocks; next++) {
            int64_t j = waiting.n, own = FN(slot_of)(g, t, z[next]);
            if (z[next] < -1) continue;
            if (own < -1 || (own >= 0 && t->size[own] == 1)) break;
            int64_t allowed = FN(open_to)(g, t != NULL, anchored, z[next], &priorities, row0 + next);
            if (allowed < 0) continue;
            if (t && allowed == 0 && t->n_occupied == 0) break; /* the row opens a cluster, without a draw */
            waiting.at[j] = next, waiting.own[j] = own, waiting.allowed[j] = allowed;
            waiting.u[j] = philox_uniform(philox_word(&words, row0 + next));
            waiting.n++;
        }
        if (waiting.n == 0 && in_blocks && next > i) { /* idle rows and anchors */
            i = next;
            continue;
        }
        if (waiting.n == 0 || (t && waiting.n == 1)) {
            while (i < rows->n && z[i] < -1) i++;
            if (i == rows->n) break;
            int32_t old = z[i];
            done.row = i;
            done.status = FN(step_label)(rows, z, i, g, t, w, anchored, &priorities, row0, &words, row0 + i, &moved);
            if (t) width = old == z[i] ? 2 : 1;
            i++;
        } else {
            done = FN(step_block)(rows, z, &waiting, g, t, w, anchored, &priorities, row0, &words, &settled, &moved);
            if (t) width = settled < waiting.n ? settled : 2 * width < BLOCK ? 2 * width : BLOCK;
            i = settled < waiting.n ? waiting.at[settled - (settled > 0)] + 1 : next;
        }
        if (done.status != STATUS_DONE) break;
    }
    done.moved = moved;
    return done;
}

/* Remove row i from its cluster and make it idle, unless it is an anchor: then *stays is 1. Returns a status. */
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

/* Step s removes row out[s] and then seats row in[s]; -1: none. If out[s] = in[s] it is a Gibbs step of that row. On
 * STATUS_GROW .row is the step at which to resume, on any other status but STATUS_DONE it is the current row. The word
 * of step s is that of row s mod n, and counts its passes in the upper half of `sub`, beside the sweep. */
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
            if (!t && g->n == 0) continue; /* no cluster to enter: it stays idle */
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

/* terms[i][0..n_slots-1]: log predictive weight of row i in slot k (vacant: -infinity), terms[i][n_slots]: in a new
 * cluster; or, with terms NULL, totals[i] = log of their sum. Rows are in no cluster. Needs t->vacant < capacity. */
static outcome_t FN(predictive)(const rows_t *rows, tail_t *t, work_t *w, double *terms, double *totals) {
    outcome_t done = {0, 0, STATUS_DONE};
    for (int64_t i = 0; i < rows->n; i++) {
        int64_t fresh, n, nobody = -1;
        double highest, total;
        done.row = i;
        if (i > 0 && same_cells(rows, i - 1, i)) {
            if (totals) totals[i] = totals[i - 1];
            if (terms) memcpy(terms + i * (t->n_slots + 1), terms + (i - 1) * (t->n_slots + 1), 8 * (t->n_slots + 1));
            continue;
        }
        FN(read_row)(rows, i, w);
        if (w->block.infinite) {
            done.status = STATUS_NOT_A_NUMBER;
            return done;
        }
        n = (FN(slots_in_use)(t) + 15) & ~(int64_t)15;
        FN(score_tail)(t, rows, w, &i, &nobody, w->scores, n, &fresh);
        highest = FN(weigh)(w->scores, n, -INFINITY, w->weights, w->part, 8);
        total = FN(add_tiles)(w->part, n, 0.0, w->sums);
        if (!(total > 0)) {
            done.status = FN(fault_of)(w->scores, n, -INFINITY);
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

/* Seat rows that are in no cluster one by one, each by its predictive given the previous ones. The slot that a row with
 * the same guide opened, or a new one until there is one, has its weight multiplied by e^boost; guide[i] < 0: none has.
 * slot[i] < 0: drawn with u[i]; else the slot with this name in `known`, a new one while that is -1. home and known
 * have an entry for each guide and each name. *log_q: log probability of all choices. On STATUS_GROW .row is the row at
 * which to resume. */
static outcome_t FN(seat)(const rows_t *rows, int64_t first, const int32_t *guide, int32_t *home, int32_t *known,
                          int32_t *slot, const double *u, double boost, tail_t *t, work_t *w, double *log_q) {
    outcome_t done = {rows->n, 0, STATUS_DONE};
    for (int64_t i = first; i < rows->n; i++) {
        int64_t fresh = t->vacant, nobody = -1, chosen, name = slot[i];
        done.row = i;
        if (t->vacant >= t->capacity) {
            done.status = STATUS_GROW;
            return done;
        }
        FN(read_row)(rows, i, w);
        if (w->block.infinite) {
            done.status = STATUS_NOT_A_NUMBER;
            return done;
        }
        chosen = fresh;
        if (t->n_occupied) {
            int64_t n = (FN(slots_in_use)(t) + 15) & ~(int64_t)15;
            FN(score_tail)(t, rows, w, &i, &nobody, w->scores, n, &fresh);
            if (guide[i] >= 0) w->scores[home[guide[i]] >= 0 ? home[guide[i]] : fresh] += boost;
            if (name >= 0)
                chosen = known[name] >= 0 ? known[name] : fresh;
            else {
                done.status = FN(draw_row)(w->scores, n, -INFINITY, w, u[i], &chosen);
                if (done.status != STATUS_DONE) return done;
            }
            double highest = FN(weigh)(w->scores, n, -INFINITY, w->weights, w->part, 8);
            double total = FN(add_tiles)(w->part, n, 0.0, w->sums);
            *log_q += w->scores[chosen] - (highest + log_positive(total));
        }
        if (name >= 0) known[name] = (int32_t)chosen;
        if (guide[i] >= 0 && chosen == fresh && home[guide[i]] < 0) home[guide[i]] = (int32_t)chosen;
        slot[i] = (int32_t)chosen;
        FN(step_row)(t, w, chosen, +1);
    }
    return done;
}
