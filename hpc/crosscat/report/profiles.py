"""Profiles of clusters: divergence of a column's distribution in each cluster from that in all rows (Kullback-Leibler,
nats). Plain functions of arrays; nothing is read or printed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mpibayes.hpc.components.block import unpack
from mpibayes.hpc.components.line import Line
from mpibayes.hpc.components.multinormal import Multinormal
from mpibayes.hpc.components.product import Components, Prior
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.report.telling import likeness
from mpibayes.io.order import order_of
from mpibayes.io.rows import Column
from mpibayes.io.spells import life_table

CLOSE = 0.9999  # correlations are clipped to this when compared


@dataclass
class Numbers:
    """Observed cells of a real or count column in K clusters: counts (V, K) in the intervals between its `cuts`, mean
    and scatter (sum of squares about the mean) (K,), 0 without cells."""

    counts: np.ndarray
    mean: np.ndarray
    scatter: np.ndarray


@dataclass
class ColumnProfile:
    """One column in the K' clusters shown, against all rows.

    divergence (K',) nats: Kullback-Leibler divergence of the cluster's predictive from that of all clusters together;
    missing_divergence: the part due to the share of missing cells. information: the shown clusters' share of the mutual
    information between column and cluster. alike (K', K'): see `telling.likeness`. Categorical columns have `levels`,
    `p` (V, K') and `overall` (V,); other columns `mean`, `sd` (K',) of the observed cells and `overall` (mean, sd).
    """

    name: str
    title: str  # for people; a column with atoms has two profiles: one of its atoms, one of the rest
    kind: str
    divergence: np.ndarray
    missing_divergence: np.ndarray
    missing: np.ndarray
    missing_overall: float
    information: float
    alike: np.ndarray
    overall: np.ndarray
    levels: tuple[str, ...] = ()
    p: np.ndarray | None = None
    mean: np.ndarray | None = None
    sd: np.ndarray | None = None
    log: bool = False  # mean and sd are of logarithms
    unit: str = ""  # of dates
    step: float = 0.0  # in which numbers were recorded; 0: exactly
    order: tuple[int, ...] = ()  # of ordered levels, from the least (`io.order`)
    ends: tuple[float, ...] = ()  # of the parts of a survival column's time axis, which are its levels
    share: np.ndarray | None = None  # (K',) of the rows that are at no atom of the column, whose mean is given


def profiles(
    components: Components, prior: Prior, s: Statistics, shown: np.ndarray, numbers: Mapping[str, Numbers]
) -> list[ColumnProfile]:
    """Return every column's profile in the clusters `shown` (indices into `s`), in the order of the blocks.

    Categorical columns: the cluster's posterior predictive, against the mixture of the clusters' predictives weighted
    by their shares. Real and count columns: shares of the intervals in `numbers`, with one pseudo-row distributed like
    all rows, less the bias of small samples, about (intervals - 1) / 2n; not the component's predictive, whose width in
    a cluster of equal values depends on the cluster's size and not on its rows. The size-weighted mean of a column's
    divergences is the mutual information of column and cluster, and a divergence is at most -log(share of the cluster).
    Survival columns: shares of the parts of the time axis, by the actuarial estimate, in order.
    """
    return list(each_profile(components, prior, s, shown, numbers))


def each_profile(
    components: Components, prior: Prior, s: Statistics, shown: np.ndarray, numbers: Mapping[str, Numbers],
    compared: bool = True,
) -> Iterator[ColumnProfile]:  # fmt: skip
    """Yield the profiles of `profiles` one by one. compared: True to compute `alike`; else it is (0, 0)."""
    size = s.size.astype(np.float64)
    for c, column in enumerate(components.categorical.columns):
        rows = slice(prior.offsets[c], prior.offsets[c + 1] - 1)
        counts = s.levels[rows] + prior.dirichlet[rows, None]
        p = counts / counts.sum(axis=0)
        observed = size - s.levels[prior.offsets[c + 1] - 1]
        overall = _mix(p, observed)
        inner = _divergence(p[:, shown], overall)
        words = {"levels": column.levels, "p": p[:, shown], "order": order_of(column)}
        yield _column(column, size, observed, shown, inner, overall, p, compared, **words)
    for column in components.survival.columns:
        given = numbers[column.name].counts
        n = given.sum(axis=0)
        p = life_table(given + (given.sum(axis=1) / max(n.sum(), 1))[:, None])[: len(column.ends) + 1]
        overall = _mix(p, n)
        bias = len(column.ends) / (2.0 * np.maximum(n, 1))
        inner = np.maximum(_divergence(p, overall) - bias, 0.0)[shown]
        words = {"levels": parts_in_words(column), "p": p[:, shown], "order": tuple(range(len(p))), "ends": column.ends}
        yield _column(column, size, n, shown, inner, overall, p, compared, **words)
    kinds = sorted(components.kinds, key=lambda kind: kind.exact)  # reals, then counts
    single = {column.name: column for kind in kinds if kind.name != "survival" for column in kind.columns}
    for column in (column for column in single.values() if not column.levels):
        given = numbers[column.name]
        n = given.counts.sum(axis=0)
        share = given.counts.sum(axis=1) / max(n.sum(), 1)
        p = (given.counts + share[:, None]) / (n + 1)
        width = np.exp(-(share * np.log(np.where(share > 0, share, 1.0))).sum())  # effective number of intervals
        bias = (width - 1.0) / (2.0 * np.maximum(n, 1))
        inner = np.maximum(_divergence(p, _mix(p, n)) - bias, 0.0)[shown]
        centre = (n * given.mean).sum() / max(n.sum(), 1)
        sd = np.sqrt((given.scatter + n * (given.mean - centre) ** 2).sum() / max(n.sum(), 1))
        spread = np.sqrt(given.scatter / np.maximum(n, 1))
        mean = np.where(n > 0, given.mean, np.nan)[shown]
        overall = np.array([centre, sd])
        words = {"mean": mean, "sd": spread[shown], "log": column.log, "unit": column.unit, "step": column.resolution}
        yield _column(column, size, n, shown, inner, overall, p, compared, **words)


@dataclass
class BlockProfile:
    """A block of D columns in the K' clusters shown: number of rows with the block (K',), their means (K', D) and
    correlations (K', D, D), and those of all rows, (D,) and (D, D). NaN where rows are too few."""

    name: str
    columns: tuple[str, ...]
    rows: np.ndarray
    mean: np.ndarray
    correlation: np.ndarray
    overall_mean: np.ndarray
    overall: np.ndarray


def block_profiles(components: Components, s: Statistics, shown: np.ndarray) -> list[BlockProfile]:
    """Return profiles of the blocks of jointly modelled columns, in the clusters `shown` (indices into `s`)."""
    made = []
    for block, n, mean, scatter in components.multinormal.parts(s.of(Multinormal)):
        if isinstance(block, Line):
            continue
        matrix = unpack(scatter)
        share = n / max(n.sum(), 1)
        centre = mean @ share
        off = (mean - centre[:, None]).T
        whole = matrix.sum(axis=0) + (n[:, None, None] * off[:, :, None] * off[:, None, :]).sum(axis=0)
        means = np.where(n > 0, mean, np.nan).T[shown]
        correlations = _correlation(matrix[shown])
        made.append(BlockProfile(block.name, block.columns, n[shown], means, correlations, centre, _correlation(whole)))
    return made


def _correlation(scatter: np.ndarray) -> np.ndarray:
    deviation = np.sqrt(np.diagonal(scatter, axis1=-2, axis2=-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return scatter / (deviation[..., :, None] * deviation[..., None, :])


def correlated(block: BlockProfile, k: int, most: int = 3) -> list[tuple[str, str, float, float]]:
    """Return the most distinctive correlations in cluster k (of those shown): (a, b, there, in all rows).

    First those farthest from all rows' on Fisher's scale, if the cluster has enough rows to distinguish them.
    """
    i, j = np.tril_indices(len(block.columns), -1)
    here, everywhere = block.correlation[k][i, j], block.overall[i, j]
    n = float(block.rows[k])
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.arctanh(np.clip(here, -CLOSE, CLOSE)) - np.arctanh(np.clip(everywhere, -CLOSE, CLOSE)))
    telling = np.flatnonzero(np.isfinite(apart) & (apart > 3.0 / np.sqrt(max(n - 3.0, 1e-9))) & (apart > 0.1))
    order = telling[np.argsort(-apart[telling], kind="stable")][:most]
    return [(block.columns[j[p]], block.columns[i[p]], float(here[p]), float(everywhere[p])) for p in order]


def parts_in_words(column: Column) -> tuple[str, ...]:
    """Describe the parts of a survival column's time axis: up to 100, 100 to 200, after 200."""
    ends = [f"{end:,.6g}" for end in column.ends]
    between = [f"{a} to {b}" for a, b in pairwise(ends)]
    return (f"up to {ends[0]}", *between, f"after {ends[-1]}") if ends else ("any time",)


def _mix(p: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the mixture of the columns of `p` (V, K); with equal weights if all weights are 0."""
    weight = weight if weight.sum() > 0 else np.ones_like(weight)
    return p @ (weight / weight.sum())


def _divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return sum p log(p / q) for each column of `p` (V, K'); q (V,) is positive where p is."""
    ratio = np.divide(p, q[:, None], out=np.ones_like(p), where=p > 0)
    return np.maximum((p * np.log(ratio)).sum(axis=0), 0.0)


def _column(column, size, observed, shown, inner, overall, values, compared, **more) -> ColumnProfile:
    """Make a profile from the observed cells' distribution, values (V, K), and the missing cells: the divergence of
    (missing or not, then the value) is the sum of its two parts."""
    n_missing = np.maximum(size - observed, 0.0)
    n_missing[n_missing < 1e-6] = 0.0  # rounding, in averages over draws
    missing = (n_missing / size)[shown]
    everywhere = n_missing.sum() / size.sum()
    part, lacks = np.zeros(len(shown)), np.zeros(len(size))
    if column.atoms:  # the column's other profile covers cells missing here: atoms, and missing ones
        n_missing, everywhere = np.zeros(len(size)), 0.0
    if 0 < everywhere < 1:
        # one cell like the whole column: a small cluster says little, and nothing where it is like most rows
        m = (n_missing + everywhere) / (size + 1.0)
        all_m = (m * size).sum() / size.sum()
        lacks, m = m, m[shown]
        part = m * np.log(m / all_m) + (1.0 - m) * np.log((1.0 - m) / (1.0 - all_m))
    divergence = part + (1.0 - missing) * inner
    information = float((size[shown] / size.sum() * divergence).sum())
    title = column.part_of or column.name
    if column.atoms:
        more["share"] = None if column.levels else 1.0 - missing
        missing = np.zeros(len(shown))
    alike = np.zeros((0, 0))
    if compared:
        cells = np.vstack([values * (1.0 - lacks), lacks])
        alike = likeness(cells[:, shown], size[shown], _mix(cells, size))
    return ColumnProfile(
        column.name, title, column.kind, divergence, part, missing, float(everywhere), information, alike, overall,
        **more,
    )  # fmt: skip
