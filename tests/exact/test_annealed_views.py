"""Annealed chains of several views: a row is active in all views or in none, and idle rows have no effect.

With the idle rows held idle, cycles have the exact posterior of the active rows; after the growth, of all. Replicates
start at exact draws, or from one row on. Every test of a law rejects a right program with probability at most LEVEL.
"""

import contextlib
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.columns import scan, sides
from mpibayes.hpc.crosscat.columns.subject import Subject
from mpibayes.hpc.crosscat.start.subsample import IDLE, Annealing, planned_cycles
from mpibayes.hpc.crosscat.view import sweep
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.io.table import table_from_arrays
from tests.exact import crosscat
from tests.exact.compare import LOOKS, by_looks, judge, seed
from tests.exact.crosscat import CASES, state
from tests.exact.test_columns import LEVEL, MovesAlone, auxiliary_of_one_cluster, cores

STRIDE = 1000
AT = [1, 4, 5, 9, 11]  # positions of the rows of a case; the other rows are idle
ANNEALING = Annealing("linear", passes=4.0, start_rows=1)


class Still(Mixture):
    """Mixture whose idle rows stay idle."""

    growing = False


class StillMoves(MovesAlone):
    growing = False


def with_idle_rows(name, n_shards, kind, default_seed):
    """A chain on a case's rows interleaved with further, idle ones, which have all levels."""
    setup = CASES[name]
    given = setup.case.columns
    cells = [np.arange(max(AT) + 1) % len(levels) for *_, levels in given]
    for part, (_, _, values, _) in zip(cells, given):
        part[AT] = values
    columns, rows = table_from_arrays([(n, k, part, levels) for (n, k, _, levels), part in zip(given, cells)])
    settings = {"split_merge": 0, "column_moves": 1, "view_moves": 0, "priors": setup.priors, "shards": n_shards}
    settings = Settings(seed=seed(default_seed), **settings, **setup.process)
    return kind(serial(), columns, lambda a, b: rows.take(slice(a, b)), len(rows), settings)


def verdict(name, n_shards, n_replicates, default_seed, cycles=4, kind=Still, looks=1):
    """Compare cycles with idle rows with the enumeration of the active rows."""
    exact, names = CASES[name].posterior, [c[0] for c in CASES[name].case.columns]
    mixture = with_idle_rows(name, n_shards, kind, default_seed)
    starts = np.random.default_rng(seed(default_seed) + 1).choice(len(exact.p), n_replicates, p=exact.p / exact.p.sum())
    events, table = exact.summaries()

    def replicate(r):
        """Number of the state after each cycle."""
        labels = np.full((len(names), mixture.n_rows), IDLE)
        labels[:, AT] = exact.partitions[exact.rows[starts[r]]]
        place(mixture, names, exact.views[starts[r]].tolist(), labels, r * STRIDE)
        result = [mixture.cycle() and state(mixture, [(name,) for name in names]) for _ in range(cycles)]
        assert all((np.flatnonzero(np.array(z) >= 0) == AT).all() for _, labels in result for z in labels)
        return [exact.number(views, np.array(labels)[:, AT].tolist()) for views, labels in result]

    def judged(seen):
        index = np.array(seen)
        return judge(index[:, -1], exact.p, events, table.T[index].mean(axis=1), table @ exact.p, LEVEL)

    return by_looks(lambda first, last: [replicate(r) for r in range(first, last)], judged, n_replicates, looks)


def place(mixture, names, views, labels, cycles):
    mixture.arrange([[n for n, v in zip(names, views) if v == view] for view in range(max(views) + 1)])
    cut = shards.bounds(mixture.n_rows, mixture.n_shards)
    for view in mixture.views:
        z = labels[names.index(view.columns[0])]
        z[z >= 0] = np.unique(z[z >= 0], return_inverse=True)[1]
        view.resume(lambda i, z=z: z[cut[i] : cut[i + 1]], int(z.max()) + 1, view.hyper)
    mixture.resume(cycles)


def idle_rows_scored():
    """Wrong: columns are scored as if idle rows were in the first cluster."""
    right = scan.scores

    def wrong(comm, views, units, partitions):
        seated = [scan.Rowwise([np.maximum(z, 0) for z in p.z], p.n_labels, p.process) for p in partitions]
        return right(comm, views, units, seated)

    return mock.patch.object(scan, "scores", wrong)


@pytest.mark.quick("nullcontext-2", "idle_rows_scored-2")
@pytest.mark.parametrize(
    "wrong, n_shards",
    [(contextlib.nullcontext, 1), (contextlib.nullcontext, 2), (contextlib.nullcontext, 3), (idle_rows_scored, 2)],
)
def test_law_of_the_active_rows(wrong, n_shards):
    with wrong():
        result = verdict("sharp", n_shards, 60, 131, looks=1 if wrong is contextlib.nullcontext else LOOKS)
    assert result.passed == (wrong is contextlib.nullcontext), f"{result} (seed {seed(131)})"


def idle_rows_in_moves():
    """Wrong: moves score columns as if idle rows were in the first cluster."""
    right = Subject.log_likelihood

    def wrong(self, z, n_labels):
        return right(self, [np.maximum(part, 0) for part in z], n_labels)

    return mock.patch.object(Subject, "log_likelihood", wrong)


@pytest.mark.thorough
@pytest.mark.parametrize("core", [2, 100])
def test_law_of_moves_of_views_of_the_active_rows(core):
    """With a small core, at the size at which wrong moves are rejected."""
    with cores(core), mock.patch.object(sides, "ROWS", core):
        size = 40
        if core == 2:
            with idle_rows_in_moves():
                result = verdict("sharp", 2, 80, 132, cycles=2, kind=StillMoves, looks=LOOKS)
            assert not result.passed, str(result)
            size = max(size, result.size)
        result = verdict("sharp", 2, size, 132, cycles=2, kind=StillMoves)
    assert result.passed, f"{result} (seed {seed(132)})"


# ---- the growth ------------------------------------------------------------------------------------------------------


def annealed(comm, name, n_shards, default_seed, annealing=ANNEALING, **settings):
    return crosscat.sampler(comm, name, n_shards, default_seed, annealing=annealing, **settings)


def law_after_growth(name, n_replicates, default_seed, looks=1, settling=8):
    """Run from one row on, in two views, until every row is active, and some cycles more."""
    exact, names = CASES[name].posterior, [c[0] for c in CASES[name].case.columns]
    events, table = exact.summaries()

    def replicate(r):
        mixture = annealed(serial(), name, 1, default_seed + STRIDE * r, view_moves=0)
        mixture.arrange([[column] for column in names])
        mixture.start("sequential")
        while mixture.growing or mixture.cycles < planned_cycles(ANNEALING, mixture.n_rows) + settling:
            mixture.cycle()
        return exact.number(*state(mixture, [(name,) for name in names]))

    def judged(index):
        return judge(np.array(index), exact.p, events, table.T[index], table @ exact.p, LEVEL)

    return by_looks(lambda first, last: [replicate(r) for r in range(first, last)], judged, n_replicates, looks)


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [contextlib.nullcontext, auxiliary_of_one_cluster])
def test_law_after_the_growth(wrong):
    with wrong():
        result = law_after_growth("sharp", 100, 133, 1 if wrong is contextlib.nullcontext else LOOKS)
    assert result.passed == (wrong is contextlib.nullcontext), f"{result} (seed {seed(133)})"


def many_rows(comm, n_shards, default_seed, **settings):
    """An annealed chain of a hundred rows whose two halves of columns want different clusters."""
    n, stream = 100, np.random.default_rng(5)
    kind = stream.integers(4, size=(2, n))
    codes = [np.where(stream.random(n) < 0.1, -1, (kind[c % 2] + (stream.random(n) < 0.1)) % 4) for c in range(6)]
    columns, rows = table_from_arrays([(f"c{c}", "categorical", part, list("abcd")) for c, part in enumerate(codes)])
    made = Settings(
        seed=seed(default_seed), shards=n_shards, view_concentration="learn",
        annealing=Annealing("linear", 4.0, 20), **settings,
    )  # fmt: skip
    mixture = Mixture(comm, columns, lambda a, b: rows.take(slice(a, b)), n, made)
    mixture.arrange([[f"c{c}" for c in part] for part in ((0, 1), (2, 5), (3, 4))])
    mixture.start("sequential")
    return mixture


def idle(mixture):
    """Mask of the idle rows in each view, (V, N)."""
    return np.array([np.concatenate(view.z) < 0 for view in mixture.views])


@pytest.mark.quick("1-one", "5-one")
@pytest.mark.parametrize("opening", ["one", "all"])
@pytest.mark.parametrize("n_shards", [1, 5])
def test_views_have_the_same_rows(n_shards, opening):
    """As many as planned, except for rows that anchors keep in, or out; and different ones from cycle to cycle."""
    mixture = many_rows(serial(), n_shards, 134, opening=opening)
    before, exchanged, views = idle(mixture)[0], 0, set()
    while mixture.growing:
        mixture.cycle()
        now = idle(mixture)
        assert (now == now[0]).all()
        planned = mixture.growth.targets(mixture.plan[mixture.cycles - 1]) if mixture.cycles <= len(mixture.plan) else 0
        assert n_shards > 1 or mixture.n_active == planned.sum()
        assert abs(mixture.n_active - np.sum(planned)) <= 20
        exchanged += int((now[0] & ~before).sum())
        before = now[0]
        views.add(tuple(sorted(view.columns for view in mixture.views)))
    assert mixture.cycles == planned_cycles(mixture.settings.annealing, 100)
    assert exchanged > 20 and len(views) > 1


def test_anchors_of_one_view_alone_would_leave_rows_behind():
    """Wrong twin of the above: every view keeps only its own anchors."""
    with mock.patch.object(sweep.Step, "anchors", lambda self, shard, z: np.zeros(len(z), bool)):
        mixture = many_rows(serial(), 5, 134)
        with contextlib.suppress(ValueError):  # a move of columns meets rows with a cluster in only one of two views
            mixture.cycle()
    assert not (idle(mixture) == idle(mixture)[0]).all()


@pytest.mark.quick(ranks=(2, 4))
@pytest.mark.mpi(min_size=2)
def test_same_bits_on_ranks():
    def bits(comm):
        mixture, result = many_rows(comm, 5, 135), []
        for _ in range(8):
            mixture.cycle()
            result.append(state(mixture, [(f"c{c}",) for c in range(6)]))
        return result

    result = bits(world())
    assert world().rank or result == bits(serial())
