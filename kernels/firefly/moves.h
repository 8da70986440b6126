/* Updates of theta that leave a target's density invariant: Hamiltonian Monte Carlo and its special case of one step,
 * MALA (Neal 2011, "MCMC using Hamiltonian dynamics"), random-walk Metropolis, and slice sampling along a random line
 * (Neal 2003, "Slice sampling", Section 4).
 *
 * They work in coordinates u with theta = W u, where a gradient g in theta is W' g, and a momentum p moves theta along
 * W p. A state that is not finite is never accepted. Random words: in sequence from one stream. Cost: evaluations of
 * the target, and 2 n_steps + 1 products with (P, P), half the cost when W is triangular.
 */
#ifndef MPIBAYES_FIREFLY_MOVES_H
#define MPIBAYES_FIREFLY_MOVES_H

typedef struct {
    int kind;
    int64_t n_parameters, stride; /* P; P rounded up to 32 */
    const banded_t *w, *transposed; /* W and W'; NULL: the identity */
    double *scratch;                /* 7 arrays of `stride` */
} mover_t;

typedef struct {
    philox_stream words;
    uint64_t next;
} sequence_t;

static inline double next_uniform(sequence_t *s) { return philox_uniform(philox_word(&s->words, s->next++)); }

static inline int is_number(double x) { return x - x == 0; } /* neither NaN nor infinite */

/* Standard normals in pairs, by the polar method of Marsaglia & Bray (1964). scratch: n/2 rounded up to 8, out: one
 * more than n. */
static inline void draw_normals(sequence_t *s, double *out, int64_t n, double *scratch) {
    int64_t n_pairs = (n + 1) / 2, padded = (n_pairs + 7) / 8 * 8;
    for (int64_t i = 0; i < n_pairs; i++) {
        double x, y, square;
        do {
            x = 2.0 * next_uniform(s) - 1.0, y = 2.0 * next_uniform(s) - 1.0;
            square = x * x + y * y;
        } while (!(square < 1.0 && square > 0.0));
        out[2 * i] = x, out[2 * i + 1] = y, scratch[i] = square;
    }
    for (int64_t i = n_pairs; i < padded; i++) scratch[i] = 1.0;
    polar_scales(scratch, padded);
    for (int64_t i = 0; i < n_pairs; i++) out[2 * i] *= scratch[i], out[2 * i + 1] *= scratch[i];
}

/* out = p' A, which is W p for A = W', and W' p for A = W; a copy of p for NULL */
static inline void apply(const mover_t *m, const banded_t *matrix, const double *p, double *out) {
    if (matrix) multiply_banded(matrix, p, out);
    else memcpy(out, p, 8 * (size_t)m->n_parameters);
}

static inline double squared_norm(const double *p, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += p[i] * p[i];
    return sum;
}

/* min(1, e^x); 0 for NaN */
static inline double acceptance(double x) { return x >= 0 ? 1.0 : exp_negative(x); }

/* n_steps leapfrog steps of length `step`; returns the acceptance probability */
static inline double move_hamiltonian(const mover_t *m, target_t *t, double *theta, double step, int64_t n_steps,
                                      sequence_t *s) {
    int64_t n = m->n_parameters, q = m->stride;
    double *momentum = m->scratch, *place = momentum + q, *gradient = place + q, *image = gradient + q;
    double *of_rows = image + q, before, after, kinetic, accept, share = 0.5 * step;
    draw_normals(s, momentum, n, image);
    kinetic = 0.5 * squared_norm(momentum, n);
    memcpy(place, theta, 8 * (size_t)n);
    after = before = evaluate(t, place, gradient, of_rows);
    accept_state(t, before);
    for (int64_t i = 0; i < n_steps; i++, share = step) {
        apply(m, m->w, gradient, image); /* W' g */
        for (int64_t p = 0; p < n; p++) momentum[p] += share * image[p];
        apply(m, m->transposed, momentum, image); /* W p */
        for (int64_t p = 0; p < n; p++) place[p] += step * image[p];
        after = evaluate(t, place, gradient, of_rows);
        if (!is_number(after)) return 0.0; /* the reverse trajectory meets the same point */
    }
    apply(m, m->w, gradient, image);
    for (int64_t p = 0; p < n; p++) momentum[p] += 0.5 * step * image[p];
    accept = acceptance((after - 0.5 * squared_norm(momentum, n)) - (before - kinetic));
    if (next_uniform(s) < accept) {
        memcpy(theta, place, 8 * (size_t)n);
        accept_state(t, after);
    }
    return accept;
}

static inline double move_random_walk(const mover_t *m, target_t *t, double *theta, double step, sequence_t *s) {
    int64_t n = m->n_parameters, q = m->stride;
    double *direction = m->scratch, *along = direction + q, *place = along + q, before, after, accept;
    draw_normals(s, direction, n, along);
    apply(m, m->transposed, direction, along);
    for (int64_t p = 0; p < n; p++) place[p] = theta[p] + step * along[p];
    before = evaluate(t, theta, NULL, NULL);
    accept_state(t, before);
    after = evaluate(t, place, NULL, NULL);
    if (!is_number(after)) return 0.0;
    accept = acceptance(after - before);
    if (next_uniform(s) < accept) {
        memcpy(theta, place, 8 * (size_t)n);
        accept_state(t, after);
    }
    return accept;
}

enum { SLICE_STEPS = 100, SLICE_SHRINKS = 200 }; /* limits on the work; the first is Neal's m */

/* Along a direction uniform on the sphere in u. `width` is Neal's w. The interval is stepped out at most SLICE_STEPS
 * widths, shared at random between its ends; a line that shrinks SLICE_SHRINKS times stays where it was. */
static inline double move_slice(const mover_t *m, target_t *t, double *theta, double width, sequence_t *s) {
    int64_t n = m->n_parameters, q = m->stride, out, left, right;
    double *direction = m->scratch, *along = direction + q, *place = along + q, before, level, low, high, norm;
    draw_normals(s, direction, n, along);
    norm = sqrt(squared_norm(direction, n));
    for (int64_t p = 0; p < n; p++) direction[p] /= norm;
    apply(m, m->transposed, direction, along);
    before = evaluate(t, theta, NULL, NULL);
    accept_state(t, before);
    level = before + log_or_never(1.0 - next_uniform(s));
    low = -width * next_uniform(s), high = low + width;
    left = (int64_t)(SLICE_STEPS * next_uniform(s)), right = SLICE_STEPS - 1 - left;
    for (int end = 0; end < 2; end++)
        for (out = end ? right : left; out > 0; out--) {
            double at = end ? high : low, value;
            for (int64_t p = 0; p < n; p++) place[p] = theta[p] + at * along[p];
            value = evaluate(t, place, NULL, NULL);
            if (!(value > level)) break;
            if (end) high += width;
            else low -= width;
        }
    for (int i = 0; i < SLICE_SHRINKS; i++) {
        double at = low + (high - low) * next_uniform(s), value;
        for (int64_t p = 0; p < n; p++) place[p] = theta[p] + at * along[p];
        value = evaluate(t, place, NULL, NULL);
        if (value > level && is_number(value)) {
            memcpy(theta, place, 8 * (size_t)n);
            accept_state(t, value);
            return 1.0;
        }
        if (at < 0) low = at;
        else high = at;
    }
    return 0.0;
}

/* One update of theta, in place; returns the acceptance probability. t->n_evaluations restarts at 0. */
static inline double move(const mover_t *m, target_t *t, double *theta, double step, int64_t n_steps, uint64_t seed,
                          uint64_t cycle, uint64_t chain) {
    sequence_t s = {philox_open(seed, PURPOSE_THETA, 0, cycle, chain), 0};
    t->n_evaluations = 0;
    if (m->kind == HMC) {
        double jitter = 1.0 + 0.2 * (2.0 * next_uniform(&s) - 1.0); /* against periodic trajectories */
        return move_hamiltonian(m, t, theta, step * jitter, n_steps, &s);
    }
    if (m->kind == MALA) return move_hamiltonian(m, t, theta, step, 1, &s);
    if (m->kind == RANDOM_WALK) return move_random_walk(m, t, theta, step, &s);
    return move_slice(m, t, theta, step, &s);
}

/* ---- adaptation, in burn-in only ---- */

/* tuning: step size in use, averaged step size (for after burn-in), number of adaptations, running mean of the bright
 * count, and the logarithms of the first two */
enum { STEP = 0, STEP_AVERAGE = 1, N_ADAPTED = 2, MEAN_BRIGHT = 3, LOG_STEP = 4, LOG_STEP_AVERAGE = 5, N_TUNING = 6 };

static inline double exp_any(double x) { return x > 0 ? 1.0 / exp_negative(-x) : exp_negative(x); }

/* Robbins & Monro (1951) on the log step size with gains t^-0.6, averaged as in Hoffman & Gelman (2014), (6); goal <= 0
 * leaves the step unchanged. The bright count is a mean over all cycles, each weighted in proportion to its number, so
 * that it forgets the start without depending on the noise of the last ones. */
static inline void adapt(double *tuning, double accept, double n_bright, double goal) {
    double count = tuning[N_ADAPTED] += 1.0, log_count = log_finite(count + 1.0), gain;
    gain = 2.0 / (count + 1.0);
    tuning[MEAN_BRIGHT] += gain * (n_bright - tuning[MEAN_BRIGHT]);
    if (!(goal > 0)) return;
    if (!(accept >= 0)) accept = 0;
    tuning[LOG_STEP] += exp_negative(-0.6 * log_count) * (accept - goal);
    gain = exp_negative(-0.75 * log_finite(count));
    tuning[LOG_STEP_AVERAGE] += gain * (tuning[LOG_STEP] - tuning[LOG_STEP_AVERAGE]);
    tuning[STEP] = exp_any(tuning[LOG_STEP]);
    tuning[STEP_AVERAGE] = exp_any(tuning[LOG_STEP_AVERAGE]);
}

/* Probability that a sweep visits a dark row: factor M / n, at least 1 / n; a negative factor is minus that
 * probability. */
static inline double proposal_rate(const double *tuning, double factor, double n_rows) {
    double q = factor < 0 ? -factor : factor * tuning[MEAN_BRIGHT] / n_rows;
    if (factor >= 0 && q * n_rows < 1.0) q = 1.0 / n_rows;
    return q < 1.0 ? q : 1.0;
}
#endif
