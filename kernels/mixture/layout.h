/* Data that the loops read and write: plain pointers into buffers that Python owns.
 *
 * Every array over clusters is [thing][cluster] with the clusters contiguous, 64-byte aligned and padded to a multiple
 * of 16, so that one row's scores are sums of short vectors and no loop has a remainder.
 */
#ifndef MPIBAYES_LAYOUT_H
#define MPIBAYES_LAYOUT_H
#include <stdint.h>
#include <string.h>
#include "spell_cell.h"

#ifdef MPIBAYES_CHECKS
#define MPIBAYES_CHECKING 1
#else
#define MPIBAYES_CHECKING 0
#endif

typedef struct { /* n rows, row-major; offsets has n_codes + 1 entries: the level rows of each column; first8, first16:
                    those of the columns of codes8 and codes16, each padded to a multiple of 16 entries */
    int64_t n, n_codes8, n_codes16, n_codes, n_reals, n_tallies;
    const uint8_t *codes8;
    const uint16_t *codes16;
    const double *reals, *tallies;
    const int64_t *offsets;
    const int32_t *first8, *first16;
    int64_t n_blocks, n_vector; /* blocks of full-covariance normals, and their total number of columns */
    const int64_t *widths;      /* (n_blocks,) */
    const double *vectors;      /* (n, n_vector), columns of a block side by side */
    int64_t n_spells;
    const double *spells; /* (n, n_spells), see spells.h */
} rows_t;

typedef struct { /* clusters whose weight and parameters were drawn; `base` = n padded to 16 is every array's stride */
    int64_t n, base, free;
    const uint64_t *anchors;
    const double *log_weight; /* -infinity in the padding */
    const double *start;      /* log_weight + sum of `constant` - sum of `rate` over columns, in that order */
    const float *table;
    const double *location, *half_precision, *constant;
    const double *log_rate, *rate;
    const double *vector_location, *vector_factor, *vector_constant; /* see vectors.h */
    const double *spell_start;  /* (2 parts, base): log density at a part's start, of a censored row and of an event */
    const double *spell_hazard; /* (parts, base) */
} instantiated_t;

typedef struct { /* collapsed clusters of one shard; stride = capacity */
    int64_t capacity, n_slots, n_rows, n_occupied, vacant; /* vacant: lowest slot without rows, capacity if none */
    int64_t n_levels, n_codes, n_reals, n_tallies;
    int64_t n_uneven; /* slots whose real columns differ in real_n; uneven[slot] marks them */
    int64_t one_nu;   /* 1 if all real columns have the same prior nu */
    double concentration, discount, log_weight;
    /* prior */
    const int64_t *offsets;
    const int64_t *contexts; /* (C,) contexts of each categorical column; 1: no parent, see tail.h */
    int64_t n_linked;        /* columns with several contexts */
    const double *dirichlet; /* per level row; the missing row holds the column's sum, or its context's */
    const double *normal;    /* (R, 4): mean, kappa, nu, variance */
    const double *gamma;     /* (Q, 2): shape, rate */
    const int32_t *by_power;   /* (R,) real columns, nu = 64 first, then 32, .., 1; NULL: one has another nu */
    const int64_t *power_ends; /* (POWERS,) end of the columns of each nu in by_power */
    /* statistics */
    int64_t *size;
    int32_t *levels;
    int64_t *real_n, *tally_n;
    double *real_mean, *real_scatter, *tally_sum;
    /* derived from the statistics, rewritten when a slot changes; "without" means with one row or cell less */
    double log_rows, log_rows_without; /* log(n_rows + concentration) */
    double log_open;                   /* log(concentration + n_occupied discount), the weight of a new cluster */
    double *log_size; /* log(size - discount); -infinity for a vacant slot, except `vacant`: see score_tail */
    double *log_size_without;
    double *norm;           /* see tail.h */
    double *total_without;  /* sum over columns of log(n_kc - 1 + beta_c), for rows without missing cells */
    int64_t *reference_size;
    double *reference;      /* (C, capacity) */
    float *table;           /* (L, capacity) */
    const float *prior_table; /* (L,) the column of a vacant slot */
    const double *prior_sums; /* its sums over ADD_BLOCK columns at a time, for any row without missing cells; NULL if
                               * levels of a column have different pseudo-counts */
    const int32_t *missing;   /* (C,) the missing row of each column */
    double *count_scores; /* (Q, N_COUNTS_KEPT) log predictive, without - log x!, of the counts x = 0, 1, .. in an empty
                           * tail's new cluster; NaN: not yet known */
    double *t_location, *t_scale, *t_half, *t_constant; /* (R, capacity), Student t */
    double *t_total;                                    /* sum of t_constant over columns */
    int64_t *uneven;
    double *without; /* (capacity, WITHOUT_FIELDS, R padded to 8): real columns with one cell less, see own_reals */
    double *plain;   /* (3, R padded to 8): prior mean; nu * variance, padding 1; all bits set, padding 0 */
    double *nb_shape, *nb_rate, *nb_zero, *nb_log_p, *nb_log_q, *nb_remainder; /* (Q, capacity), negative binomial */
    double *nb_base;                                                           /* nb_zero - log Gamma(nb_shape) */
    double *nb_log_p_without;                                                  /* nb_log_p with one cell less */
    /* blocks of full-covariance normals: arrays over the columns of all blocks, or over the pairs of each (vectors.h) */
    int64_t n_blocks;
    const int64_t *widths;
    const double *wishart;           /* (B, 2): kappa, nu */
    const int64_t *given;            /* (B,) 1: a block's first column is given, and only the others are scored */
    const double *v_mean, *v_spread; /* prior: location, and diagonal of the matrix */
    int64_t *vector_n;               /* (B, capacity) rows in which the block is observed */
    double *vector_mean, *vector_scatter;
    double *v_location, *v_factor, *v_half, *v_constant; /* Student t */
    double *v_without;                                   /* v_constant with one row less, except the determinant */
    /* survival columns: arrays over the SPELL_PARTS parts of each (spells.h) */
    int64_t n_spells;
    const double *spell_gamma;  /* (S, 2): shape, rate */
    const double *spell_width;  /* (parts,) ticks; 0 for the last part */
    int64_t *spell_events, *spell_ended; /* (parts, capacity): events, and rows last seen there */
    double *spell_time;         /* time spent there by the latter */
    double *spell_exposure, *spell_shape, *spell_rate, *spell_log_shape, *spell_log_rate;
    double *spell_before; /* log probability of surviving the parts before */
} tail_t;

#define ADD_BLOCK 32 /* columns summed in float32 before they go to the float64 score: keeps the error near 1e-5 */
#define BLOCK 8 /* rows scored and drawn together if they are independent */

typedef struct { /* cells of 1..BLOCK rows, not necessarily neighbours */
    int64_t n;
    int32_t *level;                           /* [row][level_stride]: level row of each categorical cell */
    int64_t level_stride;
    const double *reals[BLOCK], *tallies[BLOCK]; /* each row's cells, 0 for a missing one */
    int64_t *reals_seen, *tallies_seen;       /* [row][column]: -1, or 0 for a missing cell; set if any is */
    uint16_t some_missing, many_missing;      /* rows, as bits, that lack a cell; so many that present ones are few */
    int infinite;                             /* some cell is not finite */
    double *reals_kept, *tallies_kept;        /* [row][column]: room for cells with missing ones set to 0 */
    const double *vectors[BLOCK];             /* each row's cells of the blocks of full-covariance normals, */
    int32_t *vectors_seen;                    /* [row][block of columns]: whether it is observed */
    const double *spells[BLOCK];              /* each row's cells, NaN for a missing one */
} block_t;

typedef struct { /* scores of rows under the few instantiated clusters that matter for their draws (pruning.h) */
    int64_t *start;    /* [row]: start of its scores; -1: none known, it has to be scored under all clusters */
    int32_t *count;    /* [row] */
    int32_t *position; /* cluster of each score */
    double *score;
    int64_t used, room;
    double margin; /* most that other clusters can add to sums of weights, relative to all of them */
} survivors_t;

typedef struct { /* an outcome of rows, with a regression in each cluster (response.h) */
    int64_t kind, n_eta, p, n_fresh, base, stride; /* n_eta: number of linear predictors of a row, of a softmax one for
                                                    * each level but the first; p: of coefficients of each, the
                                                    * intercept first */
    const double *y;      /* (n,): -1 or 1 for a logistic regression, a level for a softmax; NaN if missing */
    const float *u;       /* (n, p - 1): predictors of the other coefficients */
    const double *offset; /* (n, n_eta): part of eta common to all clusters */
    const double *odds;   /* (n, n_eta): exp(-y offset) for a logistic regression, exp(offset) for a softmax */
    const double *fresh;  /* (n, n_fresh, n_eta p): candidate coefficients of a new cluster; NULL if none can open */
    const double *pick;   /* (n,): uniforms that choose one of them */
    const double *mean;   /* (n,): log of a row's mean likelihood under them */
    double precision, half; /* 1 / s, or 1 / (s sqrt nu) and (nu + 1) / 2 of Student's t */
    double *theta;        /* (n_eta p, stride): for instantiated clusters, and from `base` on for the tail's slots */
    double *up, *down;    /* (n_eta, stride), (stride,): exp(theta_0), exp(-theta_0) */
} response_t;

enum { RESPONSE_LOGISTIC = 0, RESPONSE_STUDENT_T = 1, RESPONSE_NORMAL = 2, RESPONSE_POISSON = 3, RESPONSE_SOFTMAX = 4 };
enum { MOST_FRESH = 16 };
#define MOST_ETA 690.0 /* largest |eta| passed to the exponential */

typedef struct { /* scratch of one call */
    block_t block;
    const response_t *response; /* NULL: there is no outcome */
    const survivors_t *survivors; /* NULL: every row is scored under all instantiated clusters */
    double *scores, *part, *sums; /* [row][cluster]; see draw.h */
    double *first;                /* [row]: weight of the candidate before all others, in a draw of a block */
    float *weights;
    double *logs;
    double *own; /* for own_tallies: OWN_FIELDS arrays over columns */
    /* the current row, for the tail: its level rows, and its observed real and count columns and their values */
    const int32_t *level;
    double *real_x, *tally_x;
    const double *x; /* its real cells, 0 for a missing one, with anything from column R to R padded to 8 */
    const int64_t *reals_seen; /* as in the block */
    double *x_kept;
    double *crossed; /* [real column][BLOCK]: cells of the block's rows side by side */
    double *tally_log_factorial, *tally_saddle; /* of tally_x; see count_terms */
    int32_t *real_c, *tally_c;
    int64_t n_real, n_tally;
    const double *vector_x; /* its cells of blocks of columns; n_vector: number of observed blocks */
    const int32_t *vector_seen;
    int64_t n_vector;
    double *vector_scratch;
    const double *spell_x; /* its cells of survival columns */
} work_t;

enum { OWN_FIELDS = 7, POWERS = 7, VECTOR_MOST = 64 /* columns of a block of full-covariance normals */ };
enum { MEAN, SCATTER, INVERSE_N, PULL, SHRINK, INVERSE_KAPPA, CONSTANT, HALF, WITHOUT_FIELDS }; /* of tail_t.without */
enum { STATUS_DONE = 0, STATUS_GROW = 1, STATUS_NOT_A_NUMBER = 2, STATUS_NO_CANDIDATE = 3, STATUS_BAD_LABEL = 4 };

typedef struct {
    int64_t row, moved;
    int status;
} outcome_t;
#endif
