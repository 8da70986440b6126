/* Passes over the rows of an outcome with regressions in clusters: log likelihood, its slopes, and gaps of
 * its bounds.
 * Included once for every instruction set. Sums are in row order, so no bit depends on which rank has the rows.
 */

/* As `respond`, of a softmax: eta, slope (n_eta, n) */
static void FN(respond_softmax)(const response_t *o, const double *y, const double *eta, int64_t n, double *value,
                                double *slope, double *spread) {
    for (int64_t i = 0; i < n; i += N_DOUBLE) {
        vd target = *(const vd *)(y + i), one = SPREAD(1.0), zero = SPREAD(0.0), total = one, at_y = zero;
        for (int64_t c = 0; c < o->n_eta; c++) {
            vd x = FN(within_exp)(*(const vd *)(eta + c * n + i)), e = FN(vexp)(x);
            total += e;
            at_y = SELECT(target == (double)(c + 1), x, at_y);
            *(vd *)(slope + c * n + i) = e;
        }
        for (int64_t c = 0; c < o->n_eta; c++) {
            vd *of = (vd *)(slope + c * n + i);
            *of = SELECT(target == (double)(c + 1), one, zero) - *of / total;
        }
        *(vd *)(value + i) = at_y - vlog(total), *(vd *)(spread + i) = zero;
    }
}

/* value[i], slope[i] = log L and d log L / d eta at eta[i], and `spread` d log L / d log s, of n rows, padded to 8.
 * Terms in y alone are omitted. */
static void FN(respond)(const response_t *o, const double *y, const double *eta, int64_t n, double *value, double *slope,
                        double *spread) {
    if (o->kind == RESPONSE_SOFTMAX) {
        FN(respond_softmax)(o, y, eta, n, value, slope, spread);
        return;
    }
    vd one = SPREAD(1.0), zero = SPREAD(0.0);
    for (int64_t i = 0; i < n; i += N_DOUBLE) {
        vd target = *(const vd *)(y + i), x = *(const vd *)(eta + i), e, v, g, s = zero;
        x = FN(within_exp)(x);
        if (o->kind == RESPONSE_LOGISTIC) {
            vd against = -target * x;
            vl above = against > 0.0;
            e = FN(vexp_negative)(SELECT(above, -against, against));
            v = -((vd)((vl)against & above) + vlog(one + e));
            g = target * SELECT(above, one, e) / (one + e);
        } else if (o->kind == RESPONSE_POISSON) {
            e = FN(vexp)(x);
            v = target * x - e;
            g = target - e;
        } else {
            vd r = target - *(const vd *)(eta + i), scaled = r * o->precision;
            vd square = LESS(SPREAD(1e300), scaled * scaled);
            if (o->kind == RESPONSE_NORMAL) {
                v = -0.5 * square;
                g = r * (o->precision * o->precision);
                s = square - one;
            } else {
                vd weight = 2.0 * o->half / (one + square);
                v = -o->half * vlog(one + square);
                g = weight * (r * (o->precision * o->precision));
                s = weight * square - one;
            }
        }
        *(vd *)(value + i) = v, *(vd *)(slope + i) = g, *(vd *)(spread + i) = s;
    }
}

/* mean[i]: log of the mean likelihood of row i of n under its fresh coefficients */
static void FN(offer)(const response_t *o, int64_t n, double *mean) {
    int64_t at[BLOCK], alone[BLOCK];
    FN(fresh_t) fresh;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        for (int64_t j = 0; j < m; j++) at[j] = i + j, alone[j] = -1;
        FN(weigh_fresh)(o, at, alone, m, &fresh);
        memcpy(mean + i, fresh.log_mean, m * sizeof *mean);
    }
}

/* gap[i] = log L - log B >= 0 at eta[i] of n rows, padded to 8; h, level: see hpc/outcome/bounds.py */
static void FN(find_gaps)(const response_t *o, const double *y, const double *eta, const double *h, const double *level,
                          int64_t n, double *gap) {
    vd zero = SPREAD(0.0), one = SPREAD(1.0);
    for (int64_t i = 0; i < n; i += N_DOUBLE) {
        vd x = *(const vd *)(eta + i), curve = *(const vd *)(h + i), out;
        if (o->kind == RESPONSE_LOGISTIC) {
            vd size = SELECT(x > zero, x, -x);
            out = *(const vd *)(level + i) - (0.5 * size + vlog(one + FN(vexp_negative)(-size))) + 0.5 * curve * (x * x);
        } else {
            vd r = *(const vd *)(y + i) - x, u = r * r * (curve * (0.5 / o->half)) - *(const vd *)(level + i);
            out = o->half * (u - vlog(one + u));
        }
        *(vd *)(gap + i) = MORE(out, zero);
    }
}
