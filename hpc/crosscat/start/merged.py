"""Views merged at a chain's start, where links between their columns predict better than views apart.

Searches and scores of sets of columns (combined.py) know no learned links: these would cost as much again. But a chain
has them, within views. In a panel, repeated rows of units, clusters are units or parts of them, and inside these many
columns depend on each other linearly. Without links two views may then score better, and with them one. So where
clusters are small, pairs of views are scored once more with links, apart and as one. That needs nearly as many rows of
each cluster as the table has: of many rows a tenth is left out, once. A start is not a draw, so exactness is not
affected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from mpibayes.hpc.crosscat.start.changes import Change
from mpibayes.hpc.crosscat.start.combined import WORK, Combining, climbed
from mpibayes.hpc.crosscat.start.related import Set
from mpibayes.hpc.crosscat.start.searches import Choice, small_clusters
from mpibayes.hpc.crosscat.start.views import Pilot
from mpibayes.hpc.crosscat.view.view import Settings
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.comm import Communicator

FEW_ROWS = 48.0  # in the cluster of a sampled row, on average: above, views are not scored again
LEAST_GAIN = 0.05  # of one view over two, in nats a row: 600 rows hardly tell less; views apart are simpler


def merged(
    comm: Communicator, data: Data, settings: Settings, chain: int, n_rows: int, choice: Choice, pilot: Pilot,
    links: str | Mapping[str, str],
) -> tuple[Pilot, float]:  # fmt: skip
    """Return views, some merged, on every rank, and the gain in nats a row. Collective. Raises Stopped if the program
    is asked to stop. settings, n_rows: of a search; choice: the best one; pilot: views that it led to; links: of the
    chain."""
    settings, now = replace(settings, links=links), frozenset(frozenset(view.columns) for view in pilot.views)
    leaning = frozenset(column.name for column in data.columns if column.line or links == "forest")
    several = sum(not leaning.isdisjoint(names) for names in now) > 1
    if not (several and settings.learns_links and len(choice.scores) and small_clusters(choice, FEW_ROWS)):
        return pilot, 0.0
    work = Combining(comm, data, settings, chain, n_rows, once=True)

    def merges(now: frozenset[Set]) -> list[Change]:
        """Return the merges of two views with columns that depend on each other and may be linked, most dependent ones
        first."""
        pairs = combinations(sorted((names for names in now if names & leaning), key=min), 2)
        near = {pair: work.related.between(*(names & leaning for names in pair)) for pair in pairs}
        first = sorted((pair for pair in near if near[pair] > 0.0), key=lambda pair: -near[pair])
        return [Change(frozenset(of), frozenset([of[0] | of[1]]), min(map(len, of)), LEAST_GAIN) for of in first]

    now, gain = climbed(work, now, merges, WORK)
    return work.pilot(pilot, now), gain
