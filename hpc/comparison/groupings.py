"""Clusters, groups and views of two runs side by side: how similar they are, and what only one run has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpibayes.hpc.posterior.similarity import similarity
from mpibayes.hpc.report.findings import Findings, Grouping

SAMPLED = 20_000  # rows on which partitions are compared
APART = 0.5  # least difference of shares of draws for columns together in one run alone


@dataclass(frozen=True)
class Alike:
    """A view of the first run and one of the second. clusters, groups: adjusted Rand index of their representative
    partitions, and of the levels that their reports show first, NaN if a run has none."""

    first: Grouping
    second: Grouping
    clusters: float
    groups: float


@dataclass(frozen=True)
class Together:
    """Two columns and the share of each run's draws in which they share a view."""

    columns: tuple[str, str]
    first: float
    second: float


@dataclass(frozen=True)
class Pair:
    """Two runs that group rows. views: each view that groups rows and columns, with the nearest one of the other run,
    the first run's first. columns: column pairs together in one run alone, clearest first; None if a model has no
    views. n_rows: number of training rows in both."""

    views: Sequence[Alike]
    columns: Sequence[Together] | None
    n_rows: int


def compared(runs: Sequence[Any], findings: Sequence[Findings]) -> Pair:
    """Compare the groupings of two runs on one table."""
    places, n_rows = _common_rows(runs)
    whole = [[g for g in f.groupings if not g.slight] for f in findings]
    a, b = ([_sampled(g, at) for g in of] for of, at in zip(whole, places))
    clusters = np.array([[_index(x.labels, y.labels) for y in b] for x in a]).reshape(len(a), len(b))
    pairs = [(i, int(clusters[i].argmax())) for i in range(len(a))] if b else []
    met = {j for _, j in pairs}
    pairs += [(int(clusters[:, j].argmax()), j) for j in range(len(b)) if j not in met] if a else []
    views = [Alike(whole[0][i], whole[1][j], float(clusters[i, j]), _of_levels(a[i], b[j])) for i, j in pairs]
    return Pair(views, _columns(*findings), n_rows)


def _common_rows(runs: Sequence[Any]) -> tuple[list[np.ndarray], int]:
    """Indices into each run's training rows of at most SAMPLED rows that both were trained on; and the total number of
    such rows."""
    numbers = [run.data.numbers_of(0, run.data.n_rows) for run in runs]
    common, *places = np.intersect1d(*numbers, assume_unique=True, return_indices=True)
    step = max(1, -(-len(common) // SAMPLED))
    return [at[::step] for at in places], len(common)


def _sampled(g: Grouping, at: np.ndarray) -> Grouping:
    level = None if g.level is None else replace(g.level, labels=g.level.labels[at])
    return replace(g, labels=g.labels[at], level=level)


def _index(a: np.ndarray, b: np.ndarray) -> float:
    return float(similarity(a, b)[0]) if len(a) else np.nan


def _of_levels(a: Grouping, b: Grouping) -> float:
    return np.nan if a.level is None or b.level is None else _index(a.level.labels, b.level.labels)


def _columns(a: Findings, b: Findings) -> list[Together] | None:
    if a.together is None or b.together is None:
        return None
    place = {name: i for i, name in enumerate(b.names)}
    names = [name for name in a.names if name in place]
    at_a = [i for i, name in enumerate(a.names) if name in place]
    at_b = [place[name] for name in names]
    share_a, share_b = a.together[np.ix_(at_a, at_a)], b.together[np.ix_(at_b, at_b)]
    i, j = np.tril_indices(len(names), -1)
    gap = np.abs(share_a[i, j] - share_b[i, j])
    order = [k for k in np.argsort(-gap, kind="stable") if gap[k] >= APART]
    return [Together((names[j[k]], names[i[k]]), float(share_a[i[k], j[k]]), float(share_b[i[k], j[k]])) for k in order]
