/* Gamma functions and keyed gamma, normal and uniform draws, in vectors of doubles. Included once for every instruction
 * set (updates.h).
 *
 * A draw has an id, and its random words are the Philox blocks of that id, one block per attempt: it does not depend on
 * other draws, their order, or the rank. All operations work lane by lane, so no bit depends on the width.
 */

/* exp(x) for x <= 0, relative error below 4e-16; 0 below -708 and for -infinity */
ALWAYS_INLINE vd FN(exp_negative)(vd x) {
    const double shifter = 6755399441055744.0; /* 1.5 * 2^52 rounds to a whole number and leaves it in the low bits */
    vd kept = SELECT(x >= -708.0, x, SPREAD(0.0));
    vd t = kept * 1.44269504088896340736 + shifter, n = t - shifter;
    vd r = (kept - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    vd p = r * (1.0 / 479001600.0) + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = (p * r + 1.0) * r + 1.0;
    vd power = AS_VD((AS_VUL(t) + 1023u) << 52);
    return SELECT(x >= -708.0, p * power, SPREAD(0.0));
}

/* log Gamma(y), y >= 16, by Stirling's series */
ALWAYS_INLINE vd FN(log_gamma_large)(vd y) {
    vd i = 1.0 / y;
    return ((y - 0.5) * vlog(y) - y) + (STIRLING_SERIES(i, i * i) + HALF_LOG_TWO_PI);
}

/* log Gamma(y), y >= 1e-30: Gamma(y) = Gamma(y + m) / (y (y + 1) ... (y + m - 1)) */
ALWAYS_INLINE vd FN(log_gamma)(vd y) {
    vd product = SPREAD(1.0);
    vl small = y < 16.0;
    if (!FN(any)(small)) return FN(log_gamma_large)(y);
    while (FN(any)(small)) {
        product *= SELECT(small, y, SPREAD(1.0));
        y += SELECT(small, SPREAD(1.0), SPREAD(0.0));
        small = y < 16.0;
    }
    return FN(log_gamma_large)(y) - vlog(product);
}

/* uniform in (0, 1], multiples of 2^-52 */
ALWAYS_INLINE vd FN(unit)(const uint64_t *word) {
    return 2.0 - AS_VD((*(const FN(vul_loose) *)word >> 12) | 0x3ff0000000000000ull);
}

ALWAYS_INLINE vd FN(root)(vd x) {
    vd y;
    for (int j = 0; j < N_DOUBLE; j++) y[j] = __builtin_sqrt(x[j]);
    return y;
}

/* standard normal by Box & Muller (1958): sqrt(-2 log u) cos(2 pi v); cos(2 pi a) = sin(pi/2 - 2 pi a), a in [0, 1/2] */
ALWAYS_INLINE vd FN(normal)(vd u, vd v) {
    vd a = v - 0.5;
    a = SELECT(a < 0.0, -a, a);
    vd x = 1.57079632679489661923 - 6.28318530717958647693 * a, z = x * x;
    vd s = z * (-1.0 / 121645100408832000.0) + 1.0 / 355687428096000.0;
    s = s * z - 1.0 / 1307674368000.0;
    s = s * z + 1.0 / 6227020800.0;
    s = s * z - 1.0 / 39916800.0;
    s = s * z + 1.0 / 362880.0;
    s = s * z - 1.0 / 5040.0;
    s = s * z + 1.0 / 120.0;
    s = s * z - 1.0 / 6.0;
    s = (s * z) * x + x;
    return FN(root)(-2.0 * vlog(u)) * s;
}

/* the four words of N_DOUBLE ids, word by word, of one attempt */
ALWAYS_INLINE void FN(words_of)(const stream_key *key, const uint64_t *id, uint64_t attempt, uint64_t word[4][N_DOUBLE]) {
    for (int j = 0; j < N_DOUBLE; j++) {
        uint64_t counter[4] = {id[j], key->sub + (attempt << 32), key->cycle, key->chain}, out[4];
        philox_block(counter, key->seed, key->purpose, out);
        for (int w = 0; w < 4; w++) word[w][j] = out[w];
    }
}

/* One attempt to draw the log of Gamma(shape, 1) by Marsaglia & Tsang (2000); 0 in lanes where it is refused. Shapes
 * below 1 are drawn as G(a) = G(a + 1) U^(1/a), in logs, so that nothing underflows (docs/math.md 2.1). */
ALWAYS_INLINE vd FN(log_gamma_attempt)(const stream_key *key, vd shape, const uint64_t *id, uint64_t attempt, vl *taken) {
    uint64_t word[4][N_DOUBLE];
    vl small = shape < 1.0;
    vd d = shape + SELECT(small, SPREAD(1.0), SPREAD(0.0)) - 1.0 / 3.0, c = (1.0 / 3.0) / FN(root)(d);
    FN(words_of)(key, id, attempt, word);
    vd x = FN(normal)(FN(unit)(word[0]), FN(unit)(word[1])), v = c * x + 1.0;
    vl sound = v > 0.0;
    vd log_v = 3.0 * vlog(SELECT(sound, v, SPREAD(1.0)));
    *taken = sound & (vlog(FN(unit)(word[2])) < 0.5 * (x * x) + d * ((1.0 - v * v * v) + log_v));
    if (FN(any)(small)) {
        vd boost = vlog(FN(unit)(word[3])) / shape;
        log_v += SELECT(small, boost, SPREAD(0.0));
    }
    return SELECT(*taken, vlog(d) + log_v, SPREAD(0.0));
}

/* out[i] = log Gamma(shape[i], 1) draws, in place or elsewhere; n is a multiple of 8. Few attempts are refused: these
 * draws are put side by side for the next attempt. */
static void FN(log_gammas)(const stream_key *key, const double *shape, const uint64_t *id, int64_t n, double *out) {
    enum { CHUNK = 256 };
    double again_shape[CHUNK + 8], drawn[N_DOUBLE];
    uint64_t again_id[CHUNK + 8];
    int64_t again_at[CHUNK + 8];
    for (int64_t first = 0; first < n; first += CHUNK) {
        int64_t end = first + CHUNK < n ? first + CHUNK : n, n_again = 0;
        vl taken;
        for (int64_t i = first; i < end; i += N_DOUBLE) {
            vd of = *(const FN(vd_loose) *)(shape + i), x = FN(log_gamma_attempt)(key, of, id + i, 0, &taken);
            if (FN(any)(~taken))
                for (int j = 0; j < N_DOUBLE; j++) {
                    if (taken[j]) continue;
                    again_shape[n_again] = of[j], again_id[n_again] = id[i + j], again_at[n_again++] = i + j;
                }
            *(FN(vd_loose) *)(out + i) = x;
        }
        for (uint64_t attempt = 1; n_again; attempt++) {
            int64_t n_left = 0;
            for (int64_t i = n_again; i % N_DOUBLE; i++) again_shape[i] = 1.0, again_id[i] = 0;
            for (int64_t i = 0; i < n_again; i += N_DOUBLE) {
                vd of = *(const FN(vd_loose) *)(again_shape + i);
                *(FN(vd_loose) *)drawn = FN(log_gamma_attempt)(key, of, again_id + i, attempt, &taken);
                for (int64_t j = 0; j < N_DOUBLE && i + j < n_again; j++) {
                    if (taken[j]) {
                        out[again_at[i + j]] = drawn[j];
                        continue;
                    }
                    again_shape[n_left] = of[j], again_id[n_left] = again_id[i + j], again_at[n_left++] = again_at[i + j];
                }
            }
            n_again = n_left;
        }
    }
}

/* out[i]: a standard normal draw, attempt 0 of id[i]; n is a multiple of 8 */
static void FN(normals)(const stream_key *key, const uint64_t *id, int64_t n, double *out) {
    uint64_t word[4][N_DOUBLE];
    for (int64_t i = 0; i < n; i += N_DOUBLE) {
        FN(words_of)(key, id + i, 0, word);
        *(FN(vd_loose) *)(out + i) = FN(normal)(FN(unit)(word[0]), FN(unit)(word[1]));
    }
}
