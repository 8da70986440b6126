"""What a report says of clusters and columns, in words: one name for a cluster, one line for a column; and commands
that work as they are printed."""

import html
import io
import json
import shlex

import pytest
from rich.console import Console

from mpibayes.hpc.cli import main
from mpibayes.hpc.commands.report import report
from mpibayes.hpc.crosscat.report.names import name_clusters
from mpibayes.hpc.crosscat.report.profiles import Trait
from mpibayes.io.files import chain_directories
from mpibayes.text import percent
from tests.crosscat.report.runs import make_run, write_planted
from tests.page.checks import parts_of
from tests.query.runs import people_run

NAMES = ["age", "income", "height", "colour", "visits", "day", "noise"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return people_run(tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def made(run, tmp_path_factory):
    """The folder of its report, and what the terminal had."""
    paper, out = io.StringIO(), tmp_path_factory.mktemp("report")
    report(run, out=out, console=Console(file=paper, width=400))
    return out, paper.getvalue()


def browsed(folder, noun):
    parts = parts_of((folder / "report.html").read_text())
    return next(p for p in parts if p["part"] == "browse" and p["noun"] == noun)["rows"]


def test_a_column_with_atoms_is_one_line(made):
    rows = browsed(made[0], "column")
    assert sorted(row[0] for row in rows) == sorted(NAMES)
    kinds = {row[0]: row[1] for row in rows}
    assert kinds["income"] == "real" and kinds["colour"] == "categorical"
    documented = json.loads((made[0] / "summary.json").read_text())["columns"]  # has both parts
    parts = [c["information_nats"] for c in documented if c["column"].startswith("income")]
    assert len(parts) == 2 and next(row[2] for row in rows if row[0] == "income") == pytest.approx(sum(parts), rel=1e-3)


def test_a_cluster_has_one_name(made, monkeypatch):
    """On the terminal, in report.txt, on the page, in summary.json."""
    folder, printed = made
    clusters = json.loads((folder / "summary.json").read_text())["clusters"]
    text = (folder / "report.txt").read_text()
    page = {row[0]: row[1] for row in browsed(folder, "cluster")}
    assert len(clusters) > 1
    for c in clusters:
        assert c["name"] in printed and f"  {c['name']}\n" in text and page[c["cluster"]] == c["name"]


def level(names, p, overall, value="", title="occupation", column="occupation"):
    numbers = {"levels": names, "p": p, "overall": overall}
    return Trait(column, title, 1.0, "level", value, "", numbers)


def missing(share, overall):
    numbers = {"missing": share, "overall": overall}
    return Trait("income", "income", 1.0, "missing", f"missing {percent(share)}", percent(overall), numbers)


def test_names_say_what_there_is_and_what_there_is_not():
    assert missing(0.0, 0.4).label == "income not missing" and missing(0.0, 0.4).lacking
    assert missing(0.2, 0.4).label == "income missing 20 %"
    assert missing(0.97, 0.4).label == "income missing" and not missing(0.97, 0.4).lacking
    assert level(["None"], [0.001], [0.4]).label == "occupation not None"
    assert level(["not known"], [0.95], [0.4]).label == "occupation = not known"
    atom = {"title": "gain", "column": "gain (0 or not 0)"}
    assert level(["not 0"], [0.95], [0.4], **atom).label == "gain not 0"
    assert level(["not 0"], [0.01], [0.6], **atom).label == "gain = 0"
    assert level(["0"], [0.7], [0.4], **atom).label == "gain = 0 70 %"
    has, lacks = level(["Farmer"], [0.95], [0.1]), missing(0.0, 0.4)
    assert name_clusters([[lacks, has]]) == ["occupation = Farmer, income not missing"]


def test_traits_of_what_a_cluster_lacks(run):
    """No "only <0.01 %" in any text."""
    import numpy as np

    from mpibayes.hpc.crosscat.report.profiles import ColumnProfile, trait

    def of(p, overall):
        n = np.array([1.0])
        return ColumnProfile(
            "job", "job", "categorical", n, 0 * n, 0 * n, 0.0, 1.0, np.zeros((0, 0)), np.array(overall),
            ("none", "clerk", "nurse", "cook"), np.array(p)[:, None],
        )  # fmt: skip

    overall = [0.7, 0.1, 0.1, 0.1]
    rare = of([0.00001, 0.29, 0.29, 0.41999], [0.7, 0.09, 0.09, 0.12])
    few = [0.1, 0.3, 0.3, 0.3]
    assert "only" not in str(trait(rare, 0)) and "only" not in str(trait(of(few, overall), 0))
    many = ColumnProfile(
        "job", "job", "categorical", np.array([1.0]), np.zeros(1), np.zeros(1), 0.0, 1.0, np.zeros((0, 0)),
        np.array([0.5, *[0.05] * 10]), tuple("abcdefghijk"), np.array([[1e-5], *[[0.0999990]] * 10]),
    )  # fmt: skip
    assert str(trait(many, 0)) == "job not a (overall 50 %)"
    many.p[0, 0] = 0.05
    assert str(trait(many, 0)) == "job = a only 5 % (overall 50 %)"


@pytest.mark.parametrize("n_chains", [1, 2])
def test_commands_of_the_report_work_as_they_are_printed(tmp_path, n_chains, capsys):
    """Chains that are stuck where they started, and one by itself: each remedy is a command that is not refused."""
    run = make_run(tmp_path / "a run", write_planted(tmp_path / "a.h5"), chains=n_chains, cycles=30, split_merge=0)
    report(run, console=Console(file=io.StringIO()))
    text, page = ((run / "report" / name).read_text() for name in ("report.txt", "report.html"))
    commands = [line.strip() for line in text.splitlines() if line.startswith("  mpibayes run ")]
    assert len(commands) == n_chains
    for command in commands:
        assert f"<pre>{html.escape(command)}</pre>" in page
        assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    assert (tmp_path / "a run-2").is_dir() and len(chain_directories(tmp_path / "a run-2")) == 2
