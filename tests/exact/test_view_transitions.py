"""Scans and moves of views leave the posterior invariant: exactly, as matrices (tests/exact/view_transitions.py).

No false alarms: the error of a right program is rounding, that of a wrong one far larger. A test by draws, which
rejects a right program with probability at most LEVEL, checks that proposals have the program's claimed probabilities.
"""

import contextlib
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat.columns import proposal, sides
from mpibayes.hpc.crosscat.columns.proposal import Proposal
from mpibayes.hpc.crosscat.columns.split_merge import Move
from mpibayes.hpc.parallel.streams import Purpose
from tests.exact import view_transitions as views
from tests.exact.compare import chi_square, seed
from tests.exact.enumerate import partitions
from tests.exact.test_columns import not_retired, not_shared

LEVEL = 1e-4
ROUNDING = 1e-12
PLAIN = 1e-4  # smallest error of a wrong program


def change_of_moves(name, core, n_shards=2, cycle=1):
    """Total variation between the posterior and its image under a move. core: rows that shape proposals and sides."""
    with views.cores(core):
        of = views.Views(name, n_shards, cycle, seed(141))
        return of.error(of.matrix(views.moved, views.moves))


def change_of_scans(name, auxiliary):
    of = views.Views(name)
    return of.error(of.matrix(views.scanned, views.scans(auxiliary)))


@pytest.mark.quick("least-1-3")
@pytest.mark.parametrize(
    "name, core, cycle", [("three", 1, 1), ("three", 100, 2), ("two", 1, 1), ("two", 2, 2), ("least", 1, 3)]
)
def test_moves_of_views_keep_the_posterior(name, core, cycle):
    """For this cycle's keyed words."""
    assert change_of_moves(name, core, cycle=cycle) < ROUNDING


@pytest.mark.parametrize("name, auxiliary", [("three", 1), ("two", 1), ("least", 2)])
def test_scans_keep_the_posterior(name, auxiliary):
    assert change_of_scans(name, auxiliary) < ROUNDING


# ---- wrong programs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [not_retired, not_shared])
def test_wrong_scans_are_rejected(wrong):
    with wrong():
        assert change_of_scans("least", 2) > PLAIN


def without_sides():
    """Wrong: sides are accepted as if all were equally likely to be proposed."""
    return mock.patch.object(sides, "log_q", lambda *_: 0.0)


def without_choice_of_roles():
    """Wrong: the choice of the view that keeps its rows in a merge is scored as a fair coin's."""
    right = Move._log_choices

    def wrong(self, whole, cut, n_a, n_b, *rest):
        return right(self, whole, cut, n_a, n_b, *rest) - np.log(2.0 * n_a**2 / (n_a**2 + n_b**2))

    return mock.patch.object(Move, "_log_choices", wrong)


def columns_not_counted():
    """Wrong: splits are accepted as if there were always one way to choose a view."""
    right = Move._log_choices

    def wrong(self, whole, cut, n_a, n_b, ways, n_labels):
        return right(self, whole, cut, n_a, n_b, n_labels, n_labels)

    return mock.patch.object(Move, "_log_choices", wrong)


def any_pair():
    """Wrong: merges prefer alike views, and are accepted as if they chose any pair."""
    right = views.split_merge.alike.log_probabilities

    def wrong(self, labels, a, b):
        return -np.log(len(labels) * (len(labels) - 1) / 2.0)

    def pair(self, u):
        labels = self._sampled_labels([view.z for view in self.views])
        result = views.split_merge.alike.draw(right(labels), u)
        return result, wrong(self, labels, *result)

    changed = contextlib.ExitStack()
    changed.enter_context(mock.patch.object(Move, "_log_pair", wrong))
    changed.enter_context(mock.patch.object(Move, "_pair", pair))
    return changed


class LaunchFromTheState:
    """Wrong: the launch of a proposal is the present partition of the columns."""

    def __enter__(self):
        right_proposal, right_core, right_seats = Move._proposal, Proposal.core_to, Proposal.seat

        def _proposal(move, units, role):
            result = right_proposal(move, units, role)
            result.present = move.views[move.where[units[0]]].z
            return result

        def core_to(self, rank, given):
            self.names = self._at(self.present, self._core, rank)
            return right_core(self, rank, given)

        def seat(self, core):
            def sweep(rows, launch, *_):
                launch[:] = self.names[core.order]

            with mock.patch.object(proposal.kernels, "sweep", sweep):
                return right_seats(self, core)

        self.changed = [
            mock.patch.object(Move, "_proposal", _proposal),
            mock.patch.object(Proposal, "core_to", core_to),
            mock.patch.object(Proposal, "seat", seat),
        ]
        for each in self.changed:
            each.start()

    def __exit__(self, *_):
        for each in self.changed:
            each.stop()


@pytest.mark.quick("LaunchFromTheState-least-100")
@pytest.mark.parametrize(
    "wrong, name, core",
    [
        (LaunchFromTheState, "least", 100),
        (without_sides, "three", 100),
        (without_choice_of_roles, "three", 100),
        (columns_not_counted, "three", 100),
        (any_pair, "three", 100),
    ],
)
def test_wrong_moves_are_rejected(wrong, name, core):
    with wrong():
        assert change_of_moves(name, core) > PLAIN


# ---- draws of proposals ----------------------------------------------------------------------------------------------


def p_of_draws(core, cycle, n_draws, boost=None):
    """p-value of Pearson's test that partitions for two columns on four rows are drawn with probability q. boost: value
    of BOOST used in log q."""
    with views.cores(core):
        of = views.Views("cc4x3", 2, cycle, seed(142))
        of.chain.start("one")
        of.chain.cycles = cycle
        proposed, generator = Move(of.chain, 0)._proposal(np.array([0, 2]), 1), np.random.default_rng(seed(142))
        everything = partitions(of.chain.n_rows)
        with mock.patch.object(proposal, "BOOST", proposal.BOOST if boost is None else boost):
            p = np.exp([proposed.log_q(of.labels(z)) for z in everything])
        assert abs(p.sum() - 1.0) < views.KERNELS

        keyed = Proposal._uniforms

        def uniforms(self, shard, purpose, at):
            return generator.random(len(at)) if purpose == Purpose.TAKEN else keyed(self, shard, purpose, at)

        number = {tuple(z): i for i, z in enumerate(everything.tolist())}
        drawn = []
        with (
            mock.patch.object(Proposal, "_uniforms", uniforms),
            mock.patch.object(Proposal, "_coins", lambda self, n, purpose: generator.random(n)),
        ):
            for _ in range(n_draws):
                first = {}
                z = np.concatenate(proposed.draw().z).tolist()
                drawn.append(number[tuple(first.setdefault(k, len(first)) for k in z)])
    return chi_square(np.array(drawn), p / p.sum())


@pytest.mark.quick("2-2")
@pytest.mark.parametrize("core, cycle", [(2, 1), (2, 2), (2, 3), (100, 1)])
def test_proposals_are_drawn_with_probability_q(core, cycle):
    """Two of four rows in the core on average; the remaining rows come in batches, or late."""
    assert p_of_draws(core, cycle, 500) >= LEVEL


@pytest.mark.thorough
def test_another_boost_of_proposals_is_rejected():
    assert p_of_draws(2, 2, 500, boost=0.0) < LEVEL
