/* Scores of rows under survival columns (docs/math.md 1.11). Included once for every instruction set.
 *
 * spell_cell.h defines a cell. Each column has SPELL_PARTS parts of the time axis; every array has a row per part.
 * Under given hazards a cell costs a load, a multiplication and an addition per cluster; in the tail, a logarithm.
 */

/* Log density under drawn hazards: that of the part's start, including the event's log hazard, minus hazard x time. */
APART void FN(add_spells)(const instantiated_t *g, int64_t n_spells, const block_t *block, double *out, int64_t stride,
                          int64_t n) {
    for (int64_t j = 0; j < block->n; j++)
        for (int64_t s = 0; s < n_spells; s++) {
            double x = block->spells[j][s];
            if (x != x) continue;
            spell_t cell = spell_of(x);
            const double *start = g->spell_start + (2 * (s * SPELL_PARTS + cell.part) + cell.event) * g->base;
            const double *hazard = g->spell_hazard + (s * SPELL_PARTS + cell.part) * g->base;
            vd time = SPREAD(cell.time);
            for (int64_t k = 0; k < n; k += N_DOUBLE)
                *(vd *)(out + j * stride + k) += *(const vd *)(start + k) - *(const vd *)(hazard + k) * time;
        }
}

/* The same with hazards integrated out, for the block's rows in slots 0..n-1, which contain none of them: spell_before,
 * the log survival of earlier parts, plus A log(B / (B + time)) and, for an event, log(A / (B + time)). */
APART void FN(add_spells_tail)(const tail_t *t, const block_t *block, double *out, int64_t stride, int64_t n) {
    for (int64_t j = 0; j < block->n; j++)
        for (int64_t s = 0; s < t->n_spells; s++) {
            double x = block->spells[j][s];
            if (x != x) continue;
            spell_t cell = spell_of(x);
            int64_t at = (s * SPELL_PARTS + cell.part) * t->capacity;
            vd time = SPREAD(cell.time), event = SPREAD((double)cell.event);
            for (int64_t k = 0; k < n; k += N_DOUBLE) {
#define SLOTS(field) (*(const vd *)(t->field + at + k))
                vd log_exposed = vlog(SLOTS(spell_rate) + time);
                *(vd *)(out + j * stride + k) += SLOTS(spell_before)
                    + SLOTS(spell_shape) * (SLOTS(spell_log_rate) - log_exposed)
                    + event * (SLOTS(spell_log_shape) - log_exposed);
#undef SLOTS
            }
        }
}

/* Derive the quantities of a slot and column from its statistics. */
ALWAYS_INLINE void FN(derive_spell)(tail_t *t, int64_t s, int64_t slot) {
    const double *gamma = t->spell_gamma + 2 * s, *width = t->spell_width + s * SPELL_PARTS;
    int64_t beyond = 0, first = s * SPELL_PARTS * t->capacity + slot;
    double before = 0;
    for (int64_t p = SPELL_PARTS - 1; p >= 0; p--) { /* rows that survived a part were last seen in a later one */
        int64_t at = first + p * t->capacity;
        t->spell_exposure[at] = t->spell_time[at] + (beyond ? beyond * width[p] : 0.0);
        beyond += t->spell_ended[at];
    }
    for (int64_t p = 0; p < SPELL_PARTS; p++) {
        int64_t at = first + p * t->capacity;
        double shape = gamma[0] + t->spell_events[at], rate = gamma[1] + t->spell_exposure[at];
        t->spell_shape[at] = shape, t->spell_rate[at] = rate, t->spell_before[at] = before;
        t->spell_log_shape[at] = log_positive(shape), t->spell_log_rate[at] = log_positive(rate);
        before += shape * (t->spell_log_rate[at] - log_positive(rate + width[p]));
    }
}

/* The current row enters (sign = +1) or leaves (sign = -1) a slot. */
APART void FN(step_spells)(tail_t *t, const work_t *w, int64_t slot, int sign) {
    for (int64_t s = 0; s < t->n_spells; s++) {
        double x = w->spell_x[s];
        if (x != x) continue;
        spell_t cell = spell_of(x);
        int64_t at = (s * SPELL_PARTS + cell.part) * t->capacity + slot;
        t->spell_ended[at] += sign;
        t->spell_events[at] += sign * cell.event;
        t->spell_time[at] += sign * cell.time;
        FN(derive_spell)(t, s, slot);
    }
}

/* Log predictive of the row's own slot without the row; nothing is written. */
APART double FN(own_spells)(const tail_t *t, const work_t *w, int64_t slot) {
    double score = 0;
    for (int64_t s = 0; s < t->n_spells; s++) {
        double x = w->spell_x[s];
        if (x != x) continue;
        spell_t cell = spell_of(x);
        for (int64_t p = 0; p <= cell.part; p++) {
            int64_t at = (s * SPELL_PARTS + p) * t->capacity + slot;
            double time = p < cell.part ? t->spell_width[s * SPELL_PARTS + p] : cell.time;
            double rate = t->spell_gamma[2 * s + 1] + (t->spell_exposure[at] - time), all = t->spell_log_rate[at];
            double shape = t->spell_shape[at] - (p == cell.part ? cell.event : 0);
            score += shape * (log_positive(rate) - all);
            if (p == cell.part && cell.event) score += log_positive(shape) - all;
        }
    }
    return score;
}
