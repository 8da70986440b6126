"""Forests of links between columns, drawn as a whole given the evidence of each link.

A forest gives each of D columns at most one other column as its parent, without circles. A priori the number of links e
is uniform on 0 ... D - 1, and given e each of the C(D - 1, e) D^e rooted forests is as probable. With t ~ Beta(e + 1, D
- e) drawn, that is a weight rho = t / ((1 - t) D) for each link, so that a forest has the weight of its links alone.

Given such weights forests are the spanning trees of a graph with one more node, the root. The columns draw their
parents one after another: P(parent of c is j) is proportional to w(c -> j) h_j, where h_j is the probability that a
walk from j comes to the root before it comes to c (last exit of the walk from c: Wilson 1996); from then on, a walk
that comes to c goes on at its parent.

Half of the columns draw first, while the others are eliminated, and then the others, while those follow their links;
each half does the same by halves. A state is eliminated by additions, multiplications and divisions of positive numbers
(Grassmann, Taksar & Heyman 1985), here in logarithms: evidences differ by thousands of nats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.kernels.common.functions import gammaln

ROOT = -1  # parent of a column without one
AT_ONCE = 1 << 20  # numbers that a product of matrices holds together


def log_prior(parents: np.ndarray, n_columns: int | None = None) -> float:
    """Log prior probability of a forest, parents (D,) with ROOT for none; but for a constant where some of the
    `n_columns` columns cannot have one."""
    return log_prior_of(len(parents) if n_columns is None else n_columns, int((parents != ROOT).sum()))


def log_prior_of(d: int, e: int) -> float:
    """Log prior probability of a forest of d columns with e links."""
    if not d:
        return 0.0  # the only forest
    choose = gammaln(d) - gammaln(e + 1) - gammaln(d - e)
    return float(-np.log(d) - choose - e * np.log(d))


def log_weight_of_links(n_links: int, n_columns: int, stream: np.random.Generator) -> float:
    """Log of the weight rho of each link, drawn given the number of links."""
    t = stream.beta(n_links + 1.0, n_columns - n_links)
    return float(np.log(t) - np.log1p(-t) - np.log(n_columns))


def draw_with_others(
    score: np.ndarray, alone: np.ndarray, u: np.ndarray, order: Sequence[int], above: np.ndarray
) -> np.ndarray:
    """Draw a forest with E other columns that are parents alone, each below the column `above` (E,) for good, or below
    none, ROOT. Parents (D,): of these columns from D on.

    score (D, D + E), u (D, 2); else as `draw_forest`: a link to such a column is one to the column that it is below.
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

    score (D, D): log weight of the link from column c to parent j, -inf where there must be none; its diagonal is not
    looked at. alone (D,): log weight of c without a parent, finite. u (D,): a uniform of each column. order: in which
    they draw. Cost: O(D^3).
    """
    d = len(alone)
    weight = np.concatenate([np.where(np.eye(d, dtype=bool), -np.inf, score), alone[:, None]], axis=1)  # (D, D + 1)
    parents = np.full(d, ROOT)
    ends = np.full((d + 1, d + 1), -np.inf)  # the root is the last
    order = np.asarray(order)
    ends[[*order, d], np.arange(d + 1)] = 0.0
    if d:
        _draw(weight, parents, u, order, ends)
    return parents


def _draw(weight: np.ndarray, parents: np.ndarray, u: np.ndarray, columns: np.ndarray, ends: np.ndarray) -> None:
    """Draw the parents of some columns, in this order.

    ends (D + 1, n + 1): log probability, from every column and the root, that a walk comes first to each of these
    columns, or to the root before any.
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
    steps = _product(weight[others], ends)
    _draw(weight, parents, u, first, _past(to_first, ends[:, half:n], steps[:, [*range(half, n), *range(half), n]]))
    _draw(weight, parents, u, others, _past(to_others, ends[:, :half], ends[parents[first]]))


def _past(ends: np.ndarray, there: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Log probabilities that walks end in each of m states, (D + 1, m), where those that come to one of n others go on
    from there. ends: that they do without these; there (D + 1, n): that they come to these; steps (n, n + m): log
    weights of the steps from these to each other and to the m."""
    return np.logaddexp(ends, _product(there, _log_ends(steps)))


def _log_ends(steps: np.ndarray) -> np.ndarray:
    """Log probability, from each of n states, that a walk leaves them for each of m others, (n, m). steps (n, n + m):
    log weights, those of n to each other first; staying is no step."""
    n, to = len(steps), steps.copy()
    for k in range(n):
        to[k, k] = -np.inf
        to[k] -= np.logaddexp.reduce(to[k, k:])
        rest = slice(k + 1, n)
        through = to[rest, k].copy()
        np.logaddexp(to[rest, k + 1 :], through[:, None] + to[k, k + 1 :], out=to[rest, k + 1 :])
    out = to[:, n:].copy()
    for k in range(n - 2, -1, -1):
        out[k] = np.logaddexp(out[k], _product(to[k : k + 1, k + 1 : n], out[k + 1 :])[0])
    return out


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Logarithm of the product of two matrices, given theirs, (n, m) of (n, k) and (k, m)."""
    rows = max(1, AT_ONCE // max(1, b.size))
    parts = []
    for i in range(0, len(a), rows):
        terms = a[i : i + rows, :, None] + b
        top = terms.max(axis=1)
        finite = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            parts.append(np.log(np.exp(terms - finite[:, None]).sum(axis=1)) + finite)
    return np.concatenate(parts)


def _pick(log_weight: np.ndarray, u: float) -> int:
    below = np.cumsum(np.exp(log_weight - log_weight.max()))
    return int(np.searchsorted(below, u * below[-1], side="right"))
