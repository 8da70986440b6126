"""Starting clusters of rows appended to a run: clusters that a separate chain finds among the new rows alone.

Seated one by one beside the present clusters, rows of a new kind join the least unsuitable ones, and a settled chain
opens too few new clusters: its states are as probable as states with more clusters, but predict worse. A chain on the
new rows alone starts from one cluster and finds the new kinds. Clusters that the table had already are soon merged. The
start of a chain is not a draw, so exactness is not affected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.crosscat.start.alone import chain_on
from mpibayes.hpc.crosscat.start.subsample import IDLE
from mpibayes.hpc.crosscat.start.views import settings_of_search
from mpibayes.hpc.crosscat.view.view import Settings
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.comm import Communicator, Serial, serial
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.hpc.parallel.tasks import Stopped, run_all
from mpibayes.text import counted

MIN_ROWS, MAX_ROWS = 50, 3_000  # new rows in the separate chain
MAX_CYCLES, STILL_CYCLES = 30, 3  # of that chain; without an increase in clusters, after which it ends


def with_newcomers(
    comm: Communicator, data: Data, mixture: Mixture, labels: Sequence[np.ndarray]
) -> Sequence[np.ndarray]:
    """Return the labels of each view (N,), on every rank, with at most MAX_ROWS idle rows in new clusters; the other
    rows stay idle. The mixture's views must be arranged. Collective. Raises Stopped if the program is asked to stop."""
    idle = np.flatnonzero(labels[0] == IDLE)
    n = n_in_clusters(len(idle), mixture.settings.likelihood)
    if not n:
        return labels
    stream = generator(mixture.settings.seed, Purpose.PILOT, chain=mixture.chain)
    seed = int(stream.integers(2**63))  # the separate chain draws other random numbers
    chosen = np.sort(stream.choice(idle, n, replace=False))
    settings = replace(settings_of_search(mixture), seed=seed)
    columns = [view.columns for view in mixture.views]
    task = partial(clusters, serial(comm.asked_to_stop), data, settings, columns, chosen)
    (found,) = run_all(comm, [task], f"find clusters of {counted(n, 'new row')}")
    return joined(labels, chosen, found)


def joined(labels: Sequence[np.ndarray], chosen: np.ndarray, found: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return labels of each view with the chosen rows in new clusters, `found` for them."""
    result = [z.copy() for z in labels]
    for z, new in zip(result, found):
        z[chosen] = z.max() + 1 + new
    return result


def n_in_clusters(n_new: int, likelihood: bool) -> int:
    """Return the number of new rows that start in clusters found among them."""
    return min(n_new, MAX_ROWS) if likelihood and n_new >= MIN_ROWS else 0


def in_words(n_new: int, likelihood: bool, familiar: bool = False) -> str:
    """Describe where new rows start. familiar: True if they are of the kinds that the chain has (surprise.py)."""
    n = n_in_clusters(n_new, likelihood)
    if familiar or not n:
        like = ": they resemble the others" if familiar else ""
        return f"the first cycle assigns {counted(n_new, 'more training row')} to clusters{like}"
    where = "start in clusters found among these rows alone"
    if n == n_new:
        return f"{n:,} more training rows {where}"
    return f"{n:,} of {n_new:,} more training rows {where}, the first cycle assigns the others"


def clusters(
    alone: Serial, data: Data, settings: Settings, views: Sequence[Sequence[str]], places: np.ndarray
) -> list[np.ndarray]:
    """Run a chain on the training rows at `places` alone; return their labels in each view."""
    chain = chain_on(alone, data.columns, data.rows_at(places), settings, 0, views)
    chain.start("one")
    most = since = 0
    while chain.cycles < MAX_CYCLES and since < STILL_CYCLES:
        if alone.asked_to_stop():
            raise Stopped
        n = chain.cycle().n_clusters
        most, since = (n, 0) if n > most else (most, since + 1)
    return [view.z[0].astype(np.int64) for view in chain.views]
