"""Held-out score against time: subsample annealing and plain Gibbs, as in Obermeyer, Glidden & Jonas 2014, Figure 3.

    python benchmarks/annealing.py --data FOLDER --out DIR [--views] [--quick] [--seeds 10] [--jobs 2]

FOLDER is described in public_tables.py. Tables are imported once into DIR/tables. Every result is a line of
DIR/results.csv, written as it comes; what is there is not computed again. From these lines come DIR/annealing.png, one
panel a table, and DIR/annealing.md. About an hour on two cores; `--quick` takes a minute.

For every seed 1/8 of the rows, at random, is held out. The score is the sum over them of the log predictive density
under the state that a strategy has reached when its budget, in CPU seconds of one thread, is spent. Reading the table
and scoring do not count, finding the first partition does. The paper's strategies (one shard, no
split-merge moves, linear growth by the clock over 0.9 of the budget):

    prior+gibbs       a draw of the prior, then Gibbs cycles over all rows
    sequential+gibbs  all rows seated one by one, then Gibbs cycles over all rows
    anneal            a small subsample seated one by one, which grows; then Gibbs cycles over all rows

and beside them

    auto              the program's default: one cluster, all rows, split-merge moves, the default number of shards

--views: the same with cross-categorization. Columns are dealt to 16 random views at first, and Gibbs draws give them
other views; `auto` searches for views first, and splits and merges them.

A cycle that would end after the budget does not count: the state before it is scored. `late` marks a first partition
that took longer than the budget.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from machine import markdown
from public_tables import ATTACK, folder, imported

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.law import Density
from mpibayes.hpc.crosscat.laws.view_density import ViewDensity
from mpibayes.hpc.crosscat.start import strategy, views
from mpibayes.hpc.crosscat.start.searches import best_search
from mpibayes.hpc.crosscat.start.subsample import Annealing
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import Table

GROWTH = 0.9  # of the budget
GIBBS = ("prior+gibbs", "sequential+gibbs")
FIELDS = (
    "table", "strategy", "seed", "budget", "score", "heldout_rows", "per_row", "clusters", "cycles", "seconds",
    "active_rows", "late", "rare_per_row", "views",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A table of the comparison: the first n_rows rows of a source, all where None."""

    name: str
    source: str
    n_rows: int | None
    budgets: tuple[float, ...]  # CPU seconds
    strategies: tuple[str, ...]


RARE = 0.01  # labels of KDD Cup that fewer of the rows have: `rare_per_row` is the score of these held-out rows alone
PLAIN = (*GIBBS, "anneal", "auto")
CASES = (
    Case("hospital", "hospital", None, (0.5, 1.5, 4.0), PLAIN),
    Case("income 10,000", "income", 10_000, (0.7, 2.0, 7.0), PLAIN),
    Case("KDD 10,000", "kdd", 10_000, (0.7, 2.0, 7.0), PLAIN),
    Case("income 100,000", "income", 100_000, (2.0, 6.0, 20.0), PLAIN),
    Case("KDD 100,000", "kdd", 100_000, (2.0, 6.0, 20.0), PLAIN),
    Case("diabetes130", "diabetes", None, (2.0, 6.0, 20.0), PLAIN),
    Case("income, all rows", "income", None, (5.0, 15.0, 45.0), PLAIN),
    Case("KDD, all rows", "kdd", None, (5.0, 15.0, 45.0), PLAIN),
)
QUICK = (
    Case("hospital", "hospital", None, (0.2, 0.5, 1.0), PLAIN),
    Case("KDD 10,000", "kdd", 10_000, (0.3, 0.7, 2.0), PLAIN),
)


@dataclass(frozen=True)
class Task:
    """One chain; its state is scored at each of the budgets."""

    case: Case
    strategy: str
    seed: int
    budgets: tuple[float, ...]
    several: bool = False  # views


# --- one chain -------------------------------------------------------------------------------------------------------


def split(table: Table, n_rows: int, seed: int) -> Data:
    """The first rows of a table, a random 1/8 of them held out; without the label of KDD Cup."""
    data = Data(table, (ATTACK,), None, latent=True)
    order = np.random.default_rng(seed).permutation(n_rows)
    data.heldout, data.training_rows = np.sort(order[: n_rows // 8]), np.sort(order[n_rows // 8 :])
    return data


def run(table: Table, task: Task) -> list[dict]:
    """Scores of a chain at its budgets."""
    data = split(table, task.case.n_rows or table.n_rows, task.seed)
    n = data.n_rows
    training = data.rows_of(0, n)
    rare = rare_rows(table, data, task.case.n_rows or table.n_rows)
    rows_of = lambda start, stop: training.take(slice(start, stop))  # noqa: E731
    law = "learn" if task.several else None
    settings = Settings(seed=task.seed, shards=1, split_merge=0, view_moves=0, view_concentration=law)
    if task.strategy == "auto":
        settings = Settings(seed=task.seed, view_concentration=law)
    elif task.strategy == "anneal":
        rows = max(1, min(n // 4, strategy.START_ROWS))
        growth = Annealing("seconds", start_rows=rows, seconds=GROWTH * task.budgets[-1])
        settings = replace(settings, annealing=growth)
    chain = Mixture(serial(), data.columns, rows_of, n, settings)
    how = {"prior+gibbs": "prior", "auto": "one"}.get(task.strategy, "sequential")
    results = []
    start = starter(data, settings, how, task.several)
    for budget, state in zip(task.budgets, states(chain, start, task.budgets), strict=True):
        parts, places, more = state
        heldout = data.heldout_blocks(serial(), 1).blocks[0]
        log_density = Density([ViewDensity(*part) for part in parts], places).log_density(heldout)
        score = float(log_density.sum())
        results.append(
            {"table": task.case.name, "strategy": task.strategy, "seed": task.seed, "budget": budget, "score": score}
            | {"heldout_rows": len(heldout), "per_row": score / len(heldout), **more, "late": more["seconds"] > budget}
            | {"rare_per_row": float(log_density[rare].mean()) if rare.any() else np.nan}
        )
    return results


def rare_rows(table: Table, data: Data, n_rows: int) -> np.ndarray:
    """Which of the held-out rows have a rare label; none where the table has no label."""
    label = next((c for c in table.columns if c.name == ATTACK), None)
    if label is None:
        return np.zeros(len(data.heldout), bool)
    codes = getattr(table.read(0, n_rows), label.block)[:, label.index]
    return np.bincount(codes)[codes[data.heldout]] < RARE * n_rows


def starter(data: Data, settings: Settings, how: str, several: bool) -> Callable[[Mixture], None]:
    """What finds a chain's first state."""

    def start(chain: Mixture) -> None:
        if several and settings.view_moves:
            plan = strategy.ROWS_OF_EACH, strategy.INITIAL_VIEWS, strategy.SEARCHES
            views.follow(chain, best_search(chain.comm, data, settings, 0, *plan).best)
            return
        if several:
            views.deal(chain, strategy.INITIAL_VIEWS)
        chain.start(how)

    return start


def states(chain: Mixture, start: Callable[[Mixture], None], budgets: tuple[float, ...]) -> Iterator[tuple]:
    """(components, hyperparameters and statistics of each view, their places, what to note) of the last state reached
    within each budget.

    A cycle changes none of the arrays that the state before it consists of.
    """
    if chain.growth is not None:  # the plan follows the clock of the budget, and not that of the wall
        chain.growth.clock = time.process_time
        chain.growth._began = time.process_time()
    began = time.process_time()
    start(chain)
    spent = time.process_time() - began
    state = _state(chain, spent)
    for budget in budgets:
        while spent <= budget:
            state = _state(chain, spent)
            began = time.process_time()
            chain.cycle()
            spent += time.process_time() - began
        yield state


def _state(chain: Mixture, spent: float) -> tuple:
    clusters = sum(int((view.partition.size > 0).sum()) for view in chain.views)
    more = {"clusters": clusters, "cycles": chain.cycles, "seconds": spent, "active_rows": chain.n_active}
    parts = [(view.components, view.hyper, view.partition.statistics) for view in chain.views]
    return parts, chain.places, more | {"views": len(chain.views)}


# --- all of them -----------------------------------------------------------------------------------------------------


def tasks(cases: tuple[Case, ...], seeds: range, done: set[tuple], several: bool) -> list[Task]:
    """What is to be computed: small tables first, then large ones seed by seed, so that a part is of use too.

    The growth of an annealed chain is made for its budget; the other strategies take no notice of it.
    """
    todo = []
    for case in cases:
        for seed in seeds:
            for name in case.strategies:
                cuts = [(b,) for b in case.budgets] if name == "anneal" else [case.budgets]
                todo += [
                    Task(case, name, seed, cut, several)
                    for cut in cuts
                    if not all((case.name, name, seed, budget) in done for budget in cut)
                ]
    small = [c.name for c in cases if c.budgets[-1] < 10]
    return sorted(todo, key=lambda t: -1 if t.case.name in small else t.seed)


def work(task: tuple[Path, Task]) -> list[dict]:
    """In a process of its own."""
    tables, task = task
    return run(Table.open(tables / f"{task.case.source}.h5"), task)


def read(path: Path, cases: tuple[Case, ...]) -> list[dict]:
    """The results there are, of these tables and their budgets."""
    if not path.exists():
        return []
    budgets = {case.name: case.budgets for case in cases}
    results = []
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            for name, kind in (("seed", int), ("budget", float), ("score", float), ("per_row", float)):
                line[name] = kind(line[name])
            line |= {name: float(line[name]) for name in ("clusters", "cycles", "seconds", "active_rows", "views")}
            line["late"] = line["late"] == "True"
            line["rare_per_row"] = float(line["rare_per_row"] or np.nan)
            if line["budget"] in budgets.get(line["table"], ()):
                results.append(line)
    return results


def compute(todo: list[Task], tables: Path, path: Path, jobs: int) -> None:
    """Results to the file, as they come."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # of the new processes
    new = not path.exists()
    with path.open("a", newline="") as file, multiprocessing.get_context("spawn").Pool(jobs) as pool:
        out = csv.DictWriter(file, FIELDS)
        if new:
            out.writeheader()
        for i, results in enumerate(pool.imap_unordered(work, [(tables, t) for t in todo]), 1):
            out.writerows(results)
            file.flush()
            last = results[-1]
            print(
                f"{time.strftime('%H:%M')} {i}/{len(todo)} {last['table']}, {last['strategy']}, seed {last['seed']}, "
                f"{last['budget']:g} s: {last['per_row']:.3f} nats a row, K {last['clusters']}",
                flush=True,
            )


# --- what came out ---------------------------------------------------------------------------------------------------


def by_strategy(results: list[dict], case: Case, what: Callable[[dict], float]) -> dict[str, dict[float, np.ndarray]]:
    """{strategy: {budget: values over seeds}} of a table."""
    result = {name: defaultdict(list) for name in case.strategies}
    for line in results:
        if line["table"] == case.name and line["strategy"] in result:
            result[line["strategy"]][line["budget"]].append(what(line))
    return {name: {b: np.array(v) for b, v in sorted(values.items())} for name, values in result.items() if values}


def summary(results: list[dict], cases: tuple[Case, ...]) -> str:
    """A table for each table: mean, standard deviation over seeds and worst seed, nats a held-out row; and K."""
    parts = []
    for case in cases:
        scores = by_strategy(results, case, lambda line: line["per_row"])
        clusters = by_strategy(results, case, lambda line: line["clusters"])
        late = by_strategy(results, case, lambda line: line["late"])
        if not scores:
            continue
        n_seeds = {len(v) for values in scores.values() for v in values.values()}
        seeds = f"{min(n_seeds)} seeds" if len(n_seeds) == 1 else f"{min(n_seeds)} to {max(n_seeds)} seeds"
        lines = []
        for name, values in scores.items():
            cells = []
            for b in case.budgets:
                x = values.get(b)
                if x is None:
                    cells.append("")
                    continue
                mark = " (late)" if late[name][b].any() else ""
                cells.append(f"{x.mean():.2f} ± {x.std(ddof=len(x) > 1):.2f}, worst {x.min():.2f}{mark}")
            k = clusters[name].get(case.budgets[-1], np.array([np.nan]))
            lines.append([name, *cells, f"{np.median(k):g}"])
        head = ["strategy", *(f"{b:g} s" for b in case.budgets), "median K at the end"]
        parts += [f"**{case.name}** ({seeds})", "", markdown(head, lines), ""]
    return "\n".join(parts)


PAIRS = (
    ("anneal", "prior+gibbs"),
    ("anneal", "sequential+gibbs"),
    ("auto", "anneal"),
)


def paired(results: list[dict], cases: tuple[Case, ...]) -> str:
    """Differences on the same split: mean and its standard error, nats a held-out row, and how many seeds are better.

    Splits differ more than strategies do, so this tells more than the two means.
    """
    score = {(r["table"], r["strategy"], r["seed"], r["budget"]): r["per_row"] for r in results}
    seeds = sorted({r["seed"] for r in results})
    budgets = max(len(case.budgets) for case in cases)
    head = ["table", "difference", *(f"budget {i + 1}" for i in range(budgets))]
    lines = []
    for case in cases:
        for a, b in PAIRS:
            cells = []
            for budget in case.budgets:
                both = [[score.get((case.name, name, seed, budget)) for name in (a, b)] for seed in seeds]
                d = np.array([x - y for x, y in both if None not in (x, y)])
                if len(d):
                    error = d.std(ddof=len(d) > 1) / np.sqrt(len(d))
                    cells.append(f"{budget:g} s: {d.mean():+.2f} ± {error:.2f}, {(d > 0).sum()} of {len(d)}")
            if cells:
                lines.append([case.name, f"{a} - {b}", *cells])
    return markdown(head, lines) + "\n"


COLOURS = {
    "prior+gibbs": "#ec8a45", "sequential+gibbs": "#1f5599", "anneal": "#a8324a", "auto": "#22272e",
}  # fmt: skip
MARKERS = {"prior+gibbs": "s", "sequential+gibbs": "^", "anneal": "o", "auto": "D"}


def figure(results: list[dict], cases: tuple[Case, ...], path: Path) -> None:
    """Samples and means, standardised for each table over all that was run on it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    n_panels = len(cases) + 1  # the last has the legend
    columns = min((4, 3), key=lambda c: -n_panels % c) if n_panels > 4 else n_panels
    n = -(-n_panels // columns)
    panels, axes = plt.subplots(n, columns, figsize=(3.6 * columns, 3.1 * n), layout="constrained", squeeze=False)
    handles = {}
    for axis, case in zip(axes.flat, cases, strict=False):
        scores = by_strategy(results, case, lambda line: line["score"])
        everything = np.concatenate([x for values in scores.values() for x in values.values()] or [np.zeros(1)])
        center, scale = everything.mean(), everything.std() or 1.0
        for i, (name, values) in enumerate(scores.items()):
            side = 1.05 ** (2 * i - len(scores) + 1)  # so that points of different strategies do not hide each other
            style = {"color": COLOURS[name], "marker": MARKERS.get(name, "v")}
            for budget, x in values.items():
                place = np.full(len(x), budget * side)
                axis.plot(place, (x - center) / scale, linestyle="", markersize=4, alpha=0.4, mew=0, **style)
            means = [(x.mean() - center) / scale for x in values.values()]
            line = axis.plot(np.array(list(values)) * side, means, linewidth=1.6, markersize=5, **style)
            handles.setdefault(name, line[0])
        low, high = (np.percentile(everything, [4, 100]) - center) / scale  # a chain that got nowhere hides the others
        margin = 0.15 * (high - low) + 0.05
        axis.set(xscale="log", title=case.name, ylim=(low - margin, high + margin))
        outside = int(((everything - center) / scale < low - margin).sum())
        if outside:
            axis.text(0.02, 0.02, f"{outside} below", transform=axis.transAxes, fontsize=8)
        axis.set_xticks(case.budgets, [f"{b:g}" for b in case.budgets])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(cases) :]:
        axis.axis("off")
    axes.flat[len(cases)].legend(handles.values(), handles.keys(), loc="center", frameon=False)
    for axis in axes[:, 0]:
        axis.set_ylabel("held-out score, standardised")
    panels.supxlabel("CPU seconds of one thread")
    panels.savefig(path, dpi=130)
    plt.close(panels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of public tables (default: $MPIBAYES_DATA)")
    parser.add_argument("--out", type=Path, default=Path("annealing"))
    parser.add_argument("--seeds", type=int, default=None, help="how many (default: 10; with --quick 2)")
    parser.add_argument("--jobs", type=int, default=2, help="chains at once, one thread each")
    parser.add_argument("--views", action="store_true", help="cross-categorization; to a folder of its own")
    parser.add_argument("--only", nargs="+", help="these tables alone")
    parser.add_argument("--strategies", nargs="+", choices=PLAIN, help="these strategies alone")
    parser.add_argument("--quick", action="store_true", help="two tables, 2 seeds, small budgets")
    parser.add_argument("--report", action="store_true", help="figure and table of what there is; run nothing")
    given = parser.parse_args()
    cases = QUICK if given.quick else CASES
    if given.views:
        cases = tuple(replace(case, strategies=PLAIN) for case in cases)
    if given.strategies:
        cases = tuple(replace(case, strategies=tuple(given.strategies)) for case in cases)
    if given.only:
        cases = tuple(case for case in cases if case.name in given.only)
    seeds = range(given.seeds or (2 if given.quick else 10))
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "results.csv"
    if not given.report:
        for name in dict.fromkeys(case.source for case in cases):
            imported(folder(given.data), name, given.out / "tables")
        done = {(r["table"], r["strategy"], r["seed"], r["budget"]) for r in read(path, cases)}
        compute(tasks(cases, seeds, done, given.views), given.out / "tables", path, given.jobs)
    results = read(path, cases)
    (given.out / "annealing.md").write_text(summary(results, cases) + "\n" + paired(results, cases))
    figure(results, cases, given.out / "annealing.png")
    print((given.out / "annealing.md").read_text())
    print(f"results.csv, annealing.md and annealing.png are in {given.out}")


if __name__ == "__main__":
    main()
