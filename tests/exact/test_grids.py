"""Grids given in a configuration, read and run as by the command, have the exact posterior.

The quantiles of Gamma(1, 1) are -log(1 - p), which the tests use. Every test of a law rejects a right program
with probability at most LEVEL.
"""

from __future__ import annotations

import numpy as np
import pytest

from mpibayes.hpc.config.load import load
from mpibayes.hpc.config.resolved import continued
from mpibayes.hpc.crosscat import family
from mpibayes.hpc.crosscat.draws import iterate_draws
from mpibayes.hpc.crosscat.family import Family, settings_of
from mpibayes.hpc.crosscat.view.pitman_yor import PitmanYor
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.io.table import table_from_arrays, write_table
from tests.exact import crosscat, production
from tests.exact.compare import judge_joint, seed
from tests.exact.enumerate import CASES
from tests.run.conftest import run

LEVEL = 1e-4
CASE = CASES["miss6"]
QUANTILES = -np.log1p(-(np.arange(1, 42) - 0.5) / 41)
GRID = [0.2, 1.0, 4.0]
MODEL = """
[data]
table = "t.h5"
[model]
concentration = {gamma = [1, 1], points = 41}
discount = [0.8, 0]
[columns.c]
prior = {grid = [4, 0.2, 1]}
[columns.x]
prior = {mean = 0.2, kappa = 0.3, nu = 2.5, variance = 0.6}
[columns.n]
prior = {shape = 1.2, rate = 0.5}
[sampler]
init = "one"
[run]
seed = 61
shards = 3
[output]
labels = 1
"""
JOINT = production.Joint(CASE, QUANTILES, [0.0, 0.8], {**CASE.priors, "c": {"grid": GRID}})
LOG_GRID = production.Joint(CASE, np.geomspace(0.05, 500.0, 41), [0.0, 0.8], {**CASE.priors, "c": {"grid": GRID}})


def sampler_of(comm, place, n_shards):
    """The program's mixture, with the settings that it derives from MODEL."""
    (place / "run.toml").write_text(MODEL)
    config = load(place / "run.toml")
    config = continued(config, Family.decided(config, CASE.n_rows))
    s = settings_of(config, CASE.n_rows)
    return production.sampler(
        comm, CASE, n_shards, seed(61), priors=s.priors, concentration=s.concentration, discount=s.discount
    )


def of_process(joint) -> np.ndarray:
    """Index of each point (concentration, discount) among ten intervals of QUANTILES and two discounts."""
    tenth = np.searchsorted(QUANTILES[4:40:4], [alpha for alpha, _ in joint.points], side="right")
    return 2 * tenth + (np.array([d for _, d in joint.points]) > 0)


def law_of_process(joint) -> np.ndarray:
    which = of_process(joint)
    return np.array([joint.posterior.process[which == w].sum(axis=0) for w in range(20)])


def test_the_law_of_grids_in_a_configuration(tmp_path):
    """It is rejected as a draw of the posterior under the default grid."""
    mixture = sampler_of(serial(), tmp_path, 2)
    index, points = JOINT.history(mixture, 60, 12, seed(62))
    result = [
        judge_joint(index, of_process(JOINT)[points[..., 0]], law_of_process(JOINT), JOINT.posterior, LEVEL / 2),
        judge_joint(index, points[..., 1], JOINT.posterior.columns["c"], JOINT.posterior, LEVEL / 2),
    ]
    assert all(v.passed for v in result), f"{[str(v) for v in result]} (seed {seed(61)})"
    wrong = judge_joint(
        index, of_process(JOINT)[points[..., 0]], law_of_process(LOG_GRID), LOG_GRID.posterior, LEVEL / 2
    )
    assert not wrong.passed, str(wrong)


@pytest.mark.mpi(min_size=2)
@pytest.mark.quick(ranks=2)
def test_grids_have_the_same_bits_on_ranks(tmp_path):
    starts, hypers = JOINT.draw(np.random.default_rng(seed(63)), 2, sampler_of(serial(), tmp_path, 3).view.hyper)
    together = production.digest(sampler_of(world(), tmp_path, 3), starts, 4, hypers)
    if world().rank == 0:
        assert together == production.digest(sampler_of(serial(), tmp_path, 3), starts, 4, hypers)


@pytest.mark.thorough
@pytest.mark.parametrize("right", [True, False], ids=["right", "the default grid"])
def test_views_by_quantiles(right):
    """Views and rows with 41 quantiles of Gamma(1, 1); with the default grid the program is rejected."""
    alpha = {"gamma": (1.0, 1.0), "points": 41} if right else "learn"
    settings = {"view_concentration": alpha, "concentration": alpha, "split_merge": 1}
    result = crosscat.verdict(serial(), "quantiles", 2, 80, 64, 4, LEVEL, **settings)
    assert result.passed == right, f"{result} (seed {seed(64)})"


def test_the_default_is_the_same_of_rows_and_of_columns(tmp_path):
    """The prior of the rows in every view equals that of the columns over views."""
    (tmp_path / "run.toml").write_text('[data]\ntable = "t.h5"\n[model]\nfamily = "crosscat"\n')
    config = load(tmp_path / "run.toml")
    settings = settings_of(continued(config, Family.decided(config, 60)), 60)
    for law in (settings.concentration, settings.view_concentration):
        np.testing.assert_allclose(PitmanYor.of(law, 0.0).concentrations, QUANTILES, rtol=1e-12)


# --- from the command line --------------------------------------------------------------------------------------------


def test_a_run_keeps_the_grid_that_it_began_with(tmp_path, monkeypatch):
    """Even if the default changes: config.resolved.toml has the meaning of "auto" at the first start."""
    columns, rows = table_from_arrays([("x", "real", np.arange(12.0) ** 2, None)])
    write_table(tmp_path / "t.h5", columns, rows)
    (tmp_path / "run.toml").write_text('[data]\ntable = "t.h5"\n[output]\nlabels = 1\n')
    words = ("--set", "run.cycles=4", "--set", "run.burn_in=0")
    monkeypatch.setattr(family, "AUTO_CONCENTRATION", "learn")  # as it was at first
    assert run(tmp_path, "old", *words).returncode == 0
    monkeypatch.undo()
    for name, longer in (("old", "8"), ("new", "4"), ("new", "8")):
        done = run(tmp_path, name, "--set", f"run.cycles={longer}", "--set", "run.burn_in=0")
        assert done.returncode == 0, done.stderr
    resolved = {name: (tmp_path / name / "config.resolved.toml").read_text() for name in ("old", "new")}
    assert '\nconcentration = "learn"' in resolved["old"]
    assert "\nconcentration = {gamma = [1.0, 1.0], points = 41}" in resolved["new"]
    log_grid = np.geomspace(0.05, 500.0, 41)
    for name, grid in (("old", log_grid), ("new", QUANTILES)):
        alphas = [draw.hyper.concentration for draw in iterate_draws(tmp_path / name)]
        assert len(alphas) == 8 and all(np.abs(grid / alpha - 1).min() < 1e-12 for alpha in alphas)
    assert run(tmp_path, "new", "--set", "run.cycles=9", "--set", "run.burn_in=0").returncode == 0
    done = run(tmp_path, "old", "--set", "run.cycles=9", "--set", "model.concentration=[1, 2]")
    assert done.returncode == 2 and "model.concentration" in done.stderr
