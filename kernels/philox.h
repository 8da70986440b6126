/* Philox4x64-10, the counter-based generator of Salmon, Moraes, Dror & Shaw (2011), "Parallel random numbers: as easy
 * as 1, 2, 3". Bit for bit numpy.random.Philox: NumPy adds one to the counter before its first block, so the block it
 * then returns is `philox_block` of the counter plus one.
 *
 * key = (seed, purpose); counter = (row >> 2, sweep, cycle, chain); a row owns output word `row & 3` of its block.
 */
#ifndef MPIBAYES_PHILOX_H
#define MPIBAYES_PHILOX_H
#include <stdint.h>

enum { PURPOSE_PRIORITY = 1, PURPOSE_ASSIGN = 2, PURPOSE_VISIT = 11, PURPOSE_SUBSAMPLE = 15 };

static inline void philox_multiply(uint64_t a, uint64_t b, uint64_t *high, uint64_t *low) {
    unsigned __int128 product = (unsigned __int128)a * b;
    *high = (uint64_t)(product >> 64);
    *low = (uint64_t)product;
}

static inline void philox_block(const uint64_t counter[4], uint64_t seed, uint64_t purpose, uint64_t out[4]) {
    uint64_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t high0, low0, high1, low1;
        philox_multiply(0xD2E7470EE14C6C93ull, c0, &high0, &low0);
        philox_multiply(0xCA5A826395121157ull, c2, &high1, &low1);
        c0 = high1 ^ c1 ^ seed;
        c1 = low1;
        c2 = high0 ^ c3 ^ purpose;
        c3 = low0;
        seed += 0x9E3779B97F4A7C15ull;    /* Weyl constants: golden ratio, sqrt(3) - 1 */
        purpose += 0xBB67AE8584CAA73Bull;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* The stream of one (seed, purpose, sweep, cycle, chain), read in row order: a block is computed once for its 4 rows.
 * */
typedef struct {
    uint64_t seed, purpose, counter[4], words[4];
    int ready;
} philox_stream;

static inline philox_stream philox_open(uint64_t seed, uint64_t purpose, uint64_t sweep, uint64_t cycle,
                                        uint64_t chain) {
    philox_stream s = {seed, purpose, {0, sweep, cycle, chain}, {0, 0, 0, 0}, 0};
    return s;
}

static inline uint64_t philox_word(philox_stream *s, uint64_t row) {
    if (!s->ready || s->counter[0] != row >> 2) {
        s->counter[0] = row >> 2;
        philox_block(s->counter, s->seed, s->purpose, s->words);
        s->ready = 1;
    }
    return s->words[row & 3];
}

/* one of 0..n-1; the probabilities differ from 1/n by less than 2^-64 */
static inline int64_t philox_below(uint64_t word, int64_t n) {
    return (int64_t)(((unsigned __int128)word * (uint64_t)n) >> 64);
}

static inline double philox_uniform(uint64_t word) { return (double)(word >> 11) * 0x1p-53; }
#endif
