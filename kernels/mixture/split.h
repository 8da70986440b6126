/* Sides of a proposed split: every row of a group is assigned to side 0 or 1, independently, by log odds that are a sum
 * over its cells. One table look-up per categorical cell.
 */
#ifndef MPIBAYES_SPLIT_H
#define MPIBAYES_SPLIT_H
#include "alike.h"
#include "fetch.h"
#include "philox.h"
#include "special.h"

enum { AT_ONCE = 256 }; /* rows whose odds are computed together */

/* Sum of a row's look-ups: four float32 sums, over every fourth column, so that no addition waits for the last one. */
ALWAYS_INLINE float sum_codes8(const float *table, const int64_t *offset, const uint8_t *code, int64_t n) {
    float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
    int64_t c = 0;
    for (; c + 4 <= n; c += 4) {
        s0 += table[offset[c] + code[c]];
        s1 += table[offset[c + 1] + code[c + 1]];
        s2 += table[offset[c + 2] + code[c + 2]];
        s3 += table[offset[c + 3] + code[c + 3]];
    }
    if (c < n) s0 += table[offset[c] + code[c]];
    if (c + 1 < n) s1 += table[offset[c + 1] + code[c + 1]];
    if (c + 2 < n) s2 += table[offset[c + 2] + code[c + 2]];
    return (s0 + s1) + (s2 + s3);
}
ALWAYS_INLINE float sum_codes16(const float *table, const int64_t *offset, const uint16_t *code, int64_t n) {
    float sum = 0.0f;
    for (int64_t c = 0; c < n; c++) sum += table[offset[c] + code[c]];
    return sum;
}

/* Side chosen by a uniform u under log odds x, side 1 if u < 1 / (1 + exp(-x)), and the log probability of that side:
 * NaN unless x is finite, so that a proposal with such odds is rejected. A u of -1 or 4 chooses side 1 or 0. */
typedef struct { uint64_t one; double log_p; } side_t;
ALWAYS_INLINE side_t side_of(double x, double u) {
    const uint64_t sign = 1ull << 63;
    uint64_t bits = bits_of_double(x), negative = -(bits >> 63);
    double e = exp_negative(double_of_bits(bits | sign));
    double bound = double_of_bits((negative & bits_of_double(e)) | (~negative & bits_of_double(1.0)));
    uint64_t one = u * (1.0 + e) < bound, odds = bits ^ ((one ^ 1) << 63); /* log odds of the chosen side */
    double lost = double_of_bits(odds & -(odds >> 63));                     /* the same if negative, else 0 */
    side_t out = {one, lost - log_positive(1.0 + e) + (x - x)};
    return out;
}

/* The same for any u under one x, with the same bits: side 1 if u * scale < bound, and the log probability of each. */
typedef struct { double scale, bound, log_p[2]; } sides_t;
ALWAYS_INLINE sides_t sides_of(double x) {
    const uint64_t sign = 1ull << 63;
    uint64_t bits = bits_of_double(x), negative = -(bits >> 63);
    double e = exp_negative(double_of_bits(bits | sign));
    sides_t out = {1.0 + e, double_of_bits((negative & bits_of_double(e)) | (~negative & bits_of_double(1.0))),
                   {side_of(x, 4.0).log_p, side_of(x, -1.0).log_p}};
    return out;
}

#define LOOPS "split_loops.h"
#include "every_isa.h"

static inline void sum_rows8(const float *table, const int64_t *offset, const uint8_t *codes, int64_t n_codes,
                             const int32_t *row, int64_t n, double *x) {
    DISPATCH(sum_rows8, table, offset, codes, n_codes, row, n, x);
}
static inline void take_sides(const double *x, const double *u, uint64_t *one, double *log_p, int64_t n) {
    DISPATCH(take_sides, x, u, one, log_p, n);
}
#endif
