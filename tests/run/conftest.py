"""A small mixed table with missing cells, and the command as run by a user, on any number of ranks."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from mpibayes.hpc import cli
from mpibayes.hpc.run import signals
from mpibayes.io.table import table_from_arrays, write_table
from tests.conftest import FOR_RANKS, launch
from tests.ranks import on_ranks, run_of_cycles

CONFIG = """
[data]
table = "table.h5"
heldout = 0.1
[model]
family = "mixture"
[sampler]
split_merge = 4
[run]
seed = 5
shards = {shards}
cycles = {cycles}
burn_in = 4
[output]
labels = 3
"""
# python -c FAULTY CODE OUT WORDS...: the command `mpibayes run`, after CODE, in which `rank` is defined
FAULTY = """
import os, sys, time
rank = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")))
exec(sys.argv[1])
from mpibayes.hpc import cli
sys.exit(cli.main(["run", "run.toml", "-o", *sys.argv[2:]]))
"""


def config_text(shards: int = 5, cycles: int = 24) -> str:
    return CONFIG.format(shards=shards, cycles=cycles)


def small_config(model: str = "", sections: str = "", cycles: int = 12) -> str:
    """A mixture on three shards that keeps every other cycle. model: further keys of [model]; sections: others."""
    if "[sampler]" not in sections:
        sections += "\n[sampler]\nsplit_merge = 4"
    return f"""
[data]
table = "table.h5"
heldout = 0.1
[model]
family = "mixture"
{model}
{sections}
[run]
seed = 5
shards = 3
cycles = {cycles}
burn_in = 2
[output]
labels = 2
"""


def mixed_table(path: Path, n: int = 700, seed: int = 3) -> None:
    """Four overlapping clusters; categorical, boolean, real and count columns, a tenth of the cells missing."""
    path.write_bytes(_mixed(n, seed))


@functools.cache
def _mixed(n: int, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    z = rng.integers(4, size=n)
    columns = []
    for c, n_levels in enumerate((2, 3, 5, 9)):
        cumulative = np.cumsum(rng.dirichlet(np.ones(n_levels), 4), axis=1)
        codes = (rng.random(n)[:, None] > cumulative[z]).sum(axis=1).clip(0, n_levels - 1)
        codes[rng.random(n) < 0.1] = -1
        columns.append(
            (f"c{c}", "boolean" if n_levels == 2 else "categorical", codes, [f"v{v}" for v in range(n_levels)])
        )
    x = rng.normal(0, 3, 4)[z] + rng.normal(size=n)
    x[rng.random(n) < 0.1] = np.nan
    columns.append(("x", "real", x, None))
    columns.append(("n", "count", rng.poisson(np.array([1, 5, 20, 2])[z]).astype(float), None))
    with tempfile.TemporaryDirectory() as folder:
        write_table(Path(folder) / "table.h5", *table_from_arrays(columns))
        return (Path(folder) / "table.h5").read_bytes()


@pytest.fixture
def place(tmp_path) -> Path:
    """A folder with table.h5 and run.toml."""
    mixed_table(tmp_path / "table.h5")
    (tmp_path / "run.toml").write_text(config_text())
    return tmp_path


@pytest.fixture(scope="session")
def straight(tmp_path_factory) -> tuple[Path, tuple[bytes, bytes]]:
    """A folder like `place` with the run "one", on one rank and uninterrupted, and its exports."""
    place = tmp_path_factory.mktemp("straight")
    mixed_table(place / "table.h5")
    (place / "run.toml").write_text(config_text())
    done = run(place, "one")
    assert done.returncode == 0, done.stderr
    return place, exported(place, "one")


def command(ranks: int, *words, program=("-m", "mpibayes")) -> list:
    """Command line of `mpibayes words...`, under mpirun; one rank is started without it, as on a laptop."""
    program = [sys.executable, *program, *words]
    return program if ranks == 1 else ["mpirun", "-n", ranks, *program]


def in_process(place: Path, *words) -> subprocess.CompletedProcess:
    """Run `mpibayes words...` in this process, which saves start-up time, with the result of a separate one."""
    return captured(place, words, lambda: cli.main([str(word) for word in words]))


def captured(place: Path, what, call) -> subprocess.CompletedProcess:
    """Call this, which returns an exit code, in a folder, with the result of a separate process."""
    handlers = {number: signal.getsignal(number) for number in signals.SIGNALS}
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.chdir(place), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = call()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return subprocess.CompletedProcess(what, code, out.getvalue(), err.getvalue())


def mpibayes(place: Path, *words, ranks: int = 1, timeout: float = 100, env=None):
    """Run the command on `ranks` ranks, in this process or on ranks that stay (`tests/ranks.py`); in a program of its
    own if environment variables are given."""
    if env is None:
        if ranks == 1:
            return in_process(place, *words)
        return on_ranks(ranks, place, {"words": list(map(str, words))}, {**os.environ, **FOR_RANKS}, timeout)
    return launch(command(ranks, *words), timeout=timeout, cwd=place, env={**FOR_RANKS, **(env or {})})


def run(place: Path, out: str, *words, ranks: int = 1, **options):
    return mpibayes(place, "run", "run.toml", "-o", out, *words, ranks=ranks, **options)


def sets(*changes: str) -> list[str]:
    """Options that set these keys, `key=value` each."""
    return [word for change in changes for word in ("--set", change)]


def ran(place: Path, out: str, *words, ranks: int = 1, config: str = "run.toml"):
    """Run, requiring success."""
    done = mpibayes(place, "run", config, "-o", out, *words, ranks=ranks)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def run_some(place: Path, out: str, cycles: int, *changes, ranks: int = 1):
    """Run `cycles` cycles of the configuration with these changes, stopping at a checkpoint as at a time limit."""
    if ranks == 1:
        return captured(place, out, lambda: run_of_cycles(cycles, "run.toml", out, list(changes)))
    of_run = {"cycles": cycles, "run": ("run.toml", out, changes)}
    return on_ranks(ranks, place, of_run, {**os.environ, **FOR_RANKS}, 100)


def everything(place: Path, out: str):
    """Reproducible results of any family: the trace without timings, and the arrays of kept draws by cycle and name."""
    from mpibayes.io.draws import iterate_draws
    from mpibayes.io.export import export

    export([place / out], "csv", out=place / "trace.csv", timings=False)
    draws = {
        (cycle, name): array.tobytes() for cycle, arrays in iterate_draws(place / out) for name, array in arrays.items()
    }
    return (place / "trace.csv").read_bytes(), draws


def exported(place: Path, out: str) -> tuple[bytes, bytes]:
    """Reproducible results: the trace without timings, and the labels."""
    from mpibayes.io.export import export

    export([place / out], "csv", out=place / f"{out}.csv", timings=False)
    export([place / out], "labels", out=place / f"{out}.labels")
    return (place / f"{out}.csv").read_bytes(), (place / f"{out}.labels").read_bytes()
