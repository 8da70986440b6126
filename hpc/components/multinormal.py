"""Blocks of real columns with a full covariance in each cluster, and columns that depend on another in a line.

A block's hyperparameters (`block.py`) are a row of a (B, 3) array. A column with a parent (`line.py`) is a block of
two, whose first column is given. The pairs of columns of all blocks are the rows of one array (pairs, K).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from mpibayes.hpc.components import normal
from mpibayes.hpc.components.block import Block, n_pairs
from mpibayes.hpc.components.component import Array
from mpibayes.hpc.components.line import Line, drawn
from mpibayes.hpc.components.predictive import Predictive
from mpibayes.hpc.parallel.streams import Stream, generator
from mpibayes.io.recording import log_cells
from mpibayes.io.rows import Column, Rows


def _pairs(widths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two columns of every pair, numbered through all blocks."""
    first, i, j = 0, [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
    for width in widths:
        rows, columns = np.tril_indices(width)
        i.append(first + rows)
        j.append(first + columns)
        first += width
    return np.concatenate(i), np.concatenate(j)


class Students:
    """Law of blocks (see `Law`): a multivariate t for each."""

    def __init__(self, kind: Multinormal, wishart: np.ndarray, s: tuple):
        self._kind, self._wishart, self._s = kind, wishart, s

    @cached_property
    def blocks(self) -> list[Predictive]:
        each = zip(self._wishart, self._kind.parts(self._s))
        return [block.predictive(h, *m) for h, (block, *m) in each if isinstance(block, Block)]

    @property
    def n_bytes(self) -> int:
        return sum(2 * block.matrix.nbytes for block in self.blocks)

    def log_density(self, column: int, x, seen) -> np.ndarray:
        return self.blocks[column].log_density(x, seen)

    def averages(self, column: int, x, seen, lacking, weight) -> list[np.ndarray]:
        mean, variance = self.blocks[column].conditional(x, seen, lacking)
        members, result = self._kind.members(column), []
        for i, member in enumerate(lacking):
            shift = mean[:, :, i] - members[member].center
            second = variance[:, :, i] + shift**2
            result.append(np.column_stack([(weight * shift).sum(axis=1), (weight * second).sum(axis=1)]))
        return result

    def draw(self, column: int, x, seen, lacking, clusters, stream: Stream, ids) -> np.ndarray:
        p, out = self.blocks[column], np.empty((len(ids), len(lacking)))
        normals, gammas = (stream.at(Multinormal.substreams[i]) for i in (0, 1))
        first = self._kind.cuts["coordinate"][column]
        z = np.column_stack([normals.normals((first + member) << 32 | ids) for member in lacking])
        for k in np.unique(clusters):
            at = np.flatnonzero(clusters == k)
            of_k = Predictive(p.location[[k]], p.matrix[[k]], p.nu[[k]])

            def log_gammas(shape: float, named=column << 32 | ids[at]) -> np.ndarray:
                return gammas.log_gammas(np.full(len(named), shape), named)

            out[at] = of_k.draw(x[at], seen, lacking, z[at], log_gammas)
        return out


class Multinormal:
    """All blocks of a view, in order, followed by the columns that depend on others in a line. A block counts as one
    column; its columns, and its pairs of columns, are adjacent. joint: {"columns": names, "prior": given keys} by block
    name, in the order of the rows' `vectors`, which store their columns (data.in_blocks).

    Statistics are n (B, K), the rows in which a block is present, mean (columns of all blocks, K), and scatter (their
    pairs of columns, K), sums of products about the means.
    """

    name, hyper, hyper_form = "multinormal", "wishart", (3,)
    hyper_names = ("kappa", "nu", "variance")
    stored = ("vectors",)
    prior_forms = ()  # a block's prior is given under its own name
    statistics = Array("vector_n", dtype=np.int64), Array("vector_mean", "coordinate"), Array("vector_scatter", "pair")
    parameters = Array("vector_location", "coordinate"), Array("vector_factor", "pair"), Array("vector_constant")
    odds = "vector", np.float64
    exact, measured = False, True
    substreams = range(4, 2**31)  # one per block; below 2^32, where the attempts of a draw are numbered

    def __init__(self, columns: Sequence[Column], priors: Mapping, joint: Mapping):
        self.columns = tuple(columns)
        self._by_name = by_name = {c.name: c for c in columns}
        self.blocks: list[Block | Line] = []
        for name, block in joint.items():
            part = [by_name[c] for c in block["columns"]]
            centers, scales = [c.center for c in part], [c.scale for c in part]
            self.blocks.append(Block(name, block["columns"], centers, scales, block.get("prior")))
        self.lines = [Line(c, priors.get(c.name)) for c in columns if c.leans_on is not None]
        self.blocks += self.lines
        self.given = np.array([isinstance(b, Line) for b in self.blocks], np.int64)
        self.widths = widths = np.array([b.width for b in self.blocks], np.int64)
        each = {"column": np.ones_like(widths), "coordinate": widths, "pair": n_pairs(widths)}
        self.cuts = {axis: np.concatenate([[0], np.cumsum(n)]) for axis, n in each.items()}
        self.cost = 8.0 * widths + 0.2 * widths**3
        own = [np.arange(b.width) >= given for b, given in zip(self.blocks, self.given)]
        self.own = np.concatenate([np.zeros(0, bool), *own])  # mask of the coordinates that are not given
        self.odds_form = (int((1 + 2 * (widths + n_pairs(widths))).sum()),)

    def __len__(self) -> int:
        return len(self.blocks)

    def members(self, column: int) -> tuple[Column, ...]:
        return tuple(self._by_name[name] for name in self.blocks[column].columns)

    def start(self) -> np.ndarray:
        """Initial hyperparameters, (B, 3)."""
        return np.array([b.start for b in self.blocks]).reshape(-1, 3)

    def prior(self, wishart: np.ndarray) -> dict[str, np.ndarray]:
        """Prior with the locations and the diagonals of S_0 of all blocks, concatenated."""
        none = np.zeros(0)
        mean = np.concatenate([none, *(b.mean for b in self.blocks)])
        spread = np.concatenate([none, *(b.spread(h) for b, h in zip(self.blocks, wishart))])
        of = {"widths": self.widths, "wishart": wishart, "vector_mean": mean, "vector_spread": spread}
        return of | {"given": self.given}

    def log_base(self, rows: Rows) -> float:
        return float(log_cells(self.columns, rows).sum())

    @cached_property
    def _places(self) -> tuple[np.ndarray, ...]:
        """Block of each column and of each pair of columns, and the two columns of each pair."""
        blocks = np.arange(len(self))
        return np.repeat(blocks, self.widths), np.repeat(blocks, n_pairs(self.widths)), *_pairs(self.widths)

    def merge(self, a: tuple, b: tuple) -> tuple[np.ndarray, ...]:
        """Merge as `normal.merge_moments` does, block by block."""
        (n_a, mean_a, scatter_a), (n_b, mean_b, scatter_b) = a, b
        of_column, of_pair, i, j = self._places
        n = n_a + n_b
        share = n_b / np.maximum(n, 1)
        step = np.where((n_b > 0)[of_column], mean_b - mean_a, 0.0)
        scatter = scatter_a + (scatter_b + step[i] * step[j] * (n_a * share)[of_pair])
        return n, mean_a + step * share[of_column], scatter

    def parts(self, s: tuple) -> Iterator[tuple[Block | Line, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield (block, n (K,), mean (D, K), scatter (pairs, K)) for each block."""
        n, mean, scatter = s
        column, pair = self.cuts["coordinate"], self.cuts["pair"]
        for b, block in enumerate(self.blocks):
            yield block, n[b], mean[column[b] : column[b + 1]], scatter[pair[b] : pair[b + 1]]

    def log_marginal(self, wishart: np.ndarray, s: tuple, columns: slice) -> np.ndarray:
        parts = zip(wishart[columns], list(self.parts(s))[columns])
        return np.array([block.log_marginal_cells(h, *moments).sum() for h, (block, *moments) in parts])

    def log_marginal_at(self, wishart: np.ndarray, s: tuple, column: int, power: float) -> float:
        return float(self.log_marginal(wishart, normal.at_power(s, power), slice(column, column + 1)).sum())

    def draw_at(self, wishart: np.ndarray, s: tuple, column: int, power: float, stream: Stream):
        drawn = self.draw(wishart, normal.at_power(s, power), slice(column, column + 1), stream)
        return tuple(a * b for a, b in zip(drawn, (1.0, np.sqrt(power), power)))

    def log_marginal_clusters(self, wishart: np.ndarray, s: tuple) -> np.ndarray:
        total = np.zeros(s[0].shape[-1])
        for h, (block, *moments) in zip(wishart, self.parts(s)):
            total += block.log_marginal_cells(h, *moments)
        return total

    def cell_moments(self, s: tuple) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        n, mean, scatter = s
        i, j = _pairs(self.widths)
        return np.repeat(n, self.widths, axis=0)[self.own], mean[self.own], scatter[i == j][self.own]

    def side_odds(self, wishart: np.ndarray, s: tuple) -> np.ndarray:
        """Coefficients block by block, see `Block.side_odds`."""
        none = np.zeros((s[0].shape[-1] // 2, 0))
        parts = zip(wishart, self.parts(s))
        return np.concatenate([none, *(block.side_odds(h, *m) for h, (block, *m) in parts)], axis=1)

    def predictive(self, wishart: np.ndarray, s: tuple) -> Students:
        return Students(self, wishart, s)

    def drawn(self, wishart: np.ndarray, s: tuple, stream: Stream) -> Students:
        law = self.predictive(wishart, s)
        location, factor, _ = self.draw(wishart, s, slice(0, len(self)), stream)
        column, pair = self.cuts["coordinate"], self.cuts["pair"]
        for b, p in enumerate(law.blocks):
            i, j = np.tril_indices(self.blocks[b].width)
            root = np.zeros_like(p.matrix[:-1])
            root[:, i, j] = factor[pair[b] : pair[b + 1]].T
            inverse = np.linalg.inv(root)
            p.location[:-1] = location[column[b] : column[b + 1]].T
            p.matrix[:-1], p.nu[:-1] = inverse @ inverse.swapaxes(-1, -2), np.inf
        return law

    def update(self, wishart: np.ndarray, s: tuple, columns: slice, stream: Stream) -> np.ndarray:
        """Draw hyperparameters coordinate by coordinate; each block has its own stream."""
        parts = list(enumerate(zip(wishart, self.parts(s))))[columns]
        return np.array([b.update(h, *m, self._own(stream, i)) for i, (h, (b, *m)) in parts]).reshape(-1, 3)

    def draw(self, wishart: np.ndarray, s: tuple, columns: slice, stream: Stream) -> tuple[np.ndarray, ...]:
        """Draw location (columns of these blocks, K), factor (their pairs, K), constant (blocks, K); see
        `Block.draw`."""
        k, at, n_blocks = s[0].shape[-1], range(len(self))[columns], len(self) - len(self.lines)
        lines = range(max(at.start, n_blocks), at.stop)  # they come last
        each = [(np.zeros((0, k)), np.zeros((0, k)), np.zeros((0, k)))] if not at else []
        for i, (b, *m) in enumerate(self.parts(s)) if at.start < n_blocks else ():
            if i in at and i < n_blocks:
                location, factor, constant = b.draw(wishart[i], *m, self._own(stream, i))
                each.append((location, factor, constant[None]))
        if lines:
            of = slice(lines.start, lines.stop)
            axes = zip(("coordinate", "pair"), s[1:])
            mean, scatter = (a[slice(*self.cuts[axis][[of.start, of.stop]])] for axis, a in axes)
            streams = [self._own(stream, i) for i in lines]
            each.append(drawn(self.blocks[of], wishart[of], s[0][of], mean, scatter, streams))
        return each[0] if len(each) == 1 else tuple(map(np.concatenate, zip(*each)))

    def _own(self, stream: Stream, block: int) -> np.random.Generator:
        return generator(**vars(stream.at(self.substreams[block])))
