"""One chain, whatever the machine: the same bits on any number of ranks, straight through or stopped and continued."""

import random

import h5py
import numpy as np
import pytest

from tests.run.conftest import exported, run


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The chain on one rank, without a stop."""
    from tests.run.conftest import CONFIG, mixed_table

    place = tmp_path_factory.mktemp("straight")
    mixed_table(place / "table.h5")
    (place / "run.toml").write_text(CONFIG)
    done = run(place, "one")
    assert done.returncode == 0, done.stderr
    return place, exported(place, "one")


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_any_number_of_ranks(straight, ranks):
    place, expected = straight
    done = run(place, f"ranks-{ranks}", ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert exported(place, f"ranks-{ranks}") == expected


def test_more_ranks_than_shards(straight, tmp_path):
    """Ranks without a shard idle, with one warning that names the key."""
    place, _ = straight
    words = ("--set", "run.shards=2", "--set", "run.cycles=6")
    one, many = run(place, "few-1", *words), run(place, "few-4", *words, ranks=4)
    assert one.returncode == many.returncode == 0, many.stderr
    assert exported(place, "few-1") == exported(place, "few-4")
    assert (many.stdout + many.stderr).count("run.shards") == 1


@pytest.mark.parametrize("opening", ["one", "all"])
@pytest.mark.parametrize("sweeps", [1, 3])
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
        cycle = min(24, cycle + choose.randint(5, 12))
        done = run(place, f"pieces-{name}", *words, "--set", f"run.cycles={cycle}", ranks=choose.choice([1, 2, 3]))
        assert done.returncode == 0, done.stderr
    assert exported(place, f"pieces-{name}") == exported(place, f"straight-{name}")


def test_another_seed_is_another_chain(straight):
    place, expected = straight
    assert run(place, "seed", "--set", "run.seed=6").returncode == 0
    assert exported(place, "seed") != expected


def test_heldout_average_survives_a_stop(straight):
    """The running average over draws is state too: it is in the trace, which is compared above; here it is checked."""
    place, _ = straight
    with h5py.File(place / "one" / "trace.h5") as file:
        draw = file["posterior/heldout_lpd"][0]
        averaged = file["posterior/heldout_lpd_averaged"][0]
    assert np.isnan(averaged[:4]).all() and np.isfinite(averaged[4:]).all()
    assert averaged[4] == pytest.approx(draw[4], abs=1e-12)
    assert averaged[-1] >= draw[4:].mean()  # Jensen: the log of the mean exceeds the mean of the logs
