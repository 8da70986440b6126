"""All clusters of a draw with weights and parameters integrated out, ready to score rows that are in none."""

from __future__ import annotations

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.kernels.mixture import mixture as kernels

WIDTH = 16  # clusters in a tile of the kernels


def collapsed_clusters(components: Components, hyper: Hyper, statistics: Statistics) -> kernels.Tail:
    """docs/math.md 2.6: the clusters as `statistics` numbers them, and a new one behind them."""
    capacity = (len(statistics) // WIDTH + 1) * WIDTH
    tail = kernels.Tail(components.prior(hyper), hyper.concentration, hyper.discount, 0.0, capacity=capacity)
    tail.load(statistics)
    return tail
