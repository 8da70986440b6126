"""Columns recorded in steps, with atoms, on a log scale: the model is that of docs/math.md 1.7.

Log joints of all partitions against a closed form written here; probabilities of recorded values, which add up to 1;
Geweke's test of a column with an atom on a log scale. Each rejects a wrong variant.
"""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.laws.view_density import ViewDensity
from mpibayes.hpc.data.latent import OF_NEW_ROWS, Latent
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io import recording
from mpibayes.io.rows import slices_of, summarise
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels import mixture as kernels
from tests.exact import production
from tests.exact.compare import seed
from tests.exact.enumerate import partitions
from tests.laws import test_geweke as geweke

PRINT = "0123456789abcdef" * 4
WHICH = "x (1 or not 1)"


def recorded_table(x, **how):
    """(stored columns, rows) of a real column x with this recording."""
    columns, rows = table_from_arrays([("x", "real", x, None)])
    columns = [replace(c, **how) for c in columns]
    return summarise(columns, slices_of(rows, 1000)), rows


def latent_table(x, **how):
    columns, rows = recorded_table(x, **how)
    latent = Latent(columns, PRINT)
    return latent, latent(rows, np.arange(len(rows)))


# --- latent numbers ---------------------------------------------------------------------------------------------------


def test_latent_numbers_are_uniform_in_their_cells_and_come_back():
    x = np.repeat([2.5, 3.0, 7.5, np.nan], 5000)
    latent, rows = latent_table(x, resolution=0.5)
    off = (rows.reals[:, 0] - x)[:15000] / 0.5
    assert np.abs(off).max() <= 0.5 and np.isnan(rows.reals[15000:]).all()
    # level 1e-4 each: mean and share of a half of 15,000 uniform numbers
    assert abs(off.mean()) < 3.9 / np.sqrt(12 * 15000) and abs((off > 0).mean() - 0.5) < 3.9 / np.sqrt(4 * 15000)
    np.testing.assert_allclose(latent.recorded(rows).reals[:, 0], x)


def test_latent_numbers_depend_on_table_row_and_column_alone():
    columns, rows = recorded_table(np.arange(50.0), resolution=1.0)
    whole = Latent(columns, PRINT)(rows, np.arange(50)).reals
    part = Latent(columns, PRINT)(rows.take(slice(20, 30)), np.arange(20, 30)).reals
    np.testing.assert_array_equal(whole[20:30], part)
    for other in (Latent(columns, "1" + PRINT[1:]), Latent([replace(columns[0], name="y")], PRINT)):
        assert (other(rows, np.arange(50)).reals != whole).all()
    assert (Latent(columns, PRINT)(rows, np.arange(50), OF_NEW_ROWS).reals != whole).all()


@pytest.mark.parametrize("log", [False, True])
def test_atoms_are_apart_and_all_values_come_back(log):
    x = np.array([0.0, 99.0, 0.5, 1.0, 12.5, np.nan, 0.0])
    latent, rows = latent_table(x, resolution=0.5, atoms=(0.0, 99.0), log=log)
    assert latent.columns[1].levels == ("0", "99", "another value") and latent.columns[1].part_of == "x"
    assert rows.codes8[:, 0].tolist() == [0, 1, 2, 2, 2, 3, 0]
    assert np.isnan(rows.reals[:, 0]).tolist() == [True, True, False, False, False, True, True]
    np.testing.assert_allclose(latent.recorded(rows).reals[:, 0], x)


# --- the model --------------------------------------------------------------------------------------------------------


X = np.array([1.0, 4.0, 1.0, 2.0, 8.5])
HOW = {"resolution": 0.5, "atoms": (1.0,), "log": True}
ALPHA, BETA, NORMAL = 0.8, 0.7, (0.9, 0.4, 3.0, 0.6)


def log_joint(z, y, x):
    """log p(z, x), written from the model: CRP, Dirichlet of two, normal-inverse-chi-square, widths of cells."""
    n = len(z)
    sizes = np.bincount(z)
    total = len(sizes) * np.log(ALPHA) + gammaln(sizes).sum() + gammaln(ALPHA) - gammaln(ALPHA + n)
    m0, k0, v0, s0 = NORMAL
    for k in range(len(sizes)):
        part, atom = y[z == k], (x[z == k] == 1.0).sum()
        rest = len(part) - atom
        total += gammaln(2 * BETA) - gammaln(2 * BETA + len(part)) - 2 * gammaln(BETA)
        total += gammaln(BETA + atom) + gammaln(BETA + rest)
        part = part[~np.isnan(part)]
        if rest:
            kn, vn = k0 + rest, v0 + rest
            spread = v0 * s0 + ((part - part.mean()) ** 2).sum() + rest * k0 / kn * (m0 - part.mean()) ** 2
            total += gammaln(vn / 2) - gammaln(v0 / 2) + 0.5 * np.log(k0 / kn) - 0.5 * rest * np.log(np.pi)
            total += 0.5 * v0 * np.log(v0 * s0) - 0.5 * vn * np.log(spread)
    seen = ~np.isnan(y)
    return total + (np.log(0.5) - y[seen]).sum()


def of_the_program():
    """Log joints of all partitions of X, by the program, and the latent numbers."""
    latent, rows = latent_table(X, **HOW)
    given = dict(zip(("mean", "kappa", "nu", "variance"), NORMAL))
    priors = {"x": given, WHICH: {"dirichlet": [BETA, BETA]}}
    settings = Settings(seed=1, shards=2, concentration=ALPHA, discount=0.0, priors=priors)
    mixture = Mixture(serial(), latent.columns, lambda a, b: rows.take(np.arange(a, b)), len(X), settings)
    result = []
    for z in partitions(len(X)):
        production.place(mixture, z, 0, mixture.view.hyper)
        result.append(mixture.view.log_joint())
    return np.array(result), rows.reals[:, 0]


def largest_error():
    result, y = of_the_program()
    exact = [log_joint(z, y, X) for z in partitions(len(X))]
    return np.abs(result - exact).max()


def test_log_joint_of_every_partition():
    assert largest_error() < 1e-9


def without_widths():
    return mock.patch("mpibayes.hpc.components.normal.log_cells", lambda columns, rows: np.zeros(len(rows)))


def atoms_among_the_rest():
    right = recording.rest
    return mock.patch.object(recording, "rest", lambda column, x, shift=0.0: right(replace(column, atoms=()), x, shift))


@pytest.mark.parametrize("wrong", [without_widths, atoms_among_the_rest])
def test_wrong_log_joints_are_noticed(wrong):
    with wrong():
        assert not largest_error() < 1e-2


def total_probability(**how):
    """Total probability of all recordable values under a draw with two clusters, and of the rest in the cells of atoms,
    which are never recorded; the latent numbers of many rows average over a cell."""
    latent, rows = latent_table(np.array([1.0, 4.0, 1.0, 2.0, 8.5, 3.0, 2.5, 4.5]), **how)
    components = Components(latent.columns)
    z = np.array([0, 0, 1, 1, 0, 1, 1, 0], np.int32)
    s = components_statistics(components, rows, z)
    law = ViewDensity(components, components.start(1.0, 0.0), s)
    step = how["resolution"]
    values = np.arange(step if how.get("log") else -200.0, 400.0, step)
    repeats = 40
    asked = latent_table(np.repeat(values, repeats), **how)[1]
    density = [law.log_density(asked)]
    if "atoms" in how:
        of_rest = latent_table(np.repeat(how["atoms"], repeats), **{**how, "atoms": ()})[1]
        of_rest.codes8 = np.ones((len(of_rest), 1), np.uint8)
        density.append(law.log_density(of_rest))
    return np.exp(logsumexp(np.concatenate(density)) - np.log(repeats))


def components_statistics(components, rows, z):
    from mpibayes.hpc.components.statistics import Statistics

    return Statistics(*kernels.accumulate(rows, z, int(z.max()) + 1, components.categorical.offsets))


@pytest.mark.parametrize(
    "how", [{"resolution": 0.5}, {"resolution": 0.5, "atoms": (1.0,)}, HOW], ids=["steps", "atom", "log"]
)
def test_probabilities_of_recorded_values_add_up(how):
    """They sum to 1 within two percent: the values are truncated, and each cell is averaged over 40 numbers."""
    assert total_probability(**how) == pytest.approx(1.0, abs=0.02)


def test_without_widths_they_do_not():
    with mock.patch("mpibayes.io.recording.log_cells", lambda columns, rows: np.zeros(len(rows))):
        assert total_probability(resolution=0.5) > 1.5


# --- Geweke -----------------------------------------------------------------------------------------------------------


def drawn(z, hyper, g):
    """`test_geweke.draw_table` with 1 an atom of x, and the rest of x on a log scale."""
    columns, rows = geweke.draw_table(z, hyper, g)
    p = g.dirichlet(np.full(2, hyper.dirichlet[1]), size=z.max() + 1)[:, 0]
    x = np.where(g.random(geweke.N) < p[z], 1.0, np.exp(rows.reals[:, 0]))
    x[geweke.HOLES["x"]] = np.nan
    rows.reals[:, 0] = x
    columns = [replace(c, atoms=(1.0,), log=True) if c.name == "x" else c for c in columns]
    latent = Latent(columns, PRINT)
    return latent.columns, latent(rows, np.arange(geweke.N))


def law():
    """Probabilities of the events; the last but one is that x[1] is not an atom and its logarithm is above 0."""
    expected = geweke.expected()
    expected[-2] = 0.25
    return expected


START = Hyper(1.0, 0.0, np.ones(2), geweke.ANY.normal, geweke.ANY.gamma)


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [None, atoms_among_the_rest])
def test_joint_prior_comes_back(wrong):
    """A right program fails with probability 1e-4."""
    with wrong() if wrong else mock.patch.dict({}):
        p, worst, z = geweke.geweke(2, 60, 12, 61, draw=drawn, start=START, law=law)
    right = p >= geweke.LEVEL
    assert right == (wrong is None), f"event {worst}, z {z:.2f} (seed {seed(61)})"
