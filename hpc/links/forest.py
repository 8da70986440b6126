"""Forests of links between columns, drawn as a whole given the evidence of each link.

A forest gives each of D columns at most one other column as its parent, without circles. A priori the number of links e
is uniform on 0 ... D - 1, and given e each of the C(D - 1, e) D^e rooted forests is as probable. With t ~ Beta(e + 1, D
- e) drawn, that is a weight rho = t / ((1 - t) D) for each link, so that a forest has the weight of its links alone.

Given such weights forests are the spanning trees of a graph with one more node, the root. The columns draw their
parents one after another: P(parent of c is j) is proportional to w(c -> j) h_j, where h_j is the probability that a
walk from j comes to the root before it comes to c (last exit of the walk from c: Wilson 1996), and c is then contracted
into its parent. h is found by state elimination, which only adds, multiplies and divides positive numbers (Grassmann,
Taksar & Heyman 1985), here in logarithms: evidences differ by thousands of nats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln

ROOT = -1  # parent of a column without one


def log_prior(parents: np.ndarray, n_columns: int | None = None) -> float:
    """Log prior probability of a forest, parents (D,) with ROOT for none; but for a constant where some of the
    `n_columns` columns cannot have one."""
    d, e = len(parents) if n_columns is None else n_columns, int((parents != ROOT).sum())
    if not d:
        return 0.0  # the only forest
    choose = gammaln(d) - gammaln(e + 1) - gammaln(d - e)
    return float(-np.log(d) - choose - e * np.log(d))


def log_weight_of_links(n_links: int, n_columns: int, stream: np.random.Generator) -> float:
    """Log of the weight rho of each link, drawn given the number of links."""
    t = stream.beta(n_links + 1.0, n_columns - n_links)
    return float(np.log(t) - np.log1p(-t) - np.log(n_columns))


def draw_forest(
    score: np.ndarray, alone: np.ndarray, u: np.ndarray, order: Sequence[int], above: Sequence[int] = ()
) -> np.ndarray:
    """Draw a forest: parents (D,), ROOT for none.

    score (D, D + E): log weight of the link from column c to parent j, -inf where there must be none; its diagonal is
    not looked at. The last E are parents alone, each below the column `above` (E,) for good, or below none, ROOT. alone
    (D,): log weight of c without a parent, finite. u (D, 2): uniforms of each column. order: in which they draw. Cost:
    O(D^4).
    """
    d = len(alone)
    columns = np.where(np.eye(d, dtype=bool), -np.inf, score[:, :d])
    log_w = np.concatenate([columns, alone[:, None], score[:, d:]], axis=1)  # (D, D + 1 + E)
    members = [[c] for c in range(d)] + [[d]]  # of each node; the last is the root
    for i, c in enumerate(above):
        members[d if c == ROOT else c].append(d + 1 + i)
    parents = np.full(d, ROOT)
    left = list(range(d))  # nodes whose top has no parent yet; a node's number is that of its top
    for c in order:
        nodes = [*left, d]
        to = np.full((len(left), len(nodes)), -np.inf)  # log weight from each node to each node
        for b, name in enumerate(nodes):
            to[:, b] = np.logaddexp.reduce(log_w[np.ix_(left, members[name])], axis=1)
        place = left.index(c)
        to[np.arange(len(left)), np.arange(len(left))] = -np.inf
        weight = to[place] + _log_reach(to, place)
        b = _pick(weight, u[c, 0])
        inside = members[nodes[b]]
        parent = inside[_pick(log_w[c, inside], u[c, 1])]
        parents[c] = ROOT if parent == d else parent - (parent > d)
        members[nodes[b]] = inside + members[c]
        left.remove(c)
    return parents


def _log_reach(to: np.ndarray, last: int) -> np.ndarray:
    """Log probability, from each node, that a walk comes to the root before it comes to node `last`; (N + 1,), of the
    root 0. to (N, N + 1): log weights of steps; the root is the last column."""
    n = len(to)
    to, steps = to.copy(), [k for k in range(n) if k != last]
    alive = np.ones(n + 1, bool)
    out = np.zeros(n)
    for k in steps:
        alive[k] = False
        out[k] = np.logaddexp.reduce(to[k, alive])
        through = to[:, k] - out[k]
        rest = np.flatnonzero(alive[:n])
        to[np.ix_(rest, alive)] = np.logaddexp(to[np.ix_(rest, alive)], through[rest, None] + to[k, alive])
        to[rest, rest] = -np.inf  # a walk that comes back has not moved
    reach = np.full(n + 1, -np.inf)
    reach[n] = 0.0
    known = [n]
    for k in reversed(steps):
        reach[k] = np.logaddexp.reduce(to[k, known] + reach[known]) - out[k] if known else -np.inf
        known.append(k)
    return reach


def _pick(log_weight: np.ndarray, u: float) -> int:
    below = np.cumsum(np.exp(log_weight - log_weight.max()))
    return int(np.searchsorted(below, u * below[-1], side="right"))
