"""The kernels of turns.pyx in plain Python: slow, and their specification."""

from __future__ import annotations

import numpy as np

from mpibayes.kernels.mixture import split


def fill_in_turn(columns, cells, own, at, ids, levels, beta, *, by_children=True, **key):
    """See turns.fill_in_turn. by_children=False leaves out the cells of a row's children, which is wrong."""
    n_levels, above = [column[3] for column in columns], [column[5] for column in columns]

    def row_of(c, context, level):
        return columns[c][2] + context * (n_levels[c] + 1) + level

    def context(parent, level):
        return 0 if parent < 0 else columns[parent][6][level]

    def count(row, k, level, change):
        parent = above[own]
        levels[row_of(own, context(parent, cells[row, 1 + parent]) if parent >= 0 else 0, level), k] += change
        for d in children(row):
            levels[row_of(d, context(own, level), cells[row, 1 + d]), k] += change

    def children(row):
        return [d for d in range(len(columns)) if above[d] == own and cells[row, 1 + d] < n_levels[d]]

    def share(c, u, level, k):
        every = [row_of(c, u, v) for v in range(n_levels[c])]
        row = row_of(c, u, level)
        return (levels[row, k] + beta[row]) / sum(levels[of, k] + beta[of] for of in every)

    for row in at:
        k, parent = cells[row, 0], above[own]
        if k < 0 or (parent >= 0 and cells[row, 1 + parent] == n_levels[parent]):
            continue
        count(row, k, cells[row, 1 + own], -1)
        u = context(parent, cells[row, 1 + parent]) if parent >= 0 else 0
        below = children(row) if by_children else []
        weight = np.array([
            share(own, u, v, k) * np.prod([share(d, context(own, v), cells[row, 1 + d], k) for d in below])
            for v in range(n_levels[own])
        ])  # fmt: skip
        total = weight.cumsum()
        word = int(split.words(np.array([ids[row]], np.int64), **key)[0]) >> 11
        after = int((total[:-1] <= word * 2.0**-53 * total[-1]).sum())
        cells[row, 1 + own] = after
        count(row, k, after, 1)


def recount(columns, before, after, at, levels):
    """See turns.recount."""
    for row in at:
        k = before[row, 0]
        for c, (_, _, first, n_levels, _, parent, _) in enumerate(columns):
            for cells, change in ((before, -1), (after, 1)):
                level, above = cells[row, 1 + c], cells[row, 1 + parent] if parent >= 0 else 0
                if k < 0 or level == n_levels or (parent >= 0 and above == columns[parent][3]):
                    continue
                context = columns[parent][6][above] if parent >= 0 else 0
                levels[first + context * (n_levels + 1) + level, k] += change
