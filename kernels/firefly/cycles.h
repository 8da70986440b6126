/* Whole cycles without Python: every shard's sweep, then theta, then adaptation (docs/math.md 4.3, 4.4). */
#ifndef MPIBAYES_FIREFLY_CYCLES_H
#define MPIBAYES_FIREFLY_CYCLES_H

typedef struct { /* one entry per cycle, for theta one row */
    double *theta, *log_density, *acceptance, *step_size;
    int64_t *bright, *queries_theta, *queries_z;
} record_t;

/* Recompute the gaps of the bright rows at theta (padded: scratch of (K, W)), with the present bounds. */
static inline void refresh_lights(lights_t *l, const double *theta, double *padded) {
    const model_t *m = l->model;
    block_t rows;
    for (int64_t i = 0; i < l->now.n; i++)
        memcpy(l->now.bounds + i * m->n_bounds, l->rows.bounds + l->now.row[i] * m->n_bounds, 8 * (size_t)m->n_bounds);
    rows = bright_block(l);
    pad(m, theta, padded);
    all_gaps(m, &rows, padded, l->now.gap, l->scratch);
}

/* Run cycles; returns 0 if memory runs out: the current cycle is then incomplete. */
static inline int run_cycles(lights_t **lights, int64_t n_shards, target_t *t, const mover_t *m, double *theta,
                             double *tuning, double goal, double q_factor, int explicit, int64_t n_steps, uint64_t seed,
                             uint64_t first_cycle, uint64_t chain, int64_t n_cycles, int64_t adapting_until,
                             const volatile int *failed, record_t out) {
    int64_t n_parameters = t->n_parameters, n_rows = 0;
    for (int64_t i = 0; i < n_shards; i++) n_rows += lights[i]->rows.n;
    for (int64_t c = 0; c < n_cycles; c++) {
        uint64_t cycle = first_cycle + (uint64_t)c;
        int adapting = (int64_t)cycle <= adapting_until;
        double step = tuning[adapting ? STEP : STEP_AVERAGE], accept;
        out.queries_z[c] = 0;
        if (n_shards) {
            double q = proposal_rate(tuning, q_factor, (double)n_rows);
            for (int64_t i = 0; i < n_shards; i++) {
                pad(t->model, theta, t->scratch);
                int64_t queries = sweep_lights(lights[i], t->scratch, q, explicit, seed, cycle, chain, (uint64_t)i);
                if (queries < 0) return 0;
                out.queries_z[c] += queries;
            }
            if (!load_lights(t, lights, n_shards)) return 0;
        }
        accept = move(m, t, theta, step, n_steps, seed, cycle, chain);
        if (*failed) return 1;
        for (int64_t i = 0; i < n_shards; i++) {
            if (t->remote) refresh_lights(lights[i], theta, t->scratch);
            else if (lights[i]->now.n)
                memcpy(lights[i]->now.gap, t->gap_before + t->parts[i].start, 8 * (size_t)lights[i]->now.n);
        }
        if (adapting) adapt(tuning, accept, (double)t->n_rows, goal);
        memcpy(out.theta + c * n_parameters, theta, 8 * (size_t)n_parameters);
        out.log_density[c] = t->log_density, out.acceptance[c] = accept, out.step_size[c] = step;
        out.bright[c] = t->n_rows, out.queries_theta[c] = t->n_evaluations * t->n_rows;
    }
    return 1;
}
#endif
