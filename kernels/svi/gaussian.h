/* One pass over rows under a mixture of Gaussians with full precisions: loops for every instruction set. */
#ifndef MPIBAYES_SVI_GAUSSIAN_H
#define MPIBAYES_SVI_GAUSSIAN_H
#include <stdint.h>
#include "special.h"

enum { BLOCK = 64, LANES = 8, GROUPS = BLOCK / LANES }; /* rows at a time, in groups */
#define LOG_LEAST (-27.631021115928548) /* log 1e-12: components less likely than the best by this factor count as 0 */

typedef struct { /* T = D (D + 1) / 2; lower triangles are packed row by row */
    int64_t K, D;
    const double *mean;     /* (K, D) */
    const double *factor;   /* (K, T) */
    const double *constant; /* (K,): log weight of x is constant - |factor (x - mean)|^2 */
} mixture_t;

typedef struct { /* scratch, at multiples of 64 bytes */
    double *x, *y, *weighted; /* (D, BLOCK) each */
    double *log;              /* (K, BLOCK), then the responsibilities */
    double *row;              /* (4, BLOCK): maximum, 1 / sum, numbers, 1 for a row and 0 for padding */
    double *plain, *numbered; /* (K, 1 + D + T, LANES): sums by the rows' places in their groups (lanes) */
} scratch_t;

#define LOOPS "gaussian_loops.h"
#include "every_isa.h"

static inline double gaussian_pass(const mixture_t *m, const double *x, const int64_t *rows, int64_t n,
                                   const double *numbers, scratch_t *s) {
    return DISPATCH(gaussian_pass, m, x, rows, n, numbers, s);
}
#endif
