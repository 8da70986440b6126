"""Pairs of columns that depend on each other more in the table than in rows drawn by the run: a posterior predictive
check (Gelman, Meng & Stern 1996).

Within a cluster, columns are independent unless they are in a block or linked, so a dependence that the clusters do not
carry is weaker wherever the run replaces the table: in filled-in cells, synthetic rows and answers. The mutual
information of each pair is computed from training rows and from as many rows of each of some kept draws, in the same
bins. A drawn row lacks the cells that a training row lacks, so that both sums use equally many cells, and have the same
bias.

A report checks `briefly`: on fewer rows, and in drawn rows only the pairs with most information in the table, since no
pair can lose more than it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.parallel.agreement import agree
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.new_rows import NewRows
from mpibayes.hpc.query.question import Question
from mpibayes.hpc.synthetic.bins import QUANTILES, Bins
from mpibayes.hpc.synthetic.training import cells_of
from mpibayes.io.rows import Column
from mpibayes.text import counted

TABLES, FEWEST_DRAWS = 20, 5  # of drawn rows, at most, each from one kept draw; draws needed to assess chance
ROWS, FEWEST_ROWS = 20_000, 2_000  # of each kind, fewer if there are many pairs of columns
WORK = 2e8  # rows times pairs of columns
LEAST, DEVIATIONS = 0.01, 4.0  # nats, and deviations of the draws, by which a pair must be weaker to count
STRONG = 0.05  # nats: a smaller loss hardly matters
BRIEF_ROWS, BRIEF_COLUMNS, BRIEF_PAIRS = 4_000, 200, 1_000  # limits for a report; its pairs: in drawn rows
ROWS_OF_BIN = 20  # for two numeric columns, on average
SEED = 1


@dataclass(frozen=True, eq=False)  # arrays do not compare to a single bool
class PairCheck:
    """Mutual information of pairs of columns in nats: table (P,), in training rows; drawn (draws, P), in as many rows
    of each draw. sure (P,): True if chance hardly gives as much in the table. pairs: their names. n_all: number of
    pairs considered, of which only these can be weaker. left_out: number of columns not considered; n_bins: of
    numbers."""

    pairs: Sequence[tuple[str, str]]
    table: np.ndarray
    drawn: np.ndarray
    sure: np.ndarray
    n_all: int
    n_rows: int
    n_bins: int
    left_out: int = 0

    @property
    def judged(self) -> bool:
        """True if there are enough draws to assess chance."""
        return len(self.drawn) >= FEWEST_DRAWS

    def named(self, i: int) -> str:
        """Name a pair."""
        return " with ".join(self.pairs[i])

    @cached_property
    def run(self) -> np.ndarray:
        """Mean over draws, (P,)."""
        mean: np.ndarray = self.drawn.mean(axis=0)
        return mean

    @property
    def weaker(self) -> np.ndarray:
        """Loss of information of each pair in the run, (P,)."""
        loss: np.ndarray = self.table - self.run
        return loss

    def clear(self, least: float = LEAST) -> np.ndarray:
        """Places of the pairs that are certainly weaker, by at least `least` nats, in order of their loss."""
        if not self.judged:
            return np.zeros(0, np.intp)
        result = self.sure & (self.weaker >= np.maximum(least, DEVIATIONS * self.drawn.std(axis=0, ddof=1)))
        places: np.ndarray = self.order[result[self.order]]
        return places

    @property
    def order(self) -> np.ndarray:
        """All places, in order of decreasing loss."""
        return np.argsort(-self.weaker, kind="stable")


def complete(columns: Sequence[Column]) -> list[Column]:
    """Columns whose cells are fully observed, not bounded."""
    return [c for c in columns if c.kind != "survival"]


def check(asking: Asking, columns: Sequence[Column], briefly: bool = False) -> PairCheck:
    """Compare pairs of columns, except survival columns, whose rows are censored only in the table. Raises ConfigError
    if the model draws no rows. Collective."""
    asking.require("pairs")
    columns = complete(columns)
    asked = columns[:: -(-len(columns) // BRIEF_COLUMNS)] if briefly else columns
    n_pairs = len(asked) * (len(asked) - 1) // 2
    n = asking.asked.n_rows
    places = np.arange(0, n, -(-n // BRIEF_ROWS)) if briefly else asking.sample_places(ROWS)
    places = places[: max(FEWEST_ROWS, int(WORK / max(n_pairs, 1)))]
    rows = asking.asked.recorded(asking.asked.training_numbers()[places])
    cells = {c.name: cells_of(rows, c) for c in asked}
    n_bins = int(np.clip(np.sqrt(len(rows) / ROWS_OF_BIN), 3, QUANTILES))
    bins = Bins(asked, cells, n_bins)
    table = bins(cells)
    missing = table == bins.sizes - 1
    every = np.array(list(combinations(range(len(asked)), 2))).reshape(-1, 2)
    there, chance = informations(table, bins.sizes, every)
    both = (~missing).astype(np.float32).T @ (~missing).astype(np.float32)  # rows that have both cells
    # 2 n times the information of independent columns is about chi-square, of 2 n times `chance` degrees of freedom
    sure = there >= chance + DEVIATIONS * np.sqrt(chance / np.maximum(both[tuple(every.T)], 1.0))
    if briefly:
        enough = np.flatnonzero(sure & (there - chance >= LEAST))
        chosen = np.sort(enough[np.argsort(chance[enough] - there[enough], kind="stable")[:BRIEF_PAIRS]])
        every, there, sure = every[chosen], there[chosen], sure[chosen]
    step = -(-asking.averages.n_draws // TABLES)
    ids = np.arange(len(rows))

    def drawn() -> list[np.ndarray]:
        mine = slice(step * asking.comm.rank, None, step * asking.comm.size)
        result = []
        for synthesis in asking.clusters("pairs").syntheses(SEED, len(rows), {}, mine) if len(every) else ():
            with np.errstate(over="ignore"):  # a number beyond all edges is in the last interval
                cells = bins(synthesis.cells(ids, synthesis.parts(ids)))
            result.append(informations(np.where(missing, bins.sizes - 1, cells), bins.sizes, every)[0])
        return result

    of_ranks = asking.comm.collect(agree(asking.comm, drawn, "draw rows"))
    n_tables = sum(map(len, of_ranks))
    of_draws = [of_ranks[i % len(of_ranks)][i // len(of_ranks)] for i in range(n_tables)]
    names = [(asked[i].name, asked[j].name) for i, j in every]
    drawn_pairs = np.array(of_draws).reshape(n_tables, len(every))
    return PairCheck(names, there, drawn_pairs, sure, n_pairs, len(rows), n_bins, len(columns) - len(asked))


@dataclass(frozen=True, eq=False)
class Pairs(Question):
    """Every pair of columns with its mutual information in the table and in drawn rows, in order of decreasing loss.

    columns: names, all by default. Raises ConfigError if the model draws no rows, or if fewer than two columns are
    left.
    """

    columns: Sequence[str] = ()
    top: int = 20

    def answer(self, asking: Asking, rows: NewRows | None = None) -> Answer:
        asking.require("pairs")
        names = asking.conditions.names(self.columns)
        asked = complete([c for c in asking.columns if not names or c.name in names])
        if len(asked) < 2:
            raise ConfigError("one column is left: a pair has two")
        result = check(asking, asked)
        order = result.order
        first, second = np.array(result.pairs, object)[order].T
        lines = {
            "column": first, "other": second, "table": result.table[order], "run": result.run[order],
            "weaker": result.weaker[order], "p": (result.drawn >= result.table).mean(axis=0)[order],
        }  # fmt: skip
        remarks = [
            in_words(result),
            f"table, run: mutual information in nats of {counted(result.n_rows, 'training row')} and of as many rows "
            f"from each draw, numbers in {result.n_bins} intervals; p: share of the draws that have as much as the "
            "table",
        ]
        title = "Pairs of columns that are weaker in the run than in the table"
        return Answer(title, lines, remarks, shown=self.top, bars="weaker")


def in_words(check: PairCheck) -> str:
    """State how many pairs are certainly weaker."""
    if not check.judged:
        return f"{counted(len(check.drawn), 'draw')}: too few to say which differences are not by chance"
    clear = len(check.clear())
    return (
        f"{counted(clear, 'pair')} of {check.n_all:,} {'is' if clear == 1 else 'are'} weaker by {LEAST:g} nats or more "
        f"and by {DEVIATIONS:.0f} standard deviations of {len(check.drawn)} draws"
    )


def informations(bins: np.ndarray, sizes: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mutual information of pairs of columns (P, 2) in nats, (P,), from the bins (n, C) of rows that have both cells;
    and its approximate value for independent columns with as many bins. The last bin of a column is for missing
    cells."""
    result = [_information(table) for table in _tables(np.ascontiguousarray(bins.T), sizes, pairs)]
    nats, chance = np.array(result).reshape(-1, 2).T
    return nats, chance


def _tables(bins: np.ndarray, sizes: np.ndarray, pairs: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the number of rows in each pair of bins, for each pair of columns."""
    for i, j in pairs:
        n = np.bincount(bins[i] * np.int32(sizes[j]) + bins[j], minlength=sizes[i] * sizes[j])
        yield n.reshape(sizes[i], sizes[j])[:-1, :-1]


def _information(n: np.ndarray) -> tuple[float, float]:
    total = n.sum()
    if not total:
        return 0.0, 0.0
    i, j = np.nonzero(n)
    seen = n[i, j]
    rows, columns = n.sum(axis=1), n.sum(axis=0)
    alone = rows[i] * (columns[j] / total)
    chance = (np.count_nonzero(rows) - 1) * (np.count_nonzero(columns) - 1) / (2.0 * total)
    return float((seen * np.log(seen / alone)).sum() / total), chance
