"""Batches of rows as text: each column's distinct texts once, and an integer per cell, so that work on text is done
once per distinct text and not once per cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Cells:
    """One column of a batch: cell i is texts[codes[i]]. Texts are stripped, so they may repeat. original: the column as
    read."""

    texts: pa.StringArray
    codes: np.ndarray
    original: pa.Array

    @classmethod
    def of(cls, array: pa.Array) -> Cells:
        original = array
        if not (pa.types.is_dictionary(array.type) and array.type.value_type == pa.string() and not array.null_count):
            array = pc.fill_null(array.cast(pa.string()), "").dictionary_encode()
        return cls(_tidy(array.dictionary), array.indices.to_numpy(), original)

    @classmethod
    def unread(cls, array: pa.Array) -> Cells:
        """Placeholder cells of a column that is not text."""
        return cls(pa.array([""]), np.zeros(len(array), np.int32), array)

    def counts(self) -> np.ndarray:
        return np.bincount(self.codes, minlength=len(self.texts))

    def first(self, i_text: int) -> int:
        """Position in the batch of the first cell with this text."""
        return int(np.argmax(self.codes == i_text))


def _tidy(texts: pa.StringArray) -> pa.StringArray:
    """Strip blanks and NULs from texts. A NUL inside a text, which no file of levels can hold, becomes \u2400."""
    texts = pc.utf8_trim_whitespace(texts)
    if pc.any(pc.match_substring(texts, "\0")).as_py():
        texts = pc.replace_substring(pc.utf8_trim_whitespace(pc.utf8_trim(texts, "\0")), "\0", "\u2400")
    return texts


@dataclass(frozen=True)
class Batch:
    """Some consecutive rows of one file. Rows are counted from 1 without the header: from `first_row` on, or
    `first_row` + `places` (n_rows,) if rows are repeated."""

    path: Path
    first_row: int
    n_rows: int
    columns: dict[int, Cells]
    places: np.ndarray | None = None

    def row(self, at: int) -> int:
        """Row number in the file of the row at this position."""
        return self.first_row + (at if self.places is None else int(self.places[at]))


@dataclass(frozen=True)
class Place:
    """A data row of a file, counted from 1."""

    path: Path
    row: int
