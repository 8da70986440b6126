"""A report's words on clusters and columns: one name for a cluster, one line for a column; and commands that work as
printed."""

import html
import io
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import Normalize
from rich.console import Console

from mpibayes.hpc.cli import main
from mpibayes.hpc.crosscat.report import heat_map, profiles, verdict
from mpibayes.hpc.crosscat.report.names import name_clusters
from mpibayes.hpc.crosscat.report.profiles import ColumnProfile
from mpibayes.hpc.crosscat.report.traits import Trait, trait
from mpibayes.hpc.results.report import report
from mpibayes.io.files import chain_directories
from mpibayes.io.rows import Column
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
    """The name is the same on the terminal, in report.txt, on the page and in summary.json."""
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
    assert level(["0"], [0.7], [0.4], **atom).label == "gain = 0 in 70 %"
    atoms = {"title": "wage", "column": "wage (4.6020599 or 5 or another value)"}
    assert level(["4.60205999132796"], [0.95], [0.1], **atoms).label == "wage = 4.60206"
    assert level(["another value"], [0.8], [0.1], **atoms).label == "wage none of its repeated values in 80 %"
    assert level(["another value"], [0.01], [0.6], **atoms).label == "wage one of its repeated values"
    has, lacks = level(["Farmer"], [0.95], [0.1]), missing(0.0, 0.4)
    assert name_clusters([[lacks, has]]) == ["occupation = Farmer, income not missing"]


def test_traits_of_what_a_cluster_lacks(run):
    """No "only <0.01 %" in any text."""

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
    days = replace(
        many, name="days (0, 1 or another value)", title="days", overall=np.array([0.8, 0.1, 0.1]),
        levels=("0", "1", "another value"), p=np.array([[0.001], [0.049], [0.95]]),
    )  # fmt: skip
    assert trait(days, 0).label == "days not 0"


def test_a_mean_of_the_rows_at_no_atom_says_how_many_they_are():
    """Three of four loans of a grade cost 12.99; the others' mean does not name the grade."""
    n = np.ones(1)
    rest = ColumnProfile(
        "rate", "rate", "real", n, 0 * n, 0 * n, 0.0, 1.0, np.zeros((0, 0)), np.array([13.5, 5.5]),
        mean=12.88 * n, sd=0.004 * n, share=0.26 * n,
    )  # fmt: skip
    mean = trait(rest, 0)
    assert mean.label == "rate 12.88 ± 0.004 in 26 %" and mean.numbers["share"] == 0.26 and mean.rare
    assert trait(replace(rest, share=0.95 * n), 0).label == "rate 12.88 ± 0.004"
    atom = level(["12.99"], [0.74], [0.04], title="rate", column="rate (12.99 or another value)")
    assert name_clusters([[mean, atom]]) == ["rate = 12.99 in 74 %, rate 12.88 ± 0.004 in 26 %"]


def test_the_picture_shows_dates_as_dates():
    n = np.ones(1)
    stays = ColumnProfile(
        "left", "left", "real", n, 0 * n, 0 * n, 0.0, 1.0, np.zeros((0, 0)), np.array([8000.0, 400.0]),
        mean=np.array([8269.6]), sd=np.array([170.0]), unit="days since 1970-01-01", step=1.0,
    )  # fmt: skip
    looks = Normalize(-3.0, 3.0), colormaps["RdBu_r"]
    assert heat_map._cell(stays, 0, looks, looks)[1] == ["1992-08-23"]
    year = replace(stays, unit="", mean=np.array([1997.2]))
    assert heat_map._cell(year, 0, looks, looks)[1] == ["1997"]


@pytest.mark.thorough
@pytest.mark.parametrize("n_chains", [1, 2])
def test_commands_of_the_report_work_as_they_are_printed(tmp_path, n_chains, capsys):
    """Chains that are stuck where they started, and one by itself: each remedy is a command that is not refused."""
    run = make_run(
        tmp_path / "a run", write_planted(tmp_path / "a.h5"), chains=n_chains, shards=2, cycles=30, split_merge=0
    )
    report(run, console=Console(file=io.StringIO()))
    text, page = ((run / "report" / name).read_text() for name in ("report.txt", "report.html"))
    commands = [line.strip() for line in text.splitlines() if line.startswith("  mpibayes run ")]
    assert len(commands) == n_chains
    for command in commands:
        assert f"<pre>{html.escape(command)}</pre>" in re.sub("</?span>", "", page)
        assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    assert (tmp_path / "a run-2").is_dir() and len(chain_directories(tmp_path / "a run-2")) == 2


def test_a_name_of_ten_thousand_letters_is_cut_where_people_read_it():
    """Cut in texts and in the picture, whose size grows with it; whole for programs."""
    name, level = "x" * 10_000, "y z" * 3000
    profile = ColumnProfile(
        name, name, "categorical", np.array([2.0, 2.0]), np.zeros(2), np.zeros(2), 0.0, 1.0, np.ones((2, 2)),
        np.array([0.5, 0.5]), (level, "b"), np.array([[0.99, 0.01], [0.01, 0.99]]),
    )  # fmt: skip
    result = trait(profile, 0)
    assert result.column == name and result.numbers["levels"] == [level]
    assert len(str(result)) < 700 and len(result.label) < 400 and result.label.startswith("xxx")
    heads = heat_map._head(name)
    assert len(heads) <= 3 and max(map(len, heads)) <= 110
    (cluster,) = name_clusters([[result]])
    sizes = np.array([60, 40])
    figure = heat_map.heat_map.__wrapped__([profile], sizes, [cluster, cluster], 100, "Profiles", 2, [profile])
    width, height = figure.get_size_inches()
    assert width < 25 and height < 15


@pytest.mark.thorough
@pytest.mark.parametrize("words", ["load_matplotlib(); import matplotlib.figure", "import scipy.special"])
def test_variables_of_other_programs_do_not_end_this_one(words):
    """MPLBACKEND of a backend that does not exist, and SOURCE_DATE_EPOCH that is no number."""
    code = (
        "import sys; sys.argv = ['mpibayes', '--version']\n"
        "from mpibayes.__main__ import main; main()\n"
        f"from mpibayes.hpc.report.drawing import load_matplotlib; {words}\n"
    )
    more = {"MPLBACKEND": "nonsense", "SOURCE_DATE_EPOCH": "x"}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **more}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_backend_that_exists_is_kept():
    code = (
        "from mpibayes.hpc.report.drawing import load_matplotlib; load_matplotlib()\n"
        "import matplotlib, os; assert matplotlib.rcParams['backend'].lower() == 'svg' == os.environ['MPLBACKEND']\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "MPLBACKEND": "svg"}, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_small_cluster_that_lacks_what_most_rows_lack_is_not_told_apart_by_it():
    size, observed = np.array([150.0, 2.0, 1.0]), np.array([5.0, 0.0, 1.0])
    made = profiles._column(
        Column("left", "real", "reals", 0), size, observed, np.arange(3), np.zeros(3), np.array([0.0, 1.0]), None, False
    )
    assert made.divergence[1] < 0.05 < 0.5 < made.divergence[2] and made.missing.tolist()[1:] == [1.0, 0.0]


@pytest.mark.parametrize(("n", "end"), [(6, "k, l."), (7, "k, l; and 1 more set."), (9, "k, l; and 3 more sets.")])
def test_sets_of_columns_that_go_together(n, end):
    sets = ["abcdefghijklmnopqr"[2 * i : 2 * i + 2] for i in range(n)]
    run = SimpleNamespace(same_views=False, dependence=SimpleNamespace(sure=sets), summaries=[None] * 2)
    (sentence,) = verdict._sure_together(run)
    assert sentence.startswith("Columns that go together in every chain: a, b; c, d;") and sentence.endswith(end)
