"""Encoding of text as the cells of a typed table, and messages about text that a column cannot hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mpibayes.errors import DataError
from mpibayes.io import spells, watched
from mpibayes.io.cells import Batch, Cells, Place
from mpibayes.io.dates import Dates
from mpibayes.io.dialect import MAX_PROBLEMS
from mpibayes.io.forms import INFINITE, Form
from mpibayes.io.rows import MAX_COUNT, MAX_REAL, NUMERIC, Column, Rows
from mpibayes.io.source import TextSource
from mpibayes.io.yes_no import levels_of, with_level

NUMBER = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"
SHORT = 15  # characters of a number whose digits a double holds exactly
ROUNDED = 5e-15  # relative error of a number that was written with 15 digits


def numbers(texts: pa.StringArray, form: Form | Dates | None = None) -> np.ndarray:
    """Parse each text as a number (float64), NaN if it is none. `1e400` and `-inf` are infinite; `nan` is not a number.

    form: of the numbers; None: plain."""
    texts = texts if form is None else form.plain(texts)
    try:
        values = pc.cast(texts, pa.float64())  # all are numbers: the usual case in a numeric column
    except pa.ArrowInvalid:
        is_number = pc.match_substring_regex(texts, NUMBER)
        is_infinite = pc.match_substring_regex(texts, INFINITE)
        kept = pc.if_else(pc.or_(is_number, is_infinite), texts, pa.scalar(None, pa.string()))
        values = pc.cast(kept, pa.float64())
    return np.array(values.to_numpy(zero_copy_only=False), dtype=np.float64)


def parse(
    kind: str,
    levels: pa.StringArray | None,
    texts: pa.StringArray,
    missing: np.ndarray,
    form: Form | Dates | None = None,
):
    """Parse texts as cells of a column of this kind: (values, mask of texts that it cannot hold).

    values: float64 with NaN = missing for real and count; integers with V = missing for categorical and boolean, V also
    for texts that are not levels. missing: bool, mask of missing markers.
    """
    if kind in NUMERIC:
        texts, censored = watched.parse(texts) if kind == "survival" else (texts, False)
        values = numbers(texts, form)
        values[missing] = np.nan
        bad = ~missing & ~(np.abs(values) <= MAX_REAL)
        if kind == "count":
            bad |= (values < 0) | (values != np.floor(values)) & ~np.isnan(values) | (values >= MAX_COUNT)
        elif kind == "survival":
            bad |= values < 0
            values = spells.stored(values, censored)
        return values, bad
    codes = pc.fill_null(pc.index_in(texts, value_set=levels), len(levels)).to_numpy(zero_copy_only=False)
    bad = ~missing & (codes == len(levels))
    if bad.any():
        codes = codes.copy()
        codes[bad] = _same_number(levels, texts.filter(pa.array(bad)), form)
        bad &= codes == len(levels)
    return np.where(missing, len(levels), codes), bad


def _same_number(levels: pa.StringArray, texts: pa.StringArray, form: Form | None) -> np.ndarray:
    """Level that is the same number as each text (1 and 1.0); len(levels) if there is none, or if the levels are not
    all numbers: 250 and 250.0 may be codes. An option that is checked or not has one number (`yes_no`)."""
    values = known_numbers(levels, form)
    option = len(levels) == 2 and levels[0].as_py() == levels_of(levels[1].as_py())[0]
    if np.isnan(values[int(option) :]).any():
        return np.full(len(texts), len(levels))
    order = np.argsort(values)
    numbers = known_numbers(texts if form else in_single_precision(texts), form)
    place = np.minimum(np.searchsorted(values[order], numbers), len(levels) - 1)
    return np.where(values[order][place] == numbers, order[place], len(levels))


def in_single_precision(texts: pa.StringArray) -> pa.StringArray:
    """The texts, with fractions of single precision that were written in double precision, such as 0.7214999794960022,
    as short as single precision needs them: 0.7215."""
    values = numbers(texts)
    with np.errstate(over="ignore"):
        singles = values.astype(np.float32)
    long = pc.greater(pc.utf8_length(texts), SHORT).to_numpy(zero_copy_only=False)
    close = np.abs(values - singles) <= ROUNDED * np.abs(values)
    fractions = np.flatnonzero(long & close & (values != np.floor(values)))
    if not len(fractions):
        return texts
    result = texts.to_pylist()
    for i in fractions:
        result[i] = str(singles[i])
    return pa.array(result, pa.string())


def known_numbers(texts: pa.StringArray, form: Form | Dates | None = None) -> np.ndarray:
    """Numbers of texts whose digits a double holds exactly, NaN for other texts and for codes such as 007."""
    values = numbers(texts, form)
    coded = pc.match_substring_regex(texts, r"^[+-]?0\d").to_numpy(zero_copy_only=False)
    short = pc.less_equal(pc.utf8_length(texts), SHORT).to_numpy(zero_copy_only=False)
    return np.where(coded & (form is None) | ~short, np.nan, values)


def expectation(kind: str, levels: Sequence[str]) -> str:
    if kind == "real":
        return "a finite number below 1e150 in size"
    if kind == "count":
        return "a non-negative integer below 2^53"
    if kind == "survival":
        return "a time of 0 or more, with + behind it where the event had not come"
    few = ", ".join(repr(v) for v in levels[:5]) + (", ..." if len(levels) > 5 else "")
    return f"one of its {len(levels):,} levels ({few})"


@dataclass
class Offence:
    """A text that a column cannot hold: its first place, and the number of such cells."""

    column: str
    text: str
    expected: str
    place: Place
    n_cells: int


@dataclass
class Offences:
    """First MAX_PROBLEMS distinct offending texts of each column, and the number of all offending cells."""

    found: dict[tuple[str, str], Offence] = field(default_factory=dict)
    n_cells: dict[str, int] = field(default_factory=dict)
    n_listed: dict[str, int] = field(default_factory=dict)

    def add(self, batch: Batch, column: str, cells: Cells, counts: np.ndarray, bad: np.ndarray, expected: str) -> None:
        """Note the `bad` texts of a batch's column; if there are many, a few are described and all are counted."""
        offending = np.flatnonzero(bad & (counts > 0))
        described = offending[: 2 * MAX_PROBLEMS]
        for i in described:
            row = batch.row(cells.first(i))
            self.note(column, cells.texts[i].as_py(), expected, batch.path, row, int(counts[i]))
        rest = int(counts[offending[2 * MAX_PROBLEMS :]].sum())
        if rest:
            self.n_cells[column] += rest

    def note(self, column: str, text: str, expected: str, path: Path, row: int, n_cells: int) -> None:
        self.n_cells[column] = self.n_cells.get(column, 0) + n_cells
        known = self.found.get((column, text))
        if known is not None:
            known.n_cells += n_cells
        elif self.n_listed.get(column, 0) < MAX_PROBLEMS:
            self.found[column, text] = Offence(column, text, expected, Place(path, row), n_cells)
            self.n_listed[column] = self.n_listed.get(column, 0) + 1

    def __bool__(self) -> bool:
        return bool(self.n_cells)

    def error(self, source: TextSource, advice: str) -> DataError:
        """Return an error with the first MAX_PROBLEMS offences in row order, with rows and lines."""
        order = {path: i for i, path in enumerate(source.paths)}
        listed = sorted(self.found.values(), key=lambda o: (order[o.place.path], o.place.row, o.column))
        listed = listed[:MAX_PROBLEMS]
        problems = [
            f"{where}, column '{o.column}': found {o.text[:60]!r}, expected {o.expected}"
            + (f"; {o.n_cells:,} such cells" if o.n_cells > 1 else "")
            for o, where in zip(listed, source.describe([o.place for o in listed]), strict=True)
        ]
        n = sum(self.n_cells.values())
        cells = "one cell" if n == 1 else f"{n:,} cells"
        columns = ", ".join(f"'{c}'" for c in self.n_cells)
        what = f"{cells} cannot be read as the column's kind: {columns}"
        return DataError(f"{source.paths[0]}: {what}. {advice}", problems)


class Encoder:
    """Turns batches of text into Rows of known columns.

    positions: of each column in the source; None if absent, its cells are missing. markers: for each column, the texts
    that mean missing; forms: for each, the form of its numbers.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        positions: Sequence[int | None],
        markers: Sequence[Sequence[str]],
        forms: Sequence[Form | Dates | None] | None = None,
        no: Mapping[str, Sequence[str]] | None = None,
    ):
        self.columns = columns
        self._places = positions
        self.positions = [p for p in positions if p is not None]
        self._forms = forms or [None] * len(columns)
        self._markers = [Markers.of(m) for m in markers]
        self._no = {name: tuple(texts) for name, texts in (no or {}).items()}
        self._levels = [pa.array(c.levels, pa.string()) if c.levels else None for c in columns]

    def encode(self, batch: Batch, wrong: Offences, unseen: Offences) -> Rows:
        """Encode the batch as rows. Cells that cannot be held become missing and are noted: in `wrong` if a number was
        expected, in `unseen` if a level was.
        """
        rows = (Rows.missing if None in self._places else Rows.empty)(self.columns, batch.n_rows)
        for column, position, markers, levels, form in zip(
            self.columns, self._places, self._markers, self._levels, self._forms, strict=True
        ):
            if position is None:
                continue
            cells = batch.columns[position]
            missing = markers.among(watched.times(cells.texts, column.kind), form)
            texts = form.labels(cells.texts) if getattr(form, "part", "") else cells.texts
            if column.name in self._no:
                texts = with_level(texts, self._no[column.name], column.levels[0])
            values, bad = parse(column.kind, levels, texts, missing, form)
            if bad.any():
                if column.kind in NUMERIC:
                    values[bad] = np.nan
                offences = unseen if column.levels else wrong
                offences.add(batch, column.name, cells, cells.counts(), bad, expectation(column.kind, column.levels))
            target = getattr(rows, column.block)
            target[:, column.index] = values.astype(target.dtype)[cells.codes]
        return rows

    def gaps(self, batch: Batch) -> dict[str, np.ndarray]:
        """Masks of the batch's missing or censored cells, by column, bool (n,)."""
        each = zip(self.columns, self._places, self._markers, self._forms, strict=True)
        cells = ((c, batch.columns[place], markers, form) for c, place, markers, form in each if place is not None)
        return {c.name: self._gaps(c, of.texts, markers, form)[of.codes] for c, of, markers, form in cells}

    @staticmethod
    def _gaps(column: Column, texts: pa.StringArray, markers: Markers, form: Form | Dates | None) -> np.ndarray:
        """Mask of texts that are missing or censored."""
        if column.kind != "survival":
            return markers.among(texts, form)
        times, censored = watched.parse(texts)
        return markers.among(times, form) | censored


class Markers:
    """Texts that mean missing. A marker that is a number matches any form of it: -999 matches -999.0, too; but 007 does
    not match 7. `inf` matches all numbers beyond MAX_REAL."""

    @classmethod
    def of(cls, texts: Sequence[str]) -> Markers:
        """Markers for these texts; cached, since most columns share them."""
        return _markers(tuple(texts))

    def __init__(self, texts: Sequence[str]):
        self._texts = pa.array(list(texts), pa.string())
        values = numbers(self._texts) if len(self._texts) else np.zeros(0)
        self._values = _within_range(values[~np.isnan(values)])

    def among(self, texts: pa.StringArray, form: Form | None = None, values: np.ndarray | None = None) -> np.ndarray:
        """Mask of the texts that mean missing, bool (n,). values: their numbers, if known."""
        missing = pc.is_in(texts, value_set=self._texts).to_numpy(zero_copy_only=False)
        if len(self._values):
            values = numbers(texts, form) if values is None else values
            coded = pc.match_substring_regex(texts, r"^[+-]?0\d").to_numpy(zero_copy_only=False)
            missing = missing | (np.isin(_within_range(values), self._values) & ~coded)
        return missing


@lru_cache(maxsize=256)
def _markers(texts: tuple[str, ...]) -> Markers:
    return Markers(texts)


def _within_range(values: np.ndarray) -> np.ndarray:
    """Replace values beyond MAX_REAL by infinity."""
    return np.where(np.abs(values) > MAX_REAL, np.copysign(np.inf, values), values)
