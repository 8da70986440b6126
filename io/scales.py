"""Ordered categorical columns of an import, and their levels in order.

The user names them or rules them out, the file declares them (ordered categories of Arrow and pandas, ordinal variables
of SPSS), or the levels imply it (`order`, and fractions). The order is that of the schema's levels or of the file's;
otherwise that of the numbers or bands in the levels. Codes follow this order, so that every list of levels keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mpibayes.io.infer import Decision
from mpibayes.io.measured import RECURRING
from mpibayes.io.order import FEWEST, MOST_INTEGERS, in_order
from mpibayes.io.profile import Profile
from mpibayes.io.rows import LEVELLED
from mpibayes.text import option, toml_string

NONE = "none"  # stands for no column except those named
NOTE = "levels taken as ordered, from low to high; if they are only names: --unordered COLUMN, or --ordered none"


def columns_in(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """Columns named by an option: one, or several separated by commas. names: columns of the file.

    >>> columns_in(["q1", "q2, q3", "last, first"], ["q1", "last, first"])
    ['q1', 'q2', 'q3', 'last, first']
    """
    known = set(names)
    parts = ([word] if word in known else [part.strip() for part in word.split(",")] for word in words)
    return [name for of in parts for name in of if name]


def asked(
    ordered: Sequence[str], unordered: Sequence[str], schema: Mapping[str, bool], names: Sequence[str]
) -> dict[str, bool]:
    """True for columns that the user declares ordered, False for unordered ones, by name. Options override the
    schema."""
    others = {} if NONE not in ordered or NONE in names else dict.fromkeys(names, False)
    return others | schema | dict.fromkeys(unordered, False) | dict.fromkeys(ordered, True)


def with_order(
    profiles: Sequence[Profile], decisions: Sequence[Decision], given: Mapping[str, bool]
) -> Iterator[Decision]:
    """Yield the decisions, with the levels of ordered columns sorted; with an `error` if a column named by the user has
    no order. given: see `asked`."""
    for p, d in zip(profiles, decisions, strict=True):
        ordered = given.get(p.name)
        if d.kind == "ignored" or d.error or ordered is False:
            yield replace(d, ordered=False) if d.kind == "categorical" else d
        elif d.kind not in LEVELLED and ordered:
            instead = f"or make it categories: {option('kind', f'{p.name}=categorical')}"
            yield replace(d, error=f"column '{p.name}': is {d.kind}, and only categories are put in order; {instead}")
        elif d.kind != "categorical" or len(d.levels) < FEWEST:
            yield d
        else:
            yield _named(p, d) if ordered else _found(p, d)


def _named(p: Profile, d: Decision) -> Decision:
    """Decide on a column that the user declares ordered."""
    order = tuple(range(len(d.levels))) if p.levels is not None else _of_file(p, d) or in_order("", d.levels)
    if order:
        return replace(d, ordered=True, levels=tuple(d.levels[i] for i in order), reason=f"{d.reason}, in order")
    few = ", ".join(repr(level) for level in d.levels[:3])
    where = f"[columns.{toml_string(p.name)}] levels = [...], ordered = true"
    what = f"its levels ({few}, ...) have no order of their own; list them from low to high in the schema: {where}"
    return replace(d, error=f"column '{p.name}': {what}")


def _found(p: Profile, d: Decision) -> Decision:
    """Decide on a column without a user's setting."""
    order = _of_file(p, d) if p.ordered and p.levels is None else ()
    if order:
        levels = tuple(d.levels[i] for i in order)
        return replace(d, ordered=True, levels=levels, reason=f"{d.reason}, in the order of the file")
    order = in_order(p.name, d.levels) or _of_fractions(p, d)
    given = p.levels is not None or bool(p.order)
    if not order or (given and order != tuple(range(len(order)))):
        return d
    levels = tuple(d.levels[i] for i in order)
    return replace(d, ordered=True, levels=levels, reason=f"{d.reason}, in order", note="" if p.levels else NOTE)


def _of_fractions(p: Profile, d: Decision) -> tuple[int, ...]:
    """Order of recurring numbers that are not all integers, such as half stars or tax rates, and so are not codes; of
    those that the user makes categories only if they are few."""
    fractions = p.n_numbers == p.n_observed and not p.all_integer and not p.dates
    few = len(d.levels) <= (MOST_INTEGERS if p.kind else RECURRING)
    return tuple(range(len(d.levels))) if fractions and few else ()


def _of_file(p: Profile, d: Decision) -> tuple[int, ...]:
    """Order of the levels in the file, or as numbers, as places; () if neither applies."""
    place = {level: i for i, level in enumerate(p.order)}
    if all(level in place for level in d.levels):
        return tuple(sorted(range(len(d.levels)), key=lambda i: place[d.levels[i]]))
    numbers = p.n_numbers == p.n_observed and not p.leading_zero
    return tuple(range(len(d.levels))) if numbers else ()
