/* A cell of a survival column as one number: (part + 1) 2^27 + ticks, ticks being the time spent in the part of the
 * time axis where the row was last seen; negative if it was censored there, NaN if missing. */
#ifndef MPIBAYES_SPELL_CELL_H
#define MPIBAYES_SPELL_CELL_H
#include <stdint.h>

enum { SPELL_PARTS = 8, SPELL_SHIFT = 27 };

typedef struct { int64_t part, event; double time; } spell_t;
static inline spell_t spell_of(double x) {
    int64_t code = (int64_t)(x < 0 ? -x : x);
    spell_t s = {(code >> SPELL_SHIFT) - 1, x > 0, (double)(code & (((int64_t)1 << SPELL_SHIFT) - 1))};
    return s;
}
#endif
