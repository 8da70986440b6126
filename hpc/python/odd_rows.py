"""A run of a few seconds on a DataFrame, in this process, and the oddness of rows under it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mpibayes.hpc.python import frames
from mpibayes.hpc.python.in_process import RUN, TABLE, InProcess
from mpibayes.hpc.python.opened import warn
from mpibayes.hpc.python.rows import handed, in_words_of_python
from mpibayes.io.header import MISSING

if TYPE_CHECKING:
    import pyarrow as pa

    from mpibayes.hpc.query.oddness import Oddness


class OddRows(InProcess):
    """A finished run on a table imported as by `mpibayes import`.

    kinds: of columns whose kind is not inferred. left_out: uninformative columns, each with the reason. The other
    arguments and errors are those of `InProcess`.
    """

    _pickled = (*InProcess._pickled, "left_out")

    def __init__(
        self,
        table: pa.Table,
        kinds: Mapping[str, str],
        config: Mapping[str, Any],
        draws: int,
        directory: str | Path | None = None,
    ):
        self.left_out: dict[str, str] = {}

        def write(path: Path) -> None:
            from mpibayes.io.ingest import import_table

            with in_words_of_python(), handed(table, "pyarrow").file() as source:
                summary = import_table(source, path, kinds=kinds, overwrite=True)
            self.left_out = {c.name: c.reason for c in summary.columns if c.kind == "ignored"}

        super().__init__(write, config, draws, directory)

    @cached_property
    def oddness(self) -> Oddness:
        """Oddness of rows, with the table's rows scored."""
        from mpibayes.hpc.query.asking import Asking
        from mpibayes.hpc.query.oddness import Oddness

        with in_words_of_python():
            self._asking = Asking(self._folder / RUN, self._draws, table=self._folder / TABLE)
            return Oddness(self._asking)

    def of(self, table: pa.Table) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Surprisal of each row, (n,), and by column the excess surprisal of its cells, (n,); see `Oddness`. A warning
        names levels that the run's table lacks. Raises DataError."""
        from mpibayes.hpc.query.new_rows import Named, rows_of

        oddness = self.oddness
        with in_words_of_python(), handed(table, "pyarrow").file() as place:
            rows = rows_of(self._asking, Named(place, frames.NAME)).whole(self._asking)
        for note in rows.notes:
            warn(note.replace("read as missing", "counted as never seen"))
        new_levels = np.zeros((len(rows.rows), len(oddness.names)), bool)
        for c, name in enumerate(oddness.names):
            column = self._asking.conditions.column(name)
            if column.levels:
                cells = getattr(rows.rows, column.block)[:, column.index]
                new_levels[:, c] = column.is_missing(cells) & _written(table.column(name))
        scores, cells = oddness.of(rows.rows, new_levels)
        return scores, dict(zip(oddness.names, cells.T, strict=True))


def _written(column: pa.ChunkedArray) -> np.ndarray:
    """Mask of the cells that are neither null nor a text for missing, (n,)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = frames.decoded(column)
    there = pc.is_valid(column)
    if pa.types.is_string(column.type):
        word = pc.is_in(pc.utf8_trim_whitespace(column), pa.array(MISSING))
        there = pc.and_(there, pc.invert(word))
    return np.asarray(there.to_numpy(), bool)
