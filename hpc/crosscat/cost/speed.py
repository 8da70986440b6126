"""Seconds per cycle on any number of ranks: the cost model, calibrated by a sample's timing on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpibayes.hpc.crosscat.cost.cost_model import (
    Coefficients,
    Network,
    Problem,
    compute_seconds,
    forecast,
    message_seconds,
    wire_bytes,
)
from mpibayes.hpc.parallel.shards import Setting, count
from mpibayes.io.rows import Column

# Messages between nodes matter little unless the network is far worse; see benchmarks/scaling.md for other networks.
TYPICAL_NETWORK = Network("2 us, 20 GB/s", 2e-6, 20e9)
LAST = 5  # of the first cycles that were timed, of which later ones of the first are like the mean


@dataclass
class Timing:
    """Measurements of a few cycles on a sample."""

    n_rows: int  # of the sample
    n_shards: int
    start_s: float
    cycle_s: float  # a later one, in one process that holds all rows of the sample, without a round of moves
    moves_s: float  # of a round
    n_clusters: int  # mean per view
    moved: float  # share of the rows that changed their cluster
    n_views: int = 1
    search_s: float = 0.0  # for views
    coefficients: Coefficients | None = None  # of an outcome, whose draw is no part of cycle_s
    first: Sequence[float] = ()  # seconds of the first cycles, with all their moves
    score_s: float = 0.0  # of a held-out row
    strays_s: float = 0.0  # of a stray row
    combining_s: float = 0.0  # of several searches


@dataclass
class Speed:
    """Cost of a chain on a table, with this machine's times relative to the cost model."""

    problem: Problem  # the whole table
    factor: float  # measured over modelled, cycles without moves
    moves_factor: float
    timing: Timing

    @classmethod
    def of(cls, columns: Sequence[Column], n_rows: int, given: Setting, moves_every: int, timing: Timing) -> Speed:
        """given: shards, by their number or their sizes."""
        levels = [len(c.levels) + 1 for c in columns if c.block.startswith("codes")]
        problem = Problem(
            n_rows, len(levels), sum(levels), timing.n_clusters, count(given, n_rows),
            reals=sum(c.block == "reals" for c in columns), counts=sum(c.block == "tallies" for c in columns),
            widest=max(levels, default=0), moved=timing.moved, moves_every=moves_every,
            coefficients=timing.coefficients, sizes=given if isinstance(given, tuple) else (),
        )  # fmt: skip
        sample = replace(
            problem, rows=timing.n_rows, shards=timing.n_shards, moves_every=0, coefficients=None, sizes=()
        )
        whole_round = compute_seconds("moves", sample, timing.n_rows, timing.n_shards)
        moves_factor = timing.moves_s / whole_round if whole_round else 0.0
        return cls(problem, timing.cycle_s / forecast(sample, 1).total, moves_factor, timing)

    def cycle_s(self, ranks: int, drawn: bool = True) -> float:
        """drawn: with draws of an outcome's coefficients."""
        ranks = min(ranks, self.problem.shards)
        messages = message_seconds(self.problem, ranks, TYPICAL_NETWORK)
        seconds = forecast(self.problem, ranks, TYPICAL_NETWORK).seconds
        moves, coefficients = seconds.pop("moves"), seconds.pop("coefficients", 0.0)  # which are as they were measured
        talk = sum(s for phase, s in messages.items() if phase != "coefficients")
        rest = self.factor * (sum(seconds.values()) - talk) + self.moves_factor * moves + talk
        return rest + coefficients if drawn else rest

    def first_s(self, ranks: int, n: int) -> float:
        """Return the time of the first n cycles beyond n later ones; cycles that were not timed are like the last."""
        timing, of = self.timing, self.timing.coefficients
        if not timing.first:
            return 0.0
        later = timing.cycle_s + (timing.moves_s / every if (every := self.problem.moves_every) else 0.0)
        later += 0.0 if of is None else of.row_s * timing.n_rows + of.root_s
        first = list(timing.first[:n])
        last = first[-LAST:]
        took = sum(first) + (n - len(first)) * sum(last) / len(last)
        return max(0.0, took / later - n) * self.cycle_s(ranks)

    def efficiency(self, ranks: int) -> float:
        return self.cycle_s(1) / (ranks * self.cycle_s(ranks))

    def wire_bytes(self, ranks: int) -> float:
        return sum(wire_bytes(self.problem, min(ranks, self.problem.shards)).values())

    def in_words(self) -> str:
        """Describe seconds and efficiency at a few numbers of ranks, up to one per shard."""
        most = self.problem.shards
        step = 2 if most <= 16 else 4
        chosen = [1]
        while chosen[-1] * step < most:
            chosen.append(chosen[-1] * step)
        chosen += [most] if most > 1 else []
        return ", ".join(
            f"{r:,}: {self.cycle_s(r):.2g}" + (f" ({self.efficiency(r):.0%})" if r > 1 else "") for r in chosen
        )
