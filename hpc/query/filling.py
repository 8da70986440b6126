"""Rows whose missing cells are drawn: those of the run's table, or of a file like it; and where they are written from.

The import leaves columns out of a table, so that its rows are written from the file they came from where that is near
and unchanged, else from the table itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mpibayes.errors import DataError, MpibayesError
from mpibayes.hpc.data.events import Known
from mpibayes.hpc.law import Completion
from mpibayes.hpc.parallel.comm import on_root
from mpibayes.hpc.query import new_rows
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.new_rows import BATCH
from mpibayes.hpc.query.support import never_negative
from mpibayes.io.absent import Absence, rows_lacking
from mpibayes.io.complete import form_of
from mpibayes.io.files import reading
from mpibayes.io.row_names import require_same
from mpibayes.io.rows import Rows
from mpibayes.io.tables import sources_near
from mpibayes.text import counted

Cells = dict[str, tuple[np.ndarray, np.ndarray]]  # by column the rows (m,) of a block, and level codes or numbers (m,)


@dataclass
class Filling:
    """path: of the file that rows are written from; lacking: its columns of the table that it does not have. parts():
    the rows as they are recorded, some at a time, in order. places: of each row among the training rows, -1 for
    another; None where none is one of them. notes: for people."""

    asking: Asking
    path: Path
    lacking: frozenset[str]
    notes: Sequence[str]
    parts: Callable[[], Iterator[Rows]]
    places: np.ndarray | None = None
    n_rows: int = 0
    _absent: Counter = field(default_factory=Counter)

    def rows(self) -> Iterator[tuple[int, Rows]]:
        """(number of the first from 0, rows)."""
        first = 0
        for rows in self.parts():
            yield first, rows
            first += len(rows)
        self.n_rows = first

    def blocks(self, completion: Completion) -> Iterator[tuple[int, int, Cells]]:
        """(number of the first row from 0, rows, their missing cells)."""
        absences, self._absent = Absence.stored(self.asking.asked.like.source), Counter()
        for first, rows in self.rows():
            self._absent.update(dict(rows_lacking(absences, self.asking.asked.like.columns, rows)))
            n = len(rows)
            gaps = {}
            for c in self.asking.columns:
                x = getattr(rows, c.block)[:, c.index]
                blank = np.flatnonzero(c.is_missing(x) | (c.kind == "survival") & (x < 0.0))  # and censored
                if len(blank):
                    gaps[c.name] = blank
            places = np.full(n, -1) if self.places is None else self.places[first : first + n]
            drawn = completion.cells(self._known(rows, places), gaps, first + np.arange(n), places)
            yield first, n, {name: (gaps[name], drawn[name]) for name in gaps}

    def _known(self, rows: Rows, places: np.ndarray) -> Known:
        """Known cells that draws are conditioned on, besides the clusters of training rows."""
        by_cluster = (places >= 0).all() and not self.asking.asked.linked
        watched = {c.name for c in self.asking.columns if c.kind == "survival"}
        return self.asking.known(
            rows, {*self.asking.asked.joint, *self.asking.asked.explained, *watched} if by_cluster else None
        )

    def below_zero(self, cells: Cells) -> dict[str, int]:
        """Drawn cells below 0 of columns that never are, by column."""
        result = {c.name: int((cells[c.name][1] < 0.0).sum()) for c in self._never_negative if c.name in cells}
        return {name: n for name, n in result.items() if n}

    @property
    def _never_negative(self):
        return [c for c in self.asking.columns if never_negative(c)]

    def never(self) -> list[str]:
        """Notes on cells that the table never has, which were filled in all the same."""
        return [
            f"the table {a.how_often} has '{a.column}' where {a.condition()}; {counted(n, 'row')} got what the model "
            "expects if there were a value"
            for a, n in self._absent.items()
        ]


def of_file(asking: Asking, source: Path, unseen: str, form: str | None = None) -> Filling:
    """The rows of a file; those of the run's table where the file is that, or what it was imported from. form: see
    `of_table`. Collective. Raises DataError."""
    from mpibayes.io.target import same_file

    table = asking.run.table
    if same_file(source, table.path):
        return _own(asking, table.path, [])
    near = sources_near(table.path, table.source) or []
    if len(near) == 1 and same_file(source, near[0]) and not table.source.get("count"):
        return of_table(asking, [source], form)
    new = new_rows.rows_of(asking, source, unseen)
    return Filling(asking, source, new.lacking, list(new.notes), lambda: (batch.rows for batch in new.batches()))


WITHOUT = "; rows are written from the table, without the columns that the import left out"


def of_table(asking: Asking, sources: Sequence[str | Path] = (), form: str | None = None) -> Filling:
    """The rows of the run's table, written from its source, or from itself. form: "csv" or "parquet", if one was asked
    for, which a source of the other form cannot be written in. Collective. Raises DataError where a file was named that
    is not its source."""
    path, notes = on_root(asking.comm, lambda: written_like(asking, [Path(source) for source in sources], form))
    return _own(asking, path, notes)


def _own(asking: Asking, path: Path, notes: list[str]) -> Filling:
    asked, n = asking.asked, asking.run.table.n_rows
    places = np.full(n, -1)
    places[asked.training_numbers()] = np.arange(asked.n_rows)

    def parts() -> Iterator[Rows]:
        return (asked.recorded(np.arange(i, min(i + BATCH, n))) for i in range(0, n, BATCH))

    return Filling(asking, path, frozenset(), notes, parts, places)


def written_like(
    asking: Asking, given: Sequence[Path], form: str | None, without: str = WITHOUT
) -> tuple[Path, list[str]]:
    """The file in whose format rows are written: the source of the run's table, or the table itself, with notes for
    people. given: where the source is, if it was named; without: what follows where the table has to do."""
    table = asking.run.table
    if len(given) > 1:
        raise DataError(f"{given[1]}: a second file; name the only file that {table.path} was imported from")
    for path in given:
        if table.source.get("count"):
            raise DataError(f"{path}: has a row for many of the table; leave it out, and the table's rows are written")
        with reading(path):
            require_same(table, [path])
        return _in_form(path, form, table.path, without)
    if count := table.source.get("count"):
        return table.path, [f"rows are written from the table, each as often as it counts ({count})"]
    near = sources_near(table.path, table.source) or []
    if len(near) == 1:
        try:
            require_same(table, near)
        except MpibayesError:
            return table.path, [f"{near[0]} has changed since {table.path} was imported from it{without}"]
        return _in_form(near[0], form, table.path, without)
    files = table.source.get("files", ())
    if len(files) == 1:
        return table.path, [f"{files[0]}, which {table.path} was imported from, is not beside it (--source){without}"]
    return table.path, []


def _in_form(source: Path, form: str | None, table: Path, without: str) -> tuple[Path, list[str]]:
    """The source, or the table where the source cannot be written in the form that was asked for."""
    if form is None or form_of(source, form) == form:
        return source, []
    return table, [f"{source} is not written as {form}{without}"]
