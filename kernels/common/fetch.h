/* Prefetching of rows that a pass reads out of order, or skips between, some rows ahead. */
#ifndef MPIBAYES_FETCH_H
#define MPIBAYES_FETCH_H
#include <stdint.h>

enum { AHEAD = 12 }; /* rows */

static inline void fetch_row(const uint8_t *codes, int64_t n_codes) {
    for (int64_t c = 0; c < n_codes; c += 64) __builtin_prefetch(codes + c);
    __builtin_prefetch(codes + n_codes - 1);
}
#endif
