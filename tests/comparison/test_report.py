"""`mpibayes report A B` of runs whose models differ: what it writes, says and refuses."""

import io
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import mpibayes as mb
from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.comparison.groupings import compared
from mpibayes.hpc.comparison.paired import mean_of
from mpibayes.hpc.posterior.chains import by_model
from mpibayes.hpc.report.findings import Findings, Grouping, GroupLevel
from mpibayes.hpc.results.compared import default_folder
from mpibayes.hpc.results.report import report
from tests.crosscat.report.runs import make_run, write_planted
from tests.page.checks import parts_of, problems

FILES = {"report.html", "report.txt", "summary.json", "differences.png"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A mixture of several clusters, one that stays at a single one, and views; held out: half of the rows."""
    folder = tmp_path_factory.mktemp("runs")
    table = write_planted(folder / "t.h5", n=80)
    make = {
        "mixture": {},
        "views": {"text": '[model]\nfamily = "crosscat"\n'},
        "one": {"text": '[model]\nfamily = "mixture"\nconcentration = 1e-9\n', "starts": ("one",), "split_merge": 0},
    }
    made = {name: make_run(folder / name, table, 16, 6, heldout=0.5, **more) for name, more in make.items()}
    made["all"] = make_run(folder / "all", table, 16, 6)
    return made


def run_report(run_dirs, **options):
    """(folder, what was printed in one line, summary.json)"""
    paper = io.StringIO()
    folder = report(run_dirs, console=Console(file=paper, width=120), **options)
    return folder, " ".join(paper.getvalue().split()), json.loads((folder / "summary.json").read_text())


@pytest.fixture(scope="module")
def three(runs):
    return run_report([runs["mixture"], runs["views"], runs["one"]])


def test_files_and_pages(runs, three):
    folder, printed, summary = three
    assert folder == runs["mixture"] / "against-views-one"
    assert {p.name for p in folder.iterdir()} == {*FILES, "mixture", "views", "one"}
    page = (folder / "report.html").read_text()
    assert problems(page) == []
    for run in summary["runs"]:
        assert f'<a href="{run["page"]}">' in page
        assert problems((folder / run["page"]).read_text()) == []
    rows = next(part for part in parts_of(page) if part["part"] == "browse")
    assert len(rows["rows"]) == summary["rows"]["scored"] == 40
    assert str(folder / "report.html") in printed.replace(" ", "") or "report.html: the page" in printed


def test_the_opening_is_the_paired_difference(three):
    folder, printed, summary = three
    page = (folder / "report.html").read_text()
    best, second = summary["ranking"][:2]
    of = next(run for run in summary["runs"] if run["name"] == second)["below_best"]
    rows = next(part for part in parts_of(page) if part["part"] == "browse")
    mean, error = mean_of(np.array([row[1] for row in rows["rows"]]))
    assert of["mean"] == pytest.approx(mean, abs=1e-4) and of["standard_error"] == pytest.approx(error, abs=1e-4)
    assert printed.startswith(" ".join(summary["headline"].split()))
    assert summary["headline"].endswith("(n = 40)") and best in summary["headline"]
    words = f"{best} predicts held-out rows better" if abs(mean) > 2 * error else "do not decide"
    assert words in summary["headline"]
    # one cluster cannot have the three that were planted
    assert summary["ranking"][2].endswith("one")
    last = next(run for run in summary["runs"] if run["name"].endswith("one"))
    assert last["below_best"]["decided"] and last["below_best"]["mean"] > 0.5


def test_what_each_says(three):
    folder, _, summary = three
    text = (folder / "report.txt").read_text()
    for words in ("Settings that differ", "model.family", "model.concentration", "held-out rows of the table"):
        assert words in text
    assert {pair["runs"][0] for pair in summary["pairs"]} == {summary["ranking"][0]}
    assert all(run["found"] and run["verdict"] for run in summary["runs"])


def test_which_runs_are_of_one_model(runs):
    both = [runs["mixture"], runs["mixture"]]
    assert by_model(both) == [both] and by_model([*both, runs["one"]]) == [both, [runs["one"]]]
    assert by_model([runs["mixture"], runs["all"]]) == [[runs["mixture"]], [runs["all"]]]


@pytest.mark.thorough
def test_chains_of_one_model_stay_one_report(runs, tmp_path):
    shutil.copytree(runs["mixture"], tmp_path / "again", ignore=shutil.ignore_patterns("against-*", "report"))
    both = [runs["mixture"], tmp_path / "again"]
    _, _, summary = run_report(both, out=tmp_path / "r")
    assert summary["format"] == "mpibayes-report" and len(summary["runs"]) == 2
    _, printed, summary = run_report(both, out=tmp_path / "c", compare=True)
    assert summary["format"] == "mpibayes-comparison" and "do not decide" in printed
    assert [run["below_best"] for run in summary["runs"]][1]["mean"] == 0.0


@pytest.mark.thorough
def test_rows_that_were_trained_on(runs, tmp_path):
    _, printed, summary = run_report([runs["mixture"], runs["all"]], out=tmp_path / "r")
    assert summary["not_comparable"].startswith("no row is left to score") and "ranking" not in summary
    assert "cannot be compared" in summary["headline"] and "--set data.heldout=0.5" in printed
    assert summary["pairs"]  # what each says is compared all the same


def test_refusals(runs, tmp_path):
    with pytest.raises(ConfigError, match="two run directories or more"):
        report([runs["one"]], compare=True)
    other = write_planted(tmp_path / "u.h5", n=80, seed=3)
    elsewhere = make_run(tmp_path / "u", other, 4, 1, text='[model]\nfamily = "crosscat"\n')
    with pytest.raises(DataError, match="on another table than"):
        report([runs["mixture"], elsewhere], out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


@pytest.mark.thorough
def test_the_same_from_python(runs, three):
    _, _, summary = three
    run, *others = (mb.open(runs[name]) for name in ("mixture", "views", "one"))
    result = run.report(against=others)
    assert result.document == summary
    again = run.report(against=others[1])
    assert [of["name"] for of in again.document["runs"]] == ["mixture", "one"]


@pytest.mark.thorough
def test_names_do_no_harm(runs, tmp_path):
    """A directory's name is text, on the page and in links, or bytes that are none."""
    places = [tmp_path / "<b>&x", tmp_path / "a 'b' #%", tmp_path / os.fsdecode(b"\xff")]
    for place, run in zip(places, (runs["mixture"], runs["one"], runs["views"])):
        shutil.copytree(run, place, ignore=shutil.ignore_patterns("against-*", "report"))
    folder, _, _ = run_report(places, out=tmp_path / "r")
    page = (folder / "report.html").read_text()
    assert problems(page) == [] and "<b>" not in page
    assert 'href="%3Cb%3E%26x/report.html"' in page and (folder / "<b>&x" / "report.html").exists()
    assert 'href="%FF/report.html"' in page


def test_long_names_are_cut():
    """A name may have 255 bytes, and its letters four each."""
    far = [Path("a") / ("\U0001f9ed" * 63) / name for name in "pq"]
    assert len(os.fsencode(default_folder([[Path("a/r")], *([place] for place in far)]).name)) <= 255


def of(rows):
    """A run that was trained on some rows of a table."""
    rows = np.array(rows)
    return SimpleNamespace(data=SimpleNamespace(n_rows=len(rows), numbers_of=lambda start, stop: rows[start:stop]))


def test_partitions_are_compared_row_by_row():
    """Runs with other training rows, by the rows of both: here they agree on the rows 2 to 7."""
    first = np.array([0, 0, 0, 1, 1, 2, 2, 2])  # rows 0 to 7
    level = GroupLevel(2, True, True, (first > 0).astype(np.int64), "2 natural groups")
    a = Findings([Grouping(1, ["x", "y"], first, level)], ["x", "y"], np.array([[1.0, 0.9], [0.9, 1.0]]))
    second = np.array([1, 2, 2, 0, 0, 0, 1])  # rows 2 to 8
    other = GroupLevel(2, True, True, np.array([0, 0, 1, 1, 1, 1, 0]), "2 natural groups")
    alone = Grouping(2, ["z"], np.array([0, 1, 0, 1, 0, 1, 0]), slight=True)
    share = np.array([[1.0, 0.1, 0.0], [0.1, 1.0, 0.0], [0.0, 0.0, 1.0]])
    b = Findings([Grouping(1, ["y", "x"], second, other), alone], ["y", "x", "z"], share)
    pair = compared([of(range(8)), of(range(2, 9))], [a, b])
    (view,) = pair.views
    assert pair.n_rows == 6 and view.clusters == 1.0
    assert 0.0 < view.groups < 1.0  # rows 3 and 4 are in other groups
    ((x, y),) = [t.columns for t in pair.columns]
    assert {x, y} == {"x", "y"} and (pair.columns[0].first, pair.columns[0].second) == (0.9, 0.1)
