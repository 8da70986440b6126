"""Split and merge moves: one kind of a round alone, and wrong versions, as contexts that replace a function.

Each wrong version breaks one rule of the moves, so that the test that accepts the program must reject it.
"""

from __future__ import annotations

import contextlib
from unittest import mock

import numpy as np

from mpibayes.hpc.crosscat.moves import alike as informed_moves
from mpibayes.hpc.crosscat.moves import by_level as level_moves
from mpibayes.hpc.crosscat.moves import grouping
from mpibayes.hpc.crosscat.moves import launched as guided_moves
from mpibayes.hpc.crosscat.moves import ledger as cluster_book
from mpibayes.hpc.crosscat.moves import round as split_merge
from mpibayes.hpc.crosscat.moves.ledger import Ledger


@contextlib.contextmanager
def constants(paired=grouping.PAIRED, **values):
    """Set other constants of the moves (SCANS, SUBSET, INFORMED, INFORMED_SPLITS, ...); paired: that of the
    grouping."""
    with mock.patch.object(grouping, "PAIRED", paired), contextlib.ExitStack() as changed:
        for name, value in values.items():
            of = next(module for module in (guided_moves, informed_moves, level_moves) if hasattr(module, name))
            changed.enter_context(mock.patch.object(of, name, value))
        grouping._log_z.cache_clear()
        try:
            yield
        finally:
            grouping._log_z.cache_clear()


def guided_alone(**values):
    return constants(INFORMED=0, BY_LEVEL=0, **values)


def informed_alone(**values):
    return one_kind_alone(informed_moves.informed, **values)


@contextlib.contextmanager
def one_kind_alone(moves, **values):
    with constants(**values), mock.patch.object(split_merge, "KINDS", [moves]):
        yield


def without_q():
    """Wrong: the probability of the proposed sides is left out."""
    right = guided_moves._propose

    def propose(self, *arguments):
        labels, log_q = right(self, *arguments)
        return labels, None if log_q is None else 0.0 * log_q

    return mock.patch.object(guided_moves, "_propose", propose)


def q_of_root_alone():
    """Wrong: the probability of the proposed sides omits the other ranks' rows."""
    return _changed_q(lambda self, log_q: log_q if self.comm.rank == 0 else 0.0 * log_q)


def _changed_q(change):
    right = Ledger.sides

    def sides(self, *arguments):
        labels, log_q = right(self, *arguments)
        return labels, change(self, log_q)

    return mock.patch.object(Ledger, "sides", sides)


def without_grouping():
    """Wrong: the probability of the grouping is left out."""
    return mock.patch.object(grouping, "log_probability", lambda n_clusters, n_pairs: 0.0)


def without_seeds():
    """Wrong: the seeds' probability is left out: m (m - 1) / (2 m_a m_b). For guided moves only."""
    right = Ledger.log_parts

    def log_parts(self, one, two, both):
        return right(self, one, two, both) - np.log(both.size * (both.size - 1.0) / (2.0 * one.size * two.size))

    return mock.patch.object(Ledger, "log_parts", log_parts)


def clusters_of_the_start():
    """Wrong: the prior's factor alpha + K d uses the K at the start of the round, for every group. For guided moves
    only."""
    right = Ledger.log_opening
    return mock.patch.object(Ledger, "log_opening", lambda self, n_before: right(self, self.n_labels))


def launch_from_the_split():
    """Wrong: the launch of a pair starts from its present clusters. For one shard."""
    right, launch, z = guided_moves._seeded, guided_moves._launch, []

    def launched(ledger, *arguments):
        z[:] = ledger.z
        return launch(ledger, *arguments)

    def seeded(p, seeds, *more):
        label, now = right(p, seeds, *more), z[0][p.at]
        cluster = dict(zip(p.ids.tolist(), now.tolist()))
        for g, (i, j) in enumerate(seeds.tolist()):
            if cluster[i] != cluster[j]:
                label[now == cluster[i]], label[now == cluster[j]] = 2 * g, 2 * g + 1
        return label

    return mock.patch.multiple(guided_moves, _launch=launched, _seeded=seeded)


def order_of_labels():
    """Wrong: groups are accepted in the order of the drawn grouping, that of labels."""
    return mock.patch.object(guided_moves, "_order", lambda seeds: np.flatnonzero(seeds[:, 0] >= 0))


def without_urn():
    """Wrong: the probability of the urn split is left out."""
    return mock.patch.object(informed_moves, "_log_urn", lambda m_a, m_b: 0.0)


def urn_twice_at_first():
    """Wrong: before the rest has sides, a merge is rejected if twice the log probability of the urn would reject it."""
    recall, all_sides = informed_moves._recall, informed_moves._all_sides

    def doubled(*arguments):
        recalled = recall(*arguments)
        return recalled._replace(log_urn=2.0 * recalled.log_urn)

    def right_after(ledger, pair, recalled, step):
        return all_sides(ledger, pair, recalled._replace(log_urn=0.5 * recalled.log_urn), step)

    return mock.patch.multiple(informed_moves, _recall=doubled, _all_sides=right_after)


def without_q_of_the_rest():
    """Wrong: informed steps leave out the probability of the sides of rows that are not recalled."""
    return _changed_q(lambda self, log_q: 0.0 * log_q)


def odds_from_all_rows():
    """Wrong: an informed merge finds the odds of a batch from the sides of all rows, not only of earlier batches.

    A split, whose later sides are not drawn yet, is proposed as it is.
    """
    right = informed_moves._running

    def running(ledger, earlier, new):
        sums = right(ledger, earlier, new)
        return sums.take([len(sums) - 2, len(sums) - 1] * (len(sums) // 2))

    return mock.patch.object(informed_moves, "_running", running)


def _choices(log_choice):
    """Informed steps with another probability of the chosen partner, (N,), by log weights (N, K) and partners (N,)."""
    changed = contextlib.ExitStack()
    for module in (cluster_book, informed_moves):
        changed.enter_context(mock.patch.object(module, "log_choice", log_choice))
    return changed


def without_choice():
    """Wrong: the probability of the partner chosen for an informed merge is left out."""
    return _choices(lambda weights, chosen: np.zeros(len(chosen)))


def uniform_choice():
    """Wrong: the partner of an informed merge is scored as if chosen uniformly."""
    return _choices(lambda weights, chosen: np.full(len(chosen), -np.log(weights.shape[1] - 1.0)))


def choice_of_one_side():
    """Wrong: an informed merge is scored as if proposed only from the cluster chosen first."""

    def one_side(a, b):
        return a

    one_side.reduce = np.logaddexp.reduce
    return mock.patch.object(np, "logaddexp", one_side)
