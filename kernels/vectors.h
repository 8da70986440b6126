/* Scores of one row under full-covariance normals (MATH 1, "Real vector"). Included once for every instruction set.
 *
 * A block of D columns has a location of D entries and a lower triangle U of D (D + 1) / 2, packed by rows: (0,0), (1,0),
 * (1,1), (2,0) ... Each entry is an array over clusters. The log density is constant - 1/2 |U (x - location)|^2, that of
 * the collapsed clusters' Student t constant - half log(1 + |U (x - location)|^2).
 * Cost per row and cluster: D (D + 1) / 2 multiplications, additions and loads.
 */

/* the row's cells, and which of its blocks are there; a block with a missing cell is missing */
ALWAYS_INLINE void FN(read_vectors)(const rows_t *rows, int64_t i, work_t *w) {
    const double *x = w->vector_x = rows->vectors + i * rows->n_vector;
    w->n_vector = 0;
    for (int64_t b = 0; b < rows->n_blocks; x += rows->widths[b++]) {
        int missing = 0, infinite = 0;
        for (int64_t d = 0; d < rows->widths[b]; d++) {
            missing |= x[d] != x[d];
            infinite |= !(x[d] - x[d] == 0);
        }
        w->vector_seen[b] = !missing;
        w->n_vector += !missing;
        w->infinite |= infinite & !missing;
    }
}

/* |U (x - location)|^2 of a vector of clusters, to whose first one location and factor point. Four rows of U at a time
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
#undef AT

/* blocks of columns under given parameters */
APART void FN(add_vectors)(const instantiated_t *g, const rows_t *rows, const work_t *w, double *out, int64_t n) {
    const double *location = g->vector_location, *factor = g->vector_factor, *x = w->vector_x;
    for (int64_t b = 0; b < rows->n_blocks; b++) {
        int64_t width = rows->widths[b];
        const double *constant = g->vector_constant + b * g->base;
        for (int64_t k = 0; w->vector_seen[b] && k < n; k += N_DOUBLE)
            *(vd *)(out + k) += *(const vd *)(constant + k)
                                - 0.5 * FN(square_norm)(location + k, factor + k, g->base, x, width);
        x += width, location += width * g->base, factor += width * (width + 1) / 2 * g->base;
    }
}

/* the same in the tail. The norm is capped at 1e300, as in `student`, and so is what overflowed on the way. */
APART void FN(add_vectors_student)(const tail_t *t, const work_t *w, double *out, int64_t n) {
    const double *location = t->v_location, *factor = t->v_factor, *x = w->vector_x;
    int64_t stride = t->capacity;
    for (int64_t b = 0; b < t->n_blocks; b++) {
        int64_t width = t->widths[b];
        const double *half = t->v_half + b * stride, *constant = t->v_constant + b * stride;
        for (int64_t k = 0; w->vector_seen[b] && k < n; k += N_DOUBLE) {
            vd y = FN(square_norm)(location + k, factor + k, stride, x, width);
            y = SELECT(y < 1e300, y, SPREAD(1e300));
            *(vd *)(out + k) += *(const vd *)(constant + k) - *(const vd *)(half + k) * vlog(y + 1.0);
        }
        x += width, location += width * stride, factor += width * (width + 1) / 2 * stride;
    }
}
