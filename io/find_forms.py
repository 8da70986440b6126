"""Forms of the numbers and dates in each column, from its first cells; if ambiguous, from the file's other columns, or
from later cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mpibayes.errors import ConfigError
from mpibayes.io.dates import Dates, dates_of, is_date
from mpibayes.io.forms import Form, form_of, settled
from mpibayes.io.profile import NO_VALUE, Profile
from mpibayes.io.source import TextSource


@dataclass(frozen=True)
class Written:
    """Forms of a file's numbers and dates as given by the user; None: to be inferred."""

    decimal: str | None = None
    thousands: str | None = None
    dates: str | None = None


def find_forms(source: TextSource, profiles: Sequence[Profile], given: Written) -> list[str]:
    """Set the form of each profile's cells, or its open question; return notes on forms that were guessed."""
    batches = source.batches(i for i, profile in enumerate(profiles) if profile.kind in (None, "real", "count"))
    first = next(batches, None)
    batches.close()
    forms: dict[str, tuple[Form | None, Form | None]] = {}
    dates: dict[int, tuple[Dates, ...]] = {}
    for position, profile in enumerate(profiles) if first is not None else ():
        if profile.kind in (None, "real", "count") and position in first.columns:
            texts = first.columns[position].texts
            no_value = pc.is_in(pc.utf8_lower(texts), value_set=pa.array(NO_VALUE))
            there = pc.filter(texts, pc.and_not(pa.array(~profile.missing_among(texts)), no_value))
            forms[profile.name] = form_of(there.to_pylist(), given.decimal, given.thousands)
            if forms[profile.name][0] is None and profile.kind != "count":
                dates[position] = dates_of(there, given.dates)
    _settle_dates(source, profiles, dates)
    return _settle_numbers(source, profiles, forms)


def _settle_numbers(source: TextSource, profiles: Sequence[Profile], result) -> list[str]:
    clear = [form for form, other in result.values() if form is not None and other is None]
    guesses = []
    for profile in profiles:
        form, other = result.get(profile.name, (None, None))
        if form is not None:
            profile.form, guessed = settled(form, other, clear, source.dialect.delimiter)
            if guessed:
                option = "--decimal ," if profile.form.decimal == "." else "--decimal . --thousands ,"
                guesses.append(
                    f"column '{profile.name}': taken as {profile.form.in_words()}; if that is wrong: {option}"
                )
    return guesses


def _settle_dates(source: TextSource, profiles: Sequence[Profile], result: dict[int, tuple[Dates, ...]]) -> None:
    """Choose between day and month first: by a later cell of the column, otherwise by all other columns."""
    doubtful = {position: list(forms) for position, forms in result.items() if len(forms) > 1}
    example: dict[int, str] = {}
    for batch in source.batches(doubtful) if doubtful else ():
        for position, forms in doubtful.items():
            texts = batch.columns[position].texts
            texts = pc.filter(texts, pa.array(~profiles[position].missing_among(texts)))
            if len(forms) > 1 and len(texts):
                example.setdefault(position, texts[0].as_py())
                good = [int(is_date(form, texts).sum()) for form in forms]
                forms[:] = [form for form, n in zip(forms, good, strict=True) if n == max(good)]
        if all(len(forms) == 1 for forms in doubtful.values()):
            break
    settled_ones = [forms[0] for forms in (result | doubtful).values() if len(forms) == 1]
    orders = {form.order for form in settled_ones} & {"dmy", "mdy"}
    for position, forms in (result | doubtful).items():
        profile = profiles[position]
        if len(forms) > 1 and len(orders) == 1:
            forms = [form for form in forms if form.order in orders]
        if len(forms) == 1:
            profile.form = forms[0]
        elif forms:
            profile.question = (
                f"column '{profile.name}': is {example[position]!r} written with the day or the month first? "
                "Say --dates day-first, or --dates month-first"
            )
    asked = [profile.question for profile in profiles if profile.question and profile.kind == "real"]
    if asked:
        raise ConfigError("dates that can be read in two ways", asked)


def as_found(profiles: Sequence[Profile], given: Written) -> Written:
    """Complete the given forms by those that all columns share after the first pass, for a schema."""
    forms = [p.form for p in profiles if isinstance(p.form, Form)]
    plain = any(p.form is None and p.n_numbers and not p.all_integer for p in profiles)
    decimals, groups = {form.decimal for form in forms}, {form.thousands for form in forms} - {""}
    orders = {p.form.order for p in profiles if isinstance(p.form, Dates)} & {"dmy", "mdy"}
    clear = len(decimals) == 1 and not (plain and "," in decimals)
    decimal = given.decimal or (decimals.pop() if clear else None)
    thousands = given.thousands or (groups.pop() if clear and len(groups) == 1 else None)
    names = {"dmy": "day-first", "mdy": "month-first"}
    return Written(decimal, thousands, given.dates or (names[orders.pop()] if len(orders) == 1 else None))
