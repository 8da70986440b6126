"""layout.h, for the modules that fill in its structures or hand them on."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t


cdef extern from "layout.h" nogil:
    ctypedef struct rows_t:
        int64_t n, n_codes8, n_codes16, n_codes, n_reals, n_tallies
        const uint8_t *codes8
        const uint16_t *codes16
        const double *reals
        const double *tallies
        const int64_t *offsets
        const int32_t *first8
        const int32_t *first16
        int64_t n_blocks, n_vector
        const int64_t *widths
        const double *vectors
        int64_t n_spells
        const double *spells

    ctypedef struct instantiated_t:
        int64_t n, base, free
        const uint64_t *anchors
        const double *log_weight
        const double *start
        const float *table
        const double *location
        const double *half_precision
        const double *constant
        const double *log_rate
        const double *rate
        const double *vector_location
        const double *vector_factor
        const double *vector_constant
        const double *spell_start
        const double *spell_hazard

    ctypedef struct tail_t:
        int64_t capacity, n_slots, n_rows, n_occupied, vacant, n_levels, n_codes, n_reals, n_tallies
        double concentration, discount, log_weight
        const int64_t *offsets
        const int64_t *contexts
        int64_t n_linked
        const double *dirichlet
        const double *normal
        const double *gamma
        int64_t one_nu
        const int32_t *by_power
        const int64_t *power_ends
        int64_t *size
        int32_t *levels
        int64_t *real_n
        int64_t *tally_n
        double *real_mean
        double *real_scatter
        double *tally_sum
        double *log_size
        double *log_size_without
        double *norm
        double *total_without
        int64_t *reference_size
        double *reference
        float *table
        const float *prior_table
        const double *prior_sums
        double *count_scores
        const int32_t *missing
        double *t_location
        double *t_scale
        double *t_half
        double *t_constant
        double *t_total
        double *without
        double *plain
        double *nb_shape
        double *nb_rate
        double *nb_zero
        double *nb_log_p
        double *nb_log_q
        double *nb_remainder
        double *nb_base
        double *nb_log_p_without
        int64_t n_uneven
        int64_t *uneven
        int64_t n_blocks
        const int64_t *widths
        const double *wishart
        const int64_t *given
        const double *v_mean
        const double *v_spread
        int64_t *vector_n
        double *vector_mean
        double *vector_scatter
        double *v_location
        double *v_factor
        double *v_half
        double *v_constant
        double *v_without
        int64_t n_spells
        const double *spell_gamma
        const double *spell_width
        int64_t *spell_events
        int64_t *spell_ended
        double *spell_time
        double *spell_exposure
        double *spell_shape
        double *spell_rate
        double *spell_log_shape
        double *spell_log_rate
        double *spell_before

    ctypedef struct block_t:
        int32_t *level
        int64_t level_stride
        int64_t *reals_seen
        int64_t *tallies_seen
        double *reals_kept
        double *tallies_kept
        int32_t *vectors_seen

    ctypedef struct survivors_t:
        int64_t *start
        int32_t *count
        int32_t *position
        double *score
        int64_t used, room
        double margin

    ctypedef struct response_t:
        int64_t kind, n_eta, p, n_fresh, base, stride
        const double *y
        const float *u
        const double *offset
        const double *odds
        const double *fresh
        const double *pick
        const double *mean
        double precision, half
        double *theta
        double *up
        double *down

    enum:
        RESPONSE_LOGISTIC, RESPONSE_STUDENT_T, RESPONSE_NORMAL, RESPONSE_POISSON, RESPONSE_SOFTMAX, MOST_FRESH
    double MOST_ETA

    ctypedef struct work_t:
        block_t block
        const response_t *response
        const survivors_t *survivors
        double *scores
        double *part
        double *sums
        double *first
        float *weights
        double *logs
        double *own
        double *real_x
        double *tally_x
        double *x_kept
        double *crossed
        double *tally_log_factorial
        double *tally_saddle
        int32_t *real_c
        int32_t *tally_c
        double *vector_scratch

    ctypedef struct outcome_t:
        int64_t row, moved
        int status

    enum:
        OWN_FIELDS
        VECTOR_MOST
        POWERS
        WITHOUT_FIELDS
        ADD_BLOCK
        BLOCK
        STATUS_DONE, STATUS_GROW, STATUS_NOT_A_NUMBER, STATUS_NO_CANDIDATE, STATUS_BAD_LABEL
    bint CHECKS "MPIBAYES_CHECKING"


cdef extern from "spell_cell.h" nogil:
    ctypedef struct spell_t:
        int64_t part, event
        double time
    spell_t spell_of(double x)
    enum:
        SPELL_PARTS, SPELL_SHIFT
