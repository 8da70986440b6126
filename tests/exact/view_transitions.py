"""Exact transition matrices of the program's scans and moves of views, on tables with a few dozen states.

As in tests/exact/transitions.py for moves of rows: every random decision is on a tape, which enumerates all ways that a
step can go. Everything computed from these is the program's code. A state is the view of each unit of columns and the
partition of the rows of each view; the laws of the views, of rows, and of columns are fixed.

For a proposed partition the tape chooses by the program's claimed probability; these have to sum to one, up to the
precision of the kernels' logarithms. A separate test checks that proposals are drawn with it. Keyed words that shape a
proposal stay as they are: the posterior has to be invariant for any set of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from unittest import mock

import numpy as np
from scipy.special import logsumexp

from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.crosscat.columns import proposal, scan, sides, split_merge
from mpibayes.hpc.crosscat.columns.proposal import Drawn, Proposal
from mpibayes.hpc.crosscat.columns.scan import Rowwise
from mpibayes.hpc.crosscat.columns.subject import Subject
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import serial
from tests.exact import crosscat, transitions
from tests.exact.enumerate import log_eppf, partitions
from tests.exact.transitions import Tape, outcomes

KERNELS = 1e-6  # tolerance for their logarithms


class Stream(transitions.Stream):
    """Stream that also yields several numbers, places without repeats, and orders."""

    def random(self, n=None):
        return super().random() if n is None else Uniforms(self.tape)

    def choice(self, n, size, replace):
        left = list(range(n))
        return np.array([left.pop(self.integers(len(left))) for _ in range(size)])

    def permutation(self, n):
        return np.arange(n)  # invariant in any order


class Uniforms:
    """Uniform numbers that are compared once."""

    def __init__(self, tape: Tape):
        self.tape = tape

    def __lt__(self, bounds):
        return np.array([self.tape.choose([p, 1.0 - p]) == 0 for p in bounds])


class Views:
    """Steps of the program on one table, from any state. cycle: selects the keyed words."""

    def __init__(self, name: str, n_shards: int = 1, cycle: int = 1, seed: int = 3):
        self.setup = crosscat.CASES[name]
        self.exact, self.cycle = self.setup.posterior, cycle
        self.chain = crosscat.sampler(serial(), name, n_shards, seed)
        self.cut = shards.bounds(self.chain.n_rows, self.chain.n_shards)

    def labels(self, z) -> list[np.ndarray]:
        """Labels of each shard."""
        return [np.asarray(z[a:b], np.int32) for a, b in zip(self.cut, self.cut[1:])]

    def matrix(self, step: Callable, tapes: Callable) -> np.ndarray:
        """Transition probabilities (S, S) of step(chain): None, or the partition of each unit, and the partitions.
        tapes(self): puts all its decisions on a tape; entered for each state, and then for each run."""
        exact, units = self.exact, self.setup.units
        out = np.zeros((len(exact.p), len(exact.p)))
        for number in range(len(exact.p)):
            now = exact.partitions[exact.rows[number]]
            crosscat.place(self.chain, units, exact.views[number].tolist(), now, self.cycle)
            with tapes(self) as taped:

                def run(tape, number=number, taped=taped):
                    taped.append(tape)
                    result = step(self.chain)
                    if result is None:
                        return number
                    chosen, drawn = result
                    return exact.number(chosen, [np.concatenate(drawn[p].z).tolist() for p in chosen])

                for p, result in outcomes(run):
                    out[number, result] += p
        return out

    def error(self, matrix: np.ndarray) -> float:
        """Total variation between the posterior and its image under one step, after a check of the matrix itself."""
        assert np.abs(matrix.sum(axis=1) - 1.0).max() < 1e-10
        return 0.5 * float(np.abs(self.exact.p @ matrix - self.exact.p).sum())


# ---- steps -----------------------------------------------------------------------------------------------------------


def moved(chain):
    return split_merge.Move(chain, 0).run()


def scanned(chain):
    return scan.scan(chain.comm, chain.views, chain.units, chain.process, chain.cycles)


@contextlib.contextmanager
def moves(of: Views):
    """Put a move's decisions on the last of these tapes."""
    tapes, known = [], {}
    everything = [of.labels(z) for z in partitions(of.chain.n_rows)]
    right_q, right_odds, right_draw = Proposal.log_q, sides.log_odds, sides.draw

    def law(self):
        name = self._sub, columns_of(self.subject)
        if name not in known:
            result = np.array([right_q(self, z) for z in everything])
            assert abs(logsumexp(result)) < KERNELS
            known[name] = result - logsumexp(result)
        return known[name]

    def log_q(self, z):
        first = {}
        named = [first.setdefault(k, len(first)) for k in np.concatenate(z).tolist()]
        return law(self)[np.flatnonzero((partitions(of.chain.n_rows) == named).all(axis=1))[0]]

    def draw(self):
        number = tapes[-1].choose(np.exp(law(self)))
        z = everything[number]
        return Drawn(z, int(np.concatenate(z).max()) + 1, law(self)[number])

    def log_odds(whole, unit_of, cut, f, g, key):
        name = tuple(whole.components.by_column(whole.hyper)), f, g
        if name not in known:
            known[name] = right_odds(whole, unit_of, cut, f, g, key)
        return known[name]

    def once(owner, name, key):
        """Compute each function of a state once."""
        right = getattr(owner, name)

        def remembered(self, *arguments):
            at = name, *key(self, *arguments)
            if at not in known:
                known[at] = right(self, *arguments)
            return known[at]

        return mock.patch.object(owner, name, remembered)

    def columns_of(subject):
        return tuple(subject.components.by_column(subject.hyper))

    def drawn_sides(p, f, g, u):
        sure = p.copy()
        sure[[f, g]] = 0.0, 1.0
        return right_draw(sure, f, g, u)

    def drawn_pair(log_p, u):
        pairs = np.argwhere(np.triu(np.ones_like(log_p), 1))
        return tuple(pairs[tapes[-1].choose(np.exp(log_p[tuple(pairs.T)]))].tolist())

    with (
        mock.patch.object(split_merge, "generator", lambda **_: Stream(tapes[-1])),
        mock.patch.object(split_merge.alike, "draw", drawn_pair),
        mock.patch.object(split_merge.Move, "_rowwise", lambda self, z, n, role: Rowwise(z, n, (1.0, 0.0))),
        mock.patch.object(Proposal, "log_q", log_q),
        mock.patch.object(split_merge, "side_by_side", lambda proposals: [draw(of) for of in proposals]),
        mock.patch.object(Proposal, "draw", draw),
        mock.patch.object(sides, "log_odds", log_odds),
        mock.patch.object(sides, "draw", drawn_sides),
        once(Mixture, "subject", lambda self, names: [tuple(names)]),
        once(split_merge.Move, "_proposal", lambda self, units, role: (*units.tolist(), "", role)),
        once(Subject, "to_root", lambda self, at, root=0: (columns_of(self), root, np.concatenate(at).tobytes())),
        once(Subject, "log_likelihood", lambda self, z, n: (columns_of(self), np.concatenate(z).tobytes())),
    ):
        yield tapes


def scans(auxiliary: int):
    """Put a scan's decisions, with so many auxiliary views, on the last of these tapes."""

    @contextlib.contextmanager
    def taped(of: Views):
        tapes, known, right = [], {}, scan.scores
        everything = partitions(of.chain.n_rows)
        law = (of.setup.process["concentration"], of.setup.process["discount"])
        prior = np.exp([log_eppf(np.bincount(z), *law) for z in everything])

        def fresh():
            z = everything[tapes[-1].choose(prior)]
            return Rowwise(of.labels(z), int(z.max()) + 1, law)

        def auxiliaries(_comm, _law, _rows, _key, numbers):
            return [fresh() for _ in numbers]

        def draw_on_grid(log_weight, stream):
            weight = np.exp(log_weight - log_weight.max())
            return tapes[-1].choose(weight / weight.sum())

        def scores(comm, views, units, asked):
            names = [tuple(np.concatenate(p.z).tolist()) for p in asked]
            new = [i for i, name in enumerate(names) if name not in known]
            if new:
                result = right(comm, views, units, [asked[i] for i in new])
                known.update((names[i], result[:, at]) for at, i in enumerate(new))
            return np.array([known[name] for name in names]).T

        with (
            mock.patch.object(scan, "generator", lambda **_: Stream(tapes[-1])),
            mock.patch.object(scan, "auxiliaries", auxiliaries),
            mock.patch.object(scan, "draw_on_grid", draw_on_grid),
            mock.patch.object(scan, "scores", scores),
            mock.patch.object(scan, "AUXILIARY", auxiliary),
        ):
            yield tapes

    return taped


# ---- what shapes proposals -------------------------------------------------------------------------------------------


def cores(rows: int):
    """Proposals whose core, and sides whose rows, are so many on average; other rows come in batches, or late."""
    changed = contextlib.ExitStack()
    changed.enter_context(mock.patch.object(proposal, "CORE", rows))
    changed.enter_context(mock.patch.object(sides, "ROWS", rows))
    return changed
