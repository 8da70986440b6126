/* Blocks of full-covariance normal columns in the collapsed clusters: statistics, and quantities derived from them
 * (docs/math.md 1.6). Included once for every instruction set (every_isa.h).
 *
 * With n rows in a cluster, kappa_n = kappa_0 + n, nu_n = nu_0 + n, S_n = L L' the matrix of the posterior and m_n its
 * location, the next row is a Student t: constant - half log(1 + |U (x - m_n)|^2), half = (nu_n + 1) / 2,
 *     U = sqrt(kappa_n / (kappa_n + 1)) L^-1
 *     constant = log Gamma((nu_n + 1) / 2) - log Gamma((nu_n + 1 - D) / 2) - D/2 log(pi (kappa_n + 1) / kappa_n)
 *                - 1/2 log|S_n|
 * If a block's first column is given, its own density, with one degree of freedom less, is removed: D is then the
 * number of the other columns, |S_n| without the first pivot, and (half - 1/2) log(1 + y^2) is added, y the first of
 * U's. A row's step rewrites one slot in O(D^3); its own slot is scored without it in O(D^2). S_0 is diagonal, and no
 * pivot of S_n is less than its entry, so that rounding cannot make it singular.
 */

/* log Gamma(y + steps / 2) - log Gamma(y), y > 0 */
static double FN(log_gamma_steps)(double y, int64_t steps) {
    double sum = steps & 1 ? log_gamma_half_step(y + (double)(steps / 2)) : 0.0, product = 1.0;
    for (int64_t j = 0; j < steps / 2; j++) {
        product *= y + (double)j;
        if ((j & 7) == 7) sum += log_positive(product), product = 1.0;
    }
    return sum + log_positive(product);
}

/* The posterior of one block from contiguous statistics: location (D) and the packed triangle of S_n, then of U.
 * `spread` is the diagonal of S_0. Returns log|S_n|, without the first pivots that are `given`. */
static double FN(fit_vector)(const double *mean0, const double *spread, double kappa0, int64_t width, int64_t given,
                             int64_t n, const double *mean, const double *scatter, double *location, double *u) {
    double kappa = kappa0 + n, weight = n * kappa0 / kappa, log_determinant = 0;
    double scale = sqrt(kappa / (kappa + 1.0));
    double *row = u;
    for (int64_t i = 0; i < width; row += ++i) {
        double off = n ? mean[i] - mean0[i] : 0.0;
        location[i] = mean0[i] + off * (n / kappa);
        for (int64_t j = 0; j <= i; j++) {
            double other = n ? mean[j] - mean0[j] : 0.0;
            row[j] = scatter[row - u + j] + weight * (off * other);
        }
        row[i] += spread[i];
        if (row[i] > 1e300) row[i] = 1e300; /* as in student_of: a very wide cluster, not an infinite one */
    }
    uint64_t put_right = 0; /* corrected pivots, a bit per column */
    row = u;
    for (int64_t i = 0; i < width; row += ++i) { /* S = L L', by rows; L takes its place, its diagonal inverted */
        double *above = u;
        double pivot = row[i];
        for (int64_t j = 0; j < i; above += ++j) {
            double sum = row[j];
            for (int64_t l = 0; l < j; l++) sum -= row[l] * above[l];
            row[j] = put_right >> j & 1 ? 0.0 : sum * above[j]; /* below such a pivot there is only rounding */
            pivot -= row[j] * row[j];
        }
        if (!(pivot > spread[i])) pivot = spread[i], put_right |= (uint64_t)1 << i;
        if (i >= given) log_determinant += log_positive(pivot);
        row[i] = 1.0 / sqrt(pivot);
    }
    row = u;
    for (int64_t i = 0; i < width; row += ++i) { /* L^-1 by rows: row i is -1/L_ii sum_l L_il (L^-1)_l. */
        for (int64_t j = 0; j < i; j++) {
            double sum = 0;
            const double *inverse = u + j * (j + 1) / 2;
            for (int64_t l = j; l < i; inverse += ++l) sum += row[l] * inverse[j];
            row[j] = -sum * row[i]; /* entries of L left of j are no longer needed */
        }
    }
    for (int64_t e = 0; e < width * (width + 1) / 2; e++) u[e] *= scale;
    return log_determinant;
}

/* Start of block b among the entries of locations and of triangles. */
ALWAYS_INLINE void FN(block_start)(const tail_t *t, int64_t b, int64_t *entry, int64_t *pair) {
    *entry = *pair = 0;
    for (int64_t a = 0; a < b; a++) *entry += t->widths[a], *pair += t->widths[a] * (t->widths[a] + 1) / 2;
}

ALWAYS_INLINE void FN(gather)(const double *from, int64_t stride, int64_t n, double *to) {
    for (int64_t e = 0; e < n; e++) to[e] = from[e * stride];
}
ALWAYS_INLINE void FN(spread_out)(const double *from, int64_t n, double *to, int64_t stride) {
    for (int64_t e = 0; e < n; e++) to[e * stride] = from[e];
}

/* Derive the quantities of one block and slot; scratch: two locations and two triangles. */
static void FN(derive_vector)(tail_t *t, work_t *w, int64_t b, int64_t slot) {
    int64_t stride = t->capacity, entry, pair, at = b * stride + slot, width = t->widths[b];
    int64_t n_pairs = width * (width + 1) / 2, given = t->given[b], scored = width - given;
    FN(block_start)(t, b, &entry, &pair);
    double *mean = w->vector_scratch, *location = mean + width, *scatter = location + width, *u = scatter + n_pairs;
    double kappa = t->wishart[2 * b] + t->vector_n[at], nu = t->wishart[2 * b + 1] + t->vector_n[at], determinant;
    FN(gather)(t->vector_mean + entry * stride + slot, stride, width, mean);
    FN(gather)(t->vector_scatter + pair * stride + slot, stride, n_pairs, scatter);
    determinant = FN(fit_vector)(t->v_mean + entry, t->v_spread + entry, t->wishart[2 * b], width, given,
                                 t->vector_n[at], mean, scatter, location, u);
    FN(spread_out)(location, width, t->v_location + entry * stride + slot, stride);
    FN(spread_out)(u, n_pairs, t->v_factor + pair * stride + slot, stride);
    t->v_half[at] = 0.5 * (nu + 1.0);
    t->v_constant[at] = FN(log_gamma_steps)(0.5 * (nu + 1.0 - scored), scored)
                        - 0.5 * (scored * (LOG_PI + log_positive((kappa + 1.0) / kappa)) + determinant);
    t->v_without[at] = 0.0;
    if (t->vector_n[at]) /* |S_n| is still that of all rows */
        t->v_without[at] = FN(log_gamma_steps)(0.5 * (nu - scored), scored)
                           - 0.5 * (scored * (LOG_PI + log_positive(kappa / (kappa - 1.0))) + determinant);
}

/* Statistics of one block without row x, all contiguous: the inverse of Welford's step. Squares stay at or above 0, the
 * last row leaves exact zeros. */
ALWAYS_INLINE void FN(without_vector)(int64_t n, const double *x, int64_t width, double *mean, double *scatter) {
    double *row = scatter;
    double after[VECTOR_MOST];
    for (int64_t i = 0; i < width; i++) {
        after[i] = x[i] - mean[i];
        mean[i] = n > 1 ? mean[i] - after[i] / (n - 1) : 0.0;
    }
    for (int64_t i = 0; i < width; row += ++i) {
        for (int64_t j = 0; j <= i; j++) row[j] = n > 1 ? row[j] - after[i] * (x[j] - mean[j]) : 0.0;
        if (!(row[i] > 0)) row[i] = 0;
    }
}
ALWAYS_INLINE void FN(with_vector)(int64_t n, const double *x, int64_t width, double *mean, double *scatter) {
    double *row = scatter;
    double before[VECTOR_MOST];
    for (int64_t i = 0; i < width; i++) {
        before[i] = x[i] - mean[i];
        mean[i] += before[i] / (n + 1);
    }
    for (int64_t i = 0; i < width; row += ++i)
        for (int64_t j = 0; j <= i; j++) row[j] += before[i] * (x[j] - mean[j]);
}

/* The row's blocks enter (sign = +1) or leave (sign = -1) a slot. */
static void FN(step_vectors)(tail_t *t, work_t *w, int64_t slot, int sign) {
    int64_t stride = t->capacity, entry = 0, pair = 0;
    for (int64_t b = 0; b < t->n_blocks; b++) {
        int64_t width = t->widths[b], n_pairs = width * (width + 1) / 2, at = b * stride + slot;
        double *mean = w->vector_scratch, *scatter = mean + 2 * width;
        if (w->vector_seen[b]) {
            FN(gather)(t->vector_mean + entry * stride + slot, stride, width, mean);
            FN(gather)(t->vector_scatter + pair * stride + slot, stride, n_pairs, scatter);
            if (sign > 0) FN(with_vector)(t->vector_n[at], w->vector_x + entry, width, mean, scatter);
            else FN(without_vector)(t->vector_n[at], w->vector_x + entry, width, mean, scatter);
            t->vector_n[at] += sign;
            FN(spread_out)(mean, width, t->vector_mean + entry * stride + slot, stride);
            FN(spread_out)(scatter, n_pairs, t->vector_scatter + pair * stride + slot, stride);
            FN(derive_vector)(t, w, b, slot);
        }
        entry += width, pair += n_pairs;
    }
}

/* Log predictive of the row's own slot without the row. With t = kappa_n / (kappa_n - 1) (x - m_n)' S_n^-1 (x - m_n),
 * the determinant without the row is |S_n| (1 - t). If the row makes up nearly all of its cluster's spread, 1 - t
 * cancels and the posterior without it is computed. */
static double FN(own_vectors)(const tail_t *t, work_t *w, int64_t slot) {
    int64_t stride = t->capacity, entry = 0, pair = 0;
    double score = 0;
    for (int64_t b = 0; b < t->n_blocks; b++) {
        int64_t width = t->widths[b], n_pairs = width * (width + 1) / 2, at = b * stride + slot, n = t->vector_n[at];
        if (w->vector_seen[b]) {
            const double *x = w->vector_x + entry, *u = t->v_factor + pair * stride + slot;
            int64_t given = t->given[b], scored = width - given;
            double kappa = t->wishart[2 * b] + n, nu = t->wishart[2 * b + 1] + n, norm = 0, left, off[VECTOR_MOST];
            double first, ratio = (kappa + 1.0) / (kappa - 1.0);
            for (int64_t i = 0; i < width; i++) off[i] = x[i] - t->v_location[(entry + i) * stride + slot];
            first = *u * off[0];
            for (int64_t i = 0; i < width; i++) {
                double y = 0;
                for (int64_t j = 0; j <= i; j++, u += stride) y += *u * off[j];
                norm += y * y;
            }
            left = 1.0 - ratio * norm; /* U has the factor kappa / (kappa + 1) */
            if (left > 1e-5) {
                score += t->v_without[at] + 0.5 * (nu - 1.0) * log_positive(left);
                if (given) score -= 0.5 * (nu - 2.0) * log_positive(1.0 - ratio * (first * first));
            } else {
                double *mean = w->vector_scratch, *location = mean + width, *scatter = location + width;
                double *without = scatter + n_pairs, y = 0, all = 0, determinant;
                FN(gather)(t->vector_mean + entry * stride + slot, stride, width, mean);
                FN(gather)(t->vector_scatter + pair * stride + slot, stride, n_pairs, scatter);
                FN(without_vector)(n, x, width, mean, scatter);
                determinant = FN(fit_vector)(t->v_mean + entry, t->v_spread + entry, t->wishart[2 * b], width, given,
                                             n - 1, mean, scatter, location, without);
                first = *without * (x[0] - location[0]);
                for (int64_t i = 0; i < width; i++, all += y * y) {
                    y = 0;
                    for (int64_t j = 0; j <= i; j++) y += *without++ * (x[j] - location[j]);
                }
                if (!(all < 1e300)) all = 1e300;
                first *= first;
                if (given) score += 0.5 * (nu - 1.0) * log_positive((first < 1e300 ? first : 1e300) + 1.0);
                score += FN(log_gamma_steps)(0.5 * (nu - scored), scored)
                         - 0.5 * (scored * (LOG_PI + log_positive(kappa / (kappa - 1.0))) + determinant)
                         - 0.5 * nu * log_positive(all + 1.0);
            }
        }
        entry += width, pair += n_pairs;
    }
    return score;
}
