/* Likelihood of an outcome with a regression in each cluster (docs/math.md 2.16). Included once for every instruction
 * set.
 *
 * eta = theta_0k + u'theta_k + offset for a row in cluster k; terms that are the same in all clusters are omitted. A
 * softmax has such an eta for each level but the first, whose eta is 0. A row's new cluster has one of `n_fresh` coefficient vectors drawn from their prior (Neal 2000, Algorithm 8), or its
 * own if the row is alone: its score uses their mean likelihood, and one is drawn when the cluster is opened.
 */

/* exp(x), x <= 0: exp_negative, lane by lane */
ALWAYS_INLINE vd FN(vexp_negative)(vd x) {
    vd t = x * 1.4426950408889634074 + 0x1.8p52, n = t - 0x1.8p52;
    vd r = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6, p = SPREAD(1.0 / 6227020800);
    static const double inverse_factorial[13] = {1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720,
        1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600};
    UNROLL for (int i = 12; i >= 0; i--) p = p * r + inverse_factorial[i];
    p *= (vd)(((vul)t + 1023) << 52);
    return (vd)((vl)p & (vl)(x > -708.0));
}

/* exp(x), x between -MOST_ETA and MOST_ETA */
ALWAYS_INLINE vd FN(vexp)(vd x) {
    vl above = x > 0.0;
    vd e = FN(vexp_negative)(SELECT(above, -x, x));
    return SELECT(above, 1.0 / e, e);
}

ALWAYS_INLINE vd FN(within_exp)(vd x) { return LESS(SPREAD(MOST_ETA), MORE(SPREAD(-MOST_ETA), x)); }

/* log L, lane by lane, of y at eta; not of a softmax */
ALWAYS_INLINE vd FN(log_response)(const response_t *o, vd y, vd eta) {
    if (o->kind == RESPONSE_LOGISTIC) {
        vd x = -y * eta;
        vl above = x > 0.0;
        vd e = FN(vexp_negative)(SELECT(above, -x, x));
        return -((vd)((vl)x & above) + vlog(1.0 + e));
    }
    if (o->kind == RESPONSE_POISSON) {
        vd x = FN(within_exp)(eta);
        return y * eta - FN(vexp)(x);
    }
    vd r = (y - eta) * o->precision, square = LESS(SPREAD(1e300), r * r);
    if (o->kind == RESPONSE_NORMAL) return -0.5 * square;
    return -o->half * vlog(1.0 + square);
}

/* As add_log_response, of a softmax: with intercepts alone, one exponential per row and level, and per cluster and level */
static void FN(add_log_softmax)(const response_t *o, int64_t i, int64_t first, double *out, int64_t n) {
    const double *offset = o->offset + i * o->n_eta, *odds = o->odds + i * o->n_eta;
    const float *u = o->u + i * (o->p - 1);
    for (int64_t k = 0; k < n; k += N_DOUBLE) {
        vd total = SPREAD(1.0), at_y = SPREAD(0.0);
        for (int64_t c = 0; c < o->n_eta; c++) {
            const double *theta = o->theta + c * o->p * o->stride + first + k;
            int is_y = o->y[i] == (double)(c + 1);
            if (o->p > 1 || is_y) {
                vd eta = *(const vd *)theta + offset[c];
                for (int64_t a = 1; a < o->p; a++) eta += *(const vd *)(theta + a * o->stride) * (double)u[a - 1];
                eta = FN(within_exp)(eta);
                if (is_y) at_y = eta;
                if (o->p > 1) total += FN(vexp)(eta);
            }
            if (o->p == 1) total += LESS(SPREAD(1e300), *(const vd *)(o->up + c * o->stride + first + k) * odds[c]);
        }
        *(vd *)(out + k) += at_y - vlog(total);
    }
}

/* out[k] += log L of row i under the coefficients from `first` on */
static void FN(add_log_response)(const response_t *o, int64_t i, int64_t first, double *out, int64_t n) {
    double y = o->y[i];
    if (y != y) return;
    if (o->kind == RESPONSE_SOFTMAX) {
        FN(add_log_softmax)(o, i, first, out, n);
        return;
    }
    if (o->kind == RESPONSE_LOGISTIC && o->p == 1) { /* one exponential per row, and one per cluster */
        const double *odds = (y > 0 ? o->down : o->up) + first;
        vd row = SPREAD(o->odds[i]);
        for (int64_t k = 0; k < n; k += N_DOUBLE)
            *(vd *)(out + k) -= vlog(LESS(SPREAD(1e300), *(const vd *)(odds + k) * row) + 1.0);
        return;
    }
    const double *theta = o->theta + first;
    const float *u = o->u + i * (o->p - 1);
    vd row = SPREAD(y);
    for (int64_t k = 0; k < n; k += N_DOUBLE) {
        vd eta = *(const vd *)(theta + k) + o->offset[i];
        for (int64_t a = 1; a < o->p; a++) eta += *(const vd *)(theta + a * o->stride + k) * (double)u[a - 1];
        *(vd *)(out + k) += FN(log_response)(o, row, eta);
    }
}

/* Address of the j-th fresh coefficient vector of row i, *step apart. alone: its slot if it is alone there, or -1. */
ALWAYS_INLINE const double *FN(fresh_theta)(const response_t *o, int64_t i, int64_t alone, int64_t j, int64_t *step) {
    int64_t own = alone >= 0 && j == 0;
    *step = own ? o->stride : 1;
    return own ? o->theta + o->base + alone : o->fresh + (i * o->n_fresh + j) * o->n_eta * o->p;
}

/* log L of row i, whose outcome is a known level, under coefficients that are `step` apart */
static double FN(log_softmax_of)(const response_t *o, int64_t i, const double *theta, int64_t step) {
    vd total = SPREAD(1.0), at_y = SPREAD(0.0);
    for (int64_t c = 0; c < o->n_eta; c++, theta += o->p * step) {
        double x = theta[0] + o->offset[i * o->n_eta + c];
        for (int64_t a = 1; a < o->p; a++) x += theta[a * step] * (double)o->u[i * (o->p - 1) + a - 1];
        vd eta = FN(within_exp)(SPREAD(x));
        total += FN(vexp)(eta);
        if (o->y[i] == (double)(c + 1)) at_y = eta;
    }
    return (at_y - vlog(total))[0];
}

/* Likelihoods of n rows, each under its own fresh coefficients: weight[j n_fresh + f] up to a factor of the row, with
 * their *total and the log of their mean. alone[j]: as in fresh_theta. */
typedef struct { vd weight[BLOCK * MOST_FRESH / N_DOUBLE], total[BLOCK / N_DOUBLE], log_mean[BLOCK / N_DOUBLE]; } FN(fresh_t);
APART void FN(weigh_fresh)(const response_t *o, const int64_t *at, const int64_t *alone, int64_t n, FN(fresh_t) *out) {
    int64_t r = o->n_fresh, step;
    vd target[BLOCK * MOST_FRESH / N_DOUBLE], most[BLOCK / N_DOUBLE];
    double *weight = (double *)out->weight, *total = (double *)out->total, *y = (double *)target;
    for (int64_t j = 0; j < n; j++) {
        int64_t i = at[j];
        for (int64_t f = 0; f < r; f++) {
            const double *theta = FN(fresh_theta)(o, i, alone[j], f, &step);
            double x = theta[0] + o->offset[i * o->n_eta];
            for (int64_t a = 1; a < o->p; a++) x += theta[a * step] * (double)o->u[i * (o->p - 1) + a - 1];
            y[j * r + f] = o->y[i], weight[j * r + f] = x;
            if (o->kind == RESPONSE_SOFTMAX && o->y[i] == o->y[i])
                weight[j * r + f] = FN(log_softmax_of)(o, i, theta, step);
        }
    }
    for (int64_t l = n * r; l & (N_DOUBLE - 1); l++) y[l] = weight[l] = 0.0;
    for (int64_t v = 0; v * N_DOUBLE < n * r; v++) {
        vd x = out->weight[v], known = target[v];
        if (o->kind != RESPONSE_SOFTMAX) x = FN(log_response)(o, known, x);
        out->weight[v] = SELECT(known == known, x, SPREAD(0.0));
    }
    for (int64_t j = 0; j < BLOCK; j++) {
        double highest = j < n ? -INFINITY : 0.0;
        for (int64_t f = 0; j < n && f < r; f++) highest = weight[j * r + f] > highest ? weight[j * r + f] : highest;
        for (int64_t f = 0; j < n && f < r; f++) weight[j * r + f] -= highest;
        ((double *)most)[j] = highest;
    }
    for (int64_t v = 0; v * N_DOUBLE < n * r; v++) out->weight[v] = FN(vexp_negative)(out->weight[v]);
    for (int64_t j = 0; j < BLOCK; j++) {
        total[j] = j < n ? 0.0 : r;
        for (int64_t f = 0; j < n && f < r; f++) total[j] += weight[j * r + f];
    }
    for (int64_t v = 0; v < BLOCK / N_DOUBLE; v++) {
        vd mean = out->total[v] / (double)r;
        out->log_mean[v] = most[v] + (vlog(mean) + (mean - mean));
    }
}

/* Add the outcome's log likelihoods to the scores of a block: lanes 0..n_prefix-1 are instantiated clusters, the others
 * slots; fresh: the lane of the new cluster, whose score is in `before` if the tail is empty. */
static void FN(add_responses)(const response_t *o, const tail_t *t, work_t *w, const int64_t *at, const int64_t *own,
                              int64_t n_prefix, int64_t n, double *before, int64_t fresh) {
    for (int64_t j = 0; j < w->block.n; j++) {
        double *out = w->scores + j * n, *slots = out + n_prefix;
        FN(add_log_response)(o, at[j], 0, out, n_prefix);
        if (!t) continue;
        double opened = o->mean[at[j]];
        if (own[j] >= 0 && t->size[own[j]] == 1) { /* alone */
            FN(fresh_t) of_row;
            FN(weigh_fresh)(o, at + j, own + j, 1, &of_row);
            opened = ((const double *)of_row.log_mean)[0];
        }
        if (n == n_prefix) {
            before[j] += opened;
            continue;
        }
        opened += slots[fresh];
        FN(add_log_response)(o, at[j], o->base, slots, n - n_prefix);
        slots[fresh] = opened;
    }
}

/* Give a slot that row i opens, or stays alone in, one of the row's fresh coefficient vectors. */
static void FN(open_slot)(const response_t *o, int64_t i, int64_t alone, int64_t slot) {
    FN(fresh_t) fresh;
    const double *weight = (const double *)fresh.weight;
    int64_t j = 0, step;
    FN(weigh_fresh)(o, &i, &alone, 1, &fresh);
    double below = weight[0], total = ((const double *)fresh.total)[0];
    while (j + 1 < o->n_fresh && below <= o->pick[i] * total) below += weight[++j];
    const double *theta = FN(fresh_theta)(o, i, alone, j, &step);
    for (int64_t a = 0; a < o->n_eta * o->p; a++) o->theta[a * o->stride + o->base + slot] = theta[a * step];
    for (int64_t c = 0; c < o->n_eta; c++) {
        vd x = FN(within_exp)(SPREAD(o->theta[c * o->p * o->stride + o->base + slot]));
        o->up[c * o->stride + o->base + slot] = FN(vexp)(x)[0];
        if (!c) o->down[o->base + slot] = FN(vexp)(-x)[0];
    }
}
