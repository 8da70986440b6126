/* Philox4x64-10, the counter-based generator of Salmon, Moraes, Dror & Shaw (2011), "Parallel random numbers: as easy
 * as 1, 2, 3". Bit for bit numpy.random.Philox: NumPy adds one to the counter before its first block, so the block it
 * then returns is `philox_block` of the counter plus one.
 *
 * key = (seed, purpose); counter = (row >> 2, sweep, cycle, chain); a row owns output word `row & 3` of its block.
 */
#ifndef MPIBAYES_PHILOX_H
#define MPIBAYES_PHILOX_H
#include <stdint.h>

enum { PURPOSE_PRIORITY = 1, PURPOSE_ASSIGN = 2, PURPOSE_VISIT = 11, PURPOSE_SUBSAMPLE = 15, PURPOSE_FLIP = 43, PURPOSE_TAIL = 44,
       PURPOSE_TOPICS = 73 };

static inline void philox_multiply(uint64_t a, uint64_t b, uint64_t *high, uint64_t *low) {
    unsigned __int128 product = (unsigned __int128)a * b;
    *high = (uint64_t)(product >> 64);
    *low = (uint64_t)product;
}

static inline void philox_round(uint64_t c[4], uint64_t seed, uint64_t purpose) {
    uint64_t high0, low0, high1, low1;
    philox_multiply(0xD2E7470EE14C6C93ull, c[0], &high0, &low0);
    philox_multiply(0xCA5A826395121157ull, c[2], &high1, &low1);
    c[0] = high1 ^ c[1] ^ seed;
    c[1] = low1;
    c[2] = high0 ^ c[3] ^ purpose;
    c[3] = low0;
}

/* Weyl constants: golden ratio, sqrt(3) - 1 */
#define NEXT_KEY(seed, purpose) (seed += 0x9E3779B97F4A7C15ull, purpose += 0xBB67AE8584CAA73Bull)

static inline void philox_block(const uint64_t counter[4], uint64_t seed, uint64_t purpose, uint64_t out[4]) {
    uint64_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    for (int round = 0; round < 10; round++) {
        philox_round(c, seed, purpose);
        NEXT_KEY(seed, purpose);
    }
    for (int j = 0; j < 4; j++) out[j] = c[j];
}

/* The blocks of counter[0] and of counter[0] + 1 at once: each round waits for the previous one, so two take hardly
 * longer than one. */
static __attribute__((noinline, unused)) void philox_pair(const uint64_t counter[4], uint64_t seed, uint64_t purpose,
                                                          uint64_t out[8]) {
    uint64_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint64_t d[4] = {counter[0] + 1, counter[1], counter[2], counter[3]};
    _Pragma("GCC unroll 10") for (int round = 0; round < 10; round++) {
        philox_round(c, seed, purpose);
        philox_round(d, seed, purpose);
        NEXT_KEY(seed, purpose);
    }
    for (int j = 0; j < 4; j++) {
        out[j] = c[j], out[4 + j] = d[j];
        /* no stores by vectors: an instruction of SSE between loops of AVX waits for the registers' upper halves, which
         * costs more than all ten rounds */
        __asm__ volatile("" ::: "memory");
    }
}

/* The stream of one (seed, purpose, sweep, cycle, chain), read in row order: a pair of blocks is computed once for its
 * 8 rows. */
typedef struct {
    uint64_t seed, purpose, counter[4], words[8];
    int ready;
} philox_stream;

static inline philox_stream philox_open(uint64_t seed, uint64_t purpose, uint64_t sweep, uint64_t cycle,
                                        uint64_t chain) {
    philox_stream s = {seed, purpose, {0, sweep, cycle, chain}, {0}, 0};
    return s;
}

static inline uint64_t philox_word(philox_stream *s, uint64_t row) {
    uint64_t first = row >> 3 << 1;
    if (!s->ready || s->counter[0] != first) {
        s->counter[0] = first;
        philox_pair(s->counter, s->seed, s->purpose, s->words);
        s->ready = 1;
    }
    return s->words[row & 7];
}

/* A draw from 0..n-1; the probabilities differ from 1/n by less than 2^-64. */
static inline int64_t philox_below(uint64_t word, int64_t n) {
    return (int64_t)(((unsigned __int128)word * (uint64_t)n) >> 64);
}

static inline double philox_uniform(uint64_t word) { return (double)(word >> 11) * 0x1p-53; }
#endif
