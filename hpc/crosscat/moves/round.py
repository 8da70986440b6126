"""Split and merge moves at the sync, for rows spread over many ranks (derived in docs/split_merge.md).

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
BESIDE_OUTCOME = [guided, informed, by_level]  # not by_pattern: rows of one pattern have different outcomes
OFTEN, EVERY = 100, 4  # first cycles, with frequent rounds while the partition takes shape; later cycles between rounds
SMALL, SELDOM = 500_000, 64  # most cells of a table where moves of views cost many sweeps; cycles between them there
AT_ONCE = 2  # approximate number of views with a round in the same cycle


def due(every: int | None, cycle: int, view: int = 0, n_views: int = 1, often: int = OFTEN) -> bool:
    """True if this cycle ends with a round of split and merge moves of a view. every None: each cycle up to `often`,
    then every fourth; several views take turns, each at least once in four cycles."""
    if every is None:
        every = min(EVERY, -(-n_views // AT_ONCE)) if cycle <= often else EVERY
    return every > 0 and (cycle + (view if n_views > 1 else 0)) % every == 0


def due_for_views(every: int | None, cycle: int, n_cells: int) -> bool:
    """True if this cycle ends with splits and merges of views; depends on its number and the table's size, never on the
    state. every None: as in `due`, but on a small table every SELDOM-th cycle after OFTEN, as few are accepted then."""
    if every is None and n_cells <= SMALL and cycle > OFTEN:
        every = SELDOM
    return due(every, cycle)


def run(ledger: Ledger) -> None:
    """Run one round of moves. Collective."""
    for moves in KINDS if ledger.outcome is None else BESIDE_OUTCOME:
        moves(ledger)
