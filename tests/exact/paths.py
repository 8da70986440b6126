"""Paths of partitions whose sweeps are enumerated (hpc/crosscat/columns/powers.py, buildup.py)."""

import numpy as np

from mpibayes.hpc.crosscat.columns import powers
from mpibayes.hpc.crosscat.columns.buildup import Buildup
from mpibayes.hpc.crosscat.columns.scan import Rowwise
from tests.exact import view_transitions as views
from tests.exact.enumerate import log_eppf, partitions


class Laws:
    """Laws of the rows of a view with some columns at a power, over all partitions. directions: of the scans."""

    def __init__(self, of: views.Views, directions=(1, -1)):
        self.chain, self.directions, self.known = of.chain, directions, {}
        self.partitions = partitions(of.chain.n_rows)
        self.process = tuple(float(np.ravel(of.setup.process[name])[0]) for name in ("concentration", "discount"))
        self.log_prior = np.array([log_eppf(np.bincount(z), *self.process) for z in self.partitions])

    def rowwise(self, number):
        z = self.partitions[number]
        return Rowwise([z.astype(np.int32)], int(z.max()) + 1, self.process)

    def number(self, z):
        first = {}
        named = [first.setdefault(k, len(first)) for k in np.concatenate(z).tolist()]
        return int(np.flatnonzero((self.partitions == named).all(axis=1))[0])

    def _once(self, make, *names):
        key = make.__name__, *names
        if key not in self.known:
            self.known[key] = make(*names)
        return self.known[key]

    def score(self, names, body, power):
        """Log marginal likelihood of a body at a power, (B,)."""

        def scores(names, body, power):
            paths = [powers.Path(self.chain, self.rowwise(b), names, body, 0) for b in range(len(self.partitions))]
            return np.array([path._log_marginal(path._statistics(), power) for path in paths])

        return self._once(scores, names, body, power)

    def scans(self, names, body, power):
        """Transition probabilities of a Gibbs scan of the rows, one direction or the other, (B, B)."""

        def matrix(names, body, power):
            others = sum(self.score(names, (name,), 1.0) for name in names - set(body))
            log_p = self.log_prior + others + self.score(names, body, power)
            return scans(self.partitions, log_p, self.directions)

        return self._once(matrix, names, body, power)


class Enumerated(powers.Path):
    """The program's path with the sweeps of these laws, on a tape."""

    def __init__(self, laws, tape, start, names, body, levels):
        self.laws, self.tape, self.levels = laws, tape, levels
        self.of, self.at = (frozenset(names), tuple(body)), laws.number(start.z)

    def _statistics(self):
        return self.at

    def _log_marginal(self, at, power):
        return self.laws.score(*self.of, power)[at]

    def _sweep(self, at, power, level):
        self.at = self.tape.choose(self.laws.scans(*self.of, power)[at])

    def end(self):
        return self.laws.rowwise(self.at)


class EnumeratedBuildup(Buildup):
    """The program's path with batches and sweeps on a tape. known: what was computed of each state."""

    def __init__(self, tape, known, *of, directions=(1, -1)):
        super().__init__(*of)
        self.tape, self.known, self.directions = tape, known, directions

    def _once(self, make, *name):
        name = make.__name__, self.lane, tuple(sorted(self.components.names)), *name
        if name not in self.known:
            self.known[name] = make()
        return self.known[name]

    def _at(self, level, z):
        """Put the rows present after a batch into these clusters."""
        (mine,) = self.z
        mine[: len(z)] = z
        self.n_labels = int(z.max(initial=-1)) + 1
        return self._statistics(level)

    def _swept(self, statistics, level):
        end = self.ends[0][level]
        everything = partitions(end)

        def matrix():
            return scans(
                everything, np.array([self._log_target(self._at(level, z)) for z in everything]), self.directions
            )

        before = number(everything, self.z[0][:end])
        return self._at(level, everything[self.tape.choose(self._once(matrix, level)[before])])

    def _seat(self, statistics, level, follow):
        (first, end), start, n_labels = self._batch(level)[0], self.z[0].copy(), self.n_labels
        everything = [z for z in partitions(end) if same(z[:first], start[:first])]

        def law():
            result = []
            for z in everything:
                self._at(level, z)
                self.n_labels = self._name(level)
                before = self._statistics(level - 1) if level else None
                result.append(Buildup._seat(self, before, level, True))
            assert abs(np.logaddexp.reduce(result)) < views.KERNELS
            return np.array(result) - np.logaddexp.reduce(result)

        log_q = self._once(law, level, number(partitions(first), start[:first]))
        if follow:
            self.z[0][:], self.n_labels = start, n_labels
            return float(log_q[number(everything, start[:end])])
        chosen = self.tape.choose(np.exp(log_q))
        self._at(level, everything[chosen])
        return float(log_q[chosen])


def scans(everything, log_p, directions):
    """Transition probabilities of a Gibbs scan over rows with this law, in a random one of the directions, (B, B)."""
    p = np.exp(log_p - log_p.max())
    each = [np.eye(len(p)) for _ in directions]
    for i, direction in enumerate(directions):
        for row in range(everything.shape[1])[::direction]:
            each[i] = each[i] @ _step(everything, row, p)
    return sum(each) / len(each)


def _step(everything, row, p):
    rest = np.delete(everything, row, axis=1)
    together = (rest[:, :, None] == rest[:, None, :]).reshape(len(rest), -1)
    alike = (together[:, None] == together).all(axis=2) * p
    return alike / alike.sum(axis=1, keepdims=True)


def same(z, other):
    """True if two labellings are of the same partition."""
    return bool(((z[:, None] == z) == (other[:, None] == other)).all())


def number(everything, z):
    """Place of a partition."""
    return next(i for i, other in enumerate(everything) if same(other, z))
