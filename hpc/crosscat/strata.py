"""Strata of an annealed subsample, in which rare rows enter early: by a column, or by coarse clusters from a pilot.

Strata say in which order rows come in, and nothing about the law of the chain: once all rows are in they are not used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.collapsed import collapsed_clusters
from mpibayes.hpc.data.rows import PIECE, Data
from mpibayes.hpc.parallel.comm import Communicator, broadcast_arrays, on_root, serial
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels import mixture as kernels

StrataOf = Callable[[int, int], np.ndarray]
PILOT_ROWS = 2000
PILOT_CYCLES = 20


def chosen(comm: Communicator, data: Data, settings: Settings, by: str, chain: int) -> StrataOf | None:
    """Strata as `anneal.strata` says: (start, stop) -> int32 stratum of each of these training rows. Collective.

    by: "none" (the result is None), "clusters", or a categorical or boolean column of the table; cells that are missing
    are a stratum. The same on any number of ranks; asking for the strata of some rows is no collective.
    """
    if by == "none":
        return None
    if by == "clusters":
        return _by_clusters(comm, data, settings, chain)
    column = next(c for c in data.table.columns if c.name == by)
    return partial(data.codes_of, column)


def _by_clusters(comm: Communicator, data: Data, settings: Settings, chain: int) -> StrataOf:
    """The cluster of the pilot that suits a row best; rows that suit none, best left alone, are one more stratum."""
    arrays = on_root(comm, lambda: _pilot(data, settings, chain), share=False, what="run the pilot of the strata")
    arrays = broadcast_arrays(comm, arrays)
    hyper = Hyper(**{f.name: arrays.pop(f.name) for f in fields(Hyper)})
    hyper = replace(hyper, concentration=float(hyper.concentration), discount=float(hyper.discount))
    tail = collapsed_clusters(Components(data.columns, settings.priors, settings.blocks), hyper, Statistics(**arrays))

    def strata_of(start: int, stop: int) -> np.ndarray:
        strata = np.empty(stop - start, np.int32)
        for first in range(start, stop, PIECE):
            last = min(first + PIECE, stop)
            scores = kernels.log_predictive_clusters(data.rows_of(first, last), tail)
            strata[first - start : last - start] = scores.argmax(axis=1)
        return strata

    return strata_of


def _pilot(data: Data, settings: Settings, chain: int) -> dict[str, np.ndarray]:
    """Clusters of a few random rows, by all columns: their statistics and hyperparameters, by name; root alone."""
    stream = generator(settings.seed, Purpose.STRATA, chain=chain)
    seed = int(stream.integers(2**63))  # the pilot's draws are not those of the chain
    places = np.sort(stream.choice(data.n_rows, min(PILOT_ROWS, data.n_rows), replace=False, shuffle=False))
    rows = data.rows_at(places)
    alone = replace(settings, seed=seed, shards=1, annealing=None, split_merge=None, view_concentration=None)
    pilot = Mixture(serial(), data.columns, lambda start, stop: rows.take(slice(start, stop)), len(rows), alone, chain)
    pilot.start("one")
    for _ in range(PILOT_CYCLES):
        pilot.cycle()
    return {**vars(pilot.view.partition.statistics), **vars(pilot.view.hyper)}
