"""First held-out score of a chain, before its searches for views are over.

Several searches take seconds. A few cycles of one view of all columns, from random clusters, take a tenth of that, and
their states, averaged, score within 8 % of the views found later. They decide nothing: the chain starts from the
searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.crosscat.heldout import HeldOut
from mpibayes.hpc.crosscat.moves.round import SMALL
from mpibayes.hpc.crosscat.view.view import Settings
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.comm import Communicator

CYCLES, CYCLES_PER_MOVE = 25, 5
FIRST, BETWEEN = 10, 5  # cycle of the first state of the average, which is said at once, and cycles between them


def worthwhile(n_cells: int, n_searches: int) -> bool:
    """True if searches take long beside a first look: if there are several, on a table with short cycles."""
    return n_searches > 1 and n_cells <= SMALL


def scores(
    comm: Communicator, data: Data, settings: Settings, chain: int, heldout: HeldOut, n_clusters: int
) -> Iterator[tuple[int, float]]:
    """Yield numbers of cycles of one view from random clusters, FIRST and CYCLES, and the mean log density per held-out
    row, averaged over states up to there; NaN except on root. Collective."""
    settings = replace(settings, view_concentration=None, annealing=None, stray_rows=0, column_powers=0)
    settings = replace(settings, split_merge=CYCLES_PER_MOVE, search="running")
    mixture = Mixture(comm, data.columns, data.rows_of, data.n_rows, settings, chain)
    mixture.start("random", n_clusters)
    states = HeldOut(comm, heldout.rows)
    for cycle in range(1, CYCLES + 1):
        mixture.cycle()
        if cycle >= FIRST and cycle % BETWEEN == 0:
            _, averaged = states.score(mixture.views, mixture.places, True, mixture.linking.codings)
            if cycle in (FIRST, CYCLES):
                yield cycle, averaged


def in_words(cycles: int, score: float) -> str:
    return f"first look: {cycles} cycles of one view of all columns score {score:.4f} nats per held-out row"
