"""Firefly's default sampler on one core: effective samples a CPU second beside numpyro's, exactness, cost against rows.

    python benchmarks/firefly_speed.py --data FOLDER --out DIR [--peers-python PYTHON] [--quick] [--report]

FOLDER is described in firefly_tables.py; PYTHON has numpyro and jax, in an environment of its own (without it no peers
are measured). Everything runs one after another, each in a process of its own with one thread, and is a line of
DIR/results.csv, written as it comes; what is there is not computed again. DIR/speed.md has the tables, DIR/cost.png
the cost of a cycle against the number of rows. About 25 minutes, most of it numpyro on a million rows; `--quick` 5.

1. Effective samples (ArviZ's bulk, and coda's) a CPU second, of the least and of the median coefficient, on mnist and
   on a million synthetic rows: ours (four leapfrog steps in whitened coordinates, bounds tuned at the mode, 3 seeds)
   and numpyro's NUTS and HMCECS, which get the same mode, metric and prior. CPU seconds of the process: of the draws
   alone, after burn-in and compiled; and all in (making the rows, fit, bounds, burn-in; warm-up, compilation).
2. Means and standard deviations against a long run of NUTS, in Monte-Carlo standard errors of the difference: root mean
   square over coefficients (expected 1) and the largest (expected about 2.6 of 51). Both scatter more on the synthetic
   table: its slowest direction, the size of theta, is a part of nearly every coefficient.
3. Cost of a cycle, bright rows, likelihood queries and peak memory for 10^4 to 10^7 rows.
4. One and two ranks: CPU and wall time of a cycle.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from firefly_measures import bulk_ess, posterior_mode, read_results, spectral_ess
from firefly_tables import Regression, synthetic, table
from machine import markdown, peak_mib

PRIOR_SCALE = {"mnist": 0.5, "synthetic": 2.5}  # mnist: what predicts the test rows best, see firefly_table1.py
FIELDS = (
    "part", "table", "sampler", "seed", "ranks", "draws", "bulk_min", "bulk_median", "spectral_min", "spectral_median",
    "seconds", "seconds_all", "wall", "bright", "queries_theta", "queries_z", "acceptance", "step", "peak_mib",
    "data_mib",
)  # fmt: skip


def regression(name: str, data: str | None, out: Path) -> Regression:
    """`mnist`, or the number of rows of a synthetic table."""
    return table("mnist", data, out) if name == "mnist" else synthetic(int(name))


def prior_scale(name: str) -> float:
    return PRIOR_SCALE["mnist" if name == "mnist" else "synthetic"]


def title(name: str) -> str:
    return "MNIST 7 against 9" if name == "mnist" else f"synthetic, {int(name):,} rows"


# --- one chain of ours, in a process of its own ----------------------------------------------------------------------


def ours(given: argparse.Namespace) -> None:
    """Prints a line of results as JSON, on root; keeps the draws where --keep says."""
    from mpibayes.hpc.parallel.comm import serial, world
    from mpibayes.hpc.regression.family import default_shards
    from mpibayes.hpc.regression.firefly import Firefly
    from mpibayes.hpc.regression.firefly_settings import Settings
    from mpibayes.hpc.regression.problem import Problem

    comm = world() if given.ranks > 1 else serial()
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[(len(cores) - 1 + comm.rank) % len(cores)]})
    result = regression(given.one, given.data, given.out)
    began = time.process_time()
    problem = Problem(
        comm, result.likelihood, result.rows, result.n_rows, given.shards or default_shards(result.n_rows),
        n_predictors=result.n_predictors, prior_scale=prior_scale(given.one),
    )  # fmt: skip
    chain = Firefly(comm, problem, Settings(seed=given.seed, burn_in=given.burn_in, refresh=None), chain=0)
    chain.start()
    chain.advance(given.burn_in)
    started, wall = time.process_time(), time.perf_counter()
    reported = chain.advance(given.draws)
    seconds, wall = time.process_time() - started, time.perf_counter() - wall
    everything = time.process_time() - began
    peak = peak_mib()
    seconds = sum(comm.collect(seconds))
    if comm.rank != 0:
        return
    line = {
        "part": given.part, "table": given.one, "sampler": "ours", "seed": given.seed, "ranks": given.ranks,
        "draws": given.draws, "seconds": seconds, "seconds_all": everything, "wall": wall,
        "bright": reported["n_bright"].mean(), "queries_theta": reported["queries_theta"].mean(),
        "queries_z": reported["queries_z"].mean(), "acceptance": reported["acceptance_rate"].mean(),
        "step": reported["step_size"][-1], "peak_mib": peak, "data_mib": result.n_rows * 4 * 56 / 2**20 / comm.size,
    }  # fmt: skip
    if given.keep:
        np.save(given.keep, reported["theta"])
    print(json.dumps(line))


# --- what is run -----------------------------------------------------------------------------------------------------


def mpiexec() -> str | None:
    """The launcher of this environment, or of the machine."""
    return shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


def child(command: list[str]) -> str:
    """Standard output of a command with one thread."""
    one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, env=os.environ | one, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def line_of_ours(
    given, part: str, name: str, draws: int, burn_in: int, seed: int = 1, ranks: int = 1, shards: int = 0
) -> dict:
    kept = given.out / f"ours.{name}.{seed}.npy" if part == "speed" else None
    command = [
        sys.executable,
        __file__,
        "--one",
        name,
        "--part",
        part,
        "--draws",
        str(draws),
        "--burn-in",
        str(burn_in),
    ]
    command += ["--seed", str(seed), "--ranks", str(ranks), "--shards", str(shards), "--out", str(given.out)]
    command += ["--data", str(given.data)] if given.data else []
    command += ["--keep", str(kept)] if kept else []
    if ranks > 1:
        command = [mpiexec(), "-n", str(ranks), *command]
    line = json.loads(child(command).strip().splitlines()[-1])
    return line | (effective(np.load(kept)) if kept else {})


def effective(theta: np.ndarray) -> dict:
    bulk, spectral = bulk_ess(theta), spectral_ess(theta)
    return {
        "bulk_min": bulk.min(), "bulk_median": np.median(bulk),
        "spectral_min": spectral.min(), "spectral_median": np.median(spectral),
    }  # fmt: skip


def for_peers(given, name: str) -> Path:
    """Rows, mode and Laplace's covariance, as firefly_peers.py wants them."""
    path = given.out / f"peers.{name}.npz"
    if not path.exists():
        result, scale = regression(name, given.data, given.out), prior_scale(name)
        x, y = result.all()
        mode = posterior_mode(result, (x.astype(float), y), "gaussian", scale)
        weight = 0.25 / np.cosh(0.5 * (x @ mode)) ** 2
        precision = (x * weight[:, None]).T @ x.astype(float) + np.eye(len(mode)) / scale**2
        np.savez(path, x=x, y=y, prior_scale=scale, mode=mode, covariance=np.linalg.inv(precision))
    return path


def line_of_peer(given, part: str, name: str, sampler: str, draws: int, warmup: int, more: tuple = ()) -> dict:
    out = given.out / f"{sampler}.{part}.{name}.npz"
    script = Path(__file__).with_name("firefly_peers.py")
    command = [
        given.peers_python,
        script,
        sampler,
        for_peers(given, name),
        out,
        "--draws",
        draws,
        "--warmup",
        warmup,
        *more,
    ]
    print("  " + child([str(c) for c in command]).strip(), flush=True)
    with np.load(out) as result:
        theta, numbers = result["theta"], {k: float(result[k]) for k in ("seconds", "seconds_all", "peak_mib")}
    return {
        "part": part,
        "table": name,
        "sampler": sampler,
        "seed": 1,
        "ranks": 1,
        "draws": draws,
        **numbers,
        **effective(theta),
    }


def plan(quick: bool, peers: bool) -> list[tuple]:
    """(what to call, its arguments): the key of a line is (part, table, sampler, seed, ranks)."""
    small = 10 if quick else 1
    big = "100000" if quick else "1000000"
    todo = []
    for seed in (1, 2, 3):
        todo += [(line_of_ours, ("speed", "mnist", 200_000 // small, 2_000, seed))]
        todo += [(line_of_ours, ("speed", big, 100_000 // small, 2_000, seed))]
    if peers:
        todo += [
            (line_of_peer, ("speed", "mnist", "nuts", 2_000, 300)),
            (line_of_peer, ("speed", "mnist", "hmcecs", 2_000, 300)),
        ]
        todo += [(line_of_peer, ("reference", "mnist", "nuts", 30_000 // small, 300, ("--double", "--once")))]
        todo += [(line_of_peer, ("speed", big, "hmcecs", 400, 100, ("--once",)))]
        todo += [(line_of_peer, ("speed", big, "nuts", 400, 100, ("--once",)))]
        todo += [(line_of_peer, ("reference", big, "nuts", 600 // small, 100, ("--double", "--once")))]
    sizes = (10_000, 100_000) if quick else (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
    todo += [(line_of_ours, ("cost", str(n), 20_000 // small, 1_000)) for n in sizes]
    todo += [
        (line_of_ours, ("ranks", name, 20_000 // small, 1_000, 1, ranks, 4))
        for name in ("mnist", big)
        for ranks in (1, 2)
    ]
    return todo


def key(call: tuple) -> tuple:
    what, arguments = call
    if what is line_of_peer:
        return (arguments[0], arguments[1], arguments[2], 1, 1, arguments[3])
    part, name, draws, _, *more = arguments
    return (part, name, "ours", more[0] if more else 1, more[1] if len(more) > 1 else 1, draws)


def read(path: Path) -> list[dict]:
    """The results there are."""
    return read_results(path, FIELDS[3:])


# --- what came out ---------------------------------------------------------------------------------------------------


SPEEDS = (
    "table", "sampler", "draws", "effective samples a CPU second, min / median", "all in", "coda's", "us", "MiB",
)  # fmt: skip
EXACTNESS = ("table", "sampler", "means: rms, largest", "standard deviations: rms, largest")
COSTS = (
    "table", "ranks", "us a cycle, CPU of all", "wall", "bright", "queries (theta + z)", "accepted", "start, CPU s",
    "peak MiB of a rank", "of these the rows",
)  # fmt: skip


def speeds(results: list[dict]) -> list[list[str]]:
    lines = []
    for r in results:
        if r["part"] != "speed":
            continue
        cells = [title(r["table"]), f"{r['sampler']}, seed {r['seed']:.0f}", f"{r['draws']:,.0f}"]
        cells += [f"{r[f'{kind}_min'] / t:.3g} / {r[f'{kind}_median'] / t:.4g}" for kind, t in
                  (("bulk", r["seconds"]), ("bulk", r["seconds_all"]), ("spectral", r["seconds"]))]  # fmt: skip
        cells += [f"{1e6 * r['seconds'] / r['draws']:.3g}", f"{r['peak_mib']:.0f}"]
        lines.append(cells)
    return lines


def exactness(results: list[dict], out: Path) -> list[list[str]]:
    """Means and standard deviations against NUTS, in standard errors of the difference."""
    lines = []
    for name in dict.fromkeys(r["table"] for r in results if r["part"] == "speed"):
        reference = next(
            (p for p in (out / f"nuts.{part}.{name}.npz" for part in ("reference", "speed")) if p.exists()), None
        )
        if reference is None:
            continue
        with np.load(reference) as result:
            truth = moments(result["theta"])
        draws = {f"ours, seed {p.stem.split('.')[-1]}": np.load(p) for p in sorted(out.glob(f"ours.{name}.?.npy"))}
        if (out / f"hmcecs.speed.{name}.npz").exists():
            draws["hmcecs"] = np.load(out / f"hmcecs.speed.{name}.npz")["theta"]
        for sampler, theta in draws.items():
            cells = []
            for (a, error_a), (b, error_b) in zip(moments(theta), truth, strict=True):
                z = (a - b) / np.hypot(error_a, error_b)
                cells.append(f"{np.sqrt((z**2).mean()):.2f}, {np.abs(z).max():.2f}")
            lines.append([title(name), sampler, *cells])
    return lines


def moments(theta: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """(mean, its standard error), (standard deviation, its standard error), each (P,)."""
    theta = np.asarray(theta, float)
    mean, spread = theta.mean(0), theta.std(0, ddof=1)
    square = (theta - mean) ** 2
    return [
        (mean, spread / np.sqrt(spectral_ess(theta))),
        (spread, square.std(0) / np.sqrt(spectral_ess(square)) / (2 * spread)),
    ]


def costs(results: list[dict], part: str) -> list[list[str]]:
    lines = []
    for r in results:
        if r["part"] == part:
            cells = [title(r["table"]), f"{r['ranks']:.0f}", f"{1e6 * r['seconds'] / r['draws']:.1f}"]
            cells += [f"{1e6 * r['wall'] / r['draws']:.1f}", f"{r['bright']:.1f}"]
            cells += [f"{r['queries_theta']:.0f} + {r['queries_z']:.0f}", f"{r['acceptance']:.2f}"]
            cells += [
                f"{r['seconds_all'] - r['seconds'] / r['ranks']:.1f}",
                f"{r['peak_mib']:.0f}",
                f"{r['data_mib']:.0f}",
            ]
            lines.append(cells)
    return lines


def figure(results: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = sorted((r for r in results if r["part"] == "cost"), key=lambda r: float(r["table"]))
    if not lines:
        return
    rows = [float(r["table"]) for r in lines]
    panels, axes = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")
    axes[0].plot(rows, [1e6 * r["seconds"] / r["draws"] for r in lines], "o-", color="#1f5599")
    axes[0].set(ylabel="CPU microseconds a cycle", ylim=(0, None))
    axes[1].plot(rows, [r["bright"] for r in lines], "o-", color="#ec8a45", label="bright rows")
    axes[1].plot(
        rows, [r["queries_theta"] + r["queries_z"] for r in lines], "s-", color="#2f8566", label="queries a cycle"
    )
    axes[1].set(ylim=(0, None))
    axes[1].legend(frameon=False)
    for axis in axes:
        axis.set(xscale="log", xlabel="rows")
        axis.grid(alpha=0.3)
    panels.savefig(path, dpi=130)
    plt.close(panels)


def report(out: Path) -> str:
    results = read(out / "results.csv")
    figure(results, out / "cost.png")
    parts = [(SPEEDS, speeds(results)), (EXACTNESS, exactness(results, out))]
    parts += [(COSTS, costs(results, part)) for part in ("cost", "ranks")]
    text = "\n\n".join(markdown(head, lines) for head, lines in parts if lines) + "\n"
    (out / "speed.md").write_text(text)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of public tables (default: $MPIBAYES_DATA)")
    parser.add_argument("--out", type=Path, default=Path("firefly_speed"))
    parser.add_argument("--peers-python", help="a Python that has numpyro (default: no peers)")
    parser.add_argument("--quick", action="store_true", help="100,000 rows instead of a million, a tenth of the draws")
    parser.add_argument("--report", action="store_true", help="tables of what there is; run nothing")
    for name in ("one", "part", "keep"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    for name in ("draws", "burn-in", "seed", "ranks", "shards"):
        parser.add_argument(f"--{name}", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        ours(given)
        return
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "results.csv"
    todo = [] if given.report else plan(given.quick, bool(given.peers_python))
    kinds = ("part", "table", "sampler", "seed", "ranks", "draws")
    done = {tuple(r[k] for k in kinds) for r in read(path)}
    todo = [call for call in todo if key(call) not in done]
    if not mpiexec():
        print("no mpiexec: two ranks are left out")
        todo = [call for call in todo if call[1][0] != "ranks"]
    new = not path.exists()
    with path.open("a", newline="") as file:
        lines = csv.DictWriter(file, FIELDS)
        if new and todo:
            lines.writeheader()
        for what, arguments in todo:
            print(f"{time.strftime('%H:%M')} {key((what, arguments))}", flush=True)
            lines.writerow(what(given, *arguments))
            file.flush()
    print(report(given.out))
    print(f"results.csv, speed.md and cost.png are in {given.out}")


if __name__ == "__main__":
    main()
