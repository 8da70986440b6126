/* What the loops read and write: plain pointers into buffers that Python owns.
 *
 * Every array over clusters is [thing][cluster] with the clusters contiguous, 64-byte aligned and padded to a multiple
 * of 16, so that one row's scores are sums of short vectors and no loop has a remainder.
 */
#ifndef MPIBAYES_LAYOUT_H
#define MPIBAYES_LAYOUT_H
#include <stdint.h>

#ifdef MPIBAYES_CHECKS
#define MPIBAYES_CHECKING 1
#else
#define MPIBAYES_CHECKING 0
#endif

typedef struct { /* n rows, row-major; offsets has n_codes + 1 entries and says which level rows a column owns */
    int64_t n, n_codes8, n_codes16, n_codes, n_reals, n_tallies;
    const uint8_t *codes8;
    const uint16_t *codes16;
    const double *reals, *tallies;
    const int64_t *offsets;
    int64_t n_blocks, n_vector; /* blocks of full-covariance normals, and the columns of all of them */
    const int64_t *widths;      /* (n_blocks,) */
    const double *vectors;      /* (n, n_vector), columns of a block side by side */
} rows_t;

typedef struct { /* clusters whose weight and parameters were drawn; `base` = n padded to 16 is every array's stride */
    int64_t n, base, free;
    const uint64_t *anchors;
    const double *log_weight; /* -infinity in the padding */
    const float *table;
    const double *location, *half_precision, *constant;
    const double *log_rate, *rate;
    const double *vector_location, *vector_factor, *vector_constant; /* see vectors.h */
} instantiated_t;

typedef struct { /* collapsed clusters of one shard; stride = capacity */
    int64_t capacity, n_slots, n_rows, n_occupied, vacant; /* vacant: lowest slot without rows, capacity if none */
    int64_t n_levels, n_codes, n_reals, n_tallies;
    int64_t n_uneven; /* slots whose real columns differ in t_half; uneven[slot] says which */
    double concentration, discount, log_weight;
    /* prior */
    const int64_t *offsets;
    const double *dirichlet; /* per level row; the missing row holds the column's sum */
    const double *normal;    /* (R, 4): mean, kappa, nu, variance */
    const double *gamma;     /* (Q, 2): shape, rate */
    /* statistics */
    int64_t *size;
    int32_t *levels;
    int64_t *real_n, *tally_n;
    double *real_mean, *real_scatter, *tally_sum;
    /* derived from the statistics, rewritten when a slot changes; "without" means with one row or cell less */
    double log_rows, log_rows_without; /* log(n_rows + concentration) */
    double log_open;                   /* log(concentration + n_occupied discount), the weight of a new cluster */
    double *log_size;                  /* log(size - discount); -infinity for a vacant slot */
    double *log_size_without;
    double *norm;           /* see tail.h */
    double *total_without;  /* sum over columns of log(n_kc - 1 + beta_c), for rows without missing cells */
    int64_t *reference_size;
    double *reference;      /* (C, capacity) */
    float *table;           /* (L, capacity) */
    double *t_location, *t_scale, *t_half, *t_constant; /* (R, capacity), Student t */
    int64_t *uneven;
    double *t_step_without;                             /* log Gamma((nu + 1)/2) / Gamma(nu/2) with one cell less */
    double *nb_shape, *nb_rate, *nb_zero, *nb_log_p, *nb_log_q, *nb_remainder; /* (Q, capacity), negative binomial */
    double *nb_base;                                                           /* nb_zero - log Gamma(nb_shape) */
    double *nb_log_p_without;                                                  /* nb_log_p with one cell less */
    /* blocks of full-covariance normals: arrays over the columns of all blocks, or over the pairs of each (vectors.h) */
    int64_t n_blocks;
    const int64_t *widths;
    const double *wishart;           /* (B, 2): kappa, nu */
    const double *v_mean, *v_spread; /* prior: location, and diagonal of the matrix */
    int64_t *vector_n;               /* (B, capacity) rows in which the block is there */
    double *vector_mean, *vector_scatter;
    double *v_location, *v_factor, *v_half, *v_constant; /* Student t */
    double *v_without;                                   /* v_constant with one row less, but for the determinant */
} tail_t;

typedef struct { /* scratch of one call */
    double *scores, *sums, *logs, *real_x, *tally_x;
    double *tally_log_factorial, *tally_saddle; /* of tally_x; see count_terms */
    double *own;                                /* for own_score: OWN_FIELDS arrays over columns */
    float *weights;
    int32_t *level;            /* level row of each categorical cell of the row at hand */
    int32_t *real_c, *tally_c; /* observed real and count columns of the row, with their values in real_x, tally_x */
    int64_t n_real, n_tally;
    int infinite; /* the row has a cell that is not finite */
    const double *vector_x; /* cells of the row's blocks; vector_seen[b]: whether block b is there; n_vector: how many */
    int32_t *vector_seen;
    int64_t n_vector;
    double *vector_scratch;
} work_t;

enum { OWN_FIELDS = 9, VECTOR_MOST = 64 /* columns of a block */ };
enum { STATUS_DONE = 0, STATUS_GROW = 1, STATUS_NOT_A_NUMBER = 2, STATUS_NO_CANDIDATE = 3, STATUS_BAD_LABEL = 4 };

typedef struct {
    int64_t row, moved;
    int status;
} outcome_t;
#endif
