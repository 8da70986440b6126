"""Training rows that satisfy a condition, and their weighted shares of levels beside the answer's."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.posterior.linearised import linearised_variance
from mpibayes.hpc.query import average
from mpibayes.hpc.query.asking import SAMPLE, Asking
from mpibayes.io import spells
from mpibayes.io.rows import Column, Rows
from mpibayes.text import percent

ERRORS = 4.0  # standard errors between the shares in an answer and in the rows that deserve a remark


def having(asking: Asking, known: Known, numbers: np.ndarray) -> np.ndarray:
    """Mask of table rows, given by numbers from 0, that have the known cells of one row, bool (n,)."""
    here = np.ones(len(numbers), bool)
    for rows in average.in_blocks(len(numbers), 65_536):
        recorded = asking.asked.recorded(numbers[rows])
        for events, _ in known.of.values():
            here[rows] &= _has(events, recorded)
    return here


def _has(events: Events, rows: Rows) -> np.ndarray:
    """Mask of recorded rows that have the single event."""
    c = events.column
    x: np.ndarray = getattr(rows, c.block)[:, c.index]
    if c.levels:
        codes = np.flatnonzero(events.sets[0]) if events.sets is not None else events.codes
        return np.isin(x, codes)
    if c.kind == "survival":  # rows certain to have it
        low, high = spells.bounds(x)
        within: np.ndarray = (low >= events.low[0]) & (high <= events.high[0])
        return within
    atoms = np.array(c.atoms)
    chosen = atoms[events.sets[0]] if events.sets is not None else atoms[events.codes[events.codes >= 0]]
    with np.errstate(invalid="ignore"):
        inside: np.ndarray = (x >= events.low[0]) & (x <= events.high[0]) & ~np.isin(x, atoms)
    inside |= np.isin(x, chosen)
    return inside


def weighted_apart(asking: Asking, column: Column, known: Known, p: np.ndarray) -> list[str]:
    """Remark if weighted rows that satisfy the condition have other shares of a column's levels than the answer about
    the population, p (L,): weights then differ between rows of one cluster. The false alarm rate is below 1 in
    1,000."""
    weights = asking.asked.weights
    if weights is None or not column.levels:
        return []
    places = asking.sample_places(SAMPLE)
    numbers = asking.asked.training_numbers()[places]
    rows = asking.asked.recorded(numbers)
    codes = getattr(rows, column.block)[:, column.index].astype(np.intp)
    here = having(asking, known, numbers) & ~column.is_missing(codes)
    codes, w = codes[here], weights[places][here]
    if len(w) < 2 or not w.any():
        return []
    in_level = np.bincount(codes, w, len(p))
    share = in_level / w.sum()
    error = np.sqrt(linearised_variance(in_level, np.bincount(codes, w**2, len(p)), w))
    expected = np.sqrt(p * (1.0 - p) * (w**2).sum()) / w.sum()  # error if the answer is right; larger for rare levels
    apart = np.abs(share - p) / np.maximum(np.maximum(error, expected), 1.0 / len(w))
    u = int(apart.argmax())
    if apart[u] <= ERRORS:
        return []
    return [
        f"of the rows themselves, weighted, {percent(share[u])} (standard error {100.0 * error[u]:.2g}) have "
        f"'{column.levels[u]}', here {percent(p[u])}: weights also differ between rows of one cluster, where answers "
        "do not follow them (docs/weights.md)"
    ]
