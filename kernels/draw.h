/* One draw from unnormalised log weights. Included once for every instruction set (mixture.h). */

/* weights[k] = exp(scores[k] - max), sums[i] = sum of tile i of 16 weights. Returns the total in float64 (1 <= total
 * for sound scores), -1 if a score is NaN, 0 if no score is finite; *highest is the maximum. */
static double FN(exponentials)(const double *scores, int64_t n, float *weights, double *sums, double *highest) {
    vd top = SPREAD(-INFINITY);
    vl broken = (vl){0};
    for (int64_t k = 0; k < n; k += N_DOUBLE) {
        vd s = *(const vd *)(scores + k);
        top = SELECT(s > top, s, top);
        broken |= (vl)(s != s);
    }
    double most = -INFINITY;
    int64_t nan = 0;
    for (int j = 0; j < N_DOUBLE; j++) {
        most = top[j] > most ? top[j] : most;
        nan |= broken[j];
    }
    *highest = most;
    if (nan) return -1;
    if (!(most > -INFINITY && most < INFINITY)) return 0;
    for (int64_t k = 0; k < n; k += N_DOUBLE)
        *(vh *)(weights + k) = __builtin_convertvector(*(const vd *)(scores + k) - most, vh);
    for (int64_t k = 0; k < n; k += N_FLOAT) *(vf *)(weights + k) = FN(vexp)(*(const vf *)(weights + k));
    double total = 0;
    for (int64_t i = 0; i < n / 16; i++) total += sums[i] = FN(sum16)(weights + 16 * i);
    return total;
}

/* First k whose cumulative weight exceeds u * total: the tile first, then the lane. A lane of weight 0 never passes. */
ALWAYS_INLINE int64_t FN(pick)(const float *weights, const double *sums, int64_t n, double total, double u) {
    double target = u * total, below = 0;
    int64_t last = -1;
    for (int64_t i = 0; i < n / 16; i++) {
        if (below + sums[i] > target) {
            double cumulative = below;
            for (int64_t k = 16 * i; k < 16 * i + 16; k++) {
                cumulative += weights[k];
                if (weights[k] > 0) last = k;
                if (cumulative > target) return k;
            }
            return last; /* only when rounding put the two sums of this tile on different sides of the target */
        }
        below += sums[i];
        if (sums[i] > 0) last = i;
    }
    for (int64_t k = 16 * last + 15; k > 16 * last; k--)
        if (weights[k] > 0) return k;
    return 16 * last;
}
