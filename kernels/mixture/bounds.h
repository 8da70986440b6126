/* Upper bounds of rows' scores under instantiated clusters, and room for a pass over rows (pruning.h). */
#ifndef MPIBAYES_BOUNDS_H
#define MPIBAYES_BOUNDS_H
#include <math.h>
#include "layout.h"

enum {
    TILE = 16,       /* similar clusters whose scores are computed together */
    GROUP = 4,       /* clusters of a tile that have a bound in common: 4 of int16 are one lane of 8 bytes */
    BINS = 32,       /* of the cells of a real or count column */
    NO_BIN = 255,    /* a missing cell */
    CHUNK = 128,     /* rows whose survivors are evaluated together */
    MOST_TILES = 32, /* a row with more survivors is scored under all clusters */
    UNITS = 32,      /* of a bound in a nat */
    LEAST_BOUND = -32767,
    UNDECIDED = -1,
};

/* A feature is something that a row has or lacks and that adds to its scores: the weight, which every row has, a level
 * of a categorical column, a bin of a real or count column, a whole block of full-covariance normals. Of a feature the
 * tables have, for each cluster, the greatest term it can add less `greatest`, its greatest under any cluster, in
 * units, rounded up. Sums of them over a row's features bound its score, on the scale of the sum of `greatest`. */
typedef struct {
    int64_t n, n_tiles, n_features, n_lanes;
    const int16_t *groups;       /* [feature][lane]: greatest bound of 4 clusters; lanes are padded to 32 */
    const int16_t *clusters;     /* [tile][feature][TILE] */
    const double *greatest;      /* [feature] */
    const double *position;      /* [tile][TILE]: number of the cluster in the draw's order, INFINITY where none stands */
    const int32_t *place;        /* [number]: TILE * tile + lane */
    const instantiated_t *tiles; /* their parameters, each tile a draw of 16 clusters */
    int64_t first_bin, first_block; /* features */
    const int32_t *first_level, *missing; /* [categorical column]: features of its first level, and of no level */
    double size;                 /* of sums of `greatest`, at most */
    double reach;                /* nats below a score of the row at which clusters are left out */
    double margin;               /* what left out clusters and rounding can add to sums of weights, relative to them */
} bounds_t;

typedef struct { /* scratch of one pass */
    double *u; /* of all rows: uniform; allowed: how many clusters are open; rows in the order in which they are taken */
    int32_t *allowed, *order;
    int64_t n;      /* in `order` */
    int64_t bounded, scored, given_up; /* tiles that were bounded one by one, and scored, of all rows; rows without a draw */
    int32_t *first; /* [place]: where rows with that label start in `order` */
    /* of the rows of a chunk: best score so far, tiles that are scored or waited for, 0 where a row is given up */
    double *m;
    int64_t *n_tiles;
    double *scores;       /* [row][MOST_TILES][TILE] */
    int32_t *tile, *next; /* [row][MOST_TILES]; next: of those that wait for the same tile, -1 for none */
    int32_t *waiting;     /* [tile]: the first that waits for it */
    /* of one row: features, and tiles with their bounds */
    int32_t *feature, *found;
    int16_t *bound;
} pruning_t;
#endif
