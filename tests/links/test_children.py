"""Numbers that lean on columns with levels: answers, which say the same by every door of the program and sum over the
cells that nobody knows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chisquare

from mpibayes.hpc.components import nodes
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.laws.left_out import LeftOut
from mpibayes.hpc.crosscat.laws.view_law import ViewLaw
from mpibayes.hpc.data.events import Known, known_of, of_values
from mpibayes.hpc.data.latent import OF_NEW_ROWS
from mpibayes.hpc.links.coding import Coding, parents_of
from mpibayes.hpc.query.dependence import information
from mpibayes.hpc.query.simulate import simulated
from mpibayes.io import recording
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table, table_from_arrays
from mpibayes.kernels import mixture as kernels
from tests.crosscat.report.runs import make_run
from tests.links.known import log_p, one
from tests.query.runs import write_csv

N = 120
LINKS = {"mass": "kind", "eggs": "sex", "length": "kind", "wing": "length", "sex": "kind"}
KINDS = {
    "kind": "categorical",
    "sex": "categorical",
    "eggs": "count",
    **dict.fromkeys(("mass", "length", "wing"), "real"),
}
APART = ["kind", "sex", "mass", "eggs"]


def birds(seed=4) -> list[dict]:
    """Birds of three kinds, which differ in their mass and length, with wings that grow with these, and eggs."""
    g, rows = np.random.default_rng(seed), []
    for _ in range(N):
        kind, sex = int(g.integers(3)), int(g.integers(2))
        length = round(g.normal(400.0 + 150.0 * kind, 50.0))
        row = {"kind": "abc"[kind], "sex": "fm"[sex], "mass": round(g.normal(300.0 + 200.0 * kind, 40.0))}
        row |= {"eggs": g.poisson(6.0 - 5.0 * sex), "length": length, "wing": round(2.0 * length + g.normal(0.0, 40.0))}
        row = {name: str(value) for name, value in row.items()}
        row |= {name: "" for name in ("kind", "sex", "mass", "eggs") if g.random() < 0.08}
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("children")
    import_table([write_csv(folder / "table.csv", birds())], folder / "table.h5", kinds=KINDS)
    text = "[model]\nfamily = 'mixture'\nlinks = 'forest'\nshapes = 'none'\nlines = ['length', 'wing']\n"
    text += "children = ['mass', 'eggs', 'length']\n"
    return make_run(folder / "run", Table.open(folder / "table.h5"), cycles=14, burn_in=6, text=text, links=LINKS)


def each_of(asking, name: str, values, given: dict) -> tuple[Known, Known]:
    """Rows that each have one of some values of a column, and what else is known."""
    known = Known(len(values), {name: (of_values(asking.conditions.column(name), values), np.arange(len(values)))})
    return known, one(asking, **given).repeat(len(values)) if given else Known(len(values), {})


QUESTIONS = [
    ({"mass": 520.0}, {"length": 550.0}),
    ({"kind": "b"}, {"mass": 470.0, "wing": 1180.0}),
    ({"wing": 1200.0}, {"mass": 310.0, "length": 500.0}),
    ({"eggs": 4.0, "mass": 600.0}, {"kind": "c"}),
    ({"sex": "f"}, {"eggs": 5.0, "mass": 330.0}),
    ({"mass": (400.0, 550.0)}, {"eggs": 2.0, "length": 520.0}),
    ({"length": 440.0}, {"mass": (200.0, 400.0), "wing": 900.0}),
]


@pytest.mark.parametrize(("target", "given"), QUESTIONS)
def test_products_of_conditionals(asking, target, given):
    """p(w, g) = p(w | g) p(g)."""
    both = log_p(asking, {**target, **given}, {})
    assert both == pytest.approx(log_p(asking, target, given) + log_p(asking, given, {}), abs=1e-9)


@pytest.mark.parametrize(
    ("target", "given"),
    [({"mass": 520.0}, {"length": 550.0}), ({"eggs": 4.0, "wing": 1200.0}, {}), ({"sex": "f"}, {"mass": 330.0})],
)
def test_an_unknown_level_is_summed_out(asking, target, given):
    """p(w | g) is the sum of p(w, k | g) over the kinds k."""
    parts = [log_p(asking, {**target, "kind": kind}, given) for kind in "abc"]
    assert logsumexp(parts) == pytest.approx(log_p(asking, target, given), abs=1e-9)


@pytest.mark.parametrize(
    ("name", "values"), [("mass", np.arange(-20000.0, 20000.0)), ("length", np.arange(-2000.0, 4000.0))]
)
def test_an_unknown_number_is_summed_out(asking, name, values):
    target, given = {"kind": "b", "wing": 1010.0}, {"sex": "m"}
    each, known = each_of(asking, name, values, given)
    parts = asking.log_p(each.join(one(asking, **target)), known)[0]
    assert logsumexp(parts) == pytest.approx(log_p(asking, target, given), abs=2e-3)


def test_contexts_differ(asking):
    assert log_p(asking, {"mass": 700.0}, {"kind": "c"}) > 2.0 + log_p(asking, {"mass": 700.0}, {"kind": "a"})
    assert log_p(asking, {"eggs": 6.0}, {"sex": "f"}) > 2.0 + log_p(asking, {"eggs": 6.0}, {"sex": "m"})


def gapped(asking, gaps):
    """Training rows as recorded and as modelled, in which some cells are missing."""
    recorded = asking.asked.recorded(np.arange(len(gaps)))
    for i, names in enumerate(gaps):
        for name in names.split():
            column = asking.conditions.column(name)
            getattr(recorded, column.block)[i, column.index] = column.blank
    modelled = asking.run.data.as_modelled(recorded, np.arange(len(gaps)), OF_NEW_ROWS)
    for column in (c for c in asking.run.columns if c.kind == "real"):  # what the numbers are within their steps
        latent = getattr(modelled, column.block)[:, column.index]
        recorded.reals[:, asking.conditions.column(column.name).index] = recording.number(column, latent)
    return recorded, modelled


def test_rows_have_the_densities_that_kernels_have(asking):
    """Columns in no line have parameters that kernels and questions both integrate out."""
    gaps = ["", "mass", "eggs", "kind", "sex", "kind mass", "sex eggs kind"]
    recorded, modelled = gapped(asking, [f"{names} length wing" for names in gaps])
    known = known_of(recorded, asking.columns)
    for law in asking.draws(APART):
        (view,) = law.views
        part = asking.run.of(view.order).take(modelled)
        assert np.allclose(view.log_density(part), law.given(known.only(APART)).log_p, atol=2e-3)


def test_predictions_are_those_of_questions(asking, monkeypatch):
    """Densities of rows with gaps, times their steps as if all were narrow, means of missing numbers, and probabilities
    of missing levels, draw by draw."""
    monkeypatch.setattr(nodes, "WIDEST", np.full(len(nodes.WIDEST), np.inf))
    recorded, modelled = gapped(asking, ("mass", "length", "wing kind", "kind mass", "eggs sex"))
    known = known_of(recorded, asking.columns)
    for law in asking.draws([c.name for c in asking.columns]):
        (view,), on_them = law.views, law.given(known)
        lacking = np.array([1, 2])  # lines have parameters of their own in the other rows
        assert np.allclose(view.log_density(modelled)[lacking], on_them.log_p[lacking], atol=2e-3)
        for p in view.patterns(modelled):
            name = p.kind.members(p.column)[0].name
            column = asking.conditions.column(name)
            x = np.arange(len(column.levels)) if column.levels else np.arange(-5000.0, 7000.0)
            x = np.arange(200.0) if name == "eggs" else x
            events = of_values(column, x)
            q = on_them.averaged(events, law.masses(events))[p.rows]
            (result,) = view.averages(replace(p), on_them.weights[0][p.rows], modelled)
            if column.levels:
                # questions count a column that is known alone by its cell's mass
                assert np.allclose(result, q, rtol=1e-4, atol=1e-9), name
            else:
                assert np.allclose(result[:, 0], (q @ x) / q.sum(axis=1) - column.center, atol=0.2), name


@pytest.mark.parametrize(
    ("name", "given", "values"),
    [
        ("mass", {"length": 550.0}, np.arange(0.0, 1100.0)),
        ("eggs", {"mass": 300.0}, np.arange(40.0)),
        ("wing", {"mass": 520.0}, np.arange(300.0, 2200.0)),
        ("mass", {"mass": (300.0, 600.0), "wing": 1200.0}, np.arange(300.0, 601.0)),
    ],
)
def test_simulated_numbers_have_their_probabilities(asking, name, given, values):
    """Chi-square of numbers that nobody knew, one false alarm in 10,000 seeds."""
    n = 3_000
    drawn = simulated(asking, one(asking, **given), [name], n, 5)[name]
    each, known = each_of(asking, name, values, {key: of for key, of in given.items() if key != name})
    log = asking.log_p(each, known)[0]
    if name in given:
        known = one(asking, **{key: of for key, of in given.items() if key != name})
        log = log - asking.log_p(one(asking, **{name: given[name]}), known)[0][0]
    p, times = np.exp(log), np.array([(np.rint(drawn) == v).sum() for v in values])
    often = p * n >= 5
    p, times = np.append(p[often], 1.0 - p[often].sum()), np.append(times[often], n - times[often].sum())
    keep = p > 1e-9
    assert chisquare(times[keep], n * p[keep] / p[keep].sum()).pvalue > 1e-4


def test_information_is_that_of_the_joint_table(asking):
    mutual = information(asking, ["kind", "mass", "length", "wing"], ["kind", "mass", "length", "wing"])
    for i, j, first, second in ((1, 0, "mass", "kind"), (1, 2, "mass", "length"), (3, 0, "wing", "kind")):
        supports = [asking.supports([name], 16)[name].events for name in (first, second)]
        p = np.zeros((len(supports[0]), len(supports[1])))
        for law in asking.draws([first, second]):
            for v in range(p.shape[1]):
                known = Known(1, {second: (supports[1].take(np.array([v])), np.zeros(1, np.intp))})
                given = law.given(known)
                p[:, v] += np.exp(given.log_p[0]) * given.averaged(supports[0], law.masses(supports[0]))[0]
        p /= p.sum()
        exact = (p * np.log(np.maximum(p, 1e-300) / np.outer(p.sum(axis=1), p.sum(axis=0)))).sum()
        assert exact > 0.2 and mutual.information[i, j] == pytest.approx(exact, abs=1e-3), (first, second)


def test_information_in_lines_is_that_of_simulated_rows(asking):
    """Two numbers in a line, below a kind that nobody knows; simulated rows overstate it by 0.02 to 0.03."""
    names = ["length", "wing"]
    exact = information(asking, names, names).information[0, 1]
    drawn = simulated(asking, Known(1, {}), names, 4_000, 7)
    cells = [np.searchsorted(asking.supports([n], 16)[n].events.high, drawn[n]) for n in names]
    p = np.histogram2d(*cells, bins=17)[0] / 4_000
    apart = np.outer(p.sum(axis=1), p.sum(axis=0))
    assert (p[p > 0] * np.log(p[p > 0] / apart[p > 0])).sum() == pytest.approx(exact + 0.025, abs=0.05)


def test_rows_of_the_table_are_left_out(asking):
    """A row's cells in its own cluster are scored as by the statistics of all other rows."""
    places = np.arange(N)
    known, rows = known_of(asking.asked.recorded(places), asking.columns).only(APART), asking.asked.modelled(places)
    law = next(iter(asking.asked.labelled(APART, places)))
    (view,) = law.views
    cells = asking.asked._of_view(view, rows, places)
    left, coded = LeftOut(view, cells, known), view.coding.coded(cells)
    scores, labels = sum(left._log_linked(tree, known) for tree in view.trees), view.labels.astype(np.int32)
    checked = [i for i in range(N) if view.statistics.size[labels[i]] > 1][:25]
    for i in checked:
        z = np.where(places == i, -1, labels).astype(np.int32)
        s = Statistics(*kernels.accumulate(coded, z, len(view.statistics), view.components.categorical.offsets))
        without = ViewLaw(view.components, view.hyper, s, view.coding, 0, view.order)
        exact = sum(tree.score(known.take(np.array([i])))[0, labels[i]] for tree in without.trees)
        assert scores[i] == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("name", ["kind", "mass", "length", "wing"])
def test_cells_left_out_are_ratios_of_rows_left_out(asking, name):
    """p(cell | the others) = p(all) / p(the others), of numbers in lines below levels, too."""
    places, names = np.arange(N), [c.name for c in asking.columns]
    known, rows = known_of(asking.asked.recorded(places), asking.columns), asking.asked.modelled(places)
    (view,) = next(iter(asking.asked.labelled(names, places))).views
    cells = asking.asked._of_view(view, rows, places)
    whole, rest = (LeftOut(view, cells, of) for of in (known, known.without([name])))
    (log_p, weight), (log_rest, _) = whole.given(), rest.given()
    inverse = whole.inverse(name, weight)
    there = ~np.isnan(inverse)
    assert np.allclose(-np.log(inverse[there]), (log_p - log_rest)[there], atol=1e-8)
    assert np.allclose(log_p[~there], log_rest[~there]) and np.isfinite(log_p).all()


def test_tables_are_completed_and_made_up(asking):
    means = {kind: [] for kind in "abc"}
    rows = asking.asked.recorded(np.arange(N))
    mass, kind = (getattr(rows, c.block)[:, c.index] for c in map(asking.conditions.column, ("mass", "kind")))
    gaps = {"mass": np.flatnonzero(np.isnan(mass))}
    known = known_of(rows, asking.columns)
    for completion in asking.asked.completions(3):
        x = completion.cells(known, gaps, np.arange(N), np.arange(N))["mass"]
        for k, value in zip(kind[gaps["mass"]], x):
            means.get("abc?"[k], []).append(value)
    assert np.mean(means["a"]) + 100.0 < np.mean(means["c"])
    synthesis = next(iter(asking.asked.syntheses(2, 400, {})))
    cells = synthesis.cells(np.arange(400), synthesis.parts(np.arange(400)))
    by_kind = [cells["mass"][cells["kind"] == k].mean() for k in range(3)]
    assert by_kind[0] + 100.0 < by_kind[1] < by_kind[2] - 100.0
    assert np.corrcoef(cells["length"], cells["wing"])[0, 1] > 0.9


def test_counts_below_levels_come_back_beside_lines():
    """Rows that are coded and decoded have the cells that they had: counts in contexts, too, where there are lines."""
    g, levels = np.random.default_rng(2), ("0", "1", "2")
    cells = {"a": g.integers(3, size=40), "x": g.normal(size=40), "y": g.normal(size=40), "k": g.poisson(4.0, 40) * 1.0}
    kinds = {"a": ("categorical", levels), "x": ("real", ()), "y": ("real", ()), "k": ("count", ())}
    columns, rows = table_from_arrays([(name, kinds[name][0], cells[name], kinds[name][1]) for name in cells])
    columns = [replace(c, line=c.name in ("x", "y"), child=c.name in ("x", "k")) for c in columns]
    parents = parents_of(columns, {"x": "a", "y": "x", "k": "a"})
    coding = Coding(columns, parents, {"a": np.arange(3)})
    again = coding.decoded(coding.coded(rows))
    for block in ("codes8", "reals", "tallies", "vectors"):
        assert np.array_equal(getattr(again, block), getattr(rows, block), equal_nan=block != "codes8"), block
