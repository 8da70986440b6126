"""`report` on runs of regressions: what it writes, what it says, what it warns of."""

import csv
import io
import json
import shutil

import numpy as np
import pytest
from rich.console import Console

from mpibayes.errors import CheckpointError, ConfigError
from mpibayes.hpc.regression.draws import Posterior
from mpibayes.hpc.results.report import report
from mpibayes.io.trace import read_trace
from tests.crosscat.report.test_report import assert_picture
from tests.page.checks import parts_of, problems
from tests.regression.report.runs import BIRDS, customers, make_run, rewritten, write_csv, write_customers


def run_report(run_dirs, **options):
    """(folder, what was printed, summary.json)"""
    paper = io.StringIO()
    folder = report(run_dirs, console=Console(file=paper, width=118), full=True, **options)
    return folder, paper.getvalue(), json.loads((folder / "summary.json").read_text())


def test_the_whole_report(runs, tmp_path, small_pictures):
    folder, printed, summary = run_report(runs["logistic"], out=tmp_path / "r")
    files = {"report.html", "report.txt", "summary.json", "coefficients.csv"}
    assert {p.name for p in folder.iterdir()} == files | set(summary["pictures"])
    assert set(summary["pictures"]) == {"trace.png", "coefficients.png", "mixing.png", "heldout.png"}
    for name in summary["pictures"]:
        assert_picture(folder / name, at_least=(250, 120))
    text = (folder / "report.txt").read_text()
    assert max(map(len, text.splitlines())) <= 118
    for words in (
        'logistic regression of bought: the probability of "yes"',
        "1,200 training rows, 300 held out",
        "Gaussian, standard deviation 2.5",
        "8,000 of 8,000, 2 chains, finished",
        "1,000 cycles left out; 14,000 draws",
        "bright rows",
        "acceptance",
        "per 1,000 likelihoods",
        "Laplace importance sampling",
        "odds ratio",
        "smoker[yes]",
        "log loss",
        "In the table's own units",
        "chain-2",
    ):
        assert words in printed and words in text, words
    assert (summary["family"], summary["likelihood"]) == ("regression", "logistic") and len(summary["runs"]) == 2


def test_the_numbers_are_those_of_the_trace(runs, tmp_path):
    folder, _, summary = run_report(runs["student-t"], out=tmp_path / "r")
    trace = read_trace(runs["student-t"], 1000)
    lines = list(csv.DictReader((folder / "coefficients.csv").read_text().splitlines()))
    assert [line["coefficient"] for line in lines] == [c["coefficient"] for c in summary["coefficients"]]
    assert np.allclose([c["mean"] for c in summary["coefficients"]], trace["theta"].mean(axis=0))
    assert np.allclose([float(line["q95"]) for line in lines], np.quantile(trace["theta"], 0.95, axis=0))
    e, run = summary["efficiency"], summary["runs"][0]
    assert e["ess_min"] == pytest.approx(min(c["ess_bulk"] for c in summary["coefficients"]))
    queries = (trace["queries_theta"] + trace["queries_z"]).sum()
    assert e["queries"] == pytest.approx(queries) and e["cycles"] == 7000
    assert e["ess_per_1000_queries_min"] == pytest.approx(1000 * e["ess_min"] / queries)
    assert e["ess_per_second_min"] == pytest.approx(e["ess_min"] / trace["seconds"].sum(), rel=1e-6)
    assert run["scalars"]["n_bright"]["mean"] == pytest.approx(trace["n_bright"].mean())


def test_it_finds_what_the_rows_were_made_with(runs, tmp_path):
    """age raises price by 2.4 a year, a visit lowers it by 8; and the intervals cover about as often as they say."""
    *_, summary = run_report(runs["student-t"], out=tmp_path / "r")
    result = {c["coefficient"]: c for c in summary["coefficients"]}
    for name, truth in {"age": 2.4, "visits": -8.0, "smoker[yes]": 36.0}.items():
        assert abs(result[name]["original_mean"] - truth) < 4.0 * result[name]["original_sd"]
    assert summary["model"]["scale"] > 0
    heldout = summary["heldout"]
    assert heldout["rmse"] < 0.8 * heldout["rmse_of_the_mean"]
    assert abs(heldout["coverage_of_90_percent_intervals"] - 0.9) < 4 * np.sqrt(0.09 / heldout["rows"])
    assert summary["laplace_importance_sampling"]["agrees"] and summary["warnings"] == []


def test_coefficients_of_classes_are_told_less_their_mean(runs, tmp_path):
    _, printed, summary = run_report(runs["softmax"], out=tmp_path / "r")
    lines = summary["coefficients"]
    assert [line["class"] for line in lines[:: len(lines) // 3]] == BIRDS
    by_name = {}
    for line in lines:
        by_name.setdefault(line["coefficient"], []).append(line["mean"])
    assert all(abs(sum(means)) < 1e-9 for means in by_name.values())
    assert len(summary["sampled"]) == len(lines) and "robin: smoker[yes]" in printed
    assert summary["heldout"]["accuracy"] > summary["heldout"]["accuracy_of_the_most_frequent_class"]
    assert sum(summary["heldout"]["classes"].values()) == summary["heldout"]["rows"] == 300


@pytest.mark.thorough
def test_burn_in_and_one_chain_of_two(runs, tmp_path):
    _, printed, summary = run_report([runs["logistic"] / "chain-2"], out=tmp_path / "r", burn_in=7500)
    assert len(summary["runs"]) == 1 and summary["efficiency"]["cycles"] == 500
    assert "while step sizes were adapted" not in printed
    _, printed, _ = run_report(runs["softmax"], out=tmp_path / "s", burn_in=50)
    assert "while step sizes were adapted" in " ".join(printed.split())
    with pytest.raises(ConfigError, match="leaves nothing"):
        run_report(runs["softmax"], out=tmp_path / "s", burn_in=8000)


@pytest.mark.thorough
def test_a_short_run_is_told(table, tmp_path, small_pictures):
    run = make_run(tmp_path / "a", table, "logistic", cycles=12, burn_in=8, heldout="None")
    *_, summary = run_report(run)
    assert any("too few draws" in w for w in summary["warnings"]) and any("too short" in w for w in summary["warnings"])
    assert summary["heldout"] is None and "heldout.png" not in summary["pictures"]


@pytest.mark.thorough
def test_chains_that_are_apart_are_told(runs, tmp_path):
    one, other = runs["logistic"] / "chain-1", runs["logistic"] / "chain-2"
    for name in ("config.resolved.toml", "provenance.json"):
        shutil.copy(runs["logistic"] / name, tmp_path / name)

    def moved(trace):
        trace["theta"] = trace["theta"] + 3.0
        trace |= {name: trace[name] - 500.0 for name in ("log_posterior", "lp")}
        return trace

    shutil.copytree(one, tmp_path / "chain-1")
    rewritten(other, tmp_path / "chain-2", moved)
    _, _, summary = run_report(tmp_path, out=tmp_path / "r")
    words = "\n".join(summary["warnings"])
    assert "R-hat above" in words and "the chains disagree" in words and "chain-1" in words
    assert Posterior([tmp_path]).contradicted() and not Posterior([one]).contradicted()


@pytest.mark.thorough
def test_one_chain_that_drifts_is_told(runs, tmp_path):
    def drifting(trace):
        trace["theta"] = trace["theta"] + np.linspace(0, 2, len(trace["cycle"]))[:, None]
        return trace

    run = rewritten(runs["student-t"], tmp_path / "a", drifting)
    with pytest.raises(CheckpointError, match="scale that the run chose"):  # scale = "auto" is in its checkpoints
        run_report(run)
    shutil.copytree(runs["student-t"] / "checkpoints", run / "checkpoints")
    _, _, summary = run_report(run)
    assert any("R-hat above" in w and "coefficients" in w for w in summary["warnings"])


def test_poor_acceptance_and_many_bright_rows_are_told(table, tmp_path):
    text = '[firefly]\nbounds = "untuned"\nxi = 9.0\ntheta_update = "random-walk"\nstep_size = 5.0'
    run = make_run(tmp_path / "a", table, "logistic", heldout="None", text=text)
    _, printed, summary = run_report(run)
    words = "\n".join(summary["warnings"])
    assert "random-walk accepts" in words and "too long" in words
    assert "of the rows are bright" in words and '"tuned"' in words
    assert "bounds that touch at 9" in printed


def test_regular_mcmc_has_no_bright_rows(table, tmp_path):
    text = '[firefly]\nbounds = "none"'
    run = make_run(tmp_path / "a", table, "logistic", cycles=300, burn_in=100, text=text)
    _, printed, summary = run_report(run)
    assert "every row in every step" in " ".join(printed.split()) and "log p(coefficients, z)" not in printed
    assert summary["runs"][0]["queries_theta"] >= 1200
    assert not any("bright" in w for w in summary["warnings"])


@pytest.mark.parametrize("missing", ["drop", "indicator"])
def test_rows_with_missing_cells(tmp_path, missing):
    table = write_customers(tmp_path / "holes.h5", holes=True)
    run = make_run(tmp_path / "a", table, "logistic", regression=f'missing = "{missing}"')
    _, printed, summary = run_report(run)
    used = summary["table"]["training_rows_used"]
    assert used < summary["table"]["training_rows"] and "left out for their missing cells" in " ".join(printed.split())
    assert ("age[missing]" in printed) == (missing == "indicator")
    blank = np.isnan(customers(holes=True)[0][2])
    assert used > 1100 if missing == "indicator" else used < 1200 * (1 - 0.8 * blank.mean())


def test_held_out_rows_of_a_file(table, tmp_path):
    path = write_csv(tmp_path / "new.csv", customers(n=400, seed=9))
    run = make_run(tmp_path / "a", table, "logistic", heldout=f'"{path}"')
    _, printed, summary = run_report(run)
    assert summary["heldout"]["rows"] == 400 and str(path) in "".join(printed.split())
    path.unlink()
    _, _, summary = run_report(run)
    assert summary["heldout"] is None and any("held-out rows are gone" in w for w in summary["warnings"])


def test_scales_that_data_chose_are_told(table, tmp_path):
    run = make_run(
        tmp_path / "a", table, "student-t", regression='prior = "laplace"\nprior_scale = "heldout"\nscale = "heldout"'
    )
    _, printed, summary = run_report(run)
    assert "chosen on held-out rows" in printed and "the best one on held-out rows" in " ".join(printed.split())
    assert summary["model"]["prior"] == "laplace" and 0 < summary["model"]["prior_scale"] <= 10


def test_a_flat_prior_and_no_intercept(table, tmp_path):
    run = make_run(tmp_path / "a", table, "student-t", regression='prior = "flat"\nintercept = false')
    _, printed, summary = run_report(run)
    assert summary["model"]["prior_scale"] is None and "(intercept)" not in printed and "no intercept" in printed


def test_chains_of_two_models_are_refused(runs, tmp_path):
    both = [runs["softmax"], runs["student-t"]]
    with pytest.raises(ConfigError, match="not a chain of the same model"):
        Posterior(both)
    _, printed, summary = run_report(both, out=tmp_path / "r")  # they explain two columns: nothing to compare
    assert "cannot be compared" in " ".join(printed.split())
    assert summary["not_comparable"].startswith("the regressions explain different columns")


@pytest.mark.thorough
def test_two_ways_to_one_posterior_are_reported_together(runs, table, tmp_path):
    """The sampler of a chain is no part of its model."""
    text = '[firefly]\nbounds = "untuned"\nxi = 1.0\ntheta_update = "mala"'
    other = make_run(tmp_path / "mala", table, "student-t", cycles=8000, burn_in=1000, text=text)
    _, printed, summary = run_report([runs["student-t"], other], out=tmp_path / "r")
    words = " ".join(printed.split())
    assert "; mala" in words and "hmc with 4 leapfrog steps" in words
    assert max(c["r_hat"] for c in summary["coefficients"]) < 1.05


def test_the_terminal_has_the_verdict_and_the_page_all_coefficients(runs, tmp_path):
    paper = io.StringIO()
    folder = report(runs["logistic"], out=tmp_path / "r", console=Console(file=paper, width=100))
    printed, text = paper.getvalue(), (folder / "report.html").read_text()
    summary = json.loads((folder / "summary.json").read_text())
    assert len(printed.splitlines()) <= 40 and "odds ratio" in printed and "Yes: 2 chains" in printed
    assert ("no problems found" in printed) == (not summary["warnings"])
    assert problems(text) == []
    sampled, original, traces = parts_of(text)
    lines = {c["coefficient"]: c for c in summary["coefficients"]}
    assert {row[0] for row in sampled["rows"]} == {row[0] for row in original["rows"]} == set(lines)
    for row in sampled["rows"]:
        assert row[1] == pytest.approx(lines[row[0]]["mean"], rel=1e-4)
    assert len(traces["chains"]) == 2
