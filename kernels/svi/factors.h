/* Pass over users of a factorization: solve each against the items and add it to the sums from which the items are
 * solved. Loops for every instruction set.
 *
 * Lower triangles are packed row by row, T = D (D + 1) / 2. Rows of arrays have two zones, each padded to a multiple of
 * LANES: entries added once per rating, and entries multiplied by the rating.
 */
#ifndef MPIBAYES_SVI_FACTORS_H
#define MPIBAYES_SVI_FACTORS_H
#include <stdint.h>
#include <string.h>
#include "special.h"

enum { LANES = 8, AHEAD = 6, HALVINGS = 24, WIDEST = 280 }; /* WIDEST: widest rows whose sums stay in registers */
#define KEPT 1e-3 /* share of the noiseless precision that the guard preserves, as in hpc/svi/step.py */
#define TRIANGLE(i, j) ((i) * ((i) + 1) / 2 + (j))
#define PADDED(n) (((n) + LANES - 1) / LANES * LANES)

typedef struct {
    int64_t D, biased;
    int64_t once, times;            /* widths of the zones of `table` */
    int64_t into_once, into_times;  /* widths of the zones of `sums` */
    const double *table;            /* (items, once + times) */
    const double *prior;            /* (T + D): precision, and precision times mean */
    double center, sharpness;       /* subtracted from ratings; 1 / their variance */
    const double *numbers;          /* one number per rating of these users, end to end, NULL without noise */
    double effective;               /* > 0: a row's noise is that of this many of its ratings; else: */
    double spread, average;         /* factor of the numbers, and their mean over all ratings */
    int64_t guard;
    const double *old;              /* (users, T + D): start of a step with `rate`, NULL for a whole step */
    double *fresh;                  /* the same after the step */
    double rate;
    double *sums, *numbered;        /* (items, into_once + into_times): added to; numbered NULL without noise */
    double *moments;                /* (these users, D + T): means and covariances, NULL for none */
} pass_t;

typedef struct { /* scratch, at multiples of 64 bytes */
    double *by_user;                 /* (LANES, 2, once + times) */
    double *scalar;                  /* (8, LANES): ratings, sum r, sum r^2, sum e, sum e r, squares, 1 if rated, - */
    double *plain, *noise;           /* (T + D, LANES) */
    double *target, *sure, *tried;   /* (T + D, LANES) */
    double *root, *inverse;          /* (T, LANES) */
    double *row, *mean;              /* (D, LANES) */
    double *covariance;              /* (T, LANES) */
    double *value;                   /* (into_once + 2 into_times): one user's: once, times r, and once again */
    double *total;                   /* (T + D + 4, LANES): sums over users (factors.pyx) */
    int64_t held, broken;            /* numbers of users whose noise was reduced, and whose precision is not positive */
} factor_scratch_t;

#define LOOPS "factors_loops.h"
#include "every_isa.h"

static inline void factor_pass(const pass_t *p, const int64_t *starts, const int64_t *users, int64_t n,
                               const int32_t *columns, const float *values, factor_scratch_t *s) {
    DISPATCH(factor_pass, p, starts, users, n, columns, values, s);
}
static inline void factor_moments(int64_t D, const double *natural, int64_t n, double *moments, double *log_det,
                                  factor_scratch_t *s) {
    DISPATCH(factor_moments, D, natural, n, moments, log_det, s);
}
static inline void factor_shares(int64_t D, const double *sure, const double *noise, int64_t n, double *share,
                                 factor_scratch_t *s) {
    DISPATCH(factor_shares, D, sure, noise, n, share, s);
}
#endif
