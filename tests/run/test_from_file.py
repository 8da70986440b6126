"""`mpibayes run people.csv`: from a data file to a finished run with one command, again and again."""

import gzip
import os
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.parallel import cores
from mpibayes.hpc.run.examine import examine
from mpibayes.hpc.run.from_file import configuration
from mpibayes.io.table import Table
from tests.run.conftest import mpibayes

FIELD = Path(__file__).parents[1] / "io" / "field"
SHORT = ("--set", "run.cycles=4")


@pytest.fixture
def place(tmp_path):
    g = np.random.Generator(np.random.Philox(4))
    lines = [f"{'ab'[k]},{x:.1f}" for k, x in zip(g.integers(2, size=80), g.standard_normal(80))]
    (tmp_path / "people.csv").write_text("kind,size\n" + "\n".join(lines) + "\n")
    return tmp_path


def test_a_data_file_runs_and_goes_on(place):
    done = mpibayes(place, "run", "people.csv", *SHORT)
    assert done.returncode == 0, done.stderr
    assert "importing people.csv into runs/people.h5" in done.stdout and "80 rows, 2 of 2 columns" in done.stdout
    assert "mpibayes report runs/people\n" in done.stdout  # of both chains
    table = (place / "runs" / "people.h5").stat().st_mtime_ns
    again = mpibayes(place, "run", "people.csv", "--set", "run.cycles=6")
    assert again.returncode == 0 and "importing " not in again.stdout, again.stdout
    assert "has all its 6 cycles" in again.stdout
    assert (place / "runs" / "people.h5").stat().st_mtime_ns == table
    same = mpibayes(place, "run", "runs/people.toml", "--set", "run.cycles=6")
    assert same.returncode == 0 and "has all its 6 cycles" in same.stdout
    assert mpibayes(place, "report", "runs/people").returncode == 0


def test_a_changed_file_is_noticed_and_fresh_takes_it(place):
    assert mpibayes(place, "run", "people.csv", *SHORT).returncode == 0
    with (place / "people.csv").open("a") as file:
        file.write("a,0.5\n")
    done = mpibayes(place, "run", "people.csv", *SHORT)
    assert done.returncode == 2 and 'was made from "people.csv"; it has changed since then' in done.stderr
    done = mpibayes(place, "run", "people.csv", *SHORT, "--fresh")
    assert done.returncode == 0 and "81 rows" in done.stdout, done.stderr
    (place / "other").mkdir()
    (place / "other" / "people.csv").write_text("a,b\n1,2\n")
    (place / "others.csv").write_text("a,b\n1,2\n")
    done = mpibayes(place, "run", "others.csv", "-o", "runs/people", *SHORT)
    assert done.returncode == 2 and "not others.csv" in done.stderr


@pytest.mark.thorough
def test_options_of_the_import_are_given_to_the_import(place):
    """`run` has none of them, so that a message which names one says where it goes; and going there helps."""
    shutil.copy(FIELD / "european.csv", place)
    done = mpibayes(place, "run", "european.csv", *SHORT)
    way = "give such options to mpibayes import european.csv runs/european.h5, then run the same command again"
    assert done.returncode == 3 and "say --encoding cp1252" in done.stderr and way in done.stderr, done.stderr
    assert not (place / "runs" / "european.h5").exists() and not (place / "runs" / "european.toml").exists()
    done = mpibayes(place, "import", "european.csv", "runs/european.h5", "--encoding", "cp1252")
    assert done.returncode == 0, done.stderr
    done = mpibayes(place, "run", "european.csv", *SHORT, "--set", "sampler.searches=1")
    assert done.returncode == 0 and "european.h5: was imported from european.csv separately and is kept" in done.stdout


@pytest.mark.thorough
def test_a_column_is_imported_otherwise_after_a_warning(place):
    shutil.copy(FIELD / "weights.csv", place)
    done = mpibayes(place, "run", "weights.csv", *SHORT, "--set", "sampler.searches=1")
    other = "mpibayes import weights.csv runs/weights.h5 --force"
    assert f"to change that: {other} OPTIONS, then this command with --fresh" in done.stdout, done.stdout
    assert mpibayes(place, *other.split()[1:], "--kind", "pweight=real").returncode == 0
    done = mpibayes(place, "run", "weights.csv", *SHORT, "--set", "sampler.searches=1", "--fresh")
    assert done.returncode == 0 and "is kept" in done.stdout, done.stderr
    assert "pweight" in {column.name for column in Table.open(place / "runs" / "weights.h5").columns}


def test_a_start_that_was_cut_off_is_taken_up(place):
    assert mpibayes(place, "run", "people.csv", *SHORT, "-o", "a").returncode == 0
    (place / "a.toml").unlink()  # written last
    assert mpibayes(place, "run", "people.csv", "--set", "run.cycles=6", "-o", "a").returncode == 0
    (place / "b.h5").write_bytes((place / "a.h5").read_bytes())
    (place / "other.csv").write_text((place / "people.csv").read_text())
    done = mpibayes(place, "run", "other.csv", *SHORT, "-o", "b")
    assert done.returncode == 2 and "b.h5: exists and is kept" in done.stderr


def test_what_is_of_other_origin_is_kept(place):
    """A configuration of the user's is put aside by --fresh; a table of another file stays. `run` has no --force."""
    (place / "a.toml").write_text("# mine\n")
    assert mpibayes(place, "run", "people.csv", *SHORT, "-o", "a", "--fresh").returncode == 0
    assert (place / "a.toml.old-1").read_text() == "# mine\n" and (place / "a.toml").exists()
    (place / "b.h5").write_text("no table")
    done = mpibayes(place, "run", "people.csv", *SHORT, "-o", "b")
    assert done.returncode == 2 and "b.h5: exists and is kept" in done.stderr and "--force" not in done.stderr
    assert (place / "b.h5").read_text() == "no table"


def test_a_start_that_lost_a_race_says_what_to_do(place, monkeypatch):
    """Another start has written the table meanwhile."""

    def import_late(source, table, **options):
        table.write_text("of another start")
        raise ConfigError(f"{table}: appeared while the table was written; it is kept")

    monkeypatch.setattr("mpibayes.io.ingest.import_table", import_late)
    with pytest.raises(ConfigError, match="run it again, or choose another directory with -o"):
        configuration(place / "people.csv", place / "a", False)


@pytest.mark.thorough
def test_a_table_that_the_user_imported_is_kept(place):
    """A table made with a schema, say, is made anew neither by a first start nor by --fresh."""
    assert mpibayes(place, "run", "people.csv", *SHORT).returncode == 0
    corrected = ("import", "people.csv", "runs/people.h5", "--kind", "size=categorical", "--force")
    assert mpibayes(place, *corrected).returncode == 0
    mine = (place / "runs" / "people.h5").read_bytes()
    (place / "runs" / "b.h5").write_bytes(mine)
    for more in (("--fresh",), ("--fresh",), ("-o", "runs/b")):
        done = mpibayes(place, "run", "people.csv", *SHORT, *more)
        assert done.returncode == 0 and "is kept" in done.stdout and "importing " not in done.stdout, done.stderr
    assert (place / "runs" / "people.h5").read_bytes() == mine == (place / "runs" / "b.h5").read_bytes()
    os.utime(place / "people.csv", ns=(0, (place / "runs" / "people.h5").stat().st_mtime_ns + 10**9))
    done = mpibayes(place, "run", "people.csv", *SHORT, "--fresh")
    assert done.returncode == 2 and "import it again, or remove it" in done.stderr, done.stderr


def test_packed_files_and_tables(place):
    (place / "packed.csv.gz").write_bytes(gzip.compress((place / "people.csv").read_bytes()))
    assert mpibayes(place, "run", "packed.csv.gz", *SHORT).returncode == 0
    assert mpibayes(place, "run", "runs/packed.h5", "-o", "from_table", *SHORT).returncode == 0
    assert (place / "from_table.toml").exists() and not (place / "from_table.h5").exists()
    done = mpibayes(place, "run", "runs/packed.h5", *SHORT)  # the table that was made is as good as the file
    assert done.returncode == 0 and "has all its 4 cycles" in done.stdout, done.stderr


def test_another_table_is_noticed(place):
    assert mpibayes(place, "run", "people.csv", *SHORT).returncode == 0
    lines = (place / "people.csv").read_text().splitlines(keepends=True)
    (place / "fewer.csv").write_text("".join(lines[:60]))
    for name in ("runs/people.h5", "fewer.h5"):
        done = mpibayes(place, "import", "people.csv" if "people" in name else "fewer.csv", name, "--force")
        assert done.returncode == 0, done.stderr
    assert mpibayes(place, "run", "runs/people.h5", "-o", "a", *SHORT).returncode == 0
    assert mpibayes(place, "run", "runs/people.h5", "-o", "a", "--set", "run.cycles=6").returncode == 0
    done = mpibayes(place, "run", "fewer.h5", "-o", "a", *SHORT)
    assert done.returncode == 2 and 'was made from "people.h5"; not fewer.h5' in done.stderr, done.stderr
    (place / "runs" / "people.h5").write_bytes((place / "fewer.h5").read_bytes())
    done = mpibayes(place, "run", "runs/people.h5", "-o", "a", *SHORT)
    assert done.returncode == 2 and "it has changed since then" in done.stderr, done.stderr
    assert mpibayes(place, "run", "fewer.h5", "-o", "a", *SHORT, "--fresh").returncode == 0
    (place / "no.h5").write_text("no table")
    done = mpibayes(place, "run", "no.h5", "-o", "b", *SHORT)
    assert done.returncode == 3 and not (place / "b.toml").exists() and "Traceback" not in done.stderr


@pytest.mark.parametrize("out", [".", "..", "runs/..", "/"])
def test_a_run_directory_without_a_name(place, out):
    done = mpibayes(place, "run", "people.csv", "-o", out, *SHORT)
    assert done.returncode == 2 and "so it needs one; for example -o runs/people" in done.stderr, done.stderr
    assert done.stderr.count("mpibayes: error:") == 1 and {p.name for p in place.iterdir()} == {"people.csv"}


def test_what_cannot_be_imported_ends_all_ranks(place):
    (place / "bad.csv").write_text("a,b\n1,2\n3\n")
    done = mpibayes(place, "run", "bad.csv", *SHORT, ranks=2)
    assert done.returncode == 3 and "bad.csv" in done.stderr and "expected 2" in done.stderr, done.stderr
    assert done.stderr.count("mpibayes: error:") == 1 and not (place / "runs" / "bad.toml").exists()
    done = mpibayes(place, "run", "none.csv", *SHORT)
    assert done.returncode == 3 and "none.csv" in done.stderr and "Traceback" not in done.stderr


def test_ranks_share_the_import(place):
    done = mpibayes(place, "run", "people.csv", *SHORT, ranks=2)
    assert done.returncode == 0 and done.stdout.count("importing ") == 1, done.stderr


class Ranks:
    """A communicator of so many ranks on some hosts, as `crowded` sees it."""

    def __init__(self, *everyone):
        self.everyone, self.size = everyone, len(everyone)

    def collect(self, mine):
        return list(self.everyone)


@pytest.mark.parametrize(
    "ranks, words",
    [
        ([("a", {0, 1})] * 2, None),
        ([("a", {0, 1})] * 4, "4 ranks on a, which gives them 2 cores"),
        ([("a", {0}), ("a", {1}), ("b", {0}), ("b", {0})], "2 ranks on b, which gives them one core"),
        ([("a", {0, 1})], None),
    ],
)
def test_more_ranks_than_cores(monkeypatch, ranks, words):
    monkeypatch.setattr(cores, "quota", lambda: None)
    result = cores.crowded(Ranks(*ranks))
    assert result is None if words is None else words in result


def test_a_container_gives_less(monkeypatch):
    monkeypatch.setattr(cores, "quota", lambda: 1.5)
    assert "2 ranks on a, which gives them one core" in cores.crowded(Ranks(*[("a", {0, 1, 2, 3})] * 2))


@pytest.mark.parametrize(
    "n_columns, n_rows, family",
    [(3, 40, "crosscat"), (2, 40, "mixture"), (3, 39, "mixture"), (20, 13_000, "crosscat")],
)
def test_a_table_decides_whether_there_are_views(tmp_path, n_columns, n_rows, family):
    g = np.random.Generator(np.random.Philox(5))
    cells = np.where(g.random((n_rows, n_columns)) < 0.5, "yes", "no")
    np.savetxt(tmp_path / "wide.csv", cells, "%s", ",", header=",".join(f"q{i}" for i in range(n_columns)), comments="")
    place = configuration(tmp_path / "wide.csv", tmp_path / "a", False)
    assert tomllib.loads(place.read_text())["model"] == {"family": "auto"}
    assert f"cycles = {2000 if n_rows <= 50 else 400} " in place.read_text()
    assert ('until = "scores"' in place.read_text()) == (n_rows <= 50)
    assert examine(place).config.model.family == family
    fixed = ["model.concentration={gamma=[1.0, 1.0]}"]  # moves of views have no such prior
    assert examine(place, fixed).config.model.family == "mixture"
