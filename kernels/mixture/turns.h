/* Missing cells of a column drawn one after another (turns.pyx): the loop for every instruction set, and the call of the
 * one in use. */
#ifndef MPIBAYES_TURNS_H
#define MPIBAYES_TURNS_H
#include "philox.h"
#include "special.h"
#include <string.h>

/* a column of cells: its first level row, and the context of each level, for children; parent: its number, or -1 */
typedef struct {
    int64_t first, n_levels, n_contexts, parent;
    int is_wide;
    int64_t index;
    const int64_t *context;
} column_t;

#define LOOPS "turns_loops.h"
#include "every_isa.h"

static inline void kernel_fill_in_turn(philox_stream *words, const column_t *of, int64_t own, const int64_t *children,
                                       int64_t n_children, int32_t *cells, int64_t width, const int64_t *at, int64_t n,
                                       const int64_t *ids, int32_t *levels, const double *beta, int64_t K, int64_t most,
                                       double *total, double *ratio, double *weight) {
    DISPATCH(fill_in_turn, words, of, own, children, n_children, cells, width, at, n, ids, levels, beta, K, most, total,
             ratio, weight);
}
#endif
