"""Short names of clusters, and profiles of all columns in many clusters, for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import numpy as np

from mpibayes.hpc.crosscat.report.profiles import ColumnProfile
from mpibayes.hpc.crosscat.report.traits import MIN_DIVERGENCE, Trait, naming, trait
from mpibayes.hpc.report.document import Levels, Numbers

MOST_LEVELS = 24  # most levels kept per column
FEW_TRAITS = 3  # traits of a cluster beyond those compared with each other
NAMELESS = "much like all rows, column by column"


def name_clusters(traits: Sequence[Sequence[Trait]], most: int = 2) -> list[str]:
    """Name each cluster by at most `most` of its traits, those of most of its rows first and those that it lacks next,
    different from all names before it if its traits allow."""
    taken: set[str] = set()
    names = []
    for of_cluster in traits:
        labels = list(dict.fromkeys(t.label for t in naming(of_cluster)))
        choices = [", ".join(chosen) for chosen in combinations(labels, min(most, len(labels)))] if labels else []
        choices.append(", ".join(labels) or NAMELESS)
        name = next((choice for choice in choices if choice not in taken), choices[-1])
        taken.add(name)
        names.append(name)
    return names


def against_the_whole(c: ColumnProfile) -> Levels | Numbers:
    """Compare a column in the clusters shown with all rows; of many levels, keep those that differ in some cluster."""
    name = f"{c.title} (which value)" if c.p is not None and c.title != c.name else c.title
    missing = {"missing": c.missing, "missing_overall": c.missing_overall} if c.missing_overall > 0 else {}
    if c.p is None:
        overall = (float(c.overall[0]), float(c.overall[1]))
        return Numbers(name, overall, c.mean, c.sd, c.divergence, log=c.log, unit=c.unit, step=c.step, **missing)
    at = np.array(c.order) if c.order else np.arange(len(c.levels))
    if len(at) > MOST_LEVELS:
        most = np.argsort(-np.abs(c.p - c.overall[:, None]).max(axis=1), kind="stable")[:MOST_LEVELS]
        at = at[np.isin(at, most)]
    levels = [c.levels[i] for i in at]
    return Levels(name, levels, c.overall[at], c.p[at].T.copy(), c.divergence, **missing, ordered=bool(c.order))


def most_telling(
    profiles: Callable[[], Iterable[ColumnProfile]], columns: Sequence[Levels | Numbers], clusters: np.ndarray,
    repeated: np.ndarray | None = None,
) -> list[list[Trait]]:  # fmt: skip
    """Return, for each cluster, traits in the columns where it is farthest from all rows, at most FEW_TRAITS, the
    farthest first. profiles: yields the columns' profiles, in order. repeated (C, K): mask of columns that follow from
    others in a cluster."""
    if not len(clusters) or not columns:
        return [[] for _ in clusters]
    apart = np.stack([c.apart for c in columns])
    apart = (apart if repeated is None else np.where(repeated, 0.0, apart))[:, clusters]
    order = np.argsort(-apart, axis=0, kind="stable")[:FEW_TRAITS]
    traits: list[dict[int, Trait]] = [{} for _ in clusters]
    for i, column in enumerate(profiles()):
        for place, k in zip(*np.nonzero(order == i)):
            if apart[i, k] >= MIN_DIVERGENCE:
                traits[k][int(place)] = trait(column, int(clusters[k]))
    return [[of_cluster[place] for place in sorted(of_cluster)] for of_cluster in traits]
