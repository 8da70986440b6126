/* The contribution of blocks of full-covariance normals to the log odds of the two sides of a split (split.pyx). */
#ifndef MPIBAYES_VECTOR_ODDS_H
#define MPIBAYES_VECTOR_ODDS_H
#include <stdint.h>

/* |U (x - location)|^2, U a lower triangle packed by rows after the location */
static inline double vector_norm(const double *at, const double *x, int64_t width) {
    const double *u = at + width;
    double norm = 0;
    for (int64_t i = 0; i < width; i++) {
        double y = 0;
        for (int64_t j = 0; j <= i; j++) y += *u++ * (x[j] - at[j]);
        norm += y * y;
    }
    return norm;
}

/* Sum over blocks of constant - 1/2 |U1 (x - location1)|^2 + 1/2 |U0 (x - location0)|^2; a block with a missing cell adds
 * nothing. `odds` has, block by block, constant, location1, U1, location0, U0. */
static inline double vector_odds(const double *odds, const double *x, const int64_t *widths, int64_t n_blocks) {
    double total = 0;
    for (int64_t b = 0; b < n_blocks; x += widths[b++]) {
        int64_t width = widths[b], length = width + width * (width + 1) / 2;
        int missing = 0;
        for (int64_t d = 0; d < width; d++) missing |= x[d] != x[d];
        if (!missing)
            total += odds[0] - 0.5 * vector_norm(odds + 1, x, width) + 0.5 * vector_norm(odds + 1 + length, x, width);
        odds += 1 + 2 * length;
    }
    return total;
}
#endif
