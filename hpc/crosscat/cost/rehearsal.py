"""Timing of the start and of cycles on a sample of the rows, for `mpibayes check`.

A chain from random clusters has several times as many clusters in its first cycles as later, and moves are more
frequent in its first hundred. So the sample starts as the run will and goes through these cycles; then cycles at their
later rhythm are timed. Times are processor seconds, since other programs may be running; a cycle of one process only
computes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mpibayes.hpc.crosscat import stray_rows
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.cost.outcome_cost import time_coefficients
from mpibayes.hpc.crosscat.cost.speed import Timing
from mpibayes.hpc.crosscat.cycle_info import CycleInfo
from mpibayes.hpc.crosscat.law import Density
from mpibayes.hpc.crosscat.laws.view_density import densities
from mpibayes.hpc.crosscat.moves.round import OFTEN, SELDOM, SELDOM_FOR_VIEWS, later
from mpibayes.hpc.crosscat.start import combined, strategy, views
from mpibayes.hpc.crosscat.with_outcome import add_to_sample
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.outcome.columns import Columns
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.rows import Rows

SAMPLE_ROWS = 20_000
SAMPLE_SLICES = 20  # the sample is cut from all over the table, which may be sorted
SAMPLE_S = 6.0  # time limit for first cycles, of which FEWEST are enough for random clusters to become few
FEWEST = 20
LATER_S = 1.0  # time limit for later cycles without moves of rows, and for those with them; a period of each at least
SCORED = 1_000  # most rows whose scores are timed


class Rehearsal(Mixture):
    """A chain on some of the rows of a table, with moves as often as a chain on all of them. whole_rows: number of
    training rows."""

    whole_rows = 0

    @property
    def n_cells(self) -> int:
        return self.whole_rows * len(self.columns)


def sample_rows(data: Data, most: int = SAMPLE_ROWS) -> Rows:
    """Return up to `most` training rows, in slices from all over the table."""
    if data.n_rows <= most:
        return data.rows_of(0, data.n_rows)
    length = most // SAMPLE_SLICES
    starts = np.linspace(0, data.n_rows - length, SAMPLE_SLICES).astype(np.int64)
    return Rows.concatenate(data.columns, [data.rows_of(int(s), int(s) + length) for s in starts])


def time_sample(
    data: Data, settings: Settings, init: str, n_clusters: int, cycles: int = OFTEN, n_views: int = 0,
    search_rows: int = 0, outcome: Columns | None = None, heldout: int = 0, searches: int = 1, further: int = 0,
) -> Timing:  # fmt: skip
    """Start a sample of the rows as the run will start, with all of them at once, and time cycles of the real sampler.

    cycles: most first cycles. n_views: number of views that its columns are dealt to; 0: all stay together.
    search_rows: rows of a search for views; 0: none. searches: their number; several are combined. further: number of
    those that follow where one finds several views. outcome: the outcome's columns, with the same rows. heldout: number
    of rows that each cycle scores.
    """
    most = strategy.SEARCH_ROWS if n_views else SAMPLE_ROWS
    rows = sample_rows(data, most)
    n_shards = min(settings.shards or len(rows), shards.default_count(len(rows)))  # of the same length as in a run
    n_strays = settings.stray_rows
    settings = replace(settings, annealing=None, shards=n_shards, stray_rows=0)
    mixture = Rehearsal(serial(), data.columns, lambda start, stop: rows.take(slice(start, stop)), len(rows), settings)
    mixture.whole_rows = data.n_rows
    if outcome is not None:
        add_to_sample(mixture, outcome, sample_rows(outcome.data, most))
    search_s = combining_s = 0.0
    began = time.process_time()
    if search_rows:
        found = _found(data, rows, mixture, search_rows, n_views)
        search_s = (time.process_time() - began) * (1 + further * (len(found.views) > 1))
        combining_s = _combining(data, rows, mixture, search_rows, found, searches) if searches > 1 else 0.0
        began = time.process_time()
        views.take(mixture, found, init, n_clusters)
    else:
        if n_views:
            views.deal(mixture, n_views)
        mixture.start(init, n_clusters)
    start_s = time.process_time() - began
    first: list[float] = []
    while len(first) < cycles and (len(first) < FEWEST or sum(first) < SAMPLE_S):
        first.append(_seconds(mixture.cycle))
    mixture.cycles = max(mixture.cycles, OFTEN)  # from here on moves are as rare as later
    quiet, info = _later(mixture, replace(settings, split_merge=0), SELDOM)
    round_s = 0.0
    if settings.split_merge != 0:
        fixed = settings.split_merge is not None
        of = replace(settings, split_merge=1) if fixed else settings
        rounds, info = _later(mixture, of, SELDOM if fixed else SELDOM_FOR_VIEWS)
        round_s = max(0.0, rounds - quiet) * (1 if fixed else later(mixture.n_cells))
    score_s = _scores(mixture, rows.take(slice(0, min(heldout, SCORED)))) if heldout and settings.likelihood else 0.0
    strays_s = _strays(mixture, min(n_strays, len(rows))) if n_strays and n_shards > 1 else 0.0
    drawn = None if outcome is None else time_coefficients(mixture)
    quiet -= 0.0 if drawn is None else drawn.row_s * len(rows) + drawn.root_s
    return Timing(
        len(rows), mixture.n_shards, start_s, max(quiet, 0.0), round_s, -(-info.n_clusters // info.n_views),
        info.moved_fraction, info.n_views, search_s, drawn, tuple(first), score_s, strays_s, combining_s,
    )  # fmt: skip


def _found(data: Data, rows: Rows, mixture: Mixture, most: int, n_views: int) -> views.Pilot:
    """Return the views that a search on `most` of the rows finds, or on fewer where others must judge its trials."""
    n_probes = strategy.n_probes(len(rows), most)
    order = np.random.default_rng(0).permutation(len(rows))
    n = min(most, len(rows) - n_probes)
    mine, probe = rows.take(np.sort(order[:n])), rows.take(order[n : n + n_probes])
    settings = views.settings_of_search(mixture)
    return views.found_by(views.searched(data.columns, mine, settings, 0, n_views, probe=probe if n_probes else None))


def _combining(data: Data, rows: Rows, mixture: Mixture, most: int, pilot: views.Pilot, searches: int) -> float:
    """Return the time to combine searches, on `most` rows each: of one of the pilot's views, for as many columns as may
    be scored."""
    n = min(len(rows), combined.MOST_ROWS * most)
    fold, settings = combined.folds(np.random.default_rng(0), n, most, searches), views.settings_of_search(mixture)
    names = frozenset(max((view.columns for view in pilot.views), key=len))
    part = rows.take(np.sort(np.random.default_rng(1).permutation(len(rows))[:n]))
    took = _seconds(lambda: combined.scored(serial(), data.columns, part, fold, settings, 0, names))
    n = len(data.columns)
    return took * combined.work_in_all(searches) * n / combined.work_of(len(names), n)


def _later(mixture: Mixture, settings: Settings, most: int) -> tuple[float, CycleInfo]:
    """Return the mean time of a cycle with these settings, over whole periods of moves, up to `most` cycles; and the
    last cycle's information."""
    mixture.settings, took = settings, []
    while not took or len(took) % SELDOM or (len(took) < most and sum(took) < LATER_S):
        began = time.process_time()
        info = mixture.cycle()
        took.append(time.process_time() - began)
    return float(np.mean(took)), info


def _scores(mixture: Mixture, some: Rows) -> float:
    """Return the time to score a row, of as many as these."""

    def score() -> None:
        Density(densities(mixture.views, mixture.linking.codings), mixture.places).log_density(some)

    return _seconds(score) / len(some)


def _strays(mixture: Mixture, n: int) -> float:
    """Return the time of a visit to a stray row, of n."""
    chosen = stray_rows.choose(mixture, n)
    return _seconds(lambda: stray_rows.visit(mixture, chosen)) / len(chosen)


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
