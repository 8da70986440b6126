/* Updates of theta that leave a target's density invariant: Hamiltonian Monte Carlo and its special case of one step,
 * MALA (Neal 2011, "MCMC using Hamiltonian dynamics"), random-walk Metropolis, and slice sampling along a random line
 * (Neal 2003, "Slice sampling", Section 4).
 *
 * They work in coordinates u with theta = W u. W never has to be inverted: a momentum p in u moves theta along W p, and
 * a gradient g in theta changes that velocity by W W' g. A state that is not finite is never accepted.
 * Random words: in sequence from one stream. Cost: evaluations of the target, and n_steps + 2 products with (P, P).
 */
#ifndef MPIBAYES_FIREFLY_MOVES_H
#define MPIBAYES_FIREFLY_MOVES_H

typedef struct { /* W is row-major (P, Q), Q = P rounded up to 8; NULL: the identity */
    int kind;
    int64_t n_parameters, stride;
    const double *w, *transposed, *square; /* W, W', W W' */
    double *scratch;                       /* 8 arrays of Q */
} mover_t;

typedef struct {
    philox_stream words;
    uint64_t next;
} sequence_t;

static inline double next_uniform(sequence_t *s) { return philox_uniform(philox_word(&s->words, s->next++)); }

static inline int is_number(double x) { return x - x == 0; } /* neither NaN nor infinite */

/* standard normals in pairs, by the polar method of Marsaglia & Bray (1964) */
static inline void draw_normals(sequence_t *s, double *out, int64_t n) {
    for (int64_t i = 0; i < n; i += 2) {
        double x, y, square, scale;
        do {
            x = 2.0 * next_uniform(s) - 1.0, y = 2.0 * next_uniform(s) - 1.0;
            square = x * x + y * y;
        } while (!(square < 1.0 && square > 0.0));
        scale = sqrt(-2.0 * log_finite(square) / square);
        out[i] = x * scale;
        if (i + 1 < n) out[i + 1] = y * scale;
    }
}

/* out = W p, W' p, W W' p */
static inline void apply(const mover_t *m, const double *transposed, const double *p, double *out) {
    if (transposed) multiply(transposed, p, m->n_parameters, m->stride, out);
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
    double *momentum = m->scratch, *velocity = momentum + q, *place = velocity + q, *gradient = place + q;
    double *pull = gradient + q, *image = pull + q, *of_rows = image + q, before, after = 0, kinetic, accept;
    draw_normals(s, momentum, n);
    kinetic = 0.5 * squared_norm(momentum, n);
    apply(m, m->transposed, momentum, velocity);
    memcpy(place, theta, 8 * (size_t)n);
    before = evaluate(t, place, gradient, of_rows);
    accept_state(t, before);
    for (int64_t p = 0; p < n; p++) pull[p] = 0.5 * gradient[p]; /* sum of gradients, ends halved */
    for (int64_t i = 0; i < n_steps; i++) {
        double share = i ? step : 0.5 * step, weight = i + 1 < n_steps ? 1.0 : 0.5;
        apply(m, m->square, gradient, image);
        for (int64_t p = 0; p < n; p++) velocity[p] += share * image[p];
        for (int64_t p = 0; p < n; p++) place[p] += step * velocity[p];
        after = evaluate(t, place, gradient, of_rows);
        if (!is_number(after)) return 0.0; /* the way back meets the same point */
        for (int64_t p = 0; p < n; p++) pull[p] += weight * gradient[p];
    }
    apply(m, m->w, pull, image);
    for (int64_t p = 0; p < n; p++) momentum[p] += step * image[p];
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
    draw_normals(s, direction, n);
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

enum { SLICE_STEPS = 100, SLICE_SHRINKS = 200 }; /* bounds on the work; the first is Neal's m */

/* Along a direction uniform on the sphere in u. `width` is Neal's w. The interval is stepped out at most SLICE_STEPS
 * widths, shared at random between its ends; a line that shrinks SLICE_SHRINKS times stays where it was. */
static inline double move_slice(const mover_t *m, target_t *t, double *theta, double width, sequence_t *s) {
    int64_t n = m->n_parameters, q = m->stride, out, left, right;
    double *direction = m->scratch, *along = direction + q, *place = along + q, before, level, low, high, norm;
    draw_normals(s, direction, n);
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

/* one update of theta, in place; returns the acceptance probability. t->n_evaluations counts from 0. */
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

/* Robbins & Monro (1951) on the log step size with gains t^-0.6, averaged as Hoffman & Gelman (2014) do, (6); goal <= 0
 * leaves the step alone. The bright count is a mean over the last 200 cycles or so. */
static inline void adapt(double *tuning, double accept, double n_bright, double goal) {
    double count = tuning[N_ADAPTED] += 1.0, log_count = log_finite(count + 1.0), gain;
    gain = 1.0 / count > 0.005 ? 1.0 / count : 0.005;
    tuning[MEAN_BRIGHT] += gain * (n_bright - tuning[MEAN_BRIGHT]);
    if (!(goal > 0)) return;
    if (!(accept >= 0)) accept = 0;
    tuning[LOG_STEP] += exp_negative(-0.6 * log_count) * (accept - goal);
    gain = exp_negative(-0.75 * log_finite(count));
    tuning[LOG_STEP_AVERAGE] += gain * (tuning[LOG_STEP] - tuning[LOG_STEP_AVERAGE]);
    tuning[STEP] = exp_any(tuning[LOG_STEP]);
    tuning[STEP_AVERAGE] = exp_any(tuning[LOG_STEP_AVERAGE]);
}

/* probability that a sweep looks at a dark row: factor M / n, at least 1 / n; a negative factor is minus that
 * probability itself */
static inline double proposal_rate(const double *tuning, double factor, double n_rows) {
    double q = factor < 0 ? -factor : factor * tuning[MEAN_BRIGHT] / n_rows;
    if (factor >= 0 && q * n_rows < 1.0) q = 1.0 / n_rows;
    return q < 1.0 ? q : 1.0;
}
#endif
