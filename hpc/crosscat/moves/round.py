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
LONG = [informed]  # half of a round; searches for views find no better ones with it
OFTEN, EVERY = 100, 4  # first cycles, with frequent rounds while the partition takes shape; later cycles between rounds
SMALL = 500_000  # most cells of a table where a round costs several sweeps
SELDOM, SELDOM_FOR_VIEWS = 8, 64  # later cycles between rounds on such a table
SMALLER = 100_000  # most cells of a table where moves of groups of columns are frequent at first
RARE_FOR_GROUPS = 128  # cycles between these moves, which cost up to some thirty cycles, on larger tables
AT_ONCE = 2  # approximate number of views with a round in the same cycle


def later(n_cells: int) -> int:
    """Return the number of cycles between rounds of split and merge moves on a table after the first cycles."""
    return EVERY if n_cells > SMALL else SELDOM


def due(every: int | None, cycle: int, n_cells: int, view: int = 0, n_views: int = 1, often: int = OFTEN) -> bool:
    """True if this cycle ends with a round of split and merge moves of a view; depends on its number and the table's
    size, never on the state. every None: each cycle up to `often`, then as in `later`; several views take turns, each
    at least once in four cycles at first."""
    if every is None:
        every = min(EVERY, -(-n_views // AT_ONCE)) if cycle <= often else later(n_cells)
    return every > 0 and (cycle + (view if n_views > 1 else 0)) % every == 0


def due_for_views(every: int | None, cycle: int, n_cells: int, searched: bool = False) -> bool:
    """True if this cycle ends with splits and merges of views; as in `due`, but rarer on a small table after OFTEN, as
    few are accepted then, and before, if the views at the start were searched for."""
    if every is None and n_cells <= SMALL:
        every = SELDOM_FOR_VIEWS if cycle > OFTEN else SELDOM if searched else None
    return due(every, cycle, n_cells)


def due_for_groups(every: int | None, cycle: int, n_cells: int) -> bool:
    """True if this cycle ends with a move of a group of columns; as in `due`."""
    if every is None:
        small = EVERY if cycle <= OFTEN else SELDOM_FOR_VIEWS
        every = small if n_cells <= SMALLER else RARE_FOR_GROUPS
    return every > 0 and cycle % every == 0


def run(ledger: Ledger, quick: bool = False) -> None:
    """Run one round of moves, a quick one without the kinds that take long. Collective."""
    for moves in KINDS if ledger.outcome is None else BESIDE_OUTCOME:
        if not quick or moves not in LONG:
            moves(ledger)
