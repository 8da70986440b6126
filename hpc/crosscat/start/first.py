"""A first score of the held-out rows, by a mixture of all columns, before a search for views begins.

A search takes seconds, in which nothing can be said of the table. Clusters of whole rows are there after a few cycles
from random ones, and their score is what views have to beat. The mixture is not used further.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.crosscat.start.alone import advance, chain_on, rows_of
from mpibayes.hpc.crosscat.start.strategy import clusters_at_random
from mpibayes.hpc.crosscat.start.views import settings_of_search
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.parallel.streams import Purpose, generator

ROWS, CYCLES = 10_000, 10  # most rows, and cycles: a tenth to a third of a second


def mixture_of_all(mixture: Mixture, data: Data) -> Mixture:
    """Return a chain of one view on some training rows, a few cycles from random clusters. Every rank computes the
    same."""
    stream = generator(mixture.settings.seed, Purpose.FIRST, chain=mixture.chain)
    seed = int(stream.integers(2**63))
    places = np.sort(stream.choice(data.n_rows, min(ROWS, data.n_rows), replace=False))
    (rows,) = rows_of(data, [places])
    settings = replace(settings_of_search(mixture), seed=seed, view_concentration=None, stray_rows=0, search="none")
    one = chain_on(serial(), data, rows, settings, mixture.chain)  # ranks end it alike, even if one is asked to stop
    one.start("random", clusters_at_random(len(rows)))
    advance(one, CYCLES)
    return one


def in_words(score: float) -> str:
    """Describe the score."""
    return f"a mixture of all columns, after {CYCLES} cycles: heldout={score:.6g}; views come next"
