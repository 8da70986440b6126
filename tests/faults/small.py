"""A small run that stopped half-way, made in this process: two generations, some segments, held-out rows."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.faults.cases import mpibayes, write_csv

TEXT = """[data]
table = "table.h5"
heldout = 0.2
[model]
family = "mixture"
[run]
seed = 7
shards = 3
cycles = 12
burn_in = 2
[output]
labels = 2
"""


def half_way(folder: Path, text: str = TEXT) -> Path:
    """Make `folder` with table.csv, table.h5, run.toml and a run in `run`."""
    folder.mkdir(exist_ok=True)
    write_csv(folder / "table.csv", Random(1), 120)
    (folder / "run.toml").write_text(text)
    done(mpibayes("import", folder / "table.csv", folder / "table.h5"))
    for cycles in (4, 8):
        done(start(folder, "--set", f"run.cycles={cycles}"))
    return folder


def start(folder: Path, *words) -> tuple[int, str]:
    return mpibayes("run", folder / "run.toml", "-o", folder / "run", *words)


def done(result: tuple[int, str]) -> str:
    assert result[0] == 0, result[1]
    return result[1]
