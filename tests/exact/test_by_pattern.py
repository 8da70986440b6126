"""Steps on the table of rows by pattern and cluster leave the posterior invariant, and the resulting table is dealt.

Shares (their twin in Python, which the kernel equals), splits and merges are tested as matrices over all tables of four
rows, to rounding error, without false alarms; whole rounds, including sweeps, by draws against the enumeration (as in
test_split_merge.py): a right program is rejected with probability LEVEL at most.
"""

import contextlib
from collections import Counter
from dataclasses import replace
from itertools import product
from unittest import mock

import numpy as np
import pytest
from scipy.special import betaln, gammaln

from mpibayes.hpc.crosscat.moves import by_pattern as program
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.kernels.mixture import shares as kernel
from mpibayes.kernels.mixture import twin_shares
from tests.exact import production, transitions, wrong_moves
from tests.exact.compare import LOOKS, chi_square, seed
from tests.exact.enumerate import CASES as OF_MIXTURES
from tests.exact.enumerate import Case, Posterior
from tests.exact.test_split_merge import CYCLES, LEVEL, ROUNDING
from tests.exact.transitions import outcomes

ALWAYS = {"STEPS": (3, 3), "ALIKE": 0.1, "AFTER": 0}  # few steps per round, on any table, from the first cycle on
CASES = {
    **{name: OF_MIXTURES[name] for name in ("cat6", "cat6py", "cat6neg")},
    "one6": Case(
        "one6",
        (("a", "categorical", (0, 0, 1, 1, 2, 0), ("x", "y", "z")),),
        {"a": {"dirichlet": (0.5, 0.5, 1.0)}},
        0.6,
        0.3,
    ),
    "holes6": Case(  # row 4 is missing altogether
        "holes6",
        (
            ("a", "categorical", (0, 2, 1, -1, -1, 0), ("x", "y", "z")),
            ("b", "categorical", (1, -1, 0, 1, -1, 1), ("u", "v")),
        ),
        {"a": {"dirichlet": (0.4, 0.8, 0.5)}, "b": {"dirichlet": (0.3, 0.7)}},
        0.9,
        0.25,
    ),
}


# ---- matrices --------------------------------------------------------------------------------------------------------


class Share:
    """A share of rows known only through the number dealt so far."""

    def __init__(self, spread):
        self.dealt = np.full(2, spread)


class Stream(transitions.Stream):
    """Stream whose shares are urns."""

    def random(self, n=None):
        assert n is None
        return super().random()

    def permutation(self, n):
        left = list(range(n))
        return np.array([left.pop(self.integers(len(left))) for _ in range(min(n, 2))])

    def beta(self, a, b, n=None):
        assert a == b
        return Share(a) if n is None else np.array([Share(a) for _ in range(n)], object)

    def binomial(self, rows, shares):
        out = np.zeros(len(rows), np.int64)
        for i, n in enumerate(rows.tolist()):
            urn = (shares if isinstance(shares, Share) else shares[i]).dealt
            k = np.arange(n + 1)
            ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
            out[i] = self.tape.choose(np.exp(ways + betaln(urn[0] + k, urn[1] + n - k) - betaln(*urn)))
            urn += out[i], n - out[i]
        return out


def tables(case: Case, n_rows: int):
    """Law of tables of a case's first rows, and the program's table of each: {clusters in order: (p, table)}."""
    columns = tuple((name, kind, tuple(cells[:n_rows]), levels) for name, kind, cells, levels in case.columns)
    posterior = Posterior(replace(case, columns=columns))
    sizes = np.array([len(levels) + 1 for *_, levels in columns])
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    cells = np.array([np.where(np.array(x) < 0, len(levels), x) for _, _, x, levels in columns]).T + first
    level, of_row = np.unique(cells, axis=0, return_inverse=True)
    pseudo = np.concatenate([[*case.priors[name]["dirichlet"], 0.0] for name, *_ in columns])
    result = {}
    for p, z in zip(posterior.p, posterior.partitions):
        counts = np.zeros((len(level), z.max() + 1), np.int64)
        np.add.at(counts, (of_row.ravel(), z), 1)
        table = program.Table(counts, level, pseudo, first, case.concentration, case.discount)
        known = result.get(name_of(counts), (0.0, table))
        result[name_of(counts)] = known[0] + p, table
    return result


def name_of(counts):
    return tuple(sorted(map(tuple, counts.T.tolist())))


class Draws:
    """All draws of a share."""

    def __init__(self, tape):
        self.stream = Stream(tape)

    def whole(self, at, n):
        return self.stream.integers(n)

    def log_uniform(self, at):
        return np.log(self.stream.random())


def arguments(table):
    return table.counts, table.level, table.pseudo, table.total, table.discount, table.first_row


def share(table, tape):
    if table.counts.shape[1] > 1:
        twin_shares.share(*arguments(table), Draws(tape))


def split_or_merge(table, tape):
    (table.split if tape.choose([0.5, 0.5]) else table.merge)(Stream(tape))


def change(name, step, n_rows=4):
    """Total variation between the law of tables and its image under one step."""
    known, after = tables(CASES[name], n_rows), Counter()
    for p, table in known.values():
        counts = table.counts

        def run(tape, table=table, counts=counts):
            table.counts = counts.copy()
            step(table, tape)
            return name_of(table.counts)

        for q, result in outcomes(run):
            after[result] += p * q
    assert sum(after.values()) == pytest.approx(1.0, abs=1e-10)
    return 0.5 * sum(abs(after[name] - p) for name, (p, _) in known.items())


@pytest.mark.quick("share-holes6", "split_or_merge-cat6py")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("step", [share, split_or_merge])
def test_steps_keep_the_law_of_tables(name, step):
    assert change(name, step) < ROUNDING


def test_splits_stop_where_tables_become_too_large():
    """A round that may not begin with more clusters must not end with more, or there would be no way back."""
    (_, table), *_ = tables(CASES["cat6"], 4).values()
    table.most, stream = 2, np.random.default_rng(seed(178))
    result = {(table.split(stream), table.merge(stream)) and table.counts.shape[1] for _ in range(300)}
    assert result <= {1, 2}


def without_ways():
    """Wrong: rows of a pattern can be dealt in more ways if clusters share them, which is not counted."""
    return mock.patch.object(twin_shares, "log_ways", lambda *_: 0.0)


def without_choice():
    """Wrong: alike clusters are chosen more often, but scored as any."""
    return mock.patch.object(program.Table, "_log_choice", lambda *_: 0.0)


def without_choice_of_shares():
    """Wrong: the same of shares."""
    return mock.patch.object(twin_shares, "log_choice", lambda *_: 0.0)


def without_sides():
    """Wrong: acceptance without the probability of a split's sides."""
    return mock.patch.object(program.Table, "log_sides", lambda *_: 0.0)


def one_spread():
    """Wrong: sides are scored as if dealt only with the first spread."""
    right = program.Table.log_sides

    def log_sides(self, both):
        with mock.patch.object(program, "SPREAD", program.SPREAD[:1]):
            return right(self, both)

    return mock.patch.object(program.Table, "log_sides", log_sides)


def any_number_of_clusters():
    """Wrong: the number of pairs to merge, which grows with the clusters, is not counted."""
    right = program.Table.log_split
    return mock.patch.object(
        program.Table, "log_split", lambda self, whole, both, n: right(self, whole, both, n) + np.log(n + 1.0)
    )


@pytest.mark.quick("without_ways-share-cat6", "one_spread-split_or_merge-cat6py")
@pytest.mark.parametrize(
    "wrong, step, name",
    [
        (without_ways, share, "cat6"),
        (without_choice_of_shares, share, "one6"),
        (without_sides, split_or_merge, "one6"),
        (one_spread, split_or_merge, "cat6py"),
        (any_number_of_clusters, split_or_merge, "holes6"),
    ],
)
def test_wrong_steps_do_not_keep_it(wrong, step, name):
    with wrong():
        assert change(name, step) > 1e-4


# ---- the kernel of shares --------------------------------------------------------------------------------------------


def after(of, discount, n_words=400):
    """Tables after many shares of random ones with missing cells, by the kernel or its twin; and shares that moved
    rows."""
    stream, result = np.random.default_rng(179), []
    for n_clusters in (2, 3, 7):
        sizes = np.array([4, 3, 5])
        first = np.cumsum(sizes) - sizes
        level = np.unique(np.stack([stream.integers(n, size=30) for n in sizes], axis=1), axis=0) + first
        pseudo = stream.uniform(0.2, 2.0, sizes.sum())
        pseudo[first + sizes - 1] = 0.0
        counts = stream.poisson(stream.gamma(0.3, 20.0, (len(level), n_clusters))) + np.eye(len(level), n_clusters, 0)
        counts = counts[counts.any(axis=1)].astype(np.int64)
        table = program.Table(counts, level[: len(counts)], pseudo, first, 0.7, discount)
        moved = of(*arguments(table), stream.random((n_words, 6)))
        result.append((moved, table.counts.tolist()))
    return result


@pytest.mark.parametrize("discount", [0.0, 0.3])
def test_the_kernel_equals_its_twin(discount):
    assert after(kernel.shares, discount) == after(twin_shares.shares, discount)


@pytest.mark.parametrize("wrong", [without_ways, without_choice_of_shares])
def test_the_kernel_does_not_equal_a_wrong_twin(wrong):
    with wrong():
        assert after(kernel.shares, 0.3) != after(twin_shares.shares, 0.3)


# ---- sweeps ----------------------------------------------------------------------------------------------------------


def p_of_sweeps(name, n_draws, default_seed, looks=1, sweeps=6):
    """p-value of Pearson's test that tables drawn from their law still have it after some sweeps; with several looks,
    of the first part of the draws at which it is below LEVEL."""
    known = tables(CASES[name], CASES[name].n_rows)
    names, p = list(known), np.array([p for p, _ in known.values()])
    number, stream, drawn = {of: i for i, of in enumerate(names)}, np.random.default_rng(seed(default_seed)), []
    for i in stream.choice(len(names), n_draws, p=p / p.sum()):
        table = known[names[i]][1]
        counts = table.counts.copy()
        for _ in range(sweeps):
            table.sweep(stream)
        drawn.append(number[name_of(table.counts)])
        table.counts = counts
        if len(drawn) % (n_draws // looks) == 0 and chi_square(np.array(drawn), p / p.sum()) < LEVEL:
            break
    return chi_square(np.array(drawn), p / p.sum())


def alike_alone():
    """Restrict all sweeps to two alike clusters, which is valid."""
    return mock.patch.object(program, "AT_ONCE", 1)


@pytest.mark.quick("cat6neg")
@pytest.mark.parametrize("name", CASES)
def test_law_of_sweeps(name):
    assert p_of_sweeps(name, 3000, 176) >= LEVEL, seed(176)


def sizes_not_discounted():
    """Wrong: weights of clusters are drawn as if the discount were 0."""
    right = program.log_gammas
    return mock.patch.object(program, "log_gammas", lambda a, stream: right(a + 0.5 if a.ndim == 1 else a, stream))


def emptied():
    """Wrong: a cluster without rows is removed."""
    right = program.Table.sweep

    def sweep(self, stream):
        with mock.patch.object(program.Table, "_kept", lambda *_: True):
            right(self, stream)
        self.counts = self.counts[:, self.counts.sum(axis=0) > 0]

    return mock.patch.object(program.Table, "sweep", sweep)


@pytest.mark.quick("emptied-cat6neg-3000")
@pytest.mark.parametrize(
    "wrong, name, n_draws",
    [(emptied, "cat6neg", 3000), (sizes_not_discounted, "cat6neg", 4000), (without_choice, "one6", 6000)],
)
def test_wrong_sweeps_are_rejected(wrong, name, n_draws):
    with wrong(), alike_alone() if wrong is without_choice else contextlib.nullcontext():
        assert p_of_sweeps(name, n_draws, 176, LOOKS) < LEVEL


@pytest.mark.thorough
def test_law_of_sweeps_of_alike_clusters():
    with alike_alone():
        assert p_of_sweeps("one6", 3000, 177) >= LEVEL, seed(177)


# ---- draws -----------------------------------------------------------------------------------------------------------


def alone(comm, name, n_shards, n_replicates, default_seed, looks=1):
    """Compare rounds by themselves with the enumeration; None off root."""
    case = CASES[name]
    posterior = Posterior(case)
    with mock.patch.multiple(program, **ALWAYS), wrong_moves.one_kind_alone(program.by_pattern):
        mixture = production.sampler(
            comm, case, n_shards, seed(default_seed), kind=production.MovesAlone, split_merge=1
        )
        return production.verdict(mixture, posterior, n_replicates, CYCLES, seed(default_seed) + 1, LEVEL, looks)


@pytest.mark.thorough
@pytest.mark.parametrize("name, n_shards", [("cat6", 2), ("cat6py", 1), ("cat6neg", 3), ("one6", 2), ("holes6", 6)])
def test_law_of_rounds(name, n_shards):
    result = alone(serial(), name, n_shards, 60, 171)
    assert result.passed, f"{result} (seed {seed(171)})"


def levels_without_prior():
    """Wrong: probabilities of levels are drawn from twice their pseudo-counts."""
    right = program.Table.__post_init__

    def wrong(self):
        right(self)
        self.pseudo = 2.0 * self.pseudo

    return mock.patch.object(program.Table, "__post_init__", wrong)


def not_dealt():
    """Wrong: a shard has the first of its rows in the first cluster, and so on."""
    return mock.patch.object(program.kernels, "words", lambda ids, **_: np.asarray(ids, np.uint64))


@pytest.mark.quick("levels_without_prior-cat6-60")
@pytest.mark.parametrize("wrong, name, n_replicates", [(levels_without_prior, "cat6", 60), (not_dealt, "one6", 240)])
def test_wrong_rounds_are_rejected(wrong, name, n_replicates):
    with wrong():
        result = alone(serial(), name, 1, n_replicates, 171, LOOKS)
    assert not result.passed, str(result)


def test_shards_have_their_share():
    """Every way to deal the rows of two patterns to shards has the right frequency."""
    counts, held = np.array([[2, 1], [1, 2]]), np.array([[1, 2], [2, 1]])
    law, stream = Counter(), np.random.default_rng(seed(173))
    for rows in product([0, 1], repeat=6):  # cluster of each of a shard's rows of a pattern
        dealt = [rows[:1], rows[3:5]], [rows[1:3], rows[5:]]
        if sum(rows[:3]) == 1 and sum(rows[3:]) == 2:
            law[tuple(sum(part) for shard in dealt for part in shard)] += 1
    names, drawn = list(law), []
    for _ in range(2000):
        label, dealt = program.deal(counts, held, stream)
        assert label.tolist() == [0, 1, 0, 1] and (dealt.sum(axis=0) == counts.ravel()).all()
        assert (dealt.reshape(2, 2, 2).sum(axis=2) == held).all()
        drawn.append(names.index(tuple(dealt[:, 1::2].ravel().tolist())))
    assert chi_square(np.array(drawn), np.array(list(law.values())) / sum(law.values())) >= LEVEL, seed(173)


# ---- ranks -----------------------------------------------------------------------------------------------------------


def labels(comm, name="holes6"):
    """Labels after each of some cycles with all moves, on root."""
    with mock.patch.multiple(program, **ALWAYS):
        mixture = production.sampler(comm, CASES[name], 4, seed(174), split_merge=1)
        mixture.start("one")
        return [mixture.cycle() and mixture.view.labels() for _ in range(8)]


@pytest.mark.mpi(min_size=2)
def test_same_bits_on_ranks():
    result = labels(world())
    assert world().rank or np.array_equal(result, labels(serial()))


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_law_on_ranks():
    result = alone(world(), "holes6", 3, 15, 175)
    assert result is None or result.passed, f"{result} (seed {seed(175)})"
