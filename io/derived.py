"""Columns that seem to be made of others: a note asks whether they were.

A column that coarsens another one (the half of the year beside the month, the year beside the date) or repeats it in a
part of the rows (an interaction, `urban` times `education`) tells nothing new, but is no copy: it stays, since it may
as well be a fact, as that a mammal gives milk. Of what was made of others views and groups show how it was made.
Columns are compared on a sample of rows; a match counts if independent columns would hardly ever show it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import lgamma

import numpy as np

from mpibayes.io.redundant import BY_CHANCE, FEW_VALUES, FEWEST_ROWS, RARE, Redundancy, cells_of, functions
from mpibayes.io.rows import Column, Rows
from mpibayes.io.summary import NAMED, named
from mpibayes.text import option

MOST_COLUMNS = 200  # compared, each with each
EXPLAINED = 3  # columns of which the note says how they follow


def notes(columns: Sequence[Column], redundancy: Redundancy) -> Iterator[str]:
    """Yield a note if there are such columns. columns: of the table; redundancy: once all rows were added to it."""
    sample = redundancy.sample
    if len(sample) < FEWEST_ROWS or len(columns) > MOST_COLUMNS:
        return
    known = [set(group) for group in redundancy.groups]
    known += [{category, *dummies} for category, dummies in redundancy.dummies]
    found = _in_a_part(columns, sample, known)
    found = {**_coarser(columns, sample, known, [*found]), **found}
    found = {**_parts(columns, sample), **found}
    names = [c.name for c in columns if c.name in found]
    drop = option("drop", ",".join(names[:NAMED])) + (", ..." if len(names) > NAMED else "")
    if len(names) == 1:
        yield (
            f"column '{names[0]}' {found[names[0]]} in all rows looked at; if it was made so, {drop}: views and groups "
            "may show little else"
        )
    elif names:
        how = "; ".join(f"'{name}' {found[name]}" for name in names[:EXPLAINED])
        how += "; ..." * (len(names) > EXPLAINED)
        yield (
            f"columns {named(names)} follow from others in all rows looked at ({how}); if they were made so, {drop}: "
            "views and groups may show little else"
        )


def _coarser(columns: Sequence[Column], sample: Rows, known: Sequence[set[str]], made: Sequence[str]) -> dict[str, str]:
    """Columns that are known from another one with more values, of several from that with the fewest. made: columns
    that were made of others, from which these follow in turn."""
    coded = {}
    gaps = {c.name: c.is_missing(cells_of(c, sample)) for c in columns}
    for c in columns:
        values, code, cells = np.unique(cells_of(c, sample), return_inverse=True, return_counts=True)
        if 1 < len(values) <= FEW_VALUES and len(sample) - cells.max() >= RARE:
            coded[c.name] = (code.astype(np.int64), cells)
    least_evidence = 2.0 * np.log(len(columns)) - np.log(BY_CHANCE)
    result = {}
    for name, (x, x_cells) in coded.items():
        finer = [other for other, (_, cells) in coded.items() if len(cells) > len(x_cells) and other not in made]
        for other in sorted(finer, key=lambda other: len(coded[other][1])):
            y, y_cells = coded[other]
            if any({name, other} <= group for group in known) or (gaps[other] & ~gaps[name]).any():
                continue  # a gap that tells something, as of the living in a cause of death, is no value
            if len(np.unique(y * len(x_cells) + x)) > len(y_cells):
                continue
            with np.errstate(under="ignore"):
                same = np.power((x_cells / len(x))[:, None], y_cells).sum(0)  # probability of one value per value of y
            if -np.log(np.maximum(same, 1e-300)).sum() > least_evidence:
                result[name] = f"is known from '{other}'"
                break
    return result


def _parts(columns: Sequence[Column], sample: Rows) -> dict[str, str]:
    """Columns of few values, each of which covers an interval of a number of many: the year of a date, a band of
    incomes."""
    coded, finer = {}, {}
    for c in columns:
        x = cells_of(c, sample)
        values, code, cells = np.unique(x, return_inverse=True, return_counts=True)
        if len(values) > FEW_VALUES and c.block == "reals":
            finer[c.name] = x
        elif 1 < len(values) <= FEW_VALUES and len(sample) - cells.max() >= RARE:
            coded[c.name] = code
    least_evidence = 2.0 * np.log(len(columns)) - np.log(BY_CHANCE)
    result: dict[str, str] = {}
    if not coded:
        return result
    codes = np.column_stack(list(coded.values()))
    for other, x in finer.items():
        order = np.argsort(x, kind="stable")[: np.count_nonzero(~np.isnan(x))]
        x, along = x[order], codes[order]
        changes = np.diff(along, axis=0) != 0
        for i, name in enumerate(coded):
            cells = np.bincount(along[:, i])
            cells = cells[cells > 0]
            if changes[:, i].sum() != len(cells) - 1 or (changes[:, i] & (np.diff(x) == 0.0)).any():
                continue
            arrangements = lgamma(len(x) + 1) - sum(lgamma(n + 1) for n in cells.tolist()) - lgamma(len(cells) + 1)
            if len(x) - cells.max() >= RARE and arrangements > least_evidence:
                result.setdefault(name, f"is known from '{other}'")
    return result


def _in_a_part(columns: Sequence[Column], sample: Rows, known: Sequence[set[str]]) -> dict[str, str]:
    """Columns that repeat another one where a column of two values has one of them, and are constant elsewhere."""
    cells = {c.name: cells_of(c, sample) for c in columns}
    lacking = {c.name for c in columns if c.is_missing(cells[c.name]).any()}
    result: dict[str, str] = {}
    for b in columns:
        if b.levels is None or len(b.levels) != 2:
            continue
        for value, level in enumerate(b.levels):
            here, there = cells[b.name] == value, cells[b.name] != value
            if here.sum() < FEWEST_ROWS or there.sum() < RARE:
                continue
            constant = {name for name, x in cells.items() if name != b.name and _constant(x[there])}
            if not any(not _constant(cells[name][here]) for name in constant):
                continue
            for group in functions(columns, sample.take(np.flatnonzero(here))):
                others = [name for name in group if name not in constant and name not in lacking]
                for name in constant.intersection(group) - lacking if others else ():
                    if not any({name, others[0]} <= of for of in known):
                        result.setdefault(name, f"repeats '{others[0]}' where '{b.name}' is {level!r}")
    return result


def _constant(x: np.ndarray) -> bool:
    return len(np.unique(x)) < 2
