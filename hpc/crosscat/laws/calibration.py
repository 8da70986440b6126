"""Level probabilities of drawn cells, calibrated: in each class of a table's rows they agree with the cells that these
rows do have (docs/math.md 2.12).

Within clusters a column may depend too little on what decides which of its cells are missing. In the rows of class g
the level probabilities of a column, theta in every cluster and context, become proportional to theta exp(phi_g). Given
a draw's clusters and parameters, phi_g has a standard normal prior, and is drawn from a normal approximation at its
mode. Clusters and parameters do not learn from it.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.crosscat.laws.cell_draws import CellDraws
from mpibayes.hpc.data.events import Known
from mpibayes.hpc.law import MOST_LEVELS
from mpibayes.hpc.links.law import TreeLaw
from mpibayes.hpc.parallel.streams import Stream

PRECISION = 1.0  # of the prior of phi
STEPS, CLOSE = 50, 1e-9  # of Newton's method: at most so many, and the last step's size


@dataclass
class Tally:
    """Present cells of a column. base (G, U K): rows by class, and by context and cluster; seen (G, V): by class and
    level; column: its number among the categorical ones."""

    column: int
    base: np.ndarray
    seen: np.ndarray


class Calibration:
    """Calibrated draws of the cells of a view. draws: those of a copy; gaps: names of the columns to calibrate."""

    def __init__(self, draws: CellDraws, gaps: Collection[str], n_classes: int):
        self._draws, self._n, self._law = draws, n_classes, draws.levels
        self._tallies: dict[str, Tally] = {}
        view = draws.view
        outcome = () if view.outcome is None else view.outcome.names
        for name in sorted(view.names.intersection(gaps).difference(outcome)):
            kind, c = view.place[name]
            if kind.name == "categorical" and len(kind.columns[c].levels) <= MOST_LEVELS:
                u, v, k = self._law.in_contexts(c).shape
                self._tallies[name] = Tally(c, np.zeros((n_classes, u * k)), np.zeros((n_classes, v)))

    def add(self, known: Known, cluster: np.ndarray, classes: np.ndarray, stream: Stream, ids: np.ndarray) -> None:
        """Count the present cells of training rows; missing cells of parents are drawn, uncalibrated."""
        context = self._contexts(known, cluster, stream, ids)
        for name, tally in self._tallies.items():
            events, which = known.of[name]
            level = np.append(events.codes, -1)[which]
            rows = np.flatnonzero(level >= 0)
            n_clusters = self._law.theta.shape[1]
            at = context.get(name, np.zeros(len(ids), np.intp))[rows] * n_clusters + cluster[rows]
            np.add.at(tally.base, (classes[rows], at), 1.0)
            np.add.at(tally.seen, (classes[rows], level[rows]), 1.0)

    def _contexts(self, known: Known, cluster: np.ndarray, stream: Stream, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Context of each column in a tree, (n,)."""
        result = {}
        for tree in self._draws.view.blocks:
            if isinstance(tree, TreeLaw) and not self._tallies.keys().isdisjoint(tree.names):
                of, none = tree.linked, np.zeros(len(ids), np.intp)
                codes, _ = self._draws.in_tree(tree, known.only(tree.names), of.names, cluster, stream, ids)
                levels = np.column_stack([codes.get(name, none) for name in of.names])
                result |= {name: of.tree.context_of(c, levels) for c, name in enumerate(of.names) if name}
        return result

    def by_class(self, stream: Stream) -> list[CellDraws]:
        """Return the draws of cells of each class of rows."""
        theta = [self._law.theta.copy() for _ in range(self._n)]
        for name, tally in self._tallies.items():
            old = self._law.in_contexts(tally.column).astype(np.float64)  # (U, V, K + 1)
            log_p = np.log(np.maximum(np.moveaxis(old, 1, 2).reshape(-1, old.shape[1]), 1e-30))
            shifts = drawn_shifts(log_p, tally, stream.at(zlib.crc32(name.encode())))
            first, end = self._law.offsets[tally.column : tally.column + 2]
            for of_class, shift in zip(theta, shifts):
                new = old * np.exp(shift)[:, None]
                new /= new.sum(axis=1, keepdims=True)
                part = of_class[first:end].reshape(old.shape[0], -1, old.shape[2])
                part[:, :-1] = new
        return [self._draws.with_levels(of_class) for of_class in theta]


def drawn_shifts(log_p: np.ndarray, tally: Tally, stream: Stream) -> np.ndarray:
    """Draw phi (G, V). log_p (U K, V): log probabilities of the levels in every context and cluster."""
    z = stream.normals(np.arange(tally.seen.size)).reshape(tally.seen.shape)
    return np.array([_drawn(log_p, *of) for of in zip(tally.base, tally.seen, z)])


def _drawn(log_p: np.ndarray, base: np.ndarray, seen: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Draw one class's phi (V,): its mode, found by Newton's method, and normal errors by z (V,)."""
    rows = np.flatnonzero(base)
    log_p, base, phi = log_p[rows], base[rows], np.zeros(len(seen))
    value, gradient, precision = _log_posterior(log_p, base, seen, phi)
    for _ in range(STEPS):
        step = np.linalg.solve(precision, gradient)
        after = _log_posterior(log_p, base, seen, phi + step)
        while after[0] < value - CLOSE * abs(value) and np.abs(step).max() > CLOSE:  # concave: a short step rises
            step *= 0.5
            after = _log_posterior(log_p, base, seen, phi + step)
        phi, (value, gradient, precision) = phi + step, after
        if np.abs(step).max() < CLOSE:
            break
    return phi + np.linalg.solve(np.linalg.cholesky(precision).T, z)


def _log_posterior(log_p, base, seen, phi: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Log posterior density of phi up to a constant, its gradient, and minus its second derivatives."""
    x = log_p + phi
    top = x.max(axis=1, keepdims=True, initial=-np.inf)
    q = np.exp(x - top)
    total = q.sum(axis=1, keepdims=True)
    q /= total
    expected = base @ q
    value = float(seen @ phi - base @ (top + np.log(total))[:, 0] - 0.5 * PRECISION * (phi @ phi))
    return (
        value, seen - expected - PRECISION * phi,
        np.diag(expected + PRECISION) - q.T @ (base[:, None] * q),
    )  # fmt: skip
