"""Schedules of subsample annealing have the stated cost, never shrink, and end with every row."""

import os
from math import exp, log

import numpy as np
import pytest

from mpibayes.hpc.crosscat.start.schedule import next_fraction_seconds, plan, shard_targets

SEED = int(os.environ.get("MPIBAYES_TEST_SEED", "22"))
KNOTS = [(1.0, 0.05), (3.0, 0.3), (4.0, 0.3), (6.5, 1.0)]


def assert_is_plan(fractions):
    assert fractions.dtype == np.float64 and fractions.ndim == 1
    assert (np.diff(fractions) >= 0).all() and fractions[0] > 0
    assert fractions[-1] == 1.0 and (fractions[:-1] < 1.0).all()


@pytest.mark.parametrize("passes", [1.0, 1.5, 2, 3.7, 10, 50])
@pytest.mark.parametrize("n_rows, start_rows", [(100, 1), (1000, 30), (50_000, 500), (1_000_000, 2000)])
@pytest.mark.parametrize("schedule", ["linear", "geometric"])
def test_a_plan_costs_what_was_asked_for(schedule, n_rows, start_rows, passes):
    fractions = plan(schedule, n_rows, start_rows, passes)
    assert_is_plan(fractions)
    assert fractions[0] == pytest.approx(start_rows / n_rows, rel=0.02 if schedule == "linear" else 0.3)
    if passes == 1:  # the last cycle alone is one pass; those before it cannot be had for nothing
        assert fractions.sum() < 1.7
    else:
        assert fractions.sum() == pytest.approx(passes, rel=0.01)
    # assignments of whole rows on four shards
    sizes = np.full(4, n_rows // 4)
    assigned = sum(shard_targets(f, sizes).sum() for f in fractions)
    assert assigned <= fractions.sum() * n_rows + 4 * len(fractions)


def test_linear_is_proportional_to_the_assignments_spent():
    """As published: n rows after n T assignments; also the number of cycles, which is that of hyperparameter
    updates."""
    n, passes = 100_000, 10
    fractions = plan("linear", n, 100, passes)
    spent = np.cumsum(fractions)
    assert np.abs(spent / passes - fractions).max() < 0.01
    ratio = fractions[1:] / fractions[:-1]
    assert np.allclose(ratio[passes:-1], ratio[passes], atol=1e-9)
    assert ratio[passes] == pytest.approx(passes / (passes - 1), rel=0.01)
    assert (ratio[: passes - 1] == 1).all()
    assert len(fractions) == pytest.approx(passes * (1 + log(1000)), rel=0.05)


def test_linear_as_worked_out_by_hand():
    assert plan("linear", 1000, 250, 2) == pytest.approx([0.25, 0.25, 0.5, 1.0], abs=1e-4)


def test_geometric_grows_by_the_same_factor_every_so_many_assignments():
    passes, start = 8, 0.01
    fractions = plan("geometric", 10_000, 100, passes)
    spent = np.cumsum(fractions)
    on_curve = start ** (1 - spent / passes)
    assert np.abs(np.log(fractions[:-1] / on_curve[:-1])).max() < 0.2
    small = {name: (plan(name, 10_000, 100, passes) < 0.1).sum() for name in ("linear", "geometric")}
    assert small["geometric"] > 5 * small["linear"]


def test_knots_are_met():
    fractions = plan(KNOTS, 100_000, 100)
    assert_is_plan(fractions)
    spent = np.cumsum(fractions)
    assert spent[-1] == pytest.approx(6.5, rel=0.01)
    curve = np.interp(spent, [0, *[u for u, _ in KNOTS]], [0, *[f for _, f in KNOTS]])
    assert np.abs(fractions - curve)[:-1].max() < 0.05
    assert ((fractions > 0.29) & (fractions < 0.31)).sum() >= 3  # the plateau
    straight = plan([(10, 1.0)], 5000, 50)
    assert np.array_equal(straight, plan("linear", 5000, 50, 10))


def test_steep_knots_still_give_a_plan():
    for knots in ([(1, 0.01), (1.1, 1.0)], [(0, 0.5), (3, 1)], [(1, 0.2), (1.2, 0.9), (5, 1)]):
        fractions = plan(knots, 1000, 5)
        assert_is_plan(fractions)
        assert fractions.sum() == pytest.approx(knots[-1][0], abs=1)


def test_plans_of_one_cycle():
    for schedule in ("constant", "sequential"):
        assert plan(schedule, 1000, 10, 7).tolist() == [1.0]
    assert plan("linear", 30, 100, 5).tolist() == [1.0]
    assert plan("linear", 1, 1, 5).tolist() == [1.0]


@pytest.mark.parametrize(
    "schedule, passes, message",
    [
        ("quick", 2, "'quick' is not one of linear, geometric"),
        ("linear", 0.5, "a plan of 0.5 passes"),
        ([(1, 0.5)], 2, "the last fraction must be 1"),
        ([(1, 0.5), (1, 1.0)], 2, "passes must rise"),
        ([(1, 0.5), (2, 0.4), (3, 1.0)], 2, "fractions must not fall"),
        ([], 2, "the last fraction must be 1"),
    ],
)
def test_what_is_no_plan(schedule, passes, message):
    with pytest.raises(ValueError, match=message):
        plan(schedule, 1000, 10, passes)


def test_shard_targets():
    assert shard_targets(0.1, np.array([10, 11, 0, 1])).tolist() == [1, 2, 0, 1]
    assert shard_targets(0.7, np.array([10])).tolist() == [7]  # 0.7 * 10 is 7.000000000000001
    assert shard_targets(1.0, np.array([3, 10**9 + 7])).tolist() == [3, 10**9 + 7]
    sizes = np.random.default_rng(SEED).integers(0, 10**6, size=50)
    before = np.zeros(50, np.int64)
    for fraction in plan("linear", 10**7, 100, 10):
        targets = shard_targets(fraction, sizes)
        assert targets.dtype == np.int64 and (targets >= before).all()
        assert (np.abs(targets - fraction * sizes) < 1 + 1e-6).all()
        before = targets


def constant(f):
    return f


def with_overhead(f):
    return f + 0.02


def superlinear(f):
    return f**1.3


def logarithmic(f):
    """The number of clusters grows with the logarithm of the rows."""
    return f * (1 + 0.15 * log(max(f, 1e-5) * 1e5)) / (1 + 0.15 * log(1e5))


def grow_by_the_clock(budget, start, cost, noise=0.0, rng=None):
    """(fractions, end) of the growth phase with simulated cycles; the first has the size of the start."""
    elapsed, fraction, fractions, seconds = 0.0, start, [], []
    while not fractions or fractions[-1] < 1.0:
        fraction = next_fraction_seconds(elapsed, budget, fraction, fractions[-4:], seconds[-4:])
        taken = cost(fraction) * (exp(noise * rng.normal()) if noise else 1.0)
        elapsed += taken
        fractions.append(fraction)
        seconds.append(taken)
    return np.array(fractions), elapsed


@pytest.mark.parametrize("cost", [constant, with_overhead, superlinear, logarithmic])
@pytest.mark.parametrize("start", [0.1, 0.003, 1e-5])
@pytest.mark.parametrize("budget", [5.0, 8.3, 20.0, 100.0])
def test_growth_by_the_clock_ends_on_time(cost, start, budget):
    """Budget in units of a pass over all rows. Active rows stay in proportion to the time spent."""
    fractions, end = grow_by_the_clock(budget, start, cost)
    ratio = fractions[1:] / fractions[:-1]
    assert ((ratio >= 1) & (ratio <= 2 + 1e-12)).all()
    assert end == pytest.approx(budget, rel=0.15)
    spent = np.cumsum([cost(f) for f in fractions]) / budget
    late = (spent > 0.2) & (fractions < 1)
    assert np.abs(fractions - spent)[late].max() < 0.2


@pytest.mark.parametrize("budget", [6.0, 10.0, 30.0])
def test_growth_by_the_clock_with_noise(budget):
    """Cycles' times vary by a factor exp(0.2 Z): 200 runs, all of them within 20 percent, and 9 of 10 within 15."""
    rng = np.random.default_rng(SEED)
    ends = np.array([grow_by_the_clock(budget, 0.01, constant, 0.2, rng)[1] for _ in range(200)])
    off = np.abs(ends / budget - 1)
    assert np.quantile(off, 0.9) < 0.15 and off.max() < 0.25, f"seed {SEED}"


def test_a_budget_that_is_too_short_doubles_at_once():
    fractions, _ = grow_by_the_clock(0.1, 0.01, constant)
    assert fractions == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0])
    assert next_fraction_seconds(0.0, 10.0, 0.2, [], []) == 0.2
    assert next_fraction_seconds(50.0, 10.0, 0.7, [0.7], [1.0]) == 1.0
