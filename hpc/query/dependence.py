"""Dependence between columns: mutual information in the posterior predictive distribution, and shared views.

The joint table of two columns cut into cells is the average over draws of sum_k w_k p_k(a) p_k(b), or of the product of
the columns' marginal tables if they are in two views. Mutual information is that of this table, with no simulation
error; its error is a jackknife over batches of draws. Numbers are cut into a few cells, so their information is a lower
bound.

For linked columns, p_k(a, b) replaces p_k(a) p_k(b). The information through groups alone is then that of the table
with p_k(a) p_k(b); the information through links is that within clusters (docs/math.md 2.12).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.events import Events
from mpibayes.hpc.law import LINES, JointLaw
from mpibayes.hpc.parallel.together import dealt
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import HELD, Asking
from mpibayes.hpc.query.new_rows import NewRows
from mpibayes.hpc.query.question import Question
from mpibayes.hpc.query.support import Support

CELLS = 16  # of a numeric column
WIDE = 1_000  # total cells of the columns in one tile
TINY = 1e-300
Tables = tuple[np.ndarray, np.ndarray, np.ndarray]  # see `_joint`
OF_LINKS = "groups: the information through clusters alone, without links; inside: that within a cluster, by links"


@dataclass(frozen=True)
class Information:
    """Information between columns a (A,) and b (B,): information and error (A, B) in nats; together (A, B), the share
    of draws in which they share a view; entropy (A,) of a in its cells. groups, inside (A, B): information through
    groups alone, and within clusters."""

    information: np.ndarray
    error: np.ndarray
    together: np.ndarray
    entropy: np.ndarray
    groups: np.ndarray
    inside: np.ndarray


@dataclass(frozen=True, eq=False)
class Dependence(Question):
    """Mutual information of every pair of columns, the most dependent pairs first."""

    columns: Sequence[str] = ()
    top: int = 20
    HAS_PICTURE = True

    def answer(self, asking: Asking, rows: NewRows | None = None) -> Answer:
        asking.require("dependence")
        names = asking.conditions.names(self.columns) or [c.name for c in asking.columns]
        if len(names) < 2:
            raise ConfigError("dependence is between columns; name two or more with --columns")
        mutual = information(asking, names, names)
        i, j = np.triu_indices(len(names), 1)
        order = np.argsort(-mutual.information[i, j], kind="stable")
        i, j = i[order], j[order]
        lines = {
            "column": np.array([names[a] for a in i], object),
            "with": np.array([names[b] for b in j], object),
            "information": mutual.information[i, j],
            "information_error": mutual.error[i, j],
            "one_view": mutual.together[i, j],
        }
        if asking.asked.linked:
            lines |= {"groups": mutual.groups[i, j], "inside": mutual.inside[i, j]}

        def picture() -> Any:
            from mpibayes.hpc.query.figures import pairs

            return pairs(names, mutual.information, asking.averages.n_draws)

        linked = [OF_LINKS] * asking.asked.linked
        return Answer(
            "Columns that depend on each other", lines, [*linked, *remarks(asking)], shown=self.top, picture=picture
        )


def remarks(asking: Asking) -> list[str]:
    """Notes on the meaning of the information."""
    blocks = ["two columns of a block have no information here"] if set(asking.asked.joint.values()) - {LINES} else []
    return [
        *blocks,
        f"information: mutual information, in nats, of levels, and of numbers in about {CELLS} intervals; one_view: "
        "share of the draws in which the two share a view; "
        f"{asking.averages.n_draws} draws of {asking.asked.n_kept:,} kept",
    ]


def information(asking: Asking, a: Sequence[str], b: Sequence[str]) -> Information:
    """Mutual information of each column of a with each of b; entropy where the two are the same column."""
    names = list(dict.fromkeys([*a, *b]))
    supports, draws = asking.supports(names, CELLS), asking.joint_draws(names)
    wide = 8 * sum(len(s) for s in supports.values()) * sum(draw.width for draw in draws) > HELD
    masses = [Masses(draw, supports, wide) for draw in draws]
    place = {name: i for i, name in enumerate(names)}
    shape = (len(a), len(b))
    result, entropy = np.zeros((4, *shape)), np.zeros(len(a))  # information, its error, by groups, inside
    same = list(a) == list(b)
    for names_a, others in _tiles(_groups(a, supports), _groups(b, supports), same):
        of_tile = _of_tile(asking, draws, masses, names_a, others)
        at = np.ix_([a.index(n) for n in names_a], [b.index(n) for n in others])
        for whole, part in zip(result, of_tile):
            whole[at] = part
        if same:
            at = np.ix_([a.index(n) for n in others], [b.index(n) for n in names_a])
            for whole, part in zip(result, of_tile):
                whole[at] = part.T
    joint = asking.asked.joint  # `linked_pairs` handles numbers in lines
    for i, j in np.ndindex(shape):
        if a[i] != b[j] and joint.get(a[i]) not in (None, LINES) and joint.get(a[i]) == joint.get(b[j]):
            result[:, i, j] = np.nan  # not independent within a cluster
    for i, name in enumerate(a):
        p = np.mean([draw.weight(name) @ m.of([name])[name] for draw, m in zip(draws, masses)], axis=0)
        entropy[i] = -(p * np.log(np.maximum(p, TINY))).sum()
    views = asking.joint("dependence").views(names)
    of_a, of_b = (views[:, [place[n] for n in of]] for of in (a, b))
    together = (of_a[:, :, None] == of_b[:, None, :]).mean(axis=0)
    mutual, error, groups, inside = result
    return Information(mutual, error, together, entropy, groups, inside)


class Masses:
    """Cell probabilities (K + 1, U) of columns in the clusters of a draw; computed on demand if they are `wide`."""

    def __init__(self, draw: JointLaw, supports: dict[str, Support], wide: bool):
        self._draw, self._supports = draw, supports
        self._held = {} if wide else {n: draw.masses(s.events) for n, s in supports.items()}

    def cells(self, name: str) -> int:
        return len(self._supports[name])

    def events(self, names: Sequence[str]) -> dict[str, Events]:
        return {n: self._supports[n].events for n in names}

    def of(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        return self._held or {n: self._draw.masses(self._supports[n].events) for n in set(names)}


def _groups(names: Sequence[str], supports: dict[str, Support]) -> list[list[str]]:
    """Split columns into groups with at most WIDE cells in total, or of a single column."""
    groups: list[list[str]] = []
    held = WIDE
    for name in names:
        held += len(supports[name])
        if held > WIDE:
            groups.append([])
            held = len(supports[name])
        groups[-1].append(name)
    return groups


def _tiles(a: list[list[str]], b: list[list[str]], same: bool) -> Iterator[tuple[list[str], list[str]]]:
    yield from combinations_with_replacement(a, 2) if same else ((x, y) for x in a for y in b)


def _of_tile(
    asking: Asking, draws: Sequence[JointLaw], masses: Sequence[Masses], a: list[str], others: list[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mutual information of each of a with each of `others`, its error, and the parts through groups and links."""
    starts = [*asking.averages.batches, len(draws)]
    events = masses[0].events([*a, *others]) if asking.asked.linked else None

    def work(b: int) -> Tables:
        each = range(starts[b], starts[b + 1])
        joints = (_joint(draws[d], masses[d].of([*a, *others]), a, others, events) for d in each)
        return _sums(joints, (len(a), len(others)))

    joint, apart, inside = zip(*dealt(asking.comm, len(starts) - 1, work))
    sums = np.array(joint)
    widths = [[masses[0].cells(n) for n in names] for names in (a, others)]
    cuts = [np.concatenate([[0], np.cumsum(w)[:-1]]) for w in widths]
    sizes = np.diff(starts)
    whole = sums.sum(axis=0)
    value = _mutual(whole / len(draws), *cuts)
    groups = value if events is None else _mutual(sum(apart) / len(draws), *cuts)
    n, error = len(sums), np.full(value.shape, np.nan)
    if n > 1:
        without = np.array([_mutual((whole - s) / (len(draws) - m), *cuts) for s, m in zip(sums, sizes)])
        error = np.sqrt((n - 1) / n * ((without - without.mean(axis=0)) ** 2).sum(axis=0))
    return value, error, groups, sum(inside) / len(draws)


def _sums(joints: Iterator[Tables], shape: tuple[int, int]) -> Tables:
    """Sums over draws of the joint tables, of the tables without links, and of the information within clusters; without
    links the second is empty."""
    total, apart, inside = next(joints)
    for joint, of_groups, within in joints:
        total, apart, inside = total + joint, apart + of_groups, inside + within
    return total, apart, inside if len(inside) else np.zeros(shape)


def _joint(
    draw: JointLaw,
    mass: dict[str, np.ndarray],
    a: list[str],
    b: list[str],
    events: Mapping[str, Events] | None = None,
) -> Tables:
    """Probabilities of all pairs of cells in one draw. events: of each column, if columns may be linked; then also the
    probabilities without links, and the information within clusters of pairs of columns (A, B)."""
    marginal = {n: draw.weight(n) @ mass[n] for n in {*a, *b}}
    joint = np.outer(np.concatenate([marginal[n] for n in a]), np.concatenate([marginal[n] for n in b]))
    for view in draw.views:
        here = [[n for n in names if n in view.names] for names in (a, b)]
        if here[0] and here[1]:
            parts = [np.concatenate([mass[n] for n in names], axis=1) for names in here]
            at = [_where(names, members, mass) for names, members in zip((a, b), here)]
            joint[np.ix_(*at)] = (parts[0] * draw.weight(here[0][0])[:, None]).T @ parts[1]
    if events is None:
        return joint, np.zeros(0), np.zeros(0)
    apart, inside = joint.copy(), np.zeros((len(a), len(b)))
    for one, other, table, within in draw.linked_pairs(a, b, events):
        joint[np.ix_(_where(a, [one], mass), _where(b, [other], mass))] = table
        inside[a.index(one), b.index(other)] = within
    return joint, apart, inside


def _where(names: list[str], chosen: list[str], mass: dict[str, np.ndarray]) -> np.ndarray:
    """Cells of the `chosen` columns among those of all columns."""
    first, members, places = 0, set(chosen), []
    for name in names:
        width = mass[name].shape[1]
        if name in members:
            places.append(np.arange(first, first + width))
        first += width
    return np.concatenate(places)


def _mutual(joint: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Mutual information of each block of a table of joint probabilities; `rows` and `columns` hold the first place of
    each block."""
    p = np.maximum(joint, TINY)
    by_block = [np.add.reduceat(p, columns, axis=1), np.add.reduceat(p, rows, axis=0)]
    n_rows, n_columns = (np.diff([*cut, n]) for cut, n in zip((rows, columns), p.shape))
    expected = np.repeat(by_block[0], n_columns, axis=1) * np.repeat(by_block[1], n_rows, axis=0)
    cells = p * np.log(p / np.maximum(expected, TINY))
    blocks: np.ndarray = np.add.reduceat(np.add.reduceat(cells, rows, axis=0), columns, axis=1)
    return blocks
