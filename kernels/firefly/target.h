/* The log density of theta: log prior + sum of log B (a quadratic) + sum over bright rows of log L~ (docs/math.md 4.1,
 * 4.5), or log prior + sum over all rows of log L. Cost: the rows, and K D^2 for the quadratic.
 *
 * Order of sums: ((prior + bounds) + (shard 0 + shard 1 + ...)), values and gradients alike.
 */
#ifndef MPIBAYES_FIREFLY_TARGET_H
#define MPIBAYES_FIREFLY_TARGET_H

typedef double (*rows_function)(void *owner, const double *theta, double *gradient);

typedef struct { /* one of a list of blocks, and the place of its gaps */
    block_t rows;
    int64_t start;
} part_t;

typedef struct {
    const model_t *model;
    int64_t n_parameters;
    int full;              /* log L of every row, no bounds */
    const int32_t *prior;  /* (P,) FLAT, GAUSSIAN or LAPLACE */
    const double *inverse; /* (P,) of the prior: 1/s^2 or 1/b, 0 where it is flat */
    double prior_constant;
    const double *centre, *gram, *mixing, *slope; /* theta0 (P,), S (D, W), A (K, K), G (P,) */
    double constant;                              /* sum of log B at theta0 */
    int64_t n_parts, n_rows, parts_capacity, rows_capacity;
    part_t *parts;
    double *gap, *gap_before; /* (n_rows,) of the last evaluation; of the last accepted state */
    double log_density;       /* of the last accepted state */
    rows_function remote;     /* computes the sum over rows instead, if not NULL */
    void *owner;
    int64_t n_evaluations;
    double *scratch; /* see target_scratch */
} target_t;

/* doubles of scratch: theta, a part's gradient, all parts' gradient, phi, S phi: (K, W) each; and the rows' scratch */
static inline int64_t target_scratch(const model_t *m) { return 5 * m->n_classes * m->width + rows_scratch(m); }

static inline void pad(const model_t *m, const double *theta, double *out) {
    for (int64_t k = 0; k < m->n_classes; k++)
        for (int64_t c = 0; c < m->width; c++)
            out[k * m->width + c] = c < m->n_predictors ? theta[k * m->n_predictors + c] : 0.0;
}
static inline void unpad(const model_t *m, const double *padded, double *out) {
    for (int64_t k = 0; k < m->n_classes; k++)
        memcpy(out + k * m->n_predictors, padded + k * m->width, 8 * (size_t)m->n_predictors);
}

/* normalised; gradient (P,), if any, is overwritten */
static inline double log_prior(const target_t *t, const double *theta, double *gradient) {
    double sum = 0;
    for (int64_t p = 0; p < t->n_parameters; p++) {
        double x = theta[p], w = t->inverse[p];
        if (t->prior[p] == LAPLACE) {
            sum += w * (x < 0 ? -x : x);
            if (gradient) gradient[p] = x > 0 ? -w : x < 0 ? w : 0.0;
        } else {
            sum += 0.5 * w * (x * x);
            if (gradient) gradient[p] = -(w * x);
        }
    }
    return t->prior_constant - sum;
}

/* c0 + <G, phi> - 1/2 sum_kl A_kl phi_k' S phi_l, phi = theta - theta0; gradient (P,), if any, is added to */
static inline double log_bounds(const target_t *t, const double *theta, double *gradient) {
    const model_t *m = t->model;
    int64_t width = m->width, n_classes = m->n_classes, n_predictors = m->n_predictors;
    double *phi = t->scratch + 3 * n_classes * width, *image = t->scratch + 4 * n_classes * width;
    double along = 0, square = 0;
    for (int64_t k = 0; k < n_classes; k++) {
        for (int64_t c = 0; c < n_predictors; c++) {
            int64_t p = k * n_predictors + c;
            phi[k * width + c] = theta[p] - t->centre[p];
            along += t->slope[p] * phi[k * width + c];
        }
        multiply(t->gram, phi + k * width, n_predictors, width, image + k * width);
    }
    for (int64_t k = 0; k < n_classes; k++)
        for (int64_t c = 0; c < n_predictors; c++) {
            double mixed = 0;
            for (int64_t l = 0; l < n_classes; l++) mixed += t->mixing[k * n_classes + l] * image[l * width + c];
            square += phi[k * width + c] * mixed;
            if (gradient) gradient[k * n_predictors + c] += t->slope[k * n_predictors + c] - mixed;
        }
    return t->constant + (along - 0.5 * square);
}

/* One block's sum of log L~ (gaps to `gap`) or log L; gradient (P,), if any, is overwritten. */
static inline double part_sum(const target_t *t, const block_t *rows, const double *theta, double *gap,
                              double *gradient) {
    const model_t *m = t->model;
    int64_t size = m->n_classes * m->width;
    double *padded = t->scratch, *sum = gradient ? t->scratch + size : NULL, *work = t->scratch + 5 * size, value;
    pad(m, theta, padded);
    if (gradient) memset(sum, 0, 8 * (size_t)size);
    value = t->full ? likelihood_sum(m, rows, padded, sum, work) : bright_sum(m, rows, padded, gap, sum, work);
    if (gradient) unpad(m, sum, gradient);
    return value;
}

/* Sum over all parts, in their order; gradient (P,), if any, is overwritten. */
static inline double rows_sum(const target_t *t, const double *theta, double *gradient) {
    double total = 0, *own = t->scratch + 2 * t->model->n_classes * t->model->width;
    if (gradient) memset(gradient, 0, 8 * (size_t)t->n_parameters);
    for (int64_t i = 0; i < t->n_parts; i++) {
        total += part_sum(t, &t->parts[i].rows, theta, t->gap + t->parts[i].start, gradient ? own : NULL);
        if (gradient)
            for (int64_t p = 0; p < t->n_parameters; p++) gradient[p] += own[p];
    }
    return total;
}

/* log density; gradient (P,), if any, is overwritten. of_rows: (P,) scratch when there is a gradient */
static inline double evaluate(target_t *t, const double *theta, double *gradient, double *of_rows) {
    double value = log_prior(t, theta, gradient), rows;
    if (!t->full) value += log_bounds(t, theta, gradient);
    rows = t->remote ? t->remote(t->owner, theta, gradient ? of_rows : NULL)
                     : rows_sum(t, theta, gradient ? of_rows : NULL);
    t->n_evaluations++;
    if (gradient)
        for (int64_t p = 0; p < t->n_parameters; p++) gradient[p] += of_rows[p];
    return value + rows;
}

/* Make room for the parts and for the gaps of n_rows bright rows, dropping loaded ones. 0 if memory runs out. */
static inline int reserve_target(target_t *t, int64_t n_parts, int64_t n_rows) {
    t->n_parts = t->n_rows = 0;
    if (n_parts > t->parts_capacity) {
        free(t->parts);
        t->parts = malloc((size_t)n_parts * sizeof *t->parts);
        t->parts_capacity = t->parts ? n_parts : 0;
    }
    if (n_rows > t->rows_capacity) {
        int64_t capacity = n_rows + n_rows / 2 + 64;
        free(t->gap), free(t->gap_before);
        t->gap = aligned_doubles(capacity), t->gap_before = aligned_doubles(capacity);
        t->rows_capacity = t->gap && t->gap_before ? capacity : 0;
    }
    return t->parts_capacity >= n_parts && t->rows_capacity >= n_rows;
}

static inline void free_target(target_t *t) { free(t->parts), free(t->gap), free(t->gap_before), free(t->scratch); }

static inline block_t bright_block(const lights_t *l) {
    block_t rows = {l->now.n, l->now.x, l->now.y, l->now.bounds};
    return rows;
}

/* Load the bright rows of each shard by reference, with their gaps at the current state; 0 if memory runs out. */
static inline int load_lights(target_t *t, lights_t **lights, int64_t n_shards) {
    int64_t n = 0;
    for (int64_t i = 0; i < n_shards; i++) n += lights[i]->now.n;
    if (!reserve_target(t, n_shards, n)) return 0;
    for (int64_t i = 0; i < n_shards; i++) {
        t->parts[i].rows = bright_block(lights[i]), t->parts[i].start = t->n_rows;
        if (lights[i]->now.n) memcpy(t->gap_before + t->n_rows, lights[i]->now.gap, 8 * (size_t)lights[i]->now.n);
        t->n_rows += lights[i]->now.n;
    }
    t->n_parts = n_shards;
    return 1;
}

/* Mark the last evaluated state as accepted. */
static inline void accept_state(target_t *t, double log_density) {
    double *spare = t->gap_before;
    t->gap_before = t->gap, t->gap = spare;
    t->log_density = log_density;
}
#endif
