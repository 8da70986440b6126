/* One scan of a launch for one instruction set (every_isa.h).
 *
 * Log odds are float32 sums, each row in a lane of its own, columns in order: no bit depends on the width. Counts are
 * whole numbers. A launch need not be precise, but it has to be reproducible on every rank.
 */
#include "lanes.h"

typedef float FN(vf_loose) __attribute__((vector_size(MB_BYTES), aligned(4), may_alias));
#define BATCHES (TILE / N_FLOAT)
#define IN_ONE (MB_BYTES == 64 ? 16 : MB_BYTES == 32 ? 8 : 0) /* most levels of a look-up in one register */

/* ---- counts */

/* Which of 64 bytes equal v, a bit each. */
ALWAYS_INLINE uint64_t FN(equal)(const uint8_t *byte, uint8_t v) {
#if MB_BYTES == 64
    return _mm512_cmpeq_epi8_mask(_mm512_load_si512(byte), _mm512_set1_epi8((char)v));
#elif MB_BYTES == 32
    const __m256i value = _mm256_set1_epi8((char)v), *at = (const __m256i *)byte;
    uint64_t low = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_load_si256(at), value));
    uint64_t high = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_load_si256(at + 1), value));
    return low | high << 32;
#else
    uint64_t bits = 0;
    for (int i = 0; i < 64; i++) bits |= (uint64_t)(byte[i] == v) << i;
    return bits;
#endif
}

ALWAYS_INLINE int64_t FN(ones)(uint64_t bits) {
#if MB_BYTES > 16
    return __builtin_popcountll(bits);
#else
    bits -= (bits >> 1) & 0x5555555555555555ull;
    bits = (bits & 0x3333333333333333ull) + ((bits >> 2) & 0x3333333333333333ull);
    return (int64_t)((((bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0full) * 0x0101010101010101ull) >> 56);
#endif
}

/* Mark the rows at each level but the last of the columns with marks. */
static void FN(mark_rows)(const packed_t *p, uint64_t *marks) {
    for (int64_t chunk = 0; chunk < p->n_chunks; chunk++) {
        int64_t first = p->start[chunk], height = p->start[chunk + 1] - first, words = height / TILE, c, v, w;
        for (c = 0; c < p->n_codes8; c++) {
            const uint8_t *code = p->codes8 + p->n_codes8 * first + c * height;
            uint64_t *mark = marks + p->marked[p->n_codes8] * first / TILE + p->marked[c] * words;
            for (v = 0; v < p->marked[c + 1] - p->marked[c]; v++, mark += words)
                for (w = 0; w < words; w++) mark[w] = FN(equal)(code + w * TILE, (uint8_t)v);
        }
    }
}

/* Number of rows with a mark among those of the bits. */
ALWAYS_INLINE int64_t FN(both)(const uint64_t *mark, const uint64_t *bits, int64_t words) {
    int64_t n = 0, w = 0;
#if MB_BYTES == 64 /* bits of half bytes, looked up */
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i ones = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    __m512i found = _mm512_setzero_si512();
    for (; w + 8 <= words; w += 8) {
        __m512i x = _mm512_and_si512(_mm512_loadu_si512(mark + w), _mm512_loadu_si512(bits + w));
        __m512i high = _mm512_and_si512(_mm512_srli_epi16(x, 4), low);
        found = _mm512_add_epi8(found, _mm512_shuffle_epi8(ones, _mm512_and_si512(x, low)));
        found = _mm512_add_epi8(found, _mm512_shuffle_epi8(ones, high));
    }
    n = _mm512_reduce_add_epi64(_mm512_sad_epu8(found, _mm512_setzero_si512()));
#endif
    for (; w < words; w++) n += FN(ones)(mark[w] & bits[w]);
    return n;
}

/* Places of the rows of the bits, in order. */
static void FN(places)(const uint64_t *bits, int64_t words, uint16_t *row) {
    for (int64_t w = 0; w < words; w++)
        for (uint64_t rest = bits[w]; rest; rest &= rest - 1) *row++ = (uint16_t)(w * TILE + __builtin_ctzll(rest));
}

static void FN(count_chunk)(const packed_t *p, int64_t chunk, const uint8_t *mask, counts_t out) {
    int64_t first = p->start[chunk], height = p->start[chunk + 1] - first, words = height / TILE, n = 0, c, j, v, w;
    int placed = 0;
    int32_t *cells = out.cells + p->group[chunk] * n_cells(p);
    int64_t *sums = out.sums + p->group[chunk] * n_sums(p);
    int32_t *observed = cells + 1 + p->n_levels;
    uint64_t bits[CHUNK / TILE];
    uint16_t row[CHUNK];
    for (w = 0; w < words; w++) {
        bits[w] = FN(equal)(mask + w * TILE, 255);
        n += FN(ones)(bits[w]);
    }
    if (n == 0) return;
    if (p->n_codes16 + p->n_reals + p->n_tallies > 0) FN(places)(bits, words, row), placed = 1;
    cells[0] += (int32_t)n;
    for (c = 0; c < p->n_codes8; c++) {
        const uint64_t *mark = p->marks + p->marked[p->n_codes8] * first / TILE + p->marked[c] * words;
        int64_t n_marked = p->marked[c + 1] - p->marked[c], rest = n;
        int32_t *level = cells + 1 + p->offsets[c];
        if (n_marked == 0 || 4 * n <= n_marked * (3 * words + 6)) { /* approximate instruction counts of the two ways */
            const uint8_t *code = p->codes8 + p->n_codes8 * first + c * height;
            if (!placed) FN(places)(bits, words, row), placed = 1;
            for (j = 0; j < n; j++) level[code[row[j]]]++;
            continue;
        }
        for (v = 0; v < n_marked; v++, mark += words) {
            int64_t found = FN(both)(mark, bits, words);
            level[v] += (int32_t)found;
            rest -= found;
        }
        level[v] += (int32_t)rest;
    }
    for (c = 0; c < p->n_codes16; c++) {
        const uint16_t *code = p->codes16 + p->n_codes16 * first + c * height;
        int32_t *level = cells + 1 + p->offsets[p->n_codes8 + c];
        for (j = 0; j < n; j++) level[code[row[j]]]++;
    }
    for (c = 0; c < p->n_reals; c++) {
        const int32_t *x = p->reals + p->n_reals * first + c * height;
        for (j = 0; j < n; j++)
            if (x[row[j]] != MISSING_REAL) {
                int64_t y = x[row[j]];
                observed[c]++;
                sums[c] += y;
                sums[p->n_reals + c] += y * y;
            }
    }
    for (c = 0; c < p->n_tallies; c++) {
        const double *x = p->tallies + p->n_tallies * first + c * height;
        double total = 0.0; /* whole numbers below 2^53 */
        for (j = 0; j < n; j++)
            if (x[row[j]] == x[row[j]]) {
                observed[p->n_reals + c]++;
                total += x[row[j]];
            }
        sums[2 * p->n_reals + c] += (int64_t)total;
    }
}

static void FN(count_rows)(const packed_t *p, const uint8_t *mask, counts_t out) {
    for (int64_t chunk = 0; chunk < p->n_chunks; chunk++) FN(count_chunk)(p, chunk, mask + p->start[chunk], out);
}

/* ---- log odds of a group: its two sides, each shrunk to the whole group as if by `shrink` of its rows */

/* work: 3 arrays of n_levels + 8 doubles. table: level rows, then 5 numbers per real column and 2 per tally. */
static void FN(group_odds)(const packed_t *p, const double *beta, double shrink, const int32_t *whole,
                           const int64_t *whole_sums, const int32_t *one, const int64_t *one_sums, const int32_t *zero,
                           const int64_t *zero_sums, double *work, float *table) {
    int64_t n_levels = p->n_levels, c, l, padded = (n_levels + 7) / 8 * 8;
    double *ratio = work;
    for (c = 0; c < p->n_codes8 + p->n_codes16; c++) {
        int64_t from = p->offsets[c], missing = p->offsets[c + 1] - 1;
        double total = 0.0;
        for (l = from; l < missing; l++) total += beta[l];
        double share = shrink / (total + (whole[0] - whole[1 + missing]));
        double n_one = shrink + (one[0] - one[1 + missing]), n_zero = shrink + (zero[0] - zero[1 + missing]);
        for (l = from; l < missing; l++) {
            double mean = share * (beta[l] + whole[1 + l]);
            ratio[l] = ((mean + one[1 + l]) * n_zero) / ((mean + zero[1 + l]) * n_one);
        }
        ratio[missing] = 1.0;
    }
    for (l = n_levels; l < padded; l++) ratio[l] = 1.0;
    FN(log_array)(ratio, padded);
    for (l = 0; l < n_levels; l++) table[l] = (float)ratio[l];

    float *real = table + n_levels;
    const int32_t *whole_n = whole + 1 + n_levels;
    for (c = 0; c < p->n_reals; c++, real += 5) {
        double all = whole_n[c] > 0 ? whole_n[c] : 1, unit = 0x1p-20, location[2], half[2];
        double mean = whole_sums[c] * unit / all;
        double width = (whole_sums[p->n_reals + c] * (unit * unit) - mean * mean * all) / all + 1e-9;
        for (int side = 0; side < 2; side++) {
            const int64_t *sums = side ? one_sums : zero_sums;
            double n = (side ? one : zero)[1 + n_levels + c], share = shrink / (shrink + n);
            double own = n > 0 ? sums[c] * unit / n : mean, step = own - mean;
            double scatter = sums[p->n_reals + c] * (unit * unit) - own * own * n;
            double variance = share * (width + (1.0 - share) * (step * step));
            variance += (scatter > 0 && n > 0 ? scatter : 0.0) / (shrink + n);
            location[side] = mean + (1.0 - share) * step;
            half[side] = 0.5 / (variance > 1e-6 * width ? variance : 1e-6 * width);
        }
        real[0] = (float)(0.5 * log_positive(half[1] / half[0]));
        real[1] = (float)location[1], real[2] = (float)half[1];
        real[3] = (float)location[0], real[4] = (float)half[0];
    }
    for (c = 0; c < p->n_tallies; c++, real += 2) {
        int64_t at = 2 * p->n_reals + c, cell = p->n_reals + c;
        double prior = shrink * ((whole_sums[at] + 0.5) / (whole_n[cell] + 1.0));
        double rate_one = (one_sums[at] + prior) / (shrink + one[1 + n_levels + cell]);
        double rate_zero = (zero_sums[at] + prior) / (shrink + zero[1 + n_levels + cell]);
        real[0] = (float)log_positive(rate_one / rate_zero), real[1] = (float)(rate_one - rate_zero);
    }
}

/* ---- sides of 64 rows */

/* N_FLOAT codes as indices */
#if MB_BYTES == 64
#define INDICES(code) ((vi)_mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(code))))
#elif MB_BYTES == 32
#define INDICES(code) ((vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(code))))
#else
#define INDICES(code) ((void)(code), (vi){0}) /* never called */
#endif

/* x[i] += table[code[i]] for columns c.. while a look-up in registers can serve them; returns the first other one. */
ALWAYS_INLINE int64_t FN(add_small)(const packed_t *p, const uint8_t *code, int64_t height, const float *table,
                                    int64_t c, vf *x) {
    vf sum[BATCHES];
    int i;
    for (i = 0; i < BATCHES; i++) sum[i] = x[i];
    for (; c < p->n_codes8 && p->offsets[c + 1] - p->offsets[c] <= 2 * IN_ONE; c++) {
        const float *t = table + p->offsets[c];
        const uint8_t *at = code + c * height;
        vf low = *(const FN(vf_loose) *)t, high = *(const FN(vf_loose) *)(t + N_FLOAT);
        if (p->offsets[c + 1] - p->offsets[c] <= IN_ONE)
            for (i = 0; i < BATCHES; i++)
                sum[i] += __builtin_shuffle(low, INDICES(at + i * N_FLOAT));
        else
            for (i = 0; i < BATCHES; i++)
                sum[i] += __builtin_shuffle(low, high, INDICES(at + i * N_FLOAT));
    }
    for (i = 0; i < BATCHES; i++) x[i] = sum[i];
    return c;
}

static void FN(score_tile)(const packed_t *p, int64_t first, int64_t height, int64_t j, float prior, const float *table,
                           vf *sums) {
    float *x = (float *)sums;
    const uint8_t *code8 = p->codes8 + p->n_codes8 * first + j;
    const float *real = table + p->n_levels;
    int64_t c = 0;
    int i;
    for (i = 0; i < TILE; i++) x[i] = prior;
    while (c < p->n_codes8) {
        if (IN_ONE) c = FN(add_small)(p, code8, height, table, c, sums);
        for (; c < p->n_codes8 && p->offsets[c + 1] - p->offsets[c] > 2 * IN_ONE; c++)
            for (i = 0; i < TILE; i++) x[i] += table[p->offsets[c] + code8[c * height + i]];
    }
    for (c = 0; c < p->n_codes16; c++) {
        const uint16_t *code = p->codes16 + p->n_codes16 * first + c * height + j;
        for (i = 0; i < TILE; i++) x[i] += table[p->offsets[p->n_codes8 + c] + code[i]];
    }
    for (c = 0; c < p->n_reals; c++, real += 5) {
        const int32_t *y = p->reals + p->n_reals * first + c * height + j;
        for (i = 0; i < TILE; i++) {
            float v = (float)y[i] * 0x1p-20f, d1 = v - real[1], d0 = v - real[3];
            float term = (real[0] - real[2] * (d1 * d1)) + real[4] * (d0 * d0);
            x[i] += y[i] == MISSING_REAL ? 0.0f : term;
        }
    }
    for (c = 0; c < p->n_tallies; c++, real += 2) {
        const double *y = p->tallies + p->n_tallies * first + c * height + j;
        for (i = 0; i < TILE; i++) {
            float v = (float)y[i];
            x[i] += v == v ? v * real[0] - real[1] : 0.0f;
        }
    }
}

/* Side 1 if the uniform of a row's word is below 1 / (1 + exp(-x)). */
ALWAYS_INLINE void FN(take_sides)(const vf *x, const uint16_t *word, const uint8_t *free, uint8_t *side) {
    vi hit[BATCHES];
    vf u[BATCHES];
    for (int i = 0; i < TILE; i++) ((float *)u)[i] = ((float)word[i] + 0.5f) * 0x1p-16f;
    for (int i = 0; i < BATCHES; i++) {
        vi below = x[i] < 0.0f;
        vf e = FN(vexp2)((float)LOG2_E * (vf)(((vi)x[i] | (int32_t)0x80000000)));
        vf bound = (vf)((below & (vi)e) | (~below & (vi)((vf){0} + 1.0f)));
        hit[i] = u[i] * (1.0f + e) < bound;
    }
    for (int i = 0; i < TILE; i++) side[i] = (uint8_t)((((int32_t *)hit)[i] & free[i]) | (side[i] & ~free[i]));
}

/* Every row of group g, in chunks from `chunk` to `end`, takes a side by the odds that the counts of sides `one` and
 * `zero` suggest; rows now on side 1 are added to `out`. zero.cells is NULL if every row has a side. tilt: log odds before any cell is read, or NULL: those of the
 * sides' sizes. */
static void FN(scan_rows)(const packed_t *p, int64_t g, int64_t chunk, int64_t end, int64_t scan, const double *beta,
                          const double *shrink, const double *tilt, counts_t whole, counts_t one, counts_t zero,
                          double *work, float *table, counts_t out) {
    int64_t cells = n_cells(p), sums = n_sums(p), i, j;
    int64_t *rest_sums = (int64_t *)(work + p->n_levels + 8);
    int32_t *rest = (int32_t *)(rest_sums + sums);
    const int32_t *of_whole = whole.cells + g * cells, *of_one = one.cells + g * cells, *of_zero = rest;
    const int64_t *whole_sums = whole.sums + g * sums, *one_sums = one.sums + g * sums, *zero_sums = rest_sums;
    if (zero.cells) {
        of_zero = zero.cells + g * cells, zero_sums = zero.sums + g * sums;
    } else {
        for (i = 0; i < cells; i++) rest[i] = of_whole[i] - of_one[i];
        for (i = 0; i < sums; i++) rest_sums[i] = whole_sums[i] - one_sums[i];
    }
    FN(group_odds)(p, beta, shrink[g], of_whole, whole_sums, of_one, one_sums, of_zero, zero_sums, work, table);
    float prior = (float)(tilt ? tilt[g] : log_positive((double)of_one[0] / of_zero[0]));
    for (; chunk < end; chunk++) {
        int64_t first = p->start[chunk], height = p->start[chunk + 1] - first;
        for (j = 0; j < height; j += TILE) {
            vf x[BATCHES];
            FN(score_tile)(p, first, height, j, prior, table, x);
            FN(take_sides)(x, p->words + scan * p->n_rows + first + j, p->free + first + j, p->side + first + j);
        }
        FN(count_chunk)(p, chunk, p->side + first, out);
    }
}
#undef BATCHES
#undef IN_ONE
#undef INDICES
#include "lanes_end.h"
