"""A state as a distribution over documents: its topics, the largest first, and the topics of documents under it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.svi.lda.ascent import EXACTLY
from mpibayes.hpc.svi.lda.heldout import proportions
from mpibayes.hpc.svi.lda.local import Documents
from mpibayes.hpc.svi.lda.model import State, sizes
from mpibayes.io.sparse import SparseRows


@dataclass(frozen=True)
class Law:
    """q with its topics by size, the largest first. size (K,): expected number of words of each. kind: the local step
    that finds a document's topics."""

    q: State
    size: np.ndarray
    kind: str

    @classmethod
    def of(cls, q: State, eta: float, kind: str = EXACTLY.kind) -> Law:
        size = sizes(q, eta)
        order = np.argsort(-size, kind="stable")
        return cls(State(np.ascontiguousarray(q.lam[:, order]), q.alpha[order]), size[order], kind)

    @property
    def word_given_topic(self) -> np.ndarray:
        """Mean of beta, (V, K)."""
        return self.q.lam / self.q.lam.sum(axis=0)

    def topics_of(self, rows: SparseRows) -> np.ndarray:
        """Mean proportions of topics in documents, by the local step from the start, float64 (D, K)."""
        v, k = self.q.lam.shape
        local = replace(EXACTLY, kind=self.kind)
        documents = Documents([rows], v, k, 1.0, self.kind == "cvb0")
        documents.weigh(self.q, local, [np.arange(len(rows))])
        documents.steps(self.q, local, documents.texts[0], None, None, documents.gamma[0])
        return proportions(documents.gamma[0])
