/* Missing cells of a column drawn one after another. Included once for every instruction set (turns.h). No sum is
 * reordered, so that no bit depends on the width. */

/* total[k][u] of a column: the sum of counts and pseudo-counts of its levels in context u and cluster k */
static void FN(sum_contexts)(const column_t *d, const int32_t *levels, const double *beta, int64_t K, int64_t most,
                             double *total, double *sum) {
    for (int64_t u = 0; u < d->n_contexts; u++) {
        int64_t from = d->first + u * (d->n_levels + 1);
        for (int64_t k = 0; k < K; k++) sum[k] = 0;
        for (int64_t w = from; w < from + d->n_levels; w++)
            for (int64_t k = 0; k < K; k++) sum[k] += levels[w * K + k] + beta[w];
        for (int64_t k = 0; k < K; k++) total[k * most + u] = sum[k];
    }
}

/* Multiply the weights of n levels by the probability of level w of a child in their contexts, of cluster k. */
static void FN(times_child)(const column_t *d, int64_t w, const int64_t *context, int64_t n, const int32_t *levels,
                            const double *beta, int64_t K, int64_t k, const double *restrict total,
                            double *restrict ratio, double *restrict weight) {
    int64_t step = d->n_levels + 1, first = d->first + w, some = 0;
    for (int64_t u = 0; u < d->n_contexts; u++) ratio[u] = levels[(first + u * step) * K + k] + beta[first + u * step];
    for (int64_t u = 0; u < d->n_contexts; u++) ratio[u] /= total[u];
    for (int64_t v = 0; v < n; v++) weight[v] *= ratio[context[v]];
    for (int64_t v = 0; v < n; v++) some |= weight[v] >= 1e-150;
    for (int64_t v = 0; v < n && !some; v++) weight[v] *= 1e150;
}

/* See turns.fill_in_turn. cells [row][width]: cluster, and levels. children (n_children,): numbers of columns with at
 * most `most` contexts; total [child][K][most], and behind it K values of scratch; ratio (most,), weight (levels,). */
static void FN(fill_in_turn)(philox_stream *words, const column_t *of, int64_t own, const int64_t *children,
                             int64_t n_children, int32_t *cells, int64_t width, const int64_t *at, int64_t n,
                             const int64_t *ids, int32_t *levels, const double *beta, int64_t K, int64_t most,
                             double *total, double *restrict ratio, double *restrict weight) {
    const column_t *me = of + own;
    for (int64_t j = 0; j < n_children; j++)
        FN(sum_contexts)(of + children[j], levels, beta, K, most, total + j * K * most, total + n_children * K * most);
    for (int64_t i = 0; i < n; i++) {
        int32_t *cell = cells + at[i] * width;
        int64_t k = cell[0], u = 0, before = cell[1 + own], after = 0;
        if (k < 0) continue;
        if (me->parent >= 0) {
            if (cell[1 + me->parent] == of[me->parent].n_levels) continue;
            u = of[me->parent].context[cell[1 + me->parent]];
        }
        int64_t from = me->first + u * (me->n_levels + 1);
        int32_t *count = levels + from * K + k;
        const double *b = beta + from;
        count[before * K] -= 1;
        for (int64_t v = 0; v < me->n_levels; v++) weight[v] = count[v * K] + b[v];
        for (int64_t j = 0; j < n_children; j++) {
            const column_t *d = of + children[j];
            int64_t w = cell[1 + children[j]];
            double *of_child = total + (j * K + k) * most;
            if (w == d->n_levels) continue;
            levels[(d->first + me->context[before] * (d->n_levels + 1) + w) * K + k] -= 1;
            of_child[me->context[before]] -= 1.0;
            FN(times_child)(d, w, me->context, me->n_levels, levels, beta, K, k, of_child, ratio, weight);
        }
        double sum = 0.0;
        for (int64_t v = 0; v < me->n_levels; v++) weight[v] = sum += weight[v];
        double target = philox_uniform(philox_word(words, (uint64_t)ids[at[i]])) * sum;
        for (int64_t v = 0; v + 1 < me->n_levels; v++) after += weight[v] <= target;
        cell[1 + own] = (int32_t)after;
        count[after * K] += 1;
        for (int64_t j = 0; j < n_children; j++) {
            const column_t *d = of + children[j];
            int64_t w = cell[1 + children[j]];
            if (w == d->n_levels) continue;
            levels[(d->first + me->context[after] * (d->n_levels + 1) + w) * K + k] += 1;
            total[(j * K + k) * most + me->context[after]] += 1.0;
        }
    }
}
