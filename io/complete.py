"""A file of rows with its gaps filled, in its own format: everything else in it stays as it is.

A gap is a missing cell of a column that is read; a level unknown to the table is not a gap. Columns that the file lacks
follow its own, and after them the columns that describe each row. CSV keeps the text of every cell, its delimiter and
its encoding, with quotes where needed; Parquet keeps its types.
"""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.dates import Dates, in_milliseconds, of_times
from mpibayes.io.files import HDF5, first_bytes, replacing, writing
from mpibayes.io.formats.kinds import PARQUET, TEXT, kind_of
from mpibayes.io.forms import Form
from mpibayes.io.recode import Originals, opened_like
from mpibayes.io.rows import Column
from mpibayes.io.table import Table

Cells = Mapping[str, tuple[np.ndarray, np.ndarray]]  # by column: rows (m,), ascending, and level codes or numbers (m,)
Fill = Callable[[int, Cells | None, Mapping[str, np.ndarray]], None]


def check_format(source: Path, out: Path) -> None:
    """Raise ConfigError if `out` cannot be written from `source`: Parquet stays Parquet, text CSV; others become
    either."""
    typed = first_bytes(source) == HDF5
    kind, parquet = TEXT if typed else kind_of(source), out.suffix == ".parquet"
    if kind is PARQUET and not parquet:
        raise ConfigError(f"{out}: {source} is a Parquet file; expected a name that ends in .parquet")
    if parquet and kind is TEXT and not typed:
        raise ConfigError(f"{out}: {source} is a text file; expected a name that ends in .csv or .csv.gz")


def form_of(source: Path, otherwise: str) -> str:
    """Format of `source`, "csv" or "parquet"; `otherwise` if it is neither."""
    if first_bytes(source) == HDF5:
        return otherwise
    kind = kind_of(source)
    return "parquet" if kind is PARQUET else "csv" if kind is TEXT else otherwise


class Dialect(NamedTuple):
    """Dialect of CSV like a source's; names: of the columns, if it has no header."""

    delimiter: str
    encoding: str
    names: Sequence[str]


def dialect_of(like: Table, source: Path, lacking: Collection[str], beside: Sequence[str]) -> Dialect:
    """Dialect of the file written by `completed`."""
    o = opened_like(like, source, lacking).originals()
    behind = [c.name for c in like.columns if c.name in lacking]
    return Dialect(o.delimiter, o.encoding, () if o.head is not None else [*o.names, *behind, *beside])


@contextmanager
def completed(like: Table, source: Path, out: Path, lacking: Collection[str], filled: dict[str, int]) -> Iterator[Fill]:
    """Yield a function fill(n, cells, beside) for the next n rows of `source`; the complete `out` appears at the end.

    cells: values for gaps in these rows. beside: further named columns of numbers, NaN being empty; the same names each
    time. lacking: columns that the file does not have. filled: receives the number of filled cells by column.
    Raises ConfigError (out cannot be written), DataError (a Parquet column cannot hold its value).
    """
    with passes_over(like, source, out, lacking) as start:
        yield start(filled)


@contextmanager
def passes_over(
    like: Table, source: Path, out: Path, lacking: Collection[str], reserved: Sequence[str] = ()
) -> Iterator[Callable[[dict], Fill]]:
    """Yield a function start(filled) that returns a function `fill` as in `completed`, for `source` from its first row;
    each pass appends its rows. If `cells` is None, gaps become empty cells, whatever marks them in `source`. reserved:
    names of further columns that must not be changed. Raises DataError if `source` has one of them.
    """
    originals = opened_like(like, source, lacking).originals()
    for name in reserved:
        if name in originals.names:
            raise DataError(f"{source}: has a column '{name}', which the long file needs; write one file for each copy")
    with writing(out), ExitStack() as stack:
        file = stack.enter_context(replacing(out))
        if out.suffix == ".gz":
            file = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
        target = target_of(file, originals, out)
        stack.callback(target.close)
        yield lambda filled: _Pass(like, originals, target, filled)


def target_of(file, originals: Originals, out: Path) -> _Text | _Parquet:
    """Writer of columns to an open file, in the format given by the name `out` and the dialect of `originals`."""
    return (_Parquet if out.suffix == ".parquet" else _Text)(file, originals, out)


class _Pass:
    """One reading of a file whose rows are written as they are filled. See `completed`."""

    def __init__(self, like: Table, originals: Originals, target: _Text | _Parquet, filled: dict[str, int]):
        self._columns = {c.name: c for c in like.columns}
        self._originals, self._target, self._filled = originals, target, filled
        self._pieces = _Pieces(originals)

    def __call__(self, n: int, cells: Cells | None, beside: Mapping[str, np.ndarray]) -> None:
        first, taken = 0, [*self._originals.names, *self._columns]
        while first < n:
            held, gaps, m = self._pieces.next(n - first)
            rows = dict(held)
            for name, column in self._columns.items():
                form = self._originals.forms.get(name)
                if isinstance(form, Dates) and form.part:
                    continue  # the file has the date that contains this part
                place = self._originals.places.get(name)
                part = None if place is None else held[place]
                if cells is None:
                    blank = None if column.kind == "survival" else gaps.get(name)  # a censored time is information
                    rows[name if place is None else place] = self._target.blank(part, m, blank, column)
                    continue
                at, values = _here(cells.get(name), first, m)
                if name in gaps:
                    requested = gaps[name][at]
                    at, values = at[requested], values[requested]
                rows[name if place is None else place] = self._target.put(part, m, at, values, column, form)
                self._filled[name] = self._filled.get(name, 0) + len(at)
                if name in self._originals.events:  # a drawn time means that its event came
                    place, came = self._originals.events[name]
                    event_column = Column(name, "categorical", "codes8", 0, (came,))
                    rows[place] = self._target.put(held[place], m, at, np.zeros(len(at)), event_column, None)
            for name, values in beside.items():
                rows[_free(name, taken)] = self._target.number(values[first : first + m])
            self._target.add(rows)
            first += m


def _here(cells: tuple[np.ndarray, np.ndarray] | None, first: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Cells of rows first..first + m - 1, counted from the first of them."""
    if cells is None:
        return np.zeros(0, np.intp), np.zeros(0)
    start, stop = np.searchsorted(cells[0], (first, first + m))
    return cells[0][start:stop] - first, cells[1][start:stop]


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


class _Pieces:
    """Batches of a file, cut on request."""

    def __init__(self, originals: Originals):
        self._batches, self._left, self._path = iter(originals.batches()), 0, originals.path

    def next(self, most: int) -> tuple[dict[int, pa.Array], dict[str, np.ndarray], int]:
        """Return at most `most` rows: the columns by position, the gaps by name, and the number of rows."""
        while not self._left:
            batch = next(self._batches, None)
            if batch is None:
                raise DataError(f"{self._path}: the file changed while it was read")
            self._arrays, self._gaps, self._left = batch
            self._start = 0
        m, a = min(most, self._left), self._start
        self._left, self._start = self._left - m, a + m
        arrays = {i: array.slice(a, m) for i, array in self._arrays.items()}
        return arrays, {name: gaps[a : a + m] for name, gaps in self._gaps.items()}, m


# --- text -------------------------------------------------------------------------------------------------------------


class _Text:
    """CSV in the source's dialect. Cells are dictionary arrays, so that work on text is done once per distinct text."""

    def __init__(self, file, originals: Originals, path: Path):
        self._head, self._delimiter = originals.head, originals.delimiter
        self._file = io.TextIOWrapper(file, originals.encoding, newline="", errors="strict")
        self._special = f'["\r\n{re.escape(originals.delimiter)}]'  # characters of cells that need quotes
        self._path, self._encoding = path, originals.encoding

    def put(
        self, held: pa.Array | None, n: int, at, values, column: Column, form: Form | Dates | None
    ) -> pa.DictionaryArray:
        return self._with(held, n, at, *_texts(column, values, form))

    def blank(
        self, held: pa.Array | None, n: int, gaps: np.ndarray | None, column: Column, text: str = ""
    ) -> pa.DictionaryArray:
        """Cells with `text` in the gaps."""
        at = np.zeros(0, np.intp) if gaps is None else np.flatnonzero(gaps)
        return self._with(held, n, at, [text], np.zeros(len(at), np.int32))

    @staticmethod
    def _with(held: pa.Array | None, n: int, at, texts: list[str], of: np.ndarray) -> pa.DictionaryArray:
        """Cells in which those at `at` are texts[of]."""
        cells = _as_text(pa.nulls(n, pa.string()) if held is None else held)
        if not len(at):
            return cells
        codes = cells.indices.to_numpy().copy()
        codes[at] = len(cells.dictionary) + of
        return pa.DictionaryArray.from_arrays(codes, pa.concat_arrays([cells.dictionary, pa.array(texts, pa.string())]))

    def number(self, values: np.ndarray) -> pa.DictionaryArray:
        texts = ["" if v != v else f"{v:.4g}" if values.dtype.kind == "f" else str(v) for v in values.tolist()]
        return pa.array(texts, pa.string()).dictionary_encode()

    def add(self, columns: Mapping[Any, Any]) -> None:
        if self._head is not None:
            names = [*self._head, *(name for name in columns if isinstance(name, str))]
            self._write([pa.array([name]).dictionary_encode() for name in names])
            self._head = None
        self._write([_as_text(cells) for cells in columns.values()])

    def _write(self, columns: Sequence[pa.DictionaryArray]) -> None:
        """Write lines as the csv module does, with quotes where needed."""
        cells = [self._quoted(c.dictionary).take(c.indices) for c in columns]
        if len(cells) == 1:  # an empty line is no row
            cells = [pc.if_else(pc.equal(cells[0], ""), '""', cells[0])]
        lines = pc.binary_join_element_wise(*cells, self._delimiter)
        text = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "\n")
        try:
            self._file.write(text[0].as_py() + "\n")
        except UnicodeEncodeError as error:
            raise DataError(f"{self._path}: {error.object[error.start]!r} is not in {self._encoding}") from None

    def _quoted(self, texts: pa.StringArray) -> pa.StringArray:
        special = pc.match_substring_regex(texts, self._special)
        if not pc.any(special).as_py():
            return texts
        doubled = pc.replace_substring(texts, '"', '""')
        return pc.if_else(special, pc.binary_join_element_wise('"', doubled, '"', ""), texts)

    def close(self) -> None:
        self._file.flush()
        self._file.detach()


def _as_text(array: pa.Array) -> pa.DictionaryArray:
    """Texts of cells, "" if missing, with indices int32; each distinct one is formatted once."""
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    texts, codes = array.dictionary, array.indices.cast(pa.int32())
    if pa.types.is_temporal(texts.type):  # from a typed table; in other files dates are text
        form, times = of_times(texts.type), in_milliseconds(texts).to_pylist()
        texts = pa.array([form.written(repr(v / 86_400_000)) for v in times], pa.string())
    elif texts.type != pa.string():
        texts = pa.array([f"{v:.15g}" if isinstance(v, float) else str(v) for v in texts.to_pylist()], pa.string())
    if codes.null_count:
        codes, texts = pc.fill_null(codes, len(texts)), pa.concat_arrays([texts, pa.array([""])])
    return pa.DictionaryArray.from_arrays(codes, texts)


def _number(value: float, form: Form | Dates | None) -> str:
    text = f"{value:.15g}"
    if "e" in text:
        text = np.format_float_positional(float(text), trim="-")
    return text if form is None else form.written(text)


def _texts(column: Column, values: np.ndarray, form: Form | Dates | None) -> tuple[list[str], np.ndarray]:
    """Distinct texts of level codes or numbers (n,), and the text of each, (n,)."""
    different, of = np.unique(np.asarray(values), return_inverse=True)
    return [column.levels[int(v)] if column.levels else _number(v, form) for v in different], of


# --- Parquet ----------------------------------------------------------------------------------------------------------


class _Parquet:
    """Arrow arrays of the source's types."""

    def __init__(self, file, originals: Originals, path: Path):
        self._file, self._path, self._metadata = file, path, originals.metadata
        self._names, self._writer = originals.names, None

    def put(self, held: pa.Array | None, n: int, at, values, column: Column, form: Form | Dates | None) -> pa.Array:
        if held is None or pa.types.is_null(held.type):
            held = pa.nulls(n, pa.string() if column.levels else pa.float64())
        if not len(at):
            return held
        of = held.type.value_type if pa.types.is_dictionary(held.type) else held.type
        distinct, which = _texts(column, values, form)
        texts = pa.array(distinct, pa.string()).take(pa.array(which))
        try:
            if isinstance(form, Dates) and pa.types.is_temporal(of):
                new = _temporal(np.rint(values * 86_400_000).astype(np.int64), of)
            elif not column.levels and pa.types.is_integer(of):
                new = pa.array(np.rint(values)).cast(of)
            elif not column.levels and pa.types.is_floating(of):
                new = pa.array([float(f"{v:.15g}") for v in values]).cast(of, safe=False)
            else:
                new = texts.cast(of)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise DataError(
                f"column '{column.name}': its type, {of}, cannot hold {texts[0].as_py()!r}; write the source as CSV, "
                "and complete that"
            ) from None
        mask = np.zeros(n, bool)
        mask[at] = True
        plain = held.dictionary_decode() if of != held.type else held
        plain = pc.replace_with_mask(plain, pa.array(mask), new)
        if of == held.type:
            return plain
        coded = plain.dictionary_encode()
        indices = coded.indices.cast(held.type.index_type)
        return pa.DictionaryArray.from_arrays(indices, coded.dictionary, ordered=held.type.ordered)

    def blank(self, held: pa.Array | None, n: int, gaps: np.ndarray | None, column: Column) -> pa.Array:
        held = self.put(held, n, (), (), column, None)
        return held if gaps is None else pc.if_else(pa.array(gaps), pa.scalar(None, held.type), held)

    def number(self, values: np.ndarray) -> pa.Array:
        return pa.array(values, mask=np.isnan(values) if values.dtype.kind == "f" else None)

    def add(self, columns: Mapping[Any, Any]) -> None:
        names = [self._names[c] if isinstance(c, int) else c for c in columns]
        table = pa.table(list(columns.values()), names=names).replace_schema_metadata(self._metadata)
        if self._writer is None:
            self._writer = pa.parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _temporal(milliseconds: np.ndarray, of: pa.DataType) -> pa.Array:
    """Milliseconds since 1970-01-01 in UTC, or since midnight, as dates, times or timestamps."""
    if pa.types.is_time(of):
        return pa.array(milliseconds.astype(np.int32), pa.time32("ms")).cast(of, safe=False)
    zone = of.tz if pa.types.is_timestamp(of) else None
    return pa.array(milliseconds, pa.timestamp("ms", zone)).cast(of, safe=False)
