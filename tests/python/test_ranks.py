"""Questions that ranks share: the same answers, to the bit, with the same notes, and the same mistakes."""

import warnings

import pandas as pd
import pytest

import mpibayes as mb
from tests.query.runs import people, people_run, write_csv

ASKED = {
    "logp": lambda run, rows, **more: run.logp(rows, of="income", given=["age", "colour"], **more),
    "conditional": lambda run, rows, **more: run.conditional("age", given={"colour": "red"}, **more),
    "simulate": lambda run, rows, **more: run.simulate(rows=rows, seed=3, **more),
    "impute": lambda run, rows, **more: run.impute(rows, **more),
    "dependence": lambda run, rows, **more: run.dependence(["age", "colour", "noise"], **more),
    "compare": lambda run, rows, **more: run.compare(rows=rows, against_rows=[1, 2, 3], **more),
}
OF_ROWS = {"logp", "simulate", "impute", "compare"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return people_run(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    frame = pd.read_csv(write_csv(tmp_path_factory.mktemp("rows") / "new.csv", people(12, seed=9)), parse_dates=["day"])
    frame.index = pd.Index([f"r{i}" for i in range(len(frame))])
    frame.loc["r3", "colour"] = "violet"
    return frame


def asked(run, rows, name, **more):
    with warnings.catch_warnings(record=True) as result:
        warnings.simplefilter("always")
        answer = ASKED[name](run, rows, **more)
    assert all(w.filename == __file__ for w in result)
    return answer, [str(w.message) for w in result]


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.thorough
def test_ranks_give_the_same_answer(place, rows, name):
    (one, words), (two, said_by_two) = (asked(mb.open(place, draws=8), rows, name, ranks=n) for n in (1, 2))
    assert words == said_by_two and any("violet" in text for text in words) == (name in OF_ROWS)
    if isinstance(one, pd.DataFrame):
        assert one.equals(two) and one.index.equals(two.index)
    else:
        assert one.to_arrow().equals(two.to_arrow()) and repr(one) == repr(two)
    if name == "conditional":
        assert two.plot().axes and one.facts == two.facts


def test_a_mistake_is_the_same(place, rows):
    run = mb.open(place, draws=8)
    for more in ({}, {"ranks": 2}):
        with pytest.raises(mb.ConfigError, match="did you mean 'income'"):
            run.logp(of={"incom": 3}, **more)
    with pytest.raises(mb.ConfigError, match="ranks = 0"):
        run.dependence(ranks=0)


@pytest.mark.thorough
def test_a_mistake_in_the_rows_is_about_the_dataframe(place, rows):
    bad = rows.assign(age="old")
    with pytest.raises(mb.DataError) as caught:
        mb.open(place, draws=8).logp(bad, ranks=2)
    assert "DataFrame" in str(caught.value) and "/tmp" not in str(caught.value)
