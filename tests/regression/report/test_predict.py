"""`predict` and `export` for runs of regressions."""

import csv
import io

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from scipy import stats
from scipy.special import expit

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.regression.draws import Posterior
from mpibayes.hpc.results.export import export
from mpibayes.hpc.results.predict import predict
from mpibayes.io.trace import read_trace
from tests.regression.report.runs import BIRDS, JOBS, customers, make_run, write_csv, write_customers

QUIET = {"console": Console(quiet=True)}


def read(path):
    """{column: list of texts}"""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def numbers(column):
    return np.array([float(v) if v else np.nan for v in column])


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    """(a CSV file with all columns, one with the predictors alone, the columns)"""
    folder, columns = tmp_path_factory.mktemp("new"), customers(n=120, seed=3)
    bare = write_csv(folder / "bare.csv", columns, leave_out=("bought", "bird", "price"))
    return write_csv(folder / "full.csv", columns), bare, columns


def plain_predictors(columns, run):
    """x (n, D) by hand, and the draws that are used (S, K, D)."""
    cells = {name: values for name, _, values, _ in columns}
    scale = {c.name: (c.center, c.scale) for c in run.data.columns}
    x = [np.ones(len(cells["age"]))]
    x += [(cells[name] - scale[name][0]) / scale[name][1] for name in ("age", "income", "visits")]
    x += [cells["job"] == j for j in range(1, len(JOBS))] + [cells["smoker"] == 1]
    return np.column_stack(x), np.stack([draw.theta for draw in run.draws(200)])


def opened(run_dir):
    run = Posterior([run_dir])
    run.read_traces()
    return run


def test_probabilities(runs, new, tmp_path):
    done = predict(runs["logistic"], new[0], tmp_path / "p.csv", **QUIET)
    assert done.n_rows == 120 and done.n_draws == 200
    reported = read(tmp_path / "p.csv")
    assert list(reported) == ["row", "class", "probability", "p_yes", "p_yes_q05", "p_yes_q95", "log_density"]
    x, theta = plain_predictors(new[2], opened(runs["logistic"]))
    p = expit(x @ theta[:, 0].T)
    assert np.allclose(numbers(reported["p_yes"]), p.mean(axis=1), atol=1e-5)
    assert np.allclose(numbers(reported["p_yes_q05"]), np.quantile(p, 0.05, axis=1), atol=1e-5)
    assert reported["class"] == ["yes" if v > 0.5 else "no" for v in p.mean(axis=1)]
    bought = new[2][5][2]
    log_density = np.log(np.where(bought == 1, p.mean(axis=1), 1 - p.mean(axis=1)))
    assert np.allclose(numbers(reported["log_density"]), log_density, atol=1e-5)
    assert done.log_density == pytest.approx(log_density.mean(), abs=1e-5)


def test_three_classes_without_a_response(runs, new, tmp_path):
    paper = io.StringIO()
    done = predict(runs["softmax"], new[1], tmp_path / "p.parquet", console=Console(file=paper, width=200))
    reported = pq.read_table(tmp_path / "p.parquet").to_pydict()
    assert np.isnan(done.log_density) and "log_density" not in reported and "nothing is scored" in paper.getvalue()
    assert np.allclose(sum(np.array(reported[f"p_{bird}"]) for bird in BIRDS), 1.0, atol=1e-6)
    assert all(reported[f"p_{c}"][i] == reported["probability"][i] for i, c in enumerate(reported["class"]))


def test_numbers_and_their_intervals(runs, new, tmp_path):
    predict(runs["student-t"], new[0], tmp_path / "p.csv", **QUIET)
    reported = {name: numbers(values) for name, values in read(tmp_path / "p.csv").items()}
    run = opened(runs["student-t"])
    x, theta = plain_predictors(new[2], run)
    center, scale = run.design.center, run.design.scale
    each = stats.t(4.0, center + scale * (x @ theta[:, 0].T), scale * run.likelihood.scale)
    assert np.allclose(reported["mean"], each.mean().mean(axis=1), rtol=1e-4)
    for name, level in (("q05", 0.05), ("q50", 0.5), ("q95", 0.95)):
        assert np.allclose(each.cdf(reported[name][:, None]).mean(axis=1), level, atol=1e-4)
    price = new[2][7][2]
    assert np.allclose(reported["log_density"], np.log(each.pdf(price[:, None]).mean(axis=1)), atol=1e-4)


def test_it_streams(runs, new, tmp_path, monkeypatch):
    predict(runs["student-t"], new[0], tmp_path / "a.csv", **QUIET)
    monkeypatch.setattr("mpibayes.hpc.regression.law.CELLS", 1)
    predict(runs["student-t"], new[0], tmp_path / "b.csv", batch_rows=17, **QUIET)
    whole, pieces = read(tmp_path / "a.csv"), read(tmp_path / "b.csv")
    assert list(whole) == list(pieces) and whole["row"] == pieces["row"]
    assert all(np.allclose(numbers(whole[name]), numbers(pieces[name]), rtol=1e-9) for name in whole)


def test_options_of_mixtures_are_refused(runs, new, tmp_path):
    for name in ("impute", "probabilities"):
        with pytest.raises(ConfigError, match=f"--{name} .*for runs of mixtures"):
            predict(runs["logistic"], new[0], tmp_path / "p.csv", **{name: True}, **QUIET)
    assert not (tmp_path / "p.csv").exists()


def test_draws_and_burn_in(runs, new, tmp_path):
    assert predict(runs["logistic"], new[1], tmp_path / "a.csv", draws=10, **QUIET).n_draws == 10
    assert predict(runs["softmax"], new[1], tmp_path / "b.csv", burn_in=7995, **QUIET).n_draws == 5
    with pytest.raises(ConfigError, match="leaves nothing"):
        predict(runs["softmax"], new[1], tmp_path / "c.csv", burn_in=8000, **QUIET)


def test_missing_predictors(runs, tmp_path):
    columns = customers(n=100, seed=4, holes=True)
    source = write_csv(tmp_path / "holes.csv", columns)
    with pytest.raises(DataError, match="the regression cannot use") as reported:
        predict(runs["logistic"], source, tmp_path / "a.csv", **QUIET)
    first = 1 + int(np.flatnonzero(np.isnan(columns[0][2]))[0])
    assert f"first in row {first}" in str(reported.value)
    table = write_customers(tmp_path / "holes.h5", holes=True)
    blank = np.isnan(columns[0][2]) | (columns[3][2] < 0)
    for missing in ("drop", "indicator"):
        run = make_run(tmp_path / missing, table, "logistic", regression=f'missing = "{missing}"')
        predict(run, source, tmp_path / f"{missing}.csv", **QUIET)
        reported = read(tmp_path / f"{missing}.csv")
        empty = blank if missing == "drop" else np.zeros(100, bool)
        assert [v == "" for v in reported["class"]] == empty.tolist()
        assert np.array_equal(np.isnan(numbers(reported["p_yes"])), empty) and reported["row"][-1] == "100"
        scored = ~empty & (columns[5][2] >= 0)
        assert np.array_equal(~np.isnan(numbers(reported["log_density"])), scored)


def test_levels_that_the_table_does_not_have(runs, new, tmp_path):
    text = new[1].read_text().replace("nurse", "judge")
    (tmp_path / "new.csv").write_text(text)
    with pytest.raises(DataError, match="judge"):
        predict(runs["softmax"], tmp_path / "new.csv", tmp_path / "p.csv", unseen="error", **QUIET)
    paper = io.StringIO()
    with pytest.raises(DataError, match="missing cell"):  # which is what the run's settings make of a missing cell
        predict(runs["softmax"], tmp_path / "new.csv", tmp_path / "p.csv", console=Console(file=paper, width=200))
    assert "first 'judge' in row" in paper.getvalue()


def test_a_predictor_that_is_not_there(runs, new, tmp_path):
    (tmp_path / "new.csv").write_text(new[1].read_text().replace("visits", "visit", 1))
    with pytest.raises(DataError, match="no column 'visits'"):
        predict(runs["softmax"], tmp_path / "new.csv", tmp_path / "p.csv", **QUIET)


def test_a_predictor_with_an_indicator_may_lack(runs, tmp_path):
    table = write_customers(tmp_path / "holes.h5", holes=True)
    run = make_run(tmp_path / "a", table, "logistic", regression='missing = "indicator"')
    columns = customers(n=20, seed=4)
    write_csv(tmp_path / "new.csv", columns[1:])
    done = predict(run, tmp_path / "new.csv", tmp_path / "p.csv", **QUIET)
    assert done.n_rows == 20 and f"has no column '{columns[0][0]}'" in done.notes[0]


def test_the_response_is_completed(runs, new, tmp_path):
    """The response is filled in its gaps, or in a column of its own, with its probability beside it."""
    given = list(csv.reader(new[0].read_text().splitlines()))
    place = given[0].index("bought")
    for row in given[1:31]:
        row[place] = ""
    with open(tmp_path / "holes.csv", "w", newline="") as file:
        csv.writer(file).writerows(given)
    done = predict(runs["logistic"], tmp_path / "holes.csv", tmp_path / "p.csv", complete=tmp_path / "a.csv", **QUIET)
    reported, out = read(tmp_path / "a.csv"), read(tmp_path / "p.csv")
    assert done.filled["bought"] == 30 and sum(done.filled.values()) == 30
    assert reported["bought"][:30] == out["class"][:30] and reported["bought"][30:] == [
        row[place] for row in given[31:]
    ]
    assert np.allclose(numbers(reported["bought_p"][:30]), numbers(out["probability"][:30]), rtol=1e-3)
    assert set(reported["bought_p"][30:]) == {""}
    done = predict(runs["student-t"], new[1], tmp_path / "q.csv", complete=tmp_path / "b.csv", **QUIET)
    reported, out = read(tmp_path / "b.csv"), read(tmp_path / "q.csv")
    assert list(reported)[-2:] == ["price", "price_sd"] and done.filled["price"] == done.n_rows
    assert np.allclose(numbers(reported["price"]), numbers(out["mean"]), rtol=1e-6)
    assert np.allclose(numbers(reported["price_sd"]), numbers(out["sd"]), rtol=1e-3)


def test_a_typed_table_is_read_too(runs, tmp_path):
    write_customers(tmp_path / "new.h5", n=50, seed=5)
    assert predict(runs["student-t"], tmp_path / "new.h5", tmp_path / "p.csv", **QUIET).n_rows == 50


# --- export -----------------------------------------------------------------------------------------------------------


def test_exported_text_has_the_coefficients(runs, tmp_path):
    export(runs["softmax"], "csv", tmp_path / "t.csv", burn_in=200)
    reported, trace = read(tmp_path / "t.csv"), read_trace(runs["softmax"], 200)
    assert np.array_equal(numbers(reported["theta[robin,smoker[yes]]"]), trace["theta"][:, 2, -1])
    assert np.array_equal(numbers(reported["n_bright"]), trace["n_bright"]) and list(reported)[-1] == "seconds"


def test_exported_draws_open_in_arviz(runs, tmp_path):
    import arviz

    assert export(runs["logistic"], "arviz", tmp_path / "t.h5", burn_in=0).notes == []
    data = arviz.from_netcdf(tmp_path / "t.h5")
    assert data.posterior.theta.dims == ("chain", "draw", "coefficient") and data.posterior.theta.shape[:2] == (2, 8000)
    age = data.posterior.theta.sel(coefficient="age").values
    assert np.array_equal(age[1], read_trace(runs["logistic"] / "chain-2")["theta"][:, 1])
    assert {"n_bright", "queries_theta", "acceptance_rate", "lp"} <= set(data.sample_stats)


def test_a_regression_has_no_clusters(runs, tmp_path):
    for form, what in (("labels", "labels of rows"), ("clusters", "clusters")):
        with pytest.raises(ConfigError, match=f"a model without {what}; --to csv and --to arviz write its draws"):
            export(runs["student-t"], form, tmp_path / "labels.txt")


def test_a_summary_of_exported_draws_has_no_gaps(runs, tmp_path):
    """An R-hat of a constant would be a gap; burn-in is in groups of its own."""
    import arviz

    for name, run in runs.items():
        export(run, "arviz", tmp_path / f"{name}.h5", burn_in=7800)
        data = arviz.from_netcdf(tmp_path / f"{name}.h5")
        assert data.posterior.sizes["draw"] == 200 and data.warmup_posterior.sizes["draw"] == 7800
        judged = arviz.summary(data) if data.posterior.sizes["chain"] > 1 else arviz.summary(data).drop(columns="r_hat")
        assert not judged.isna().any(axis=None)
