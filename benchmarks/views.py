"""Cross-categorization from many seeds: do the columns find their views, how good is the score, and how soon?

    python benchmarks/views.py [--data FOLDER] [--seeds 10] [--only cc_10k ...] [--seconds S]
    python benchmarks/views.py --costs
    python benchmarks/views.py --memory
    mpirun -n 2 python benchmarks/views.py --ranks

Made tables, `views x clusters` of the same law: 68 categorical columns of 2 to 18 levels, dealt to views at random; in
each view the rows have a partition of their own into 12 clusters, in which every column has a distribution of its own.

    cc_10k, cc_100k    4 views
    cc8_10k            8 views
    noise_10k          2 views of 38 columns, and 30 that have nothing to do with any
    cat_10k            one view (discrete_tables.py)

For them: CPU seconds of one thread, the start's among them, until the columns' partition is the true one and stays so
to the end (of noise columns, which have no view of their own, it does not matter where they are); views in the end, and
how far the held-out score is from that of the true distributions. Real tables, with --data: held-out scores after 2, 5,
8 and 10 seconds. Scores are those of the common scorer (scorer.py), view by view. Scoring is not counted.

--costs: instead, CPU milliseconds of a cycle of 10,000 rows whose columns are in 1, 4 and 8 views, in the long run.
--ranks: instead, wall seconds of 40 cycles of 200,000 rows in 4 views, on the ranks that there are, after 100 cycles.
--memory: instead, the peak of a run of 3 cycles on 1,000,000 rows in 8 views, above that of a run on 250,000.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from discrete_tables import HELD_OUT, Discrete
from machine import markdown
from public_tables import folder
from scorer import adjusted_rand, heldout_codes
from tables import PUBLIC, discrete

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.start import strategy, views
from mpibayes.hpc.crosscat.start.combined import combined
from mpibayes.hpc.crosscat.start.searches import best_search
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.io.table import write_table

MADE = {  # rows, views, noise columns, CPU seconds
    "cc_10k": (10_000, 4, 0, 9.0), "cc_100k": (100_000, 4, 0, 20.0), "cc8_10k": (10_000, 8, 0, 12.0),
    "noise_10k": (10_000, 2, 30, 12.0), "cat_10k": (10_000, 1, 0, 5.0),
}  # fmt: skip
REAL_S, MARKS_S = 10.0, (2.0, 5.0, 8.0, 10.0)
CLUSTERS, COLUMNS = 12, 68


@dataclass(frozen=True)
class Table:
    """view_of: of each column, -1 for noise; None of a real table. best: mean held-out log density of the law that the
    table was drawn from."""

    codes: Discrete
    view_of: np.ndarray | None = None
    best: float = np.nan


def made(name: str, rows: int, n_views: int, noise: int, seed: int = 4411) -> Table:
    """See the module. Tables of one seed have the same law, whatever the rows."""
    model = np.random.default_rng([seed, n_views])
    levels = model.integers(2, 19, COLUMNS)
    view_of = model.integers(0, n_views, COLUMNS)
    view_of[model.permutation(COLUMNS)[:noise]] = -1
    laws = [(law := model.dirichlet(np.full(n, 0.7), CLUSTERS) + 1e-6) / law.sum(axis=1)[:, None] for n in levels]
    weights = np.arange(1, CLUSTERS + 1) ** -0.7
    weights /= weights.sum()
    draws = np.random.default_rng([seed, n_views, rows])
    total = rows + HELD_OUT
    x, best = np.empty((total, COLUMNS), np.int8), 0.0
    for view in range(-1, n_views):
        z = draws.choice(CLUSTERS, total, p=weights) if view >= 0 else np.zeros(total, np.int64)
        terms = np.log(weights)[:, None] + np.zeros((CLUSTERS, HELD_OUT)) if view >= 0 else np.zeros((1, HELD_OUT))
        for c in np.flatnonzero(view_of == view):
            u, below = draws.random(total), np.cumsum(laws[c], axis=1)
            x[:, c] = (u[:, None] > below[z]).sum(axis=1).clip(max=levels[c] - 1)
            terms += np.log(laws[c][: len(terms), x[rows:, c]])
        best += float(np.logaddexp.reduce(terms, axis=0).mean())
    return Table(Discrete(name, x[:rows], x[rows:], tuple(levels.tolist())), view_of, best)


@dataclass
class Course:
    """One chain: CPU seconds to the true views (inf: never), agreement and views at the end, scores at the marks and
    in the end."""

    hit_s: float
    agreement: float
    n_views: int
    scores: list[float]


class Rows:
    """What a pilot asks of `data.rows.Data`."""

    def __init__(self, columns, rows):
        self.columns, self.rows, self.n_rows = columns, rows, len(rows)

    def rows_at(self, places):
        return self.rows.take(places)


def found_views(comm, columns, rows, settings: Settings) -> views.Pilot:
    """Views that the default searches find."""
    plan = strategy.ROWS_OF_EACH, strategy.INITIAL_VIEWS, strategy.SEARCHES
    choice = best_search(comm, data := Rows(columns, rows), settings, 0, *plan)
    return combined(comm, data, settings, 0, strategy.ROWS_OF_EACH, choice)[0]


def chain(table: Table, seed: int, seconds: float, marks: tuple[float, ...]) -> Course:
    """The default configuration, until the CPU seconds are spent."""
    columns, rows = table.codes.table()
    settings = Settings(seed=seed, view_concentration="learn", columns_stay=strategy.CYCLES_OF_ROWS)
    mixture = Mixture(serial(), columns, lambda a, b: rows.take(slice(a, b)), len(rows), settings)
    began = time.process_time()
    views.take(
        mixture, found_views(mixture.comm, columns, rows, settings), "random", strategy.clusters_at_random(len(rows))
    )
    spent, hit_s, agreement, scores, left = time.process_time() - began, np.inf, np.nan, [], list(marks)
    last = None
    while spent <= seconds or last is None:
        began = time.process_time()
        mixture.cycle()
        spent += time.process_time() - began
        while left and spent > left[0]:  # of the last state within that time
            scores.append(np.nan if last is None else score(table, *last))
            left.pop(0)
        if spent > seconds and last is not None:
            break  # what came after the time does not count, but for a first state
        last = state(mixture)
        if table.view_of is not None:
            reported = table.view_of >= 0
            agreement = adjusted_rand(table.view_of[reported], last[0][reported])
            hit_s = np.inf if agreement < 1.0 else min(hit_s, spent)
    return Course(hit_s, agreement, len(last[1]), [*scores, score(table, *last)])


def costs() -> list[list[str]]:
    """Of a cycle from the 101st on: all of it, and the rows' part with moves of rows, but none of columns."""
    lines = []
    for name in ("cat_10k", "cc_10k", "cc8_10k"):
        *law, _ = MADE[name]
        codes = discrete(name, None) if law[1] == 1 else made(name, *law).codes
        columns, rows = codes.table()
        settings = Settings(seed=1, view_concentration="learn")
        mixture = Mixture(serial(), columns, lambda a, b, rows=rows: rows.take(slice(a, b)), len(rows), settings)
        found = found_views(mixture.comm, columns, rows, settings)
        views.take(mixture, found, "random", strategy.clusters_at_random(len(rows)))
        while mixture.cycles < 100:
            mixture.cycle()
        whole = milliseconds(mixture)
        mixture.settings = replace(settings, column_moves=0)
        with_moves = milliseconds(mixture)
        mixture.settings = replace(settings, column_moves=0, split_merge=0)
        bare = milliseconds(mixture)
        sizes = [view.n_labels for view in mixture.views]
        lines.append([name, len(sizes), sum(sizes), f"{whole:.1f}", f"{with_moves:.1f}", f"{bare:.1f}"])
        print(*lines[-1], flush=True)
    return lines


def milliseconds(mixture: Mixture, cycles: int = 40) -> float:
    """CPU time of a cycle, on average."""
    began = time.process_time()
    for _ in range(cycles):
        mixture.cycle()
    return (time.process_time() - began) / cycles * 1e3


def ranks() -> None:
    """Wall seconds of cycles in the long run, on all ranks of this program."""
    comm = world()
    columns, rows = made("", 200_000, 4, 0).codes.table()
    settings = Settings(seed=1, view_concentration="learn")
    mixture = Mixture(comm, columns, lambda a, b: rows.take(slice(a, b)), len(rows), settings)
    views.follow(mixture, found_views(comm, columns, rows, settings))
    while mixture.cycles < 100:
        mixture.cycle()
    seconds = []
    for _ in range(40):
        comm.barrier()
        began = time.perf_counter()
        mixture.cycle()
        seconds.append(time.perf_counter() - began)
    if comm.rank == 0:
        print(f"{comm.size} ranks: {np.mean(seconds) * 1e3:.1f} ms a cycle, {len(mixture.views)} views")


PEAK = """
import re, sys
from mpibayes.hpc.run.loop import main
code = main("run.toml", "out")
print("peak-kib", re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
sys.exit(code)
"""


def memory() -> list[list[str]]:
    """Resident bytes at the peak of a run: of two tables, and of each row that one has more."""
    lines, peaks, sizes = [], [], (250_000, 1_000_000)
    for rows in sizes:
        with tempfile.TemporaryDirectory() as place:
            columns, cells = made("", rows, 8, 0).codes.table()
            write_table(Path(place) / "table.h5", columns, cells)
            settings = '[data]\ntable = "table.h5"\n[model]\nfamily = "crosscat"\n[run]\nseed = 1\ncycles = 3\n'
            (Path(place) / "run.toml").write_text(settings)
            done = subprocess.run([sys.executable, "-c", PEAK], cwd=place, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split("peak-kib ")[1].split()[0]) * 1024)
        lines.append([f"{rows:,} rows", f"{peaks[-1] / 2**20:.0f} MiB"])
    lines.append(["a row", f"{(peaks[1] - peaks[0]) / (sizes[1] - sizes[0]):.0f} bytes"])
    return lines


def state(mixture: Mixture) -> tuple[np.ndarray, list[np.ndarray]]:
    """The view of each column, and the labels of each view."""
    home = {name: v for v, view in enumerate(mixture.views) for name in view.columns}
    return np.array([home[c.name] for c in mixture.columns]), [view.labels() for view in mixture.views]


def score(table: Table, view_of: np.ndarray, labels: list[np.ndarray]) -> float:
    """Held-out score of a state, nats a row."""
    t, total = table.codes, 0.0
    for view, z in enumerate(labels):
        part = np.flatnonzero(view_of == view)
        total += heldout_codes(t.x[:, part], t.held[:, part], tuple(t.levels[c] for c in part), z)
    return total


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--data", help="folder of public tables (public_tables.py)")
    words.add_argument("--seeds", type=int, default=10)
    words.add_argument("--first", type=int, default=1, help="the first seed")
    words.add_argument("--only", nargs="+", default=[*MADE, *PUBLIC])
    words.add_argument("--seconds", type=float, help="CPU seconds a chain, instead of each table's own")
    words.add_argument("--costs", action="store_true", help="what a cycle costs, instead")
    words.add_argument("--ranks", action="store_true", help="seconds of cycles on these ranks, instead")
    words.add_argument("--memory", action="store_true", help="what a row takes, instead")
    given = words.parse_args()
    if given.ranks:
        ranks()
        return
    if given.memory:
        print(markdown(["of", "at the peak"], memory()))
        return
    if given.costs:
        head = ["table", "views", "clusters", "cycle, ms", "without moves of columns", "and without moves of rows"]
        print(markdown(head, costs()))
        return
    lines = []
    for name in given.only:
        if name in PUBLIC and given.data is None:
            continue
        if name in PUBLIC:
            table, seconds, marks = Table(discrete(name, folder(given.data))), REAL_S, MARKS_S
        else:
            *law, seconds = MADE[name]
            one = Table(discrete(name, None), np.zeros(COLUMNS, int)) if law[1] == 1 else None
            table, marks = one or made(name, *law), ()
        for seed in range(given.first, given.first + given.seeds):
            c = chain(table, seed, given.seconds or seconds, marks)
            gap = "" if np.isnan(table.best) else f"{table.best - c.scores[-1]:.3f}"
            marked = " ".join(f"{x:.2f}" for x in c.scores[:-1])
            lines.append(
                [name, seed, f"{c.hit_s:.1f}", f"{c.agreement:.3f}", c.n_views, f"{c.scores[-1]:.3f}", gap, marked]
            )
            print(*lines[-1], flush=True)
    print(markdown(["table", "seed", "right after, s", "agreement", "views", "score", "gap", "at the marks"], lines))


if __name__ == "__main__":
    main()
