"""The published hybrid sampler of features beside ours, on the images of the report's section 3.3.

    python benchmarks/cambridge.py run --rows 1000 --seconds 5 --out OUT     # a minute or two
    python benchmarks/cambridge.py run --rows 10000 --out OUT                # as quoted
    mpirun -n 2 python benchmarks/cambridge.py run --rows 10000 --shards 4 --out OUT2
    python benchmarks/cambridge.py prior                                     # the law of K without cells
    python benchmarks/cambridge.py draw OUT                                  # the pictures and the table again

`run` follows every sampler of METHODS on 1, 2, 4 ... 128 shards in this process, or on the ranks of mpirun, and writes
into OUT/curves_ROWS_SEED.csv what the state is worth after so many sweeps: log density of 500 new images (a row, in
nats; the law of a new row given the features, docs/math.md 7.10, the same for all), number of features, how many of the
four pictures are there and how many other features have 0.5 % of the rows (as benchmarks/features.py). Scoring is not
timed.
CPU seconds are those of this process, searches for a start among them; on ranks, `wall` is what counts.

Followed as stated in the report: images of 6 x 6 with four features, each present with 1/2, noise 0.5; a
synchronisation every 5 sweeps, 1,000 sweeps; cold, warm and always hot (published_buffet.py). Not stated there, and the
same for all here: mass, noise and the loadings' variance are learned under the program's priors; chains that have no
start of their own begin without features.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import time
from pathlib import Path

import numpy as np
from features import NOISE, arrived, cambridge, density
from published_buffet import HOT, Published
from scipy.stats import poisson

from mpibayes.hpc.ibp import update
from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.features import Features
from mpibayes.hpc.ibp.start.strategy import start
from mpibayes.hpc.ibp.state import Settings
from mpibayes.hpc.parallel.comm import serial, world

SHARDS = (1, 2, 4, 8, 16, 32, 64, 128)
SWEEPS = 1000
LOOKS = {0, *np.unique(np.geomspace(1, SWEEPS, 36).astype(int)).tolist()}  # cycles after which to score
FIELDS = "rows method shards seed ranks cycle sweeps cpu wall log_density features mean_features pictures others digest"
# name: (class and its own arguments, settings, start)
METHODS = {f"published, {name}": (Published, {"scheme": name}, {"sweeps_per_cycle": 5}, "none") for name in HOT} | {
    "exact, one opens": (Buffet, {}, {"sweeps_per_cycle": 5, "moves": 0}, "none"),
    "exact, all open": (Buffet, {}, {"sweeps_per_cycle": 5, "moves": 0, "opening": "all"}, "none"),
    "ours": (Buffet, {}, {}, "subsample"),  # as the program comes
    # from the program's start, so that what is left is what a cycle does to the right features
    "our start, published, cold": (Published, {"scheme": "cold"}, {"sweeps_per_cycle": 5}, "subsample"),
    "our start, published, always hot": (Published, {"scheme": "always hot"}, {"sweeps_per_cycle": 5}, "subsample"),
    "our start, exact, no moves": (Buffet, {}, {"sweeps_per_cycle": 5, "moves": 0}, "subsample"),
}
DRAWN = [method for method in METHODS if not method.startswith("our start")]


def images(rows: int, seed: int):
    """(rows float32 (rows, 36), new rows float64 (500, 36), the pictures (4, 36), their weights (4,))."""
    stream = np.random.default_rng(1000 + seed)
    truth, weights = cambridge(stream)
    has = stream.random((rows + 500, len(truth))) < weights
    x = (has @ truth + NOISE * stream.standard_normal((rows + 500, truth.shape[1]))).astype(np.float32)
    return x[500:], x[:500].astype(np.float64), truth, weights


def follow(comm, method: str, shards: int, seed: int, x, held, truth, seconds: float):
    """What a chain's state is worth, a dictionary for each look, on root. It ends after SWEEPS or so many CPU seconds;
    mean_features is the mean number of features over the second half of the cycles so far."""
    kind, part, settings, begin = METHODS[method]
    settings = Settings(seed=seed, shards=shards, **settings)
    chain = kind(comm, lambda a, b: x[a:b].astype(np.float64), len(x), x.shape[1], settings, **part)
    clocks, spent, counts = (time.process_time, time.perf_counter), np.zeros(2), []

    def timed(work):
        began = [clock() for clock in clocks]
        work()
        spent[:] += [clock() - was for clock, was in zip(clocks, began)]

    timed(lambda: start(chain, begin))
    while True:
        done = chain.cycles * settings.sweeps_per_cycle
        last = comm.share(done >= SWEEPS or spent[0] > seconds)
        if chain.cycles in LOOKS or last:
            pictures, others = arrived(chain, truth)  # collective
            bits = chain.features() if last else None
            if comm.rank == 0:
                t, there = chain.totals, np.flatnonzero(chain.totals.owned > 0)
                law = Features.of(t.together[np.ix_(there, there)], t.cells[there], len(x), chain.hyper)
                yield {
                    "cycle": chain.cycles,
                    "sweeps": done,
                    "cpu": round(spent[0], 4),
                    "wall": round(spent[1], 4),
                    "log_density": round(float(law.log_density(held)[0].mean()), 4),
                    "features": len(there),
                    "mean_features": round(float(np.mean(counts[len(counts) // 2 :] or [0])), 3),
                    "pictures": pictures,
                    "others": others,
                    "digest": "" if bits is None else hashlib.sha256(bits.tobytes()).hexdigest()[:12],
                }
        if last:
            return
        timed(chain.cycle)
        counts.append(int((chain.totals.owned > 0).sum()))


def run(given) -> None:
    comm = world()
    comm = serial() if comm.size == 1 else comm
    for seed in given.seeds:
        path = given.out / f"curves_{given.rows}_{seed}.csv"
        if comm.rank == 0:
            given.out.mkdir(parents=True, exist_ok=True)
            with open(path, "w", newline="") as file:
                csv.writer(file).writerow(FIELDS.split())
        x, held, truth, weights = images(given.rows, seed)
        for method in METHODS:
            for shards in given.shards:
                looks = list(follow(comm, method, shards, seed, x, held, truth, given.seconds))
                if comm.rank != 0:
                    continue
                what = {"rows": given.rows, "method": method, "shards": shards, "seed": seed, "ranks": comm.size}
                with open(path, "a", newline="") as file:
                    csv.DictWriter(file, FIELDS.split()).writerows({**what, **look} for look in looks)
                end = {k: v for k, v in looks[-1].items() if k != "cycle"}
                print(f"seed {seed} {method:32} {shards:3} shards", *(f"{k} {v}" for k, v in end.items()), flush=True)
        if comm.rank == 0:
            print(f"seed {seed}: new images under the truth {density(held, truth, weights, NOISE):.3f}", flush=True)
    if comm.rank == 0 and comm.size == 1:
        draw(given)


def prior(given) -> None:
    """Mean number of features without cells, from draws of the law that it should keep: Poisson(alpha H)."""
    n, alpha, cycles, repeats = 1000, 1.0, 100, 40
    law = poisson(alpha * update.harmonic(n, 1.0))
    print(
        f"{n} rows, mass 1, c = 1; after {cycles} cycles of 1 sweep, {repeats} chains; exactly {law.mean():.2f}", end=""
    )
    print(f", with a standard error of {law.std() / repeats**0.5:.2f}")
    for method in DRAWN[:5]:
        kind, part, given_settings, _ = METHODS[method]
        means = []
        for shards in given.shards:
            fixed = {"alpha": alpha, "likelihood": False, "moves": 0, "shards": shards, "sweeps_per_cycle": 1}
            ends = []
            for seed in range(repeats):
                settings = Settings(**{**given_settings, **fixed, "seed": seed})
                chain = kind(serial(), lambda a, b: np.zeros((b - a, 1)), n, 1, settings, **part)
                start(chain, "random")
                for _ in range(cycles):
                    chain.cycle()
                ends.append(int((chain.totals.owned > 0).sum()))
            means.append(np.mean(ends))
        print(f"{method:22}", *(f"{shards}: {mean:.2f}" for shards, mean in zip(given.shards, means)), flush=True)


def read(paths: list[Path]) -> dict[tuple[str, int, int], dict[str, np.ndarray]]:
    """{(method, shards, seed): {field: one number a look}} of files of curves."""
    result: dict = {}
    for path in paths:
        with open(path, newline="") as file:
            for line in csv.DictReader(file):
                curve = result.setdefault((line["method"], int(line["shards"]), int(line["seed"])), {})
                for field in FIELDS.split()[5:-1]:
                    curve.setdefault(field, []).append(float(line[field]))
    return {key: {field: np.array(v) for field, v in curve.items()} for key, curve in result.items()}


def picture(curves, rows: int, clock: str, path: Path) -> None:
    """Log density and number of features by `clock`, of the first seed; a column of panels for each method, a line for
    each number of shards."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    _, held, truth, weights = images(rows, 0)
    best = density(held, truth, weights, NOISE)
    shown = sorted({shards for _, shards, _ in curves})
    colour = dict(zip(shown, plt.get_cmap("viridis")(np.linspace(0.0, 0.95, len(shown)))))
    figure, axes = plt.subplots(
        2, len(DRAWN), figsize=(2.3 * len(DRAWN), 4.6), sharex=True, sharey="row", layout="constrained"
    )
    for (above, below), method in zip(axes.T, DRAWN):
        above.set_title(method, fontsize=9)
        above.axhline(best, color="0.6", linewidth=0.8)
        below.axhline(len(truth), color="0.6", linewidth=0.8)
        for shards in shown:
            curve = curves.get((method, shards, 0))
            if curve is not None:
                x = np.maximum(curve[clock], {"cpu": 1e-2, "sweeps": 1.0}[clock])
                above.plot(x, curve["log_density"], color=colour[shards], linewidth=1.1, label=f"{shards}")
                below.plot(x, np.maximum(curve["features"], 0.8), color=colour[shards], linewidth=1.1)
        below.set(xscale="log", yscale="log", xlabel={"cpu": "CPU seconds", "sweeps": "sweeps"}[clock])
        below.set_yticks([1, 2, 4, 10, 20, 50, 100, 200], ["1", "2", "4", "10", "20", "50", "100", "200"])
        below.minorticks_off()
    axes[0, 0].set(ylim=(best - 14.0, best + 0.8))
    axes[0, 0].set_ylabel("log density of a new image", fontsize=8)
    axes[1, 0].set_ylabel("features")
    handles, labels = axes[0, -1].get_legend_handles_labels()
    figure.legend(handles, labels, title="shards", loc="outside right center", fontsize=8, frameon=False)
    figure.savefig(path, dpi=75, pil_kwargs={"compress_level": 9})
    plt.close(figure)


def table(curves) -> None:
    """For each method and number of shards, medians over seeds: how far the last log density is below the best of any,
    and the mean number of features; then on how many seeds just the four pictures are there at the end, and the CPU
    seconds until they are for good, if they are on all."""
    seeds, shown = sorted({seed for *_, seed in curves}), sorted({shards for _, shards, _ in curves})
    best = {s: max(c["log_density"][-1] for (_, _, seed), c in curves.items() if seed == s) for s in seeds}
    print("| method |", " | ".join(map(str, shown)), "|\n|", " --- |" * (len(shown) + 1))
    for method in METHODS:
        cells = []
        for shards in shown:
            here = {seed: curves[method, shards, seed] for seed in seeds if (method, shards, seed) in curves}
            wrong = [np.flatnonzero((c["pictures"] < 4) | (c["others"] > 0)) for c in here.values()]
            since = [w[-1] + 1 if len(w) else 0 for w in wrong]  # the look from which on all is right
            right = [c["cpu"][at] for c, at in zip(here.values(), since) if at < len(c["cpu"])]
            gap = np.median([best[seed] - curve["log_density"][-1] for seed, curve in here.items()])
            k = np.median([curve["mean_features"][-1] for curve in here.values()])
            when = f", {np.median(right):.2f} s" if len(right) == len(here) else ""
            cells.append(f"{gap:.2f}; {k:.1f}; {len(right)}/{len(here)}{when}")
        print(f"| {method} |", " | ".join(cells), "|")


def draw(given) -> None:
    for rows in sorted({int(path.stem.split("_")[1]) for path in given.out.glob("curves_*.csv")}):
        curves = read(sorted(given.out.glob(f"curves_{rows}_*.csv")))
        for clock in ("cpu", "sweeps"):
            picture(curves, rows, clock, given.out / f"{clock}_{rows}.png")
        print(f"\n{rows} rows")
        table(curves)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    of_run = commands.add_parser("run", help="run the samplers, write curves and pictures")
    of_run.add_argument("--rows", type=int, default=1000)
    of_run.add_argument("--seconds", type=float, default=60.0, help="CPU seconds after which a chain ends")
    of_run.add_argument("--seeds", type=int, nargs="+", default=(0,))
    of_run.add_argument("--out", type=Path, default=Path("cambridge"))
    of_prior = commands.add_parser("prior", help="mean number of features without cells")
    of_draw = commands.add_parser("draw", help="pictures and table of what a run has written")
    of_draw.add_argument("out", type=Path)
    for parsed, shards in ((of_run, SHARDS), (of_prior, (1, 4, 16))):
        parsed.add_argument("--shards", type=int, nargs="+", default=shards)
    for parsed, work in ((of_run, run), (of_prior, prior), (of_draw, draw)):
        parsed.set_defaults(work=work)
    given = parser.parse_args()
    given.work(given)


if __name__ == "__main__":
    main()
