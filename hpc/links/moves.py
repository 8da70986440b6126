"""Draw of all links given the labels (docs/links.md): a whole forest at once, from the scores of all pairs.

Drawing one parent at a time would be exact too, but sticks: a column whose best parent is its own descendant waits for
a reversal that costs hundreds of nats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.links.base import Integrated
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.forest import ROOT, draw_forest, draw_with_others, log_weight_of_links
from mpibayes.hpc.links.numbers import MOST_HYPER, Numbers
from mpibayes.hpc.links.scores import link_scores
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.io.rows import Rows

# Cycles of the first draws: from before clusters settle and stand in for missing links; then every LATER cycles. A draw
# takes as long as ten cycles where no links are, and later ones change little.
FIRST, LATER = (3, 10, 30, 100, 300), 1000
SETTLED = 25  # in views linked columns move together up to this cycle, but where links are drawn


def due(every: int | None, cycle: int) -> bool:
    """True if links are drawn at the end of a cycle. every: cycles between two draws; 0: never; None: the default
    above."""
    if every is not None:
        return every > 0 and cycle % every == 0
    return cycle in FIRST or cycle % LATER == 0


def cuts(every: int | None, cycle: int) -> bool:
    """True if a scan of columns over views lets each column leave its parent, and find one in the new view; in other
    scans linked columns move together. Arguments as in `due`."""
    if every is not None:
        return due(every, cycle)
    return cycle >= FIRST[0] and (cycle > SETTLED or due(None, cycle))


def draw_links(
    comm: Communicator, coding: Coding, kind: Categorical, multiplier: np.ndarray,
    labelled: Sequence[tuple[Rows, np.ndarray]], n_labels: int, key: Mapping[str, int],
    numbers: Numbers, bases: Integrated | None = None,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # fmt: skip
    """Draw the parents of all columns, (C,) as in `Coding`, given labels, cells and hyperparameters, and with them the
    hyperparameters of the columns `coding.leaning`, by name. Collective.

    key: names the random streams. Other arguments as in `link_scores`.
    """
    score, alone = link_scores(comm, coding, kind, multiplier, labelled, n_labels, bases)
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
