"""The default grids, which are the prior, stand in docs/math.md with the values that the program has."""

import re
from pathlib import Path

import numpy as np
import pytest

from mpibayes.hpc.components import block, categorical, normal, poisson
from mpibayes.hpc.crosscat.view import pitman_yor
from mpibayes.hpc.ibp.family import GRID_OF_C

PAGE = Path(__file__).parents[2] / "docs" / "math.md"
GRIDS = {
    "α": pitman_yor.LEARNED_CONCENTRATION,
    "d": pitman_yor.LEARNED_DISCOUNT,
    "m": categorical.GRID,
    "(μ₀ − centre) / deviation": normal.MEAN_GRID,
    "κ₀": normal.KAPPA_GRID,
    "ν₀": normal.NU_GRID,
    "σ₀² / deviation²": normal.VARIANCE_GRID,
    "a": poisson.SHAPE_GRID,
    "b · mean": poisson.RATE_GRID,
    "c (7.4)": np.array(GRID_OF_C),
}
SPACED = {"log": np.geomspace, "even": np.linspace}
MODULES = (block, categorical, normal, pitman_yor, poisson)


def grids_of(text):
    """The grids of a page's table, (points,) each, by name."""
    lines = re.findall(r"^\| (\S.*?) \| (\d+) \| (\S+) \| (\S+) \| (log|even) \|$", text, re.M)
    return {name: SPACED[how](float(low), float(high), int(points)) for name, points, low, high, how in lines}


@pytest.mark.parametrize("name", GRIDS)
def test_the_page_has_a_grid(name):
    result = grids_of(PAGE.read_text(encoding="utf-8"))[name]
    assert len(result) == len(GRIDS[name])
    np.testing.assert_allclose(result, GRIDS[name], rtol=1e-12, atol=1e-12)


def test_the_page_has_the_ends_of_the_default_concentration():
    low, high = re.search(
        r"41 quantiles of Gamma\(1, 1\).*?from ([\d.]+) to ([\d.]+),", PAGE.read_text("utf-8")
    ).groups()
    quantiles = pitman_yor.gamma_quantiles(1.0, 1.0, 41)
    np.testing.assert_allclose([float(low), float(high)], quantiles[[0, -1]], rtol=5e-4)


def test_no_grid_is_forgotten_and_another_one_is_seen():
    every = [(m, n) for m in MODULES for n in vars(m) if n.endswith("GRID") or n.startswith("LEARNED")]
    for module, name in every:
        assert any(getattr(module, name) is grid for grid in GRIDS.values()), f"{module.__name__}.{name}"
    assert len(every) == 9
    other = grids_of("| m | 21 | 0.016 | 16 | log |")
    assert not np.allclose(other["m"], categorical.GRID, rtol=1e-4)


def test_blocks_have_the_grids_of_columns():
    for width in (2, 5):
        grids = block.default_grids(width)
        assert grids["kappa"] is normal.KAPPA_GRID and grids["variance"] is normal.VARIANCE_GRID
        assert (grids["nu"] == width - 1 + normal.NU_GRID).all()
