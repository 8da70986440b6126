/* Every row of a shard draws its features anew, one after another (docs/math.md 7.1). Included once for every instruction
 * set (every_isa.h).
 *
 * A row's products with all loadings come first, once; a flip then costs a comparison, and where it changes something one
 * row of the Gram matrix.
 */

#define SURE 37.0 /* log odds that no threshold is beyond */

/* log u / (1 - u) of 8 uniform draws in (0, 1) */
ALWAYS_INLINE void FN(logits)(const uint64_t word[8], double out[8]) {
    for (int j = 0; j < 8; j += N_DOUBLE) {
        vd u = AS_VD((*(const FN(vul_loose) *)(word + j) >> 12) | 0x3ff0000000000000ull) - (1.0 - 0x1p-53);
        *(FN(vd_loose) *)(out + j) = vlog(u / (1.0 - u));
    }
}

/* the thresholds of a row's flips, or exchanges, k..k+7, k a multiple of 8 */
ALWAYS_INLINE void FN(thresholds)(const key_of_sweep *key, uint64_t purpose, uint64_t row, int64_t k, double *out) {
    uint64_t counter[4] = {(row << 16) | (uint64_t)(k >> 2), key->sweep, key->cycle, key->chain}, word[8];
    philox_pair(counter, key->seed, purpose, word);
    FN(logits)(word, out);
}

/* out[k] = sum of x[d] loadings[d][k], of every fourth column by itself: (0 + 1) + (2 + 3); x and loadings end with zeros */
ALWAYS_INLINE void FN(products)(const double *x, const features_t *f, int64_t width, double *out) {
    enum { N = 8 / N_DOUBLE };
    for (int64_t k = 0; k < f->lanes; k += 8) {
        vd sum[4][N];
        UNROLL for (int q = 0; q < 4; q++)
            UNROLL for (int j = 0; j < N; j++) sum[q][j] = SPREAD(0.0);
        for (int64_t d = 0; d < width; d += 4)
            UNROLL for (int q = 0; q < 4; q++)
                UNROLL for (int j = 0; j < N; j++)
                    sum[q][j] += x[d + q] * *(const vd *)(f->loadings + (d + q) * f->lanes + k + j * N_DOUBLE);
        UNROLL for (int j = 0; j < N; j++)
            *(vd *)(out + k + j * N_DOUBLE) = (sum[0][j] + sum[1][j]) + (sum[2][j] + sum[3][j]);
    }
}

/* to[0..n) += factor from[0..n), n a multiple of 8 */
ALWAYS_INLINE void FN(add_to)(double *to, double factor, const double *from, int64_t n) {
    for (int64_t i = 0; i < n; i += N_DOUBLE) *(vd *)(to + i) += factor * *(const vd *)(from + i);
}

ALWAYS_INLINE double FN(dot)(const double *a, const double *b, int64_t n) {
    vd sum[8 / N_DOUBLE];
    UNROLL for (int j = 0; j < 8 / N_DOUBLE; j++) sum[j] = SPREAD(0.0);
    for (int64_t i = 0; i < n; i += 8)
        UNROLL for (int j = 0; j < 8 / N_DOUBLE; j++)
            sum[j] += *(const vd *)(a + i + j * N_DOUBLE) * *(const vd *)(b + i + j * N_DOUBLE);
    return FN(sum8)(sum);
}

/* One row's instantiated features: every one by itself, then pairs of alike ones. left[k]: the row, less the features that it has, times feature k's loadings; it is
 * brought up to date. residual: if not NULL, the row less its features, brought up to date. variance: of what is left. */
ALWAYS_INLINE void FN(flip)(const features_t *f, uint64_t *z, double *left, double *residual, int64_t width,
                            const key_of_sweep *key, uint64_t row, uint64_t priority, double per_variance) {
    int some_frozen = priority <= f->frozen_below;
    int64_t drawn = -8; /* the first of the flips whose thresholds are at hand */
    double threshold[8];
    for (int64_t k = 0; k < f->n; k++) {
        const double *gram = f->gram + k * f->lanes;
        int now = has(z, f->slot[k]), then;
        double own = left[k] + (double)now * gram[k];
        double odds = f->odds[k] + (own - 0.5 * gram[k]) * per_variance;
        if (__builtin_fabs(odds) > SURE) then = odds > 0;
        else {
            if (k >= drawn + 8) FN(thresholds)(key, PURPOSE_FLIP, row, drawn = k & ~(int64_t)7, threshold);
            then = threshold[k & 7] < odds;
        }
        if (then == now || (some_frozen && priority <= f->anchor[k])) continue;
        toggle(z, f->slot[k]);
        FN(add_to)(left, then ? -1.0 : 1.0, gram, f->lanes);
        if (residual) FN(add_to)(residual, then ? -1.0 : 1.0, f->by_row + k * width, width);
    }
    drawn = -8;
    for (int64_t p = 0; p < f->n_pairs; p++) { /* a row with one of two alike features takes either */
        int64_t k = f->pairs[2 * p], other = f->pairs[2 * p + 1];
        int has_first = has(z, f->slot[k]);
        if (has_first == has(z, f->slot[other])) continue;
        if (some_frozen && (priority <= f->anchor[k] || priority <= f->anchor[other])) continue;
        int64_t out = has_first ? k : other, in = has_first ? other : k;
        const double *gram_out = f->gram + out * f->lanes, *gram_in = f->gram + in * f->lanes;
        double odds = (f->odds[in] - f->odds[out])
                      + ((left[in] - left[out]) - 0.5 * (gram_in[in] - 2.0 * gram_in[out] + gram_out[out])) * per_variance;
        if (odds < -SURE) continue;
        if (p >= drawn + 8) FN(thresholds)(key, PURPOSE_EXCHANGE, row, drawn = p & ~(int64_t)7, threshold);
        if (threshold[p & 7] >= odds) continue;
        toggle(z, f->slot[in]), toggle(z, f->slot[out]);
        FN(add_to)(left, 1.0, gram_out, f->lanes);
        FN(add_to)(left, -1.0, gram_in, f->lanes);
        if (residual) {
            FN(add_to)(residual, 1.0, f->by_row + out * width, width);
            FN(add_to)(residual, -1.0, f->by_row + in * width, width);
        }
    }
}

/* scratch: width + lanes doubles */
static void FN(sweep)(const rows_t *r, const features_t *f, const key_of_sweep *key, double *scratch) {
    double *x = scratch, *left = x + r->width;
    philox_stream priorities = philox_open(key->seed, PURPOSE_PRIORITY, 0, key->cycle, key->chain);
    for (int64_t i = 0; i < r->n; i++) {
        uint64_t row = (uint64_t)(r->start + i), *z = r->z + i * r->words;
        const float *cells = r->x + i * r->width;
        for (int64_t d = 0; d < r->width; d++) x[d] = (double)cells[d] * r->per_noise[d];
        FN(products)(x, f, r->width, left);
        for (int64_t k = 0; k < f->n; k++) { /* which bits are set is hard to guess: of few features all are added */
            int there = has(z, f->slot[k]);
            if (there | (f->n <= 32)) FN(add_to)(left, -(double)there, f->gram + k * f->lanes, f->lanes);
        }
        FN(flip)(f, z, left, NULL, r->width, key, row, philox_word(&priorities, row), 1.0);
    }
}

/* V and the means as they are without a row that has the features of `mine`, whose residual is `residual` and which is no
 * longer counted as an owner; or with it. scratch: room + width doubles. */
ALWAYS_INLINE void FN(without)(tail_t *t, const int64_t *mine, int64_t n_mine, const double *residual, int64_t width,
                               int add, double *scratch) {
    double *h = scratch, *error = h + t->room, square = 0.0, scale;
    if (n_mine == 0) return;
    for (int64_t a = 0; a < t->n_active; a++) {
        int64_t p = t->active[a];
        h[p] = 0.0;
        for (int64_t j = 0; j < n_mine; j++) h[p] += t->spread[p * t->room + mine[j]];
    }
    for (int64_t d = 0; d < width; d++) error[d] = residual[d];
    for (int64_t j = 0; j < n_mine; j++) {
        square += h[mine[j]];
        FN(add_to)(error, -1.0, t->mean + mine[j] * width, width);
    }
    scale = add ? -1.0 / (1.0 + square) : 1.0 / (1.0 - square);
    for (int64_t a = 0; a < t->n_active; a++) {
        int64_t p = t->active[a];
        for (int64_t b = 0; b < t->n_active; b++)
            t->spread[p * t->room + t->active[b]] += scale * h[p] * h[t->active[b]];
        FN(add_to)(t->mean + p * width, -scale * h[p], error, width);
    }
}

/* A row of a collapsed shard: the next random word of its own */
typedef struct { uint64_t counter[4], word[4]; const key_of_sweep *key; int left; } FN(row_stream);
ALWAYS_INLINE uint64_t FN(next)(FN(row_stream) *s) {
    if (s->left == 0) {
        philox_block(s->counter, s->key->seed, PURPOSE_TAIL, s->word);
        s->counter[0]++, s->left = 4;
    }
    return s->word[4 - s->left--];
}
ALWAYS_INLINE double FN(next_logit)(FN(row_stream) *s) {
    double u = double_of_bits(FN(next)(s) >> 12 | 0x3ff0000000000000ull) - (1.0 - 0x1p-53);
    return log_finite(u / (1.0 - u));
}

/* The row's own features with other owners: each in turn, in random order. mine: of these features those that it has,
 * n_mine of them, both brought up to date. error: the row less all its features' loadings or means; extra: the variance
 * that features of its own alone add. Returns the variance of what is left, without `extra`. */
static double FN(flip_tail)(tail_t *t, const int64_t *shared, int64_t n_shared, int64_t *mine, int64_t *n_mine,
                            double *error, double extra, int64_t n_columns, int64_t width, FN(row_stream) *words,
                            double *scratch) {
    double *h = scratch, *other = h + t->room; /* h: V z */
    int64_t *order = (int64_t *)(other + width);
    double variance = 1.0, half = 0.5 * (double)n_columns;
    for (int64_t a = 0; a < n_shared; a++) {
        int64_t p = shared[a];
        h[p] = 0.0, order[a] = p;
        for (int64_t j = 0; j < *n_mine; j++) h[p] += t->spread[p * t->room + mine[j]];
    }
    for (int64_t j = 0; j < *n_mine; j++) variance += h[mine[j]];
    double length = FN(dot)(error, error, width);
    for (int64_t a = 0; a < n_shared; a++) {
        int64_t at = a + philox_below(FN(next)(words), n_shared - a), p = order[at], place = -1;
        order[at] = order[a];
        for (int64_t j = 0; j < *n_mine; j++)
            if (mine[j] == p) place = j;
        double sign = place >= 0 ? -1.0 : 1.0; /* what a flip does to the features that it has */
        double flipped = variance + sign * 2.0 * h[p] + t->spread[p * t->room + p];
        memcpy(other, error, 8 * (size_t)width);
        FN(add_to)(other, -sign, t->mean + p * width, width);
        double other_length = FN(dot)(other, other, width), now = variance + extra, then = flipped + extra;
        double m = (double)t->owners[p];
        double gain = sign * log_finite(m / (t->others - m)) - half * log_finite(then / now)
                      + 0.5 * (length / now - other_length / then);
        if (FN(next_logit)(words) >= gain) continue;
        variance = flipped, length = other_length;
        memcpy(error, other, 8 * (size_t)width);
        for (int64_t b = 0; b < n_shared; b++) h[shared[b]] += sign * t->spread[shared[b] * t->room + p];
        if (place >= 0) mine[place] = mine[--*n_mine];
        else mine[(*n_mine)++] = p;
    }
    return variance;
}

/* As `sweep`, on a shard with a tail, from row `first` on. Returns the row at which there is no room for a new feature, or
 * n. scratch: 3 width + 2 lanes + 8 room doubles. */
static int64_t FN(sweep_tail)(const rows_t *r, const features_t *f, tail_t *t, const key_of_sweep *key, int64_t first,
                              double *scratch) {
    double *error = scratch, *residual = error + r->width, *left = residual + r->width;
    double *work = left + f->lanes; /* room + width, and room for an order */
    int64_t *mine = (int64_t *)(work + 2 * t->room + r->width), *shared = mine + t->room;
    philox_stream priorities = philox_open(key->seed, PURPOSE_PRIORITY, 0, key->cycle, key->chain);
    double half = 0.5 * (double)r->n_columns;
    for (int64_t i = first; i < r->n; i++) {
        uint64_t row = (uint64_t)(r->start + i), *z = r->z + i * r->words, *own = t->z + i * t->words;
        const float *cells = r->x + i * r->width;
        int64_t n_mine = 0, n_shared = 0, n_alone = 0, born = 0;
        FN(row_stream) words = {{row << 16, key->sweep, key->cycle, key->chain}, {0}, key, 0};
        uint64_t word = FN(next)(&words);
        double u = philox_uniform(word), term = t->no_birth, below = term; /* a Poisson draw by inversion */
        while (u >= below && born < MOST_BORN) born++, term *= t->births / (double)born, below += term;
        if (t->n_active + born > t->room) return i;

        for (int64_t d = 0; d < r->width; d++) residual[d] = (double)cells[d] * r->per_noise[d];
        for (int64_t k = 0; k < f->n; k++)
            if (has(z, f->slot[k])) FN(add_to)(residual, -1.0, f->by_row + k * r->width, r->width);
        for (int64_t a = 0; a < t->n_active; a++)
            if (has(own, t->active[a])) mine[n_mine++] = t->active[a];
        FN(without)(t, mine, n_mine, residual, r->width, 0, work);
        for (int64_t j = 0; j < n_mine; j++) t->owners[mine[j]]--;
        for (int64_t a = 0; a < t->n_active; a++) { /* features of this row alone are taken out */
            int64_t p = t->active[a];
            if (t->owners[p] > 0) shared[n_shared++] = p;
            else n_alone++;
        }
        n_mine = 0;
        for (int64_t a = 0; a < n_shared; a++)
            if (has(own, shared[a])) mine[n_mine++] = shared[a];

        double extra = (double)n_alone * t->prior, variance = 1.0;
        memcpy(error, residual, 8 * (size_t)r->width);
        for (int64_t j = 0; j < n_mine; j++) {
            for (int64_t l = 0; l < n_mine; l++) variance += t->spread[mine[j] * t->room + mine[l]];
            FN(add_to)(error, -1.0, t->mean + mine[j] * r->width, r->width);
        }
        if (f->n) {
            FN(products)(error, f, r->width, left);
            FN(flip)(f, z, left, error, r->width, key, row, philox_word(&priorities, row),
                     1.0 / (variance + extra));
        }
        if (n_shared)
            variance = FN(flip_tail)(t, shared, n_shared, mine, &n_mine, error, extra, r->n_columns, r->width, &words, work);

        double length = FN(dot)(error, error, r->width), now = variance + extra;
        double then = variance + (double)born * t->prior;
        int64_t n_new = n_alone;
        if (born != n_alone) {
            double gain = -half * log_finite(then / now) + 0.5 * length * (1.0 / now - 1.0 / then);
            double coin = philox_uniform(FN(next)(&words));
            if (gain >= 0 || coin < exp_negative(gain)) n_new = born;
        }

        /* the row's residual again: what is left of it, and the means of the features that it has */
        memcpy(residual, error, 8 * (size_t)r->width);
        for (int64_t j = 0; j < n_mine; j++) FN(add_to)(residual, 1.0, t->mean + mine[j] * r->width, r->width);
        memset(own, 0, 8 * (size_t)t->words);
        memcpy(t->active, shared, 8 * (size_t)n_shared);
        t->n_active = n_shared;
        for (int64_t p = 0, made = 0; made < n_new; made++, p++) { /* in the lowest places that are free */
            int taken = 1;
            while (taken) {
                taken = 0;
                for (int64_t a = 0; a < t->n_active; a++) taken |= t->active[a] == p;
                p += taken;
            }
            for (int64_t a = 0; a < t->n_active; a++)
                t->spread[p * t->room + t->active[a]] = t->spread[t->active[a] * t->room + p] = 0.0;
            t->spread[p * t->room + p] = t->prior;
            memset(t->mean + p * r->width, 0, 8 * (size_t)r->width);
            t->owners[p] = 0;
            t->active[t->n_active++] = p;
            mine[n_mine++] = p;
        }
        for (int64_t j = 0; j < n_mine; j++) toggle(own, mine[j]), t->owners[mine[j]]++;
        FN(without)(t, mine, n_mine, residual, r->width, 1, work);
    }
    return r->n;
}

/* sums[p] = the residuals, in row order, of the rows that have the tail's feature of place p. scratch: width doubles. */
static void FN(tail_sums)(const rows_t *r, const features_t *f, const tail_t *t, double *sums, double *scratch) {
    for (int64_t i = 0; i < r->n; i++) {
        const uint64_t *z = r->z + i * r->words, *own = t->z + i * t->words;
        uint64_t any = 0;
        for (int64_t w = 0; w < t->words; w++) any |= own[w];
        if (!any) continue;
        for (int64_t d = 0; d < r->width; d++) scratch[d] = (double)r->x[i * r->width + d] * r->per_noise[d];
        for (int64_t k = 0; k < f->n; k++)
            if (has(z, f->slot[k])) FN(add_to)(scratch, -1.0, f->by_row + k * r->width, r->width);
        for (int64_t a = 0; a < t->n_active; a++)
            if (has(own, t->active[a])) FN(add_to)(sums + t->active[a] * r->width, 1.0, scratch, r->width);
    }
}

/* Over the rows, in order: owners[a][b] of features slot[a] and slot[b], cells[a][d] of the owners of slot[a] summed, and
 * squares[d]. scratch: K int64. */
static void FN(tally)(const rows_t *r, const int64_t *slot, int64_t K, int64_t *owners, double *cells, double *squares,
                      int64_t *scratch) {
    for (int64_t i = 0; i < r->n; i++) {
        const uint64_t *z = r->z + i * r->words;
        const float *x = r->x + i * r->width;
        int64_t n = 0;
        for (int64_t k = 0; k < K; k++) {
            scratch[n] = k;
            n += has(z, slot[k]);
        }
        for (int64_t a = 0; a < n; a++) {
            double *to = cells + scratch[a] * r->width;
            for (int64_t d = 0; d < r->width; d++) to[d] += (double)x[d];
            for (int64_t b = 0; b <= a; b++) owners[scratch[a] * K + scratch[b]]++;
        }
        for (int64_t d = 0; d < r->width; d++) squares[d] += (double)x[d] * (double)x[d];
    }
}
