/* The Firefly kernels: their loops for every instruction set, and the call of the one in use. */
#ifndef MPIBAYES_FIREFLY_H
#define MPIBAYES_FIREFLY_H
#include "layout.h"
#include "philox.h"
#include "special.h"

/* Words of 4 n_blocks consecutive rows of a stream. */
static inline void philox_fill(uint64_t seed, uint64_t purpose, uint64_t sub, uint64_t cycle, uint64_t chain,
                               uint64_t first_block, int64_t n_blocks, uint64_t *out) {
    uint64_t counter[4] = {first_block, sub, cycle, chain};
    for (int64_t b = 0; b < n_blocks; b++, counter[0]++) philox_block(counter, seed, purpose, out + 4 * b);
}

static inline model_t new_model(int likelihood, int64_t n_predictors, int64_t n_classes, double nu, double scale) {
    model_t m = {likelihood, n_predictors, (n_predictors + 7) / 8 * 8, likelihood == SOFTMAX ? n_classes : 1, 0,
                 0.5 * (nu + 1.0), nu * scale * scale, 0.0};
    m.n_bounds = likelihood == LOGISTIC ? 2 : likelihood == SOFTMAX ? 2 * n_classes : 1;
    m.log_constant = log_gamma_half_step(0.5 * nu) - 0.5 * (log_positive(nu) + LOG_PI) - log_positive(scale);
    return m;
}

#define LOOPS "loops.h"
#include "every_isa.h"

static inline double bright_sum(const model_t *m, const block_t *b, const double *theta, double *gap, double *gradient,
                                double *scratch) {
    return DISPATCH(bright_sum, m, b, theta, gap, gradient, scratch);
}
static inline double likelihood_sum(const model_t *m, const block_t *b, const double *theta, double *gradient,
                                    double *scratch) {
    return DISPATCH(likelihood_sum, m, b, theta, gradient, scratch);
}
static inline void all_gaps(const model_t *m, const block_t *b, const double *theta, double *gap, double *scratch) {
    DISPATCH(all_gaps, m, b, theta, gap, scratch);
}
static inline void linear(const model_t *m, const block_t *b, const double *theta, double *eta, double *scratch) {
    DISPATCH(linear, m, b, theta, eta, scratch);
}
static inline void tune(const model_t *m, const block_t *b, const double *theta, double xi, double *bounds,
                        double *scratch) {
    DISPATCH(tune, m, b, theta, xi, bounds, scratch);
}
static inline void combine(const model_t *m, const block_t *b, const double *v, double *gradient, double *scratch) {
    DISPATCH(combine, m, b, v, gradient, scratch);
}
static inline void gram(const model_t *m, const block_t *b, const double *weight, double *out, double *scratch) {
    DISPATCH(gram, m, b, weight, out, scratch);
}
static inline void multiply(const double *a, const double *x, int64_t n_in, int64_t n_out, double *out) {
    DISPATCH(multiply, a, x, n_in, n_out, out);
}
static inline void multiply_banded(const banded_t *a, const double *x, double *out) {
    DISPATCH(multiply_banded, a, x, out);
}
static inline void polar_scales(double *square, int64_t n) { DISPATCH(polar_scales, square, n); }
static inline int draw_lights(lights_t *l, const double *theta, uint64_t seed, uint64_t cycle, uint64_t chain,
                              uint64_t shard) {
    return DISPATCH(draw_lights, l, theta, seed, cycle, chain, shard);
}
static inline int64_t sweep_lights(lights_t *l, const double *theta, double q, int explicit, uint64_t seed,
                                   uint64_t cycle, uint64_t chain, uint64_t shard) {
    return DISPATCH(sweep_lights, l, theta, q, explicit, seed, cycle, chain, shard);
}

#include "target.h"
#include "moves.h"
#include "cycles.h"
#endif
