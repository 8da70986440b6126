"""The schema file: the user's settings for the columns of a table, in TOML.

    missing = ["", "?", "NA"]          # instead of the usual markers, for all columns
    delimiter = ","                    # how the source is read; all of these may be left out
    header = false
    encoding = "cp1252"
    sheet = "Sheet1"                   # of an Excel workbook
    count = "Freq"                     # the column that says how many equal rows each row stands for
    weight = "pweight"                 # the column that has the survey weight of each row
    survival = ["time,died"]           # how long each row was observed, and whether the event occurred; "time,status=2"
    decimal = ","                      # how numbers and dates are written, where that is not to be found out
    thousands = "."
    dates = "day-first"                # 5/1/2024 is the fifth of January; or "month-first"

    [columns.age]
    kind = "real"                      # categorical, boolean, real, count or ignored
    resolution = 0.5                   # the step in which it was recorded; "none": a true number
    atoms = [0, 99]                    # values of their own, such as 0 among dividends
    scale = "log"                      # on which the others are about normal; or "linear"

    [columns.education]
    kind = "categorical"
    levels = ["Children", "High school", "Bachelor"]     # in this order everywhere: codes, priors, reports
    ordered = true                     # which is a scale, the least first; false: they only name things
    missing = ["", "Not asked"]        # instead of the markers above, for this column

    [columns.by_email]
    kind = "boolean"
    levels = ["not checked", "Email"]
    no = [""]                          # cells that are the first level: blank ones, which are then not missing

    [columns.time]
    cuts = [365, 1826]                 # where the hazard may change, instead of at quantiles of the events

    [columns.arrival]
    calendar = true                    # also as categories: "arrival weekday", "arrival month" and "arrival hour"

Columns that are not named, and kinds and levels that are not given, are inferred.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mpibayes.errors import ConfigError
from mpibayes.io import documents
from mpibayes.io.dates import ORDERS
from mpibayes.io.files import read_regular, reason
from mpibayes.io.rows import KINDS, LEVELLED, MAX_LEVELS, MAX_REAL
from mpibayes.io.spells import PARTS, wrong_ends
from mpibayes.text import counted, near, toml_string, visible

SCHEMA_KINDS = (*KINDS, "ignored")
COLUMN_KEYS = {"kind": str, "levels": list, "missing": list, "resolution": object, "atoms": list, "scale": str}
COLUMN_KEYS |= {"calendar": bool, "no": list, "ordered": bool, "cuts": list}
WRITTEN = {"decimal": (".", ","), "thousands": (",", ".", " ", "'"), "dates": tuple(ORDERS)}
MAX_ATOMS = 254  # with "none of these" and "missing", as many as a byte can distinguish


@dataclass(frozen=True)
class ColumnSchema:
    """Settings of one column; None = to be inferred."""

    kind: str | None = None
    levels: tuple[str, ...] | None = None
    missing: tuple[str, ...] | None = None
    resolution: float | None = None  # 0: none
    atoms: tuple[float, ...] | None = None
    log: bool | None = None
    calendar: bool = False
    no: tuple[str, ...] = ()  # texts that mean the first level
    ordered: bool | None = None
    cuts: tuple[float, ...] | None = None  # of the time axis of a survival column


@dataclass(frozen=True)
class Schema:
    columns: Mapping[str, ColumnSchema] = field(default_factory=dict)
    missing: tuple[str, ...] | None = None
    delimiter: str | None = None
    header: bool | None = None
    encoding: str | None = None
    sheet: str | None = None
    count: str | None = None
    weight: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    dates: str | None = None
    survival: tuple[str, ...] | None = None


def read_schema(path: str | os.PathLike) -> Schema:
    """Read a schema file. Raises ConfigError with all mistakes in it."""
    path = Path(path)
    try:
        text = read_regular(path, pipe=True).decode()
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ConfigError(f"{path}: no such schema file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a readable TOML file: {reason(error)}") from error
    try:
        content = documents.toml(text)
    except ValueError as error:
        line, message = documents.where(error, text)
        place = path if line is None else f"{path}:{line}"
        raise ConfigError(f"{place}: not a readable TOML file: {message}") from None
    problems: list[str] = []
    schema = _schema(content, problems)
    if problems:
        raise ConfigError(f"{path}: the schema has mistakes", problems)
    return schema


def _schema(content: dict, problems: list[str]) -> Schema:
    known = {"columns": dict, "missing": list, "delimiter": str, "header": bool, "encoding": str}
    known |= {"sheet": str, "count": str, "weight": str, "survival": list}
    known |= dict.fromkeys(WRITTEN, str)
    _check_keys("", content, known, problems)
    problems += [
        f"{key}: expected one of {', '.join(map(repr, choices))}, found {content[key]!r}"
        for key, choices in WRITTEN.items()
        if isinstance(content.get(key), str) and content[key] not in choices
    ]
    columns = {}
    entries = content.get("columns", {})
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        where = f"columns.{_key(name)}"
        if not isinstance(entry, dict):
            problems.append(f"{where}: expected a table with kind, levels or missing, found {entry!r}")
            continue
        columns[name] = _column(where, entry, problems)
    return Schema(
        columns,
        _texts("missing", content, problems),
        *(
            content.get(key) if isinstance(content.get(key), known[key]) else None
            for key in ("delimiter", "header", "encoding", "sheet", "count", "weight", *WRITTEN)
        ),
        survival=_texts("survival", content, problems),
    )


def _column(where: str, entry: dict, problems: list[str]) -> ColumnSchema:
    _check_keys(where + ".", entry, COLUMN_KEYS, problems)
    kind = entry.get("kind")
    if isinstance(kind, str) and kind not in SCHEMA_KINDS:
        known = ", ".join(SCHEMA_KINDS)
        problems.append(f"{where}.kind: unknown kind '{kind}'{near(kind, SCHEMA_KINDS)}; one of {known}")
        kind = None
    levels = _texts(f"{where}.levels", entry, problems)
    if levels is not None:
        if kind not in LEVELLED:
            problems.append(f"{where}.levels: only categorical and boolean columns have levels (kind = {kind!r})")
        if (kind == "boolean" and len(levels) != 2) or not 1 <= len(levels) <= MAX_LEVELS:
            expected = "2" if kind == "boolean" else f"1 to {MAX_LEVELS:,}"
            problems.append(f"{where}.levels: {counted(len(levels), 'level')}, expected {expected}")
        repeated = sorted({v for v in levels if levels.count(v) > 1}) if len(set(levels)) < len(levels) else []
        problems.extend(f"{where}.levels: {v!r} is listed twice" for v in repeated[:5])
    missing = _texts(f"{where}.missing", entry, problems)
    no = _texts(f"{where}.no", entry, problems) or ()
    if no and (kind != "boolean" or levels is None):
        problems.append(f'{where}.no: expected beside kind = "boolean" and its levels, the first of which it means')
    recorded = _recording(where, entry, problems)
    ordered = entry.get("ordered") if isinstance(entry.get("ordered"), bool) else None
    if ordered and kind not in (None, "categorical"):
        problems.append(f"{where}.ordered: only categorical columns have an order (kind = {kind!r})")
    kind = kind if isinstance(kind, str) else None
    cuts = entry.get("cuts") if isinstance(entry.get("cuts"), list) else None
    if cuts is not None and not (cuts and all(map(_is_number, cuts)) and not wrong_ends(cuts)):
        problems.append(f"{where}.cuts: expected 1 to {PARTS - 1} numbers above 0, ascending, found {cuts!r}")
        cuts = None
    elif cuts is not None and kind not in (None, "survival"):
        problems.append(f"{where}.cuts: only survival columns have them (kind = {kind!r})")
    cuts = None if cuts is None else tuple(map(float, cuts))
    return ColumnSchema(kind, levels, missing, *recorded, entry.get("calendar") is True, no, ordered, cuts)


def _recording(
    where: str, entry: dict, problems: list[str]
) -> tuple[float | None, tuple[float, ...] | None, bool | None]:
    """Check and return resolution, atoms and log of a column."""
    given = [key for key in ("resolution", "atoms", "scale") if key in entry]
    if given and entry.get("kind") not in (None, "real"):
        problems.append(f"{where}.{given[0]}: only real columns have it (kind = {entry['kind']!r})")
    resolution = entry.get("resolution")
    if resolution is not None and resolution != "none" and not (_is_number(resolution) and 0 < resolution < MAX_REAL):
        problems.append(f'{where}.resolution: expected a number above 0, or "none", found {resolution!r}')
        resolution = None
    atoms = entry.get("atoms") if isinstance(entry.get("atoms"), list) else None
    wrong = [v for v in atoms or () if not _is_number(v) or not abs(v) < MAX_REAL]  # NaN fails the comparison
    problems.extend(f"{where}.atoms: expected numbers, found {v!r}" for v in wrong[:5])
    if len(atoms or ()) > MAX_ATOMS:
        problems.append(f"{where}.atoms: {len(atoms)} values, more than {MAX_ATOMS}")
    scale = entry.get("scale")
    if scale not in (None, "linear", "log"):
        problems.append(f'{where}.scale: expected "linear" or "log", found {scale!r}')
    return (
        0.0 if resolution == "none" else resolution if resolution is None else float(resolution),
        None if atoms is None or wrong else tuple(sorted({float(v) for v in atoms})),
        None if scale is None else scale == "log",
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_keys(prefix: str, table: dict, known: dict[str, type], problems: list[str]) -> None:
    words = {dict: "a table", list: "a list of texts", str: "a text", bool: "true or false"}
    for key, value in table.items():
        if key not in known:
            problems.append(f"{prefix}{key}: unknown key{near(key, known)}")
        elif known[key] is not object and not isinstance(value, known[key]):
            problems.append(f"{prefix}{key}: expected {words[known[key]]}, found {value!r}")


def _texts(where: str, table: dict, problems: list[str]) -> tuple[str, ...] | None:
    """Return a list of texts, stripped of surrounding blanks; numbers are taken as written."""
    values = table.get(where.rsplit(".", 1)[-1])
    if not isinstance(values, list):
        return None
    wrong = [v for v in values if not isinstance(v, str | int) or isinstance(v, bool)]
    problems.extend(f'{where}: expected texts, found {v!r} (write it between quotes: "{v}")' for v in wrong[:5])
    return tuple(str(v).strip() for v in values)


def schema_text(schema: Schema, comments: Mapping[str, str] | None = None) -> str:
    """Write the schema as TOML, with `comments` by column beside its kind."""
    comments = comments or {}
    lines = [
        "# What the columns of the table are. Edit it and give it back: mpibayes import ... --schema THIS_FILE",
        "# kind: categorical, boolean, real, count or ignored. The order of levels is that of codes and priors.",
        "",
    ]
    for key in ("delimiter", "header", "encoding", "sheet", "count", "weight", *WRITTEN, "survival", "missing"):
        value = getattr(schema, key)
        if value is not None:
            lines.append(f"{key} = {_value(value)}")
    for name, column in schema.columns.items():
        lines += ["", f"[columns.{_key(name)}]"]
        comment = comments.get(name)
        lines.append(f"kind = {_value(column.kind)}" + (f"  # {visible(comment)}" if comment else ""))
        if column.levels:
            lines.append(f"levels = {_value(column.levels)}")
        if column.ordered is not None:
            lines.append(f"ordered = {_value(column.ordered)}")
        if column.missing is not None:
            lines.append(f"missing = {_value(column.missing)}")
        if column.no:
            lines.append(f"no = {_value(column.no)}")
        if column.resolution is not None:
            lines.append(f"resolution = {column.resolution!r}" if column.resolution else 'resolution = "none"')
        if column.atoms is not None:
            lines.append(f"atoms = [{', '.join(repr(atom) for atom in column.atoms)}]")
        if column.log is not None:
            lines.append(f'scale = "{"log" if column.log else "linear"}"')
        if column.cuts is not None:
            lines.append(f"cuts = [{', '.join(map(repr, column.cuts))}]")
        if column.calendar:
            lines.append("calendar = true")
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else _value(name)


def _value(value: str | bool | Sequence[str]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return toml_string(value)
    items = [_value(v) for v in value]
    line = "[" + ", ".join(items) + "]"
    return line if len(line) <= 100 else "[\n" + "".join(f"    {item},\n" for item in items) + "]"
