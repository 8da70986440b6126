"""The kept draws that stand for the posterior: of the views, which columns go together; in each view, of its rows.

The representative views are those of one draw. A draw in which these columns are not a view is seen as its view has it
that has most of them.

The loss is the variation of information, VI(a, b) = 2 H(a, b) - H(a) - H(b). Alone it is no measure of draws whose
clusters are small: where nearly every row of two draws is in an intersection of its own, H(a, b) is log N whatever a
and b are, and the draw with the most clusters has the least loss (of 270 rows of one population, whose draws have 61 to
133 clusters, one with 170). So the least loss is looked for among draws whose number of clusters is typical, from the
5 to the 95 % point of its posterior, which is the interval that the report prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.of_columns import OfColumns
from mpibayes.hpc.crosscat.partitions import by_size, nearest, typical, variations
from mpibayes.hpc.posterior.chains import evenly

PROBES = 1000  # rows on which every kept draw is compared with every other
COMPARED = 200  # kept draws compared with one another, at most; of each chain FEWEST at least
FEWEST = 4  # kept draws of a chain whose halves can be compared
TYPICAL = (0.05, 0.95)  # points of the posterior of a number of clusters, between which it is typical
SAMPLED = 20_000  # rows on which chains are compared with one another


@dataclass
class Compared:
    """The kept draws that are compared with one another: (D',) chain and cycle of each, labels (D', M) on M rows of the
    table (or of its columns), and their variation of information on PROBES of those, (D', D')."""

    chain: np.ndarray
    cycle: np.ndarray
    labels: np.ndarray
    distances: np.ndarray


@dataclass
class Representative:
    """The kept draw that stands for the posterior of a view: labels (N,) numbered by size, and how good it is."""

    of: OfColumns
    chain: int
    cycle: int
    labels: np.ndarray
    sizes: np.ndarray  # (R,) descending
    loss: float  # expected variation of information, nats, to the other draws
    hyper: Any
    compared: Compared
    among: tuple[int, int] | None = None  # numbers of clusters it was chosen from, where those left a nearer draw out

    @property
    def slight(self) -> bool:
        """True if its view groups no columns, or no rows."""
        return len(self.of.names) == 1 or len(self.sizes) == 1

    @property
    def losses(self) -> np.ndarray:
        """Expected loss of each draw compared, (D',)."""
        return self.compared.distances.mean(axis=1)


@dataclass
class Representatives:
    """views: those with most columns first. chain, cycle: the draw whose views they are. loss: as of a view, but
    between partitions of the columns. compared: of these; None of a mixture, which has one view."""

    views: list[Representative]
    chain: int
    cycle: int
    loss: float
    compared: Compared | None
    among: tuple[int, int] | None = None  # numbers of views, likewise


def representatives(run: Posterior, kept: Sequence[tuple[int, int]]) -> Representatives:
    """Representative draws of a run: of at most COMPARED kept draws, evenly spaced in each chain, the one with the
    least expected variation of information to them all among those with a typical number of clusters.

    There is one for the columns, and one for the rows of each view. Ties go to the earlier draw. The traces have to be
    read."""
    by_chain = [[pair for pair in kept if pair[0] == i] for i in sorted({i for i, _ in kept})]
    share = max(COMPARED // len(by_chain), FEWEST)
    compared = [pair for of_chain in by_chain for pair in evenly(of_chain, share)]
    columns = _columns(run, compared) if run.several else None
    best, among = 0, None
    if columns is not None:
        best, among = _chosen(columns, _counts(columns.labels), _printed(run, "n_views"))
    chosen = [run.whole] if columns is None else _in_order(run, columns.labels[best])
    rows = _rows(run.n_rows)
    labels: list[list[np.ndarray]] = [[] for _ in chosen]
    counts: list[list[int]] = [[] for _ in chosen]
    for _, draw in run.states(compared):
        for view, of_view, n in zip(chosen, labels, counts):
            z = draw.labels[view.nearest_view(draw)]
            of_view.append(z[rows].astype(np.int32))
            n.append(int(z.max()) + 1)
    printed = None if run.several else _printed(run, "n_clusters")
    views = [
        _of_view(view, compared, of_view, np.array(n), printed) for view, of_view, n in zip(chosen, labels, counts)
    ]
    if columns is None:
        return Representatives(views, views[0].chain, views[0].cycle, 0.0, None)
    return Representatives(views, *compared[best], float(columns.distances[best].mean()), columns, among)


def _printed(run: Posterior, name: str) -> tuple[float, float] | None:
    """The interval of a count that the report prints, from all cycles after burn-in; None where the traces lack it."""
    if not all(name in chain.trace for chain in run.chains):
        return None
    draws = np.concatenate([chain.later()[name] for chain in run.chains])
    return _interval(draws) if len(draws) else None


def _interval(counts: np.ndarray) -> tuple[float, float]:
    low, high = np.round(np.quantile(counts, TYPICAL))
    return float(low), float(high)


def _chosen(
    compared: Compared, counts: np.ndarray, interval: tuple[float, float] | None
) -> tuple[int, tuple[int, int] | None]:
    """The draw that stands for all that are compared, and `among`. counts (D',): clusters of each."""
    low, high = interval or _interval(counts)
    every = np.arange(len(counts))
    best = nearest(every, compared.distances, typical(counts, low, high))
    return best, None if best == nearest(every, compared.distances) else (int(low), int(high))


def _counts(labels: np.ndarray) -> np.ndarray:
    return np.array([len(np.unique(z)) for z in labels])


def _rows(n_rows: int) -> np.ndarray:
    """The rows that draws are compared on, drawn once and for all for a table of this length."""
    if n_rows <= SAMPLED:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(n_rows).choice(n_rows, SAMPLED, replace=False))


def _columns(run: Posterior, requested: Sequence[tuple[int, int]]) -> Compared:
    """The views of these draws as partitions of the columns."""
    view_of = np.array([draw.view_of for _, draw in run.states(requested)])
    return Compared(*np.array(requested).T, view_of, variations(view_of))


def _in_order(run: Posterior, view_of: np.ndarray) -> list[OfColumns]:
    """The views of a draw, those with most columns first; then by their first column."""
    names = [c.name for c in run.data.stored]
    members = [[n for n, v in zip(names, view_of.tolist()) if v == view] for view in dict.fromkeys(view_of.tolist())]
    return [run.of(part) for part in sorted(members, key=lambda part: -len(part))]


def _of_view(
    mine: OfColumns,
    requested: Sequence[tuple[int, int]],
    labels: Sequence[np.ndarray],
    counts: np.ndarray,
    interval: tuple[float, float] | None,
) -> Representative:
    """labels: of each of the `requested` draws, on the rows that they are compared on; counts: of its clusters, on all
    rows; interval: of a typical count, by default of these."""
    stacked = np.stack(labels)
    probes = evenly(np.random.default_rng(mine.n_rows).permutation(stacked.shape[1]), PROBES)
    compared = Compared(*np.array(requested).T, stacked, variations(stacked[:, probes]))
    best, among = _chosen(compared, counts, interval)
    chain, cycle = requested[best]
    ((_, draw),) = mine.states([(chain, cycle)])
    z = by_size(draw.labels)
    loss = float(compared.distances[best].mean())
    return Representative(mine, chain, cycle, z, np.bincount(z), loss, draw.hyper, compared, among)
