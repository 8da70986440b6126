"""The default grids, which are the prior, stand in docs/math.md with the values that the program has.

python -m tests.house.test_default_grids       # prints them as the page has them
"""

import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

from mpibayes.hpc.components import categorical, multinormal, normal, poisson
from mpibayes.hpc.crosscat import pitman_yor
from mpibayes.hpc.ibp.family import GRID_OF_C

PAGE = Path(__file__).parents[2] / "docs" / "math.md"
DIGITS = 4
GRIDS = {
    "α": pitman_yor.LEARNED_CONCENTRATION,
    "α, {gamma = [1, 1], points = 41}": pitman_yor.gamma_quantiles(1.0, 1.0, 41),
    "d": pitman_yor.LEARNED_DISCOUNT,
    "m": categorical.GRID,
    "(μ₀ − centre) / deviation": normal.MEAN_GRID,
    "κ₀": normal.KAPPA_GRID,
    "ν₀": normal.NU_GRID,
    "σ₀² / deviation²": normal.VARIANCE_GRID,
    "a": poisson.SHAPE_GRID,
    "b · mean": poisson.RATE_GRID,
    "c": np.array(GRID_OF_C),
}
MODULES = (categorical, multinormal, normal, pitman_yor, poisson)


def as_text(name, grid):
    """A grid as the page has it."""
    words = ", ".join(f"{x:.{DIGITS}g}" for x in grid)
    return textwrap.fill(f"{name}: {words}", 96, initial_indent="    ", subsequent_indent=" " * 8)


def grids_of(text):
    """The grids of a page, (n,) each, by name."""
    joined = re.sub(r",\n {8,}", ", ", text)
    lines = re.findall(r"^ {4,6}(\S[^:\n]*): (-?\d[-\d.e, ]*)$", joined, re.M)
    return {name: np.array([float(x) for x in numbers.split(", ")]) for name, numbers in lines}


@pytest.mark.parametrize("name", GRIDS)
def test_the_page_has_a_grid(name):
    result = grids_of(PAGE.read_text(encoding="utf-8"))[name]
    assert len(result) == len(GRIDS[name])
    np.testing.assert_allclose(result, GRIDS[name], rtol=0.51 * 10.0 ** (1 - DIGITS), atol=1e-12)


def test_no_grid_is_forgotten_and_another_one_is_seen():
    every = [(m, n) for m in MODULES for n in vars(m) if n.endswith("GRID") or n.startswith("LEARNED")]
    for module, name in every:
        assert any(getattr(module, name) is grid for grid in GRIDS.values()), f"{module.__name__}.{name}"
    assert len(every) == 9
    other = as_text("m", 1.01 * categorical.GRID)
    assert not np.allclose(grids_of(other)["m"], categorical.GRID, rtol=0.51 * 10.0 ** (1 - DIGITS))


def test_blocks_have_the_grids_of_columns():
    for width in (2, 5):
        grids = multinormal.default_grids(width)
        assert grids["kappa"] is normal.KAPPA_GRID and grids["variance"] is normal.VARIANCE_GRID
        assert (grids["nu"] == width - 1 + normal.NU_GRID).all()


if __name__ == "__main__":
    print("\n".join(as_text(*item) for item in GRIDS.items()))
