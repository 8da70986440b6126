"""Ranges of several columns in lines, alongside known values of other columns: probability in each cluster, where the
columns of a tree are multivariate normal, and draws within the ranges (docs/math.md 2.12)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.hpc.components.boxes import draw_in_box, log_box
from mpibayes.hpc.components.single import inside
from mpibayes.hpc.crosscat.laws.blocks import LEAST, patterns_of
from mpibayes.hpc.crosscat.laws.normals import Normals
from mpibayes.hpc.parallel.streams import Stream

IN_BOXES = 2**31 + 3  # sub-stream


@dataclass(frozen=True)
class Boxes:
    """Ranges of the columns `of` (R,), from low to high (n, R), infinite where nothing is known; x (n, D): known
    values, NaN elsewhere."""

    of: Sequence[int]
    x: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def _in_clusters(
        self, law: Normals, of: Sequence[int]
    ) -> Iterator[tuple[np.ndarray, np.ndarray, int, np.ndarray, np.ndarray]]:
        """Yield (rows, which, cluster, mean, covariance) of the columns `of` given the values. mean: (m, R), one for
        each distinct row of values and ranges; which: each row's index into mean."""
        of = np.array(of, np.intp)
        for seen, at in patterns_of(self.x):
            parts = [self.x[at][:, seen], self.low[at], self.high[at]]
            _, first, which = np.unique(np.column_stack(parts), axis=0, return_index=True, return_inverse=True)
            mean, matrix = law.together(self.x[at[first]][:, seen], seen, of)
            for k in range(len(law.nu)):
                yield at, which.ravel(), k, mean[:, k], matrix[k]

    def log_p(self, law: Normals) -> np.ndarray:
        """Return the log probability of the ranges given the values in every cluster, (n, K + 1)."""
        out = np.empty((len(self.x), len(law.nu)))
        for at, which, k, mean, matrix in self._in_clusters(law, self.of):
            first = _first(which)
            out[at, k] = log_box(mean, matrix, self.low[at[first]], self.high[at[first]])[which]
        return out

    def averaged(self, law: Normals, member: int, low: np.ndarray, high: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Average over clusters, with weights (n, K + 1), the probabilities of intervals of column `member` given the
        values and ranges, (n, U)."""
        out = np.zeros((len(weight), len(low)))
        for at, which, k, mean, matrix in self._in_clusters(law, [*self.of, member]):
            here = at[_first(which)]
            for i in np.unique(which[weight[at, k] > LEAST]):
                ends = [self.low[here[i]], self.high[here[i]]]
                base = log_box(mean[[i], :-1], matrix[:-1, :-1], *(end[None] for end in ends))
                ends = [np.column_stack([np.tile(a, (len(b), 1)), b]) for a, b in zip(ends, (low, high))]
                if not np.isfinite(base):
                    continue
                p = np.exp(log_box(np.tile(mean[i], (len(low), 1)), matrix, *ends) - base)
                rows = at[which == i]
                out[rows] += weight[rows, k, None] * p
        return out

    def drawn(
        self, law: Normals, number: Sequence[int], cluster: np.ndarray, stream: Stream, ids: np.ndarray
    ) -> np.ndarray:
        """Return the known values and draws within the ranges given the rows' clusters, (n, D), NaN elsewhere."""
        x, uniforms = self.x.copy(), replace(stream, sub=IN_BOXES)
        u = np.column_stack([inside(uniforms.uniforms(number[m] << 32 | ids)) for m in self.of])
        for at, which, k, mean, matrix in self._in_clusters(law, self.of):
            here = cluster[at] == k
            rows = at[here]
            if len(rows):
                drawn = draw_in_box(mean[which[here]], matrix, self.low[rows], self.high[rows], u[rows])
                known = np.isfinite(self.low[rows]) | np.isfinite(self.high[rows])
                x[np.ix_(rows, self.of)] = np.where(known, drawn, np.nan)
        return x


def _first(which: np.ndarray) -> np.ndarray:
    """Return the first occurrence of each distinct value."""
    return np.unique(which, return_index=True)[1]
