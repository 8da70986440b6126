"""layout.h, and what the modules share of the functions in firefly.h."""

from libc.stdint cimport int32_t, int64_t


cdef extern from "layout.h" nogil:
    ctypedef struct model_t:
        int likelihood
        int64_t n_predictors, width, n_classes, n_bounds

    ctypedef struct block_t:
        int64_t n
        const float *x
        const double *y
        const double *bounds

    ctypedef struct bright_t:
        int64_t n
        int32_t *row
        double *gap
        double *y
        double *bounds
        float *x

    ctypedef struct lights_t:
        const model_t *model
        block_t rows
        bright_t now
        int64_t n_fresh
        int32_t *fresh_row
        double *fresh_gap
        double *scratch

    void *aligned_doubles(int64_t)
    int64_t rows_scratch(const model_t *)
    int reserve_fresh(lights_t *, int64_t)
    int merge_lights(lights_t *)
    void free_lights(lights_t *)
