"""CPU time of `mpibayes run` from its start to the end of its first cycle, on small tables, searches included.

    python benchmarks/start.py TABLE ... [--against OTHER] [--families mixture crosscat] [--repeats 5] [--keep]

TABLE: a typed table, or a raw file, whose import then counts. By turns with OTHER, another checkout with its kernels
built ("before"): user and system time of the process, the least and the median of the repeats. Byte code is compiled
before, as it is in an installation.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def seconds(root: Path, table: Path, family: str, place: Path) -> float:
    """CPU time of a run of one cycle with the program of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "PYTHONPYCACHEPREFIX": str(place / "pyc")}
    environment |= {"MPIBAYES_RANKS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    (place / "run.toml").write_text(f'[data]\ntable = "{table.resolve()}"\n[model]\nfamily = "{family}"\n')
    source = [place / "run.toml"] if table.suffix == ".h5" else [table.resolve(), "--set", f"model.family={family}"]
    with tempfile.TemporaryDirectory(dir=place) as folder:
        words = ["run", *map(str, source), "-o", f"{folder}/run", "--set", "run.cycles=1", "--set", "run.chains=1"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "mpibayes", *words], env=environment, check=True, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    from machine import keep, markdown

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--families", nargs="*", default=["mixture", "crosscat"])
    parser.add_argument("--against", type=Path, help="another checkout, with its kernels built")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="keep the results in benchmarks/results")
    given = parser.parse_args()
    checkouts = ([given.against] if given.against else []) + [Path(__file__).resolve().parents[1]]
    names, lines = ["before", "now"][-len(checkouts) :], []
    with tempfile.TemporaryDirectory() as place:
        for table in given.tables:
            for family in given.families:
                runs = [
                    [seconds(root, table, family, Path(place)) for root in checkouts] for _ in range(1 + given.repeats)
                ]
                of_each = np.array(runs[1:])  # the first ones compiled
                lines.append(
                    [table.name, family, *(f"{x:.3g}" for x in (*of_each.min(axis=0), *np.median(of_each, axis=0)))]
                )
                print(*lines[-1], flush=True)
    head = ["table", "family", *(f"least {name}, s" for name in names), *(f"median {name}, s" for name in names)]
    shown = {"title": "From the command to the end of the first cycle, CPU seconds", "head": head, "lines": lines}
    print(f"\n{markdown(head, lines)}")
    if given.keep:
        command = f"python benchmarks/start.py TABLE ... --repeats {given.repeats}" + " --against OTHER" * bool(
            given.against
        )
        keep("start", "Start of a run on a small table", command, [shown])


if __name__ == "__main__":
    main()
