"""`mpibayes check` of latent Dirichlet allocation: memory, and time on a sample of the documents, scaled to all."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.hpc.run.examine import MIB, MPI_BYTES, PROCESS_BYTES, WORK_BYTES, Examined, about_ranks
from mpibayes.hpc.svi.lda import keys, model
from mpibayes.hpc.svi.lda.ascent import EXACTLY
from mpibayes.hpc.svi.lda.family import model_in_words, settings_of, step_in_words
from mpibayes.hpc.svi.lda.local import SAMPLED, Documents, Local, unit_of
from mpibayes.hpc.svi.lda.scalars import SCALARS
from mpibayes.hpc.svi.step import Step
from mpibayes.io.draws import BUFFERED
from mpibayes.io.sparse import in_words
from mpibayes.kernels.svi.lda import padded
from mpibayes.text import counted, duration, every, rate

SAMPLE = 20_000  # most documents
TIMED_S = 0.5
LEAST = 2
A_PAIR = 8  # bytes per (document, word) pair: the word and its count


def memory(examined: Examined, ranks: int) -> dict[str, int]:
    """Forecast the resident bytes at the peak of the busiest rank, by part; the forecast is their sum.

    process    Python, libraries, and the MPI library if there is one
    documents  8 bytes for each of its (document, word) pairs, and 8 a document
    topics     of its documents, 4 bytes a document and topic
    reading    a shard's documents as they are read
    words      lambda, expected counts, weights in float32, and work on them; with noise two more
    bound      its tables, while it is computed
    draws      on root, kept states waiting for a checkpoint, at most 16 MiB or one
    """
    config, table = examined.config, examined.table
    k, n_shards = config.of(keys.Model).topics, config.run.shards
    each = examined.schedule(ranks).sizes[-1]
    mine = len(shards.of_rank(n_shards, each, 0))
    entries, rows = -(-table.n_entries // n_shards), -(-table.n_rows // n_shards)
    cells, wide = table.n_columns * k, table.n_columns * padded(k)
    noisy = config.of(keys.Step).noise != "none"
    kept = config.run.cycles // config.of(keys.Output).kept
    return {
        "process": PROCESS_BYTES + (MPI_BYTES if ranks > 1 else 0) + WORK_BYTES,
        "documents": mine * (A_PAIR * entries + 8 * rows),
        "topics": mine * 4 * k * rows,
        "reading": 24 * entries + (0 if examined.n_heldout == 0 else 32 * entries),
        "words": 8 * cells * (4 + 2 * noisy) + 12 * wide + 8 * wide * (noisy + (each > 1)),
        "bound": 8 * wide + 24 * cells + 8 * rows * (padded(k) + 3 * k),
        "draws": min(BUFFERED, kept * 8 * cells) + 8 * cells,
    }


def time_sample(examined: Examined) -> tuple[int, dict[str, float], float]:
    """Return (number of documents in a sample from all over the table, seconds of a pass over them by local step,
    seconds of a step)."""
    data, table, config = examined.data, examined.table, examined.config
    n = min(data.n_rows, SAMPLE)
    rows = data.rows_at(np.arange(n) * data.n_rows // n)
    s, of = settings_of(config), config.of(keys.Model)
    rng = np.random.default_rng(0)
    q = model.first(table.n_columns, of.topics, of.alpha, of.eta, table.total, rng)
    documents = Documents([rows], table.n_columns, of.topics, unit_of(table.total), True, None, s.first == SAMPLED)
    took, steps = {}, []
    for kind in dict.fromkeys((s.first, s.then)):
        times, began = [], time.process_time()
        while len(times) < LEAST or time.process_time() - began < TIMED_S:
            last = time.process_time()
            stream = Stream(s.seed, Purpose.TOPICS, len(times) + 1)
            cold = kind == "vb" or s.batch is not None or not times
            local = Local(kind, cold, s.tolerance, s.iterations, s.sweeps, stream)
            sums = documents.look(q, local, [None], None)[0][:, : of.topics]
            times.append(time.process_time() - last)
            last = time.process_time()
            q = model.stepped(q, of.eta, sums, None, Step(1.0, data.n_rows / n))[0]
            model.n_used(q, of.eta)
            steps.append(time.process_time() - last)
        took[kind] = float(np.median(times[1:]))
    return n, took, float(np.median(steps))


def time_of_bound(examined: Examined) -> float:
    """Seconds of the part of a bound that does not depend on the documents."""
    of, table = examined.config.of(keys.Model), examined.table
    began = time.process_time()
    q = model.first(table.n_columns, of.topics, of.alpha, of.eta, table.total, np.random.default_rng(0))
    model.Evaluator.of(q, of.eta).of_topics()
    return time.process_time() - began


def findings(examined: Examined, ranks: int) -> Iterator[tuple[str, str]]:
    """Yield the findings of `check` as (title, text) pairs."""
    schedule = examined.schedule(ranks)
    each = schedule.sizes[-1]
    config, table, run, step = examined.config, examined.table, examined.config.run, examined.config.of(keys.Step)
    n, n_shards, kept = examined.data.n_rows, run.shards, config.of(keys.Output).kept
    sampled, took, step_s = time_sample(examined)
    yield "configuration", f"{config.path}: valid"
    yield from in_words(table)
    held = (
        f"{counted(examined.n_heldout, 'document')}, of which one half completes the other"
        if examined.n_heldout
        else ""
    )
    yield "held out", held or "no documents"
    yield "shards", f"{n_shards} of about {n // n_shards:,} documents"
    yield from about_ranks(schedule, n_shards)
    yield "model", model_in_words(config, n, table.n_columns)
    yield "cycle", step_in_words(config)
    yield "approximation", "q, not the posterior: its bound lies below log p(table) by an unknown amount"
    yield "kept", f"{counted(run.cycles, 'cycle')}; a state with its bound {every(kept)}"
    parts = memory(examined, ranks)
    yield "memory", f"{sum(parts.values()) / MIB:.0f} MiB on the busiest of {counted(ranks, 'rank')}, of which"
    yield "", ", ".join(f"{name} {size / MIB:.1f}" for name, size in parts.items() if size)
    working, s = min(each, n_shards), settings_of(config)
    busiest = -(-n_shards // working) / n_shards
    n_batch = n if s.batch is None else int(min(n, s.batch.at(run.cycles)))
    share, total = n_batch / sampled * busiest, 0.0
    for kind, cycles in ((s.first, min(s.switch, run.cycles)), (s.then, max(0, run.cycles - s.switch))):
        if cycles:
            cycle_s = took[kind] * share + step_s
            total += cycle_s * cycles
            yield "time", f"{cycle_s:.2g} s a cycle of {kind} on {counted(working, 'rank')} ({rate(n_batch / cycle_s)})"
    yield "", f"measured on {counted(sampled, 'document')}, one process"
    slow = max(took.values()) * (1.5 if EXACTLY.tolerance < step.tolerance else 1.0) * n / sampled * busiest
    total += (slow + time_of_bound(examined)) * (run.cycles // kept)
    chains = f" x {run.chains} chains" if run.chains > 1 else ""
    passes = run.cycles * n_batch / n
    yield "", f"{duration(total * schedule.turns)} for {counted(run.cycles, 'cycle')}{chains}, {passes:.3g} passes"
    trace = 8 * (1 + len(SCALARS)) * run.cycles / config.output.thin
    state = 8 * table.n_columns * config.of(keys.Model).topics
    yield "disk", f"a trace of {trace / MIB:.1f} MiB, {run.cycles // kept:,} kept states of {state / MIB:.2f} MiB"
