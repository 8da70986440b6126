"""`mpibayes check` of variational inference: memory, and time on a sample of the rows, scaled to those of a batch."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.run.examine import (
    MIB,
    MPI_BYTES,
    PROCESS_BYTES,
    WORK_BYTES,
    Examined,
    about_ranks,
    about_table,
    with_mpi,
)
from mpibayes.hpc.svi import keys
from mpibayes.hpc.svi.chain import SEEDING, Ascent, Settings
from mpibayes.hpc.svi.family import model_in_words, settings_of, step_in_words
from mpibayes.hpc.svi.likelihood import likelihood_of
from mpibayes.hpc.svi.scalars import SCALARS
from mpibayes.io.draws import BUFFERED
from mpibayes.text import counted, duration, every, rate

SAMPLE_ROWS = 20_000
TIMED_S = 1.0
LEAST_CYCLES = 3


def memory_per_rank(
    n_columns: int, n_components: int, n_train: int, n_shards: int, n_ranks: int, kept: int = 0, heldout_rows: int = 0,
    noisy: bool = False,
) -> dict[str, int]:  # fmt: skip
    """Forecast the resident bytes at the peak of the busiest rank, which is root, by part; the forecast is their sum.

    process   Python, libraries, and the MPI library if there is one
    rows      of its shards, 8 bytes a column; with noise, 16 more
    reading   a shard's cells as stored in the table, and a copy of them
    start     on root, a sample of the rows with their distances
    sums      of the kernel, 64 bytes each, and of the rows' random numbers; on root, all shards' once, and those of its
              own shards; several states
    draws     on root, kept states waiting for a checkpoint, at most 16 MiB
    heldout   its part of the held-out rows, and their densities under each component
    """
    mine = shards.of_rank(n_shards, n_ranks, 0)
    rows, shard = -(-n_train // n_shards) * len(mine), -(-n_train // n_shards)
    d, k = n_columns, n_components
    sums, state = k * (1 + d + d * (d + 1) // 2), 8 * k * (2 * d * d + d + 2)
    many = 2 if noisy else 1
    return {
        "process": PROCESS_BYTES + (MPI_BYTES if n_ranks > 1 else 0) + WORK_BYTES,
        "rows": rows * (8 * d + (16 if noisy else 0)),
        "reading": 2 * 8 * d * shard,
        "start": min(n_train, SEEDING) * 8 * (3 * d + 4),
        "sums": 64 * 2 * sums + 8 * many * sums * (n_shards + 2 * len(mine)) + 8 * state,
        "draws": min(BUFFERED, kept * state),
        "heldout": -(-heldout_rows // n_ranks) * 8 * (2 * d + k),
    }


def memory(examined: Examined, ranks: int) -> dict[str, int]:
    """Bytes on the busiest rank, by part."""
    config, model = examined.config, examined.config.of(keys.Model)
    kept = config.run.cycles // config.of(keys.Output).kept
    each = examined.schedule(ranks).sizes[-1]
    parts = memory_per_rank(
        len(examined.family.cells), model.components, examined.data.n_rows, config.run.shards, each, kept,
        examined.n_heldout, config.of(keys.Step).noise != "none",
    )  # fmt: skip
    return with_mpi(parts, ranks, each)


def time_sample(examined: Examined) -> tuple[int, float, float]:
    """Return (number of rows in a sample from all over the table, seconds of a pass over them, seconds of a step)."""
    data, cells, config = examined.data, examined.family.cells, examined.config
    n = min(data.n_rows, SAMPLE_ROWS)
    x = cells.of(data.rows_at(np.arange(n) * data.n_rows // n))
    model = likelihood_of(config, len(cells))
    settings = Settings(seed=config.run.seed, shards=1, tolerance=0.0)
    ascent = Ascent(serial(), model, lambda start, stop: x[start:stop], lambda places: x[places], n, settings)
    ascent.start()
    began, whole, steps = time.process_time(), [], []
    while len(whole) < LEAST_CYCLES or time.process_time() - began < TIMED_S:
        last = time.process_time()
        model.accumulate(ascent.q, ascent.rows[0], None, None, np.zeros((1, *model.form)))
        whole.append(time.process_time() - last)
        ascent.cycle()
        steps.append(time.process_time() - last - 2 * whole[-1])
    return n, float(np.median(whole)), max(0.0, float(np.median(steps)))


def findings(examined: Examined, ranks: int) -> Iterator[tuple[str, str]]:
    """Yield the findings of `check` as (title, text) pairs. Raises DataError as a run would."""
    schedule = examined.schedule(ranks)
    each = schedule.sizes[-1]
    config, cells, run = examined.config, examined.family.cells, examined.config.run
    n_train, n_shards, kept = examined.data.n_rows, run.shards, config.of(keys.Output).kept
    sampled, pass_s, step_s = time_sample(examined)
    yield from about_table(config, examined.table, examined.data, examined.n_heldout)
    yield "shards", f"{n_shards} of about {n_train // n_shards:,} rows"
    yield from about_ranks(schedule, n_shards)
    yield "model", model_in_words(config, len(cells))
    yield "cycle", step_in_words(config)
    yield "approximation", "q, not the posterior: its bound lies below log p(table) by an unknown amount"
    yield "kept", f"{counted(run.cycles, 'cycle')} at most; a state with its bound {every(kept)}"

    parts = memory(examined, ranks)
    yield "memory", f"{sum(parts.values()) / MIB:.0f} MiB on the busiest of {counted(ranks, 'rank')}, of which"
    yield "", ", ".join(f"{name} {size / MIB:.1f}" for name, size in parts.items() if size)
    working = min(each, n_shards)
    busiest = -(-n_shards // working) / n_shards
    settings = settings_of(config)
    n_batch = n_train if settings.batch is None else min(n_train, settings.batch.at(run.cycles))
    cycle_s = pass_s * n_batch / sampled * busiest + step_s
    yield "time", f"{cycle_s:.2g} s a cycle on {counted(working, 'rank')} ({rate(n_batch / cycle_s)})"
    yield "", f"measured on {counted(sampled, 'row')}, one process"
    of_kept = 0.0 if n_batch == n_train else pass_s * n_train / sampled * busiest / kept
    chains = f" x {run.chains} chains" if run.chains > 1 else ""
    less = ", fewer where the bound stops growing" if settings.plain else ""
    seconds = (cycle_s + of_kept) * run.cycles * schedule.turns
    yield "", f"{duration(seconds)} for {counted(run.cycles, 'cycle')}{chains}{less}"
    d, k = len(cells), config.of(keys.Model).components
    trace, state = 8 * (1 + len(SCALARS)) * run.cycles / config.output.thin, 8 * k * (2 * d * d + d + 2)
    yield (
        "disk",
        f"a trace of {trace / MIB:.1f} MiB, {run.cycles // kept:,} kept states of {state / MIB:.2f} MiB",
    )
