/* The collapsed clusters of a shard: adding and removing a row, and quantities derived from the statistics. Included
 * once for every instruction set (every_isa.h).
 *
 * Categorical table. The predictive of docs/math.md 1.3 is the sum over observed cells of log(n_kcv + beta_v) -
 * log(n_kc + beta_c), n_kc counting observed cells. Its two parts are large and nearly cancel, so the table keeps
 *     table[level v of c][slot]  = log(n_kcv + beta_v) - reference[c][slot]
 *     table[missing of c][slot]  = log(n_kc + beta_c)  - reference[c][slot]          (near 0)
 *     norm[slot]                 = sum over c of log(n_kc + beta_c) - reference[c][slot]     (float64, near 0)
 * with reference = log(n_kc + beta_c) at the time when the slot's size last changed by a factor of 2. Then sum(table) -
 * norm is the predictive, a missing cell contributes exactly 0 up to rounding, and a row's step rewrites 2 C entries.
 * The column of a vacant slot is the prior's, so a new cluster is scored by the same vector loop as the others; in an
 * empty tail, by that column alone (add_prior).
 *
 * A column with a parent (docs/links.md) has level rows for each context of the parent, one context after another, each
 * with a missing row of its own, of which only the last counts missing cells. Its total depends on the row's context,
 * so its table has the predictive itself,
 *     table[level v in context u of c][slot] = log(n_kcuv + beta_v) - log(n_kcu + beta_c), 0 in missing rows,
 * the column is left out of norm, and a row's step rewrites the level rows of one context.
 */

/* n_kc + beta_c, and the same with one observed cell less (1 if there is none). */
ALWAYS_INLINE void FN(column_total)(const tail_t *t, int64_t c, int64_t slot, double *total, double *without) {
    int64_t missing = t->offsets[c + 1] - 1, n = t->size[slot] - t->levels[missing * t->capacity + slot];
    *total = n + t->dirichlet[missing];
    *without = n ? (n - 1) + t->dirichlet[missing] : 1.0;
}

/* Replace the first n values of `logs` by their logarithms; it has room up to the next multiple of 8. */
ALWAYS_INLINE void FN(take_logs)(double *logs, int64_t n) {
    for (int64_t i = n; i & 7; i++) logs[i] = 1.0;
    FN(log_array)(logs, n);
}

/* Contexts of the columns, NULL without any link: a local variable, which no store can change, so that loops without
 * links cost nothing extra. */
#define CONTEXTS_OF(t) const int64_t *contexts = (t)->n_linked ? (t)->contexts : NULL
#define IS_LINKED(c) (contexts && contexts[c] > 1)

/* n_kcu + beta_c of the context whose level rows are from..missing-1 */
ALWAYS_INLINE double FN(context_total)(const tail_t *t, int64_t from, int64_t missing, int64_t slot) {
    int64_t n = 0;
    for (int64_t l = from; l < missing; l++) n += t->levels[l * t->capacity + slot];
    return n + t->dirichlet[missing];
}

/* Number of level rows per context of a column. */
ALWAYS_INLINE int64_t FN(context_rows)(const tail_t *t, int64_t c) {
    return (t->offsets[c + 1] - t->offsets[c]) / t->contexts[c];
}
ALWAYS_INLINE int64_t FN(context_start)(const tail_t *t, int64_t c, int64_t l) {
    int64_t rows = FN(context_rows)(t, c);
    return t->offsets[c] + (l - t->offsets[c]) / rows * rows;
}

/* Derive the table of one context of a slot. */
static void FN(derive_context)(tail_t *t, work_t *w, int64_t from, int64_t missing, int64_t slot) {
    int64_t stride = t->capacity, n = missing - from;
    double *logs = w->logs;
    for (int64_t i = 0; i < n; i++) logs[i] = t->levels[(from + i) * stride + slot] + t->dirichlet[from + i];
    logs[n] = FN(context_total)(t, from, missing, slot);
    FN(take_logs)(logs, n + 1);
    for (int64_t i = 0; i < n; i++) t->table[(from + i) * stride + slot] = (float)(logs[i] - logs[n]);
    t->table[missing * stride + slot] = 0;
}

/* Derive the categorical entries of one slot, but for linked columns, whose entries never drift: O(L). */
static void FN(refresh_categories)(tail_t *t, work_t *w, int64_t slot) {
    CONTEXTS_OF(t);
    int64_t stride = t->capacity, n = 0;
    double *logs = w->logs, *without, sum = 0, total;
    for (int64_t c = 0; c < t->n_codes; c++) {
        int64_t missing = t->offsets[c + 1] - 1;
        if (IS_LINKED(c)) continue;
        for (int64_t l = t->offsets[c]; l < missing; l++) logs[n++] = t->levels[l * stride + slot] + t->dirichlet[l];
        FN(column_total)(t, c, slot, &logs[n++], &total);
    }
    without = logs + n;
    for (int64_t c = 0; c < t->n_codes; c++) {
        without[c] = 1.0;
        if (!IS_LINKED(c)) FN(column_total)(t, c, slot, &total, &without[c]);
    }
    FN(take_logs)(logs, n + t->n_codes);
    n = 0;
    for (int64_t c = 0; c < t->n_codes; c++) {
        int64_t first = t->offsets[c], missing = t->offsets[c + 1] - 1;
        double reference = IS_LINKED(c) ? 0.0 : logs[n + missing - first];
        t->reference[c * stride + slot] = reference;
        sum += without[c];
        if (IS_LINKED(c)) continue;
        for (int64_t l = first; l <= missing; l++) t->table[l * stride + slot] = (float)(logs[n++] - reference);
    }
    t->total_without[slot] = sum;
    t->norm[slot] = 0;
    t->reference_size[slot] = t->size[slot] + 1;
}

/* True if slots slot..slot+7 have no rows. */
ALWAYS_INLINE int FN(are_vacant)(const tail_t *t, int64_t slot) {
    int64_t n = 0;
    for (int j = 0; j < 8; j++) n |= t->size[slot + j];
    return n == 0;
}

/* The entry of a level without cells in a context without any, given its pseudo-count and their sum. */
typedef struct { double beta, total; float value; } FN(of_prior_t);

/* Derive the table of the context whose level rows are first..missing-1 in eight vacant slots. */
static void FN(refresh_vacant)(tail_t *t, int64_t first, int64_t missing, int64_t slot, const uint8_t *met,
                               FN(of_prior_t) *of) {
    double total = t->dirichlet[missing];
    for (int64_t l = first; l <= missing; l++) {
        float *table = t->table + l * t->capacity + slot;
        if (met && !met[l] && l < missing) continue;
        if (l < missing && (t->dirichlet[l] != of->beta || total != of->total)) {
            of->beta = t->dirichlet[l], of->total = total;
            of->value = (float)(vlog(SPREAD(of->beta)) - vlog(SPREAD(total)))[0];
        }
        for (int j = 0; j < 8; j++) table[j] = l < missing ? of->value : 0.0f;
    }
}

/* Derive the tables of the linked columns in slots from..to-1, a multiple of 8 apart: O(L), most of whose levels have no
 * cell, so that one logarithm serves all slots. met: 0 for level rows to leave out, since no row reads them; NULL if there
 * are none. */
static void FN(refresh_contexts)(tail_t *t, int64_t from, int64_t to, const uint8_t *met) {
    enum { N = 8 / N_DOUBLE };
    int64_t stride = t->capacity;
    FN(of_prior_t) of_prior = {-1.0, -1.0, 0};
    for (int64_t c = 0; c < t->n_codes; c++) {
        if (t->contexts[c] < 2) continue;
        int64_t rows = FN(context_rows)(t, c), blank = t->offsets[c + 1] - 1;
        memset(t->table + blank * stride + from, 0, (to - from) * sizeof(float)); /* whatever rows its context has */
        for (int64_t first = t->offsets[c]; first < t->offsets[c + 1]; first += rows) {
            if (met && !memchr(met + first, 1, rows - 1)) continue;
            for (int64_t slot = from; slot < to; slot += 8) {
                if (FN(are_vacant)(t, slot)) {
                    FN(refresh_vacant)(t, first, first + rows - 1, slot, met, &of_prior);
                    continue;
                }
                int64_t missing = first + rows - 1, n[8] = {0};
                vd total[N];
                float of_none[8];
                double before = -1.0;
                for (int64_t l = first; l < missing; l++)
                    if (!met || met[l])
                        for (int j = 0; j < 8; j++) n[j] += t->levels[l * stride + slot + j];
                for (int j = 0; j < 8; j++) total[j / N_DOUBLE][j % N_DOUBLE] = n[j] + t->dirichlet[missing];
                for (int i = 0; i < N; i++) total[i] = vlog(total[i]);
                for (int64_t l = first; l < missing; l++) {
                    const int32_t *level = t->levels + l * stride + slot;
                    float *table = t->table + l * stride + slot;
                    double beta = t->dirichlet[l];
                    int32_t any = 0;
                    if (met && !met[l]) continue;
                    for (int j = 0; j < 8; j++) any |= level[j];
                    if (beta != before) { /* mostly all equal */
                        vd alone = vlog(SPREAD(beta));
                        for (int j = 0; j < 8; j++) of_none[j] = (float)(alone - total[j / N_DOUBLE])[j % N_DOUBLE];
                        before = beta;
                    }
                    if (!any) {
                        memcpy(table, of_none, sizeof of_none);
                        continue;
                    }
                    for (int i = 0; i < N; i++) {
                        vd x;
                        for (int j = 0; j < N_DOUBLE; j++) x[j] = level[i * N_DOUBLE + j] + beta;
                        x = vlog(x) - total[i];
                        for (int j = 0; j < N_DOUBLE; j++) table[i * N_DOUBLE + j] = (float)x[j];
                    }
                }
                memset(t->table + missing * stride + slot, 0, 8 * sizeof(float));
            }
        }
    }
}

/* Derive the contexts of the linked columns in which the current row has cells, in one slot. */
ALWAYS_INLINE void FN(update_contexts)(tail_t *t, work_t *w, int64_t slot) {
    CONTEXTS_OF(t);
    for (int64_t c = 0; c < t->n_codes && t->n_linked; c++) {
        int64_t l = w->level[c];
        if (!IS_LINKED(c) || l == t->offsets[c + 1] - 1) continue;
        int64_t from = FN(context_start)(t, c, l);
        FN(derive_context)(t, w, from, from + FN(context_rows)(t, c) - 1, slot);
    }
}

/* Update the entries of one slot that a step of the current row has changed: O(C). */
static void FN(update_categories)(tail_t *t, work_t *w, int64_t slot) {
    CONTEXTS_OF(t);
    int64_t stride = t->capacity, C = t->n_codes;
    double *cell = w->logs, *total = w->logs + C, *without = w->logs + 2 * C, norm = 0, sum = 0;
    for (int64_t c = 0; c < C; c++) {
        int64_t l = w->level[c];
        if (IS_LINKED(c)) {
            cell[c] = total[c] = without[c] = 1.0;
            continue;
        }
        cell[c] = l == t->offsets[c + 1] - 1 ? 1.0 : t->levels[l * stride + slot] + t->dirichlet[l];
        FN(column_total)(t, c, slot, &total[c], &without[c]);
    }
    FN(take_logs)(w->logs, 3 * C);
    for (int64_t c = 0; c < C; c++) {
        int64_t l = w->level[c], missing = t->offsets[c + 1] - 1;
        if (IS_LINKED(c)) continue;
        double reference = t->reference[c * stride + slot], drift = total[c] - reference;
        norm += drift;
        sum += without[c];
        t->table[missing * stride + slot] = (float)drift;
        if (l != missing) t->table[l * stride + slot] = (float)(cell[c] - reference);
    }
    t->norm[slot] = norm;
    t->total_without[slot] = sum;
}

/* Student t of the next observation: t_nu(mu, sigma^2 (1 + 1/kappa)), docs/math.md 1.5.
 * scale = 1 / sqrt(nu sigma^2 (1 + 1/kappa)) */
typedef struct { double location, scale, half, constant; } FN(student_t);
ALWAYS_INLINE FN(student_t) FN(student_of)(const double *prior, int64_t n, double mean, double scatter) {
    double kappa = prior[1] + n, nu = prior[2] + n, off = prior[0] - mean;
    double spread = prior[2] * prior[3] + scatter + (n * prior[1] / kappa) * (off * off);
    double square = spread * (1.0 + 1.0 / kappa);
    if (square > 1e300) square = 1e300; /* cells beyond 1e150: a very wide cluster, not an infinite one */
    FN(student_t) s;
    s.location = n ? prior[0] + (mean - prior[0]) * (n / kappa) : prior[0];
    s.scale = 1.0 / sqrt(square);
    s.half = 0.5 * (nu + 1.0);
    s.constant = log_gamma_half_step(0.5 * nu) - 0.5 * (LOG_PI + log_positive(square));
    return s;
}

/* Fields of a slot and column without one cell that own_reals reads: those that do not depend on the cell. */
ALWAYS_INLINE void FN(derive_without)(tail_t *t, int64_t r, int64_t slot) {
    int64_t at = r * t->capacity + slot, pad = (t->n_reals + 7) & ~(int64_t)7, left = t->real_n[at] - 1;
    const double *prior = t->normal + 4 * r;
    double *f = t->without + slot * WITHOUT_FIELDS * pad + r;
    double n = left > 0 ? left : 0, kappa = prior[1] + n, nu = prior[2] + n;
    f[MEAN * pad] = t->real_mean[at];
    f[SCATTER * pad] = t->real_scatter[at];
    f[INVERSE_N * pad] = n > 0 ? 1.0 / n : 0.0;
    f[PULL * pad] = n * prior[1] / kappa;
    f[SHRINK * pad] = n / kappa;
    f[INVERSE_KAPPA * pad] = 1.0 / kappa;
    f[CONSTANT * pad] = log_gamma_half_step(0.5 * nu) - 0.5 * LOG_PI;
    f[HALF * pad] = 0.5 * (nu + 1.0);
}

ALWAYS_INLINE void FN(derive_real)(tail_t *t, int64_t r, int64_t slot) {
    int64_t at = r * t->capacity + slot;
    FN(student_t) s = FN(student_of)(t->normal + 4 * r, t->real_n[at], t->real_mean[at], t->real_scatter[at]);
    t->t_location[at] = s.location, t->t_scale[at] = s.scale, t->t_half[at] = s.half, t->t_constant[at] = s.constant;
    FN(derive_without)(t, r, slot);
}

/* Fields that all real columns of a slot share; call it after a change of any. */
ALWAYS_INLINE void FN(compare_columns)(tail_t *t, int64_t slot) {
    int64_t uneven = 0;
    double total = 0;
    for (int64_t r = 0; r < t->n_reals; r++) {
        int64_t at = r * t->capacity + slot;
        uneven |= t->real_n[at] != t->real_n[slot];
        total += t->t_constant[at];
    }
    t->t_total[slot] = total;
    t->n_uneven += uneven - t->uneven[slot];
    t->uneven[slot] = uneven;
}

/* Negative binomial of the next count: shape a = shape + sum, p = b / (b + 1) with b = rate + n */
typedef struct { double shape, rate, zero, log_p, log_q, remainder, base; } FN(negative_binomial_t);
ALWAYS_INLINE FN(negative_binomial_t) FN(negative_binomial_of)(const double *prior, int64_t n, double sum) {
    FN(negative_binomial_t) s;
    s.shape = prior[0] + sum;
    s.rate = prior[1] + n;
    s.log_p = -log1p_inverse(s.rate);
    s.log_q = -log_positive(s.rate + 1.0);
    s.zero = s.shape * s.log_p;
    s.remainder = stirling_remainder(s.shape);
    s.base = s.zero - (((s.shape - 0.5) * log_positive(s.shape) - s.shape) + (HALF_LOG_TWO_PI + s.remainder));
    return s;
}

ALWAYS_INLINE void FN(derive_tally)(tail_t *t, int64_t q, int64_t slot) {
    int64_t at = q * t->capacity + slot;
    FN(negative_binomial_t) s = FN(negative_binomial_of)(t->gamma + 2 * q, t->tally_n[at], t->tally_sum[at]);
    t->nb_shape[at] = s.shape, t->nb_rate[at] = s.rate, t->nb_zero[at] = s.zero;
    t->nb_log_p[at] = s.log_p, t->nb_log_q[at] = s.log_q, t->nb_remainder[at] = s.remainder;
    t->nb_base[at] = s.base;
    t->nb_log_p_without[at] = t->tally_n[at] ? -log1p_inverse(t->gamma[2 * q + 1] + (t->tally_n[at] - 1)) : 0.0;
}

/* Derive the weights of one slot, and those of the tail as a whole. */
ALWAYS_INLINE void FN(derive_weights)(tail_t *t, int64_t slot) {
    t->log_size[slot] = log_or_never(t->size[slot] ? t->size[slot] - t->discount : 0.0);
    t->log_size_without[slot] = log_or_never(t->size[slot] > 1 ? t->size[slot] - 1 - t->discount : 0.0);
}
ALWAYS_INLINE void FN(derive_totals)(tail_t *t) {
    t->log_rows = log_or_never(t->n_rows + t->concentration);
    t->log_rows_without = log_or_never(t->n_rows - 1 + t->concentration);
    t->log_open = log_or_never(t->concentration + t->n_occupied * t->discount);
}

/* Derive everything for slots from..to-1, and the totals of the tail. */
static void FN(refresh)(tail_t *t, work_t *w, int64_t from, int64_t to, const uint8_t *met) {
    if (t->n_linked) FN(refresh_contexts)(t, from, to, met);
    for (int64_t slot = from; slot < to; slot++) {
        FN(refresh_categories)(t, w, slot);
        for (int64_t r = 0; r < t->n_reals; r++) FN(derive_real)(t, r, slot);
        FN(compare_columns)(t, slot);
        for (int64_t q = 0; q < t->n_tallies; q++) FN(derive_tally)(t, q, slot);
        for (int64_t b = 0; b < t->n_blocks; b++) FN(derive_vector)(t, w, b, slot);
        for (int64_t s = 0; s < t->n_spells; s++) FN(derive_spell)(t, s, slot);
        FN(derive_weights)(t, slot);
    }
    t->n_rows = t->n_occupied = 0;
    t->vacant = t->capacity;
    for (int64_t slot = t->capacity - 1; slot >= 0; slot--) {
        t->n_rows += t->size[slot];
        t->n_occupied += t->size[slot] > 0;
        if (!t->size[slot]) t->vacant = slot;
    }
    FN(derive_totals)(t);
}

/* Welford's step, and its exact inverse: the scatter is kept at or above 0, a cluster's last cell leaves exact zeros.
 * */
typedef struct { int64_t n; double mean, scatter; } FN(moments_t);
ALWAYS_INLINE FN(moments_t) FN(with_x)(FN(moments_t) m, double x) {
    double before = x - m.mean;
    m.n += 1;
    m.mean += before / m.n;
    m.scatter += before * (x - m.mean);
    return m;
}
ALWAYS_INLINE FN(moments_t) FN(without_x)(FN(moments_t) m, double x) {
    if (m.n <= 1) return (FN(moments_t)){0, 0.0, 0.0};
    double after = x - m.mean;
    m.n -= 1;
    m.mean -= after / m.n;
    m.scatter -= after * (x - m.mean);
    if (!(m.scatter > 0)) m.scatter = 0;
    return m;
}

/* One row enters (sign = +1) or leaves (sign = -1) a slot. */
static void FN(step_row)(tail_t *t, work_t *w, int64_t slot, int sign) {
    int64_t stride = t->capacity;
    int64_t size = t->size[slot] += sign;
    t->n_rows += sign;
    for (int64_t c = 0; c < t->n_codes; c++) t->levels[(int64_t)w->level[c] * stride + slot] += sign;
    for (int64_t i = 0; i < w->n_real; i++) {
        int64_t at = w->real_c[i] * stride + slot;
        FN(moments_t) m = {t->real_n[at], t->real_mean[at], t->real_scatter[at]};
        m = sign > 0 ? FN(with_x)(m, w->real_x[i]) : FN(without_x)(m, w->real_x[i]);
        t->real_n[at] = m.n, t->real_mean[at] = m.mean, t->real_scatter[at] = m.scatter;
        FN(derive_real)(t, w->real_c[i], slot);
    }
    if (w->n_real) FN(compare_columns)(t, slot);
    for (int64_t i = 0; i < w->n_tally; i++) {
        int64_t at = w->tally_c[i] * stride + slot;
        t->tally_n[at] += sign;
        t->tally_sum[at] = t->tally_n[at] ? t->tally_sum[at] + sign * w->tally_x[i] : 0.0;
        FN(derive_tally)(t, w->tally_c[i], slot);
    }
    if (w->n_vector) FN(step_vectors)(t, w, slot, sign);
    if (t->n_spells) FN(step_spells)(t, w, slot, sign);
    FN(derive_weights)(t, slot);
    if (size == 0 || size + 1 > 2 * t->reference_size[slot] || 2 * (size + 1) < t->reference_size[slot])
        FN(refresh_categories)(t, w, slot);
    else
        FN(update_categories)(t, w, slot);
    FN(update_contexts)(t, w, slot);
    if (sign > 0 && size == 1) {
        t->n_occupied += 1;
        if (slot >= t->n_slots) t->n_slots = slot + 1;
        while (t->vacant < stride && t->size[t->vacant]) t->vacant++;
    } else if (size == 0) {
        t->n_occupied -= 1;
        if (slot < t->vacant) {
            if (t->vacant < stride) t->log_size[t->vacant] = -INFINITY;
            t->vacant = slot;
        }
    }
    FN(derive_totals)(t);
}

/* log of the product of n factors, n a multiple of 8. 8 factors between 1e-30 (checked by Tail) and 2^33 neither vanish
 * nor overflow, so one logarithm serves 64 factors: 8 lanes of 8. */
ALWAYS_INLINE double FN(log_product)(const double *factor, int64_t n) {
    vd sum[8 / N_DOUBLE], product[8 / N_DOUBLE];
    for (int j = 0; j < 8 / N_DOUBLE; j++) sum[j] = (vd){0};
    for (int64_t i0 = 0; i0 < n; i0 += 64) {
        for (int j = 0; j < 8 / N_DOUBLE; j++) product[j] = SPREAD(1.0);
        for (int64_t i = i0; i < n && i < i0 + 64; i += 8)
            for (int j = 0; j < 8 / N_DOUBLE; j++) product[j] *= *(const vd *)(factor + i + j * N_DOUBLE);
        for (int j = 0; j < 8 / N_DOUBLE; j++) sum[j] += vlog(product[j]);
    }
    return FN(sum8)(sum);
}

/* Log of the product of the totals of the linked columns in the row's contexts, without the row. */
APART double FN(own_contexts)(const tail_t *t, const work_t *w, int64_t slot) {
    CONTEXTS_OF(t);
    int64_t C = t->n_codes, padded = (C + 7) & ~(int64_t)7;
    double *total = w->logs + padded; /* behind the factors of own_categories */
    for (int64_t c = 0; c < padded; c++) {
        total[c] = 1.0;
        if (c >= C || !IS_LINKED(c) || w->level[c] == t->offsets[c + 1] - 1) continue;
        int64_t from = FN(context_start)(t, c, w->level[c]);
        total[c] = FN(context_total)(t, from, from + FN(context_rows)(t, c) - 1, slot) - 1;
    }
    return FN(log_product)(total, padded);
}

/* Log predictive of the row's own slot without the row; nothing is written. Columns are the lanes here. */
APART double FN(own_categories)(const tail_t *t, const work_t *w, int64_t slot) {
    CONTEXTS_OF(t);
    int64_t stride = t->capacity, C = t->n_codes, padded = (C + 7) & ~(int64_t)7, n_missing = 0;
    double *factor = w->logs, score;
    for (int64_t c = 0; c < C; c++) {
        int64_t l = w->level[c], is_missing = l == t->offsets[c + 1] - 1;
        double others = t->levels[l * stride + slot] - 1 + t->dirichlet[l];
        n_missing += is_missing;
        factor[c] = is_missing ? 1.0 : others;
    }
    for (int64_t c = C; c < padded; c++) factor[c] = 1.0;
    score = FN(log_product)(factor, padded);
    if (t->n_linked) score -= FN(own_contexts)(t, w, slot);
    if (!n_missing) return score - t->total_without[slot];
    for (int64_t c = 0; c < C; c++) {
        double total, without;
        FN(column_total)(t, c, slot, &total, &without);
        factor[c] = w->level[c] == t->offsets[c + 1] - 1 || IS_LINKED(c) ? 1.0 : without;
    }
    return score - FN(log_product)(factor, padded);
}

/* Student t of every real cell of the row given its slot without the row: without_x, then student_of, then student. */
APART double FN(own_reals)(const tail_t *t, const work_t *w, int64_t slot) {
    int64_t pad = (t->n_reals + 7) & ~(int64_t)7;
    const double *field = t->without + slot * WITHOUT_FIELDS * pad;
    vd sum[8 / N_DOUBLE];
    for (int v = 0; v < 8 / N_DOUBLE; v++) sum[v] = SPREAD(0.0);
#define WITHOUT(name) (*(const vd *)(field + name * pad + i))
    for (int64_t i0 = 0; i0 < pad; i0 += 8)
        for (int v = 0; v < 8 / N_DOUBLE; v++) {
            int64_t i = i0 + v * N_DOUBLE;
            vl seen = *(const vl *)(t->plain + 2 * pad + i);
            vd x = (vd)((vl)*(const FN(vd_loose) *)(w->x + i) & seen);
            vd mean0 = *(const vd *)(t->plain + i), inverse_n = WITHOUT(INVERSE_N);
            vd after = x - WITHOUT(MEAN), mean = WITHOUT(MEAN) - after * inverse_n;
            vd scatter = WITHOUT(SCATTER) - after * (x - mean), off = mean0 - mean;
            scatter = SELECT((scatter > 0.0) & (inverse_n > 0.0), scatter, SPREAD(0.0));
            vd spread = *(const vd *)(t->plain + pad + i) + scatter + WITHOUT(PULL) * (off * off);
            vd square = LESS(SPREAD(1e300), spread + spread * WITHOUT(INVERSE_KAPPA));
            vd d = x - (mean0 - off * WITHOUT(SHRINK)), far = LESS(SPREAD(1e300), square + d * d);
            vd log_square = vlog(square), log_far = vlog(far); /* their difference is log(1 + d^2 / square) */
            vd score = (WITHOUT(CONSTANT) - 0.5 * log_square) - WITHOUT(HALF) * (log_far - log_square);
            if (w->block.some_missing) seen &= *(const FN(vl_loose) *)(w->reals_seen + i);
            sum[v] += (vd)((vl)score & seen);
        }
#undef WITHOUT
    return FN(sum8)(sum);
}

#define OWN(field, i) (*(vd *)(w->own + (field) * pad + (i)))
APART double FN(own_tallies)(const tail_t *t, const work_t *w, int64_t slot) {
    int64_t count = w->n_tally, pad = (count + 7) & ~(int64_t)7;
    double *f = w->own, most = 0, score = 0;
    enum { X, LOG_FACTORIAL, SADDLE, SHAPE, RATE, LOG_P, REMAINDER };
    for (int64_t i = 0; i < pad; i++) {
        int64_t j = i < count ? i : 0, q = w->tally_c[j], at = q * t->capacity + slot;
        double x = w->tally_x[j], shape = t->gamma[2 * q] + (t->tally_n[at] > 1 ? t->tally_sum[at] - x : 0.0);
        f[X * pad + i] = x, f[LOG_FACTORIAL * pad + i] = w->tally_log_factorial[j];
        f[SADDLE * pad + i] = w->tally_saddle[j], f[SHAPE * pad + i] = shape;
        f[RATE * pad + i] = t->gamma[2 * q + 1] + (t->tally_n[at] - 1), f[LOG_P * pad + i] = t->nb_log_p_without[at];
        f[REMAINDER * pad + i] = stirling_remainder(shape);
        if (x < 16 && x > most) most = x;
    }
    for (int64_t i = 0; i < pad; i += N_DOUBLE) { /* as add_negative_binomial */
        vd x = OWN(X, i), a = OWN(SHAPE, i), b = OWN(RATE, i), log_p = OWN(LOG_P, i);
        vd log_factorial = OWN(LOG_FACTORIAL, i), remainder = OWN(REMAINDER, i);
        vd zero = a * log_p, log_q = -vlog(b + 1.0);
        vd base = zero - (((a - 0.5) * vlog(a) - a) + (remainder + HALF_LOG_TWO_PI));
        vd result = FN(usual_count)(x, log_factorial, a, base, log_q);
        vl unusual = (a + x < 16.0) | (a + x >= 1e7);
        if (FN(any)(unusual)) {
            vd small = FN(small_count)(x, most, log_factorial, a, zero, log_q);
            vd large = FN(large_count)(SELECT(x < 16.0, SPREAD(16.0), x), OWN(SADDLE, i), a, b, log_p, remainder);
            result = SELECT(unusual, SELECT(x < 16.0, small, large), result);
        }
        OWN(X, i) = result;
    }
    for (int64_t i = 0; i < count; i++) score += f[X * pad + i];
    return score;
}
#undef OWN

#undef CONTEXTS_OF
#undef IS_LINKED

static double FN(own_score)(const tail_t *t, work_t *w, int64_t slot) {
    double score = 0;
    if (t->n_codes) score += FN(own_categories)(t, w, slot);
    if (w->n_real) score += FN(own_reals)(t, w, slot);
    if (w->n_tally) score += FN(own_tallies)(t, w, slot);
    if (w->n_vector) score += FN(own_vectors)(t, w, slot);
    if (t->n_spells) score += FN(own_spells)(t, w, slot);
    return score;
}
