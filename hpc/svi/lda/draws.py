"""Kept states of latent Dirichlet allocation, like those of `hpc.svi.draws`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mpibayes.hpc.svi.draws import Approximation, Kept
from mpibayes.hpc.svi.lda import keys
from mpibayes.hpc.svi.lda.family import settings_of
from mpibayes.hpc.svi.lda.law import Law
from mpibayes.hpc.svi.lda.local import SAMPLED
from mpibayes.hpc.svi.lda.model import State


class Posterior(Approximation):
    """Chains of latent Dirichlet allocation on one table."""

    no_questions = (
        "queries are about typed columns, which topics of documents do not have; `mpibayes predict` has the topics of "
        "new documents"
    )

    @property
    def eta(self) -> float:
        return self.config.of(keys.Model).eta

    def state(self, arrays: Mapping[str, np.ndarray]) -> State:
        return State(*(np.ascontiguousarray(arrays[name]) for name in ("lam", "alpha")))

    def law(self, kept: Kept) -> Law:
        """The topics, and the local step that finds them in documents: as in the run, cvb0 if that sampled them."""
        kind = settings_of(self.config).then
        return Law.of(kept.q, self.eta, "cvb0" if kind == SAMPLED else kind)
