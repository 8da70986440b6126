"""Draws of a regression opened for questions (`hpc.law.Asked`): the response, given all predictors."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from mpibayes.hpc.posterior.asked import AskedRun, plain
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.regression.draws import Posterior
from mpibayes.hpc.regression.law import REASON, Law
from mpibayes.hpc.regression.predict import needed
from mpibayes.io.rows import Rows

DRAWS = 200
CANNOT = (
    "surprisal of the table", "surprisal", "novelty", "similarity", "dependence", "predictors", "compare", "complete",
    "synthesize", "pairs",
)  # fmt: skip


class Asked(AskedRun):
    """See `hpc.law.Asked`."""

    cannot: Mapping[str, str] = dict.fromkeys(CANNOT, REASON)

    def __init__(self, run: Posterior, draws: int | None):
        run.read_traces()
        run.require_draws()
        design, stored = needed(run.design, run.data.columns)
        columns = [plain(c) for c in stored]
        likelihood, most = run.likelihood, max(1, (draws or DRAWS) // len(run.chains))
        self._laws, chain_of = [], []
        for i, c in enumerate(run.chains):
            theta = c.trace["theta"][evenly(np.flatnonzero(c.trace["cycle"] > c.burn_in).tolist(), most)]
            for each in theta.reshape(len(theta), design.n_classes, design.n_predictors):
                self._laws.append(Law(design, likelihood, each, columns))
                chain_of.append(i)
        super().__init__(run, stored, columns, chain_of, run.n_draws)
        self.answers = frozenset([design.response])

    def draws(self, names: Collection[str], part: slice = slice(None)) -> list[Law]:
        """See `hpc.law.Asked`; each draw is a law of the response."""
        return self._laws[part]

    def recorded(self, numbers: np.ndarray) -> Rows:
        """Rows with the given numbers in the table, ascending; only the columns in `columns`."""
        rows = super().recorded(numbers)
        stored, result = {c.name: c for c in self.run.data.stored}, Rows.missing(self.columns, len(numbers))
        for column in self.columns:
            mine = stored[column.name]
            getattr(result, column.block)[:, column.index] = getattr(rows, mine.block)[:, mine.index]
        return result
