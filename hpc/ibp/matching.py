"""Matching of the features of two draws, which have no names, and the draw nearest to all others.

Features are matched to maximise the number of rows they share. Two draws then differ by the rows that have one of two
matched features but not the other, and by the rows of features without a match; divided by the number of rows, this is
the number of features per row in which they differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from mpibayes.hpc.ibp.draws import Draw, Posterior, shared_rows
from mpibayes.hpc.posterior.chains import evenly

COMPARED = 60  # most draws that the representative one is chosen from
BYTES = 2048  # of a feature that are compared: 16,384 rows
ALIKE = 0.5  # least share of rows with both features among those with either: less is no match


@dataclass(frozen=True)
class Match:
    """Match of each feature of one draw to another draw's. place (K,): its index, -1 for none. alike (K,): number of
    rows with both features over the number with either."""

    place: np.ndarray
    alike: np.ndarray


def match(a: Draw, b: Draw) -> Match:
    """Match each feature of `a` to one of `b`."""
    shared = shared_rows(a.features, b.features)
    place, alike = np.full(len(a), -1), np.zeros(len(a))
    mine, others = linear_sum_assignment(-shared)
    either = a.owned[mine] + b.owned[others] - shared[mine, others]
    alike[mine] = shared[mine, others] / np.maximum(either, 1)
    good = alike[mine] >= ALIKE
    place[mine[good]] = others[good]
    return Match(place, alike)


def difference(a: np.ndarray, b: np.ndarray) -> int:
    """Number of (row, feature) pairs in which two draws differ; features as bits, uint8 (K, B) and (L, B)."""
    shared = shared_rows(a, b)
    mine, others = linear_sum_assignment(-shared)
    sizes = [int(np.bitwise_count(features).sum(dtype=np.int64)) for features in (a, b)]
    return sum(sizes) - 2 * int(shared[mine, others].sum())


@dataclass(frozen=True)
class Representative:
    """The kept draw nearest to the others. chain: its number. draw: its features, most rows first. loss: features per
    row in which it and another draw differ, on average. losses: of each draw compared."""

    chain: int
    draw: Draw
    loss: float
    losses: np.ndarray


def representative(run: Posterior, kept: Sequence[tuple[int, int]]) -> Representative:
    """Choose the kept draw nearest to the others. kept: see `Posterior.kept`; not empty."""
    used = evenly(kept, COMPARED)
    draws = [(key, _thinned(draw)) for key, draw in _keyed(run, used)]
    n_bits = 8 * min(BYTES, -(-run.n_rows // 8))
    apart = np.zeros((len(draws), len(draws)))
    for i, (_, a) in enumerate(draws):
        for j, (_, b) in enumerate(draws[:i]):
            apart[i, j] = apart[j, i] = difference(a, b) / min(n_bits, run.n_rows)
    losses = apart.sum(axis=1) / max(1, len(draws) - 1)
    best = int(losses.argmin())
    chain, _ = key = draws[best][0]
    draw = next(draw for _, draw in run.states([key]))
    return Representative(chain, sorted_by_rows(draw), float(losses[best]), losses)


def _keyed(run: Posterior, requested: Sequence[tuple[int, int]]):
    return (((i, draw.cycle), draw) for i, draw in run.states(requested))


def _thinned(draw: Draw) -> np.ndarray:
    """Restrict the features to at most BYTES groups of eight rows, evenly spaced."""
    n = draw.features.shape[1]
    return draw.features if n <= BYTES else draw.features[:, np.arange(BYTES) * n // BYTES]


def sorted_by_rows(draw: Draw) -> Draw:
    """Sort the features of a draw by number of rows, most first; ties go to the features of earlier rows."""
    order = sorted(range(len(draw)), key=lambda k: (-draw.owned[k], [-int(b) for b in draw.features[k][:64]]))
    return Draw(draw.cycle, draw.n_rows, draw.features[order], draw.hyper, draw.cells[order])
