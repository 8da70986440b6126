/* The kernels of the global update: their loops for every instruction set, and the call of the one in use. */
#ifndef MPIBAYES_UPDATES_H
#define MPIBAYES_UPDATES_H
#include "philox.h"
#include "special.h"
#include <string.h>

typedef struct { uint64_t seed, purpose, sub, cycle, chain; } stream_key; /* key of a stream; sub < 2^32 */

/* statistics of real columns, or of count columns, which have no scatter and whose `mean` is the sum of their cells */
typedef struct {
    int64_t n_clusters;
    const int64_t *n;
    const double *mean, *scatter;
} numbers_t;

/* a column on a line: moments of K clusters, parents' [parent][cluster], and points [point][kappa, nu, variance] */
typedef struct {
    int64_t n_points, n_parents, n_clusters;
    const double *points, *square, *middle; /* the last two are the parents': prior variances and means */
    double mean;
    const double *n, *u, *x, *uu, *ux, *xx;
} lines_t;

typedef struct { int64_t width; const int64_t *length; const double *points; } grid_t; /* [column][width] */

/* a column of coded rows with levels: its cells, at `index` of a row; contexts of its levels for its children; first: the
 * row of the counts of its code 0; inverse: 2^32 / (n_levels + 1), rounded down, plus 1, to divide codes by; log probabilities `table`, by context first as a parent, and by context last as a child */
typedef struct {
    void *codes;
    int64_t stride, index, first, n_contexts;
    uint64_t inverse;
    uint32_t n_levels;
    int is_wide;
    const int64_t *context;
    const float *table;
} linked_t;

enum { FILL_KEPT = 512 }; /* most sums of weights kept by fill_cells, a power of 2 */

#define LOOPS "updates_loops.h"
#include "every_isa.h"
#include "restaurants.h"

static inline void kernel_log_gammas(const stream_key *key, const double *shape, const uint64_t *id, int64_t n, double *out) {
    DISPATCH(log_gammas, key, shape, id, n, out);
}
static inline void kernel_normals(const stream_key *key, const uint64_t *id, int64_t n, double *out) {
    DISPATCH(normals, key, id, n, out);
}
static inline void kernel_draw_levels(const stream_key *key, const int32_t *levels, const double *beta,
                                      const uint8_t *met, const int64_t *offsets, int64_t first, int64_t last,
                                      int64_t n_clusters, float *table, double *shape, uint64_t *id, int64_t room,
                                      int32_t *row, int64_t *start, double *rest) {
    DISPATCH(draw_levels, key, levels, beta, met, offsets, first, last, n_clusters, table, shape, id, room, row, start,
             rest);
}
static inline void kernel_fill_cells(const stream_key *key, uint64_t row0, const int64_t *at, const int32_t *z, int64_t n,
                                     const linked_t *own, const linked_t *parent, const linked_t *children,
                                     int64_t n_children, int64_t n_clusters, int32_t *change, int64_t n_kept,
                                     uint64_t *keys, double *sums) {
    DISPATCH(fill_cells, key, row0, at, z, n, own, parent, children, n_children, n_clusters, change, n_kept, keys,
             sums);
}
static inline void kernel_marginals(const int32_t *levels, const double *beta, const int64_t *offsets, int64_t first,
                                    int64_t last, int64_t n_clusters, const double *const *kept, int64_t n_kept,
                                    double *by_column, double *by_cluster) {
    DISPATCH(marginals, levels, beta, offsets, first, last, n_clusters, kept, n_kept, by_column, by_cluster);
}
static inline void kernel_grid_scores(const int32_t *levels, int64_t first_row, int64_t missing_row, int64_t n_clusters,
                                      const double *grid, int64_t n_grid, const double *rising, int64_t tabulated,
                                      int64_t *observed, int32_t *found, double *of_totals, int64_t *totals_of,
                                      int64_t n_totals, double *scores) {
    DISPATCH(grid_scores, levels, first_row, missing_row, n_clusters, grid, n_grid, rising, tabulated, observed, found,
             of_totals, totals_of, n_totals, scores);
}
static inline void kernel_grid_scores_of_base(const int32_t *levels, int64_t first_row, int64_t missing_row,
                                              int64_t n_clusters, const double *grid, int64_t n_grid, const double *base,
                                              int64_t *observed, double *scores) {
    DISPATCH(grid_scores_of_base, levels, first_row, missing_row, n_clusters, grid, n_grid, base, observed, scores);
}
static inline void kernel_keep_log_gammas(double a, int64_t n_kept, double *out) {
    DISPATCH(keep_log_gammas, a, n_kept, out);
}
static inline void kernel_shares(const int32_t *levels, const int64_t *offsets, int64_t n_columns, int64_t n_clusters,
                                 int64_t label, double spread, const double *one, const double *two, int64_t n_kept,
                                 double *score) {
    DISPATCH(shares, levels, offsets, n_columns, n_clusters, label, spread, one, two, n_kept, score);
}
static inline void kernel_log_sums(double *score, int64_t n, int64_t width, double *out) {
    DISPATCH(log_sums, score, n, width, out);
}
static inline void kernel_log_product(const double *a, const double *b, int64_t n, int64_t n_inner, int64_t width,
                                      double *out) {
    DISPATCH(log_product, a, b, n, n_inner, width, out);
}
static inline void kernel_number_marginals(const numbers_t *s, const double *hyper, int64_t n_hyper, int64_t first,
                                           int64_t last, double *by_column, double *by_cluster) {
    DISPATCH(number_marginals, s, hyper, n_hyper, first, last, by_column, by_cluster);
}
static inline void kernel_line_marginals(const lines_t *s, double *by_parent, double *by_cluster) {
    DISPATCH(line_marginals, s, by_parent, by_cluster);
}
static inline int kernel_draw_numbers(const numbers_t *s, double *hyper, int64_t n_hyper, int64_t first, int64_t last,
                                      const grid_t *grid, const double *u, double *scores) {
    return DISPATCH(draw_numbers, s, hyper, n_hyper, first, last, grid, u, scores);
}
#endif
