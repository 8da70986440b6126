"""Average linkage and its cuts are those of SciPy, ties among distances included."""

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from mpibayes.hpc.crosscat.start.linkage import average_linkage, cut


def distances():
    """Tables of distances (n, n) without ties, with a few, and with hardly anything else."""
    g = np.random.default_rng(0)
    for n in (2, 3, 4, 5, 7, 10, 16, 40) * 4:
        free, ties = np.triu(g.random((n, n)), 1), np.triu(g.integers(1, 4, (n, n)) / 4.0, 1)
        for upper in (free, np.where(g.random((n, n)) < 0.5, np.triu(np.ones((n, n)), 1), free), ties):
            yield upper + upper.T


def test_linkage_and_cuts():
    for apart in distances():
        tree = linkage(squareform(apart, checks=False), "average")
        np.testing.assert_array_equal(average_linkage(apart), tree)
        for most in range(1, len(apart)):
            np.testing.assert_array_equal(cut(tree, most), fcluster(tree, most, "maxclust") - 1)
