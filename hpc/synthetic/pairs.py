"""Pairs of columns that depend on each other more in the table than in rows that the run draws: a posterior predictive
check (Gelman, Meng & Stern 1996).

Inside a cluster columns are independent, unless they are in a block, so that a pair which no clusters carry comes out
weaker wherever the run stands in for the table: in filled-in cells, synthetic rows and answers. The mutual information
of each pair is taken from training rows and from as many rows of each of some kept draws, in the same bins. A drawn row
lacks the cells that a training row lacks, so that both sums are over as many cells, and their bias is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.sharing import dealt
from mpibayes.hpc.synthetic.bins import QUANTILES, Bins
from mpibayes.hpc.synthetic.training import cells_of
from mpibayes.text import counted

TABLES, FEWEST_DRAWS = 20, 5  # of drawn rows, at most, each of a kept draw; draws that tell what is chance
ROWS, FEWEST_ROWS = 20_000, 2_000  # of each, fewer where there are many pairs of columns
WORK = 2e8  # rows times pairs of columns
LEAST, DEVIATIONS = 0.01, 4.0  # nats, and deviations of the draws, by which a pair has to be weaker to be counted
ROWS_OF_BIN = 20  # of two columns of numbers, on average
SEED = 1


def weaker_pairs(asking: Asking, columns: Sequence[str], top: int) -> Answer:
    """Every pair of columns with its mutual information in the table and in drawn rows, the weakest in the run first.

    columns: names, all by default. Raises ConfigError where the model draws no rows, or fewer than two columns are
    left. Collective.
    """
    asking.require("pairs")
    asked = [c for c in asking.columns if not columns or c.name in asking.conditions.names(columns)]
    if len(asked) < 2:
        raise ConfigError("one column is left: a pair has two")
    n_pairs, places = len(asked) * (len(asked) - 1) // 2, asking.sample_places(ROWS)
    places = places[: max(FEWEST_ROWS, int(WORK / n_pairs))]
    rows = asking.asked.recorded(asking.asked.training_numbers()[places])
    cells = {c.name: cells_of(rows, c) for c in asked}
    n_bins = int(np.clip(np.sqrt(len(rows) / ROWS_OF_BIN), 3, QUANTILES))
    bins = Bins(asked, cells, n_bins)
    table = bins(cells)
    missing = table == bins.sizes - 1
    n_draws = asking.averages.n_draws
    step = -(-n_draws // TABLES)
    n_tables = -(-n_draws // step)

    def of_draw(i: int) -> np.ndarray:
        (synthesis,) = asking.asked.syntheses(SEED, len(rows), {}, slice(i * step, i * step + 1))
        ids = np.arange(len(rows))
        drawn = bins(synthesis.cells(ids, synthesis.parts(ids)))
        return informations(np.where(missing, bins.sizes - 1, drawn), bins.sizes)

    there, drawn = informations(table, bins.sizes), np.array(dealt(asking.comm, n_tables, of_draw))
    mean = drawn.mean(axis=0)
    order = np.argsort(mean - there, kind="stable")
    first, second = np.array([[c.name for c in pair] for pair in combinations(asked, 2)], object)[order].T
    lines = {
        "column": first, "other": second, "table": there[order], "run": mean[order], "weaker": (there - mean)[order],
        "p": (drawn >= there).mean(axis=0)[order],
    }  # fmt: skip
    remarks = [
        _clear(there, drawn),
        f"table, run: mutual information in nats of {counted(len(rows), 'training row')} and of as many rows from each "
        f"draw, numbers in {n_bins} intervals; p: share of the draws that have as much as the table",
    ]
    title = "Pairs of columns that are weaker in the run than in the table"
    return Answer(title, lines, remarks, shown=top, bars="weaker")


def _clear(there: np.ndarray, drawn: np.ndarray) -> str:
    """Say how many pairs are weaker for certain. there (P,), drawn (draws, P): information."""
    if len(drawn) < FEWEST_DRAWS:
        return f"{counted(len(drawn), 'draw')}: too few to say which differences are not by chance"
    clear = int((there - drawn.mean(axis=0) >= np.maximum(LEAST, DEVIATIONS * drawn.std(axis=0, ddof=1))).sum())
    return (
        f"{counted(clear, 'pair')} of {len(there):,} {'is' if clear == 1 else 'are'} weaker by {LEAST:g} nats or more "
        f"and by {DEVIATIONS:.0f} standard deviations of {len(drawn)} draws"
    )


def informations(bins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Mutual information of each pair of columns in nats, (P,), from the bins (n, C) of rows that have both cells; the
    last bin of a column is of missing ones."""
    return np.array([_information(table) for table in _tables(np.ascontiguousarray(bins.T), sizes)])


def _tables(bins: np.ndarray, sizes: np.ndarray) -> Iterator[np.ndarray]:
    """The number of rows in each pair of bins, for each pair of columns."""
    for i, j in combinations(range(len(bins)), 2):
        n = np.bincount(bins[i] * np.int32(sizes[j]) + bins[j], minlength=sizes[i] * sizes[j])
        yield n.reshape(sizes[i], sizes[j])[:-1, :-1]


def _information(n: np.ndarray) -> float:
    total = n.sum()
    if not total:
        return 0.0
    i, j = np.nonzero(n)
    seen = n[i, j]
    alone = n.sum(axis=1)[i] * (n.sum(axis=0)[j] / total)
    return float((seen * np.log(seen / alone)).sum() / total)
