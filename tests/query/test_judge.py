"""Utility and risk of synthetic rows: measures against values by hand, and tables of which the answer is known: copies
of training rows, and further rows of the same law."""

import json

import numpy as np
import pytest
from rich.console import Console

from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.results.synthesize import synthesize
from mpibayes.hpc.synthetic import risk, utility
from mpibayes.hpc.synthetic.bins import Bins
from mpibayes.hpc.synthetic.judge import Judge, roles
from mpibayes.hpc.synthetic.rare import Merging
from mpibayes.hpc.synthetic.trees import Boosted, area
from mpibayes.io.rows import Column
from mpibayes.io.table import table_from_arrays, write_table
from tests.crosscat.report.runs import make_run

A, B, C = (Column(name, "categorical", "codes8", i, ("u", "v", "w")) for i, name in enumerate("abc"))
X = Column("x", "real", "reals", 0, atoms=(0.0,))


def test_distances_between_distributions_by_hand():
    a = np.array([[0, 0, 0], [0, 1, 1], [1, 1, 0], [1, 0, 1]])
    b = np.array([[0, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 1]])
    sizes = np.array([2, 2, 2])
    sets = [utility.sets_of_columns(3, k, 10, 1) for k in (1, 2, 3)]
    assert [len(s) for s in sets] == [3, 3, 1]
    assert [utility.variation(a, b, sizes, s) for s in sets] == [0.0, 0.5, 0.75]
    assert utility.variation(a, a, sizes, sets[2]) == 0.0
    drawn = utility.sets_of_columns(30, 3, 300, 1)
    assert len(set(drawn)) == 300 and drawn == utility.sets_of_columns(30, 3, 300, 1) != drawn[::-1]


def test_the_area_is_that_of_pairs():
    score, y = np.array([0.1, 0.4, 0.4, 0.8, 0.2]), np.array([False, True, False, True, False])
    pairs = [(s > t) + 0.5 * (s == t) for s in score[y] for t in score[~y]]
    assert area(score, y) == pytest.approx(np.mean(pairs))
    assert np.isnan(area(score, np.ones(5, bool)))


def test_the_classifier_sees_what_single_columns_do_not_say():
    g = np.random.default_rng(3)
    x = g.integers(0, 6, (2000, 4))
    y = (x[:, 1] > 2) ^ (x[:, 3] > 1)
    sizes = np.full(4, 6)
    model = Boosted(x[:1000], y[:1000], sizes)
    assert area(model.score(x[1000:]), y[1000:]) > 0.95
    assert ((model.probability(x[1000:]) > 0.5) == y[1000:]).mean() > 0.9
    train, test = (np.column_stack([rows, 3 * part]) for rows, part in ((x[:1000], y[:1000]), (x[1000:], y[1000:])))
    assert utility.classified(train, test, np.append(sizes, 5), 4) > 0.9


def test_rows_of_one_law_cannot_be_told_apart():
    """Within 5 standard errors of 0.5 and 1, which 20 repeats of this set-up have shown to be 0.015 and 0.11."""
    g = np.random.default_rng(4)
    a, b = g.integers(0, 5, (2, 1500, 6))
    sizes = np.full(6, 5)
    assert abs(utility.told_apart(a, b, sizes, 1) - 0.5) < 0.08
    assert abs(utility.propensity_ratio(a, b, sizes, 1) - 1.0) < 0.56
    b[:, 2] = b[:, 1]
    assert utility.told_apart(a, b, sizes, 1) > 0.7
    assert utility.propensity_ratio(a, b, sizes, 1) > 2.0


def test_bins_have_levels_atoms_and_missing_cells():
    x = np.array([0.0] * 50 + list(range(1, 97)) + [np.nan] * 4)
    a = np.array([0] * 100 + [2] * 40 + [3] * 10)
    bins = Bins([A, X], {"a": a, "x": x})
    result = bins({"a": np.array([0, 2, 1, 3, 4]), "x": np.array([0.0, np.nan, 1.0, 96.0, 50.0])})
    assert result[:, 0].tolist() == [0, 1, 2, 3, 2] and bins.sizes[0] == 4
    assert bins.sizes[1] == 18 and result[:, 1].tolist() == [16, 17, 0, 15, 8]


def test_fingerprints_are_of_all_cells():
    cells = {"a": np.array([0, 0, 0, 1]), "x": np.array([0.0, -0.0, np.nan, np.nan])}
    result = risk.fingerprints([A, X], cells)
    assert result[0] == result[1] and len(set(result.tolist())) == 3
    assert len(risk.uniques(result)) == 2


def test_distances_between_rows_by_hand():
    places = risk.Places([A, X], {"x": np.array([1.0, 2.0, 3.0, 4.0])})
    rows = places({"a": np.array([0, 1, 3]), "x": np.array([1.0, np.nan, 4.0])})
    others = places({"a": np.array([0, 2]), "x": np.array([3.0, np.nan])})
    assert risk.closest(rows, others).tolist() == [0.5, 1.0, 1.25]


def test_what_a_table_discloses_by_hand():
    """Key a: all synthetic rows with 0 have 1; those with 1 differ; 2 is not there."""
    synthetic = np.array([[0, 1], [0, 1], [1, 0], [1, 1]])
    rows = np.array([[0, 1], [0, 0], [1, 1], [2, 1]])
    assert risk.disclosed(rows, synthetic, [0], 1) == 0.25


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    g, folder = np.random.default_rng(8), tmp_path_factory.mktemp("judge")
    k = g.random(900) < 0.5
    columns = [
        ("a", "categorical", g.integers(0, 6, 900), tuple("uvwxyz")),
        ("b", "categorical", np.where(k, 0, g.integers(0, 6, 900)), tuple("uvwxyz")),
        ("x", "real", np.round(g.normal(np.where(k, 3.0, 0.0)), 1), None),
        ("c", "categorical", (k ^ (g.random(900) < 0.1)).astype(int), ("no", "yes")),
    ]
    table = write_table(folder / "t.h5", *table_from_arrays(columns))
    return make_run(folder / "run", table, cycles=12, burn_in=4, heldout=0.4)


@pytest.fixture(scope="module")
def judge(run):
    asking = Asking(run)
    return Judge(asking, Merging(), roles(asking, "c", ["a", "b", "x"]), 1000, 1)


def test_copies_of_training_rows_are_found(judge):
    """Copies of training rows are as many as are unique, and nearer to training rows, which they disclose more."""
    result = judge(judge._real)
    fingerprint = risk.fingerprints(judge.columns, judge._real)
    _, of, times = np.unique(fingerprint, return_inverse=True, return_counts=True)
    assert result["replicated uniques"][0] == pytest.approx((times[of] == 1).mean())
    assert result["replicated uniques"][0] > 2 * result["replicated uniques"][1]
    assert (
        result["nearer to training"][0] > 0.65 and result["distance to training"][0] < result["distance to training"][1]
    )
    assert result["disclosed"][0] > 1.2 * result["disclosed"][1]


def test_rows_that_were_drawn_are_no_nearer_to_training_rows(run, judge, tmp_path):
    """The share that is nearer, of 540 rows: within 5 standard errors of a half."""
    done = synthesize(
        run, tmp_path / "tables", copies=2, judge=True, target="c", key=["a,b", "x"],
        console=Console(quiet=True),
    )  # fmt: skip
    result = dict(
        zip(done.judged.columns["measure"], zip(done.judged.columns["synthetic"], done.judged.columns["real"]))
    )
    assert abs(result["nearer to training"][0] - 0.5) < 0.11
    assert abs(result["closest training row"][0] - result["closest training row"][1]) < 0.05
    assert result["classified"][0] > result["classified"][1] - 0.1 and result["area"][0] < 0.65
    lines = json.loads((tmp_path / "tables" / "judge.json").read_text())["lines"]
    assert [line["measure"] for line in lines] == list(result) and all(line["meaning"] for line in lines)
    assert (tmp_path / "tables" / "judge.csv").read_text().startswith('"kind","measure"')


def test_rows_of_independent_columns_are_worse(judge):
    """Margins as they are, and nothing between columns."""
    g = np.random.default_rng(1)
    apart = judge({name: g.permutation(x) for name, x in judge._real.items()})
    real = judge(judge._real)
    assert apart["one-way error"][0] == pytest.approx(real["one-way error"][0])
    assert apart["two-way error"][0] > 1.3 * real["two-way error"][0]
    assert apart["k-marginal score"][0] < real["k-marginal score"][0] - 40
    assert apart["area"][0] > 0.6 and apart["classified"][0] < 0.7 < real["classified"][0]


def test_the_words_that_promise_too_much_are_nowhere():
    """No noise of a known size is added, so that texts about synthetic tables promise nothing about single people."""
    import re
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    files = [
        *(root / "hpc" / "synthetic").glob("*.py"), root / "hpc/cli/synthesize.py", root / "hpc/python/synthetic.py",
        root / "hpc/results/synthesize.py", root / "hpc/crosscat/laws/synthesis.py", root / "io/synthetic.py",
        root / "docs/synthesis.md", root / "benchmarks/synthesis.py",
    ]  # fmt: skip
    for path in files:
        assert not re.search(r"anonym|\bprivate\b|\bprivacy\b", path.read_text(encoding="utf-8"), re.I), path
