"""How far the groups that a report names hold in later draws of the same chains.

    cp -r runs/a runs/early                                        # after 400 cycles, say
    mpibayes run runs/a/config.resolved.toml -o runs/a --set run.cycles=1200
    python benchmarks/lasting_groups.py runs/early runs/a --after 400

For each view of the first directory's report, and each number of groups up to MOST that every chain by itself finds:
whether the report calls the level natural, the index and overlap by which it lasts (`hpc/crosscat/levels/level.py`),
and the adjusted Rand index with the groups of the same columns in later draws of the second directory.
"""

from __future__ import annotations

import argparse

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.levels.of_run import levels_of_views
from mpibayes.hpc.crosscat.report.agreement import summarise_chain
from mpibayes.hpc.crosscat.summaries.representative import representatives
from mpibayes.hpc.posterior.similarity import similarity

MOST = 20
CHANGED = 0.9  # index below which groups have changed


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("earlier")
    words.add_argument("later")
    words.add_argument("--after", type=int, required=True, help="cycle of the later directory after which draws count")
    given = words.parse_args()

    run, later = Posterior([given.earlier]), Posterior([given.later], given.after)
    run.read_traces()
    kept = run.kept()
    views = [(view.of, len(view.sizes)) for view in representatives(run, kept).views]
    found = levels_of_views(run, views, kept)
    after = levels_of_views(later, [(later.of(list(of.names)), run.n_rows) for of, _ in views], later.kept())
    climbs = [round(summarise_chain(chain, run.scalars).climbed) for chain in run.chains]
    print(f"nats by which chains climb: {climbs}")
    counts = {True: [0, 0], False: [0, 0]}
    for v, (first, then) in enumerate(zip(found, after), 1):
        for level in first.offered() if first else ():
            if level.n > MOST or not level.shared:
                continue
            there = then and then.level(level.n)
            index = similarity(first.rows(level), then.rows(there))[0] if there else float("nan")
            counts[level.natural][0] += 1
            counts[level.natural][1] += not index >= CHANGED
            print(
                f"view {v}, {level.n} groups: {'natural' if level.natural else 'may change'}, trees of halves "
                f"{level.lasting:.2f} (overlap {level.lasting_matched:.2f}), later draws {index:.2f}"
            )
    for natural, (n, changed) in counts.items():
        print(f"{'natural' if natural else 'may change'}: {n} levels, {changed} below {CHANGED:g} later")


if __name__ == "__main__":
    main()
