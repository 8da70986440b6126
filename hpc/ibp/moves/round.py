"""Moves on features at the end of a cycle (docs/math.md 7.5 to 7.8).

Weights and loadings are integrated out: the state is the features alone, and each move leaves their posterior given the
hyperparameters invariant.
"""

from __future__ import annotations

from mpibayes.hpc.ibp.moves.birth import birth_or_death
from mpibayes.hpc.ibp.moves.fold import fold_or_unfold
from mpibayes.hpc.ibp.moves.ledger import Ledger
from mpibayes.hpc.ibp.moves.split import split_or_merge

ROUND = (birth_or_death, split_or_merge, split_or_merge, fold_or_unfold, fold_or_unfold, fold_or_unfold)
OFTEN, EVERY = 100, 4  # moves matter most while the features form; later a round is not worth its cost in every cycle


def due(every: int | None, cycle: int) -> bool:
    """True if a round of moves ends this cycle. None: every cycle at first, then every fourth; 0: never."""
    if every is None:
        every = 1 if cycle <= OFTEN else EVERY
    return every > 0 and cycle % every == 0


def run(ledger: Ledger, kinds=ROUND) -> None:
    """Run one round of moves. Collective."""
    for move, propose in enumerate(kinds):
        propose(ledger, move)
    ledger.close()
