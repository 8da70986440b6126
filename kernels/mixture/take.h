/* Draw a column for each row of log weights, and the log probability of the draws. Included once for every instruction
 * set.
 *
 * Unlike draw.h, all is float64, and every weight counts: the probability enters the ratio of a move. A row's weights
 * are added up in order, so that no bit depends on the width.
 */

/* weight: room for n_columns rounded up to 8, aligned. given: columns to take instead of drawing by u, or NULL. Returns
 * the sum over rows of log weight minus log total. */
static double FN(take)(const double *terms, int64_t n_rows, int64_t n_columns, const double *u, const int32_t *given,
                       double *weight, int32_t *chosen) {
    int64_t padded = (n_columns + 7) / 8 * 8, i, k;
    double log_q = 0.0;
    for (k = n_columns; k < padded; k++) weight[k] = -INFINITY;
    for (i = 0; i < n_rows; i++, terms += n_columns) {
        memcpy(weight, terms, n_columns * sizeof(double));
        vd top = *(const vd *)weight;
        for (k = N_DOUBLE; k < padded; k += N_DOUBLE) top = MORE(*(const vd *)(weight + k), top);
        top = FN(greatest)(top);
        for (k = 0; k < padded; k += N_DOUBLE) {
            vd *x = (vd *)(weight + k);
            *x = FN(vexp_negative)(*x - top);
        }
        double total = 0.0;
        for (k = 0; k < n_columns; k++) weight[k] = total += weight[k]; /* cumulative */
        if (given) {
            k = given[i];
        } else {
            double target = u[i] * total;
            int64_t below = 0, last = n_columns - 1;
            for (k = 0; k < last; k++) below += weight[k] <= target;
            k = below;
        }
        chosen[i] = (int32_t)k;
        log_q += terms[k] - top[0] - log_positive(total);
        for (k = n_columns; k < padded; k++) weight[k] = -INFINITY;
    }
    return log_q;
}
