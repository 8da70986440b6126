/* Log odds and sides of a block of rows, for one instruction set (every_isa.h). */

/* x[j] += sum_codes8 of row[j]: four rows together, so that a column's offset is read once for all of them */
static void FN(sum_rows8)(const float *table, const int64_t *offset, const uint8_t *codes, int64_t n_codes,
                          const int32_t *row, int64_t n, double *x) {
    int64_t j = 0;
    for (int64_t i = 0; i < AHEAD && i < n; i++) fetch_row(codes + row[i] * n_codes, n_codes);
    for (; j + 4 <= n; j += 4) {
        const uint8_t *code[4];
        float s[4][4] = {{0}};
        int64_t c = 0;
        for (int r = 0; r < 4; r++) {
            code[r] = codes + row[j + r] * n_codes;
            if (j + r + AHEAD < n) fetch_row(codes + row[j + r + AHEAD] * n_codes, n_codes);
        }
        for (; c + 4 <= n_codes; c += 4)
            _Pragma("GCC unroll 4") for (int q = 0; q < 4; q++) {
                const float *t = table + offset[c + q];
                _Pragma("GCC unroll 4") for (int r = 0; r < 4; r++) s[r][q] += t[code[r][c + q]];
            }
        for (int q = 0; c + q < n_codes; q++)
            for (int r = 0; r < 4; r++) s[r][q] += table[offset[c + q] + code[r][c + q]];
        for (int r = 0; r < 4; r++) x[j + r] += (s[r][0] + s[r][1]) + (s[r][2] + s[r][3]);
    }
    for (; j < n; j++) x[j] += sum_codes8(table, offset, codes + row[j] * n_codes, n_codes);
}

static void FN(take_sides)(const double *x, const double *u, uint64_t *one, double *log_p, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        side_t side = side_of(x[i], u[i]);
        one[i] = side.one;
        log_p[i] = side.log_p;
    }
}
