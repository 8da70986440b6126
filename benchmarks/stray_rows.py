"""Effective draws of the number of clusters with sweeps of the stray rows and without (docs/math.md 2.17).

    python benchmarks/stray_rows.py made [--rows 100000] [--shards 26] [--cycles 300] [--stray 0 auto] [--keep]
    python benchmarks/stray_rows.py income [--shards 4] [--cycles 600] [--stray 0 auto] [--keep]
    python benchmarks/stray_rows.py parts [--shards 4] [--cycles 600] [--stray 0]
    python benchmarks/stray_rows.py share [--rows 100000] [--shards 26] [--cycles 25]

made: a table of benchmarks/outcome.py with its outcome; income: 20,000 rows of census-income in views. Two chains, of
seeds 1 and 2, run by turns for each number of stray rows, in one process. A line has the mean and standard deviation of
K in both chains, its effective draws (ArviZ, bulk) a cycle and a CPU second, and its R-hat, of the cycles after a
fifth; R-hat of the number of clusters of one to three rows and of all others; and the CPU time of a cycle.

parts: one chain of the latter table, after 120 cycles: for each view the effective draws of its number of clusters of
one to three rows, and of all others, with their standard deviations, and how many rows were in the former.

share: in one chain, the expected number of rows that a sweep of all would put into new clusters, and the part of it
that falls to the 100, 300, 1,000, 3,000 and 10,000 most probable ones.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from machine import keep, markdown
from outcome import made, write
from public_tables import folder, imported

from mpibayes.hpc.crosscat import stray_rows
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.registry import family_of
from mpibayes.hpc.run.examine import examine
from mpibayes.io.table import write_table

ROWS, SMALL, SEEDS, BURN_IN = 20_000, 3, (1, 2), 5
SETTLING = 120  # cycles of `parts` before any counts
TOP = 100, 300, 1_000, 3_000, 10_000
INCOME = """
[data]
table = "t.h5"
heldout = "none"
[model]
family = "crosscat"
[run]
seed = 1
cycles = 1
burn_in = 0
"""


def chain(config: Path, given: argparse.Namespace, seed: int, stray: str):
    """A chain that has started."""
    of_run = f"shards = {given.shards}\ncycles = {given.cycles}\nburn_in = {given.cycles // BURN_IN}\n"
    of_sampler = "" if stray == "auto" else f"[sampler]\nstray_rows = {stray}\n"
    changed = config.with_name(f"{seed}-{stray}.toml")
    text = re.sub("seed = 1\ncycles = .*\nburn_in = .*\n", f"seed = {seed}\n{of_run}{of_sampler}", config.read_text())
    changed.write_text(text)
    of = examine(changed)
    family = family_of(of.config.kind)
    decided = {"stray_rows": family.decided(of.config, of.data.n_rows)["sampler"]["stray_rows"]}
    result = family(serial(), of.config, of.data).chain(of.config.changed("sampler", **decided), 0)
    result.start()
    return result


def table(place: Path, given: argparse.Namespace) -> Path:
    """The configuration of a table, both in a folder."""
    if given.table in ("made", "share"):
        return write(place, made(given.rows, 0, True), given.cycles)
    whole = imported(folder(given.data), "income", place)
    write_table(place / "t.h5", whole.columns, whole.read(0, ROWS))
    (place / "run.toml").write_text(INCOME)
    return place / "run.toml"


def k_of(mixture) -> tuple[int, int]:
    """Number of clusters in all views, of SMALL rows or fewer and of more."""
    sizes = np.concatenate([view.sizes() for view in mixture.views])
    return int((sizes <= SMALL).sum()), int((sizes > SMALL).sum())


def compared(given: argparse.Namespace) -> tuple[list[str], list[list[str]], dict]:
    import arviz

    warnings.simplefilter("ignore")
    lines, seen = [], {}
    with tempfile.TemporaryDirectory() as place:
        config = table(Path(place), given)
        chains = {(stray, seed): chain(config, given, seed, stray) for stray in given.stray for seed in SEEDS}
        k = {which: [] for which in chains}
        cpu = {which: [] for which in chains}
        for i in range(given.cycles):
            for which in np.roll(np.arange(len(chains)), i).tolist():
                key = list(chains)[which]
                began = time.process_time()
                chains[key].advance((0,), 1)
                cpu[key].append(time.process_time() - began)
                k[key].append(k_of(chains[key].mixture))
            if (i + 1) % 20 == 0:
                print(f"{i + 1} cycles, {time.process_time():.0f} CPU seconds", file=sys.stderr, flush=True)
        first = given.cycles // BURN_IN
        for stray in given.stray:
            n = len(chains[stray, SEEDS[0]].mixture.strays)
            both = np.array([k[stray, seed][first:] for seed in SEEDS], float)
            whole, s = both.sum(axis=2), np.array([cpu[stray, seed][first:] for seed in SEEDS])
            ess = float(arviz.ess(whole))
            each = [f"{of.mean():.1f} ± {of.std():.1f}" for of in whole]
            parts = [f"{float(arviz.rhat(both[:, :, j])):.2f}" for j in range(2)]
            lines.append([stray, n, *each, f"{ess / whole.size:.3f}", f"{ess / s.sum():.2f}",
                          f"{float(arviz.rhat(whole)):.2f}", *parts, f"{1e3 * np.median(s):.0f}"])  # fmt: skip
            seen[stray] = both
    head = ["stray_rows", "rows", "K, chain 1", "K, chain 2", "effective draws a cycle", "a CPU second", "R-hat of K",
            f"of K to {SMALL} rows", "of K above", "cycle, ms"]  # fmt: skip
    return head, lines, {"k": seen}


def parts(given: argparse.Namespace) -> None:
    import arviz

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as place:
        mixture = chain(table(Path(place), given), given, SEEDS[0], given.stray[0]).mixture
        seen, rows = {}, {}
        for i in range(given.cycles):
            mixture.cycle()
            for v, view in enumerate(mixture.views):
                if i >= SETTLING:
                    z = np.concatenate(view.z)
                    size = np.bincount(z)
                    seen.setdefault(v, []).append(((size <= SMALL).sum(), (size > SMALL).sum()))
                    rows.setdefault(v, set()).update(np.flatnonzero(size[z] <= SMALL).tolist())
    lines = []
    for v, of in seen.items():
        k = np.array(of, float)
        each = [
            cell for part in k.T for cell in (f"{part.mean():.1f} ± {part.std():.1f}", f"{float(arviz.ess(part)):.0f}")
        ]
        lines.append([v + 1, ", ".join(mixture.views[v].columns[:2]), *each, len(rows[v])])
    head = ["view", "columns", f"K to {SMALL} rows", "effective draws", f"K above {SMALL}", "effective draws", "rows"]
    print(f"{len(k)} cycles", markdown(head, lines), sep="\n\n")


def share(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as place:
        mixture = chain(table(Path(place), given), given, 1, "0").mixture
        for _ in range(given.cycles):
            mixture.cycle()
        stray_rows.SMALL = 0
        p = np.sort(np.concatenate(stray_rows._alone(mixture.views[0])))[::-1]
    parts = np.cumsum(p)[np.array(TOP) - 1] / p.sum()
    print(f"{p.sum():.2f} rows; of these {', '.join(f'{n:,}: {part:.2f}' for n, part in zip(TOP, parts))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["made", "income", "parts", "share"])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--shards", type=int)
    parser.add_argument("--cycles", type=int)
    parser.add_argument("--stray", nargs="+", default=["0", "auto"])
    parser.add_argument("--data")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    given.shards = given.shards or (4 if given.table in ("income", "parts") else 26)
    given.cycles = given.cycles or {"made": 300, "income": 600, "parts": 600, "share": 25}[given.table]
    if given.table in ("parts", "share"):
        return (parts if given.table == "parts" else share)(given)
    head, lines, measured = compared(given)
    rows = ROWS if given.table == "income" else given.rows
    name = "census-income in views" if given.table == "income" else "a made table with an outcome"
    title = f"Number of clusters of {name}: {rows:,} rows, {given.shards} shards, two chains of {given.cycles} cycles"
    note = f"The last {given.cycles - given.cycles // BURN_IN:,} cycles count."
    print(title, markdown(head, lines), note, sep="\n\n")
    if given.keep:
        of = f"Stray rows: {name}, {rows:,} rows, {given.shards} shards"
        command = "python benchmarks/stray_rows.py " + " ".join(sys.argv[1:])
        text = {"title": title, "head": head, "lines": lines, "note": note}
        keep(f"stray_rows_{given.table}_{rows}_{given.shards}", of, command, [text], **measured)


if __name__ == "__main__":
    main()
