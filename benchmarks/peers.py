"""Ours and other programs on the same tables, scored by one scorer from their labels alone.

    python -m venv peers && peers/bin/pip install -r benchmarks/peers.txt
    python benchmarks/peers.py --python peers/bin/python --out DIR [--data FOLDER] [--distributions FOLDER]
                               [--quick] [--only TABLE ...] [--keep]

Every program runs by itself, one after another, in a process with one thread (peer_program.py); the tables are those of
tables.py, the real ones from FOLDER (public_tables.py). Results are files of DIR/runs, written as they come; what is
there is not computed again. DIR/peers.md has the tables, DIR/peers.png the picture; --keep puts both into
benchmarks/results. About a quarter of an hour; --quick takes three minutes. A program that is not installed, or fails,
is left out with a word.

Shown are, at fixed budgets of CPU seconds, the held-out score (nats a row) and the adjusted Rand index against the
clusters a table was made from; clusters at the end; sweeps; ns a cell, the median over sweeps of the second half of
CPU time / (rows x columns x clusters at that time), all that a program does between two sweeps in it; peak memory, and
how much of it came on top of the loaded table. EM programs are told the number of clusters (20); the others find it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from machine import RESULTS, keep, markdown
from public_tables import folder
from scorer import adjusted_rand
from tables import PUBLIC, Comparison, table

OURS = "mpibayes"
LOOM = "loom's row step"
LOOM_HERE = f"{LOOM}, native"
PROGRAM = Path(__file__).with_name("peer_program.py")
NOT_RUN = (
    "Not run: loom as a whole (needs Python 2.7); bnpy 0.1.7 (calls functions that Python 3.11 no longer has); "
    "blackjax, whose samplers are numpyro's: with labels summed out, a leapfrog step costs a gradient of "
    "`numpyro, mode`, a hundred sweeps of the others, and chains do not pass between orders of the labels."
)
AHEAD = (  # program, what our sweep has to be ahead of its by, a cell, and what is in its figure
    (
        "lace slice",
        10.0,
        "lace's figure includes component parameters and hyperparameters, as our cycle without moves does; it has no "
        "split and merge moves.",
    ),
    (
        LOOM,
        8.0,
        "loom's figure is its row step alone, which compares with our sweep alone. It is built with its makers' flags "
        "(SSE4.1).",
    ),
    (LOOM_HERE, 8.0, "The same source, built for this processor (-march=native)."),
)


@dataclass(frozen=True)
class Plan:
    """Programs on a table, budgets in CPU seconds, seeds; or a fixed number of sweeps, for speed alone."""

    table: str
    programs: tuple[str, ...]
    marks: tuple[float, ...]
    seeds: tuple[int, ...] = (1,)
    sweeps: int | None = None


CODES = (OURS, "lace slice", "lace slice + sams", "StepMix")
GAUSS = (
    OURS,
    "mpibayes, full",
    "scikit-learn EM, full",
    "scikit-learn VB, full",
    "scikit-learn EM, diagonal",
    "lace slice",
)
PLANS = (
    Plan("cat_10k", (*CODES, LOOM, LOOM_HERE, "lace Gibbs", "numpyro, mode"), (3.0, 10.0, 30.0)),
    Plan("weak_10k", (*CODES, LOOM, LOOM_HERE), (3.0, 10.0, 30.0)),
    Plan("cat_100k", (*CODES, LOOM, LOOM_HERE), (10.0, 30.0)),
    Plan("real_10k", (*GAUSS, "numpyro, mode"), (1.0, 3.0, 10.0)),
    Plan("real_100k", GAUSS, (3.0, 10.0)),
    Plan("income_20k", CODES, (3.0, 10.0, 30.0)),
    Plan("kdd_20k", CODES, (3.0, 10.0, 30.0)),
    Plan("many_100k", (OURS, "lace slice", LOOM, LOOM_HERE), (60.0,), sweeps=40),
    Plan("cat_1m", (OURS, "lace slice", LOOM, LOOM_HERE), (120.0,), sweeps=25),
)
QUICK = (
    Plan("cat_10k", CODES, (1.0, 3.0, 10.0)),
    Plan("real_10k", GAUSS, (1.0, 3.0)),
    Plan("cat_100k", (OURS, "lace slice", LOOM), (20.0,), sweeps=30),
    Plan("income_20k", CODES, (3.0, 10.0)),
)


# --- one run ---------------------------------------------------------------------------------------------------------


def run(plan: Plan, program: str, seed: int, found: Comparison, given: argparse.Namespace) -> dict | str:
    """What was measured, from its file where there is one; or why nothing was."""
    budget = "_".join(f"{m:g}" for m in plan.marks) + (f"x{plan.sweeps}" if plan.sweeps else "")
    path = given.out / "runs" / f"{plan.table}.{program.replace(' ', '-')}.{seed}.{budget}.json"
    if not path.exists():
        needs_nothing = program.split(",")[0] in (OURS, LOOM)
        interpreter = sys.executable if needs_nothing else given.python
        if interpreter is None:
            return "no --python was given"
        if program.startswith(LOOM) and given.distributions is None:
            return "no --distributions was given"
        path.parent.mkdir(parents=True, exist_ok=True)
        command = [interpreter, str(PROGRAM), program, str(found.path), str(path), "--seed", str(seed), "--marks"]
        command += [f"{m:g}" for m in plan.marks] + (["--sweeps", str(plan.sweeps)] if plan.sweeps else [])
        command += ["--distributions", given.distributions] if program.startswith(LOOM) else []
        print(f"# {plan.table}: {program}, seed {seed}", flush=True)
        patience_s = 300.0 + 5.0 * plan.marks[-1]  # wall clock: one that hangs does not hang the others
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s)
        except subprocess.TimeoutExpired:
            return f"not through after {patience_s:g} s"
        if done.returncode:
            return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    result = json.loads(path.read_text())
    with np.load(path.with_suffix(".npz"), allow_pickle=True) as arrays:
        at_marks = [arrays[f"labels_{i}"] for i in range(len(plan.marks))]
    at_marks = [z if z.ndim else None for z in at_marks]  # None: not one sweep within the budget
    result["scores"] = [None if z is None else found.score(z) for z in at_marks]
    result["agreement"] = [None if z is None or not len(found.z) else adjusted_rand(found.z, z) for z in at_marks]
    result |= {
        "table": plan.table,
        "seed": seed,
        "marks": plan.marks,
        "rows": len(found.x),
        "columns": found.x.shape[1],
    }
    result["ns_cell"] = ns_cell(result, np.diff(result["seconds"], prepend=0.0))
    if "sweep_seconds" in result:
        taken = np.diff(result["seconds"], prepend=0.0)
        parts = {name: np.array(result[name][: len(taken)]) for name in ("sweep_seconds", "move_seconds")}
        result["ns_cell_sweep"] = ns_cell(result, parts["sweep_seconds"])
        result["ns_cell_without_moves"] = ns_cell(result, taken - parts["move_seconds"])
    return result


def ns_cell(result: dict, seconds: np.ndarray) -> float | None:
    """Median over the second half of the sweeps; None where there are fewer than three."""
    clusters = np.array(result["clusters"])
    n = min(len(seconds), len(clusters))
    if n < 3:
        return None
    cells = result["rows"] * result["columns"] * clusters[n // 2 : n]
    return float(np.median(1e9 * seconds[n // 2 : n] / cells))


# --- tables ----------------------------------------------------------------------------------------------------------


def shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def as_table(plan: Plan, found: Comparison, results: list[dict | str], programs: list[str]) -> dict:
    known = len(found.z) > 0
    head = ["program", *(f"score, {m:g} s" for m in plan.marks)]
    head += [f"ARI, {m:g} s" for m in plan.marks] if known else []
    head += ["K", "sweeps", "ns/cell", "sweep alone", "peak MiB (above the table)"]
    lines = []
    for program, result in zip(programs, results):
        if isinstance(result, str):
            lines.append([program, f"left out: {result}", *[""] * (len(head) - 2)])
            continue
        cells = [program, *(shown(s, ".3f") for s in result["scores"])]
        cells += [shown(a, ".3f") for a in result["agreement"]] if known else []
        cells += [result["clusters"][-1], len(result["seconds"]), shown(result["ns_cell"], ".3g")]
        cells += [shown(result.get("ns_cell_sweep"), ".3g")]
        cells += [f"{result['peak_mib']:.0f} ({result['peak_mib'] - result['before_mib']:.0f})"]
        lines.append(cells)
    if known:
        lines.append(["the true clusters", shown(found.score(found.z), ".3f"), *[""] * (len(head) - 2)])
    title = f"{plan.table}: {found.x.shape[0]:,} x {found.x.shape[1]} {'categorical' if found.levels else 'real'}"
    return {"title": title, "head": head, "lines": lines}


def ahead(results: list[dict], program: str, times: float, note: str) -> dict:
    """Our sweep and our whole cycle against another program's, on the same table."""
    lines = []
    for theirs in (r for r in results if r["program"] == program):
        ours = next((r for r in results if r["program"] == OURS and r["table"] == theirs["table"]), None)
        if ours is None or None in (ours["ns_cell"], theirs["ns_cell"]):
            continue
        figures = [ours[name] for name in ("ns_cell_sweep", "ns_cell_without_moves", "ns_cell")]
        reached = "yes" if theirs["ns_cell"] >= times * figures[0] else "**no**"
        cells = [f"{x:.3g} ({theirs['ns_cell'] / x:.1f})" for x in figures]
        lines.append([theirs["table"], f"{theirs['ns_cell']:.3g}", *cells, reached])
    head = ["table", f"{program}, ns/cell", "our sweep (times ahead)", "our cycle without moves", "our whole cycle"]
    head += [f"{times:g} x ahead"]
    return {"title": f"Ahead of {program}", "head": head, "lines": lines, "note": note}


def in_short(result: dict) -> dict:
    """A result without what it has of every sweep, which stays in DIR/runs."""
    every_sweep = ("seconds", "clusters", "sweep_seconds", "move_seconds")
    short = {key: value for key, value in result.items() if key not in every_sweep}
    return short | {"sweeps": len(result["seconds"]), "cpu_s": result["seconds"][-1], "K": result["clusters"][-1]}


def picture(plans: list[Plan], results: list[dict], path: Path) -> None:
    """Held-out score against the budget, one panel a table; ns a cell in the last."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    plans = [p for p in plans if len(p.marks) > 1]
    width = min(4, len(plans) + 1)
    height = -(-(len(plans) + 1) // width)
    figure, axes = plt.subplots(height, width, figsize=(4 * width, 3.2 * height), squeeze=False, layout="constrained")
    names = list(dict.fromkeys(r["program"] for r in results))
    colors = [*plt.cm.tab10.colors, "black", "gold", "navy"]
    looks = {name: {"color": colors[i % len(colors)], "marker": "osDv^<>"[i % 7]} for i, name in enumerate(names)}
    for axis, plan in zip(axes.flat, plans):
        shown = [r for r in results if r["table"] == plan.table]
        for r in shown:
            points = [(m, s) for m, s in zip(r["marks"], r["scores"]) if s is not None]
            axis.plot(*zip(*points), **looks[r["program"]]) if points else None
        axis.set(title=plan.table, xscale="log", xlabel="CPU seconds", ylabel="held-out score, nats a row")
        axis.set_xticks(plan.marks, [f"{mark:g}" for mark in plan.marks])
        axis.minorticks_off()
    last = axes.flat[len(plans)]
    speed = [r for r in results if r["ns_cell"] is not None]
    for name in names:
        values = [r["ns_cell"] for r in speed if r["program"] == name]
        last.plot(values, [name] * len(values), linestyle="none", **looks[name])
    last.set(title="a sweep and what is between two", xscale="log", xlabel="ns a cell, one point a table")
    for axis in axes.flat[len(plans) + 1 :]:
        axis.axis("off")
    keys = [plt.Line2D([], [], label=name, **look) for name, look in looks.items()]
    figure.legend(handles=keys, loc="outside lower center", ncols=min(6, len(keys)))
    figure.savefig(path, dpi=110)


# --- the command -----------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="interpreter of the environment with the other programs")
    parser.add_argument("--out", type=Path, required=True, help="folder of tables, runs and what is made of them")
    parser.add_argument("--data", help="folder of public tables (default: $MPIBAYES_DATA; without one none are used)")
    parser.add_argument("--distributions", help=f"unpacked sources of distributions 2.2.1 (default: without {LOOM})")
    parser.add_argument("--only", nargs="+", help="these tables")
    parser.add_argument("--programs", nargs="+", help="these programs")
    parser.add_argument("--quick", action="store_true", help="fewer tables, smaller budgets")
    parser.add_argument("--keep", action="store_true", help="write results/peers.json, peers.png and the README there")
    given = parser.parse_args()
    plans = [p for p in (QUICK if given.quick else PLANS) if not given.only or p.table in given.only]
    data = None
    try:
        data = folder(given.data)
    except SystemExit as reason:
        left_out = [p.table for p in plans if p.table in PUBLIC]
        if left_out:
            print(f"# without {', '.join(left_out)}: {reason}")
        plans = [p for p in plans if p.table not in PUBLIC]
    tables, results = [], []
    for plan in plans:
        result = table(plan.table, given.out / "tables", data)
        tasks = [(p, s) for p in plan.programs if not given.programs or p in given.programs for s in plan.seeds]
        here = [run(plan, program, seed, result, given) for program, seed in tasks]
        tables.append(as_table(plan, result, here, [p for p, _ in tasks]))
        results += [r for r in here if not isinstance(r, str)]
        print("", tables[-1]["title"], "", markdown(tables[-1]["head"], tables[-1]["lines"]), sep="\n", flush=True)
    compared = [ahead(results, *which) for which in AHEAD]
    compared = [t for t in compared if t["lines"]]
    for t in compared:
        print("", t["title"], "", markdown(t["head"], t["lines"]), "", t["note"], sep="\n")
    print("", NOT_RUN, sep="\n")
    if compared:
        compared[-1]["note"] += f"\n\n{NOT_RUN}"
    tables = compared + tables
    parts = [f"## {t['title']}\n\n{markdown(t['head'], t['lines'])}\n\n{t.get('note', '')}" for t in tables]
    (given.out / "peers.md").write_text("\n\n".join(parts) + "\n")
    picture(plans, results, given.out / "peers.png")
    if given.keep:
        picture(plans, results, RESULTS / "peers.png")
        versions = {k: v for r in results for k, v in r["versions"].items()}
        command = "python benchmarks/peers.py --python PYTHON --out DIR --data FOLDER" + " --quick" * given.quick
        command += " --distributions FOLDER" if given.distributions else ""
        print(keep("peers", "Ours and other programs", command, tables, versions=versions, pictures=["peers.png"],
                   runs=[in_short(r) for r in results]))  # fmt: skip


if __name__ == "__main__":
    main()
