/* A pruned draw for rows without a tail, from the scores of a few clusters: the label that the sweep draws from all
 * clusters, or UNDECIDED. Included once for every instruction set (every_isa.h).
 *
 * Leaves the same distribution invariant as the sweep, since it is the same function of cells, draw and uniforms
 * (docs/math.md 2.13). The tile of a row's present cluster gives a score m. Clusters bounded by m - reach are left out;
 * the others are scored by the loops of the sweep, with the same bits. If the clusters left out, and rounding, cannot
 * move the sums of weights next to the target of the draw past it, the label is that of the sweep. The order of rows
 * and tiles changes no label. Cost per row: an addition of int16 for each (feature x group of 4 clusters), one for each
 * (feature x cluster) of tiles in reach, and the scores of those that remain. Random numbers: as in the sweep.
 */
#if MB_BYTES == 16
#define BOUND_BYTES 16
#else
#define BOUND_BYTES 32
#endif
#define N_BOUND (BOUND_BYTES / 2)
typedef int16_t FN(vs) __attribute__((vector_size(BOUND_BYTES), aligned(BOUND_BYTES), may_alias));
#define vs FN(vs)

/* Saturating sums of int16: less precise, but still valid bounds. */
ALWAYS_INLINE vs FN(add_bounds)(vs a, vs b) {
#if BOUND_BYTES == 32
    return (vs)_mm256_adds_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (vs)_mm_adds_epi16((__m128i)a, (__m128i)b);
#else
    vs sum;
    for (int i = 0; i < N_BOUND; i++) sum[i] = a[i] + b[i] < INT16_MIN ? INT16_MIN : (int16_t)(a[i] + b[i]);
    return sum;
#endif
}

/* A bit for every byte of the lanes that are at least `least`. */
ALWAYS_INLINE uint32_t FN(in_reach)(vs sum, vs least) {
    vs yes = (vs)(sum >= least);
#if BOUND_BYTES == 32
    return (uint32_t)_mm256_movemask_epi8((__m256i)yes);
#elif defined(__SSE2__)
    return (uint32_t)_mm_movemask_epi8((__m128i)yes);
#else
    uint32_t bits = 0;
    for (int i = 0; i < N_BOUND; i++) bits |= (yes[i] & 3u) << 2 * i;
    return bits;
#endif
}

/* appends the tiles whose groups, in VECTORS vectors from a lane on, can reach `least` */
#define FIND_TILES(VECTORS)                                                                                            \
    for (; lane + VECTORS * N_BOUND <= b->n_lanes; lane += VECTORS * N_BOUND) {                                        \
        vs sum[VECTORS];                                                                                               \
        UNROLL for (int v = 0; v < VECTORS; v++) sum[v] = (vs){0};                                                     \
        for (int64_t f = 0; f < n; f++) {                                                                              \
            const vs *bound = (const vs *)(b->groups + (int64_t)feature[f] * b->n_lanes + lane);                       \
            UNROLL for (int v = 0; v < VECTORS; v++) sum[v] = FN(add_bounds)(sum[v], bound[v]);                        \
        }                                                                                                              \
        UNROLL for (int v = 0; v < VECTORS; v++) {                                                                     \
            uint32_t bits = FN(in_reach)(sum[v], least);                                                               \
            for (int64_t t = (lane + v * N_BOUND) / GROUP; bits; bits >>= 2 * GROUP, t++)                              \
                if (bits & 255) tiles[found] = (int32_t)t, found += t != but_for;                                      \
        }                                                                                                              \
    }

/* Find the tiles, except `but_for`, in which the bound of some group is at least `at_least`; returns their number. */
APART int64_t FN(find_tiles)(const bounds_t *b, const int32_t *feature, int64_t n, int16_t at_least, int64_t but_for,
                             int32_t *tiles) {
    vs least = at_least - (vs){0};
    int64_t found = 0, lane = 0;
    FIND_TILES(4)
    FIND_TILES(64 / BOUND_BYTES)
    return found;
}
#undef FIND_TILES

/* The greatest bound of a tile's clusters, or INT16_MIN once none can reach `at_least`. */
APART int16_t FN(bound_of_tile)(const bounds_t *b, const int32_t *feature, int64_t n, int16_t at_least, int64_t tile) {
    enum { V = 2 * TILE / BOUND_BYTES, EACH = 10 };
    const int16_t *bounds = b->clusters + tile * b->n_features * TILE;
    vs sum[V], least = at_least - (vs){0};
    UNROLL for (int v = 0; v < V; v++) sum[v] = (vs){0};
    for (int64_t f = 0; f < n;) {
        uint32_t some = 0;
        for (int64_t end = f + EACH < n ? f + EACH : n; f < end; f++)
            UNROLL for (int v = 0; v < V; v++)
                sum[v] = FN(add_bounds)(sum[v], ((const vs *)(bounds + (int64_t)feature[f] * TILE))[v]);
        UNROLL for (int v = 0; v < V; v++) some |= FN(in_reach)(sum[v], least);
        if (!some) return INT16_MIN;
    }
    int16_t most = INT16_MIN, *lanes = (int16_t *)sum;
    _Pragma("GCC unroll 16") for (int k = 0; k < TILE; k++) most = lanes[k] > most ? lanes[k] : most;
    return most;
}

/* Features of row i; bins: [row][real and count column]. Returns their number, -1 if a cell has no bounds. */
APART int64_t FN(features_of)(const rows_t *rows, const uint8_t *bins, const bounds_t *b, int64_t i, int32_t *feature) {
    int64_t n = 1, C8 = rows->n_codes8, C16 = rows->n_codes16, n_binned = rows->n_reals + rows->n_tallies, c = 0;
    const uint8_t *x8 = rows->codes8 + i * C8, *bin = bins + i * n_binned;
    const uint16_t *x16 = rows->codes16 + i * C16;
    const double *x = rows->vectors + i * rows->n_vector;
    int32_t missing = 0, *of_code = feature + 1;
    feature[0] = 0;
    for (c = 0; c < C8; c++) of_code[c] = b->first_level[c] + x8[c];
    for (c = 0; c < C16; c++) of_code[C8 + c] = b->first_level[C8 + c] + x16[c];
    for (c = 0; c < C8 + C16; c++) missing |= of_code[c] == b->missing[c];
    if (!missing) n += C8 + C16;
    else
        for (c = 0; c < C8 + C16; c++) {
            int32_t level = of_code[c];
            feature[n] = level;
            n += level != b->missing[c];
        }
    for (c = 0; c < n_binned; c++) {
        uint64_t eight = 0;
        for (; c + 8 <= n_binned; c += 8) { /* missing cells are often adjacent */
            memcpy(&eight, bin + c, 8);
            if (~eight) break;
        }
        for (int64_t end = c + 8 < n_binned ? c + 8 : n_binned; c < end; c++) {
            feature[n] = (int32_t)(b->first_bin + c * BINS + bin[c]);
            n += bin[c] != NO_BIN;
        }
        c--;
    }
    for (int64_t v = 0; v < rows->n_blocks; x += rows->widths[v++]) {
        int absent = 0, far = 0;
        for (int64_t d = 0; d < rows->widths[v]; d++) absent |= x[d] != x[d], far |= !(fabs(x[d]) < 1e100);
        if (!absent && far) return -1;
        feature[n] = (int32_t)(b->first_block + v);
        n += !absent;
    }
    return n;
}

/* Sum of `greatest` over a row's features, the scale of its bounds. */
ALWAYS_INLINE double FN(top_of)(const bounds_t *b, const int32_t *feature, int64_t n) {
    double sum[4] = {0};
    int64_t f = 0;
    for (; f + 4 <= n; f += 4) UNROLL for (int j = 0; j < 4; j++) sum[j] += b->greatest[feature[f + j]];
    for (; f < n; f++) sum[0] += b->greatest[feature[f]];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The least bound, in units, of clusters that may come within `reach` of a score m, given the row's top: a unit lower
 * than required, and below any rounding of the scores. These sum a categorical column's terms in float32, 32 at a time:
 * the error is below 2e-6 of the terms' sizes, which `size` and the depth below the top bound. Returns 1 if there is
 * none. */
ALWAYS_INLINE int FN(least_bound)(const bounds_t *b, double top, double m) {
    double slack = 0.02 + 4e-6 * (top - m + b->reach + b->size);
    double least = floor(UNITS * (m - b->reach - slack - top)) - 1;
    return m > -1e8 && b->size < 1e8 && least < 0 && least >= LEAST_BOUND ? (int)least : 1;
}

/* Scores of rows at[0..n-1], n <= BLOCK, under a tile: [row][TILE] in w->scores, -infinity for clusters closed to the
 * row. A row's allowed clusters are the first in the draw's order. Returns 1 if the cells are finite. */
ALWAYS_INLINE int FN(score_similar)(const rows_t *rows, const int64_t *at, int64_t n, const int32_t *allowed,
                                    const bounds_t *b, int64_t tile, work_t *w) {
    FN(read_block)(rows, at, n, &w->block);
    if (w->block.infinite) return 0;
    FN(score_block)(b->tiles + tile, rows, &w->block, w->scores, TILE, TILE);
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < TILE; k += N_DOUBLE) {
            vd *score = (vd *)(w->scores + j * TILE + k);
            vd position = *(const vd *)(b->position + tile * TILE + k), end = SPREAD((double)allowed[at[j]]);
            *score = SELECT(position < end, *score, SPREAD(-INFINITY));
        }
    return 1;
}

ALWAYS_INLINE double FN(greatest_of_tile)(const double *scores) {
    vd most = *(const vd *)scores;
    for (int64_t k = N_DOUBLE; k < TILE; k += N_DOUBLE) most = MORE(*(const vd *)(scores + k), most);
    return FN(greatest)(most)[0];
}

/* The draw from a row's n_tiles scored tiles; UNDECIDED if the clusters left out could change it. A cluster whose
 * weight is below e^-reach counts as left out. */
APART int32_t FN(draw_survivor)(const bounds_t *b, const double *scores, const int32_t *tile, int64_t n_tiles, double u) {
    enum { MOST = MOST_TILES * TILE };
    double most = -INFINITY, position[MOST], score[MOST] __attribute__((aligned(64))), total = 0, below = 0;
    float weights[MOST] __attribute__((aligned(64)));
    vd unused[8 / N_DOUBLE];
    int64_t n = 0;
    for (int64_t s = 0; s < n_tiles; s++) {
        double top = FN(greatest_of_tile)(scores + s * TILE);
        most = top > most ? top : most;
    }
    if (!(most > -INFINITY && most < INFINITY)) return UNDECIDED;
    for (int64_t s = 0; s < n_tiles; s++)
        for (int64_t k = 0; k < TILE; k += N_DOUBLE) {
            vd these = *(const vd *)(scores + s * TILE + k);
            for (int bits = FN(lanes)((vl)(these >= most - b->reach)); bits; bits &= bits - 1) {
                int64_t lane = k + __builtin_ctz(bits), at = n++;
                double here = b->position[tile[s] * TILE + lane];
                for (; at > 0 && position[at - 1] > here; at--) position[at] = position[at - 1], score[at] = score[at - 1];
                position[at] = here, score[at] = scores[s * TILE + lane];
            }
        }
    for (int64_t k = n; k & (TILE - 1); k++) score[k] = -INFINITY;
    for (int64_t k = 0; k < n; k += TILE)
        FN(weigh_tile)(score + k, SPREAD(most), (vf *)(weights + k), unused);
    for (int64_t k = 0; k < n; k++) total += weights[k];
    double target = u * total, margin = b->margin * total;
    for (int64_t k = 0; k < n; k++) {
        double above = below + weights[k];
        if (target < above - margin) return target > below + margin ? (int32_t)position[k] : UNDECIDED;
        below = above;
    }
    return UNDECIDED;
}

/* List the rows that need a draw in p->order, similar ones together, by the place of their labels. Writes the labels of
 * the others: unchanged rows keep theirs, rows without an instantiated cluster are UNDECIDED. */
APART void FN(line_up)(const rows_t *rows, const int32_t *z, int32_t *out, const instantiated_t *g,
                           const bounds_t *b, pruning_t *p, int has_tail, uint64_t row0, uint64_t seed, uint64_t cycle,
                           uint64_t sweep, uint64_t chain) {
    philox_stream words = philox_open(seed, PURPOSE_ASSIGN, sweep, cycle, chain);
    philox_stream priorities = philox_open(seed, PURPOSE_PRIORITY, 0, cycle, chain);
    int64_t n = 0;
    p->bounded = p->scored = p->given_up = 0;
    for (int64_t t = 0; t < b->n_tiles; t++) p->waiting[t] = -1;
    memset(p->first, 0, (b->n_tiles * TILE + 1) * sizeof *p->first);
    for (int64_t i = 0; i < rows->n; i++) {
        int64_t allowed;
        out[i] = z[i] < -1 ? z[i] : UNDECIDED;
        p->allowed[i] = -1;
        if (z[i] < 0 || z[i] >= g->n) continue;
        allowed = FN(open_to)(g, has_tail, g->free < g->n, z[i], &priorities, row0 + i);
        if (allowed < 0) {
            out[i] = z[i];
            continue;
        }
        if (allowed == 0) continue;
        p->allowed[i] = (int32_t)allowed;
        p->u[i] = philox_uniform(philox_word(&words, row0 + i));
        p->first[b->place[z[i]] + 1]++;
    }
    for (int64_t k = 0; k < b->n_tiles * TILE; k++) p->first[k + 1] += p->first[k];
    for (int64_t i = 0; i < rows->n; i++)
        if (p->allowed[i] >= 0) p->order[p->first[b->place[z[i]]]++] = (int32_t)i, n++;
    p->n = n;
}

/* Store a row's scores under a tile. */
ALWAYS_INLINE void FN(keep_scores)(pruning_t *p, int64_t r, int64_t tile, const double *scores) {
    int64_t s = r * MOST_TILES + p->n_tiles[r]++;
    p->scored++;
    p->tile[s] = (int32_t)tile;
    memcpy(p->scores + s * TILE, scores, TILE * sizeof *scores);
}

/* Score the chunk's rows under the tiles of their labels; p->m[r] is the best, -infinity if there is none. */
APART void FN(score_own)(const rows_t *rows, const int32_t *z, const bounds_t *b, pruning_t *p, work_t *w,
                          const int32_t *order, int64_t n) {
    for (int64_t r = 0, end; r < n; r = end) {
        int64_t tile = b->place[z[order[r]]] / TILE, at[BLOCK];
        for (end = r; end < n && end < r + BLOCK && b->place[z[order[end]]] / TILE == tile; end++)
            at[end - r] = order[end], p->n_tiles[end] = 0, p->m[end] = -INFINITY;
        if (!FN(score_similar)(rows, at, end - r, p->allowed, b, tile, w)) continue;
        for (int64_t j = r; j < end; j++) {
            FN(keep_scores)(p, j, tile, w->scores + (j - r) * TILE);
            p->m[j] = FN(greatest_of_tile)(w->scores + (j - r) * TILE);
        }
    }
}

/* Queue row r of the chunk at the tiles that may come within reach of its best score. If these are many, the one with
 * the greatest bound is scored first: it may leave fewer. */
APART void FN(find_survivors)(const rows_t *rows, const uint8_t *bins, const bounds_t *b, pruning_t *p, work_t *w,
                               int64_t i, int64_t r) {
    enum { MANY = 4 };
    int64_t n = FN(features_of)(rows, bins, b, i, p->feature), found, kept = 0, best = 0;
    int32_t *tiles = p->found;
    double top = n < 0 ? 0 : FN(top_of)(b, p->feature, n);
    int least = n < 0 ? 1 : FN(least_bound)(b, top, p->m[r]);
    if (least > 0) p->n_tiles[r] = 0;
    if (p->n_tiles[r] == 0) return;
    found = FN(find_tiles)(b, p->feature, n, (int16_t)least, p->tile[r * MOST_TILES], tiles);
    p->bounded += found;
    for (int64_t s = 0; s < found; s++) {
        int16_t bound = FN(bound_of_tile)(b, p->feature, n, (int16_t)least, tiles[s]);
        if (bound < least) continue;
        tiles[kept] = tiles[s], p->bound[kept] = bound;
        best = bound > p->bound[best] ? kept : best;
        kept++;
    }
    if (kept > MANY && FN(score_similar)(rows, &i, 1, p->allowed, b, tiles[best], w)) {
        FN(keep_scores)(p, r, tiles[best], w->scores);
        p->m[r] = fmax(p->m[r], FN(greatest_of_tile)(w->scores));
        p->bound[best] = INT16_MIN; /* no longer waited for */
        least = FN(least_bound)(b, top, p->m[r]);
        if (least > 0) kept = p->n_tiles[r] = 0;
    }
    for (int64_t s = 0; s < kept; s++) {
        if (p->bound[s] < least) continue;
        int64_t to = r * MOST_TILES + p->n_tiles[r];
        if (p->n_tiles[r]++ == MOST_TILES) {
            p->n_tiles[r] = 0;
            return;
        }
        p->tile[to] = tiles[s];
        p->next[to] = p->waiting[tiles[s]];
        p->waiting[tiles[s]] = (int32_t)to;
    }
}

/* Score the waiting rows, tile by tile. */
APART void FN(score_waiting)(const rows_t *rows, const bounds_t *b, pruning_t *p, work_t *w, const int32_t *order) {
    for (int64_t t = 0; t < b->n_tiles; t++) {
        int32_t next = p->waiting[t];
        p->waiting[t] = -1;
        while (next >= 0) {
            int64_t at[BLOCK], to[BLOCK], n = 0;
            for (; next >= 0 && n < BLOCK; next = p->next[next]) {
                at[n] = order[next / MOST_TILES], to[n] = next;
                n += p->n_tiles[next / MOST_TILES] > 0;
            }
            if (n == 0) continue;
            p->scored += n;
            FN(score_similar)(rows, at, n, p->allowed, b, t, w);
            for (int64_t j = 0; j < n; j++)
                memcpy(p->scores + to[j] * TILE, w->scores + j * TILE, TILE * sizeof *w->scores);
        }
    }
}

/* Score a chunk of n rows under the clusters that can be within reach, and prefetch the next n_next rows. */
static void FN(score_chunk)(const rows_t *rows, const uint8_t *bins, const int32_t *z, const bounds_t *b, pruning_t *p,
                            work_t *w, const int32_t *order, int64_t n, int64_t n_next) {
    int64_t n_binned = rows->n_reals + rows->n_tallies;
    FN(score_own)(rows, z, b, p, w, order, n);
    for (int64_t r = 0; r < n; r++) {
        if (r < n_next) {
            int64_t soon = order[n + r];
            FN(fetch_row)(rows, z, soon);
            FN(fetch_cells)(bins + soon * n_binned, n_binned);
            FN(fetch_cells)(p->u + soon, 1), FN(fetch_cells)(p->allowed + soon, 1);
        }
        FN(find_survivors)(rows, bins, b, p, w, order[r], r);
    }
    FN(score_waiting)(rows, b, p, w, order);
}

/* out[i]: the label that the sweep gives row i, or UNDECIDED */
static void FN(prune)(const rows_t *rows, const uint8_t *bins, const int32_t *z, int32_t *out, const instantiated_t *g,
                      const bounds_t *b, pruning_t *p, work_t *w, uint64_t row0, uint64_t seed, uint64_t cycle,
                      uint64_t sweep, uint64_t chain) {
    FN(line_up)(rows, z, out, g, b, p, 0, row0, seed, cycle, sweep, chain);
    for (int64_t first = 0; first < p->n; first += CHUNK) {
        const int32_t *order = p->order + first;
        int64_t here = p->n - first < CHUNK ? p->n - first : CHUNK, left = p->n - first - here;
        FN(score_chunk)(rows, bins, z, b, p, w, order, here, left < CHUNK ? left : CHUNK);
        for (int64_t r = 0; r < here; r++) {
            if (p->n_tiles[r])
                out[order[r]] = FN(draw_survivor)(b, p->scores + r * MOST_TILES * TILE, p->tile + r * MOST_TILES,
                                                  p->n_tiles[r], p->u[order[r]]);
            p->given_up += out[order[r]] == UNDECIDED;
        }
    }
}

/* Append the scores of row i, the r-th of its chunk, that are within reach of the best. */
ALWAYS_INLINE void FN(keep_survivors)(const bounds_t *b, const pruning_t *p, int64_t r, int64_t i, survivors_t *kept) {
    const double *scores = p->scores + r * MOST_TILES * TILE;
    kept->start[i] = kept->used;
    for (int64_t s = 0; s < p->n_tiles[r]; s++)
        for (int64_t k = 0; k < TILE; k += N_DOUBLE) {
            vd these = *(const vd *)(scores + s * TILE + k);
            for (int bits = FN(lanes)((vl)(these >= p->m[r] - b->reach)); bits; bits &= bits - 1) {
                int64_t lane = k + __builtin_ctz(bits), to = kept->used++;
                kept->position[to] = (int32_t)b->position[p->tile[r * MOST_TILES + s] * TILE + lane];
                kept->score[to] = scores[s * TILE + lane];
            }
        }
    kept->count[i] = (int32_t)(kept->used - kept->start[i]);
}

/* Scores of rows beside a tail that can have weight, from row `first` of the order on; first = 0 makes the order.
 * Returns the row at which there was no more room, or -1 at the end. */
static int64_t FN(survivors)(const rows_t *rows, const uint8_t *bins, const int32_t *z, int32_t *out,
                             const instantiated_t *g, const bounds_t *b, pruning_t *p, work_t *w, survivors_t *kept,
                             int64_t first, uint64_t row0, uint64_t seed, uint64_t cycle, uint64_t chain) {
    if (first == 0) FN(line_up)(rows, z, out, g, b, p, 1, row0, seed, cycle, 0, chain);
    for (; first < p->n; first += CHUNK) {
        const int32_t *order = p->order + first;
        int64_t here = p->n - first < CHUNK ? p->n - first : CHUNK, left = p->n - first - here;
        if (kept->room - kept->used < CHUNK * MOST_TILES * TILE) return first;
        FN(score_chunk)(rows, bins, z, b, p, w, order, here, left < CHUNK ? left : CHUNK);
        for (int64_t r = 0; r < here; r++)
            if (p->n_tiles[r]) FN(keep_survivors)(b, p, r, order[r], kept);
            else p->given_up++;
    }
    return -1;
}
#undef vs
#undef N_BOUND
#undef BOUND_BYTES
