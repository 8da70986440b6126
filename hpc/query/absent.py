"""Remarks on answers about cells that are always missing in the table (`io.absent`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from mpibayes.hpc.data.events import Events, Known, of_values
from mpibayes.hpc.query.asking import Asking
from mpibayes.io.absent import Absence
from mpibayes.text import counted


class NeverThere:
    """Counts the rows asked about whose requested cell is always missing in the table; `remarks` reports them."""

    def __init__(self, asking: Asking):
        self._absences = Absence.stored(asking.asked.like.source)
        self._rows: Counter[str] = Counter()
        self._by: dict[str, Absence] = {}

    def look(self, names: Sequence[str], known: Known, which: np.ndarray | None = None) -> None:
        """Add rows whose columns `names` are requested; which: places of the rows of interest."""
        for name in names:
            never = np.zeros(known.n_rows, bool)
            for a in self._absences:
                if a.column == name and a.where in known.of:
                    here = _implied(a, *known.of[a.where])
                    if here.any() and not never.any():
                        self._by.setdefault(name, a)
                    never |= here
            self._rows[name] += int(never.sum() if which is None else never[which].sum())

    def remarks(self, n_rows: int | None = None) -> list[str]:
        """One line per column. n_rows: number of rows asked about; None for a single described row."""
        lines = []
        for name, n in self._rows.items():
            if n:
                of = "" if n_rows is None else f"; so it is in {counted(n, 'row')} of {n_rows:,}"
                a = self._by[name]
                lines.append(
                    f"the table {a.how_often} has '{name}' where {a.condition()}{of}: the answer is what the "
                    "model would expect if there were one"
                )
        return lines


def drawn_known(asking: Asking, drawn: Mapping[str, np.ndarray]) -> Known:
    """Known cells of drawn rows, in the columns whose levels imply missing cells."""
    wheres = {a.where for a in Absence.stored(asking.asked.like.source)}
    columns = [c for c in asking.columns if c.name in drawn and c.name in wheres]
    n = len(next(iter(drawn.values())))
    every = {c.name: of_values(c, np.arange(len(c.levels))) for c in columns}
    return Known(n, {name: (events, drawn[name].astype(np.intp)) for name, events in every.items()})


def _implied(a: Absence, events: Events, which: np.ndarray) -> np.ndarray:
    """Mask of rows (n,) known to have a level at which the column is missing."""
    lacks = np.isin(events.column.levels, a.levels)
    of_codes = lacks[np.maximum(events.codes, 0)] & (events.codes >= 0)
    of_sets = of_codes if events.sets is None else ~(events.sets & ~lacks).any(axis=1) & events.sets.any(axis=1)
    implied = np.where(events.codes >= 0, of_codes, of_sets)
    mask: np.ndarray = np.append(implied, False)[which]
    return mask
