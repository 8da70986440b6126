"""`mpibayes check` of a mixture or a cross-categorization: memory, and time on a sample of rows
(`cost/rehearsal.py`), scaled to the rows of the busiest rank."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.crosscat.columns.proposal import PIECE
from mpibayes.hpc.crosscat.columns.scan import AUXILIARY
from mpibayes.hpc.crosscat.cost import link_cost
from mpibayes.hpc.crosscat.cost.outcome_cost import has_bounds, law_of, outcome_bytes, outcome_of
from mpibayes.hpc.crosscat.cost.rehearsal import time_sample
from mpibayes.hpc.crosscat.cost.speed import TYPICAL_NETWORK, Speed, Timing
from mpibayes.hpc.crosscat.family import settings_of
from mpibayes.hpc.crosscat.given_priors import GammaPrior
from mpibayes.hpc.crosscat.keys import Model, Output
from mpibayes.hpc.crosscat.lines.gaps import AT_ONCE as AT_ONCE_IN_LINES
from mpibayes.hpc.crosscat.lines.gaps import lacking
from mpibayes.hpc.crosscat.moves.launched import BATCH, SUBSET
from mpibayes.hpc.crosscat.moves.pools import BYTES
from mpibayes.hpc.crosscat.moves.round import OFTEN, later
from mpibayes.hpc.crosscat.sampler_keys import Sampler
from mpibayes.hpc.crosscat.scalars import BY_FAMILY
from mpibayes.hpc.crosscat.start import sample as first_clusters
from mpibayes.hpc.crosscat.start import strategy
from mpibayes.hpc.crosscat.start.trials import MAX_TRIALS
from mpibayes.hpc.crosscat.with_outcome import in_words
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.links.coding import widest_links
from mpibayes.hpc.links.gaps import AT_ONCE as AT_ONCE_IN_GAPS
from mpibayes.hpc.outcome.law import Law
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.cores import program_cores
from mpibayes.hpc.run import examine
from mpibayes.hpc.run.examine import MIB, MPI_BYTES, PROCESS_BYTES, WORK_BYTES, Examined
from mpibayes.io.draws import BUFFERED
from mpibayes.io.rows import ARRAYS, Column
from mpibayes.kernels.mixture.pruning import N_BINS
from mpibayes.text import counted, duration, every, rate

SEARCHED = 16 * 128 + 4 * 100  # bytes per row: its scores in a partition's clusters, twice, and a hundred labels
LOOP_S = 2e-4  # of a run around a cycle: the trace, progress
TYPICAL_CLUSTERS = 256
TYPICAL_CLUSTERS_OF_A_VIEW = 64


OF_EVERY_CHAIN = "rows", "labels", "draws", "heldout", "clusters", "outcome"  # memory that every chain keeps
NOT_IN_A_SAMPLE = "labels", "moves", "columns", "gathered", "draws", "bounds", "strays"  # parts that a first cycle adds


def memory_per_rank(
    columns: Sequence[Column],
    n_train: int,
    given: shards.Setting,
    n_ranks: int,
    n_clusters: int,
    kept_draws: int = 0,
    heldout_rows: int = 0,
    mpi: bool = True,
    moves: bool = True,
    growing: bool = False,
    joint: Sequence[int] = (),
    n_views: int = 1,
    has_views: bool = False,
    pilot_rows: int = 0,
    cluster_rows: int = 0,
    links: bool = False,
    gaps: int = 0,
    holes: int = 0,
    outcome: Law | None = None,
    outcome_bounds: bool = False,
    strays: int = 0,
) -> dict[str, int]:
    """Forecast resident bytes at the peak of root, by part, with the rows of the busiest rank.

    columns: columns in use. n_train: training rows. given: shards, by their number or their sizes.
    heldout_rows: rows to score, of the table or of a file.
    growing: the chain starts from a subsample. joint: number of columns of each block. n_clusters: per view.
    has_views: there may be several views; `n_views` are expected, found first on `pilot_rows`.
    cluster_rows: rows of the sample in which clusters are looked for first.
    links: links are learned; columns have as many contexts as they may come to have. gaps: number of columns with
    missing cells that others may depend on. holes: missing cells of numbers in lines. outcome: its law, if any.
    outcome_bounds: its rows have bounds.

    process    Python, libraries, and the MPI library where there is one
    rows       cells of its shards: 1 byte per categorical column (2 above 255 levels), 8 per real or count column
    labels     4 bytes per row and view; a copy of one shard's labels in a sweep
    gathered   on root, all labels at a kept draw: 1 byte per training row and view up to 256 clusters; with several
               views, one view's a second time; and two copies of root's part
    draws      on root, kept draws waiting for a checkpoint, 1 byte per row and view up to 256 clusters, at most 16 MiB
    columns    moves of columns between views: see `_columns_bytes`
    pilot      on root, the sample on which views are searched for, a copy of it, copies for trials, and the search's
               numbers per row
    sample     on root, three copies of the sample in which clusters are looked for and moves in it, as far as they
               exceed what a later cycle needs in their place
    moves      copies of rows that shape the launches of splits, or of a shard's; statistics and odds of both sides
    subsample  while it grows: 4 bytes per row for its stratum, and for one shard at a time the steps (8) and the rows
               inside and outside (8)
    heldout    its part of the held-out rows with their running scores
    clusters   for each (level, cluster): log theta, its ordered copy and the kernels' copy (4 bytes each), counts in
               total, by changes, of a tail and in a message (4 each, the last 8); moments for each (numeric column,
               cluster), and those of blocks by column and by pair of columns; for each count column a new cluster's
               scores of the counts up to 1,023
    strays     cells of all stray rows on every rank: as sent, as received, and joined; 16 bytes each for labels
    bounds     with many clusters, see `_bounds_bytes`
    links      see `link_cost.draw_bytes`
    gaps       a byte per row of each such column; weights of levels, a few times; level probabilities (4 bytes), twice;
               for missing numbers an index and a byte, and in draws and checkpoints, twice, a number (8), all on root
    outcome    see `outcome_bytes`
    """
    widths = {b: sum(1 if c.levels else c.contexts for c in columns if c.block == b) for b in ARRAYS}
    row = sum(width * np.dtype(ARRAYS[block]).itemsize for block, width in widths.items())
    rows, shard = shards.busiest(given, n_train, n_ranks)
    mine = shards.of_rank(shards.count(given, n_train), n_ranks, 0)
    levels = sum(c.blank + 1 for c in columns if c.levels)
    numeric = widths["reals"] + widths["tallies"]
    entries = sum(d + d * (d + 1) // 2 for d in joint)
    padded = -(-n_clusters // 16) * 16
    label = 1 if n_clusters <= 256 else 2 if n_clusters <= 65536 else 4
    shape = {"row": row - 4 * widths["reals"], "n_clusters": n_clusters, "levels": levels}
    launches = partial(_moves_bytes, **shape, sent=n_ranks > 1)
    pooled = row * min(rows, max(shard, BYTES // row))
    parts = {
        "process": PROCESS_BYTES + (MPI_BYTES if mpi else 0) + WORK_BYTES,
        "rows": rows * row,
        "labels": 4 * n_views * rows + 4 * shard,
        "subsample": 16 * shard if growing else 0,
        "moves": max(launches(rows), pooled + 12 * rows) if moves else 0,
        "columns": _columns_bytes(rows, row, shard, n_train, n_clusters, levels, n_views) if has_views else 0,
        "pilot": pilot_rows * ((2 + MAX_TRIALS) * row + SEARCHED),
        "gathered": label * ((has_views + n_views) * n_train + 2 * rows) if kept_draws else 0,
        "draws": min(BUFFERED, kept_draws * n_train * label * n_views),
        "heldout": -(-heldout_rows // n_ranks) * (row + 16),
        "clusters": padded * (levels * (3 * 4 + 5 * 4) + numeric * (3 * 8 * 4) + entries * 8 * (12 + 2 * len(mine)))
        + 8 * 1024 * widths["tallies"],
        "links": link_cost.draw_bytes(rows, row - 8 * numeric, len(columns), levels, n_clusters) if links else 0,
        "gaps": gaps * rows
        + (5 * 8 * AT_ONCE_IN_GAPS + 8 * levels * n_clusters if gaps else 0)
        + 25 * holes
        + (6 * 8 * AT_ONCE_IN_LINES if holes else 0),
        "strays": strays * (3 * row + 16),
        "bounds": _bounds_bytes(rows, shard, padded, levels, numeric, entries) if not outcome else 0,
        "outcome": outcome_bytes(outcome, rows, shard, -(-heldout_rows // n_ranks), outcome_bounds),
    }
    sample = 3 * cluster_rows * row + (launches(cluster_rows) if moves else 0) if cluster_rows else 0
    return parts | {"sample": max(0, sample - sum(parts[name] for name in NOT_IN_A_SAMPLE))}


def _bounds_bytes(rows: int, shard: int, n_clusters: int, levels: int, numeric: int, entries: int) -> int:
    """Return the bytes of sweeps that skip clusters, almost none below 96 clusters: 1 per numeric cell for its bin,
    tables of bounds and parameters by tiles, twice where a shard has a tail, and 8 scores (12 each) per row of one
    shard."""
    if n_clusters < 96:
        return 0
    tables = (levels + N_BINS * numeric) * 5 // 2 + 4 * levels + 24 * numeric + 8 * entries
    return rows * numeric + 2 * n_clusters * tables + (16 + 8 * 12) * shard


def _moves_bytes(rows: int, row: int, n_clusters: int, levels: int, sent: bool) -> int:
    """Return the bytes at the peak of a round of moves. row: bytes of one row in a launch, where real cells take 4;
    added to it are a bit per level, random numbers of 16 scans (32), ids, places and labels, and copies if rows are
    sent to ranks. Statistics are of the clusters whose rows are copied at once, odds of all."""
    shaping = min(rows, SUBSET * n_clusters, BATCH // (row + 80) + SUBSET)
    of_row = row + levels // 8 + 80 + 3 * (row + 20) * sent
    at_once = min(n_clusters, shaping // max(1, min(SUBSET, rows // max(n_clusters, 1))) + 1)
    return shaping * of_row + 12 * rows + 2 * levels * (at_once * (3 * 8 + 4) + n_clusters * 8)


def _columns_bytes(
    rows: int, row: int, shard: int, n_train: int, n_clusters: int, levels: int, n_views: int
) -> int:  # fmt: skip
    """Return the bytes at the peak of moves of columns between views: a merge of two views with all columns, a scan, or
    a group of columns that goes to another view.

    In a merge, three proposals have a mark (1) per row and two a label (4); a shard's cells are copied twice, and its
    numbers take 24 bytes per row; PIECE rows have four arrays of a score (8) per cluster. A scan holds partitions drawn
    from the prior, of all rows (4) and of the rank's own (usually at most 2). A group's rows are copied
    with those of the view that it enters, one and a half views' on average, with their order (8) and three labels.
    """
    merge = rows * 11 + shard * (2 * row + 24) + min(shard, PIECE) * 4 * 8 * (n_clusters + 1)
    scan = 4 * n_train + 2 * 2 * AUXILIARY * rows + 12 * 2 * AUXILIARY * n_clusters * levels
    return max(merge, scan, rows * (3 * row // (2 * max(n_views, 2)) + 20))


def memory(examined: Examined, ranks: int) -> dict[str, int]:
    """Forecast bytes on the busiest rank, by part, with a typical number of clusters."""
    data = examined.data
    joint = [len(columns) for columns in data.carve.blocks.values()]
    several = examined.config.of(Model).has_views
    clusters, n_views = TYPICAL_CLUSTERS, strategy.views_at_first(examined.config)
    if several:
        clusters, n_views = TYPICAL_CLUSTERS_OF_A_VIEW, min(n_views, len(data.columns))
    model = examined.config.of(Model)
    columns = widest_links(data.columns, model.parents)
    gaps = sum(bool(c.levels and c.n_missing) for c in columns) if model.links_levels and not several else 0
    holes = sum(c.n_missing for c in lacking(columns))
    of_outcome = outcome_of(examined)
    return memory_per_rank(
        columns, data.n_rows, examined.shards, examined.schedule(ranks).sizes[-1], clusters, joint=joint,
        n_views=n_views, has_views=several, mpi=ranks > 1, links=model.learns_links, gaps=gaps, holes=holes,
        outcome=law_of(of_outcome), outcome_bounds=has_bounds(of_outcome),
    )  # fmt: skip


def findings(examined: Examined, ranks: int) -> Iterator[tuple[str, str]]:
    """Yield the findings of `check` as (title, text)."""
    schedule = examined.schedule(ranks)
    fewest = schedule.sizes[-1]
    config, table, data, n_heldout = examined.config, examined.table, examined.data, examined.n_heldout
    model = config.of(Model)
    several = model.has_views
    dealt = strategy.views_at_first(config) if several else 0
    of_clusters, searches = strategy.cluster_rows(config, data.n_rows), strategy.searches(config, data.n_rows)
    sample = strategy.pilot_rows(config, data.n_rows) if several else 0
    at_once = min(searches, max(1, program_cores() // ranks))  # in a rank and its children
    outcome = outcome_of(examined)
    timing = time_sample(
        data,
        settings_of(config, data.n_rows),
        *_start(config),
        n_views=dealt,
        search_rows=sample,
        outcome=outcome,
        heldout=n_heldout,
        searches=searches,
        further=strategy.further_searches(config, data.n_rows) if several else 0,
    )
    run, n_shards = config.run, config.run.shards
    working = min(fewest, n_shards)
    yield from examine.about_table(config, table, data, n_heldout)
    yield "shards", f"{examine.shards_in_words(examined)}; opening = {config.of(Sampler).opening}"
    yield from examine.about_ranks(schedule, n_shards)
    if n_shards > 16:
        yield "", "K mixes more slowly with more shards, about in proportion: use as few as the ranks need"
    yield "sampler", _exactness(config)
    if outcome is not None:
        first, *warnings = in_words(outcome, config)
        yield "outcome", first.removeprefix("outcome: ")
        for warning in warnings:
            yield "", warning
    yield "start", strategy.start_in_words(config, data.n_rows, len(data.columns))
    if run.chains > 1 and config.of(Sampler).init == "overdispersed":
        yield "", f"chain 1; the others: {strategy.STARTS['overdispersed']}"
    if several:
        most = min(dealt, len(data.columns))
        from_what = f"at most {counted(most, 'initial view')}" if sample else counted(most, "random view")
        of = counted(strategy.rows_of_search(timing.n_rows, sample, 0) if sample else timing.n_rows, "row")
        words = f"{counted(timing.n_views, 'view')}, found on {of} from {from_what}"
        yield "views", f"{words}, to measure time; a chain may find others"
    grows = strategy.growth_in_words(config, data.n_rows)
    if grows:
        yield "", grows
    yield "draws", f"{strategy.counting_in_words(config)}; labels are kept {every(config.of(Output).labels)}"

    # more rows form more clusters, and the sample has not had time to form all of its own
    n_clusters = max(32, int(2 * timing.n_clusters * np.sqrt(data.n_rows / timing.n_rows)))
    growth = strategy.growth_cycles(config, data.n_rows)
    kept = run.cycles // config.of(Output).labels - (growth or 0) // config.of(Output).labels
    parts = memory_per_rank(
        widest_links(data.columns, model.parents), data.n_rows, examined.shards, fewest, n_clusters, kept, n_heldout,
        mpi=ranks > 1, links=model.learns_links, moves=config.of(Sampler).split_merge != 0, growing=growth != 0,
        joint=[len(columns) for columns in data.carve.blocks.values()], n_views=timing.n_views, has_views=several,
        pilot_rows=sample * at_once, cluster_rows=of_clusters, outcome=law_of(outcome),
        outcome_bounds=has_bounds(outcome),
        strays=min(config.of(Sampler).stray_rows, data.n_rows) if n_shards > 1 else 0,
    )  # fmt: skip
    if run.judged:  # all chains of a group are in memory at once
        parts |= {name: schedule.turns * parts[name] for name in OF_EVERY_CHAIN}
    yield "memory", f"{sum(parts.values()) / MIB:.0f} MiB on the busiest of {counted(ranks, 'rank')}, of which"
    listed = ", ".join(f"{name} {size / MIB:.1f}" for name, size in parts.items() if size)
    yield "", f"{listed} (for {_in_views(n_clusters, timing)})"

    as_timed = growth == 0 and not of_clusters and config.of(Sampler).init != "labels"
    speed = Speed.of(data.columns, data.n_rows, examined.shards, _cycles_per_round(config, data, as_timed), timing)
    cycle_s = speed.cycle_s(working) + timing.strays_s * min(config.of(Sampler).stray_rows, data.n_rows)
    cycle_s += timing.score_s * n_heldout / working / config.output.thin + LOOP_S
    start_s = _start_s(timing, data.n_rows, searches, max(at_once, min(fewest, searches)))
    start_s += first_clusters.CYCLES * timing.cycle_s * of_clusters / timing.n_rows
    more_s = speed.first_s(working, min(OFTEN, run.cycles)) if as_timed else 0.0
    cores = os.cpu_count() or 1
    yield "time", f"{cycle_s:.3g} s a cycle on {counted(working, 'rank')} ({rate(data.n_rows / cycle_s)})"
    measured = _in_views(timing.n_clusters, timing)
    yield "", f"measured on {counted(timing.n_rows, 'row')} with {measured}, one process"
    if timing.coefficients is not None:
        share = speed.cycle_s(working, drawn=False) / cycle_s
        yield "", f"this includes draws of the outcome's coefficients, {1.0 - share:.0%} of it"
    if model.learns_links and not several:
        of = n_clusters, settings_of(config, data.n_rows).link_moves, run.cycles
        yield "", link_cost.in_words(data.columns, data.n_rows, working, *of)
    if several:
        yield "", "this includes moves of columns, whose time is scaled with the number of rows"
    chains = f" x {run.chains} chains" if run.chains > 1 else ""
    whole = run.cycles - (growth or 0) + strategy.growth_cost(config, data.n_rows)
    total = duration((start_s + more_s + cycle_s * whole) * schedule.turns)
    length = f"{counted(run.cycles, 'cycle')}{chains}"
    yield "", f"{total} for {length}, if the number of clusters stays the same: time grows with it"
    if start_s + more_s >= 1.0:
        early = f"; {duration(more_s)} for more clusters and moves in its first cycles" if as_timed else ""
        yield "", f"in this, of each chain: {duration(start_s)} before its first cycle{early}"
    if n_shards > 1:
        yield "ranks", f"{speed.in_words()}  seconds a cycle (efficiency)"
    if working > 1:
        yield "", f"messages of {speed.wire_bytes(working) / MIB:.2g} MiB a cycle; a network of {TYPICAL_NETWORK.name}"
    if ranks > cores:
        yield "", f"this supposes a core for every rank; this machine has {cores}"
    draw = (1 if n_clusters <= 256 else 2) * data.n_rows * timing.n_views
    trace = 8 * (1 + len(BY_FAMILY[config.model.family])) * run.cycles / config.output.thin
    checkpoint = 4 * data.n_rows * timing.n_views
    each = f", for each of {run.chains} chains" if run.chains > 1 else ""
    yield "disk", f"two checkpoints of {checkpoint / MIB:.1f} MiB, a trace of {trace / MIB:.1f} MiB{each}"
    yield "", f"{counted(kept, 'kept draw')} of at most {draw / MIB:.2f} MiB, before compression{each}"


def _start_s(timing: Timing, n_rows: int, searches: int, at_once: int) -> float:
    """Forecast seconds before the first cycle: of the rows' labels, and of searches, `at_once` of them at a time, which
    differ and are combined."""
    of_searches = timing.search_s * -(-searches // at_once) + timing.combining_s / at_once
    return timing.start_s * n_rows / timing.n_rows + of_searches


def _in_views(n_clusters: int, timing: Timing) -> str:
    """Describe the number of clusters in each of the sample's views."""
    clusters = counted(n_clusters, "cluster")
    return clusters if timing.n_views == 1 else f"{clusters} in each of {timing.n_views} views"


def _cycles_per_round(config: Config, data: Data, later_ones: bool) -> float:
    """Return the average number of cycles between rounds of split and merge moves; 0: no moves. later_ones: of cycles
    after the first ones alone."""
    moves, cycles = config.of(Sampler).split_merge, config.run.cycles
    if moves != "auto":
        return moves
    often = 0 if later_ones else min(cycles, OFTEN)
    return cycles / (often + (cycles - often) / later(data.n_rows * len(data.columns)))


def _start(config: Config) -> tuple[str, int]:
    """Return the sample's (init, init_clusters). Labels from a file fit the whole table, not a sample."""
    init = config.of(Sampler).init
    return ("sequential" if init == "labels" else init), config.of(Sampler).init_clusters


def _exactness(config: Config) -> str:
    """Name the distribution that the sampler leaves invariant."""
    law = "the prior on partitions (model.likelihood = false)" if not config.of(Model).likelihood else "the posterior"
    model = config.of(Model)
    of_gamma = isinstance(model.concentration, GammaPrior)
    learned = [] if isinstance(model.concentration, float) or of_gamma else ["concentration"]
    learned += [] if isinstance(model.discount, float) else ["discount"]
    grid = f"; {' and '.join(learned)} on a grid" if learned else ""
    whose = " of the views and of the rows' clusters in each" if config.of(Model).has_views else ""
    return f"exact: every cycle leaves {law}{whose} invariant, on any number of ranks{grid}"
