"""One chain, whatever the machine: the same bits on any number of ranks, straight through or stopped and continued."""

import random
import re

import h5py
import numpy as np
import pytest

from mpibayes.hpc.crosscat.draws import iterate_draws
from tests.run.conftest import exported, run, run_some


@pytest.mark.thorough
@pytest.mark.parametrize("ranks", [2, 4, 7])
def test_any_number_of_ranks(straight, ranks):
    place, expected = straight
    done = run(place, f"ranks-{ranks}", ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert exported(place, f"ranks-{ranks}") == expected


def test_more_ranks_than_shards(straight, tmp_path):
    """Ranks without a shard idle, with one warning that names the key."""
    place, _ = straight
    words = ("--set", "run.shards=2", "--set", "run.cycles=6")
    one, many = run(place, "few-1", *words), run(place, "few-3", *words, ranks=3)
    assert one.returncode == many.returncode == 0, many.stderr
    assert exported(place, "few-1") == exported(place, "few-3")
    assert (many.stdout + many.stderr).count("run.shards") == 1


@pytest.mark.quick("one-1")
@pytest.mark.parametrize("opening, sweeps", [("one", 1), ("all", 3)])
def test_stopped_at_random_cycles_on_other_ranks(straight, opening, sweeps):
    """A finished run is extended by a random number of cycles at a time, each time on another number of ranks."""
    place, _ = straight
    words = (
        "--set",
        f"sampler.opening={opening}",
        "--set",
        f"sampler.sweeps_per_cycle={sweeps}",
        "--set",
        "run.burn_in=4",
    )
    name = f"{opening}-{sweeps}"
    assert run(place, f"straight-{name}", *words).returncode == 0
    choose, cycle = random.Random(f"{name} 7"), 0
    while cycle < 24:
        cycle = min(24, cycle + choose.randint(8, 12))
        done = run(place, f"pieces-{name}", *words, "--set", f"run.cycles={cycle}", ranks=choose.choice([1, 2, 3]))
        assert done.returncode == 0, done.stderr
    assert exported(place, f"pieces-{name}") == exported(place, f"straight-{name}")


ANNEALED = ("sampler.strategy=anneal", "anneal.start_rows=40", "run.burn_in=auto", "run.cycles=40")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [
        ("anneal.passes=5",),
        ("anneal.schedule=[[2, 0.2], [4, 1.0]]", "sampler.opening=all", "sampler.split_merge=2"),
    ],
    ids=["linear", "knots"],
)
def test_an_annealed_chain_stopped_while_it_grows_and_after(straight, changes, request):
    """Each piece on another number of ranks; the pieces end within the growth, twice, and after it."""
    place, _ = straight
    name, changes = request.node.callspec.id, (*ANNEALED, *changes)
    words = [word for change in changes for word in ("--set", change)]
    done = run(place, f"annealed-{name}", *words, ranks=3)
    assert done.returncode == 0, done.stderr
    expected = exported(place, f"annealed-{name}")
    trace = np.genfromtxt(expected[0].decode().splitlines(), delimiter=",", names=True)
    growth = int((trace["active_rows"] < 630).sum())
    planned = int(re.search(r"rows are added until cycle (\d+)", done.stdout)[1])
    assert trace["active_rows"][0] < 100 and 10 < planned - 1 <= growth < 30  # the last rows may have to wait
    choose, ranks = random.Random(f"{name} 7"), [2, 3, 1, 2]
    choose.shuffle(ranks)
    first = choose.randint(1, growth // 2)
    second = choose.randint(first + 1, growth - 1)
    for n, cycles in zip(ranks, (first, second - first, growth + choose.randint(1, 5) - second)):
        done = run_some(place, f"annealed-pieces-{name}", cycles, *changes, ranks=n)
        assert done.returncode == 75, done.stdout + done.stderr
    assert run(place, f"annealed-pieces-{name}", *words, ranks=ranks[-1]).returncode == 0
    assert exported(place, f"annealed-pieces-{name}") == expected
    kept = [draw.cycle for draw in iterate_draws(place / f"annealed-{name}")]
    assert kept == [cycle for cycle in range(3, 41, 3) if cycle > growth]  # no draw while some rows are not in


@pytest.mark.quick("sampler.strategy=prior+gibbs")
@pytest.mark.parametrize(
    "change", ["sampler.strategy=prior+gibbs", "sampler.strategy=sequential+gibbs", "run.chains=2"]
)
def test_other_starts_on_any_number_of_ranks(straight, change):
    place, _ = straight
    words = ("--set", change, "--set", "run.cycles=6")
    name = change.partition("=")[2].partition("+")[0]
    assert run(place, f"{name}-1", *words).returncode == run(place, f"{name}-3", *words, ranks=3).returncode == 0
    last = "/chain-2" if change == "run.chains=2" else ""
    assert exported(place, f"{name}-1{last}") == exported(place, f"{name}-3{last}")


def test_another_seed_is_another_chain(straight):
    place, expected = straight
    assert run(place, "seed", "--set", "run.seed=6").returncode == 0
    assert exported(place, "seed") != expected


def test_heldout_average_survives_a_stop(straight):
    """The running average over draws is state too: it is in the trace, which is compared above; here it is checked."""
    place, _ = straight
    with h5py.File(place / "one" / "trace.h5") as file:
        draw = file["posterior/heldout_lpd"][0]
        averaged = file["sample_stats/heldout_lpd_averaged"][0]
        assert np.isnan(file["warmup_sample_stats/heldout_lpd_averaged"]).all()  # of the 4 cycles of burn-in
    assert len(averaged) == 20 and np.isfinite(averaged).all()
    assert averaged[0] == pytest.approx(draw[0], abs=1e-12)
    assert averaged[-1] >= draw.mean()  # Jensen: the log of the mean exceeds the mean of the logs
