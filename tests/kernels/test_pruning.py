"""Sweeps that leave out clusters draw the labels of full ones, bit for bit; bounds that are too low do not."""

import functools
import math

import numpy as np
import pytest

from mpibayes.kernels import mixture
from mpibayes.kernels.mixture import pruning, twin

from .tables import Statistics, random_parameters, random_table

TABLES = {
    "categorical": {"levels8": (2, 3, 7, 4) * 3, "levels16": (300,)},
    "categorical, complete": {"levels8": (2, 3, 7, 4) * 10, "missing": 0.0},
    "real": {"n_reals": 3},
    "real, mostly missing": {"levels8": (3,) * 4, "n_reals": 19, "missing": 0.9},
    "count": {"n_tallies": 3},
    "count, small and large": {"n_tallies": 3, "large": True},
    "mixed": {"levels8": (2, 5) * 5, "levels16": (260,), "n_reals": 3, "n_tallies": 2},
    "vectors": {"levels8": (3,) * 6, "n_reals": 1, "blocks": (1, 2, 6), "missing": 0.1},
    "nothing": {},
}
KEY = {"row0": 7, "seed": 3, "cycle": 4, "sweep": 0, "chain": 1}


def binned(rows):
    """(bins, least, greatest) of a table's real and count columns; edges at quantiles."""
    cells = np.ascontiguousarray(np.concatenate([rows.reals, rows.tallies], axis=1))
    share = np.arange(1, pruning.N_BINS) / pruning.N_BINS
    edges = np.array([np.quantile(x[~np.isnan(x)], share) if not np.isnan(x).all() else share for x in cells.T])
    least = np.full((cells.shape[1], pruning.N_BINS), np.inf)
    greatest, bins = -least, np.empty(cells.shape, np.uint8)
    pruning.bin_cells(cells, edges.reshape(-1, pruning.N_BINS - 1), bins, 0, least, greatest)
    return bins, least, greatest


@functools.cache
def table(kind, n):
    return random_table(np.random.default_rng([3, len(kind), n]), n, **TABLES[kind])


def problem(kind, n_clusters, n=600, seed=1, anchored=0, change=None):
    """Rows, prior, draw, labels and bins; so many of the last clusters have an anchor. change(parameters): what else is
    special about the draw."""
    rng = np.random.default_rng([len(kind), n_clusters, seed])
    rows, prior = table(kind, n)
    priority = mixture.priorities(KEY["row0"], n, KEY["seed"], KEY["cycle"], KEY["chain"])
    at = rng.permutation(np.argsort(priority)[: n // 3])[:anchored]
    at = at[np.argsort(priority[at])]
    parameters = random_parameters(rng, prior, n_clusters, n_clusters - anchored, priority[at])
    if change is not None:
        change(parameters)
    z = rng.integers(n_clusters, size=n).astype(np.int32)
    z[at] = n_clusters - anchored + np.arange(anchored)
    return rows, prior, mixture.Instantiated(**parameters), z, binned(rows), rng


def bounds_of(rows, prior, held, bins, order=None):
    return pruning.Bounds(held, rows, prior, *bins[1:], np.arange(held.n) if order is None else order)


def full(rows, prior, held, z, **key):
    """(labels, moved) of the full sweep."""
    z = z.copy()
    moved = mixture.sweep(rows, z, *{**KEY, **key}.values(), held, None, prior)
    return z, moved


def pruned(rows, prior, held, z, bounds, bins, **key):
    """(labels, UNDECIDED among them) of the pass by bounds alone."""
    return pruning.prune(rows, z, *{**KEY, **key}.values(), held, bounds, bins[0], prior)


def wrong(labels, true):
    return int(((labels != pruning.UNDECIDED) & (labels != true)).sum())


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("n_clusters, anchored", [(1, 0), (5, 2), (16, 0), (70, 30), (200, 120)])
@pytest.mark.parametrize("kind", TABLES)
def test_labels_are_those_of_the_full_sweep(kind, n_clusters, anchored):
    """Sweep after sweep, from random labels, with idle rows and rows that are not seated yet; every order of the
    clusters into tiles gives the same."""
    rows, prior, held, z, bins, rng = problem(kind, n_clusters, anchored=anchored)
    z[[5, 50]], z[[9, 500]] = -2, -1
    for sweep in range(3):
        bounds = bounds_of(rows, prior, held, bins, rng.permutation(n_clusters))
        assert bounds.usable
        labels, moved = full(rows, prior, held, z, sweep=sweep)
        decided = pruned(rows, prior, held, z, bounds, bins, sweep=sweep)
        assert wrong(decided, labels) == 0
        if "large" not in kind:  # counts of thousands are further from a cluster than tables of bounds reach
            assert (decided == pruning.UNDECIDED).mean() < 0.02
        ours = z.copy()
        key = {**KEY, "sweep": sweep}
        assert pruning.sweep(rows, ours, *key.values(), held, bounds, bins[0], prior) == moved
        assert np.array_equal(ours, labels)
        z = labels


def never(parameters):
    """A share of levels, and of clusters, that cannot be."""
    rng = np.random.default_rng(2)
    parameters["table"][rng.random(parameters["table"].shape) < 0.1] = -np.inf
    parameters["log_weight"][::7] = -np.inf


def alike(parameters):
    """Clusters in sixes that are the same: every draw is between ties."""
    for array in parameters.values():
        if isinstance(array, np.ndarray) and array.ndim:
            for k in range(array.shape[-1]):
                array[..., k] = array[..., k // 6 * 6]


def heavy(parameters):
    """One cluster has nearly all the weight; the others together less than what bounds leave out."""
    parameters["log_weight"][:] -= 30.0
    parameters["log_weight"][40] += 30.0


@pytest.mark.parametrize("change", [never, alike, heavy])
@pytest.mark.parametrize("kind", ["categorical", "mixed", "nothing"])
def test_odd_draws(kind, change):
    """Levels that cannot be, ties, and a cluster that weighs as much as all: the same labels, or the same error."""
    rows, prior, held, z, bins, rng = problem(kind, 90, change=change)
    bounds = bounds_of(rows, prior, held, bins, rng.permutation(90))
    try:
        labels, moved = full(rows, prior, held, z)
    except FloatingPointError as error:
        with pytest.raises(FloatingPointError, match=str(error)):
            pruning.sweep(rows, z.copy(), *KEY.values(), held, bounds, bins[0], prior)
        return
    ours = z.copy()
    assert pruning.sweep(rows, ours, *KEY.values(), held, bounds, bins[0], prior) == moved
    assert np.array_equal(ours, labels)


def bounds_by_row(rows, prior, bounds, bins):
    """Bounds in nats of each row and place, (n, tiles * 16), from the tables by plain Python."""
    codes = np.concatenate([rows.codes8, rows.codes16], axis=1).astype(np.int64)
    first = 1 + prior.offsets[-1]
    out = []
    for i, row in enumerate(codes):
        levels = prior.offsets[:-1] + row
        features = [0, *(1 + levels[levels < prior.offsets[1:] - 1])]
        features += [first + pruning.N_BINS * c + b for c, b in enumerate(bins[0][i]) if b != pruning.MISSING]
        column = 0
        for b, width in enumerate(prior.widths):
            if not np.isnan(rows.vectors[i, column : column + width]).any():
                features.append(first + pruning.N_BINS * bins[0].shape[1] + b)
            column += width
        units = bounds.clusters[:, features].astype(np.int64).sum(axis=1).ravel()
        out.append(bounds.greatest[features].sum() + units / 32)
    return np.array(out)


@pytest.mark.parametrize("kind", TABLES)
def test_bounds_are_bounds(kind):
    """No score is above its bound, and a group's bound is the greatest of its clusters'. Scores by the twin."""
    parameters = []
    rows, prior, held, _, bins, rng = problem(kind, 37, n=60, change=parameters.append)
    order = rng.permutation(37)
    bounds, plain = bounds_of(rows, prior, held, bins, order), twin.Instantiated(**parameters[0])
    bound = bounds_by_row(rows, prior, bounds, bins)[:, :37]
    for i in range(60):
        row = twin.Row(rows, i)
        factorials = sum(math.lgamma(x + 1) for x in row.tallies if not np.isnan(x))
        scores = np.array([plain.log_weight_of(k, row, prior) for k in order]) + factorials
        assert (bound[i] >= scores - 1e-4).all()
    groups = bounds.clusters.transpose(1, 0, 2).reshape(len(bounds.greatest), -1, 4).max(axis=2)
    assert np.array_equal(bounds.groups[:, : 37 // 4], groups[:, : 37 // 4])


# --- wrong bounds, which the comparison with the full sweep rejects ---------------------------------------------------


@functools.cache
def hard_table():
    rng = np.random.default_rng(11)
    return random_table(rng, 3000, levels8=(3, 4, 5, 6) * 2, n_reals=8, missing=0.1, scale=1.0)


def overlapping(seed):
    """3,000 rows of 8 categorical and 8 real columns, 64 clusters that overlap, random labels: a hard case."""
    rng = np.random.default_rng([11, seed])
    rows, prior = hard_table()

    def draw():
        parameters = random_parameters(rng, prior, 64, 64, [])
        levels = prior.offsets[1:] - 1
        parameters["table"] *= 0.5
        parameters["table"][levels] = 0.0
        parameters["location"] *= 0.4
        return mixture.Instantiated(**parameters)

    return rows, prior, draw(), draw(), rng.integers(64, size=3000).astype(np.int32), binned(rows)


def right(bounds, bins):
    return bounds


def too_low(bounds, bins):
    """Lower them by 20 nats, a little more than bounds are asked to leave."""
    bounds.clusters[:, 0] = np.maximum(bounds.clusters[:, 0].astype(int) - 640, -(2**15))
    return bounds


def group_by_its_first(bounds, bins):
    first = bounds.clusters.transpose(1, 0, 2).reshape(len(bounds.greatest), -1, 4)[:, :, 0]
    bounds.groups[:, : first.shape[1]] = first
    return bounds


TWINS = {"right": right, "too low": too_low, "a group bounded by its first cluster": group_by_its_first}


@pytest.mark.parametrize("name", [*TWINS, "a bin at its centre", "bounds of another draw"])
def test_wrong_bounds_are_rejected(name):
    """Exact: a right program differs in no row. The wrong ones differ in some row of three sweeps of 3,000."""
    differ = 0
    for seed in range(3):
        rows, prior, held, other, z, bins = overlapping(seed)
        bounds = bounds_of(rows, prior, held, bins)
        if name == "a bin at its centre":
            centre = np.where(bins[1] <= bins[2], (bins[1] + bins[2]) / 2, np.inf)
            bounds = bounds_of(rows, prior, held, (bins[0], centre, np.where(np.isinf(centre), -np.inf, centre)))
        elif name == "bounds of another draw":
            others = bounds_of(rows, prior, other, bins)
            bounds.clusters[:], bounds.groups[:] = others.clusters, others.groups
        else:
            bounds = TWINS[name](bounds, bins)
        differ += wrong(pruned(rows, prior, held, z, bounds, bins), full(rows, prior, held, z)[0])
    assert (differ == 0) == (name == "right")


def beside_a_boundary(u, n_light, off):
    """A draw between two heavy clusters behind n_light light ones, each just beyond reach: without these the boundary
    is at u less `off`."""
    reach = np.log(n_light + 2) + pruning.REACH
    log_weight = np.full(n_light + 2, -reach - 1.0)
    log_weight[-2:] = np.log(u * (1 - off)), np.log1p(-u * (1 - off))
    return mixture.Instantiated(n=n_light + 2, log_weight=log_weight - max(log_weight[-2:]))


def test_a_uniform_a_hair_off_a_boundary():
    """Omitted terms move boundaries: rows so near to one are not decided, and without that guard are wrong."""
    rows, prior = random_table(np.random.default_rng(1), 1)
    decided = missed = 0
    for seed in range(60):
        word = twin.words(0, 1, seed, twin.ASSIGN, 0, 0, 0)[0]
        u, n_light = (int(word) >> 11) * 2.0**-53, 900
        if not 0.2 < u < 0.8:
            continue
        for off in (-1e-3, -1e-6, -2e-7, 0.0, 2e-7, 5e-7, 1e-6, 1e-3):
            held, key = beside_a_boundary(u, n_light, off), (0, seed, 0, 0, 0)
            z, bins = np.full(1, n_light, np.int32), (np.empty((1, 0), np.uint8), np.empty((0, 32)), np.empty((0, 32)))
            true = z.copy()
            mixture.sweep(rows, true, *key, held, None, prior)
            bounds = bounds_of(rows, prior, held, bins)
            label = pruning.prune(rows, z, *key, held, bounds, bins[0], prior)[0]
            assert label in (true[0], pruning.UNDECIDED)
            assert (label == true[0]) == (abs(off) == 1e-3)
            decided += label == true[0]
            bounds.margin = 0.0
            missed += pruning.prune(rows, z, *key, held, bounds, bins[0], prior)[0] != true[0]
    assert decided > 20 and missed > 20


# --- beside a tail ----------------------------------------------------------------------------------------------------


def beside_a_tail(rows, prior, held, z, survivors, log_weight, concentration=1.5):
    """(labels, rows that moved, statistics of the tail) after a sweep with a tail that has rows of its own."""
    tail, z = mixture.Tail(prior, concentration, 0.1, log_weight), z.copy()
    slots = np.where(z >= held.base, z - held.base, -1).astype(np.int32)
    tail.load(Statistics(*mixture.accumulate(rows, slots, 3, prior.offsets)))
    moved = mixture.sweep(rows, z, *KEY.values(), held, tail, prior, survivors=survivors)
    return z, moved, tail.size.copy(), tail.levels.copy()


@pytest.mark.parametrize("log_weight", [-3.0, 4.0])
@pytest.mark.parametrize("n_clusters, anchored", [(16, 0), (70, 70), (200, 120)])
@pytest.mark.parametrize("kind", TABLES)
def test_a_sweep_beside_a_tail_has_the_same_bits(kind, n_clusters, anchored, log_weight):
    """Rows that go to the tail and come back, with a tail that holds rows and one that is empty."""
    rows, prior, held, z, bins, rng = problem(kind, n_clusters, anchored=anchored)
    bounds = pruning.Bounds(held, rows, prior, *bins[1:], rng.permutation(n_clusters))
    for in_tail in (0, 40):
        z[rng.choice(np.flatnonzero(z < n_clusters - anchored), in_tail * (anchored < n_clusters))] = held.base + 1
        key = {name: KEY[name] for name in ("row0", "seed", "cycle", "chain")}
        known = pruning.survivors(rows, z, *key.values(), held, bounds, bins[0], prior)
        if "large" not in kind and anchored < n_clusters:
            assert (known.start >= 0).mean() > 0.7  # the others are anchors, or in the tail
        full = beside_a_tail(rows, prior, held, z, None, log_weight)
        ours = beside_a_tail(rows, prior, held, z, known, log_weight)
        for a, b in zip(full, ours, strict=True):
            assert np.array_equal(a, b)


def test_a_uniform_a_hair_off_a_boundary_beside_a_tail():
    """The same guard there. The last two of three rows are drawn in a block, and the second's uniform is at one."""
    rows, prior = random_table(np.random.default_rng(1), 3)
    missed = 0
    for seed in range(40):
        u, n_light = (int(twin.words(0, 3, seed, twin.ASSIGN, 0, 0, 0)[1]) >> 11) * 2.0**-53, 900
        if not 0.2 < u < 0.8:
            continue
        for off in (-1e-3, -1e-6, -2e-7, 0.0, 2e-7, 5e-7, 1e-6, 1e-3):
            held, key = beside_a_boundary(u, n_light, off), (0, seed, 0, 0, 0)
            z, bins = np.full(3, n_light, np.int32), (np.empty((3, 0), np.uint8), np.empty((0, 32)), np.empty((0, 32)))
            labels = []
            for margin in (None, 0.0, "full"):
                bounds = bounds_of(rows, prior, held, bins)
                known = pruning.survivors(rows, z, 0, seed, 0, 0, held, bounds, bins[0], prior)
                assert len(known) == 6
                if margin == 0.0:
                    known.margin = 0.0
                tail, after = mixture.Tail(prior, 1.0, 0.0, -60.0), z.copy()
                mixture.sweep(rows, after, *key, held, tail, prior, survivors=known if margin != "full" else None)
                labels.append(after)
            assert np.array_equal(labels[0], labels[2])
            missed += labels[1][1] != labels[2][1]
    assert missed > 20


def test_survivors_are_of_as_many_rows():
    rows, prior, held, z, bins, _ = problem("mixed", 20)
    key = {name: KEY[name] for name in ("row0", "seed", "cycle", "chain")}
    known = pruning.survivors(rows, z, *key.values(), held, bounds_of(rows, prior, held, bins), bins[0], prior)
    with pytest.raises(ValueError, match="survivors are of rows"):
        mixture.sweep(rows.take(slice(0, 5)), z[:5].copy(), *KEY.values(), held, None, prior, survivors=known)


# --- what cannot be bounded -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, value", [("location", np.nan), ("half_precision", 0.0), ("constant", 1e12),
                                         ("log_rate", -np.inf), ("table", np.nan), ("log_weight", np.inf)])  # fmt: skip
def test_such_draws_are_not_usable(name, value):
    def change(parameters):
        parameters[name][..., 3] = value

    rows, prior, held, z, bins, _ = problem("mixed", 20, change=change)
    bounds = bounds_of(rows, prior, held, bins)
    assert not bounds.usable
    with pytest.raises(ValueError, match="these bounds"):
        pruned(rows, prior, held, z, bounds, bins)


def test_rows_that_cannot_be_scored():
    """Infinite cells, and labels of no cluster: the messages of the full sweep."""
    rows, prior, held, z, bins, _ = problem("mixed", 20)
    bounds = bounds_of(rows, prior, held, bins)
    z[590] = 20
    with pytest.raises(ValueError, match="row 597: its label"):
        pruning.sweep(rows, z, *KEY.values(), held, bounds, bins[0], prior)
    z[590] = 0
    rows = rows.take(np.arange(len(z)))
    rows.reals[400, 1] = np.inf
    bounds = bounds_of(rows, prior, held, binned(rows))
    with pytest.raises(FloatingPointError, match="row 407: its score"):
        pruning.sweep(rows, z, *KEY.values(), held, bounds, binned(rows)[0], prior)


def test_what_does_not_fit_together_is_refused():
    rows, prior, held, z, bins, _ = problem("mixed", 20)
    with pytest.raises(ValueError, match="no permutation"):
        bounds_of(rows, prior, held, bins, np.zeros(20, int))
    bounds = bounds_of(rows, prior, held, bins)
    with pytest.raises(ValueError, match="labels and bins"):
        pruning.prune(rows, z[1:], *KEY.values(), held, bounds, bins[0], prior)
    other = problem("mixed", 20)[2]
    with pytest.raises(ValueError, match="these bounds"):
        pruning.prune(rows, z, *KEY.values(), other, bounds, bins[0], prior)
