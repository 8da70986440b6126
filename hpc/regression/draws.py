"""A run of a regression, opened for reading: its chains, its coefficients, and its rows as the model uses them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.errors import CheckpointError
from mpibayes.hpc.posterior.chains import KeptChains, evenly
from mpibayes.hpc.regression.design import Built, Design
from mpibayes.hpc.regression.family import settings_of
from mpibayes.hpc.regression.law import Law
from mpibayes.hpc.regression.likelihoods import Likelihood
from mpibayes.hpc.regression.prior import Prior
from mpibayes.hpc.run.directory import CHECKPOINTS
from mpibayes.io import generations
from mpibayes.io.rows import slice_rows
from mpibayes.io.table import Table


class Posterior(KeptChains):
    """Chains of one regression on one table."""

    def __init__(self, run_dirs: Sequence[str | Path], burn_in: int | None = None, table: str | Path | None = None):
        super().__init__(run_dirs, burn_in, table)
        self.settings = settings_of(self.chains[0].config)
        self.design = Design.of(self.settings, self.data.columns)
        self.response = self.design.response

    @property
    def modelled(self) -> tuple[str, ...]:
        return (self.response, *(term.column.name for term in self.design.terms))

    def coefficients(self) -> list[np.ndarray]:
        """Draws after burn-in of each chain whose trace was read, (n, K, D) each."""
        return [self._as_classes(c.trace["theta"][c.trace["cycle"] > c.burn_in]) for c in self.chains]

    def contradicted(self) -> bool:
        """True if the R-hat of the coefficients alone shows disagreement: the report's second opinion looks at all
        rows."""
        from mpibayes.hpc.posterior.scalars import summary_of
        from mpibayes.hpc.regression.report.coefficients import centred
        from mpibayes.hpc.regression.report.mixing import contradicted

        self.read_traces()
        self.require_draws()
        draws = [centred(theta).reshape(len(theta), -1) for theta in self.coefficients()]
        r_hat = [summary_of([d[:, j] for d in draws]).r_hat for j in range(draws[0].shape[1])]
        return contradicted(len(draws), np.array(r_hat))

    def draws(self, most: int) -> Iterator[Law]:
        """Yield at most `most` draws, as laws of the response, evenly spaced in each chain and equally many from each.

        Raises CheckpointError if the scale of the t distribution was stored in a checkpoint that is gone.
        """
        likelihood, share = self.likelihood, max(1, most // len(self.chains))
        for c in self.chains:
            places = evenly(np.flatnonzero(c.trace["cycle"] > c.burn_in), share)
            for theta in self._as_classes(c.trace["theta"][places]):
                yield Law(self.design, likelihood, theta)

    @property
    def n_draws(self) -> int:
        """Number of draws after burn-in of all chains whose traces were read."""
        return sum(int((c.trace["cycle"] > c.burn_in).sum()) for c in self.chains)

    def _as_classes(self, theta: np.ndarray) -> np.ndarray:
        return theta.reshape(len(theta), self.design.n_classes, self.design.n_predictors)

    @cached_property
    def state(self) -> dict[str, Any]:
        """State in the newest checkpoint of the first chain, with the mode and the scales chosen from data; {} without
        a checkpoint."""
        generation = generations.latest(self.chains[0].folder / CHECKPOINTS, deep=False)
        return {} if generation is None else generation.shared()

    @property
    def prior_scale(self) -> float:
        """Prior scale of every coefficient but intercepts; inf: flat. Raises CheckpointError if it was stored in a
        checkpoint that is gone."""
        s = self.settings
        if s.prior == "flat":
            return np.inf
        if not isinstance(s.prior_scale, str):
            return float(s.prior_scale)
        return float(np.max(self._chosen("prior_scale")[~self.design.intercepts], initial=0.0))

    @property
    def prior(self) -> Prior:
        """Prior of the coefficients. Raises CheckpointError as `prior_scale` does."""
        prior = Prior.of(self.settings.prior, self.prior_scale, self.design.n_parameters)
        return prior.with_intercepts(self.design.intercepts, self.settings.intercept_scale)

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood, with the scale of the t distribution in units of y.

        Raises CheckpointError if that scale was stored in a checkpoint that is gone.
        """
        s, d = self.settings, self.design
        scale = 1.0
        if d.likelihood.has_scale:
            scale = float(self._chosen("scale")) if isinstance(s.scale, str) else float(s.scale)
        return d.likelihood(d.n_predictors, d.n_classes, float(s.degrees_of_freedom), scale)

    def _chosen(self, name: str) -> Any:
        if name not in self.state:
            place = self.chains[0].folder / CHECKPOINTS
            raise CheckpointError(f"{place}: no checkpoint; it holds the {name.replace('_', ' ')} that the run chose")
        return self.state[name]

    def blocks(self) -> Iterator[Built]:
        """Yield the training rows, in slices, without those that the chains leave out."""
        step = slice_rows(self.data.columns)
        for start in range(0, self.n_rows, step):
            stop = min(start + step, self.n_rows)
            numbers = start if self.data.training_rows is None else self.data.training_rows[start:stop]
            yield self.design.build(self.data.rows_of(start, stop), numbers)

    def heldout_blocks(self) -> Iterator[Built]:
        """Yield the held-out rows, in slices; none without data.heldout. Raises DataError for a file that has
        changed."""
        config = self.chains[0].config
        if config.heldout_path is not None:
            from mpibayes.io.recode import stream_like

            first = 0
            for rows in stream_like(self.used_table(), config.heldout_path, unseen=config.data.unseen):
                yield self.design.build(rows, first)
                first += len(rows)
        elif self.data.heldout is not None:
            step = slice_rows(self.data.columns)
            for start in range(0, len(self.data.heldout), step):
                stop = start + step
                yield self.design.build(self.data.heldout_of(start, stop), self.data.heldout[start:stop])

    def used_table(self) -> Table:
        """The run's table, restricted to the used columns."""
        return self.table.having(self.data.columns)
