"""Held-out scores of mixtures, or of views, with forests of links beside those without, at the same CPU seconds on one
core.

    python benchmarks/links.py binary --data FOLDER --out OUT [--tables nltcs plants] [--seconds 300] [--valid]
        [--chains 2]
    python benchmarks/links.py tables FILE.h5 ... --out OUT [--seconds 150]
    python benchmarks/links.py views FILE.h5 ... --out OUT [--seconds 150]
    python benchmarks/links.py independent --out OUT [--seeds 10]
    python benchmarks/links.py same FILE.h5 ... --out OUT
    python benchmarks/links.py schedules FILE.h5 ... --out OUT [--seeds 2]
    mpirun -n 2 python benchmarks/links.py ranks FILE.h5 ... --out OUT [--cycles 120]

binary: 0/1 tables of FOLDER/binary_density/NAME.{train,valid,test}.data.xz; training rows alone, as in published
scores, or with --valid the validation rows too, scored on all test rows. tables: imported tables; a tenth of the rows
is held out; forests with numbers in lines, below levels and as parents by bins (forest; "forest with bases": link_base
= "learned"), the same but for numbers below levels (forest of lines), by bins alone (forest of bins), and of columns
with levels alone (forest of levels).
views: the same tables cross-categorized, from one search without links on 3,000 rows, whose time counts; numbers are
no parents by bins.
independent: tables of 12,000 rows of six clusters, and 50 columns that are independent in each; 1,000 cycles of a chain
with links and one without, by turns; all but the first hundred are scored. "lost": time that links add, with draws of
links, as a share, in all cycles and in those.
same: a cycle with links beside one without, from the same labels, those of a chain with links after 150 cycles; without
splits and merges, so that clusters stay about as many; and a draw of links, later one in 1,000 cycles.
schedules: chains of 1,000 cycles that draw links as by default, and others that do so every 100 cycles, of seeds from 1
on; scored are the second half of 300 cycles, and that of all. For pairs of chains: links in common, adjusted Rand index
at the end.
ranks: cycles of a chain with links on one rank while the others sleep, of one on each rank at once, which is what the
machine allows, and of one on all ranks together, by turns. Timed are the second half of the first cycles (splits and
merges in each), and as many after cycle 1,000 (in each fourth). "of": T1 / (n Tn), median, and of all cycles together.
The score is the mean log density a row, in nats, of the average of the draws of the second half; with --chains a last
line has that of the average over chains of consecutive seeds, each of which has `seconds`.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
from outcome_ranks import seconds

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.heldout import HeldOut
from mpibayes.hpc.crosscat.start import views
from mpibayes.hpc.data.bins import fit_bins
from mpibayes.hpc.data.children import child_columns
from mpibayes.hpc.data.lines import line_columns
from mpibayes.hpc.data.rows import Data, HeldOutRows
from mpibayes.hpc.data.shapes import fit_shapes
from mpibayes.hpc.links import moves
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.hpc.posterior.similarity import similarity
from mpibayes.io.table import Table, table_from_arrays

BINARY = ("nltcs", "plants", "jester", "baudio", "bnetflix", "accidents", "pumsb_star", "dna", "mushrooms")
EVERY = 5  # cycles between two draws that are scored
MORE = "forest of lines", "forest of bins", "forest of levels"
AT = 300, 1000  # cycles at which schedules of draws are compared
SCHEDULES = {"default": (moves.FIRST, moves.LATER), "every 100": ((3, 10, 25, 50, 75), 100)}
SEARCHED, GROUPS = 3_000, 16  # rows that a search for views has, and groups of columns that it starts with


def binary(data: Path, name: str, valid: bool):
    """(columns, training rows, test rows) of a 0/1 table. valid: train on the validation rows, too."""
    parts = []
    for part in ("train", "valid", "test"):
        with lzma.open(data / "binary_density" / f"{name}.{part}.data.xz", "rt") as file:
            parts.append(np.loadtxt(file, delimiter=",", dtype=np.int8))
    train = np.concatenate(parts[: 1 + valid])

    def typed(x):
        return table_from_arrays([(f"c{c}", "boolean", x[:, c], ("0", "1")) for c in range(x.shape[1])])

    columns, rows = typed(train)
    return columns, rows, typed(parts[2])[1]


def imported(path: Path, shapes: bool, several: bool):
    """The same of an imported table, whose numbers are cut into bins, and may lean on each other in lines, or on
    columns with levels. shapes: in the coordinates of `model.shapes`."""
    table = Table.open(path)
    data = Data(table, (), 0.1, latent=True)
    if shapes:
        fitted = fit_shapes(data, several)
        data = Data(table.having([replace(c, shape=fitted.get(c.name)) for c in table.columns]), (), 0.1, latent=True)
    cuts, lines, below = fit_bins(data, "forest"), line_columns(data, "forest"), child_columns(data, "forest")
    return (
        [replace(c, cuts=cuts.get(c.name, ()), line=c.name in lines, child=c.name in below) for c in data.columns],
        data.rows_of(0, data.n_rows),
        data.heldout_of(0, len(data.heldout)),
    )


def independent(seed: int):
    """The same of a made table without links."""
    g, n, k = np.random.default_rng(seed), 12_000, 6
    z, given = g.choice(k, n, p=g.dirichlet(np.full(k, 2.0))), []
    for c in range(50):
        p = g.dirichlet(np.ones(int(g.integers(2, 8))), size=k)
        x = (g.random(n)[:, None] > p[z].cumsum(axis=1)[:, :-1]).sum(axis=1)
        given.append((f"c{c}", "categorical", x, tuple(map(str, range(p.shape[1])))))
    columns, rows = table_from_arrays(given)
    return columns, rows.take(slice(0, n * 9 // 10)), rows.take(slice(n * 9 // 10, n))


def measured(
    columns,
    rows,
    held,
    links: str,
    seconds: float,
    seed: int,
    several: bool = False,
    base: str = "uniform",
    start: str = "one",
) -> tuple[dict, np.ndarray]:
    """One chain: its score, clusters, links, cycles and the time of a cycle in the second half; and the log density of
    each held-out row, averaged over draws."""
    before = time.process_time()
    mixture = Mixture(
        serial(),
        columns,
        lambda start, stop: rows.take(slice(start, stop)),
        len(rows),
        Settings(seed=seed, links=links, link_base=base, view_concentration="learn" if several else None),
    )
    if several:
        subset = np.sort(np.random.default_rng(seed).permutation(len(rows))[:SEARCHED])
        result = views.searched(columns, rows.take(subset), views.settings_of_search(mixture), 0, GROUPS)
        views.follow(mixture, views.found_by(result))
    else:
        mixture.start(start, 128)
    scorer, half, scoring, clusters, averaged = (
        HeldOut(serial(), HeldOutRows(len(held), {0: held})),
        None,
        0.0,
        [],
        np.nan,
    )
    while (spent := time.process_time() - before - scoring) < seconds:
        info = mixture.cycle()
        if spent > seconds / 2:
            half = half or (spent, mixture.cycles - 1)
            if mixture.cycles % EVERY == 0:
                now = time.process_time()
                _, averaged = scorer.score(mixture.views, mixture.places, average=True, codings=mixture.linking.codings)
                scoring += time.process_time() - now
                clusters.append(info.n_clusters)
    a_cycle = (time.process_time() - before - scoring - half[0]) / (mixture.cycles - half[1])
    result = {
        "links": links, "seed": seed, "score": averaged, "clusters": float(np.mean(clusters)),
        "n_links": int((mixture.linking.coding.parents != -1).sum()), "cycles": mixture.cycles, "cycle_s": a_cycle,
        "views": len(mixture.views),
    }  # fmt: skip
    return result, scorer.log_sums[0] - np.log(scorer.n_draws)


def by_turns(columns, rows, held, seed: int, cycles: int = 1000) -> dict:
    """Scores and times of a chain with links and one without, a cycle of each by turns."""
    chains, scorers, took = {}, {}, {}
    for links in ("none", "forest"):
        of = Settings(seed=seed, links=links)
        chains[links] = Mixture(serial(), columns, lambda start, stop: rows.take(slice(start, stop)), len(rows), of)
        chains[links].start("one")
        scorers[links], took[links] = HeldOut(serial(), HeldOutRows(len(held), {0: held})), np.zeros(cycles)
    scores, settled = {}, np.arange(cycles) >= cycles // 10
    for i in range(cycles):
        for links in sorted(chains, reverse=bool(i % 2)):
            mixture, before = chains[links], time.process_time()
            info = mixture.cycle()
            took[links][i] = time.process_time() - before
            if settled[i] and mixture.cycles % EVERY == 0:
                of = mixture.views, mixture.places
                scores[links] = scorers[links].score(*of, average=True, codings=mixture.linking.codings)[1]
    none, forest = took.values()
    drawn = np.array([moves.due(None, i + 1) for i in range(cycles)])
    links = chains["forest"].linking.coding.parents != -1
    return {
        "seed": seed, "clusters": info.n_clusters, "n_links": int(links.sum()),
        **scores, "cycle_s": float(np.median(none)), "lost": float(forest.sum() / none.sum() - 1),
        "lost after the first": float(forest[settled].sum() / none[settled].sum() - 1),
        "lost but for draws": float(np.median(forest) / np.median(none) - 1),
        "draw_s": float(np.median((forest - none)[drawn & settled])),
    }  # fmt: skip


def same_labels(columns, rows) -> dict:
    """Times of a cycle with and without links from the same labels, a cycle of each by turns."""

    def chain(links: str, **settings):
        of = Settings(seed=1, links=links, **settings)
        return Mixture(serial(), columns, lambda start, stop: rows.take(slice(start, stop)), len(rows), of)

    first, took, found = chain("forest"), {"none": [], "forest": []}, {}
    first.start("one")
    for _ in range(150):
        first.cycle()
    labels, parents = np.concatenate(first.view.z), first.linking.coding.parents
    for _ in range(5):
        chains = {links: chain(links, link_moves=0, split_merge=0) for links in took}
        for links, mixture in chains.items():
            mixture.start(labels)
            if links != "none":
                mixture.linking.link_and_count(parents)
            for _ in range(3):
                mixture.cycle()
        for _ in range(30):
            for links, mixture in chains.items():
                before = time.process_time()
                found[f"clusters, {links}"] = mixture.cycle().n_clusters
                took[links].append(time.process_time() - before)
    draws, due = [], moves.due
    moves.due = lambda every, cycle: True
    for _ in range(3):
        before = time.process_time()
        mixture.linking.draw()
        draws.append(time.process_time() - before)
    moves.due = due
    ratios = np.array(took["forest"]) / took["none"]
    draw = float(np.median(draws))
    return {
        **found, "n_links": int((parents != -1).sum()), "none_s": float(np.median(took["none"])),
        "forest_s": float(np.median(took["forest"])), "draw_s": draw, "ratio": float(np.median(ratios)),
        "with_draws": float(np.median(ratios) + draw / moves.LATER / np.median(took["none"])),
    }  # fmt: skip


def by_schedule(columns, rows, held, n: int) -> dict:
    """Scores, links and agreement of n chains by the schedule of draws that is set in `moves`."""
    found, links, labels = {f"{what}_{at}": [] for at in AT for what in ("score", "links", "common", "ari")}, {}, {}
    for seed in range(1, n + 1):
        of = Settings(seed=seed, links="forest")
        mixture = Mixture(serial(), columns, lambda start, stop: rows.take(slice(start, stop)), len(rows), of)
        mixture.start("one")
        for at in AT:
            scorer = HeldOut(serial(), HeldOutRows(len(held), {0: held}))
            while mixture.cycles < at:
                mixture.cycle()
                if mixture.cycles > at / 2 and mixture.cycles % EVERY == 0:
                    where = mixture.views, mixture.places
                    _, score = scorer.score(*where, average=True, codings=mixture.linking.codings)
            parents = enumerate(mixture.linking.coding.parents.tolist())
            links.setdefault(at, []).append({frozenset(pair) for pair in parents if pair[1] != -1})
            labels.setdefault(at, []).append(np.concatenate(mixture.view.z))
            found[f"score_{at}"].append(score)
            found[f"links_{at}"].append(len(links[at][-1]))
    for at in AT:
        found[f"common_{at}"] = [len(a & b) for a, b in combinations(links[at], 2)]
        found[f"ari_{at}"] = [float(similarity(a, b)[0]) for a, b in combinations(labels[at], 2)]
    return found


def on_ranks(comm, columns, rows, links: str, cycles: int) -> dict | None:
    """Times of a cycle on one rank and on all, from the same state; None off root."""
    of = Settings(seed=1, links=links)
    chains = [
        Mixture(where, columns, lambda start, stop: rows.take(slice(start, stop)), len(rows), of)
        for where in (serial(), serial(), comm)
    ]
    for mixture in chains:
        mixture.start("one")
    took = np.zeros((2 * cycles, len(chains)))
    for i in range(len(took)):
        for mixture in chains:
            mixture.cycles = max(mixture.cycles, moves.LATER) if i == cycles else mixture.cycles
        for way in np.roll(range(len(chains)), i):
            took[i, way] = seconds(comm, chains[way] if way or comm.rank == 0 else None)
    labels = [comm.collect(np.concatenate([*mixture.view.z, np.zeros(0, np.int32)])) for mixture in chains[1:]]
    parents = [mixture.linking.coding.parents for mixture in chains[1:]]
    if comm.rank:
        return None
    assert np.array_equal(labels[0][0], np.concatenate(labels[1])) and np.array_equal(*parents), "the chains differ"
    found = {
        "ranks": comm.size, "rows": len(rows), "clusters": len(chains[-1].view.sizes()), "cycles": cycles,
        "n_links": int((parents[1] != -1).sum()),
    }  # fmt: skip
    for name, (one, each, whole) in {"first": took[cycles // 2 : cycles].T, "later": took[cycles:].T}.items():
        found |= {
            f"{name}, ms, one": 1e3 * float(np.median(one)), f"{name}, ms, all": 1e3 * float(np.median(whole)),
            f"{name}, of one": float(np.median(one / (comm.size * whole))),
            f"{name}, of one, of all cycles together": float(one.sum() / (comm.size * whole.sum())),
            f"{name}, of what the machine allows": float(np.median(each / (comm.size * whole))),
        }  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["binary", "tables", "views", "independent", "same", "schedules", "ranks"])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tables", nargs="*", default=BINARY)
    parser.add_argument("--valid", action="store_true", help="train on the validation rows of 0/1 tables, too")
    parser.add_argument("--shapes", action="store_true", help="numbers in the coordinates that runs have by default")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--links", nargs="*", help="of these alone")
    parser.add_argument("--chains", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--start", choices=["one", "random"], default="one", help="clusters of mixtures at first")
    parser.add_argument("--cycles", type=int, default=120)
    given = parser.parse_args()
    if given.what == "independent":
        for seed in range(1, given.seeds + 1):
            write(given.out, "independent", by_turns(*independent(seed), seed))
        return
    sources = {path.stem: path for path in given.files} if given.files else dict.fromkeys(given.tables)
    for name, path in sources.items():
        table = imported(path, given.shapes, given.what == "views") if path else binary(given.data, name, given.valid)
        if given.what == "same":
            columns, rows, _ = table
            columns = [replace(c, cuts=c.cuts if not c.line and not c.child else ()) for c in columns]
            write(given.out, name, {"rows": len(rows), **same_labels(columns, rows)})
            continue
        if given.what in ("schedules", "ranks"):
            columns, rows, held = table
            columns = [replace(c, cuts=c.cuts if not c.line and not c.child else ()) for c in columns]
            for links in (given.links or ["forest"]) if given.what == "ranks" else ():
                if found := on_ranks(world(), columns, rows, links, given.cycles):
                    write(given.out, name, {"links": links, **found})
            if given.what == "ranks":
                continue
            for name_of, (moves.FIRST, moves.LATER) in SCHEDULES.items():
                write(given.out, name, {"schedule": name_of, **by_schedule(columns, rows, held, given.seeds)})
            continue
        several = given.what == "views"
        for links in given.links or ("none", "forest", *{"tables": MORE, "views": MORE[::2]}.get(given.what, ())):
            columns, rows, held = table
            kind, _, base = links.partition(" with ")
            below, lines = kind == "forest", kind in ("forest", MORE[0], "lines")
            columns = [replace(c, line=c.line and lines, child=c.child and below) for c in columns]
            binned = not several and kind != MORE[2]
            columns = [replace(c, cuts=c.cuts if binned and not c.line and not c.child else ()) for c in columns]
            densities = []
            for seed in range(given.seed, given.seed + given.chains):
                result, log_density = measured(
                    columns, rows, held, links.split()[0], given.seconds, seed, several,
                    base="learned" if base else "uniform", start=given.start,
                )  # fmt: skip
                densities.append(log_density)
                write(given.out, name, {"rows": len(rows), **result, "links": links, "start": given.start})
            if given.chains > 1:
                score = float(np.mean(np.logaddexp.reduce(densities) - np.log(given.chains)))
                write(given.out, name, {"rows": len(rows), "links": links, "chains": given.chains, "score": score})


def write(out: Path, name: str, found: dict) -> None:
    """Print a measurement, and append it to a file."""
    line = json.dumps({"table": name, **found})
    print(line, flush=True)
    with out.open("a") as file:
        file.write(line + "\n")


if __name__ == "__main__":
    main()
