"""Split and merge moves at the sync, on rows that live on many ranks (docs/split_merge.md derives them).

Weights and parameters are integrated out: the state is the partition alone, and the moves leave its posterior given the
hyperparameters invariant.
"""

from __future__ import annotations

from mpibayes.hpc.crosscat.moves.alike import informed
from mpibayes.hpc.crosscat.moves.by_level import by_level
from mpibayes.hpc.crosscat.moves.by_pattern import by_pattern
from mpibayes.hpc.crosscat.moves.launched import guided
from mpibayes.hpc.crosscat.moves.ledger import Ledger

KINDS = [guided, informed, by_level, by_pattern]
BESIDE_OUTCOME = [guided, informed, by_level]  # rows of one pattern have different outcomes
OFTEN, EVERY = 100, 4  # moves matter most while the partition takes shape; later a round costs less than it is worth
SMALL, SELDOM = 500_000, 64  # cells of a table where moves of views take as long as many sweeps; cycles between them
AT_ONCE = 2  # views that have a round in one cycle, about


def due(every: int | None, cycle: int, view: int = 0, n_views: int = 1, often: int = OFTEN) -> bool:
    """True if a round of split and merge moves of a view ends this cycle. None: in every cycle at first, until `often`,
    then in every fourth; several views take turns, each at least once in four cycles."""
    if every is None:
        every = min(EVERY, -(-n_views // AT_ONCE)) if cycle <= often else EVERY
    return every > 0 and (cycle + (view if n_views > 1 else 0)) % every == 0


def due_for_views(every: int | None, cycle: int, n_cells: int) -> bool:
    """True if splits and merges of views end a cycle: by its number and the table's size alone, never by the state.
    None: as rounds do, but on a small table in every SELDOM-th cycle after OFTEN, when hardly any is accepted."""
    if every is None and n_cells <= SMALL and cycle > OFTEN:
        every = SELDOM
    return due(every, cycle)


def run(ledger: Ledger) -> None:
    """One round of moves. Collective."""
    for moves in KINDS if ledger.outcome is None else BESIDE_OUTCOME:
        moves(ledger)
