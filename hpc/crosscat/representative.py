"""The kept draw that stands for the posterior of the partition, and the draws that it was chosen among."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.partitions import by_size, nearest, variations
from mpibayes.hpc.posterior.chains import evenly

PROBES = 1000  # rows on which every kept draw is compared with every other
COMPARED = 200  # kept draws compared with one another, at most; of each chain FEWEST at least
FEWEST = 4  # kept draws of a chain whose halves can be compared
SAMPLED = 20_000  # rows on which chains are compared with one another


@dataclass
class Compared:
    """The kept draws that are compared with one another: (D',) chain and cycle of each, labels (D', M) on M rows of the
    table, and their variation of information on PROBES of those rows, (D', D')."""

    chain: np.ndarray
    cycle: np.ndarray
    labels: np.ndarray
    distances: np.ndarray


@dataclass
class Representative:
    """The kept draw that stands for the posterior: labels (N,) numbered by size, and how good it is."""

    chain: int
    cycle: int
    labels: np.ndarray
    sizes: np.ndarray  # (R,) descending
    loss: float  # expected variation of information, nats, to the other draws
    hyper: Any
    compared: Compared

    @property
    def losses(self) -> np.ndarray:
        """Of all draws compared, (D',)."""
        return self.compared.distances.mean(axis=1)


def representative(run: Posterior, kept: Sequence[tuple[int, int]]) -> Representative:
    """Of at most COMPARED kept draws, evenly spaced in each chain, the one with the least expected variation of
    information to them all. Ties go to the earlier draw."""
    compared = _compare(run, kept)
    best = nearest(np.arange(len(compared.cycle)), compared.distances)
    chain, cycle = int(compared.chain[best]), int(compared.cycle[best])
    ((_, draw),) = run.states([(chain, cycle)])
    z = by_size(draw.labels)
    loss = float(compared.distances[best].mean())
    return Representative(chain, cycle, z, np.bincount(z), loss, draw.hyper, compared)


def _compare(run: Posterior, kept: Sequence[tuple[int, int]]) -> Compared:
    """The rows are drawn once and for all for a table of this length."""
    by_chain = [[pair for pair in kept if pair[0] == i] for i in sorted({i for i, _ in kept})]
    share = max(COMPARED // len(by_chain), FEWEST)
    rows = np.arange(run.n_rows)
    if run.n_rows > SAMPLED:
        rows = np.sort(np.random.default_rng(run.n_rows).choice(run.n_rows, SAMPLED, replace=False))
    seen, labels = [], []
    for chain, draw in run.states([pair for some in by_chain for pair in evenly(some, share)]):
        seen.append((chain, draw.cycle))
        labels.append(draw.labels[rows].astype(np.int32))
    probes = evenly(np.random.default_rng(run.n_rows).permutation(len(rows)), PROBES)
    distances = variations(np.stack(labels)[:, probes])
    return Compared(*np.array(seen).T, np.stack(labels), distances)
