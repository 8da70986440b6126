"""Representative kept draws: one for the views, as a partition of the columns, and one for the rows of each view.

All of them are draws of the best chain (`best_chain.py`), since chains may have found different views or clusters. The
representative views are those of one draw. In another draw, a representative view is matched with the view that has
most of its columns.

The loss is the variation of information, VI(a, b) = 2 H(a, b) - H(a) - H(b). Alone it fails for draws with small
clusters: if nearly every row of two draws is alone in its intersection, H(a, b) is log N for any a and b, and the draw
with the most clusters has the least loss (for 270 rows of one population, whose draws have 61 to 133 clusters, one with
170). So the least loss is taken over draws with a typical number of clusters, between the 5 and 95 % points of its
posterior, which is the interval that the report prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.summaries.best_chain import best_of
from mpibayes.hpc.crosscat.summaries.of_columns import OfColumns
from mpibayes.hpc.crosscat.summaries.partitions import by_size, nearest, typical, variations
from mpibayes.hpc.posterior.chains import evenly

PROBES = 1000  # rows on which every kept draw is compared with every other
COMPARED = 200  # most kept draws compared with one another, but at least FEWEST of each chain
FEWEST = 4  # least kept draws of a chain whose halves can be compared
TYPICAL = (0.05, 0.95)  # posterior quantiles between which a number of clusters is typical
SAMPLED = 20_000  # rows on which chains are compared with one another


@dataclass
class Compared:
    """The kept draws compared with one another. chain, cycle (D',): of each; labels (D', M): of M rows of the table (or
    of its columns); distances (D', D'): variation of information on PROBES of these rows."""

    chain: np.ndarray
    cycle: np.ndarray
    labels: np.ndarray
    distances: np.ndarray


@dataclass
class Representative:
    """The representative draw of a view: labels (N,) numbered by size, and its expected loss. chain: the best one."""

    of: OfColumns
    chain: int
    cycle: int
    labels: np.ndarray
    sizes: np.ndarray  # (R,) descending
    loss: float  # expected variation of information, nats, to the chain's other draws
    hyper: Any
    compared: Compared
    among: tuple[int, int] | None = None  # typical numbers of clusters, if these excluded a draw with less loss

    @property
    def slight(self) -> bool:
        """True if its view groups no columns, or no rows."""
        return len(self.of.names) == 1 or len(self.sizes) == 1

    @property
    def losses(self) -> np.ndarray:
        """Expected loss of each compared draw of the chain."""
        own = self.compared.chain == self.chain
        return self.compared.distances[np.ix_(own, own)].mean(axis=1)


@dataclass
class Representatives:
    """views: most columns first. chain: the best one. cycle: of the draw that has these views. loss: as for a view, but
    between partitions of the columns. compared: partitions of the columns; None for a mixture, which has one view."""

    views: list[Representative]
    chain: int
    cycle: int
    loss: float
    compared: Compared | None
    among: tuple[int, int] | None = None  # the same, for numbers of views

    @property
    def n_own(self) -> int:
        """Number of compared draws of the chain."""
        return int(np.count_nonzero(self.compared.chain == self.chain))


def representatives(run: Posterior, kept: Sequence[tuple[int, int]]) -> Representatives:
    """Return the representative draws of a run: of the best chain's draws, among at most COMPARED kept draws evenly
    spaced in each chain, the one with the least expected variation of information to the others, among those with a
    typical number of clusters.

    There is one for the columns, and one for the rows of each view, among the draws that have this view if they are
    FEWEST or more. Ties go to the earlier draw. Reads the traces, unless they have been."""
    by_chain = [[pair for pair in kept if pair[0] == i] for i in sorted({i for i, _ in kept})]
    share = max(COMPARED // len(by_chain), FEWEST)
    compared = [pair for of_chain in by_chain for pair in evenly(of_chain, share)]
    if not all(chain.trace for chain in run.chains):
        run.read_traces()
    chain = best_of(run.chains, {i for i, _ in compared})
    of_chain = np.array([i == chain for i, _ in compared])
    columns = _columns(run, compared) if run.several else None
    best, among = 0, None
    if columns is not None:
        best, among = _chosen(columns, _counts(columns.labels), _printed(run, "n_views"), np.flatnonzero(of_chain))
    chosen = [run.whole] if columns is None else _in_order(run, columns.labels[best])
    rows = _rows(run.n_rows)
    labels: list[list[np.ndarray]] = [[] for _ in chosen]
    counts: list[list[int]] = [[] for _ in chosen]
    own: list[list[bool]] = [[] for _ in chosen]
    for _, draw in run.states(compared):
        for view, of_view, n, has in zip(chosen, labels, counts, own):
            z = draw.labels[view.nearest_view(draw)]
            of_view.append(z[rows].astype(np.int32))
            n.append(int(z.max()) + 1)
            has.append(view.is_view(draw))
    printed = None if run.several else _printed(run, "n_clusters")
    views = [
        _of_view(view, compared, of_view, np.array(n), printed, _own(of_chain, np.array(has)))
        for view, of_view, n, has in zip(chosen, labels, counts, own)
    ]
    if columns is None:
        return Representatives(views, chain, views[0].cycle, 0.0, None)
    return Representatives(views, *compared[best], float(columns.distances[best][of_chain].mean()), columns, among)


def _own(of_chain: np.ndarray, has: np.ndarray) -> np.ndarray:
    """Return the places of the best chain's draws that have a view, or of all its draws if these are fewer than
    FEWEST."""
    own = np.flatnonzero(of_chain & has)
    return own if len(own) >= FEWEST else np.flatnonzero(of_chain)


def _printed(run: Posterior, name: str) -> tuple[float, float] | None:
    """Return the interval of a count that the report prints, from all cycles after burn-in; None if not traced."""
    if not all(name in chain.trace for chain in run.chains):
        return None
    draws = np.concatenate([chain.later()[name] for chain in run.chains])
    return _interval(draws) if len(draws) else None


def _interval(counts: np.ndarray) -> tuple[float, float]:
    low, high = np.round(np.quantile(counts, TYPICAL))
    return float(low), float(high)


def _chosen(
    compared: Compared, counts: np.ndarray, interval: tuple[float, float] | None, own: np.ndarray | None = None
) -> tuple[int, tuple[int, int] | None]:
    """Return the place of the representative draw, and `among`. counts (D',): clusters of each compared draw; own:
    places of the draws that count, by default all."""
    own = np.arange(len(counts)) if own is None else own
    low, high = interval or _interval(counts[own])
    best = nearest(own, compared.distances, own[typical(counts[own], low, high)])
    return best, None if best == nearest(own, compared.distances) else (int(low), int(high))


def _counts(labels: np.ndarray) -> np.ndarray:
    return np.array([len(np.unique(z)) for z in labels])


def _rows(n_rows: int) -> np.ndarray:
    """Return the rows on which draws are compared, a fixed sample for a table of this length."""
    if n_rows <= SAMPLED:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(n_rows).choice(n_rows, SAMPLED, replace=False))


def _columns(run: Posterior, requested: Sequence[tuple[int, int]]) -> Compared:
    """Compare the views of these draws as partitions of the columns."""
    view_of = np.array([draw.view_of for _, draw in run.states(requested)])
    return Compared(*np.array(requested).T, view_of, variations(view_of))


def _in_order(run: Posterior, view_of: np.ndarray) -> list[OfColumns]:
    """Return the views of a draw, most columns first, then by first column."""
    names = [c.name for c in run.data.stored]
    members = [[n for n, v in zip(names, view_of.tolist()) if v == view] for view in dict.fromkeys(view_of.tolist())]
    return [run.of(part) for part in sorted(members, key=lambda part: -len(part))]


def _of_view(
    mine: OfColumns,
    requested: Sequence[tuple[int, int]],
    labels: Sequence[np.ndarray],
    counts: np.ndarray,
    interval: tuple[float, float] | None,
    own: np.ndarray,
) -> Representative:
    """Choose a view's representative draw. labels: of each `requested` draw, on the compared rows; counts: its number
    of clusters on all rows; interval: of typical counts, by default computed from `counts`; own: see `_chosen`."""
    stacked = np.stack(labels)
    probes = evenly(np.random.default_rng(mine.n_rows).permutation(stacked.shape[1]), PROBES)
    compared = Compared(*np.array(requested).T, stacked, variations(stacked[:, probes]))
    best, among = _chosen(compared, counts, interval, own)
    chain, cycle = requested[best]
    ((_, draw),) = mine.states([(chain, cycle)])
    z = by_size(draw.labels)
    loss = float(compared.distances[best][compared.chain == chain].mean())
    return Representative(mine, chain, cycle, z, np.bincount(z), loss, draw.hyper, compared, among)
