"""A run on a table to which rows were appended: the old run keeps to its rows, a new one starts from its clusters."""

import numpy as np
import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.crosscat.draws import last_draw
from mpibayes.hpc.crosscat.start.labels import grown_labels
from mpibayes.hpc.crosscat.start.subsample import IDLE
from mpibayes.hpc.data.rows import Data, heldout_of_parts
from mpibayes.io.append import append_rows
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table
from tests.run.conftest import exported, mpibayes, run, run_some

CONFIG = """
[data]
table = "people.h5"
heldout = 0.2
[model]
family = "{family}"
[sampler]
split_merge = 4
[run]
shards = 3
cycles = 10
burn_in = 4
[output]
labels = 2
"""
CHANGES = ("sampler.init=labels", "sampler.init_labels=may", "run.seed=1")
GROW = [word for change in CHANGES for word in ("--set", change)]


def csv(place, name, n, seed, levels="abc"):
    """A file of rows of three kinds, with one column in steps."""
    g = np.random.default_rng(seed)
    z = g.integers(3, size=n)
    flip = [(z + (g.random(n) < 0.1)) % len(levels) for _ in range(3)]
    rows = [f"{levels[a]},{levels[b]},{'xyz'[c % 3]},{k + 3 * v:.1f}\n" for a, b, c, k, v in zip(*flip, z, g.random(n))]
    (place / name).write_text("p,q,r,s\n" + "".join(rows))
    return place / name


def begun(place, family="mixture", *words):
    """A finished run "may" on a table that has more rows by now."""
    (place / "run.toml").write_text(CONFIG.format(family=family))
    import_table(csv(place, "may.csv", 90, 1), place / "people.h5")
    done = run(place, "may", *words)
    assert done.returncode == 0, done.stderr
    before = mpibayes(place, "query", "may", "logp", "--of", "p=a")
    append_rows(csv(place, "june.csv", 40, 2, "abcd"), place / "people.h5")
    return before.stdout


def test_the_old_run_keeps_to_its_rows(tmp_path):
    before = begun(tmp_path)
    assert mpibayes(tmp_path, "query", "may", "logp", "--of", "p=a").stdout == before != ""
    done = run(tmp_path, "may", "--set", "run.cycles=20")
    assert done.returncode == 2 and "40 rows appended to" in done.stderr and "started with 90" in done.stderr, (
        done.stderr
    )
    assert "With --grow (run.grow = true)" in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["mixture", "crosscat"])
def test_a_run_starts_from_the_clusters_of_another(tmp_path, family):
    begun(tmp_path, family)
    done = run(tmp_path, "same", *GROW[:4])
    assert done.returncode == 2 and "run.seed: is 0, as in" in done.stderr and "--set run.seed=1" in done.stderr
    assert not (tmp_path / "same").exists()
    done = run(tmp_path, "june", *GROW)
    assert done.returncode == 0 and "may had 72 training rows; 32 were appended" in done.stdout, done
    assert (
        "as the last draw of" in done.stdout
        and "the first cycle assigns 32 more training rows to clusters" in done.stdout
    ), done
    draw = last_draw(tmp_path / "june")
    assert all(len(z) == 104 and z.min() >= 0 for z in draw.labels)


def test_labels_are_those_of_the_rows_they_belong_to(tmp_path):
    begun(tmp_path, "mixture", "--set", "run.chains=2")
    table = Table.open(tmp_path / "people.h5")
    data, old = Data(table, (), 0.2), heldout_of_parts([90], 0.2)
    assert np.array_equal(data.heldout[data.heldout < 90], old)
    trained = np.setdiff1d(np.arange(90), old)
    for number, chain in [(0, "chain-1"), (1, "chain-2"), (2, "chain-1")]:
        (given,) = grown_labels(tmp_path / "may", data, 1, number, several=False).labels
        assert np.array_equal(np.flatnonzero(given == IDLE), np.arange(72, 104))
        z = last_draw(tmp_path / "may" / chain).labels[0]
        assert np.array_equal(np.equal.outer(given[:72], given[:72]), np.equal.outer(z, z))
    all_rows = Data(table, (), None)  # held-out rows of the other run have no label
    (given,) = grown_labels(tmp_path / "may", all_rows, 1, 0, several=False).labels
    assert np.array_equal(np.flatnonzero(given > IDLE), trained)
    assert grown_labels(tmp_path / "june.csv", data, 1, 0, several=False) is None
    with pytest.raises(ConfigError, match=r"run\.seed: is 0"):
        grown_labels(tmp_path / "may", data, 0, 0, several=False)


def test_an_annealed_start_is_refused(tmp_path):
    begun(tmp_path)
    done = run(tmp_path, "june", *GROW, "--set", "sampler.strategy=anneal", "--set", "run.burn_in=auto",
               "--set", "run.cycles=400")  # fmt: skip
    assert done.returncode == 2 and 'set sampler.strategy = "auto"' in done.stderr, done.stderr


@pytest.mark.thorough
def test_the_same_bits_on_ranks_and_after_a_stop(tmp_path):
    begun(tmp_path)
    assert run(tmp_path, "one", *GROW).returncode == 0
    assert run(tmp_path, "three", *GROW, ranks=3).returncode == 0
    assert run_some(tmp_path, "pieces", 3, *CHANGES, ranks=2).returncode == 75
    assert run(tmp_path, "pieces", *GROW).returncode == 0
    assert exported(tmp_path, "one") == exported(tmp_path, "three") == exported(tmp_path, "pieces")


def test_latent_numbers_of_old_rows_stay(tmp_path):
    import_table(csv(tmp_path, "may.csv", 90, 1), tmp_path / "people.h5")
    old = Table.open(tmp_path / "people.h5")
    append_rows(csv(tmp_path, "june.csv", 40, 2), tmp_path / "people.h5")
    new = Table.open(tmp_path / "people.h5")
    assert any(c.resolution for c in old.columns) and old.fingerprint != new.fingerprint
    a, b = (Data(table, (), None, latent=True).rows_of(0, 90).reals for table in (old, new))
    assert np.array_equal(a, b) and not np.array_equal(a, old.read().reals)
