/* Gibbs sampler for the topics of a document's words, one by one (Mimno, Hoffman & Blei 2012). Included by lda_loops.h.
 *
 * A topic is found through its lane: the sums of the 16 lanes over blocks, then down their tree to a lane, then block
 * by block. Each document has a stream of its own, so that its bits do not depend on the rank or the time of its step.
 */

#define V8(x) (*(FN(v8) *)(x)) /* also for AVX-512: single numbers are read back sooner from a smaller store */

/* p = (count + alpha) * weight for P topics; sums of their lanes in tree[16..31], and before them in tree[n..2 n - 1]
 * sums of lanes that are equal modulo n: tree[1] is the sum of all */
ALWAYS_INLINE void FN(law)(const float *count, const float *alpha, const float *weight, int64_t P, float *p,
                           float tree[2 * WIDE]) {
    FN(v8) low = {0}, high = {0};
    for (int64_t k = 0; k < P; k += WIDE) {
        FN(v8) a = (V8(count + k) + V8(alpha + k)) * V8(weight + k);
        FN(v8) b = (V8(count + k + 8) + V8(alpha + k + 8)) * V8(weight + k + 8);
        V8(p + k) = a, V8(p + k + 8) = b;
        low += a, high += b;
    }
    V8(tree + 16) = low, V8(tree + 24) = high;
    V8(tree + 8) = low + high;
    UNROLL for (int j = 4; j < 8; j++) tree[j] = tree[j + 4] + tree[j + 8];
    tree[2] = tree[4] + tree[6], tree[3] = tree[5] + tree[7];
    tree[1] = tree[2] + tree[3];
}

/* The topic at which the running sum passes u: lanes in the order of the tree, in each the blocks in order. If rounding
 * leads to a topic without weight, the next lower one with some. */
ALWAYS_INLINE int64_t FN(pick)(const float *p, const float tree[2 * WIDE], float u, int64_t K, int64_t P) {
    int64_t k = 0;
    UNROLL for (int half = 1; half < WIDE; half *= 2) { /* sums of both halves: at 2 half + k, and half after it */
        float left = tree[2 * half + k];
        int right = u >= left;
        u -= right ? left : 0.0f;
        k += right * half;
    }
    for (; k + WIDE < P && u >= p[k]; k += WIDE) u -= p[k];
    while (!(p[k] > 0.0f)) k = k ? k - 1 : K - 1;
    return k;
}

/* One document: writes gamma to room->gamma, and its words' topic shares to room->share, each given the topics of all
 * other words, averaged over the sweeps after the first third; returns the sweeps. `row`: its number. */
static int64_t FN(sampled)(const documents_t *d, int64_t row, int64_t first, int64_t n, double number, double *sums,
                           double *numbered, room_t *room) {
    const int64_t P = d->P, K = d->K;
    const int skipped = d->most / 3;
    float *count = room->theta, *p = room->found, *share = room->share;
    float tree[2 * WIDE] __attribute__((aligned(64)));
    philox_stream stream = philox_open(d->seed, PURPOSE_TOPICS, (uint64_t)row, d->cycle, d->chain);
    uint64_t drawn = 0;
    for (int64_t k = 0; k < P; k += N_FLOAT) F(count + k) = (vf){0};
    for (int64_t i = 0; i < n * P; i += N_FLOAT) F(share + i) = (vf){0};
    for (int sweep = 0; sweep < d->most; sweep++) {
        int32_t *topic = room->topic;
        for (int64_t i = 0; i < n; i++) {
            const float *weight = d->weight + (int64_t)d->words[first + i] * P;
            float *own = share + i * P;
            const int64_t times = (int64_t)d->counts[first + i];
            for (int64_t t = 0; t < times; t++, topic++) {
                if (sweep) count[*topic] -= 1.0f;
                FN(law)(count, d->alpha, weight, P, p, tree);
                float u = (float)(philox_word(&stream, drawn++) >> 40) * 0x1p-24f, inverse = 1.0f / tree[1];
                if (!(tree[1] > 1e-30f)) /* no weight in any topic, in float32: it takes any topic and is not counted */
                    *topic = (int32_t)(u * (float)K), inverse = 0.0f;
                else
                    *topic = (int32_t)FN(pick)(p, tree, u * tree[1], K, P);
                count[*topic] += 1.0f;
                if (sweep >= skipped)
                    for (int64_t k = 0; k < P; k += 8) V8(own + k) += V8(p + k) * inverse;
            }
        }
    }
    float *gamma = room->gamma;
    for (int64_t k = 0; k < P; k += N_FLOAT) F(gamma + k) = F(d->alpha + k);
    for (int64_t i = 0; i < n; i++) {
        const float times = d->counts[first + i];
        const float part = times > 0.0f ? 1.0f / (times * (float)(d->most - skipped)) : 0.0f;
        for (int64_t k = 0; k < P; k += N_FLOAT) {
            vf x = F(share + i * P + k) * part;
            F(share + i * P + k) = x, F(gamma + k) += times * x;
        }
    }
    if (sums) FN(tally)(d, first, n, NULL, NULL, share, number, sums, numbered);
    return d->most;
}
