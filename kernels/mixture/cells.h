/* The cells of rows as the loops over clusters need them: level rows, zeros for missing cells and their positions.
 * Included once for every instruction set (every_isa.h).
 */

/* True if vectors over n cells stay in the table; `left`: cells from the first one to the table's end. */
ALWAYS_INLINE int FN(by_vectors)(int64_t left, int64_t n) { return left >= ((n + N_DOUBLE - 1) & -N_DOUBLE); }

/* Lanes of a vector starting at cell c that are within the row's n cells. */
ALWAYS_INLINE vl FN(own_lanes)(int64_t c, int64_t n) {
    static const int64_t yes_no[2 * N_DOUBLE] = {[0 ... N_DOUBLE - 1] = -1};
    return *(const FN(vl_loose) *)(yes_no + (c + N_DOUBLE <= n ? 0 : c + N_DOUBLE - n));
}

/* Vector with NaN in a lane if one of n cells is not finite, else of zeros; `left` as above. */
ALWAYS_INLINE vl FN(odd_cells)(const double *x, int64_t n, int64_t left) {
    vl odd = {0};
    if (FN(by_vectors)(left, n)) {
        int64_t c = 0;
        for (; c + N_DOUBLE <= n; c += N_DOUBLE) {
            vd v = *(const FN(vd_loose) *)(x + c);
            odd |= (vl)(v - v);
        }
        if (c < n) {
            vd v = *(const FN(vd_loose) *)(x + c);
            odd |= (vl)(v - v) & FN(own_lanes)(c, n);
        }
    } else
        for (int64_t c = 0; c < n; c++) odd[0] |= -(int64_t)!(x[c] - x[c] == 0);
    return odd;
}

/* The same of a column kind's cells of rows at[0..n-1], `each` a row; rows that are neighbours are read as one. */
ALWAYS_INLINE vl FN(odd_rows)(const double *cells, int64_t each, int64_t n_rows, const int64_t *at, int64_t n,
                              int neighbours) {
    vl odd = {0};
    if (neighbours) return FN(odd_cells)(cells + at[0] * each, n * each, (n_rows - at[0]) * each);
    for (int64_t j = 0; j < n; j++) odd |= FN(odd_cells)(cells + at[j] * each, each, (n_rows - at[j]) * each);
    return odd;
}

/* Copy a row's cells to kept[column] with zeros for missing ones, and set seen[column]; returns whether one is
 * infinite, and counts missing ones. Writes up to N_DOUBLE - 1 further columns, which the next row overwrites. */
ALWAYS_INLINE int FN(keep_cells)(const double *x, int64_t n, int64_t left, double *kept, int64_t *seen,
                                 int64_t *n_missing) {
    int infinite = 0;
    vl odd = {0};
    *n_missing += n;
    if (FN(by_vectors)(left, n))
        for (int64_t c = 0; c < n; c += N_DOUBLE) {
            vd v = *(const FN(vd_loose) *)(x + c);
            vl here = (vl)(v == v) & FN(own_lanes)(c, n);
            *n_missing -= FN(count_lanes)(here);
            v = (vd)((vl)v & here);
            *(FN(vd_loose) *)(kept + c) = v;
            *(FN(vl_loose) *)(seen + c) = here;
            odd |= (vl)(v - v != 0.0);
        }
    else
        for (int64_t c = 0; c < n; c++) {
            seen[c] = -(int64_t)(x[c] == x[c]);
            kept[c] = seen[c] ? x[c] : 0.0;
            infinite |= !(kept[c] - kept[c] == 0);
            *n_missing -= seen[c] != 0;
        }
    return infinite | FN(any)(odd);
}

/* Read the blocks of columns of row i as row j: a block with a missing cell is missing. */
static void FN(read_vectors)(const rows_t *rows, int64_t i, int64_t j, block_t *block) {
    const double *x = block->vectors[j] = rows->vectors + i * rows->n_vector;
    for (int64_t b = 0; b < rows->n_blocks; x += rows->widths[b++]) {
        int missing = 0, infinite = 0;
        for (int64_t d = 0; d < rows->widths[b]; d++) {
            missing |= x[d] != x[d];
            infinite |= !(x[d] - x[d] == 0);
        }
        block->vectors_seen[j * rows->n_blocks + b] = !missing;
        block->infinite |= infinite & !missing;
    }
}
ALWAYS_INLINE void FN(take_up_vectors)(const rows_t *rows, work_t *w, int64_t j) {
    w->vector_x = w->block.vectors[j];
    w->vector_seen = w->block.vectors_seen + j * rows->n_blocks;
    for (int64_t b = 0; b < rows->n_blocks; b++) w->n_vector += w->vector_seen[b];
}

/* level[j] = first[j] + code[j] for 16 columns (compilers convert the codes one by one) */
#if MB_BYTES == 64
#define PUT_16(to, first, codes, convert)                                                                              \
    _mm512_storeu_si512(to, _mm512_add_epi32(_mm512_loadu_si512(first), _mm512_##convert(codes)))
#define PUT_8_BIT(to, first, code) PUT_16(to, first, _mm_loadu_si128((const __m128i *)(code)), cvtepu8_epi32)
#define PUT_16_BIT(to, first, code) PUT_16(to, first, _mm256_loadu_si256((const __m256i *)(code)), cvtepu16_epi32)
#elif MB_BYTES == 32
#define PUT_8(to, first, codes, convert)                                                                               \
    _mm256_storeu_si256((__m256i *)(to),                                                                               \
                        _mm256_add_epi32(_mm256_loadu_si256((const __m256i *)(first)), _mm256_##convert(codes)))
#define PUT_8_BIT(to, first, code)                                                                                     \
    (PUT_8(to, first, _mm_loadl_epi64((const __m128i *)(code)), cvtepu8_epi32),                                        \
     PUT_8((to) + 8, (first) + 8, _mm_loadl_epi64((const __m128i *)((code) + 8)), cvtepu8_epi32))
#define PUT_16_BIT(to, first, code)                                                                                    \
    (PUT_8(to, first, _mm_loadu_si128((const __m128i *)(code)), cvtepu16_epi32),                                       \
     PUT_8((to) + 8, (first) + 8, _mm_loadu_si128((const __m128i *)((code) + 8)), cvtepu16_epi32))
#else
#define PUT_8_BIT(to, first, code) for (int j = 0; j < 16; j++) (to)[j] = (first)[j] + (code)[j]
#define PUT_16_BIT PUT_8_BIT
#endif

/* level[c] = first[c] + code[c] for n columns, and up to 15 more, unless these reach beyond the `left` codes from the
 * first one to the table's end */
#define LEVELS_OF(NAME, CODE, PUT)                                                                                     \
    ALWAYS_INLINE void FN(NAME)(const CODE *code, const int32_t *first, int64_t n, int64_t left, int32_t *level) {     \
        int64_t c = 0;                                                                                                 \
        for (; c < n && left - c >= 16; c += 16) PUT(level + c, first + c, code + c);                                  \
        for (; c < n; c++) level[c] = first[c] + code[c];                                                              \
    }
LEVELS_OF(levels_of8, uint8_t, PUT_8_BIT)
LEVELS_OF(levels_of16, uint16_t, PUT_16_BIT)
#undef LEVELS_OF
#undef PUT_16
#undef PUT_8
#undef PUT_8_BIT
#undef PUT_16_BIT

/* Read the cells of rows at[0..n-1], n <= BLOCK. */
APART void FN(read_block)(const rows_t *rows, const int64_t *at, int64_t n, block_t *block) {
    int64_t R = rows->n_reals, Q = rows->n_tallies, C8 = rows->n_codes8;
    int neighbours = 1;
    vl odd = {0};
    block->n = n;
    block->infinite = 0;
    for (int64_t j = 0; j < n; j++) neighbours &= at[j] == at[0] + j;
    if (rows->n_codes)
        for (int64_t j = 0; j < n; j++) {
            int64_t C16 = rows->n_codes16, left = rows->n - at[j];
            int32_t *level = block->level + j * block->level_stride;
            FN(levels_of8)(rows->codes8 + at[j] * C8, rows->first8, C8, left * C8, level);
            if (C16) FN(levels_of16)(rows->codes16 + at[j] * C16, rows->first16, C16, left * C16, level + C8);
        }
    for (int64_t j = 0; j < n; j++) {
        block->reals[j] = rows->reals + at[j] * R;
        block->tallies[j] = rows->tallies + at[j] * Q;
        block->spells[j] = rows->spells + at[j] * rows->n_spells;
    }
    if (rows->n_blocks)
        for (int64_t j = 0; j < n; j++) FN(read_vectors)(rows, at[j], j, block);
    if (R) odd |= FN(odd_rows)(rows->reals, R, rows->n, at, n, neighbours);
    if (Q) odd |= FN(odd_rows)(rows->tallies, Q, rows->n, at, n, neighbours);
    block->some_missing = block->many_missing = 0;
    if (FN(any)((vl)((vd)odd != 0.0)))
        for (int64_t j = 0; j < n; j++) {
            double *reals = block->reals_kept + j * R, *tallies = block->tallies_kept + j * Q;
            int64_t *reals_seen = block->reals_seen + j * R, *tallies_seen = block->tallies_seen + j * Q;
            int64_t left = rows->n - at[j], no_real = 0, no_tally = 0;
            block->infinite |= FN(keep_cells)(block->reals[j], R, left * R, reals, reals_seen, &no_real);
            block->infinite |= FN(keep_cells)(block->tallies[j], Q, left * Q, tallies, tallies_seen, &no_tally);
            block->some_missing |= (no_real + no_tally > 0) << j;
            block->many_missing |= (2 * no_real + 4 * no_tally > R + Q) << j;
            block->reals[j] = reals, block->tallies[j] = tallies;
        }
}

/* Make row j of the block, row i of the shard, the current row for the tail. */
ALWAYS_INLINE void FN(take_up)(const rows_t *rows, work_t *w, int64_t j, int64_t i) {
    const block_t *block = &w->block;
    const int64_t *reals_seen = block->reals_seen + j * rows->n_reals;
    const int64_t *tallies_seen = block->tallies_seen + j * rows->n_tallies;
    w->level = block->level + j * block->level_stride;
    w->reals_seen = reals_seen;
    w->n_real = w->n_tally = w->n_vector = 0;
    if (rows->n_blocks) FN(take_up_vectors)(rows, w, j);
    w->spell_x = block->spells[j];
    /* read from the table itself unless its end is near: a vector that was just stored in parts is slow to load */
    w->x = block->some_missing || (rows->n - i) * rows->n_reals < rows->n_reals + 8 ? w->x_kept : block->reals[j];
    for (int64_t r = 0; r < rows->n_reals; r++) {
        w->real_c[w->n_real] = (int32_t)r;
        w->real_x[w->n_real] = w->x_kept[r] = block->reals[j][r];
        w->n_real += !block->some_missing || reals_seen[r];
    }
    for (int64_t q = 0; q < rows->n_tallies; q++)
        if (!block->some_missing || tallies_seen[q]) {
            double x = block->tallies[j][q];
            count_t terms = count_of(x);
            w->tally_c[w->n_tally] = (int32_t)q;
            w->tally_x[w->n_tally] = x;
            w->tally_log_factorial[w->n_tally] = terms.log_factorial;
            w->tally_saddle[w->n_tally++] = terms.saddle;
        }
}

ALWAYS_INLINE void FN(read_row)(const rows_t *rows, int64_t i, work_t *w) {
    FN(read_block)(rows, &i, 1, &w->block);
    FN(take_up)(rows, w, 0, i);
}

/* Prefetch the cells of a row needed soon: rows come out of order, and the table exceeds the cache. */
ALWAYS_INLINE void FN(fetch_cells)(const void *cells, int64_t n_bytes) {
    for (int64_t b = 0; b < n_bytes; b += 64) __builtin_prefetch((const char *)cells + b);
}
ALWAYS_INLINE void FN(fetch_row)(const rows_t *rows, const int32_t *z, int64_t i) {
    if (i < 0) return;
    FN(fetch_cells)(z + i, 4);
    FN(fetch_cells)(rows->codes8 + i * rows->n_codes8, rows->n_codes8);
    FN(fetch_cells)(rows->codes16 + i * rows->n_codes16, 2 * rows->n_codes16);
    FN(fetch_cells)(rows->reals + i * rows->n_reals, 8 * rows->n_reals);
    FN(fetch_cells)(rows->tallies + i * rows->n_tallies, 8 * rows->n_tallies);
    FN(fetch_cells)(rows->vectors + i * rows->n_vector, 8 * rows->n_vector);
    FN(fetch_cells)(rows->spells + i * rows->n_spells, 8 * rows->n_spells);
}
