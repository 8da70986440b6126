"""Blocks of real columns with a full covariance in each cluster: normal-inverse-Wishart prior (docs/math.md 1.6).

A block of D columns has the hyperparameters (kappa, nu, variance), a row of a (B, 3) array, each fixed or learned on a
grid, one after another given the others. The prior's matrix is S_0 = nu variance diag(scale^2), scale being the
columns' own standard deviations, and its location the columns' own means unless it was given. With D = 1 this is the
normal column of the same kappa and nu, its variance in units of scale^2. A column that leans on another in a line
(line.py) is a block of two, whose first column is given.

A cluster's scatter matrices are packed lower triangles by rows, (0,0), (1,0), (1,1), ...: the pairs of columns of all
blocks are the rows of one array (pairs, K).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mpibayes.hpc.components import normal
from mpibayes.hpc.components.component import Array
from mpibayes.hpc.components.grid import as_grid, draw_on_grid
from mpibayes.hpc.components.line import Line
from mpibayes.hpc.parallel.streams import Stream, generator
from mpibayes.io.recording import log_cells
from mpibayes.io.rows import Column, Rows
from mpibayes.kernels.common.functions import gammaln

KAPPA, NU, VARIANCE = range(3)
NAMES = ("kappa", "nu", "variance")
START = (normal.START[normal.KAPPA], normal.START[normal.NU], normal.START[normal.VARIANCE])  # nu: above D - 1


def n_pairs(width):
    """Entries of a packed triangle."""
    return width * (width + 1) // 2


def unpack(pairs: np.ndarray) -> np.ndarray:
    """Symmetric matrices (..., K, D, D) of packed triangles (..., pairs, K)."""
    width = int((2 * pairs.shape[-2]) ** 0.5)
    i, j = np.tril_indices(width)
    out = np.empty((*pairs.shape[:-2], pairs.shape[-1], width, width))
    out[..., i, j] = out[..., j, i] = np.moveaxis(pairs, -2, -1)
    return out


ROUNDING = 1e-14  # share of a variance that may be left of it by rounding alone


def cholesky(matrix: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Lower triangles L with L L' = matrix (..., D, D), where no pivot can be less than `least` (..., D).

    S_n exceeds the diagonal S_0, so that none of its pivots is below that of S_0. Rounding can say otherwise, where
    columns repeat each other and the prior is narrow: such a pivot is put right, and what stands below it, which is
    rounding too, is left out. As in kernels/mixture/vectors_tail.h; matrix by matrix, whatever the others are.
    """
    rest, lower = matrix.copy(), np.zeros_like(matrix)
    for i in range(matrix.shape[-1]):
        sound = rest[..., i, i] > least[..., i]
        pivot = np.sqrt(np.where(sound, rest[..., i, i], least[..., i]))
        column = np.where(sound[..., None], rest[..., i + 1 :, i] / pivot[..., None], 0.0)
        lower[..., i, i], lower[..., i + 1 :, i] = pivot, column
        rest[..., i + 1 :, i + 1 :] -= column[..., :, None] * column[..., None, :]
    return lower


@dataclass
class Posterior:
    """Posterior of K clusters: location (K, D), kappa and nu (K,), and the lower triangle L of S_n = L L' (K, D, D)."""

    location: np.ndarray
    kappa: np.ndarray
    nu: np.ndarray
    lower: np.ndarray


@dataclass
class Predictive:
    """Multivariate t of the next row in K clusters: location (K, D), matrix (K, D, D) = nu times the scale matrix, nu
    (K,) degrees of freedom. `seen` and `lacking` are columns, x (n, len(seen)) the cells of rows that lack the others.
    """

    location: np.ndarray
    matrix: np.ndarray
    nu: np.ndarray

    def log_density(self, x: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """Log density of the cells that are there, (n, K)."""
        d = len(seen)
        norm, log_determinant, _ = self._norm(x, seen)
        constant = gammaln(0.5 * (self.nu + d)) - gammaln(0.5 * self.nu) - 0.5 * (d * np.log(np.pi) + log_determinant)
        return constant - 0.5 * (self.nu + d) * np.log1p(norm)

    def conditional(self, x: np.ndarray, seen: np.ndarray, lacking: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the lacking cells given the others, (n, K, len(lacking)) each."""
        norm, mean, cross, slope = self._given(x, seen, lacking)
        rest = self.matrix[:, lacking, lacking] - (cross * slope).sum(axis=1)
        nu = self.nu + len(seen)
        # a t with nu <= 2 has no variance: it then counts with that of nu = 3
        widen = np.where(nu > 2.0, nu / np.where(nu > 2.0, nu - 2.0, 1.0), 3.0)
        return mean, (widen / nu * (1.0 + norm))[:, :, None] * np.maximum(rest, 0.0)

    def single(self, x: np.ndarray, seen: np.ndarray, member: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The t distribution of one column given others: location and scale (n, K), degrees of freedom (K,)."""
        nu = self.nu + len(seen)
        if not len(seen):
            shape, matrix = (len(x), len(nu)), self.matrix[:, member, member]
            return np.broadcast_to(self.location[:, member], shape), np.broadcast_to(np.sqrt(matrix / nu), shape), nu
        norm, mean, cross, slope = self._given(x, seen, np.array([member]))
        rest = np.maximum(self.matrix[:, member, member] - (cross * slope).sum(axis=1)[:, 0], 0.0)
        return mean[:, :, 0], np.sqrt((1.0 + norm) * rest / nu), nu

    def draw(self, x: np.ndarray, seen: np.ndarray, lacking: np.ndarray, z: np.ndarray, log_gammas) -> np.ndarray:
        """The lacking cells given the others, of the only cluster, (n, len(lacking)): from standard normal z of that
        form and log_gammas(shape), logarithms of n Gamma(shape, 1) draws.

        A t with nu + len(seen) degrees of freedom, and (1 + norm) / them times the rest of the matrix as its scale; of
        a normal, whose nu is infinite, the matrix is the covariance.
        """
        norm, mean, cross, slope = self._given(x, seen, lacking)
        matrix = self.matrix[0][np.ix_(lacking, lacking)]
        lower = cholesky(matrix - cross[0].T @ slope[0], ROUNDING * np.diagonal(matrix))
        wide = np.ones(len(z))  # of a normal
        if np.isfinite(self.nu[0]):
            half = np.exp(log_gammas(0.5 * (self.nu[0] + len(seen))))  # of a chi-square
            wide = np.sqrt(0.5 * (1.0 + norm[:, 0]) / half)
        return mean[:, 0] + wide[:, None] * (z[:, None, :] * lower).sum(axis=-1)  # BLAS would look at the other rows

    def _given(self, x, seen, lacking):
        """`_norm`, the location (n, K, len(lacking)) given the cells seen, and the matrices it comes from."""
        norm, _, off = self._norm(x, seen)
        cross = self.matrix[:, seen[:, None], lacking]
        slope = np.linalg.solve(self.matrix[:, seen[:, None], seen], cross)
        mean = self.location[:, lacking] + np.einsum("nkd,kdm->nkm", off, slope)
        return norm, mean, cross, slope

    def _norm(self, x, seen):
        """(x - m)' matrix^-1 (x - m) (n, K), the log determinant of the matrix (K,), and x - m (n, K, len(seen))."""
        matrix = self.matrix[:, seen[:, None], seen]
        off = x[:, None, :] - self.location[:, seen]
        lower = np.linalg.cholesky(matrix)
        inverse = np.linalg.solve(lower, np.broadcast_to(np.eye(len(seen)), lower.shape))
        norm = (np.einsum("kij,nkj->nki", inverse, off) ** 2).sum(axis=-1)
        return norm, 2.0 * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1), off


def default_grids(width: int) -> dict[str, np.ndarray]:
    """Grids on which the hyperparameters of a block of so many columns are learned by default."""
    return dict(zip(NAMES, (normal.KAPPA_GRID, width - 1 + normal.NU_GRID, normal.VARIANCE_GRID)))


class Block:
    """One block. name; names of its columns; center, scale (D,): each column's own; prior: {"kappa": number or grid,
    "nu": ..., "variance": ..., "mean": (D,)}, or what of it is given."""

    def __init__(self, name: str, columns: Sequence[str], center, scale, prior=None):
        prior = {key: value for key, value in (prior or {}).items() if value is not None}
        self.name, self.columns = name, tuple(columns)
        self.width = d = len(self.columns)
        self.mean = np.asarray(prior.get("mean", center), np.float64)
        self.square = np.asarray(scale, np.float64) ** 2
        aims = (START[KAPPA], d - 1 + START[NU], START[VARIANCE])
        self.grids = [as_grid(prior[key]) if key in prior else g for key, g in default_grids(d).items()]
        self.start = [g[np.argmin(np.abs(g - a))] for g, a in zip(self.grids, aims)]

    def spread(self, wishart: np.ndarray) -> np.ndarray:
        """Diagonal of S_0, (..., D), of wishart (..., 3)."""
        return (wishart[..., NU] * wishart[..., VARIANCE])[..., None] * self.square

    def posterior(self, wishart: np.ndarray, n, mean, scatter) -> Posterior:
        """wishart (..., 3); n (K,), mean (D, K), scatter (pairs, K) of K clusters."""
        kappa0, nu0 = wishart[..., KAPPA, None], wishart[..., NU, None]
        kappa, nu = kappa0 + n, nu0 + n
        off = np.where(n > 0, mean - self.mean[:, None], 0.0).T
        location = self.mean + off * (n / kappa)[..., None]
        weight = (n * kappa0 / kappa)[..., None, None]
        matrix = unpack(scatter) + weight * (off[:, :, None] * off[:, None, :])
        spread = self.spread(wishart)[..., None, :]
        diagonal = np.arange(self.width)
        matrix[..., diagonal, diagonal] += spread
        return Posterior(location, kappa, nu, cholesky(matrix, np.broadcast_to(spread, matrix.shape[:-1])))

    def predictive(self, wishart: np.ndarray, n, mean, scatter) -> Predictive:
        """Predictive law of the next row in each cluster, and last in a new one."""
        blank = (np.append(a, np.zeros((*a.shape[:-1], 1), a.dtype), axis=-1) for a in (n, mean, scatter))
        p = self.posterior(wishart, *blank)
        matrix = (p.lower @ p.lower.swapaxes(-1, -2)) * ((p.kappa + 1.0) / p.kappa)[:, None, None]
        return Predictive(p.location, matrix, p.nu - self.width + 1.0)

    def side_odds(self, wishart: np.ndarray, n, mean, scatter) -> np.ndarray:
        """Coefficients for K / 2 pairs of clusters, as kernels/mixture/vector_odds.h reads them, (K / 2, 1 + 2 (D +
        pairs))."""
        p = self.posterior(wishart, n, mean, scatter)
        widen = np.sqrt((p.kappa + 1.0) / (p.kappa * (p.nu - self.width + 1.0)))
        lower = p.lower * widen[:, None, None]
        factor = np.linalg.solve(lower, np.broadcast_to(np.eye(self.width), lower.shape))
        log_diagonal = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
        i, j = np.tril_indices(self.width)
        sides = np.concatenate([p.location, factor[:, i, j]], axis=1)
        level = (log_diagonal[1::2] - log_diagonal[0::2])[:, None]
        return np.concatenate([level, sides[1::2], sides[0::2]], axis=1)

    def log_marginal_cells(self, wishart: np.ndarray, n, mean, scatter) -> np.ndarray:
        """Log marginal likelihood of each cluster, (..., K)."""
        d, post = self.width, self.posterior(wishart, n, mean, scatter)
        kappa0, nu0 = wishart[..., KAPPA, None], wishart[..., NU, None]
        log_determinant = 2.0 * np.log(np.diagonal(post.lower, axis1=-2, axis2=-1)).sum(axis=-1)
        return (
            log_multigamma(0.5 * post.nu, d)
            - log_multigamma(0.5 * nu0, d)
            + 0.5 * d * np.log(kappa0 / post.kappa)
            + 0.5 * nu0 * np.log(self.spread(wishart)).sum(axis=-1)[..., None]
            - 0.5 * post.nu * log_determinant
            - 0.5 * n * d * np.log(np.pi)
        )

    def update(self, wishart: np.ndarray, n, mean, scatter, stream: np.random.Generator) -> np.ndarray:
        """(kappa, nu, variance) drawn from their grids given the partition, coordinate by coordinate, (3,)."""
        wishart = wishart.copy()
        for i, grid in enumerate(self.grids):
            if len(grid) > 1:
                score = np.empty(len(grid))
                for point, value in enumerate(grid):  # one at a time: each takes K matrices
                    wishart[i] = value
                    score[point] = self.log_marginal_cells(wishart, n, mean, scatter).sum()
                wishart[i] = grid[draw_on_grid(score, stream)]
        return wishart

    def draw(self, wishart: np.ndarray, n, mean, scatter, stream: np.random.Generator):
        """location (D, K), factor (pairs, K) and constant (K,): log density = constant - 1/2 |U (x - location)|^2.

        With S_n = L L', the precision U' U is Wishart(nu_n, S_n^-1) for U = R' L^-1, R the upper triangle of normal
        deviates whose squared diagonal entry i = 1..D is chi-square with nu_n - D + i degrees of freedom (Bartlett
        1933, columns counted from the last): U is lower triangular. mu = m_n + U^-1 z / sqrt(kappa_n).
        """
        d, k, post = self.width, len(n), self.posterior(wishart, n, mean, scatter)
        degrees = post.nu[:, None] - d + 1.0 + np.arange(d)
        rotated = np.zeros((k, d, d))
        rotated[:, *np.tril_indices(d, -1)] = stream.standard_normal((k, n_pairs(d) - d))
        rotated[:, np.arange(d), np.arange(d)] = np.sqrt(2.0 * stream.standard_gamma(0.5 * degrees))
        inverse = np.linalg.solve(post.lower, np.broadcast_to(np.eye(d), post.lower.shape))
        factor = np.tril(rotated @ inverse)
        z = stream.standard_normal((k, d, 1)) / np.sqrt(post.kappa)[:, None, None]
        location = post.location + np.linalg.solve(factor, z)[..., 0]
        log_diagonal = np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)
        i, j = np.tril_indices(d)
        return location.T, factor[:, i, j].T, log_diagonal - 0.5 * d * np.log(2.0 * np.pi)


def log_multigamma(a: np.ndarray, d: int) -> np.ndarray:
    """Logarithm of the multivariate gamma function of each of a."""
    return gammaln(a[..., None] - 0.5 * np.arange(d)).sum(axis=-1) + 0.25 * d * (d - 1) * np.log(np.pi)


def _pairs(widths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two columns of every pair, counted through all blocks."""
    first, i, j = 0, [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
    for width in widths:
        rows, columns = np.tril_indices(width)
        i.append(first + rows)
        j.append(first + columns)
        first += width
    return np.concatenate(i), np.concatenate(j)


class Students:
    """See `Law`: a multivariate t for each block."""

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
    """All blocks of a view, in order, and behind them the columns that lean on others in a line: a block counts as one
    column; its columns, and its pairs of columns, lie side by side. joint: {"columns": names, "prior": what is given}
    by the name of each block, in the order of the rows' `vectors`, where their columns lie (data.in_blocks).

    Statistics are n (B, K), the rows in which a block is there, mean (columns of all blocks, K), and scatter (their
    pairs of columns, K), sums of products about the means.
    """

    name, hyper, hyper_form = "multinormal", "wishart", (3,)
    hyper_names = ("kappa", "nu", "variance")
    stored = ("vectors",)
    prior_forms = ()  # a block has a prior, under its own name
    statistics = Array("vector_n", dtype=np.int64), Array("vector_mean", "coordinate"), Array("vector_scatter", "pair")
    parameters = Array("vector_location", "coordinate"), Array("vector_factor", "pair"), Array("vector_constant")
    odds = "vector", np.float64
    exact, measured = False, True
    substreams = range(4, 2**31)  # one a block; below 2^32, where the attempts of a draw are counted

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
        self.own = np.concatenate([np.zeros(0, bool), *own])  # coordinates that are not given
        self.odds_form = (int((1 + 2 * (widths + n_pairs(widths))).sum()),)

    def __len__(self) -> int:
        return len(self.blocks)

    def members(self, column: int) -> tuple[Column, ...]:
        return tuple(self._by_name[name] for name in self.blocks[column].columns)

    def start(self) -> np.ndarray:
        """Initial hyperparameters, (B, 3)."""
        return np.array([b.start for b in self.blocks]).reshape(-1, 3)

    def prior(self, wishart: np.ndarray) -> dict[str, np.ndarray]:
        """Prior with the locations and the diagonals of S_0 of all blocks, side by side."""
        none = np.zeros(0)
        mean = np.concatenate([none, *(b.mean for b in self.blocks)])
        spread = np.concatenate([none, *(b.spread(h) for b, h in zip(self.blocks, wishart))])
        of = {"widths": self.widths, "wishart": wishart, "vector_mean": mean, "vector_spread": spread}
        return of | {"given": self.given}

    def log_base(self, rows: Rows) -> float:
        return float(log_cells(self.columns, rows).sum())

    def merge(self, a: tuple, b: tuple) -> tuple[np.ndarray, ...]:
        """As `normal.merge_moments`, block by block."""
        (n_a, mean_a, scatter_a), (n_b, mean_b, scatter_b) = a, b
        of_column, of_pair = (np.repeat(np.arange(len(self)), n) for n in (self.widths, n_pairs(self.widths)))
        i, j = _pairs(self.widths)
        n = n_a + n_b
        share = n_b / np.maximum(n, 1)
        step = np.where((n_b > 0)[of_column], mean_b - mean_a, 0.0)
        scatter = scatter_a + (scatter_b + step[i] * step[j] * (n_a * share)[of_pair])
        return n, mean_a + step * share[of_column], scatter

    def parts(self, s: tuple) -> Iterator[tuple[Block | Line, np.ndarray, np.ndarray, np.ndarray]]:
        """(block, n (K,), mean (D, K), scatter (pairs, K)) of each block."""
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
        """Block by block, see `Block.side_odds`."""
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
        """Hyperparameters coordinate by coordinate; a block has a stream of its own."""
        parts = list(enumerate(zip(wishart, self.parts(s))))[columns]
        return np.array([b.update(h, *m, self._own(stream, i)) for i, (h, (b, *m)) in parts]).reshape(-1, 3)

    def draw(self, wishart: np.ndarray, s: tuple, columns: slice, stream: Stream) -> tuple[np.ndarray, ...]:
        """location (columns of these blocks, K), factor (their pairs, K), constant (blocks, K); see `Block.draw`."""
        n_clusters, parts = s[0].shape[-1], list(enumerate(zip(wishart, self.parts(s))))[columns]
        drawn = [b.draw(h, *m, self._own(stream, i)) for i, (h, (b, *m)) in parts]
        none = np.zeros((0, n_clusters))
        location, factor, constant = zip(*drawn) if drawn else ((), (), ())
        constant = np.array(constant).reshape(len(drawn), n_clusters)
        return np.concatenate([none, *location]), np.concatenate([none, *factor]), constant

    def _own(self, stream: Stream, block: int) -> np.random.Generator:
        return generator(**vars(stream.at(self.substreams[block])))
