"""No command replaces a file that it reads, that a run needs, or that another command made."""

import importlib.util
import os
import shutil

import pytest

from tests.faults.cases import mpibayes
from tests.faults.small import done, half_way, start


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = half_way(tmp_path_factory.mktemp("targets") / "home")
    done(start(home))
    return home


@pytest.fixture
def place(home, monkeypatch):
    """The run, with files of the user's; all of them must be what they were."""
    monkeypatch.chdir(home)
    (home / "notes.txt").write_text("mine\n")
    (home / "notes.csv").write_text("mine,yours\n1,2\n")
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    yield home
    assert {path: path.read_bytes() for path in before} == before
    for path in home.iterdir():
        if path not in before and not path.is_dir():
            path.unlink()


def refused(words, expected, code=2):
    result, text = mpibayes(*words.split())
    assert result == code and text.count("mpibayes: error") == 1 and "Traceback" not in text, (result, text)
    assert expected in text, text


def ran(words):
    done(mpibayes(*words.split()))


OWN = "belongs to the run in "
READ = "is both read and written by this command"
REFUSED = {
    "export run --to csv -o table.h5 --force": READ,
    "export run --to labels -o table.h5 --burn-in 0": READ,
    "export run --to csv -o run/config.resolved.toml --force": OWN,
    "export run --to csv -o run/LOCK": OWN,
    "export run --to csv -o run/trace/new.csv": OWN,
    "export run --to labels -o run/checkpoints/new.txt --burn-in 0": OWN,
    "export run --to csv -o run/trace.h5": OWN,
    "export run --to csv -o notes.csv": "exists and is kept",
    "export run --to csv -o notes.txt": "exists and is kept",
    "export run --to csv -o run.toml": "is a configuration, and what would replace it is a trace",
    "export run --to csv -o run": "is a directory",
    "export run --to csv -o absent/new.csv": "no directory absent",
    "export run --to clusters -o table.csv --burn-in 0 --force": READ,  # the table was imported from it
    "export run --to labels -o run.toml --force --burn-in 0": "is a configuration, and",
    "import table.csv new.h5 --write-schema run.toml --force": "is a configuration, and",
    "query run logp --rows table.h5 -o table.csv --force --burn-in 0": READ,
    "predict run table.csv -o table.csv --force --burn-in 0": READ,
    "predict run table.csv --complete table.csv --force --burn-in 0": READ,
    "predict run table.csv -o notes.csv --burn-in 0": "exists and is kept",
    "query run logp --rows table.csv -o table.csv --force --burn-in 0": READ,
    "query run compare --rows table.csv --against-rows notes.csv -o notes.csv --force": READ,
    "query run logp --rows table.csv -o run/labels/new.csv --burn-in 0": OWN,
    "import table.csv run/trace.h5 --force": OWN,
    "import table.csv new.h5 --write-schema table.csv --force": READ,
    "import table.csv new.h5 --write-schema new.h5": "is named twice",
    "import table.csv new.h5 --write-schema table.h5 --force": "is a typed table, and",
    "import --sparse notes.csv table.h5 --force": "is a typed table, and what would replace it is a sparse table",
    "simulate mixture new.h5 --rows 9 --real 1 --labels table.h5 --force": "is a typed table, and",
    "report run -o run/checkpoints": OWN,
    "report run -o table.csv": "is not a folder",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_kept(place, words):
    if words.startswith("report"):
        pytest.importorskip("arviz")
    refused(words, REFUSED[words])


def test_a_link_to_an_input_is_that_input(place):
    (place / "link.csv").symlink_to(place / "table.csv")
    (place / "hard.csv").hardlink_to(place / "table.csv")
    for name in ("link.csv", "hard.csv", "../home/table.csv"):
        refused(f"predict run table.csv -o {name} --force --burn-in 0", READ)


def test_an_earlier_export_is_replaced_and_another_form_is_not(place):
    for form, other in (("csv", "labels"), ("labels", "clusters"), ("clusters", "csv")):
        words = f"export run --burn-in 0 -o out.txt --to {form}"
        ran(words)
        ran(words)
        refused(words.replace(f"--to {form}", f"--to {other}"), "and what would replace it is")
        refused("import table.csv new.h5 --write-schema out.txt --force", "and what would replace it is a schema")
        (place / "out.txt").unlink()
    ran("export run --to arviz -o out.h5 --burn-in 0")
    ran("export run --to arviz -o out.h5 --burn-in 0")
    refused("import table.csv out.h5 --force", "and what would replace it is a typed table")
    (place / "out.csv").write_text("")  # as `mktemp` makes it
    ran("export run --to csv -o out.csv")


def test_force_replaces_what_is_of_other_origin(place):
    (place / "old.csv").write_text("an old note\n")
    ran("export run --to csv -o old.csv --force")
    assert (place / "old.csv").read_text().startswith("cycle,")


def test_predictions_are_no_clusters(place):
    ran("export run --to clusters -o out.csv --burn-in 0")
    refused("predict run table.csv -o out.csv --force --burn-in 0", "is clusters (export --to clusters), and")
    (place / "out.csv").unlink()
    for _ in range(2):
        ran("predict run table.csv -o out.csv --force --burn-in 0")
    refused("export run --to clusters -o out.csv --force --burn-in 0", "is predictions, or the answer to a query, and")


def test_what_is_no_file(place):
    """Run by the superuser, an export replaced /dev/null."""
    os.mkfifo(place / "fifo.csv")
    (place / "loop.csv").symlink_to("loop.csv")
    for words in ("export run --to csv -o {}", "predict run table.csv -o {} --burn-in 0 --force"):
        refused(words.format("fifo.csv"), "not a regular file")
        refused(words.format("loop.csv"), "Too many levels of symbolic links")
    (place / "full.csv").symlink_to("/dev/full")
    refused("export run --to csv -o full.csv", "not a regular file")
    assert (place / "full.csv").is_symlink()


@pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None or importlib.util.find_spec("arviz") is None,
    reason="the report needs matplotlib and arviz: pip install '.[report]'",
)
def test_a_report_is_made_again(place):
    """The page shows the configuration, and is none."""
    for _ in range(2):
        ran("report run -o again --burn-in 2")
    assert "[run]" in (place / "again" / "report.html").read_text()
    shutil.rmtree(place / "again")


@pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None or importlib.util.find_spec("arviz") is None,
    reason="the report needs matplotlib and arviz: pip install '.[report]'",
)
def test_a_folder_of_other_files_gets_no_report(place):
    (place / "folder").mkdir(exist_ok=True)
    (place / "folder" / "report.txt").write_text("mine")
    refused("report run -o folder --burn-in 2", "report.txt: exists, and no report of ours made it")
    assert os.listdir(place / "folder") == ["report.txt"]


def test_run_directories_that_cannot_be(place):
    (place / "loop").symlink_to("loop")
    for words in ("run run.toml -o loop", "run run.toml -o loop/x", "run table.csv -o loop"):
        refused(words, "Too many levels of symbolic links")
    refused("run table.csv -o notes.txt/x", "notes.txt")
    refused(f"run run.toml -o {'d' * 300}", "File name too long")
    assert not (place / "loop.h5").exists() and not (place / "loop.toml").exists()
