"""Steps on a view whose rows have few distinct patterns: the table of row counts by pattern and cluster is sufficient
for the partition (docs/split_merge.md).

Where cells hardly identify rows' clusters, cluster sizes vary over wide ranges, and sweeps cross these in steps of
about the square root of the number of rows. On the table a step costs next to nothing, and changes the clusters of
hundreds of equal rows. At the end the rows of each pattern are dealt to clusters anew, with the counts of the table:
given it, all assignments are equally probable. Root changes the table; ranks share sums and one broadcast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.crosscat.moves.ledger import Ledger
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels.common.functions import gammaln
from mpibayes.kernels.mixture import split as kernels
from mpibayes.kernels.mixture.shares import shares

PATTERNS = 2**11  # most patterns of a view with these steps
ALIKE = 4  # least mean number of rows per pattern
ENTRIES = 2**17  # most entries of the table
LOOK = 2**11  # first rows, which suffice to rule out most views with too many patterns
MOST_ROWS = 10**9 - 1  # limit of NumPy's hypergeometric draws
AFTER = 100  # cycles without these steps, while partitions take shape
ROWS = 512  # rows per step of a round that is not a share
STEPS = 4, 128  # least and most of these
SHARES = 1, 2**15  # shares per row, which take less than a microsecond, and most in a round
BLOCKS = 4  # of shares in a round, between the other steps
SWEEPS = 0.6  # of the other steps; the rest split and merge
AT_ONCE = 4  # most clusters of a sweep
SPREAD = (0.5, 0.05)  # b of the Beta(b, b) from which a level's share in a split is drawn


def by_pattern(ledger: Ledger) -> None:
    """Make steps on the view's table, if it is small enough. Must be the last moves of a round: the ledger's statistics
    are out of date afterwards. Collective."""
    codes = _codes(ledger) if ledger.key["cycle"] > AFTER else None
    known = None if codes is None else _patterns(ledger, codes)
    if known is None:
        return
    patterns = [np.searchsorted(known, pattern) for pattern in codes]  # values of idle rows are not used
    held = np.zeros((ledger.n_shards, len(known)), np.int64)
    counts = np.zeros((len(known), ledger.n_labels), np.int64)
    for shard, z, pattern in zip(ledger.shards, ledger.z, patterns):
        pattern, k = pattern[z >= 0], z[z >= 0]
        held[shard.index] = np.bincount(pattern, minlength=len(known))
        counts += np.bincount(pattern * ledger.n_labels + k, minlength=counts.size).reshape(counts.shape)
    ledger.comm.sum_everywhere(held)
    ledger.comm.sum_everywhere(counts)
    stream, drawn = generator(**ledger.stream(Purpose.BY_PATTERN)), None
    if ledger.comm.rank == 0:
        counts = _changed(ledger, counts, known, stream)
        drawn = counts.shape[1], deal(counts, held, stream)
    n_labels, (label, dealt) = ledger.comm.share(drawn)
    for shard, z, pattern in zip(ledger.shards, ledger.z, patterns):
        at = np.flatnonzero(z >= 0)
        words = kernels.words(shard.start + at, **ledger.stream(Purpose.DEALT_BY_PATTERN))
        z[at[np.lexsort((words, pattern[at]))]] = np.repeat(label, dealt[shard.index])
    ledger.changed, ledger.n_labels = True, n_labels


def _codes(ledger: Ledger) -> list[np.ndarray] | None:
    """Encode each row's combination of levels as an integer, for this rank's shards; return None if there are cells of
    other kinds, links, or too many patterns among the first rows. Collective."""
    components, kind = ledger.components, ledger.components.categorical
    others = sum(map(len, components.kinds)) - len(kind)
    if not len(kind) or others or kind.linked or math.prod((kind.n_levels + 1).tolist()) >= 2**62:
        return None

    def codes(rows, n: int | None) -> np.ndarray:
        out = np.zeros(len(rows) if n is None else min(n, len(rows)), np.int64)
        for column, n_levels in zip(kind.columns, kind.n_levels.tolist()):
            out *= n_levels + 1
            out += getattr(rows, column.block)[:n, column.index]
        return out

    first = [np.sort(codes(shard.rows, LOOK)) for shard in ledger.shards if shard.index == 0]
    n_patterns = sum(np.count_nonzero(np.diff(patterns, prepend=-1)) for patterns in first)
    if any(ledger.comm.collect(n_patterns > LOOK / ALIKE)):
        return None
    return [codes(shard.rows, None) for shard in ledger.shards]


def _patterns(ledger: Ledger, codes: list[np.ndarray]) -> np.ndarray | None:
    """Return the distinct codes of active rows, sorted, or None if there are too many. Collective."""
    mine = np.unique(
        np.concatenate([np.zeros(0, np.int64), *(codes_here[z >= 0] for codes_here, z in zip(codes, ledger.z))])
    )
    each = ledger.comm.collect(mine if len(mine) <= PATTERNS else None)
    n_rows = int(ledger.size.sum())
    if any(codes_here is None for codes_here in each) or n_rows > MOST_ROWS:
        return None
    known = np.unique(np.concatenate(each))
    fits = len(known) <= min(PATTERNS, n_rows / ALIKE) and len(known) * ledger.n_labels <= ENTRIES
    return known if fits else None


def _changed(ledger: Ledger, counts: np.ndarray, known: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Make the steps, on root; return the new table. known: codes of its patterns."""
    kind, hyper = ledger.components.categorical, ledger.hyper
    level = np.array(np.unravel_index(known, kind.n_levels + 1)).T + kind.offsets[:-1]
    pseudo = kind.pseudo_counts(hyper.dirichlet)
    process, most = (hyper.concentration, hyper.discount), ENTRIES // len(known)
    table = Table(counts, level, pseudo, kind.offsets[:-1], *process, most)
    rows = int(counts.sum())
    steps, n_shares = min(max(rows // ROWS, STEPS[0]), STEPS[1]), min(rows * SHARES[0], SHARES[1])
    for block in range(BLOCKS):
        table.share(stream, n_shares // BLOCKS)
        for _ in range(block, steps, BLOCKS):
            what, accepted = table.step(stream)
            if what in ("split", "merge"):
                ledger.count(what == "split", accepted)
    return table.counts


def deal(counts: np.ndarray, held: np.ndarray, stream: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Deal the rows of each pattern and cluster to the shards at random, given the table (P, K) and the shards' rows of
    each pattern, `held` (S, P).

    Returns the cluster of each nonzero entry of the table, (E,) int32, pattern by pattern, and the entry's rows in each
    shard, (S, E) int64."""
    pattern, label = np.nonzero(counts)
    dealt, left = np.zeros((len(held), len(label)), np.int64), counts[pattern, label]
    entries = [np.flatnonzero(label == k) for k in range(counts.shape[1])]
    for shard, rows in enumerate(held):
        asked, others = rows.copy(), np.bincount(pattern, left, len(rows)).astype(np.int64)
        for at in entries:
            others[pattern[at]] -= left[at]
            dealt[shard, at] = stream.hypergeometric(left[at], others[pattern[at]], asked[pattern[at]])
            asked[pattern[at]] -= dealt[shard, at]
        left -= dealt[shard]
    return label.astype(np.int32), dealt


@dataclass
class Table:
    """Rows of each pattern in each cluster, `counts` (P, K) int64, K at least 1, and the parameters of their law.

    level (P, C): place of each column's cell among all levels. pseudo (L,): pseudo-counts, 0 for missing cells.
    first (C,): place of each column's first level; its last level stands for missing cells. Steps change `counts` in
    place, and replace it when the number of clusters changes.
    """

    counts: np.ndarray
    level: np.ndarray
    pseudo: np.ndarray
    first: np.ndarray
    concentration: float
    discount: float
    most: int = 2**31  # most clusters: no later round could undo a step that made the table too large for these steps

    def __post_init__(self):
        self.level = np.ascontiguousarray(self.level, np.int64)
        self.has = np.zeros((len(self.level), len(self.pseudo)))
        self.has[np.arange(len(self.level))[:, None], self.level] = 1.0
        self.seen = self.pseudo > 0
        self.column_of = np.searchsorted(self.first, np.arange(len(self.pseudo)), side="right") - 1  # of each level
        self.column = (np.arange(len(self.first))[:, None] == self.column_of) * self.seen * 1.0  # (C, L)
        self.there = self.has @ self.column.T  # (P, C), 0 where a cell is missing
        self.total = self.column @ self.pseudo
        self.log_pseudo = gammaln(self.pseudo[self.seen])[:, None], gammaln(self.total)[:, None]
        self.rows = self.counts.sum(axis=1)
        self.first_row = np.cumsum(self.rows)  # of the next pattern

    def log_clusters(self, counts: np.ndarray) -> float:
        """Return the log posterior of clusters with these rows, (P, K), up to terms that depend on K alone."""
        levels = self.has.T @ counts
        log_levels = gammaln(self.pseudo[self.seen, None] + levels[self.seen]) - self.log_pseudo[0]
        none = gammaln(self.total[:, None] + self.column @ levels) - self.log_pseudo[1]
        return float(log_levels.sum() - none.sum() + gammaln(counts.sum(axis=0) - self.discount).sum())

    # --- steps -------------------------------------------------------------------------------------------------------

    def step(self, stream: np.random.Generator) -> tuple[str, bool]:
        """Make one step other than a share; return its kind, and True if it was accepted."""
        u = stream.random()
        if u < SWEEPS:
            return "sweep", self.sweep(stream)
        return self.split(stream) if u < 0.5 * (1.0 + SWEEPS) else self.merge(stream)

    def sweep(self, stream: np.random.Generator) -> bool:
        """Draw weights and level probabilities of a few clusters, and their rows' clusters given these. Reject if a
        cluster would lose all rows."""
        if self.counts.shape[1] < 2:
            return False
        pattern, one = self._row(stream)
        most, log_u = 1 + int(stream.integers(AT_ONCE)), np.log(stream.random())
        if most > 1:  # any others: the step keeps all rows in the chosen clusters, so the reverse choice is as probable
            others = stream.permutation(self.counts.shape[1] - 1)[: most - 1]
            chosen = np.append(one, others + (others >= one))
        else:
            chosen = np.array([one, self._another(pattern, one, stream)])
        now = self.counts[:, chosen]
        there = np.flatnonzero(now.any(axis=1))
        now, has = now[there], self.has[there]
        theta = np.full((len(self.pseudo), len(chosen)), -np.inf)
        theta[self.seen] = log_gammas((self.pseudo[:, None] + has.T @ now)[self.seen], stream)
        theta -= np.logaddexp.reduceat(theta, self.first, axis=0)[self.column_of]
        theta[~self.seen] = 0.0
        log_p = log_gammas(now.sum(axis=0) - self.discount, stream) + has @ theta
        p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
        new = stream.multinomial(now.sum(axis=1), p / p.sum(axis=1, keepdims=True))
        ratio = self._log_choice(there, new) - self._log_choice(there, now) if most == 1 else 0.0
        accepted = bool(self._kept(new) and log_u < ratio)
        if accepted:
            self.counts[there[:, None], chosen] = new
        return accepted

    def share(self, stream: np.random.Generator, n: int) -> None:
        """Propose n times to move rows of one pattern between two clusters."""
        if self.counts.shape[1] > 1:
            self.counts = np.ascontiguousarray(self.counts)
            of = self.level, self.pseudo, self.total, self.discount, self.first_row
            shares(self.counts, *of, stream.random((n, 6)))

    def split(self, stream: np.random.Generator) -> tuple[str, bool]:
        """Propose to split one cluster in two, dealing the rows of each level of a random column by a random share."""
        n_clusters = self.counts.shape[1]
        at, column = stream.integers(n_clusters), stream.integers(len(self.first))
        spread, log_u = SPREAD[stream.integers(len(SPREAD))], np.log(stream.random())
        shares, whole = stream.beta(spread, spread, len(self.pseudo)), self.counts[:, [at]]
        one = stream.binomial(whole[:, 0], shares[self.level[:, column]])
        both = np.stack([one, whole[:, 0] - one], axis=1)
        possible = self._kept(both) and n_clusters < self.most
        accepted = bool(possible and log_u < self.log_split(whole, both, n_clusters))
        if accepted:
            self.counts = np.concatenate([np.delete(self.counts, at, axis=1), both], axis=1)
        return "split", accepted

    def merge(self, stream: np.random.Generator) -> tuple[str, bool]:
        """Propose to merge two clusters."""
        n_clusters, log_u = self.counts.shape[1], np.log(stream.random())
        if n_clusters < 2:
            return "merge", False
        pair = stream.permutation(n_clusters)[:2]
        both = self.counts[:, pair]
        whole = both.sum(axis=1, keepdims=True)
        accepted = bool(log_u < -self.log_split(whole, both, n_clusters - 1))
        if accepted:
            self.counts = np.concatenate([np.delete(self.counts, pair, axis=1), whole], axis=1)
        return "merge", accepted

    def log_split(self, whole: np.ndarray, both: np.ndarray, n_before: int) -> float:
        """Return the log acceptance ratio of a split of one of n_before clusters; the merge's is its negative."""
        prior = np.log(self.concentration + n_before * self.discount) - gammaln(1.0 - self.discount)
        target = prior + self.log_clusters(both) - self.log_clusters(whole)
        return float(target - np.log(n_before + 1.0) - self.log_sides(both))

    def log_sides(self, both: np.ndarray) -> float:
        """Return the log probability that a split deals a cluster's rows to these two ordered sides."""
        levels, each = self.has.T @ both, []
        for spread in SPREAD:
            terms = _betaln(spread + levels[:, 0], spread + levels[:, 1]) - _betaln(spread, spread)
            each.append(np.add.reduceat(terms, self.first))
        return float(np.logaddexp.reduce(each, axis=None) - np.log(len(SPREAD) * len(self.first)))

    # --- parts of steps ----------------------------------------------------------------------------------------------

    def _row(self, stream: np.random.Generator) -> tuple[int, int]:
        """Draw a random row; return its pattern and cluster."""
        at = int(stream.integers(int(self.first_row[-1])))
        pattern = int(np.searchsorted(self.first_row, at, side="right"))
        below = np.cumsum(self.counts[pattern])
        return pattern, int(np.searchsorted(below, below[-1] - (self.first_row[pattern] - at), side="right"))

    def _another(self, pattern: int, one: int, stream: np.random.Generator) -> int:
        """Draw a cluster other than `one`: any, or the cluster of a random row of the pattern outside `one`."""
        rows = self.counts[pattern].copy()
        rows[one] = 0
        if stream.integers(2) and rows.any():
            return int(np.searchsorted(np.cumsum(rows), stream.integers(int(rows.sum())), side="right"))
        two = int(stream.integers(len(rows) - 1))
        return two + (two >= one)

    def _log_choice(self, pattern: int | slice, rows: np.ndarray) -> float:
        """Return the log probability (up to a constant) that `_row` and `_another` choose two clusters with these rows
        of a pattern, or of all patterns."""
        others = self.rows[pattern] - rows.T  # rows outside each of the two clusters
        alone = 1.0 / (self.counts.shape[1] - 1)
        alike = np.where(others > 0, 0.5 * alone + 0.5 * rows.T[::-1] / np.maximum(others, 1), alone)
        return float(np.log((rows.T * alike).sum()))

    def _kept(self, counts: np.ndarray) -> bool:
        """True if each of these clusters has rows."""
        return bool(counts.sum(axis=0).all())


def _betaln(a, b):
    """Return log Beta(a, b). Importing `scipy.special`, which has it, takes as long as 100 cycles of a small table."""
    return gammaln(a) + gammaln(b) - gammaln(a + b)


def log_gammas(shape: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Draw logarithms of Gamma(shape, 1) variates without underflow (docs/math.md 2.1)."""
    return np.log(stream.standard_gamma(shape + 1.0)) + np.log(stream.random(shape.shape)) / shape
