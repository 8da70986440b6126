"""The global update of everything but the labels (docs/math.md 2.1, steps 1 to 5; 2.3).

The order is part of the algorithm: hyperparameters are drawn with weights and parameters integrated out, then weights,
then parameters. Root draws concentration, discount and weights; each column's hyperparameters and parameters are drawn
by the rank to which it is dealt, from streams that do not depend on the dealing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.kinds import KINDS
from mpibayes.hpc.components.product import Components, Dealing
from mpibayes.hpc.crosscat.view.pitman_yor import PitmanYor
from mpibayes.hpc.crosscat.view.state import Partition, Shared, Weights, exchange
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator


@dataclass(frozen=True)
class Update:
    """The update's settings: the prior of (alpha, d), the columns and their dealing, and the opening of clusters;
    n_rows: all rows, idle ones too."""

    law: PitmanYor
    components: Components
    dealing: Dealing
    opening: str
    n_shards: int
    n_rows: int

    @property
    def n_tails(self) -> int:
        """Number of collapsed tails with separate weights."""
        return self.n_shards if self.opening == "all" else 1

    def run(
        self, comm: Communicator, hyper: Hyper, partition: Partition, private: np.ndarray, kept: np.ndarray,
        key: Mapping[str, int], learn: bool = True, met: np.ndarray | None = None,
    ) -> Shared:  # fmt: skip
        """Run the whole update. Collective. private, kept: as in `sweep.Step`. learn: False keeps the hyperparameters.
        met: see `Categorical.met`."""
        part, weights = self.dealing.part(comm.rank), None
        if comm.rank == 0:
            process = self.draw_process(hyper, partition, key) if learn else (hyper.concentration, hyper.discount)
            weights = self.draw_weights(*process, partition.size, private, kept, partition.owner, key)
        mine = {kind.hyper: columns for kind, columns in zip(KINDS, part)}
        if learn:
            columns = self.components.update(hyper, partition.statistics, part, key)
        else:
            columns = {name: getattr(hyper, name)[rows] for name, rows in mine.items()}
        if len(kept):
            hyper = replace(hyper, **{name: getattr(hyper, name).copy() for name in mine})
            for name, rows in mine.items():
                getattr(hyper, name)[rows] = columns[name]
            statistics = partition.statistics if len(kept) == len(private) else partition.statistics.take(kept)
            parameters = self.components.draw(hyper, statistics, part, key, met=met)
        else:  # one shard has all clusters
            parameters = self.components.no_parameters(part)
        of = comm, self.dealing, len(kept), self.n_tails
        weights, hyper, parameters = exchange(*of, weights, columns, parameters, met)
        return Shared(hyper, partition.anchor[kept], weights, parameters)

    def draw_process(self, hyper: Hyper, partition: Partition, key) -> tuple[float, float]:
        """Draw concentration and discount given the partition: step 1 (docs/math.md 2.4)."""
        occupied = partition.size[partition.size > 0]
        return self.law.draw(occupied, hyper.concentration, generator(purpose=Purpose.CONCENTRATION, **key))

    def draw_weights(self, concentration: float, discount: float, size, private, kept, owner, key) -> Weights:
        """Draw the log weights of the instantiated clusters and of each shard's tail: step 4.

        "one": (w, w_*) ~ Dirichlet(m - d, alpha + K1 d + M).
        "all" (d = 0): (w, w_*1 .. w_*S) ~ Dirichlet(m, alpha/S + M_s).
        """
        stream, S, n_1 = Stream(purpose=Purpose.WEIGHTS, **key), self.n_shards, len(kept)
        if self.opening == "one" and not n_1:  # the only tail has all the weight
            return Weights(concentration, discount, np.zeros(0), np.zeros(1), concentration)
        shape = size[kept] - discount
        if self.opening == "one":
            tail = concentration + n_1 * discount
            log_w = stream.log_dirichlet(np.append(shape, tail + size[private].sum()))
            return Weights(concentration, discount, log_w[:n_1], log_w[n_1:], tail)
        tail = concentration / S
        rows = np.bincount(owner[private], size[private], S)
        log_w = stream.log_dirichlet(np.concatenate([shape, tail + rows]))
        return Weights(concentration, discount, log_w[:n_1], log_w[n_1:], tail)
