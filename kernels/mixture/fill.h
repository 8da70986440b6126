/* Draws of missing cells of columns on which others depend (docs/math.md 2.14), row by row. Included once for every
 * instruction set (updates.h). */

/* Code of a column in a row: context (n_levels + 1) + level; level n_levels is a missing cell. */
ALWAYS_INLINE uint32_t FN(code_of)(const linked_t *of, int64_t row) {
    int64_t at = row * of->stride;
    return of->is_wide ? ((const uint16_t *)of->codes)[at] : ((const uint8_t *)of->codes)[at];
}

/* The level in a code, code % (n_levels + 1): exact since both are below 2^16. */
ALWAYS_INLINE uint32_t FN(level_in)(const linked_t *of, uint32_t code) {
    return code - (uint32_t)(code * of->inverse >> 32) * (of->n_levels + 1);
}

/* Recode a cell of cluster k, and change its counts. */
ALWAYS_INLINE void FN(recode)(const linked_t *of, int64_t row, uint32_t before, uint32_t after, int64_t k, int64_t K,
                              int32_t *change) {
    int64_t at = row * of->stride;
    change[(of->first + before) * K + k] -= 1;
    change[(of->first + after) * K + k] += 1;
    if (of->is_wide)
        ((uint16_t *)of->codes)[at] = (uint16_t)after;
    else
        ((uint8_t *)of->codes)[at] = (uint8_t)after;
}

/* Draw the level of `own` in n rows `at` given its parent (NULL for none) and its children: level v in proportion to
 * own->table[context][cluster][v] times, for each child, child->table[cluster][level][context of v]; the tables have logs.
 * Row i has the word row0 + i of the stream. Idle rows, with a negative label z, keep theirs. Rows whose cells are equal
 * have equal weights, which are kept, also for the next calls with the same tables: keys (n_kept,), all ones at first,
 * sums [n_kept][V8]; n_kept is a power of 2, V8 the number of levels rounded up to 8. */
static void FN(fill_cells)(const stream_key *stream, uint64_t row0, const int64_t *at, const int32_t *z, int64_t n,
                           const linked_t *own, const linked_t *parent, const linked_t *children, int64_t n_children,
                           int64_t K, int32_t *change, int64_t n_kept, uint64_t *keys, double *sums) {
    philox_stream words = philox_open(stream->seed, stream->purpose, stream->sub, stream->cycle, stream->chain);
    uint32_t V = own->n_levels, V8 = (V + 7) & ~7u;
    double n_keys = (double)own->n_contexts * K;
    for (int64_t j = 0; j < n_children; j++) n_keys *= children[j].n_levels + 1;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = at[i], k = z[row], context = 0;
        uint32_t before = FN(code_of)(own, row), level = 0;
        if (k < 0) continue;
        if (parent) {
            uint32_t of_parent = FN(level_in)(parent, FN(code_of)(parent, row));
            if (of_parent == parent->n_levels) continue;
            context = parent->context[of_parent];
        }
        uint64_t key = context * K + k;
        for (int64_t j = 0; j < n_children; j++)
            key = key * (children[j].n_levels + 1) + FN(level_in)(children + j, FN(code_of)(children + j, row));
        int64_t entry = (key * 0x9e3779b97f4a7c15ull) >> 32 & (n_kept - 1);
        double *p = sums + entry * V8;
        if (keys[entry] != key || !(n_keys < 0x1p63)) {
            const float *table = own->table + (context * K + k) * V;
            double most = -INFINITY, total = 0;
            for (uint32_t v = 0; v < V; v++) p[v] = table[v];
            for (uint32_t v = V; v < V8; v++) p[v] = -INFINITY;
            for (int64_t j = 0; j < n_children; j++) {
                const linked_t *child = children + j;
                uint32_t of_child = FN(level_in)(child, FN(code_of)(child, row));
                if (of_child == child->n_levels) continue;
                const float *part = child->table + (k * child->n_levels + of_child) * child->n_contexts;
                for (uint32_t v = 0; v < V; v++) p[v] += part[own->context[v]];
            }
            for (uint32_t v = 0; v < V; v++) most = p[v] > most ? p[v] : most;
            for (uint32_t v = 0; v < V8; v += N_DOUBLE)
                *(FN(vd_loose) *)(p + v) = FN(exp_negative)(*(FN(vd_loose) *)(p + v) - most);
            for (uint32_t v = 0; v < V; v++) p[v] = total += p[v];
            keys[entry] = key;
        }
        double u = philox_uniform(philox_word(&words, row0 + row));
        for (uint32_t v = 0; v + 1 < V; v++) level += p[v] <= u * p[V - 1];
        uint32_t code = (uint32_t)context * (V + 1) + level;
        if (code == before) continue;
        FN(recode)(own, row, before, code, k, K, change);
        for (int64_t j = 0; j < n_children; j++) {
            const linked_t *child = children + j;
            uint32_t of_child = FN(code_of)(child, row), level_of = FN(level_in)(child, of_child);
            if (level_of == child->n_levels) continue;
            FN(recode)(child, row, of_child, (uint32_t)own->context[level] * (child->n_levels + 1) + level_of, k, K,
                       change);
        }
    }
}
