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
OFTEN, EVERY = 100, 4  # moves matter most while the partition takes shape; later a round costs less than it is worth
SMALL = 500_000  # cells of a table on which a round costs as much as many sweeps
SELDOM = 16  # cycles between two there, once the partition has taken shape
AT_ONCE = 2  # views that have a round in one cycle, about


def later(n_cells: int) -> int:
    """Cycles between two rounds on a table of so many cells, once its partition has taken shape."""
    return SELDOM if n_cells <= SMALL else EVERY


def due(every: int | None, cycle: int, view: int = 0, n_views: int = 1, often: int = OFTEN, late: int = EVERY) -> bool:
    """Whether a round of split and merge moves of a view ends a cycle; by its number alone, never by the state. None:
    in every cycle at first, until `often`, then in every fourth, and after OFTEN in every `late`-th; several views take
    turns, and have one in every fourth cycle at least until then."""
    if every is None:
        every = min(EVERY, -(-n_views // AT_ONCE)) if cycle <= often else EVERY if cycle <= OFTEN else late
    return every > 0 and (cycle + (view if n_views > 1 else 0)) % every == 0


def run(ledger: Ledger) -> None:
    """One round of moves. Collective."""
    for moves in KINDS:
        moves(ledger)
