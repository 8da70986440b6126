"""Table-wide base of a column that depends on another: probabilities p0 of its levels in each context, around which the
probabilities of the clusters vary (docs/math.md 1.9).

Given p0, the column's pseudo-counts are p0 times their sum, and nothing else changes. p0 is drawn by *tables*: for each
cluster, context and level, the number of tables that its cells open in a Chinese restaurant; given these numbers summed
over clusters, p0 is Dirichlet. The evidence of a link with p0 integrated out has no closed form, so in a draw of the
forest tables stand in for p0. For links that are present they are drawn given p0; for all others, from a law that
depends on neither the forest nor p0, and their weight is divided by its probability (docs/math.md 2.14).

Arrays of a column are (U, V + 1), contexts by levels, with 0 behind the levels as in `components.categorical`; bases
average 1 in each context.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.components.categorical import GRID, Categorical
from mpibayes.hpc.components.grid import pick_on_grid
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.rows import Column
from mpibayes.kernels.mixture import updates

CONCENTRATIONS = updates.Grid(GRID)  # mean pseudo-count per level and context in the prior of p0
LEAST = 1e-20  # lower bound of a base: smaller values are lost in rounding

Bases = Mapping[str, np.ndarray]  # base by column name


def learns_base(column: Column, priors: Mapping[str, Mapping[str, Any]]) -> bool:
    """True if a column has a learned base in each context of its parent."""
    return bool(column.levels) and column.contexts > 1 and "dirichlet" not in priors.get(column.name, {})


# --- tables of a column -----------------------------------------------------------------------------------------------


def tables_given(counts: np.ndarray, beta: np.ndarray, stream: Stream) -> np.ndarray:
    """Draw tables (U, V + 1), summed over clusters, given counts (U, V + 1, K) int32 and pseudo-counts (U, V + 1)."""
    levels = np.ascontiguousarray(counts.reshape(-1, counts.shape[2]))
    return updates.draw_tables(levels, np.ascontiguousarray(beta.ravel()), **vars(stream)).reshape(beta.shape)


def log_by_concentration(tables: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """Log probability of tables with p0 integrated out, p0 ~ Dirichlet(c phi), at each of CONCENTRATIONS, (G,)."""
    u, width = tables.shape
    levels, base = np.ascontiguousarray(tables.reshape(-1, 1), np.int32), np.tile(phi, u)
    even = (phi[:-1] == 1.0).all()
    offsets = np.arange(u + 1, dtype=np.int64) * width
    return updates.grid_scores(levels, offsets, np.arange(u), CONCENTRATIONS, None if even else base).sum(axis=0)


def mean_given(tables: np.ndarray, phi: np.ndarray, concentration: float) -> np.ndarray:
    """Mean of a base given tables."""
    return _scaled(concentration * phi + tables)


def base_given(
    tables: np.ndarray, phi: np.ndarray, name: str, key: Mapping[str, int], with_link: bool = False
) -> np.ndarray:
    """Draw the concentration c of a column's base given tables, with p0 integrated out, and then the base. with_link:
    True for a link drawn in this cycle, whose base is drawn again at the end of the cycle."""
    at = {"sub": zlib.crc32(name.encode()) | int(with_link) << 32, **key}
    u = Stream(purpose=Purpose.BASE_CONCENTRATION, **at).uniforms(np.zeros(1, np.int64))
    index = pick_on_grid(log_by_concentration(tables, phi)[None], u)
    shape = CONCENTRATIONS.points[index] * phi[:-1] + tables[:, :-1]
    log_gamma = Stream(purpose=Purpose.BASES, **at).log_gammas(shape, np.arange(shape.size).reshape(shape.shape))
    p = np.exp(log_gamma - log_gamma.max(axis=1, keepdims=True))
    return _scaled(np.append(p, np.zeros((len(p), 1)), axis=1))


def _scaled(weights: np.ndarray) -> np.ndarray:
    base = weights * ((weights.shape[1] - 1) / weights.sum(axis=1, keepdims=True))
    base[:, :-1] = np.maximum(base[:, :-1], LEAST)
    return base


# --- columns of a chain or a draw -------------------------------------------------------------------------------------


def phi_of(column: Column, priors: Mapping[str, Mapping[str, Any]]) -> np.ndarray:
    """Base of a column's own prior, (V + 1,)."""
    return np.append(np.ones(len(column.levels)) * priors.get(column.name, {}).get("base", 1.0), 0.0)


def with_learned(priors: Mapping[str, Mapping[str, Any]], bases: Bases) -> dict[str, Mapping[str, Any]]:
    """Return the columns' priors with learned bases filled in."""
    return {**priors, **{name: {**priors.get(name, {}), "base": base} for name, base in bases.items()}}


def bases_given(
    tables: Mapping[str, np.ndarray], columns: Sequence[Column], priors: Mapping[str, Mapping[str, Any]],
    key: Mapping[str, int], with_links: bool = False,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Draw the bases of all columns that have tables. with_links: see `base_given`."""
    chosen = [c for c in columns if c.name in tables]
    return {c.name: base_given(tables[c.name], phi_of(c, priors), c.name, key, with_links) for c in chosen}


def flat(tables: Mapping[str, np.ndarray], columns: Sequence[Column]) -> np.ndarray:
    """Return the tables of all columns that have any, concatenated."""
    parts = [tables[c.name][:, :-1].ravel() for c in columns if c.name in tables]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def apart(numbers: np.ndarray, columns: Sequence[Column], priors: Mapping) -> dict[str, np.ndarray]:
    """Invert `flat`; `numbers` may end in zeros."""
    result, done = {}, 0
    for column in (c for c in columns if learns_base(c, priors)) if len(numbers) else ():
        shape = column.contexts, len(column.levels)
        part = numbers[done : done + shape[0] * shape[1]].astype(np.int64).reshape(shape)
        result[column.name] = np.append(part, np.zeros((shape[0], 1), np.int64), axis=1)
        done += part.size
    return result


# --- evidence of links ------------------------------------------------------------------------------------------------


class Integrated:
    """Log weights of links in a draw of the forest, with bases integrated out by tables.

    kind, multiplier (D,): the columns without links. parents: names of all columns that may be parents, in the order of
    their numbers. present: current links, child name to the parent's name and the base.
    """

    def __init__(
        self, kind: Categorical, multiplier: np.ndarray, fixed: Sequence[bool], parents: Sequence[str],
        present: Mapping[str, tuple[str, np.ndarray]], key: Mapping[str, int],
    ):  # fmt: skip
        self.kind, self.multiplier, self.fixed, self.parents = kind, multiplier, fixed, parents
        self._present, self._key = present, key

    def log_weight(self, child: int, parent: int, counts: np.ndarray) -> float:
        """Log weight of a link. counts (U, V + 1, K): the child's cells by context, level and cluster."""
        phi, m, width = self._phi(child), self.multiplier[child], counts.shape[1]
        tables, base = self._drawn(child, parent, counts)
        offsets = np.arange(len(counts) + 1, dtype=np.int64) * width
        levels = counts.reshape(-1, counts.shape[2])
        marginal = updates.log_marginals(levels, m * base.ravel(), offsets, 0, len(counts))[0].sum()
        if self.fixed[child]:
            return float(marginal)
        score = log_by_concentration(tables, phi)
        proposed = (tables[:, :-1] * np.log(base[:, :-1] / (width - 1))).sum()
        return float(marginal + np.logaddexp.reduce(score) - np.log(len(score)) - proposed)

    def tables(self, child: int, parent: int, counts: np.ndarray) -> np.ndarray:
        """Return the tables behind a link's weight."""
        return self._drawn(child, parent, counts)[0]

    def _phi(self, child: int) -> np.ndarray:
        return self.kind.base[self.kind.offsets[child] : self.kind.offsets[child + 1]]

    def _drawn(self, child: int, parent: int, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return a link's tables and the base that proposes them, a function of counts and keyed random numbers
        alone."""
        phi, m = self._phi(child), self.multiplier[child]
        base = np.tile(phi, (len(counts), 1))
        if self.fixed[child]:
            return np.zeros(base.shape, np.int64), base
        link = 4 * (child * len(self.parents) + parent)
        tables = (counts > 0).sum(axis=2)  # lower bound: one table per nonempty cell
        for step in range(2):
            tables[:, -1] = 0
            concentration = CONCENTRATIONS.points[log_by_concentration(tables, phi).argmax()]
            base = mean_given(tables, phi, concentration)
            stream = Stream(purpose=Purpose.LINK_TABLES, sub=link + step, **self._key)
            tables = tables_given(counts, m * base, stream)
        name, present = self._present.get(self.kind.columns[child].name, ("", base))
        if name == self.parents[parent]:
            tables = tables_given(counts, m * present, Stream(purpose=Purpose.LINK_TABLES, sub=link + 2, **self._key))
        return tables, base
