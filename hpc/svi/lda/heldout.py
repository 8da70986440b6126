"""Held-out perplexity by document completion: half of the distinct words of a held-out document are seen and determine
its topics, and the other half is scored (docs/math.md 8.7)."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.parallel import shards as cut
from mpibayes.hpc.parallel.agreement import agree
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import shard_sum_everywhere
from mpibayes.hpc.svi.lda.local import Documents as Shards
from mpibayes.hpc.svi.lda.local import Local
from mpibayes.hpc.svi.lda.model import State
from mpibayes.io.sparse import SparseRows
from mpibayes.kernels.svi.lda import Documents, log_probability, table_of

COMPLETION = Local("linear", True, 1e-3, 200)  # local step that finds the topics of the seen half


def halves(rows: SparseRows) -> tuple[SparseRows, SparseRows]:
    """Split documents into every other distinct word, starting with the first, and the rest."""
    place = np.arange(len(rows.columns)) - np.repeat(rows.starts[:-1], rows.lengths())
    return _only(rows, place % 2 == 0), _only(rows, place % 2 == 1)


def _only(rows: SparseRows, kept: np.ndarray) -> SparseRows:
    lengths = np.bincount(rows.row_of()[kept], minlength=len(rows))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return SparseRows(starts, rows.columns[kept], rows.values[kept])


def proportions(gamma: np.ndarray) -> np.ndarray:
    """Mean of theta, float64 (D, K)."""
    gamma = gamma.astype(np.float64)
    return gamma / gamma.sum(axis=1, keepdims=True)


def log_probability_of(text: Documents, theta: np.ndarray, lam: np.ndarray) -> float:
    """Log probability of the documents' words under theta (D, K) and the mean of beta."""
    k = lam.shape[1]
    shares, beta = table_of(len(theta), k, np.float64), table_of(len(lam), k, np.float64)
    shares[:, :k], beta[:, :k] = theta, lam / lam.sum(axis=0)
    return log_probability(text, shares, beta)


class HeldOut:
    """Held-out documents in fixed pieces dealt to ranks."""

    def __init__(self, comm: Communicator, data, n_shards: int, v: int, k: int):
        self.comm, self.n_shards = comm, n_shards
        ends = cut.bounds(len(data.heldout), n_shards)
        mine = cut.of_rank(n_shards, comm.size, comm.rank)
        read = agree(
            comm, lambda: [halves(data.heldout_of(int(ends[i]), int(ends[i + 1]))) for i in mine],
            "read its held-out documents",
        )  # fmt: skip
        others = [other for _, other in read]
        self.others = [Documents(other.starts, other.columns, other.values, v) for other in others]
        self.n_words = [float(other.values.sum()) for other in others]
        self.documents = Shards([seen for seen, _ in read], v, k, 1.0, False)

    def perplexity(self, q: State) -> float:
        """Perplexity: exp of minus the mean log probability of a word of the other halves. Collective."""
        self.documents.weigh(q, COMPLETION, [None])
        parts = []
        for seen, other, n, gamma in zip(self.documents.texts, self.others, self.n_words, self.documents.gamma):
            self.documents.steps(q, COMPLETION, seen, None, None, gamma)
            parts.append(np.array([log_probability_of(other, proportions(gamma), q.lam), n]))
        total, n = shard_sum_everywhere(self.comm, parts, (2,), self.n_shards)
        return float(np.exp(-total / n)) if n else np.nan
