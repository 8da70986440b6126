/* A pruned pass over rows: its loops for every instruction set, and the call of the one in use. */
#ifndef MPIBAYES_PRUNED_H
#define MPIBAYES_PRUNED_H
#include "bounds.h"
#include "philox.h"
#include "special.h"

#define LOOPS "pruning_loops.h"
#include "every_isa.h"

static inline void kernel_prune(const rows_t *rows, const uint8_t *bins, const int32_t *z, int32_t *out,
                                const instantiated_t *g, const bounds_t *b, pruning_t *p, work_t *w, uint64_t row0,
                                uint64_t seed, uint64_t cycle, uint64_t sweep, uint64_t chain) {
    DISPATCH(prune, rows, bins, z, out, g, b, p, w, row0, seed, cycle, sweep, chain);
}
static inline int64_t kernel_survivors(const rows_t *rows, const uint8_t *bins, const int32_t *z, int32_t *out,
                                       const instantiated_t *g, const bounds_t *b, pruning_t *p, work_t *w,
                                       survivors_t *kept, int64_t first, uint64_t row0, uint64_t seed, uint64_t cycle,
                                       uint64_t chain) {
    return DISPATCH(survivors, rows, bins, z, out, g, b, p, w, kept, first, row0, seed, cycle, chain);
}
#endif
