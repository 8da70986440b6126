"""Two views side by side have the exact posterior: the product of two mixtures' posteriors, each of its own columns.

As in test_mixture_exact: replicates start at exact draws, here of labels, concentration and discount of both views.
Every test of a law rejects a right program with probability at most LEVEL. They are thorough: views that change columns
(test_columns) are tested in `make test`.
"""

from dataclasses import fields
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.crosscat import chain as program
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.columns.cells import Held, renumbered
from mpibayes.hpc.crosscat.family import ViewsChain
from mpibayes.hpc.crosscat.view import sync, view
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.io import checkpoint, generations
from mpibayes.io.table import table_from_arrays
from tests.exact import production
from tests.exact.compare import LOOKS, by_looks, judge, seed
from tests.exact.enumerate import NAN, Case

LEVEL = 1e-4
CYCLES = 12
WITH_MOVES = {"n_replicates": 120, "split_merge": 10}  # a round of moves per replicate
ALIKE = {"n_replicates": 400, "split_merge": 0}  # moves would make views differ that draw alike
COLUMNS = (  # every kind in both views, and not adjacent; rows are alike in both, so that anything shared shows
    ("a", "categorical", (0, 0, 1, 1, -1), ("r", "s")),
    ("b", "categorical", (0, 0, 1, 2, 1), ("t", "u", "v")),
    ("x", "real", (-1.8, -1.1, 1.2, 1.9, NAN), None),
    ("y", "real", (-1.6, -1.3, 0.8, 2.1, 2.6), None),
    ("m", "count", (NAN, 1.0, 6.0, 4.0, 0.0), None),
    ("n", "count", (0.0, 2.0, 5.0, 7.0, 9.0), None),
)
REAL, COUNT = {"mean": 0.1, "kappa": 0.2, "nu": 2.0, "variance": 0.4}, {"shape": 1.3, "rate": 0.4}
PRIORS = {
    "a": {"dirichlet": (0.5, 0.7)},
    "b": {"dirichlet": (0.3, 0.4, 0.6)},
    **dict.fromkeys("xy", REAL),
    **dict.fromkeys("mn", COUNT),
}
VIEWS = ("axm", "byn")
PROCESS = {"concentration": [0.2, 4.0], "discount": [0.0, 0.6]}


def law(names, columns=COLUMNS):
    """The law of one view, by enumeration."""
    part = tuple(column for column in columns if column[0] in names)
    given = {name: PRIORS[name] for name in names}
    return production.Joint(Case(names, part, given, 1.0, 0.0), **PROCESS, columns=given)


LAWS = [law(names) for names in VIEWS]


def sampler(comm, n_shards, views=VIEWS, **settings):
    columns, rows = table_from_arrays(
        [(name, kind, np.array(values), levels) for name, kind, values, levels in COLUMNS if name in "".join(views)]
    )
    settings = {"split_merge": 10, "priors": PRIORS, "shards": n_shards, **PROCESS, **settings}
    return Mixture(comm, columns, lambda a, b: rows.take(slice(a, b)), len(rows), Settings(**settings), views=views)


def replicate(mixture, r, start):
    """Labels of both views after each cycle, (cycles, views, N) on root, from (labels, hyperparameters) of each."""
    cut = shards.bounds(mixture.n_rows, mixture.n_shards)
    for v, (labels, hyper) in zip(mixture.views, start, strict=True):
        z = np.unique(labels, return_inverse=True)[1]
        v.resume(lambda i, z=z: z[cut[i] : cut[i + 1]], int(z.max()) + 1, hyper)
    mixture.resume(r * production.STRIDE)
    return [mixture.cycle() and [v.labels() for v in mixture.views] for _ in range(CYCLES)]


def verdict(comm, n_shards, n_replicates, default_seed, looks=1, **settings):
    """Both views' partitions against the product of their laws; None off root."""
    mixture = sampler(comm, n_shards, seed=seed(default_seed), **settings)
    generator = np.random.default_rng(seed(default_seed) + 1)
    starts = [of.draw(generator, n_replicates, v.hyper) for of, v in zip(LAWS, mixture.views, strict=True)]
    starts = list(zip(*(zip(*of) for of in starts)))

    def more(first, last):
        seen = [replicate(mixture, r, starts[r]) for r in range(first, last)]
        return None if comm.rank else seen

    return by_looks(more, judged, n_replicates, looks)


def judged(seen):
    """Verdict on labels (replicates, cycles, views, N): all pairs of an event from each view."""
    result = [of.posterior.index(z) for of, z in zip(LAWS, np.moveaxis(np.array(seen), 2, 0))]
    names, tables = zip(*(of.posterior.summaries() for of in LAWS))
    names = [["always", *part] for part in names]
    tables = [np.vstack([np.ones(table.shape[1]), table]) for table in tables]
    p = [of.posterior.p for of in LAWS]
    happened = [table.T[index] for table, index in zip(tables, result)]
    means = np.einsum("rti,rtj->rij", *happened).reshape(len(seen), -1) / CYCLES
    expected = np.outer(*(table @ q for table, q in zip(tables, p))).ravel()
    final = result[0][:, -1] * len(p[1]) + result[1][:, -1]
    pairs = [f"{one}, {other}" for one in names[0] for other in names[1]]
    return judge(final, np.outer(*p).ravel(), pairs, means, expected, LEVEL)


@pytest.mark.thorough
def test_law_of_two_views():
    """The right program on three shards; on one it is tested below, where wrong ones are rejected."""
    result = verdict(serial(), 3, default_seed=91, **WITH_MOVES)
    assert result.passed, f"{result} (seed {seed(91)})"


def one_lane():
    """Wrong: both views draw from the same streams."""
    return mock.patch.object(view, "in_lane", lambda chain, lane: chain)


def columns_by_place():
    """Wrong: a view takes the first columns of an array, not its own."""
    right = program.Gather

    def wrong(chosen, held, blocks):
        places, held = [], [Held(renumbered(of.columns), of.rows) for of in held]
        for column in chosen:
            before = sum(c.block == column.block for c in places)
            every = [c for of in held for c in of.columns if c.block == column.block]
            places.append(next(c for c in every if c.index == before))
        return right(places, held, blocks)

    return mock.patch.object(program, "Gather", wrong)


@pytest.mark.thorough
@pytest.mark.parametrize("wrong, size", [(one_lane, ALIKE), (columns_by_place, WITH_MOVES)])
def test_wrong_views_are_rejected(wrong, size):
    """The right program passes at the size at which a wrong one is rejected."""
    with wrong():
        result = verdict(serial(), 1, default_seed=91, looks=LOOKS, **size)
    assert not result.passed, str(result)
    result = verdict(serial(), 1, default_seed=91, **{**size, "n_replicates": result.size})
    assert result.passed, f"{result} (seed {seed(91)})"


# ---- what views share ------------------------------------------------------------------------------------------------


def labels_of(mixture, cycles):
    return [mixture.cycle() and [v.labels().tolist() for v in mixture.views] for _ in range(cycles)]


def test_views_have_carried_counts_of_their_own():
    mixture = sampler(serial(), 3, opening="all", discount=0.0)
    mixture.start("sequential")
    for _ in range(12):
        mixture.cycle()
        carried = [v.counts for v in mixture.views]
        sync.count(mixture.comm, mixture.views)
        for one, v in zip(carried, mixture.views):
            assert all(np.array_equal(*both) for both in zip(one, v.counts, strict=True))


@pytest.mark.parametrize("views", [("axm", "by"), ("axm", "bynm"), ("axm", "bynz")])
def test_every_column_has_one_view(views):
    with pytest.raises(ValueError, match="in one view, and in no other"):
        sampler(serial(), 3).arrange(views)


def test_columns_of_a_view_lie_where_its_cells_are():
    """Its draws as distributions over rows find the cells of their columns."""
    mixture = sampler(serial(), 3)
    mixture.start("one")
    mixture.cycle()
    for v in mixture.views:
        rows, columns = v.shards[0].rows, [c for kind in v.components.kinds for c in kind.columns]
        table = {name: np.array(values, float) for name, _, values, _ in COLUMNS}
        for c in columns:
            cells = getattr(rows, c.block)[:, c.index].astype(float)
            expected = table[c.name][v.shards[0].start :][: len(rows)]
            known = ~np.isnan(cells) & (expected >= 0 if c.levels else ~np.isnan(expected))
            assert np.allclose(cells[known], expected[known]), c.name


def test_first_of_two_views_is_a_chain_of_its_own():
    """Lane 0 has the draws of a chain of only these columns."""
    both, alone = sampler(serial(), 3), sampler(serial(), 3, views=VIEWS[:1])
    for mixture in (both, alone):
        mixture.start("one")
    assert [first for first, _ in labels_of(both, 8)] == [first for (first,) in labels_of(alone, 8)]


@pytest.mark.mpi(min_size=2)
def test_two_views_have_the_same_bits_on_ranks():
    if world().rank == 0:
        mixture = sampler(serial(), 5)
        mixture.start("random", 3)
        expected = labels_of(mixture, 10)
    mixture = sampler(world(), 5)
    mixture.start("random", 3)
    result = [mixture.cycle() and [v.labels() for v in mixture.views] for _ in range(10)]
    assert world().rank or [[z.tolist() for z in cycle] for cycle in result] == expected


def test_a_checkpoint_holds_every_view(tmp_path):
    def door(mixture):
        made = object.__new__(ViewsChain)  # without table and configuration: only the code under test is used
        made.mixture, made.heldout = mixture, None
        return made

    first = door(sampler(serial(), 3))
    first.mixture.start("one")
    labels_of(first.mixture, 5)
    parts, shared = first.state()
    draft = checkpoint.begin(tmp_path, 5)
    part = checkpoint.write_part(draft, 0, parts)
    checkpoint.commit(draft, [part], {"cycles": 5} | shared)
    result = generations.latest(tmp_path)
    second = door(sampler(serial(), 3, views=["abxymn"]))
    second.restore(result.shared(), {i: result.shard(i) for i in range(3)})
    assert [v.columns for v in second.mixture.views] == [tuple(names) for names in VIEWS]
    for one, two in zip(first.mixture.views, second.mixture.views):
        assert all(np.array_equal(getattr(one.hyper, f.name), getattr(two.hyper, f.name)) for f in fields(Hyper))
    assert labels_of(first.mixture, 6) == labels_of(second.mixture, 6)
