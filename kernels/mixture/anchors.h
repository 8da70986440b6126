/* Instantiated clusters that a row may enter (docs/math.md 2.1, step 6). Included once for every instruction set
 * (every_isa.h).
 */

/* Number of anchors (ascending) below a priority. */
ALWAYS_INLINE int64_t FN(anchors_below)(const uint64_t *anchors, int64_t n, uint64_t priority) {
    int64_t low = 0;
    if (n && anchors[n - 1] < priority) return n; /* true for most rows */
    while (low < n) {
        int64_t middle = (low + n) / 2;
        if (anchors[middle] < priority) low = middle + 1;
        else n = middle;
    }
    return low;
}

ALWAYS_INLINE int FN(is_anchor)(const instantiated_t *g, int64_t label, uint64_t priority) {
    return label >= g->free && label < g->n && priority == g->anchors[label - g->free];
}

/* Number of instantiated clusters open to a row with label old, -1 if it is an anchor. All are if there is no tail and
 * its priority is below every anchor's: such a row entered the subsample (docs/math.md 3.3) in this cycle. */
ALWAYS_INLINE int64_t FN(open_to)(const instantiated_t *g, int has_tail, int anchored, int64_t old,
                                  philox_stream *priorities, uint64_t row) {
    if (!anchored) return g->n;
    uint64_t priority = philox_word(priorities, row);
    if (FN(is_anchor)(g, old, priority)) return -1;
    int64_t allowed = g->free + FN(anchors_below)(g->anchors, g->n - g->free, priority);
    return allowed == 0 && !has_tail ? g->n : allowed;
}
