/* The mixture kernels for every instruction set of this processor family, and the choice among them at run time.
 *
 * The same source is compiled for vectors of 16, 32 and 64 bytes. All give the same bits (lanes.h), so the choice is
 * one of speed alone; MPIBAYES_ISA=baseline|avx2|avx512 forces it. Compilers without GCC's target pragma, and other
 * processors, get the first.
 */
#ifndef MPIBAYES_MIXTURE_H
#define MPIBAYES_MIXTURE_H
#include "layout.h"
#include "philox.h"
#include "special.h"

#define FN(name) name##_baseline
#define MB_BYTES 16
#define MB_TILE 32
#include "loops.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define MPIBAYES_MANY_ISAS 1
#pragma GCC push_options
#pragma GCC target("avx2")
#define FN(name) name##_avx2
#define MB_BYTES 32
#define MB_TILE 64
#include "loops.h"
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq")
#define FN(name) name##_avx512
#define MB_BYTES 64
#define MB_TILE 64
#include "loops.h"
#pragma GCC pop_options
#endif

#include "isa.h"

static inline outcome_t kernel_sweep(const rows_t *rows, int32_t *z, int64_t first, const instantiated_t *g, tail_t *t,
                                     work_t *w, uint64_t row0, uint64_t seed, uint64_t cycle, uint64_t sweep,
                                     uint64_t chain, int anchored) {
    return DISPATCH(sweep, rows, z, first, g, t, w, row0, seed, cycle, sweep, chain, anchored);
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
static inline void kernel_add_cells(const rows_t *rows, const int32_t *cluster, int64_t pad, double *sum,
                                    int64_t *count) {
    DISPATCH(add_cells, rows, cluster, pad, sum, count);
}
static inline void kernel_add_squares(const rows_t *rows, const int32_t *cluster, int64_t pad, const double *mean,
                                      double *scatter) {
    DISPATCH(add_squares, rows, cluster, pad, mean, scatter);
}
static inline void kernel_refresh(tail_t *t, work_t *w, int64_t from, int64_t to) {
    DISPATCH(refresh, t, w, from, to);
}
#endif
