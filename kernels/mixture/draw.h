/* Draws from unnormalised log weights, for one row and for BLOCK rows at once. Included once for every instruction set
 * (every_isa.h).
 *
 * The candidates form tiles of 16, except one before them, number -1; its score is -infinity if there is none. A row's
 * draw is the first candidate whose cumulative weight exceeds u * total: the tile first, by sums of tiles (fixed tree
 * within a tile, tiles in order), then the lane, by adding weights in order to the sum below the tile. Weights are
 * float32, their sums float64. A row's draw is the same in a block as alone, and trailing tiles without weight change
 * nothing.
 */

#define TILES (N_FLOAT / 4) /* weighed side by side: 4 vectors */

/* 16 weights exp(scores - most) of each of `tiles` tiles, and the 8 partial sums of each; tiles * 16 / N_FLOAT <= 4 */
ALWAYS_INLINE void FN(weigh_tiles)(const double *const *scores, const vd *most, const int tiles, vf *weights,
                                   vd *part) {
    enum { V = 16 / N_FLOAT, H = 8 / N_DOUBLE };
    vf x[4];
    vd folded[4];
    UNROLL for (int i = 0; i < tiles * V; i++) {
        vd low = ((const vd *)scores[i / V])[2 * (i % V)], high = ((const vd *)scores[i / V])[2 * (i % V) + 1];
        x[i] = FN(narrow)((low - most[i / V]) * LOG2_E, (high - most[i / V]) * LOG2_E);
    }
    FN(vexp2_each)(x, tiles * V);
    UNROLL for (int i = 0; i < tiles; i++) FN(fold16)(x + i * V, folded + i * H);
    UNROLL for (int i = 0; i < tiles * V; i++) weights[i] = x[i];
    UNROLL for (int i = 0; i < tiles * H; i++) part[i] = folded[i];
}
ALWAYS_INLINE void FN(weigh_tile)(const double *scores, vd most, vf weights[16 / N_FLOAT], vd part[8 / N_DOUBLE]) {
    FN(weigh_tiles)(&scores, &most, 1, weights, part);
}

/* The greatest of n scores and `before`, in every lane. */
ALWAYS_INLINE vd FN(greatest_of)(const double *scores, int64_t n, double before) {
    enum { N = 16 / N_DOUBLE };
    vd top[N];
    for (int i = 0; i < N; i++) top[i] = SPREAD(before);
    for (int64_t k = 0; k < n; k += 16)
        _Pragma("GCC unroll 8") for (int i = 0; i < N; i++) top[i] = MORE(((const vd *)(scores + k))[i], top[i]);
    for (int m = N / 2; m >= 1; m /= 2)
        for (int i = 0; i < m; i++) top[i] = MORE(top[i], top[i + m]);
    return FN(greatest)(top[0]);
}

/* weights[k] = exp(scores[k] - most), part[i * stride ..]: 8 partial sums of tile i of 16 weights. A weight is NaN if
 * its score is, and all are NaN if no score is finite. */
ALWAYS_INLINE void FN(weigh_all)(const double *scores, int64_t n, vd most, float *weights, double *part,
                                 int64_t stride) {
    int64_t k = 0;
    for (; k + 16 * TILES <= n; k += 16 * TILES) {
        const double *tile[TILES];
        vd same[TILES], folded[4];
        for (int i = 0; i < TILES; i++) tile[i] = scores + k + 16 * i, same[i] = most;
        FN(weigh_tiles)(tile, same, TILES, (vf *)(weights + k), folded);
        UNROLL for (int i = 0; i < 4; i++)
            *(vd *)(part + (k / 16 + i * N_DOUBLE / 8) * stride + i * N_DOUBLE % 8) = folded[i];
    }
    for (; k < n; k += 16) FN(weigh_tile)(scores + k, most, (vf *)(weights + k), (vd *)(part + k / 16 * stride));
}

/* The same for a maximum that is not yet known, at least `before`; returns it. */
ALWAYS_INLINE double FN(weigh)(const double *scores, int64_t n, double before, float *weights, double *part,
                               int64_t stride) {
    vd most = FN(greatest_of)(scores, n, before);
    FN(weigh_all)(scores, n, most, weights, part, stride);
    return most[0];
}

/* exp(before - most) for N_DOUBLE rows */
ALWAYS_INLINE vd FN(weight_before)(vd before, vd most) {
    vd x = (before - most) * LOG2_E, low, high;
    FN(widen)(FN(vexp2)(FN(narrow)(x, x)), &low, &high);
    return low;
}

/* sums[i] = sum of tile i; returns their total plus `total` */
ALWAYS_INLINE double FN(add_tiles)(const double *part, int64_t n, double total, double *sums) {
    for (int64_t i = 0; i < n / 16; i++) total += sums[i] = FN(sum8)((const vd *)(part + 8 * i));
    return total;
}

/* The error in scores whose weights have no positive total. */
static int FN(fault_of)(const double *scores, int64_t n, double before) {
    if (!(before < INFINITY)) return STATUS_NOT_A_NUMBER;
    for (int64_t k = 0; k < n; k++)
        if (scores[k] != scores[k]) return STATUS_NOT_A_NUMBER;
    return STATUS_NO_CANDIDATE;
}

/* Rounding put the last sum on the wrong side of the target: the last candidate with a weight, from this tile down. Such
 * a tile has one, as its sum by the tree exceeds the sum below it, unless only the candidate before all has. */
ALWAYS_INLINE int64_t FN(last_weighed)(const float *weights, int64_t tile) {
    int64_t k = 16 * tile + 15;
    while (k >= 0 && !(weights[k] > 0)) k--;
    return k;
}

/* One draw for one row. Returns a status. */
static int FN(draw_row)(const double *scores, int64_t n, double before, work_t *w, double u, int64_t *chosen) {
    const float *weights = w->weights;
    int64_t tile = 0, lane = 0;
    double most = FN(weigh)(scores, n, before, w->weights, w->part, 8);
    double first = FN(weight_before)(SPREAD(before), SPREAD(most))[0], below = first, cumulative = first;
    double total = FN(add_tiles)(w->part, n, first, w->sums), target = u * total;
    if (!(total > 0)) return FN(fault_of)(scores, n, before);
    if (first > target) {
        *chosen = -1;
        return STATUS_DONE;
    }
    for (int64_t i = 0; i < n / 16; i++) {
        cumulative += w->sums[i];
        tile += cumulative <= target;
        below = cumulative <= target ? cumulative : below;
    }
    if (tile < n / 16) {
        cumulative = below;
        _Pragma("GCC unroll 16") for (int64_t k = 16 * tile; k < 16 * tile + 16; k++) {
            cumulative += weights[k];
            lane += cumulative <= target;
        }
        if (lane < 16) {
            *chosen = 16 * tile + lane;
            return STATUS_DONE;
        }
    } else
        tile = n / 16 - 1;
    *chosen = FN(last_weighed)(weights, tile);
    return STATUS_DONE;
}

/* The draws within a tile, one tile for each of BLOCK rows in `deck`, by adding its weights in order to the sum below:
 * lane[row] = 16 if the target is not reached. */
ALWAYS_INLINE void FN(pick_lanes)(vf deck[16 * BLOCK / N_FLOAT], const vd *target, vd *below, vl *lane) {
    enum { N = BLOCK / N_DOUBLE };
    for (int round = 0; round < 3; round++) FN(riffle_floats)(deck);
    _Pragma("GCC unroll 32") for (int e = 0; e < 16 * BLOCK / N_FLOAT; e++) {
        vd x[2];
        FN(widen)(deck[e], &x[0], &x[1]);
        _Pragma("GCC unroll 2") for (int h = 0; h < 2; h++) {
            int i = (2 * e + h) % N;
            below[i] += x[h];
            lane[i] -= (vl)(below[i] <= target[i]);
        }
    }
}

/* draw_block for a single tile of 16 candidates, whose weights stay in registers */
APART int FN(draw_tile)(const work_t *w, const vd before[BLOCK / N_DOUBLE], const double u[BLOCK],
                        int64_t chosen[BLOCK]) {
    enum { N = BLOCK / N_DOUBLE };
    vd total[N], target[N], below[N], most[N], rows[BLOCK * N];
    vl lane[N], first[N];
    vf deck[16 * BLOCK / N_FLOAT];
    int undrawn = 0;
    _Pragma("GCC unroll 8") for (int j = 0; j < BLOCK; j += TILES) {
        const double *scores[TILES];
        vd top[TILES];
        UNROLL for (int i = 0; i < TILES; i++) {
            scores[i] = w->scores + (j + i < w->block.n ? 16 * (j + i) : 0);
            top[i] = FN(greatest_of)(scores[i], 16, before[(j + i) / N_DOUBLE][(j + i) % N_DOUBLE]);
            most[(j + i) / N_DOUBLE][(j + i) % N_DOUBLE] = top[i][0];
        }
        FN(weigh_tiles)(scores, top, TILES, deck + j * (16 / N_FLOAT), rows + j * N);
    }
    FN(sum8_of_8)(rows, total);
    for (int i = 0; i < N; i++) {
        below[i] = FN(weight_before)(before[i], most[i]);
        total[i] += below[i];
        target[i] = ((const FN(vd_loose) *)u)[i] * total[i];
        first[i] = (vl)(below[i] > target[i]);
        lane[i] = (vl){0};
    }
    FN(pick_lanes)(deck, target, below, lane);
    for (int i = 0; i < N; i++) {
        vl none = (lane[i] >= 16) | ~(vl)(total[i] > 0.0);
        *(FN(vl_loose) *)(chosen + i * N_DOUBLE) = lane[i] | first[i];
        _Pragma("GCC unroll 8") for (int j = 0; j < N_DOUBLE; j++) undrawn |= (none[j] & 1) << (i * N_DOUBLE + j);
    }
    return undrawn & ((1 << w->block.n) - 1);
}

/* Draws for w->block.n rows with scores in w->scores, n per row, and in `before`. Returns as bits the rows without a
 * draw, which need draw_row. */
static int FN(draw_block)(work_t *w, int64_t n, const vd before[BLOCK / N_DOUBLE], const double u[BLOCK],
                          int64_t chosen[BLOCK]) {
    enum { N = BLOCK / N_DOUBLE };
    int64_t n_rows = w->block.n, n_tiles = n / 16;
    vd first[N], total[N], target[N], below[N], most[N], rows[BLOCK * N];
    vl tile[N], lane[N];
    vf deck[16 * BLOCK / N_FLOAT];
    int undrawn = 0;
    if (n == 16) return FN(draw_tile)(w, before, u, chosen);
    for (int64_t j = 0; j < n_rows; j++)
        most[j / N_DOUBLE][j % N_DOUBLE] = FN(greatest_of)(w->scores + j * n, n, before[j / N_DOUBLE][j % N_DOUBLE])[0];
    for (int64_t j = 0; j < n_rows; j++)
        FN(weigh_all)(w->scores + j * n, n, SPREAD(most[j / N_DOUBLE][j % N_DOUBLE]), w->weights + j * n,
                      w->part + 8 * j, 64);
    for (int64_t j = n_rows; j < BLOCK; j++) {
        most[j / N_DOUBLE][j % N_DOUBLE] = INFINITY; /* no row, no weight */
        for (int64_t b = 0; b < n_tiles; b++) memset(w->part + 64 * b + 8 * j, 0, 64);
    }
    for (int i = 0; i < N; i++) {
        first[i] = total[i] = FN(weight_before)(before[i], most[i]);
        ((vd *)w->first)[i] = first[i];
    }
    for (int64_t b = 0; b < n_tiles; b++) {
        vd sums[N], *cumulative = (vd *)(w->sums + BLOCK * b);
        const vd *part = (const vd *)(w->part + 64 * b);
        _Pragma("GCC unroll 32") for (int i = 0; i < BLOCK * N; i++) rows[i] = part[i];
        FN(sum8_of_8)(rows, sums);
        for (int i = 0; i < N; i++) cumulative[i] = total[i] += sums[i];
    }
    for (int i = 0; i < N; i++) {
        target[i] = ((const FN(vd_loose) *)u)[i] * total[i];
        below[i] = first[i];
        tile[i] = lane[i] = (vl){0};
    }
    for (int64_t b = 0; b < n_tiles; b++)
        for (int i = 0; i < N; i++) {
            vd cumulative = ((const vd *)(w->sums + BLOCK * b))[i];
            vl passed = cumulative <= target[i];
            tile[i] -= passed;
            below[i] = SELECT(passed, cumulative, below[i]);
        }
    for (int64_t j = 0; j < BLOCK; j++) {
        int64_t row = j < n_rows ? j : 0;
        chosen[j] = tile[j / N_DOUBLE][j % N_DOUBLE];
        if (chosen[j] >= n_tiles) { /* rounding, as in draw_row */
            undrawn |= 1 << j;
            chosen[j] = 0;
        }
        const vf *weights = (const vf *)(w->weights + row * n + 16 * chosen[j]);
        _Pragma("GCC unroll 8") for (int i = 0; i < 16 / N_FLOAT; i++) deck[j * (16 / N_FLOAT) + i] = weights[i];
    }
    FN(pick_lanes)(deck, target, below, lane);
    for (int64_t j = 0; j < n_rows; j++) {
        int64_t k = lane[j / N_DOUBLE][j % N_DOUBLE];
        undrawn |= (k >= 16 || !(total[j / N_DOUBLE][j % N_DOUBLE] > 0)) << j;
        chosen[j] = first[j / N_DOUBLE][j % N_DOUBLE] > target[j / N_DOUBLE][j % N_DOUBLE] ? -1 : 16 * chosen[j] + k;
    }
    return undrawn & ((1 << n_rows) - 1);
}
#undef TILES
