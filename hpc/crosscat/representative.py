"""The kept draws that stand for the posterior: of the views, which columns go together; in each view, of its rows.

The representative views are those of one draw. A draw in which these columns are not a view is seen as its view has it
that has most of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.draws import OfColumns, Posterior
from mpibayes.hpc.crosscat.partitions import by_size, nearest, variations
from mpibayes.hpc.posterior.chains import evenly

PROBES = 1000  # rows on which every kept draw is compared with every other
COMPARED = 200  # kept draws compared with one another, at most; of each chain FEWEST at least
FEWEST = 4  # kept draws of a chain whose halves can be compared
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

    @property
    def slight(self) -> bool:
        """Whether its view groups no columns, or no rows."""
        return len(self.of.names) == 1 or len(self.sizes) == 1

    @property
    def losses(self) -> np.ndarray:
        """Of all draws compared, (D',)."""
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


def representatives(run: Posterior, kept: Sequence[tuple[int, int]]) -> Representatives:
    """Of at most COMPARED kept draws, evenly spaced in each chain, those with the least expected variation of
    information to them all: of the columns, and of the rows of each view. Ties go to the earlier draw."""
    by_chain = [[pair for pair in kept if pair[0] == i] for i in sorted({i for i, _ in kept})]
    share = max(COMPARED // len(by_chain), FEWEST)
    wanted = [pair for some in by_chain for pair in evenly(some, share)]
    columns = _columns(run, wanted) if run.several else None
    best = 0 if columns is None else nearest(np.arange(len(columns.cycle)), columns.distances)
    chosen = [run.whole] if columns is None else _in_order(run, columns.labels[best])
    rows = _rows(run.n_rows)
    labels: list[list[np.ndarray]] = [[] for _ in chosen]
    for _, draw in run.states(wanted):
        for own, found in zip(chosen, labels):
            found.append(draw.labels[own.nearest_view(draw)][rows].astype(np.int32))
    views = [_of_view(own, wanted, found) for own, found in zip(chosen, labels)]
    if columns is None:
        return Representatives(views, views[0].chain, views[0].cycle, 0.0, None)
    return Representatives(views, *wanted[best], float(columns.distances[best].mean()), columns)


def _rows(n_rows: int) -> np.ndarray:
    """The rows that draws are compared on, drawn once and for all for a table of this length."""
    if n_rows <= SAMPLED:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(n_rows).choice(n_rows, SAMPLED, replace=False))


def _columns(run: Posterior, wanted: Sequence[tuple[int, int]]) -> Compared:
    """The views of these draws as partitions of the columns."""
    found = np.array([draw.view_of for _, draw in run.states(wanted)])
    return Compared(*np.array(wanted).T, found, variations(found))


def _in_order(run: Posterior, view_of: np.ndarray) -> list[OfColumns]:
    """The views of a draw, those with most columns first; then by their first column."""
    names = [c.name for c in run.data.stored]
    members = [[n for n, v in zip(names, view_of.tolist()) if v == view] for view in dict.fromkeys(view_of.tolist())]
    return [run.of(own) for own in sorted(members, key=lambda own: -len(own))]


def _of_view(own: OfColumns, wanted: Sequence[tuple[int, int]], labels: Sequence[np.ndarray]) -> Representative:
    """labels: of each of the `wanted` draws, on the rows that they are compared on."""
    stacked = np.stack(labels)
    probes = evenly(np.random.default_rng(own.n_rows).permutation(stacked.shape[1]), PROBES)
    compared = Compared(*np.array(wanted).T, stacked, variations(stacked[:, probes]))
    best = nearest(np.arange(len(wanted)), compared.distances)
    chain, cycle = wanted[best]
    ((_, draw),) = own.states([(chain, cycle)])
    z = by_size(draw.labels)
    return Representative(
        own, chain, cycle, z, np.bincount(z), float(compared.distances[best].mean()), draw.hyper, compared
    )
