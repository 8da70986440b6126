"""Configurations of features: the keys, their values, and the memory they take."""

import numpy as np
import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.load import load
from mpibayes.hpc.config.resolved import as_dict, resolved_toml
from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.ibp.check import memory_per_rank
from mpibayes.hpc.ibp.family import GRID_OF_C, Family, settings_of
from mpibayes.hpc.ibp.state import Gamma, InverseGamma
from mpibayes.io.table import table_from_arrays

HEAD = '[data]\ntable = "t.h5"\n[model]\nfamily = "ibp"\n'


def config_of(tmp_path, text="") -> Config:
    (tmp_path / "run.toml").write_text(HEAD + text)
    return load(tmp_path / "run.toml")


def cells(standardise=True):
    rng = np.random.default_rng(1)
    columns, rows = table_from_arrays(
        [("x", "real", 3.0 + 2.0 * rng.normal(size=50), None), ("n", "count", rng.poisson(4.0, 50).astype(float), None)]
    )
    return Cells(columns, standardise), rows


def test_defaults(tmp_path):
    config = config_of(tmp_path)
    result = settings_of(config.changed("run", shards=3), cells()[0])
    assert (result.alpha, result.c, result.noise, result.opening) == (Gamma(1.0, 1.0), 1.0, "shared", "one")
    assert result.noise_sd == result.feature_sd == InverseGamma(1.0, 1.0) and result.likelihood and result.shards == 3
    decided = Family.decided(config, 7_000)
    assert decided == {"run": {"shards": 4, "burn_in": 200}, "sampler": {"opening": "one"}}


def test_what_is_given_is_taken(tmp_path):
    result = settings_of(
        config_of(
            tmp_path,
            "alpha = {gamma = [2, 3]}\nc = [0.5, 1.0, 2.0]\nnoise_sd = {inverse_gamma = [4, 5]}\nfeature_sd = 0.7\n"
            'noise = "column"\n[sampler]\nopening = "all"\nsweeps_per_cycle = 3\n',
        ),
        cells()[0],
    )
    assert (result.alpha, result.c) == (Gamma(2.0, 3.0), (0.5, 1.0, 2.0))
    assert (result.noise_sd, result.feature_sd, result.noise) == (InverseGamma(4.0, 5.0), 0.7, "column")
    assert (result.opening, result.sweeps_per_cycle) == ("all", 3)
    assert settings_of(config_of(tmp_path, 'c = "learn"\n'), cells()[0]).c == GRID_OF_C


def test_the_prior_of_variances_is_in_the_cells_units(tmp_path):
    config, part = config_of(tmp_path, "standardise = false\n"), cells(False)[0]
    size = np.mean([c.scale**2 for c in part.columns])
    assert size > 2.0 and settings_of(config, part).noise_sd == InverseGamma(1.0, size)
    by_column = config.changed("model", noise="column")
    assert settings_of(by_column, part).feature_sd == InverseGamma(1.0, 1.0)


def test_cells_go_and_come_back():
    mine, rows = cells()
    x = mine.of(rows)
    np.testing.assert_allclose(mine.in_units(0, x[:, 0]), rows.reals[:, 0])
    back = rows.take(slice(None))
    mine.put(back, 1, np.arange(50), x[:, 1])
    assert (back.tallies == rows.tallies).all()
    mine.put(back, 1, np.array([4]), np.array([-50.0]))
    assert back.tallies[4, 0] == 0.0
    plain = cells(False)[0].of(rows)
    assert (plain[:, 0] == rows.reals[:, 0]).all()


@pytest.mark.parametrize(
    "line, words",
    [
        ("alpha = -1", "model.alpha"),
        ("alpha = {gamma = [1]}", "model.alpha"),
        ("c = []", "model.c"),
        ("noise_sd = 0", "model.noise_sd"),
        ("feature_sd = {inverse_gamma = [1, 0]}", "model.feature_sd"),
        ('noise = "row"', '"shared" or "column"'),
        ("discount = 0.5", "model.discount"),
        ("[report]\nimage = [6]", '[rows, columns], each a whole number from 1 to 65,536, or "none"'),
        ("[sampler]\ninit = 3", "sampler.init"),
    ],
)
def test_mistakes(tmp_path, line, words):
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, line + "\n")
    assert words in str(caught.value)


def test_resolved_is_read_back(tmp_path):
    config = config_of(
        tmp_path, "alpha = {gamma = [2, 3]}\nc = [0.5, 1]\n[run]\nburn_in = 7\n[report]\nimage = [3, 4]\n"
    )
    (tmp_path / "resolved.toml").write_text(resolved_toml(config))
    assert as_dict(load(tmp_path / "resolved.toml")) == as_dict(config)


def test_memory_is_that_of_the_rows():
    one, two = (memory_per_rank(36, n, 20, 1, 100) for n in (1_000_000, 2_000_000))
    assert two["rows"] - one["rows"] == 1_000_000 * (40 * 4 + 8) + 8 * 50_000
    assert memory_per_rank(36, 1_000_000, 20, 4)["rows"] < 0.27 * one["rows"]
