"""Links in a table of several kinds of columns: levels of one column and the atoms of another lean on a third,
and cells of both are missing. What one door of the program says, the others say."""

import itertools
import pickle

import numpy as np
import pytest
from scipy.special import logsumexp

from mpibayes.hpc.crosscat.summaries.predictor import Predictor
from mpibayes.hpc.crosscat.summaries.representative import representatives
from mpibayes.hpc.data.events import Known, known_of
from mpibayes.hpc.data.latent import OF_NEW_ROWS
from mpibayes.hpc.query.dependence import information
from mpibayes.hpc.query.filling import of_table
from mpibayes.hpc.query.simulate import simulated
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table
from tests.crosscat.report.runs import make_run
from tests.links.known import one, require_one_density
from tests.query.runs import write_csv

N = 90


def trips(seed=6) -> list[dict]:
    """Trips: where they go and by what; what they cost, often nothing; how long they take."""
    g, rows = np.random.default_rng(seed), []
    for i in range(N):
        place = str(g.choice(["north", "south", "east"]))
        means = {"north": "train", "south": "bus", "east": "foot"}[place]
        free = {"north": 0.1, "south": 0.5, "east": 0.9}[place]
        row = {
            "place": place,
            "means": means if g.random() < 0.85 else str(g.choice(["train", "bus", "foot"])),
            "cost": "0" if g.random() < free else f"{g.integers(5, 60)}",
            "hours": f"{g.normal(5.0, 2.0):.4f}",
            "day": str(g.choice(["week", "weekend"])),
        }
        for name in ("means", "cost", "hours"):
            if i > 2 and g.random() < 0.15:
                row[name] = ""
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trips")
    import_table(
        [write_csv(folder / "trips.csv", trips())], folder / "trips.h5", kinds={"cost": "real", "hours": "real"}
    )
    links = {"means": "place", "cost (0 or not 0)": "place"}
    text = "[model]\nfamily = 'mixture'\nlinks = 'forest'\n"
    return make_run(folder / "run", Table.open(folder / "trips.h5"), cycles=16, burn_in=6, text=text, links=links)


def log_p(asking, target: Known, given: Known) -> float:
    return float(asking.log_p(target, given)[0][0])


def test_the_atoms_are_linked(asking):
    for law in asking.draws(["cost"]):
        (tree,) = law.views[0].trees
        assert sorted(tree.names) == ["cost", "means", "place"]


QUESTIONS = [
    ({"cost": 0.0}, {"place": "east"}),
    ({"cost": 17.0}, {"means": "bus"}),
    ({"cost": (0.0, 20.0)}, {"means": "train"}),
    ({"means": "foot"}, {"cost": 0.0}),
    ({"means": "bus", "cost": (3.0, 30.0)}, {"day": "week"}),
]


@pytest.mark.parametrize(("target", "given"), QUESTIONS)
def test_the_unknown_place_is_summed_out(asking, target, given):
    """p(w | g) is a sum over places of p(w, place | g), and p(w, g) = p(w | g) p(g)."""
    a, b = one(asking, **target), one(asking, **given)
    nothing = Known(1, {})
    assert log_p(asking, a.join(b), nothing) == pytest.approx(log_p(asking, a, b) + log_p(asking, b, nothing), abs=1e-9)
    if "place" not in given:
        each = [log_p(asking, a.join(one(asking, place=place)), b) for place in ("north", "south", "east")]
        assert logsumexp(each) == pytest.approx(log_p(asking, a, b), abs=1e-9)


def test_a_range_is_its_numbers(asking):
    given = one(asking, means="train")
    numbers = [log_p(asking, one(asking, cost=float(x)), given) for x in range(1, 21)]
    assert logsumexp(numbers) == pytest.approx(log_p(asking, one(asking, cost=(1.0, 20.0)), given), abs=1e-6)


def test_links_carry_what_clusters_do_not(asking):
    (d,) = (d for _, d in asking.distributions("means", one(asking, place="north"), 8))
    assert d.p[0].argmax() == asking.conditions.column("means").levels.index("train")
    mutual = information(asking, ["place"], ["means", "cost", "day"]).information[0]
    assert mutual[0] > 0.3 and mutual[1] > 0.03 > mutual[2]


def gaps(asking):
    """New rows, recorded, with every set of missing cells among the linked columns."""
    rows = asking.asked.recorded(np.arange(3, 11)).take(np.arange(8))
    for (name, bit), i in itertools.product((("place", 1), ("means", 2), ("cost", 4)), range(8)):
        column = asking.conditions.column(name)
        if i & bit:
            getattr(rows, column.block)[i, column.index] = column.blank
    return rows


def test_predictions_are_those_of_questions(asking):
    rows = gaps(asking)
    known = known_of(rows, asking.columns)
    run = asking.run
    modelled = run.data.as_modelled(rows, np.arange(8), OF_NEW_ROWS)
    predictor = Predictor(run, asking.asked._kept, representatives(run, run.kept()).views, impute=True)
    result = predictor(modelled)
    for name in ("place", "means"):
        column = asking.conditions.column(name)
        at = result.imputed[name].rows
        parts = [d.p for _, d in asking.distributions(name, known.without([name]).take(at), 8)]
        p = np.concatenate(parts)
        # latent numbers of cells stand in for their probabilities in predictions
        assert np.allclose(result.imputed[name].spread, p.max(axis=1), atol=0.08)
        assert len(column.levels) == p.shape[1]


def test_rows_without_numbers_have_the_same_density_by_both_ways(asking):
    require_one_density(asking, gaps(asking), ("cost", "hours"))


def test_simulated_numbers_and_atoms(asking):
    given, n = one(asking, means="bus", cost=(0.0, 20.0)), 1_500
    drawn = simulated(asking, given, ["place", "cost", "means"], n, 1)
    assert drawn["cost"].min() >= 0.0 and drawn["cost"].max() <= 20.0
    p = np.exp(
        log_p(asking, one(asking, cost=0.0), one(asking, means="bus"))
        - log_p(asking, one(asking, cost=(0.0, 20.0)), one(asking, means="bus"))
    )
    assert abs((drawn["cost"] == 0.0).mean() - p) < 4.5 * np.sqrt(p * (1.0 - p) / n)
    south = np.exp(log_p(asking, one(asking, place="south"), given))
    share = (drawn["place"] == asking.conditions.column("place").levels.index("south")).mean()
    assert abs(share - south) < 4.5 * np.sqrt(south * (1.0 - south) / n)


def test_cells_of_the_table_are_completed_given_their_parents(asking):
    """A missing means is that of its place in most copies."""
    usual, right, n = {"north": "train", "south": "bus", "east": "foot"}, 0, 0
    place, means = (asking.conditions.column(name) for name in ("place", "means"))
    rows = asking.asked.recorded(np.arange(N))
    filling = of_table(asking)
    for completion in asking.asked.completions(seed=1):
        for _, _, cells in filling.blocks(completion):
            at, codes = cells["means"]
            places = rows.codes8[at, place.index]
            right += sum(means.levels[int(c)] == usual[place.levels[p]] for c, p in zip(codes, places))
            n += len(at)
            assert set(cells["cost"][1] % 1.0) == {0.0}
    assert right > 0.6 * n > 20


def test_synthetic_rows_keep_the_link(asking):
    usual, n = {"north": "train", "south": "bus", "east": "foot"}, 400
    place, means = (asking.conditions.column(name) for name in ("place", "means"))
    for without in ({}, {"cost": np.array([True])}):
        synthesis = next(iter(asking.asked.syntheses(2, n, without)))
        cells = synthesis.cells(np.arange(n), synthesis.parts(np.arange(n)))
        pairs = zip(cells["place"].astype(int), cells["means"].astype(int))
        assert np.mean([means.levels[m] == usual[place.levels[p]] for p, m in pairs]) > 0.6
        assert ((cells["cost"] == 0.0).mean() > 0.2) is not bool(without)


def test_rows_of_the_table_are_left_out(asking):
    """Surprisals of all training rows, cell by cell: a usual means is less surprising than another one."""
    known = known_of(asking.asked.recorded(np.arange(N)), asking.columns)
    passes = list(asking.asked.left_out(known, np.arange(N)))
    inverse = np.mean([each for _, each in passes], axis=0)
    seen = np.column_stack([which < len(events) for events, which in known.of.values()])
    assert np.isfinite([log for log, _ in passes]).all()
    assert (inverse[seen] > 0.0).all() and np.isnan(inverse[~seen]).all()
    usual = {"north": "train", "south": "bus", "east": "foot"}
    table = trips()
    is_usual = np.array([row["means"] == usual[row["place"]] for row in table])
    c = list(known.of).index("means")
    there = seen[:, c]
    assert np.log(inverse[there & is_usual, c]).mean() + 0.5 < np.log(inverse[there & ~is_usual, c]).mean()


def test_laws_travel_between_ranks(asking):
    known = known_of(asking.asked.recorded(np.arange(9)), asking.columns)
    law = asking.draws(["cost"])[0]
    assert np.array_equal(pickle.loads(pickle.dumps(law)).given(known).log_p, law.given(known).log_p)
