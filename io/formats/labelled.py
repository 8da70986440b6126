"""SPSS, Stata and SAS, through ReadStat: files whose codes may have labels. Some rows are in memory at a time.

Cells that the file declares missing are missing. A column in which every present cell has a label is read as labels;
any other keeps its codes. Readers yield codes, to which `Typed.labels` belong.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyreadstat

from mpibayes.errors import DataError
from mpibayes.io.formats.typed import Asked, Typed, rows_at_once, understanding
from mpibayes.io.hints import MEANS_MISSING
from mpibayes.io.packing import Seekable

TITLES = {"sav": "SPSS", "por": "SPSS portable", "dta": "Stata", "sas7bdat": "SAS", "xport": "SAS transport"}
READ = {name: getattr(pyreadstat, f"read_{name}") for name in TITLES}
ERRORS = (pyreadstat.ReadstatError, pyreadstat.PyreadstatError, OverflowError)


def look(path: Path, variant: str, asked: Asked) -> Typed:
    content = Seekable(path)
    options = {"output_format": "dict", **({"encoding": asked.encoding} if asked.encoding else {})}

    def parts(selected: Sequence[str]) -> Iterator[Mapping[str, list]]:
        size, done = rows_at_once(len(selected)), 0
        with understanding(path, *ERRORS), content.open() as file:
            while True:
                file.seek(0)
                part, _ = READ[variant](file, row_offset=done, row_limit=size, usecols=list(selected), **options)
                n = len(next(iter(part.values()), ()))
                if n:
                    yield part
                if n < size:
                    return
                done += n

    problem = f"cannot be read as {TITLES[variant]}"
    with understanding(path, *ERRORS, problem=problem), content.open() as file:
        _, about = READ[variant](file, metadataonly=True, **options)
    names = list(about.column_names)
    if not names:
        raise DataError(f"{path}: no columns")
    codes = {name: _labels(labels) for name, labels in about.variable_value_labels.items() if name in names and labels}
    kinds, without, seen = _first_pass(parts(names), names, codes)
    labels = {i: _as_texts(codes[name]) for i, name in enumerate(names) if name in codes}
    single = {name for name, stored in about.readstat_variable_types.items() if stored == "float"}
    types = [_type(kinds[name], name in single) for name in names]

    def read(positions: Sequence[int]) -> Iterator[pa.RecordBatch]:
        selected = [names[i] for i in positions]
        for part in parts(selected):
            columns = [pa.array(_plain(part[names[i]]), types[i]) for i in positions]
            yield pa.record_batch(columns, selected)

    used = {i for i in labels if not without[names[i]] and seen[names[i]]}
    measures = about.variable_measure or {}
    orders = {i: [*labels.get(i, {}).values()] for i, name in enumerate(names) if measures.get(name) == "ordinal"}
    n_rows = about.number_rows or 0
    return Typed(TITLES[variant], names, types, read, {}, labels, used, orders, _notes(codes, seen), n_rows=n_rows)


def _first_pass(
    parts: Iterator[Mapping[str, list]], names: Sequence[str], codes: Mapping[str, Mapping[Any, str]]
) -> tuple[dict[str, set[type]], dict[str, bool], dict[str, set]]:
    """Return by column the types of its cells; whether some cell of a labelled one has no label; and its codes in
    use."""
    kinds: dict[str, set[type]] = {name: set() for name in names}
    without, seen = dict.fromkeys(codes, False), {name: set() for name in codes}
    for part in parts:
        for name, cells in part.items():
            kinds[name] |= set(map(type, cells))
            if name in codes:
                there = {cell for cell in cells if not _blank(cell)}
                without[name] |= not there <= codes[name].keys()
                seen[name] |= there & codes[name].keys()
    return kinds, without, seen


def _labels(labels: Mapping[Any, str]) -> dict[Any, str]:
    """Labels by code, in order of code; a label of several codes gets its code appended."""
    items = sorted(((code, str(text).strip()) for code, text in labels.items()), key=lambda item: _order(item[0]))
    texts = [text for _, text in items]
    return {c: text if texts.count(text) == 1 else f"{text} ({_code(c)})" for c, text in items if text}


def _order(code: Any) -> tuple[int, Any]:
    return (0, code) if isinstance(code, int | float) else (1, str(code))


def _as_texts(labels: Mapping[Any, str]) -> dict[str, str]:
    return {_code(code): text for code, text in labels.items()}


def _code(code: Any) -> str:
    return str(int(code)) if isinstance(code, float) and code.is_integer() else str(code).strip()


def _blank(cell: Any) -> bool:
    return cell is None or cell == "" or cell != cell


def _type(kinds: set[type], single: bool) -> pa.DataType:
    """Type for cells of these types. single: stored with 24 bits, Stata's default: 5.1 arrives as 5.099999904632568,
    which float32 prints as 5.1."""
    kinds = kinds - {type(None)}
    if datetime.datetime in kinds:
        return pa.timestamp("ms")
    if datetime.date in kinds:
        return pa.date32()
    if datetime.time in kinds:
        return pa.time64("us")
    if str in kinds:
        return pa.string()
    return pa.float32() if single else pa.float64()


def _plain(cells: Sequence[Any]) -> list[Any]:
    return [None if cell is None or cell != cell else cell for cell in cells]


def _notes(codes: Mapping[str, Mapping[Any, str]], seen: Mapping[str, set]) -> list[str]:
    """Ask about codes whose labels suggest that they mean missing."""
    where: dict[tuple[str, str], list[str]] = {}
    for name, labels in codes.items():
        for code, text in labels.items():
            if code in seen[name] and MEANS_MISSING.search(text):
                where.setdefault((_code(code), text), []).append(f"'{name}'")
    return [
        f"column{'s' * (len(names) > 1)} {', '.join(names[:5])}{', ...' * (len(names) > 5)}: the code {code} has the "
        f"label {text!r}; if that means missing: --missing {code}"
        for (code, text), names in where.items()
    ]
