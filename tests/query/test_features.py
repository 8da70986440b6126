"""Questions to draws of features: each draw is the density of tests/ibp, conditionals are its ratios, and simulated
rows have them. Tests of distributions are at level 1e-4."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from mpibayes.errors import ConfigError
from mpibayes.hpc.cli import main
from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.data.events import Known, everyone, known_of, of_range, of_values
from mpibayes.hpc.ibp import asked, law
from mpibayes.hpc.ibp.law import Law
from mpibayes.hpc.ibp.state import Hyper
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.table import table_from_arrays
from tests.ibp.test_predictive import law_of, problem
from tests.query.runs import write_csv

LEVEL = 1e-4


def made(standardise=True, k=3, noise=None):
    """A draw as a law, columns without steps, and rows with missing cells."""
    z, x, hyper, rng = problem(k=k, noise=noise)
    raw = 20.0 + 3.0 * x if standardise else x
    raw = np.vstack([raw, raw[:6] + rng.normal(size=(6, 4)), 40.0 + raw[:1]])
    raw[13, 0] = raw[14, [1, 2]] = raw[15] = np.nan
    columns, rows = table_from_arrays([(f"x{d}", "real", raw[:, d], None) for d in range(4)])
    cells = Cells(columns, standardise)
    return Law(cells, law_of(z, cells.of(rows)[: len(z)], hyper)), columns, rows, z


@pytest.mark.parametrize("noise", [None, np.array([0.3, 0.5, 0.8, 2.0])])
def test_log_probabilities_are_ratios_of_densities(noise):
    draw, columns, rows, _ = made(noise=noise)
    known = known_of(rows, columns)
    density = draw.given(known).log_p
    np.testing.assert_allclose(density, draw.log_density(rows), rtol=1e-9, atol=1e-9)
    of, given = known.only(["x1", "x3"]), known.without(["x1", "x3"])
    on_them = draw.given(given)
    np.testing.assert_allclose(on_them.log_density(of), density - on_them.log_p, atol=1e-9)


def test_a_law_without_own_features_is_rejected(monkeypatch):
    monkeypatch.setattr(law, "_most_own", lambda mean: 0)
    draw, columns, rows, _ = made()
    assert np.abs(draw.given(known_of(rows, columns)).log_p - draw.log_density(rows)).max() > 0.01


def test_ranges_are_integrals_of_the_density():
    draw, columns, _, _ = made()
    x = np.linspace(10.0, 60.0, 20_001)
    each = Known(len(x), {"x2": (of_values(columns[2], x), np.arange(len(x)))})
    given = everyone({"x0": of_values(columns[0], np.array([22.0]))})
    p = np.exp(draw.given(given.repeat(len(x))).log_density(each))
    on_them = draw.given(given)
    for low, high in ((10.0, 60.0), (20.0, 23.5), (39.0, 60.0)):
        event = everyone({"x2": of_range(columns[2], low, high)})
        here = (x >= low) & (x <= high)
        expected = np.trapezoid(p[here], x[here])
        assert np.exp(on_them.log_density(event))[0] == pytest.approx(expected, rel=1e-4)
        averaged = on_them.averaged(event.of["x2"][0], draw.masses(event.of["x2"][0]))[0, 0]
        assert averaged == pytest.approx(expected, rel=1e-4)


def strong():
    """A draw whose two features move cells by many deviations of the noise."""
    g = np.random.default_rng(5)
    z = (g.random((30, 2)) < 0.5).astype(np.int64)
    x = z @ np.array([[3.0, 0.0, 2.5, 1.0], [0.0, -3.0, 2.0, 1.5]]) + 0.5 * g.normal(size=(30, 4))
    columns, _ = table_from_arrays([(f"x{d}", "real", x[:, d], None) for d in range(4)])
    return Law(Cells(columns, False), law_of(z, x, Hyper(1.0, 1.0, np.full(4, 0.5), 2.0, "shared"))), columns


def on_them(columns):
    """Known cells of a row with the first feature, and without the second."""
    return everyone({"x0": of_values(columns[0], np.array([2.7])), "x1": of_range(columns[1], -0.8, 1.0)})


def uniform(draw, columns, drawn):
    """p-value of simulated x2 given the row's other cells, by the integral transform."""
    given = draw.given(on_them(columns))
    below = [given.averaged(e, draw.masses(e))[0, 0] for e in (of_range(columns[2], -np.inf, x) for x in drawn[:400])]
    return stats.kstest(below, "uniform").pvalue


def simulated(draw, columns, n=2000):
    return draw.simulate(on_them(columns).repeat(n), {"x0", "x1", "x2"}, Stream(3, Purpose.SIMULATED, 1), np.arange(n))


def test_simulated_rows_have_the_conditional():
    draw, columns = strong()
    drawn = simulated(draw, columns)
    assert (drawn["x0"] == 2.7).all() and (drawn["x1"] >= -0.8).all() and (drawn["x1"] <= 1.0).all()
    assert uniform(draw, columns, drawn["x2"]) > LEVEL
    again = draw.simulate(Known(3, {}), {"x2"}, Stream(3, Purpose.SIMULATED, 1), np.arange(5, 8))["x2"]
    more = draw.simulate(Known(9, {}), {"x2"}, Stream(3, Purpose.SIMULATED, 1), np.arange(9))["x2"]
    assert (again == more[5:8]).all()


def test_simulated_rows_whose_features_ignore_what_is_given_are_rejected(monkeypatch):
    draw, columns = strong()
    right = Law.given
    monkeypatch.setattr(Law, "given", lambda self, known: right(self, Known(known.n_rows, {})))
    drawn = simulated(draw, columns)["x2"]
    monkeypatch.undo()
    assert uniform(draw, columns, drawn) < LEVEL


def test_surprisal_of_a_cell_is_that_given_the_others():
    draw, columns, rows, _ = made()
    known = known_of(rows, columns)
    inverse = draw.given(known).inverses()
    for c, name in enumerate(known.of):
        expected = -draw.given(known.without([name])).log_density(known.only([name]))
        seen = ~np.isnan(inverse[:, c])
        np.testing.assert_allclose(np.log(inverse[seen, c]), expected[seen], atol=1e-7)


def test_similarity_is_the_share_of_features():
    draw, columns, rows, z = made()
    z = z.astype(int)
    draw.rows = z.astype(bool)
    share = draw.shared([], 4, Known(1, {}))
    both_, either = (z & z[4]).sum(axis=1), (z | z[4]).sum(axis=1)
    np.testing.assert_allclose(share, np.where(either > 0, both_ / np.maximum(either, 1), 1.0))
    known = known_of(rows, columns).take(np.array([3]))
    described = draw.shared([], None, known)
    weight, patterns = draw.given(known).weight, draw.all.patterns
    expected = np.zeros(len(z))
    for p, share in enumerate(weight[0]):
        has = patterns[p % len(patterns)].astype(int)
        both_, either = (z & has).sum(axis=1), (z | has).sum(axis=1)
        expected += share * np.where(either > 0, both_ / np.maximum(either, 1), 1.0)
    np.testing.assert_allclose(described, expected, atol=1e-12)
    with pytest.raises(AssertionError):  # the similarity of the most probable combination alone
        best = weight[0].argmax() % len(patterns)
        has = patterns[best].astype(int)
        both_, either = (z & has).sum(axis=1), (z | has).sum(axis=1)
        np.testing.assert_allclose(described, np.where(either > 0, both_ / np.maximum(either, 1), 1.0), atol=1e-3)


def test_too_many_features_are_refused(monkeypatch):
    opened = SimpleNamespace(run=SimpleNamespace(chains=[SimpleNamespace(home="runs/a")]))
    with pytest.raises(ConfigError, match="13 features"):
        asked.Asked._law(opened, [1] * (law.MOST + 1))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 60 rows that have two features or none, with one count column."""
    folder, g = tmp_path_factory.mktemp("features"), np.random.default_rng(2)
    z = (g.random((60, 2)) < 0.5).astype(int)
    means = np.array([[8.0, 0.0, 5.0, 10.0], [0.0, -7.0, 5.0, 0.0]])
    x = z @ means + g.normal(size=(60, 4)) + 20.0
    names = ["a", "b", "c", "n"]
    rows = [{n: f"{v:.6g}" if n != "n" else f"{round(v)}" for n, v in zip(names, line)} for line in x]
    write_csv(folder / "x.csv", rows)
    (folder / "ibp.toml").write_text(
        "[data]\ntable = 'x.h5'\n[model]\nfamily = 'ibp'\n[run]\ncycles = 60\nburn_in = 20\n[output]\nlabels = 2\n"
    )
    kinds = [f"--kind={n}={'count' if n == 'n' else 'real'}" for n in names]
    assert main(["import", str(folder / "x.csv"), str(folder / "x.h5"), *kinds]) == 0
    assert main(["run", str(folder / "ibp.toml"), "-o", str(folder / "r")]) == 0
    return folder


@pytest.mark.quick(every=2)
@pytest.mark.parametrize(
    "arguments, words",
    [
        (["logp", "--of", "a=28", "--given", "c=24..27"], "log p(a=28 | c=24..27)"),
        (["conditional", "n", "--given", "a=28"], "median"),
        (["simulate", "-n", "2", "--given", "b=..15"], "2 rows given b=..15"),
        (["similarity", "--row", "4"], "share of the features of either row that both have"),
        (["similarity", "--like", "a=28"], "Rows like a=28"),
        (["dependence"], "information"),
        (["predictors", "a", "--set", "2"], "found one by one"),
        (["compare", "--group", "a=25..", "--against", "a=..23"], "where they differ most"),
        (["surprisal", "--rows", "x.csv"], "given the rest of their row"),
        (["novelty", "--rows", "x.csv"], "no novelty"),
        (["impute", "--rows", "x.csv"], "none of 60 rows lacks"),
    ],
)
def test_questions(run, capsys, arguments, words, monkeypatch):
    monkeypatch.chdir(run)
    assert main(["query", "r", *arguments]) == 0
    assert words in capsys.readouterr().out


def test_leaving_training_rows_out_is_refused(run, capsys):
    assert main(["query", str(run / "r"), "surprisal"]) == 2
    assert "cannot leave a training row out; name new rows" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["complete", "synthesize"])
def test_copies_are_refused(run, verb, tmp_path, capsys):
    assert main([verb, str(run / "r"), "-o", str(tmp_path / "copies")]) == 2
    assert f"{verb}: it is for mixtures and cross-categorizations" in capsys.readouterr().err
