"""[blocks.NAME] in the configuration: what is refused, with which words, and what is read back."""

import tomllib

import numpy as np
import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.components.block import Block
from mpibayes.hpc.components.normal import VARIANCE_GRID
from mpibayes.hpc.config.against_table import check_columns
from mpibayes.hpc.config.load import load
from mpibayes.hpc.config.resolved import as_dict, difference, resolved_toml
from mpibayes.io.rows import Column
from tests.cli.conftest import problems

MINIMAL = '[data]\ntable = "t.h5"\n'
COLUMNS = [Column(f"x{i}", "real", "reals", i) for i in range(4)] + [
    Column("sex", "categorical", "codes8", 0, ("F", "M"))
]


def test_a_block_and_its_prior(write):
    text = '[blocks.geo]\ncolumns = ["x0", "x1"]\nprior = {kappa = 0.1, nu = [2.5, 4], mean = [1, 2]}\n'
    config = load(write(MINIMAL + text))
    assert config.joint == {
        "geo": {
            "columns": ("x0", "x1"),
            "prior": {"kappa": 0.1, "nu": (2.5, 4.0), "variance": None, "mean": (1.0, 2.0)},
        }
    }
    check_columns(config, COLUMNS, 100)
    assert tomllib.loads(resolved_toml(config))["blocks"]["geo"]["prior"] == {
        "kappa": 0.1, "nu": [2.5, 4.0], "variance": VARIANCE_GRID.tolist(), "mean": [1.0, 2.0],
    }  # fmt: skip
    assert load(write(MINIMAL)).joint == {}


@pytest.mark.parametrize("prior", ["", "prior = {nu = 3}\n", "prior = {mean = [1, 2], kappa = [0.1, 0.3]}\n"])
def test_the_resolved_configuration_has_the_prior_in_use(write, prior):
    """The same model to the last bit, also as that of older versions, which wrote what was given alone."""
    config = load(write(MINIMAL + '[blocks.geo]\ncolumns = ["x0", "x1"]\n' + prior))
    resolved = resolved_toml(config)
    again = load(write(resolved, "resolved.toml"))
    assert set(tomllib.loads(resolved)["blocks"]["geo"]["prior"]) >= {"kappa", "nu", "variance"}
    made = [Block("geo", b["columns"], [0, 0], [1, 1], b["prior"]) for b in (config.joint["geo"], again.joint["geo"])]
    assert [g.tolist() for g in made[0].grids] == [g.tolist() for g in made[1].grids]
    np.testing.assert_array_equal(made[0].mean, made[1].mean)
    assert difference(tomllib.loads(resolved), as_dict(config)) == difference(as_dict(again), as_dict(config)) == []
    assert difference(tomllib.loads(config.text), as_dict(config), same_table=True) == []


def test_another_block_is_another_model(write):
    plain, joint = load(write(MINIMAL)), load(write(MINIMAL + '[blocks.geo]\ncolumns = ["x0", "x1"]\n'))
    other = load(write(MINIMAL + '[blocks.geo]\ncolumns = ["x0", "x2"]\nprior = {kappa = 1}\n'))
    assert difference(as_dict(plain), as_dict(plain)) == []
    assert difference(as_dict(plain), as_dict(joint)) == ['blocks.geo.columns: was not set, is now ["x0", "x1"]']
    assert len(difference(as_dict(joint), as_dict(other))) == 2


def test_all_mistakes_at_once(write):
    text = problems(
        write(
            MINIMAL + "[blocks.a]\n"
            'columns = ["x0", "x1", "x0"]\nprior = {nu = 2, mean = [1, 2]}\n[blocks.b]\ncolumns = ["x1", "x2", "x3"]\n'
            "[columns.x2]\nuse = false\n[columns.x3]\nprior = {mean = 0, kappa = 1, nu = 1, variance = 1}\n"
        )
    )
    assert 'run.toml:4: blocks.a.columns: "x0" is listed twice' in text
    assert "run.toml:5: blocks.a.prior.nu: got 2.0, expected above 2 for 3 columns" in text
    assert "run.toml:5: blocks.a.prior.mean: got 2 numbers, expected 3, one a column" in text
    assert 'run.toml:7: blocks.b.columns: "x1" is in block "a" too; a column can be in one block' in text
    assert '"x2" has use = false in [columns.x2]' in text
    assert '"x3" has a prior in [columns.x3]; the block has one for all its columns' in text
    assert "6 problems" in text


def test_values_and_keys(write):
    text = problems(
        write(
            MINIMAL + '[blocks.one]\ncolumns = ["x0"]\n[blocks.none]\nprior = {kappa = 1}\n[blocks.c]\n'
            'columns = ["x0", "x1"]\nprior = {kapa = 1}\ncolums = 3\n'
        )
    )
    assert 'blocks.one.columns: got ["x0"], expected a list of the names of 2 to 64 real columns' in text
    assert "blocks.none.columns: this key is required: a list of the names of 2 to 64 real columns" in text
    assert "run.toml:9: blocks.c.prior.kapa: unknown key; did you mean kappa?" in text
    assert "blocks.c.colums: unknown key; did you mean columns?" in text
    assert "did you mean [blocks]?" in problems(write(MINIMAL + '[block.a]\ncolumns = ["x0", "x1"]\n'))
    assert "expected a section [blocks.a], got 3" in problems(write(MINIMAL + "[blocks]\na = 3\n"))
    regression = '[model]\nfamily = "regression"\nlikelihood = "logistic"\n[regression]\nresponse = "sex"\n'
    text = problems(write(MINIMAL + regression + '[blocks.a]\ncolumns = ["x0", "x1"]\n'))
    assert 'run.toml:8: blocks.a: given, but model.family = "regression" has no use for it' in text


def test_mistakes_in_a_prior_are_named_one_by_one(write):
    text = problems(
        write(
            MINIMAL + '[blocks.a]\ncolumns = ["x0", "x1"]\n[blocks.a.prior]\nkapa = 1\nscale = 2\nnu = 0.5\n'
            'variance = -1\n[blocks.b]\ncolumns = ["x2", "x3"]\nprior = {nu = "many", kappa = [0.1, 0], mean = 3}\n'
            '[blocks.c]\ncolumns = ["x4", "x5"]\nprior = 3\n[blocks.d]\ncolumns = ["x6", "x7"]\n'
            "prior = {nu = 1, mean = [1]}\n"
        ),
        "blocks.e.prior.varience=1",
    )
    one_or_many = "expected a number above 0 (1e-100 to 1e100), or a list of 1 to 1000 such numbers"
    for expected in (
        "run.toml:6: blocks.a.prior.kapa: unknown key; did you mean kappa?",
        "run.toml:7: blocks.a.prior.scale: unknown key; a prior here has kappa, nu, variance and mean",
        f"run.toml:9: blocks.a.prior.variance: got -1, {one_or_many}",
        f'run.toml:12: blocks.b.prior.nu: got "many", {one_or_many}',
        f"run.toml:12: blocks.b.prior.kappa: got [0.1, 0], {one_or_many}",
        "run.toml:12: blocks.b.prior.mean: got 3, expected a list of one number a column",
        "run.toml:15: blocks.c.prior: got 3, expected {kappa, nu, variance, mean} or some of these",
        "run.toml:18: blocks.d.prior.nu: got 1.0, expected above 1 for 2 columns",
        "run.toml:18: blocks.d.prior.mean: got 1 number, expected 2, one a column",
        "--set blocks.e.prior.varience: unknown key; did you mean variance?",
        "--set blocks.e.columns: this key is required",
        "11 problems",
    ):
        assert expected in text, (expected, text)


def test_blocks_against_the_table(write):
    config = load(write(MINIMAL + '[blocks.a]\ncolumns = ["x0", "X1", "sex"]\n[blocks.b]\ncolumns = ["zz", "x2"]\n'))
    with pytest.raises(ConfigError) as caught:
        check_columns(config, COLUMNS, 100)
    text = str(caught.value)
    assert 'run.toml:4: blocks.a.columns: the table has no column "X1"; did you mean x1?' in text
    assert 'blocks.a.columns: column "sex" is categorical, expected real ones: x0, x1, x2, x3' in text
    assert "x3; if it has numbers, import the table again with --kind sex=real --force" in text
    assert 'blocks.b.columns: the table has no column "zz"; it has x0, x1, x2, x3' in text
