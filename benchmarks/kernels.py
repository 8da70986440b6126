"""The sampler's inner loops against the floor program, on one core, with the figures that were aimed at.

    python benchmarks/kernels.py [--only TEXT] [--quick] [--keep] [--no-runs]

Ours and the floor take turns on the same rows; seconds are CPU seconds of one thread, medians of the repeats with the
least and the most. Ours is the sweep as the sampler calls it: two shards, the one that is not collapsed; with
"collapsed", one shard whose clusters are all integrated out. The floor (floor.c) does the same arithmetic with nothing
around it: it is compiled for this processor with fused multiply-add, knows that no cell is missing, and draws with
xorshift. Ours score numbers in float64, without fused multiply-add, where the floor has float32. No sweep leaves out
clusters (docs/math.md 2.13), as those of some cases would.

A cell is one (row x column x cluster); clusters are counted as they are, not as they are padded. `must` and `aim` are
upper limits, lower ones for rows a second; `floor` beside them says how many times the floor is allowed.

Then: a whole cycle over its sweep at 1,000,000 x 68 (--no-runs leaves it out, and what follows), memory and start of a
real `mpibayes run` of that size, and the instruction sets in turns. --keep writes results/kernels.json and the README
there. About three minutes; --quick, with smaller tables and fewer repeats, one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import floor
import numpy as np
import whole_run
from joint import jointly
from machine import keep, machine, markdown

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.view import pruning
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.common.machine import ISA

ROWS = 20_000  # a shard of them is swept; a multiple of floor.c's blocks
CYCLES_BEFORE = 2  # not timed
MILLION = 1_000_000


@dataclass(frozen=True)
class Case:
    """What is timed, on which columns, and what it has to reach in `unit`."""

    name: str
    clusters: int
    codes: int = 0
    reals: int = 0
    counts: int = 0
    floor: str = "draw"  # floor.c's name of it
    collapsed: bool = False
    full: bool = False  # the reals are a block with a full covariance
    unit: str = "ns/cell"
    must: float | None = None
    aim: float | None = None
    must_floor: float | None = None
    aim_floor: float | None = None

    def figure(self, ns_per_row: float, clusters: int) -> float:
        """A time per row in the case's unit."""
        if self.unit == "M rows/s":
            return 1e3 / ns_per_row
        if self.unit == "ns/row":
            return ns_per_row
        cells = clusters if self.unit == "ns/(row x cluster)" else clusters * (self.codes + self.reals + self.counts)
        return ns_per_row / cells


CASES = (
    Case("categorical, K = 16", 16, codes=68, must=0.2, aim=0.12),
    Case("categorical, K = 20", 20, codes=68),
    Case("categorical, K = 64", 64, codes=68, must=0.12, aim=0.07, must_floor=2.0, aim_floor=1.2),
    Case("categorical, K = 256", 256, codes=68, must=0.12, aim=0.07),
    *(Case(f"categorical, collapsed, K = {k}", k, codes=68, floor="tail", collapsed=True, must=0.3, aim=0.1)
      for k in (16, 64, 256)),
    *(Case(f"real, D = {d}, K = {k}", k, reals=d, must=0.2, aim=0.08) for d in (10, 41) for k in (16, 64, 256)),
    *(Case(f"real, collapsed, D = {d}, K = 64", 64, reals=d, floor="student", collapsed=True) for d in (10, 41)),
    Case("count, Q = 10, K = 64", 64, counts=10),
    Case("counting levels, 68 columns, K = 64", 64, codes=68, floor="counts", unit="ns/row"),
    Case("33 categorical + 7 real, K = 64", 64, codes=33, reals=7, unit="M rows/s", must=1.5, aim=3.0),
    Case("full covariance, D = 10, K = 64", 64, reals=10, full=True, floor="full", unit="ns/(row x cluster)", must=10,
         aim=4),
)  # fmt: skip
ISA_CASES = ("categorical, K = 64", "categorical, collapsed, K = 64", "real, D = 10, K = 64")


def made(case: Case, n: int, seed: int = 1) -> floor.Clusters:
    """n rows drawn from well separated clusters."""
    rng = np.random.default_rng(seed)
    k, labels = case.clusters, rng.integers(case.clusters, size=n)
    log_theta, codes = [], np.empty((n, case.codes), np.uint8)
    for c, v in enumerate(rng.integers(2, 19, size=case.codes)):
        theta = rng.dirichlet(np.full(v, 0.5), size=k) + 1e-6
        theta /= theta.sum(axis=1, keepdims=True)
        log_theta.append(np.log(theta.T))
        for start in range(0, n, 100_000):
            part = slice(start, start + 100_000)
            u = rng.random(len(labels[part]))
            codes[part, c] = (u[:, None] > theta.cumsum(axis=1)[labels[part]]).sum(axis=1).clip(0, v - 1)
    location = rng.normal(0, 3, size=(case.reals, k))
    rate = rng.gamma(2.0, 5.0, size=(case.counts, k)) + 0.1
    off, precision = rng.normal(size=(n, case.reals)), None
    if case.full:
        factor = rng.normal(size=(k, case.reals, 2 * case.reals)) / np.sqrt(2 * case.reals)
        covariance = factor @ factor.transpose(0, 2, 1) + 0.05 * np.eye(case.reals)
        precision = np.linalg.inv(covariance)
        off = np.einsum("nab,nb->na", np.linalg.cholesky(covariance)[labels], off)
    return floor.Clusters(
        codes, location.T[labels] + off, rng.poisson(rate.T[labels]), labels, k, log_theta, location, rate, precision
    )


# --- ours ------------------------------------------------------------------------------------------------------------


class Watch:
    """Notes every call of the sweep: CPU seconds, rows, clusters, whether there is a collapsed tail."""

    def __init__(self):
        pruning.FAVOUR = np.inf
        self.calls: list[tuple[float, int, int, bool]] = []
        self._sweep = kernels.sweep
        kernels.sweep = self._timed

    def _timed(self, rows, z, *more, **options):
        held, tail = more[5], more[6]
        began = time.process_time()
        moved = self._sweep(rows, z, *more, **options)
        taken = time.process_time() - began
        clusters = (held.n if held is not None else 0) + (tail.n_occupied if tail is not None else 0)
        self.calls.append((taken, len(rows.codes8), clusters, tail is not None))
        return moved

    def take(self) -> list[tuple[float, int, int, bool]]:
        calls, self.calls = self.calls, []
        return calls

    def close(self) -> None:
        kernels.sweep = self._sweep


def chain(made: floor.Clusters, full: bool, **settings) -> Mixture:
    """A chain of ours that starts from the clusters the table was made from."""
    cells = [(f"c{i}", "categorical", x, [str(v) for v in range(len(t))])
             for i, (x, t) in enumerate(zip(made.codes.T.astype(np.int64), made.log_theta))]  # fmt: skip
    cells += [(f"r{i}", "real", x, None) for i, x in enumerate(made.reals.T)]
    cells += [(f"q{i}", "count", x, None) for i, x in enumerate(made.counts.T)]
    columns, rows = table_from_arrays(cells)
    if full:
        columns, rows, more = jointly(columns, rows)
        settings |= more
    settings = Settings(seed=1, concentration=0.01, **settings)
    mixture = Mixture(serial(), columns, lambda a, b: rows.take(slice(a, b)), len(rows), settings)
    mixture.start(made.labels.astype(np.int64))
    return mixture


class Ours:
    """One case: `turn` makes a cycle and returns ns a row of its sweep and the number of clusters."""

    def __init__(self, case: Case, made: floor.Clusters):
        self.case, self.watch = case, Watch()
        if case.collapsed:
            self.chain = chain(made, case.full, shards=1, opening="all", split_merge=0)
        else:
            self.chain = chain(made, case.full, shards=2, opening="one", split_merge=0)
        for _ in range(CYCLES_BEFORE):
            self.turn()

    def turn(self) -> tuple[float, int]:
        if self.case.floor == "counts":
            view = self.chain.view
            shard, z, offsets = view.shards[0], view.z[0], view.components.categorical.offsets
            began = time.process_time()
            kernels.accumulate(shard.rows, z, self.case.clusters, offsets)
            return 1e9 * (time.process_time() - began) / len(shard.rows), self.case.clusters
        self.chain.cycle()
        calls = [c for c in self.watch.take() if c[3] == self.case.collapsed]
        taken, rows, clusters, _ = calls[0]
        return 1e9 * taken / rows, clusters


# --- the cases -------------------------------------------------------------------------------------------------------


def compare(case: Case, program: Path, folder: Path, rows: int, repeats: int) -> dict:
    """Ours and the floor in turns, in the case's unit."""
    table = made(case, rows if case.collapsed else 2 * rows)
    floor.write_problem(table, folder / "problem")
    n, ours, theirs = len(table.labels), [], []
    sampler = Ours(case, table)
    for _ in range(repeats):
        ours.append(case.figure(*sampler.turn()))
        times, same = floor.seconds(program, case.floor, folder / "problem")
        if same < 0.9:
            raise SystemExit(f"{case.name}: the floor's labels agree with {same:.0%} of the rows' own: it is wrong")
        theirs.append(case.figure(1e9 * times[0] / n, case.clusters))
    sampler.watch.close()
    more = {"dgemm": dgemm(case, n, repeats)} if case.full else {}
    if case.floor == "draw":
        more["numpy"] = case.figure(numpy_loop(table), case.clusters)
        times, _ = floor.seconds(program, "scores", folder / "problem", repeats)
        more["floor_without_draw"] = [case.figure(1e9 * t / n, case.clusters) for t in times]
    return {"case": case.name, "unit": case.unit, "ours": ours, "floor": theirs, **more}


def dgemm(case: Case, n: int, repeats: int) -> list[float]:
    """The same quadratic forms as a product of matrices, without features and draw, by the BLAS that NumPy has."""
    d = case.reals * (case.reals + 3) // 2
    features, weights = np.random.default_rng(1).random((n, d)), np.random.default_rng(2).random((d, case.clusters))
    out, times = np.empty((n, case.clusters)), []
    for _ in range(repeats + 1):
        began = time.process_time()
        np.matmul(features, weights, out=out)
        times.append(case.figure(1e9 * (time.process_time() - began) / n, case.clusters))
    return times[1:]


def numpy_loop(table: floor.Clusters, rows: int = 2000) -> float:
    """ns a row of the same step in NumPy: all rows under one cluster after the other, draws by cumulative sums."""
    rng, x, times = np.random.default_rng(1), table.codes[:rows].T, []
    reals, counts = table.reals[:rows], table.counts[:rows]
    for _ in range(3):
        began = time.process_time()
        scores = np.empty((rows, table.n_clusters))
        for k in range(table.n_clusters):
            scores[:, k] = sum(t[:, k][codes] for t, codes in zip(table.log_theta, x))
            scores[:, k] -= 0.5 * ((reals - table.location[:, k]) ** 2).sum(axis=1)
            scores[:, k] += counts @ np.log(table.rate[:, k]) - table.rate[:, k].sum()
        weights = np.exp(scores - scores.max(axis=1, keepdims=True)).cumsum(axis=1)
        (weights > rng.random((rows, 1)) * weights[:, -1:]).argmax(axis=1)
        times.append(time.process_time() - began)
    return 1e9 * float(np.median(times)) / rows


def verdict(value: float, must: float | None, aim: float | None, more_is_better: bool = False) -> str:
    """What a figure reaches."""
    if must is None:
        return ""
    sign = -1 if more_is_better else 1
    return "aim" if sign * value <= sign * aim else "must" if sign * value <= sign * must else "**missed**"


def spread(values: list[float], digits: int = 3) -> str:
    """Median (least to most)."""
    return f"{np.median(values):.{digits}g} ({min(values):.{digits}g} to {max(values):.{digits}g})"


HEAD = ("case", "unit", "ours, median (least to most)", "floor", "ours / floor", "NumPy", "must", "aim", "reached")


def line(case: Case, result: dict) -> list[str]:
    ours, theirs = result["ours"], result["floor"]
    limits = [f"{x:g}" if x is not None else "" for x in (case.must, case.aim)]
    numpy_s = f"{result['numpy']:.3g}" if "numpy" in result else ""
    rate = case.unit == "M rows/s"
    value = float(np.median(ours))
    ratio = float(np.median(np.divide(theirs, ours) if rate else np.divide(ours, theirs)))
    reached = verdict(value, case.must, case.aim, rate)
    if case.must_floor is not None:
        limits[0] += f", {case.must_floor:g} x floor"
        limits[1] += f", {case.aim_floor:g} x floor"
        reached += f", floor: {verdict(ratio, case.must_floor, case.aim_floor)}"
    return [case.name, case.unit, spread(ours), spread(theirs), f"{ratio:.2f}", numpy_s, *limits, reached]


# --- a whole cycle ---------------------------------------------------------------------------------------------------


def whole_cycle(rows: int, cycles: int, moves: int | None) -> dict:
    """CPU seconds of cycles over those of their sweeps, 68 categorical columns, K = 64; moves as `split_merge`."""
    table = made(Case("", 64, codes=68), rows)
    watch = Watch()
    try:
        mixture = chain(table, False, split_merge=moves)
        for _ in range(CYCLES_BEFORE):
            mixture.cycle()
        watch.take()
        ratios, times, sweeps = [], [], []
        for _ in range(cycles):
            began = time.process_time()
            info = mixture.cycle()
            times.append(time.process_time() - began)
            sweeps.append(sum(c[0] for c in watch.take()))
            ratios.append(times[-1] / sweeps[-1])
    finally:
        watch.close()
    return {"rows": rows, "K": info.n_clusters, "cycle_s": times, "sweep_s": sweeps, "ratio": ratios}


# --- instruction sets ------------------------------------------------------------------------------------------------


def one_figure(name: str, rows: int, repeats: int) -> None:
    """In a process of its own, whose instruction set is given by the environment: prints the figures of a case."""
    case = next(c for c in CASES if c.name == name)
    sampler = Ours(case, made(case, rows if case.collapsed else 2 * rows))
    print(json.dumps([case.figure(*sampler.turn()) for _ in range(repeats)]))


def instruction_sets(rows: int, repeats: int) -> list[dict]:
    """Cases under each instruction set that this processor has, in turns."""
    sets = ["baseline", "avx2", "avx512"]
    sets = sets[: sets.index(ISA) + 1]
    result = []
    for name in ISA_CASES:
        figures = {isa: [] for isa in sets}
        for _ in range(3):
            for isa in sets:
                command = [sys.executable, __file__, "--one-figure", name, str(rows), str(repeats)]
                answer = subprocess.run(
                    command, check=True, capture_output=True, text=True, env=os.environ | {"MPIBAYES_ISA": isa}
                )
                figures[isa] += json.loads(answer.stdout)
        result.append({"case": name, **figures})
    return result


# --- the command -----------------------------------------------------------------------------------------------------


def show(table: dict) -> None:
    print(
        "",
        f"{table['title']}",
        "",
        markdown(table["head"], table["lines"]),
        "",
        table.get("note", ""),
        sep="\n",
        flush=True,
    )


def loops(options, folder: Path) -> tuple[dict, list[dict]]:
    program, lines, results = floor.compiled(folder), [], []
    repeats, rows = (5, ROWS // 2) if options.quick else (15, ROWS)
    for case in CASES:
        if options.only in case.name:
            results.append(compare(case, program, folder, rows, repeats))
            lines.append(line(case, results[-1]))
            print("#", *lines[-1], sep="  ", flush=True)
    note = "NumPy: all rows scored under one cluster after the other, draws by cumulative sums."
    scores = [r for r in results if r["case"].startswith("categorical, K") and "floor_without_draw" in r]
    if scores:
        each = ", ".join(f"{np.median(r['floor_without_draw']):.3g} at {r['case'].split(', ')[1]}" for r in scores)
        note += f" The floor's categorical scores without the draw: {each}."
    for result in results:
        if "dgemm" in result:
            note += (
                " The quadratic forms of the full covariances as one dgemm of NumPy's BLAS, without the draw: "
                f"{spread(result['dgemm'])} ns/(row x cluster)."
            )
    return {"title": "Loops against the floor", "head": HEAD, "lines": lines, "note": note}, results


def cycles_and_runs(options, folder: Path) -> tuple[dict, dict]:
    rows = MILLION // 10 if options.quick else MILLION
    cycles = 4 if options.quick else 6
    measured = {name: whole_cycle(rows, cycles, moves) for name, moves in (("no moves", 0), ("default moves", None))}
    measured["run"] = run = whole_run.measured(folder, rows, 68, cycles=12, repeats=1 if options.quick else 3)
    lines = []
    for name, moves in (("no moves", "no moves"), ("default moves", "with a round of moves, as in the first 100")):
        m = measured[name]
        what = f"a cycle over its sweep, {moves} ({np.median(m['cycle_s']):.3f} s, K = {m['K']})"
        limits = ["1.3", "1.1", verdict(float(np.median(m["ratio"])), 1.3, 1.1)] if name == "no moves" else ["", "", ""]
        lines.append([what, "ratio", spread(m["ratio"]), *limits])
    above, peak = run["bytes_per_row"], run["peak_mib"]
    lines += [
        ["memory above start-up", "bytes/row", f"{above:.1f}", "85", "75", verdict(above, 85, 75)],
        [f"memory, all in (start-up {run['start_mib']:.0f})", "MiB", f"{peak:.0f}", "190", "150",
         verdict(peak, 190, 150)],
        ["start of the process to the first draw (wall)", "s", spread(run["first_draw_wall_s"]), "5", "2",
         verdict(float(np.median(run["first_draw_wall_s"])), 5, 2)],
        [f"none of {', '.join(whole_run.NEVER)} imported", "", ", ".join(run["imported_though_useless"]) or "none",
         "none", "none", "**missed**" if run["imported_though_useless"] else "aim"],
    ]  # fmt: skip
    head = ("what", "unit", "ours, median (least to most)", "must", "aim", "reached")
    if rows < MILLION:
        lines = [[*cells[:-3], "", "", ""] for cells in lines]  # what has to be reached is said of a million rows
    return {"title": f"A cycle and a run, {rows:,} x 68 categorical, one rank", "head": head, "lines": lines}, measured


def isa_table(options) -> tuple[dict, list[dict]]:
    result = instruction_sets(ROWS // 2 if options.quick else ROWS, 3 if options.quick else 5)
    sets = [key for key in result[0] if key != "case"]
    lines = [[f["case"], *(spread(f[isa]) for isa in sets)] for f in result]
    title = "Instruction sets, ns/cell (MPIBAYES_ISA; the bits of the results are the same)"
    return {"title": title, "head": ["case", *sets], "lines": lines}, result


def main() -> None:
    if sys.argv[1:2] == ["--one-figure"]:
        return one_figure(sys.argv[2], *map(int, sys.argv[3:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases with this text in their name, and nothing else")
    parser.add_argument("--quick", action="store_true", help="smaller tables, fewer repeats")
    parser.add_argument("--keep", action="store_true", help="write results/kernels.json and results/README.md")
    parser.add_argument("--no-runs", action="store_true", help="the loops alone")
    options = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        if os.environ.get(name) != "1":  # read when NumPy is loaded: begin again
            os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
            os.execv(sys.executable, [sys.executable, *sys.argv])
    print(*(f"{k}: {v}" for k, v in machine().items()), sep="\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table, results = loops(options, folder)
        tables, measured = [table], {"loops": results}
        show(table)
        if not options.only and not options.no_runs:
            table, measured["runs"] = cycles_and_runs(options, folder / "runs")
            tables.append(table)
            show(table)
            table, measured["instruction_sets"] = isa_table(options)
            tables.append(table)
            show(table)
    if options.keep:
        command = "python benchmarks/kernels.py" + (" --quick" if options.quick else "")
        print(keep("kernels", "Kernels against the floor", command, tables, **measured))


if __name__ == "__main__":
    main()
