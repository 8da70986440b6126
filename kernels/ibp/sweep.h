/* Every row of a shard draws its features anew, one after another (docs/math.md 7.1). Included once for every
 * instruction set (every_isa.h).
 *
 * A row's products with all loadings are computed once, first; a flip then costs a comparison and, if it changes a
 * feature, one row of the Gram matrix.
 */

/* A uniform draw U for a row's decision number n is (b + V) / 256. Its leading byte b comes first, 32 per block; for
 * all but one decision in 256 it suffices, as logit(U) is between steps[b] and steps[b + 1]. V is drawn only for the
 * others. */
ALWAYS_INLINE double FN(whole_threshold)(const key_of_sweep *key, uint64_t row, int64_t n, uint64_t byte) {
    uint64_t counter[4] = {(row << 16) | (uint64_t)(n >> 2), key->sweep, key->cycle, key->chain}, word[4];
    philox_block(counter, key->seed, PURPOSE_FLIP, word);
    double v = double_of_bits(word[n & 3] >> 12 | 0x3ff0000000000000ull) - (1.0 - 0x1p-53);
    return log_finite(((double)byte + v) / ((double)(255 - byte) + (1.0 - v)));
}

/* The leading bytes of decisions n..n+7, n a multiple of 8, drawn a block at a time. */
typedef struct { uint64_t row, word[4]; int64_t block; const key_of_sweep *key; } FN(bytes);
ALWAYS_INLINE uint64_t FN(eight)(FN(bytes) *s, int64_t n) {
    if (s->block != n >> 5) {
        uint64_t counter[4] = {(s->row << 16) | LEADING | (uint64_t)(s->block = n >> 5), s->key->sweep, s->key->cycle,
                               s->key->chain};
        philox_block(counter, s->key->seed, PURPOSE_FLIP, s->word);
    }
    return s->word[n >> 3 & 3];
}

/* Lower and upper bounds of the thresholds of eight decisions. */
ALWAYS_INLINE void FN(between)(uint64_t bytes, const double *steps, vd low[8 / N_DOUBLE], vd high[8 / N_DOUBLE]) {
    UNROLL for (int j = 0; j < 8 / N_DOUBLE; j++)
        UNROLL for (int l = 0; l < N_DOUBLE; l++) {
            const double *step = steps + (bytes >> 8 * (j * N_DOUBLE + l) & 255);
            low[j][l] = step[0], high[j][l] = step[1];
        }
}

/* Mask of eight features that a row has, one per lane: bits (8,) and words (8,) as in features_t. */
ALWAYS_INLINE void FN(eight_held)(const uint64_t *z, int64_t n_words, const uint64_t *bits, const int64_t *words,
                                  vl held[8 / N_DOUBLE]) {
    UNROLL for (int j = 0; j < 8 / N_DOUBLE; j++) {
        vul word = z[0] - (vul){0};
        if (n_words > 1)
            for (int l = 0; l < N_DOUBLE; l++) word[l] = z[words[j * N_DOUBLE + l]];
        held[j] = (vl)((word & *(const vul *)(bits + j * N_DOUBLE)) != 0);
    }
}

/* out[r][k] = sum over d < n of x[r][d] loadings[d][k], in order, for n_rows rows; the strides of x and out are `x_row`
 * and f->lanes */
ALWAYS_INLINE void FN(products)(const double *x, int64_t x_row, const int n_rows, const features_t *f, int64_t n,
                                double *out) {
    enum { N = 8 / N_DOUBLE };
    for (int64_t k = 0; k < f->lanes; k += 8) {
        vd sum[TOGETHER][N];
        UNROLL for (int r = 0; r < n_rows; r++)
            UNROLL for (int j = 0; j < N; j++) sum[r][j] = SPREAD(0.0);
        for (int64_t d = 0; d < n; d++)
            UNROLL for (int j = 0; j < N; j++) {
                vd loading = *(const vd *)(f->loadings + d * f->lanes + k + j * N_DOUBLE);
                UNROLL for (int r = 0; r < n_rows; r++) sum[r][j] += x[r * x_row + d] * loading;
            }
        UNROLL for (int r = 0; r < n_rows; r++)
            UNROLL for (int j = 0; j < N; j++) *(vd *)(out + r * f->lanes + k + j * N_DOUBLE) = sum[r][j];
    }
}

/* The cells of a row in units of the noise; the padding of x stays zero. */
ALWAYS_INLINE void FN(scaled)(const rows_t *r, const features_t *f, int64_t i, double *x) {
    const float *cells = r->x + i * r->n_columns;
    for (int64_t d = 0; d < r->n_columns; d++) x[d] = (double)cells[d] * f->per_noise[d];
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

/* One row's instantiated features: each by itself, then pairs of similar ones. left[k]: the row minus its features,
 * times feature k's loadings; it is updated. residual: if not NULL, the row minus its features, also updated.
 * per_variance: 1 over the residual variance.
 *
 * Eight decisions are evaluated together. They depend on each other only through changes, so those before the first
 * change are settled at once, and those after it are evaluated again. */
ALWAYS_INLINE void FN(flip)(const rows_t *r, const features_t *f, uint64_t *z, double *left, double *residual,
                            const key_of_sweep *key, uint64_t row, uint64_t priority, double per_variance) {
    enum { N = 8 / N_DOUBLE };
    int some_frozen = priority <= f->frozen_below;
    FN(bytes) leading = {row, {0}, -1, key};
    vd low[N], high[N], odds[N];
    vl held[N];
    for (int64_t k = 0; k < f->n; k += 8) {
        uint64_t bytes = FN(eight)(&leading, k);
        FN(between)(bytes, f->steps, low, high);
        for (int open = 255; open;) {
            int look = 0;
            FN(eight_held)(z, r->words, f->bit + k, f->word + k, held);
            UNROLL for (int j = 0; j < N; j++) {
                vd square = *(const vd *)(f->square + k + j * N_DOUBLE);
                vd own = *(const vd *)(left + k + j * N_DOUBLE) + SELECT(held[j], square, SPREAD(0.0));
                odds[j] = *(const vd *)(f->odds + k + j * N_DOUBLE) + (own - 0.5 * square) * per_variance;
                vl stays = (vl)SELECT(held[j], (vd)(odds[j] >= high[j]), (vd)(odds[j] <= low[j]));
                look |= FN(lanes)(~stays) << (j * N_DOUBLE);
            }
            if ((look &= open) == 0) break;
            int lane = __builtin_ctz((unsigned)look);
            int64_t at = k + lane;
            open = 254 << lane & 255;
            if (some_frozen && priority <= f->anchor[at]) continue;
            int now = has(z, f->slot[at]);
            double own = odds[lane / N_DOUBLE][lane % N_DOUBLE];
            if (own > low[lane / N_DOUBLE][lane % N_DOUBLE] && own < high[lane / N_DOUBLE][lane % N_DOUBLE]
                && (FN(whole_threshold)(key, row, at, bytes >> 8 * lane & 255) < own) == now)
                continue;
            toggle(z, f->slot[at]);
            FN(add_to)(left, now ? 1.0 : -1.0, f->gram + at * f->lanes, f->lanes);
            if (residual) FN(add_to)(residual, now ? 1.0 : -1.0, f->by_row + at * r->width, r->width);
        }
    }
    for (int64_t p = 0; p < f->n_pairs; p += 8) { /* a row with one of two similar features takes either */
        const int64_t *first = f->first + p, *other = f->other + p;
        uint64_t bytes = FN(eight)(&leading, f->lanes + p);
        FN(between)(bytes, f->steps, low, high);
        for (int open = 255; open;) {
            int look = 0;
            vl second[N];
            FN(eight_held)(z, r->words, f->first_bit + p, f->first_word + p, held);
            FN(eight_held)(z, r->words, f->other_bit + p, f->other_word + p, second);
            UNROLL for (int j = 0; j < N; j++) {
                vd gain; /* gain from the other one in place of the first */
                UNROLL for (int l = 0; l < N_DOUBLE; l++)
                    gain[l] = left[other[j * N_DOUBLE + l]] - left[first[j * N_DOUBLE + l]];
                vd more = *(const vd *)(f->more + p + j * N_DOUBLE);
                vd apart = *(const vd *)(f->apart + p + j * N_DOUBLE);
                odds[j] = SELECT(held[j], more, -more) + (SELECT(held[j], gain, -gain) - apart) * per_variance;
                look |= FN(lanes)((held[j] ^ second[j]) & ~(vl)(odds[j] <= low[j])) << (j * N_DOUBLE);
            }
            if ((look &= open) == 0) break;
            int lane = __builtin_ctz((unsigned)look);
            int64_t a = first[lane], b = other[lane];
            open = 254 << lane & 255;
            if (some_frozen && (priority <= f->anchor[a] || priority <= f->anchor[b])) continue;
            double own = odds[lane / N_DOUBLE][lane % N_DOUBLE];
            if (own < high[lane / N_DOUBLE][lane % N_DOUBLE]
                && FN(whole_threshold)(key, row, f->lanes + p + lane, bytes >> 8 * lane & 255) >= own)
                continue;
            int64_t out = has(z, f->slot[a]) ? a : b, in = a + b - out;
            toggle(z, f->slot[in]), toggle(z, f->slot[out]);
            FN(add_to)(left, 1.0, f->gram + out * f->lanes, f->lanes);
            FN(add_to)(left, -1.0, f->gram + in * f->lanes, f->lanes);
            if (residual) {
                FN(add_to)(residual, 1.0, f->by_row + out * r->width, r->width);
                FN(add_to)(residual, -1.0, f->by_row + in * r->width, r->width);
            }
        }
    }
}

/* Rows first..first+some-1, at most TOGETHER, without a tail. A row's cells are followed by minus its feature
 * indicators: the Gram matrix follows the loadings, so that one product yields `left`. scratch: TOGETHER (D + 2
 * lanes). */
ALWAYS_INLINE void FN(sweep_some)(const rows_t *r, const features_t *f, const key_of_sweep *key, int64_t first,
                                  int64_t some, philox_stream *priorities, double *scratch) {
    enum { N = 8 / N_DOUBLE };
    const int64_t x_row = r->n_columns + f->lanes;
    double *left = scratch, *x = left + TOGETHER * f->lanes;
    for (int64_t i = 0; i < some; i++) {
        const uint64_t *z = r->z + (first + i) * r->words;
        double *own = x + i * x_row, *minus = own + r->n_columns;
        FN(scaled)(r, f, first + i, own);
        for (int64_t k = 0; k < f->n; k += 8) {
            vl held[N];
            FN(eight_held)(z, r->words, f->bit + k, f->word + k, held);
            UNROLL for (int j = 0; j < N; j++)
                *(FN(vd_loose) *)(minus + k + j * N_DOUBLE) = SELECT(held[j], SPREAD(-1.0), SPREAD(0.0));
        }
    }
    FN(products)(x, x_row, TOGETHER, f, r->n_columns + f->n, left);
    for (int64_t i = 0; i < some; i++) {
        uint64_t row = (uint64_t)(r->start + first + i);
        FN(flip)(r, f, r->z + (first + i) * r->words, left + i * f->lanes, NULL, key, row, philox_word(priorities, row),
                 1.0);
    }
}

static void FN(sweep)(const rows_t *r, const features_t *f, const key_of_sweep *key, double *scratch) {
    philox_stream priorities = philox_open(key->seed, PURPOSE_PRIORITY, 0, key->cycle, key->chain);
    for (int64_t i = 0; i < r->n; i += TOGETHER)
        FN(sweep_some)(r, f, key, i, r->n - i < TOGETHER ? r->n - i : TOGETHER, &priorities, scratch);
}

/* Update V and the means by removing a row that has the features of `mine`, whose residual is `residual` and which is
 * no longer counted as an owner; or by adding it. scratch: room + width doubles. */
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

/* A row of a collapsed shard: its next random word. */
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

/* The shard's own features with other owners, for one row: each in turn, in random order. mine: those among them that
 * the row has, n_mine of them, both updated. error: the row minus all its features' loadings or means; extra: the
 * variance added by features of this row alone. Returns the residual variance, without `extra`. */
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
        double sign = place >= 0 ? -1.0 : 1.0; /* sign of the change in its features */
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

/* Number of new features that a row proposes: a Poisson draw by inversion, using its first word. */
ALWAYS_INLINE int64_t FN(proposed)(const tail_t *t, FN(row_stream) *words) {
    int64_t born = 0;
    double u = philox_uniform(FN(next)(words)), term = t->no_birth, below = term;
    while (u >= below && born < MOST_BORN) born++, term *= t->births / (double)born, below += term;
    return born;
}
#define WORDS_OF(row) {{(row) << 16, key->sweep, key->cycle, key->chain}, {0}, key, 0}

/* Number of rows from `first` on, at most TOGETHER, that propose none; while the tail is empty, they can ignore it. */
ALWAYS_INLINE int64_t FN(without_births)(const rows_t *r, const tail_t *t, const key_of_sweep *key, int64_t first) {
    int64_t some = 0;
    for (; some < TOGETHER && first + some < r->n; some++) {
        FN(row_stream) words = WORDS_OF((uint64_t)(r->start + first + some));
        if (FN(proposed)(t, &words)) break;
    }
    return some;
}

/* As `sweep`, on a shard with a tail, from row `first` on. Returns the row at which there is no room for a new feature,
 * or n. scratch: 3 width + 2 lanes + 8 room doubles, and that of `sweep`. */
static int64_t FN(sweep_tail)(const rows_t *r, const features_t *f, tail_t *t, const key_of_sweep *key, int64_t first,
                              double *scratch) {
    double *error = scratch, *residual = error + r->width, *left = residual + r->width;
    double *work = left + f->lanes; /* room + width, and room for an order */
    int64_t *mine = (int64_t *)(work + 2 * t->room + r->width), *shared = mine + t->room;
    double *for_some = (double *)(shared + t->room);
    philox_stream priorities = philox_open(key->seed, PURPOSE_PRIORITY, 0, key->cycle, key->chain);
    double half = 0.5 * (double)r->n_columns;
    for (int64_t i = first; i < r->n; i++) {
        int64_t some = t->n_active ? 0 : FN(without_births)(r, t, key, i);
        if (some) {
            FN(sweep_some)(r, f, key, i, some, &priorities, for_some);
            i += some - 1;
            continue;
        }
        uint64_t row = (uint64_t)(r->start + i), *z = r->z + i * r->words, *own = t->z + i * t->words;
        int64_t n_mine = 0, n_shared = 0, n_alone = 0;
        FN(row_stream) words = WORDS_OF(row);
        int64_t born = FN(proposed)(t, &words);
        if (t->n_active + born > t->room) return i;

        FN(scaled)(r, f, i, residual);
        memset(residual + r->n_columns, 0, 8 * (size_t)(r->width - r->n_columns));
        for (int64_t k = 0; k < f->n; k++)
            if (has(z, f->slot[k])) FN(add_to)(residual, -1.0, f->by_row + k * r->width, r->width);
        for (int64_t a = 0; a < t->n_active; a++)
            if (has(own, t->active[a])) mine[n_mine++] = t->active[a];
        FN(without)(t, mine, n_mine, residual, r->width, 0, work);
        for (int64_t j = 0; j < n_mine; j++) t->owners[mine[j]]--;
        for (int64_t a = 0; a < t->n_active; a++) { /* remove features of this row alone */
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
            FN(products)(error, 0, 1, f, r->n_columns, left);
            FN(flip)(r, f, z, left, error, key, row, philox_word(&priorities, row), 1.0 / (variance + extra));
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

        /* the row's residual again: the remainder plus the means of its features */
        memcpy(residual, error, 8 * (size_t)r->width);
        for (int64_t j = 0; j < n_mine; j++) FN(add_to)(residual, 1.0, t->mean + mine[j] * r->width, r->width);
        memset(own, 0, 8 * (size_t)t->words);
        memcpy(t->active, shared, 8 * (size_t)n_shared);
        t->n_active = n_shared;
        for (int64_t p = 0, made = 0; made < n_new; made++, p++) { /* in the lowest free places */
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

#undef WORDS_OF

/* sums[p] = sum of the residuals, in row order, of the rows that have the tail's feature at place p. scratch: width
 * doubles, zeros. */
static void FN(tail_sums)(const rows_t *r, const features_t *f, const tail_t *t, double *sums, double *scratch) {
    for (int64_t i = 0; i < r->n; i++) {
        const uint64_t *z = r->z + i * r->words, *own = t->z + i * t->words;
        uint64_t any = 0;
        for (int64_t w = 0; w < t->words; w++) any |= own[w];
        if (!any) continue;
        FN(scaled)(r, f, i, scratch);
        for (int64_t k = 0; k < f->n; k++)
            if (has(z, f->slot[k])) FN(add_to)(scratch, -1.0, f->by_row + k * r->width, r->width);
        for (int64_t a = 0; a < t->n_active; a++)
            if (has(own, t->active[a])) FN(add_to)(sums + t->active[a] * r->width, 1.0, scratch, r->width);
    }
}

/* Sums over the rows, in order: owners[a][b] of features slot[a] and slot[b], cells[a][d] of the owners of slot[a], and
 * squares[d]. cells, squares: width per row. scratch: width doubles, zeros, and K int64. */
static void FN(tally)(const rows_t *r, const int64_t *slot, int64_t K, int64_t *owners, double *cells, double *squares,
                      double *scratch) {
    int64_t *mine = (int64_t *)(scratch + r->width);
    for (int64_t i = 0; i < r->n; i++) {
        const uint64_t *z = r->z + i * r->words;
        const float *x = r->x + i * r->n_columns;
        int64_t n = 0;
        for (int64_t k = 0; k < K; k++) {
            mine[n] = k;
            n += has(z, slot[k]);
        }
        for (int64_t d = 0; d < r->n_columns; d++) scratch[d] = (double)x[d];
        for (int64_t a = 0; a < n; a++) {
            FN(add_to)(cells + mine[a] * r->width, 1.0, scratch, r->width);
            for (int64_t b = 0; b <= a; b++) owners[mine[a] * K + mine[b]]++;
        }
        for (int64_t d = 0; d < r->width; d += N_DOUBLE) {
            vd cell = *(const vd *)(scratch + d);
            *(vd *)(squares + d) += cell * cell;
        }
    }
    for (int64_t a = 0; a < K; a++)
        for (int64_t b = 0; b < a; b++) owners[b * K + a] = owners[a * K + b];
}
