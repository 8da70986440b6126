"""Rows whose missing cells are drawn, from the run's table or from a file like it, and the file they are written from.

The import may leave columns out of a table, so its rows are written from their source file if that is near and
unchanged, otherwise from the table itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from mpibayes.errors import ConfigError, DataError, MpibayesError
from mpibayes.hpc.data.events import Known
from mpibayes.hpc.law import Completion, PartOfTable
from mpibayes.hpc.parallel.agreement import on_root
from mpibayes.hpc.query import new_rows
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.gap_classes import GapClasses, gap_classes
from mpibayes.hpc.query.new_rows import BATCH
from mpibayes.hpc.query.support import never_negative
from mpibayes.io.absent import Absence, rows_lacking
from mpibayes.io.complete import form_of
from mpibayes.io.files import reading
from mpibayes.io.row_names import require_same
from mpibayes.io.rows import Column, Rows
from mpibayes.io.tables import sources_near
from mpibayes.text import counted

Cells = dict[str, tuple[np.ndarray, np.ndarray]]  # by column: rows (m,) in a block, and level codes or numbers (m,)


@dataclass
class Filling:
    """path: file that rows are written from; lacking: columns of the table that the file lacks. parts(): yields the
    rows as recorded, some at a time, in order. places: of each row among the training rows, -1 if it is not one; None
    if no row is one. notes: for people. classes: of the rows, if draws are calibrated."""

    asking: Asking
    path: Path
    lacking: frozenset[str]
    notes: Sequence[str]
    parts: Callable[[], Iterator[Rows]]
    places: np.ndarray | None = None
    n_rows: int = 0
    classes: GapClasses | None = None
    _absent: Counter[Absence] = field(default_factory=Counter)

    def rows(self) -> Iterator[tuple[int, Rows]]:
        """Yield (number of the first row from 0, rows)."""
        first = 0
        for rows in self.parts():
            yield first, rows
            first += len(rows)
        self.n_rows = first

    def blocks(self, completion: Completion) -> Iterator[tuple[int, int, Cells]]:
        """Yield (number of the first row from 0, number of rows, their missing cells)."""
        if self.classes is not None and self.places is not None:
            tallied = partial(self._tallied, self.places, self.classes.of)
            completion.calibrate(tallied, self.classes.gaps, self.classes.n)
        absences, self._absent = Absence.stored(self.asking.asked.like.source), Counter()
        for first, rows in self.rows():
            self._absent.update(dict(rows_lacking(absences, self.asking.asked.like.columns, rows)))
            n = len(rows)
            gaps = {}
            for c in self.asking.columns:
                x = getattr(rows, c.block)[:, c.index]
                blank = np.flatnonzero(c.is_missing(x) | (c.kind == "survival") & (x < 0.0))  # or censored
                if len(blank):
                    gaps[c.name] = blank
            places = np.full(n, -1) if self.places is None else self.places[first : first + n]
            classes = None if self.classes is None else self.classes.of[first : first + n]
            drawn = completion.cells(self._known(rows, places), gaps, first + np.arange(n), places, classes)
            yield first, n, {name: (gaps[name], drawn[name]) for name in gaps}

    def _tallied(self, places: np.ndarray, classes: np.ndarray) -> Iterator[PartOfTable]:
        for first, rows in self.rows():
            of = slice(first, first + len(rows))
            ids = np.arange(first, of.stop)
            yield PartOfTable(self.asking.known(rows), ids, places[of], classes[of])

    def calibrated(self) -> Filling:
        """Return a filling whose draws are calibrated. Collective. Raises ConfigError for rows that are not the
        table's."""
        if self.places is None:
            raise ConfigError(f"{self.path}: only copies of the run's own table are calibrated; leave out --calibrate")
        columns = self.asking.columns
        return replace(self, classes=on_root(self.asking.comm, lambda: gap_classes(columns, self.parts)))

    def _known(self, rows: Rows, places: np.ndarray) -> Known:
        """Known cells that draws are conditioned on, in addition to the clusters of training rows."""
        by_cluster = (places >= 0).all() and not self.asking.asked.linked
        watched = {c.name for c in self.asking.columns if c.kind == "survival"}
        return self.asking.known(
            rows, {*self.asking.asked.joint, *self.asking.asked.explained, *watched} if by_cluster else None
        )

    def below_zero(self, cells: Cells) -> dict[str, int]:
        """Number of drawn cells below 0, by column, for columns that are never negative in the table."""
        result = {c.name: int((cells[c.name][1] < 0.0).sum()) for c in self._never_negative if c.name in cells}
        return {name: n for name, n in result.items() if n}

    @property
    def _never_negative(self) -> list[Column]:
        return [c for c in self.asking.columns if never_negative(c)]

    def never(self) -> list[str]:
        """Notes on filled cells that are always missing in the table."""
        return [
            f"the table {a.how_often} has '{a.column}' where {a.condition()}; {counted(n, 'row')} got what the model "
            "would expect if there were one"
            for a, n in self._absent.items()
        ]


def of_file(asking: Asking, source: Path, unseen: str, form: str | None = None) -> Filling:
    """The rows of a file, or the run's table if the file is the table or its source. form: see `of_table`. Collective.
    Raises DataError."""
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
    """The rows of the run's table, written from its source, or from the table itself. form: "csv" or "parquet" if
    requested; a source of the other form is not used. Collective. Raises DataError if a named file is not the table's
    source."""
    path, notes = on_root(asking.comm, lambda: written_like(asking, [Path(source) for source in sources], form))
    return _own(asking, path, notes)


def _own(asking: Asking, path: Path, notes: list[str]) -> Filling:
    asked, n = asking.asked, asking.run.table.n_rows
    places = np.full(n, -1)
    places[asked.training_numbers()] = np.arange(asked.n_rows)

    if n_out := int((places < 0).sum()):
        notes = [
            *notes,
            f"{counted(n_out, 'row')} not trained on (data.heldout): gaps there are drawn given the row's own cells, "
            'which inform no other row; for an analysis, complete a run of all rows (data.heldout = "none")',
        ]

    def parts() -> Iterator[Rows]:
        return (asked.recorded(np.arange(i, min(i + BATCH, n))) for i in range(0, n, BATCH))

    return Filling(asking, path, frozenset(), notes, parts, places)


def written_like(
    asking: Asking, given: Sequence[Path], form: str | None, without: str = WITHOUT
) -> tuple[Path, list[str]]:
    """The file whose format rows are written in, with notes for people: the source of the run's table, or the table
    itself. given: path of the source, if named; without: end of the note if the table is used."""
    table = asking.run.table
    if len(given) > 1:
        raise DataError(f"{given[1]}: a second file; name the only file that {table.path} was imported from")
    for path in given:
        if table.source.get("count"):
            raise DataError(f"{path}: has one row for many of the table; without it, the table's rows are written")
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
    """The source, or the table if the source cannot be written in the requested form."""
    if form is None or form_of(source, form) == form:
        return source, []
    return table, [f"{source} is not written as {form}{without}"]
