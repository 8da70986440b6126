"""How a cycle's cost grows with rows, clusters, columns, levels and ranks; and the cost model fitted to it.

    python benchmarks/scaling.py case --rows 500000 --clusters 64            one case, printed
    mpirun -n 2 python benchmarks/scaling.py case --rows 500000 --clusters 64
    python benchmarks/scaling.py measure             all cases, into benchmarks/results/scaling.json
    python benchmarks/scaling.py fit                 the constants of hpc/crosscat/cost/cost_constants.py from that file
    python benchmarks/scaling.py doc                 tables and pictures of benchmarks/scaling.md from that file

Every case starts from the true labels of a simulated table and times cycles of the sampler itself.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

sys.path.insert(0, str(Path(__file__).parent))
from crowd import Crowd, quiet_seed
from machine import keep, kept, markdown, peak_mib
from phases import PHASES, Stopwatch

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.cost.cost_model import COMPUTE, Problem, compute_seconds, features, forecast
from mpibayes.hpc.parallel import comm as communicators
from mpibayes.hpc.parallel import shards as cut
from mpibayes.hpc.parallel.collapse import private_clusters
from mpibayes.hpc.synthetic.truth import Shape, Truth, categorical_columns, census
from mpibayes.io.rows import summarise

LATE = 1000  # the cycle from which a case goes on: moves are then as rare as they become
WARM_UP = 2


def truth_of(args) -> Truth:
    if args.levels == "census":
        pool = census()
        columns = [(f"{pool[i % len(pool)][0]}_{i}", pool[i % len(pool)][1]) for i in range(args.columns)]
    else:
        v = int(args.levels)
        columns = categorical_columns(args.columns, v, v, 1)
    return Truth(Shape(columns, args.reals, args.counts, args.clusters, separation=args.separation), seed=1)


def peak_bytes() -> int:
    return int(peak_mib() * 2**20)


def _digest(laps: list[tuple[float, float]]) -> dict[str, float]:
    """Of a phase's (wall, processor) seconds in each cycle."""
    wall, cpu = np.array(laps).T
    result = {"wall": np.median(wall), "cpu": np.median(cpu), "mean": cpu.mean(), "sd": cpu.std()}
    return {name: float(f"{seconds:.4g}") for name, seconds in result.items()}


def run_case(args) -> dict | None:
    """Time `--cycles` cycles from the true labels; the figures of all ranks, on root."""
    comm = Crowd(args.crowd, args.rank) if args.crowd else communicators.world()
    watch = Stopwatch()
    truth = truth_of(args)
    idle = peak_bytes()
    moves = None if args.moves < 0 else args.moves
    seed = 1
    if args.crowd:
        n_shards = args.shards or cut.default_count(args.rows)
        seed = quiet_seed(comm, n_shards, range(LATE, LATE + WARM_UP + args.cycles + 2))
    settings = Settings(seed=seed, shards=args.shards or None, split_merge=moves, concentration=1.0)
    columns = summarise(truth.columns, [truth.rows(0, 10_000)])  # priors look at means and scales
    mixture = Mixture(comm, columns, truth.rows, args.rows, settings)
    bounds = cut.bounds(args.rows, mixture.n_shards)
    view = mixture.view
    view.resume(lambda i: truth.labels(int(bounds[i]), int(bounds[i + 1])), args.clusters, view.hyper)
    mixture.resume(LATE)
    for _ in range(WARM_UP):
        mixture.cycle()
    watch.wrap()
    watch.watch(comm)
    watch.lap()
    laps, moved, instantiated, n_clusters = [], [], [], 0
    for _ in range(args.cycles):
        instantiated.append((~private_clusters(view.partition.size, view.partition.owned)).sum())
        info = mixture.cycle()
        laps.append(watch.lap())
        moved.append(info.moved_fraction)
        n_clusters = info.n_clusters
    mine = {
        "phases": {p: _digest([lap.get(p, (0.0, 0.0)) for lap in laps]) for p in PHASES},
        "idle_bytes": idle,
        "peak_bytes": peak_bytes(),
        "bytes": {name: n / args.cycles for name, n in watch.bytes.items() if n},
        "shards": len(mixture.shards),
    }
    everyone = comm.collect(mine)
    wall = np.array(comm.collect([sum(seconds[0] for seconds in lap.values()) for lap in laps]))
    if comm.rank and not args.crowd:
        return None
    return {
        "rows": args.rows, "columns": args.columns, "level_rows": int(view.components.categorical.offsets[-1]),
        "reals": args.reals, "counts": args.counts, "clusters": args.clusters, "clusters_at_end": n_clusters,
        "instantiated": int(np.median(instantiated)),
        "levels": args.levels, "ranks": 1 if args.crowd else comm.size, "crowd": args.crowd, "rank": args.rank,
        "shards": mixture.n_shards, "moves": args.moves,
        "cycle_s": float(np.median(wall.max(axis=0))), "cycle_min_s": float(wall.max(axis=0).min()),
        "moved": float(np.mean(moved)), "absent": watch.absent, "ranks_detail": everyone,
    }  # fmt: skip


def show(case: dict, phases: bool = True) -> None:
    first = case["ranks_detail"][0]
    print(
        f"N={case['rows']:,} C={case['columns']} L={case['level_rows']} K={case['clusters_at_end']} S={case['shards']} "
        f"ranks={case['ranks']}: {case['cycle_s'] * 1e3:.2f} ms a cycle (min {case['cycle_min_s'] * 1e3:.2f}), "
        f"moved {case['moved']:.3f}",
        flush=True,
    )
    if not phases:
        return
    for phase in PHASES:
        cells = []
        for rank in case["ranks_detail"]:
            ms = {name: s * 1e3 for name, s in rank["phases"][phase].items()}
            cells.append(f"{ms['wall']:9.3f} wall {ms['cpu']:9.3f} cpu {ms['mean']:9.3f} mean cpu")
        print(f"  {phase:16s}", " | ".join(cells))
    print("  bytes a cycle", first["bytes"], "peak MiB", first["peak_bytes"] >> 20, "idle", first["idle_bytes"] >> 20)
    if case["absent"]:
        print("  not found:", case["absent"])


def add_case_options(parser) -> None:
    parser.add_argument("--rows", type=float, default=500_000)
    parser.add_argument("--clusters", type=int, default=64)
    parser.add_argument("--columns", type=int, default=68)
    parser.add_argument("--levels", default="census", help="of every column, or the census's pattern")
    parser.add_argument("--reals", type=int, default=0)
    parser.add_argument("--counts", type=int, default=0)
    parser.add_argument("--separation", type=float, default=0.3, help="of the clusters, see mpibayes simulate -h")
    parser.add_argument("--shards", type=int, default=0, help="0: the default for the rows")
    parser.add_argument("--moves", type=int, default=0, help="cycles between rounds, 0 none, -1 the default")
    parser.add_argument("--cycles", type=int, default=8)
    parser.add_argument("--crowd", type=int, default=0, help="one rank among so many that are not there")
    parser.add_argument("--rank", type=int, default=1, help="which of them")
    parser.add_argument("--json", action="store_true")


# --- many cases ------------------------------------------------------------------------------------------------------

REPEATS = 7  # of the cases that efficiencies are made of:
REPEATED = ("strong", "weak")


def cases() -> list[tuple[str, int, dict]]:
    """(figure, ranks, options) of every case."""
    small = {"rows": 100_000, "shards": 2, "cycles": 5}
    result = []
    for _ in range(REPEATS):
        for ranks in (1, 2):
            result.append(("strong", ranks, {"rows": 500_000}))
            result.append(("weak", ranks, {"rows": 250_000 * ranks}))
    result.append(("oversubscribed", 4, {"rows": 500_000}))
    result += [("rows", 1, {"rows": n, "cycles": 5}) for n in (10_000, 30_000, 100_000, 300_000, 1_000_000)]
    result.append(("rows", 1, {"rows": 2_458_285, "cycles": 3}))
    result += [("clusters", 1, small | {"clusters": k}) for k in (4, 16, 32, 64, 128, 256, 512, 1024)]
    result += [("columns", 1, small | {"columns": c}) for c in (10, 34, 68, 136, 272, 500)]
    result += [("levels", 1, small | {"columns": 10, "levels": v}) for v in (2, 18, 255, 2_000, 20_000, 65_535)]
    result += [("shards", 1, {"rows": 500_000, "shards": s, "cycles": 5}) for s in (5, 50, 500)]
    result += [("moved", 1, small | {"separation": s}) for s in (0.05, 0.1, 1.0)]
    result += [
        ("reals", 1, small | {"columns": 0, "reals": r, "clusters": k, "separation": 1})
        for r, k in ((10, 64), (40, 64), (10, 256))
    ]
    result += [("counts", 1, small | {"columns": 0, "counts": q, "separation": 3}) for q in (10, 40)]
    result += [("mixed", 1, small | {"columns": 33, "reals": 7})]
    for n, k, c in ((50_000, 64, 68), (200_000, 64, 68), (50_000, 16, 68), (50_000, 256, 68), (50_000, 64, 272)):
        result.append(("moves", 1, {"rows": n, "clusters": k, "columns": c, "cycles": 4, "moves": 1}))
    result.append(("moves", 2, {"rows": 200_000, "cycles": 4, "moves": 1}))
    for ranks in (16, 64, 256, 1000, 4096):  # a shard a rank
        for rank in (0, 1):
            result.append(
                ("crowd", 1, {"rows": 50_000 * ranks, "crowd": ranks, "rank": rank, "shards": ranks, "cycles": 5})
            )
    result.append(
        ("crowd", 1, {"rows": 10**9, "crowd": 1000, "rank": 1, "shards": 20_000, "clusters": 256, "cycles": 3})
    )
    return result


def measure(only: str | None, quick: bool) -> None:
    """Run the cases one after another, and keep what they say."""
    results = [] if only is None else [c for c in kept()["scaling"]["cases"] if c["figure"] not in only.split(",")]
    for figure, ranks, options in cases():
        if only is not None and figure not in only.split(","):
            continue
        if quick and options["rows"] > 300_000 and figure != "crowd":
            continue
        words = [sys.executable, __file__, "case", "--json"]
        words += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        if ranks > 1:
            words = ["mpirun", "-n", str(ranks), *words]
        done = subprocess.run(words, capture_output=True, text=True, timeout=600)
        if done.returncode:
            sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
        case = json.loads(done.stdout.splitlines()[-1]) | {"figure": figure}
        results.append(case)
        print(f"{figure}:", end=" ")
        show(case, phases=False)
    note = "Tables and pictures of these runs: [benchmarks/scaling.md](../scaling.md)."
    keep("scaling", "Seconds a cycle", "python benchmarks/scaling.py measure", [], note=note, cases=results)


def phase_seconds(case: dict) -> dict[str, float]:
    """Processor seconds a cycle by phase, of the rank that spent most; a round's mean for moves."""
    result = {}
    for phase in PHASES:
        middle = "mean" if phase == "moves" else "cpu"
        result[phase] = max(rank["phases"][phase][middle] for rank in case["ranks_detail"])
    return result


# --- the cost model's constants --------------------------------------------------------------------------------------


def problem_of(case: dict) -> Problem:
    """The case as the cost model sees it; a tail's clusters, one or two, are left out, for they take no lane."""
    return Problem(
        case["rows"], case["columns"], case["level_rows"], case["instantiated"], case["shards"], case["reals"],
        case["counts"], moved=case["moved"],
    )  # fmt: skip


def parts_of(case: dict, phase: str) -> tuple[float, float, float]:
    """Processor seconds of a phase in a case on one rank, and the rows and shards that it went through."""
    seconds, rows, shards = phase_seconds(case), case["rows"], case["shards"]
    shard = rows / shards
    if phase == "sweep":
        return seconds["sweep"], rows - shard, shards - 1
    if phase == "collapsed shard":
        return seconds["collapsed sweep"] - seconds["sweep"] * shard / max(rows - shard, 1.0), shard, 1
    return seconds[phase], rows, shards


def knows(case: dict, phase: str) -> bool:
    """Whether a case says what the phase costs."""
    if phase == "moves":
        return case["moves"] == 1
    return phase not in ("sweep", "collapsed shard") or case["shards"] > 1


def once(found: list[dict]) -> list[dict]:
    """The cases, of one that was repeated the run of median time."""
    runs: dict = {}
    for i, case in enumerate(found):
        runs.setdefault((case["figure"], case["ranks"]) if case["figure"] in REPEATED else i, []).append(case)
    return [sorted(of_one, key=lambda c: c["cycle_s"])[len(of_one) // 2] for of_one in runs.values()]


def fit() -> None:
    """Non-negative least squares of relative errors, a phase at a time, over the cases on one rank. What the collapsed
    shard costs more is a difference, so its error is taken relative to that shard's whole sweep."""
    result = {}
    alone = [c for c in once(kept()["scaling"]["cases"]) if c["ranks"] == 1 and not c["crowd"]]
    for phase in COMPUTE:
        rows, times = [], []
        for case in (c for c in alone if knows(c, phase)):
            seconds, n, shards = parts_of(case, phase)
            scale = phase_seconds(case)["collapsed sweep"] if phase == "collapsed shard" else seconds
            if scale > 0:
                rows.append({name: x / scale for name, x in features(phase, problem_of(case), n, shards).items()})
                times.append(seconds / scale)
        names = list(rows[0])
        design = np.array([[row[name] for name in names] for row in rows])
        unit = np.maximum(np.abs(design).max(axis=0), 1e-300)
        best = nnls(design / unit, np.array(times))[0] / unit
        off = design @ best - times
        result[phase] = {name: float(f"{b:.4g}") for name, b in zip(names, best) if b > 0}
        print(f"{phase:16s} off by {np.median(np.abs(off)):.0%}, at most {np.abs(off).max():.0%}", result[phase])
    result["crowd"] = _crowd_constants(result)
    print(f"{'crowd':16s}", result["crowd"])
    m = kept()["scaling"]["machine"]
    about = f"{m['processor']}, {m['cores']} cores, kernels {m['instruction_set']}"
    text = CONSTANTS.replace("ABOUT", f"{about}, {kept()['scaling']['date']}, commit {kept()['scaling']['commit']}")
    for phase, table in result.items():
        text += f'    "{phase}": {{\n' + "".join(f'        "{n}": {b!r},\n' for n, b in table.items()) + "    },\n"
    path = Path(__file__).resolve().parent.parent / "hpc" / "crosscat" / "cost" / "cost_constants.py"
    path.write_text(text + "}\n")


def _crowd_constants(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """What is left on one rank among many when what does not know of the others is taken away."""
    rows, times = [], []
    for case in kept()["scaling"]["cases"]:
        if not case["crowd"]:
            continue
        problem, ranks = problem_of(case), case["crowd"]
        mine = case["rows"] / ranks, case["ranks_detail"][0]["shards"]
        spent = phase_seconds(case)
        left = sum(spent[phase] for phase in ("order", "reduction", "log joint", "other", "broadcast"))
        for phase in ("order", "reduction", "other"):
            x = features(phase, problem, *mine)
            left -= sum(found[phase].get(name, 0.0) * value for name, value in x.items())
        rows.append([ranks, case["shards"]])
        times.append(max(left, 0.0))
    best = nnls(np.array(rows, float), np.array(times))[0]
    return {name: float(f"{b:.4g}") for name, b in zip(("rank", "shard"), best)}


CONSTANTS = '''"""Seconds of one processor for each count in `cost_model.features`.

Written by `benchmarks/scaling.py fit`, not to be edited: measure and fit again on a machine whose figures matter more.
These are of ABOUT.
"""

SECONDS: dict[str, dict[str, float]] = {
'''


# --- benchmarks/scaling.md -------------------------------------------------------------------------------------------

PAGE = Path(__file__).resolve().parent / "scaling.md"
GROWTH = {
    "rows": ("rows", "rows"), "clusters": ("clusters_at_end", "clusters"), "columns": ("columns", "columns"),
    "levels": ("level_rows", "levels in all, 10 columns"),
}  # fmt: skip


def doc() -> None:
    """Write the figures and pictures of benchmarks/scaling.md anew, from what is kept."""
    import simulate_ranks

    result = kept()["scaling"]
    results, spread = result["cases"], simulate_ranks.Spread.measured(once(result["cases"]))
    m = result["machine"]
    page = PAGE.read_text()
    for name, text in {
        "machine": f"{m['processor']}, {m['cores']} cores, kernels {m['instruction_set']}, {m['python']}, load "
        f"{m['load']} at the end;\n{result['date']}, commit {result['commit']}.",
        "efficiency": efficiency_table(results),
        "growth": growth_table(results),
        "model": model_table(results),
        "real": simulate_ranks.against_real(results, spread, m["cores"]),
        "spread": f"{spread.sweep:.1%}",
        "ranks": simulate_ranks.report(spread, moves_every=0),
        "moves": moves_table(results),
    }.items():
        page = filled(page, name, text)
    PAGE.write_text(page)
    print(PAGE, growth_picture(results), *simulate_ranks.pictures(spread, 0), sep="\n")


def filled(page: str, name: str, text: str) -> str:
    """The page with `text` between the comments that `name` marks; on lines of its own if it has several."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if start not in page or end not in page:
        raise ValueError(f"{PAGE}: no place for {name}")
    gap = "\n\n" if "\n" in text else ""
    return page[: page.index(start) + len(start)] + gap + text.strip() + gap + page[page.index(end) :]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f}"


def efficiency_table(found: list[dict]) -> str:
    lines = []
    for figure, words in (("strong", "500,000 rows in all"), ("weak", "250,000 rows a rank")):
        best = {
            r: (np.median([c["cycle_s"] for c in group]), min(c["cycle_min_s"] for c in group))
            for r in (1, 2)
            if (group := [c for c in found if c["figure"] == figure and c["ranks"] == r])
        }
        if len(best) < 2:
            continue
        share = 2 if figure == "strong" else 1
        quick, middle = (best[1][i] / best[2][i] / share for i in (1, 0))
        busy = {r: min(busy_seconds(c) for c in found if c["figure"] == figure and c["ranks"] == r) for r in (1, 2)}
        cells = [f"{_ms(best[r][0])} ({_ms(best[r][1])})" for r in (1, 2)]
        cells += [f"{middle:.0%} ({quick:.0%})", f"{busy[1] / busy[2] / share:.0%}"]
        lines.append([f"{figure}: {words}", *cells])
    head = ["", "1 rank, ms a cycle: median (quickest)", "2 ranks", "efficiency", "of processor seconds"]
    return markdown(head, lines)


def busy_seconds(case: dict) -> float:
    """Processor seconds a cycle of the busiest rank, without those it waits for others."""
    phases = [phase for phase in PHASES if phase != "waiting"]
    return max(sum(rank["phases"][phase]["cpu"] for phase in phases) for rank in case["ranks_detail"])


VARIED = {
    "rows": "rows", "clusters": "clusters", "columns": "columns", "levels": "levels", "shards": "shards",
    "moved": "overlap of clusters", "reals": "real columns", "counts": "count columns", "mixed": "mixed columns",
}  # fmt: skip


def growth_table(found: list[dict]) -> str:
    """The first and the last of the cases in the picture; all of the others."""
    lines = []
    for figure, words in VARIED.items():
        of_one = [c for c in found if c["figure"] == figure]
        for case in [of_one[0], of_one[-1]] if figure in GROWTH else of_one:
            seconds = phase_seconds(case)
            swept = seconds["sweep"] + seconds["collapsed sweep"]
            kinds = (("columns", ""), ("reals", " real"), ("counts", " counts"))
            columns = ", ".join(f"{case[kind]}{word}" for kind, word in kinds if case[kind])
            head = [words, f"{case['rows']:,}", columns, f"{case['level_rows']:,}"]
            head += [case["clusters_at_end"], case["shards"], f"{case['moved']:.2f}"]
            whole = sum(seconds.values())
            lanes = 16 * -(-case["instantiated"] // 16)
            cells = case["rows"] * (case["columns"] + case["reals"] + case["counts"]) * lanes
            more = (case["ranks_detail"][0]["peak_bytes"] - case["ranks_detail"][0]["idle_bytes"]) / case["rows"]
            lines.append([*head, _ms(swept), f"{swept / cells * 1e9:.3f}", _ms(whole), f"{more:.0f}"])
    head = ["varied", "rows", "columns", "levels", "K", "shards", "moved", "sweep, ms", "ns a cell", "cycle, ms"]
    return markdown([*head, "bytes a row"], lines)


def moves_table(found: list[dict]) -> str:
    lines = []
    for case in (c for c in found if c["figure"] == "moves"):
        seconds = phase_seconds(case)
        row = [case["ranks"], f"{case['rows']:,}", case["columns"], case["clusters_at_end"], _ms(seconds["moves"])]
        lines.append([*row, f"{seconds['moves'] / (seconds['sweep'] + seconds['collapsed sweep']):.1f}"])
    return markdown(["ranks", "rows", "columns", "K", "ms a round", "rounds / sweep"], lines)


def model_table(found: list[dict]) -> str:
    """How far the fitted model is from each phase, over the cases on one rank, weighted by its share of the cycle."""
    lines = []
    for phase in COMPUTE:
        off, share = [], []
        for case in (c for c in once(found) if c["ranks"] == 1 and not c["crowd"] and knows(c, phase)):
            seconds, rows, shards = parts_of(case, phase)
            guess = compute_seconds(phase, problem_of(case), rows, shards)
            if phase == "collapsed shard":  # a difference: with that shard's sweep
                plain = phase_seconds(case)["collapsed sweep"] - seconds
                guess, seconds = guess + plain, seconds + plain
            if seconds > 0:
                off.append(abs(guess / seconds - 1))
                share.append(seconds / sum(phase_seconds(case).values()))
        name = "the collapsed shard's sweep" if phase == "collapsed shard" else phase
        lines.append([name, f"{np.median(off):.0%}", f"{np.max(off):.0%}", f"{np.median(share):.0%}"])
    return markdown(["phase", "off by (median)", "at most", "share of a cycle (median)"], lines)


def growth_picture(found: list[dict]) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(GROWTH), figsize=(14, 3.6))
    for axis, (name, (key, label)) in zip(axes, GROWTH.items()):
        cases_of = sorted((c for c in found if c["figure"] == name), key=lambda c: c[key])
        x = [c[key] for c in cases_of]
        swept = [sum(phase_seconds(c)[p] for p in ("sweep", "collapsed sweep")) for c in cases_of]
        whole = [sum(phase_seconds(c).values()) for c in cases_of]
        model = [forecast(replace(problem_of(c), moves_every=0), 1).total for c in cases_of]
        axis.loglog(x, np.array(whole) * 1e3, "o-", label="cycle")
        axis.loglog(x, np.array(swept) * 1e3, "s-", label="sweep")
        axis.loglog(x, np.array(model) * 1e3, "k:", label="cycle, model")
        axis.set(xlabel=label)
        axis.grid(alpha=0.3, which="both")
    axes[0].set(ylabel="processor ms")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    path = PAGE.with_name("scaling_growth.png")
    figure.savefig(path, dpi=110)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest="command", required=True)
    add_case_options(sub.add_parser("case"))
    measuring = sub.add_parser("measure")
    measuring.add_argument("--only", help="figures, separated by commas; the others stay as they are kept")
    measuring.add_argument("--quick", action="store_true", help="without the largest tables")
    sub.add_parser("fit")
    sub.add_parser("doc")
    args = parser.parse_args()
    if args.command == "measure":
        measure(args.only, args.quick)
    elif args.command == "fit":
        fit()
    elif args.command == "doc":
        doc()
    else:
        args.rows = int(args.rows)
        case = run_case(args)
        if case is not None:
            print(json.dumps(case)) if args.json else show(case)


if __name__ == "__main__":
    main()
