/* Numbers of tables in Chinese restaurants (Antoniak 1974) with n customers; customer i, from 0, opens a table with
 * probability a / (a + i). Rare openings are skipped to: the next candidate comes after a geometric number of
 * customers, as if all opened tables as often as the first, and is accepted with the ratio of the two probabilities.
 */
#ifndef MPIBAYES_RESTAURANTS_H
#define MPIBAYES_RESTAURANTS_H

typedef struct { const stream_key *key; uint64_t id, attempt, words[4]; int used; } word_source; /* blocks of one id */

/* uniform in (0, 1], multiples of 2^-52 */
static inline double next_unit(word_source *s) {
    if (s->used == 4) {
        uint64_t counter[4] = {s->id, s->key->sub + (s->attempt++ << 32), s->key->cycle, s->key->chain};
        philox_block(counter, s->key->seed, s->key->purpose, s->words);
        s->used = 0;
    }
    return 1.0 - (double)(s->words[s->used++] >> 12) * 0x1p-52;
}

static inline int64_t tables_of(word_source *s, int64_t n, double a) {
    int64_t opened = 1, i = 1;
    while (i < n && i < 8.0 + 4.0 * a) opened += next_unit(s) * (a + i) <= a, i++;
    while (i < n) {
        double gap = log_positive(next_unit(s)) / -log1p_inverse(i / a);
        if (!(gap < (double)(n - i))) break;
        int64_t next = i + (int64_t)gap;
        opened += next_unit(s) * (a + next) <= a + i;
        i = next + 1;
    }
    return opened;
}

/* tables[l]: number of tables of level row l in all K clusters; rows with beta 0 have none */
static inline void draw_tables(const stream_key *key, const int32_t *levels, const double *beta, int64_t L, int64_t K,
                               int64_t *tables) {
    for (int64_t l = 0; l < L; l++) {
        word_source s = {key, (uint64_t)l, 0, {0}, 4};
        tables[l] = 0;
        for (int64_t k = 0; k < K && beta[l] > 0; k++)
            if (levels[l * K + k] > 0) tables[l] += tables_of(&s, levels[l * K + k], beta[l]);
    }
}
#endif
