"""Comparison of two groups of rows, or of two runs: the distance between distributions, column by column.

The distance of two distributions p and q of a column, cut into cells, is the Jensen-Shannon divergence: the information
in nats that a value carries about which of the two it comes from, at even odds; 0 if they are equal and log 2 if they
have no value in common. Its error is a jackknife over batches of draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.events import Events, Known, everyone
from mpibayes.hpc.law import Law
from mpibayes.hpc.parallel.agreement import agree, on_root
from mpibayes.hpc.parallel.together import dealt
from mpibayes.hpc.query import average, new_rows
from mpibayes.hpc.query.absent import NeverThere
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking, RunAt
from mpibayes.hpc.query.average import FEW
from mpibayes.hpc.query.conditions import Item
from mpibayes.hpc.query.logp import words
from mpibayes.hpc.query.new_rows import NewRows
from mpibayes.hpc.query.question import Question
from mpibayes.hpc.query.support import Support
from mpibayes.hpc.query.training import having
from mpibayes.text import counted

CELLS = 16  # of a numeric column
TINY = 1e-300
PICTURED = 6  # columns in a picture
NO_WEIGHTS = "its table has no weights"


@dataclass(frozen=True)
class Group:
    """One side of a comparison. name: in words. p: cell probabilities (U,) by column; without: the same with each batch
    of draws left out in turn, (b, U). effective: number of draws."""

    name: str
    p: dict[str, np.ndarray]
    without: dict[str, np.ndarray]
    effective: float


@dataclass(frozen=True, eq=False)
class Compare(Question):
    """Comparison of two groups of rows, given in one of four ways: described by `group` and `against`; `rows` and
    `against_rows`, by default all other rows of the table; a group of clusters of the report, one of `groups` in a
    view, and all other rows; or this run and an `other`."""

    group: Sequence[Item] = ()
    against: Sequence[Item] = ()
    against_rows: Any = None
    cluster_group: int | None = None
    groups: int | None = None
    view: int = 1
    other: RunAt | Path | None = None
    columns: Sequence[str] = ()
    top: int = 20
    FROM = "rows", "against_rows"
    NUMBERED = HAS_PICTURE = KNOWS_OUTCOME = True

    def answer(self, asking: Asking, rows: NewRows | None = None) -> Answer:
        if self.other is not None:
            other = asking.beside(self.other)
            other.take_outcome(True)
            other.weigh(self.weighted)
            return compare_runs(asking, other, self.columns, self.top)
        if self.cluster_group is not None:
            which = self.cluster_group, self.groups, self.view
            here, others = agree(asking.comm, lambda: new_rows.of_group(asking, *which), "find the group of clusters")
            return compare_rows(asking, here, others, self.columns, self.top)
        if rows is None:
            return compare(asking, self.group, self.against, self.columns, self.top)
        if self.against_rows is not None:
            against = new_rows.rows_of(asking, self.against_rows, self.unseen)
        elif rows.numbers is not None:
            against = new_rows.others(asking, rows.numbers)
        else:
            raise ConfigError("name the other group, too: two files of rows, --rows and --against-rows")
        return compare_rows(asking, rows, against, self.columns, self.top)


def compare(
    asking: Asking, group: Sequence[Item], against: Sequence[Item], columns: Sequence[str] = (), top: int = 20
) -> Answer:
    """Compare rows that satisfy `group` with rows that satisfy `against`; conditions as elsewhere."""
    asking.require("compare")
    sides = [
        everyone(asking.conditions.read(of, option)) for of, option in ((group, "--group"), (against, "--against"))
    ]
    if not sides[0].of:
        raise ConfigError("name the first group, as in --group sex=Female, and the second with --against")
    if not sides[1].of:
        raise ConfigError("name the second group, as in --against sex=Male")
    apart = {name for side in sides for name in side.of}
    names = [n for n in _names(asking, columns) if n not in apart]
    if not names:
        raise ConfigError("no column is left to compare: the columns of the groups' conditions do not count")
    cells = asking.supports(names, CELLS)
    asking.draws({*names, *apart})
    groups = [_described(asking, words(side), side, cells) for side in sides]
    held = on_root(asking.comm, lambda: _clusters(asking, sides), what="look at the clusters")
    never = NeverThere(asking)
    for side in sides:
        never.look(names, side)
    held = [*held, *never.remarks()]
    return _answer(asking, groups, cells, top, held, "given what the groups have")


def compare_rows(asking: Asking, rows: NewRows, against: NewRows, columns: Sequence[str] = (), top: int = 20) -> Answer:
    """Compare two groups of rows, placed in the clusters by all their cells: each group's distribution is the mean of
    the model's distributions for its rows. The rows are given, so weights count only in the mean."""
    asking.require("compare")
    asking.weigh(False)
    if any(new.weights is not None for new in (rows, against)):
        weight = asking.run.table.weight
        asking.of_whom = f"each row of the table counts by its weight ('{weight}'); --unweighted: all alike"
    lacking = rows.lacking | against.lacking
    names = [n for n in _names(asking, columns) if n not in lacking]
    if not names:
        raise ConfigError("the two groups of rows have no column in common that is to be compared")
    cells = asking.supports(names, CELLS)
    asking.draws({*rows.there(asking), *against.there(asking)})
    groups = [_placed(asking, new, cells) for new in (rows, against)]
    notes = [*rows.notes, *against.notes]
    return _answer(asking, groups, cells, top, notes, "as the model has them, smoothed")


def compare_runs(asking: Asking, other: Asking, columns: Sequence[str] = (), top: int = 20) -> Answer:
    """Compare the distributions of a new row under two runs, in the columns that both have."""
    asking.require("compare")
    other.require("compare")
    theirs = {c.name: c for c in other.columns}
    asked = _names(asking, columns)
    pairs = {n: both for n in asked if n in theirs and (both := _common(asking, other, n)) is not None}
    if not pairs:
        raise ConfigError("the two runs have no column in common")
    cells = [{n: both[i] for n, both in pairs.items()} for i in (0, 1)]
    nothing = Known(1, {})
    groups = [_described(a, name, nothing, c) for a, name, c in zip((asking, other), ("this run", "the other"), cells)]
    if asking.of_whom != other.of_whom:
        asking.of_whom = f"this run: {asking.of_whom or NO_WEIGHTS}; the other: {other.of_whom or NO_WEIGHTS}"
    left = [n for n in asked if n not in pairs]
    notes = [f"not compared, since the other run has no such column: {', '.join(left[:8])}"] if left else []
    return _answer(asking, groups, cells[0], top, notes, "of a new row", same_draws=False)


def _names(asking: Asking, columns: Sequence[str]) -> list[str]:
    return asking.conditions.names(columns) or [c.name for c in asking.columns]


# --- the two sides ----------------------------------------------------------------------------------------------------


def _described(asking: Asking, name: str, known: Known, cells: dict[str, Support]) -> Group:
    """Return the group of rows with these known cells."""
    draws = asking.draws({*cells, *known.of})

    def work(d: int) -> tuple[float, dict[str, np.ndarray]]:
        given = draws[d].given(known)
        return given.log_p[0], {n: given.averaged(c.events, draws[d].masses(c.events))[0] for n, c in cells.items()}

    log_p, each = zip(*dealt(asking.comm, len(draws), work))
    return _group(asking, name, np.array(log_p), each)


def _placed(asking: Asking, new: NewRows, cells: dict[str, Support]) -> Group:
    """Return the group of a file's rows: all draws count equally, since thousands of rows would select a single
    draw."""
    draws = asking.draws(new.there(asking))
    sums = [{n: np.zeros(len(c)) for n, c in cells.items()} for _ in draws]
    n_rows, total_weight = 0, 0.0
    for batch in new.batches():
        known = asking.known(batch.rows, batch.there(asking))
        weights = np.ones(known.n_rows) if new.weights is None else new.weights[n_rows : n_rows + known.n_rows]
        work = partial(_summed, draws, cells, known, weights)
        for total, part in zip(sums, dealt(asking.comm, len(draws), work)):
            for n, x in part.items():
                total[n] += x
        n_rows, total_weight = n_rows + known.n_rows, total_weight + float(weights.sum())
    each = [{n: x / total_weight for n, x in total.items()} for total in sums]
    many = f" ({counted(n_rows, 'row')})" if counted(n_rows, "row") not in new.path.name else ""
    return _group(asking, f"{new.path.name}{many}", np.zeros(len(draws)), each)


def _summed(
    draws: Sequence[Law], cells: Mapping[str, Support], known: Known, weights: np.ndarray, d: int
) -> dict[str, np.ndarray]:
    """Weighted sums of the distributions of rows under draw d, (U,) by column."""
    total = {n: np.zeros(len(c)) for n, c in cells.items()}
    masses = {n: draws[d].masses(c.events) for n, c in cells.items()}
    for rows in average.in_blocks(known.n_rows, 1_024):
        given = draws[d].given(known.block(rows))
        for n in cells:
            total[n] += (given.averaged(cells[n].events, masses[n]) * weights[rows, None]).sum(axis=0)
    return total


def _group(asking: Asking, name: str, log_p: np.ndarray, each: Sequence[dict[str, np.ndarray]]) -> Group:
    w = average.weights(log_p[:, None])[:, 0]
    starts = [*asking.averages.batches, len(w)]
    keep = np.ones((len(starts) - 1, len(w)), bool)
    for b, (first, last) in enumerate(pairwise(starts)):
        keep[b, first:last] = False
    p, without = {}, {}
    for n in each[0]:
        r = np.array([of[n] for of in each])
        p[n] = (w[:, None] * r).sum(axis=0)
        rest = (keep * w).sum(axis=1)
        without[n] = np.array([(w * k) @ r for k in keep]) / np.where(rest > 0.0, rest, 1.0)[:, None]
    return Group(name, p, without, float(average.effective(w[:, None])[0]))


def _common(asking: Asking, other: Asking, name: str) -> tuple[Support, Support] | None:
    """Cells of a column as seen by each of two runs; None if they cannot be compared."""
    (mine,), (their,) = asking.named([name]), other.named([name])
    if bool(mine.levels) != bool(their.levels) or (mine.kind == "count") != (their.kind == "count"):
        return None
    if mine.levels:
        levels = [level for level in mine.levels if level in set(their.levels)]
        if not levels:
            return None
        codes = [np.array([c.levels.index(level) for level in levels], np.int64) for c in (mine, their)]
        return Support(Events(mine, codes[0])), Support(Events(their, codes[1]))
    if mine.atoms != their.atoms or mine.resolution != their.resolution or mine.log != their.log:
        return None
    support = asking.supports([name], CELLS)[name]
    e = support.events
    return support, Support(Events(their, e.codes, None, e.low, e.high))


# --- how far apart ----------------------------------------------------------------------------------------------------


def divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Jensen-Shannon divergence in nats of distributions (..., U), each scaled to sum 1."""
    p, q = (np.maximum(x / np.maximum(x.sum(axis=-1, keepdims=True), TINY), TINY) for x in (p, q))
    m = 0.5 * (p + q)
    nats: np.ndarray = 0.5 * (p * np.log(p / m) + q * np.log(q / m)).sum(axis=-1)
    return nats


def _spread(without: np.ndarray) -> float:
    """Jackknife standard error from estimates that leave out one batch each, (b,)."""
    n = len(without)
    return float(np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())) if n > 1 else np.nan


def _answer(
    asking: Asking,
    groups: Sequence[Group],
    cells: dict[str, Support],
    top: int,
    notes: Sequence[str],
    of: str,
    same_draws: bool = True,
) -> Answer:
    a, b = groups
    divergences, error, most, first, second = [], [], [], [], []
    for n, c in cells.items():
        divergences.append(float(divergence(a.p[n], b.p[n])))
        if same_draws:
            error.append(_spread(divergence(a.without[n], b.without[n])))
        else:
            of_a, of_b = divergence(a.without[n], b.p[n]), divergence(a.p[n], b.without[n])
            error.append(float(np.hypot(_spread(of_a), _spread(of_b))))
        difference = a.p[n] - b.p[n]
        u = int(np.abs(difference).argmax())
        most.append(c.words[u])
        first.append(a.p[n][u])
        second.append(b.p[n][u])
    order = np.argsort(-np.array(divergences), kind="stable")
    names = np.array(list(cells), object)
    lines = {
        "column": names[order],
        "divergence": np.array(divergences)[order],
        "divergence_error": np.array(error)[order],
        "most_at": np.array(most, object)[order],
        "p_group": np.array(first)[order],
        "p_against": np.array(second)[order],
    }
    drawn = [str(n) for n in names[order][:PICTURED]]

    def picture() -> Any:
        from mpibayes.hpc.query.figures import side_by_side

        sides = [(g.name, {n: g.p[n] for n in drawn}) for g in groups]
        return side_by_side(sides, {n: cells[n] for n in drawn}, lines["divergence"][: len(drawn)])

    few = [g for g in groups if g.effective < FEW < asking.averages.n_draws]
    remarks = [
        f"divergence: Jensen-Shannon, in nats, of the two distributions {of}, at most log 2 = 0.693; most_at: where "
        f"they differ most, with the probability in each; {counted(asking.averages.n_draws, 'draw')} of "
        f"{asking.asked.n_kept:,} kept",
        *(f"{g.name}: the effective number of draws is {g.effective:.1f}; more --draws help" for g in few),
        *notes,
    ]
    title = f"{a.name} against {b.name}: where they differ most"
    return Answer(title, lines, remarks, shown=top, bars="divergence", picture=picture)


# --- which clusters hold the difference -------------------------------------------------------------------------------


def _clusters(asking: Asking, sides: Sequence[Known]) -> list[str]:
    """Lines about the clusters of the report's partition whose shares of the two groups' training rows differ most."""
    partition = asking.asked.partition()
    watched = any(events.column.kind == "survival" for known in sides for events, _ in known.of.values())
    if partition is None or watched:  # censoring decides which rows have a known time
        return []
    weights = asking.asked.weights
    weights = np.ones(asking.asked.n_rows) if weights is None else weights
    shares, n = [], []
    for known in sides:
        here = having(asking, known, asking.asked.training_numbers())
        n.append(int(np.count_nonzero(weights[here])))
        of_all = max(float(weights[here].sum()), TINY)
        shares.append([np.bincount(z[here], weights[here], int(z.max()) + 1) / of_all for z in partition])
    if not all(n):
        return ["no training row meets the conditions of one of the groups, so no cluster is named"]
    lines = []
    gaps = [np.abs(p - q) for p, q in zip(*shares)]
    places = sorted(((g, v, k) for v, gap in enumerate(gaps) for k, g in enumerate(gap) if g > 0.0), reverse=True)[:3]
    for _, v, k in places:
        view = f" of view {v + 1}" if len(partition) > 1 else ""
        lines.append(f"cluster {k}{view}: {shares[0][v][k]:.1%} against {shares[1][v][k]:.1%}")
    of = f"their shares of the {n[0]:,} and {n[1]:,} training rows{', weighted' * asking.weighted}"
    return [f"clusters of the report that hold most of it, with {of}: {'; '.join(lines)}"]
