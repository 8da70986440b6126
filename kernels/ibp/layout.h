/* Data that a sweep reads and changes. All arrays except the rows' are padded with zeros to multiples of 8, D to
 * `width`, K to `lanes`, and aligned to 64 bytes. Everything is in units of the noise: a cell's noise is standard
 * normal.
 */
#ifndef MPIBAYES_IBP_LAYOUT_H
#define MPIBAYES_IBP_LAYOUT_H
#include <stdint.h>
#include "special.h"

/* Most new features that a row proposes: rounding could otherwise keep the inversion of a uniform draw from ending. A
 * tail refuses a mean above MOST_BIRTHS, with which chance could reach this limit. */
enum { MOST_BORN = 1024, MOST_BIRTHS = 256 };

/* First of a row's blocks of random words with leading bytes (sweep.h). */
enum { LEADING = 1 << 15 };

/* Rows whose products with the loadings are computed together: each loading is read once for all of them. */
enum { TOGETHER = 4 };

typedef struct { /* the rows of a shard */
    int64_t n, start, n_columns, width, words;
    const float *x; /* (n, n_columns) */
    uint64_t *z;    /* (n, words): bit s of a row is set if it has the feature of slot s */
} rows_t;

typedef struct { /* the instantiated features, in the order in which they are visited */
    int64_t n, lanes;
    const int64_t *slot;     /* (n,) */
    const uint64_t *bit;     /* (lanes,): the slot's bit in its word, */
    const int64_t *word;     /* (lanes,): and the index of that word in a row */
    const double *per_noise; /* (width,): 1 over the standard deviation of a column's noise */
    const double *loadings;  /* (D + lanes, lanes): A' in units of the noise, features side by side, then `gram` */
    const double *by_row;    /* (n, width): A, columns side by side */
    const double *gram;      /* (lanes, lanes): A A' */
    const double *square;    /* (lanes,): its diagonal */
    const double *odds;      /* (lanes,): log mu / (1 - mu), and minus infinity */
    const uint64_t *anchor;  /* (n,): rows with at most this priority keep the feature as it is; 0: none */
    uint64_t frozen_below;   /* maximum of `anchor` */
    const double *steps;     /* (257,): log odds of b / 256 */
    int64_t n_pairs;         /* pairs of features that rows may exchange, padded with pairs of bit 0: */
    const int64_t *first, *other;             /* their indices, */
    const uint64_t *first_bit, *other_bit;    /* their bits */
    const int64_t *first_word, *other_word;   /* and words; */
    const double *more;      /* log odds of the other one minus those of the first, */
    const double *apart;     /* and half the squared distance of their loadings */
} features_t;

typedef struct { /* a collapsed shard's own features: `room` places, of which `n_active` in `active` are in use */
    int64_t room, words, n_active;
    uint64_t *z;       /* (n, words): bit p of a row is set if it has the feature of place p */
    int64_t *active;   /* (room,) */
    int64_t *owners;   /* (room,): number of rows that have the feature */
    double *spread;    /* (room, room): V, covariance of a column's loadings given the rows */
    double *mean;      /* (room, width): their means */
    double prior;      /* variance of a loading, in units of the noise's */
    double others;     /* N - 1 + c */
    double births;     /* mean number of new features proposed per row, and exp of minus that */
    double no_birth;
} tail_t;

/* log b / (256 - b), and numbers larger than any log odds for 0 and 256 */
static inline void fill_steps(double *steps) {
    for (int b = 1; b < 256; b++) steps[b] = log_finite((double)b / (double)(256 - b));
    steps[0] = -1e300, steps[256] = 1e300;
}

typedef struct { uint64_t seed, cycle, chain, sweep; } key_of_sweep;
#endif
