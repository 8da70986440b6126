/* Scores of rows under many clusters: the inner loops. Included once for every instruction set (every_isa.h).
 *
 * Clusters are the lanes everywhere. A block of 1..BLOCK rows is scored at a time, so that a parameter is loaded once
 * for several rows; scores stand as out[row * stride + cluster]. The order of a row's sums does not depend on the
 * block: its other rows change no bit. Slots of the tail are scored for a block too, on the assumption that its rows
 * leave the tail unchanged (sweep.h). Cost per row: one add per (column x cluster) for categories, a few
 * multiplications for reals and counts; in the tail about one logarithm per count cell and cluster, and one for all
 * reals if no cell is missing.
 */
/* out[j][k..] += sum over columns of table[level[j][c]][k..], VECTORS * N_FLOAT clusters of ROWS rows in registers */
#define ADD_TILE(ROWS, VECTORS)                                                                                        \
    for (int64_t c0 = 0; c0 < n_codes; c0 += ADD_BLOCK) {                                                              \
        int64_t c1 = c0 + ADD_BLOCK < n_codes ? c0 + ADD_BLOCK : n_codes;                                              \
        vf sum[ROWS][VECTORS];                                                                                         \
        UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int v = 0; v < VECTORS; v++) sum[i][v] = (vf){0};            \
        for (int64_t c = c0; c < c1; c++) {                                                                            \
            UNROLL for (int i = 0; i < ROWS; i++) {                                                                    \
                const vf *t = (const vf *)(table + (int64_t)level[i * level_stride + c] * base);                       \
                UNROLL for (int v = 0; v < VECTORS; v++) sum[i][v] += t[v];                                            \
            }                                                                                                          \
        }                                                                                                              \
        UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int v = 0; v < VECTORS; v++)                                 \
            FN(widen_add)(out + i * stride + v * N_FLOAT, sum[i][v]);                                                  \
    }

ALWAYS_INLINE void FN(widen_add)(double *out, vf x) {
    vd low, high;
    FN(widen)(x, &low, &high);
    *(vd *)out += low, *(vd *)(out + N_DOUBLE) += high;
}

/* MB_TILE clusters, 32 and 16, for as many rows as keep the sums in registers. Few clusters need several rows:
 * additions of one row wait for each other. */
#define TILE_ROWS(VECTORS) ((VECTORS) > 4 ? 1 : (VECTORS) > 2 ? 2 : (VECTORS) > 1 ? 4 : 8)
#define DEFINE_TILE(NAME, ROWS, VECTORS)                                                                               \
    APART void FN(NAME)(const float *table, int64_t base, const int32_t *level, int64_t level_stride, int64_t n_codes, \
                        double *out, int64_t stride) {                                                                 \
        ADD_TILE(ROWS, VECTORS)                                                                                        \
    }
#define DEFINE_TILES(CLUSTERS)                                                                                         \
    DEFINE_TILE(tile_##CLUSTERS, TILE_ROWS(CLUSTERS / N_FLOAT), CLUSTERS / N_FLOAT)                                    \
    DEFINE_TILE(tile_##CLUSTERS##_1, 1, CLUSTERS / N_FLOAT)
#if MB_TILE == 64
DEFINE_TILES(64)
#endif
DEFINE_TILES(32)
DEFINE_TILES(16)

/* one tile of all the block's rows */
#define ADD_TILES(CLUSTERS)                                                                                            \
    {                                                                                                                  \
        enum { ROWS = TILE_ROWS(CLUSTERS / N_FLOAT) };                                                                 \
        int64_t j = 0;                                                                                                 \
        for (; j + ROWS <= block->n; j += ROWS)                                                                        \
            FN(tile_##CLUSTERS)(table + k, base, level + j * step, step, n_codes, out + j * stride + k, stride);       \
        for (; j < block->n; j++)                                                                                      \
            FN(tile_##CLUSTERS##_1)(table + k, base, level + j * step, step, n_codes, out + j * stride + k, stride);   \
        k += CLUSTERS;                                                                                                 \
    }

/* Add the log probabilities of the levels; `base` is the table's stride. */
static void FN(add_categories)(const float *table, int64_t base, const block_t *block, int64_t n_codes, double *out,
                               int64_t stride, int64_t n) {
    const int32_t *level = block->level;
    int64_t k = 0, step = block->level_stride;
#if MB_TILE == 64
    while (k + 64 <= n) ADD_TILES(64)
#endif
    while (k + 32 <= n) ADD_TILES(32)
    if (k < n) ADD_TILES(16)
}

/* total[row] += the same for a new cluster alone, from the prior's column of the table */
ALWAYS_INLINE void FN(add_prior_rows)(const float *column, const int32_t *level, int64_t level_stride, int64_t n_codes,
                                      const int rows, double *total) {
    for (int64_t c0 = 0; c0 < n_codes; c0 += ADD_BLOCK) {
        int64_t c1 = c0 + ADD_BLOCK < n_codes ? c0 + ADD_BLOCK : n_codes;
        float sum[BLOCK] = {0};
        for (int64_t c = c0; c < c1; c++)
            UNROLL for (int j = 0; j < rows; j++) sum[j] += column[level[j * level_stride + c]];
        UNROLL for (int j = 0; j < rows; j++) total[j] += sum[j];
    }
}

/* True if a categorical cell of the block is missing; level rows are padded with 0, and missing rows with -1. */
ALWAYS_INLINE int FN(some_code_missing)(const tail_t *t, const block_t *block) {
    vi some = {0};
    for (int64_t c = 0; c < t->n_codes; c += N_FLOAT) {
        vi missing = *(const vi *)(t->missing + c);
        for (int64_t j = 0; j < block->n; j++) some |= *(const vi *)(block->level + j * block->level_stride + c) == missing;
    }
    return FN(any)((vl)some | (vl)some << 32);
}

/* If all levels of each column have one pseudo-count, they have one log probability in a new cluster, and rows differ
 * only by their missing cells. */
APART void FN(add_prior)(const tail_t *t, const block_t *block, double *total) {
    const int32_t *level = block->level;
    int64_t step = block->level_stride, n_codes = t->n_codes;
    if (t->prior_sums && !FN(some_code_missing)(t, block))
        for (int64_t c = 0; c < n_codes; c += ADD_BLOCK)
            for (int64_t j = 0; j < block->n; j++) total[j] += t->prior_sums[c / ADD_BLOCK];
    else if (block->n == BLOCK) FN(add_prior_rows)(t->prior_table, level, step, n_codes, BLOCK, total);
    else
        for (int64_t j = 0; j < block->n; j++)
            FN(add_prior_rows)(t->prior_table, level + j * step, step, n_codes, 1, total + j);
}

/* Scores, up to a constant per row, of the block's rows under the first n instantiated clusters and their padding,
 * which stays at -infinity if it is so in their weights; n a multiple of 16. */
static void FN(score_block)(const instantiated_t *g, const rows_t *rows, const block_t *block, double *out,
                            int64_t stride, int64_t n) {
    if (rows->n_reals || rows->n_tallies) FN(score_numbers)(g, rows, block, out, stride, n);
    else
        for (int64_t j = 0; j < block->n; j++)
            for (int64_t k = 0; k < n; k += N_DOUBLE) *(vd *)(out + j * stride + k) = *(const vd *)(g->start + k);
    if (rows->n_codes)
        FN(add_categories)(g->table, g->base, block, rows->n_codes, out, stride, n);
    if (rows->n_blocks) FN(add_vectors)(g, rows, block, out, stride, n);
    if (rows->n_spells) FN(add_spells)(g, rows->n_spells, block, out, stride, n);
}

/* log density of Student t: constant - half log(1 + ((x - location) scale)^2). The square is capped at 1e300, so that a
 * row 1e150 scales away from every cluster still has finite scores. */
ALWAYS_INLINE vd FN(student)(double x, vd location, vd scale, vd half, vd constant) {
    vd d = (x - location) * scale;
    vd y = d * d;
    y = SELECT(y > 1e300, SPREAD(1e300), y);
    return constant - half * vlog(y + 1.0);
}

APART void FN(add_student)(const tail_t *t, const work_t *w, double *out, int64_t n) {
    for (int64_t i = 0; i < w->n_real; i++) {
        int64_t at = (int64_t)w->real_c[i] * t->capacity;
        const double *location = t->t_location + at, *scale = t->t_scale + at;
        const double *half = t->t_half + at, *constant = t->t_constant + at;
        double x = w->real_x[i];
        for (int64_t k = 0; k < n; k += N_DOUBLE)
            *(vd *)(out + k) += FN(student)(x, *(const vd *)(location + k), *(const vd *)(scale + k),
                                            *(const vd *)(half + k), *(const vd *)(constant + k));
    }
}

/* The same if every slot has one `half` for all its columns (no missing cells, one prior nu): the sum of logarithms is
 * the logarithm of a product, taken once. After every 8 factors the product, capped at 1e300 (1e18 scales away in each
 * of 8 columns), moves its exponent to a sum of exponents. */
ALWAYS_INLINE void FN(take_exponent)(vd *product, vul *exponents) {
    vul bits = (vul)*product;
    *exponents += bits >> 52;
    *product = (vd)((bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
}
ALWAYS_INLINE void FN(move_exponent)(vd *product, vul *exponents) {
    *product = LESS(SPREAD(1e300), *product);
    FN(take_exponent)(product, exponents);
}
ALWAYS_INLINE vd FN(log_of_parts)(vd product, vul exponents, int64_t n_moved) {
    vd power = (vd)(exponents | 0x4330000000000000ull) - 4503599627370496.0;
    return vlog(product) + (power - 1023.0 * n_moved) * LOG_TWO;
}

#define STUDENT_EVEN(VECTORS)                                                                                          \
    {                                                                                                                  \
        vd product[VECTORS];                                                                                           \
        vul exponents[VECTORS];                                                                                        \
        UNROLL for (int v = 0; v < VECTORS; v++) product[v] = SPREAD(1.0), exponents[v] = (vul){0};                    \
        for (int64_t i = 0; i < count;) {                                                                              \
            int64_t end = i + 8 < count ? i + 8 : count;                                                               \
            for (; i < end; i++) {                                                                                     \
                int64_t at = (int64_t)w->real_c[i] * t->capacity + k;                                                  \
                const vd *location = (const vd *)(t->t_location + at), *scale = (const vd *)(t->t_scale + at);         \
                UNROLL for (int v = 0; v < VECTORS; v++) {                                                             \
                    vd d = (w->real_x[i] - location[v]) * scale[v];                                                    \
                    product[v] *= d * d + 1.0;                                                                         \
                }                                                                                                      \
            }                                                                                                          \
            UNROLL for (int v = 0; v < VECTORS; v++) FN(move_exponent)(&product[v], &exponents[v]);                    \
        }                                                                                                              \
        UNROLL for (int v = 0; v < VECTORS; v++) {                                                                     \
            vd constant = SPREAD(0.0), logs = FN(log_of_parts)(product[v], exponents[v], n_groups);                    \
            if (count == t->n_reals) constant = ((const vd *)(t->t_total + k))[v];                                     \
            else                                                                                                       \
                for (int64_t i = 0; i < count; i++)                                                                    \
                    constant += ((const vd *)(t->t_constant + (int64_t)w->real_c[i] * t->capacity + k))[v];            \
            ((vd *)(out + k))[v] += constant - ((const vd *)(half + k))[v] * logs;                                     \
        }                                                                                                              \
        k += VECTORS * N_DOUBLE;                                                                                       \
    }

/* the same for rows first..first+3 of a block without missing cells */
APART void FN(add_student_4)(const tail_t *t, const block_t *block, int64_t first, double *out, int64_t stride,
                             int64_t n) {
    int64_t count = t->n_reals, n_groups = (count + 7) / 8;
    const double *const *x = block->reals + first;
    for (int64_t k = 0; k < n; k += N_DOUBLE) {
        vd product[4];
        vul exponents[4];
        UNROLL for (int v = 0; v < 4; v++) product[v] = SPREAD(1.0), exponents[v] = (vul){0};
        for (int64_t r = 0; r < count;) {
            int64_t end = r + 8 < count ? r + 8 : count;
            for (; r < end; r++) {
                vd location = *(const vd *)(t->t_location + r * t->capacity + k);
                vd scale = *(const vd *)(t->t_scale + r * t->capacity + k);
                UNROLL for (int v = 0; v < 4; v++) {
                    vd d = (x[v][r] - location) * scale;
                    product[v] *= d * d + 1.0;
                }
            }
            UNROLL for (int v = 0; v < 4; v++) FN(move_exponent)(&product[v], &exponents[v]);
        }
        UNROLL for (int v = 0; v < 4; v++)
            *(vd *)(out + v * stride + k) += *(const vd *)(t->t_total + k)
                - *(const vd *)(t->t_half + k) * FN(log_of_parts)(product[v], exponents[v], n_groups);
    }
}

/* A single vector waits for its own operations, so a last one is joined with four others. */
APART void FN(add_student_even)(const tail_t *t, const work_t *w, double *out, int64_t n) {
    int64_t count = w->n_real, n_groups = (count + 7) / 8, k = 0;
    const double *half = t->t_half + (int64_t)w->real_c[0] * t->capacity;
    if (n > 4 * N_DOUBLE && n % (4 * N_DOUBLE) == N_DOUBLE) STUDENT_EVEN(5)
    while (k + 4 * N_DOUBLE <= n) STUDENT_EVEN(4)
    if (k + 2 * N_DOUBLE <= n) STUDENT_EVEN(2)
    if (k < n) STUDENT_EVEN(1)
}

/* The same if every slot has one n for all its columns and each nu is one of 64, 32, .., 1: with f = 1 + ((x -
 * location) scale)^2 the score is sum of constant - (n + 1) / 2 log prod f - 1 / 2 log prod f^nu. The second product is
 * built by squaring, columns of the greatest nu first (t->by_power, up to t->power_ends[level]). For rows x[0..rows-1]
 * under `vectors` vectors of clusters from k on. Moving exponents out on the way is exact: if the products stay below
 * 1e300 without it (`plain`) the bits are the same, else 0 is returned and nothing added. `crossed`, if not NULL, has
 * locations of its own, [column][BLOCK]: see add_student_new. */
ALWAYS_INLINE int FN(student_powers)(const tail_t *t, const double *crossed, const double *const *x, const int rows,
                                     const int vectors, const int plain, int64_t k, double *out, int64_t stride) {
    const int width = rows * vectors;
    vd all[4], powers[4], product[4];
    vul all_exponents[4], powers_exponents[4];
    int64_t i = 0, n_moved = 1, powers_moved = 1;
    UNROLL for (int v = 0; v < width; v++) {
        all[v] = powers[v] = SPREAD(1.0);
        all_exponents[v] = powers_exponents[v] = (vul){0};
    }
    for (int level = 0; level < POWERS; level++) {
        UNROLL for (int v = 0; v < width; v++) {
            powers[v] *= powers[v];
            if (!plain) powers_exponents[v] += powers_exponents[v];
        }
        if (!plain) powers_moved += powers_moved - 1;
        vul exponents[4];
        int64_t first = i;
        UNROLL for (int v = 0; v < width; v++) product[v] = SPREAD(1.0), exponents[v] = (vul){0};
        for (; i < t->power_ends[level]; i++) {
            int64_t r = t->by_power[i];
            const vd *location = (const vd *)((crossed ? crossed + r * BLOCK : t->t_location + r * t->capacity) + k);
            const vd *scale = (const vd *)(t->t_scale + r * t->capacity + k);
            UNROLL for (int v = 0; v < width; v++) {
                vd d = (x[v / vectors][r] - location[v % vectors]) * scale[v % vectors], f = d * d + 1.0;
                product[v] *= plain ? f : LESS(SPREAD(1e300), f);
                if (!plain) FN(take_exponent)(&product[v], &exponents[v]);
            }
        }
        UNROLL for (int v = 0; v < width; v++) {
            all[v] *= product[v], powers[v] *= product[v];
            if (plain) continue;
            all_exponents[v] += exponents[v], powers_exponents[v] += exponents[v];
            FN(take_exponent)(&all[v], &all_exponents[v]);
            FN(take_exponent)(&powers[v], &powers_exponents[v]);
        }
        if (!plain) n_moved += i - first + 1, powers_moved += i - first + 1;
    }
    if (plain) {
        vl large = {0};
        UNROLL for (int v = 0; v < width; v++) large |= (vl)(powers[v] > 1e300); /* all <= powers */
        if (FN(any)(large)) return 0;
    }
    UNROLL for (int v = 0; v < width; v++) {
        vd *to = (vd *)(out + v / vectors * stride + k) + v % vectors;
        vd half = ((const vd *)(t->t_half + k))[v % vectors] - 0.5 * t->normal[2]; /* (n + 1) / 2 */
        FN(take_exponent)(&all[v], &all_exponents[v]);
        FN(take_exponent)(&powers[v], &powers_exponents[v]);
        *to += ((const vd *)(t->t_total + k))[v % vectors]
               - (half * FN(log_of_parts)(all[v], all_exponents[v], n_moved)
                  + 0.5 * FN(log_of_parts)(powers[v], powers_exponents[v], powers_moved));
    }
    return 1;
}
#define DEFINE_POWERS(NAME, ROWS, VECTORS)                                                                             \
    APART void FN(NAME)(const tail_t *t, const double *const *x, int64_t k, double *out, int64_t stride, int64_t n) {  \
        for (; k < n; k += VECTORS * N_DOUBLE)                                                                         \
            if (t->n_reals > 64 || !FN(student_powers)(t, NULL, x, ROWS, VECTORS, 1, k, out, stride))                  \
                FN(student_powers)(t, NULL, x, ROWS, VECTORS, 0, k, out, stride);                                      \
    }
DEFINE_POWERS(powers_4, 4, 1)
DEFINE_POWERS(powers_1, 1, 4)
DEFINE_POWERS(powers_last, 1, 1)

static void FN(add_student_powers)(const tail_t *t, const double *const *x, int64_t rows, double *out, int64_t stride,
                                   int64_t n) {
    int64_t j = 0, most = n - n % (4 * N_DOUBLE);
    for (; j + 4 <= rows; j += 4) FN(powers_4)(t, x + j, 0, out + j * stride, stride, n);
    for (; j < rows; j++) {
        FN(powers_1)(t, x + j, 0, out + j * stride, stride, most);
        FN(powers_last)(t, x + j, most, out + j * stride, stride, n);
    }
}

/* a where the mask has ones, b where it has zeros */
ALWAYS_INLINE double FN(chosen)(double a, double b, uint64_t mask) {
    union { double number; uint64_t bits; } first = {a}, second = {b};
    first.bits = (first.bits & mask) | (second.bits & ~mask);
    return first.number;
}

/* The same for an empty tail's new cluster alone and the rows of a block: out[row * stride]. A missing cell has the
 * prior's mean, whose f is 1, and its column's constant is removed. Rows are the lanes, since a density is unchanged if
 * x and location are exchanged. So lane j reads scale, half and total from slot j, which is vacant, as all are, and has
 * the prior's values. */
APART void FN(add_student_new)(const tail_t *t, work_t *w, double *out, int64_t stride) {
    const double *means = t->plain; /* of the prior */
    const block_t *block = &w->block;
    vd score[BLOCK / N_DOUBLE];
    double lacking[BLOCK] = {0};
    for (int64_t j = 0; j < BLOCK; j++) {
        const double *x = j < block->n ? block->reals[j] : means;
        if (!block->some_missing || j >= block->n)
            for (int64_t r = 0; r < t->n_reals; r++) w->crossed[r * BLOCK + j] = x[r];
        else {
            const uint64_t *seen = (const uint64_t *)block->reals_seen + j * t->n_reals;
            for (int64_t r = 0; r < t->n_reals; r++) {
                w->crossed[r * BLOCK + j] = FN(chosen)(x[r], means[r], seen[r]);
                lacking[j] += FN(chosen)(0.0, t->t_constant[r * t->capacity], seen[r]);
            }
        }
    }
    for (int i = 0; i < BLOCK / N_DOUBLE; i++) {
        score[i] = SPREAD(0.0);
        if (t->n_reals > 64 || !FN(student_powers)(t, w->crossed, &means, 1, 1, 1, i * N_DOUBLE, (double *)score, BLOCK))
            FN(student_powers)(t, w->crossed, &means, 1, 1, 0, i * N_DOUBLE, (double *)score, BLOCK);
    }
    for (int64_t j = 0; j < block->n; j++) out[j * stride] += score[j / N_DOUBLE][j % N_DOUBLE] - lacking[j];
}

/* t - log(1 + t) for |t| <= 0.1 without cancellation: with s = t / (2 + t), log(1 + t) = 2 atanh s and t - 2 s = t s */
ALWAYS_INLINE vd FN(small_deviance)(vd t) {
    vd s = t / (t + 2.0), z = s * s;
    vd series = z * (z * (z * (z * (z * (2.0 / 13) + 2.0 / 11) + 2.0 / 9) + 2.0 / 7) + 2.0 / 5) + 2.0 / 3;
    return t * s - s * z * series;
}

/* log of the negative binomial probability of x, Gamma(a + x) / (Gamma(a) x!) p^a q^x with p = b / (b + 1), q = 1 - p.
 *
 * usual_count: 16 <= a + x < 1e7, log Gamma(a + x) by Stirling's series (its terms stay below 2e8, their rounding below
 * 1e-7); base = a log p - log Gamma(a). small_count: x < 16, log of the product a (a + 1) ... (a + x - 1).
 * large_count: Loader's saddle point form (2000, "Fast and accurate
 * computation of binomial probabilities"), which stays accurate for sums of any size: with N = a + x,
 *   a log(N p / a) + x log(N q / x) + 1/2 log(a / (N x 2 pi)) + rest(N) - rest(a) - rest(x),
 * rest being Stirling's remainder; e = N p - a = x - N q, and where a logarithm's argument is near 1 its linear part,
 * which cancels between the two terms, is left out of both. */
ALWAYS_INLINE vd FN(usual_count)(vd x, vd log_factorial, vd a, vd base, vd log_q) {
    vd total = a + x, i = 1.0 / total;
    vd log_gamma = ((total - 0.5) * vlog(total) - total) + (STIRLING_SERIES(i, i * i) + HALF_LOG_TWO_PI);
    return (log_gamma + base) + (x * log_q - log_factorial);
}
ALWAYS_INLINE vd FN(small_count)(vd x, double most, vd log_factorial, vd a, vd zero, vd log_q) {
    vd product = SPREAD(1.0);
    for (double j = 0; j < most; j += 1.0) product *= SELECT(x > j, a + j, SPREAD(1.0));
    return (vlog(product) + zero) + (x * log_q - log_factorial);
}
ALWAYS_INLINE vd FN(large_count)(vd x, vd saddle, vd a, vd b, vd log_p, vd remainder) {
    vd total = a + x, b1 = b + 1.0;
    vd e = (x * b - a) / b1;
    vd t1 = e / a, t2 = -e / x;
    vd log1 = vlog((total * b) / (b1 * a)), log2 = vlog(total / (b1 * x));
    vd part1 = SELECT((t1 > -0.1) & (t1 < 0.1), -a * FN(small_deviance)(t1), a * log1 - e);
    vd part2 = SELECT((t2 > -0.1) & (t2 < 0.1), -x * FN(small_deviance)(t2), x * log2 + e);
    vd i = 1.0 / total, z = i * i;
    return (part1 + part2) + 0.5 * (log_p - log1) + (STIRLING_SERIES(i, z) - remainder) + saddle;
}

/* The same under N_DOUBLE slots; `at` is the index of the first one in a count column. */
ALWAYS_INLINE vd FN(negative_binomial)(const tail_t *t, int64_t at, double x, double log_factorial, double saddle) {
#define SLOTS(field) (*(const vd *)(t->field + at))
    vd a = SLOTS(nb_shape), xs = SPREAD(x), known = SPREAD(log_factorial);
    vd score = FN(usual_count)(xs, known, a, SLOTS(nb_base), SLOTS(nb_log_q));
    vl unusual = (a + x < 16.0) | (a + x >= 1e7);
    if (FN(any)(unusual)) {
        vd other = x < 16 ? FN(small_count)(xs, x, known, a, SLOTS(nb_zero), SLOTS(nb_log_q))
                          : FN(large_count)(xs, SPREAD(saddle), a, SLOTS(nb_rate), SLOTS(nb_log_p), SLOTS(nb_remainder));
        score = SELECT(unusual, other, score);
    }
    return score;
#undef SLOTS
}

APART void FN(add_negative_binomial)(const tail_t *t, const work_t *w, double *out, int64_t n) {
    for (int64_t i = 0; i < w->n_tally; i++)
        for (int64_t k = 0; k < n; k += N_DOUBLE)
            *(vd *)(out + k) += FN(negative_binomial)(t, (int64_t)w->tally_c[i] * t->capacity + k, w->tally_x[i],
                                                      w->tally_log_factorial[i], w->tally_saddle[i]);
}

/* The same for a count and an empty tail's new cluster, but without - log x!, which no candidate has then (sweep.h). */
APART double FN(learn_count)(const tail_t *t, int64_t q, double x) {
    count_t terms = count_of(x);
    double score = FN(negative_binomial)(t, q * t->capacity, x, terms.log_factorial, terms.saddle)[0]
                   + terms.log_factorial;
    if (x < N_COUNTS_KEPT) t->count_scores[q * N_COUNTS_KEPT + (int64_t)x] = score;
    return score;
}

/* The prior is fixed while the tail exists, and most counts recur: the scores of small ones are cached. */
ALWAYS_INLINE void FN(add_counts_new_rows)(const tail_t *t, const block_t *block, int64_t first, const int rows,
                                           double *out, int64_t stride) {
    double sum[BLOCK] = {0};
    for (int64_t q = 0; q < t->n_tallies; q++) {
        const double *kept = t->count_scores + q * N_COUNTS_KEPT;
        UNROLL for (int j = 0; j < rows; j++) {
            double x = block->tallies[first + j][q], score = kept[x < N_COUNTS_KEPT ? (int)x : N_COUNTS_KEPT - 1];
            if (block->some_missing && !block->tallies_seen[(first + j) * t->n_tallies + q]) continue;
            if (!(x < N_COUNTS_KEPT && score == score)) score = FN(learn_count)(t, q, x);
            sum[j] += score;
        }
    }
    UNROLL for (int j = 0; j < rows; j++) out[(first + j) * stride] += sum[j];
}
APART void FN(add_counts_new)(const tail_t *t, const block_t *block, double *out, int64_t stride) {
    if (block->n == BLOCK) FN(add_counts_new_rows)(t, block, 0, BLOCK, out, stride);
    else
        for (int64_t j = 0; j < block->n; j++) FN(add_counts_new_rows)(t, block, j, 1, out, stride);
}

/* Add the predictives of the real cells of the current row, in no cluster, under slots 0..n-1. */
ALWAYS_INLINE void FN(add_reals_of_row)(const tail_t *t, const work_t *w, double *out, int64_t n) {
    const double *x = w->real_x;
    if (w->n_real == 0) return;
    if (t->n_uneven == 0 && t->one_nu) FN(add_student_even)(t, w, out, n);
    else if (t->n_uneven == 0 && t->by_power && w->n_real == t->n_reals) FN(add_student_powers)(t, &x, 1, out, n, n);
    else FN(add_student)(t, w, out, n);
}

/* The same for the block's rows, as far as several can be done at once. Returns the finished rows as bits. */
ALWAYS_INLINE int64_t FN(add_reals_of_block)(const tail_t *t, const rows_t *rows, work_t *w, double *out, int64_t stride,
                                             int64_t n, const int empty) {
    const block_t *block = &w->block;
    int64_t j = 0;
    if (rows->n_reals == 0) return (1 << block->n) - 1;
    if (empty && t->by_power && !t->one_nu) {
        FN(add_student_new)(t, w, out, stride);
        return (1 << block->n) - 1;
    }
    if (t->n_uneven || block->some_missing) return 0;
    if (t->one_nu)
        for (; j + 4 <= block->n; j += 4) FN(add_student_4)(t, block, j, out + j * stride, stride, n);
    else if (t->by_power) {
        FN(add_student_powers)(t, block->reals, block->n, out, stride, n);
        j = block->n;
    }
    return (1 << j) - 1;
}

/* Add the predictives of the real, count and vector cells of the block's rows, in no cluster, under slots 0..n-1. With
 * `empty` all slots are vacant, only the term of slot 0 is needed, and counts come without - log x!. */
static void FN(add_predictives)(const tail_t *t, const rows_t *rows, work_t *w, const int64_t *at, double *out,
                                int64_t stride, int64_t n, const int empty) {
    int64_t reals_done = FN(add_reals_of_block)(t, rows, w, out, stride, n, empty), counts = rows->n_tallies && !empty;
    for (int64_t i = 0; i < w->block.n; i++) {
        if (reals_done >> i & 1 && !counts) continue;
        if (w->block.n > 1) FN(take_up)(rows, w, i, at[i]);
        if (!(reals_done >> i & 1)) FN(add_reals_of_row)(t, w, out + i * stride, n);
        if (counts) FN(add_negative_binomial)(t, w, out + i * stride, n);
    }
    if (rows->n_tallies && empty) FN(add_counts_new)(t, &w->block, out, stride);
    if (rows->n_blocks) FN(add_vectors_student)(t, &w->block, out, stride, n);
    if (rows->n_spells) FN(add_spells_tail)(t, &w->block, out, stride, n);
}

/* scores of the block's rows, in no cluster, under slots 0..n-1: shift[row] + log_size - norm + predictive. Slots from
 * n_used on, a multiple of 8, are vacant and stay at -infinity. */
static void FN(score_slots)(const tail_t *t, const rows_t *rows, work_t *w, const int64_t *at, const double shift[BLOCK],
                            double *out, int64_t stride, int64_t n, int64_t n_used) {
    for (int64_t k = 0; k < n; k += N_DOUBLE) {
        vd known = *(const vd *)(t->log_size + k) - *(const vd *)(t->norm + k);
        for (int64_t i = 0; i < w->block.n; i++) *(vd *)(out + i * stride + k) = known + shift[i];
    }
    if (rows->n_codes) FN(add_categories)(t->table, t->capacity, &w->block, rows->n_codes, out, stride, n);
    FN(add_predictives)(t, rows, w, at, out, stride, n_used, 0);
}
