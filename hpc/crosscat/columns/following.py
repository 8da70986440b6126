"""Sweeps in which rows follow columns that enter or leave, while clusters neither open nor vanish (docs/math.md 2.15).

Weights and parameters are drawn given the labels, then every label by itself, except one anchor per cluster. Unlike a
cycle, whose tail visits rows in order, this is reversible with respect to the law of the labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.errors import NumericalError
from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components, Parameters
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.crosscat.view.pruning import Pruning
from mpibayes.hpc.crosscat.view.state import Shared, Weights, exchange
from mpibayes.hpc.crosscat.view.sweep import Step
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.shards import Shard
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.kernels import mixture as kernels

if TYPE_CHECKING:
    from mpibayes.hpc.outcome.outcome import Outcome

NO_SHARD = -1  # owner of every cluster


class Following:
    """Sweeps of partitions under the same columns. outcome: one that labels depend on; clusters keep its coefficients.
    Methods are collective."""

    def __init__(self, comm: Communicator, components: Components, hyper: Hyper, outcome: Outcome | None = None):
        self.comm, self.components, self.hyper, self.outcome = comm, components, hyper, outcome
        self.prior, self.dealing = components.prior(hyper), components.deal(comm.size)

    def parameters(self, statistics: Statistics, key: Mapping[str, int]) -> Parameters:
        """Draw the parameters of this rank's columns given the statistics."""
        return self.components.draw(self.hyper, statistics, self.dealing.part(self.comm.rank), key)

    def sweep(
        self, shards: Sequence[Shard], z: Sequence[np.ndarray], statistics: Statistics, discount: float,
        key: Mapping[str, int], drawn: Parameters, pruning: Pruning,
    ) -> tuple[list[np.ndarray], sync.Counts]:  # fmt: skip
        """Draw the labels z of the shards' rows, except anchors. Return them, and the changes of all clusters' counts,
        summed over ranks. drawn: as `parameters` returns."""
        n_labels, comm = len(statistics), self.comm
        nobody, anchor = np.zeros(n_labels, bool), np.full(n_labels, kernels.UNANCHORED, np.uint64)
        for shard, labels in zip(shards, z):
            part = kernels.anchors(labels, shard.start, **key, owned=nobody, n_clusters=n_labels)
            np.minimum(anchor, part, out=anchor)
        comm.least_everywhere(anchor)
        weights = None
        if comm.rank == 0:
            log_weight = Stream(purpose=Purpose.WEIGHTS, **key).log_dirichlet(statistics.size - discount)
            weights = Weights(self.hyper.concentration, discount, log_weight, np.zeros(0), 0.0)
        pairs = zip(self.components.kinds, self.dealing.part(comm.rank))
        columns = {kind.hyper: getattr(self.hyper, kind.hyper)[rows] for kind, rows in pairs}
        weights, _, parameters = exchange(comm, self.dealing, n_labels, 0, weights, columns, drawn)
        shared = Shared(self.hyper, anchor, weights, parameters)
        owner = np.full(n_labels, NO_SHARD)
        of = self.prior, self.components, (), 1, key, pruning, self.outcome
        step = Step(shared, nobody, np.arange(n_labels), owner, None, *of)
        try:
            result = [step.run(shard, labels) for shard, labels in zip(shards, z)]
        except FloatingPointError as error:  # `run.loop.main` ends the other ranks
            words = f"cycle {key['cycle']}: a row cannot be scored in a draw of a view"
            raise NumericalError(words, [str(error)]) from None
        sync.add_up(comm, [step.changes.kept])
        return result, step.changes.kept
