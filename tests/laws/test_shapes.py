"""Real columns in fitted coordinates: the density is that of docs/math.md 1.8, the model that of 1.7 in these
coordinates, and the fit and its gate work as documented. Each law rejects a wrong variant that omits the Jacobian.
"""

from contextlib import nullcontext
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import check_grad, minimize
from scipy.stats import kstest, norm

from mpibayes.hpc.crosscat.laws.view_density import log_real
from mpibayes.hpc.data import shapes
from mpibayes.hpc.data.latent import Latent
from mpibayes.hpc.data.rows import Data
from mpibayes.io import recording
from mpibayes.io.rows import Column
from mpibayes.io.shape import FARTHEST, Shape
from mpibayes.io.table import Table, write_table
from tests.exact.compare import seed
from tests.laws import test_geweke as geweke
from tests.laws import test_recorded as recorded

LONG, SKEW = Shape(2.0, 0.5, 0.0, 0.6), Shape(-1.0, 3.0, 1.4, 1.2)
SHAPES = pytest.mark.parametrize("shape", [LONG, SKEW], ids=["long tails", "skew"])


def jones_and_pewsey(shape, t):
    """Density of Jones & Pewsey (2009, equation 2) at t, with location and scale."""
    z = (t - shape.center) / shape.scale
    s = np.sinh(shape.tail * np.arcsinh(z) - shape.skew)
    c = np.sqrt(1.0 + s * s)
    return shape.tail * c / np.sqrt(2.0 * np.pi * (1.0 + z * z)) * np.exp(-0.5 * s * s) / shape.scale


def without_jacobian():
    return mock.patch.object(Shape, "log_slope", lambda self, y: np.zeros(np.shape(y)))


# --- coordinates ------------------------------------------------------------------------------------------------------


@SHAPES
def test_coordinates_rise_and_have_an_inverse(shape):
    t = np.linspace(-40.0, 40.0, 2001)
    y = shape.coordinate(t)
    assert (np.diff(y) > 0).all()
    np.testing.assert_allclose(shape.number(y), t, rtol=1e-9, atol=1e-9)
    far = shape.coordinate(np.array([-1e300, -np.inf, 1e300, np.inf, np.nan]))
    assert np.abs(far[:4]).max() <= 1.0001 * FARTHEST and np.isnan(far[4])
    assert np.isfinite(shape.log_slope(far[:4])).all()


@SHAPES
def test_the_density_is_that_of_the_paper_and_integrates_to_one(shape):
    t = np.linspace(-30.0, 30.0, 301)
    np.testing.assert_allclose(np.exp(shapes.log_density(shape, t)), jones_and_pewsey(shape, t), rtol=1e-9)
    ends = shape.number(np.array([-9.0, 9.0]))
    total, error = quad(lambda x: float(np.exp(shapes.log_density(shape, np.array([x])))[0]), *ends, limit=500)
    assert total == pytest.approx(1.0, abs=1e-6) and error < 1e-6


@SHAPES
def test_the_density_is_wrong_without_the_jacobian(shape):
    t = np.linspace(-3.0, 3.0, 31)
    with without_jacobian():
        assert np.abs(shapes.log_density(shape, t) - np.log(jones_and_pewsey(shape, t))).max() > 0.1


@pytest.mark.parametrize("log", [False, True])
def test_events_have_the_probabilities_of_their_coordinates(log):
    """A range of numbers has its probability under a cluster's t; a number recorded without a step has a density, the
    limit of narrow ranges."""
    column = replace(Column("x", "real", "reals", 0), log=log, shape=Shape(0.5, 0.8, 0.3, 0.9))
    low, high = np.array([1.2, 0.0]), np.array([3.0, np.inf])
    law = 0.4, 1.3, 1e7  # a t with so many degrees of freedom is normal
    t = [np.log(np.maximum(x, 1e-300)) if log else x for x in (low, high)]
    expected = np.diff([norm.cdf(column.shape.coordinate(x), 0.4, 1.3) for x in t], axis=0)[0]
    np.testing.assert_allclose(np.exp(log_real(column, *law, low, high)), expected, rtol=1e-5)
    x, h = np.array([0.7, 2.0, 5.0]), 1e-4
    narrow = log_real(column, *law, x - h, x + h) - np.log(2.0 * h)
    np.testing.assert_allclose(log_real(column, *law, x, x), narrow, atol=1e-5)


# --- the model --------------------------------------------------------------------------------------------------------

OF_LOGS = Shape(0.6, 0.7, -0.4, 0.7)


def log_joint(z, y, x):
    """`recorded.log_joint` for y the coordinates of logarithms."""
    plain = recorded.log_joint(z, y, x) + np.nansum(y)  # without the logarithm's slope
    t = OF_LOGS.number(y[~np.isnan(y)])
    h = 1e-6
    slope = (OF_LOGS.coordinate(t + h) - OF_LOGS.coordinate(t - h)) / (2.0 * h)
    return plain + (np.log(slope) - t).sum()


@pytest.mark.parametrize("wrong", [nullcontext, without_jacobian])
def test_log_joint_of_every_partition(wrong):
    """For a column in steps, with an atom, in coordinates of logarithms."""
    how = {**recorded.HOW, "shape": OF_LOGS}
    with mock.patch.object(recorded, "HOW", how), wrong():
        result, y = recorded.of_the_program()
    exact = [log_joint(z, y, recorded.X) for z in recorded.partitions(len(recorded.X))]
    error = np.abs(result - exact).max()
    assert error < 1e-6 if wrong is nullcontext else error > 1e-2


@pytest.mark.parametrize("wrong", [nullcontext, without_jacobian])
def test_probabilities_of_recorded_values_add_up(wrong):
    """They sum to 1 within two percent, as in `test_recorded`."""
    with wrong():
        total = recorded.total_probability(resolution=0.5, atoms=(1.0,), shape=Shape(3.0, 1.5, 0.4, 1.1))
    assert (abs(total - 1.0) < 0.02) == (wrong is nullcontext)


def test_coordinates_have_priors_about_0_in_units_of_1():
    """For any mean and deviation of the column's own numbers (docs/math.md 1.8)."""
    x = 50.0 + 9.0 * np.random.default_rng(5).standard_t(3, 400)
    columns, _ = recorded.recorded_table(x)
    (plain,) = Latent(columns, recorded.PRINT).columns
    shaped = Latent([replace(c, shape=Shape(50.0, 9.0, 0.0, 0.7)) for c in columns], recorded.PRINT).columns[0]
    assert abs(plain.center - 50.0) < 3.0 and plain.scale > 5.0
    assert (shaped.center, shaped.scale) == (0.0, 1.0)


SHAPE_OF_X = Shape(0.3, 1.2, 0.5, 0.8)


def drawn(z, hyper, g):
    """`test_geweke.draw_table` with x the number of a normal coordinate."""
    columns, rows = geweke.draw_table(z, hyper, g)
    rows.reals[:, 0] = SHAPE_OF_X.number(rows.reals[:, 0])
    latent = Latent([replace(c, shape=SHAPE_OF_X) if c.name == "x" else c for c in columns], recorded.PRINT)
    columns = [replace(c, center=old.center, scale=old.scale) for c, old in zip(latent.columns, columns)]
    return columns, latent(rows, np.arange(geweke.N))


def as_it_is():
    return mock.patch.object(Shape, "coordinate", lambda self, t: t)


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [nullcontext, as_it_is])
def test_joint_prior_comes_back(wrong):
    """A right program fails with probability 1e-4. The Jacobian is invisible here, but not in the log joint above."""
    with wrong():
        p, worst, z = geweke.geweke(2, 60, 12, 67, draw=drawn)
    assert (p >= geweke.LEVEL) == (wrong is nullcontext), f"event {worst}, z {z:.2f} (seed {seed(67)})"


# --- the fit ----------------------------------------------------------------------------------------------------------


def test_the_gradient_of_the_loss():
    x = np.random.default_rng(1).standard_t(3, 50)
    for at in ([0.1, -0.3, 0.4, 0.2], [-1.0, 0.5, -2.0, -0.6]):
        error = check_grad(lambda p: shapes._loss(p, x)[0], lambda p: shapes._loss(p, x)[1], np.array(at))
        assert error < 1e-4


@SHAPES
def test_maximum_likelihood_finds_the_coordinates(shape):
    """Skew and log tail of 4,000 cells within 5 of their standard errors, which are below 0.06 here."""
    t = np.sort(shape.number(np.random.default_rng(2).standard_normal(4000)))
    result = shapes.maximum_likelihood(t)
    assert shapes.log_density(result, t).mean() > shapes.log_density(shape, t).mean() - 1e-6
    assert abs(np.log(result.tail / shape.tail)) < 0.3 and abs(result.skew - shape.skew) < 0.3


def rough(g):
    """Cells of populations that do and do not have the form: with edges, heaps, two humps, outliers, ties."""
    yield from (g.standard_cauchy(2000), g.gamma(0.5, size=3000), g.random(500), g.exponential(size=60))
    yield from (g.integers(0, 5, 400).astype(float), np.r_[np.zeros(200), np.ones(100)], 1e8 + g.standard_normal(900))
    yield from (np.r_[g.standard_normal(500), 8.0 + g.standard_normal(500)], np.r_[g.standard_normal(500), 1e6])
    yield np.r_[np.full(900, 0.01) * np.arange(1, 901) % 0.07, g.lognormal(4.0, 2.0, 100)]


def test_the_maximum_is_no_lower_than_that_of_l_bfgs_b():
    for t in map(np.sort, rough(np.random.default_rng(3))):
        result, x = shapes.maximum_likelihood(t), (t - t.mean()) / t.std()
        theirs = minimize(shapes._loss, np.zeros(4), (x,), "L-BFGS-B", jac=True, bounds=shapes.BOUNDS)
        constant = np.log(t.std()) + 0.5 * shapes.LOG_2_PI
        assert shapes.log_density(result, t).mean() + constant > -theirs.fun - 1e-6, (len(t), result, theirs)


def populations(g, n):
    """Yield name, cells, and True if they get coordinates."""
    yield "normal", g.standard_normal(n), False
    yield "long tails", g.standard_t(3, n), True
    yield "skew", g.gamma(2.0, size=n), True
    yield "two", np.where(g.random(n) < 0.4, 0.0, 6.0) + g.standard_normal(n), False
    yield "uniform", g.random(n), False
    yield "log-normal", np.exp(g.standard_normal(n)), False  # the import's logarithm is enough
    yield "constant", np.ones(n), False
    yield "few", g.standard_t(3, shapes.FEWEST_CELLS - 1), False


@pytest.mark.parametrize("n", [400, 3000])
def test_one_population_gets_coordinates_and_others_do_not(n):
    for name, t, expected in populations(np.random.default_rng(3), n):
        assert (shapes.shape_of(t) is not None) == expected, name


def test_with_views_a_column_that_the_form_misses_visibly_gets_no_coordinates():
    """0.5 % of the mass of the form closest to a gamma law is below 0, which 3,000 cells show: their misfit is about
    1.5. Cells that have the form pass with probability 0.98."""
    g = np.random.default_rng(6)
    right, wrong = LONG.number(g.standard_normal(3000)), g.gamma(2.0, size=3000)
    assert [shapes.shape_of(t, views=views) is not None for t in (right, wrong) for views in (False, True)] == [
        True,
        True,
        True,
        False,
    ]


def test_the_misfit_is_kolmogorovs_distance():
    """But for half a cell; of cells in steps it does not see the steps, as the distance itself does."""
    shape, root = Shape(0.0, 1.0, 0.0, 1.0), np.sqrt(500)
    t = np.sort(np.random.default_rng(7).standard_normal(500))
    assert shapes.misfit(shape, t) == pytest.approx(root * kstest(t, norm.cdf).statistic, abs=0.5001 / root)
    steps = np.round(2.0 * norm.ppf((np.arange(500) + 0.5) / 500)) / 2.0
    assert shapes.misfit(shape, steps) < 0.2 < 2.0 < root * kstest(steps, norm.cdf).statistic


def test_the_misfit_of_populations_that_have_the_form():
    """A fit passes with probability 0.98, so 92 or more of 100 pass with probability 0.998."""
    g = np.random.default_rng(8)
    cells = (np.sort(LONG.number(g.standard_normal(200))) for _ in range(100))
    passed = sum(shapes.misfit(shapes.maximum_likelihood(t), t) <= shapes.MOST_MISFIT for t in cells)
    assert passed >= 92


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e200, 1e307])
def test_numbers_whose_squares_are_none_get_no_coordinates(scale):
    """They are 0 or infinite, and with them deviations. Warnings are errors here."""
    assert shapes.shape_of(scale * np.random.default_rng(3).gamma(2.0, size=400)) is None


def test_the_unit_of_a_logarithmic_column_does_not_matter():
    t = np.log(np.random.default_rng(5).gamma(0.5, size=400))
    near = shapes.shape_of(t, log=True)
    for unit in (-460.0, 460.0):
        far = shapes.shape_of(t + unit, log=True)
        assert far.center == pytest.approx(near.center + unit) and far[1:] == pytest.approx(near[1:], rel=1e-3)


def table_of(path, x):
    return write_table(path, *recorded.recorded_table(x))


def test_held_out_rows_and_given_priors_have_no_part_in_it(tmp_path):
    x = np.random.default_rng(4).standard_t(3, 400)
    data = Data(table_of(tmp_path / "a.h5", x), (), 0.2, None, True)
    other = x.copy()
    other[data.heldout] = 1000.0
    again = Data(table_of(tmp_path / "b.h5", other), (), 0.2, None, True)
    assert shapes.fit_shapes(data, False)["x"] == shapes.fit_shapes(again, False)["x"]
    assert shapes.fit_shapes(data, False, {"x"}) == {}


def test_a_table_holds_no_shapes(tmp_path):
    """They are a run's; tables stay readable for versions that do not know them."""
    columns, rows = recorded.recorded_table(np.arange(9.0))
    write_table(tmp_path / "t.h5", [replace(c, shape=LONG) for c in columns], rows)
    table = Table.open(tmp_path / "t.h5")
    assert table.columns[0].shape is None
    assert recording.log_slope(table.columns[0], np.zeros(3)) == 0.0
