/* Sides of a block of rows from their log odds, for one instruction set (every_isa.h). */
static void FN(take_sides)(const double *x, const double *u, uint64_t *one, double *log_p, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        side_t side = side_of(x[i], u[i]);
        one[i] = side.one;
        log_p[i] = side.log_p;
    }
}
