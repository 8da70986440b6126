"""CPU time of sweeps that leave out clusters (docs/math.md 2.13) beside full ones, on tables with many clusters.

    python benchmarks/pruning.py [--data FOLDER] [--tables kdd income made] [--keep]

Each state is that of a chain started from k-means of so many centers, a few cycles later. Of one draw every shard
without a tail is swept in full and pruned, in turns, from the same labels; the labels are compared. The bounds' tables,
which a rank makes once a cycle, count among the pruned sweeps' time. `decided`: share of rows that need no full scores.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import keep, markdown
from public_tables import folder, imported

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.view import pruning
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.rows import Rows
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels.mixture import pruning as kernel


def made(n: int, n_clusters: int) -> tuple[list, Rows]:
    """n rows of 40 categorical and 8 real columns from clusters that overlap."""
    rng = np.random.default_rng(1)
    z, cells = rng.integers(n_clusters, size=n), []
    for c, v in enumerate(rng.integers(2, 19, size=40)):
        theta = rng.dirichlet(np.full(v, 0.4), size=n_clusters).cumsum(axis=1)
        codes = (rng.random(n)[:, None] > theta[z]).sum(axis=1).clip(max=v - 1)
        cells.append((f"c{c}", "categorical", codes, [str(i) for i in range(v)]))
    cells += [(f"r{c}", "real", rng.normal(2.0 * rng.normal(size=n_clusters)[z]), None) for c in range(8)]
    return table_from_arrays(cells)


def centers(columns, rows: Rows, n_clusters: int, rounds: int = 6) -> np.ndarray:
    """Labels by k-means, on random projections of levels and standardised cells."""
    rng, n = np.random.default_rng(1), len(rows)
    x = np.zeros((n, 24), np.float32)
    for column in columns:
        cells = getattr(rows, column.block)[:, column.index]
        if column.levels:
            x += rng.normal(size=(len(column.levels) + 1, 24)).astype(np.float32)[cells]
        else:
            there = ~np.isnan(cells)
            scale = cells[there].std() or 1.0
            z = np.where(there, np.clip((np.nan_to_num(cells) - cells[there].mean()) / scale, -3, 3), 0.0)
            x += np.outer(z, rng.normal(size=24)).astype(np.float32)
    center = x[rng.choice(n, n_clusters, replace=False)]
    for _ in range(rounds):
        far = (center**2).sum(axis=1)
        z = np.concatenate([(far - 2 * x[i : i + 5000] @ center.T).argmin(axis=1) for i in range(0, n, 5000)])
        size = np.maximum(np.bincount(z, minlength=n_clusters), 1)
        center = np.stack([np.bincount(z, part, n_clusters) / size for part in x.T], axis=1).astype(np.float32)
    return np.unique(z, return_inverse=True)[1]


def state(name: str, data: str | None, out: Path, n_rows: int, n_clusters: int) -> Mixture:
    """A chain in a few cycles after k-means."""
    if name == "made":
        columns, rows = made(n_rows, n_clusters)
    else:
        table = imported(folder(data), name, out)
        columns, rows = table.columns, table.read()
        rows = rows.take(slice(0, n_rows))
    settings = Settings(seed=1, split_merge=0)
    mixture = Mixture(serial(), columns, lambda a, b: rows.take(slice(a, b)), len(rows), settings)
    mixture.start(centers(columns, rows, n_clusters))
    for _ in range(4):
        mixture.cycle()
    return mixture


FAVOUR = pruning.FAVOUR  # as chains have it
HEAD = ["table", "clusters", "full, ns a row", "pruned", "times faster", "switched on", "decided"]


def compare(mixture: Mixture, repeats: int) -> tuple[list[str], dict]:
    """Clusters, nanoseconds a row in full and pruned, their ratio, whether the chain would prune, and the share of rows
    that are decided by bounds; and every repeat."""
    view, seconds, decided, pruning.PAUSE = mixture.view, {False: [], True: []}, [], 0
    for _ in range(repeats):
        mixture.cycle()
        labels = {}
        step = view.begin(mixture.cycles + 1, learn=False)
        swept = [i for i, shard in enumerate(view.shards) if shard.index not in step.collapsed]
        n = sum(len(view.shards[i]) for i in swept)
        for pruned in (False, True):
            pruning.FAVOUR = 0.0 if pruned else 1e9
            vars(step).pop("bounds", None)
            began, spent = time.process_time(), 0.0
            tables = step.free_of_owners, step.bounds
            spent += time.process_time() - began if pruned else 0.0
            inner = step._sweep

            def timed(*of, inner=inner):
                nonlocal spent
                began = time.process_time()
                moved = inner(*of)
                spent += time.process_time() - began
                return moved

            step._sweep = timed
            labels[pruned] = [step.run(view.shards[i], view.z[i]) for i in swept]
            step._sweep = inner
            seconds[pruned].append(spent / n)
        if any((a != b).any() for a, b in zip(*labels.values(), strict=True)):
            raise SystemExit("labels differ: the bounds are wrong")
        decided.append(np.mean(shares(step, view, swept)))
        del tables
    pruning.FAVOUR = FAVOUR
    chosen = view.pruning.worthwhile(len(step.kept), n) and not view.pruning.is_loss(len(step.kept), step.bounds.work)
    full, pruned = (1e9 * float(np.median(seconds[how])) for how in (False, True))
    line = [f"{len(step.kept):,}", f"{full:,.0f}", f"{pruned:,.0f}", f"{full / pruned:.1f}", "yes" if chosen else "no"]
    return [*line, f"{np.mean(decided):.5f}"], {"full_s_a_row": seconds[False], "pruned_s_a_row": seconds[True]}


def shares(step, view, swept) -> list[float]:
    """Share of each shard's rows that bounds decide."""
    order, draw = step.free_of_owners
    to_local = np.full(len(step.private), -1, np.int32)
    to_local[step.kept[order]] = np.arange(len(order))
    key = [step.key[name] for name in ("seed", "cycle")]
    result = []
    for i in swept:
        shard, z = view.shards[i], to_local[view.z[i]]
        of = shard.rows, z, shard.start, *key, 0, step.key["chain"], draw, step.bounds, step.pruning.bins(shard)
        result.append(np.mean(kernel.prune(*of, step.prior) != kernel.UNDECIDED))
    return result


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--data", default=os.environ.get("MPIBAYES_DATA"), help="folder of public tables")
    words.add_argument("--kept", help="folder in which imported tables are kept")
    words.add_argument("--tables", nargs="+", default=["kdd", "income", "made"])
    words.add_argument("--clusters", nargs="+", type=int, default=[80, 160, 400, 1000, 3000])
    words.add_argument("--rows", type=int, default=100_000)
    words.add_argument("--repeats", type=int, default=5)
    words.add_argument("--keep", action="store_true", help="write results/pruning.json and the README there")
    given, lines, measured = words.parse_args(), [], []
    with tempfile.TemporaryDirectory() as place:
        for name in given.tables:
            for k in given.clusters:
                mixture = state(name, given.data, Path(given.kept or place), given.rows, k)
                line, repeats = compare(mixture, given.repeats)
                lines.append([name, *line])
                measured.append({"table": name, "clusters": line[0], **repeats})
                print(*lines[-1], flush=True)
    print(markdown(HEAD, lines))
    if given.keep:
        title = f"Sweeps of {given.rows:,} rows that leave out clusters beside full ones, a few cycles after k-means"
        table = {"title": title, "head": HEAD, "lines": lines}
        chosen = f"--tables {' '.join(given.tables)} --clusters {' '.join(map(str, given.clusters))}"
        command = f"python benchmarks/pruning.py --data FOLDER {chosen}"
        print(keep("pruning", "Pruned sweeps", command, [table], repeats=measured))


if __name__ == "__main__":
    main()
