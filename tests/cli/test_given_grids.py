"""Grids in a configuration: which are taken, how they are kept, and what is said of wrong ones."""

import tomllib

import numpy as np
import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.components.categorical import GRID, Categorical
from mpibayes.hpc.config.against_table import check_columns
from mpibayes.hpc.config.load import load
from mpibayes.hpc.config.resolved import as_dict, continued, difference, resolved_toml
from mpibayes.hpc.crosscat.bases import MANY, with_bases
from mpibayes.hpc.crosscat.family import settings_of
from mpibayes.hpc.crosscat.keys import Model, priors
from mpibayes.hpc.crosscat.view.pitman_yor import PitmanYor
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.rows import Column, Rows

MINIMAL = '[data]\ntable = "t.h5"\n'
MODEL, CROSSCAT = MINIMAL + "[model]\n", MINIMAL + '[model]\nfamily = "crosscat"\n'


def loaded(tmp_path, text, name="run.toml"):
    path = tmp_path / name
    path.write_text(text + "\n")
    return load(path, ["run.burn_in=7"])


@pytest.mark.parametrize(
    "text, words",
    [
        (MODEL + "concentration = []", "a list of 1 to 100 different numbers above 0"),
        (MODEL + "concentration = [0, 1]", "got [0, 1], expected"),
        (MODEL + "concentration = [1, 2, 1.0]", "different numbers"),
        (MODEL + "concentration = [1, nan]", "model.concentration"),
        (MODEL + "concentration = [1, inf]", "model.concentration"),
        (MODEL + 'concentration = [1, "2"]', "model.concentration"),
        (MODEL + "concentration = [true]", "model.concentration"),
        (MODEL + f"concentration = {list(range(1, 102))}", "1 to 100"),
        (MODEL + "concentration = {gamma = [1, 1], points = 0}", "points = 1 to 100"),
        (MODEL + "concentration = {gamma = [1, 1], points = 101}", "points = 1 to 100"),
        (MODEL + "concentration = {gamma = [1, 1], points = 2.5}", "points = 1 to 100"),
        (MODEL + "concentration = {gamma = [0.001, 1], points = 9}", "model.concentration"),  # the first one is 0
        (MODEL + "concentration = {points = 9}", "model.concentration"),
        (MODEL + "discount = [0.5, 1.0]", "1 to 100 different numbers in [0, 1)"),
        (MODEL + "discount = [0.5, -0.1]", "in [0, 1)"),
        (MODEL + "discount = [0.5, 0.5]", "different"),
        (MODEL + "discount = []", "model.discount"),
        (MODEL + "discount = [0.2, 0.5]\nconcentration = -0.2", "got -0.2, expected a number above -0.2, as discount"),
        (MODEL + "discount = [0, 0.5]\nconcentration = 0", "expected a number above 0, as discount is learned"),
        (MODEL + "discount = [0, 0.5]\nconcentration = {gamma = [1, 1]}", "is for discount = 0"),
        (MODEL + "discount = [0, 0.5]\n[sampler]\nopening = 'all'", "exact for discount = 0 alone"),
        (MODEL + "family = 'mixture'\nview_concentration = [1, 2]", 'set model.family = "crosscat"'),
        (CROSSCAT + "concentration = {gamma = [1, 1]}", "have no gamma prior of the concentration but on a grid"),
        (CROSSCAT + "view_concentration = {gamma = [1, 1]}", "{gamma = [shape, rate], points = 1 to 100}"),
        (CROSSCAT + "view_discount = [0, 0.5]\nview_concentration = 0", "above 0, as view_discount is learned"),
        (MINIMAL + "[columns.a]\nprior = {grid = []}", "{grid = [positive numbers]}"),
        (MINIMAL + "[columns.a]\nprior = {grid = [0]}", "columns.a.prior"),
        (MINIMAL + "[columns.a]\nprior = {grid = [1, 1]}", "columns.a.prior"),
        (MINIMAL + "[columns.a]\nprior = {grid = 1}", "columns.a.prior"),
        (MINIMAL + "[columns.a]\nprior = {grid = [1], dirichlet = [1, 1]}", "columns.a.prior"),
        (MODEL + 'real = "raw"', '"recorded" or "as is"'),
    ],
)
def test_one_mistake(tmp_path, text, words):
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert words in str(caught.value) and "one problem" in str(caught.value)


GIVEN = [
    MODEL + "concentration = [3, 0.5, 1]\ndiscount = [0.5, 0]",
    MODEL + "concentration = {gamma = [1, 1], points = 41}\ndiscount = 'learn'",
    MODEL + "concentration = -0.1\ndiscount = [0.2, 0.5]",
    CROSSCAT + "view_concentration = [2, 1]\nview_discount = [0.1]\nconcentration = {gamma = [2, 3], points = 5}",
    MINIMAL + "[columns.a]\nprior = {grid = [10, 0.1]}",
    MODEL + 'real = "as is"',
]


@pytest.mark.parametrize("text", GIVEN)
def test_resolved_is_read_back(tmp_path, text):
    config = loaded(tmp_path, text)
    resolved = resolved_toml(config)
    again = loaded(tmp_path, resolved, "config.resolved.toml")
    assert as_dict(again) == as_dict(config) and difference(tomllib.loads(resolved), as_dict(config)) == []
    assert difference(as_dict(loaded(tmp_path, MINIMAL, "other.toml")), as_dict(config))


def test_what_a_grid_is_to_the_sampler(tmp_path):
    """Points in rising order, all of one weight; the prior of a grid's point is that of its law."""
    settings = settings_of(loaded(tmp_path, GIVEN[0] + "\n[columns.a]\nprior = {grid = [10, 0.1]}"), 10)
    law = PitmanYor.of(settings.concentration, settings.discount)
    assert law.concentrations.tolist() == [0.5, 1.0, 3.0] and law.discounts.tolist() == [0.0, 0.5]
    assert settings.priors == {"a": {"grid": (0.1, 10.0)}}
    each = [PitmanYor.of(a, d).log_prior(np.array([2, 1])) for a in (0.5, 1.0, 3.0) for d in (0.0, 0.5)]
    assert law.log_prior(np.array([2, 1])) == pytest.approx(np.log(np.mean(np.exp(each))))
    column = Column("a", "categorical", "codes8", 0, ("x", "y"))
    assert Categorical([column], settings.priors, {}).grids[0].tolist() == [0.1, 10.0]
    crosscat = settings_of(loaded(tmp_path, GIVEN[3]), 10)
    assert crosscat.view_concentration == (1.0, 2.0) and crosscat.view_discount == (0.1,)
    quantiles = PitmanYor.of(crosscat.concentration, 0.0).concentrations
    assert len(quantiles) == 5 and np.all(np.diff(quantiles) > 0)


def test_quantiles_are_those_of_the_distribution():
    from scipy import stats

    for shape, rate, n in ((1.0, 1.0, 41), (2.5, 0.3, 7), (0.4, 2.0, 1)):
        result = PitmanYor.of({"gamma": (shape, rate), "points": n}, 0.0)
        exact = stats.gamma(shape, scale=1 / rate).ppf((np.arange(1, n + 1) - 0.5) / n)
        np.testing.assert_allclose(result.concentrations, exact, rtol=1e-12)
        assert result.gamma is None and result.fixed == (n == 1)


def test_auto_is_decided_once(tmp_path):
    """Also as a section, which is checked as one of the file would be."""
    config = loaded(tmp_path, CROSSCAT)
    assert config.of(Model).concentration == "auto"
    with pytest.raises(ValueError, match="auto"):
        PitmanYor.of("auto", 0.0)
    old = {"model": {"concentration": {"gamma": [1.0, 1.0], "points": 41}, "view_concentration": [1.0, 2.0]}}
    model = continued(config, old).of(Model)
    assert model.law == {"gamma": (1.0, 1.0), "points": 41} and model.view_law == (1.0, 2.0)
    assert resolved_toml(continued(config, old)).count("points = 41") >= 1
    explicit = loaded(tmp_path, CROSSCAT + 'concentration = "learn"')
    assert continued(explicit, old).of(Model).law == "learn"


def test_a_grid_in_a_column_of_many_levels_keeps_its_base():
    """The base is how often each level occurs; a fixed prior has none."""
    levels = tuple(f"v{i}" for i in range(MANY + 5))
    column = Column("a", "categorical", "codes16", 0, levels)
    rows = Rows.empty([column], 600)
    rows.codes16[:] = np.minimum(np.arange(600) // 2, MANY + 4)[:, None]
    plain = with_bases({}, [column], [rows], serial())["a"]
    grid = with_bases({"a": {"grid": (0.1, 2.0)}}, [column], [rows], serial())["a"]
    assert grid["grid"] == (0.1, 2.0) and (grid["base"] == plain["base"]).all()
    kind = Categorical([column], {"a": grid}, {})
    assert kind.grids[0].tolist() == [0.1, 2.0] and len(Categorical([column], {"a": plain}, {}).grids[0]) == len(GRID)
    fixed = {"a": {"dirichlet": (1.0,) * len(levels)}}
    assert with_bases(fixed, [column], [rows], serial()) == fixed


def test_a_grid_is_for_categories(tmp_path):
    config = loaded(tmp_path, MINIMAL + "[columns.x]\nprior = {grid = [1, 2]}\n[columns.a]\nprior = {grid = [1, 2]}")
    columns = [Column("x", "real", "reals", 0), Column("a", "categorical", "codes8", 0, ("u", "v", "w"))]
    with pytest.raises(ConfigError) as caught:
        check_columns(config, columns, 100)
    (problem,) = caught.value.problems
    assert "columns.x.prior: got {grid = [1.0, 2.0]}, but the column is real" in problem
    assert priors(config)["a"] == {"grid": (1.0, 2.0)}
