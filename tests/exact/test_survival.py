"""Times to an event have the exact posterior: closed forms against quadrature, and the program against the enumeration
of a tiny table. Wrong versions of the cells must be rejected by the same test at the same size."""

import itertools
from unittest import mock

import numpy as np
import pytest
import scipy

from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.components.survival import Survival, Times
from mpibayes.hpc.crosscat.laws.cell_draws import CellDraws
from mpibayes.hpc.crosscat.laws.view_law import ViewLaw
from mpibayes.hpc.data.events import everyone, of_values
from mpibayes.hpc.data.rows import Carve, in_blocks
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io import spells
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels import mixture as kernels
from tests.exact import production
from tests.exact.compare import LOOKS, seed
from tests.exact.enumerate import Case, Posterior, log_marginal

LEVEL, CYCLES = 1e-4, 12
PRIOR = {"shape": 0.8, "rate": 1.5, "cuts": (1.0, 2.5)}
CASE = Case(
    "surv5",
    (
        ("t", "survival", (0.25, 0.5, -3.0, -4.0, 3.75), None),
        ("c", "categorical", (0, 0, 1, 1, -1), ("u", "v")),
    ),
    {"t": PRIOR, "c": {"dirichlet": (0.6, 0.9)}},
    1.0,
    0.2,
)
WITH_GAP = CASE.with_(columns=(("t", "survival", (0.25, float("nan"), -3.0, -4.0, 3.75), None), CASE.columns[1]))
JOINT = production.Joint(
    CASE, [1.0], [0.2], {"t": {"shape": [0.5, 3.0], "rate": [0.4, 4.0], "cuts": (1.0, 2.5)}, "c": CASE.priors["c"]}
)


def kind_of(times, cuts=(1.0, 2.5)):
    """Kind of a table with one survival column, and its rows."""
    columns, rows = table_from_arrays([("t", "survival", np.array(times), None)])
    columns = tuple(production.with_cuts(c, {"t": {"cuts": cuts}}) for c in columns)
    return Survival(in_blocks(columns, {}), {}, {}), Carve(columns, {})(rows)


def statistics(kind, rows, z, k):
    return Statistics(*kernels.accumulate(rows, np.array(z, np.int32), k, np.zeros(1, np.int64))).of(kind)


def likelihood(h, x, cuts):
    """Likelihood of signed times under hazards h, by definition."""
    log = 0.0
    for t in np.atleast_1d(x):
        ends = (0.0, *cuts, np.inf)
        for j, (low, high) in enumerate(itertools.pairwise(ends)):
            log -= h[j] * max(0.0, min(abs(t), high) - low)
            log += np.log(h[j]) if t > 0 and low < t <= high else 0.0
    return np.exp(log)


def test_the_marginal_is_the_integral():
    """The enumeration equals a double integral over two parts; the program equals it up to the unit."""
    a, b, x, cuts = 1.3, 0.7, np.array([0.25, -3.0, 2.0, 1.0]), (1.0,)
    quad = scipy.integrate.quad

    def over(h):
        return quad(lambda g: likelihood((h, g), x, cuts) * gamma(h, a, b) * gamma(g, a, b), 0.0, np.inf)[0]

    exact = np.log(quad(over, 0.0, np.inf)[0])
    assert log_marginal("survival", x, {"shape": a, "rate": b, "cuts": cuts}) == pytest.approx(exact, abs=1e-6)
    kind, rows = kind_of(x, cuts)
    s = statistics(kind, rows, np.zeros(4), 1)
    ours = kind.log_marginal(np.array([[a, b]]), s, slice(0, 1))[0] + kind.log_base(rows)
    assert ours == pytest.approx(exact, abs=1e-6)
    assert kind.log_marginal_clusters(np.array([[a, b]]), s) == pytest.approx(exact - kind.log_base(rows), abs=1e-6)


def gamma(h, a, b):
    from scipy.stats import gamma as law

    return law.pdf(h, a, scale=1.0 / b)


def test_predictives_are_ratios_of_marginals():
    """For the kernels (a further row, and one removed from its cluster), for laws of questions, and for bounds."""
    times, hazard = np.array([0.25, -3.0, 2.0, 1.0, -0.5, 4.25]), np.array([[0.8, 1.5]])
    kind, rows = kind_of(times)
    s = statistics(kind, rows, np.zeros(6), 1)
    law, k = kind.predictive(hazard, s), np.array([0])
    for x in (0.5, 1.0, 2.25, 7.5):
        more = [log_marginal("survival", np.append(times, y), PRIOR) for y in (x, -x)]
        ratio = np.array(more) - log_marginal("survival", times, PRIOR)
        ours = law.log_probability(0, np.array([x, x]), np.array([x, np.inf]), k)
        np.testing.assert_allclose(ours, ratio, atol=1e-9)
    between = scipy.integrate.quad(
        lambda x: np.exp(law.log_probability(0, np.array([x]), np.array([x]), k)[0]), 0.5, 6.0, points=[1.0, 2.5]
    )
    inside = law.log_probability(0, np.array([0.5]), np.array([6.0]), k)[0]
    assert np.exp(inside) == pytest.approx(between[0], abs=1e-8)
    u = np.linspace(0.05, 0.95, 7)
    back = law.log_survival(0, law.quantile(0, np.zeros(7, np.intp), u), np.zeros(7, np.intp))
    np.testing.assert_allclose(1.0 - np.exp(back), u, atol=1e-12)
    left = kind.predictive(hazard, kind.without(s, 0, rows.spells[:, 0], np.zeros(6, np.intp)))
    for i, x in enumerate(times):
        high = np.inf if x < 0 else abs(x)
        rest = log_marginal("survival", times, PRIOR) - log_marginal("survival", np.delete(times, i), PRIOR)
        mine = left.log_probability(0, np.array([abs(x)]), np.array([high]), np.array([i]))[0]
        assert mine == pytest.approx(rest, abs=1e-9)


def test_hazards_have_their_posterior():
    """Drawn hazards have mean and variance of Gamma(shape + events, rate + exposure) in every part."""
    times, hazard = np.array([0.25, -3.0, 2.0, 1.0, -0.5, 4.25]), np.array([[0.8, 1.5]])
    kind, rows = kind_of(times)
    n = 4000
    s = tuple(np.repeat(a, n, axis=1) for a in statistics(kind, rows, np.zeros(6), 1))
    stream = Stream(seed(5), Purpose.PARAMETERS, cycle=1, chain=0)
    start, h = kind.draw(hazard, s, slice(0, 1), stream)
    h = h[:3] / kind.ticks[0]
    exposure = [np.clip(np.abs(times), low, high) - low for low, high in ((0, 1.0), (1.0, 2.5), (2.5, np.inf))]
    shape, rate = np.array([0.8 + 2, 0.8 + 1, 0.8 + 1]), 1.5 + np.array([e.sum() for e in exposure])
    z = (h.mean(axis=1) - shape / rate) / np.sqrt(shape / rate**2 / n)
    assert np.abs(z).max() < 4.0, z
    np.testing.assert_allclose(h.var(axis=1), shape / rate**2, rtol=0.15)
    np.testing.assert_allclose(start[3], np.log(h[1] * kind.ticks[0]) - h[0], atol=1e-9)


def test_cells_come_back():
    column = production.with_cuts(
        table_from_arrays([("t", "survival", np.array([1.0, -2.0]), None)])[0][0], {"t": PRIOR}
    )
    x = np.array([0.0, spells.AT_ONCE, 1.0, -1.0, 1.25, 2.5, -9.0, np.nan])
    part, event, ticks = spells.decoded(spells.coded(column, x)[:-1])
    assert part.tolist() == [0, 0, 0, 0, 1, 1, 2] and event.tolist() == [1, 0, 1, 0, 1, 1, 0]
    assert (ticks * spells.tick(column)).tolist() == [0.0, 0.0, 1.0, 1.0, 0.25, 1.5, 6.5]


@pytest.mark.parametrize("cut", [1010.3, 10.1])
def test_an_event_at_a_cut_that_is_no_whole_tick_is_before_it(cut):
    """Also in laws of questions, whose times are not rounded; one cut is rounded down, the other up."""
    times, given = np.array([0.25 * cut, cut, cut, -2.0 * cut]), {"shape": 0.8, "rate": 1.5, "cuts": (cut,)}
    kind, rows = kind_of(times, (cut,))
    law = kind.predictive(np.array([[0.8, 1.5]]), statistics(kind, rows, np.zeros(4), 1))
    ratio = log_marginal("survival", np.append(times, cut), given) - log_marginal("survival", times, given)
    at = np.array([cut])
    assert law.log_probability(0, at, at, np.array([0]))[0] == pytest.approx(ratio, abs=1e-4)


def test_all_of_a_long_time_is_exposure():
    kind, rows = kind_of([0.5, -1000.0, -5000.0], (1.0,))
    _, exposure = kind.exposed(statistics(kind, rows, np.zeros(3), 1))
    np.testing.assert_allclose(exposure[0, :2, 0] * kind.ticks[0], [2.5, 5998.0], rtol=1e-3)


def test_times_beyond_their_censoring_have_the_hazards_of_the_copy():
    """Cells of a copy share hazards, including censored cells: if these are practically infinite, no time is left
    beyond the censoring."""
    times = np.array([0.25, -3.0, 2.0, -0.5])
    columns, _ = table_from_arrays([("t", "survival", times, None)])
    columns, (_, rows) = tuple(production.with_cuts(c, {"t": PRIOR}) for c in columns), kind_of(times)
    components = Components(in_blocks(columns, {}), {})
    s = Statistics(*kernels.accumulate(rows, np.zeros(4, np.int32), 1, np.zeros(1, np.int64)))
    view = ViewLaw(components, components.hyper(1.0, 0.0, {"t": np.array([0.8, 1.5])}), s, names=["t"])
    stream = Stream(seed(6), Purpose.COPY_CELLS, cycle=1, chain=0)
    draws, known = CellDraws(view, stream), everyone({"t": of_values(columns[0], np.array([-3.0]))}).repeat(50)
    drawn = [draws.cells(["t"], known, np.zeros(50, np.intp), stream, np.arange(50))["t"] for _ in range(2)]
    assert (drawn[0] > 3.0).all() and (drawn[0] == drawn[1]).all()
    kind, hazards = components.survival, 1e9 * draws._drawn["survival"]._drawn
    draws._drawn["survival"] = Times(kind, view.hyper.hazard, s.of(kind), hazards)
    np.testing.assert_allclose(draws.cells(["t"], known, np.zeros(50, np.intp), stream, np.arange(50))["t"], 3.0, 1e-6)


def test_times_far_in_the_tail_keep_their_law():
    """If almost nothing is left beyond a censoring, times beyond it are not immediate."""
    kind, rows = kind_of(np.full(400, 0.25), ())
    law = kind.drawn(np.array([[0.8, 1.5]]), statistics(kind, rows, np.zeros(400), 1), Stream(1, Purpose.PARAMETERS, 1))
    low, u = np.full(99, 30.0), np.arange(1.0, 100.0) / 100.0
    beyond = law.within(0, np.zeros(99, np.intp), low, np.full(99, np.inf), u)
    p = np.exp(law.log_survival(0, beyond, np.zeros(99, np.intp)) - law.log_survival(0, low, np.zeros(99, np.intp)))
    np.testing.assert_allclose(p, 1.0 - u, atol=1e-6)


# --- the program against the enumeration ------------------------------------------------------------------------------


def verdict(comm, case, n_shards, n_replicates, looks=1):
    mixture = production.sampler(comm, case, n_shards, seed(41))
    return production.verdict(mixture, Posterior(case), n_replicates, CYCLES, seed(42), LEVEL, looks)


@pytest.mark.quick("2-CASE")
@pytest.mark.parametrize("case", [CASE, WITH_GAP], ids=["CASE", "WITH_GAP"])
@pytest.mark.parametrize("n_shards", [1, 2, 5])
def test_posterior_law(case, n_shards):
    result = verdict(serial(), case, n_shards, 60)
    assert result.passed, f"{result} (seed {seed(41)})"


def censored_as_events(column, x):
    return np.abs(CODED(column, x))


def without_the_last_part(column, x):
    """Wrong: the time that a row spent in the last part is not exposure."""
    cells = CODED(column, x)
    first = (len(column.ends) + 1.0) * 2.0**spells.SHIFT
    return np.where(np.abs(cells) > first, np.copysign(first, cells), cells)


CODED = spells.coded


@pytest.mark.quick("censored_as_events")
@pytest.mark.parametrize("wrong", [censored_as_events, without_the_last_part])
def test_wrong_cells_are_rejected(wrong):
    with mock.patch.object(spells, "coded", wrong):
        result = verdict(serial(), CASE, 2, 800, LOOKS)
    assert not result.passed, str(result)
    result = verdict(serial(), CASE, 2, result.size)
    assert result.passed, f"{result} (seed {seed(41)})"


@pytest.mark.thorough
def test_joint_law_with_hyperparameters():
    mixture = JOINT.sampler(serial(), 2, seed(43))
    result = JOINT.verdicts(mixture, 100, CYCLES, seed(44), LEVEL, 1)
    assert all(v.passed for v in result), f"{[str(v) for v in result]} (seed {seed(43)})"


@pytest.mark.quick(ranks=(2, 3))
@pytest.mark.mpi(min_size=2)
def test_the_same_bits_on_any_ranks():
    """Including split and merge moves."""
    for n_shards in (2, 5):
        starts = Posterior(CASE).draw(np.random.Generator(np.random.Philox(1)), 3)
        bits = [
            production.digest(production.sampler(comm, CASE, n_shards, 7, split_merge=2), starts, 8)
            for comm in (world(), serial())
        ]
        assert world().rank or bits[0] == bits[1]


@pytest.mark.thorough
@pytest.mark.parametrize("n_shards", [1, 3])
def test_moves_alone_and_sweeps(n_shards):
    """Split and merge moves beside sweeps preserve the law."""
    mixture = production.sampler(serial(), CASE, n_shards, seed(45), split_merge=1)
    result = production.verdict(mixture, Posterior(CASE), 60, CYCLES, seed(46), LEVEL)
    assert result.passed, f"{result} (seed {seed(45)})"
