/* Scans of the launch of a split: their loops for every instruction set, and the call of the one in use. */
#ifndef MPIBAYES_SCANS_H
#define MPIBAYES_SCANS_H
#include "philox.h"
#include "special.h"

/* Rows are stored in chunks of one group, column by column: the codes of 64 rows are one look-up in registers, or a
 * few. A chunk has a multiple of 64 rows; the last ones may be padding, which is on no side. */
enum { TILE = 64, CHUNK = 1024, SCANS_OF_A_BLOCK = 16, MISSING_REAL = INT32_MIN, OVERREAD = 32, MOST_MARKED = 32 };

typedef struct {
    int64_t n_codes8, n_codes16, n_reals, n_tallies, n_levels, n_groups, n_chunks, n_rows;
    const int64_t *offsets; /* offsets of level rows, by column */
    const int32_t *group;   /* group of each chunk, ascending */
    const int64_t *start;   /* first row of each chunk, and the end */
    const uint8_t *codes8;  /* [chunk][column][row], like the following arrays */
    const uint16_t *codes16;
    const int32_t *reals;   /* 2^-20 standard deviations of the group */
    const double *tallies;
    const uint16_t *words;  /* [scan of the block][row] */
    const uint8_t *free;    /* [row]: 255 if the side is drawn */
    uint8_t *side;          /* [row]: 255 if the side is 1 */
    const int64_t *marked;  /* marks of the columns of codes8 before each, and of all: one for each level but the last of
                               columns with at most MOST_MARKED levels */
    const uint64_t *marks;  /* [chunk][mark][64 rows]: which rows are at the level */
} packed_t;

typedef struct { /* counts of some rows: [group][size, level rows, observed reals, observed tallies] and
                    [group][sums of reals, of their squares, of tallies] */
    int32_t *cells;
    int64_t *sums;
} counts_t;

static inline int64_t n_cells(const packed_t *p) { return 1 + p->n_levels + p->n_reals + p->n_tallies; }
static inline int64_t n_sums(const packed_t *p) { return 2 * p->n_reals + p->n_tallies; }

/* Words of the rows with these ids, n a multiple of 2, for SCANS_OF_A_BLOCK scans: 16 bits for each from the block of
 * counter[1..3] and the id. Two rows at once, as in philox_pair. */
static inline void draw_words(const uint64_t *id, int64_t n, const uint64_t counter[4], uint64_t seed, uint64_t purpose,
                              uint16_t *words) {
    for (int64_t i = 0; i < n; i += 2) {
        uint64_t c[4] = {id[i], counter[1], counter[2], counter[3]}, key = seed, use = purpose;
        uint64_t d[4] = {id[i + 1], counter[1], counter[2], counter[3]};
        _Pragma("GCC unroll 10") for (int round = 0; round < 10; round++) {
            philox_round(c, key, use);
            philox_round(d, key, use);
            NEXT_KEY(key, use);
        }
        for (int s = 0; s < SCANS_OF_A_BLOCK; s++) {
            uint16_t both[2] = {(uint16_t)(c[s >> 2] >> (16 * (s & 3))), (uint16_t)(d[s >> 2] >> (16 * (s & 3)))};
            memcpy(words + s * n + i, both, sizeof both);
        }
    }
}

#define LOOPS "scan_loops.h"
#include "every_isa.h"

static inline void mark_rows(const packed_t *p, uint64_t *marks) { DISPATCH(mark_rows, p, marks); }
static inline void count_rows(const packed_t *p, const uint8_t *mask, counts_t out) { DISPATCH(count_rows, p, mask, out); }
static inline void scan_rows(const packed_t *p, int64_t g, int64_t chunk, int64_t end, int64_t scan,
                             const double *beta, const double *shrink, const double *tilt, counts_t whole,
                             counts_t one, counts_t zero, double *work, float *table, counts_t out) {
    DISPATCH(scan_rows, p, g, chunk, end, scan, beta, shrink, tilt, whole, one, zero, work, table, out);
}
#endif
