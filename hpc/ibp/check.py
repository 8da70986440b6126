"""`mpibayes check` of an Indian buffet process: memory, and time on a sample of the rows, scaled to all of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mpibayes.hpc.data.rows import heldout_cells
from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.family import READ_ROWS, model_in_words, settings_of
from mpibayes.hpc.ibp.keys import Data, Model, Output, Sampler
from mpibayes.hpc.ibp.scalars import SCALARS
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
from mpibayes.io.draws import BUFFERED
from mpibayes.kernels.ibp.features import padded
from mpibayes.text import counted, duration, every, rate

TYPICAL_FEATURES = 64  # as many as fit in one word of a row's bits
SAMPLE_ROWS = 20_000
TIMED_S = 1.5
LEAST_CYCLES = 3


def memory_per_rank(
    n_columns: int, n_train: int, given: shards.Setting, n_ranks: int, kept_draws: int = 0, heldout_rows: int = 0,
    missing: float = 0.0, withheld: float = 0.0,
) -> dict[str, int]:  # fmt: skip
    """Forecast the resident bytes at the peak of root, with the rows of the busiest rank, by part; the forecast
    is their sum. given: shards, by their number or their sizes.

    process   Python, libraries, and the MPI library if there is one
    rows      of its shards: 4 bytes a column (their number rounded up to 8), 8 for each 64 features, and on the
              collapsed shard 8 more
    missing   for each missing or held-out cell its position (16), and while one shard's are drawn 40 more; missing:
              share of cells
    reading   a shard's cells in single precision, and some of its rows as stored in the table (8 a column) with three
              copies; all of them if cells are held out
    features  matrices of features and columns, with TYPICAL_FEATURES; on root, all rows' bits at a kept draw: 2 bytes a
              row, and 1 a feature for 8 rows, twice
    draws     on root, kept draws waiting for a checkpoint, at most 16 MiB
    heldout   its part of the held-out rows with their running scores, and a batch of combinations; for each held-out
              cell its position and running scores (40), and while one shard's are scored 56 more, and the features of
              its rows (24 each); withheld: share of cells
    """
    rows, shard = shards.busiest(given, n_train, n_ranks)
    mine = shards.of_rank(shards.count(given, n_train), n_ranks, 0)
    k, width = TYPICAL_FEATURES, padded(n_columns)
    draw = k * -(-n_train // 8) + 8 * k * n_columns
    return {
        "process": PROCESS_BYTES + (MPI_BYTES if n_ranks > 1 else 0) + WORK_BYTES,
        "rows": rows * (4 * width + 8) + 8 * shard,
        "missing": int((missing + withheld) * n_columns * (16 * rows + 40 * shard)),
        "reading": 4 * n_columns * (shard + 8 * (shard if withheld else min(shard, READ_ROWS))),
        "features": 8 * (6 * k * width + 6 * k * k) * (1 + len(mine)) + (2 * n_train + 2 * draw if kept_draws else 0),
        "draws": min(BUFFERED, kept_draws * draw),
        "heldout": -(-heldout_rows // n_ranks) * (8 * n_columns + 16)
        + (48 * MIB if heldout_rows else 0)
        + int(withheld * n_columns * (40 * rows + 56 * shard))
        + (24 * k * shard if withheld else 0),
    }


def memory(examined: Examined, ranks: int) -> dict[str, int]:
    """Bytes on the busiest rank, by part."""
    config, cells = examined.config, examined.family.cells
    kept = config.run.cycles // config.of(Output).labels
    share = _missing(examined)
    held = (config.of(Data).heldout_cells or 0.0) * (1.0 - share) if len(cells) else 0.0
    each, n = examined.schedule(ranks).sizes[-1], examined.data.n_rows
    parts = memory_per_rank(len(cells), n, examined.shards, each, kept, examined.n_heldout, share, held)
    return with_mpi(parts, ranks, each)


def _missing(examined: Examined) -> float:
    """Share of the modelled cells that are missing."""
    cells = examined.family.cells
    return sum(c.n_missing for c in cells.columns) / max(1, examined.table.n_rows * len(cells))


def time_sample(examined: Examined) -> tuple[int, float, int]:
    """Return (number of rows in a sample from all over the table, seconds of a cycle on them, number of features)."""
    data, cells, n = examined.data, examined.family.cells, min(examined.data.n_rows, SAMPLE_ROWS)
    places = np.arange(n) * data.n_rows // n
    x = cells.in_single_precision(data.rows_at(places))
    if (fraction := examined.config.of(Data).heldout_cells) is not None:
        numbers = places if data.training_rows is None else data.training_rows[places]
        x[heldout_cells([c.name for c in cells.columns], numbers, fraction)] = np.nan
    settings = replace(settings_of(examined.config, cells), shards=min(n, examined.config.run.shards))
    buffet = Buffet(serial(), lambda start, stop: x[start:stop], n, len(cells), settings)
    began, took = time.process_time(), []
    while len(took) < LEAST_CYCLES or time.process_time() - began < TIMED_S:
        last = time.process_time()
        buffet.cycle()
        took.append(time.process_time() - last)
    return n, float(np.median(took[len(took) // 2 :])), len(buffet.slots)


def findings(examined: Examined, ranks: int) -> Iterator[tuple[str, str]]:
    """Yield the findings of `check` as (title, text) pairs. Raises DataError as a run would."""
    schedule = examined.schedule(ranks)
    each = schedule.sizes[-1]
    config, cells, run = examined.config, examined.family.cells, examined.config.run
    n_train, n_shards = examined.data.n_rows, run.shards
    sampled, cycle_s, k = time_sample(examined)
    yield from about_table(config, examined.table, examined.data, examined.n_heldout)
    if (held := config.of(Data).heldout_cells) is not None and len(cells):
        there = n_train * len(cells) * (1.0 - _missing(examined))
        yield "", f"about {held * there:,.0f} of their cells ({held:.3g} of those there are) held out and scored"
    yield "shards", f"{n_shards} of about {n_train // n_shards:,} rows; opening = {config.of(Sampler).opening}"
    yield from about_ranks(schedule, n_shards)
    yield "model", model_in_words(config, cells)
    law = "the posterior" if config.of(Model).likelihood else "the prior on features (model.likelihood = false)"
    yield "sampler", f"exact: every cycle leaves {law} invariant, on any number of ranks"
    first = f"from cycle {config.burn_in + 1:,} on they count"
    yield "draws", f"{counted(run.cycles, 'cycle')}; {first}; features are kept {every(config.of(Output).labels)}"

    parts = memory(examined, ranks)
    yield "memory", f"{sum(parts.values()) / MIB:.0f} MiB on the busiest of {counted(ranks, 'rank')}, of which"
    listed = ", ".join(f"{name} {size / MIB:.1f}" for name, size in parts.items() if size)
    yield "", f"{listed} (for {TYPICAL_FEATURES} features)"
    working = min(each, n_shards)
    busiest = -(-n_shards // working) / n_shards
    whole_s = cycle_s * n_train / sampled * busiest
    yield "time", f"{whole_s:.2g} s a cycle on {counted(working, 'rank')} ({rate(n_train / whole_s)})"
    yield "", f"measured on {counted(sampled, 'row')} with {counted(k, 'feature')}, one process; it grows with them"
    chains = f" x {run.chains} chains" if run.chains > 1 else ""
    yield "", f"{duration(whole_s * run.cycles * schedule.turns)} for {counted(run.cycles, 'cycle')}{chains}"
    draw = TYPICAL_FEATURES * -(-n_train // 8) + 8 * TYPICAL_FEATURES * len(cells)
    trace = 8 * (1 + len(SCALARS)) * run.cycles / config.output.thin
    kept = counted(run.cycles // config.of(Output).labels, "kept draw")
    yield "disk", f"two checkpoints of {8 * n_train / MIB:.1f} MiB, a trace of {trace / MIB:.1f} MiB"
    yield "", f"{kept} of at most {draw / MIB:.2f} MiB with {TYPICAL_FEATURES} features, before compression"
