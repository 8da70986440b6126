/* What a sweep reads and changes. All arrays are padded with zeros to multiples of 8, D to `width`, K to `lanes`, and begin
 * at multiples of 64 bytes. Everything is in units of the noise: the noise of a cell is standard normal.
 */
#ifndef MPIBAYES_IBP_LAYOUT_H
#define MPIBAYES_IBP_LAYOUT_H
#include <stdint.h>

/* A row proposes no more new features than this: rounding could otherwise keep the inversion of a uniform draw from
 * ending. A tail refuses a mean above MOST_BIRTHS, where so many would not be beyond all chance. */
enum { MOST_BORN = 1024, MOST_BIRTHS = 256 };

typedef struct { /* the rows of a shard */
    int64_t n, start, n_columns, width, words;
    const float *x;          /* (n, width) */
    uint64_t *z;             /* (n, words): bit s of a row says whether it has the feature of slot s */
    const double *per_noise; /* (width,): 1 over the standard deviation of a column's noise */
} rows_t;

typedef struct { /* the instantiated features, in the order in which they are visited */
    int64_t n, lanes;
    const int64_t *slot;    /* (n,) */
    const double *loadings; /* (width, lanes): A in units of the noise, features side by side */
    const double *by_row;   /* (n, width): the same, columns side by side */
    const double *gram;     /* (n, lanes): A A' */
    const double *odds;     /* (lanes,): log mu / (1 - mu) */
    const uint64_t *anchor; /* (n,): a row whose priority is not greater keeps the feature as it is; 0: no such row */
    uint64_t frozen_below;  /* the greatest of these */
    int64_t n_pairs;        /* of features that rows may take one for the other */
    const int64_t *pairs;   /* (n_pairs, 2) */
} features_t;

typedef struct { /* a collapsed shard's own features: `room` places, of which the `n_active` in `active` are in use */
    int64_t room, words, n_active;
    uint64_t *z;       /* (n, words): bit p of a row says whether it has the feature of place p */
    int64_t *active;   /* (room,) */
    int64_t *owners;   /* (room,): rows that have the feature */
    double *spread;    /* (room, room): V, covariance of a column's loadings given the rows */
    double *mean;      /* (room, width): their means */
    double prior;      /* variance of a loading, in units of the noise's */
    double others;     /* N - 1 + c */
    double births;     /* mean number of new features a row proposes, and exp of minus that */
    double no_birth;
} tail_t;

typedef struct { uint64_t seed, cycle, chain, sweep; } key_of_sweep;
#endif
