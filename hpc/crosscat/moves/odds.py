"""Log odds between the two sides of a proposed split, for many clusters at once (docs/split_merge.md)."""

from __future__ import annotations

import math
from dataclasses import make_dataclass
from typing import Any

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.kinds import KINDS
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.view.sync import Counts, apart


class Odds(make_dataclass("Arrays", ["prior", "weight", *(kind.odds[0] for kind in KINDS)])):
    """Log odds of side 1 in every group, as kernels/mixture/split.pyx reads them: prior and weight, (G,) float64, and
    the result of each kind's `side_odds`, (G, *odds_form). A row's log odds are prior + weight * the sum over its
    cells."""

    @classmethod
    def within(cls, components: Components, n_groups: int) -> tuple[np.ndarray, Odds]:
        """Allocate the odds of n_groups groups; return the buffer, uint8, and the arrays that are views of it."""
        forms = [(name, np.float64, ()) for name in ("prior", "weight")]
        forms += [(*kind.odds, kind.odds_form) for kind in components.kinds]
        forms.sort(key=lambda form: -np.dtype(form[1]).itemsize)  # so that all are aligned
        sizes = [n_groups * math.prod(form) * np.dtype(dtype).itemsize for _, dtype, form in forms]
        message = np.empty(sum(sizes), np.uint8)
        parts = zip(forms, apart(message, sizes))
        return message, cls(**{name: part.view(of).reshape(n_groups, *form) for (name, of, form), part in parts})

    def times(self, n: int) -> Odds:
        """Return the odds of n times the groups, in turn."""
        return self if n == 1 else Odds(*(np.concatenate([array] * n) for array in vars(self).values()))


def odds_of_predictive(
    components: Components, hyper: Hyper, sides: Statistics, doubt: float = 0.0, met: np.ndarray | None = None
) -> Odds:
    """Return the log odds of clusters 1, 3, 5, ... of `sides` against 0, 2, 4, ..., at posterior means.

    doubt: with m_0 and m_1 rows, cells have the weight m / (m + doubt * columns), m = m_0 m_1 / (m_0 + m_1), as odds
    learned from few rows are too far apart. met: see `Categorical.met`; the odds of other levels are 0.
    """

    def odds(kind: Any) -> np.ndarray:
        of = getattr(hyper, kind.hyper), sides.of(kind)
        if not len(kind):
            return np.zeros((len(sides) // 2, *kind.odds_form), kind.odds[1])
        return (
            kind.side_odds(*of) if met is None or kind is not components.categorical else kind.side_odds_met(*of, met)
        )

    zero, one = sides.size[0::2], sides.size[1::2]
    columns = sum(len(kind) for kind in components.kinds)
    few = zero * one / (zero + one)
    return Odds(np.log(one / zero), few / (few + doubt * columns), *map(odds, components.kinds))


def both_sides(whole: Counts, one: Counts) -> Counts:
    """Return the counts of sides 0 and 1 of every group, as clusters 2 g and 2 g + 1, from those of all its rows and of
    side 1."""
    sides = []
    for a, b in zip(whole, one):
        both = np.empty((*b.shape, 2), b.dtype)
        if b.size:
            both[..., 0], both[..., 1] = a - b, b
        sides.append(both.reshape(*b.shape[:-1], 2 * len(one.size)))
    return Counts(*sides)
