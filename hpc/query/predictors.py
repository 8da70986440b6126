"""Predictors of a column: each by itself, or the set of columns that together predict it best.

A set is built greedily: the best single predictor, then the column that adds most to the set. Numeric columns are cut
into cells, so that the first column's information is a sum (`dependence.py`). The gain from further columns is the
mean, over rows simulated from the posterior predictive distribution, of the fall in entropy of the target given their
cells, or given their values if numbers depend on each other in lines (where cells would each need an integral). Each
row's entropy is a sum, not a simulation, and all sets use the same rows, so that differences between sets have small
errors. The error combines simulation error and a jackknife over draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.events import Known, of_values
from mpibayes.hpc.parallel.together import dealt
from mpibayes.hpc.query import carried
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.carried import in_table
from mpibayes.hpc.query.dependence import CELLS, TINY, information, remarks
from mpibayes.hpc.query.new_rows import NewRows
from mpibayes.hpc.query.question import Question
from mpibayes.hpc.query.simulate import simulated
from mpibayes.text import counted

ROWS = 500  # simulated
LATER = 16  # columns tried once two are chosen: those with the largest gains before
SEED = 1
ROUNDED = 8  # digits: sums of independent columns' tables are not 0 to the last one
LEAST = 2.0  # errors that a column's gain must exceed


@dataclass(frozen=True)
class Entropies:
    """Entropy of the target given other columns: of each simulated row (M,), and the mean without each batch of draws
    (b,)."""

    rows: np.ndarray
    without: np.ndarray


@dataclass(frozen=True, eq=False)
class Predictors(Question):
    """Best predictors of a column, each by itself; or, with `size`, the best set of at most that many."""

    column: str
    columns: Sequence[str] = ()
    top: int = 20
    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 2:
            raise ConfigError(f"size = {self.size}: expected 2 or more columns")

    def answer(self, asking: Asking, rows: NewRows | None = None) -> Answer:
        if self.size is not None:
            return best_set(asking, self.column, self.columns, self.size)
        return single(asking, self.column, self.columns, self.top)


def single(asking: Asking, name: str, columns: Sequence[str], top: int) -> Answer:
    """Rank the predictors of a column, each by itself."""
    names = others_than(asking, name, columns)
    mutual, table = information(asking, [name], names), in_table(asking, name, names)
    run = np.round(mutual.information[0], ROUNDED) + 0.0  # no -0
    order = np.argsort(-run, kind="stable") if table is None else np.lexsort((-table.information, -run))
    lines = {
        "column": np.array([names[a] for a in order], object),
        "information": run[order],
        "information_error": mutual.error[0, order],
        "share": run[order] / max(float(mutual.entropy[0]), TINY),
        "one_view": mutual.together[0, order],
    }
    notes = [f"share: information / entropy of '{name}', {mutual.entropy[0]:.3f} nats", *remarks(asking)]
    if table is not None and np.isfinite(table.information).any():
        lines["table"] = table.information[order]
        notes.append("table: the same in training rows, less that of shuffled rows")
        notes += carried.remarks(name, names, table, run, "answers about these are too flat")
    return Answer(f"Best predictors of {name}, each column by itself", lines, notes, shown=top, bars="information")


def others_than(asking: Asking, name: str, columns: Sequence[str]) -> list[str]:
    """Candidate predictors: `columns`, or all, except `name`. Raises ConfigError if none is left."""
    asking.require("predictors")
    asking.conditions.column(name)
    names = [n for n in asking.conditions.names(columns) or [c.name for c in asking.columns] if n != name]
    if not names:
        raise ConfigError(f"there is no other column to predict '{name}' by")
    return names


def best_set(asking: Asking, name: str, columns: Sequence[str], size: int, n_rows: int = ROWS) -> Answer:
    """Choose up to `size` columns; fewer if no further column adds more than twice its error."""
    if name in asking.in_blocks:
        raise ConfigError(f"column '{name}' is modelled jointly with others in a block: it has no set of predictors")
    names = [n for n in others_than(asking, name, columns) if n not in asking.in_blocks]
    if not names:
        raise ConfigError("only columns of blocks are left, whose cells are not independent in a cluster")
    single = information(asking, [name], names)
    asked = [name, *names]
    rows = simulated(asking, Known(1, {}), asked, n_rows, SEED)
    cells = asking.supports(asked, CELLS)
    asking.draws(asked)
    of = {n: (cells[n].events, cells[n].place(rows[n])) for n in names if n not in asking.asked.joint}
    of |= {n: (of_values(asking.conditions.column(n), rows[n]), np.arange(n_rows)) for n in names if n not in of}
    entropy, first = float(single.entropy[0]), int(single.information[0].argmax())
    alone, alone_error = float(single.information[0, first]), float(single.error[0, first])
    chosen, tried = [names[first]], [n for i, n in enumerate(names) if i != first]
    last = base = _entropies(asking, name, Known(n_rows, {names[first]: of[names[first]]}))
    lines = [(names[first], alone, alone_error, alone, alone_error)]
    while len(chosen) < size and tried:
        sets = [Known(n_rows, {n: of[n] for n in [*chosen, more]}) for more in tried]
        entropies = dealt(asking.comm, len(sets), partial(_entropies_at, asking, name, sets))
        gains = np.array([float((last.rows - f.rows).mean()) for f in entropies])
        order = np.argsort(-gains, kind="stable")
        best = int(order[0])
        gain_error = _error(last, entropies[best])
        if not gains[best] > LEAST * gain_error:
            break
        chosen.append(tried[best])
        last = entropies[best]
        joint = alone + float((base.rows - last.rows).mean())
        lines.append((tried[best], joint, float(np.hypot(alone_error, _error(base, last))), gains[best], gain_error))
        tried = [tried[i] for i in order[1 : 1 + LATER]]
    columns_added, *of_each = zip(*lines)
    of_sets, of_sets_error, adds, adds_error = map(np.array, of_each)
    table = {
        "column": np.array(columns_added, object),
        "information": of_sets,
        "information_error": of_sets_error,
        "share": of_sets / max(entropy, TINY),
        "adds": adds,
        "adds_error": adds_error,
    }
    notes = [
        f"information: of this column and those above, in nats; share: of the entropy of '{name}', {entropy:.3f}; "
        f"adds: what the column adds to those before it. By {counted(n_rows, 'simulated row')} and "
        f"{counted(asking.averages.n_draws, 'draw')} of {asking.asked.n_kept:,} kept; numbers in about {CELLS} "
        "intervals"
    ]
    if len(lines) < size and tried:
        notes.append(f"no other column adds more than {LEAST:.0f} errors")
    return Answer(f"Best set of predictors of {name}, found one by one", table, notes, bars="information")


def _entropies_at(asking: Asking, name: str, sets: Sequence[Known], i: int) -> Entropies:
    return _entropies(asking, name, sets[i])


def _entropies(asking: Asking, name: str, known: Known) -> Entropies:
    rows, n = [], known.n_rows
    without = np.zeros(len(asking.averages.batches))
    for at, d in asking.distributions(name, known, CELLS):
        rows.append(_entropy(d.p))
        share = (at.stop - at.start) / n
        without += share * np.array([_entropy(p).mean() for p in d.sums.without_each()])
    return Entropies(np.concatenate(rows), without)


def _entropy(p: np.ndarray) -> np.ndarray:
    p = np.maximum(p / np.maximum(p.sum(axis=-1, keepdims=True), TINY), TINY)
    nats: np.ndarray = -(p * np.log(p)).sum(axis=-1)
    return nats


def _error(before: Entropies, after: Entropies) -> float:
    """Standard error of the mean fall in entropy, from the simulation and from the draws."""
    fall, without = before.rows - after.rows, before.without - after.without
    b = len(without)
    draws = np.sqrt((b - 1) / b * ((without - without.mean()) ** 2).sum()) if b > 1 else np.nan
    return float(np.hypot(fall.std(ddof=1) / len(fall) ** 0.5, draws))
