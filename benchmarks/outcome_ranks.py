"""A cycle of a mixture with an outcome on several ranks beside one, and beside what the machine allows.

    mpirun -n 2 python benchmarks/outcome_ranks.py [--rows 1000000] [--cycles 24] [--shards 0] [--moves 4] [--plain]

The table is that of `outcome.py table`; 0 shards are the default number, and moves 4, cycles between rounds of splits
and merges, those of a run after its first 100 cycles. One chain runs three times from the true clusters, cycle by cycle
and by turns: on root alone while other ranks sleep; on every rank by itself, all at once; on all ranks together. The
second is what the machine allows, whose ranks share memory and clock. Efficiency is T1 / (n Tn), the median over
cycles; of the ceiling, the seconds of all at once over n Tn. All have the same bits at the end, or the program fails.

--plain leaves the outcome out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from zlib import crc32

import numpy as np
from machine import markdown
from outcome import made, write

from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.parallel.comm import Communicator, serial, world
from mpibayes.hpc.registry import family_of
from mpibayes.hpc.run.examine import examine

WARM = 8  # cycles before the first that is timed
BURN_IN = 4  # cycles: labels follow the outcome after half of them, stray rows are fixed after all
WAYS = "one rank", "each by itself, at once", "together"


def chains(comm: Communicator, given: argparse.Namespace) -> list[Mixture]:
    """Return the chain of each way, started at the true clusters; off root there is none alone."""
    with tempfile.TemporaryDirectory() as name:
        folder, cells = Path(comm.share(name)), made(given.rows, 0, True)
        run = folder / "run.toml"
        if comm.rank == 0:
            write(folder, cells, 3 * BURN_IN, not given.plain, f"[sampler]\nsplit_merge = {given.moves}\n")
            shards = f"shards = {given.shards}\n" if given.shards else ""
            run.write_text(run.read_text().replace("[run]\n", f"[run]\n{shards}"))
        comm.barrier()
        result, found = examine(run), []
        for of in ([serial()] if comm.rank == 0 else []) + [serial(), comm]:
            found.append(family_of(result.config.kind)(of, result.config, result.data).chain(result.config, 0).mixture)
        comm.barrier()
    for mixture in found:
        mixture.start(cells[3].astype(np.int32))
    return found


def seconds(comm: Communicator, mixture: Mixture | None) -> float:
    """Return the seconds of a cycle, of the rank that takes longest; None: this rank sleeps meanwhile."""
    comm.sum_everywhere(np.zeros(1, np.int64))  # ranks leave at once, as they do not from a barrier
    began = time.perf_counter()
    if mixture is not None:
        mixture.cycle()
    took = time.perf_counter() - began
    comm.barrier()
    return max(comm.collect(took))


def digest(comm: Communicator, mixture: Mixture) -> int:
    """Return a checksum of labels and coefficients, on root."""
    own = b"".join(z.astype(np.int32).tobytes() for z in mixture.view.z)
    of = [] if mixture.outcome is None else [mixture.outcome.theta.tobytes(), mixture.outcome.beta.tobytes()]
    return crc32(b"".join([*(comm.collect(own) if mixture.comm.size > 1 else [own]), *of]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--cycles", type=int, default=24)
    parser.add_argument("--shards", type=int, default=0)
    parser.add_argument("--moves", type=int, default=4)
    parser.add_argument("--plain", action="store_true")
    given, comm = parser.parse_args(), world()
    found, took = chains(comm, given), np.zeros((WARM + given.cycles, len(WAYS)))
    for i in range(len(took)):
        for way in np.roll(range(len(WAYS)), i):
            took[i, way] = seconds(comm, found[way - len(WAYS)] if way or comm.rank == 0 else None)
    if len({digest(comm, mixture) for mixture in found[-2:]}) > 1 and comm.rank == 0:
        raise SystemExit("the chains differ")
    if comm.rank:
        return
    took, n = took[WARM:], comm.size
    one, each, whole = took.T
    lines = []
    for name, of, of_ceiling in (
        (WAYS[0], one / one, None), (WAYS[1], one / each, None), (WAYS[2], one / (n * whole), each / (n * whole)),
    ):  # fmt: skip
        low, middle, high = np.quantile(of, (0.25, 0.5, 0.75))
        ms = 1e3 * np.median(took[:, WAYS.index(name)])
        beside = "" if of_ceiling is None else f"{np.median(of_ceiling):.1%}"
        lines.append([name, f"{ms:.1f}", f"{middle:.1%} ({low:.1%} to {high:.1%})", beside])
    view, outcome = found[-1].view, "without an outcome" if given.plain else "with an outcome"
    title = f"A cycle {outcome} on {n} ranks, {given.rows:,} rows, {found[-1].n_shards} shards"
    note = (
        f"Medians of {given.cycles} cycles, and quartiles; {len(view.sizes())} clusters, {len(found[-1].strays):,} "
        f"stray rows; mean against mean {one.mean() / (n * whole.mean()):.1%}."
    )
    head = ["the chain runs on", "cycle, ms", "efficiency", "beside the ceiling"]
    print(title, markdown(head, lines), note, sep="\n\n", flush=True)


if __name__ == "__main__":
    main()
