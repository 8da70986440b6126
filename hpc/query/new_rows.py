"""Rows of a file that a question is about, read as the table was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mpibayes.hpc.query.asking import Asking
from mpibayes.io.rows import Rows


@dataclass(frozen=True)
class NewRows:
    """path; rows of the table's used columns, as they are recorded; lacking: the columns that the file does not have;
    notes: what was read as missing, for people."""

    path: Path
    rows: Rows
    lacking: frozenset[str]
    notes: Sequence[str]

    def there(self, asking: Asking) -> list[str]:
        """The columns that can be asked about and that the file has."""
        return [c.name for c in asking.columns if c.name not in self.lacking]


def read(asking: Asking, source: str | Path, unseen: str = "missing") -> NewRows:
    """A CSV or Parquet file, or a typed table; it need not have all columns. unseen: what a level that the table does
    not have is, "missing" or an "error". Raises DataError."""
    from mpibayes.io.recode import lacking_columns, lacking_message, stream_like, unseen_message

    like, record = asking.asked.like, {}
    lacking = lacking_columns(like, source, {c.name for c in like.columns})
    parts = list(stream_like(like, source, unseen=unseen, may_lack=lacking, record=record))
    notes = [lacking_message(lacking, like, source), unseen_message(record, source)]
    return NewRows(Path(source), Rows.concatenate(like.columns, parts), frozenset(lacking), [n for n in notes if n])
