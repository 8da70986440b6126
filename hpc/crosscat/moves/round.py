"""Split and merge moves at the sync, on rows that live on many ranks (docs/split_merge.md derives them).

Weights and parameters are integrated out: the state is the partition alone, and the moves leave its posterior given the
hyperparameters invariant.
"""

from __future__ import annotations

from mpibayes.hpc.crosscat.moves.alike import informed
from mpibayes.hpc.crosscat.moves.launched import guided
from mpibayes.hpc.crosscat.moves.ledger import Ledger

KINDS = [guided, informed]
OFTEN, EVERY = 100, 4  # moves matter most while the partition takes shape; later a round costs less than it is worth


def due(every: int | None, cycle: int) -> bool:
    """Whether a round of split and merge moves ends a cycle. None: in every cycle at first, then in every fourth."""
    if every is None:
        every = 1 if cycle <= OFTEN else EVERY
    return every > 0 and cycle % every == 0


def run(ledger: Ledger) -> None:
    """One round of moves. Collective."""
    for moves in KINDS:
        moves(ledger)
