/* What one core can do: the inner loops of a mixture sweep with nothing around them. kernels.py compiles and runs it.
 *
 *     floor CASE FILE ROUNDS     CASE is one of: draw scores tail student counts full
 *
 * FILE is written by kernels.py (`write_problem`): n rows of C codes, D reals and Q counts, the labels they were made
 * from, and log weights and parameters of K clusters, a multiple of 16. Prints the CPU seconds of each of ROUNDS passes
 * over the rows after a first one, and last the share of rows whose label is the one they were made from (1 where no
 * label is drawn).
 *
 *   scores   score of every row under every cluster: table look-ups for codes, a x^2 + b x for reals, c x for counts
 *   draw     the same and the exact draw of a label
 *   tail     codes, collapsed: tables are log(count + 1/2), written where a row moves; the row's own cluster is
 *            scored from the counts without the row, logarithms come from a list
 *   student  reals, collapsed: Student t scores, one logarithm for four columns; parameters as they are
 *   counts   the sweep's counts alone: C increments a row
 *   full     reals with a full covariance in float64: the quadratic form as K weights of the D (D + 3) / 2 features
 *
 * Scores are float32 but for `full`. Rows are taken several at a time, which hides the latency of the sums; tables wider
 * than a tile are cut into tiles, and blocks of rows are scored tile by tile.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "floor.h"

#define BLOCK 64        /* rows scored tile by tile before their labels are drawn */
#define TOGETHER 4      /* rows scored at a time */
#define FULL_ROWS 8 /* rows of a full covariance at a time */
#define WIDE (4 * LANES) /* clusters in a wide tile */

typedef struct {
    int64_t n, n_codes, n_levels, n_reals, n_counts, n_clusters;
    const int64_t *offsets;                      /* (C + 1,) first level row of each column */
    const uint8_t *codes;                        /* (n, C) */
    const float *reals, *counts;                 /* (n, D), (n, Q) */
    const int32_t *labels;                       /* (n,) */
    const float *log_weight;                     /* (K,) with all constants of the cluster */
    const float *table, *square, *linear, *rate; /* (L, K), (D, K), (D, K), (Q, K) */
    const float *location, *scale, *half;        /* (D, K), (D, K), (K,): of Student t */
    const float *constant;                       /* (K,) of Student t, with the log weight */
    const double *quadratic;                     /* (D (D + 3) / 2, K) */
    int32_t *z;                                  /* (n,) labels drawn */
} problem;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
static void *allocate(size_t n) {
    void *p;
    if (posix_memalign(&p, 64, n + 64)) exit(1);
    return memset(p, 0, n + 64);
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* Tables re-laid tile by tile, [tile][thing][cluster], so that a tile's part is dense. */
typedef struct {
    int64_t width;
    float *weight, *table, *square, *linear, *rate;
} tiles;

static float *in_tiles(const float *from, int64_t n_things, int64_t n_clusters, int64_t width) {
    float *to = allocate(4 * n_things * n_clusters);
    for (int64_t i = 0; i < n_things; i++)
        for (int64_t k = 0; k < n_clusters; k++)
            to[(k / width * n_things + i) * width + k % width] = from[i * n_clusters + k];
    return to;
}
static tiles cut(const problem *p) {
    int64_t k = p->n_clusters, width = k % WIDE ? 16 : WIDE;
    return (tiles){width, in_tiles(p->log_weight, 1, k, width), in_tiles(p->table, p->n_levels, k, width),
                   in_tiles(p->square, p->n_reals, k, width), in_tiles(p->linear, p->n_reals, k, width),
                   in_tiles(p->rate, p->n_counts, k, width)};
}

/* scores of ROWS rows from row i on under one tile, VECTORS * LANES clusters; out[row * K + cluster] */
#define DEFINE_SCORE(NAME, ROWS, VECTORS)                                                                              \
    INLINE void NAME(const problem *p, const tiles *t, int64_t tile, int64_t i, float *restrict out) {                 \
        const int64_t width = (VECTORS) * LANES, n_codes = p->n_codes, n_reals = p->n_reals, n_counts = p->n_counts;   \
        const float *table = t->table + tile * p->n_levels * width;                                                    \
        const vf *square = (const vf *)(t->square + tile * n_reals * width);                                           \
        const vf *linear = (const vf *)(t->linear + tile * n_reals * width);                                           \
        const vf *rate = (const vf *)(t->rate + tile * n_counts * width);                                              \
        const vf *weight = (const vf *)(t->weight + tile * width);                                                     \
        vf sum[ROWS][VECTORS];                                                                                         \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                                         \
            _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; v++) sum[r][v] = weight[v];                           \
        for (int64_t c = 0; c < n_codes; c++) {                                                                        \
            const float *column = table + p->offsets[c] * width;                                                       \
            _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++) {                                                   \
                const vf *x = (const vf *)(column + p->codes[(i + r) * n_codes + c] * width);                          \
                _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; v++) sum[r][v] += x[v];                           \
            }                                                                                                          \
        }                                                                                                              \
        for (int64_t d = 0; d < n_reals; d++)                                                                          \
            _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; v++) {                                                \
                vf a = square[d * VECTORS + v], b = linear[d * VECTORS + v];                                           \
                _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++) {                                               \
                    float x = p->reals[(i + r) * n_reals + d];                                                         \
                    sum[r][v] += (a * x + b) * x;                                                                      \
                }                                                                                                      \
            }                                                                                                          \
        for (int64_t d = 0; d < n_counts; d++)                                                                         \
            _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; v++) {                                                \
                vf a = rate[d * VECTORS + v];                                                                          \
                _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                                 \
                    sum[r][v] += a * p->counts[(i + r) * n_counts + d];                                                \
            }                                                                                                          \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                                         \
            _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; v++)                                                  \
                *(vf *)(out + r * p->n_clusters + tile * width + v * LANES) = sum[r][v];                               \
    }
DEFINE_SCORE(score_wide, TOGETHER, 4)
DEFINE_SCORE(score_narrow, TOGETHER, 16 / LANES)
DEFINE_SCORE(score_wide_1, 1, 4)
DEFINE_SCORE(score_narrow_1, 1, 16 / LANES)

static void sweep(const problem *p, const tiles *t, float *scores, int with_draw) {
    int64_t k = p->n_clusters, n_tiles = k / t->width;
    for (int64_t first = 0; first < p->n; first += BLOCK) {
        int64_t rows = p->n - first < BLOCK ? p->n - first : BLOCK;
        for (int64_t tile = 0; tile < n_tiles; tile++) {
            int64_t r = 0;
            if (t->width == 16) {
                for (; r + TOGETHER <= rows; r += TOGETHER) score_narrow(p, t, tile, first + r, scores + r * k);
                for (; r < rows; r++) score_narrow_1(p, t, tile, first + r, scores + r * k);
            } else {
                for (; r + TOGETHER <= rows; r += TOGETHER) score_wide(p, t, tile, first + r, scores + r * k);
                for (; r < rows; r++) score_wide_1(p, t, tile, first + r, scores + r * k);
            }
        }
        if (with_draw)
            for (int64_t r = 0; r < rows; r++) p->z[first + r] = draw(scores + r * k, (int)k, uniform());
        else
            p->z[first] = scores[0] > scores[1];
    }
}

/* ---- collapsed --------------------------------------------------------------------------------------------------- */

typedef struct {
    float *table, *without, *norm;  /* (L, K) log(count + 1/2), with one row less; (K,) log n - sum of logs of totals */
    float *log_count, *log_total;   /* lists over counts */
    int32_t *count, *size;          /* (L, K), (K,) */
} collapsed;

INLINE void put(collapsed *s, int64_t at, int32_t count) {
    s->count[at] = count;
    s->table[at] = s->log_count[count];
    s->without[at] = s->log_count[count > 0 ? count - 1 : 0];
}

static collapsed seat_all(const problem *p) {
    int64_t k = p->n_clusters, cells = p->n_levels * k;
    collapsed s = {allocate(4 * cells), allocate(4 * cells), allocate(4 * k), allocate(4 * (p->n + 2)), allocate(4 * (p->n + 2)),
                   allocate(4 * cells), allocate(4 * k)};
    for (int64_t i = 0; i < p->n; i++) {
        p->z[i] = p->labels[i];
        s.size[p->z[i]]++;
        for (int64_t c = 0; c < p->n_codes; c++)
            s.count[(p->offsets[c] + p->codes[i * p->n_codes + c]) * k + p->z[i]]++;
    }
    for (int64_t m = 0; m < p->n + 2; m++) {
        double total = log(m + 1e-3);
        for (int64_t c = 0; c < p->n_codes; c++) total -= log(m + 0.5 * (p->offsets[c + 1] - p->offsets[c]));
        s.log_count[m] = logf(m + 0.5f);
        s.log_total[m] = (float)total;
    }
    for (int64_t j = 0; j < cells; j++) put(&s, j, s.count[j]);
    for (int64_t j = 0; j < k; j++) s.norm[j] = s.log_total[s.size[j]];
    return s;
}

/* one row: sums of VECTORS * LANES clusters, odd and even columns apart for the sake of latency */
#define DEFINE_ADD(NAME, VECTORS)                                                                                      \
    INLINE void NAME(const float *table, int64_t k, const int32_t *level, int64_t n_codes, float *restrict out) {      \
        vf sum[2][VECTORS];                                                                                            \
        _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; v++) {                                                    \
            sum[0][v] = *(vf *)(out + v * LANES);                                                                      \
            sum[1][v] = (vf){0};                                                                                       \
        }                                                                                                              \
        int64_t c = 0;                                                                                                 \
        for (; c + 2 <= n_codes; c += 2)                                                                               \
            _Pragma("GCC unroll 2") for (int j = 0; j < 2; j++)                                                        \
                _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; v++)                                              \
                    sum[j][v] += *(const vf *)(table + level[c + j] * k + v * LANES);                                  \
        if (c < n_codes)                                                                                               \
            _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; v++)                                                  \
                sum[0][v] += *(const vf *)(table + level[c] * k + v * LANES);                                          \
        _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; v++) *(vf *)(out + v * LANES) = sum[0][v] + sum[1][v];    \
    }
DEFINE_ADD(add_wide, 4)
DEFINE_ADD(add_narrow, 16 / LANES)

static void tail_sweep(const problem *p, collapsed *s, float *out) {
    int64_t k = p->n_clusters, n_codes = p->n_codes;
    int32_t level[n_codes];
    for (int64_t i = 0; i < p->n; i++) {
        int64_t old = p->z[i], j = 0;
        float own[4] = {s->log_total[s->size[old] - 1], 0, 0, 0};
        for (int64_t c = 0; c < n_codes; c++) level[c] = (int32_t)p->offsets[c] + p->codes[i * n_codes + c];
        memcpy(out, s->norm, 4 * k);
        for (; j + WIDE <= k; j += WIDE) add_wide(s->table + j, k, level, n_codes, out + j);
        for (; j < k; j += 16) add_narrow(s->table + j, k, level, n_codes, out + j);
        int64_t c = 0;
        for (; c + 4 <= n_codes; c += 4)
            for (int m = 0; m < 4; m++) own[m] += s->without[level[c + m] * k + old];
        for (; c < n_codes; c++) own[0] += s->without[level[c] * k + old];
        out[old] = (own[0] + own[1]) + (own[2] + own[3]);
        int64_t new = draw(out, (int)k, uniform());
        if (new == old) continue;
        p->z[i] = (int32_t)new;
        s->norm[old] = s->log_total[--s->size[old]];
        s->norm[new] = s->log_total[++s->size[new]];
        for (int64_t c = 0; c < n_codes; c++) {
            int64_t at = level[c] * k;
            put(s, at + old, s->count[at + old] - 1);
            put(s, at + new, s->count[at + new] + 1);
        }
    }
}

static void student_sweep(const problem *p, float *out) {
    int64_t k = p->n_clusters, n_reals = p->n_reals;
    for (int64_t i = 0; i < p->n; i++) {
        const float *x = p->reals + i * n_reals;
        for (int64_t j = 0; j < k; j += LANES) {
            vf logs = (vf){0};
            for (int64_t d = 0; d < n_reals; d += 4) {
                vf product = (vf){0} + 1.0f;
                for (int64_t e = d; e < n_reals && e < d + 4; e++) {
                    vf u = (x[e] - *(const vf *)(p->location + e * k + j)) * *(const vf *)(p->scale + e * k + j);
                    vf y = u * u + 1.0f;
                    product *= smaller(y, (vf){0} + 1e9f);
                }
                logs += logarithm(product);
            }
            *(vf *)(out + j) = *(const vf *)(p->constant + j) - *(const vf *)(p->half + j) * logs;
        }
        p->z[i] = draw(out, (int)k, uniform());
    }
}

/* `dense` is [cluster][level], so that the counts a row raises lie close together; turned at the end */
static void count_all(const problem *p, int32_t *restrict dense, int32_t *restrict count) {
    int64_t k = p->n_clusters, n_codes = p->n_codes;
    memset(dense, 0, 4 * k * p->n_levels);
    for (int64_t i = 0; i < p->n; i++) {
        int32_t *own = dense + p->labels[i] * p->n_levels;
        for (int64_t c = 0; c < n_codes; c++) own[p->offsets[c] + p->codes[i * n_codes + c]]++;
    }
    for (int64_t v = 0; v < p->n_levels; v++)
        for (int64_t j = 0; j < k; j++) count[v * k + j] = dense[j * p->n_levels + v];
}

/* ---- full covariance --------------------------------------------------------------------------------------------- */

static void full_sweep(const problem *p, double *features, double *scores, float *out) {
    int64_t k = p->n_clusters, n_reals = p->n_reals, n_features = n_reals * (n_reals + 3) / 2;
    for (int64_t i = 0; i + FULL_ROWS <= p->n; i += FULL_ROWS) {
        for (int r = 0; r < FULL_ROWS; r++) {
            const float *x = p->reals + (i + r) * n_reals;
            double *f = features + r;
            for (int64_t a = 0; a < n_reals; a++, f += FULL_ROWS) *f = x[a];
            for (int64_t a = 0; a < n_reals; a++)
                for (int64_t b = a; b < n_reals; b++, f += FULL_ROWS) *f = (double)x[a] * x[b];
        }
        for (int64_t j = 0; j < k; j += 2 * LANES64) {
            vd sum[FULL_ROWS][2];
            _Pragma("GCC unroll 16") for (int r = 0; r < FULL_ROWS; r++) sum[r][0] = sum[r][1] = (vd){0};
            for (int64_t f = 0; f < n_features; f++) {
                const vd *w = (const vd *)(p->quadratic + f * k + j);
                _Pragma("GCC unroll 16") for (int r = 0; r < FULL_ROWS; r++) {
                    double x = features[f * FULL_ROWS + r];
                    sum[r][0] += w[0] * x;
                    sum[r][1] += w[1] * x;
                }
            }
            _Pragma("GCC unroll 16") for (int r = 0; r < FULL_ROWS; r++) {
                *(vd *)(scores + r * k + j) = sum[r][0];
                *(vd *)(scores + r * k + j + LANES64) = sum[r][1];
            }
        }
        for (int r = 0; r < FULL_ROWS; r++) {
            for (int64_t j = 0; j < k; j++) out[j] = (float)(scores[r * k + j] + p->log_weight[j]);
            p->z[i + r] = draw(out, (int)k, uniform());
        }
    }
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static const char *take(const char **at, size_t n) { /* arrays are padded to 64 bytes in the file */
    const char *here = *at;
    *at += (n + 63) / 64 * 64;
    return here;
}

static problem read_problem(const char *name) {
    FILE *file = fopen(name, "rb");
    if (!file) exit(2);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    char *block = allocate(size);
    rewind(file);
    if (fread(block, 1, size, file) != size) exit(2);
    fclose(file);
    const char *at = block;
    const int64_t *head = (const int64_t *)take(&at, 48);
    problem p = {head[0], head[1], head[2], head[3], head[4], head[5]};
    size_t n = p.n, k = p.n_clusters, d = p.n_reals;
    p.offsets = (const int64_t *)take(&at, 8 * (p.n_codes + 1));
    p.codes = (const uint8_t *)take(&at, n * p.n_codes);
    p.reals = (const float *)take(&at, 4 * n * d);
    p.counts = (const float *)take(&at, 4 * n * p.n_counts);
    p.labels = (const int32_t *)take(&at, 4 * n);
    p.log_weight = (const float *)take(&at, 4 * k);
    p.table = (const float *)take(&at, 4 * p.n_levels * k);
    p.square = (const float *)take(&at, 4 * d * k);
    p.linear = (const float *)take(&at, 4 * d * k);
    p.rate = (const float *)take(&at, 4 * p.n_counts * k);
    p.location = (const float *)take(&at, 4 * d * k);
    p.scale = (const float *)take(&at, 4 * d * k);
    p.half = (const float *)take(&at, 4 * k);
    p.constant = (const float *)take(&at, 4 * k);
    p.quadratic = (const double *)take(&at, 8 * (d * (d + 3) / 2) * k);
    p.z = allocate(4 * n);
    return p;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    const char *what = argv[1];
    problem p = read_problem(argv[2]);
    int rounds = atoi(argv[3]);
    int64_t k = p.n_clusters;
    tiles t = cut(&p);
    float *out = allocate(4 * BLOCK * k);
    double *features = allocate(8 * FULL_ROWS * (p.n_reals * (p.n_reals + 3) / 2));
    double *scores = allocate(8 * FULL_ROWS * k);
    int32_t *dense = allocate(4 * k * p.n_levels);
    collapsed s = seat_all(&p);
    for (int round = -1; round < rounds; round++) {
        double began = seconds();
        if (!strcmp(what, "draw")) sweep(&p, &t, out, 1);
        else if (!strcmp(what, "scores")) sweep(&p, &t, out, 0);
        else if (!strcmp(what, "tail")) tail_sweep(&p, &s, out);
        else if (!strcmp(what, "student")) student_sweep(&p, out);
        else if (!strcmp(what, "counts")) count_all(&p, dense, s.count);
        else if (!strcmp(what, "full")) full_sweep(&p, features, scores, out);
        else return 2;
        if (round >= 0) printf("%.9f ", seconds() - began);
    }
    int64_t same = 0;
    if (!strcmp(what, "scores") || !strcmp(what, "counts")) p.z = (int32_t *)p.labels; /* no label is drawn */
    for (int64_t i = 0; i < p.n; i++) same += p.z[i] == p.labels[i];
    printf("%.4f\n", (double)same / p.n);
    return 0;
}
