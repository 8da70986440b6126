/* The mixture kernels: their loops for every instruction set, and the call of the one in use. */
#ifndef MPIBAYES_MIXTURE_H
#define MPIBAYES_MIXTURE_H
#include "alike.h"
#include "layout.h"
#include "philox.h"
#include "special.h"

#define LOOPS "loops.h"
#include "every_isa.h"

static inline outcome_t kernel_sweep(const rows_t *rows, int32_t *z, int64_t first, const instantiated_t *g, tail_t *t,
                                     work_t *w, uint64_t row0, uint64_t seed, uint64_t cycle, uint64_t sweep,
                                     uint64_t chain, int anchored) {
    return DISPATCH(sweep, rows, z, first, g, t, w, row0, seed, cycle, sweep, chain, anchored);
}
static inline outcome_t kernel_sweep_runs(const rows_t *rows, int32_t *z, int64_t first, const instantiated_t *g,
                                          work_t *w, uint64_t row0, uint64_t seed, uint64_t cycle, uint64_t sweep,
                                          uint64_t chain, int anchored) {
    return DISPATCH(sweep_runs, rows, z, first, g, w, row0, seed, cycle, sweep, chain, anchored);
}
static inline outcome_t kernel_visit(const rows_t *rows, int32_t *z, const int32_t *out, const int32_t *in,
                                     int64_t first, int64_t n_steps, const instantiated_t *g, tail_t *t, work_t *w,
                                     uint64_t row0, uint64_t seed, uint64_t cycle, uint64_t sweep, uint64_t chain,
                                     int anchored) {
    return DISPATCH(visit, rows, z, out, in, first, n_steps, g, t, w, row0, seed, cycle, sweep, chain, anchored);
}
static inline outcome_t kernel_predictive(const rows_t *rows, tail_t *t, work_t *w, double *terms, double *totals) {
    return DISPATCH(predictive, rows, t, w, terms, totals);
}
static inline outcome_t kernel_seat(const rows_t *rows, int64_t first, const int32_t *guide, int32_t *home,
                                    int32_t *known, int32_t *slot, const double *u, double boost, tail_t *t, work_t *w,
                                    double *log_q) {
    return DISPATCH(seat, rows, first, guide, home, known, slot, u, boost, t, w, log_q);
}
static inline double kernel_take(const double *terms, int64_t n_rows, int64_t n_columns, const double *u,
                                 const int32_t *given, double *weight, int32_t *chosen) {
    return DISPATCH(take, terms, n_rows, n_columns, u, given, weight, chosen);
}
static inline void kernel_add_cells(const rows_t *rows, const int32_t *cluster, int64_t pad, double *sum,
                                    int64_t *count) {
    DISPATCH(add_cells, rows, cluster, pad, sum, count);
}
static inline void kernel_add_squares(const rows_t *rows, const int32_t *cluster, int64_t pad, const double *mean,
                                      double *scatter) {
    DISPATCH(add_squares, rows, cluster, pad, mean, scatter);
}
static inline void kernel_refresh(tail_t *t, work_t *w, int64_t from, int64_t to, const uint8_t *met) {
    DISPATCH(refresh, t, w, from, to, met);
}
#endif
