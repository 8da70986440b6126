"""The toy models of subsample annealing: tables and figures.

    python examples/two_urns/two_urns.py --out FOLDER [--quick]

writes into FOLDER
    two_urns.md      total variation from the posterior: exact at small N, binned Monte Carlo at N = 2,000 and 20,000
    two_urns.png     where seven strategies end after ten passes, beside the posterior (figure 2 of the paper)
    bimodal.md, bimodal.png    time to cross an energy barrier, cold and annealed, against N (section 3.3)

Obermeyer, Glidden and Jonas (2014), Scaling Nonparametric Bayesian Inference via Subsample-Annealing, AISTATS.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bimodal import Bimodal, annealed_bound, annealed_duration, annealed_error, cold_duration
from chains import sample
from exact_law import final_law
from scipy.ndimage import gaussian_filter
from urns import (
    STRATEGIES,
    Urns,
    coarser,
    in_cells,
    posterior,
    posterior_in_cells,
    prior_in_cells,
    total_variation,
)

PASSES = 10
BINS = 10  # a side, for total variations at large N
CELLS = 120  # a side, for the figure; a multiple of BINS
EXACT_SIZES = (Urns(8, 12), Urns(20, 30), Urns(40, 60))
LARGE_SIZES = (Urns(800, 1200), Urns(8000, 12000))  # five times as many chains at the first; the second is drawn


@dataclass(frozen=True)
class Measured:
    """Final states of a strategy in CELLS x CELLS cells; their total variation in BINS x BINS, its standard error."""

    cells: np.ndarray
    tv: float
    error: float


def measure(urns: Urns, target: np.ndarray, name: str, size: int, seed: int, passes: int = PASSES) -> Measured:
    """`size` chains of a strategy against the posterior `target`, in CELLS x CELLS cells; the prior's law is exact."""
    target = coarser(target, BINS)
    if name == "prior":
        cells = prior_in_cells(urns, CELLS)
        return Measured(cells, total_variation(coarser(cells, BINS), target), 0.0)
    cells = in_cells(urns, *sample(urns, name, passes, size, seed), CELLS)
    found = coarser(cells, BINS)
    # The standard error by resampling the chains.
    again = np.random.default_rng(seed).multinomial(size, found.ravel(), size=400) / size
    spread = np.abs(again - target.ravel()).sum(axis=1).std() / 2
    return Measured(cells, total_variation(found, target), float(spread))


def floor(target: np.ndarray, size: int) -> float:
    """What the binned total variation is on average for `size` exact draws of the posterior in cells."""
    p = coarser(target, BINS)
    return 0.5 * float(np.sqrt(2 * p * (1 - p) / (np.pi * size)).sum())


@dataclass(frozen=True)
class Sampled:
    """All strategies at one size: the number of chains, the posterior in cells, what was measured by name."""

    urns: Urns
    size: int
    target: np.ndarray
    found: dict[str, Measured]


# --- two urns ---------------------------------------------------------------------------------------------------------


def urn_table(exact: dict[Urns, dict[str, float]], large: list[Sampled]) -> str:
    """Markdown; exact[urns][name] is a total variation."""
    head = ["strategy", *(f"({u.red}, {u.blue})" for u in exact)]
    head += [f"({s.urns.red}, {s.urns.blue}), {BINS} × {BINS} bins" for s in large]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for name in STRATEGIES:
        cells = [f"{tvs[name]:.6f}" for tvs in exact.values()]
        for m in (s.found[name] for s in large):
            cells.append(f"{m.tv:.4f} ± {m.error:.4f}" if m.error else f"{m.tv:.4f}")
        lines.append("| " + " | ".join([name, *cells]) + " |")
    cells = ["0"] * len(exact) + [f"{floor(s.target, s.size):.4f}" for s in large]
    lines.append("| " + " | ".join(["draws of the posterior (floor)", *cells]) + " |")
    one = next(iter(exact))
    notes = [
        f"Total variation of the final state from the posterior; p = {one.p:g}, a = {one.a:g}, {PASSES} passes over "
        "(red, blue) balls.",
        "The first columns are exact. "
        + " ".join(f"({s.urns.red}, {s.urns.blue}): {s.size:,} chains." for s in large)
        + " The binned prior is exact too; ± is one standard error. A binned estimate is too large by up to the floor.",
    ]
    return "\n".join(["# Two urns", "", *notes, "", *lines, ""])


def density(cells: np.ndarray, width: float = 1.5) -> np.ndarray:
    """Density over the unit square, smoothed by a normal kernel of `width` cells."""
    return gaussian_filter(cells * len(cells) ** 2, width, mode="reflect")


def urn_figure(path: Path, sampled: Sampled) -> None:
    """Eight panels in the order of decreasing total variation, the posterior last."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm

    urns, size, target = sampled.urns, sampled.size, sampled.target
    ordered = sorted(sampled.found.items(), key=lambda item: -item[1].tv)
    panels = [(name, f"TV {m.tv:.3f}", m.cells) for name, m in ordered]
    panels.append(("posterior", f"exact; floor {floor(target, size):.3f}", target))
    norm = LogNorm(0.05, 100.0)
    figure, axes = plt.subplots(2, 4, figsize=(12.4, 6.9), sharex=True, sharey=True, layout="constrained")
    for axis, (title, tv, cells) in zip(axes.flat, panels):
        shown = np.maximum(density(cells).T, norm.vmin)
        image = axis.imshow(
            shown, origin="lower", extent=(0, 1, 0, 1), cmap="magma", norm=norm, interpolation="nearest"
        )
        axis.set_title(f"{title}\n{tv}", fontsize=11)
        axis.set_xticks([0, 0.5, 1], ["0", "½", "1"])
        axis.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    for axis in axes[1]:
        axis.set_xlabel("x, share of red on the left")
    for axis in axes[:, 0]:
        axis.set_ylabel("y, share of blue on the left")
    bar = figure.colorbar(image, ax=axes, extend="both", shrink=0.85, pad=0.015)
    bar.set_label("density over the unit square")
    bar.set_ticks([0.1, 1, 10, 100], labels=["0.1", "1", "10", "100"])
    figure.suptitle(
        f"Two urns after {PASSES} passes: {urns.red:,} red and {urns.blue:,} blue balls, p = {urns.p:g}, "
        f"a = {urns.a:g}; {size:,} chains, TV in {BINS} × {BINS} bins",
        fontsize=12,
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)


# --- two modes and a barrier ------------------------------------------------------------------------------------------

DELTA, GAMMAS, ERROR = 0.1, (0.4, 0.2, 0.1), 0.05
LINEAR_TOP = 900.0  # of the picture's linear scale


def bimodal_table() -> str:
    gaps = [f"{kind}, γ = {g:g}" for g in GAMMAS for kind in ("T_anneal", "bound")]
    head = ["N", f"T_cold, γ = {GAMMAS[1]:g}", *gaps]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for n in (25, 50, 100, 200, 400, 800):
        cells = [f"{cold_duration(Bimodal(n, DELTA, GAMMAS[1]), ERROR):.3g}"]
        for gamma in GAMMAS:
            system = Bimodal(n, DELTA, gamma)
            bound = annealed_bound(system, ERROR)
            cells += [f"{annealed_duration(system, ERROR):.1f}", f"{bound:.1f}" if np.isfinite(bound) else "none"]
        lines.append("| " + " | ".join([str(n), *cells]) + " |")
    system = Bimodal(100, 0.1, 0.2)
    bound = annealed_bound(system, 0.05)
    notes = [
        f"Time to a total variation of ε = {ERROR:g} at barrier δ = {DELTA:g} and gap γ per datum, from x(0) = 0. "
        "The bound is Theorem 4's; there is none while N ≤ log(2/ε)/γ.",
        f"(N, δ, γ, ε) = (100, 0.1, 0.2, 0.05): the bound is T = {bound:.1f}, and the error then "
        f"{annealed_error(system, bound):.4f}.",
    ]
    return "\n".join(["# Two modes and a barrier", "", *notes, "", *lines, ""])


def bimodal_figure(path: Path) -> None:
    """Time against N on a logarithmic scale, and the annealed time alone on a linear one."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    n = np.arange(2, 301, 2)
    colours = dict(zip(GAMMAS, ("#0072b2", "#d55e00", "#009e73")))
    figure, (log_axis, axis) = plt.subplots(1, 2, figsize=(12, 4.9), layout="constrained")
    cold = [cold_duration(Bimodal(k, DELTA, GAMMAS[1]), ERROR) for k in n]
    log_axis.semilogy(n, cold, color="black", lw=2, label=f"cold, γ = {GAMMAS[1]:g} (others alike)")
    log_axis.plot(n, np.exp(DELTA * n) * np.log(1 / ERROR), color="0.6", lw=1.2, ls="--", label="exp(δN) log(1/ε)")
    for gamma in GAMMAS:
        systems = [Bimodal(k, DELTA, gamma) for k in n]
        needed = np.array([annealed_duration(s, ERROR) for s in systems])
        bound = np.array([annealed_bound(s, ERROR) for s in systems])
        for where in (log_axis, axis):
            where.plot(n, needed, color=colours[gamma], lw=2, label=f"annealed, γ = {gamma:g}")
            beyond = "\n(right: beyond the scale)" if np.nanmin(bound) > LINEAR_TOP else ""
            label = f"bound of Theorem 4, γ = {gamma:g}{beyond}"
            where.plot(n, bound, color=colours[gamma], lw=1.2, ls="--", label=label)
    log_axis.set_ylim(1, 1e9)
    log_axis.set_title("logarithmic scale: cold is exponential in N", fontsize=11)
    axis.set_ylim(0, LINEAR_TOP)
    axis.set_title("linear scale: annealed is proportional to N", fontsize=11)
    for where in (log_axis, axis):
        where.set_xlim(0, 300)
        where.set_xlabel("N")
        where.set_ylabel(f"T needed for a total variation of {ERROR:g}")
        where.grid(alpha=0.3)
        where.spines[["top", "right"]].set_visible(False)
    handles, labels = log_axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    figure.suptitle(f"Two modes and a barrier δN with δ = {DELTA:g}, gap γN", fontsize=12)
    figure.savefig(path, dpi=130)
    plt.close(figure)


# --- command line -----------------------------------------------------------------------------------------------------


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Toy models of subsample annealing: tables and figures.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables and pictures; made if missing")
    parser.add_argument("--quick", action="store_true", help="fewer chains: under a minute instead of several")
    parser.add_argument(
        "--chains", type=int, help="chains of each strategy at N = 20,000 (8192); five times as many at 2,000"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(words)
    options.out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - begun:6.0f} s  {text}", flush=True)

    exact = {}
    for urns in EXACT_SIZES:
        target = posterior(urns)
        exact[urns] = {name: total_variation(final_law(urns, name, PASSES), target) for name in STRATEGIES}
        tell(f"({urns.red}, {urns.blue}): exact laws of {len(STRATEGIES)} strategies")
    size = options.chains or (1024 if options.quick else 8192)
    large = []
    for urns, chains in zip(LARGE_SIZES, (5 * size, size)):
        sampled = Sampled(urns, chains, posterior_in_cells(urns, CELLS), {})
        for name in STRATEGIES:
            sampled.found[name] = measure(urns, sampled.target, name, chains, options.seed)
            tell(f"({urns.red}, {urns.blue}): {name}, TV {sampled.found[name].tv:.4f}")
        large.append(sampled)

    table = urn_table(exact, large)
    (options.out / "two_urns.md").write_text(table, encoding="utf-8")
    urn_figure(options.out / "two_urns.png", large[-1])
    (options.out / "bimodal.md").write_text(bimodal_table(), encoding="utf-8")
    bimodal_figure(options.out / "bimodal.png")
    print(f"\n{table}\n{bimodal_table()}")
    tell(f"written to {options.out}")


if __name__ == "__main__":
    main()
