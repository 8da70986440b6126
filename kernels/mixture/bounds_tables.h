/* The tables of bounds for a draw, and its parameters by tiles. Cost: a few operations for each (feature x cluster). */
#ifndef MPIBAYES_BOUNDS_TABLES_H
#define MPIBAYES_BOUNDS_TABLES_H
#include "bounds.h"

#define LARGEST 1e9 /* larger parameters might lose more to rounding than the bounds allow for */

typedef struct { /* inputs and outputs of the tables */
    const instantiated_t *draw;
    const rows_t *columns;          /* numbers of columns by kind; offsets and widths */
    const double *least, *greatest; /* [real and count column][bin]: range of its cells; empty if least > greatest */
    const int64_t *order;           /* [place]: a cluster of the draw */
    int16_t *groups, *clusters;
    double *top;
    double *term; /* (base,), terms of one feature */
    int16_t *units;
} filling_t;

/* Set the bounds of one feature from t->term, upper bounds of its terms. Returns 0 if one is infinite or NaN. */
static int set_bounds(const bounds_t *b, const filling_t *t, int64_t feature) {
    double top = -INFINITY;
    int odd = 0;
    for (int64_t k = 0; k < b->n; k++) {
        odd |= !(t->term[k] < INFINITY);
        top = t->term[k] > top ? t->term[k] : top;
    }
    if (odd) return 0;
    if (!(top > -INFINITY)) top = 0;
    for (int64_t k = 0; k < b->n; k++) {
        double depth = UNITS * (top - t->term[k]);
        t->units[k] = (int16_t)-(int32_t)(depth < -LEAST_BOUND ? depth : -LEAST_BOUND);
    }
    t->top[feature] = top;
    for (int64_t place = 0; place < b->n; place++)
        t->clusters[(place / TILE * b->n_features + feature) * TILE + place % TILE] = t->units[t->order[place]];
    for (int64_t lane = 0; lane * GROUP < b->n; lane++) {
        const int16_t *of = t->clusters + (lane * GROUP / TILE * b->n_features + feature) * TILE + lane * GROUP % TILE;
        int16_t most = of[0];
        for (int64_t j = 1; j < GROUP; j++) most = lane * GROUP + j < b->n && of[j] > most ? of[j] : most;
        t->groups[feature * b->n_lanes + lane] = most;
    }
    return 1;
}

/* Normal columns: the density at the bin's point nearest to the location. */
static int bound_normal(const bounds_t *b, const filling_t *t, int64_t r) {
    const instantiated_t *g = t->draw;
    const double *location = g->location + r * g->base, *constant = g->constant + r * g->base;
    const double *half_precision = g->half_precision + r * g->base;
    int usable = 1;
    for (int64_t k = 0; k < b->n; k++)
        usable &= fabs(location[k]) < INFINITY && fabs(constant[k]) < LARGEST && half_precision[k] > 0
                  && half_precision[k] < INFINITY;
    for (int64_t bin = 0; bin < BINS && usable; bin++) {
        double low = t->least[r * BINS + bin], high = t->greatest[r * BINS + bin];
        if (!(low <= high)) continue;
        for (int64_t k = 0; k < b->n; k++) {
            double off = location[k] < low ? low - location[k] : location[k] > high ? location[k] - high : 0;
            t->term[k] = constant[k] - half_precision[k] * (off * off);
        }
        usable &= set_bounds(b, t, b->first_bin + r * BINS + bin);
    }
    return usable;
}

/* Counts: a term is linear in the count, so its maximum is at an end of the bin. */
static int bound_poisson(const bounds_t *b, const filling_t *t, int64_t q) {
    const instantiated_t *g = t->draw;
    const double *log_rate = g->log_rate + q * g->base, *rate = g->rate + q * g->base;
    int64_t c = t->columns->n_reals + q;
    int usable = 1;
    for (int64_t k = 0; k < b->n; k++) usable &= fabs(log_rate[k]) < LARGEST && fabs(rate[k]) < LARGEST;
    for (int64_t bin = 0; bin < BINS && usable; bin++) {
        double low = t->least[c * BINS + bin], high = t->greatest[c * BINS + bin];
        if (!(low <= high)) continue;
        for (int64_t k = 0; k < b->n; k++)
            t->term[k] = (log_rate[k] > 0 ? high : low) * log_rate[k] - rate[k];
        usable &= set_bounds(b, t, b->first_bin + c * BINS + bin);
    }
    return usable;
}

/* Blocks of full-covariance normals: the density at the location itself, whatever the cells. */
static int bound_vector(const bounds_t *b, const filling_t *t, int64_t block) {
    int usable = 1;
    for (int64_t k = 0; k < b->n; k++) {
        t->term[k] = t->draw->vector_constant[block * t->draw->base + k];
        usable &= fabs(t->term[k]) < LARGEST;
    }
    return usable && set_bounds(b, t, b->first_block + block);
}

static int moderate(const bounds_t *b, const double *x, int64_t n_rows, int64_t base) {
    int usable = 1;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t k = 0; k < b->n; k++) usable &= fabs(x[r * base + k]) < LARGEST;
    return usable;
}

/* Fill all tables. Returns 0 if a parameter is not finite or too large: such a draw is swept in full. */
static int fill_bounds(const bounds_t *b, const filling_t *t, int64_t n_pairs) {
    const rows_t *columns = t->columns;
    int64_t base = t->draw->base;
    memcpy(t->term, t->draw->log_weight, b->n * sizeof *t->term);
    int usable = set_bounds(b, t, 0);
    for (int64_t c = 0; c < columns->n_codes; c++)
        for (int64_t l = columns->offsets[c]; l < columns->offsets[c + 1] - 1 && usable; l++) {
            for (int64_t k = 0; k < b->n; k++) t->term[k] = t->draw->table[l * base + k];
            usable &= set_bounds(b, t, 1 + l);
        }
    for (int64_t r = 0; r < columns->n_reals && usable; r++) usable &= bound_normal(b, t, r);
    for (int64_t q = 0; q < columns->n_tallies && usable; q++) usable &= bound_poisson(b, t, q);
    for (int64_t v = 0; v < columns->n_blocks && usable; v++) usable &= bound_vector(b, t, v);
    return usable && moderate(b, t->draw->vector_location, columns->n_vector, base)
           && moderate(b, t->draw->vector_factor, n_pairs, base);
}

/* Copy n_rows rows of a tile's clusters to *to, which is advanced past them; returns their place. */
static const double *take_rows(double **to, const double *source, int64_t n_rows, const bounds_t *b, const filling_t *t,
                               int64_t tile, double padding) {
    const double *start = *to;
    for (int64_t r = 0; r < n_rows; r++, *to += TILE)
        for (int64_t k = 0, place = tile * TILE; k < TILE; k++, place++)
            (*to)[k] = place < b->n ? source[r * t->draw->base + t->order[place]] : padding;
    return start;
}

/* Copy the parameters of every tile into doubles, followed by float32. */
static void take_tiles(const bounds_t *b, const filling_t *t, int64_t n_levels, int64_t n_pairs, instantiated_t *tiles,
                       double *to) {
    const instantiated_t *g = t->draw;
    const rows_t *columns = t->columns;
    for (int64_t i = 0; i < b->n_tiles; i++) {
        instantiated_t *tile = tiles + i;
        tile->n = tile->base = TILE;
        tile->log_weight = take_rows(&to, g->log_weight, 1, b, t, i, -INFINITY);
        tile->start = take_rows(&to, g->start, 1, b, t, i, -INFINITY);
        tile->location = take_rows(&to, g->location, columns->n_reals, b, t, i, 0);
        tile->half_precision = take_rows(&to, g->half_precision, columns->n_reals, b, t, i, 0);
        tile->constant = take_rows(&to, g->constant, columns->n_reals, b, t, i, 0);
        tile->log_rate = take_rows(&to, g->log_rate, columns->n_tallies, b, t, i, 0);
        tile->rate = take_rows(&to, g->rate, columns->n_tallies, b, t, i, 0);
        tile->vector_location = take_rows(&to, g->vector_location, columns->n_vector, b, t, i, 0);
        tile->vector_factor = take_rows(&to, g->vector_factor, n_pairs, b, t, i, 0);
        tile->vector_constant = take_rows(&to, g->vector_constant, columns->n_blocks, b, t, i, 0);
    }
    float *table = (float *)to;
    for (int64_t i = 0; i < b->n_tiles; i++) {
        tiles[i].table = table;
        for (int64_t l = 0; l < n_levels; l++, table += TILE)
            for (int64_t k = 0, place = i * TILE; k < TILE; k++, place++)
                table[k] = place < b->n ? g->table[l * g->base + t->order[place]] : 0;
    }
}
#endif
