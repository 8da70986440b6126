"""Comparison of rows appended to a run with the rows that its chain has: are some of them of a new kind?

If not, the first cycle seats them. Otherwise a chain of the new rows alone (newcomers.py) or new searches (searches.py)
look for these kinds, which takes longer than several cycles of a settled chain. The chain was fitted to its own rows,
so new rows of the same kinds are a little less probable, and more of them count as surprising where clusters have few
rows. The start of a chain is not a draw, so exactness is not affected.
"""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.crosscat.laws.view_density import densities
from mpibayes.hpc.crosscat.start.subsample import IDLE
from mpibayes.hpc.parallel.streams import Purpose, generator

MAX_ROWS = 3_000  # of each kind: idle, and in clusters
MIN_ERRORS = 2.0  # standard errors that are not due to chance
ODD_SHARE = 0.01  # share of the chain's rows that count as odd, its least probable ones


def surprising(mixture: Mixture, labels: np.ndarray) -> bool:
    """Return True, on every rank, if idle rows have a lower mean log density than rows in clusters, or if too many of
    them are odd. labels (N,): of one view; the chain must have started from them. Collective."""
    stream = generator(mixture.settings.seed, Purpose.COMPARED, chain=mixture.chain)
    samples = [
        np.sort(stream.choice(places, min(len(places), MAX_ROWS), replace=False, shuffle=False))
        for places in (np.flatnonzero(labels != IDLE), np.flatnonzero(labels == IDLE))
    ]
    old, new = (_log_density(mixture, places) for places in samples)
    error = np.hypot(old.std(), new.std() * np.sqrt(len(old) / len(new))) / np.sqrt(len(old))
    n_odd, expected = int((new < np.quantile(old, ODD_SHARE)).sum()), ODD_SHARE * len(new)
    spread = np.sqrt(expected * (1.0 + len(new) / len(old)))
    return bool(old.mean() - new.mean() > MIN_ERRORS * error or n_odd - expected > MIN_ERRORS * spread)


def _log_density(mixture: Mixture, places: np.ndarray) -> np.ndarray:
    """Return the log density of training rows at `places`, ascending, (n,) float64; each is computed by the rank that
    has the row."""
    result = np.zeros(len(places))
    for i, shard in enumerate(mixture.shards):
        first, last = np.searchsorted(places, [shard.start, shard.start + len(shard)]).tolist()
        index = places[first:last] - shard.start
        for view, density in zip(mixture.views, densities(mixture.views, mixture.linking.codings)):
            result[first:last] += density.log_density(view.shards[i].rows.take(index))
    mixture.comm.sum_everywhere(result.view(np.int64))  # other ranks add zeros, so that no bit changes
    return result
