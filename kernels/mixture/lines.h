/* Marginal likelihood of a real column that depends linearly on another one (docs/math.md 1.10). Included once for
 * every instruction set, after grids.h.
 */
#define BLOCK 8

/* Log marginal likelihood of cells given their parents' in K clusters, under each of P parents and at each of G points:
 * by_parent[g][p] over all clusters, and added to by_cluster[k] over points and parents. A part that two successive
 * points share is computed once. */
static void FN(line_marginals)(const lines_t *s, double *by_parent, double *by_cluster) {
    double block[6][BLOCK], by_nu[BLOCK], by_kappa[BLOCK], around[BLOCK], score[BLOCK];
    int64_t K = s->n_clusters;
    for (int64_t i = 0; i < s->n_points * s->n_parents; i++) by_parent[i] = 0;
    for (int64_t p = 0; p < s->n_parents; p++)
        for (int64_t k = 0; k < K; k += BLOCK) {
            int64_t width = K - k < BLOCK ? K - k : BLOCK;
            const double *const rows[6] = {s->n, s->u + p * K, s->x, s->uu + p * K, s->ux + p * K, s->xx};
            for (int i = 0; i < 6; i++) FN(load_numbers)(rows[i], k, K, block[i]);
            for (int64_t g = 0; g < s->n_points; g++) {
                const double *h = s->points + 3 * g; /* kappa, nu, variance */
                int new_kappa = !g || h[0] != h[-3], new_nu = !g || h[1] != h[-2];
                vd least = SPREAD(h[1] * h[2]), square = SPREAD(h[0] * h[0] * s->square[p]);
                for (int j = 0; j < BLOCK; j += N_DOUBLE) {
                    vd part[6];
                    for (int i = 0; i < 6; i++) part[i] = *(FN(vd_loose) *)(block[i] + j);
                    vd n = part[0];
                    if (new_kappa) {
                        vd kappa = h[0] + n, weight = n * h[0] / kappa, none = SPREAD(0.0);
                        vd of_u = SELECT(n > 0.0, part[1] - s->middle[p], none);
                        vd of_x = SELECT(n > 0.0, part[2] - s->mean, none);
                        vd first = square + part[3] + weight * of_u * of_u, cross = part[4] + weight * of_u * of_x;
                        vd logs = FN(log_any)(h[0] / kappa) + FN(log_any)(square) - FN(log_any)(first);
                        *(FN(vd_loose) *)(by_kappa + j) = 0.5 * logs;
                        *(FN(vd_loose) *)(around + j) = part[5] + weight * of_x * of_x - cross / first * cross;
                    }
                    if (new_nu) *(FN(vd_loose) *)(by_nu + j) = FN(normal_by_nu)(h[1], n);
                    vd rest = least + *(FN(vd_loose) *)(around + j);
                    rest = SELECT(rest < least, least, rest); /* it is less only by rounding */
                    vd by_rest = h[1] * FN(log_any)(least) - (h[1] + n) * FN(log_any)(rest);
                    vd both = *(FN(vd_loose) *)(by_nu + j) + *(FN(vd_loose) *)(by_kappa + j);
                    *(FN(vd_loose) *)(score + j) = both + 0.5 * by_rest;
                }
                by_parent[g * s->n_parents + p] += FN(sum_block)(score, width);
                for (int64_t j = 0; j < width; j++) by_cluster[k + j] += score[j];
            }
        }
}
#undef BLOCK
