"""Kernels of a launch's scans: rows of many groups, each of which redraws its side repeatedly.

A scan draws the side of every row from the odds implied by the sides of the last scan (hpc/crosscat/moves/scans.py).
Rows of a rank are packed by group and in columns, so that one permutation of a register looks up the cells of 16 rows.
Levels are counted by marks, a bit for each row. Inputs and outputs are counts, integers that ranks can sum in any
order. Cost per row and scan: about half an instruction per categorical cell to look it up, and less to count it; one
random number of 16 bits.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy, memset

from mpibayes.kernels.common.machine cimport address, aligned

from mpibayes.kernels.common.machine import ISA_NUMBER


cdef extern from "scans.h" nogil:
    void draw_words(const uint64_t *id, int64_t n, const uint64_t *counter, uint64_t seed, uint64_t purpose,
                    uint16_t *words)
    enum:
        TILE, CHUNK, SCANS_OF_A_BLOCK, MISSING_REAL, OVERREAD, MOST_MARKED
    int kernel_isa

    ctypedef struct packed_t:
        int64_t n_codes8, n_codes16, n_reals, n_tallies, n_levels, n_groups, n_chunks, n_rows
        const int64_t *offsets
        const int32_t *group
        const int64_t *start
        const uint8_t *codes8
        const uint16_t *codes16
        const int32_t *reals
        const double *tallies
        const uint16_t *words
        const uint8_t *free
        uint8_t *side
        const int64_t *marked
        const uint64_t *marks

    ctypedef struct counts_t:
        int32_t *cells
        int64_t *sums

    void mark_rows(const packed_t *, uint64_t *)
    void count_rows(const packed_t *, const uint8_t *, counts_t)
    void scan_rows(const packed_t *, int64_t, int64_t, int64_t, int64_t, const double *, const double *, const double *,
                   counts_t, counts_t, counts_t, double *, float *, counts_t)


cdef extern from "fetch.h" nogil:
    enum:
        AHEAD
    void fetch_row(const uint8_t *codes, int64_t n_codes)


kernel_isa = ISA_NUMBER
WORDS = SCANS_OF_A_BLOCK  # scans served by one `Packed.draw`
UNIT = 2.0**-20  # unit of real cells, in standard deviations of their group


cdef class Counts:
    """Counts of rows by group, in arrays that the caller owns and may sum over ranks.

    cells int32 (G, 1 + L + R + Q): rows, rows at each level, observed cells of each real and of each count column; sums
    int64 (G, 2 R + Q): of the real columns in units of UNIT, of their squares, and of the count columns.
    """

    cdef readonly object cells, sums
    cdef int32_t[:, ::1] _cells
    cdef int64_t[:, ::1] _sums
    cdef counts_t c

    def __init__(self, cells, sums):
        self.cells, self.sums = self._cells, self._sums = cells, sums
        self.c.cells = &self._cells[0, 0] if cells.size else NULL
        self.c.sums = &self._sums[0, 0] if sums.size else NULL


cdef class Packed:
    """Rows of groups 0..n_groups-1, packed by group, and the side of each."""

    cdef packed_t c
    cdef object _arrays, _work, _table, _free, _side
    cdef readonly object place
    cdef int64_t[::1] _place
    cdef uint64_t[::1] _id
    cdef uint16_t[:, ::1] _words
    cdef int64_t n_cells, n_sums

    def __init__(self, parts, n_groups, offsets, centre, scale):
        """parts: for each shard (rows, chosen, group, ids): int64 (m,) positions of the chosen rows in `rows`, int32
        (m,) their groups, int64 (m,) their global ids. offsets int64 (columns + 1,): first level row of every
        categorical column. centre, scale float64 (G, R): a real cell x is stored as the integer (x - centre) / scale /
        UNIT."""
        cdef int64_t g, i, m, p, at, first, height, c, n_part, base, n_run, n_codes8
        cdef int32_t whole
        cdef int64_t[::1] offset = np.ascontiguousarray(offsets, np.int64)
        cdef const double[:, ::1] middle = centre
        cdef const double[:, ::1] width = scale
        cdef const uint8_t[:, ::1] codes8
        cdef const uint16_t[:, ::1] codes16
        cdef const double[:, ::1] reals
        cdef const double[:, ::1] tallies
        cdef const int64_t[::1] chosen
        cdef const int64_t[::1] ids
        cdef const int32_t[::1] group
        cdef const int64_t[::1] order
        cdef double x
        if not parts:
            raise ValueError("a rank without shards has nothing to pack")
        widths = [np.shape(getattr(parts[0][0], b))[1] for b in ("codes8", "codes16", "reals", "tallies")]
        self.c.n_codes8, self.c.n_codes16, self.c.n_reals, self.c.n_tallies = widths
        if offset.shape[0] != self.c.n_codes8 + self.c.n_codes16 + 1 or middle.shape[0] != n_groups \
                or width.shape[0] != n_groups or middle.shape[1] != self.c.n_reals or width.shape[1] != self.c.n_reals:
            raise ValueError("rows, offsets, centres and scales do not fit together")
        self.c.n_levels, self.c.n_groups = offset[self.c.n_codes8 + self.c.n_codes16], n_groups
        self.n_cells = 1 + self.c.n_levels + self.c.n_reals + self.c.n_tallies
        self.n_sums = 2 * self.c.n_reals + self.c.n_tallies

        size = np.zeros(n_groups, np.int64)
        for _, _, part_group, _ in parts:
            size += np.bincount(part_group, minlength=n_groups)
        padded = (size + TILE - 1) // TILE * TILE
        n_chunks = (padded + CHUNK - 1) // CHUNK
        first_chunk = np.cumsum(n_chunks) - n_chunks
        chunk_group = np.repeat(np.arange(n_groups, dtype=np.int32), n_chunks)
        height_of = np.minimum(CHUNK, padded[chunk_group] - CHUNK * (np.arange(len(chunk_group)) - first_chunk[chunk_group]))
        start = np.concatenate([[0], np.cumsum(height_of)]).astype(np.int64)
        n = int(padded.sum())
        self.c.n_chunks, self.c.n_rows = len(chunk_group), n
        blocks = [aligned(n * self.c.n_codes8, np.uint8), aligned(n * self.c.n_codes16, np.uint16),
                  aligned(n * self.c.n_reals, np.int32), aligned(n * self.c.n_tallies, np.float64)]
        cdef uint8_t[::1] out8 = blocks[0]
        cdef uint16_t[::1] out16 = blocks[1]
        cdef int32_t[::1] out_real = blocks[2]
        cdef double[::1] out_tally = blocks[3]
        cdef int64_t[::1] starts = start, chunks = first_chunk, filled = np.zeros(n_groups, np.int64)
        n_all = sum(len(part[1]) for part in parts)
        self.place, self._id = np.empty(n_all, np.int64), np.zeros(n, np.uint64)
        self._place = self.place
        n_codes8 = self.c.n_codes8
        cdef uint8_t[::1] run = np.empty(TILE * max(n_codes8, 1), np.uint8)
        base = 0
        for rows, part_chosen, part_group, part_ids in parts:
            codes8, codes16, reals, tallies = rows.codes8, rows.codes16, rows.reals, rows.tallies
            chosen, group, ids = part_chosen, part_group, part_ids
            n_part = chosen.shape[0]
            if group.shape[0] != n_part or ids.shape[0] != n_part:
                raise ValueError("chosen rows, groups and ids do not fit together")
            if n_part and not 0 <= part_chosen.min() <= part_chosen.max() < len(rows):
                raise ValueError("a chosen row is not there")
            narrow = part_group.astype(np.uint16) if n_groups <= 65536 else part_group  # sorted by their bytes
            order = np.argsort(narrow, kind="stable")
            with nogil:
                i = 0
                while i < n_part:  # copy up to a tile of adjacent rows through a buffer that stays in cache
                    g = group[order[i]]
                    p = filled[g]
                    at = chunks[g] + p // CHUNK
                    first, height, p = starts[at], starts[at + 1] - starts[at], p % CHUNK
                    n_run = 0
                    while n_run < TILE and p + n_run < height and i + n_run < n_part and group[order[i + n_run]] == g:
                        m = chosen[order[i + n_run]]
                        self._place[base + order[i + n_run]] = first + p + n_run
                        self._id[first + p + n_run] = ids[order[i + n_run]]
                        if n_codes8:
                            if i + n_run + AHEAD < n_part:
                                fetch_row(&codes8[chosen[order[i + n_run + AHEAD]], 0], n_codes8)
                            memcpy(&run[n_run * n_codes8], &codes8[m, 0], n_codes8)
                        for c in range(self.c.n_codes16):
                            out16[self.c.n_codes16 * first + c * height + p + n_run] = codes16[m, c]
                        for c in range(self.c.n_reals):
                            x = (reals[m, c] - middle[g, c]) * width[g, c] * 1048576.0
                            whole = MISSING_REAL
                            if reals[m, c] == reals[m, c]:
                                x = 16777216.0 if x > 16777216.0 else x if x > -16777216.0 else -16777216.0
                                whole = <int32_t>(x + 0.5 if x > 0 else x - 0.5)
                            out_real[self.c.n_reals * first + c * height + p + n_run] = whole
                        for c in range(self.c.n_tallies):
                            out_tally[self.c.n_tallies * first + c * height + p + n_run] = tallies[m, c]
                        n_run += 1
                    for c in range(n_codes8):
                        for at in range(n_run):
                            out8[n_codes8 * first + c * height + p + at] = run[at * n_codes8 + c]
                    filled[g] += n_run
                    i += n_run
            base += n_part
        words, free, side = np.zeros((WORDS, n), np.uint16), aligned(n, np.uint8), aligned(n, np.uint8)
        self._words, self._free, self._side = words, free, side
        self._work = aligned(self.c.n_levels + 8 + self.n_sums + self.n_cells // 2 + 1, np.float64)
        self._table = aligned(self.c.n_levels + 5 * self.c.n_reals + 2 * self.c.n_tallies + OVERREAD, np.float32)
        n_levels = np.diff(np.asarray(offset))[:n_codes8]
        marked = np.cumsum([0, *np.where(n_levels <= MOST_MARKED, n_levels - 1, 0)])
        marks = np.empty(n // TILE * int(marked[-1]), np.uint64)
        self._arrays = [np.asarray(offset), chunk_group, start, *blocks, words, marked, marks]
        self.c.offsets = <int64_t *>address(self._arrays[0])
        self.c.group = <int32_t *>address(chunk_group)
        self.c.start = <int64_t *>address(start)
        self.c.codes8 = <uint8_t *>address(blocks[0])
        self.c.codes16 = <uint16_t *>address(blocks[1])
        self.c.reals = <int32_t *>address(blocks[2])
        self.c.tallies = <double *>address(blocks[3])
        self.c.words = <uint16_t *>address(words)
        self.c.free = <uint8_t *>address(free)
        self.c.side = <uint8_t *>address(side)
        self.c.marked = <int64_t *>address(marked)
        self.c.marks = <uint64_t *>address(marks)
        cdef uint64_t *out = <uint64_t *>address(marks)
        with nogil:
            mark_rows(&self.c, out)

    def count(self, chosen, Counts out):
        """Add chosen rows to `out`. chosen: bool, in the order of `parts`."""
        mask = aligned(self.c.n_rows, np.uint8)
        mask[self.place[chosen]] = 255
        self._check(out)
        cdef const uint8_t *m = <uint8_t *>address(mask)
        with nogil:
            count_rows(&self.c, m, out.c)

    cdef int _check(self, Counts given) except -1:
        if given._cells.shape[0] != self.c.n_groups or given._sums.shape[0] != self.c.n_groups \
                or given._cells.shape[1] != self.n_cells or given._sums.shape[1] != self.n_sums:
            raise ValueError("counts and groups do not fit together")

    def set(self, side, fixed):
        """Put every row on a side, bool; rows that are `fixed`, bool, keep it in every scan."""
        self._side[self.place] = np.where(side, 255, 0)
        self._free[self.place] = np.where(fixed, 0, 255)

    def sides(self):
        """Side of each row, uint8: 1 for side 1."""
        return self._side[self.place] & 1

    def draw(self, seed, purpose, sub, cycle, chain):
        """Draw the random numbers of WORDS scans: for each row id, 16 bits per scan from the block with that number."""
        cdef uint64_t counter[4]
        cdef uint64_t key = seed, use = purpose
        counter[1], counter[2], counter[3] = sub, cycle, chain
        if self.c.n_rows:
            with nogil:
                draw_words(&self._id[0], self.c.n_rows, counter, key, use, &self._words[0, 0])

    def scan(self, int64_t scan, beta, shrink, tilt, Counts whole, Counts one, zero, Counts out, int64_t times=1):
        """Redraw the side of every row that is not fixed, and add the rows on side 1 to `out`.

        scan: below WORDS, selects the random numbers. beta float64 (L,): pseudo-counts, 0 in missing rows; shrink
        float64 (G,): rows of the whole group that each side has besides its own; tilt float64 (G,): log odds before any
        cell counts, or None: those of the sides' sizes. whole, one, zero: counts over all ranks of all rows and of
        those on sides 1 and 0; with zero None every row that is not on side 1 is on side 0. times: number of
        consecutive scans, each starting from the counts of the one before, if one rank has all rows; `one` is then
        changed.
        """
        cdef const double[::1] pseudo = beta, rows = shrink, log_odds = shrink if tilt is None else tilt
        cdef Counts on_zero = whole if zero is None else zero
        cdef counts_t of_one, of_zero, after
        cdef int64_t i, g, chunk = 0, end
        if not 0 <= scan <= scan + times <= WORDS or times < 1 or rows.shape[0] != self.c.n_groups \
                or log_odds.shape[0] != self.c.n_groups or pseudo.shape[0] != self.c.n_levels:
            raise ValueError("odds and groups do not fit together")
        for given in (whole, one, on_zero, out):
            self._check(given)
        if self.c.n_chunks == 0:
            return
        cdef const double *given_beta = &pseudo[0] if pseudo.shape[0] else NULL
        cdef const double *given_tilt = NULL
        if tilt is not None:
            given_tilt = &log_odds[0]
        cdef double *work = <double *>address(self._work)
        cdef float *table = <float *>address(self._table)
        with nogil:
            while chunk < self.c.n_chunks:  # group by group, as long as its rows are in cache
                g, end = self.c.group[chunk], chunk + 1
                while end < self.c.n_chunks and self.c.group[end] == g:
                    end += 1
                of_one, of_zero, after = one.c, on_zero.c, out.c
                if zero is None:
                    of_zero.cells = NULL
                for i in range(times):
                    if i > 0:
                        of_one, after, of_zero.cells = after, of_one, NULL
                        memset(after.cells + g * self.n_cells, 0, self.n_cells * sizeof(int32_t))
                        memset(after.sums + g * self.n_sums, 0, self.n_sums * sizeof(int64_t))
                    scan_rows(&self.c, g, chunk, end, scan + i, given_beta, &rows[0], given_tilt, whole.c, of_one,
                              of_zero, work, table, after)
                if after.cells != out.c.cells:
                    memcpy(out.c.cells + g * self.n_cells, after.cells + g * self.n_cells,
                           self.n_cells * sizeof(int32_t))
                    memcpy(out.c.sums + g * self.n_sums, after.sums + g * self.n_sums, self.n_sums * sizeof(int64_t))
                chunk = end
