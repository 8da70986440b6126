"""`mpibayes check` of a factorization: memory, and time on a sample of the users, scaled to all ratings."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.run.examine import MIB, MPI_BYTES, PROCESS_BYTES, WORK_BYTES, Examined, about_ranks
from mpibayes.hpc.svi.chain import Settings
from mpibayes.hpc.svi.factorization import keys
from mpibayes.hpc.svi.factorization.chain import RatingsAscent
from mpibayes.hpc.svi.factorization.family import kind_of, model_in_words, step_in_words
from mpibayes.hpc.svi.factorization.ratings import Numbers, Ratings, split
from mpibayes.hpc.svi.factorization.scalars import SCALARS
from mpibayes.hpc.svi.family import settings_of
from mpibayes.io.draws import BUFFERED
from mpibayes.io.sparse import cuts, in_words
from mpibayes.kernels.svi.factors import widths
from mpibayes.text import count, counted, duration, every

SAMPLE = 2_000_000  # most ratings
TIMED_S = 1.0
LEAST_CYCLES = 3
A_RATING = 8  # bytes per rating: its item and its value


def bytes_a_rating(config: Config) -> int:
    """Bytes per rating while a chain runs; a held-out rating takes no more."""
    return A_RATING + (8 if config.of(keys.Step).noise != "none" else 0)


def memory(examined: Examined, ranks: int) -> dict[str, int]:
    """Forecast the resident bytes at the peak of the busiest rank, which is root, by part; the forecast is their sum.

    process   Python, libraries, and the MPI library if there is one
    ratings   of its shards, 8 bytes each, with noise 8 more, and 8 a user; if users take steps, their parameters too
    reading   a shard's ratings as stored in the table, and their split into training and held-out ones
    items     their state, moments and table, and a step's work on them
    sums      of the items: of all shards once on root, and those of its own shards
    draws     on root, kept states waiting for a checkpoint
    """
    config, table = examined.config, examined.table
    model, step, n_shards = config.of(keys.Model), config.of(keys.Step), config.run.shards
    each = examined.schedule(ranks).sizes[-1]
    mine = len(shards.of_rank(n_shards, each, 0))
    entries = -(-table.n_entries // n_shards)
    d = model.rank + model.biases
    w = d * (d + 1) // 2 + d
    users, items = -(-table.n_rows // n_shards) * mine, table.n_columns
    sums = (items + 2) * sum(widths(d, model.biases)[1]) * (2 if step.noise != "none" else 1)
    kept = config.run.cycles // config.of(keys.Output).kept
    return {
        "process": PROCESS_BYTES + (MPI_BYTES if ranks > 1 else 0) + WORK_BYTES,
        "ratings": entries * mine * bytes_a_rating(config)
        + 8 * users * (1 + (2 * w if step.users == "stepped" else 0)),
        "reading": entries * 40,
        "items": 8 * items * (6 * w + sum(widths(d, model.biases)[0])),
        "sums": 8 * sums * (n_shards + 2 * mine),
        "draws": min(BUFFERED, kept * 8 * items * w) + 8 * items * w,
    }


def time_sample(examined: Examined) -> tuple[int, float, float]:
    """Return (number of ratings of a sample of the users, seconds of a pass over them, seconds of a step of the
    items)."""
    config, table = examined.config, examined.table
    start, stop = next(cuts(table.starts(), SAMPLE))
    rows = table.read(start, stop)
    train = Ratings.of(split(rows, np.arange(start, stop), table.n_columns, config.data.heldout)[0])
    settings = Settings(seed=config.run.seed, shards=1, tolerance=0.0)
    ascent = RatingsAscent(serial(), kind_of(config), table.n_columns, lambda a, b: train, len(train), settings)
    ascent.start()
    model, whole, steps, began = ascent.model, [], [], time.process_time()
    numbers = noise_of(ascent, config)
    while len(whole) < LEAST_CYCLES or time.process_time() - began < TIMED_S:
        last = time.process_time()
        model.accumulate(ascent.q, train, None, numbers, np.zeros((2, *model.form)))
        whole.append(time.process_time() - last)
        last, plain = time.process_time(), np.zeros((1, *model.form))
        ascent.cycle()
        between = time.process_time()
        model.accumulate(ascent.q, train, None, None, plain)
        steps.append((between - last) - (time.process_time() - between))
    return len(train.columns), float(np.median(whole)), max(0.0, float(np.median(steps)))


def noise_of(ascent: RatingsAscent, config: Config) -> Numbers | None:
    """Random numbers of a pass with the configured noise; None without."""
    if config.of(keys.Step).noise == "none":
        return None
    return Numbers(ascent.noise_stream(1).normals(ascent.rows[0].places(None)), 10.0)


def findings(examined: Examined, ranks: int) -> Iterator[tuple[str, str]]:
    """Yield the findings of `check` as (title, text) pairs."""
    schedule = examined.schedule(ranks)
    each = schedule.sizes[-1]
    config, table, run = examined.config, examined.table, examined.config.run
    n_shards, kept = run.shards, config.of(keys.Output).kept
    sampled, pass_s, step_s = time_sample(examined)
    yield "configuration", f"{config.path}: valid"
    yield from in_words(table)
    share = config.data.heldout
    yield "held out", "no ratings" if share is None else f"{share:.0%} of the ratings, each by itself, and scored"
    yield "shards", f"{n_shards} of about {table.n_rows // n_shards:,} users"
    yield from about_ranks(schedule, n_shards)
    yield "model", model_in_words(config, table.n_columns, table.n_rows)
    yield "cycle", step_in_words(config)
    yield "approximation", "q, not the posterior: its bound lies below log p(table) by an unknown amount"
    yield "kept", f"{counted(run.cycles, 'cycle')} at most; a state with its bound and its scores {every(kept)}"
    parts = memory(examined, ranks)
    yield "memory", f"{sum(parts.values()) / MIB:.0f} MiB on the busiest of {counted(ranks, 'rank')}, of which"
    yield "", ", ".join(f"{name} {size / MIB:.1f}" for name, size in parts.items() if size)
    yield "", f"{bytes_a_rating(config)} bytes a rating on all ranks together"
    working = min(each, n_shards)
    busiest = -(-n_shards // working) / n_shards
    settings = settings_of(config)
    part = 1.0 if settings.batch is None else min(1.0, settings.batch.at(run.cycles) / table.n_rows)
    n_ratings = table.n_entries * (1.0 - (share or 0.0))
    whole_s = pass_s * n_ratings / sampled * busiest
    cycle_s = whole_s * part + step_s
    seen = int(n_ratings * part)
    yield "time", f"{cycle_s:.2g} s a cycle on {counted(working, 'rank')} ({count(seen / cycle_s)} ratings a second)"
    yield "", f"measured on {counted(sampled, 'rating')}, one process"
    chains = f" x {run.chains} chains" if run.chains > 1 else ""
    less = ", fewer where the bound stops growing" if settings.plain else ""
    seconds = (cycle_s + (0.0 if part == 1.0 else whole_s / kept)) * run.cycles * schedule.turns
    yield "", f"{duration(seconds)} for {counted(run.cycles, 'cycle')}{chains}{less}"
    d = config.of(keys.Model).rank + config.of(keys.Model).biases
    trace, state = 8 * (1 + len(SCALARS)) * run.cycles / config.output.thin, 8 * table.n_columns * (d * (d + 3) // 2)
    states = f"{run.cycles // kept:,} kept states of {state / MIB:.2f} MiB"
    yield "disk", f"a trace of {trace / MIB:.1f} MiB, {states}"
