"""Clusters that a chain on a large table starts from: those of a chain on a sample of its rows.

With a million rows, clusters that mix the rows of several true ones, or divide the rows of one, last for hundreds of
cycles: every move between them has to pass states that are thousands of nats less probable. With few rows such clusters
soon merge and split. So chains on samples run first: one on few rows, from random clusters, then one on more rows, each
of which joins its most probable cluster; then every row of the table does. Each chain has its own samples. A start is
not a draw, so exactness is not affected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.crosscat.start.alone import advance, chain_on, rows_of, without_learned_links
from mpibayes.hpc.crosscat.start.once import Result, once
from mpibayes.hpc.crosscat.start.strategy import clusters_at_random
from mpibayes.hpc.crosscat.start.views import Pilot, follow, found_by
from mpibayes.hpc.crosscat.view.view import Settings
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.comm import Communicator, Serial, serial
from mpibayes.hpc.parallel.heap import give_back
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.hpc.parallel.tasks import run_all
from mpibayes.io.finished import Finished
from mpibayes.text import counted

PART = "clusters"  # name of the result in `Finished`
CYCLES = 80  # of each chain; 60 leave a few false clusters
FIRST_ROWS = 3000  # rows of the first chain: among more, a false cluster may already stay


def ahead_in_words(n: int) -> str:
    """Describe a chain on n rows about to begin."""
    return f"clustering a sample: {CYCLES} cycles on {counted(n, 'row')}"


def clusters_of_sample(
    comm: Communicator, data: Data, mixture: Mixture, n: int, found: Pilot | None = None,
    finished: Finished | None = None,
) -> Pilot:  # fmt: skip
    """Return the clusters of n training rows for a chain, on every rank. Collective. Raises Stopped if the program is
    asked to stop.

    found: views of a search; None: all columns are in one view. Learned links are learned in the sample, too. finished:
    keeps the result, so that a start which is stopped later need not repeat it.
    """
    stream = generator(mixture.settings.seed, Purpose.SAMPLE, chain=mixture.chain)
    seed = int(stream.integers(2**63))  # the chain on the sample draws other random numbers
    places = np.sort(stream.choice(data.n_rows, n, replace=False))
    settings = replace(mixture.settings, seed=seed, contexts=mixture.linking.coding.contexts)
    few = np.sort(stream.choice(n, FIRST_ROWS, replace=False)) if n > FIRST_ROWS else None
    views = None if found is None else [of.columns for of in found.views]
    search = partial(_clusters, serial(comm.asked_to_stop), data, settings, mixture.chain, places, few, views)
    task = partial(once, finished, PART, data.columns, search)
    ((result, _),) = run_all(comm, [task], f"find clusters of {counted(n, 'row')}", "search for clusters")
    give_back()  # what the chains on samples had
    return result if found is None else replace(result, process=found.process)


def _clusters(
    alone: Serial, data: Data, settings: Settings, chain: int, places: np.ndarray, few: np.ndarray | None,
    views: Sequence[Sequence[str]] | None,
) -> Result:  # fmt: skip
    """Run a chain on the rows at `places`, from the clusters of a chain on `few` of these rows, or from random ones."""
    (rows,) = rows_of(data, [places])
    part = rows if few is None else rows.take(few)
    mixture = chain_on(alone, data.columns, part, settings, chain, views)
    mixture.start("random", clusters_at_random(len(part)))
    advance(mixture, CYCLES)
    if few is not None:
        found = found_by(without_learned_links(mixture, data.columns, part))
        mixture = chain_on(alone, data.columns, rows, settings, chain, views)
        follow(mixture, found)
        advance(mixture, CYCLES)
    return found_by(without_learned_links(mixture, data.columns, rows)), np.zeros(0)
