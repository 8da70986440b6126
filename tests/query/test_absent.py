"""Answers about cells that the table never has say so."""

import pytest

import mpibayes as mb
from mpibayes.hpc.cli import main
from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.report.document import PAGE, PAPER
from mpibayes.hpc.report.page.markup import markup
from mpibayes.hpc.results.asked_report import asked_report
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table
from tests.crosscat.report.runs import make_run
from tests.io.test_absent import died, put

NEVER = "the table never has 'cause' where 'status' is 'alive'"


@pytest.fixture(scope="module", params=["mixture", pytest.param("crosscat", marks=pytest.mark.thorough)])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    import_table(put(folder, died(300)), folder / "a.h5")
    text = f"[model]\nfamily = '{request.param}'\n"
    return make_run(folder / "run", Table.open(folder / "a.h5"), 12, burn_in=4, text=text)


def printed(capsys, *words):
    capsys.readouterr()
    assert main(["query", str(words[0]), *words[1:]]) == 0
    return " ".join(capsys.readouterr()[0].split())


@pytest.mark.parametrize(
    "given, noted",
    [
        (["status=alive"], True),
        (["status=alive", "sex=f"], True),
        (["status=dead"], False),
        (["status=alive|dead"], False),
        (["sex=f"], False),
        ([], False),
    ],
)
def test_the_distribution_given_a_level(run, capsys, given, noted):
    options = [word for item in given for word in ("--given", item)]
    assert (NEVER in printed(capsys, run, "conditional", "cause", *options)) == noted
    assert "never has" not in printed(capsys, run, "conditional", "age", *options)


def test_the_report_says_it_once(run):
    """The note is on paper and on the page, each time in the section on the import."""
    (section,) = [s for s in asked_report(Posterior([run])).sections if s.name == "table"]
    for medium in (PAGE, PAPER):
        lines = "".join(markup(part) for block in section.blocks(medium) for part in block)
        assert lines.count("has no value where") == lines.count("missing by definition") == 1
        assert "&#x27;status&#x27; is &#x27;alive&#x27;" in lines


def test_rows_of_a_file(run, capsys, tmp_path):
    rows = {
        "age": ["50", "60", "70"],
        "status": ["alive", "dead", "alive"],
        "cause": ["", "", ""],
        "sex": ["f", "m", ""],
    }
    file = str(put(tmp_path, rows))
    for verb in (["conditional", "cause", "--rows", file], ["impute", "--rows", file]):
        answer = printed(capsys, run, *verb)
        assert NEVER in answer and "so it is in 2 rows of 3" in answer
    only_dead = str(put(tmp_path, {name: cells[1:2] for name, cells in rows.items()}, "dead.csv"))
    assert "never has" not in printed(capsys, run, "impute", "--rows", only_dead)


def test_probabilities_and_groups(run, capsys):
    assert NEVER in printed(capsys, run, "logp", "--of", "cause=heart", "--given", "status=alive")
    assert "never has" not in printed(capsys, run, "logp", "--of", "cause=heart", "--given", "status=dead")
    assert NEVER in printed(capsys, run, "compare", "--group", "status=dead", "--against", "status=alive")
    assert "never has" not in printed(capsys, run, "compare", "--group", "sex=f", "--against", "sex=m")


def test_simulated_rows(run, capsys):
    assert "so it is in 5 rows of 5" in printed(capsys, run, "simulate", "-n", "5", "--given", "status=alive")
    assert NEVER in printed(capsys, run, "simulate", "-n", "200")
    assert "never has" not in printed(capsys, run, "simulate", "-n", "5", "--given", "status=dead")
    assert "never has" not in printed(capsys, run, "simulate", "-n", "200", "--columns", "status,age")


def test_a_file_with_its_gaps_filled(run, capsys, tmp_path):
    rows = {"age": ["50", "60"], "status": ["alive", "dead"], "cause": ["", ""], "sex": ["f", "m"]}
    file, out = put(tmp_path, rows), tmp_path / "out.csv"
    assert main(["predict", str(run), str(file), "--complete", str(out)]) == 0
    assert f"note: {NEVER}" in " ".join(capsys.readouterr()[1].split())
    assert main(["predict", str(run), str(file), "-o", str(tmp_path / "p.csv")]) == 0
    assert "never has" not in capsys.readouterr()[1]


def test_python_has_the_remark(run):
    answer = mb.open(run).conditional("cause", given={"status": "alive"})
    assert any(NEVER in remark for remark in answer.notes)
