"""Pairs of columns that bias completed shares: one column predicts which cells of the other are missing, and the run
weakens the pair.

If cells are missing at random given other columns, filled-in cells have the right distribution as far as the model
captures how the column depends on those. If a pair is weaker in the run than in the table, filled-in cells resemble the
observed ones too much, and estimates of the column from completed copies are biased towards its observed cells.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.synthetic.bins import Bins
from mpibayes.hpc.synthetic.pairs import DEVIATIONS, ROWS, PairCheck, informations
from mpibayes.hpc.synthetic.training import cells_of

LEAST = 0.003  # nats between a column and whether the other's cell is missing: shares of 26 and 34 % in halves


def selective(asking: Asking, found: PairCheck, completed: Collection[str]) -> list[tuple[str, str]]:
    """(completed column, column that predicts which of its cells are missing) for the pairs that the run clearly
    weakens; the most weakened and informative first."""
    places = [
        (i, pair) for i in found.clear() for pair in (found.pairs[i], found.pairs[i][::-1]) if pair[0] in completed
    ]
    if not places:
        return []
    weaker, pairs = np.array([found.weaker[i] for i, _ in places]), [pair for _, pair in places]
    columns = asking.named(sorted({name for pair in pairs for name in pair}))
    rows, place = asking.sample(ROWS), {c.name: i for i, c in enumerate(columns)}
    cells = {c.name: cells_of(rows, c) for c in columns}
    bins = Bins(columns, cells, found.n_bins)
    bin_of = bins(cells)
    missing = (bin_of == bins.sizes - 1).astype(np.int32)
    d, (n, _) = len(columns), bin_of.shape
    asked = np.array([(d + place[column], place[other]) for column, other in pairs])
    sizes = np.append(bins.sizes, np.full(d, 3))  # observed, missing, and the last bin, which is never used
    information, chance = informations(np.hstack([bin_of, missing]), sizes, asked)
    clear = information >= np.maximum(LEAST, chance + DEVIATIONS * np.sqrt(chance / n))
    order = np.argsort(-weaker * (information - chance), kind="stable")
    return [pairs[i] for i in order[clear[order]]]
