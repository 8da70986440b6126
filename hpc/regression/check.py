"""`mpibayes check` of a regression: memory, time, bright rows, and how normal the posterior is.

Memory is a model whose constants are those of `run/examine.py`; time is measured on a few cycles of the chain itself,
on all rows; importance sampling from Laplace's approximation shows whether the chain is needed at all (docs/math.md
4.6).
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.regression import keys
from mpibayes.hpc.regression.design import Design
from mpibayes.hpc.regression.family import firefly_settings, slice_rows
from mpibayes.hpc.regression.firefly import Firefly
from mpibayes.hpc.regression.forecast import in_words
from mpibayes.hpc.regression.mode.importance import importance_sample
from mpibayes.hpc.regression.scalars import SCALARS
from mpibayes.hpc.run.examine import (
    MIB,
    MPI_BYTES,
    PROCESS_BYTES,
    WORK_BYTES,
    Examined,
    about_ranks,
    about_table,
    shards_in_words,
    with_mpi,
)
from mpibayes.io.inference import MERGED_AT_MOST
from mpibayes.text import counted, duration

TIMED_S = 1.0
MESSAGES_S = 5e-5  # seconds of a cycle on several ranks of one machine: three messages, and leaving the compiled loop
LOOKS = 2e9  # most multiplications of the importance sampling: a few seconds
LEAST_DRAWS, MOST_DRAWS = 50, 1000


def memory_per_rank(
    design: Design, n_train: int, given: shards.Setting, n_ranks: int, n_kept: int = 0
) -> dict[str, int]:
    """Forecast the resident bytes at the peak of root, with the rows of the busiest rank, by part; the forecast
    is their sum. given: shards, by their number or their sizes.

    process       Python, libraries, and the MPI library if there is one
    rows          of its shards: 4 bytes a predictor (their number rounded up to 8), 8 for the response
    bounds        for each row's bound: 8 bytes for t, 16 for logistic, 16 a class for softmax, and 1 for its z
    reading       the columns of a slice of rows as stored in the table
    coefficients  dense matrices of their products: the posterior's covariance and matrices derived from it
    trace         root, at the end: four times the data merged into trace.h5, which is 64 MiB at most
    """
    rows, longest = shards.busiest(given, n_train, n_ranks)
    row = 4 * design.width + 8
    bounds = 8 * design.likelihood(design.n_predictors, design.n_classes).n_bounds
    return {
        "process": PROCESS_BYTES + (MPI_BYTES if n_ranks > 1 else 0) + WORK_BYTES,
        "rows": rows * row,
        "bounds": rows * (bounds + 1),
        "reading": min(slice_rows(design), longest) * (8 * (len(design.terms) + 1) + row),
        "coefficients": 8 * 8 * design.n_parameters**2,
        "trace": 4 * min(8 * (design.n_parameters + 9) * n_kept, MERGED_AT_MOST),
    }


def memory(examined: Examined, ranks: int) -> dict[str, int]:
    """Bytes on the busiest rank, by part."""
    config = examined.config
    kept = config.run.cycles // config.output.thin
    each = examined.schedule(ranks).sizes[-1]
    parts = memory_per_rank(examined.family.design, examined.data.n_rows, examined.shards, each, kept)
    return with_mpi(parts, ranks, each)


def findings(examined: Examined, ranks: int) -> Iterator[tuple[str, str]]:
    """Yield the findings of `check` as (title, text) pairs. Raises DataError as a run would."""
    schedule = examined.schedule(ranks)
    each = schedule.sizes[-1]
    working = min(each, examined.config.run.shards)
    config, family, run = examined.config, examined.family, examined.config.run
    began = time.perf_counter()
    family.load([], fresh=True)
    yield from about_table(config, examined.table, examined.data, examined.n_heldout)
    yield "shards", shards_in_words(examined)
    yield from about_ranks(schedule, run.shards)
    for warning in family.warnings:
        yield "", f"warning: {warning}"
    chain = Firefly(serial(), family.problem, firefly_settings(config))
    chain.start(family.choice().fit)
    start_s = time.perf_counter() - began
    lines = in_words(family.design, chain, family.choice())
    yield "model", lines[0]
    for line in lines[1:]:
        yield "", line
    yield "sampler", f"exact: every cycle leaves the posterior invariant, on any number of ranks; {_updates(config)}"
    counting = f"from {config.burn_in + 1:,} on draws count, after adaptation"
    yield "draws", f"{counted(run.cycles, 'cycle')}; {counting}"

    parts = memory(examined, ranks)
    busiest = f"on the busiest of {counted(ranks, 'rank')}"
    yield "memory", f"{sum(parts.values()) / MIB:.0f} MiB {busiest}, of which"
    yield "", ", ".join(f"{name} {size / MIB:.1f}" for name, size in parts.items() if size)
    cycle_s = _time(chain) + (MESSAGES_S if each > 1 else 0.0)
    yield (
        "time",
        f"{cycle_s:.2g} s a cycle on {counted(each, 'rank')}, {start_s / working:.2g} s to start",
    )
    total = duration((start_s / working + cycle_s * run.cycles) * schedule.turns)
    chains = f" x {run.chains} chains" if run.chains > 1 else ""
    yield "", f"{total} for {counted(run.cycles, 'cycle')}{chains}"
    if each > 1:
        yield "", f"of a cycle {MESSAGES_S:.1g} s are messages: one rank is quicker, where it can hold the rows"
    trace = 8 * (1 + len(SCALARS) + family.design.n_parameters) * run.cycles / config.output.thin
    state = 8 * family.design.n_parameters**2
    yield "disk", f"a trace of {trace / MIB:.1f} MiB (see output.thin), two checkpoints of {state / MIB:.1f} MiB"
    yield from _importance(family, chain)


def _updates(config) -> str:
    f = config.of(keys.Firefly)
    return f"{f.theta_update}, {f.z_update} z updates" if f.bounds != "none" else f"{f.theta_update} on all rows"


def _time(chain: Firefly) -> float:
    """Seconds per cycle, measured after a warm-up."""
    done, began = 0, time.perf_counter()
    while not done or time.perf_counter() - began < TIMED_S:
        n = max(1, done)
        last = time.perf_counter()
        chain.advance(n)
        took, done = (time.perf_counter() - last) / n, done + n
    return took


def _importance(family, chain: Firefly) -> Iterator[tuple[str, str]]:
    p = chain.problem
    n_draws = int(min(MOST_DRAWS, LOOKS / (p.n_rows * p.n_parameters)))
    if n_draws < LEAST_DRAWS:
        yield "importance", f"sampling from Laplace's approximation was not tried: a draw takes all {p.n_rows:,} rows"
        return
    w = importance_sample(serial(), p.rows, p.n_shards, family.choice().fit, p.prior, n_draws, chain.settings.seed)
    yield "importance", f"Laplace's approximation: {w.n_effective:.0f} of {n_draws} weighted draws effective (Kish)"
    reliable = "below 0.7: weighted means are reliable, as far as that many draws can show"
    verdict = reliable if w.reliable else "not below 0.7: the chain is needed"
    yield "", f"Pareto k = {w.pareto_k:.2f}, {verdict}"
