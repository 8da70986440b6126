/* Rows that are equal to their neighbours, as in tables of patterns (docs/weights.md): what holds for one holds for all,
 * to the bit. Cells are compared as bytes.
 */
#ifndef MPIBAYES_ALIKE_H
#define MPIBAYES_ALIKE_H
#include "layout.h"

enum { LOOKS = 64, MOST_UNLIKE = 16 }; /* pairs of neighbours looked at, and most of them that may differ */

static inline int same_bytes(const void *cells, int64_t width, int64_t a, int64_t b) {
    const char *x = (const char *)cells + a * width, *y = (const char *)cells + b * width;
    uint64_t of_x, of_y;
    int64_t at = 0;
    for (; at + 8 <= width; at += 8) {
        memcpy(&of_x, x + at, 8), memcpy(&of_y, y + at, 8);
        if (of_x != of_y) return 0;
    }
    for (; at < width; at++)
        if (x[at] != y[at]) return 0;
    return 1;
}

/* True if rows a and b have the same levels and counts. */
static inline int same_counted(const rows_t *rows, int64_t a, int64_t b) {
    return same_bytes(rows->codes8, rows->n_codes8, a, b) && same_bytes(rows->codes16, 2 * rows->n_codes16, a, b) &&
           same_bytes(rows->tallies, 8 * rows->n_tallies, a, b);
}

/* True if rows a and b have the same cells. */
static inline int same_cells(const rows_t *rows, int64_t a, int64_t b) {
    return same_counted(rows, a, b) && same_bytes(rows->reals, 8 * rows->n_reals, a, b) &&
           same_bytes(rows->vectors, 8 * rows->n_vector, a, b) && same_bytes(rows->spells, 8 * rows->n_spells, a, b);
}

/* True if most rows seem to equal their predecessors, all cells or levels and counts alone. Affects only speed. */
static inline int in_runs(const rows_t *rows, const int all) {
    int unlike = 0;
    if (rows->n < 2) return 0;
    for (int64_t look = 0; look < LOOKS && unlike <= MOST_UNLIKE; look++) {
        int64_t i = 1 + look * (rows->n - 1) / LOOKS;
        unlike += !(all ? same_cells(rows, i - 1, i) : same_counted(rows, i - 1, i));
    }
    return unlike <= MOST_UNLIKE;
}
#endif
