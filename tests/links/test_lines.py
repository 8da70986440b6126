"""Numbers that lean on each other in lines: kernels and their twin, and answers, which say the same by every door of
the program and sum over the numbers that nobody knows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chisquare, multivariate_normal, norm

from mpibayes.errors import ConfigError
from mpibayes.hpc.components import nodes
from mpibayes.hpc.crosscat.laws.collapsed import collapsed_clusters
from mpibayes.hpc.crosscat.laws.normals import Normals
from mpibayes.hpc.crosscat.lines import boxes, parameters
from mpibayes.hpc.crosscat.lines import law as line_law
from mpibayes.hpc.data.events import Known, known_of, of_values
from mpibayes.hpc.data.latent import OF_NEW_ROWS
from mpibayes.hpc.query import predictors
from mpibayes.hpc.query.dependence import information
from mpibayes.hpc.query.simulate import simulated
from mpibayes.io import recording
from mpibayes.io.ingest import import_table
from mpibayes.io.rows import Column
from mpibayes.io.table import Table
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.mixture import twin
from mpibayes.kernels.mixture.twin_cluster import Row
from tests.crosscat.report.runs import make_run
from tests.links.known import log_p, one
from tests.query.runs import write_csv

N = 120
LINKS = {"price": "size", "tax": "price", "depth": "size"}


def stones(seed=4) -> list[dict]:
    """Sizes, of two makes; prices that grow with them, taxes on prices, and depths."""
    g, rows = np.random.default_rng(seed), []
    for _ in range(N):
        make = int(g.integers(2))
        size = round(g.normal(40.0 + 30.0 * make, 8.0))
        price = round(float(np.exp(1.0 + 0.08 * size + g.normal(0.0, 0.2))))
        tax, depth = round(20.0 * np.log(price) + g.normal(0.0, 4.0)), round(0.5 * size + g.normal(0.0, 3.0))
        rows.append({"make": "ab"[make], "size": size, "price": price, "tax": tax, "depth": depth})
    return [{name: str(value) for name, value in row.items()} for row in rows]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lines")
    kinds = dict.fromkeys(("size", "price", "tax", "depth"), "real")
    import_table([write_csv(folder / "table.csv", stones())], folder / "table.h5", kinds=kinds)
    text = f"[model]\nfamily = 'mixture'\nlinks = 'forest'\nshapes = 'none'\nlines = {list(kinds)}\n"
    return make_run(folder / "run", Table.open(folder / "table.h5"), cycles=14, burn_in=6, text=text, links=LINKS)


@pytest.fixture(scope="module")
def views(asking):
    return [law.views[0] for law in asking.draws([c.name for c in asking.columns])]


def rows_of(asking, n=6):
    """Training rows as they are modelled."""
    recorded = asking.asked.recorded(np.arange(n))
    return recorded, asking.run.data.as_modelled(recorded, np.arange(n), OF_NEW_ROWS)


def test_the_numbers_are_in_one_line(views):
    assert {tuple(sorted(law.names)) for view in views for law in view.lines} == {("depth", "price", "size", "tax")}
    assert any(c.log for c in views[0].lines[0].columns)  # a price


def test_scores_of_the_kernels_are_those_of_their_twin(asking, views):
    view, (_, rows) = views[0], rows_of(asking)
    prior, alpha, d = view.components.prior(view.hyper), view.hyper.concentration, view.hyper.discount
    of_twin = twin.Tail(prior, alpha, d, 0.0)
    of_twin.load(view.statistics)
    coded = view.coding.coded(rows)
    tail = collapsed_clusters(view.components, view.hyper, view.statistics)
    scores = kernels.log_predictive_clusters(coded, tail)
    for i, found in enumerate(scores):
        known, new = of_twin.log_weights(Row(coded, i))
        assert np.allclose(found, [*known, new], atol=2e-4)


def averages(view, rows, n: int) -> np.ndarray:
    """Densities of rows in every cluster, of n draws of the parameters, (n, rows, K + 1)."""
    laws = (
        line_law.line_laws(view.components, view.hyper, view.statistics, view.coding, {"cycle": i}) for i in range(n)
    )
    return np.array([np.exp(law.scored(rows)) for ((_, (law,)),) in laws])


def of_kernels(view, rows) -> np.ndarray:
    """The same with parameters integrated out, of columns in lines alone."""
    bare = rows.take(slice(None))
    for column in view.lines[0].columns:
        bare.reals[:, column.index] = np.nan
    both = (kernels.log_predictive_clusters(view.coding.coded(of), view.tail) for of in (rows, bare))
    return np.exp(next(both) - next(both))


def test_parameters_average_to_what_the_kernels_integrate(asking, views):
    view, (_, rows) = views[0], rows_of(asking)
    large = np.flatnonzero(view.statistics.size > 10)
    drawn, exact = averages(view, rows, 1_500)[:, :, large], of_kernels(view, rows)[:, large]
    assert len(large)
    z = (drawn.mean(axis=0) - exact) / (drawn.std(axis=0) / np.sqrt(len(drawn)))
    assert np.abs(z[exact > 1e-9 * exact.max()]).max() < 5.0


def test_parameters_that_are_not_drawn_are_rejected(asking, views, monkeypatch):
    class Middle:
        def standard_gamma(self, shape):
            return np.asarray(shape)

        def standard_normal(self, size):
            return np.zeros(size)

    monkeypatch.setattr(parameters, "generator", lambda **key: Middle())
    view, (_, rows) = views[0], rows_of(asking)
    large = np.flatnonzero(view.statistics.size > 10)
    fixed, exact = averages(view, rows, 1)[0][:, large], of_kernels(view, rows)[:, large]
    likely = exact > 1e-9 * exact.max()
    assert np.abs(np.log(fixed[likely] / exact[likely])).max() > 0.05


QUESTIONS = [
    ({"price": 180.0}, {"size": 50.0}),
    ({"size": 52.0}, {"tax": 98.0}),
    ({"tax": 120.0, "depth": 31.0}, {"size": 61.0}),
    ({"make": "a"}, {"price": 90.0, "depth": 30.0}),
    ({"size": (40.0, 55.0)}, {"make": "b"}),
]


@pytest.mark.parametrize(("target", "given"), QUESTIONS)
def test_products_of_conditionals(asking, target, given):
    """p(w, g) = p(w | g) p(g)."""
    both = log_p(asking, {**target, **given}, {})
    assert both == pytest.approx(log_p(asking, target, given) + log_p(asking, given, {}), abs=1e-9)


@pytest.mark.parametrize(("target", "given"), [({"tax": 105.0}, {"size": 55.0}), ({"depth": 20.0, "tax": 80.0}, {})])
def test_an_unknown_number_is_summed_out(asking, target, given):
    """p(w | g) is the sum of p(w, x | g) over the recorded values of a price x in the middle of the tree."""
    column = asking.conditions.column("price")
    x = np.arange(1.0, 6000.0)
    each = Known(len(x), {"price": (of_values(column, x), np.arange(len(x)))})
    known = one(asking, **given).repeat(len(x)) if given else Known(len(x), {})
    parts = asking.log_p(each.join(one(asking, **target)), known)[0]
    assert logsumexp(parts) == pytest.approx(log_p(asking, target, given), abs=2e-3)


RANGES = [
    ({"price": (60.0, 90.0)}, {"size": 45.0}),
    ({"size": (40.0, 47.0)}, {"price": (70.0, 95.0), "make": "a"}),
    ({"tax": 91.0}, {"price": (70.0, 95.0), "size": 44.0}),
    ({"tax": (85.0, 95.0), "depth": (20.0, 24.0)}, {"price": (70.0, 95.0)}),
]


def sums_over_values(asking, target: dict, given: dict) -> float:
    """log p(w | g) = log p(w, g) - log p(g), each a sum over the recorded values in its ranges."""

    def total(parts: dict) -> float:
        values = {n: np.arange(v[0], v[1] + 1.0) for n, v in parts.items() if isinstance(v, tuple)}
        grid = dict(zip(values, np.meshgrid(*values.values(), indexing="ij")))
        n = next(iter(grid.values())).size if grid else 1
        of = {c: (of_values(asking.conditions.column(c), x.ravel()), np.arange(n)) for c, x in grid.items()}
        rest = {name: v for name, v in parts.items() if name not in values}
        known = Known(n, of).join(one(asking, **rest).repeat(n)) if rest else Known(n, of)
        return float(logsumexp(asking.log_p(known, Known(n, {}))[0]))

    return total({**target, **given}) - total(given)


def ranges_differ(asking) -> list[float]:
    return [abs(log_p(asking, *of) - sums_over_values(asking, *of)) for of in RANGES]


def test_ranges_of_numbers_are_sums_over_their_values(asking):
    assert max(ranges_differ(asking)) < 5e-3  # a value counts with its density times a step


def test_ranges_that_do_not_know_of_each_other_are_rejected(asking, monkeypatch):
    right = boxes.log_box
    monkeypatch.setattr(boxes, "log_box", lambda mean, c, *of: right(mean, np.diag(np.diagonal(c)), *of))
    assert max(ranges_differ(asking)) > 0.1


def test_a_distribution_that_does_not_add_up_is_refused(asking, monkeypatch):
    right = line_law.LineLaw.averaged
    monkeypatch.setattr(line_law.LineLaw, "averaged", lambda *of: 0.9 * right(*of))
    with pytest.raises(ConfigError, match="price: its distribution cannot be computed in float64"):
        list(asking.distributions("price", one(asking, size=60.0), 24))


def test_a_cell_without_a_logarithm_is_no_range():
    """0 in a column of logarithms says nothing; without a step, values of other rows would be ranges without width."""
    columns = [Column("size", "real", "reals", 0), Column("price", "real", "reals", 1, log=True)]
    normals = Normals(np.zeros((1, 2)), np.array([[[1.0, 0.8], [0.8, 1.0]]]), np.full(1, np.inf))
    law = line_law.LineLaw(["size", "price"], normals, columns, [1, 2], [-1, 0])
    every = np.arange(3)
    size, price = (of_values(c, np.array(x)) for c, x in zip(columns, ([0.5, 0.6, 0.7], [0.0, 1.0, np.e])))
    known = Known(3, {"size": (size, every), "price": (price, every)})
    log_p = law.score(known)[:, 0]
    assert log_p[0] == pytest.approx(norm.logpdf(0.5))
    for i, x in ((1, (0.6, 0.0)), (2, (0.7, 1.0))):
        assert log_p[i] == pytest.approx(multivariate_normal(np.zeros(2), normals.matrix[0]).logpdf(x) - x[1])


def test_many_ranges_are_refused(asking, monkeypatch):
    monkeypatch.setattr(line_law, "MOST_RANGES", 1)
    with pytest.raises(ConfigError, match="2 ranges of numbers that depend on each other linearly: give values"):
        log_p(asking, *RANGES[1])


def test_a_distribution_given_ranges_is_that_of_probabilities(asking):
    given = one(asking, price=(70.0, 95.0), depth=(20.0, 24.0))
    ((_, d),) = asking.distributions("size", given, 16)
    events, p = d.support.events, d.p[0] / d.p[0].sum()
    each = Known(len(events), {"size": (events, np.arange(len(events)))})
    assert np.allclose(p, np.exp(asking.log_p(each, given.repeat(len(events)))[0]), atol=1e-6)


@pytest.mark.parametrize("name", ["size", "tax", "price"])
def test_numbers_drawn_given_ranges_have_their_probabilities(asking, name):
    """Chi-square of numbers, of a range that is given or of others, one false alarm in 10,000 seeds."""
    n, values = 2_000, np.arange(30.0, 130.0)
    given = one(asking, price=(70.0, 95.0), depth=(20.0, 24.0))
    drawn = simulated(asking, given, [name], n, 5)[name]
    assert name != "price" or ((drawn >= 70.0) & (drawn <= 95.0)).all()
    each = Known(len(values), {name: (of_values(asking.conditions.column(name), values), np.arange(len(values)))})
    if name == "price":
        inside = (values >= 70.0) & (values <= 95.0)
        each, values = each.take(np.flatnonzero(inside)), values[inside]
        rest = one(asking, depth=(20.0, 24.0))
        p = np.exp(
            asking.log_p(each, rest.repeat(len(values)))[0]
            - log_p(asking, {"price": (70.0, 95.0)}, {"depth": (20.0, 24.0)})
        )
    else:
        p = np.exp(asking.log_p(each, given.repeat(len(values)))[0])
    times = np.array([(drawn == v).sum() for v in values])
    often = p * n >= 5
    p, times = np.append(p[often], max(1.0 - p[often].sum(), 0.0)), np.append(times[often], n - times[often].sum())
    p, times = (p[:-1], times[:-1]) if p[-1] * n < 0.5 and times[-1] == 0 else (p, times)
    assert chisquare(times, times.sum() * p / p.sum()).pvalue > 1e-4


def test_information_is_that_of_the_joint_table(asking):
    mutual = information(asking, ["size", "depth"], ["size", "depth"])
    x, y = np.arange(5.0, 110.0), np.arange(-5.0, 60.0)
    columns, i = [asking.conditions.column(name) for name in ("size", "depth")], np.indices((len(x), len(y)))
    cells = {c.name: (of_values(c, v), at.ravel()) for c, v, at in zip(columns, (x, y), i)}
    p = np.exp(asking.log_p(Known(i[0].size, cells), Known(i[0].size, {}))[0]).reshape(len(x), len(y))
    places = []
    for column, values in zip(columns, (x, y)):
        events = asking.supports([column.name], 16)[column.name].events
        places.append((values[:, None] >= events.low) & (values[:, None] <= events.high))
    table = places[0].T.astype(float) @ p @ places[1].astype(float)
    table /= table.sum()
    exact = (table * np.log(np.maximum(table, 1e-300) / np.outer(table.sum(axis=1), table.sum(axis=0)))).sum()
    assert exact > 0.2 and mutual.information[0, 1] == pytest.approx(exact, abs=0.01)


@pytest.mark.thorough
def test_a_set_of_predictors_adds_what_entropies_fall_by(asking):
    n = 3  # simulated
    lines = predictors.best_set(asking, "price", (), 2, n).columns
    first, second = lines["column"]
    assert {first, second} == {"size", "tax"}
    rows = simulated(asking, Known(1, {}), ["tax", "make", "size", "price", "depth"], n, predictors.SEED)
    price, x = asking.conditions.column("price"), np.arange(1.0, 6000.0)
    events = asking.supports(["price"], predictors.CELLS)["price"].events
    inside = ((x >= events.low[:, None]) & (x <= events.high[:, None])).astype(float)
    falls = []
    for i in range(n):
        of = {c: (of_values(asking.conditions.column(c), rows[c][[i]]), np.zeros(1, int)) for c in (first, second)}
        entropy = []
        for names in ([first], [first, second]):
            given = Known(1, {c: of[c] for c in names}).repeat(len(x))
            p = inside @ np.exp(
                asking.log_p(Known(len(x), {"price": (of_values(price, x), np.arange(len(x)))}), given)[0]
            )
            p = np.maximum(p / p.sum(), 1e-300)
            entropy.append(-(p * np.log(p)).sum())
        falls.append(entropy[0] - entropy[1])
    assert lines["adds"][1] == pytest.approx(np.mean(falls), abs=3e-3)


def test_simulated_numbers_have_their_probabilities(asking):
    """Chi-square of numbers that nobody knew, one false alarm in 10,000 seeds."""
    n, values = 3_000, np.arange(40.0, 180.0)
    drawn = simulated(asking, one(asking, size=55.0), ["tax"], n, 5)["tax"]
    column = asking.conditions.column("tax")
    each = Known(len(values), {"tax": (of_values(column, values), np.arange(len(values)))})
    p = np.exp(asking.log_p(each, one(asking, size=55.0).repeat(len(values)))[0])
    times = np.array([(drawn == v).sum() for v in values])
    often = p * n >= 5
    p, times = np.append(p[often], 1.0 - p[often].sum()), np.append(times[often], n - times[often].sum())
    assert chisquare(times, n * p / p.sum()).pvalue > 1e-4


def test_predictions_are_those_of_questions(asking, views, monkeypatch):
    """Densities of rows with gaps, times their steps as if all were narrow, and means of missing cells, draw by
    draw."""
    monkeypatch.setattr(nodes, "WIDEST", np.full(len(nodes.WIDEST), np.inf))
    recorded, _ = rows_of(asking, 4)
    for i, names in enumerate(("price", "tax", "size price", "make price")):
        for name in names.split():
            column = asking.conditions.column(name)
            getattr(recorded, column.block)[i, column.index] = column.blank
    modelled = asking.run.data.as_modelled(recorded, np.arange(4), OF_NEW_ROWS)
    for column in (c for c in asking.run.columns if not c.levels):  # what the numbers are within their steps
        latent = getattr(modelled, column.block)[:, column.index]
        recorded.reals[:, asking.conditions.column(column.name).index] = recording.number(column, latent)
    known = known_of(recorded, asking.columns)
    for law in asking.draws([c.name for c in asking.columns]):
        (view,), on_them = law.views, law.given(known)
        assert np.allclose(view.log_density(modelled), on_them.log_p, atol=2e-3)
        (at,) = [p for p in view.patterns(modelled) if p.kind.members(p.column)[0].name == "tax"]
        (result,) = view.averages(replace(at), on_them.weights[0][at.rows], modelled)
        column, x = asking.conditions.column("tax"), np.arange(-300.0, 600.0)
        events = of_values(column, x)
        p = on_them.averaged(events, law.masses(events))[at.rows]
        assert np.allclose(result[:, 0], (p @ x) / p.sum(axis=1) - column.center, atol=0.02)


def test_simulated_rows_stay_near_the_line(asking):
    drawn = simulated(asking, Known(1, {}), ["size", "price", "tax"], 800, 6)
    x = np.log(drawn["price"]) - 1.0 - 0.08 * drawn["size"]
    assert np.median(np.abs(x)) < 0.3 and np.corrcoef(np.log(drawn["price"]), drawn["tax"])[0, 1] > 0.9
