"""Law for queries of blocks of real columns: a multivariate t in each cluster (docs/math.md 1.6, 2.12).

Values of several columns of a block may be given; a range only of one column alone. The probability of wide cells is a
sum over nodes in all of them, as long as the nodes are few; beyond that, the finest cells get the density of the value
with the variance of its rounding added, and those too wide for it their probability given the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.components.masses import log_t
from mpibayes.hpc.components.nodes import NODES, log_sum, nodes_in, width_level
from mpibayes.hpc.components.predictive import Predictive
from mpibayes.hpc.components.single import inside
from mpibayes.hpc.crosscat.laws.normals import Normals
from mpibayes.hpc.data.events import Events, Known, conditional


class JointLaw(Protocol):
    """Columns that depend on each other within clusters: a block, or a tree of linked columns (`links.law`).

    names: columns of the table. The last axis of arrays is the K clusters of the draw and a new one."""

    names: Sequence[str]

    def knows(self, known: Known) -> bool:
        """True if something is known of one of these columns."""

    def score(self, known: Known) -> np.ndarray:
        """Return the log probability of what is known of these columns, (n, K + 1)."""

    def given(self, known: Known, given: Known | None) -> np.ndarray:
        """Return the log probability of `known` conditional on `given`, (n, K + 1)."""

    def log_masses(self, events: Events) -> np.ndarray:
        """Return the log probability of each event of a column, (U, K + 1)."""

    def averaged(self, events: Events, weight: np.ndarray, given: Known) -> np.ndarray:
        """Sum over clusters, with weights (n, K + 1), the probabilities of a column's events given others, (n, U)."""


MOST_NODES, AT_ONCE = 2_000, 1_000_000  # nodes of a row's cells; numbers in an array
WIDE = 2.0  # deviations given the others: wider cells without nodes have no density
IN_CELLS = 2**31 + 4  # sub-stream, by block, or by coordinate of a column in lines: these lie behind all blocks
LEAST = 1e-12  # weight above which a cluster counts in a row's conditional


@dataclass(frozen=True)
class BlockLaw:
    """Law of one block. names: its columns, in order. law: of the K clusters and a new one."""

    names: Sequence[str]
    law: Predictive

    def knows(self, known: Known) -> bool:
        return any(name in known.of for name in self.names)

    def score(self, known: Known) -> np.ndarray:
        """Return the log probability of what is known of these columns in every cluster, (n, K + 1)."""
        mine = known.only(self.names)
        if len(mine.of) == 1:
            return self.alone(*next(iter(mine.of.values())))
        total = np.zeros((known.n_rows, len(self.law.nu)))
        if mine.of:
            x, width = self.cells(mine)
            for seen, at in patterns_of(x):
                if len(seen):
                    total[at] = self.law.log_density(x[at][:, seen], seen)
                    for of in self._atoms(self.law, mine, seen):
                        total[at, of.k] = log_sum(of.log_p(x[at][:, seen]))
                    total[at] += width[at, None]
            self.put_alone(mine, total)
        return total

    def put_alone(self, known: Known, total: np.ndarray) -> None:
        """Put the scores of rows of which one column alone is known into the total, (n, K + 1), as without others."""
        seen = [which < len(events) for events, which in known.of.values()]
        single = np.sum(seen, axis=0) == 1
        for (events, which), there in zip(known.of.values(), seen):
            rows = np.flatnonzero(single & there)
            if len(rows):
                total[rows] = self.alone(events, which[rows])

    def alone(self, events: Events, which: np.ndarray) -> np.ndarray:
        """Return the score, (n, K + 1), where nothing is known of other columns."""
        table = self.log_masses(events)
        return np.append(table, np.zeros((1, table.shape[1])), axis=0)[which]

    def given(self, known: Known, given: Known | None) -> np.ndarray:
        """Return the score of `known` conditional on `given`; 0 in clusters where `given` is impossible."""
        if given is None or not self.knows(given):
            return self.score(known)
        return conditional(self.score, known, given)

    def cells(self, known: Known) -> tuple[np.ndarray, np.ndarray]:
        """Return the known values (n, D), NaN elsewhere, and the sum of the logs of their steps (n,). Raises
        ConfigError for ranges."""
        x, width = np.full((known.n_rows, len(self.names)), np.nan), np.zeros(known.n_rows)
        for name, (events, which) in known.of.items():
            if name not in self.names:
                continue
            if ranges(events).any():
                raise ConfigError(
                    f"column '{name}' is modelled jointly with others in a block: its range can be given only "
                    "if nothing else in the block is asked about or given"
                )
            seen = which < len(events)
            x[seen, self.names.index(name)] = (0.5 * (events.low + events.high))[which[seen]]
            step = events.column.resolution
            width[seen] += np.log(step) if step else 0.0
        return x, width

    def log_masses(self, events: Events) -> np.ndarray:
        """Return the log probability of each event of a column in every cluster, (U, K + 1)."""
        m, law = self.names.index(events.column.name), self.law
        scale = np.sqrt(law.matrix[:, m, m] / law.nu)
        return log_t(law.location[:, m], scale, law.nu, events.low[:, None], events.high[:, None])

    def averaged(self, events: Events, weight: np.ndarray, given: Known) -> np.ndarray:
        """Sum over clusters, with weights (n, K + 1), the probabilities of a column's events given the block's other
        columns, (n, U). The column's own cell, where known, enters through the weights alone."""
        m, (x, _) = self.names.index(events.column.name), self.cells(given)
        x[:, m] = np.nan
        out = np.zeros((len(weight), len(events)))
        for seen, at in patterns_of(x):
            nodes = self._atoms(self.law, given, seen, [m])
            for of in nodes:
                for i in np.flatnonzero(weight[at, of.k] > LEAST):
                    out[at[i]] += weight[at[i], of.k] * of.averaged(x[at[i], seen], m, events)
            fine = np.delete(np.arange(weight.shape[1]), [of.k for of in nodes])
            location, scale, nu = self.law.single(x[at][:, seen], seen, m)
            rows, k = np.nonzero(weight[np.ix_(at, fine)] > LEAST)
            k = fine[k]
            each = log_t(
                location[rows, k, None], scale[rows, k, None], nu[k, None], events.low[None], events.high[None]
            )
            np.add.at(out, at[rows], np.exp(each) * weight[at[rows], k, None])
        return out

    def draw(self, law, block: int, known: Known, requested: Collection[str], cluster, stream, ids) -> dict:
        """Return values (n,) of the requested columns: known, or drawn given what is known and the rows' clusters.
        law: of all blocks (`multinormal.Students`); block: index of this one."""
        x, _ = self.cells(known)
        u = inside(replace(stream, sub=IN_CELLS).uniforms(block << 32 | ids))
        for seen, at in patterns_of(x):
            lacking = np.array([m for m, name in enumerate(self.names) if name in requested and m not in seen], np.intp)
            if len(lacking):
                within = x[at][:, seen]
                for of in self._atoms(law.blocks[block], known, seen, lacking):
                    rows = np.flatnonzero(cluster[at] == of.k)
                    within[rows] = of.drawn(within[rows], u[at[rows]])
                drawn = law.draw(block, within, seen, lacking, cluster[at], stream, ids[at])
                x[np.ix_(at, lacking)] = drawn
        return {name: x[:, m] for m, name in enumerate(self.names) if name in requested}

    def _atoms(
        self, law: Predictive, known: Known, seen: np.ndarray, asked: Sequence[int] | np.ndarray = ()
    ) -> list[Atoms]:
        """Return the nodes in the cells of columns `seen`, for each cluster where these cells are wide."""
        steps = np.array([known.of[self.names[m]][0].column.resolution or 0.0 for m in seen])
        return [of for k in range(len(law.nu)) if (of := atoms(law, k, seen, steps, asked)) is not None]


@dataclass(frozen=True)
class Atoms:
    """Nodes in the cells of columns `seen` in cluster k. offset (A, D): distances from the middles; log_weight (A,).
    law: of the cluster. wide: places in `seen` of wide cells without nodes, their steps, and the law before their
    rounding is part of it."""

    k: int
    seen: np.ndarray
    law: Predictive
    offset: np.ndarray
    log_weight: np.ndarray
    wide: Sequence[tuple[int, float, Predictive]] = ()

    def log_p(self, x: np.ndarray) -> np.ndarray:
        """Return each node's log term in the probability of the cells about x (n, D), in units of the product of their
        steps, (n, A)."""
        step, parts = max(1, AT_ONCE // self.offset.size), []
        for piece in (x[i : i + step] for i in range(0, len(x), step)):
            at = (piece[:, None] + self.offset).reshape(-1, x.shape[1])
            parts.append(self._log_p_at(at).reshape(len(piece), -1) + self.log_weight)
        return np.concatenate(parts) if parts else np.zeros((0, len(self.offset)))

    def _log_p_at(self, at: np.ndarray) -> np.ndarray:
        """Return the log density at nodes (n, D), with the probabilities of wide cells, each given the middles of those
        before."""
        given = np.setdiff1d(np.arange(len(self.seen)), [j for j, _, _ in self.wide])
        total = (self.wide[0][2] if self.wide else self.law).log_density(at[:, given], self.seen[given])[:, 0]
        for j, step, law in self.wide:
            of, x = (a[..., 0] for a in law.single(at[:, given], self.seen[given], self.seen[j])), at[:, j]
            total = total + log_t(*of, x - 0.5 * step, x + 0.5 * step) - np.log(step)
            given = np.append(given, j)
        return total

    def averaged(self, x: np.ndarray, member: int, events: Events) -> np.ndarray:
        """Return the probabilities (U,) of events of column `member` given the cells about x (D,)."""
        log = self.log_p(x[None])[0]
        location, scale, nu = self.law.single(x + self.offset, self.seen, member)
        each = np.exp(log_t(location, scale, nu, events.low[None], events.high[None]))  # (A, U)
        return (np.exp(log - log_sum(log))[:, None] * each).sum(axis=0)

    def drawn(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Draw values from the cells about x (n, D), by uniform numbers (n,)."""
        log = self.log_p(x)
        p = np.exp(log - log.max(axis=1, keepdims=True)).cumsum(axis=1)
        return x + self.offset[(p[:, :-1] <= u[:, None] * p[:, -1:]).sum(axis=1)]


def atoms(
    law: Predictive, k: int, seen: np.ndarray, steps: np.ndarray, asked: Sequence[int] | np.ndarray = ()
) -> Atoms | None:
    """Return at most MOST_NODES nodes in cells of widths `steps` in cluster k, the coarsest columns served first; None
    where all cells are narrow. asked: columns beside which cells have to be narrow."""
    if not steps.any():
        return None
    nu, matrix = law.nu[k], law.matrix[k].copy()
    every = np.append(seen, np.array(asked, np.intp))
    of_scale = np.linalg.pinv(matrix[np.ix_(every, every)], hermitian=True).diagonal()[: len(seen)]
    of_scale = of_scale * (nu if np.isfinite(nu) else 1.0)
    width = steps * np.sqrt(np.maximum(of_scale, 0.0))
    level = width_level(width)
    if not level.any():
        return None

    def law_of() -> Predictive:
        own = law.location[[k]], matrix[None].copy(), law.nu[[k]]
        return Predictive(*own) if np.isfinite(nu) else Normals(*own)

    offset, log_weight, rounded = np.zeros((1, len(seen))), np.zeros(1), []
    for j in np.argsort(-width, kind="stable"):
        n = int(NODES[level[j]])
        if n == 1:
            continue
        if n * len(offset) > MOST_NODES:
            rounded.append(j)
            continue
        half = np.array([0.5 * steps[j]])
        (at,), (weight,) = nodes_in(-half, half, n)
        offset = np.repeat(offset, n, axis=0)
        offset[:, j] = np.tile(at, len(log_weight))
        log_weight = np.add.outer(log_weight, weight - np.log(steps[j])).ravel()
    wide = []
    for j in sorted(rounded, key=lambda j: bool(width[j] > WIDE)):  # x + rounding, by its variance
        if width[j] > WIDE:
            wide.append((int(j), float(steps[j]), law_of()))
        matrix[seen[j], seen[j]] += steps[j] ** 2 / 12.0 * (nu if np.isfinite(nu) else 1.0)
    return Atoms(k, seen, law_of(), offset, log_weight, wide)


def ranges(events: Events) -> np.ndarray:
    """Return the mask of events wider than one recorded value."""
    step = events.column.resolution
    return events.high - events.low > step * (1.0 + 1e-9) + 1e-300


def patterns_of(x: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (observed columns, rows) for each pattern of observed columns."""
    observed = ~np.isnan(x)
    if len(x) and observed.shape[1] and (observed == observed[0]).all():
        yield np.flatnonzero(observed[0]), np.arange(len(x))
        return
    kinds, of = np.unique(observed, axis=0, return_inverse=True)
    for i, there in enumerate(kinds):
        yield np.flatnonzero(there), np.flatnonzero(of.ravel() == i)
