"""Checks of a configuration against the columns of its table."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from mpibayes.errors import ConfigError
from mpibayes.hpc import registry
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.places import Report
from mpibayes.io.rows import Column
from mpibayes.text import import_again


def check_table(config: Config, table: Any, begun: bool = False) -> None:
    """Check a configuration against a table, typed or sparse; begun: that of a run that exists. Raises ConfigError with
    every mismatch."""
    if not config.model.sparse:
        try:
            return check_columns(config, table.columns, table.n_rows, begun)
        except ConfigError as error:
            raise ConfigError(error.message, [*error.problems, *_later_levels(config, table)]) from None
    report = Report(config.places)
    for name in config.columns:
        report.add(("columns", name), "a sparse table has no columns that could be described; take it out")
    registry.rules_of(config.kind).against_sparse(config, table, report)
    if report.problems:
        raise ConfigError(f"{config.path}: the configuration does not fit the table {config.table}", report.problems)
    return None


def _later_levels(config: Config, table: Any) -> list[str]:
    """Reasons why the configuration of columns may have been valid before rows were appended to the table."""
    problems = []
    for first, column in zip(table.pieces[0].columns, table.columns):
        new = list(column.levels[len(first.levels) :])
        if new and getattr(config.columns.get(column.name), "prior", None) is not None:
            problems.append(
                f"column '{column.name}': {some(new)} came with rows that were appended. A prior with a number for "
                "each level is another one with them, and needs a new run (-o); one of a single number for all has "
                "room for levels that come later"
            )
    return problems


def check_columns(config: Config, columns: Sequence[Column], n_rows: int, begun: bool = False) -> None:
    """Check [columns.NAME], and the family's settings of columns, against the table's columns. Raises ConfigError with
    every mismatch.

    Columns whose numbers exceed the arithmetic are refused too, since [columns.NAME] can leave them out.
    """
    by_name = {column.name: column for column in columns}
    report = Report(config.places, begun=begun)
    for name in config.columns:
        if name not in by_name:
            report.add(("columns", name), f"the table has no such column; {nearest_column(name, list(by_name))}")
    registry.rules_of(config.kind).against_table(config, by_name, report)
    for column in columns:
        key = ("columns", column.name)
        if column.name in config.unused:
            continue
        if column.kind == "count" and column.center * (n_rows - column.n_missing) >= 2.0**53:
            report.add(
                key,
                "the sum of its counts is 2^53 or more, too large to be exact; "
                f"{import_again(column.name, 'real')}, or set use = false",
            )
        if column.kind == "survival" and config.model.family not in ("mixture", "crosscat", "auto"):
            what = f'is of times to an event, which "{config.model.family}" does not model; set use = false'
            report.add(key, f'{what}, or take family = "mixture" or "crosscat"')
        if column.kind == "real" and not (1e-150 < column.scale < 1e150 and abs(column.center) < 1e150):
            report.add(
                key, "its numbers are too large or too small for double precision; scale them, or set use = false"
            )
    if columns and all(column.name in config.unused for column in columns) and not report.problems:
        report.add(("columns",), "every column has use = false, so that nothing is left to model")
    if report.problems:
        raise ConfigError(f"{config.path}: the configuration does not fit the table {config.table}", report.problems)


def nearest_column(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1, 0.6) or [n for n in names if n.lower() == name.lower()]
    return f"did you mean {near[0]}?" if near else f"it has {some(names)}"


def some(names: list[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
