"""Probability of values given others: of one described row, or of each row of a file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.events import Events, Known, everyone
from mpibayes.hpc.query.absent import NeverThere
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.average import FEW
from mpibayes.hpc.query.conditions import Item, in_words
from mpibayes.hpc.query.new_rows import NewRows
from mpibayes.hpc.query.question import Question
from mpibayes.io.rows import Column
from mpibayes.text import counted


def described(asking: Asking, items: Sequence[Item], option: str, rows: NewRows | None) -> Known:
    """Read --of or --given: conditions, which apply to every row, and names of columns of the file."""
    conditions = [i for i in items if asking.conditions.is_condition(i)]
    known = everyone(asking.conditions.read(conditions, option))
    columns = [i for i in items if isinstance(i, str) and not asking.conditions.is_condition(i)]
    names = asking.conditions.names(columns)
    if rows is None:
        if names:
            raise ConfigError(
                f"{option} {names[0]}: names a column without a value; write {option} '{names[0]}=VALUE', or name a "
                "file of rows with --rows"
            )
        return known
    for name in names:
        if name in rows.lacking:
            raise ConfigError(f"{option} {name}: {rows.path} has no column '{name}'")
        if name in known.of:
            raise ConfigError(f"{option} {name}: column '{name}' has a condition already")
    return known.join(asking.known(rows.rows, names)) if names else known.repeat(len(rows.rows))


def apart(asked: Collection[str], given: Known) -> None:
    """Raise ConfigError if one of the columns asked for is also given."""
    both = [name for name in asked if name in given.of]
    if both:
        raise ConfigError(f"column '{both[0]}' is both asked for and given")


def sides(asking: Asking, of: Sequence[Item], given: Sequence[Item], rows: NewRows | None) -> tuple[Known, Known]:
    """The two sides of log p(of | given). For the rows of a file: if no column is named, all are targets; if only
    targets are named, the remaining columns are given."""
    asked = described(asking, of, "--of", rows)
    if rows is not None and not of:
        on_them = described(asking, given, "--given", rows)
        there = [n for n in rows.there(asking) if n not in on_them.of]
        asked = asking.known(rows.rows, [n for n in there if n in asking.answerable])
        if len(asked.of) < len(there):  # the model conditions on some columns
            on_them = on_them.join(asking.known(rows.rows, [n for n in there if n not in asked.of]))
        return asked, on_them
    if rows is not None and not given:
        others = [n for n in rows.there(asking) if n not in asked.of]
        return asked, asking.known(rows.rows, others).repeat(asked.n_rows)
    on_them = described(asking, given, "--given", rows)
    apart(asked.of, on_them)
    return asked, on_them


@dataclass(frozen=True, eq=False)
class Logp(Question):
    """log p(of | given), with the error of averaging over draws, for one described row or each of `rows`. See
    `sides`."""

    of: Sequence[Item] = ()
    given: Sequence[Item] = ()
    KNOWS_OUTCOME = True

    def answer(self, asking: Asking, rows: NewRows | None = None) -> Answer:
        if not self.of and rows is None:
            raise ConfigError(
                "no question: name values with --of, as in --of 'income=high', or a file of rows with --rows FILE"
            )
        parts, with_density, never = [], dict[str, Column](), NeverThere(asking)
        for batch in rows.batches() if rows is not None else [None]:
            asked, on_them = sides(asking, self.of, self.given, batch)
            title = f"log p({words(asked)} | {words(on_them) or 'nothing'})"
            parts.append(asking.log_p(asked, on_them))
            never.look(list(asked.of), on_them)
            with_density |= {c.name: c for c in densities(asked)}
        log, error, effective = (np.concatenate(a) for a in zip(*parts))
        columns: dict[str, np.ndarray] = {}
        if rows is not None:
            columns["row"] = np.arange(1, len(log) + 1)
        columns |= {"log_p": log, "log_p_error": error}
        if not with_density:
            columns |= {"p": np.exp(log), "p_error": np.exp(log) * error}
        columns["draws"] = effective
        remarks = [*(rows.notes if rows else ()), *about(with_density), *few(effective, asking)]
        remarks += never.remarks(None if rows is None else len(log))
        if rows is not None:
            finite = np.isfinite(log)
            remarks.insert(0, f"mean over {counted(int(finite.sum()), 'row')}: {log[finite].mean():.4f} nats a row")
        return Answer(title, columns, remarks)


def densities(known: Known) -> list[Column]:
    """Columns whose value has a density, not a probability."""
    return [e.column for e, _ in known.of.values() if not e.column.levels and _has_density(e)]


def _has_density(e: Events) -> bool:
    return bool(e.column.kind in ("real", "survival") and np.any(e.low == e.high))


def about(with_density: Collection[str]) -> list[str]:
    """Note on values that are densities, not probabilities."""
    names = ", ".join(f"'{name}'" for name in with_density)
    return [f"a density: {names} was recorded without a step, so that log p is per unit of it"] if names else []


def few(effective: np.ndarray, asking: Asking) -> list[str]:
    """Notes on the number of draws, with a warning if few of them fit the given values."""
    n, n_few = asking.averages.n_draws, int((effective < FEW).sum())
    of = f"{counted(n, 'draw')} of {asking.asked.n_kept:,} kept"
    if not n_few or n <= FEW:
        return [f"averaged over {of}; draws: the effective number, weighted by the conditions"]
    where = "" if len(effective) == 1 else f" in {counted(n_few, 'row')}"
    return [
        f"averaged over {of}; draws: the effective number, weighted by the conditions. It is below {FEW:.0f}{where}: "
        "errors are too small there; more --draws help"
    ]


def words(known: Known, most: int = 6) -> str:
    """Describe the known cells."""
    parts = []
    for name, (e, _) in known.of.items():
        parts.append(f"{name}={in_words(e)}" if known.n_rows == 1 and len(e) == 1 else name)
    more = f", and {counted(len(parts) - most, 'more column')}" if len(parts) > most else ""
    return ", ".join(parts[:most]) + more
