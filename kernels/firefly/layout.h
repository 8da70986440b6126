/* Data that the Firefly loops read and write, and the storage of bright rows.
 *
 * Parameters are (K, D) flattened, one block of D coefficients per class (K = 1 except for softmax); loops use them
 * padded with zeros to (K, W), W = D rounded up to 8, like rows.
 */
#ifndef MPIBAYES_FIREFLY_LAYOUT_H
#define MPIBAYES_FIREFLY_LAYOUT_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LOGISTIC = 0, SOFTMAX = 1, STUDENT = 2 };
enum { HMC = 0, MALA = 1, RANDOM_WALK = 2, SLICE = 3 };
enum { FLAT = 0, GAUSSIAN = 1, LAPLACE = 2 };
enum { PURPOSE_BRIGHTNESS = 21, PURPOSE_FIRST_LIGHT = 22, PURPOSE_THETA = 23 };

typedef struct {
    int likelihood;
    int64_t n_predictors, width, n_classes, n_bounds; /* D, W, K, B */
    double half_nu_plus_one, nu_scale2, log_constant; /* Student t: (nu + 1)/2, nu s^2, log density at 0 */
} model_t;

typedef struct { /* n rows, contiguous */
    int64_t n;
    const float *x;       /* (n, W) */
    const double *y;      /* (n,) */
    const double *bounds; /* (n, B) */
} block_t;

/* A square matrix in single precision, row-major, stride a multiple of 32. In columns 32 c..32 c + 31 only rows
 * first[c]..last[c] - 1 are nonzero. */
typedef struct {
    int64_t stride;
    const float *value;
    const int64_t *first, *last;
} banded_t;

enum { GROUPS = 4 }; /* groups of eight rows that go through a stage of a loop together */

/* Doubles of scratch for loops over rows: linear predictors and slopes of GROUPS groups, bounds of eight rows. */
static inline int64_t rows_scratch(const model_t *m) { return 16 * GROUPS * m->n_classes + 8 * m->n_bounds; }

/* ---- the bright rows of a shard, copied side by side so that they stay in cache ---- */

typedef struct {
    int64_t n, capacity;
    int32_t *row; /* positions in the shard, ascending */
    double *gap, *y, *bounds;
    float *x;
    uint8_t *keep; /* 1 for rows that stay bright in the current sweep */
} bright_t;

typedef struct { /* a sweep builds `next`, then swaps the two */
    const model_t *model;
    block_t rows;
    bright_t now, next;
    int64_t n_fresh, fresh_capacity; /* rows lit by a sweep */
    int32_t *fresh_row;
    double *fresh_gap;
    double *scratch;
} lights_t;

static inline void *aligned_doubles(int64_t n) { return aligned_alloc(64, (size_t)((8 * n + 64) / 64 * 64)); }

static inline void free_bright(bright_t *b) {
    free(b->row), free(b->gap), free(b->y), free(b->bounds), free(b->x), free(b->keep);
    memset(b, 0, sizeof *b);
}

/* Make room for n rows in an empty list; returns 0 if memory runs out. */
static inline int reserve_bright(bright_t *b, const model_t *m, int64_t n) {
    if (n <= b->capacity) return 1;
    int64_t capacity = n + n / 2 + 64;
    free_bright(b);
    b->row = aligned_doubles(capacity);
    b->gap = aligned_doubles(capacity + 8);
    b->y = aligned_doubles(capacity);
    b->bounds = aligned_doubles(capacity * m->n_bounds);
    b->x = aligned_doubles(capacity * m->width / 2);
    b->keep = aligned_doubles(capacity / 8 + 1);
    if (!b->row || !b->gap || !b->y || !b->bounds || !b->x || !b->keep) {
        free_bright(b);
        return 0;
    }
    b->capacity = capacity;
    return 1;
}

/* Make room for n rows in the list of rows just lit, keeping its contents; returns 0 if memory runs out. */
static inline int reserve_fresh(lights_t *l, int64_t n) {
    if (n <= l->fresh_capacity) return 1;
    int64_t capacity = n + n / 2 + 64;
    int32_t *row = realloc(l->fresh_row, 4 * (size_t)capacity);
    if (row) l->fresh_row = row;
    double *gap = realloc(l->fresh_gap, 8 * (size_t)capacity);
    if (gap) l->fresh_gap = gap;
    if (!row || !gap) return 0;
    l->fresh_capacity = capacity;
    return 1;
}

static inline void free_lights(lights_t *l) {
    free_bright(&l->now), free_bright(&l->next);
    free(l->fresh_row), free(l->fresh_gap), free(l->scratch);
}

static inline void copy_row(const model_t *m, bright_t *to, const float *x, double y, const double *bounds, int32_t row,
                            double gap) {
    int64_t i = to->n++;
    memcpy(to->x + i * m->width, x, 4 * (size_t)m->width);
    for (int64_t b = 0; b < m->n_bounds; b++) to->bounds[i * m->n_bounds + b] = bounds[b];
    to->y[i] = y, to->row[i] = row, to->gap[i] = gap;
}

/* Merge the bright rows that are kept with those just lit, by position. Both lists are sorted and disjoint. Returns 0
 * if memory runs out; then nothing has changed. */
static inline int merge_lights(lights_t *l) {
    const model_t *m = l->model;
    const bright_t *old = &l->now;
    int64_t i = 0, j = 0;
    if (!reserve_bright(&l->next, m, old->n + l->n_fresh)) return 0;
    l->next.n = 0;
    while (i < old->n || j < l->n_fresh) {
        if (j == l->n_fresh || (i < old->n && old->row[i] < l->fresh_row[j])) {
            if (old->keep[i])
                copy_row(m, &l->next, old->x + i * m->width, old->y[i], old->bounds + i * m->n_bounds, old->row[i],
                         old->gap[i]);
            i++;
        } else {
            int64_t r = l->fresh_row[j];
            copy_row(m, &l->next, l->rows.x + r * m->width, l->rows.y[r], l->rows.bounds + r * m->n_bounds, (int32_t)r,
                     l->fresh_gap[j]);
            j++;
        }
    }
    bright_t spare = l->now;
    l->now = l->next, l->next = spare;
    return 1;
}
#endif
