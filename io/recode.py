"""Rows of another file in the coding of a table: held-out files, and rows to predict.

Columns are found by name; a CSV without header is matched by position if it has as many fields as the source of the
table. The source's delimiter and missing markers apply. Columns unknown to the table are ignored.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from mpibayes.errors import ConfigError, DataError
from mpibayes.io import spells
from mpibayes.io.cells import Batch
from mpibayes.io.dates import Dates, DatesLike, as_times, of_times, stored, type_of
from mpibayes.io.dialect import MARKED
from mpibayes.io.encode import Encoder, Offences, expectation, parse
from mpibayes.io.files import HDF5, first_bytes
from mpibayes.io.forms import Form, NumbersLike, decimals_of
from mpibayes.io.header import MISSING
from mpibayes.io.ingest import one_thread
from mpibayes.io.rows import SLICE_ROWS, Column, Rows, slices_of
from mpibayes.io.source import Progress, TextSource
from mpibayes.io.table import Table
from mpibayes.io.watched import pairs_there
from mpibayes.text import counted, near


@dataclass
class Originals:
    """A file's columns as they are, to be written again.

    batches(): yields columns of some rows by position, masks of missing cells of the table's columns by name, bool
    (n,), and the number of rows. names: of the columns; places: of the table's columns in the file; head: the header as
    it is, None without one; metadata: of a Parquet file; forms: of numbers, by column. events: by survival column, the
    place of its event column, and the value if the event occurred.
    """

    path: Path
    batches: Callable[[], Iterator[tuple[dict[int, pa.Array], dict[str, np.ndarray], int]]]
    names: Sequence[str]
    places: dict[str, int]
    head: Sequence[str] | None
    delimiter: str = ","
    encoding: str = "utf-8"
    metadata: dict | None = None
    forms: dict[str, Form | Dates] = field(default_factory=dict)
    events: dict[str, tuple[int, str]] = field(default_factory=dict)


@dataclass
class Unseen:
    """Texts of one column that are not levels: the first one, its row, and the number of cells with such a text."""

    level: str
    row: int
    n_cells: int


def read_like(like: Table | Sequence[Column], path: str | os.PathLike, **options) -> Rows:
    """Read all rows of `path` at once; arguments as in `stream_like`."""
    parts = list(stream_like(like, path, check_first=False, **options))
    return Rows.concatenate(_columns_of(like)[0], parts)


def stream_like(
    like: Table | Sequence[Column],
    path: str | os.PathLike,
    *,
    unseen: str = "error",
    may_lack: Collection[str] = (),
    batch_rows: int = SLICE_ROWS,
    record: dict[str, Unseen] | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    missing: Sequence[str] = (),
    count: str | None = None,
    check_first: bool = True,
) -> Iterator[Rows]:
    """Yield the rows of a typed table, or of any importable file, coded like `like` (a Table, or only columns).

    Unknown levels: unseen = "error" raises a DataError that lists them; "missing" makes these cells missing and reports
    them in `record` by column name (see unseen_message), before the first rows with check_first, otherwise after the
    last row. may_lack: names of columns that the file need not have, whose cells are then all missing; at least one
    column must be present.
    check_first: read the file once for mistakes before the first rows are yielded, so that no long work is lost.
    delimiter, header, encoding: replace the source's; missing: markers in addition to the source's. count: column of a
    text file with the number of equal rows that each row represents.

    Raises DataError: unreadable file, missing columns, text in a numeric column (with its row), unseen levels.
    """
    if unseen not in ("error", "missing"):
        raise ConfigError(f'unseen = {unseen!r}: expected "error" or "missing"')
    passes = opened_like(like, path, may_lack, header, missing, delimiter=delimiter, encoding=encoding, count=count)
    if check_first:
        for _ in _checked(passes, unseen, record):
            pass
    for rows in _checked(passes, unseen, None if check_first else record):
        yield from slices_of(rows, batch_rows)


def lacking_columns(like: Table, path: str | os.PathLike, may_lack: Collection[str]) -> list[str]:
    """Columns of `may_lack` that a file lacks. Raises DataError as in `stream_like` if it lacks other columns."""
    return opened_like(like, path, may_lack).lacking


def incoming(
    like: Table, path: str | os.PathLike, unseen: str, may_lack: Collection[str], **more
) -> tuple[Iterator[Rows], list[str], list[str]]:
    """Return the rows of a new file, after a check for mistakes; the columns that it lacks; and notes for people on
    cells read as missing. Raises DataError."""
    lacking, record = lacking_columns(like, path, may_lack), {}
    rows = stream_like(like, path, unseen=unseen, may_lack=lacking, record=record, **more)
    first = list(itertools.islice(rows, 1))
    notes = [lacking_message(lacking, like, path), unseen_message(record, path)]
    return itertools.chain(first, rows), lacking, [note for note in notes if note]


def opened_like(like, path, may_lack=(), header=None, missing=(), **given) -> _TextFile | _TypedFile:
    """Open a file without reading its rows; see `stream_like`."""
    path = Path(path)
    columns, about = _columns_of(like)
    if first_bytes(path) == HDF5:
        return _TypedFile(columns, path, may_lack)
    options = {key: given.get(key) or about.get(key) for key in ("delimiter", "encoding")}
    options |= {"likely_sheet": about.get("sheet"), "count": given.get("count")}
    if options["encoding"] in MARKED:  # the file itself shows which
        options["encoding"] = None
    return _TextFile(columns, about, path, may_lack, header, missing, options)


def lacking_message(lacking: Sequence[str], like: Table, path: str | os.PathLike) -> str:
    """One line for the user about the columns that a file lacks; "" if there are none."""
    if not lacking:
        return ""
    others = sorted(set(opened_like(like, path, lacking).names) - {c.name for c in like.columns})
    each = ", ".join(f"'{name}'{near(name, others)}" for name in lacking)
    return f"{path}: has no column {each}; read as missing"


def unseen_message(record: dict[str, Unseen], path: str | os.PathLike) -> str:
    """One line for the user about the cells that became missing; "" if there are none."""
    if not record:
        return ""
    each = "; ".join(
        f"'{name}': {counted(u.n_cells, 'cell')}, first {u.level!r} in row {u.row:,}" for name, u in record.items()
    )
    return f"{path}: levels that the table does not have, read as missing: {each}"


def _columns_of(like: Table | Sequence[Column]) -> tuple[tuple[Column, ...], dict]:
    return (like.columns, like.source) if isinstance(like, Table) else (tuple(like), {})


def _checked(passes: _TextFile | _TypedFile, unseen: str, record: dict | None) -> Iterator[Rows]:
    """Make one pass over the file; raise at its end, or at once if a numeric column holds text."""
    wrong, new = Offences(), Offences()
    n_rows = 0
    for rows in passes.read(wrong, new):
        n_rows += len(rows)
        if not wrong and not (new and unseen == "error"):
            yield rows
    if wrong:
        raise wrong.error(passes, "Mend the file, or import the table again with a schema in which they fit.")
    if new and unseen == "error":
        raise new.error(
            passes,
            "These levels are not in the table. "
            'To read them as missing: data.unseen = "missing" for held-out rows, --unseen missing for new ones.',
        )
    if n_rows == 0:
        raise DataError(f"{passes.paths[0]}: has no rows")
    if record is not None:
        first: dict[str, Unseen] = {}
        for offence in new.found.values():
            if offence.column not in first or offence.place.row < first[offence.column].row:
                first[offence.column] = Unseen(offence.text, offence.place.row, new.n_cells[offence.column])
        record.update(first)


def _lacking(columns: Mapping[str, str], names: Collection[str], may_lack: Collection[str]) -> tuple[list[str], bool]:
    """Columns that are not among `names`, and True if the file is usable without them. columns: names in the file by
    name in the table."""
    lacking = [name for name, in_file in columns.items() if in_file not in names]
    return lacking, len(lacking) < max(len(columns), 1) and set(lacking) <= set(may_lack)


def _missing_columns(
    path: Path, columns: Mapping[str, str], names: Sequence[str], may_lack: Collection[str], advice: str
) -> DataError:
    there, of_table = set(names), dict.fromkeys(columns.values())
    needed = [in_file for name, in_file in columns.items() if name not in may_lack and in_file not in there]
    lacking = list(dict.fromkeys(needed)) or [name for name in of_table if name not in there]
    others = [n for n in names if n not in of_table]
    return DataError(
        f"{path}: lacks {len(lacking)} of the table's {counted(len(of_table), 'column')}; {advice}",
        [f"no column '{name}'{near(name, others)}" for name in lacking[:20]],
    )


class _TextFile:
    """A file other than a typed table; it can be read several times."""

    def __init__(self, columns, about: dict, path: Path, may_lack, header: bool | None, missing, options: dict):
        made = about.get("calendar", {})
        columns_of = {c.name: made.get(c.name, c.name) for c in columns}  # a column's name in the file
        names = list(dict.fromkeys(columns_of.values()))
        sources = about.get("names") or names
        if about.get("format") not in (None, "csv"):
            options = {**options, "delimiter": None}
        source = TextSource(path, header=header, expected=names, **options)
        if source.dialect.header is not None and not set(names) <= set(source.names):
            # No names in the file: match by position. A first line taken for a header only by its looks is data if the
            # table's own source had no header.
            known = len(set(names) & set(source.names))
            headless = source.dialect.header is False or (header is None and not known and about.get("header") is False)
            if headless and len(source.names) == len(sources):
                source = TextSource(path, header=False, names=sources, **options)
        self.lacking, enough = _lacking(columns_of, set(source.names), may_lack)
        if self.lacking and (source.dialect.header is False or not enough):
            contents = f"it has {counted(len(source.names), 'column')}: {', '.join(source.names[:8])}" + (
                ", ..." if len(source.names) > 8 else ""
            )
            if source.dialect.header is False:
                contents = (
                    f"it has no header and {counted(len(source.names), 'field')}, the table's source had {len(sources)}"
                )
            raise _missing_columns(path, columns_of, source.names, may_lack, contents)
        source.survival = pairs_there(about, source.names, path, missing)
        self.source = source
        self.paths, self.describe, self.names = source.paths, source.describe, source.names
        markers = [(*about.get("missing", {}).get(n, MISSING), *(m.strip() for m in missing)) for n in columns_of]
        place = {n: i for i, n in enumerate(source.names)}
        written = about.get("forms", {})
        content = source.dialect.typed
        typed = {} if content is None else _forms_of_types(source.names, content.types)
        forms = [
            typed[of] if of in typed else stored(written[n]) if n in written else None for n, of in columns_of.items()
        ]
        self._places = {n: place[of] for n, of in columns_of.items() if of in place}
        if content is not None:  # match the table's levels: labels, or codes
            levels = {self._places[c.name]: set(c.levels) for c in columns if c.name in self._places}
            content.as_labels = {i for i, of in content.labels.items() if levels.get(i, set()) & set(of.values())}
        places = [place.get(of) for of in columns_of.values()]
        self._encoder = Encoder(columns, places, markers, forms, about.get("no"))
        self._forms = {n: form for n, form in zip(columns_of, forms) if form is not None}
        self._numbers = {
            c.name: set(texts) for c, texts in zip(columns, markers) if not c.levels and c.name in self._places
        }
        self._steps = {c.name: c.resolution for c in columns}

    def read(self, wrong: Offences, new: Offences) -> Iterator[Rows]:
        return (rows for rows, _ in self.batches(wrong, new))

    def batches(
        self, wrong: Offences, new: Offences, also: Sequence[int] = (), progress: Progress | None = None
    ) -> Iterator[tuple[Rows, Batch]]:
        """Yield coded rows with their batches of text; these include the columns at the places `also`."""
        with one_thread():
            for batch in self.source.batches([*self._encoder.positions, *also], progress):
                yield self._encoder.encode(batch, wrong, new), batch

    def originals(self) -> Originals:
        dialect, content = self.source.dialect, self.source.dialect.typed
        return Originals(
            self.paths[0],
            self._original_batches,
            self.names,
            self._places,
            self.source.head(),
            dialect.delimiter if content is None else ",",
            dialect.encoding if content is None else "utf-8",
            None if content is None else content.metadata,
            self._forms | self._dates() | ({} if content is not None else self._decimals()),
            {p.time: (self.names.index(p.event), p.value or "1") for p in self.source.survival},
        )

    def _dates(self) -> dict[str, DatesLike]:
        """Forms of columns of dates, each with an example from the first batch that has one."""
        dated = {n: form for n, form in self._forms.items() if isinstance(form, Dates) and n in self._places}
        examples: dict[str, DatesLike] = {}
        with one_thread():
            for batch in self.source.batches({self._places[n] for n in dated}) if dated else ():
                for name in dated.keys() - examples.keys():
                    form = dated[name]
                    if text := form.example(batch.columns[self._places[name]].texts):
                        examples[name] = DatesLike(form.order, form.part, text)
                if len(examples) == len(dated):
                    break
        return examples

    def _decimals(self) -> dict[str, NumbersLike]:
        """Forms of columns of numbers, as in the first batch: they all have decimals, trailing zeros too, or have few,
        to which multiples of the column's step were rounded."""
        forms = {n: self._forms.get(n) for n in self._numbers}
        forms = {n: form for n, form in forms.items() if not isinstance(form, Dates)}
        result: dict[str, NumbersLike] = {}
        with one_thread():
            for batch in itertools.islice(self.source.batches({self._places[n] for n in forms}), 1) if forms else ():
                for name, form in forms.items():
                    texts = batch.columns[self._places[name]].texts
                    texts = pa.array([t for t in texts.to_pylist() if t not in self._numbers[name]], pa.string())
                    least, most = decimals_of(form, texts)
                    step = self._steps[name] * 10.0**most
                    rounded = step > 1.0 and abs(step - round(step)) > 1e-6 * step
                    if least or rounded:
                        form = form or Form()
                        result[name] = NumbersLike(**vars(form), decimals=least, most=most if rounded else None)
        return result

    def _original_batches(self) -> Iterator:
        with one_thread():
            for batch in self.source.batches(as_text=self._encoder.positions):
                arrays = {i: cells.original for i, cells in batch.columns.items()}
                yield arrays, self._encoder.gaps(batch), batch.n_rows


def _forms_of_types(names: Sequence[str], types: Sequence[pa.DataType]) -> dict[str, Dates | None]:
    """Forms, by column, in which typed numbers, dates and times are converted to text, whatever the forms of the
    table's source. Text columns are omitted."""
    numeric = {n: None for n, of in zip(names, types) if pa.types.is_integer(of) or pa.types.is_floating(of)}
    return numeric | {n: of_times(of) for n, of in zip(names, types) if pa.types.is_temporal(of)}


class _TypedFile:
    """A typed table with other levels, and perhaps other kinds, for the same columns."""

    def __init__(self, columns: Sequence[Column], path: Path, may_lack: Collection[str]):
        self._table = Table.open(path)
        self._columns = columns
        self.paths, self.names = (path,), [c.name for c in self._table.columns]
        by_name = {c.name: c for c in self._table.columns}
        self.lacking, enough = _lacking({c.name: c.name for c in columns}, by_name, may_lack)
        if self.lacking and not enough:
            advice = "import it with the schema of the first table (--schema), so that no column is left out"
            raise _missing_columns(path, {c.name: c.name for c in columns}, list(by_name), may_lack, advice)
        self._pairs = [(by_name[c.name], c) for c in columns if c.name in by_name]
        problems = [
            f"column '{new.name}': {new.kind}, expected {old.kind}"
            for new, old in self._pairs
            if new.kind == "real" and old.levels
        ]
        if problems:
            advice = "import it with the schema of the first table (--schema)"
            raise DataError(f"{path}: columns of another kind; {advice}", problems)

    def describe(self, places) -> list[str]:
        return [f"{p.path} row {p.row:,}" for p in places]

    def read(self, wrong: Offences, new: Offences) -> Iterator[Rows]:
        first_row = 1
        for rows in self._table.slices():
            result = Rows.missing(self._columns, len(rows))
            for theirs, ours in self._pairs:
                cells = getattr(rows, theirs.block)[:, theirs.index]
                target = getattr(result, ours.block)
                target[:, ours.index] = self._convert(theirs, ours, cells, first_row, wrong, new)
            yield result
            first_row += len(rows)

    def originals(self) -> Originals:
        places = {n: i for i, n in enumerate(self.names)}
        ours = {c.name: places[c.name] for c in self._columns if c.name in places}
        forms = {c.name: of_times(type_of(c.unit, c.resolution)) for c in self._table.columns if c.unit}
        return Originals(self.paths[0], self._original_batches, self.names, ours, self.names, forms=forms)

    def _original_batches(self) -> Iterator:
        ours = {c.name for c in self._columns}
        for rows in self._table.slices():
            arrays, gaps = {}, {}
            for i, c in enumerate(self._table.columns):
                cells = getattr(rows, c.block)[:, c.index]
                blank = c.is_missing(cells)
                if c.levels:
                    arrays[i] = pa.array(c.levels, pa.string()).take(pa.array(cells.astype(np.int32), mask=blank))
                elif c.unit:
                    arrays[i] = as_times(cells, blank, type_of(c.unit, c.resolution))
                elif c.kind == "survival":
                    arrays[i] = pa.array([spells.text(x) for x in cells], pa.string(), mask=blank)
                    blank = blank | (cells < 0.0)
                else:
                    kind = pa.int64() if c.kind == "count" else pa.float64()
                    arrays[i] = pa.array(cells, mask=blank).cast(kind)
                if c.name in ours:
                    gaps[c.name] = blank
            yield arrays, gaps, len(rows)

    def _convert(self, theirs: Column, ours: Column, cells: np.ndarray, first_row: int, wrong, new) -> np.ndarray:
        if not theirs.levels and not ours.levels:
            values = cells.copy()
            if ours.kind == "count":
                bad = (values < 0) | (values != np.floor(values)) & ~np.isnan(values)
                self._note(wrong, ours, cells, bad, first_row)
                values[bad] = np.nan
            return values
        if theirs.levels:
            texts, codes = pa.array([*theirs.levels, ""]), cells
        else:  # counts in a column of codes
            distinct, codes = np.unique(cells, return_inverse=True)
            texts = pa.array(["" if np.isnan(v) else str(int(v)) for v in distinct])
        missing = np.array([t == "" for t in texts.to_pylist()])
        levels = pa.array(ours.levels, pa.string()) if ours.levels else None
        values, bad = parse(ours.kind, levels, texts, missing)
        if not ours.levels:
            values[bad] = np.nan
        if bad.any():
            offences = new if ours.levels else wrong
            self._note(offences, ours, np.array(texts.to_pylist(), dtype=object)[codes], bad[codes], first_row)
        return values[codes]

    def _note(self, offences: Offences, ours: Column, cells: np.ndarray, bad: np.ndarray, first_row: int) -> None:
        rows = np.flatnonzero(bad)
        seen: dict[str, list[int]] = {}
        for i in rows:
            seen.setdefault(str(cells[i]), []).append(int(i))
        for text, where in seen.items():
            expected = expectation(ours.kind, ours.levels)
            offences.note(ours.name, text, expected, self.paths[0], first_row + where[0], len(where))
