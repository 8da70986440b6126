"""Conversion of a table's rows into outcome and predictors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mpibayes.errors import DataError
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.outcome.answers import Answers
from mpibayes.hpc.outcome.baseline import Baseline
from mpibayes.hpc.outcome.keys import Outcome as Keys
from mpibayes.hpc.outcome.law import Law
from mpibayes.hpc.outcome.likelihoods import LIKELIHOODS, Likelihood
from mpibayes.hpc.outcome.rules import likelihood_of
from mpibayes.hpc.parallel.agreement import agree
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import shard_sum_everywhere
from mpibayes.hpc.regression.design import Design, Term, blank_cells
from mpibayes.hpc.regression.likelihoods.likelihood import NUMERIC
from mpibayes.hpc.regression.likelihoods.student_t import StudentT
from mpibayes.io import spells
from mpibayes.io.rows import Column, Rows


class Predictors(Design):
    """Predictors with one kind of coefficients."""

    def _advice(self, missing: list[str]) -> list[str]:
        return ["predictors of the outcome must have no missing cells; fill them, or leave the rows out"]

    def of_cells(self, cells: Mapping[str, np.ndarray], n: int) -> np.ndarray:
        """Return the predictors of n rows, (n, D), from recorded cells by column; zeros for absent columns."""
        x = np.zeros((n, self.width), np.float32)
        for term in self.terms:
            if term.column.name in cells:
                self._fill(x, term, cells[term.column.name], np.zeros(n, bool))
        return np.ascontiguousarray(x[:, : self.n_predictors])

    def of_rows(self, rows: Rows) -> np.ndarray:
        """Return the predictors of rows, (n, D); cells of any column may be missing."""
        x = np.zeros((len(rows), self.width), np.float32)
        for term in self.terms:
            cells = getattr(rows, term.column.block)[:, term.column.index]
            self._fill(x, term, cells, term.column.is_missing(cells))
        return np.nan_to_num(x[:, : self.n_predictors])


@dataclass(frozen=True)
class Columns:
    """Columns of [outcome] in a table, as recorded, for training and other rows.

    data: these columns alone, with the same training rows as the run.
    """

    keys: Keys
    data: Data

    @classmethod
    def of(cls, keys: Keys, data: Data, heldout_fraction: float | None) -> Columns:
        """Select the columns from the table of a run."""
        mine = {keys.column, *keys.predictors}
        unused = {c.name for c in data.table.columns} - mine
        return cls(keys, Data(data.table, unused, heldout_fraction))

    @cached_property
    def column(self) -> Column:
        """The outcome's column."""
        return next(c for c in self.data.stored if c.name == self.keys.column)

    @cached_property
    def likelihood(self) -> type[Likelihood]:
        return LIKELIHOODS[likelihood_of(self.keys, self.column)]

    @cached_property
    def slopes(self) -> Predictors:
        """Predictors with coefficients in each cluster, in addition to the intercept."""
        return self._predictors(self.keys.slopes)

    @cached_property
    def covariates(self) -> Predictors:
        """Predictors with global coefficients."""
        return self._predictors(self.keys.covariates)

    def of_all(self, columns: Sequence[Column], most: int) -> tuple[Predictors, list[str]]:
        """Select up to `most` predictors for a regression without clusters, from all columns but the outcome's, the
        narrowest first, with indicators of missing cells. Returns them and the names of columns left out."""
        terms, total = [], 0
        width = {c.name: 1 if c.kind in NUMERIC else len(c.levels) - 1 for c in columns if c.kind != "survival"}
        constant = {c.name for c in columns if c.kind in NUMERIC and c.minimum == c.maximum} | {self.column.name}
        for c in sorted(columns, key=lambda c: width.get(c.name, 0)):
            term = Term(c, total, c.n_missing > 0)
            if width.get(c.name, 0) > 0 and c.name not in constant and total + term.width <= most:
                terms.append(term)
                total += term.width
        left = [c.name for c in columns if c.name not in {t.column.name for t in terms} | {self.column.name}]
        return Predictors(StudentT, self.column, tuple(terms), False, True, "indicator"), left

    def _predictors(self, names: Sequence[str]) -> Predictors:
        by_name, terms, first = {c.name: c for c in self.data.stored}, [], 0
        for name in names:
            terms.append(Term(by_name[name], first, False))
            first += terms[-1].width
        return Predictors(StudentT, self.column, tuple(terms), False, self.keys.standardise, "error")

    @property
    def centre_and_unit(self) -> tuple[float, float]:
        """Centre and unit of a numeric outcome, centre + unit y."""
        if self.likelihood.has_scale and self.keys.standardise:
            return self.column.center, self.column.scale
        return 0.0, 1.0

    def answers(self, rows: Rows, first_row: int | np.ndarray = 0, known: bool = True) -> Answers:
        """Return outcome and predictors of rows. first_row: number of the first in its table, or of each. known: False
        where the outcome is not needed."""
        y, times = np.full(len(rows), np.nan), None
        if self.likelihood.of_times:
            rows, times = self._times(rows)
            times = times if known else y
            y = np.where(np.isnan(times), np.nan, ~(times < 0.0))
        elif known:
            centre, unit = self.centre_and_unit
            cells = getattr(rows, self.column.block)[:, self.column.index]
            y = (self.likelihood.encode(cells) - centre) / unit
            y[blank_cells(rows, self.column)] = np.nan
        try:
            built = [(of, of.build(rows, first_row, response=False)) for of in (self.slopes, self.covariates)]
        except DataError as error:
            name = self.column.name
            raise DataError(f"rows without all predictors of the outcome '{name}'", error.problems) from None
        x = [of_rows.x[:, : of.n_predictors] for of, of_rows in built]
        return Answers(y, *map(np.ascontiguousarray, x), times)

    def _times(self, rows: Rows) -> tuple[Rows, np.ndarray]:
        """Return rows as recorded, from rows as recorded or as in memory, and times to an event in whole ticks."""
        at = self.column.index
        if not rows.spells.shape[1]:
            return rows, spells.recorded(self.column, spells.coded(self.column, rows.reals[:, at]))
        times = spells.recorded(self.column, rows.spells[:, 0])
        return replace(rows, reals=np.insert(rows.reals, at, times, axis=1)), times

    def of_shards(self, comm: Communicator, bounds: Sequence[tuple[int, int]]) -> list[Answers]:
        """Read the training rows of this rank's shards. bounds: (start, stop) of each. Collective."""

        def load() -> list[Answers]:
            numbers = [self.data.numbers_of(*of) for of in bounds]
            return [self.answers(self.data.rows_of(*of), n) for of, n in zip(bounds, numbers)]

        return agree(comm, load, "read the outcome of its rows of the table")

    def of_blocks(self, comm: Communicator, n_blocks: int, config: Config) -> dict[int, Answers]:
        """Read the held-out rows of this rank's blocks. Collective."""
        rows = None
        if config.heldout_path is not None:
            rows = self._of_file(comm, config)
        blocks = self.data.heldout_blocks(comm, n_blocks, rows).blocks
        what = f"{config.heldout_path}: " if config.heldout_path is not None else ""

        def answered() -> dict[int, Answers]:
            try:
                return {i: self.answers(of) for i, of in blocks.items()}
            except DataError as error:
                raise DataError(what + error.message, error.problems) from None

        return agree(comm, answered, "read its held-out outcomes")

    def _of_file(self, comm: Communicator, config: Config) -> Rows | None:
        """Read root's rows of a held-out file with the outcome and its predictors. Collective."""
        assert config.heldout_path is not None
        try:
            return self.data.read_heldout_file(comm, config.heldout_path, config.data.unseen)[0]
        except DataError as error:
            needed = ", ".join([self.keys.column, *self.keys.predictors])
            why = f"held-out rows are scored with their outcome, which needs {needed}"
            again = DataError(error.message, [*error.problems, why])
            again.shared = error.shared
            raise again from None

    def law(self, comm: Communicator, answers: Sequence[Answers], n_shards: int) -> Law:
        """Return the coefficients' law from the keys and the outcome's mean and variance. Collective."""
        seen = [a.seen[~np.isnan(a.y)] for a in answers]
        if self.likelihood.of_times:
            bare = Baseline.of(self.column)
            sums = [bare.sums(times) for times in seen]
            total = shard_sum_everywhere(comm, sums, (3, len(bare.starts)), n_shards).reshape(3, -1)
            return replace(self.law_of(), baseline=Baseline.of(self.column, total))
        sums = [self._sums(y) for y in seen]
        return self.law_of(shard_sum_everywhere(comm, sums, (2 + self.n_eta,), n_shards))

    def _sums(self, y: np.ndarray) -> np.ndarray:
        """Return the sums that `law_of` needs of known outcomes (n,)."""
        if self.likelihood.of_levels:
            return np.array([len(y), 0.0, *(np.count_nonzero(y == c + 1.0) for c in range(self.n_eta))])
        return np.array([len(y), (y * y).sum(), y.sum()])

    @cached_property
    def n_eta(self) -> int:
        """Number of linear predictors of a row."""
        return len(self.column.levels) - 1 if self.likelihood.of_levels else 1

    @property
    def eta_levels(self) -> tuple[str, ...]:
        """Levels that the linear predictors of a softmax are of: all but the first."""
        return tuple(self.column.levels[1:]) if self.likelihood.of_levels else ()

    def law_of(self, sums: np.ndarray | None = None) -> Law:
        """Return the law for an outcome from the number of rows where it is known, its sum of squares, and its total or
        the numbers of rows with each level but the first. None: without any row."""
        keys, likelihood, c = self.keys, self.likelihood, self.n_eta
        p, d = c * (1 + self.slopes.n_predictors), c * self.covariates.n_predictors
        n, square, *total = (np.zeros(2 + c) if sums is None else sums).tolist()
        mean = [each / max(n, 1.0) for each in total]
        unit = max(square / max(n, 1.0) - mean[0] * mean[0], 1e-12) ** 0.5 if likelihood.has_scale else 1.0
        if likelihood.of_levels:  # never all of one class
            mean = [(each + 1.0) / (n + 1.0 + c) for each in total]
        elif likelihood.of_classes:
            mean = [mean[0] * n / (n + 2.0)]
        centre = np.zeros(p)
        if not likelihood.of_times:
            centre[:: p // c] = likelihood.centre(mean)
        learns = keys.mean == "learn", keys.sd == "learn", keys.scale == "learn" and likelihood.has_scale
        return Law(
            likelihood,
            mean=centre.copy() if learns[0] else _numbers(keys.mean, p),
            sd=np.full(p, unit) if learns[1] else _numbers(keys.sd, p),
            covariate_sd=_numbers(keys.covariate_sd, d),
            centre=centre,
            nu=keys.degrees,
            scale=unit if keys.scale == "learn" else keys.scale,
            unit=unit,
            learns_mean=learns[0],
            learns_sd=learns[1],
            learns_scale=learns[2],
            n_fresh=keys.auxiliary,
            n_eta=c,
            baseline=Baseline.of(self.column) if likelihood.of_times else None,
        )

    def in_words(self) -> str:
        """Describe the regression."""
        by = [f"slopes of {', '.join(self.keys.slopes)}"] if self.keys.slopes else []
        by += [f"covariates {', '.join(self.keys.covariates)}"] if self.keys.covariates else []
        return f"{self.keys.column} ({self.likelihood.name}) by clusters{''.join(f', {of}' for of in by)}"


def _numbers(given: Any, n: int) -> np.ndarray:
    """Return one number for each of n coefficients."""
    return np.array([given] * n if isinstance(given, int | float) else given, np.float64)
