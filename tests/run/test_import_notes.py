"""A report says which columns the import of its table left out, and what the import asks."""

import json

import numpy as np
import pytest

from mpibayes.hpc.registry import ROOMS, posterior_of
from mpibayes.hpc.report.document import PAGE, Document, Verdict
from mpibayes.hpc.report.page.markup import markup
from mpibayes.hpc.report.text import text_of
from mpibayes.hpc.results.asked_report import asked_report
from mpibayes.hpc.results.compared import weighed
from mpibayes.hpc.results.of_import import MOST, add_import_notes
from mpibayes.io.append import append_rows
from mpibayes.io.import_notes import ImportNotes
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table
from mpibayes.text import visible
from tests.crosscat.report.runs import make_run, write_planted
from tests.run import test_ibp_runs as ibp
from tests.run import test_lda_runs as lda
from tests.run import test_ratings_runs as ratings
from tests.run import test_regression_runs as regression
from tests.run import test_svi_runs as svi
from tests.run.conftest import mpibayes, ran, sets

OF_FAMILY = {"regression": regression, "ibp": ibp, "svi": svi, "svi factorization": ratings, "svi lda": lda}
ASKED = "column 'answer' has the level 'refused'; if it means missing: --missing refused"
NOTES = {"left_out": {"person": "identifier: text, all of it different"}, "asked": [ASKED]}


def people(path, n=240):
    g = np.random.default_rng(0)
    lines = ["person,colour,height,answer,where"]
    for i in range(n):
        lines.append(f"P{i:04d}x,{g.choice(list('abc'))},{g.normal():.4f},{g.choice(['yes', 'no', 'refused'])},here")
    path.write_text("\n".join(lines) + "\n")
    return path


def on_page(document):
    """Lines of the section on the page."""
    (section,) = [s for s in document.sections if s.name == "table"]
    return "".join(markup(part) for block in section.blocks(PAGE) for part in block)


def test_from_a_file_to_the_report(tmp_path):
    """A part that was appended brings no notes, and takes none away."""
    people(tmp_path / "people.csv")
    summary = import_table(tmp_path / "people.csv", tmp_path / "people.h5")
    table = Table.open(tmp_path / "people.h5")
    assert table.source["left_out"] == {c.name: c.reason for c in summary.columns if c.kind == "ignored"}
    assert table.source["asked"] == [*summary.notes, *summary.warnings]
    make_run(tmp_path / "run", table, 12, burn_in=4)
    assert mpibayes(tmp_path, "report", "run").returncode == 0
    folder = tmp_path / "run" / "report"
    for name in ("report.txt", "report.html"):
        text = " ".join((folder / name).read_text().replace("&#x27;", "'").split())
        assert "column 'person': identifier" in text and "column 'where': constant: 'here'" in text, name
        assert ASKED in text
    written = json.loads((folder / "summary.json").read_text())["import"]
    assert written == {**{key: table.source[key] for key in ("left_out", "asked")}, "absent": []}
    people(tmp_path / "later.csv", 20)
    append_rows(tmp_path / "later.csv", tmp_path / "people.h5", again=True)
    grown = Table.open(tmp_path / "people.h5")
    assert len(grown.pieces) == 2 and grown.source["asked"] == table.source["asked"]
    assert grown.pieces[1].source["asked"] == [] and grown.pieces[1].source["left_out"] == {}


def test_the_fingerprint_does_not_depend_on_notes(tmp_path):
    """Leaving out a column on request is noted; the rows are the same."""
    with_id, without = people(tmp_path / "a.csv"), tmp_path / "b.csv"
    without.write_text("\n".join(line.partition(",")[2] for line in with_id.read_text().splitlines()) + "\n")
    a, b = (import_table(path, path.with_suffix(".h5")).table for path in (with_id, without))
    assert a.fingerprint == b.fingerprint and a.source["left_out"] != b.source["left_out"]


@pytest.mark.parametrize("kind", [kind for kind in ROOMS if kind != "auto"])
def test_the_report_of_every_family(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("mpibayes.hpc.crosscat.report.report._figures", lambda posterior: [])
    if kind in OF_FAMILY:
        ran(OF_FAMILY[kind].make(tmp_path), "run", *sets("run.cycles=30", "run.burn_in=4"))
    else:
        text = f"[model]\nfamily = '{kind}'\n"
        make_run(tmp_path / "run", write_planted(tmp_path / "t.h5"), 12, burn_in=4, text=text)
    run = posterior_of(kind)([tmp_path / "run"], None, None)
    with weighed([run], None):
        before = asked_report(run)
        run.table.source.update(NOTES)
        document = asked_report(run)
    assert "table" not in [s.name for s in before.sections] and "import" not in before.numbers
    assert [s.name for s in document.sections if s.name != "table"] == [s.name for s in before.sections]
    for text in (on_page(document).replace("&#x27;", "'"), " ".join(text_of(document).split())):
        assert "column 'person': identifier" in text and ASKED in text


def test_the_page_of_a_wide_table_is_short():
    copies = [f"column 'copy {i}': is left out, as it says the same as 'x'; --keep 'copy {i}'" for i in range(90)]
    asked = [f"{'abcdefghijklmnopqrst'[i]} question" for i in range(20)]
    left_out = {f"copy {i}": "copy of another column" for i in range(90)} | {f"id {i}": "identifier" for i in range(9)}
    document = Document([], Verdict([], [], []), [], {})
    add_import_notes(document, ImportNotes(left_out, [*asked, *copies]).store())
    page, paper = on_page(document), text_of(document)
    assert page.count("<li>") == MOST and f"{22 - MOST} more in report.txt" in page
    assert "(and 89 more columns likewise)" in page and "9 columns, identifier: id 0" in page
    assert all(f"- {line}" in paper for line in map(visible, asked)) and paper.count("is left out") == 90


def test_columns_that_the_owner_left_out():
    notes = ImportNotes({"weight": "as given", "person": "identifier: text, all of it different"})
    assert notes.without(brief=True) == [
        "column 'weight': left out by the schema or --drop", "column 'person': identifier: text, all of it different",
    ]  # fmt: skip
