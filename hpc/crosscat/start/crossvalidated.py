"""Scores of sets of columns, each in a view of its own, by cross-validation on training rows.

Rows are dealt to two or three folds, and a short chain on the other folds predicts each. The chain begins with random
clusters: from one cluster it would find too few for large sets, and favour small ones. It needs rounds of moves in each
cycle at first: with one in four cycles, views of numbers came out that scored 0.02 to 0.05 nats a row less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum

import numpy as np

from mpibayes.hpc.crosscat.columns.cells import Gather, Held, renumbered
from mpibayes.hpc.crosscat.laws.view_density import ViewDensity, densities
from mpibayes.hpc.crosscat.start.alone import advance, chain_on, without_learned_links
from mpibayes.hpc.crosscat.start.related import Set
from mpibayes.hpc.crosscat.start.strategy import SEARCHES, clusters_at_random
from mpibayes.hpc.crosscat.start.views import Found, found_by
from mpibayes.hpc.crosscat.view.view import Settings
from mpibayes.hpc.parallel.comm import Serial
from mpibayes.io.rows import Column, Rows

FOR_ALL, LEFT_OUT = -1, 10  # rows in no fold; one in so many is in a fold then
FOLDS = 5  # after more searches than by default: close views need the rows, in four times the work
BURN_IN_CYCLES, CYCLES_PER_STATE = 12, 4  # of a chain; it then runs as long again, and its states count
CYCLES_PER_ROUND = 1, 4  # of split and merge moves, in burn-in and after: rounds take most of a cycle's time
MOST_CELLS = 2_000_000  # for the information of columns about each other: rows times units, squared


@dataclass(frozen=True)
class Scored:
    """A set of columns. score: mean log density of a row in it, cross-validated; found: its view in the last chain;
    ties: information of the other columns about each unit, and each group of dependent units, in nats a row; looks:
    number of times that the rows were dealt."""

    score: float
    found: Found
    ties: dict[Set, float]
    looks: int = 1

    def averaged(self, other: Scored) -> Scored:
        """Return the mean of two looks."""
        ties = {names: (tie + other.ties[names]) / 2 for names, tie in self.ties.items()}
        return replace(other, score=(self.score + other.score) / 2, ties=ties, looks=2)


def folds(stream: np.random.Generator, n: int, n_rows: int, n_searches: int) -> np.ndarray:
    """Deal n rows to folds; n_rows: most rows of a search."""
    return stream.permutation(n) % (FOLDS if n_searches > SEARCHES else 2 if n >= 2 * n_rows else 3)


def left_out(stream: np.random.Generator, n: int) -> np.ndarray:
    """Deal a tenth of n rows to fold 0, and the others to none: FOR_ALL."""
    return np.where(stream.permutation(n) % LEFT_OUT, FOR_ALL, 0)


def scored(
    alone: Serial, every: Sequence[Column], rows: Rows, fold: np.ndarray, settings: Settings, chain: int, names: Set,
    tree: Sequence[Set] = (),
) -> Scored:  # fmt: skip
    """Score a set of columns. fold: of each row, from 0; FOR_ALL: chains have it, and none predicts it. tree: sets of
    dependent columns, which the ties are of, too."""
    columns = [column for column in every if column.name in names]
    often, seldom = CYCLES_PER_ROUND if settings.split_merge is None else (settings.split_merge,) * 2
    settings = replace(settings, split_merge=often)
    if not settings.learns_links:  # those of views have rules of their own
        settings = replace(settings, view_concentration=None)
    if not isinstance(settings.links, str):
        settings = replace(settings, links={a: b for a, b in settings.links.items() if names.issuperset((a, b))})
    cells = Gather(columns, [Held(every, [rows])], settings.blocks)(0)
    result, ties = np.empty(len(fold)), list[dict[Set, float]]()
    for f in range(fold.max() + 1):
        others = cells.take(np.flatnonzero(fold != f))
        mixture = chain_on(alone, renumbered(columns), others, settings, chain)
        mixture.start("random", clusters_at_random(len(others)))
        unseen, states = cells.take(np.flatnonzero(fold == f)), []
        advance(mixture, BURN_IN_CYCLES)
        mixture.settings = replace(mixture.settings, split_merge=seldom)
        for _ in range(BURN_IN_CYCLES // CYCLES_PER_STATE):
            advance(mixture, CYCLES_PER_STATE)
            (density,) = densities(mixture.views, mixture.linking.codings)
            states.append(density.log_density(unseen))
        result[fold == f] = np.logaddexp.reduce(states, axis=0) - np.log(len(states))
        ties.append(_ties(density, groups(names, mixture.units, tree), unseen))
    (view,) = found_by(without_learned_links(mixture, renumbered(columns), others)).views
    found = replace(view, columns=tuple(column.name for column in columns))
    score = float(result[fold != FOR_ALL].mean())
    return Scored(score, found, {of: fsum(fold[of] for fold in ties) / len(ties) for of in ties[0]})


def groups(names: Set, units: Sequence[Sequence[str]], tree: Sequence[Set]) -> list[Set]:
    """Return the units of a set of columns, and the two sides of its divisions by a tree of dependent columns."""
    result = dict.fromkeys(map(frozenset, units))
    for of in tree:
        sides = of & names, names - of
        if all(sides) and result.keys().isdisjoint(sides):
            result |= dict.fromkeys(sides)
    return list(result)


def _ties(density: ViewDensity, groups: Sequence[Set], rows: Rows) -> dict[Set, float]:
    """Return the information of the other columns about each group in new rows, in nats a row."""
    every, known = frozenset(column.name for column in density.columns), dict[Set, float]()
    rows = rows.take(slice(0, max(MOST_CELLS // len(groups) ** 2, 1)))

    def mean(names: Set) -> float:
        """Return the mean log density of these columns' cells."""
        if names not in known:
            seen = rows.take(slice(None))
            for column in density.columns:
                if column.name not in names:
                    getattr(seen, column.block)[:, column.index] = column.blank
            known[names] = float(density.log_density(seen).mean())
        return known[names]

    return {of: mean(every) - mean(of) - mean(every - of) if of != every else 0.0 for of in groups}
