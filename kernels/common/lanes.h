/* Vectors of MB_BYTES bytes, their exponential and logarithm. Included once for every instruction set (every_isa.h).
 *
 * Every operation works lane by lane, or reduces 16 lanes by the same tree: lane j + lane j + 8, + 4, + 2, + 1.
 * Products and sums are never fused (-ffp-contract=off). So no result bit depends on the width.
 */
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define N_FLOAT (MB_BYTES / 4)
#define N_DOUBLE (MB_BYTES / 8)
#define UNROLL _Pragma("GCC unroll 16")

typedef float FN(vf) __attribute__((vector_size(MB_BYTES), aligned(MB_BYTES), may_alias));
typedef int32_t FN(vi) __attribute__((vector_size(MB_BYTES), aligned(MB_BYTES), may_alias));
typedef uint32_t FN(vu) __attribute__((vector_size(MB_BYTES), aligned(MB_BYTES), may_alias));
typedef double FN(vd) __attribute__((vector_size(MB_BYTES), aligned(MB_BYTES), may_alias));
typedef int64_t FN(vl) __attribute__((vector_size(MB_BYTES), aligned(MB_BYTES), may_alias));
typedef uint64_t FN(vul) __attribute__((vector_size(MB_BYTES), aligned(MB_BYTES), may_alias));
typedef float FN(vh) __attribute__((vector_size(MB_BYTES / 2), aligned(MB_BYTES / 2), may_alias)); /* N_DOUBLE floats */
typedef double FN(vd_loose) __attribute__((vector_size(MB_BYTES), aligned(8), may_alias)); /* at any address */
typedef int64_t FN(vl_loose) __attribute__((vector_size(MB_BYTES), aligned(8), may_alias));
#define vf FN(vf)
#define vi FN(vi)
#define vu FN(vu)
#define vd FN(vd)
#define vl FN(vl)
#define vul FN(vul)
#define vh FN(vh)

#define AS_VUL(x) ((vul)(x))
#define AS_VD(x) ((vd)(x))
DEFINE_LOG(FN(vlog), vd, vul, AS_VUL, AS_VD)
#define vlog FN(vlog)

#define SPREAD(x) ((x) - (vd){0}) /* a scalar in every lane; x - 0 is x, also for -0 */
#define SELECT(mask, a, b) ((vd)(((vl)(mask) & (vl)(a)) | (~(vl)(mask) & (vl)(b))))

/* lanes in which a comparison holds, one bit per lane */
ALWAYS_INLINE int FN(lanes)(vl mask) {
#if MB_BYTES == 64
    return _mm512_movepi64_mask((__m512i)mask);
#elif MB_BYTES == 32
    return _mm256_movemask_pd((__m256d)mask);
#elif defined(__SSE2__)
    return _mm_movemask_pd((__m128d)mask);
#else
    return (int)(mask[0] & 1) | (int)(mask[1] & 2);
#endif
}

/* 1 if it holds in any lane */
ALWAYS_INLINE int FN(any)(vl mask) { return FN(lanes)(mask) != 0; }

/* number of lanes in which it holds */
ALWAYS_INLINE int FN(count_lanes)(vl mask) {
#if MB_BYTES == 16
    return (int)-(mask[0] + mask[1]);
#else
    return __builtin_popcount((unsigned)FN(lanes)(mask));
#endif
}

/* the greater and the lesser, lane by lane; b where a lane is NaN */
#if MB_BYTES == 64
#define MORE(a, b) ((vd)_mm512_max_pd((__m512d)(a), (__m512d)(b)))
#define LESS(a, b) ((vd)_mm512_min_pd((__m512d)(a), (__m512d)(b)))
#elif MB_BYTES == 32
#define MORE(a, b) ((vd)_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define LESS(a, b) ((vd)_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#elif defined(__SSE2__)
#define MORE(a, b) ((vd)_mm_max_pd((__m128d)(a), (__m128d)(b)))
#define LESS(a, b) ((vd)_mm_min_pd((__m128d)(a), (__m128d)(b)))
#else
#define MORE(a, b) SELECT((a) > (b), a, b)
#define LESS(a, b) SELECT((a) < (b), a, b)
#endif

/* N_FLOAT float64 as one vector of float32 (compilers send the plain form through memory) */
ALWAYS_INLINE vf FN(narrow)(vd a, vd b) {
#if MB_BYTES == 64
    return (vf)_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)a)), _mm512_cvtpd_ps((__m512d)b), 1);
#elif MB_BYTES == 32
    return (vf)_mm256_set_m128(_mm256_cvtpd_ps((__m256d)b), _mm256_cvtpd_ps((__m256d)a));
#elif defined(__SSE2__)
    return (vf)_mm_movelh_ps(_mm_cvtpd_ps((__m128d)a), _mm_cvtpd_ps((__m128d)b));
#else
    union { vf whole; vh half[2]; } u;
    u.half[0] = __builtin_convertvector(a, vh), u.half[1] = __builtin_convertvector(b, vh);
    return u.whole;
#endif
}

/* the lower and the upper half of a vector of float32 as float64 */
ALWAYS_INLINE void FN(widen)(vf x, vd *low, vd *high) {
#if MB_BYTES == 64
    *low = (vd)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x));
    *high = (vd)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1));
#elif MB_BYTES == 32
    *low = (vd)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x));
    *high = (vd)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1));
#elif defined(__SSE2__)
    *low = (vd)_mm_cvtps_pd((__m128)x);
    *high = (vd)_mm_cvtps_pd(_mm_movehl_ps((__m128)x, (__m128)x));
#else
    union { vf whole; vh half[2]; } u = {x};
    *low = __builtin_convertvector(u.half[0], vd), *high = __builtin_convertvector(u.half[1], vd);
#endif
}

#ifdef __clang__
#define PERMUTE(a, b, mask, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PERMUTE(a, b, mask, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#endif
#if MB_BYTES == 64
#define ZIP_LOW_D 0, 8, 1, 9, 2, 10, 3, 11
#define ZIP_HIGH_D 4, 12, 5, 13, 6, 14, 7, 15
#define ZIP_LOW_F 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ZIP_HIGH_F 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif MB_BYTES == 32
#define ZIP_LOW_D 0, 4, 1, 5
#define ZIP_HIGH_D 2, 6, 3, 7
#define ZIP_LOW_F 0, 8, 1, 9, 2, 10, 3, 11
#define ZIP_HIGH_F 4, 12, 5, 13, 6, 14, 7, 15
#else
#define ZIP_LOW_D 0, 2
#define ZIP_HIGH_D 1, 3
#define ZIP_LOW_F 0, 4, 1, 5
#define ZIP_HIGH_F 2, 6, 3, 7
#endif

/* The perfect shuffle of a deck held in vectors: entry e moves to 2 e, with the upper half in between. Three of them
 * turn 8 rows of m numbers into m columns of 8. */
ALWAYS_INLINE void FN(riffle_doubles)(vd deck[64 / N_DOUBLE]) {
    enum { HALF = 32 / N_DOUBLE };
    vd out[2 * HALF];
    _Pragma("GCC unroll 32") for (int i = 0; i < HALF; i++) {
        out[2 * i] = PERMUTE(deck[i], deck[i + HALF], vl, ZIP_LOW_D);
        out[2 * i + 1] = PERMUTE(deck[i], deck[i + HALF], vl, ZIP_HIGH_D);
    }
    _Pragma("GCC unroll 32") for (int i = 0; i < 2 * HALF; i++) deck[i] = out[i];
}
ALWAYS_INLINE void FN(riffle_floats)(vf deck[128 / N_FLOAT]) {
    enum { HALF = 64 / N_FLOAT };
    vf out[2 * HALF];
    _Pragma("GCC unroll 32") for (int i = 0; i < HALF; i++) {
        out[2 * i] = PERMUTE(deck[i], deck[i + HALF], vi, ZIP_LOW_F);
        out[2 * i + 1] = PERMUTE(deck[i], deck[i + HALF], vi, ZIP_HIGH_F);
    }
    _Pragma("GCC unroll 32") for (int i = 0; i < 2 * HALF; i++) deck[i] = out[i];
}

/* the greatest lane, in every lane */
ALWAYS_INLINE vd FN(greatest)(vd x) {
#if MB_BYTES == 64
    x = MORE(x, PERMUTE(x, x, vl, 4, 5, 6, 7, 0, 1, 2, 3));
    x = MORE(x, PERMUTE(x, x, vl, 2, 3, 0, 1, 6, 7, 4, 5));
    return MORE(x, PERMUTE(x, x, vl, 1, 0, 3, 2, 5, 4, 7, 6));
#elif MB_BYTES == 32
    x = MORE(x, PERMUTE(x, x, vl, 2, 3, 0, 1));
    return MORE(x, PERMUTE(x, x, vl, 1, 0, 3, 2));
#else
    return MORE(x, PERMUTE(x, x, vl, 1, 0));
#endif
}

/* 2^x of n vectors, n <= 4, for x <= 0 in float32, relative error below 2e-7; 0 below -125 and for -infinity, NaN for
 * NaN. Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits; the remainder, at most 1/2, goes into
 * a polynomial fitted for the smallest maximal relative error (9e-8) with 2^0 = 1. Each step of it waits for the one
 * before, so vectors take every step side by side. */
ALWAYS_INLINE void FN(vexp2_each)(vf *x, const int n) {
    const float shifter = 12582912.0f;
    vf t[4], r[4], y[4];
    UNROLL for (int i = 0; i < n; i++) t[i] = x[i] + shifter;
    UNROLL for (int i = 0; i < n; i++) r[i] = x[i] - (t[i] - shifter);
    UNROLL for (int i = 0; i < n; i++) y[i] = r[i] * 1.3264728747e-3f + 9.6715131819e-3f;
    UNROLL for (int i = 0; i < n; i++) y[i] = y[i] * r[i] + 5.5507337445e-2f;
    UNROLL for (int i = 0; i < n; i++) y[i] = y[i] * r[i] + 2.4022242077e-1f;
    UNROLL for (int i = 0; i < n; i++) y[i] = y[i] * r[i] + 6.9314697760e-1f;
    UNROLL for (int i = 0; i < n; i++) y[i] = y[i] * r[i] + 1.0f;
    UNROLL for (int i = 0; i < n; i++) {
        vf power = (vf)(((vu)t[i] + (127u - 0x4B400000u)) << 23);
        x[i] = (vf)((vi)(y[i] * power) & ~(vi)(x[i] < -125.0f));
    }
}
ALWAYS_INLINE vf FN(vexp2)(vf x) {
    FN(vexp2_each)(&x, 1);
    return x;
}

/* the first half of the tree over 16 float32 in float64: lane j + lane j + 8 */
ALWAYS_INLINE void FN(fold16)(const vf x[16 / N_FLOAT], vd part[8 / N_DOUBLE]) {
    vd wide[16 / N_DOUBLE];
    _Pragma("GCC unroll 8") for (int i = 0; i < 16 / N_FLOAT; i++) FN(widen)(x[i], &wide[2 * i], &wide[2 * i + 1]);
    _Pragma("GCC unroll 8") for (int i = 0; i < 8 / N_DOUBLE; i++) part[i] = wide[i] + wide[i + 8 / N_DOUBLE];
}

/* the rest of the tree: sum of 8 lanes, N_DOUBLE per vector */
ALWAYS_INLINE double FN(sum8)(const vd part[8 / N_DOUBLE]) {
    double lane[8];
    for (int i = 0; i < 8 / N_DOUBLE; i++) *(FN(vd_loose) *)(lane + i * N_DOUBLE) = part[i];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* the same for 8 rows at once: lane j gets the sum of row j */
ALWAYS_INLINE void FN(sum8_of_8)(vd rows[64 / N_DOUBLE], vd sums[8 / N_DOUBLE]) {
    enum { N = 8 / N_DOUBLE };
    for (int round = 0; round < 3; round++) FN(riffle_doubles)(rows);
    _Pragma("GCC unroll 4") for (int i = 0; i < N; i++)
        sums[i] = ((rows[i] + rows[i + 4 * N]) + (rows[i + 2 * N] + rows[i + 6 * N]))
                  + ((rows[i + N] + rows[i + 5 * N]) + (rows[i + 3 * N] + rows[i + 7 * N]));
}

/* Logarithms of an array in place; the caller pads n to a multiple of 8 with ones. */
ALWAYS_INLINE void FN(log_array)(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i += N_DOUBLE) *(vd *)(x + i) = vlog(*(const vd *)(x + i));
}
