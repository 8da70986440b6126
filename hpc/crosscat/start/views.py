"""Initial views of a chain: columns dealt at random, or the result of a search on a sample of the rows.

Once rows have settled, hardly any column moves alone (docs/math.md 2.10). So a search starts from many small groups of
columns that depend on each other (dependence.py), and views split and merge by evidence (search.py): if there are many
rows, on a sample of them, where every cycle is cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat import host
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.laws.collapsed import collapsed_clusters
from mpibayes.hpc.crosscat.start import search
from mpibayes.hpc.crosscat.start.dependence import between_units, branches, grouped, linked
from mpibayes.hpc.crosscat.start.probe import Probe
from mpibayes.hpc.crosscat.start.search import Searching
from mpibayes.hpc.parallel.comm import Serial, serial
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.io.rows import Column, Rows
from mpibayes.kernels import mixture as kernels

PIECE = 1_024  # rows scored at a time


@dataclass(frozen=True)
class Found:
    """A view: its columns, and its clusters."""

    columns: tuple[str, ...]
    hyper: Hyper
    statistics: Statistics


@dataclass(frozen=True)
class Pilot:
    """Result of a search; process: concentration and discount of the views."""

    views: Sequence[Found]
    process: tuple[float, float]


def deal(mixture: Mixture, n_views: int) -> None:
    """Deal the columns to at most n_views views at random (empty ones are dropped). Collective."""
    stream = generator(mixture.settings.seed, Purpose.DEALT_COLUMNS, chain=mixture.chain)
    where = stream.integers(n_views, size=len(mixture.units))
    arrange(mixture, where)


def arrange(mixture: Mixture, where: Sequence[int] | np.ndarray) -> None:
    """Put each unit of columns in the view numbered by `where`. Collective."""
    views: dict[int, set[str]] = {}
    for names, v in zip(mixture.units, np.asarray(where).tolist()):
        views.setdefault(v, set()).update(names)
    mixture.arrange([[c.name for c in mixture.columns if c.name in names] for _, names in sorted(views.items())])


def settings_of_search(mixture: Mixture) -> Settings:
    """Return the settings of searches for a chain's views: without links, unless the links are given."""
    s = mixture.settings
    return replace(s, links="none" if isinstance(s.links, str) else s.links, contexts=mixture.linking.coding.contexts)


def searched(
    columns: Sequence[Column], rows: Rows, settings: Settings, chain: int, n_views: int, comm: Serial | None = None,
    probe: Rows | None = None,
) -> Searching:  # fmt: skip
    """Run a search on the given rows from n_views groups of columns, and return it. probe: held-out rows that judge the
    views it tries."""
    alone = replace(settings, shards=1, annealing=None, view_moves=search.MOVES_PER_CYCLE, group_moves=0)
    alone = replace(alone, search="running", column_moves=None, column_powers=0, columns_stay=0)
    comm = comm or serial()
    mixture = Searching(comm, columns, lambda start, stop: rows.take(slice(start, stop)), len(rows), alone, chain)
    mixture.probe = None if probe is None else Probe(probe)
    stream = generator(settings.seed, Purpose.DEALT_COLUMNS, chain=chain)
    subset = np.sort(
        stream.permutation(len(rows))[: -(-len(rows) // 2)]
    )  # chains do not all begin with the same groups
    tree = linked(between_units(columns, rows.take(subset), mixture.units))
    mixture.branches = branches(tree)
    arrange(mixture, grouped(tree, len(mixture.units), n_views))
    mixture.start("one")
    mixture.search()
    return mixture


def found_by(search: Searching) -> Pilot:
    """Return the result of a finished search."""
    return Pilot([Found(v.columns, v.hyper, v.partition.statistics) for v in search.views], search.process)


def take(mixture: Mixture, pilot: Pilot, how: str, n_clusters: int) -> None:
    """Start a chain from the views of a search. how, n_clusters: start of the rows in each, see `seating.start`.
    Collective."""
    mixture.arrange([of.columns for of in pilot.views])
    mixture.process = pilot.process
    mixture.start(how, n_clusters)


def follow(mixture: Mixture, pilot: Pilot) -> None:
    """Start a chain from the views of a search, with every row in its most probable cluster. Collective."""
    mixture.arrange([of.columns for of in pilot.views])
    chosen = mixture.first_rows()
    for view, of in zip(mixture.views, pilot.views):
        tail = collapsed_clusters(view.components, of.hyper, of.statistics)
        for shard, z, rows in zip(view.shards, view.z, chosen):
            _seat_nearest(shard.rows, z, rows, tail)
        view.n_labels, view.hyper = len(of.statistics), of.hyper
    mixture.resume(0, process=pilot.process)
    host.at_first(mixture)


def _seat_nearest(rows, z: np.ndarray, chosen: np.ndarray, tail: kernels.Tail) -> None:
    """Label the chosen rows by their most probable clusters, excluding a new one."""
    for start in range(0, len(chosen), PIECE):
        piece = chosen[start : start + PIECE]
        z[piece] = kernels.log_predictive_clusters(rows.take(piece), tail)[:, :-1].argmax(axis=1)
