"""The draw of all links given the labels (docs/links.md): from the scores of all pairs, a whole forest at once.

One parent at a time would be exact too, and sticks: a column whose best parent is its own descendant waits for a
reversal that costs hundreds of nats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.links.base import Integrated
from mpibayes.hpc.links.children import Children
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.forest import ROOT, draw_forest, draw_with_others, log_weight_of_links
from mpibayes.hpc.links.lines import Lines
from mpibayes.hpc.links.scores import link_scores
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.io.rows import Rows

FIRST = 3, 10  # cycles of the first draws: once clusters have settled, they stand in for the links that are missing
MOST_HYPER = 4  # of a column of numbers
OFTEN, LATER = 25, 100  # cycles between two draws, at first and once there have been LATER cycles


def due(every: int | None, cycle: int) -> bool:
    """True where links are drawn at the end of a cycle. every: cycles between two draws, 0: never; None: as above."""
    if every is not None:
        return every > 0 and cycle % every == 0
    return cycle in FIRST or cycle % (OFTEN if cycle <= LATER else LATER) == 0


def cuts(every: int | None, cycle: int) -> bool:
    """True where a scan of columns over views lets each one leave its parent, and find one in the new view; in other
    scans what is linked moves together. Arguments as of `due`."""
    if every is not None:
        return due(every, cycle)
    return cycle >= FIRST[0] and (cycle > OFTEN or due(None, cycle))


def draw_links(
    comm: Communicator, coding: Coding, kind: Categorical, multiplier: np.ndarray,
    labelled: Sequence[tuple[Rows, np.ndarray]], n_labels: int, key: Mapping[str, int],
    lines: Lines, children: Children, bases: Integrated | None = None,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # fmt: skip
    """Draw the parents of all columns, (C,) as of `Coding`, given labels, cells and hyperparameters, and with them the
    hyperparameters of `lines` and `children`, the columns of `coding.lines` and `coding.children`, by name. Collective.

    Other arguments as of `link_scores`; key: of the streams.
    """
    score, alone = link_scores(comm, coding, kind, multiplier, labelled, n_labels, bases)
    numbers = Numbers(coding, lines, children)
    r, parents = len(coding.leaning), np.full(len(coding.plain), ROOT)
    score, alone, hyper = *numbers.beside(score, alone), np.zeros((r, MOST_HYPER))
    d, place = len(alone), {column.name: i for i, column in enumerate(coding.plain)}
    at = np.array([*(place[c.name] for c in kind.columns), *coding.leaning, *coding.numbers], np.intp)
    if comm.rank == 0 and d and len(at) > 1:
        stream = generator(purpose=Purpose.LINKS, **key)
        weight = log_weight_of_links(int((coding.parents != ROOT).sum()), len(at), stream)
        order, u = stream.permutation(d), stream.random(d)
        if coding.numbers:
            above = np.array([np.flatnonzero(at == coding.which(c)).max(initial=ROOT) for c in coding.numbers])
            drawn = draw_with_others(score + weight, alone, np.column_stack([u, stream.random(d)]), order, above)
        else:
            drawn = draw_forest(score + weight, alone, u, order)
        parents[at[:d]] = np.where(drawn == ROOT, ROOT, at[drawn])
        if r:
            hyper = numbers.draw(drawn[d - r :], stream.random(r))
    comm.broadcast(parents)
    if r:
        comm.broadcast(hyper)
    return parents, {coding.plain[c].name: of for c, of in zip(coding.leaning, numbers.forms(hyper))}


class Numbers:
    """The columns of `coding.leaning`: those that may lean on each other in lines, and those that may lean on columns
    with levels."""

    def __init__(self, coding: Coding, lines: Lines, children: Children):
        self._lines, self._children = lines, children
        number = {c: i for i, c in enumerate(coding.leaning)}
        self._in_lines, self._are_children = ([number[c] for c in of] for of in (coding.lines, coding.children))
        self._length = [4 if coding.plain[c].kind == "real" else 2 for c in coding.leaning]
        self._d = 0

    def beside(self, score: np.ndarray, alone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores of D columns with levels, (D, D + E) and (D,), and behind these those of the R numbers:
        (D + R, D + R + E) and (D + R,)."""
        d, r = len(score), len(self._length)
        self._d = d
        if not r:
            return score, alone
        whole, more = np.full((d + r, score.shape[1] + r), -np.inf), np.zeros(r)
        whole[:d, :d], whole[:d, d + r :] = score[:, :d], score[:, d:]
        at, of = d + np.array(self._are_children, np.intp), d + np.array(self._in_lines, np.intp)
        whole[at, :d], more[self._are_children] = self._children.scores()
        if len(of):
            whole[np.ix_(of, of)], more[self._in_lines] = self._lines.scores()
        return whole, np.append(alone, more)

    def draw(self, parents: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Hyperparameters (R, MOST_HYPER) given the parents (R,), numbered as in the scores, by uniforms u (R,)."""
        hyper = np.zeros((len(parents), MOST_HYPER))
        for i, c in enumerate(self._are_children):
            if parents[c] < self._d:
                of = self._children.draw(i, int(parents[c]), float(u[c]))
                hyper[c, : len(of)] = of
        if not self._in_lines:
            return hyper
        place = {self._d + c: i for i, c in enumerate(self._in_lines)}
        above = np.array([place.get(parent, ROOT) for parent in parents[self._in_lines].tolist()], np.int64)
        drawn = self._lines.draw(above, u[self._in_lines])
        for c, parent, of in zip(self._in_lines, parents[self._in_lines].tolist(), drawn):
            if not 0 <= parent < self._d:
                hyper[c] = of
        return hyper

    def forms(self, hyper: np.ndarray) -> list[np.ndarray]:
        """Each column's own hyperparameters."""
        return [of[:n] for of, n in zip(hyper, self._length)]
