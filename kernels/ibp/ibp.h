/* The kernels of the Indian buffet process: their loops for every instruction set, and the call of the one in use. */
#ifndef MPIBAYES_IBP_H
#define MPIBAYES_IBP_H
#include <string.h>
#include "layout.h"
#include "philox.h"
#include "special.h"

ALWAYS_INLINE int has(const uint64_t *z, int64_t bit) { return (int)(z[bit >> 6] >> (bit & 63) & 1); }
ALWAYS_INLINE void toggle(uint64_t *z, int64_t bit) { z[bit >> 6] ^= 1ull << (bit & 63); }

#define LOOPS "loops.h"
#include "every_isa.h"

static inline void sweep(const rows_t *r, const features_t *f, const key_of_sweep *key, double *scratch) {
    DISPATCH(sweep, r, f, key, scratch);
}
static inline int64_t sweep_tail(const rows_t *r, const features_t *f, tail_t *t, const key_of_sweep *key, int64_t first,
                                 double *scratch) {
    return DISPATCH(sweep_tail, r, f, t, key, first, scratch);
}
static inline void tail_sums(const rows_t *r, const features_t *f, const tail_t *t, double *sums, double *scratch) {
    DISPATCH(tail_sums, r, f, t, sums, scratch);
}
static inline void tally(const rows_t *r, const int64_t *slot, int64_t K, int64_t *owners, double *cells, double *squares,
                         double *scratch) {
    DISPATCH(tally, r, slot, K, owners, cells, squares, scratch);
}
#endif
