"""Splits of a view's columns into two sides: draw the sides, or compute the probability of given ones (docs/math.md
2.10).

Both depend only on the columns' cells in some keyed rows, their hyperparameters, the two units to be separated, and
keyed random words. On root.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.columns.values import by_value, compact
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.io.rows import Rows
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.common.functions import expit

ROWS = 1_000  # expected number of rows that shape the sides
ROUNDS = 6  # most rounds of seating rows and assigning sides
LEAST = 0.02  # least probability of either side


@dataclass(frozen=True)
class Part:
    """Subset of the units of columns, with their cells in a subset of the rows."""

    components: Components
    hyper: Hyper
    rows: Rows


def log_odds(whole: Part, unit_of: Sequence[int], cut: Callable[[np.ndarray], Part], f: int, g: int, key) -> np.ndarray:
    """Return the log odds (U,) that each unit is on the side of unit g; units f and g are on different sides.

    unit_of: unit of each column of `whole`, kind by kind. cut(chosen): Part of the chosen units. key: of the streams of
    the sweeps that seat rows.

    A column scores a side by its log likelihood under the side's partition of the rows, minus that under the same
    labels shuffled. Without the latter, columns would prefer the side with fewer clusters while sides hardly differ.
    """
    side = np.full(max(unit_of) + 1, -1)
    side[[f, g]] = 0, 1
    stream = generator(purpose=Purpose.SIDES_OF_COLUMNS, **key)
    order = stream.permutation(len(whole.rows))
    for number in range(ROUNDS):
        parts = [cut(np.flatnonzero(side == s)) for s in (0, 1)]
        labels = [
            _seated(part, key, 2 * number + s) if number else by_value(part.rows, stream)
            for s, part in enumerate(parts)
        ]
        each = [scores(whole, unit_of, z) - scores(whole, unit_of, z[order]) for z in labels]
        odds, before = each[1] - each[0], side
        side = np.where(odds > 0, 1, 0)
        side[[f, g]] = 0, 1
        if (side == before).all():
            break
    return odds


def _seated(part: Part, key: dict, sweep: int) -> np.ndarray:
    """Seat the rows one by one; return their labels."""
    prior = part.components.prior(part.hyper)
    z = np.full(len(part.rows), -1, np.int32)
    tail = kernels.Tail(prior, 1.0, 0.0, 0.0)
    kernels.sweep(part.rows, z, 0, key["seed"], key["cycle"], sweep, key["chain"], None, tail, prior)
    return compact(z)


def scores(whole: Part, unit_of: Sequence[int], z: np.ndarray) -> np.ndarray:
    """Return the log marginal likelihood of each unit under the labels z, (U,)."""
    of, out = whole.components, np.zeros(max(unit_of) + 1)
    s = Statistics(*kernels.accumulate(whole.rows, z, int(z.max(initial=-1)) + 1, of.categorical.offsets))
    np.add.at(out, unit_of, np.concatenate(of.log_marginal(whole.hyper, s, of.everything)))
    return out


def probability(odds: np.ndarray) -> np.ndarray:
    """Return the probability of side 1 given the log odds, (U,)."""
    return LEAST + (1.0 - 2.0 * LEAST) * expit(odds)


def draw(p: np.ndarray, f: int, g: int, u: np.ndarray) -> np.ndarray:
    """Draw sides (U,) bool with uniform numbers u (U,)."""
    side = u < p
    side[[f, g]] = False, True
    return side


def log_q(p: np.ndarray, f: int, g: int, side: np.ndarray) -> float:
    """Return the log probability of given sides."""
    others = np.ones(len(p), bool)
    others[[f, g]] = False
    return float(np.log(np.where(side, p, 1.0 - p))[others].sum())
