/* Vectors of floor.c: exponential, logarithm, and one draw from log weights. GCC's vector types; compile with
 * -O3 -march=native. A vector fills a register, so that accumulators stay in registers.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#define VECTOR_BYTES 64
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define LANES (VECTOR_BYTES / 4)
#define LANES64 (VECTOR_BYTES / 8)
#define INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef int32_t vi __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef double vd __attribute__((vector_size(VECTOR_BYTES), may_alias));

INLINE vf pick_lanes(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }
INLINE vf larger(vf a, vf b) {
#ifdef __AVX512F__
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return pick_lanes(a > b, a, b);
#endif
}
INLINE vf smaller(vf a, vf b) {
#ifdef __AVX512F__
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return pick_lanes(a < b, a, b);
#endif
}
INLINE float largest(vf a) {
#ifdef __AVX512F__
    return _mm512_reduce_max_ps((__m512)a);
#else
    float most = a[0];
    for (int j = 1; j < LANES; j++) most = a[j] > most ? a[j] : most;
    return most;
#endif
}

/* exp(x) for x <= 0, relative error below 4e-6; 0 below -86. 2^x by its power series around the nearest whole number. */
INLINE vf exponential(vf x) {
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds */
    vf y = x * 1.4426950409f, rounded = y + shift, f = (y - (rounded - shift)) * 0.6931471806f;
    vf p = f * (1.0f / 720) + 1.0f / 120;
    p = p * f + 1.0f / 24;
    p = p * f + 1.0f / 6;
    p = p * f + 0.5f;
    p = p * f + 1.0f;
    p = p * f + 1.0f;
    vi power = ((vi)rounded + (127 - 0x4B400000)) << 23;
    return (vf)((vi)(p * (vf)power) & (vi)(x >= -86.0f));
}

/* log(x) for normal x > 0, error about 2e-7: x = 2^e (1 + t) with 1 + t in [sqrt(1/2), sqrt(2)),
 * log(1 + t) = t - t^2/2 + t^3 q(t), q fitted by least squares at Chebyshev nodes. No division. */
INLINE vf logarithm(vf x) {
    vi e = ((vi)x - 0x3F3504F3) >> 23;
    vf t = (vf)((vi)x - (e << 23)) - 1.0f, z = t * t;
    vf q = t * -0.101571888f + 0.161325020f;
    q = q * t - 0.171799105f;
    q = q * t + 0.199103682f;
    q = q * t - 0.249798839f;
    q = q * t + 0.333347573f;
    return __builtin_convertvector(e, vf) * 0.6931471806f + ((q * t - 0.5f) * z + t);
}

/* running sums over the lanes */
INLINE vf running_sums(vf x) {
#ifdef __AVX512F__
    const __m512i zero = _mm512_setzero_si512();
    x += (vf)_mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512((__m512)x), zero, 15));
    x += (vf)_mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512((__m512)x), zero, 14));
    x += (vf)_mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512((__m512)x), zero, 12));
    x += (vf)_mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512((__m512)x), zero, 8));
#else
    for (int j = 1; j < LANES; j++) x[j] += x[j - 1];
#endif
    return x;
}
INLINE int lanes_at_most(vf x, float limit) {
#ifdef __AVX512F__
    return __builtin_popcount(_mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(limit), _CMP_LE_OQ));
#else
    int n = 0;
    for (int j = 0; j < LANES; j++) n += x[j] <= limit;
    return n;
#endif
}

/* A draw of 0..n-1 with log weights s, u uniform in [0, 1); s is overwritten. n: a multiple of 16.
 *
 * The order in which weights are summed is free: down the vectors first, lane by lane, so that one sum across lanes
 * chooses the lane, and at most n / LANES running sums of that lane are looked at. */
INLINE int draw(float *restrict s, int n, float u) {
    vf top = *(vf *)s, sum = (vf){0};
    for (int k = LANES; k < n; k += LANES) top = larger(top, *(vf *)(s + k));
    float most = largest(top);
    for (int k = 0; k < n; k += LANES) *(vf *)(s + k) = sum += exponential(*(vf *)(s + k) - most);
    float before[LANES + 1] = {0};
    vf across = running_sums(sum);
    memcpy(before + 1, &across, VECTOR_BYTES);
    float target = u * across[LANES - 1];
    int lane = lanes_at_most(across, target), passed = 0;
    lane = lane < LANES ? lane : LANES - 1;
    float rest = target - before[lane];
    for (int k = lane; k < n - LANES; k += LANES) passed += s[k] <= rest; /* no branch to guess wrong */
    return lane + passed * LANES;
}

/* uniform in [0, 1): xorshift128+ */
static uint64_t random_state[2] = {0x9E3779B97F4A7C15u, 0xD1B54A32D192ED03u};
INLINE float uniform(void) {
    uint64_t a = random_state[0], b = random_state[1];
    random_state[0] = b;
    a ^= a << 23;
    random_state[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
    return (float)((random_state[1] + b) >> 40) * 0x1p-24f;
}
