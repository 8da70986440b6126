"""Cells of numbers in lines against the distribution function of multivariate normals."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from mpibayes.hpc.crosscat.lines.cells import Cells
from mpibayes.hpc.crosscat.normals import Normals
from mpibayes.hpc.links.forest import ROOT

STAR, CHAIN, BUSH = [ROOT, 0, 0, 0], [ROOT, 0, 1, 2], [ROOT, 0, 0, 2]


def normals(above, noise, seed=1, k=3) -> Normals:
    """Trees of lines with slopes of about one and this noise."""
    g, d = np.random.default_rng(seed), len(above)
    root = np.zeros((k, d, d))
    for c, parent in enumerate(above):
        root[:, c, c] = 2.0 if parent == ROOT else noise * g.uniform(0.8, 1.2, k)
        if parent != ROOT:
            root[:, c] += g.uniform(0.6, 1.4, (k, 1)) * root[:, parent]
    return Normals(g.normal(size=(k, d)), root @ root.swapaxes(1, 2), np.full(k, np.inf))


def cells(law, above, x, step) -> Cells:
    step = np.broadcast_to(step, x.shape)
    width = np.where(step > 0, np.log(np.where(step > 0, step, 1.0)), 0.0)
    return Cells(law, above, x, width, x - 0.5 * step, x + 0.5 * step)


def boxes(law, x, step, k) -> np.ndarray:
    """Probabilities of the cells that are there, by inclusion and exclusion of distribution functions."""
    out = []
    for row in x:
        seen = np.flatnonzero(~np.isnan(row))
        of = multivariate_normal(law.location[k, seen], law.matrix[k][np.ix_(seen, seen)], abseps=1e-9, releps=1e-9,
                                 maxpts=2_000_000, seed=1)  # fmt: skip
        h = 0.5 * np.broadcast_to(step, x.shape[1])[seen]
        out.append(of.cdf(row[seen] + h, lower_limit=row[seen] - h))
    return np.log(out)


def rows_near(law, n, d, step, seed=2) -> np.ndarray:
    g = np.random.default_rng(seed)
    x = np.stack([g.multivariate_normal(law.location[i % 3], law.matrix[i % 3]) for i in range(n)])
    return np.round(x / step) * step


@pytest.mark.parametrize("above", [STAR, CHAIN, BUSH])
@pytest.mark.parametrize("step", [0.02, 0.3, 1.0, 2.0])
def test_cells_have_the_probabilities_of_boxes(above, step):
    law = normals(above, 0.5)
    x = rows_near(law, 9, 4, step)
    x[:3, 1], x[3:5, 0] = np.nan, np.nan
    log_p = cells(law, above, x, step).log_p()
    for k in range(3):
        right = boxes(law, x, step, k)
        own = np.arange(9) % 3 == k
        print(above, step, np.abs(log_p[own, k] - right[own]).max(), np.abs(log_p[:, k] - right)[right>-30].max())
