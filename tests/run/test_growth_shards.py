"""Shards of a run that takes rows in: old ones stay as they are, unless one would be much longer than others."""

import shutil

import numpy as np
import pytest

from mpibayes.hpc.config.load import load
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.run.grown import GROWN, SHARDS, Growth, with_shards
from mpibayes.hpc.run.identity import RESOLVED, read_provenance, write_provenance
from mpibayes.io.append import append_rows
from tests.run.conftest import exported, mpibayes, run, run_some
from tests.run.test_grown import begun, csv


@pytest.mark.parametrize(
    "before, n_new, n_shards, after",
    [
        ((50_000,) * 20, 100_000, 22, (50_000,) * 22),  # a part of two shards
        ((50_000,) * 20, 10_000, 20, (*(50_000,) * 19, 60_000)),  # a small one lengthens the last
        ((*(50_000,) * 19, 60_000), 10_000, 20, (51_000,) * 20),  # until it is too long
        ((*(51_000,) * 19, 56_000), 6_000, 21, (*(51_000,) * 19, 56_000, 6_000)),
        ((50_000,) * 4, 1_000_000, 24, (50_000,) * 24),
        ((1_249,) * 4, 200_000, 4, (51_249,) * 4),  # few shards mix better
        ((4_900,), 300, 4, (1_300,) * 4),
        ((9,) * 4, 4, 3, (13, 13, 14)),  # fewer were requested
    ],
)
def test_old_shards_stay_unless_one_is_too_long(before, n_new, n_shards, after):
    assert shards.sizes_after(before, n_new, n_shards) == after


def test_months_of_any_size():
    """No shard is longer than a quarter above the mean, none is empty, and as many as a table of that length has."""
    g = np.random.default_rng(5)
    for _ in range(200):
        sizes = shards.even_sizes(n := int(g.integers(1, 400_000)), shards.default_count(n))
        for n_new in g.integers(1, g.choice([100, 30_000, 200_000]), 12).tolist():
            k = shards.default_count(sum(sizes) + n_new)
            new = shards.sizes_after(sizes, n_new, k)
            assert len(new) == k and sum(new) == sum(sizes) + n_new and min(new) > 0
            assert max(new) * k <= max(1.25 * sum(new), sum(new) + k)
            sizes = new


@pytest.mark.thorough
def test_the_cut_is_recorded_and_has_the_same_bits(tmp_path):
    """Three shards of 24 rows stay, and the 32 that come are a fourth; 8 more lengthen it too much."""
    begun(tmp_path)
    four, place = ("--set", "run.shards=4"), tmp_path / "may"
    shutil.copytree(place, tmp_path / "pieces")
    assert run(tmp_path, "may", "--grow", *four).returncode == 0
    assert run_some(tmp_path, "pieces", 3, "run.grow=true", "run.shards=4", ranks=3).returncode == 75
    assert run(tmp_path, "pieces", *four, ranks=2).returncode == 0
    assert exported(tmp_path, "may") == exported(tmp_path, "pieces")
    forecast = mpibayes(tmp_path, "check", f"may/{RESOLVED}").stdout
    assert "4 of 24 to 32 rows, as appends have made them" in forecast, forecast
    append_rows(csv(tmp_path, "july.csv", 10, 3), tmp_path / "people.h5")
    assert run(tmp_path, "may", "--grow", *four).returncode == 0
    record = read_provenance(place)
    assert [growth[SHARDS] for growth in record[GROWN]] == [[24, 24, 24, 32], [28, 28, 28, 28]]
    config = load(tmp_path / "run.toml").changed("sampler", init="one")
    assert with_shards(Growth(2), place, config, None).settings(config).run.shards == (28,) * 4
    write_provenance(place, {**record, GROWN: [{**of, SHARDS: None} for of in record[GROWN]]})  # as before it was kept
    assert with_shards(Growth(2), place, config, None).settings(config).run.shards == 3
