/* Vectors of the width MB_BYTES, their exponential and logarithm. Included once for every instruction set (mixture.h).
 *
 * Every operation works lane by lane, or reduces 16 lanes by the one tree lane j + lane j + 8, + 4, + 2, + 1. Products
 * and sums are never fused (-ffp-contract=off). So no result bit depends on the width.
 */
#define N_FLOAT (MB_BYTES / 4)
#define N_DOUBLE (MB_BYTES / 8)

typedef float FN(vf) __attribute__((vector_size(MB_BYTES), aligned(MB_BYTES), may_alias));
typedef int32_t FN(vi) __attribute__((vector_size(MB_BYTES), aligned(MB_BYTES), may_alias));
typedef uint32_t FN(vu) __attribute__((vector_size(MB_BYTES), aligned(MB_BYTES), may_alias));
typedef double FN(vd) __attribute__((vector_size(MB_BYTES), aligned(MB_BYTES), may_alias));
typedef int64_t FN(vl) __attribute__((vector_size(MB_BYTES), aligned(MB_BYTES), may_alias));
typedef uint64_t FN(vul) __attribute__((vector_size(MB_BYTES), aligned(MB_BYTES), may_alias));
typedef float FN(vh) __attribute__((vector_size(MB_BYTES / 2), aligned(MB_BYTES / 2), may_alias)); /* N_DOUBLE floats */
typedef double FN(vd_loose) __attribute__((vector_size(MB_BYTES), aligned(8), may_alias)); /* at any address */
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

/* whether a comparison holds in some lane */
ALWAYS_INLINE int FN(any)(vl mask) {
    int64_t found = 0;
    for (int i = 0; i < N_DOUBLE; i++) found |= mask[i];
    return found != 0;
}

/* exp(x) for x <= 0 in float32, relative error below 2e-7; 0 below -87, for -infinity and for NaN (NaN is caught
 * before). x = n log 2 + r, |r| <= log(2)/2, the polynomial of Cephes expf. Adding 1.5 * 2^23 rounds to a whole number
 * and leaves it in the low bits. */
ALWAYS_INLINE vf FN(vexp)(vf x) {
    const float shifter = 12582912.0f;
    vf t = x * 1.44269504088896341f + shifter;
    vf n = t - shifter;
    vf r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    vf p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    vf y = (p * (r * r) + r) + 1.0f;
    vf power = (vf)(((vu)t + (127u - 0x4B400000u)) << 23);
    return (vf)((vi)(y * power) & (vi)(x >= -87.0f));
}

/* sum of 16 floats in float64, by the fixed tree */
ALWAYS_INLINE double FN(sum16)(const float *x) {
    vd part[16 / N_DOUBLE];
    for (int i = 0; i < 16 / N_DOUBLE; i++) part[i] = __builtin_convertvector(((const vh *)x)[i], vd);
    for (int n = 16 / N_DOUBLE / 2; n >= 1; n /= 2)
        for (int i = 0; i < n; i++) part[i] += part[i + n];
    double lane[N_DOUBLE];
    for (int i = 0; i < N_DOUBLE; i++) lane[i] = part[0][i];
    for (int n = N_DOUBLE / 2; n >= 1; n /= 2)
        for (int i = 0; i < n; i++) lane[i] += lane[i + n];
    return lane[0];
}

/* logarithms of an array in place; n is padded to a multiple of 8 by the caller, with ones */
ALWAYS_INLINE void FN(log_array)(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i += N_DOUBLE) *(vd *)(x + i) = vlog(*(const vd *)(x + i));
}
