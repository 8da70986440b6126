"""Blocks of real columns as questions see them: a multivariate t in each cluster (docs/math.md 1.6, 2.12).

Values of several columns of a block may be given; a range of one of them, alone. A value that was recorded in a step
has the probability of the density times the step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.components.masses import log_t
from mpibayes.hpc.components.predictive import Predictive
from mpibayes.hpc.data.events import Events, Known


class JointLaw(Protocol):
    """Columns that depend on each other within clusters: a block, or a tree of linked columns (`links.law`).

    names: of the table's columns. Arrays end with the K clusters of the draw and a new one."""

    names: Sequence[str]

    def knows(self, known: Known) -> bool:
        """True if something is known of a column."""

    def score(self, known: Known) -> np.ndarray:
        """Log probability of what is known of these columns, (n, K + 1)."""

    def given(self, known: Known, given: Known | None) -> np.ndarray:
        """The same given what is known of other columns, (n, K + 1)."""

    def log_masses(self, events: Events) -> np.ndarray:
        """Log probability of each event of a column, (U, K + 1)."""

    def averaged(self, events: Events, weight: np.ndarray, given: Known) -> np.ndarray:
        """Sums over clusters, weighted by (n, K + 1), of the probabilities of a column's events given others,
        (n, U)."""


LEAST = 1e-12  # weight of a cluster that a row's conditional still looks at


@dataclass(frozen=True)
class BlockLaw:
    """names: of its columns, in order. law: of the K clusters and a new one."""

    names: Sequence[str]
    law: Predictive

    def knows(self, known: Known) -> bool:
        return any(name in known.of for name in self.names)

    def score(self, known: Known) -> np.ndarray:
        """Log probability of what is known of these columns in every cluster, (n, K + 1)."""
        mine = known.only(self.names)
        if len(mine.of) == 1:
            return self.alone(*next(iter(mine.of.values())))
        total = np.zeros((known.n_rows, len(self.law.nu)))
        if mine.of:
            x, width = self.cells(mine)
            for seen, at in patterns_of(x):
                if len(seen):
                    total[at] = self.law.log_density(x[at][:, seen], seen) + width[at, None]
        return total

    def alone(self, events: Events, which: np.ndarray) -> np.ndarray:
        """The same where nothing is known of other columns."""
        table = self.log_masses(events)
        return np.append(table, np.zeros((1, table.shape[1])), axis=0)[which]

    def given(self, known: Known, given: Known | None) -> np.ndarray:
        """The same given what is known of other columns; 0 in clusters where that is impossible."""
        if given is None or not self.knows(given):
            return self.score(known)
        before = self.score(given)
        possible = np.isfinite(before)
        return np.where(possible, self.score(known.join(given)) - np.where(possible, before, 0.0), 0.0)

    def cells(self, known: Known) -> tuple[np.ndarray, np.ndarray]:
        """Values (n, D), NaN where nothing is known, and the sum of the logarithms of their steps (n,). Raises
        ConfigError for ranges."""
        x, width = np.full((known.n_rows, len(self.names)), np.nan), np.zeros(known.n_rows)
        for name, (events, which) in known.of.items():
            if name not in self.names:
                continue
            if ranges(events).any():
                raise ConfigError(
                    f"column '{name}' is modelled jointly with others in a block: a range of it can be given where "
                    "nothing else of these is asked for or given"
                )
            seen = which < len(events)
            x[seen, self.names.index(name)] = (0.5 * (events.low + events.high))[which[seen]]
            step = events.column.resolution
            width[seen] += np.log(step) if step else 0.0
        return x, width

    def log_masses(self, events: Events) -> np.ndarray:
        """Log probability of each event of a column in every cluster, (U, K + 1)."""
        m, law = self.names.index(events.column.name), self.law
        scale = np.sqrt(law.matrix[:, m, m] / law.nu)
        return log_t(law.location[:, m], scale, law.nu, events.low[:, None], events.high[:, None])

    def averaged(self, events: Events, weight: np.ndarray, given: Known) -> np.ndarray:
        """Probabilities (n, U) of a column's events given other columns of the block, too; weight (n, K + 1). Its own
        cell, where it is known, has its part in the weights alone."""
        m, (x, _) = self.names.index(events.column.name), self.cells(given)
        x[:, m] = np.nan
        out = np.zeros((len(weight), len(events)))
        for seen, at in patterns_of(x):
            location, scale, nu = self.law.single(x[at][:, seen], seen, m)
            rows, k = np.nonzero(weight[at] > LEAST)
            each = log_t(
                location[rows, k, None], scale[rows, k, None], nu[k, None], events.low[None], events.high[None]
            )
            np.add.at(out, at[rows], np.exp(each) * weight[at[rows], k, None])
        return out

    def draw(self, law, block: int, known: Known, requested: Collection[str], cluster, stream, ids) -> dict:
        """Values (n,) of the columns wanted by the clusters of the rows: of what is known, or drawn given it. law: of
        all blocks, of which this is one (`multinormal.Students`)."""
        x, _ = self.cells(known)
        for seen, at in patterns_of(x):
            lacking = np.array([m for m, name in enumerate(self.names) if name in requested and m not in seen], np.intp)
            if len(lacking):
                drawn = law.draw(block, x[at][:, seen], seen, lacking, cluster[at], stream, ids[at])
                x[np.ix_(at, lacking)] = drawn
        return {name: x[:, m] for m, name in enumerate(self.names) if name in requested}


def ranges(events: Events) -> np.ndarray:
    """Mask of the events wider than one recorded value."""
    step = events.column.resolution
    return events.high - events.low > step * (1.0 + 1e-9) + 1e-300


def patterns_of(x: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(columns that are there, rows) of each set of columns that rows have."""
    kinds, of = np.unique(~np.isnan(x), axis=0, return_inverse=True)
    for i, there in enumerate(kinds):
        yield np.flatnonzero(there), np.flatnonzero(of.ravel() == i)
