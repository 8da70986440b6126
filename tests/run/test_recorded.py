"""A table whose numbers were recorded in steps, with atoms and on log scales, from its file to the predictions."""

import numpy as np
import pyarrow.csv as pc
import pytest

from mpibayes.io.table import Table
from tests.run.conftest import exported, mpibayes

N = 400
SCHEMA = """
[columns.age]
resolution = "none"
[columns.size]
atoms = []
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two groups; dividends are 0 in 70 % of the cells, else about 10 or 30; sizes span orders of magnitude."""
    folder = tmp_path_factory.mktemp("recorded")
    g = np.random.Generator(np.random.Philox(3))
    group = g.integers(2, size=N)
    gain = np.where(g.random(N) < 0.7, 0.0, np.round(10 + 20 * group + g.standard_normal(N), 1))
    size = np.round(np.exp(4 + 1.8 * g.standard_normal(N)), 2) + 0.01
    age = np.round(40 + 20 * group + 4 * g.standard_normal(N))
    lines = [f"{'ab'[k]},{d:g},{s:g},{a:g}" for k, d, s, a in zip(group, gain, size, age)]
    (folder / "t.csv").write_text("group,gain,size,age\n" + "\n".join(lines) + "\n")
    (folder / "run.toml").write_text(
        '[data]\ntable = "t.h5"\nheldout = 0.1\n[model]\nfamily = "mixture"\n'
        "[run]\ncycles = 60\nshards = 3\n[output]\nlabels = 5\n"
        "[sampler]\nsplit_merge = 2\n"
    )
    done = mpibayes(folder, "import", "t.csv", "t.h5", "--write-schema", "schema.toml")
    assert done.returncode == 0, done.stderr
    done = mpibayes(folder, "run", "run.toml", "-o", "run")
    assert done.returncode == 0, done.stderr
    return folder


def columns_of(path):
    return {c.name: c for c in Table.open(path).columns}


def test_the_table_knows_how_it_was_recorded(place):
    result = columns_of(place / "t.h5")
    assert (result["gain"].resolution, result["gain"].atoms, result["gain"].log) == (0.1, (0.0,), False)
    assert (result["size"].resolution, result["size"].atoms, result["size"].log) == (0.01, (), True)
    assert result["age"].resolution == 1.0 and not result["age"].atoms
    assert abs(result["size"].rest_center - 4) < 0.3 and 1.5 < result["size"].rest_scale < 2.1


def test_a_written_schema_gives_the_same_table_and_another_one_what_it_says(place):
    again = mpibayes(place, "import", "t.csv", "again.h5", "--schema", "schema.toml")
    assert (
        again.returncode == 0 and Table.open(place / "again.h5").fingerprint == Table.open(place / "t.h5").fingerprint
    )
    (place / "own.toml").write_text(SCHEMA)
    assert mpibayes(place, "import", "t.csv", "own.h5", "--schema", "own.toml").returncode == 0
    result = columns_of(place / "own.h5")
    assert result["age"].resolution == 0.0 and result["gain"].atoms == (0.0,)


AS_IS = """
[columns.age]
resolution = "none"
[columns.size]
resolution = "none"
scale = "linear"
[columns.gain]
resolution = "none"
atoms = []
"""


@pytest.mark.thorough
def test_numbers_as_they_are(place):
    """model.real = "as is" is the model of a table without steps, atoms and logarithms: the same bits, predictions and
    answers; the default is another one."""
    (place / "as_is.toml").write_text(AS_IS)
    assert mpibayes(place, "import", "t.csv", "as_is.h5", "--schema", "as_is.toml").returncode == 0
    column = columns_of(place / "as_is.h5")["size"]
    assert (column.resolution, column.atoms, column.log) == (0.0, (), False)
    text = {"asked": ["--set", "model.real=as is"], "plain": ["--set", "data.table=as_is.h5"], "default": []}
    result = {}
    for name, words in text.items():
        done = mpibayes(place, "run", "run.toml", "-o", name, "--set", "run.cycles=15", *words)
        assert done.returncode == 0, done.stderr
        done = mpibayes(place, "predict", name, "t.csv", "-o", f"{name}.scores.csv", "--impute", "--force")
        assert done.returncode == 0, done.stderr
        asked = mpibayes(place, "query", name, "conditional", "size", "--given", "group=a")
        assert asked.returncode == 0, asked.stderr
        result[name] = *exported(place, name), (place / f"{name}.scores.csv").read_bytes(), asked.stdout
    assert result["asked"] == result["plain"]
    assert all(a != b for a, b in zip(result["asked"], result["default"]))


def test_wrong_schemas_are_refused(place):
    (place / "bad.toml").write_text(
        '[columns.gain]\nscale = "log"\natoms = []\n[columns.age]\nresolution = -1\natoms = ["x"]\nscale = "ln"\n'
        '[columns.group]\nkind = "categorical"\nresolution = 1\n'
    )
    done = mpibayes(place, "import", "t.csv", "bad.h5", "--schema", "bad.toml")
    for words in (
        'columns.age.resolution: expected a number above 0, or "none", found -1',
        "columns.age.atoms: expected numbers, found 'x'",
        'columns.age.scale: expected "linear" or "log", found \'ln\'',
        "columns.group.resolution: only real columns have it",
    ):
        assert words in done.stderr, done.stderr
    assert done.returncode == 2
    (place / "bad.toml").write_text('[columns.gain]\nscale = "log"\natoms = []\n')
    done = mpibayes(place, "import", "t.csv", "bad.h5", "--schema", "bad.toml")
    assert done.returncode == 3 and "'gain': has values of 0 or below" in done.stderr
    assert not (place / "bad.h5").exists()


@pytest.mark.thorough
def test_the_same_bits_on_three_ranks(place):
    for ranks, out in ((1, "one"), (3, "three")):
        done = mpibayes(place, "run", "run.toml", "-o", out, "--set", "run.cycles=12", ranks=ranks)
        assert done.returncode == 0, done.stderr
        assert mpibayes(place, "export", out, "-o", f"{out}.csv", "--to", "csv", "--no-timings").returncode == 0
    assert (place / "one.csv").read_bytes() == (place / "three.csv").read_bytes()


def test_predictions_are_of_recorded_values(place):
    """A missing gain of group b: 0 in 70 % of the cells, 30 in the others: mean 9, sd 14; a size of any."""
    (place / "new.csv").write_text("group,gain,size,age\nb,,50,60\na,,,40\na,0,55.5,40\n")
    done = mpibayes(place, "predict", "run", "new.csv", "-o", "out.csv", "--impute")
    assert done.returncode == 0, done.stderr
    out = pc.read_csv(place / "out.csv").to_pydict()
    gain, sd = out["imputed_gain"], out["imputed_gain_sd"]
    assert gain[0] == pytest.approx(9, abs=2.5) and sd[0] == pytest.approx(13.8, abs=2)
    assert gain[1] == pytest.approx(3, abs=1.0) and gain[2] is None
    assert out["imputed_size"][0] is None and 35 < out["imputed_size"][1] < 90  # exp(4) = 55
    assert all(value < 0 for value in out["log_density"])  # probabilities


def test_the_report_speaks_of_recorded_values(place):
    done = mpibayes(place, "report", "run", "--full")
    assert done.returncode == 0 and "columns  4 (1 categorical, 3 real)" in done.stdout
