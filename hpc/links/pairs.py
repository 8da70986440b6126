"""Joint tables of pairs of columns: all columns of a tree given each level of one of them, in every cluster.

Messages carry the known level to the root. From there, each column's levels follow from the context of its parent; on
the path back to the known column, the messages from below it count as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mpibayes.hpc.links.crossed import belief_in, log_p
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.links.tables import Table
from mpibayes.hpc.links.tree import UNKNOWN, Evidence, Messages, Tree, scaled

TINY = 1e-300
AT_ONCE = 1_000_000  # probabilities of pairs held at once


def given_each_level(
    tree: Tree, tables: Sequence[Table], x: int, width: int, number: bool = False
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each other column c and the joint probabilities of its levels and those of column x in every cluster, (V_x,
    V_c, width). number: True if x is a number, whose levels are then events of unknown values."""
    n, inside = tables[x].n_levels, set(tree.path(x))
    levels = np.full((n, len(tables)), UNKNOWN)
    levels[:, x] = -2 - np.arange(n) if number else np.arange(n)
    evidence = Evidence(levels, {x: np.eye(n)[:, :, None]} if number else {})
    if tree.second:
        p_x, one = np.exp(log_p(tree, tables, evidence, width))[:, None], np.ones((n, width))
        for c in (c for c in range(len(tables)) if c != x):
            of = belief_in(tree, tables, evidence, width, c)
            yield c, np.stack([of.level(v, one) for v in range(tables[c].n_levels)], axis=1) * p_x
        return
    m = Messages(tree, tables, evidence, width)
    alone = np.exp(m.total)[:, None]
    contexts: dict[int, np.ndarray] = {}  # by column: contexts given each level of x, (V_x, W, width)
    for c, parent in enumerate(tree.parents):
        above = np.ones((n, 1, width)) if parent == ROOT else contexts[parent]
        part = np.stack([tables[c].levels(u) for u in range(tables[c].n_contexts)])
        if c == x:
            p = np.broadcast_to(np.eye(n)[:, :, None], (n, n, width))
        elif c in inside:
            below = scaled(m.below(c, np.arange(n)))[0][:, tree.contexts[c]]
            p = _product(above / _product(below, part.transpose(1, 0, 2)), part) * below
        else:
            p = _product(above, part)
        if c in tree.parents:
            contexts[c] = np.zeros((n, int(tree.contexts[c].max()) + 1, width))
            np.add.at(contexts[c], (slice(None), tree.contexts[c]), p)
        if c != x:
            yield c, p * alone


def in_clusters(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the table (E, F) of two columns' events summed over clusters, and the mutual information of the two within
    a cluster (docs/math.md 2.12), summed over clusters by weight.

    one (E, V, width): joint probabilities of events and levels of the other column, times the clusters' weights. other
    (F, V, width): probabilities of the other column's events given its levels.
    """
    table, inside = np.zeros((len(one), len(other))), 0.0
    step = max(1, AT_ONCE // table.size)
    for first in range(0, one.shape[2], step):
        subset = slice(first, first + step)
        p = np.matmul(one[:, :, subset].transpose(2, 0, 1), other[:, :, subset].transpose(2, 1, 0))
        apart = p.sum(axis=2)[:, :, None] * p.sum(axis=1)[:, None, :]
        apart /= np.maximum(p.sum(axis=(1, 2)), TINY)[:, None, None]
        inside += float((p * np.log(np.maximum(p, TINY) / np.maximum(apart, TINY))).sum())
        table += p.sum(axis=0)
    return table, inside


def of_tables(p: np.ndarray) -> tuple[np.ndarray, float]:
    """Do as `in_clusters`, given the joint probabilities of the events in clusters, (E, F, width)."""
    apart = p.sum(axis=1)[:, None] * p.sum(axis=0) / np.maximum(p.sum(axis=(0, 1)), TINY)
    return p.sum(axis=2), float((p * np.log(np.maximum(p, TINY) / np.maximum(apart, TINY))).sum())


def in_groups(groups: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Sum p (V, width) over the levels of each group, (W, width)."""
    out = np.zeros((int(groups.max()) + 1, p.shape[1]))
    np.add.at(out, groups, p)
    return out


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matrix product in each cluster: (n, m, width) times (m, l, width) gives (n, l, width)."""
    return np.matmul(a.transpose(2, 0, 1), b.transpose(2, 0, 1)).transpose(1, 2, 0)
