/* Sides of a block of rows from their log odds, for every instruction set of this processor family; all the same bits. */
#ifndef MPIBAYES_SPLIT_SIDES_H
#define MPIBAYES_SPLIT_SIDES_H
#include "philox.h"
#include "split.h"

enum { BLOCK = 256, AHEAD = 12 }; /* rows whose odds are worked out together; rows ahead that memory is asked for */

#define DEFINE_TAKE_SIDES(NAME)                                                                                        \
    static void NAME(const double *x, const double *u, uint64_t *one, double *log_p, int64_t n) {                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            side_t side = side_of(x[i], u[i]);                                                                         \
            one[i] = side.one;                                                                                         \
            log_p[i] = side.log_p;                                                                                     \
        }                                                                                                              \
    }
DEFINE_TAKE_SIDES(take_sides_baseline)
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define MPIBAYES_MANY_ISAS 1
#pragma GCC push_options
#pragma GCC target("avx2")
DEFINE_TAKE_SIDES(take_sides_avx2)
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq")
DEFINE_TAKE_SIDES(take_sides_avx512)
#pragma GCC pop_options
#endif
#include "isa.h" /* the module sets kernel_isa to what the mixture kernels chose */

static inline void take_sides(const double *x, const double *u, uint64_t *one, double *log_p, int64_t n) {
    DISPATCH(take_sides, x, u, one, log_p, n);
}
static inline void fetch_row(const uint8_t *codes, int64_t n_codes) {
    for (int64_t c = 0; c < n_codes; c += 64) __builtin_prefetch(codes + c);
}
#endif
