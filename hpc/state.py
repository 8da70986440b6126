"""What the ranks tell each other: the summary that goes up to root, and what root sends back down."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from mpibayes.hpc.comm import Communicator, broadcast_arrays
from mpibayes.hpc.models.components import Hyper, Parameters
from mpibayes.hpc.models.statistics import Statistics


@dataclass
class Summary:
    """What root knows of the partition at a sync. Valid on root alone."""

    statistics: Statistics  # of all rows
    owned: np.ndarray  # (K,) int64, rows that live on the shard owning the cluster in the coming cycle
    anchor: np.ndarray  # (K,) uint64, least priority among the other rows; 2^64 - 1 where there are none


@dataclass
class Shared:
    """What every rank needs for a cycle: hyperparameters, and weights and parameters of the instantiated clusters."""

    hyper: Hyper
    private: np.ndarray  # (K,) bool; the other clusters are instantiated, in this order
    anchor: np.ndarray  # (K1,) uint64, anchor priorities of the instantiated clusters
    log_weight: np.ndarray  # (K1,) float64
    log_tail_weight: np.ndarray  # (S,) float64, total weight of each shard's collapsed tail
    tail_concentration: float
    parameters: Parameters

    def broadcast(self, comm: Communicator) -> Shared:
        """Root's message, on every rank. Called on root."""
        return _unpack(broadcast_arrays(comm, self._pack()))

    def _pack(self) -> dict[str, np.ndarray]:
        hyper, parameters = vars(self.hyper), vars(self.parameters)
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("hyper", "parameters")}
        return {name: np.asarray(value) for name, value in {**own, **hyper, **parameters}.items()}


def receive(comm: Communicator) -> Shared:
    """The message that root broadcasts at the same time."""
    return _unpack(broadcast_arrays(comm, None))


def _unpack(arrays: dict[str, np.ndarray]) -> Shared:
    arrays = {name: a if a.ndim else a.item() for name, a in arrays.items()}
    hyper = Hyper(**{f.name: arrays.pop(f.name) for f in fields(Hyper)})
    parameters = Parameters(**{f.name: arrays.pop(f.name) for f in fields(Parameters)})
    return Shared(hyper=hyper, parameters=parameters, **arrays)
