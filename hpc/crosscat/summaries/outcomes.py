"""The outcome of a run in its kept draws: coefficients, and their predictions for rows and clusters."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mpibayes.hpc.crosscat.with_outcome import columns_of, entry_of
from mpibayes.hpc.data.rows import Data, take_columns, used_columns
from mpibayes.hpc.outcome.answers import Answers
from mpibayes.hpc.outcome.asked import AskedOutcome, Coder
from mpibayes.hpc.outcome.state import State
from mpibayes.io.rows import Column, Rows

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.draws import Draw, Posterior
    from mpibayes.hpc.crosscat.laws.outcome_law import OutcomeLaw
    from mpibayes.hpc.crosscat.laws.view_law import ViewLaw

SLICE = 65_536  # rows of a pass over the table


class Outcomes:
    """Outcome of `run`, which is opened for reading and has an outcome."""

    def __init__(self, run: Posterior):
        self.run = run
        self.columns = columns_of(run.chains[0].config, run.data)
        self.law = self.columns.law_of()
        self.entry = max(entry_of(chain.config) for chain in run.chains)  # from then on labels depend on the outcome

    @property
    def name(self) -> str:
        """The outcome's column."""
        return self.columns.column.name

    @cached_property
    def data(self) -> Data:
        """`all_columns` of the table, with the run's training rows."""
        names, config = {c.name for c in self.all_columns}, self.run.chains[0].config
        return Data(
            self.run.table, {c.name for c in self.run.table.columns if c.name not in names}, config.heldout_fraction
        )

    @property
    def unknown(self) -> list[str]:
        """Predictors that queries cannot average over: not columns of the mixture, or in blocks."""
        config = self.run.chains[0].config
        joint = {name for of in config.joint.values() for name in of["columns"]}
        mine = {c.name for c in self.run.data.stored} - joint
        return [name for name in self.columns.keys.predictors if name not in mine]

    def law_in(self, draw: Draw, view: ViewLaw) -> OutcomeLaw:
        """Return the outcome's law in the view of a draw, which has all predictors."""
        from mpibayes.hpc.crosscat.laws.outcome_law import OutcomeLaw

        return OutcomeLaw(AskedOutcome(self.coder, self.state(draw)), copy(view))

    def neighbours(self, draw: Draw) -> set[str]:
        """Return a column of the outcome's view in a draw, with the others of its block."""
        first = self.run.names_in(draw, draw.outcome_view)[0]
        joint = self.run.chains[0].config.joint.values()
        return next((set(of["columns"]) for of in joint if first in of["columns"]), {first})

    @cached_property
    def coder(self) -> Coder:
        """Conversion between recorded cells and the regression's units."""
        return Coder.of(self.columns, next(c for c in self.all_columns if c.name == self.name))

    def state(self, draw: Draw) -> State:
        """Return the coefficients of a draw."""
        return State.of(self.law, draw.outcome or {}, int(draw.labels[draw.outcome_view].max()) + 1)

    @cached_property
    def answers(self) -> Answers:
        """Outcome and predictors of all training rows."""
        starts, n = range(0, self.run.n_rows, SLICE), self.run.n_rows
        parts = [self.columns.answers(self.columns.data.rows_of(i, min(i + SLICE, n)), i) for i in starts]
        return Answers.joined(parts)

    @cached_property
    def all_columns(self) -> tuple[Column, ...]:
        """Columns of a new row: the mixture's and the outcome's."""
        mine = {c.name for c in (*self.run.data.stored, *self.columns.data.stored)}
        return used_columns(self.run.table.columns, {c.name for c in self.run.table.columns} - mine)[0]

    def apart(self, rows: Rows, first_row: int | np.ndarray, known: bool = False) -> tuple[Rows, Answers]:
        """Split rows of `all_columns` into the mixture's columns and the outcome's predictors; known: outcomes, too."""

        def of(columns: Sequence[Column]) -> Rows:
            names = {c.name for c in columns}
            return take_columns(rows, used_columns(self.all_columns, {c.name for c in self.all_columns} - names)[1])

        return of(self.run.data.stored), self.columns.answers(of(self.columns.data.stored), first_row, known)

    def recorded(self, values: np.ndarray) -> np.ndarray:
        """Return expectations in units of the table."""
        centre, unit = self.columns.centre_and_unit
        return centre + unit * values

    @property
    def expected(self) -> list[str]:
        """Column names of expectations in a file: of a softmax one for each level, of times the probabilities that the
        event comes after each part of the time axis but the last."""
        levels, likelihood = self.columns.column.levels, self.columns.likelihood
        if likelihood.of_classes:
            return [f"{self.name}_p_{level}" for level in levels[0 if likelihood.of_levels else 1 :]]
        if likelihood.of_times:
            return [f"{self.name}_beyond_{end:.6g}" for end in self.law.baseline.ends]
        return [f"{self.name}_mean"]

    @property
    def n_expected(self) -> int:
        """Number of expectations of a row."""
        return len(self.expected)

    def predictions(self, by_draw: np.ndarray, weight: np.ndarray) -> dict[str, Any]:
        """Return the columns of predictions: the mean over draws, with weights (D, n), and 5 and 95 % points. by_draw
        (D, n, E): expectations, of which a softmax has one for each level, else E = 1."""
        made = {}
        for e, name in enumerate(self.expected):
            mean = self.recorded((by_draw[:, :, e] * weight).sum(axis=0) / weight.sum(axis=0))
            ends = np.quantile(by_draw[:, :, e], (0.05, 0.95), axis=0, weights=weight, method="inverted_cdf")
            low, high = self.recorded(ends)
            made |= {name: mean, f"{name}_q05": low, f"{name}_q95": high}
        return made
