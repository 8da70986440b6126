"""Collapsed, uncollapsed and partially collapsed samplers on Gaussian clusters: F1 of co-clustering by iteration.

The experiments of sections 3.1 and 3.2 of Zhang (2016) as one command:

    python benchmarks/published_schemes.py [--quick] [--out FOLDER]

It writes two figures and a table (CSV, one line a method, setting, repeat and iteration) and prints a summary.

Followed as stated: 100 rows from two Gaussians at +s and -s times (1, ..., 1), identity covariance, s = 5, dimension 10
(section 3.1); weights by stick breaking and locations from the base measure, growing numbers of processors, warm start,
F1 of a test set (section 3.2), with small and large separation (figures 3.3, 3.4).  Not stated there, and chosen here:
concentration 1; all chains start from one cluster; five atoms from the base measure in the uncollapsed sampler; one
sweep an iteration; for section 3.2 300 rows and 100 to test on, concentration 2, dimension 5, locations 1, 5 and 15
standard deviations wide, F1 of pairs, each test row in its most probable cluster.  Different here: columns are
independent given the cluster (normal-inverse-chi-square) where section 3.2 has a full covariance, for every method
alike; F1 is of training rows for section 3.1, of test rows for section 3.2; medians and quartiles over repeats are
shown.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import time
from pathlib import Path

import numpy as np
from gaussian_schemes import (
    Prior,
    assigned,
    f1,
    package,
    published,
    stick_breaking_gaussians,
    two_gaussians,
    uncollapsed,
)

# name: (colour, line, sampler of (x, prior, concentration, seed)); FAMILIES: section 3.2, by number of shards or ranks
METHODS = {
    "collapsed (1 shard)": ("black", "-", lambda *a: package(*a, shards=1)),
    "ours, 4 shards, one opens": ("tab:blue", "-", lambda *a: package(*a, shards=4)),
    "ours, 4 shards, all open": ("tab:cyan", "-", lambda *a: package(*a, shards=4, opening="all")),
    "uncollapsed (3.1)": ("tab:red", "--", lambda *a: uncollapsed(*a)),
    "published hybrid, 1 rank": ("tab:orange", "--", lambda *a: published(*a, ranks=1)),
    "published hybrid, 4 ranks": ("tab:brown", "--", lambda *a: published(*a, ranks=4)),
    "(2.10) as printed, 4 ranks": ("tab:pink", ":", lambda *a: published(*a, ranks=4, literal=True)),
}


FAMILIES = {
    "ours, one opens": lambda p: lambda *a: package(*a, shards=p),
    "ours, all open": lambda p: lambda *a: package(*a, shards=p, opening="all"),
    "published, warm start": lambda p: lambda *a: published(*a, ranks=p, warm=True),
}


TESTED = 100


def trace(method, x, truth, prior, concentration, seed, iterations, tested):
    """F1 and number of clusters after each iteration, (iterations,) each, and CPU seconds an iteration.

    tested: so many last rows are not trained on, and F1 is theirs; 0: that of the training rows.
    """
    n = len(x) - tested
    start = time.process_time()
    labels = list(itertools.islice(method(x[:n], prior, concentration, seed), iterations))
    seconds = (time.process_time() - start) / iterations
    scored = [assigned(x[n:], x[:n], z, prior) for z in labels] if tested else labels
    known = truth[n:] if tested else truth
    return [f1(z, known) for z in scored], [len(np.unique(z)) for z in labels], seconds


def experiment(methods, settings, repeats, iterations, prior, concentration, seed, tested=0):
    """{(setting, method): (F1, clusters)}, arrays (repeats, iterations); all methods see the same data."""
    out = {}
    for number, (setting, data) in enumerate(settings.items()):
        sets = [data(np.random.Generator(np.random.Philox([seed, 1000 * number + r]))) for r in range(repeats)]
        for name, (*_, method) in methods.items():
            runs = [
                trace(method, x, truth, prior, concentration, seed + r, iterations, tested)
                for r, (x, truth) in enumerate(sets)
            ]
            score, clusters, seconds = zip(*runs)
            out[setting, name] = np.array(score), np.array(clusters)
            middle = np.median(score, axis=0)
            print(
                f"{setting:32} {name:30} F1 at 1/10, end: {middle[iterations // 10]:.3f}, {middle[-1]:.3f}; "
                f"clusters {np.median(np.array(clusters)[:, -1]):.0f}; "
                f"{1e3 * np.mean(seconds):.1f} ms an iteration",
                flush=True,
            )
    return out


def panel(axis, curves, title):
    """Median F1 with quartiles against iteration; curves: [(label, colour, line, F1 (repeats, iterations))]."""
    for label, colour, line, score in curves:
        low, middle, high = np.quantile(score, (0.25, 0.5, 0.75), axis=0)
        iteration = np.arange(1, score.shape[1] + 1)
        axis.plot(iteration, middle, color=colour, linestyle=line, label=label, linewidth=1.4)
        axis.fill_between(iteration, low, high, color=colour, alpha=0.1, linewidth=0)
    axis.set(xscale="log", ylim=(0, 1.03), title=title)


def figure_of(panels, columns, title, path):
    """panels: {title: curves}, in rows of `columns`; one legend below."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = -(-len(panels) // columns)
    size = (3.6 * columns, 2.7 * rows + 1.2)
    figure, axes = plt.subplots(rows, columns, figsize=size, sharey=True, squeeze=False, layout="constrained")
    for axis, (name, curves) in zip(axes.flat, panels.items()):
        panel(axis, curves, name)
    for axis in axes[-1]:
        axis.set_xlabel("iteration (one sweep, one sync)")
    for axis in axes[:, 0]:
        axis.set_ylabel("F1 of pairs together")
    figure.suptitle(title)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(figure)


def write(results, path):
    """Long table of every number drawn."""
    with open(path, "w", newline="") as stream:
        out = csv.writer(stream)
        out.writerow(["setting", "method", "repeat", "iteration", "f1", "clusters"])
        for (setting, name), (score, clusters) in results.items():
            for r, i in np.ndindex(score.shape):
                out.writerow([setting, name, r, i + 1, f"{score[r, i]:.6f}", clusters[r, i]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer settings, repeats and iterations (under a minute)")
    parser.add_argument("--out", type=Path, default=Path("published_schemes"), help="folder for figures and table")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    repeats, iterations = (3, 30) if given.quick else (10, 200)
    dimensions = (2, 10) if given.quick else (2, 10, 50)
    separations = (0.5, 5.0) if given.quick else (0.5, 1.0, 5.0)
    counts = (1, 4) if given.quick else (1, 2, 4, 8)
    widths = (1.0, 15.0) if given.quick else (1.0, 5.0, 15.0)
    prior = Prior()
    given.out.mkdir(parents=True, exist_ok=True)

    gaussians = {
        f"dimension {d}, separation {s:g}": lambda g, d=d, s=s: two_gaussians(100, d, s, g)
        for d, s in itertools.product(dimensions, separations)
    }
    results = experiment(METHODS, gaussians, repeats, iterations, prior, 1.0, given.seed)
    panels = {
        setting: [(name, colour, line, results[setting, name][0]) for name, (colour, line, _) in METHODS.items()]
        for setting in gaussians
    }
    title = "Two Gaussian clusters, 100 rows, from one cluster"
    figure_of(panels, len(separations), title, given.out / "dimension_and_separation.png")

    methods = {f"{family}, {p}": (family, p, make(p)) for family, make in FAMILIES.items() for p in counts}
    more = {}
    for width in widths:
        spread = Prior(kappa=1.0 / width**2)
        setting = f"locations {width:g} wide"
        sticks = {setting: lambda g, spread=spread: stick_breaking_gaussians(300 + TESTED, 5, 2.0, spread, g)}
        more |= experiment(methods, sticks, repeats, iterations, spread, 2.0, given.seed, TESTED)
    colours = dict(zip(counts, ("black", "tab:blue", "tab:orange", "tab:red")))
    panels = {
        f"{family}, {setting}": [
            (f"{p} shards or ranks", colours[p], "-", more[setting, f"{family}, {p}"][0]) for p in counts
        ]
        for setting in dict.fromkeys(setting for setting, _ in more)
        for family in FAMILIES
    }
    title = "Clusters by stick breaking, 300 rows, dimension 5, from one cluster: F1 of 100 other rows"
    figure_of(panels, 3, title, given.out / "processors.png")
    write({**results, **more}, given.out / "f1.csv")
    print(f"figures and f1.csv are in {given.out}")


if __name__ == "__main__":
    main()
