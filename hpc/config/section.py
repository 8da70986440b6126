"""Sections of the configuration: declaration of their keys, and the types that sections share.

A key has a type, a default, a line of explanation, which `config.resolved.toml` shows, and a description of the
expected value, which a message about a wrong value quotes. Unknown keys are refused; `load.py` names the near misses.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter
from pydantic.fields import FieldInfo


class Section(BaseModel):
    """A table of the file. A family extends a section shared with others by inheritance."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)

    of_the_model: ClassVar[bool] = False  # True if its keys define the model: chains of one model agree in them
    retired: ClassVar[Mapping[str, str]] = {}  # keys of earlier versions that are accepted and ignored, with the reason

    @property
    def taken(self) -> Collection[str]:
        """Columns of the table that the section uses, so that they are not columns of the model."""
        return ()

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Defaults, by key, of the entries of the section's values that follow from other keys."""
        return {}


def key(
    default: Any,
    about: str,
    expected: str,
    *,
    path: bool = False,
    decided_once: bool = False,
    may_change: bool = False,
    formerly: Any = None,
    of_the_model: bool = False,
    **bounds: Any,
) -> Any:
    """Declare a key of a section. default: `...` if it is required. bounds: of a number, as in pydantic's `Field`.

    path: the text is a path, relative to the configuration file. decided_once: the value that "auto" took at the first
    start holds when the run is continued. may_change: the key sets how long or how often, not what is sampled, and may
    differ when the run is continued. formerly: the value for runs of versions without the key; by default the default.
    of_the_model: see `Section`.
    """
    marks = {
        "expected": expected,
        "path": path,
        "decided_once": decided_once,
        "may_change": may_change,
        "formerly": formerly,
        "of_the_model": of_the_model,
    }
    return Field(default, description=about, json_schema_extra=marks, **bounds)


def marked(section: type[Section], mark: str) -> list[str]:
    """List the keys of a section declared with this mark."""
    return [name for name, info in section.model_fields.items() if info.json_schema_extra[mark]]


def parsed(section: type[Section], name: str, value: Any) -> Any:
    """Convert the value of a key from TOML to the section's form. Raises pydantic's ValidationError."""
    info = section.model_fields[name]
    of = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
    return TypeAdapter(of).validate_python(value)


def section_in(info: FieldInfo) -> type[Section] | None:
    """Section that a key holds, as in `prior = {kappa = 1}`; None for a value, and for a choice of several sections."""
    optional = get_origin(info.annotation) in (types.UnionType, Union)
    kinds = [kind for kind in (get_args(info.annotation) if optional else (info.annotation,)) if kind is not type(None)]
    one = kinds[0] if len(kinds) == 1 else None
    return one if isinstance(one, type) and issubclass(one, Section) else None


def expected(section: type[Section], *within: str) -> str:
    """Expected value of a key, in words. within: the key, then keys of nested sections."""
    info = section.model_fields[within[0]]
    return expected(section_in(info), *within[1:]) if within[1:] else info.json_schema_extra["expected"]


# --- types that sections share ----------------------------------------------------------------------------------------

LONGEST_S = 3650 * 86400.0
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0}
LENGTH_OF_TIME = 'a length of time: "3h50m", "90m", 3600 (seconds), "1-02:00:00"; up to 3650 days, or "none"'


def parse_duration(text: str | int | float) -> float:
    """Seconds of a duration as people and SLURM write it. Raises ValueError if it is not a duration, or not positive.

    >>> [parse_duration(t) for t in ("3h50m", "90m", "3600", "1-02:00:00", "02:00:00", "90:00", "1.5h")]
    [13800.0, 5400.0, 3600.0, 93600.0, 7200.0, 5400.0, 5400.0]
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        seconds = float(text)
    else:
        seconds = _seconds(str(text).strip().lower())
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(
            f"{text!r} is not a positive length of time such as 3h50m, 90m, 3600 (seconds), 02:00:00 or 1-02:00:00"
        )
    if seconds > LONGEST_S:
        raise ValueError(f"a length of time of more than {LONGEST_S / 86400:.0f} days")
    return seconds


def _seconds(text: str) -> float:
    """Seconds, or NaN if the text is not a duration."""
    if re.fullmatch(r"\d+(\.\d*)?", text):
        return float(text)
    if re.fullmatch(r"(\d+(\.\d*)?\s*(d|h|min|m|s)\s*)+", text):
        parts = re.findall(r"(\d+(?:\.\d*)?)\s*(d|h|min|m|s)", text)
        if len({unit for _, unit in parts}) == len(parts):
            return sum(float(number) * _UNITS[unit] for number, unit in parts)
    # SLURM: minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if match:
        days, *rest = match.groups()
        numbers = [int(n) for n in rest if n is not None]
        if days is not None:
            hours, minutes, seconds = [*numbers, 0, 0][:3]
            return ((int(days) * 24 + hours) * 60 + minutes) * 60.0 + seconds
        if len(numbers) == 3:
            return (numbers[0] * 60 + numbers[1]) * 60.0 + numbers[2]
        return numbers[0] * 60.0 + numbers[1]
    return math.nan


def tuples(value: Any) -> Any:
    """Convert lists of TOML to tuples, which are immutable."""
    if isinstance(value, dict):
        return {name: tuples(item) for name, item in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def none(value: Any) -> Any:
    """Convert the word `none` to None: TOML has no null."""
    return None if value == "none" else value


def duration(value: Any) -> Any:
    value = none(value)
    return value if value is None else parse_duration(value)


def _rising(points: tuple[float, ...]) -> tuple[float, ...]:
    if len(set(points)) < len(points):
        raise ValueError("a point is there twice")
    return tuple(sorted(points))


def grid_of(number: Any) -> Any:
    """Type of a grid: distinct numbers of a type, with equal weights, kept in ascending order."""
    return Annotated[tuple[number, ...], Field(min_length=1, max_length=MOST_POINTS), AfterValidator(_rising)]


MOST_POINTS = 100
# Bounds of numbers. No sensible run goes beyond them; it would fail later, for lack of memory or by overflow.
MOST_CYCLES = 10**9
MOST_ROWS = 2**31 - 1
SMALLEST, LARGEST = 1e-100, 1e100  # of positive numbers: products of three and their reciprocals are doubles


def whole(least: int, most: int) -> str:
    """Describe an integer range in words.

    >>> whole(1, 1000) 'a whole number from 1 to 1,000'
    """
    return f"a whole number from {least} to {most:,}"


Cycles = Annotated[int, Field(ge=1, le=MOST_CYCLES)]
CyclesOrNone = Annotated[int, Field(ge=0, le=MOST_CYCLES)]  # 0: never, or none
CYCLES, CYCLES_OR_NONE = whole(1, MOST_CYCLES), whole(0, MOST_CYCLES)
RowCount = Annotated[int, Field(ge=1, le=MOST_ROWS)]
ROW_COUNT = whole(1, MOST_ROWS)
Positive = Annotated[float, Field(ge=SMALLEST, le=LARGEST)]
POSITIVE = "a number above 0 (1e-100 to 1e100)"
Name = Annotated[str, Field(min_length=1)]
Duration = Annotated[Annotated[float, Field(gt=0, le=LONGEST_S)] | None, BeforeValidator(duration)]
