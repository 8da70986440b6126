"""Kept draws of an Indian buffet process opened for questions (`hpc.law.AskedJoint`; docs/math.md 2.12, 7.10)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.ibp.draws import Draw, Posterior
from mpibayes.hpc.ibp.law import MOST, Law
from mpibayes.hpc.law import EVERY
from mpibayes.hpc.posterior.asked import AskedRun, chosen, plain

DRAWS = 50
CANNOT = {
    "surprisal of the table": "draws of features cannot leave a training row out; name new rows with --rows",
    "complete": "it is for mixtures and cross-categorizations; of features, `mpibayes query RUN simulate --rows FILE` "
    "draws the missing cells of new rows",
    "pairs": "it is for mixtures and cross-categorizations, which draw whole rows",
    "synthesize": "it is for mixtures and cross-categorizations; of features, `mpibayes query RUN simulate -n 1000` "
    "draws rows",
}


class Asked(AskedRun):
    """See `hpc.law.AskedJoint`."""

    cannot: Mapping[str, str] = CANNOT
    shares = "share of the features of either row that both have"

    def __init__(self, run: Posterior, draws: int | None):
        self._kept, n_kept = chosen(run, draws or DRAWS)
        stored = run.data.stored
        super().__init__(run, stored, [plain(c) for c in stored], [chain for chain, _ in self._kept], n_kept)

    def draws(self, names: Collection[str], part: slice = EVERY) -> list[Law]:
        """Return the kept draws, or the slice `part` of them, each as a law of all columns. Raises ConfigError for too
        many features."""
        return [self._law(draw) for _, draw in self.run.states(self._kept[part])]

    def labelled(
        self, names: Collection[str], places: np.ndarray | None = None, part: slice = EVERY
    ) -> Iterator[Law]:  # fmt: skip
        """See `hpc.law.AskedJoint`."""
        for _, draw in self.run.states(self._kept[part]):
            law = self._law(draw)
            law.rows = draw.rows() if places is None else draw.rows()[places]
            yield law

    def _law(self, draw: Draw) -> Law:
        """Convert a draw to a law, with its combinations enumerated. Raises ConfigError for too many features."""
        if len(draw) > MOST:
            raise ConfigError(
                f"{self.run.chains[0].home}: a draw has {len(draw)} features, and questions sum over all "
                f"combinations of up to {MOST}; `mpibayes predict` has densities and missing cells of new rows"
            )
        law = Law(self.run.cells, draw.new_row())
        law.all  # noqa: B018 - by the rank that has the draw, before it is sent to others
        return law

    def views(self, names: Sequence[str]) -> np.ndarray:
        """View of each column in every draw, (D, C): all columns share one."""
        return np.zeros((len(self._kept), len(names)), np.int64)
