"""Weights of rows, counts of cases and indices: columns that say something of rows and are no trait of theirs."""

from pathlib import Path

import numpy as np
import pytest

from mpibayes.errors import DataError
from mpibayes.io.ingest import import_table
from mpibayes.io.summary import summary_lines
from tests.io.importing import imported

FIELD = Path(__file__).parent / "field"
G = np.random.Generator(np.random.PCG64(33))
N = 300
LOGNORMAL = np.exp(0.5 * G.standard_normal(N))
SURVEY = {"age": G.integers(18, 90, N), "vote": G.choice(["red", "blue", "none"], N)}
BODY = {"age": G.integers(18, 90, N), "height": G.normal(170, 9, N).round(1)}
KG = G.normal(72, 12, N)


def kinds(summary):
    return {c.name: c.kind for c in summary.columns}


# --- weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weights", "weights_independent"])
def test_survey_weights_are_left_out_and_named(tmp_path, name):
    summary = import_table(FIELD / f"{name}.csv", tmp_path / "out.h5")
    assert len(summary.table.columns) == 9 and kinds(summary)["pweight"] == "ignored"
    [warning] = summary.warnings
    assert "'pweight': looks like the weight of each row" in warning and "--kind pweight=real" in warning
    assert "If it is, --weight pweight keeps it for answers about the population; if it is data" in warning
    for options in ({"kinds": {"pweight": "real"}}, {"keep": ["pweight"]}):
        kept = import_table(FIELD / f"{name}.csv", tmp_path / "out.h5", overwrite=True, **options)
        assert kinds(kept)["pweight"] == "real" and not kept.warnings


@pytest.mark.parametrize(
    "name, values",
    [
        ("fnlwgt", np.round(190_000 * LOGNORMAL)),
        ("PERWT", np.round(100 * LOGNORMAL)),
        ("PWGTP12", np.round(20 * LOGNORMAL)),
        ("WTMEC2YR", (20_000 * LOGNORMAL).round(4)),
        ("pspwght", LOGNORMAL.round(4)),
        ("Gewichtung", LOGNORMAL.round(4)),
        ("post_strat", None),
        ("finalWeight", (1500 * LOGNORMAL).round(3)),
        ("sampling weight", (LOGNORMAL / LOGNORMAL.mean()).round(3)),
        ("weight", LOGNORMAL / LOGNORMAL.mean()),
        ("wght", np.round(250_000 * LOGNORMAL)),
        ("wt", G.choice([0.8213, 0.9102, 1.2207, 1.0433], N)),  # of a few strata
    ],
)
def test_names_and_shapes_of_weights(tmp_path, name, values):
    if values is None:
        name, values = "weight", (LOGNORMAL / LOGNORMAL.mean()).round(2)
    summary = imported(tmp_path, SURVEY | {name: values})
    assert kinds(summary)[name] == "ignored" and len(summary.warnings) == 1
    assert summary.warnings[0].startswith(f"column '{name}': looks like the weight of each row")


def test_a_weight_beside_the_strata_of_a_survey(tmp_path):
    summary = imported(tmp_path, SURVEY | {"stratum": G.integers(1, 9, N), "weight": (1500 * LOGNORMAL).round()})
    assert kinds(summary)["weight"] == "ignored" and "weight of each row" in summary.warnings[0]


@pytest.mark.parametrize(
    "beside, name, values",
    [
        (BODY, "weight", KG.round()),
        (BODY, "weight", KG.round(1)),
        ({"age": BODY["age"]}, "weight", KG.round(1)),  # nothing says that it is of people
        ({"age": BODY["age"]}, "weight", (1000 * KG).round()),  # grams
        ({"age": BODY["age"]}, "wt", (KG / 24).round(3)),  # mean 3.0, as of cars
        ({"time": G.integers(0, 21, N)}, "weight", np.round(122 * LOGNORMAL)),  # of chicks that grow
        (BODY, "wgt", KG.round(1)),
        (BODY, "repwt", KG.round()),  # reported by themselves
        (BODY, "bodywt", LOGNORMAL),
        (SURVEY, "wt.loss", (LOGNORMAL - 1.0).round(3)),
        (SURVEY, "feat.weight", G.integers(0, 2, N)),
        (SURVEY, "weight", G.integers(1, 4, N)),  # classes
        (SURVEY, "weightless", LOGNORMAL / LOGNORMAL.mean()),
    ],
)
def test_the_weight_of_a_body_is_data(tmp_path, beside, name, values):
    summary = imported(tmp_path, beside | {name: values})
    assert kinds(summary)[name] != "ignored" and not [w for w in summary.warnings if "weight of each row" in w]


@pytest.mark.parametrize(
    "beside, name, values",
    [
        (BODY, "weight", LOGNORMAL.round(3) / LOGNORMAL.mean() * 1.03),  # tons, or a weight beside heights
        (BODY, "sample weight", (20 * LOGNORMAL).round(3)),
        (SURVEY, "weight", (4000 * LOGNORMAL).round(5)),
        (SURVEY, "weight", (1500 * LOGNORMAL).round()),
    ],
)
def test_a_doubtful_weight_is_kept_with_a_question(tmp_path, beside, name, values):
    summary = imported(tmp_path, beside | {name: values})
    [warning] = [w for w in summary.warnings if "weight of each row" in w]
    assert kinds(summary)[name] == "real" and "is it the weight of each row" in warning and "=ignored" in warning


# --- counts of cases --------------------------------------------------------------------------------------------------

FIVE = {f"item{i}": (np.arange(32) >> i) & 1 for i in range(5)}
TIMES = G.integers(1, 200, 32)


def refused(tmp_path, columns, **options):
    with pytest.raises(DataError) as caught:
        imported(tmp_path, columns, **options)
    assert caught.value.exit_code == 3 and not (tmp_path / "out.h5").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.csv"]
    return caught.value


def test_a_table_of_patterns_stops_and_asks(tmp_path):
    with pytest.raises(DataError) as caught:
        import_table(FIELD / "freq.csv", tmp_path / "out.h5")
    assert "column 'Freq' looks like the number of cases" in caught.value.message
    assert "the 32 rows are all different without it, and it adds up to 3,000" in caught.value.message
    expand, data, without = caught.value.problems
    assert "import it with --count Freq" in expand
    assert "--kind Freq=real" in data and "--kind Freq=ignored" in without and not list(tmp_path.iterdir())
    for options, n in (({"kinds": {"Freq": "real"}}, 6), ({"keep": ["Freq"]}, 6), ({"drop": ["Freq"]}, 5)):
        summary = import_table(FIELD / "freq.csv", tmp_path / "out.h5", overwrite=True, **options)
        assert len(summary.table.columns) == n
    (tmp_path / "schema.toml").write_text('[columns.Freq]\nkind = "real"\n')
    import_table(FIELD / "freq.csv", tmp_path / "out.h5", overwrite=True, schema=tmp_path / "schema.toml")


@pytest.mark.parametrize("name", ["Freq", "count", "n", "n_obs", "count(*)", "_freq", "Frequency", "Anzahl", "0"])
def test_names_of_counts(tmp_path, name):
    assert f"column '{name}'" in refused(tmp_path, FIVE | {name: TIMES}, header=True).message


def test_counts_beside_an_index_a_share_or_numbers_that_recur(tmp_path):
    index = {"": np.arange(1, 33)}
    refused(tmp_path, index | FIVE | {"Freq": TIMES})
    refused(tmp_path, FIVE | {"count": TIMES, "percent": (100 * TIMES / TIMES.sum()).round(4)})
    age, sex = (a.ravel() for a in np.meshgrid(np.arange(18, 90), ["f", "m"]))
    refused(tmp_path, {"age": age, "sex": sex, "n": G.integers(0, 500, len(age))})
    subset = np.sort(G.permutation(32)[:24])  # not each combination
    refused(tmp_path, {name: x[subset] for name, x in FIVE.items()} | {"n": TIMES[subset]})
    refused(tmp_path, {"queue": np.arange(3, 14), "Freq": TIMES[:11]})


@pytest.mark.parametrize(
    "columns",
    [
        {"spray": np.repeat(list("abcdef"), 12), "count": G.integers(0, 20, 72)},  # rows are equal but for it
        {f"x{i}": G.integers(0, 3, 200) for i in range(12)} | {"count": G.integers(0, 9, 200)},  # different by chance
        {"town": [f"town {i}" for i in range(40)], "kind": list("ab") * 20, "n": G.integers(0, 99, 40)},  # named rows
        {"length": G.standard_normal(60), "n": G.integers(0, 99, 60)},
        FIVE | {"count": np.where(np.arange(32) == 3, "", TIMES.astype(str))},
        FIVE | {"visits": TIMES},
        FIVE | {"Freq": TIMES + 0.5},
    ],
)
def test_what_is_called_a_count_and_is_data(tmp_path, columns):
    imported(tmp_path, columns)


# --- indices ----------------------------------------------------------------------------------------------------------

INDEX = {"in order": np.arange(60), "with gaps": np.sort(G.permutation(500)[:60]), "shuffled": G.permutation(500)[:60]}


@pytest.mark.parametrize("order", INDEX)
@pytest.mark.parametrize("name", ["", "Unnamed: 0", "...1"])
def test_an_index_is_no_data(tmp_path, name, order):
    summary = imported(tmp_path, {name: INDEX[order], "x": G.standard_normal(60)})
    [index, _] = summary.columns
    assert index.kind == "ignored" and index.reason.startswith("identifier: ") and not summary.warnings
    assert (
        len(imported(tmp_path, {name: INDEX[order], "x": G.standard_normal(60)}, keep=[index.name]).table.columns) == 2
    )


@pytest.mark.parametrize(
    "name, kind", [("X", "ignored"), ("index", "ignored"), ("row_names", "ignored"), ("dose", "real")]
)
def test_names_of_an_index_count_in_order_and_first(tmp_path, name, kind):
    x = G.standard_normal(60)
    assert kinds(imported(tmp_path, {name: INDEX["with gaps"], "x": x}))[name] == kind
    assert kinds(imported(tmp_path, {"x": x, name: INDEX["with gaps"]}))[name] == "real"
    assert kinds(imported(tmp_path, {name: INDEX["shuffled"], "x": x}))[name] == "real"
    if name == "X":
        assert kinds(imported(tmp_path, {name: INDEX["with gaps"], "Y": x}))[name] == "real"


def test_a_file_without_names_has_no_unnamed_index(tmp_path):
    rows = "\n".join(f"{i},{x}" for i, x in zip(INDEX["with gaps"], G.standard_normal(60).round(3)))
    (tmp_path / "data.csv").write_text(rows + "\n")
    summary = import_table(tmp_path / "data.csv", tmp_path / "out.h5", header=False)
    assert kinds(summary) == {"column_1": "real", "column_2": "real"}


@pytest.mark.parametrize("name", ["labs64", "newlevels", "euro"])
def test_tables_about_which_there_is_nothing_to_warn(tmp_path, name):
    summary = import_table(FIELD / f"{name}.csv", tmp_path / "out.h5")
    assert not [line for line in summary_lines(summary) if line.startswith(("warning", "note"))]
