/* Scores of rows under full-covariance normals (docs/math.md 1.6). Included once for every instruction set.
 *
 * A block of D columns has a location of D entries and a lower triangle U of D (D + 1) / 2, packed by rows: (0,0), (1,0),
 * (1,1), (2,0) ... Each entry is an array over clusters. The log density is constant - 1/2 |U (x - location)|^2, that of
 * the collapsed clusters' Student t constant - half log(1 + |U (x - location)|^2).
 * Cost per row and cluster: D (D + 1) / 2 multiplications, additions and loads.
 */

/* |U (x - location)|^2 for a vector of clusters; location and factor point to the first one. Four rows of U at a time
 * share the loads of x - location; every sum runs over the columns in order. */
#define AT(entry) (*(const vd *)(entry))
ALWAYS_INLINE vd FN(square_norm)(const double *location, const double *factor, int64_t stride, const double *x,
                                 int64_t width) {
    vd d[VECTOR_MOST], sum = {0};
    int64_t i = 0;
    for (int64_t j = 0; j < width; j++) d[j] = x[j] - AT(location + j * stride);
    for (; i + 4 <= width; i += 4) {
        const double *f0 = factor, *f1 = f0 + (i + 1) * stride, *f2 = f1 + (i + 2) * stride;
        const double *f3 = f2 + (i + 3) * stride;
        vd y0 = AT(f0) * d[0], y1 = AT(f1) * d[0], y2 = AT(f2) * d[0], y3 = AT(f3) * d[0];
        for (int64_t j = 1; j <= i; j++) {
            y0 += AT(f0 + j * stride) * d[j];
            y1 += AT(f1 + j * stride) * d[j];
            y2 += AT(f2 + j * stride) * d[j];
            y3 += AT(f3 + j * stride) * d[j];
        }
        f1 += (i + 1) * stride, f2 += (i + 1) * stride, f3 += (i + 1) * stride;
        y1 += AT(f1) * d[i + 1];
        y2 += AT(f2) * d[i + 1];
        y3 += AT(f3) * d[i + 1];
        y2 += AT(f2 + stride) * d[i + 2];
        y3 += AT(f3 + stride) * d[i + 2];
        y3 += AT(f3 + 2 * stride) * d[i + 3];
        sum = (((sum + y0 * y0) + y1 * y1) + y2 * y2) + y3 * y3;
        factor = f3 + 3 * stride;
    }
    for (; i < width; i++) {
        vd y = AT(factor) * d[0];
        for (int64_t j = 1; j <= i; j++) y += AT(factor + j * stride) * d[j];
        sum += y * y;
        factor += (i + 1) * stride;
    }
    return sum;
}

/* the same for four rows, which share the loads of U */
ALWAYS_INLINE void FN(square_norms_4)(const double *location, const double *factor, int64_t stride,
                                      const double *const *x, int64_t width, vd *sum) {
    vd d[VECTOR_MOST][4];
    int64_t i = 0;
    for (int64_t j = 0; j < width; j++) {
        vd m = AT(location + j * stride);
        UNROLL for (int r = 0; r < 4; r++) d[j][r] = x[r][j] - m;
    }
    UNROLL for (int r = 0; r < 4; r++) sum[r] = (vd){0};
    for (; i + 2 <= width; i += 2) {
        const double *f0 = factor, *f1 = f0 + (i + 1) * stride;
        vd y0[4], y1[4], last = AT(f1 + (i + 1) * stride);
        UNROLL for (int r = 0; r < 4; r++) y0[r] = AT(f0) * d[0][r], y1[r] = AT(f1) * d[0][r];
        for (int64_t j = 1; j <= i; j++) {
            vd u0 = AT(f0 + j * stride), u1 = AT(f1 + j * stride);
            UNROLL for (int r = 0; r < 4; r++) y0[r] += u0 * d[j][r], y1[r] += u1 * d[j][r];
        }
        UNROLL for (int r = 0; r < 4; r++) {
            y1[r] += last * d[i + 1][r];
            sum[r] = (sum[r] + y0[r] * y0[r]) + y1[r] * y1[r];
        }
        factor = f1 + (i + 2) * stride;
    }
    if (i == width) return;
    vd y[4];
    UNROLL for (int r = 0; r < 4; r++) y[r] = AT(factor) * d[0][r];
    for (int64_t j = 1; j <= i; j++)
        UNROLL for (int r = 0; r < 4; r++) y[r] += AT(factor + j * stride) * d[j][r];
    UNROLL for (int r = 0; r < 4; r++) sum[r] += y[r] * y[r];
}
#undef AT

/* Rows of a block in which block b of columns, whose first column is `column`, is observed: their cells and the
 * addresses of their scores. Returns their number. */
ALWAYS_INLINE int64_t FN(rows_with)(const block_t *block, int64_t n_blocks, int64_t b, int64_t column, double *out,
                                    int64_t stride, const double **x, double **to) {
    int64_t n = 0;
    for (int64_t j = 0; j < block->n; j++)
        if (block->vectors_seen[j * n_blocks + b]) x[n] = block->vectors[j] + column, to[n++] = out + j * stride;
    return n;
}

/* one block of columns under given parameters */
#define VECTOR_SCORE(to, norm) *(vd *)((to) + k) += *(const vd *)(constant + k) - 0.5 * (norm)
APART void FN(add_vector_4)(const double *location, const double *factor, const double *constant, int64_t base,
                            const double *const *x, int64_t width, double *const *to, int64_t n) {
    for (int64_t k = 0; k < n; k += N_DOUBLE) {
        vd norm[4];
        FN(square_norms_4)(location + k, factor + k, base, x, width, norm);
        UNROLL for (int r = 0; r < 4; r++) VECTOR_SCORE(to[r], norm[r]);
    }
}
APART void FN(add_vector_1)(const double *location, const double *factor, const double *constant, int64_t base,
                            const double *x, int64_t width, double *to, int64_t n) {
    for (int64_t k = 0; k < n; k += N_DOUBLE)
        VECTOR_SCORE(to, FN(square_norm)(location + k, factor + k, base, x, width));
}
/* The same for four rows of a line: a block of two whose first row of U is 0 in every cluster, as in no other block. */
APART void FN(add_line_4)(const double *location, const double *factor, const double *constant, int64_t base,
                          const double *const *x, double *const *to, int64_t n) {
    for (int64_t k = 0; k < n; k += N_DOUBLE) {
        const vd at0 = *(const vd *)(location + k), at1 = *(const vd *)(location + base + k);
        const vd slope = *(const vd *)(factor + base + k), root = *(const vd *)(factor + 2 * base + k);
        UNROLL for (int r = 0; r < 4; r++) {
            vd y = slope * (x[r][0] - at0) + root * (x[r][1] - at1);
            VECTOR_SCORE(to[r], y * y);
        }
    }
}
#undef VECTOR_SCORE

static void FN(add_vectors)(const instantiated_t *g, const rows_t *rows, const block_t *block, double *out,
                            int64_t stride, int64_t n) {
    const double *location = g->vector_location, *factor = g->vector_factor, *constant = g->vector_constant;
    const double *x[BLOCK];
    double *to[BLOCK];
    int64_t column = 0;
    for (int64_t b = 0; b < rows->n_blocks; b++) {
        int64_t width = rows->widths[b], i = 0;
        int64_t n_rows = FN(rows_with)(block, rows->n_blocks, b, column, out, stride, x, to);
        int is_line = width == 2 && n && factor[0] == 0.0;
        for (; is_line && i + 4 <= n_rows; i += 4) FN(add_line_4)(location, factor, constant, g->base, x + i, to + i, n);
        for (; i + 4 <= n_rows; i += 4) FN(add_vector_4)(location, factor, constant, g->base, x + i, width, to + i, n);
        for (; i < n_rows; i++) FN(add_vector_1)(location, factor, constant, g->base, x[i], width, to[i], n);
        column += width, location += width * g->base, factor += width * (width + 1) / 2 * g->base, constant += g->base;
    }
}

/* The same in the tail. The norm is capped at 1e300, as in `student`, and so are overflows on the way. */
ALWAYS_INLINE void FN(vector_student)(double *to, vd norm, const double *half, const double *constant) {
    vd y = SELECT(norm < 1e300, norm, SPREAD(1e300));
    *(vd *)to += *(const vd *)constant - *(const vd *)half * vlog(y + 1.0);
}
/* Remove the density of a block's first column, if it is given. */
ALWAYS_INLINE void FN(without_first)(double *to, const double *x, const double *location, const double *factor,
                                     const double *half) {
    vd y = *(const vd *)factor * (x[0] - *(const vd *)location);
    y *= y;
    y = SELECT(y < 1e300, y, SPREAD(1e300));
    *(vd *)to += (*(const vd *)half - 0.5) * vlog(y + 1.0);
}
APART void FN(add_vector_student_4)(const tail_t *t, int64_t b, int64_t column, int64_t pair, const double *const *x,
                                    double *const *to, int64_t n) {
    const double *location = t->v_location + column * t->capacity, *factor = t->v_factor + pair * t->capacity;
    const double *half = t->v_half + b * t->capacity, *constant = t->v_constant + b * t->capacity;
    for (int64_t k = 0; k < n; k += N_DOUBLE) {
        vd norm[4];
        FN(square_norms_4)(location + k, factor + k, t->capacity, x, t->widths[b], norm);
        UNROLL for (int r = 0; r < 4; r++) FN(vector_student)(to[r] + k, norm[r], half + k, constant + k);
        if (t->given[b])
            for (int r = 0; r < 4; r++) FN(without_first)(to[r] + k, x[r], location + k, factor + k, half + k);
    }
}
APART void FN(add_vector_student_1)(const tail_t *t, int64_t b, int64_t column, int64_t pair, const double *x,
                                    double *to, int64_t n) {
    const double *location = t->v_location + column * t->capacity, *factor = t->v_factor + pair * t->capacity;
    const double *half = t->v_half + b * t->capacity, *constant = t->v_constant + b * t->capacity;
    for (int64_t k = 0; k < n; k += N_DOUBLE) {
        vd norm = FN(square_norm)(location + k, factor + k, t->capacity, x, t->widths[b]);
        FN(vector_student)(to + k, norm, half + k, constant + k);
        if (t->given[b]) FN(without_first)(to + k, x, location + k, factor + k, half + k);
    }
}

static void FN(add_vectors_student)(const tail_t *t, const block_t *block, double *out, int64_t stride, int64_t n) {
    const double *x[BLOCK];
    double *to[BLOCK];
    int64_t column = 0, pair = 0;
    for (int64_t b = 0; b < t->n_blocks; b++) {
        int64_t i = 0, n_rows = FN(rows_with)(block, t->n_blocks, b, column, out, stride, x, to);
        for (; i + 4 <= n_rows; i += 4) FN(add_vector_student_4)(t, b, column, pair, x + i, to + i, n);
        for (; i < n_rows; i++) FN(add_vector_student_1)(t, b, column, pair, x[i], to[i], n);
        column += t->widths[b], pair += t->widths[b] * (t->widths[b] + 1) / 2;
    }
}
