"""All clusters of a draw with weights and parameters integrated out, to score rows outside the training set."""

from __future__ import annotations

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.kernels import mixture as kernels

WIDTH = 16  # clusters in a tile of the kernels


def collapsed_clusters(components: Components, hyper: Hyper, statistics: Statistics) -> kernels.Tail:
    """Return the clusters, numbered as in `statistics`, and a new one last (docs/math.md 2.6)."""
    capacity = (len(statistics) // WIDTH + 1) * WIDTH
    tail = kernels.Tail(components.prior(hyper), hyper.concentration, hyper.discount, 0.0, capacity=capacity)
    tail.load(statistics)
    return tail
