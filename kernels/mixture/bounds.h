/* Upper bounds of rows' scores under instantiated clusters, and room for a pass over rows (pruning.h). */
#ifndef MPIBAYES_BOUNDS_H
#define MPIBAYES_BOUNDS_H
#include <math.h>
#include "layout.h"

enum {
    TILE = 16,       /* similar clusters whose scores are computed together */
    GROUP = 4,       /* clusters of a tile that share a bound: 4 of int16 are one lane of 8 bytes */
    BINS = 32,       /* bins of the cells of a real or count column */
    NO_BIN = 255,    /* a missing cell */
    CHUNK = 128,     /* rows whose survivors are evaluated together */
    MOST_TILES = 32, /* a row with more survivors is scored under all clusters */
    UNITS = 32,      /* units of a bound per nat */
    LEAST_BOUND = -32767,
    UNDECIDED = -1,
};

/* A feature is a binary property of a row that adds to its scores: the weight, which every row has, a level of a
 * categorical column, a bin of a real or count column, a whole block of full-covariance normals. For each feature and
 * cluster the tables hold the greatest term that it can add minus `greatest`, its maximum over all clusters, in units,
 * rounded up. Their sums over a row's features bound its score, relative to the sum of `greatest`. */
typedef struct {
    int64_t n, n_tiles, n_features, n_lanes;
    const int16_t *groups;       /* [feature][lane]: greatest bound of 4 clusters; lanes are padded to 32 */
    const int16_t *clusters;     /* [tile][feature][TILE] */
    const double *greatest;      /* [feature] */
    const double *position;      /* [tile][TILE]: number of the cluster in the draw's order; empty lanes: INFINITY */
    const int32_t *place;        /* [number]: TILE * tile + lane */
    const instantiated_t *tiles; /* their parameters, each tile a draw of 16 clusters */
    int64_t first_bin, first_block; /* features */
    const int32_t *first_level, *missing; /* [categorical column]: features of its first level, and of a missing cell */
    double size;                 /* bound on sums of `greatest` */
    double reach;                /* nats below a score of the row at which clusters are left out */
    double margin;               /* most that omitted clusters and rounding can add, relative to sums of weights */
} bounds_t;

typedef struct { /* scratch of one pass */
    double *u; /* for all rows: uniform; allowed: number of open clusters; rows in processing order */
    int32_t *allowed, *order;
    int64_t n;      /* length of `order` */
    int64_t bounded, scored, given_up; /* tiles bounded one by one, and scored, over all rows; rows without a draw */
    int32_t *first; /* [place]: start of the rows with that label in `order` */
    /* for the rows of a chunk: best score so far, tiles that are scored or waited for, 0 for a row given up */
    double *m;
    int64_t *n_tiles;
    double *scores;       /* [row][MOST_TILES][TILE] */
    int32_t *tile, *next; /* [row][MOST_TILES]; next: next one waiting for the same tile, -1 for none */
    int32_t *waiting;     /* [tile]: the first one waiting for it */
    /* for one row: features, and tiles with their bounds */
    int32_t *feature, *found;
    int16_t *bound;
} pruning_t;
#endif
