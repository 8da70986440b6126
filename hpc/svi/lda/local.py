"""Documents of this rank's shards, and their local steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.parallel.streams import Stream
from mpibayes.hpc.svi.lda.model import State, topic_scale
from mpibayes.io.sparse import SparseRows
from mpibayes.kernels.svi import lda
from mpibayes.kernels.svi.lda import NUMBERED, Room, table_of

SAMPLED = "gibbs"  # the local step that draws topics
MOST_BITS = 50  # most bits of a sum in units: sums below 2^53 are exact


def unit_of(n_tokens: float) -> float:
    """Unit to which expected counts are rounded, so that their sums over documents do not depend on the order."""
    return 2.0 ** (int(np.ceil(np.log2(max(2.0, n_tokens)))) - MOST_BITS)


@dataclass
class Local:
    """Local steps. kind; cold: True to start afresh; tolerance, iterations: when they end. For gibbs, which always
    starts afresh: sweeps, and the stream that it draws from."""

    kind: str
    cold: bool
    tolerance: float
    iterations: int
    sweeps: int = 0
    stream: Stream | None = None


class Documents:
    """The documents of several shards. firsts: number of the first document of each, None for 0. gamma: float32 (D, K)
    of each. shares: True to allocate room for cvb0 and gibbs. sampled: True for gibbs."""

    def __init__(
        self, shards: Sequence[SparseRows], v: int, k: int, unit: float, shares: bool,
        firsts: Sequence[int] | None = None, sampled: bool = False,
    ):  # fmt: skip
        self.shards, self.v, self.k, self.unit = list(shards), v, k, unit
        self.texts = [lda.Documents(rows.starts, rows.columns, rows.values, v) for rows in self.shards]
        self.firsts = [0] * len(self.shards) if firsts is None else [int(first) for first in firsts]
        longest, most = (max((getattr(text, x) for text in self.texts), default=0) for x in ("longest", "most"))
        self.room = Room(k, v, longest, shares, most if sampled else 0)
        self.gamma = [np.zeros((len(rows), k), np.float32) for rows in self.shards]

    def weigh(self, q: State, local: Local, chosen: Sequence[np.ndarray | None]) -> None:
        """Set the weights of the words that the local steps use."""
        words = None
        if any(rows is not None for rows in chosen):
            there = np.zeros(self.v, bool)
            for of, rows in zip(self.shards, chosen):
                there[(of if rows is None else of.take(rows)).columns] = True
            words = np.flatnonzero(there)
        linear = local.kind != "vb"
        self.room.weigh(q.lam, topic_scale(q.lam, linear), words, linear)

    def look(
        self, q: State, local: Local, chosen: Sequence[np.ndarray | None], numbers: Sequence[np.ndarray] | None
    ) -> tuple[np.ndarray, np.ndarray | None, int]:
        """Run the local steps of the chosen documents. Returns expected counts (V, padded), the same times the
        documents' random numbers, and the number of iterations. Writes gamma."""
        self.weigh(q, local, chosen)
        sums = table_of(self.v, self.k, np.float64)
        numbered = None if numbers is None else table_of(self.v, self.k, np.float64)
        done = 0
        for i, (text, gamma) in enumerate(zip(self.texts, self.gamma)):
            each = None if numbers is None else numbers[i]
            done += self.steps(q, local, text, chosen[i], each, gamma, sums, numbered, self.firsts[i])
        return sums, numbered, done

    def steps(
        self, q: State, local: Local, text: lda.Documents, chosen, numbers, gamma, sums=None, numbered=None, first=0
    ):
        """Run local steps of documents under the current weights; return the number of iterations. Writes gamma, adds
        to sums. first: number of the text's first document."""
        most, key = local.iterations, None
        if local.kind == SAMPLED:
            most, key = local.sweeps, (local.stream.seed, local.stream.cycle, local.stream.chain, first)
        return self.room(
            text, chosen, numbers, q.alpha.astype(np.float32), local.kind, local.cold, most, local.tolerance, gamma,
            sums, numbered, self.unit, key,
        )  # fmt: skip


def in_units(sums: np.ndarray, unit: float) -> np.ndarray:
    """Convert sums to whole numbers of units, int64."""
    return np.rint(sums * (1.0 / unit)).astype(np.int64)


UNIT_OF_NUMBERED = NUMBERED
