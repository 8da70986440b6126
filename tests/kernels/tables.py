"""Small random tables, priors and cluster parameters for the kernel tests."""

import itertools
from dataclasses import dataclass

import numpy as np

from mpibayes.kernels.mixture import twin, twin_cluster


@dataclass
class Rows:
    codes8: np.ndarray
    codes16: np.ndarray
    reals: np.ndarray
    tallies: np.ndarray
    vectors: np.ndarray = None
    widths: np.ndarray = ()
    spells: np.ndarray = None

    def __len__(self):
        return len(self.reals)

    def take(self, index):
        arrays = (self.codes8, self.codes16, self.reals, self.tallies, self.vectors, self.spells)
        *most, spells = (None if a is None else np.ascontiguousarray(a[index]) for a in arrays)
        return Rows(*most, self.widths, spells)


@dataclass
class Prior:
    offsets: np.ndarray
    dirichlet: np.ndarray
    normal: np.ndarray
    gamma: np.ndarray
    contexts: np.ndarray = None
    widths: np.ndarray = ()
    wishart: np.ndarray = None
    vector_mean: np.ndarray = None
    vector_spread: np.ndarray = None
    spell_gamma: np.ndarray = ()
    spell_width: np.ndarray = ()

    def __post_init__(self):
        self.contexts = np.ones(len(self.offsets) - 1, np.int64) if self.contexts is None else self.contexts


@dataclass
class Statistics:
    size: np.ndarray
    levels: np.ndarray
    real_n: np.ndarray
    real_mean: np.ndarray
    real_scatter: np.ndarray
    tally_n: np.ndarray
    tally_sum: np.ndarray
    vector_n: np.ndarray = None
    vector_mean: np.ndarray = None
    vector_scatter: np.ndarray = None
    spell_events: np.ndarray = None
    spell_ended: np.ndarray = None
    spell_time: np.ndarray = None


FIELDS = tuple(Statistics.__dataclass_fields__)


def random_table(
    rng,
    n,
    levels8=(),
    levels16=(),
    n_reals=0,
    n_tallies=0,
    missing=0.2,
    scale=3.0,
    same_nu=False,
    powers=False,
    blocks=(),
    even=False,
    large=False,
    contexts=(),
    n_spells=0,
):
    """(Rows, Prior): n rows from three well mixed groups, with a share `missing` of cells missing, and non-uniform
    Dirichlets, or with `even` equal pseudo-counts for all levels of a column; nu of normal columns is arbitrary, or 2
    in all with `same_nu`, or a power of two with `powers`. With `large` some counts are 1,023, the last with cached
    scores (special.h), some 1,024 and more, some 0. contexts: of each column of levels8 that depends on a parent."""
    group = rng.integers(3, size=n)

    def codes(levels, dtype):
        out = np.empty((n, len(levels)), dtype=dtype)
        for c, v in enumerate(levels):
            theta = rng.dirichlet(np.full(v, 0.7), size=3)
            drawn = np.array([rng.choice(v, p=theta[g]) for g in group], dtype=np.int64)
            out[:, c] = np.where(rng.random(n) < missing, v, drawn)
        return out

    reals = rng.normal(group[:, None] * scale, 1.0 + np.arange(n_reals), size=(n, n_reals))
    reals[rng.random(reals.shape) < missing] = np.nan
    rate = (1 + 10 * group[:, None]) * (1 + 4.0 * np.arange(n_tallies))
    tallies = rng.poisson(rate, size=(n, n_tallies)).astype(float)
    if large:
        tallies[::4], tallies[1::4] = 1023.0, 1024.0 + 200.0 * tallies[1::4]
        tallies[5::8], tallies[2::4] = 1024.0, 0.0
    tallies[rng.random(tallies.shape) < missing] = np.nan
    rows = Rows(codes(levels8, np.uint8), codes(levels16, np.uint16), reals, tallies)
    prior = random_prior(rng, (*levels8, *levels16), n_reals, n_tallies)
    link(rng, rows, prior, contexts)
    if blocks:
        add_blocks(rng, rows, prior, group, blocks, missing, scale)
    if n_spells:
        add_spells(rng, rows, prior, group, n_spells, missing)
    if even:
        for first, missing_row in zip(prior.offsets, prior.offsets[1:] - 1):
            prior.dirichlet[first:missing_row] = prior.dirichlet[first]
    if same_nu:
        prior.normal[:, 2] = 2.0
    if powers:
        prior.normal[:, 2] = 2.0 ** rng.integers(7, size=n_reals)
    return rows, prior


def link(rng, rows, prior, contexts):
    """Give the first columns of codes8 parents of so many contexts, drawn at random."""
    levels = np.diff(prior.offsets) - 1
    prior.contexts = np.ones(len(levels), np.int64)
    prior.contexts[: len(contexts)] = contexts
    for c, n in enumerate(contexts):
        code = rng.integers(n, size=len(rows)) * (levels[c] + 1) + rows.codes8[:, c]
        rows.codes8[:, c] = np.where(rows.codes8[:, c] == levels[c], n * (levels[c] + 1) - 1, code)
    columns = np.split(prior.dirichlet, prior.offsets[1:-1])
    prior.dirichlet = np.concatenate([np.tile(part, n) for part, n in zip(columns, prior.contexts)] or [np.zeros(0)])
    prior.offsets = np.concatenate([[0], np.cumsum(prior.contexts * (levels + 1))]).astype(np.int64)


def add_blocks(rng, rows, prior, group, widths, missing, scale):
    """Blocks of correlated columns, each whole or missing in a row, and a prior for them."""
    widths = rows.widths = prior.widths = np.array(widths, dtype=np.int64)
    rows.vectors = np.empty((len(group), widths.sum()))
    first = 0
    for width in widths:
        mix = rng.normal(size=(3, width, width)) + 2.0 * np.eye(width)
        x = np.einsum("nij,nj->ni", mix[group], rng.normal(size=(len(group), width))) + scale * group[:, None]
        x[rng.random(len(group)) < missing] = np.nan
        rows.vectors[:, first : first + width] = x
        first += width
    prior.wishart = np.column_stack(
        [rng.gamma(1.0, 0.3, len(widths)) + 0.01, widths + rng.gamma(2.0, 1.0, len(widths))]
    )
    prior.vector_mean = rng.normal(size=widths.sum())
    prior.vector_spread = rng.gamma(2.0, 1.0, widths.sum()) + 0.3


def add_spells(rng, rows, prior, group, n, missing):
    """Survival columns, with events early and late by group, and a prior for them."""
    part = np.minimum(rng.integers(4, size=(len(group), n)) + 2 * group[:, None], twin_cluster.SPELL_PARTS - 1)
    rows.spells = (part + 1.0) * 2.0**twin_cluster.SPELL_SHIFT + rng.integers(1000, size=part.shape)
    rows.spells[rng.random(part.shape) < 0.4] *= -1.0
    rows.spells[rng.random(part.shape) < missing] = np.nan
    prior.spell_gamma = np.column_stack([rng.gamma(2.0, 1.0, n) + 0.1, rng.gamma(2.0, 900.0, n) + 20.0])
    width = rng.integers(1000, 2000, size=(n, twin_cluster.SPELL_PARTS)).astype(float)
    width[:, -1] = 0.0
    prior.spell_width = width.ravel()


def random_prior(rng, levels, n_reals, n_tallies):
    offsets = np.concatenate([[0], np.cumsum(np.array(levels, dtype=np.int64) + 1)]).astype(np.int64)
    dirichlet = rng.gamma(1.0, 1.0, size=offsets[-1]) + 0.05
    dirichlet[offsets[1:] - 1] = 0.0
    normal = np.column_stack(
        [
            rng.normal(size=n_reals),
            rng.gamma(1.0, 0.3, n_reals) + 0.01,
            rng.gamma(2.0, 1.0, n_reals) + 0.5,
            rng.gamma(2.0, 1.0, n_reals) + 0.1,
        ]
    )
    gamma = np.column_stack([rng.gamma(2.0, 1.0, n_tallies) + 0.1, rng.gamma(2.0, 0.2, n_tallies) + 0.02])
    return Prior(offsets, dirichlet, np.ascontiguousarray(normal.reshape(n_reals, 4)), gamma.reshape(n_tallies, 2))


def random_parameters(rng, prior, n, free, anchors):
    """Arguments of Instantiated for n clusters, padded with arbitrary values that must not matter."""
    base = (n + 15) // 16 * 16
    n_reals, n_tallies = len(prior.normal), len(prior.gamma)
    table = np.full((prior.offsets[-1], base), 77.0, dtype=np.float32)
    for c in range(len(prior.offsets) - 1):
        first, missing = prior.offsets[c], prior.offsets[c + 1] - 1
        table[first:missing, :n] = np.log(rng.dirichlet(np.ones(missing - first), size=n).T)
        table[missing] = 0.0
    precision = rng.gamma(2.0, 0.5, size=(n_reals, base)) + 0.1
    rate = rng.gamma(2.0, 5.0, size=(n_tallies, base)) + 0.1
    widths = np.array(prior.widths, dtype=np.int64)
    factor = []
    for width in widths:
        i, j = np.tril_indices(width)
        factor.append(
            np.where((i == j)[:, None], rng.gamma(3.0, 0.3, (len(i), base)), rng.normal(0, 0.2, (len(i), base)))
        )
    return {
        "n": n,
        "free": free,
        "anchors": np.sort(np.asarray(anchors, dtype=np.uint64)),
        "log_weight": np.log(rng.dirichlet(np.ones(n))),
        "table": table,
        "location": rng.normal(0, 4, size=(n_reals, base)),
        "half_precision": precision / 2,
        "constant": 0.5 * np.log(precision / (2 * np.pi)),
        "log_rate": np.log(rate),
        "rate": rate,
        "vector_location": rng.normal(0, 4, size=(widths.sum(), base)),
        "vector_factor": np.concatenate([np.zeros((0, base)), *factor]),
        "vector_constant": rng.normal(size=(len(widths), base)),
        **spell_parameters(rng, len(prior.spell_gamma), base),
    }


def spell_parameters(rng, n, base):
    """Drawn hazards of n survival columns, of clusters; without columns, none are drawn."""
    if not n:
        return {}
    parts = n * twin_cluster.SPELL_PARTS
    return {"spell_start": rng.normal(-2, 1, (2 * parts, base)), "spell_hazard": rng.gamma(2.0, 5e-4, (parts, base))}


def with_reluctant_first(rows, prior, parameters):
    """Rows in another order, and descending thresholds, float64 (n,): the log weight at which an empty tail's new
    cluster is as likely as all instantiated clusters together. At a row's own value, earlier rows hardly ever open
    one."""
    held, tail = twin.Instantiated(**parameters), twin.Tail(prior, 1.0, 0.0, 0.0)
    even = []
    for i in range(len(rows)):
        row = twin.Row(rows, i)
        old = [held.log_weight_of(k, row, prior) for k in range(held.n)]
        even.append(np.logaddexp.reduce(old) - tail.log_weights(row)[1])
    order = np.argsort(even)[::-1]
    return rows.take(order), np.array(even)[order]


def covering(settings, kinds, each=1) -> list[tuple]:
    """Combine every kind of table with `each` of the settings, in turn, so that each setting meets many kinds."""
    chosen = itertools.cycle(settings)
    return [(*next(chosen), kind) for kind in kinds for _ in range(each)]
