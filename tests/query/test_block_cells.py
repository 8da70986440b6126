"""Cells of numbers in blocks: probabilities of a multivariate t by quadrature over its scale."""

import numpy as np
import pytest
from scipy.stats import chi2

from mpibayes.hpc.components.boxes import log_box
from mpibayes.hpc.components.predictive import Predictive
from mpibayes.hpc.crosscat.laws.blocks import BlockLaw
from mpibayes.hpc.data.events import Known, of_values
from mpibayes.io.rows import Column

NAMES, NU, EVERY = ["a", "b", "c"], 20.0, np.arange(3)
SCALE = np.array([[1.0, 0.9, 0.3], [0.9, 1.2, 0.2], [0.3, 0.2, 0.8]])
PLACES = np.array([[1.0, 0.0, -1.0], [0.0, 0.0, 1.0], [1.0, 2.0, 0.0]])


def known(step: float) -> Known:
    columns = [Column(name, "real", "reals", i, resolution=step) for i, name in enumerate(NAMES)]
    return Known(3, {c.name: (of_values(c, PLACES[:, i] * step), EVERY) for i, c in enumerate(columns)})


def exact(step: float) -> np.ndarray:
    u, w = np.polynomial.legendre.leggauss(200)
    scales, ends = chi2.ppf(0.5 * (u + 1.0), NU) / NU, ((PLACES - 0.5) * step, (PLACES + 0.5) * step)
    each = [np.exp(log_box(np.zeros((3, 3)), SCALE / s, *ends)) for s in scales]
    return np.log(0.5 * w @ np.array(each))


@pytest.fixture
def block() -> BlockLaw:
    return BlockLaw(NAMES, Predictive(np.zeros((1, 3)), NU * SCALE[None], np.array([NU])))


@pytest.mark.quick("0.02", "1.0")
@pytest.mark.parametrize("step", [0.02, 0.5, 1.0, 2.0])
def test_cells_have_the_probabilities_of_boxes(block, step):
    score = block.score(known(step))[:, 0]
    assert score == pytest.approx(exact(step), abs=1e-3)
    density = block.law.log_density(PLACES * step, EVERY)[:, 0] + 3.0 * np.log(step)
    assert step < 0.5 or np.abs(density - exact(step)).max() > 0.02


@pytest.mark.parametrize("step", [0.5, 1.0, 2.0])
def test_conditionals_multiply(block, step):
    of = known(step)
    (column, given), every = (of.of["b"][0].column, of.only(["a", "c"])), np.arange(-80, 81)
    p = block.averaged(of_values(column, every * step), np.ones((3, 1)), given)
    assert p.sum(axis=1) == pytest.approx(np.ones(3), abs=1e-4)
    at = (PLACES[:, 1] + 80).astype(int)
    assert np.log(p[EVERY, at]) + block.score(given)[:, 0] == pytest.approx(block.score(of)[:, 0], abs=3e-4)


def pair(noise: float, nu: float = NU) -> BlockLaw:
    """Two columns that differ by this deviation, and vary by two."""
    matrix = np.array([[4.0, 4.0], [4.0, 4.0 + noise**2]])
    return BlockLaw(["a", "b"], Predictive(np.zeros((1, 2)), nu * matrix[None], np.array([nu])))


def of_rows(step: float, rows: np.ndarray, names: str) -> Known:
    """Rows recorded in steps; NaN where unknown."""
    of = {}
    for i, name in enumerate(names):
        column, seen = Column(name, "real", "reals", i, resolution=step), ~np.isnan(rows[:, i])
        values, which = np.unique(rows[seen, i], return_inverse=True)
        place = np.full(len(rows), len(values), np.intp)
        place[seen] = which
        of[name] = of_values(column, values), place
    return Known(len(rows), of)


@pytest.mark.parametrize("step", [0.1, 3.0])
def test_a_cell_that_is_narrow_alone_is_not_beside_a_close_column(step):
    """p(b | a) p(a) = p(a, b) where a varies by two, and b by a twentieth given a."""
    block, x = pair(0.05), np.array([[0.0, 0.0], [step, step], [0.0, -step]])
    of = of_rows(step, x, "ab")
    p = block.averaged(of_values(of.of["b"][0].column, x[:, 1]), np.ones((3, 1)), of.only(["a"]))[EVERY, EVERY]
    assert np.log(p) + block.score(of.only(["a"]))[:, 0] == pytest.approx(block.score(of)[:, 0], abs=5e-3)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_cells_much_wider_than_columns_have_no_more_than_all_probability(n):
    """All of n columns in one cell of 30 deviations, of which few can have nodes."""
    matrix = NU * (np.eye(n) + np.ones((n, n)))
    block = BlockLaw(list("abcde"[:n]), Predictive(np.zeros((1, n)), matrix[None], np.array([NU])))
    assert block.score(of_rows(30.0, np.zeros((1, n)), "abcde"[:n])) == pytest.approx(0.0, abs=1e-3)


def test_rows_of_which_one_column_is_known_score_as_without_others():
    x = np.array([[1.0, np.nan], [np.nan, 0.0], [1.0, 1.0]])
    block = pair(0.5)
    assert np.array_equal(block.score(of_rows(6.0, 6.0 * x, "ab"))[:1], block.score(of_rows(6.0, 6.0 * x[:1, :1], "a")))
