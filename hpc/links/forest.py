"""Forests of links between columns, drawn as a whole given the evidence of each link.

A forest gives each of D columns at most one other column as its parent, without cycles. A priori the number of links e
is uniform on 0 ... D - 1, and given e the C(D - 1, e) D^e rooted forests are equally likely. Drawing t ~ Beta(e + 1, D
- e) turns this into a weight rho = t / ((1 - t) D) per link, so that a forest's weight is the product over its links.

Given such weights, forests are the spanning trees of a graph with one more node, the root. The columns draw their
parents one after another: P(parent of c is j) is proportional to w(c -> j) h_j, where h_j is the probability that a
walk from j reaches the root before c (last exit of the walk from c: Wilson 1996); from then on, a walk that reaches c
continues at its parent.

Half of the columns draw first, with the other half eliminated; then the other half draw, while the first follow their
links; each half recurses. A state is eliminated by additions, multiplications and divisions of positive numbers
(Grassmann, Taksar & Heyman 1985), here in logarithms: evidences differ by thousands of nats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.kernels.common.functions import gammaln
from mpibayes.kernels.mixture.updates import log_product

ROOT = -1  # parent of a column without one
NEGLIGIBLE = -45.0  # log weight of all links of a column beside none, lost in rounding, as in `log_product`


def log_prior(parents: np.ndarray, n_columns: int | None = None) -> float:
    """Log prior probability of a forest, parents (D,) with ROOT for none; up to a constant if some of the `n_columns`
    columns cannot have a parent."""
    return log_prior_of(len(parents) if n_columns is None else n_columns, int((parents != ROOT).sum()))


def log_prior_of(d: int, e: int) -> float:
    """Log prior probability of a forest of d columns with e links."""
    if not d:
        return 0.0  # the only forest
    choose = gammaln(d) - gammaln(e + 1) - gammaln(d - e)
    return float(-np.log(d) - choose - e * np.log(d))


def log_weight_of_links(n_links: int, n_columns: int, stream: np.random.Generator) -> float:
    """Draw the weight rho of each link given the number of links; return its log."""
    t = stream.beta(n_links + 1.0, n_columns - n_links)
    return float(np.log(t) - np.log1p(-t) - np.log(n_columns))


def draw_with_others(
    score: np.ndarray, alone: np.ndarray, u: np.ndarray, order: Sequence[int], above: np.ndarray
) -> np.ndarray:
    """Draw a forest with E further columns that can only be parents: each is a fixed child of the column `above` (E,),
    or of none, ROOT. Returns parents (D,), in which the further columns are numbered from D on.

    score (D, D + E), u (D, 2), else as in `draw_forest`. A link to a further column counts as a link to the column
    above it.
    """
    d, parents = len(alone), np.full(len(alone), ROOT)
    members = [np.append(home, d + np.flatnonzero(above == home)) for home in range(d)]
    roots = d + np.flatnonzero(above == ROOT)
    joined = np.column_stack([np.logaddexp.reduce(score[:, of], axis=1) for of in members])
    free = np.column_stack([alone, score[:, roots]])
    homes = draw_forest(joined, np.logaddexp.reduce(free, axis=1), u[:, 0], order)
    for c, home in enumerate(homes.tolist()):
        if home == ROOT:
            parents[c] = np.append(ROOT, roots)[_pick(free[c], u[c, 1])]
        else:
            parents[c] = members[home][_pick(score[c, members[home]], u[c, 1])]
    return parents


def draw_forest(score: np.ndarray, alone: np.ndarray, u: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Draw a forest: parents (D,), ROOT for none.

    score (D, D): log weight of the link from column c to parent j, -inf if not allowed; the diagonal is ignored. alone
    (D,): log weight of c without a parent, finite. u (D,): one uniform per column. order: the order in which the
    columns draw. Cost: O(D^3) for the D columns of which a link is not out of the question (NEGLIGIBLE).
    """
    d = len(alone)
    weight = np.concatenate([np.where(np.eye(d, dtype=bool), -np.inf, score), alone[:, None]], axis=1)  # (D, D + 1)
    parents = np.full(d, ROOT)
    may_link = np.logaddexp.reduce(weight[:, :d], axis=1, initial=-np.inf) > alone + NEGLIGIBLE
    order = np.asarray(order, np.intp)
    order = order[may_link[order]]
    ends = np.full((d + 1, len(order) + 1), -np.inf)  # the root comes last
    ends[:d, -1][~may_link] = 0.0
    ends[[*order, d], np.arange(len(order) + 1)] = 0.0
    if len(order):
        _draw(weight, parents, u, order, ends)
    return parents


def _draw(weight: np.ndarray, parents: np.ndarray, u: np.ndarray, columns: np.ndarray, ends: np.ndarray) -> None:
    """Draw the parents of `columns`, in this order.

    ends (D + 1, n + 1): log probability that a walk from each column, or the root, reaches each of `columns` first, or
    the root before any.
    """
    n = len(columns)
    if n == 1:
        (c,) = columns
        j = _pick(weight[c] + ends[:, -1], u[c])
        parents[c] = ROOT if j == len(parents) else j
        return
    half = n // 2
    first, others = columns[:half], columns[half:]
    to_first, to_others = ends[:, [*range(half), n]], ends[:, half:]
    steps = log_product(weight[others], ends)
    _draw(weight, parents, u, first, _past(to_first, ends[:, half:n], steps[:, [*range(half, n), *range(half), n]]))
    _draw(weight, parents, u, others, _past(to_others, ends[:, :half], ends[parents[first]]))


def _past(ends: np.ndarray, there: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Log probabilities that walks end in each of m states, (D + 1, m), if walks that reach one of n others continue.
    ends: log probabilities without passing the n. there (D + 1, n): of reaching each of the n. steps (n, n + m): log
    weights of the steps from the n to each other and to the m."""
    return np.logaddexp(ends, log_product(there, _log_ends(steps)))


def _log_ends(steps: np.ndarray) -> np.ndarray:
    """Log probability that a walk from each of n states leaves them for each of m others, (n, m). steps (n, n + m): log
    weights, first of the steps among the n; staying is no step. Half of the states are eliminated before the others."""
    n = len(steps)
    if n == 1:
        return steps[:, 1:] - np.logaddexp.reduce(steps[:, 1:], axis=1, keepdims=True)
    half = n // 2
    first = _log_ends(steps[:half])
    last = _log_ends(np.logaddexp(steps[half:, half:], log_product(steps[half:, :half], first)))
    return np.concatenate([np.logaddexp(first[:, n - half :], log_product(first[:, : n - half], last)), last])


def _pick(log_weight: np.ndarray, u: float) -> int:
    below = np.cumsum(np.exp(log_weight - log_weight.max()))
    return int(np.searchsorted(below, u * below[-1], side="right"))
