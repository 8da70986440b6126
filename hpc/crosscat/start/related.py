"""Dependence of columns that chains have not seen: which depend on each other, and which on none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mpibayes.hpc.crosscat.start.alone import chain_on
from mpibayes.hpc.crosscat.start.dependence import between_units, branches, linked
from mpibayes.hpc.crosscat.view.view import Settings
from mpibayes.hpc.parallel.comm import Serial
from mpibayes.io.rows import Column, Rows

DEVIATIONS = 4.0  # by which the information of two columns must exceed chance: a table has many pairs

Set = frozenset[str]  # names of a view's columns


@dataclass(frozen=True)
class Related:
    """Dependence of columns. tree: sets of mutually dependent columns, by falling dependence; units: sets of columns
    that move together; dependence: of each pair of units, (U, U), in 0..1, 0 where chance explains it."""

    tree: list[Set]
    units: list[Set]
    dependence: np.ndarray

    @cached_property
    def unit_of(self) -> dict[str, int]:
        """The unit of each column."""
        return {name: u for u, names in enumerate(self.units) for name in names}

    def between(self, one: Set, other: Set) -> float:
        """Return the greatest dependence between a unit of one set and a unit of the other."""
        places = [sorted({self.unit_of[name] for name in names}) for names in (one, other)]
        return float(self.dependence[np.ix_(*places)].max()) if self.dependence.size else 0.0

    def holds(self, rest: Set, unit: Set) -> bool:
        """Return True unless the unit is known to depend on no other column of its view."""
        return not rest or not self.dependence.size or self.between(unit, rest) > 0.0


def related(alone: Serial, columns: Sequence[Column], rows: Rows, settings: Settings, chain: int) -> Related:
    """Relate the columns of a table, as rows of it tell."""
    units = chain_on(alone, columns, rows.take(slice(0, 1)), settings, chain).units
    between = between_units(columns, rows, units, DEVIATIONS)
    tree = [frozenset(name for u in of for name in units[u]) for of in branches(linked(between))]
    return Related(tree, [frozenset(names) for names in units], between)
