"""Start and moves of a chain of a mixture or a cross-categorization: [sampler] and [anneal]."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from mpibayes.hpc.config.section import (
    CYCLES,
    CYCLES_OR_NONE,
    LENGTH_OF_TIME,
    MOST_ROWS,
    ROW_COUNT,
    Cycles,
    CyclesOrNone,
    Duration,
    Name,
    RowCount,
    Section,
    key,
    none,
    tuples,
    whole,
)

MOST_CLUSTERS = 65_536


class Sampler(Section):
    strategy: Literal["auto", "anneal", "sequential+gibbs", "prior+gibbs"] = key(
        "auto",
        "how a chain starts: auto: all rows in random clusters, most of which soon empty; from 30,000 rows on in "
        "clusters found on a sample; with views after a search for views; anneal: a growing subsample, see [anneal]; "
        "sequential+gibbs: all rows added one by one; prior+gibbs: a draw of the prior; each chain has a start of "
        "its own",
        '"auto", "anneal", "sequential+gibbs" or "prior+gibbs"',
    )
    split_merge: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "cycles between rounds of split and merge moves of clusters; auto: 1 until cycle 100 (several views take "
        "turns, each at least every fourth), then 4, or 8 on at most 500,000 cells; 0: none",
        f'"auto" or {CYCLES_OR_NONE}',
    )
    init: Literal["auto", "one", "random", "sequential", "prior", "overdispersed", "labels"] = key(
        "auto",
        "first partition: auto: by the strategy; one cluster; random: init_clusters random ones; sequential: rows "
        "added one by one; prior: a draw of the prior; overdispersed: a random number of random clusters; labels: "
        "init_labels",
        '"auto", "one", "random", "sequential", "prior", "overdispersed" or "labels"',
        decided_once=True,
    )
    init_clusters: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_CLUSTERS)] = key(
        "auto",
        'number of clusters for init = "random"; auto: 128, at most one for every 8 rows',
        f'"auto" or {whole(1, MOST_CLUSTERS)}',
        decided_once=True,
    )
    init_labels: Annotated[Name | None, BeforeValidator(none)] = key(
        None,
        'for init = "labels": a text file (its last line counts) or a run directory, also one of the table before '
        "rows were appended",
        "the path of a text file with one line of labels, or of a run directory",
        path=True,
    )
    init_views: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_CLUSTERS)] = key(
        "auto",
        "views at the start of a search (sets of dependent columns), or random views where init_rows is 0; auto: "
        "16, or as many as columns",
        f'"auto" or {whole(1, MOST_CLUSTERS)}',
        decided_once=True,
    )
    init_rows: Literal["auto"] | Annotated[int, Field(ge=0, le=MOST_ROWS)] = key(
        "auto",
        "rows of the search for views; auto: 3,000 (10,000 of a single search, or if clusters are small) where init is "
        "auto; 0: no search. In a mixture rows of the sample whose clusters a chain starts from; auto: 0 below 30,000 "
        "rows, then a tenth, at least 10,000 and at most 50,000",
        f'"auto" or {whole(0, MOST_ROWS)}',
        decided_once=True,
    )
    searches: Literal["auto"] | Annotated[int, Field(ge=1, le=1000)] = key(
        "auto",
        "searches for views per chain; the one that best predicts a tenth of the training rows (at most 3,000), "
        "which no search uses, is kept; auto: 3, or 1 below 500 training rows, and there 2 more where it finds several "
        "views: the greatest evidence is kept",
        f'"auto" or {whole(1, 1000)}',
        decided_once=True,
    )
    column_moves: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "cycles between moves of columns; auto: 1 until cycle 20 (splits and merges of views: 100), then 4, or 8 on "
        "at most 500,000 cells (splits and merges there: 64); 0: none",
        f'"auto" or {CYCLES_OR_NONE}',
    )
    view_moves: int = key(
        2,
        "splits and merges of views that such a cycle proposes in a search, or without search or group_moves",
        whole(0, 10_000),
        ge=0,
        le=10_000,
    )
    group_moves: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "cycles between moves of a group of columns to another view, or to a new one, in which rows follow; auto: 128, "
        "on at most 100,000 cells 4 until cycle 100 and then 64; 0: none",
        f'"auto" or {CYCLES_OR_NONE}',
        decided_once=True,
        formerly=0,
    )
    column_powers: CyclesOrNone = key(
        0, "cycles between two draws of a column's view in which rows follow the column; 0: none", CYCLES_OR_NONE
    )
    link_moves: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "learned links: cycles between draws of all links; auto: after 3, 10, 30, 100 and 300 cycles, then "
        "every 1,000; 0: none",
        f'"auto" or {CYCLES_OR_NONE}',
    )
    sweeps_per_cycle: int = key(1, "passes over the rows between two exchanges", whole(1, 10_000), ge=1, le=10_000)
    opening: Literal["auto", "one", "all"] = key(
        "auto",
        "shards that open clusters in a cycle; auto: one; all needs discount = 0",
        '"auto", "one" or "all"',
        decided_once=True,
    )
    stray_rows: Literal["auto"] | Annotated[int, Field(ge=0, le=MOST_ROWS)] = key(
        "auto",
        "with several shards: rows, chosen during burn-in as those most probably alone in a cluster, that are swept "
        "again after each cycle, as on one shard; auto: a fifth as many as a shard has rows; 0: none",
        f'"auto" or {whole(0, MOST_ROWS)}',
        decided_once=True,
        formerly=0,
    )
    hyper_every: Cycles = key(1, "cycles between updates of hyperparameters", CYCLES)


Knot = tuple[Annotated[float, Field(ge=0, lt=1e6)], Annotated[float, Field(gt=0, le=1)]]


def _rising(knots: Any) -> Any:
    """Check the knots of a piecewise schedule: passes and fractions must rise, and the last includes every row."""
    if isinstance(knots, str):
        return knots
    passes, fractions = zip(*knots)
    if (
        not all(a < b for numbers in (passes, fractions) for a, b in pairwise(numbers))
        or fractions[-1] < 1
        or passes[-1] < 1
    ):
        raise ValueError("passes and fractions must rise, to the fraction 1.0 after 1 pass or later")
    return knots


class Anneal(Section):
    """Subsample annealing: growth from the rows that a chain starts with to all rows."""

    retired: ClassVar[Mapping[str, str]] = {"strata": "subsamples have no strata, which did not raise the score"}

    schedule: Annotated[
        Literal["linear", "geometric", "constant", "sequential", "seconds"]
        | Annotated[tuple[Knot, ...], Field(min_length=1)],
        BeforeValidator(tuples),
        AfterValidator(_rising),
    ] = key(
        "linear",
        "active rows grow with the assignments made (linear), by a constant factor (geometric), all at once "
        "(constant), in one pass that adds all (sequential), by the clock (seconds), or linearly between [passes, "
        "fraction]",
        '"linear", "geometric", "constant", "sequential", "seconds", or knots [[passes, fraction], ...], both rising, '
        "to the fraction 1.0 after 1 pass or later",
    )
    passes: Annotated[float, Field(ge=1, lt=1e6)] = key(
        10.0, "work of the growth, in passes over all rows", "a number from 1 to 1e6"
    )
    start_rows: Literal["auto"] | RowCount = key(
        "auto",
        "rows of the first subsample; auto: a quarter of all, at most 1,000",
        f'"auto" or {ROW_COUNT}',
        decided_once=True,
    )
    seconds: Duration = key(
        None,
        'with schedule = "seconds": time until all rows are in; two runs from one seed may then differ',
        LENGTH_OF_TIME,
    )


def growing_schedule(sampler: Sampler, anneal: Anneal) -> bool:
    """True if the chain starts from a subsample that grows."""
    return sampler.strategy == "anneal" and anneal.schedule not in ("constant", "sequential")
