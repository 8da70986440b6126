"""Figures 3 to 6 of Paisley, Fazelnia & Barr: Gaussian mixtures by batch steps, SVI and SVI+, from many starts.

python examples/svi_plus/mixtures.py --out FOLDER [--pima pima-indians-diabetes.csv] [--starts 20]

Prints the tables of README.md and draws figure3.png, figure4.png and figure6.png. Every chain is one of the program's
own, on one rank. Beside where a stochastic chain ends stands where batch steps take it from there, which says in
which optimum it was.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.svi import finite_dirichlet
from mpibayes.hpc.svi.chain import Ascent, Settings
from mpibayes.hpc.svi.gaussian import Gaussian, Prior
from mpibayes.hpc.svi.noise import Noise
from mpibayes.hpc.svi.schedule import Constant, Decay

CYCLES, EVERY = 500, 5
FINISH = 2_000  # batch steps at most, after which the bound gains less than the tolerance
RATE = Decay(1.0, 0.7)  # the paper names none for its mixtures
COLOURS = {"batch": "#4477aa", "SVI": "#cc6677", "SVI+": "#228833", "positive": "#aa8800"}


@dataclass(frozen=True)
class Way:
    """How steps are taken. batch: rows a step, None for all. effective: of the noise, None for no noise."""

    batch: int | None = None
    effective: int | None = None
    kind: str = "svi+"
    guard: bool = True

    @property
    def name(self):
        return "batch" if self.batch is None else "SVI" if self.effective is None else KINDS[self.kind]

    def __str__(self):
        if self.name == "batch":
            return "batch"
        sizes = f"|S| = {self.batch}" + ("" if self.effective is None else f", M = {self.effective}")
        return f"{self.name} {sizes}" + ("" if self.guard else ", no guard")

    def settings(self, seed):
        if self.batch is None:
            return Settings(seed=seed, shards=1)
        noise = Noise("none" if self.effective is None else self.kind)
        effective = None if self.effective is None else Constant(self.effective)
        return Settings(
            seed=seed, shards=1, batch=Constant(self.batch), rate=RATE, noise=noise, effective=effective,
            guard=self.guard,
        )  # fmt: skip


KINDS = {"svi+": "SVI+", "positive": "positive"}


@dataclass
class Course:
    """bounds: of all rows, every EVERY cycles. ended, finished: the last of them, and after batch steps from there.
    sizes: rows of each component there, largest first. guarded: share of the parts of steps that the guard held back.
    broken: the cycle in which a parameter left its domain, 0 for none."""

    bounds: np.ndarray
    ended: float
    finished: float
    sizes: np.ndarray
    guarded: float
    broken: int


def chain_of(x, model, settings, start):
    return Ascent(serial(), model, lambda a, b: x[a:b], lambda places: x[places], len(x), settings, start)


def run(x, model, way, start, seed):
    chain = chain_of(x, model, way.settings(seed), start)
    chain.start()
    bounds, held = [chain.evaluate()], 0
    for t in range(1, CYCLES + 1):
        chain.cycle()
        held += chain.guarded
        if chain.broken:
            nothing = np.full(CYCLES // EVERY + 1 - len(bounds), np.nan)
            sizes = np.full(model.n_components, np.nan)
            return Course(np.concatenate([bounds, nothing]), np.nan, np.nan, sizes, held, t)
        if t % EVERY == 0:
            bounds.append(chain.evaluate())
    final = chain_of(x, model, Settings(seed=seed, shards=1), start)
    final.place(chain.q)
    for _ in range(FINISH):
        if final.still():
            break
        final.cycle()
    sizes = np.sort(model.weight(chain.q))[::-1] * (len(x) / max(model.weight(chain.q).sum(), 1e-9))
    return Course(np.array(bounds), bounds[-1], final.evaluate(), sizes, held / (CYCLES * 3 * model.n_components), 0)


def figure_3(name, x, k, ways, starts, seed, axis):
    """Gaussian mixtures of k components; the paper's priors: a = D, alpha = 1/2, B = I, c = 10."""
    d = x.shape[1]
    model = Gaussian(Prior(0.5, 10.0, float(d), 1.0), k, d)
    print(f"\n{name}, {len(x)} rows, {d} columns, {k} components, {starts} starts")
    print("| way | bound at the end, mean (s.d.) | best | after batch steps, mean (s.d.) | best | guard, % | broken |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for way in ways:
        found = [run(x, model, way, i, seed) for i in range(starts)]
        ended, finished = (np.array([getattr(f, of) for f in found]) for of in ("ended", "finished"))
        broken = sum(f.broken > 0 for f in found)
        columns = [str(way)]
        for values in (ended, finished):
            sound = values[np.isfinite(values)]
            spread = f"{sound.mean():.1f} ({sound.std(ddof=1):.1f})" if len(sound) > 1 else ""
            columns += [spread, f"{sound.max():.1f}" if len(sound) else ""]
        guarded = np.mean([f.guarded for f in found])
        print(f"| {' | '.join(columns)} | {100 * guarded:.1f} | {broken} of {starts} |", flush=True)
        if way.guard:
            shades(axis, np.array([f.bounds for f in found]), way, ways)
    axis.set(title=f"{name}, {k} components", xlabel="cycle", ylabel="bound")
    axis.legend(fontsize=7, frameon=False)


def shades(axis, bounds, way, ways):
    """The mean over starts, and a standard error on both sides of it."""
    alike = [w for w in ways if w.name == way.name and w.guard]
    alpha = 1.0 - 0.6 * alike.index(way) / max(1, len(alike))
    t, mean = EVERY * np.arange(bounds.shape[1]), bounds.mean(axis=0)
    error = bounds.std(axis=0, ddof=1) / np.sqrt(len(bounds))
    axis.plot(t, mean, color=COLOURS[way.name], alpha=alpha, lw=1.4, label=str(way))
    axis.fill_between(t, mean - error, mean + error, color=COLOURS[way.name], alpha=0.15 * alpha, lw=0)
    low = np.percentile(mean[len(mean) // 10 :], 0)
    axis.set_ylim(bottom=min(low, axis.get_ylim()[0]) if len(axis.lines) > 1 else low)


def figures_4_to_6(x, starts, seed, folder):
    """50 components of a finite Dirichlet mixture, and how many of them have rows at the end."""
    d, k = x.shape[1], 50
    model = Gaussian(finite_dirichlet.of(Prior(1.0, 10.0, float(d), 1.0), k), k, d)
    ways = {
        "batch": [Way()],
        "SVI": [Way(s) for s in (10, 20, 30, 40, 50)],
        "SVI+": [Way(s, round(m * s)) for s in (10, 20, 30, 40, 50) for m in (0.2, 0.4, 0.6)],
    }
    print(f"\nfinite Dirichlet mixture, 4 clusters, {len(x)} rows, {k} components, {starts} starts of each way")
    print("| way | runs | components of 1 % of the rows | 3 or fewer, 4, 5, more | bound, mean (s.d.) | guard, % |")
    print("| --- | --- | --- | --- | --- | --- |")
    kept = {}
    for name, each in ways.items():
        found = [run(x, model, way, i, seed) for way in each for i in range(starts)]
        sizes = kept[name] = np.array([f.sizes for f in found]) / len(x)
        n = (sizes > 0.01).sum(axis=1)
        counts = ", ".join(str(int(c)) for c in ((n <= 3).sum(), (n == 4).sum(), (n == 5).sum(), (n > 5).sum()))
        ended, guarded = np.array([f.ended for f in found]), np.mean([f.guarded for f in found])
        print(
            f"| {name} | {len(found)} | {n.mean():.2f} | {counts} | {ended.mean():.1f} ({ended.std(ddof=1):.1f}) | "
            f"{100 * guarded:.1f} |",
            flush=True,
        )
    draw_sizes(kept, folder)


def draw_sizes(kept, folder):
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), sharey=True, layout="constrained")
    for axis, (name, sizes) in zip(axes, kept.items()):
        axis.bar(np.arange(1, 11), sizes.mean(axis=0)[:10], color=COLOURS[name])
        axis.set(title=name, xlabel="component, by size", xticks=range(1, 11))
    axes[0].set_ylabel("share of the rows")
    figure.savefig(folder / "figure4.png", dpi=110)
    figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
    for place, (name, sizes) in enumerate(kept.items()):
        at = np.arange(1, 7) + 0.25 * (place - 1)
        boxes = axis.boxplot(
            np.cumsum(sizes, axis=1)[:, :6], positions=at, widths=0.2, patch_artist=True, manage_ticks=False,
            flierprops={"markersize": 2}, medianprops={"color": "black"},
        )  # fmt: skip
        for box in boxes["boxes"]:
            box.set(facecolor=COLOURS[name], alpha=0.7)
        axis.plot([], [], color=COLOURS[name], lw=6, label=name)
    axis.set(xlabel="largest components", ylabel="share of the rows in them", xticks=range(1, 7))
    axis.legend(frameon=False)
    figure.savefig(folder / "figure6.png", dpi=110)


def clouds(n, seed, weights, centers, spread):
    """Rows (n, 2) of Gaussians about these centers, two of them long."""
    rng = np.random.default_rng(seed)
    z = rng.choice(len(weights), size=n, p=weights)
    turns = rng.uniform(0.0, np.pi, size=len(weights))
    axes = np.array([[[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]] for t in turns])
    stretched = rng.normal(size=(n, 2)) * np.array([1.0, 0.5]) * spread
    return np.asarray(centers)[z] + np.einsum("nij,nj->ni", axes[z], stretched)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--pima", type=Path, help="the Pima table, 768 rows of 8 numbers and a class, no header")
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)

    n = 2 if given.pima else 1
    figure, axes = plt.subplots(1, n, figsize=(0.5 + 4.5 * n, 3.4), layout="constrained", squeeze=False)
    four = ([0.4, 0.3, 0.2, 0.1], [(-2.0, -1.5), (0.5, 2.0), (2.5, -0.5), (-0.5, -0.2)])
    x = clouds(250, 11, *four, 0.6)
    synthetic = [Way(), Way(50), Way(50, 10), Way(50, 10, "positive"), Way(50, 10, guard=False)]
    figure_3("synthetic", x, 4, synthetic, given.starts, given.seed, axes[0, 0])
    if given.pima:
        x = np.loadtxt(given.pima, delimiter=",")[:, :8]
        x = np.ascontiguousarray((x - x.mean(axis=0)) / x.std(axis=0))
        ways = [Way(), Way(200), *(Way(200, m) for m in (50, 100, 150)), Way(200, 50, guard=False)]
        figure_3("pima", x, 2, ways, given.starts, given.seed, axes[0, 1])
        spare, unused = plt.subplots()
        figure_3("pima", x, 10, ways, given.starts, given.seed, unused)
        plt.close(spare)
    figure.savefig(given.out / "figure3.png", dpi=110)
    figures_4_to_6(clouds(250, 11, *four, 0.6), max(2, given.starts // 2), given.seed, given.out)


if __name__ == "__main__":
    main()
