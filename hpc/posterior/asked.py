"""Base of a family's kept draws, opened for questions (`hpc.law.Asked`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.io.rows import Column, Rows


class AskedRun:
    """Answers of a family without blocks, links, clusters and weights; subclasses override what they support.

    run: opened for reading. stored: the used columns of the table; columns: the same columns as modelled. chain_of
    (D,): the chain of each draw. n_kept: number of kept draws.
    """

    joint: Mapping[str, str] = {}
    linked = False
    joinable: Collection[str] = ()
    link_keys: Mapping[str, str] = {}
    line_keys: Mapping[str, str] = {}
    cannot: Mapping[str, str] = {}
    apart: Mapping[str, str] = {}
    answers: Collection[str] | None = None
    outcome: Column | None = None
    explained: Collection[str] = ()
    weights: np.ndarray | None = None

    def __init__(
        self, run: Any, stored: Sequence[Column], columns: Sequence[Column], chain_of: Sequence[int], n_kept: int
    ):
        self.run, self.n_rows, self.n_kept = run, run.n_rows, n_kept
        self.like, self.columns, self.chain_of = run.table.having(stored), columns, np.array(chain_of)

    def training_numbers(self) -> np.ndarray:
        """Row numbers of the training rows in the table, from 0, int64 (N,)."""
        rows: np.ndarray | None = self.run.data.training_rows
        return np.arange(self.n_rows) if rows is None else rows

    def recorded(self, numbers: np.ndarray) -> Rows:
        """Rows of the table with these numbers, ascending, as recorded."""
        rows: Rows = self.run.data.recorded_at(numbers)
        return rows

    def may_lean(self, child: str, parent: str) -> bool:
        """False: no column depends on another directly."""
        return False

    def partition(self) -> list[np.ndarray] | None:
        """None: there are no clusters."""
        return None

    def cluster_group(self, number: int, n: int | None, view: int) -> tuple[np.ndarray, int] | None:
        """None: there are no clusters."""
        return None


def chosen(run: Any, most: int) -> tuple[list[tuple[int, int]], int]:
    """Select at most `most` kept draws to ask, as (chain, cycle); also return the number of kept draws. Raises
    ConfigError if there are none, or if the run ignored its cells."""
    require_likelihood(run, "rows")
    run.read_traces()  # which also fix the burn-in
    kept = run.require_kept()
    return evenly(kept, most), len(kept)


def require_likelihood(run: Any, what: str) -> None:
    """Raise ConfigError if the run ignored its cells. what: the quantity that such a run cannot inform."""
    if not run.likelihood:
        raise ConfigError(
            f"{run.chains[0].home}: sampled the prior (model.likelihood = false), which says nothing about {what}"
        )


def plain(column: Column) -> Column:
    """Column as seen by a normal law: without atoms or logarithm; a count becomes a number in steps of 1."""
    if column.kind == "count":
        return replace(column, kind="real", resolution=1.0)
    return replace(column, atoms=(), log=False)
