"""Cells of numbers in lines against integrals over boxes under multivariate normals, and the laws that probabilities of
cells obey."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from mpibayes.hpc.components import nodes
from mpibayes.hpc.components.boxes import log_box
from mpibayes.hpc.crosscat.laws.normals import Normals
from mpibayes.hpc.crosscat.lines.cells import Cells
from mpibayes.hpc.links.forest import ROOT

TREES = {"star": [ROOT, 0, 0, 0], "chain": [ROOT, 0, 1, 2], "bush": [ROOT, 0, 0, 2]}
STEPS = [0.02, 0.3, 1.0, 2.0]
OWN = np.arange(9) % 3


def normals(above, noise, seed=1, k=3) -> Normals:
    """Trees of lines with slopes of about one, and noise of this deviation."""
    g, d = np.random.default_rng(seed), len(above)
    root = np.zeros((k, d, d))
    for c, parent in enumerate(above):
        root[:, c, c] = 2.0 if parent == ROOT else noise * g.uniform(0.8, 1.2, k)
        if parent != ROOT:
            root[:, c] += g.uniform(0.6, 1.4, (k, 1)) * root[:, parent]
    return Normals(g.normal(size=(k, d)), root @ root.swapaxes(1, 2), np.full(k, np.inf))


def cells(law, above, x, step) -> Cells:
    return Cells(law, above, x, np.full(x.shape, np.log(step)), x - 0.5 * step, x + 0.5 * step)


def rows_of(law, step, seed=2) -> np.ndarray:
    """Rows near their clusters `OWN`, recorded in steps; some columns are not known."""
    g = np.random.default_rng(seed)
    x = np.round(np.stack([g.multivariate_normal(law.location[k], law.matrix[k]) for k in OWN]) / step) * step
    x[:3, 1], x[3:5, 0] = np.nan, np.nan
    return x


def log_boxes(law, x, low, high) -> np.ndarray:
    """Log probability that the columns known in x are within their ranges, in each row's cluster."""
    out = []
    for k, row, *ends in zip(OWN, x, low, high):
        seen = np.flatnonzero(~np.isnan(row))
        of = law.location[k, seen], law.matrix[k][np.ix_(seen, seen)]
        out.append(log_box(of[0][None], of[1], *(end[None, seen] for end in ends))[0])
    return np.array(out)


def error(above, noise, step) -> float:
    law = normals(above, noise)
    x = rows_of(law, step)
    log_p = cells(law, above, x, step).log_p()[np.arange(9), OWN]
    return np.abs(log_p - log_boxes(law, x, x - 0.5 * step, x + 0.5 * step)).max()


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("above", TREES.values(), ids=TREES)
@pytest.mark.parametrize("step", STEPS)
def test_cells_have_the_probabilities_of_boxes(above, step):
    assert error(above, 0.5, step) < 2e-4
    assert error(above, 0.05, step) < 1e-2  # noise that is narrower than the nodes can see counts as wider


@pytest.mark.parametrize("above", TREES.values(), ids=TREES)
def test_densities_times_steps_are_rejected(above, monkeypatch):
    monkeypatch.setattr(nodes, "WIDEST", np.full(len(nodes.WIDEST), np.inf))
    assert error(above, 0.5, 1.0) > 0.1


def test_two_cells_have_the_distribution_function_of_scipy():
    law, step = normals([ROOT, 0], 0.4), 1.0
    x = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -2.0]])
    log_p = cells(law, [ROOT, 0], x, step).log_p()
    for k in range(3):
        exact = [multivariate_normal(law.location[k], law.matrix[k]).cdf(row + 0.5, lower_limit=row - 0.5) for row in x]
        assert np.exp(log_p[:, k]) == pytest.approx(exact, abs=1e-4)


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("above", TREES.values(), ids=TREES)
@pytest.mark.parametrize("step", STEPS[1:])
@pytest.mark.parametrize("member", [0, 2, 3])
def test_conditionals_multiply(above, step, member):
    """p(x_m | others) p(others) = p(x), and conditionals sum to 1."""
    law, weight, places = normals(above, 0.5), np.zeros((9, 3)), np.arange(-30, 31) * step
    weight[np.arange(9), OWN] = 1.0
    x = rows_of(law, step)
    without = x.copy()
    without[:, member] = np.nan
    others = cells(law, above, without, step)
    p, coarse = others.averaged(member, places - 0.5 * step, places + 0.5 * step, weight)
    assert coarse[np.arange(9), OWN].all()
    assert p.sum(axis=1) == pytest.approx(np.ones(9), abs=1e-4)
    rows = np.flatnonzero(~np.isnan(x[:, member]))
    at = np.round(x[rows, member] / step).astype(int) + 30
    both, given = (of.log_p()[rows, OWN[rows]] for of in (cells(law, above, x, step), others))
    assert np.log(p[rows, at]) + given == pytest.approx(both, abs=3e-4)


def total_of_parts(step: float) -> tuple[Cells, np.ndarray]:
    """All cells of b and a + b where a and b vary by four steps, and the noise of the sum is a tenth of one."""
    b = np.array([2.0, 0.0, 0.0])
    rows = np.array([b, 0.9 * b + [0.0, 1.0, 0.0], b + 0.1 * np.array([0.0, 0.0, 1.0])])[[0, 2]][:, [0, 2]]
    law = Normals(np.zeros((1, 2)), (rows @ rows.T)[None], np.full(1, np.inf))
    x = np.stack(np.meshgrid(np.arange(-12.0, 13.0), np.arange(-12.0, 13.0)), axis=-1).reshape(-1, 2) * step
    return cells(law, [ROOT, 0], x, step), x


def test_probabilities_of_cells_add_up_to_one():
    of, x = total_of_parts(1.0)
    p = np.exp(of.log_p()[:, 0])
    assert p.sum() == pytest.approx(1.0, abs=1e-4)
    alone = p[x[:, 0] == 0.0].sum()
    assert p.max() / alone < 1.0  # p(a + b | a)


def test_densities_times_steps_exceed_one(monkeypatch):
    monkeypatch.setattr(nodes, "WIDEST", np.full(len(nodes.WIDEST), np.inf))
    of, x = total_of_parts(1.0)
    p = np.exp(of.log_p()[:, 0])
    assert p.max() / p[x[:, 0] == 0.0].sum() > 0.999
    assert abs(p.sum() - 1.0) > 0.1


def test_draws_are_within_their_cells_as_often_as_they_should_be():
    """The share of draws in the lower half of a cell, of 2,000 even numbers for each column."""
    above, step, n = TREES["bush"], 1.5, 2_000
    law = normals(above, 0.5)
    x = rows_of(law, step)[5]
    many = cells(law, above, np.tile(x, (n, 1)), step)
    g = np.random.default_rng(5)
    drawn = many.drawn(np.full(n, OWN[5]), lambda column, rows: g.permutation((np.arange(len(rows)) + 0.5) / n))
    low, high = np.tile(x - 0.5 * step, (9, 1)), np.tile(x + 0.5 * step, (9, 1))
    whole = log_boxes(law, np.tile(x, (9, 1)), low, high)[5]
    for column in range(4):
        half = high.copy()
        half[:, column] = x[column]
        share = np.exp(log_boxes(law, np.tile(x, (9, 1)), low, half)[5] - whole)
        middle = (drawn[:, column] < x[column]).mean() + 0.5 * (drawn[:, column] == x[column]).mean()
        assert abs(drawn[:, column] - x[column]).max() <= 0.5 * step
        assert middle == pytest.approx(share, abs=0.06)
