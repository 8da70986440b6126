"""A disk that fills up, for every command that writes: exit code 4, one message with the place, nothing left behind.

A limit on the size of files stands in for it; where a file system may be mounted, a small one is filled.
"""

import contextlib
import importlib.util
import os
import resource
import shutil
import sys

import pytest

from tests.conftest import launch
from tests.faults.cases import mpibayes
from tests.faults.small import done, half_way, start

REPORT = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None or importlib.util.find_spec("arviz") is None,
    reason="the report needs matplotlib and arviz: pip install '.[report]'",
)
COMMANDS = {
    "import": "import table.csv OUT/new.h5",
    "report": "report run -o OUT/new --burn-in 2",
    "schema": "import table.csv OUT/new.h5 --write-schema OUT/new.toml",
    "sparse": "import --sparse pairs.csv OUT/new.h5",
    "csv": "export run --to csv -o OUT/new.csv",
    "labels": "export run --to labels -o OUT/new.txt",
    "arviz": "export run --to arviz -o OUT/new.h5",
    "clusters": "export run --to clusters -o OUT/new.csv --burn-in 0",
    "predict": "predict run table.csv -o OUT/new.csv --burn-in 0",
    "predict to gzip": "predict run table.csv -o OUT/new.csv.gz --burn-in 0",
    "predict to Parquet": "predict run table.csv -o OUT/new.parquet --burn-in 0",
    "complete": "predict run table.csv --complete OUT/new.csv --burn-in 0",
    "complete Parquet": "predict run table.h5 --complete OUT/new.parquet --burn-in 0",
    "copies": "complete run --copies 2 --long -o OUT/new.csv --burn-in 0",
    "query": "query run logp --rows table.csv -o OUT/new.csv --burn-in 0",
    "simulate": "simulate mixture OUT/new.h5 --rows 500 --real 3",
    "simulated labels": "simulate mixture OUT/new.h5 --rows 500 --real 3 --labels OUT/new.npy",
}
commands = pytest.mark.parametrize("command", [pytest.param(c, marks=REPORT) if c == "report" else c for c in COMMANDS])
LEAVES = {"schema": ["new.h5"], "simulated labels": ["new.h5"]}  # the table is whole when the second file is written


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = half_way(tmp_path_factory.mktemp("full") / "place")
    done(start(place))
    (place / "pairs.csv").write_text("a,b,n\n" + "".join(f"{i % 37},{i % 41},{i % 5 + 1}\n" for i in range(1500)))
    return place


@pytest.fixture
def out(place, monkeypatch):
    monkeypatch.chdir(place)
    (place / "OUT").mkdir()
    yield place / "OUT"
    shutil.rmtree(place / "OUT")


@contextlib.contextmanager
def files_of_at_most(n_bytes):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def refused(code, text, name="new"):
    assert code == 4 and text.count("mpibayes: error") == 1 and "Traceback" not in text, (code, text)
    assert name in text and "cannot be written: " in text, text


@commands
@pytest.mark.quick(every=3)
def test_every_file_that_is_written(out, command):
    """Fill the disk at the first byte and, by the largest file of an undisturbed command, at the last."""
    words = COMMANDS[command].split()
    done(mpibayes(*words))
    sizes = {path: path.stat().st_size for path in out.rglob("*") if path.is_file()}
    last = min(sizes.values()) if command in LEAVES else max(sizes.values())
    for limit in (0, last - 1):
        shutil.rmtree(out)
        out.mkdir()
        with files_of_at_most(limit):
            code, text = mpibayes(*words)
        refused(code, text)
        assert f"(a file may have {limit:,} bytes here: ulimit -f); raise that limit" in text
        assert sorted(os.listdir(out)) in ([], LEAVES.get(command)), os.listdir(out)


def test_an_old_file_stays(out):
    done(mpibayes(*COMMANDS["predict"].split()))
    before = (out / "new.csv").read_bytes()
    with files_of_at_most(100):
        refused(*mpibayes(*COMMANDS["predict"].split(), "--force"))
    assert (out / "new.csv").read_bytes() == before and os.listdir(out) == ["new.csv"]


SMALL = """mount -t tmpfs -o size=16k tmpfs OUT && head -c 12288 /dev/zero > OUT/rest || exit 99
"$@"; code=$?
find OUT -mindepth 1 ! -name rest -printf 'left over: %P\\n' >&2; exit $code"""
SPACE = ["unshare", "--mount", "--propagation", "private"]  # what is mounted there is gone with the last process in it


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("command", ["import", "sparse", "predict", "run", "run a file"])
def test_a_small_file_system(out, command):
    """The message says what is free on a full disk."""
    words = COMMANDS | {"run": "run run.toml -o OUT/new", "run a file": "run table.csv -o OUT/new"}
    program = [sys.executable, "-m", "mpibayes", *words[command].split()]
    try:
        done = launch([*SPACE, "bash", "-c", SMALL, "bash", *program], timeout=60)
    except FileNotFoundError:
        pytest.skip("there is no unshare on this machine")
    if done.returncode == 99 or "unshare failed" in done.stderr:
        pytest.skip(f"nothing may be mounted here: {done.stderr.strip()}")
    refused(done.returncode, done.stderr)
    assert f"MB are free in {out.name}" in done.stderr and "free some space" in done.stderr
    assert "left over" not in done.stderr
