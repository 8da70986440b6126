"""The last merges of a tree, found by a search instead of greedily.

Merging the cheapest pair first is greedy: where two merges cost nearly the same, chance decides, and the coarse levels
that people look at depend on it (on iris the third group was once a species and once a part of two). From LAST nodes
on, the order of merges is the one with the least loss summed over the levels: a beam search over trees, so that levels
stay nested.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

LAST = 10  # nodes from which on merges are searched
WIDTH = 40  # partitions kept at each level (beam width)


def last_merges(costs_of: LostBy, n: int) -> list[tuple[int, int]]:
    """Return the merged pairs in order, each as two sets of nodes: bit i of a number is node i < n <= LAST."""
    start = tuple(1 << i for i in range(n))
    beam: dict[tuple[int, ...], tuple[float, float, list[tuple[int, int]]]] = {start: (0.0, 0.0, [])}
    for _ in range(n - 1):
        followed: dict[tuple[int, ...], tuple[float, float, list[tuple[int, int]]]] = {}
        for parts, (total, lost, path) in beam.items():
            for a, b in combinations(parts, 2):
                now = lost + costs_of(a, b)
                merged = tuple(sorted([*(p for p in parts if p not in (a, b)), a | b]))
                if merged not in followed or total + now < followed[merged][0] - 1e-9:
                    followed[merged] = (total + now, now, [*path, (a, b)])
        beam = dict(sorted(followed.items(), key=lambda item: (item[1][0], item[0]))[:WIDTH])
    return next(iter(beam.values()))[2]


class LostBy:
    """Costs of merging two sets of nodes; the entropy of each set is computed once."""

    def __init__(self, cells: np.ndarray, entropy):
        """cells (n, M): of each node; entropy: function of a row of cells, as in `tree.grow`."""
        self._cells, self._entropy, self._known = cells, entropy, {}

    def of(self, nodes: int) -> float:
        if nodes not in self._known:
            members = [i for i in range(len(self._cells)) if nodes >> i & 1]
            self._known[nodes] = float(self._entropy(self._cells[members].sum(axis=0)))
        return self._known[nodes]

    def __call__(self, a: int, b: int) -> float:
        cost = self.of(a | b) - self.of(a) - self.of(b)
        return cost if cost > 1e-9 else 0.0
