"""`mpibayes.sklearn.Oddity`: planted rows are found and their cells named; tables, thresholds and mistakes."""

import pickle

import numpy as np
import pytest

import mpibayes as mb

pytest.importorskip("sklearn")
pytest.importorskip("pandas")

import pandas as pd

from mpibayes.sklearn import Oddity

PLANTED, GAP = 107, 103  # labels of rows
SHORT = {"cycles": 60, "draws": 15, "contamination": 0.05, "random_state": 0}


def people(n=120, seed=0):
    """Young people in red or green, old ones in blue. One is young in height and age, and in blue; each of the cells is
    common by itself. Numbers have no tails, so that no other row is odd by chance."""
    g = np.random.default_rng(seed)
    old = g.random(n) < 0.5

    def spread(young, aged, width):
        return np.where(old, aged, young) + g.uniform(-width, width, n)

    table = pd.DataFrame(
        {
            "age": np.round(spread(30, 60, 8)),
            "height": spread(160, 175, 6),
            "weight": spread(55, 80, 9),
            "colour": np.where(old, "blue", g.choice(["red", "green"], n)),
            "member": g.random(n) < 0.5,
            "name": [f"p{i}" for i in range(n)],
        },
        index=range(100, 100 + n),
    )
    table.loc[PLANTED, ["age", "height", "weight", "colour"]] = [30.0, 160.0, 55.0, "blue"]
    table.loc[GAP, "height"] = np.nan
    return table


@pytest.fixture(scope="module")
def table():
    return people()


@pytest.fixture(scope="module")
def oddity(table):
    return Oddity(family="mixture", **SHORT).fit(table)


def test_a_planted_row_is_the_oddest_and_its_cell_is_named(table, oddity):
    """Margins cannot see it: under them, its rank is about the middle."""
    assert table.index[oddity.score_samples(table).argmin()] == PLANTED
    explained = oddity.explain(table)
    assert list(explained.columns) == list(table.columns) and explained.index.equals(table.index)
    assert explained.loc[PLANTED].idxmax() == "colour" and explained.loc[PLANTED, "colour"] > 2.0
    assert explained.loc[PLANTED].drop("colour").max() < 1.5
    margins = sum(-np.log(table[c].map(table[c].value_counts(normalize=True))) for c in ("colour", "member"))
    assert margins[PLANTED] < margins.quantile(0.75)


@pytest.mark.thorough
def test_the_threshold_has_the_share_below_it(table, oddity):
    decision = oddity.decision_function(table)
    np.testing.assert_allclose(decision, oddity.score_samples(table) - oddity.offset_)
    assert (decision < 0).sum() == 6 and ((oddity.predict(table) == -1) == (decision < 0)).all()  # 5 % of 120
    auto = Oddity(cycles=60, draws=15, random_state=0).fit(table)  # views, too
    low, high = np.quantile(-auto.score_samples(table), [0.25, 0.75])
    assert auto.offset_ == pytest.approx(-(high + 1.5 * (high - low)))
    assert auto.predict(table.loc[[PLANTED]]) == [-1]
    assert (auto.fit_predict(table) == auto.predict(table)).all()


def test_gaps_identifiers_and_levels_that_are_new(table, oddity):
    assert set(oddity.left_out_) == {"name"}
    explained = oddity.explain(table)
    assert explained.loc[GAP, "height"] == 0.0 and not explained["name"].any()
    row = table.loc[[110]]
    with pytest.warns(mb.MpibayesWarning, match="counted as never seen: 'colour': 1 cell, first 'purple'"):
        new = oddity.explain(row.assign(colour="purple"))
    assert new.loc[110].idxmax() == "colour" and new.loc[110, "colour"] > 2.0
    blank = row.assign(**dict.fromkeys(table.columns, None)).astype(table.dtypes.drop("member"))
    assert oddity.predict(blank) == [1]  # nothing is known of it


def test_a_number_far_out_is_odd(table, oddity):
    far = table.loc[[110]].assign(height=1750.0)
    assert oddity.predict(far) == [-1] and oddity.explain(far).loc[110].idxmax() == "height"


def test_the_same_seed_gives_the_same_scores_and_so_does_a_pickle(table, oddity):
    again = Oddity(family="mixture", **SHORT).fit(table)
    there = pickle.loads(pickle.dumps(oddity))
    for other in (again, there):
        assert (other.score_samples(table) == oddity.score_samples(table)).all()
        assert other.offset_ == oddity.offset_ and other.left_out_ == oddity.left_out_


@pytest.mark.thorough
def test_arrays_and_frames_of_polars():
    g = np.random.default_rng(1)
    level = np.repeat([0.0, 7.0], 25)
    x = np.column_stack([level, np.where(level, 6.0, -6.0) + g.uniform(-1, 1, 50)])
    x[0, 1] = 6.0
    oddity = Oddity(categorical=[0], cycles=30, draws=10, random_state=0).fit(x)
    assert oddity.score_samples(x).argmin() == 0 and oddity.explain(x).shape == (50, 2)
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": x[:, 0], "b": x[:, 1]})
    explained = Oddity(categorical=["a"], cycles=30, draws=10, random_state=0).fit(frame).explain(frame[:3])
    assert explained.columns == ["a", "b"] and np.allclose(explained.to_numpy(), oddity.explain(x[:3]))


@pytest.mark.parametrize("wrong", [0, 0.7, -0.1, "lots", None, True])
def test_contamination_is_a_share_of_at_most_a_half(table, wrong):
    with pytest.raises(ValueError, match=r"contamination must be in \(0, 0.5\], or 'auto'"):
        Oddity(contamination=wrong).fit(table)


def test_what_cannot_be_fitted_or_scored(table, oddity):
    with pytest.raises(ValueError, match="no column 'shape'"):
        Oddity(categorical=["shape"]).fit(table)
    with pytest.raises(ValueError, match="family='ibp'"):
        Oddity(family="ibp").fit(table)
    with pytest.raises(ValueError, match="no column whose cells differ"):
        Oddity().fit(table[["colour"]].assign(colour="red"))
    with pytest.raises(ValueError, match="a minimum of 2 is required"):
        Oddity().fit(table[:1])
    with pytest.raises(ValueError, match=r"yet now missing:\n- age"):
        oddity.predict(table.drop(columns="age"))
    with pytest.raises(mb.DataError, match=r"DataFrame: .*'age'"):
        oddity.predict(table[:2].assign(age=["30", "about thirty"]))
    with pytest.raises(mb.ConfigError, match=r"run\.cycels"):
        Oddity(config={"run.cycels": 3}).fit(table)
    with pytest.raises(mb.ConfigError, match="'age' is in a block"):
        Oddity(config={"blocks.all.columns": ["age", "weight"]}, family="mixture", cycles=10).fit(table)


def test_rows_that_the_run_holds_out_are_new_rows(table):
    """The configuration's section on data has the table besides the user's keys."""
    oddity = Oddity(family="mixture", cycles=20, draws=5, config={"data.heldout": 0.25}, random_state=0).fit(table)
    assert len(oddity.fitted_.oddness.rows) == 90 and np.isfinite(oddity.score_samples(table)).all()
