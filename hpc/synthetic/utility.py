"""Utility of synthetic rows: how close their distribution is to that of real rows, by bins of columns (`bins.py`)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.hpc.synthetic.trees import Boosted, area

MOST_PAIRS, MOST_TRIPLES = 1_000, 300
PERMUTATIONS = 3
PERMUTED_ROUNDS = 20  # trees of the classifiers for the propensity score
MOST_CLASSES = 8


def sets_of_columns(n_columns: int, k: int, most: int, seed: int) -> list[tuple[int, ...]]:
    """All sets of k columns, or `most` of them, drawn without replacement."""
    every = list(itertools.combinations(range(n_columns), k))
    if len(every) <= most:
        return every
    chosen = generator(seed, Purpose.JUDGED, sub=k).permutation(len(every))[:most]
    return [every[i] for i in np.sort(chosen)]


def variation(a: np.ndarray, b: np.ndarray, sizes: np.ndarray, sets: Sequence[tuple[int, ...]]) -> float:
    """Total variation distance between the joint distributions of columns in rows a and b, averaged over sets of
    columns."""
    result = []
    for columns in sets:
        shares = [_shares(rows, sizes, columns) for rows in (a, b)]
        result.append(0.5 * np.abs(shares[0] - shares[1]).sum())
    return float(np.mean(result)) if result else float("nan")


def _shares(rows: np.ndarray, sizes: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
    key = np.zeros(len(rows), np.int64)
    for c in columns:
        key = key * sizes[c] + rows[:, c]
    return np.bincount(key, minlength=int(np.prod(sizes[list(columns)]))) / len(rows)


def told_apart(a: np.ndarray, b: np.ndarray, sizes: np.ndarray, seed: int) -> float:
    """Area under the ROC curve of a classifier that distinguishes rows of a from as many of b, on rows that it was not
    trained on (two folds)."""
    x, y = _both(a, b)
    fold = generator(seed, Purpose.JUDGED, sub=11).permutation(len(x)) % 2 == 0
    result = [area(Boosted(x[f], y[f], sizes).score(x[~f]), y[~f]) for f in (fold, ~fold)]
    return float(np.mean(result))


def propensity_ratio(a: np.ndarray, b: np.ndarray, sizes: np.ndarray, seed: int) -> float:
    """Propensity mean squared error of rows a and b over that of the same rows shuffled (Snoke et al. 2018)."""
    x, y = _both(a, b)

    def error(labels: np.ndarray) -> float:
        return float(((Boosted(x, labels, sizes, PERMUTED_ROUNDS).probability(x) - 0.5) ** 2).mean())

    g = generator(seed, Purpose.JUDGED, sub=12)
    return error(y) / max(np.mean([error(g.permutation(y)) for _ in range(PERMUTATIONS)]), 1e-300)


def _both(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = min(len(a), len(b))
    return np.concatenate([a[:n], b[:n]]), np.arange(2 * n) < n


def classified(train: np.ndarray, test: np.ndarray, sizes: np.ndarray, target: int) -> float:
    """Share of the test rows whose bin of the target column is predicted by a classifier trained on other rows: of
    their most frequent bins, one against the rest. Rows without the target are left out."""
    others = [c for c in range(len(sizes)) if c != target]
    known = [rows[rows[:, target] < sizes[target] - 1] for rows in (train, test)]
    y, truth = known[0][:, target], known[1][:, target]
    if not len(y) or not len(truth) or not others:
        return float("nan")
    counts = np.bincount(y)
    classes = np.argsort(-counts, kind="stable")[: min(MOST_CLASSES, np.count_nonzero(counts))]
    if len(classes) == 1:
        return float((truth == classes[0]).mean())
    x, new = (rows[:, others] for rows in known)
    each = classes[:1] if len(classes) == 2 == np.count_nonzero(counts) else classes
    scores = np.stack([Boosted(x, y == k, sizes[others]).score(new) for k in each], axis=1)
    if len(each) == 1:
        scores = np.column_stack([scores[:, 0], -scores[:, 0]])
    return float((classes[scores.argmax(axis=1)] == truth).mean())
