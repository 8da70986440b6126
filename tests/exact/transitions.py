"""Exact transition matrices of the program's own split and merge moves on tiny tables.

Every random decision of a round is replaced by a `Tape`, which enumerates all ways the round can go, with their
probabilities. Everything computed from them (seeds, launch, q, acceptance, new labels) is the program's code. So "the
posterior is invariant" is a statement about two vectors, to rounding error, without any sampling.

Some draws remain the program's: those of the launch (subset, scans, coins). A launch is a function only of a group's
rows, its seeds and keyed words, and so the posterior has to be invariant for every fixed set of words.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest import mock

import numpy as np

from mpibayes.hpc.crosscat.moves import alike as informed_moves
from mpibayes.hpc.crosscat.moves import by_level as level_moves
from mpibayes.hpc.crosscat.moves import launched as guided_moves
from mpibayes.hpc.crosscat.moves import ledger as cluster_book
from mpibayes.hpc.crosscat.moves.ledger import Ledger
from mpibayes.hpc.parallel.comm import serial
from mpibayes.kernels.mixture import twin_split
from tests.exact import production
from tests.exact.enumerate import Posterior


class Tape:
    """Choices of one run: those on the script first, then always the first possible one."""

    def __init__(self, script):
        self.script, self.taken, self.p = list(script), [], 1.0

    def choose(self, p) -> int:
        """Choose an option's number; p: probability of each."""
        options = [i for i, q in enumerate(p) if q > 0.0]
        at = self.script[len(self.taken)] if len(self.taken) < len(self.script) else 0
        self.taken.append((at, len(options)))
        self.p *= float(p[options[at]])
        return options[at]


def outcomes(run: Callable[[Tape], object]) -> Iterator[tuple[float, object]]:
    """Yield (probability, result) of every way a run can go."""
    script: list[int] = []
    while True:
        tape = Tape(script)
        result = run(tape)
        yield tape.p, result
        taken = tape.taken
        while taken and taken[-1][0] == taken[-1][1] - 1:
            taken.pop()
        if not taken:
            return
        script = [at for at, _ in taken[:-1]] + [taken[-1][0] + 1]


class Uniform:
    """A uniform number, or its logarithm, known only through the comparisons made so far.

    Comparison with a number chooses the answer. Comparison with an array treats it as the words of rows dealt by a coin
    of this bias: a row is 1 with the probability that Polya's urn gives it after the preceding rows.
    """

    def __init__(self, tape: Tape):
        self.tape, self.low, self.high, self.dealt = tape, 0.0, 1.0, [1, 1]

    def __array_ufunc__(self, function, method, *inputs):
        if function is np.log:
            return self.log()
        assert function is np.less and inputs[1] is self
        return self.deal(len(inputs[0]))

    def __lt__(self, bound):
        cut = min(max(float(bound), self.low), self.high)
        share = (cut - self.low) / (self.high - self.low)
        below = self.tape.choose([share, 1.0 - share]) == 0
        self.low, self.high = (self.low, cut) if below else (cut, self.high)
        return below

    def __ge__(self, bound):
        return not self < bound

    def log(self):
        """Called by np.log of an array of these numbers."""
        return _LogUniform(self)

    def deal(self, n: int) -> np.ndarray:
        out = np.empty(n, bool)
        for i in range(n):
            out[i] = self.tape.choose(np.array(self.dealt) / sum(self.dealt)) == 1
            self.dealt[int(out[i])] += 1
        return out


class _LogUniform:
    def __init__(self, uniform: Uniform):
        self.uniform = uniform

    def __lt__(self, bound):
        return self.uniform < np.exp(min(0.0, float(bound)))


class Stream:
    """A generator whose numbers are choices."""

    def __init__(self, tape: Tape):
        self.tape = tape

    def random(self, n=None):
        return Uniform(self.tape) if n is None else np.array([Uniform(self.tape) for _ in range(n)], object)

    def integers(self, n):
        return self.tape.choose(np.full(n, 1.0 / n))


class Moves:
    """The program's rounds on one table, from any partition, with every decision on a tape.

    idle: rows outside the sample. The other rows have the law `p` over `partitions` (of the active rows).
    """

    def __init__(self, case, n_shards=1, idle=(), cycle=1, seed=3, **settings):
        self.active = np.setdiff1d(np.arange(case.n_rows), idle)
        columns = tuple((n, k, tuple(np.array(v)[self.active].tolist()), names) for n, k, v, names in case.columns)
        self.posterior = Posterior(replace(case, columns=columns), likelihood=settings.get("likelihood", True))
        self.p, self.partitions = self.posterior.p, self.posterior.partitions
        self.mixture = production.sampler(serial(), case, n_shards, seed, **settings)
        self.n_rows, self.cycle, self.seed = case.n_rows, cycle, seed
        self._partitions = {}

    def ledger_of(self, number: int) -> Ledger:
        """Ledger of a round from the partition with this number, before any move."""
        m, view, z = self.mixture, self.mixture.view, np.full(self.n_rows, -2, np.int32)
        z[self.active] = self.partitions[number]
        for shard, labels in zip(view.shards, view.z):
            labels[:] = z[shard.start : shard.start + len(shard)]
        if number not in self._partitions:
            view.n_labels = int(z.max()) + 1
            m.resume(self.cycle)
            self._partitions[number] = view.partition
        view.partition = self._partitions[number]
        return Ledger(view, self.cycle)

    def matrix(self, move: Callable[[Ledger, Tape], None]) -> np.ndarray:
        """Transition probabilities (B, B) of move(ledger, tape)."""
        out = np.zeros((len(self.p), len(self.p)))
        for number in range(len(self.p)):

            def run(tape, number=number):
                with taped(tape):
                    ledger = self.ledger_of(number)
                    move(ledger, tape)
                labels = np.concatenate(self.mixture.view.z)
                assert (np.delete(labels, self.active) == -2).all()
                labels = labels[self.active]
                assert np.array_equal(np.unique(labels), np.arange(ledger.n_labels))
                return int(self.posterior.index(labels))

            for p, result in outcomes(run):
                out[number, result] += p
        return out

    def error(self, matrix: np.ndarray) -> float:
        """Total variation between the posterior and its image under one step, after a check of the matrix itself."""
        assert np.abs(matrix.sum(axis=1) - 1.0).max() < 1e-10
        return 0.5 * float(np.abs(self.p @ matrix - self.p).sum())


def guided(ledger: Ledger, tape: Tape) -> None:
    guided_moves.guided(ledger)


def informed(ledger: Ledger, tape: Tape) -> None:
    """Take one step: an informed merge or split, by the program's coin."""
    splits = informed_moves.INFORMED_SPLITS
    split = tape.choose([1.0 - splits, splits])
    if split:
        informed_moves._split(ledger, 0, Stream(tape))
    elif (result := informed_moves._weigh(ledger, [0])[0]) is not None:
        informed_moves._merge(ledger, 0, *result)


def by_level(ledger: Ledger, tape: Tape) -> None:
    """Take one step: a merge or a split by a column's levels, by the program's coin."""
    splits = level_moves._splits(ledger)
    if tape.choose([1.0 - splits, splits]):
        level_moves._split(ledger, 0, Stream(tape))
    elif (result := level_moves._weigh(ledger, [0])[0]) is not None:
        level_moves._merge(ledger, *result)


@contextlib.contextmanager
def taped(tape: Tape):
    """Put the program's decisions on a tape, except those of the launch."""
    in_launch = []
    right_launch, right_seeds, right_sides = guided_moves._launch, guided_moves._seeds, Ledger.sides
    generator, right_recall = guided_moves.generator, cluster_book.kernels.recall

    def scripted_generator(purpose, **key):
        return generator(purpose=purpose, **key) if in_launch else Stream(tape)

    def launch(*arguments):
        in_launch.append(True)
        try:
            return right_launch(*arguments)
        finally:
            in_launch.pop()

    def seeds(ledger, groups):
        """Choose the two first rows of every cluster, any two in any order; a pair uses only the first one of each."""
        words = {}
        for a, b in groups:
            for k in {int(a), int(b)}:
                rows = [int(s.start + i) for s, z in zip(ledger.shards, ledger.z) for i in np.flatnonzero(z == k)]
                words |= {row: 100 + row for row in rows}
                for place in range(min(len(rows), 2 if a == b else 1)):
                    words[rows.pop(tape.choose(np.full(len(rows), 1.0 / len(rows))))] = place

        def keyed(ids, *key):
            return np.array([words.get(int(i), 999) for i in ids], np.uint64)

        with (
            mock.patch.object(twin_split, "words", keyed),
            mock.patch.object(cluster_book.kernels, "two_least", twin_split.two_least),
        ):
            return right_seeds(ledger, groups)

    def sides(self, rows, z, ids, group, given, seeds, odds, *stream):
        """Choose the last sides; the program computes q from them, as if each row were a cluster."""
        if in_launch:
            return right_sides(self, rows, z, ids, group, given, seeds, odds, *stream)
        of_row = np.where(z >= 0, group[np.maximum(z, 0)], -1).astype(np.int32)
        side = np.where(z >= 0, given[np.maximum(z, 0)], -1).astype(np.int8)
        for i in np.flatnonzero((of_row >= 0) & (side < 0)):
            if ids[i] not in seeds[of_row[i]]:
                x = twin_split.log_odds(rows, i, of_row[i], odds, self.components.categorical.offsets)
                one = np.exp(twin_split.log_logistic(x))
                side[i] = tape.choose([1.0 - one, one])
            else:
                side[i] = 0
        part = np.arange(len(z), dtype=np.int32)
        return right_sides(self, rows, part, ids, of_row, side, seeds, odds, *stream)

    def dealt(ledger, cluster, column, spread, step, stream):
        """Deal rows one by one, by an urn for each level: the distribution of the sides once a level's share is
        unknown."""
        of, urns, sides = ledger.components.categorical.columns[column], {}, []
        for shard, z in zip(ledger.shards, ledger.z):
            side = np.full(len(z), -1, np.int8)
            for i in np.flatnonzero(z == cluster):
                urn = urns.setdefault(int(getattr(shard.rows, of.block)[i, of.index]), np.full(2, spread))
                side[i] = tape.choose(urn / urn.sum())
                urn[side[i]] += 1
            sides.append(side)
        return sides

    def begin_steps(subs, n, **key):
        stream = Stream(tape)
        return stream.random(1), np.array([stream.integers(n)]), stream.random(1)

    def pick_on_grid(log_weight, u):
        weight = np.exp(log_weight[0] - log_weight[0].max())
        return np.array([tape.choose(weight / weight.sum())])

    def recall(z, row0, one, two, row, cluster, shares, bias, *more, **key):
        """Deal the recalled sides of a split by an urn."""
        by_coin = isinstance(bias, Uniform)
        given = -1.0 if by_coin else bias
        member, side, batch = right_recall(z, row0, one, two, row, cluster, shares, given, *more, **key)
        if by_coin:
            dealt = (batch == 0) & (row0 + member != row)
            side[:] = False
            side[dealt] = bias.deal(np.count_nonzero(dealt))
        return member, side, batch

    with (
        mock.patch.object(guided_moves, "generator", scripted_generator),
        mock.patch.object(cluster_book, "pick_on_grid", pick_on_grid),
        mock.patch.multiple(cluster_book.kernels, begin_steps=begin_steps, recall=recall),
        mock.patch.object(level_moves, "_dealt", dealt),
        mock.patch.object(guided_moves, "_launch", launch),
        mock.patch.object(guided_moves, "_seeds", seeds),
        mock.patch.object(Ledger, "sides", sides),
    ):
        yield
