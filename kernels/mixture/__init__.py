"""Kernels of one view of a mixture: rows, clusters, the sweep, statistics. Their twin in plain Python is `twin`."""

from mpibayes.kernels.mixture.gibbs import log_predictive, log_predictive_clusters, seat, sweep, take
from mpibayes.kernels.mixture.instantiated import Instantiated
from mpibayes.kernels.mixture.rows import check_rows
from mpibayes.kernels.mixture.statistics import UNANCHORED, accumulate, anchors, moments, priorities
from mpibayes.kernels.mixture.tail import Tail

__all__ = [
    "UNANCHORED",
    "Instantiated",
    "Tail",
    "accumulate",
    "anchors",
    "check_rows",
    "log_predictive",
    "log_predictive_clusters",
    "moments",
    "priorities",
    "seat",
    "sweep",
    "take",
]
