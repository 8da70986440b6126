"""Base of the kept draws of a family, opened for questions (`hpc.law.Asked`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.io.rows import Column, Rows


class AskedRun:
    """Answers of a family without blocks, links, clusters and weights; others override what they have.

    run: opened for reading. stored: the used columns of the table; columns: the same as they are modelled. chain_of
    (D,): the chain of each draw. n_kept: draws there are.
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
        """Rows of the table by their numbers, ascending, as they are recorded."""
        rows: Rows = self.run.data.recorded_at(numbers)
        return rows

    def may_lean(self, child: str, parent: str) -> bool:
        """No column does."""
        return False

    def partition(self) -> list[np.ndarray] | None:
        """There are no clusters."""
        return None

    def cluster_group(self, number: int, n: int | None, view: int) -> tuple[np.ndarray, int] | None:
        """There are none."""
        return None


def chosen(run: Any, most: int) -> tuple[list[tuple[int, int]], int]:
    """(chain, cycle) of kept draws to ask, at most so many, and how many there are. Raises ConfigError where there is
    none, or where cells were ignored."""
    require_likelihood(run, "rows")
    run.read_traces()  # which also tell what belongs to the burn-in
    kept = run.require_kept()
    return evenly(kept, most), len(kept)


def require_likelihood(run: Any, what: str) -> None:
    """Raises ConfigError where a run ignored the cells; what: of what it says nothing."""
    if not run.likelihood:
        raise ConfigError(
            f"{run.chains[0].home}: sampled the prior (model.likelihood = false), which says nothing about {what}"
        )


def plain(column: Column) -> Column:
    """A column as a normal law has it: without atoms and logarithms, a count a number in steps of 1."""
    if column.kind == "count":
        return replace(column, kind="real", resolution=1.0)
    return replace(column, atoms=(), log=False)
