"""Columns of a table being made: the used columns of the source, and those that the calendar derives from dates."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from mpibayes.errors import ConfigError
from mpibayes.io.dates import PARTS, Dates, calendar_columns
from mpibayes.io.forms import Form
from mpibayes.io.infer import Decision
from mpibayes.io.profile import Profile
from mpibayes.io.rows import KINDS, Column, check_levels, place_columns


@dataclass(frozen=True)
class Made:
    """A column to be written, and the column of the source, at `position`, that it is made from."""

    name: str
    position: int
    profile: Profile
    decision: Decision
    form: Form | Dates | None


def made_columns(
    profiles: Sequence[Profile], decisions: Sequence[Decision], calendar: Collection[str]
) -> tuple[list[Made], tuple[Column, ...]]:
    """Columns to write, in order, and as columns of a table. calendar: names of columns of dates whose weekdays, months
    and hours become columns, too.

    Raises ConfigError if such a column has no dates, or if a name occurs twice.
    """
    result = []
    problems = []
    names = {p.name for p in profiles}
    for position, (p, d) in enumerate(zip(profiles, decisions, strict=True)):
        if d.kind in KINDS:
            check_levels(p.name, d.kind, d.levels)
            result.append(Made(p.name, position, p, d, p.form))
        if p.name not in calendar:
            continue
        if p.dates is None or d.kind not in KINDS:
            what = f"left out ({d.reason})" if d.kind not in KINDS else f"{d.kind}, not of dates"
            problems.append(f"column '{p.name}': has no calendar, as it is {what}")
            continue
        for name, form in calendar_columns(p.name, p.dates, d.recording.resolution):
            if name in names:
                problems.append(f"column '{p.name}': its calendar makes a column '{name}', which is there already")
            reason = f"the {form.part} of '{p.name}'"
            result.append(Made(name, position, p, Decision("categorical", PARTS[form.part], reason), form))
    if problems:
        raise ConfigError("the calendar cannot be made", problems)
    return result, tuple(
        map(_column, result, place_columns((m.name, m.decision.kind, m.decision.levels) for m in result))
    )


def _column(made: Made, placed: Column) -> Column:
    r = made.decision.recording
    dates = made.form if isinstance(made.form, Dates) and made.decision.kind == "real" else None
    unit, ordered = dates.unit if dates else "", made.decision.ordered
    ends = made.profile.cuts if made.decision.kind == "survival" else ()
    return replace(placed, resolution=r.resolution, atoms=r.atoms, log=r.log, unit=unit, ordered=ordered, ends=ends)
