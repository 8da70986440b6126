"""Answers where columns lean on numbers, on one or on two: a real column, one with an atom, a count. What one door of
the program says, the others say, and sums over the numbers that nobody knows."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chisquare, t

from mpibayes.hpc.crosscat.laws.left_out import LeftOut
from mpibayes.hpc.crosscat.summaries.predictor import Predictor
from mpibayes.hpc.crosscat.summaries.representative import representatives
from mpibayes.hpc.data.events import Known, everyone, known_of, of_values
from mpibayes.hpc.data.latent import OF_NEW_ROWS
from mpibayes.hpc.links import bins
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.dependence import information
from mpibayes.hpc.query.simulate import simulated
from mpibayes.io.ingest import import_table
from mpibayes.io.rows import Column
from mpibayes.io.table import Table
from tests.crosscat.report.runs import make_run
from tests.links.known import log_p, one, require_one_density
from tests.query.runs import write_csv

N = 120
CUTS = {"income": (29.5, 54.5, 70.5), "cost": (20.5, 40.5), "visits": (1.5, 4.5)}
LINKS = {"plan": "income", "cost (0 or not 0)": "plan", "seat": "cost", "card": "visits"}


def customers(seed=3) -> list[dict]:
    """Whose income decides on a plan, the plan on whether it costs anything, the cost on a seat; and visits on a
    card."""
    g, rows = np.random.default_rng(seed), []
    for _ in range(N):
        income, visits = round(g.normal(50.0, 20.0)), int(g.poisson(3.0))
        plan = "basic" if income < 30 else "plus" if income < 55 else "gold"
        plan = plan if g.random() < 0.85 else str(g.choice(["basic", "plus", "gold"]))
        cost = 0 if g.random() < (0.8 if plan == "basic" else 0.3) else int(g.integers(5, 60))
        seat = "none" if cost == 0 else "back" if cost < 30 else "front"
        card = visits > 2 if g.random() < 0.8 else g.random() < 0.5
        rows.append(
            {
                "income": income,
                "plan": plan,
                "cost": cost,
                "seat": seat,
                "visits": visits,
                "card": "yes" if card else "no",
            }
        )
    return [{name: str(value) for name, value in row.items()} for row in rows]


TWO = [["seat", "cost", "visits"], ["card", "visits", "cost"]]  # with second parents


@pytest.fixture(scope="module", params=["forest", TWO], ids=["one", "two"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    kinds = {"cost": "real", "income": "real", "visits": "count"}
    import_table([write_csv(folder / "table.csv", customers())], folder / "table.h5", kinds=kinds)
    table = Table.open(folder / "table.h5")
    assert table.columns[2].atoms == (0.0,)
    cuts = ", ".join(f"{name} = {list(of)}" for name, of in CUTS.items())
    text = f"[model]\nfamily = 'mixture'\nlinks = {request.param!r}\nshapes = 'none'\nbins = {{{cuts}}}\n"
    return make_run(folder / "run", table, cycles=14, burn_in=6, text=text, links=LINKS)


def test_the_numbers_are_linked(asking):
    together = [["card", "visits"], ["cost", "income", "plan", "seat"]]
    if asking.run.chains[0].config.model.named_links:
        together = [["card", "cost", "income", "plan", "seat", "visits"]]
    for law in asking.draws(["seat"]):
        assert sorted(sorted(tree.names) for tree in law.views[0].trees) == together


@pytest.mark.parametrize("cuts", [(1.5, 4.5), (2.0, 5.0)])
def test_a_count_is_in_the_bin_that_has_it(cuts):
    """First values of bins too, whether cuts are counts or between two."""
    column = replace(Column("n", "count", "tallies", 0), cuts=cuts)
    x = np.arange(9.0)
    found = bins.contexts_in(column, None, SimpleNamespace(tallies=x[:, None]))
    first, last = bins.bounds(column)
    assert ((first[found] <= x) & (x <= last[found])).all()


QUESTIONS = [
    ({"plan": "gold"}, {}),
    ({"income": 61.0}, {"plan": "gold"}),
    ({"income": (20.0, 60.0)}, {"seat": "none"}),
    ({"cost": 0.0}, {"income": 12.0}),
    ({"cost": 33.0}, {"seat": "front", "income": 80.0}),
    ({"cost": (0.0, 25.0)}, {"plan": "plus", "visits": 1.0}),
    ({"seat": "back"}, {"cost": (0.0, 50.0)}),
    ({"visits": (1.0, 6.0)}, {"card": "no"}),
    ({"card": "yes"}, {"visits": (3.0, 5.0)}),
]


@pytest.mark.quick(every=3)
@pytest.mark.parametrize(("target", "given"), QUESTIONS)
def test_products_of_conditionals(asking, target, given):
    """p(w, g) = p(w | g) p(g), and so p(w | g) sums to 1 where its parts do."""
    both = log_p(asking, {**target, **given}, {})
    assert both == pytest.approx(log_p(asking, target, given) + (log_p(asking, given, {}) if given else 0.0), abs=1e-9)


UNKNOWN = [
    ({"plan": "gold"}, {"seat": "back"}, "income", -60, 160),
    ({"plan": "basic"}, {}, "income", -60, 160),
    ({"seat": "front"}, {"income": 71.0}, "cost", -80, 150),
    ({"seat": "none", "plan": "plus"}, {}, "cost", -80, 150),
    ({"card": "yes"}, {}, "visits", 0, 60),
]


def each_value(asking, name, low, high) -> Known:
    """A row for each recorded value that is no atom from low to high."""
    column = asking.conditions.column(name)
    x = np.setdiff1d(np.arange(low, high + 1.0), column.atoms)
    return Known(len(x), {name: (of_values(column, x), np.arange(len(x)))})


@pytest.mark.quick(every=3)
@pytest.mark.parametrize(("target", "given", "name", "low", "high"), UNKNOWN)
def test_an_unknown_number_is_summed_out(asking, target, given, name, low, high):
    """p(w | g) is the sum of p(w, x | g) over the recorded values of a number x, with all those beyond some as two."""
    each = each_value(asking, name, low, high)
    n = each.n_rows
    known = one(asking, **given).repeat(n) if given else Known(n, {})
    parts = asking.log_p(each.join(one(asking, **target)), known)[0].tolist()
    parts.append(log_p(asking, {**target, name: (high + 1.0, 1e9)}, given))
    if name != "visits":
        parts.append(log_p(asking, {**target, name: (-1e9, low - 1.0)}, given))
    if name == "cost":  # the atom, and numbers that are recorded as it is
        parts.append(log_p(asking, {**target, name: (0.0, 0.0)}, given))
    assert logsumexp(parts) == pytest.approx(log_p(asking, target, given), abs=2e-5)


def without_messages(monkeypatch):
    """Bins of an unknown number are as probable in all clusters."""
    right = bins.masses
    monkeypatch.setattr(bins, "masses", lambda *of: np.full_like(right(*of), 1.0 / len(right(*of))))


def test_bins_that_do_not_follow_the_law_are_rejected(asking, run, monkeypatch):
    without_messages(monkeypatch)
    wrong = Asking(run, draws=4)
    with pytest.raises(AssertionError):
        test_an_unknown_number_is_summed_out(wrong, *UNKNOWN[0])


@pytest.mark.quick("one-income-given0")
@pytest.mark.parametrize(
    ("name", "given"), [("income", {"plan": "gold"}), ("cost", {"seat": "back"}), ("visits", {"card": "no"})]
)
def test_distributions_are_probabilities_of_their_cells(asking, name, given):
    (d,) = (d for _, d in asking.distributions(name, one(asking, **given), 24))
    assert d.p[0].sum() == pytest.approx(1.0, abs=1e-6)
    events = d.support.events
    for i in range(len(events)):
        known = everyone({name: events.take(np.array([i]))})
        assert np.exp(asking.log_p(known, one(asking, **given))[0][0]) == pytest.approx(d.p[0, i], abs=1e-6)


@pytest.mark.thorough
def test_information_is_that_of_the_joint_table(asking):
    mutual = information(asking, ["income", "seat"], ["income", "plan", "seat"])
    assert mutual.information[0, 1] > 0.2 and mutual.information[1, 0] > 0.01
    events = asking.supports(["income"], 16)["income"].events
    p = np.array(
        [
            [
                np.exp(
                    asking.log_p(
                        everyone({"income": events.take(np.array([i]))}).join(one(asking, plan=v)), Known(1, {})
                    )[0][0]
                )
                for v in ("basic", "plus", "gold")
            ]
            for i in range(len(events))
        ]
    )
    exact = (p * np.log(np.maximum(p, 1e-300) / np.outer(p.sum(axis=1), p.sum(axis=0)))).sum()
    assert mutual.information[0, 1] == pytest.approx(exact, abs=1e-5)


@pytest.mark.thorough
def test_simulated_numbers_have_their_probabilities(asking):
    """Chi-square of parts of numbers that nobody knew, one false alarm in 10,000 seeds each."""
    n = 4_000
    for given, name, cells in (
        ({"seat": "back"}, "income", [(-1e9, 20.0), (21.0, 40.0), (41.0, 54.0), (55.0, 70.0), (71.0, 1e9)]),
        ({"seat": "back"}, "cost", [(-1e9, -1.0), (0.0, 0.0), (1.0, 10.0), (11.0, 20.0), (21.0, 30.0), (31.0, 1e9)]),
        ({"card": "no"}, "visits", [(0.0, 0.0), (1.0, 1.0), (2.0, 3.0), (4.0, 1e9)]),
        ({"plan": "gold", "income": (10.0, 64.0)}, "income", [(10.0, 29.0), (30.0, 54.0), (55.0, 58.0), (59.0, 64.0)]),
    ):
        drawn = simulated(asking, one(asking, **given), [name], n, 5)[name]
        rest = {key: value for key, value in given.items() if key != name}
        p = np.exp([log_p(asking, {name: cell}, rest) for cell in cells])
        times = np.array([((drawn >= low) & (drawn <= high)).sum() for low, high in cells])
        few = p * n < 5
        assert times.sum() == n and times[few].sum() < 20, (given, name)
        assert chisquare(times[~few], times[~few].sum() * p[~few] / p[~few].sum()).pvalue > 1e-4, (name, times, n * p)


# --- rows as predictions have them ------------------------------------------------------------------------------------


def gaps(asking):
    """New rows, recorded, that lack some of the linked columns."""
    rows = asking.asked.recorded(np.arange(8)).take(np.arange(8))
    for i, names in enumerate(
        ("income", "plan", "income plan", "cost", "cost plan", "visits", "income cost visits", "seat")
    ):
        for name in names.split():
            column = asking.conditions.column(name)
            getattr(rows, column.block)[i, column.index] = column.blank
    return rows


def test_rows_without_numbers_have_the_same_density_by_both_ways(asking):
    require_one_density(asking, gaps(asking), ("income", "cost", "visits"))


def test_predictions_are_those_of_questions(asking):
    """Levels and means of missing cells given the same weights of the clusters, draw by draw. Means are of 16 points a
    bin, whose ends are far away."""
    rows, run = gaps(asking), asking.run
    known, modelled = known_of(rows, asking.columns), run.data.as_modelled(rows, np.arange(8), OF_NEW_ROWS)
    n_numbers = 0
    for law in asking.draws([c.name for c in asking.columns]):
        (view,), on_them = law.views, law.given(known)
        for pattern in view.patterns(modelled):
            column = pattern.kind.members(pattern.column)[0]
            name = column.part_of or column.name
            at = pattern.rows[np.isin(pattern.rows, np.flatnonzero(known.of[name][1] == len(known.of[name][0])))]
            if not len(at):
                continue
            pattern = replace(pattern, rows=at, x=pattern.x[:0])
            (result,) = view.averages(pattern, on_them.weights[0][at], modelled)
            if column.levels and not column.part_of:
                events = of_values(asking.conditions.column(name), np.arange(len(column.levels)))
                assert np.allclose(result, on_them.averaged(events, law.masses(events))[at], atol=1e-6)
            elif not column.levels:
                x = np.arange(0 if name == "visits" else -300.0, 400.0)
                atoms = asking.conditions.column(name).atoms
                events = of_values(asking.conditions.column(name), np.setdiff1d(x, atoms))
                p = on_them.averaged(events, law.masses(events))[at]
                mean = p @ (np.setdiff1d(x, atoms) - column.center)
                assert np.allclose(result[:, 0], mean, atol=0.05 * column.scale), (name, result[:, 0], mean)
                n_numbers += len(at)
    assert n_numbers >= 4 * 7


def test_predictions_run(asking):
    rows, run = gaps(asking), asking.run
    modelled = run.data.as_modelled(rows, np.arange(8), OF_NEW_ROWS)
    result = Predictor(run, asking.asked._kept, representatives(run, run.kept()).views, impute=True)(modelled)
    assert all(np.isfinite(cell.value).all() and np.isfinite(cell.spread).all() for cell in result.imputed.values())
    assert np.allclose(result.imputed["income"].value, np.clip(result.imputed["income"].value, 0.0, 100.0))


def test_simulated_rows_stay_linked(asking):
    """Missing numbers and levels of copies, and synthetic rows: plans go with incomes as in the table."""
    synthesis = next(iter(asking.asked.syntheses(2, 500, {})))
    cells = synthesis.cells(np.arange(500), synthesis.parts(np.arange(500)))
    plan = asking.conditions.column("plan").levels
    usual = np.select(
        [cells["income"] < 30, cells["income"] < 55], [plan.index("basic"), plan.index("plus")], plan.index("gold")
    )
    assert (cells["plan"] == usual).mean() > 0.65 and set(cells["income"] % 1.0) == {0.0}
    without = next(iter(asking.asked.syntheses(2, 300, {"cost": np.array([True])})))
    assert (cells["cost"] == 0.0).mean() > 0.2
    assert (without.cells(np.arange(300), without.parts(np.arange(300)))["cost"] == 0.0).mean() < 0.05
    rows = gaps(asking)
    known, names = known_of(rows, asking.columns), [c.name for c in asking.columns]
    for law in asking.draws(names):
        drawn = law.simulate(known, names, Stream(1, Purpose.SIMULATED, cycle=1), np.arange(len(rows)))
        for column in asking.columns:
            there = ~column.is_missing(getattr(rows, column.block)[:, column.index])
            assert not np.isnan(drawn[column.name]).any()
            assert np.array_equal(drawn[column.name][there], getattr(rows, column.block)[there, column.index])


# --- rows left out ----------------------------------------------------------------------------------------------------


def differences(asking) -> np.ndarray:
    """Log probabilities of a plan and a seat in each row's own cluster without it, the income not known, less the
    sum over bins of their probabilities in the t distribution of the cluster's other incomes."""
    known = known_of(asking.asked.recorded(np.arange(N)), asking.columns)
    column, rows = asking.conditions.column("income"), asking.asked.modelled(np.arange(N))
    result = []
    for law in asking.asked.labelled(known.of, np.arange(N)):
        (view,) = law.views
        left = LeftOut(view, asking.run.of(view.order).take(rows), known)
        (tree,) = (tree for tree in view.trees if "income" in tree.names)
        lacks = known.without(["income"])
        says = left._log_linked(tree, lacks)
        for name in {"cost", "visits"}.intersection(tree.names):
            says = says - left._log_rest(*lacks.of[name])
        of_bins = []
        for x in (10.0, 40.0, 60.0, 90.0):  # one in each bin
            events = of_values(column, np.full(1, x))
            with_x = Known(N, {**lacks.of, "income": (events, np.zeros(N, np.intp))})
            levels = tree.levels_of(view.coding, left._rows)
            of_bins.append(tree.left_out(with_x, left._own, levels, left._masses))
        y, z = rows.reals[:, column.index], left._own
        m, kappa, nu, variance = view.hyper.normal[[c.name for c in view.components.normal.columns].index("income")]
        ends = np.concatenate([[-np.inf], CUTS["income"], [np.inf]])
        for i in range(N):
            others = y[(z == z[i]) & (np.arange(N) != i)]
            n, mean = len(others), others.mean() if len(others) else 0.0
            spread = nu * variance + ((others - mean) ** 2).sum() + n * kappa / (kappa + n) * (mean - m) ** 2
            scale = np.sqrt(spread / (nu + n) * (1.0 + 1.0 / (kappa + n)))
            mass = np.diff(t.cdf(ends, nu + n, (kappa * m + n * mean) / (kappa + n), scale))
            result.append(says[i] - logsumexp([of[i] for of in of_bins], b=mass))
    return np.array(result)


def test_unknown_numbers_of_rows_left_out(asking):
    assert np.abs(differences(asking)).max() < 1e-6


def test_numbers_that_are_left_in_are_rejected(asking, monkeypatch):
    monkeypatch.setattr(
        LeftOut,
        "_masses",
        lambda self, column: bins.masses(
            column, self._view.law(self._view.place[column.name][0]), self._view.place[column.name][1]
        )[:, self._own],
    )
    assert np.abs(differences(asking)).max() > 1e-4


def test_rows_of_the_table_are_left_out(asking):
    known = known_of(asking.asked.recorded(np.arange(N)), asking.columns)
    passes = list(asking.asked.left_out(known, np.arange(N)))
    inverse = np.mean([each for _, each in passes], axis=0)
    assert np.isfinite([log for log, _ in passes]).all() and (inverse > 0.0).all()
    usual = np.array([(int(r["income"]) >= 55) == (r["plan"] == "gold") for r in customers()])
    c = list(known.of).index("plan")
    assert np.log(inverse[usual, c]).mean() + 0.5 < np.log(inverse[~usual, c]).mean()
