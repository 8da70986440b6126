"""Average linkage and its cuts. The results equal those of `scipy.cluster.hierarchy`, whose import takes longer than a
search on a small table."""

from __future__ import annotations

import numpy as np


def average_linkage(apart: np.ndarray) -> np.ndarray:
    """Cluster n items by average linkage of their distances `apart` (n, n), with chains of nearest neighbours.

    Returns (n - 1, 4) float64, by increasing distance: the two nodes joined, the smaller number first, their distance,
    and their number of items. The join in row i is node n + i.
    """
    apart = apart.astype(np.float64)
    np.fill_diagonal(apart, np.inf)
    n = len(apart)
    sizes, joins, chain = np.ones(n), np.empty((n - 1, 4)), []
    for join in joins:
        if not chain:
            chain = [int(np.argmax(sizes > 0))]
        while True:
            x = chain[-1]
            y = int(np.argmin(apart[x]))
            if len(chain) > 1 and apart[x, y] >= apart[x, chain[-2]]:  # the last two are mutual nearest neighbours
                break
            chain.append(y)
        x, y = sorted(chain[-2:])
        del chain[-2:]
        join[:] = x, y, apart[x, y], sizes[x] + sizes[y]
        others = (sizes[x] * apart[x] + sizes[y] * apart[y]) / join[3]  # infinite at x and y
        apart[y] = apart[:, y] = others
        apart[x] = apart[:, x] = np.inf
        sizes[x], sizes[y] = 0.0, join[3]
    joins = joins[np.argsort(joins[:, 2], kind="stable")]
    number = list(range(n))  # parent of each node: the latest join known to contain it
    for i, join in enumerate(joins):
        pair = [_root(number, int(item)) for item in join[:2]]
        join[:2] = sorted(pair)
        number.append(n + i)
        number[pair[0]] = number[pair[1]] = n + i
        join[3] = sum(1.0 if of < n else joins[of - n, 3] for of in pair)
    return joins


def _root(number: list[int], of: int) -> int:
    while number[of] != of:
        of = number[of]
    return of


def cut(tree: np.ndarray, most: int) -> np.ndarray:
    """Cut the tree into `most` < n groups, or fewer if distances are tied; return the group of each item, (n,) int32
    from 0 on. Groups are numbered in the order of the tree's branches, with single items last at each join."""
    n = len(tree) + 1
    distances = np.unique(tree[:, 2])
    n_left = n - np.searchsorted(tree[:, 2], distances, side="right")
    at_most = distances[np.flatnonzero(n_left <= most)[0]]
    group, n_groups = np.empty(n, np.int32), 0
    waiting: list[tuple[int, int | None]] = [(2 * n - 2, None)]
    while waiting:
        node, of = waiting.pop()
        if of is None and (node < n or tree[node - n, 2] <= at_most):
            of, n_groups = n_groups, n_groups + 1
        if node < n:
            group[node] = of
        else:
            left, right = tree[node - n, :2].astype(int).tolist()
            joins_last = sorted((right, left), key=lambda item: item >= n)  # popped first
            waiting += [(item, of) for item in joins_last]
    return group
