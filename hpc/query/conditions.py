"""Conditions as people write them, read like the table: `age=40`, `age=40..50`, `education=Masters|Doctorate`.

A value is read in the form of the table's source (decimal commas, currencies, dates). A range includes both ends,
either of which may be omitted. A level that contains `|` or `..` takes precedence over their meaning.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.data import events
from mpibayes.hpc.data.events import Events
from mpibayes.io import spells
from mpibayes.io.clock import as_text
from mpibayes.io.rows import Column
from mpibayes.io.table import Table

NAMED = 8  # columns or levels in a message
NOT_REACHED = "not reached"  # time to an event beyond all observed times


@dataclass(frozen=True, eq=False)
class Said:
    """Condition given from Python: a column and a value (see `Conditions.of_value`)."""

    name: str
    value: Any


Item = str | Said  # a condition, or names of columns


class Conditions:
    """Reads conditions on the columns of a table. columns: as the model has them. apart: columns that cannot be asked
    about, with the reason."""

    def __init__(
        self, like: Table, columns: Sequence[Column] | None = None, apart: Mapping[str, str] | None = None
    ):  # fmt: skip
        self._like, self._apart = like, apart or {}
        self._columns = {c.name: c for c in (like.columns if columns is None else columns)}

    def column(self, name: str) -> Column:
        """Return a column by its name. Raises ConfigError if there is none, or if it cannot be asked about."""
        if name not in self._columns:
            if name in self._apart:
                raise ConfigError(self._apart[name])
            raise ConfigError(f"no column '{name}'{_near(name, self._columns)}")
        return self._columns[name]

    def names(self, items: Sequence[str]) -> list[str]:
        """Names of columns; an item may hold several, separated by commas."""
        names: list[str] = []
        for item in items:
            parts = [item] if item in self._columns else [part.strip() for part in item.split(",")]
            names += [self.column(part).name for part in parts]
        return list(dict.fromkeys(names))

    def read(self, items: Sequence[Item], option: str = "--given") -> dict[str, Events]:
        """Read conditions, each COLUMN=VALUE; return them by column."""
        conditions: dict[str, Events] = {}
        for item in items:
            name, value = (item.name, item.value) if isinstance(item, Said) else self.split(item, option)
            if name in conditions:
                raise ConfigError(f"{option} '{item}': column '{name}' has a condition already")
            conditions[name] = self.of_value(self.column(name), value)
        return conditions

    def is_condition(self, item: Item) -> bool:
        """True if an item is a condition, False if it names columns."""
        return isinstance(item, Said) or ("=" in item and item not in self._columns)

    def split(self, item: str, option: str) -> tuple[str, str]:
        """Split a condition into column, whose name may contain "=", and value."""
        cuts = [i for i, c in enumerate(item) if c == "="]
        if not cuts:
            raise ConfigError(f"{option} '{item}': expected COLUMN=VALUE, as in --given 'age=40'")
        known = [i for i in cuts if item[:i].strip() in self._columns]
        cut = known[-1] if known else cuts[0]
        return item[:cut].strip(), item[cut + 1 :].strip()

    def event(self, column: Column, text: str) -> Events:
        """Event of a column described by a text. Raises ConfigError if no cell can have it."""
        if column.levels:
            return self._of_levels(column, text)
        first, dots, last = text.partition("..")
        if not dots:
            return events.of_values(column, np.array([self._number(column, text, text)]))
        bounds = [
            self._number(column, part.strip(), text) if part.strip() else otherwise
            for part, otherwise in ((first, -np.inf), (last, np.inf))
        ]
        try:
            return events.of_range(column, *bounds)
        except ValueError as error:
            raise ConfigError(f"'{column.name}={text}': {error}") from None

    def of_value(self, column: Column, value: Any) -> Events:
        """Event of a column described by a Python value: a text as on the command line; a number, a bool, a date; a
        pair (low, high) of these, None for an open end; a list or set of levels. Raises ConfigError."""
        if isinstance(value, str):
            return self.event(column, value)
        if column.levels and isinstance(value, list | set | frozenset | tuple):
            place = {level: i for i, level in enumerate(column.levels)}
            return events.of_levels(column, [place[self._level(column, part)] for part in value])
        if column.levels:
            return self._of_levels(column, self._level(column, value))
        if isinstance(value, tuple) and len(value) == 2:
            low, high = (
                otherwise if end is None else self._plain_number(column, end)
                for end, otherwise in zip(value, (-np.inf, np.inf))
            )
            try:
                return events.of_range(column, low, high)
            except ValueError as error:
                raise ConfigError(f"'{column.name}': {error}") from None
        return events.of_values(column, np.array([self._plain_number(column, value)]))

    def _level(self, column: Column, value: Any) -> str:
        """Level that a Python value denotes."""
        spellings = [str(value)]
        if isinstance(value, bool | np.bool_):
            synonyms = ("true", "yes", "t", "y", "1") if value else ("false", "no", "f", "n", "0")
            spellings += [level for level in column.levels if level.lower() in synonyms]
            spellings += [column.levels[int(value)]] if column.kind == "boolean" else []
        elif isinstance(value, float | np.floating) and float(value).is_integer():
            spellings.append(str(int(value)))
        for text in spellings:
            if text in column.levels:
                return text
        near = _near(str(value), column.levels)
        raise ConfigError(f"'{column.name}={value}': column '{column.name}' has no level '{value}'{near}")

    def _plain_number(self, column: Column, value: Any) -> float:
        """Convert a Python number, or a date, to the table's units."""
        if isinstance(value, str):
            return self._number(column, value, value)
        if isinstance(value, int | float | np.number) and not isinstance(value, bool):
            number = float(value)
            whole = number.is_integer() and number >= 0.0
            fits = whole if column.kind == "count" else number >= 0.0 or column.kind != "survival"
            if np.isfinite(number) and fits:
                return number
        elif column.unit:
            text = value.isoformat(sep=" ") if hasattr(value, "hour") and hasattr(value, "year") else str(value)
            return self._number(column, text.replace("T", " "), text)
        expected = "a date" if column.unit else "a whole number, 0 or more" if column.kind == "count" else "a number"
        raise ConfigError(
            f"'{column.name}': {value!r} is not {expected}, a pair (low, high) of such, or a text of the command line"
        )

    def _of_levels(self, column: Column, text: str) -> Events:
        place = {level: i for i, level in enumerate(column.levels)}
        parts = [text] if text in place else [part.strip() for part in text.split("|")]
        for part in parts:
            if part not in place:
                raise ConfigError(
                    f"'{column.name}={text}': column '{column.name}' has no level '{part}'{_near(part, place)}"
                )
        if len(parts) == 1:
            return events.of_values(column, np.array([place[parts[0]]]))
        return events.of_levels(column, [place[part] for part in parts])

    def _number(self, column: Column, text: str, whole: str) -> float:
        import pyarrow as pa

        from mpibayes.io.dates import Dates, stored
        from mpibayes.io.encode import expectation, parse
        from mpibayes.io.forms import Form

        entry = self._like.source.get("forms", {}).get(column.name)
        forms: list[Form | Dates | None] = [stored(entry)] if entry else [None]
        if column.unit:
            forms += [Dates("ymd"), Dates("clock"), None]
        for form in [*forms, *([None] if entry else [])]:
            values, bad = parse(column.kind, None, pa.array([text]), np.zeros(1, bool), form)
            if not bad[0] and not np.isnan(values[0]):
                return float(values[0])
        expected = "a date" if column.unit else expectation(column.kind, ())
        raise ConfigError(f"'{column.name}={whole}': '{text}' is not {expected}, as column '{column.name}' has")


def _near(name: str, there: Collection[str]) -> str:
    """Suggest the name that a misspelt one may stand for."""
    near = difflib.get_close_matches(name, list(there), 1, 0.5)
    if near:
        return f"; did you mean '{near[0]}'?"
    examples = ", ".join(list(there)[:NAMED]) + (", ..." if len(there) > NAMED else "")
    return f"; there are {examples}"


def written(column: Column, value: float) -> str:
    """Format a recorded value for people: a level, a date, a number."""
    if column.levels:
        return column.levels[int(value)]
    if column.unit:
        return as_text(float(value), column.unit)
    if column.kind == "survival":
        return spells.text(float(value)) if np.isfinite(value) else NOT_REACHED
    return f"{float(value) + 0.0:.10g}"  # no -0


def rounded(column: Column, value: float) -> str:
    """Format a value that need not occur in the data: to five digits if the column has no step."""
    plain = column.kind in ("real", "survival") and not column.resolution and not column.unit and np.isfinite(value)
    return f"{float(value):.5g}" if plain else written(column, value)


def in_words(event: Events, i: int = 0) -> str:
    """Format an event as a condition."""
    column = event.column
    if event.sets is not None and column.levels:
        return "|".join(column.levels[int(v)] for v in np.flatnonzero(event.sets[i]))
    if event.codes[i] >= 0:
        return column.levels[event.codes[i]] if column.levels else written(column, column.atoms[event.codes[i]])
    half = 0.5 * column.resolution
    low, high = event.low[i] + half, event.high[i] - half
    if column.log and event.low[i] <= 0.0:
        low = -np.inf
    if np.isfinite(low) and abs(high - low) <= 1e-9 * max(abs(low), 1.0):
        return written(column, low)
    return "..".join(rounded(column, x) if np.isfinite(x) else "" for x in (low, high))
