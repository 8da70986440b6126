"""Synthetic tables as DataFrames, and their utility and risk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpibayes.hpc.python.copies import read_table
from mpibayes.hpc.python.frames import from_arrow
from mpibayes.hpc.python.opened import Opened, warn
from mpibayes.hpc.python.result import Result
from mpibayes.hpc.python.rows import folder_for_files, names, nowhere

if TYPE_CHECKING:
    import pyarrow as pa

    from mpibayes.hpc.query.answer import Answer


class Synthesizer(Opened):
    """An opened run that makes synthetic tables."""

    def synthesize(
        self, n: int | None = None, copies: int = 5, *, missing: str = "as-in-data", rare: int = 0, seed: int = 1,
        weighted: bool | None = None,
    ) -> Any:  # fmt: skip
        """Synthetic tables: a list of `copies` DataFrames of n rows (by default the number of training rows), as
        written by `mpibayes synthesize`, each from its own kept draw; fewer rows are the first of more.

        missing: "as-in-data", sets of missing cells taken from training rows of the same cluster, or "none". rare:
        levels of fewer training rows are merged into one, "other", and atoms of fewer are dropped. weighted: rows of
        the population that survey weights represent, by default if the table has weights. Analyse each table, and pool
        the results: `mpibayes.pool(..., n=training rows, k=rows of a table, synthetic=True)`."""
        tables, _ = self._synthetic(rows=n, copies=copies, missing=missing, rare=rare, seed=seed, weighted=weighted)
        return [from_arrow(table, self._kind, None) for table in tables]

    def judge(
        self, n: int | None = None, copies: int = 5, *, target: str | None = None,
        key: Sequence[str] | str | None = None, missing: str = "as-in-data", rare: int = 0, seed: int = 1,
    ) -> Result:  # fmt: skip
        """Utility and risk of the tables made by `synthesize`, beside real rows: a Result with a line per measure and
        its meaning. target: the column that is classified, and disclosed (default: the last with levels); key: columns
        that an intruder may know about a person whose target is sought."""
        _, judged = self._synthetic(
            rows=n, copies=copies, missing=missing, rare=rare, seed=seed, weighted=False, judge=True, target=target,
            key=names(key),
        )  # fmt: skip
        assert judged is not None
        return Result(judged, self._kind)

    def _synthetic(self, **options: Any) -> tuple[list[pa.Table], Answer | None]:
        from mpibayes.hpc.results.synthesize import synthesize

        with folder_for_files() as folder:
            done = synthesize(
                self.directories, folder / "tables", otherwise="parquet", burn_in=self._burn_in, table=self._table,
                console=nowhere(), **options,
            )  # fmt: skip
            assert done is not None  # this process is root
            for note in done.notes:
                warn(note)
            self._say_once()
            return [read_table(path, done.dialect) for path in done.paths], done.judged
