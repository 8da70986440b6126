"""Real columns linked in lines: the evidence of each such link given the labels, and the draw of the hyperparameters
that go with it (docs/math.md 1.10, 2.14).

A line leaves much less variance to explain, so the variance that suits a column without a parent would reject every
line. The variance is therefore summed out of each score, and so is the mean of a column without a parent; both are
drawn once the links are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mpibayes.hpc.components import line, normal
from mpibayes.hpc.components.grid import pick_on_grid
from mpibayes.io.rows import Column
from mpibayes.kernels.mixture import updates


@dataclass(frozen=True)
class Moments:
    """Sizes n (K,), means (R, K) and sums of products about the means (R, R, K) of R columns in K clusters."""

    n: np.ndarray
    mean: np.ndarray
    products: np.ndarray

    @cached_property
    def squares(self) -> np.ndarray:
        """Sums of squares about the means, (R, K)."""
        return np.einsum("rrk->rk", self.products)


class Lines:
    """R real columns with their moments in clusters, priors by name, and hyperparameters (R, 4) as in `normal`."""

    def __init__(self, columns: Sequence[Column], moments: Moments, priors: Mapping[str, Mapping[str, Any]], hyper):
        self.columns, self._moments, self._hyper = columns, moments, hyper
        given = [priors.get(c.name) or {} for c in columns]
        self._grids = [line.grids(c, prior) for c, prior in zip(columns, given)]
        self._mean = [line.mean_of(c, prior) for c, prior in zip(columns, given)]
        self._centers, self._scales = np.array([(c.center, c.scale) for c in columns]).reshape(-1, 2).T

    @cached_property
    def under(self) -> np.ndarray:
        """Log evidence of each column under each parent, (R, R), -inf on the diagonal."""
        score = np.array([np.logaddexp.reduce(of, axis=0) - np.log(len(of)) for of in self._under_parents])
        np.fill_diagonal(score, -np.inf)
        return score

    @cached_property
    def alone(self) -> np.ndarray:
        """Log evidence of each column without a parent, (R,)."""
        return np.array([np.logaddexp.reduce(of, axis=None) - np.log(of.size) for of in self._without])

    def draw(self, parents: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Draw hyperparameters (R, 4) given the parents (R,), negative for none: variances, and means of columns
        without a parent. u (R,): uniforms."""
        hyper = self._hyper.copy()
        for c, parent in enumerate(parents.tolist()):
            means, _, _, variances = self._grids[c]
            if parent >= 0:
                hyper[c, normal.MEAN] = self._mean[c]
                hyper[c, normal.VARIANCE] = variances[pick_on_grid(self._under_parents[c][:, parent], u[c])]
            else:
                at = pick_on_grid(self._without[c].ravel(), u[c])
                hyper[c, normal.MEAN] = means[at // len(variances)]
                hyper[c, normal.VARIANCE] = variances[at % len(variances)]
        return hyper

    @cached_property
    def _under_parents(self) -> list[np.ndarray]:
        """Log evidence of each column under each parent, (G, R); most partitions are never asked for it."""
        return [self._under(c) for c in range(len(self.columns))]

    @cached_property
    def _without(self) -> list[np.ndarray]:
        """Log evidence of each column without a parent, (means, G)."""
        moments = self._moments
        sizes = [len(means) * len(variances) for means, _, _, variances in self._grids]
        hyper = np.repeat(self._hyper, sizes, axis=0)
        if not len(hyper):
            return []
        hyper[:, normal.MEAN] = np.concatenate([np.repeat(means, len(of)) for means, _, _, of in self._grids])
        hyper[:, normal.VARIANCE] = np.concatenate([np.tile(of, len(means)) for means, _, _, of in self._grids])
        n = np.repeat(moments.n.astype(np.int64)[None], len(hyper), axis=0)
        s = n, *(np.repeat(a, sizes, axis=0) for a in (moments.mean, moments.squares))
        scores = np.split(updates.number_marginals(s, hyper, 0, len(hyper))[0], np.cumsum(sizes)[:-1])
        return [of.reshape(len(means), -1) for of, (means, _, _, _) in zip(scores, self._grids)]

    def _under(self, c: int) -> np.ndarray:
        """Log evidence of a column under each parent at each variance, (G, R)."""
        variances, m = self._grids[c][normal.VARIANCE], self._moments
        points = np.empty((len(variances), 3))
        points[:, line.KAPPA : line.VARIANCE], points[:, line.VARIANCE] = self._hyper[c, 1:3], variances
        moments = m.n, m.mean, m.mean[c], m.squares, m.products[:, c], m.products[c, c]
        return updates.line_marginals(points, self._scales**2, self._centers, self._mean[c], *moments)[0]
