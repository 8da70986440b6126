/* Brightness of the rows of one shard: drawn afresh, or one sweep. Included once for every instruction set
 * (every_isa.h).
 *
 * Leaves invariant: P(z_n = 1 | theta) = 1 - e^-gap, independently (docs/math.md 4.1). A sweep visits each row at most
 * once (docs/math.md 4.3, 4.5): rows that were bright at its start, and positions reached by Geometric(q) skips. Cost:
 * n q dot products and gaps. Random words: bright row m has word m (implicit only; then up to the next multiple of 4),
 * and every eight hits have the next sixteen: eight for the skips that lead to them, eight for the decisions.
 */
enum { FN(BATCH) = 256, FN(AHEAD) = 3 }; /* rows decided together; groups of eight rows by which prefetching is ahead */

/* t in [1, 2) from a word; 2 - t is uniform on (0, 1] and t - 1 on [0, 1). */
ALWAYS_INLINE vd FN(one_to_two)(vul word) { return (vd)((word >> 12) | 0x3ff0000000000000ull); }

ALWAYS_INLINE void FN(fetch)(const lights_t *l, int64_t row) {
    const char *x = (const char *)(l->rows.x + row * l->model->width);
    for (int64_t b = 0; b < 4 * l->model->width; b += 64) __builtin_prefetch(x + b);
    __builtin_prefetch(x + 4 * l->model->width - 1);
    x = (const char *)(l->rows.bounds + row * l->model->n_bounds);
    for (int64_t b = 0; b < 8 * l->model->n_bounds; b += 64) __builtin_prefetch(x + b);
    __builtin_prefetch(x + 8 * l->model->n_bounds - 1);
    if (l->model->likelihood == STUDENT) __builtin_prefetch(l->rows.y + row);
}

/* Light each of n dark rows with u q < L~, or with u < 1 - e^-gap if drawn `anew`; u + 1 is one_to_two. */
static void FN(light_rows)(lights_t *l, const double *theta, double q, int anew, const int32_t *row,
                           const double *one_to_two, int64_t n) {
    const model_t *m = l->model;
    int64_t size = 8 * m->n_classes;
    double gap[GROUPS][8] __attribute__((aligned(64))), margin[GROUPS][8] __attribute__((aligned(64)));
    for (int64_t r = 0; r < n && r < 8 * FN(AHEAD); r++) FN(fetch)(l, row[r]);
    for (int64_t i = 0; i < n; i += 8 * GROUPS) {
        int64_t left = n - i < 8 * GROUPS ? n - i : 8 * GROUPS;
        eight_t rows[GROUPS];
        for (int64_t g = 0; 8 * g < left; g++) {
            for (int64_t r = i + 8 * (g + FN(AHEAD)); r < n && r < i + 8 * (g + FN(AHEAD) + 1); r++)
                FN(fetch)(l, row[r]);
            for (int64_t r = 0; r < 8; r++) {
                int64_t at = row[8 * g + r < left ? i + 8 * g + r : i + 8 * g];
                rows[g].x[r] = l->rows.x + at * m->width;
                rows[g].bounds[r] = l->rows.bounds + at * m->n_bounds;
                rows[g].y[r] = m->likelihood == STUDENT ? l->rows.y[at] : 0.0;
            }
            FN(dots)(m, &rows[g], theta, l->scratch + g * size);
        }
        for (int64_t g = 0; 8 * g < left; g++)
            FN(gaps)(m, &rows[g], l->scratch + g * size, gap[g], l->scratch + (GROUPS + g) * size);
        for (int64_t g = 0; 8 * g < left; g++) EACH_LANE(j) {
            vd rest, e = FN(decay)(-LANES(gap[g] + j), &rest), u = LOOSE(one_to_two + i + 8 * g + j) - 1.0;
            LANES(margin[g] + j) = anew ? rest - u : rest - (u * q) * e;
        }
        for (int64_t r = 0; r < left; r++)
            if (margin[r / 8][r % 8] > 0) {
                __builtin_prefetch(l->rows.y + row[i + r]); /* the merge reads it */
                l->fresh_row[l->n_fresh] = row[i + r];
                l->fresh_gap[l->n_fresh++] = gap[r / 8][r % 8];
            }
    }
}

/* Draw every row from its conditional, by the word of its position; returns 0 if memory runs out. */
static int FN(draw_lights)(lights_t *l, const double *theta, uint64_t seed, uint64_t cycle, uint64_t chain,
                           uint64_t shard) {
    uint64_t word[FN(BATCH)] __attribute__((aligned(64)));
    double at[FN(BATCH)] __attribute__((aligned(64)));
    int32_t row[FN(BATCH)];
    l->n_fresh = 0;
    l->now.n = 0;
    for (int64_t first = 0; first < l->rows.n; first += FN(BATCH)) {
        int64_t n = l->rows.n - first < FN(BATCH) ? l->rows.n - first : FN(BATCH);
        if (!reserve_fresh(l, l->n_fresh + FN(BATCH))) return 0;
        philox_fill(seed, PURPOSE_FIRST_LIGHT, shard, cycle, chain, (uint64_t)first / 4, FN(BATCH) / 4, word);
        for (int64_t i = 0; i < FN(BATCH); i += N_DOUBLE) LANES(at + i) = FN(one_to_two)(*(const vul *)(word + i));
        for (int64_t r = 0; r < n; r++) row[r] = (int32_t)(first + r);
        FN(light_rows)(l, theta, 1.0, 1, row, at, n);
    }
    return merge_lights(l);
}

/* One sweep; returns the number of gaps evaluated, -1 if memory runs out. */
static int64_t FN(sweep_lights)(lights_t *l, const double *theta, double q, int explicit, uint64_t seed,
                                uint64_t cycle, uint64_t chain, uint64_t shard) {
    int64_t n = l->rows.n, n_bright = l->now.n, position = -1, queries = 0, waiting = 0, i = 0;
    uint64_t word[64] __attribute__((aligned(64))), block = 0;
    double first[8] __attribute__((aligned(64))), second[8] __attribute__((aligned(64)));
    double at[FN(BATCH) + 8] __attribute__((aligned(64)));
    int32_t row[FN(BATCH) + 8];
    uint8_t *keep = l->now.keep;
    l->n_fresh = 0;
    if (n_bright) memset(keep, 1, (size_t)n_bright);
    if (!explicit)
        for (int64_t b = 0; b < n_bright; b += 8) { /* go dark: u L~ < q */
            if (b % 64 == 0) {
                int64_t left = n_bright - b, n_blocks = left < 64 ? (left + 3) / 4 : 16;
                philox_fill(seed, PURPOSE_BRIGHTNESS, shard, cycle, chain, block, n_blocks, word);
                block += (uint64_t)n_blocks;
            }
            EACH_LANE(j) {
                vd rest, e = FN(decay)(-*(const vd *)(l->now.gap + b + j), &rest);
                LANES(first + j) = (FN(one_to_two)(*(const vul *)(word + b % 64 + j)) - 1.0) * rest - q * e;
            }
            for (int64_t r = 0; r < 8 && b + r < n_bright; r++) keep[b + r] = !(first[r] < 0);
        }
    vd log_stay = -(SPREAD(q) + FN(above_log1p)(SPREAD(-q)));
    if (!(q < 1)) log_stay = SPREAD(-INFINITY);
    while (position < n) {
        if (waiting == 0 && !reserve_fresh(l, l->n_fresh + FN(BATCH) + 8)) return -1;
        philox_fill(seed, PURPOSE_BRIGHTNESS, shard, cycle, chain, block, 4, word);
        block += 4;
        EACH_LANE(j) {
            vd u = FN(one_to_two)(*(const vul *)(word + j));
            LANES(first + j) = vlog(2.0 - u) / log_stay;
            LANES(second + j) = FN(one_to_two)(*(const vul *)(word + 8 + j));
        }
        for (int r = 0; r < 8; r++) {
            position += 1 + (int64_t)(first[r] < (double)n ? first[r] : (double)n);
            if (position >= n) break;
            while (i < n_bright && l->now.row[i] < position) i++;
            if (i < n_bright && l->now.row[i] == position) {
                if (explicit) { /* bright as before with probability 1 - e^-gap */
                    vd rest;
                    FN(decay)(SPREAD(-l->now.gap[i]), &rest);
                    keep[i] = second[r] - 1.0 < rest[0];
                }
                continue;
            }
            row[waiting] = (int32_t)position;
            at[waiting++] = second[r];
        }
        if (waiting >= FN(BATCH) - 8 || position >= n) {
            FN(light_rows)(l, theta, q, explicit, row, at, waiting);
            queries += waiting;
            waiting = 0;
        }
    }
    return merge_lights(l) ? queries : -1;
}
