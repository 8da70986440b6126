"""The whole cycle of a cross-categorization has the exact posterior: rows' sweeps and moves, scans and moves of views,
and everything that is learned.

As in test_mixture_exact: replicates start at exact draws. Every test of a law rejects a right program with probability
at most LEVEL. Scans and moves are tested separately in test_columns, and as matrices in test_view_transitions.
"""

from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.columns import round as columns
from mpibayes.hpc.crosscat.start import views as start
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.hpc.parallel.streams import in_lane
from mpibayes.io.table import table_from_arrays
from tests.exact import crosscat
from tests.exact.compare import LOOKS, by_looks, judge, seed
from tests.exact.crosscat import CASES
from tests.exact.enumerate import draw_prior_partition, log_law_of_clusters
from tests.exact.test_columns import not_shared
from tests.exact.view_transitions import cores

LEVEL = 1e-4


def verdict(comm, name, n_shards, n_replicates, cycles, default_seed, **settings):
    """Verdict on cycles with all moves; about two rows shape a proposal, so that the other rows come in batches, or
    late."""
    with cores(2):
        settings = {"split_merge": 1, **settings}
        return crosscat.verdict(comm, name, n_shards, n_replicates, default_seed, cycles, LEVEL, **settings)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name, n_shards, settings",
    [
        ("cc4x3", 1, {}),
        ("cc4x3", 3, {"opening": "all"}),
        ("block", 1, {}),
        ("block", 2, {"sweeps_per_cycle": 2}),
        ("block", 3, {"hyper_every": 2}),
        ("mixed", 4, {}),
    ],
)
def test_law_of_the_whole_cycle(name, n_shards, settings):
    """With as many replicates as reject hyperparameters that are left behind, below."""
    result = verdict(serial(), name, n_shards, 40, 4, 151, **settings)
    assert result.passed, f"{result} (seed {seed(151)})"


@pytest.mark.thorough
@pytest.mark.mpi(min_size=2)
def test_law_of_the_whole_cycle_on_ranks():
    """The law of views on real ranks, without anything else; two views side by side, columns, and chains without
    likelihood have the same bits on ranks, and are tested on one."""
    result = verdict(world(), "block", 3, 40, 3, 152)
    assert result is None or result.passed, f"{result} (seed {seed(152)})"


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_the_whole_cycle_has_the_same_bits_on_ranks():
    def bits(comm):
        with cores(2):
            mixture = crosscat.sampler(comm, "block", 3, 153, split_merge=1)
            mixture.start("one")
            result = []
            for _ in range(6):
                mixture.cycle()
                hypers = [np.ravel(part).tolist() for part in crosscat.hypers_of(mixture, CASES["block"].units)]
                result.append((crosscat.state(mixture, CASES["block"].units), hypers, mixture.process))
            return result

    result = bits(world())
    assert world().rank or result == bits(serial())


# ---- wrong programs --------------------------------------------------------------------------------------------------


def hypers_left_behind():
    """Wrong: a column that moves to another view starts with new hyperparameters."""
    right = columns.regroup

    def regroup(chain, *found):
        before = list(chain.views)
        right(chain, *found)
        for view in chain.views:
            if view not in before:
                view.hyper = view.components.start(view.hyper.concentration, view.hyper.discount)

    return mock.patch.object(columns, "regroup", regroup)


@pytest.mark.thorough
def test_hypers_left_behind_are_rejected():
    """Tested for the columns; test_mixture_exact tests that the hyperparameters of the rows' law are drawn before the
    weights."""
    with hypers_left_behind():
        result = verdict(serial(), "block", 3, 40, 4, 151, looks=LOOKS)
    assert not result.passed, str(result)


# ---- the prior -------------------------------------------------------------------------------------------------------

N_COLUMNS, N_ROWS = 12, 30
PRIOR = crosscat.GRIDS


def points(of):
    return [(a, d) for a in PRIOR[of + "concentration"] for d in PRIOR[of + "discount"]]


def verdict_on_prior(comm, n_shards, n_replicates, cycles, default_seed, looks=1):
    """Numbers of views, and of clusters of the first column's view, without likelihood, from draws of the process."""
    names = [f"c{i}" for i in range(N_COLUMNS)]
    columns, rows = table_from_arrays([(name, "real", np.arange(1.0 * N_ROWS), None) for name in names])
    process = {name: list(grid) for name, grid in PRIOR.items()}
    settings = Settings(
        seed=seed(default_seed), shards=n_shards, likelihood=False, split_merge=1, column_moves=4, **process
    )
    mixture = Mixture(comm, columns, lambda a, b: rows.take(np.arange(a, b)), N_ROWS, settings)
    generator = np.random.default_rng(seed(default_seed) + 1)

    def draw(n, of):
        return draw_prior_partition(n, *points(of)[generator.integers(len(points(of)))], generator)

    def replicate(r):
        """(views, clusters of the first column's, is the second column there?) after each cycle."""
        views, seen = draw(N_COLUMNS, "view_"), []
        z = np.array([draw(N_ROWS, "") for _ in range(views.max() + 1)])
        crosscat.place(mixture, mixture.units, views.tolist(), z[views], r * crosscat.STRIDE)
        for _ in range(cycles):
            mixture.cycle()
            (first,) = (v for v in mixture.views if "c0" in v.columns)
            seen.append((len(mixture.views), len(first.sizes()), "c1" in first.columns))
        return seen

    def more(first, last):
        seen = [replicate(r) for r in range(first, last)]
        return None if comm.rank else seen

    laws = [np.mean([np.exp(log_law_of_clusters(n, *p)) for p in points(of)], axis=0)
            for n, of in ((N_COLUMNS, "view_"), (N_ROWS, ""))]  # fmt: skip
    together = np.mean([(1.0 - d) / (1.0 + a) for a, d in points("view_")])
    events = [f"{k + 1} views" for k in range(N_COLUMNS)] + [f"{k + 1} clusters" for k in range(N_ROWS)]
    expected = np.array([*laws[0], *laws[1], together])

    def judged(seen):
        seen = np.array(seen)
        happened = [seen[..., i, None] == 1 + np.arange(len(law)) for i, law in enumerate(laws)]
        means = np.concatenate([*happened, seen[..., 2:]], axis=2).mean(axis=1)
        return judge(seen[:, -1, 0] - 1, laws[0], [*events, "two columns together"], means, expected, LEVEL)

    return by_looks(more, judged, n_replicates, looks)


@pytest.mark.thorough
def test_law_of_the_prior():
    result = verdict_on_prior(serial(), 3, 80, 4, 154)
    assert result.passed, f"{result} (seed {seed(154)})"


@pytest.mark.thorough
def test_too_many_new_views_are_rejected():
    with not_shared():
        result = verdict_on_prior(serial(), 3, 80, 4, 154, LOOKS)
    assert not result.passed, str(result)


# ---- what a cycle depends on -----------------------------------------------------------------------------------------


def history(mixture, units, cycles):
    out = []
    for _ in range(cycles):
        mixture.cycle()
        out.append((crosscat.state(mixture, units), [part.tolist() for part in crosscat.hypers_of(mixture, units)]))
    return out


@pytest.mark.quick("pilot")
@pytest.mark.parametrize("how", ["deal", "pilot", "cycles"])
def test_a_chain_is_its_state(how):
    """A chain continues from random views, from a pilot's, or from its own cycles, like one put in that state: views,
    labels, hyperparameters and the number of cycles are all that a start leaves behind."""
    units = CASES["mixed"].units
    first, second = (crosscat.sampler(serial(), "mixed", 2, 156, split_merge=1) for _ in range(2))
    if how == "pilot":
        start.follow(first, start.Pilot(*of_a_pilot()))
    else:
        start.deal(first, 2)
        first.start("random", 2)
    if how == "cycles":
        history(first, units, 3)
    second.arrange([v.columns for v in first.views])
    for one, two in zip(first.views, second.views):
        labels = dict(enumerate(z.copy() for z in one.z))
        two.resume(labels.__getitem__, one.n_labels, one.hyper)
    second.resume(first.cycles, process=first.process)
    assert history(first, units, 4) == history(second, units, 4)


def of_a_pilot():
    """Possible result of a pilot for this chain."""
    pilot = crosscat.sampler(serial(), "mixed", 1, 157, split_merge=1)
    start.deal(pilot, 3)
    pilot.start("one")
    for _ in range(2):
        pilot.cycle()
    return [start.Found(v.columns, v.hyper, v.partition.statistics) for v in pilot.views], pilot.process


CYCLES_OF_LANES = 60


def streams_of_views(cycles):
    """Run cycles; return whether after each the views have lanes of their own and the coming cycle's summaries follow
    these lanes, and whether the views have changed at all."""
    mixture, right, changed = crosscat.sampler(serial(), "mixed", 3, 158, split_merge=1), True, set()
    mixture.start("one")
    for _ in range(cycles):
        mixture.cycle()
        right &= [v.lane for v in mixture.views] == [in_lane(0, i) for i in range(len(mixture.views))]
        now = [(v.partition.owner.tolist(), v.partition.anchor.tolist()) for v in mixture.views]
        mixture.summarise()
        right &= now == [(v.partition.owner.tolist(), v.partition.anchor.tolist()) for v in mixture.views]
        changed.add(tuple(v.columns for v in mixture.views))
    return right, len(changed) > 2


def test_views_draw_from_lanes_of_their_own():
    assert streams_of_views(CYCLES_OF_LANES) == (True, True)


def test_views_in_one_lane_are_found():
    with mock.patch.object(columns, "in_lane", lambda chain, lane: chain):
        assert streams_of_views(CYCLES_OF_LANES) == (False, True)
