"""The topics of new documents, under the best chain's last state.

The file is a sparse table, or any that `mpibayes import --sparse` reads. Its words are found by their ids in the run's
table; other words are left out and counted. Columns written:

    row          number in the new file, from 1
    <document>   its id
    words        number of its words that the run's table has; the others are left out
    topic        the most frequent topic, numbered as in the report; p_topic: its share
    p_<k>        share of each topic: mean proportions under q
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.family import Request
from mpibayes.hpc.posterior.forecast import OF_SPARSE, OF_TYPED
from mpibayes.hpc.svi.lda.draws import Posterior
from mpibayes.io.files import HDF5, first_bytes
from mpibayes.io.sparse import SparseRows, SparseTable
from mpibayes.text import counted

ENTRIES = 1 << 18  # entries processed at a time


class Forecast:
    """See `hpc.family.SparseForecast`."""

    n_scored, log_density = 0, 0.0
    cannot = OF_SPARSE | OF_TYPED

    def __init__(self, run: Posterior, request: Request):
        if request.source is None:
            raise ConfigError("name a file with new documents")
        self._run, self._source, self._unseen = run, request.source, request.unseen
        self._best = run.best()
        self._lost, self._words = 0.0, 0.0
        self._lost_kinds: set[int] = set()

    def prepare(self) -> str:
        """Do the work before the first lines; return its summary in words."""
        self._law = self._run.law(self._best)
        return f"an approximation of {counted(len(self._law.size), 'topic')}: {self._run.place(self._best)}"

    def blocks(self) -> Iterator[dict[str, Any]]:
        """Yield blocks of output lines, several documents at a time, as columns by name."""
        if first_bytes(self._source) == HDF5:
            yield from self._of(SparseTable.open(self._source))
            return
        from mpibayes.io.sparse_import import import_sparse

        with tempfile.TemporaryDirectory() as folder:
            yield from self._of(import_sparse([self._source], Path(folder) / "new.h5").table)

    def notes(self) -> list[str]:
        """Notes for the user, printed at the end."""
        if not self._lost:
            return []
        kinds = counted(len(self._lost_kinds), "word")
        return [
            f"{kinds} of {self._source} {'is' if len(self._lost_kinds) == 1 else 'are'} not in the run's table: "
            f"{self._lost / self._words:.1%} of all words are left out"
        ]

    # --- inside -------------------------------------------------------------------------------------------------------

    def _of(self, new: SparseTable) -> Iterator[dict[str, Any]]:
        place, name = self._places(new), new.names[0]
        ids = {"row", "words", "topic", "p_topic"}
        for first, rows in new.slices(ENTRIES):
            known = self._known(rows, place)
            p = self._law.topics_of(known)
            words = np.bincount(known.row_of(), known.values, len(known)) if len(known.values) else np.zeros(len(known))
            yield {
                "row": np.arange(first + 1, first + len(rows) + 1),
                f"{name}_id" if name in ids else name: new.row_ids(first, first + len(rows)),
                "words": words.astype(np.int64), "topic": p.argmax(axis=1) + 1, "p_topic": p.max(axis=1),
                **{f"p_{k + 1}": p[:, k] for k in range(p.shape[1])},
            }  # fmt: skip

    def _places(self, new: SparseTable) -> np.ndarray:
        """Number in the run's table of each word of the file, -1 for a word that is not in it."""
        if not new.whole:
            raise DataError(f"{self._source}: its values are not counts, but from {new.minimum:g} to {new.maximum:g}")
        table = self._run.table
        if table.has_column_ids != new.has_column_ids:
            which = ("has", "does not") if table.has_column_ids else ("has no", "does")
            raise DataError(
                f"{self._source}: the run's table {which[0]} names of words, this file {which[1]}: words cannot be "
                "matched; import both with --vocabulary, or both without"
            )
        known = {word: i for i, word in enumerate(table.column_ids())}
        place = np.array([known.get(word, -1) for word in new.column_ids()], np.int64)
        if self._unseen == "error" and (place < 0).any():
            word = new.column_ids()[int(np.flatnonzero(place < 0)[0])]
            raise DataError(f"{self._source}: the word {word!r} is not in the run's table (--unseen error)")
        return place

    def _known(self, rows: SparseRows, place: np.ndarray) -> SparseRows:
        columns = place[rows.columns]
        there = columns >= 0
        self._words += float(rows.values.sum())
        self._lost += float(rows.values[~there].sum())
        self._lost_kinds.update(np.unique(rows.columns[~there]).tolist())
        lengths = np.bincount(rows.row_of()[there], minlength=len(rows))
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return SparseRows(starts, columns[there].astype(np.int32), rows.values[there])
