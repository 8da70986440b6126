"""Missing cells of numbers in lines: their law given parameters, and what draws and checkpoints keep of them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.draws import of_chain
from mpibayes.hpc.crosscat.lines.gaps import Tree
from mpibayes.hpc.crosscat.start.subsample import Annealing
from mpibayes.hpc.crosscat.summaries.tallies import Total
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.gaps import Cells
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays

MIDDLE, SLOPE, VARIANCE, N = (0.3, -0.2, 0.5), (0.0, 1.5, -0.7), (1.2, 0.3, 0.1), 4_000


@pytest.mark.quick("parents0")
@pytest.mark.parametrize("parents", [(-1, 0, 1), (-1, 0, 0), (1, -1, -1)])
def test_cells_given_parameters_are_those_of_a_multivariate_normal(parents):
    columns, rows = with_holes()
    x, lacks = rows.reals.copy(), np.isnan(rows.reals)
    x[lacks] = 9.0  # what they were before says nothing
    coding, each = Coding(columns, np.array(parents), {}), range(3)
    order = coding.order
    slope = [0.0 if p == -1 else b for b, p in zip(SLOPE, parents)]
    moves, place = np.arange(len(x)) % 3 == 0, np.arange(2)[:, None]  # rows under the second label; off under the other
    lines = {c: [a + np.where(place == moves, 0.0, 3.0) for a in (MIDDLE[c], slope[c], VARIANCE[c])] for c in order}
    tree = Tree(coding, {c: np.ascontiguousarray(x[:, c]) for c in order}, {c: lacks[:, c] for c in each})
    (densities, *passed), g = tree.passed_up(lines), np.random.default_rng(0)
    density = np.where(moves, densities[1], densities[0])
    draws = (tree.drawn(moves, lines, passed, {c: g.normal(size=len(x)) for c in each}) for _ in range(N))
    drawn = np.array([[cells[c] for c in each] for cells in draws])

    b = np.array([[slope[c] * (parents[c] == p) for p in each] for c in each])
    spread = np.linalg.inv(np.eye(3) - b)
    mean = spread @ (np.array(MIDDLE) - b @ [c.center for c in columns])
    matrix = spread @ np.diag(VARIANCE) @ spread.T
    for i, m in enumerate(lacks):
        o = ~m
        truth = multivariate_normal(mean[o], matrix[np.ix_(o, o)]).logpdf(x[i, o]) if o.any() else 0.0
        assert np.isclose(density[i], truth, atol=1e-9)
        if m.any():
            of = matrix[np.ix_(m, o)] @ np.linalg.inv(matrix[np.ix_(o, o)])
            expected, rest = mean[m] + of @ (x[i, o] - mean[o]), matrix[np.ix_(m, m)] - of @ matrix[np.ix_(o, m)]
            scale = np.sqrt(np.diag(rest))
            assert (np.abs(drawn[:, m, i].mean(axis=0) - expected) < 5.0 * scale / np.sqrt(N)).all()
            assert np.allclose(np.cov(drawn[:, m, i].T).reshape(rest.shape), rest, atol=0.12 * scale.max() ** 2)


@pytest.mark.parametrize("n_shards", [1, 3])
def test_draws_have_the_numbers_of_the_chain(n_shards):
    """The statistics of a kept draw with its cells, and of the chain's own rows."""
    columns, rows = with_holes()
    settings = Settings(seed=4, shards=n_shards, links="forest", link_moves=2)
    mixture = Mixture(serial(), columns, lambda a, b: rows.take(slice(a, b)), len(rows), settings)
    mixture.start("one")
    for _ in range(12):
        mixture.cycle()
        kept, before, numbers = of_chain(mixture, several=False), 0, {}
        for column in (c for c in columns if c.n_missing):
            at = np.flatnonzero(np.isnan(rows.reals[:, column.index]))
            numbers[column.name], before = (at, kept["numbers"][before : before + len(at)]), before + len(at)
        total = Total(mixture.view.components, kept["labels"])
        total.add(mixture.linking.coding.coded(Cells(numbers).filled(columns, rows, np.arange(len(rows)))), 0)
        for name, of in vars(mixture.view.partition.statistics).items():
            assert np.allclose(getattr(total.statistics, name), of), name
    assert mixture.linking.coding.in_lines


def with_holes():
    """Three numbers on a line, each of which lacks cells, and rows that lack all of them."""
    g = np.random.default_rng(2)
    x = g.normal(size=(60, 1)) + 0.1 * g.normal(size=(60, 3))
    x[g.random(x.shape) < 0.1] = np.nan
    x[7] = np.nan
    columns, rows = table_from_arrays([(f"x{c}", "real", x[:, c], ()) for c in range(3)])
    return [replace(column, line=True) for column in columns], rows


@pytest.mark.parametrize("parents", [(-1, -1, -1), (-1, 0, -1), (-1, 0, 1)])
def test_the_unit_changes_the_log_joint_by_present_cells_alone(parents):
    """Links decide how many missing numbers have values; chains with different links must compare in any unit."""

    def log_joint(unit):
        columns, rows = with_holes()
        named = [(f"x{c}", "real", unit * rows.reals[:, c], ()) for c in range(3)]
        columns, rows = table_from_arrays(named)
        columns = [replace(column, line=True) for column in columns]
        settings = Settings(seed=4, links="forest", link_moves=0)
        mixture = Mixture(serial(), columns, lambda a, b: rows.take(slice(a, b)), len(rows), settings)
        mixture.start("one")
        mixture.linking.link_and_count(np.array(parents))
        return [mixture.cycle().log_joint for _ in range(3)], (~np.isnan(rows.reals)).sum()

    (one, n), (other, _) = log_joint(1.0), log_joint(1024.0)
    assert np.allclose(np.subtract(one, other), n * np.log(1024.0))


def test_idle_rows_keep_their_numbers_and_the_log_joint_has_no_steps_of_them():
    """Rows come in one after another; the part of the likelihood that is of the cells alone is of present ones."""
    columns, rows = with_holes()
    columns = [replace(column, resolution=0.5) for column in columns]
    settings = Settings(seed=4, shards=2, links="forest", link_moves=2, annealing=Annealing(start_rows=20))
    mixture = Mixture(serial(), columns, lambda a, b: rows.take(slice(a, b)), len(rows), settings)
    mixture.start("one")
    mixture.linking.link_and_count(np.array([-1, 0, 1]))
    before, idle = mixture.linking.gap_numbers(), mixture.view.labels() < 0
    holes = np.concatenate([np.flatnonzero(np.isnan(rows.reals[:, c.index])) for c in columns])
    assert idle[holes].any() and not idle[holes].all()
    mixture.linking.fill_gaps()
    assert np.array_equal(mixture.linking.gap_numbers() == before, idle[holes])
    assert np.isclose(mixture.view._log_base, np.log(0.5) * (~np.isnan(rows.reals)).sum())


@pytest.mark.parametrize("parents", [(-1, 0, 1, -1), (1, 3, 1, -1), (-1, 3, 3, -1), (3, 3, 3, -1)])
def test_missing_cells_have_no_steps_under_any_links(parents):
    """The part of the log likelihood that is of the cells alone is of those that are there."""
    columns, rows = with_holes()
    columns = [replace(column, resolution=0.01, child=True) for column in columns]
    (level,), codes = table_from_arrays([("c", "categorical", np.arange(len(rows)) % 3, ("p", "q", "r"))])
    rows, settings = replace(rows, codes8=codes.codes8), Settings(seed=4, links="forest")
    mixture = Mixture(serial(), [*columns, level], lambda a, b: rows.take(slice(a, b)), len(rows), settings)
    before = mixture.view._log_base
    mixture.linking.link(np.array(parents))
    assert before != 0.0 and mixture.view._log_base == pytest.approx(before)
