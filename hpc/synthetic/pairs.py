"""Pairs of columns that depend on each other more in the table than in rows that the run draws: a posterior predictive
check (Gelman, Meng & Stern 1996).

Inside a cluster columns are independent, unless they are in a block or linked, so that a pair which no clusters carry
comes out weaker wherever the run stands in for the table: in filled-in cells, synthetic rows and answers. The mutual
information of each pair is taken from training rows and from as many rows of each of some kept draws, in the same bins.
A drawn row lacks the cells that a training row lacks, so that both sums are over as many cells, and their bias is the
same.

A report looks `briefly`: at fewer rows, and in drawn rows only at pairs that the table says most about, since no pair
can be weaker by more than it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.parallel.comm import agree
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.new_rows import NewRows
from mpibayes.hpc.query.question import Question
from mpibayes.hpc.synthetic.bins import QUANTILES, Bins
from mpibayes.hpc.synthetic.training import cells_of
from mpibayes.io.rows import Column
from mpibayes.text import counted

TABLES, FEWEST_DRAWS = 20, 5  # of drawn rows, at most, each of a kept draw; draws that tell what is chance
ROWS, FEWEST_ROWS = 20_000, 2_000  # of each, fewer where there are many pairs of columns
WORK = 2e8  # rows times pairs of columns
LEAST, DEVIATIONS = 0.01, 4.0  # nats, and deviations of the draws, by which a pair has to be weaker to be counted
STRONG = 0.05  # nats: a pair that is weaker by less is hardly missed
BRIEF_ROWS, BRIEF_COLUMNS, BRIEF_PAIRS = 4_000, 200, 1_000  # of a report, at most; its pairs: in drawn rows
ROWS_OF_BIN = 20  # of two columns of numbers, on average
SEED = 1


@dataclass(frozen=True, eq=False)  # arrays have no one answer to ==
class PairCheck:
    """Mutual information of pairs of columns in nats: table (P,), in training rows; drawn (draws, P), in as many rows
    of each draw. pairs: their names. n_all: pairs that were looked at, of which these can be weaker. left_out: columns
    that were not looked at; n_bins: of numbers."""

    pairs: Sequence[tuple[str, str]]
    table: np.ndarray
    drawn: np.ndarray
    n_all: int
    n_rows: int
    n_bins: int
    left_out: int = 0

    @property
    def judged(self) -> bool:
        """True if there are draws enough to say what is chance."""
        return len(self.drawn) >= FEWEST_DRAWS

    def named(self, i: int) -> str:
        """A pair in words."""
        return " with ".join(self.pairs[i])

    @cached_property
    def run(self) -> np.ndarray:
        """The mean over draws, (P,)."""
        return self.drawn.mean(axis=0)

    @property
    def weaker(self) -> np.ndarray:
        """By how much each pair is weaker in the run, (P,)."""
        return self.table - self.run

    def clear(self, least: float = LEAST) -> np.ndarray:
        """The places of the pairs that are weaker for certain and by so many nats, the weakest in the run first."""
        if not self.judged:
            return np.zeros(0, np.intp)
        result = self.weaker >= np.maximum(least, DEVIATIONS * self.drawn.std(axis=0, ddof=1))
        return self.order[result[self.order]]

    @property
    def order(self) -> np.ndarray:
        """All places, the weakest in the run first."""
        return np.argsort(-self.weaker, kind="stable")


def complete(columns: Sequence[Column]) -> list[Column]:
    """The columns whose cells of the table are whole, not bounds of them."""
    return [c for c in columns if c.kind != "survival"]


def check(asking: Asking, columns: Sequence[Column], briefly: bool = False) -> PairCheck:
    """Compare pairs of some columns, but for survival columns, whose rows are censored in the table alone. Raises
    ConfigError where the model draws no rows. Collective."""
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
    if briefly:
        enough = np.flatnonzero(there - chance >= LEAST)
        chosen = np.sort(enough[np.argsort(chance[enough] - there[enough], kind="stable")[:BRIEF_PAIRS]])
        every, there = every[chosen], there[chosen]
    step = -(-asking.averages.n_draws // TABLES)
    ids = np.arange(len(rows))

    def drawn() -> list[np.ndarray]:
        mine = slice(step * asking.comm.rank, None, step * asking.comm.size)
        result = []
        for synthesis in asking.clusters("pairs").syntheses(SEED, len(rows), {}, mine) if len(every) else ():
            with np.errstate(over="ignore"):  # a number beyond all is in the last interval
                cells = bins(synthesis.cells(ids, synthesis.parts(ids)))
            result.append(informations(np.where(missing, bins.sizes - 1, cells), bins.sizes, every)[0])
        return result

    of_ranks = asking.comm.collect(agree(asking.comm, drawn, "draw rows"))
    n_tables = sum(map(len, of_ranks))
    of_draws = [of_ranks[i % len(of_ranks)][i // len(of_ranks)] for i in range(n_tables)]
    names = [(asked[i].name, asked[j].name) for i, j in every]
    of_draws = np.array(of_draws).reshape(n_tables, len(every))
    return PairCheck(names, there, of_draws, n_pairs, len(rows), n_bins, len(columns) - len(asked))


@dataclass(frozen=True, eq=False)
class Pairs(Question):
    """Every pair of columns with its mutual information in the table and in drawn rows, the weakest in the run first.

    columns: names, all by default. Raises ConfigError where the model draws no rows, or fewer than two columns are
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
    """Say how many pairs are weaker for certain."""
    if not check.judged:
        return f"{counted(len(check.drawn), 'draw')}: too few to say which differences are not by chance"
    clear = len(check.clear())
    return (
        f"{counted(clear, 'pair')} of {check.n_all:,} {'is' if clear == 1 else 'are'} weaker by {LEAST:g} nats or more "
        f"and by {DEVIATIONS:.0f} standard deviations of {len(check.drawn)} draws"
    )


def informations(bins: np.ndarray, sizes: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mutual information of pairs of columns (P, 2) in nats, (P,), from the bins (n, C) of rows that have both cells;
    and about what independent columns with as many bins would have. The last bin of a column is of missing cells."""
    result = [_information(table) for table in _tables(np.ascontiguousarray(bins.T), sizes, pairs)]
    return tuple(np.array(result).reshape(-1, 2).T)


def _tables(bins: np.ndarray, sizes: np.ndarray, pairs: np.ndarray) -> Iterator[np.ndarray]:
    """The number of rows in each pair of bins, for each pair of columns."""
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
