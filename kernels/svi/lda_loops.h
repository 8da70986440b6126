/* Local steps of documents for one instruction set (every_isa.h).
 *
 * Topics are lanes, 16 to a block, whatever the width of vectors; a word's sum over topics adds the blocks in order,
 * then the 16 lanes by one tree. Sums over documents are of multiples of a unit, so that their order does not matter.
 * No result bit depends on the instruction set.
 */
#include "lanes.h"
#define PER_WIDE (WIDE / N_FLOAT) /* vectors */
#define AHEAD 4                   /* words by which prefetching of sums is ahead */
#define F(p) (*(vf *)(p))
#define LOOSE(p) (*(FN(vd_loose) *)(p))

typedef float FN(v8) __attribute__((vector_size(32), aligned(32), may_alias));

/* log2(e^(psi(x)) / (x + 6)), float32, for x > 0: psi at x + 6 by its series, minus six reciprocals, which are (2 x +
 * 5) (1 / y + (2 y + 10) / ((y + 4) (y + 6))) with y = x (x + 5); -infinity for 0 */
ALWAYS_INLINE vf FN(exponent)(vf x) {
    vf y = x * (x + 5.0f), r = 1.0f / (x + 6.0f), z = r * r;
    vf back = (2.0f * x + 5.0f) * (1.0f / y + (2.0f * y + 10.0f) / ((y + 4.0f) * (y + 6.0f)));
    vf series = ((z * (-1.0f / 252) + 1.0f / 120) * z - 1.0f / 12) * z - 0.5f * r;
    return (series - back) * (float)LOG2_E;
}

ALWAYS_INLINE vf FN(most)(vf a, vf b) { /* lane by lane */
    vi more = (vi)(a > b);
    return (vf)((more & (vi)a) | (~more & (vi)b));
}

/* out = e^psi(x) times scale (NULL: 1) for P numbers, relative to the greatest exponent; padding, from K on, is 0 */
ALWAYS_INLINE void FN(exp_digamma)(const float *x, const float *scale, int64_t K, int64_t P, float *out) {
    float lanes[N_FLOAT] __attribute__((aligned(MB_BYTES)));
    vf greatest = (vf){0} - INFINITY;
    for (int64_t k = 0; k < P; k += N_FLOAT) {
        vf e = FN(exponent)(F(x + k));
        F(out + k) = e;
        if (k + N_FLOAT <= K) greatest = FN(most)(e, greatest);
    }
    F(lanes) = greatest;
    float top = -INFINITY;
    for (int i = 0; i < N_FLOAT; i++) top = lanes[i] > top ? lanes[i] : top;
    for (int64_t k = K / N_FLOAT * N_FLOAT; k < K; k++) top = out[k] > top ? out[k] : top;
    for (int64_t k = 0; k < P; k += N_FLOAT) {
        vf y = (F(x + k) + 6.0f) * FN(vexp2)(F(out + k) - top);
        if (scale) y *= F(scale + k);
        F(out + k) = y;
    }
    for (int64_t k = K; k < P; k++) out[k] = 0.0f;
}

/* sums of 8 rows of 16 lanes, one per lane */
ALWAYS_INLINE void FN(across)(vf deck[TOGETHER * PER_WIDE], float sums[TOGETHER]) {
    float flat[TOGETHER * WIDE] __attribute__((aligned(64)));
    for (int round = 0; round < 3; round++) FN(riffle_floats)(deck);
    _Pragma("GCC unroll 32") for (int i = 0; i < TOGETHER * PER_WIDE; i++) F(flat + i * N_FLOAT) = deck[i];
    const FN(v8) *c = (const FN(v8) *)flat;
    FN(v8) part[8];
    UNROLL for (int i = 0; i < 8; i++) part[i] = c[i] + c[i + 8];
    UNROLL for (int i = 0; i < 4; i++) part[i] += part[i + 4];
    *(FN(v8) *)sums = (part[0] + part[2]) + (part[1] + part[3]);
}

/* TOGETHER words from the i-th on: their weights and counts; past the end, copies of the last one, not counted */
ALWAYS_INLINE void FN(group)(const documents_t *d, int64_t first, int64_t i, int64_t n, const float *rows[TOGETHER],
                             float count[TOGETHER]) {
    UNROLL for (int j = 0; j < TOGETHER; j++) {
        int64_t at = first + (i + j < n ? i + j : n - 1);
        rows[j] = d->weight + (int64_t)d->words[at] * d->P;
        count[j] = i + j < n ? d->counts[at] : 0.0f;
    }
}

/* ratio = count / sum_k theta_k weight_k for TOGETHER words */
ALWAYS_INLINE void FN(ratios)(int64_t P, const float *theta, const float *const rows[TOGETHER], const float *count,
                              float *ratio) {
    vf deck[TOGETHER * PER_WIDE];
    _Pragma("GCC unroll 32") for (int i = 0; i < TOGETHER * PER_WIDE; i++) deck[i] = (vf){0};
    for (int64_t k = 0; k < P; k += WIDE)
        UNROLL for (int h = 0; h < PER_WIDE; h++) {
            vf t = F(theta + k + h * N_FLOAT);
            UNROLL for (int j = 0; j < TOGETHER; j++) deck[j * PER_WIDE + h] += t * F(rows[j] + k + h * N_FLOAT);
        }
    FN(across)(deck, ratio);
    *(FN(v8) *)ratio = *(const FN(v8) *)count / (*(FN(v8) *)ratio + 1e-30f);
}

/* found = sum of ratio * weight over the words of a document */
ALWAYS_INLINE void FN(gather)(const documents_t *d, int64_t first, int64_t n, const float *theta, float *found,
                              float *ratio) {
    float count[TOGETHER] __attribute__((aligned(32)));
    const float *rows[TOGETHER];
    for (int64_t k = 0; k < d->P; k += N_FLOAT) F(found + k) = (vf){0};
    for (int64_t i = 0; i < n; i += TOGETHER) {
        FN(group)(d, first, i, n, rows, count);
        FN(ratios)(d->P, theta, rows, count, ratio + i);
        for (int64_t k = 0; k < d->P; k += N_FLOAT) {
            vf sum = F(found + k);
            UNROLL for (int j = 0; j < TOGETHER; j++) sum += ratio[i + j] * F(rows[j] + k);
            F(found + k) = sum;
        }
    }
}

/* The same with each word's own share, once, removed from theta: shares before and after are in `share` (n, P). */
ALWAYS_INLINE void FN(without_own)(const documents_t *d, int64_t first, int64_t n, const float *theta, float *found,
                                   float *share) {
    float count[TOGETHER] __attribute__((aligned(32))), one[TOGETHER] __attribute__((aligned(32)));
    float ratio[TOGETHER] __attribute__((aligned(32)));
    const float *rows[TOGETHER];
    const int64_t P = d->P;
    UNROLL for (int j = 0; j < TOGETHER; j++) one[j] = 1.0f;
    for (int64_t k = 0; k < P; k += N_FLOAT) F(found + k) = (vf){0};
    for (int64_t i = 0; i < n; i += TOGETHER) {
        vf deck[TOGETHER * PER_WIDE];
        _Pragma("GCC unroll 32") for (int h = 0; h < TOGETHER * PER_WIDE; h++) deck[h] = (vf){0};
        FN(group)(d, first, i, n, rows, count);
        for (int64_t k = 0; k < P; k += WIDE)
            UNROLL for (int h = 0; h < PER_WIDE; h++) {
                int64_t at = k + h * N_FLOAT;
                vf t = F(theta + at);
                UNROLL for (int j = 0; j < TOGETHER; j++) {
                    float *own = share + (i + j) * P + at;
                    vf left = (t - F(own)) * F(rows[j] + at);
                    F(own) = left;
                    deck[j * PER_WIDE + h] += left;
                }
            }
        FN(across)(deck, ratio);
        *(FN(v8) *)ratio = *(FN(v8) *)one / (*(FN(v8) *)ratio + 1e-30f);
        for (int64_t k = 0; k < P; k += N_FLOAT) {
            vf sum = F(found + k);
            UNROLL for (int j = 0; j < TOGETHER; j++) {
                float *own = share + (i + j) * P + k;
                F(own) *= ratio[j];
                sum += count[j] * F(own);
            }
            F(found + k) = sum;
        }
    }
}

/* Add x, rounded to a multiple of the rounder's unit, to N_FLOAT sums. */
ALWAYS_INLINE void FN(add_up)(vf x, double times, double rounder, double *sums) {
    vd low, high;
    FN(widen)(x, &low, &high);
    low = (low * times + rounder) - rounder, high = (high * times + rounder) - rounder;
    LOOSE(sums) += low, LOOSE(sums + N_DOUBLE) += high;
}

/* Add a document's expected counts of words in topics to the sums. */
ALWAYS_INLINE void FN(tally)(const documents_t *d, int64_t first, int64_t n, const float *theta, const float *ratio,
                             const float *share, double number, double *sums, double *numbered) {
    const int64_t P = d->P;
    for (int64_t i = 0; i < n; i++) {
        int64_t word = d->words[first + i];
        const float *weight = d->weight + word * P;
        if (i + AHEAD < n)
            for (int64_t k = 0; k < P; k += 8) __builtin_prefetch(sums + d->words[first + i + AHEAD] * P + k, 1);
        for (int64_t k = 0; k < P; k += N_FLOAT) {
            vf x = share ? d->counts[first + i] * F(share + i * P + k) : F(theta + k) * (ratio[i] * F(weight + k));
            FN(add_up)(x, 1.0, d->rounder[0], sums + word * P + k);
            if (numbered) FN(add_up)(x, number, d->rounder[1], numbered + word * P + k);
        }
    }
}

/* One document: updates its gamma in room->gamma; returns the number of iterations. */
static int64_t FN(document)(const documents_t *d, int64_t first, int64_t n, double number, double *sums,
                            double *numbered, room_t *room) {
    const int64_t P = d->P, K = d->K;
    float *gamma = room->gamma, *theta = room->theta, *found = room->found, *share = NULL;
    float length = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        const float *weight = d->weight + (int64_t)d->words[first + i] * P;
        length += d->counts[first + i];
        for (int64_t k = 0; k < P; k += WIDE) __builtin_prefetch(weight + k);
    }
    if (d->cold)
        for (int64_t k = 0; k < K; k++) gamma[k] = d->alpha[k] + length / (float)K;
    for (int64_t k = K; k < P; k++) gamma[k] = 0.0f;
    if (d->local == CVB0) {
        share = room->share;
        int64_t rows = (n + TOGETHER - 1) / TOGETHER * TOGETHER;
        for (int64_t i = 0; i < rows * P; i += N_FLOAT) F(share + i) = (vf){0};
    }
    int64_t done = 0;
    for (int again = 1; again && done < d->most; done++) {
        if (d->local == VB) {
            FN(exp_digamma)(gamma, NULL, K, P, theta);
        } else
            for (int64_t k = 0; k < P; k += N_FLOAT) F(theta + k) = F(gamma + k);
        if (share)
            FN(without_own)(d, first, n, theta, found, share);
        else
            FN(gather)(d, first, n, theta, found, room->ratio);
        vf change[PER_WIDE];
        UNROLL for (int h = 0; h < PER_WIDE; h++) change[h] = (vf){0};
        for (int64_t k = 0; k < P; k += WIDE)
            UNROLL for (int h = 0; h < PER_WIDE; h++) {
                int64_t at = k + h * N_FLOAT;
                vf next = F(found + at);
                if (!share) next *= F(theta + at);
                next += F(d->alpha + at);
                vf moved = next - F(gamma + at);
                change[h] += (vf)((vi)moved & 0x7fffffff);
                F(gamma + at) = next;
            }
        float lanes[WIDE] __attribute__((aligned(64)));
        UNROLL for (int h = 0; h < PER_WIDE; h++) F(lanes + h * N_FLOAT) = change[h];
        float total = 0.0f;
        for (int i = 0; i < 8; i++) lanes[i] += lanes[i + 8];
        for (int i = 0; i < 8; i++) total += lanes[i];
        again = total > d->tolerance * (length + 1.0f);
    }
    if (sums) {
        if (d->local == VB) { /* optimal shares given gamma: so the bound never falls */
            FN(exp_digamma)(gamma, NULL, K, P, theta);
            float count[TOGETHER] __attribute__((aligned(32)));
            const float *rows[TOGETHER];
            for (int64_t i = 0; i < n; i += TOGETHER) {
                FN(group)(d, first, i, n, rows, count);
                FN(ratios)(P, theta, rows, count, room->ratio + i);
            }
        }
        FN(tally)(d, first, n, theta, room->ratio, share, number, sums, numbered);
    }
    return done;
}

#include "lda_gibbs.h"

static int64_t FN(lda_pass)(const documents_t *d, const int64_t *rows, int64_t n, const double *numbers, float *gamma,
                            double *sums, double *numbered, room_t *room) {
    int64_t done = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = rows ? rows[i] : i, first = d->starts[row], many = d->starts[row + 1] - first;
        float *own = gamma + row * d->K;
        if (many == 0) {
            for (int64_t k = 0; k < d->K; k++) own[k] = d->alpha[k];
            continue;
        }
        double number = numbers ? numbers[i] : 0.0, *other = numbers ? numbered : NULL;
        for (int64_t k = 0; k < d->K; k++) room->gamma[k] = own[k];
        if (d->local == GIBBS)
            done += FN(sampled)(d, d->number + row, first, many, number, sums, other, room);
        else
            done += FN(document)(d, first, many, number, sums, other, room);
        for (int64_t k = 0; k < d->K; k++) own[k] = room->gamma[k];
    }
    return done;
}

static void FN(lda_weights)(const double *lambda, const float *scale, int64_t K, int64_t P, const int64_t *words,
                            int64_t n, int linear, float *weight, room_t *room) {
    for (int64_t i = 0; i < n; i++) {
        int64_t word = words ? words[i] : i;
        const double *from = lambda + word * K;
        float *to = weight + word * P;
        for (int64_t k = 0; k < K; k++) room->gamma[k] = (float)from[k];
        for (int64_t k = K; k < P; k++) room->gamma[k] = 0.0f;
        if (linear) {
            for (int64_t k = 0; k < P; k += N_FLOAT) F(to + k) = F(room->gamma + k) * F(scale + k);
        } else
            FN(exp_digamma)(room->gamma, scale, K, P, to);
    }
}

static double FN(lda_log)(const int64_t *starts, const int32_t *words, const float *counts, int64_t first, int64_t last,
                          const double *theta, const double *beta, int64_t P) {
    double total = 0.0;
    for (int64_t row = first; row < last; row++) {
        const double *own = theta + row * P;
        for (int64_t e = starts[row]; e < starts[row + 1]; e++) {
            const double *word = beta + (int64_t)words[e] * P;
            vd part[8 / N_DOUBLE];
            UNROLL for (int h = 0; h < 8 / N_DOUBLE; h++) part[h] = SPREAD(0.0);
            for (int64_t k = 0; k < P; k += 8)
                UNROLL for (int h = 0; h < 8 / N_DOUBLE; h++)
                    part[h] += *(const vd *)(own + k + h * N_DOUBLE) * *(const vd *)(word + k + h * N_DOUBLE);
            total += (double)counts[e] * log_positive(FN(sum8)(part));
        }
    }
    return total;
}
#undef PER_WIDE
#undef AHEAD
#undef F
#undef LOOSE
#undef V8
#include "lanes_end.h"
