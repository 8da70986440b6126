"""Rows of a file that a question is about, read as the table was: whole, or some at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mpibayes.hpc.query.asking import Asking
from mpibayes.io.rows import Rows

BATCH = 8_192  # rows


@dataclass(frozen=True)
class NewRows:
    """path; rows of the table's used columns, as they are recorded; lacking: the columns that the file does not have;
    notes: what was read as missing, for people. parts: where rows are not held, reads them from the file; `rows` is
    then none of them."""

    path: Path
    rows: Rows
    lacking: frozenset[str]
    notes: Sequence[str]
    parts: Callable[[], Iterator[Rows]] | None = None

    def there(self, asking: Asking) -> list[str]:
        """The columns that can be asked about and that the file has."""
        return [c.name for c in asking.columns if c.name not in self.lacking]

    def batches(self) -> Iterator[NewRows]:
        """Some rows at a time, in order, at least one."""
        held = (self.rows.take(slice(i, i + BATCH)) for i in range(0, max(len(self.rows), 1), BATCH))
        for rows in self.parts() if self.parts else held:
            yield replace(self, rows=rows, parts=None)

    def whole(self, asking: Asking) -> NewRows:
        """With all rows held."""
        if self.parts is None:
            return self
        rows = Rows.concatenate(asking.asked.like.columns, list(self.parts()))
        return replace(self, rows=rows, parts=None)


def read(asking: Asking, source: str | Path, unseen: str = "missing") -> NewRows:
    """A CSV or Parquet file, or a typed table; it need not have all columns. unseen: what a level that the table does
    not have is, "missing" or an "error". Raises DataError."""
    return stream(asking, source, unseen).whole(asking)


def stream(asking: Asking, source: str | Path, unseen: str = "missing", notes: Sequence[str] | None = None) -> NewRows:
    """The same, whose rows are read when they are wanted, after one pass that looks for mistakes. notes: of a pass that
    another rank has made. Raises DataError."""
    from mpibayes.io.recode import lacking_columns, lacking_message, stream_like, unseen_message

    like, record = asking.asked.like, {}
    lacking = lacking_columns(like, source, {c.name for c in like.columns})
    options = {"unseen": unseen, "may_lack": lacking, "batch_rows": BATCH, "check_first": False}
    if notes is None:
        for _ in stream_like(like, source, record=record, **options):
            pass
        notes = [lacking_message(lacking, like, source), unseen_message(record, source)]
    blank = Rows.concatenate(like.columns, [])
    return NewRows(
        Path(source), blank, frozenset(lacking), [n for n in notes if n], lambda: stream_like(like, source, **options)
    )
