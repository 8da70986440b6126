"""The split and merge moves leave the posterior invariant: exactly, as matrices, and by draws.

*Matrices.*  On tables of four rows every random decision of the program's own moves is enumerated
(tests/exact/transitions.py), so that "posterior times transition matrix = posterior" is checked to rounding error.  No
false alarms; a wrong version of the program shows by a difference far above rounding.

*Draws.*  Replicates that start at exact draws, as in test_mixture_exact.py, also test the random streams.  Each test of
a law rejects a right program with probability at most LEVEL; there are about 60, so that a change of seeds raises a
false alarm once in 160 times.  Seeds are fixed; MPIBAYES_TEST_SEED overrides them.  Measured power of the tests against
wrong versions is in tests/exact/README.md.
"""

import contextlib
from collections import Counter
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat.moves import alike as informed_moves
from mpibayes.hpc.crosscat.moves import grouping
from mpibayes.hpc.crosscat.moves import launched as guided_moves
from mpibayes.hpc.crosscat.moves import ledger as cluster_book
from mpibayes.hpc.crosscat.moves import round as round_of_moves
from mpibayes.hpc.crosscat.moves import scans as launch_scans
from mpibayes.hpc.parallel import streams
from mpibayes.hpc.parallel.comm import serial, world
from tests.exact import production, transitions, wrong_moves
from tests.exact.compare import LOOKS, chi_square, replicate_means, seed
from tests.exact.enumerate import CASES, Posterior, expected_clusters, log_law_of_clusters
from tests.exact.on_ranks import require_the_same
from tests.exact.test_mixture_exact import CONFIGURATIONS, JOINT

LEVEL = 1e-4
CYCLES = 12
ROUNDING = 1e-12
# Four rows of each case; the others are idle, as in a subsample.
FOUR_ROWS = {"cat6": (1, 3), "cat6py": (1, 3), "cat6neg": (0, 4), "nix5": (2,), "count5": (0,), "miss6": (0, 1)}
SHARDS = list(zip(FOUR_ROWS, (1, 2, 3, 5, 4, 6)))
EVEN = {"paired": 2.0}  # merges are proposed about as often as splits
OFTEN = {"INFORMED": 4, "INFORMED_SPLITS": 0.5}  # informed splits as often as merges
FEW = {"FIRST_ROWS": 1.0, "GROWTH": 2.0}  # informed steps recall a row or two, and draw the sides of two batches
NONE = {"FIRST_ROWS": 1e-6, "GROWTH": 1e3}  # three batches, of which the first has the first row alone


def change(name, move, n_shards=1, cycle=1, **settings):
    """Total variation between the posterior and its image under one move."""
    moves = transitions.Moves(CASES[name], n_shards, FOUR_ROWS[name], cycle, seed(50), **settings)
    return moves.error(moves.matrix(move))


# ---- matrices --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_clusters", range(1, 8))
def test_law_of_groupings(n_clusters):
    """Each grouping is drawn with its claimed probability, and these sum to one."""
    law = Counter()
    for p, drawn in transitions.outcomes(lambda tape: grouping.draw(n_clusters, transitions.Stream(tape))):
        assert sorted(set(drawn.ravel().tolist())) == list(range(n_clusters))
        law[tuple(sorted(tuple(sorted(g)) for g in drawn.tolist()))] += p
    assert len(law) == [1, 1, 2, 4, 10, 26, 76, 232][n_clusters]
    assert abs(sum(law.values()) - 1.0) < ROUNDING
    for groups, p in law.items():
        n_pairs = sum(a != b for a, b in groups)
        assert abs(np.log(p) - grouping.log_probability(n_clusters, n_pairs)) < ROUNDING


@pytest.mark.quick("cat6-1-1-values0", "cat6py-2-2-values3")
@pytest.mark.parametrize(
    "name, n_shards, cycle, values",
    [(name, n_shards, 1, {}) for name, n_shards in SHARDS[::2]]
    + [(name, n_shards, 2, {"SUBSET": 2}) for name, n_shards in SHARDS[1::2]]
    + [("cat6py", 2, 3, {"CELLS": 1, **EVEN}), ("miss6", 6, 4, {"CELLS": 1, **EVEN})],  # one group of each grouping
)
def test_guided_moves_keep_the_posterior(name, n_shards, cycle, values):
    """For the launch's keyed words of this cycle; rows outside the sample are ignored."""
    with wrong_moves.constants(**values):
        assert change(name, transitions.guided, n_shards, cycle) < ROUNDING


RECALLED = [{"DOUBT": 0.0}, {"INFORMED_SPLITS": 0.5}, FEW, NONE]


@pytest.mark.quick("cat6-1-values0")
@pytest.mark.parametrize(
    "name, n_shards, values", [(*of, RECALLED[i % 4]) for i, of in enumerate([*SHARDS, *SHARDS[::-1]])]
)
def test_informed_moves_keep_the_posterior(name, n_shards, values):
    """Recall all sides, or few and draw the others in batches, chosen by the keyed words of a cycle."""
    for cycle in (1, 2, 3) if values in (FEW, NONE) else (1,):
        with wrong_moves.constants(**values):
            assert change(name, transitions.informed, n_shards, cycle) < ROUNDING


@pytest.mark.parametrize("move", [transitions.guided, transitions.informed])
def test_moves_keep_the_prior(move):
    """Without likelihood, guided sides depend only on the sizes of the launch's sides."""
    assert change("cat6py", move, 2, likelihood=False) < ROUNDING


@pytest.mark.long
@pytest.mark.parametrize("name", FOUR_ROWS)
def test_moves_keep_the_posterior_of_five_rows(name):
    moves = transitions.Moves(CASES[name], 2, FOUR_ROWS[name][1:], 3, seed(50))
    for move in (transitions.guided, transitions.informed):
        assert moves.error(moves.matrix(move)) < ROUNDING


@pytest.mark.quick("clusters_of_the_start-cat6py-guided-values4", "choice_of_one_side-miss6-informed-values12")
@pytest.mark.parametrize(
    "wrong, name, move, values",
    [
        (wrong_moves.without_q, "cat6", transitions.guided, {}),
        (wrong_moves.without_grouping, "cat6py", transitions.guided, {}),
        (wrong_moves.without_seeds, "nix5", transitions.guided, {}),
        (wrong_moves.launch_from_the_split, "nix5", transitions.guided, {"SCANS": 0}),
        # Tests by draws would need some 10^5 rounds to detect these two.
        (wrong_moves.clusters_of_the_start, "cat6py", transitions.guided, {}),
        (wrong_moves.order_of_labels, "cat6", transitions.guided, {}),
        (wrong_moves.without_urn, "cat6", transitions.informed, {}),
        (wrong_moves.urn_twice_at_first, "cat6", transitions.informed, {}),
        (wrong_moves.without_q_of_the_rest, "count5", transitions.informed, FEW),
        (wrong_moves.odds_from_all_rows, "cat6", transitions.informed, FEW),
        (wrong_moves.without_choice, "count5", transitions.informed, {}),
        (wrong_moves.uniform_choice, "nix5", transitions.informed, {}),
        (wrong_moves.choice_of_one_side, "miss6", transitions.informed, {}),
    ],
)
def test_wrong_moves_do_not_keep_the_posterior(wrong, name, move, values):
    """An error of 10^-4 is 10^8 times rounding error; most are above 10^-3 (tests/exact/README.md)."""
    with wrong_moves.constants(**values):
        assert change(name, move) < ROUNDING
        with wrong():
            assert change(name, move) > 1e-4


@pytest.mark.quick("nix5-5-2")
@pytest.mark.parametrize("name, n_shards, subset", [("cat6", 1, 1000), ("miss6", 2, 1000), ("nix5", 5, 2)])
def test_launch_does_not_look_at_the_split(name, n_shards, subset):
    """All ways to have a table's rows in one cluster, or in two with the seeds separated, launch with the same odds."""
    moves, result, n_splits = transitions.Moves(CASES[name], n_shards), {}, Counter()
    with wrong_moves.constants(SUBSET=subset):
        for number, z in enumerate(moves.partitions):
            k = int(z.max()) + 1
            for i in range(len(z)) if k <= 2 else ():
                for j in range(i + 1, len(z)):
                    if k == 1 or z[i] != z[j]:
                        start = moves.ledger_of(number)
                        odds = guided_moves._launch(
                            start, np.array([[0, k - 1]]), np.zeros(k, np.int32), np.array([[i, j]])
                        )
                        result.setdefault((i, j), set()).add(b"".join(a.tobytes() for a in vars(odds).values()))
                        n_splits[i, j] += 1
    assert set(map(len, result.values())) == {1} and len({*map(frozenset, result.values())}) > 5
    assert set(n_splits.values()) == {1 + 2 ** (moves.n_rows - 2)}


def test_no_stream_has_two_uses():
    """In a round every named stream is opened in one place, and a row's words of one stream serve one purpose."""
    moves = transitions.Moves(CASES["cat6"], 2, likelihood=False)
    opened, words = Counter(), Counter()
    right = {name: getattr(cluster_book.kernels, name) for name in ("words", "two_least", "sides")}

    def generator(purpose, sub=0, **key):
        opened[purpose, sub] += 1
        return streams.generator(purpose=purpose, sub=sub, **key)

    def counted(name):
        def call(*arguments, purpose, sub, **key):
            words[name, purpose, sub] += 1
            return right[name](*arguments, purpose=purpose, sub=sub, **key)

        return call

    recall = cluster_book.kernels.recall

    def recalled(*arguments, sub, **key):
        for purpose in (streams.Purpose.RECALLED, streams.Purpose.DEALT):
            words["recall", purpose, sub] += 1
        return recall(*arguments, sub=sub, **key)

    class Packed(launch_scans.kernels.Packed):
        def draw(self, purpose, sub, **key):
            words["scans", purpose, sub] += 1
            super().draw(purpose=purpose, sub=sub, **key)

    with (
        wrong_moves.constants(INFORMED_SPLITS=1.0 - 1e-9, SUBSET=2),
        mock.patch.object(launch_scans.kernels, "Packed", Packed),
        mock.patch.object(guided_moves, "generator", generator),
        mock.patch.object(informed_moves, "generator", generator),
        mock.patch.multiple(cluster_book.kernels, **{name: counted(name) for name in right}),
        mock.patch.object(cluster_book.kernels, "recall", recalled),
    ):
        for number in (0, 40, 100):
            opened.clear(), words.clear()
            round_of_moves.run(moves.ledger_of(number))
            assert max(opened.values()) == 1
            assert sum(name == "scans" for name, *_ in words) == 2 * (moves.n_rows > 0)
            assert sum(purpose == streams.Purpose.INFORMED for purpose, _ in opened) == 1 + informed_moves.INFORMED
            of_rows = Counter((purpose, sub) for _, purpose, sub in words)
            assert max(of_rows.values()) == 1 and max(words.values()) <= 2 and not of_rows.keys() & opened.keys()


# ---- draws: the moves alone ------------------------------------------------------------------------------------------


def alone(comm, name, n_shards, n_replicates, default_seed, looks=1):
    """Compare rounds of moves without sweeps with the enumeration; None off root."""
    posterior = Posterior(CASES[name])
    mixture = production.sampler(
        comm, CASES[name], n_shards, seed(default_seed), kind=production.MovesAlone, split_merge=1
    )
    return production.verdict(mixture, posterior, n_replicates, CYCLES, seed(default_seed) + 1, LEVEL, looks)


PARTS = {
    "guided": lambda: wrong_moves.guided_alone(SCANS=3, **EVEN),
    "guided, subset of 2": lambda: wrong_moves.guided_alone(SCANS=3, SUBSET=2, **EVEN),
    "informed": lambda: wrong_moves.informed_alone(**OFTEN),
    "informed, two recalled": lambda: wrong_moves.informed_alone(**OFTEN, **FEW),
    "guided, no scans": lambda: wrong_moves.guided_alone(SCANS=0, **EVEN),
}


@pytest.mark.quick("cat6py-2-guided")
@pytest.mark.parametrize(
    "name, n_shards, part",
    [(*of, ("guided", "informed")[i % 2]) for i, of in enumerate(SHARDS)]
    + [("cat6", 1, "informed"), ("cat6py", 2, "guided"), ("miss6", 2, "guided, subset of 2")]
    + [("cat6", 1, "guided, no scans"), ("cat6", 2, "informed, two recalled")],
)
def test_law_of_moves_alone(name, n_shards, part):
    with PARTS[part]():
        result = alone(serial(), name, n_shards, 60, 51)
    assert result.passed, f"{result} (seed {seed(51)})"


@pytest.mark.quick("cat6py-2")
@pytest.mark.parametrize("name, n_shards", [("cat6py", 2), ("miss6", 6)])
def test_law_of_rounds(name, n_shards):
    """Both kinds of move, with the program's own constants."""
    result = alone(serial(), name, n_shards, 25, 52)
    assert result.passed, f"{result} (seed {seed(52)})"


WRONG = [
    (wrong_moves.without_q, "cat6", "guided", 40),
    (wrong_moves.without_grouping, "cat6py", "guided", 60),
    (wrong_moves.without_seeds, "cat6", "guided", 250),
    (wrong_moves.launch_from_the_split, "cat6", "guided, no scans", 120),
    (wrong_moves.without_urn, "cat6", "informed", 20),
    (wrong_moves.without_q_of_the_rest, "cat6", "informed, two recalled", 60),
    (wrong_moves.without_choice, "cat6", "informed", 250),
    (wrong_moves.uniform_choice, "miss6", "informed", 300),
    (wrong_moves.choice_of_one_side, "miss6", "informed", 80),
]


@pytest.mark.quick("without_q-cat6-guided-40", "without_urn-cat6-informed-20")
@pytest.mark.parametrize("wrong, name, part, n_replicates", WRONG)
def test_wrong_moves_are_rejected(wrong, name, part, n_replicates):
    """The right moves pass at the size at which wrong ones are rejected."""
    with PARTS[part]():
        with wrong():
            result = alone(serial(), name, 1, n_replicates, 51, LOOKS)
        assert not result.passed, str(result)
        result = alone(serial(), name, 1, result.size, 51)
        assert result.passed, f"{result} (seed {seed(51)})"


def test_moves_do_not_depend_on_the_number_of_shards():
    """On tables without real columns, whose moments depend in the last bit on the order of summation."""
    for name in ("cat6py", "count5"):
        case = CASES[name]
        starts = Posterior(case).draw(np.random.Generator(np.random.Philox(seed(53))), 2)
        result = set()
        for n_shards in (1, 2, case.n_rows):
            mixture = production.sampler(serial(), case, n_shards, seed(54), kind=production.MovesAlone, split_merge=1)
            with wrong_moves.constants(SUBSET=3, **OFTEN, **FEW):
                result.add(production.digest(mixture, starts, 6))
        assert len(result) == 1, (name, seed(54))


@pytest.mark.thorough
def test_moves_reach_every_partition():
    """A thinned chain of only moves from one cluster visits all 203 partitions, in their proportions."""
    posterior = Posterior(CASES["cat6"])
    mixture = production.sampler(serial(), CASES["cat6"], 1, seed(55), kind=production.MovesAlone, split_merge=1)
    production.place(mixture, np.zeros(6, int), 0)
    index = []
    with wrong_moves.constants(SCANS=2, **EVEN, **OFTEN):
        for _ in range(2500):
            mixture.cycle()
            index.append(posterior.index(mixture.view.labels()))
    assert posterior.p[np.unique(index)].sum() > 0.98
    assert chi_square(np.array(index[100::20]), posterior.p) >= LEVEL, seed(55)


# ---- draws: whole cycles ---------------------------------------------------------------------------------------------


def cycles(comm, name, n_shards, opening, n_replicates, n_cycles, default_seed):
    posterior = Posterior(CASES[name])
    mixture = production.sampler(comm, CASES[name], n_shards, seed(default_seed), opening, split_merge=1)
    return production.verdict(mixture, posterior, n_replicates, n_cycles, seed(default_seed) + 1, LEVEL)


@pytest.mark.quick("cat6py-2-one")
@pytest.mark.parametrize("name, n_shards, opening", CONFIGURATIONS[::4])
def test_posterior_law(name, n_shards, opening):
    with wrong_moves.constants(INFORMED=2, INFORMED_SPLITS=0.25, SCANS=3):
        result = cycles(serial(), name, n_shards, opening, 40, 5, 56)
    assert result.passed, f"{result} (seed {seed(56)})"


@pytest.mark.thorough
def test_joint_law_with_hyperparameters():
    mixture = JOINT.sampler(serial(), 2, seed(57), split_merge=1)
    with wrong_moves.constants(INFORMED=2, INFORMED_SPLITS=0.25, SCANS=3):
        result = JOINT.judge(JOINT.history(mixture, 100, 8, seed(58)), LEVEL)
    assert all(v.passed for v in result), f"{[str(v) for v in result]} (seed {seed(57)})"


def clusters_verdict(comm, n_rows, alpha, d, n_shards, n_replicates, n_cycles, default_seed):
    """(p, text) of t-tests of E[K] and of P(K <= its mode) without likelihood, on root; None elsewhere."""
    case = production.prior_case(n_rows, alpha, d)
    mixture = production.sampler(comm, case, n_shards, seed(default_seed), likelihood=False, split_merge=1)
    k = production.prior_history(mixture, alpha, d, n_replicates, n_cycles, seed(default_seed) + 1)
    if k is None:
        return None
    law = np.exp(log_law_of_clusters(n_rows, alpha, d))
    mode = int(law.argmax()) + 1
    means = np.column_stack([k.mean(axis=1) / (2.0 * expected_clusters(n_rows, alpha, d)), (k <= mode).mean(axis=1)])
    p, z = replicate_means(means, np.array([0.5, law[:mode].sum()]))
    return float(min(1.0, 2.0 * p.min())), f"N {n_rows}, alpha {alpha}, d {d}, S {n_shards}: E[K] {k.mean():.3f}, z {z}"


@pytest.mark.thorough
@pytest.mark.parametrize("n_shards, alpha, d", [(1, 2.0, 0.0), (4, 1.0, 0.3), (16, -0.2, 0.5)])
def test_number_of_clusters_without_likelihood(n_shards, alpha, d):
    p, text = clusters_verdict(serial(), 60, alpha, d, n_shards, 40, 12, 59)
    assert p >= LEVEL, f"{text} (seed {seed(59)})"


@pytest.mark.quick("without_grouping-guided")
@pytest.mark.parametrize(
    "wrong, part", [(wrong_moves.without_grouping, "guided"), (wrong_moves.without_urn, "informed")]
)
def test_number_of_clusters_rejects_wrong_moves(wrong, part):
    with PARTS[part](), wrong():
        p, text = clusters_verdict(serial(), 60, 2.0, 0.0, 1, 20, 12, 59)
    assert p < LEVEL, text


# ---- ranks -----------------------------------------------------------------------------------------------------------


@pytest.mark.quick("a third", ranks=(2, 4))
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("third", range(3), ids=["a third", "another", "the last"])
def test_same_bits_on_every_number_of_ranks(third):
    """Labels and hyperparameters after every cycle with moves equal those of one process, for every case and cut."""
    generator = np.random.Generator(np.random.Philox(seed(60)))
    with wrong_moves.constants(SCANS=2, SUBSET=3, **OFTEN, **FEW):
        for name, n_shards, opening in CONFIGURATIONS[third::6]:
            starts = Posterior(CASES[name]).draw(generator, 1)

            def digest(where, name=name, n_shards=n_shards, opening=opening, starts=starts):
                mixture = production.sampler(where, CASES[name], n_shards, seed(61), opening, split_merge=1)
                return production.digest(mixture, starts, 3)

            require_the_same(digest, name, n_shards, opening, seed(61))
        starts, hypers = JOINT.draw(generator, 1, JOINT.sampler(serial(), 6, 0).view.hyper)
        require_the_same(
            lambda of: production.digest(JOINT.sampler(of, 6, seed(61), split_merge=1), starts, 3, hypers), "joint"
        )


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi
def test_steps_are_weighed_once_and_again_behind_a_change():
    """Each step is weighed by one rank, for the current clusters; all ranks receive its result."""
    comm = world()
    mixture, weighed, result = production.sampler(comm, CASES["cat6"], 6, seed(65)), [], []
    mixture.start(np.array([0, 0, 1, 1, 2, 2]))
    ledger = cluster_book.Ledger(mixture.view, 1)

    def weigh(ledger, steps):
        weighed.extend((step, ledger.n_labels) for step in steps)
        return [(step, ledger.n_labels) if step in (2, 5) else None for step in steps]

    for step, numbers in ledger.steps(np.arange(8) == 4, weigh):
        result.append((step, *numbers[:2]))
        if step == 2:
            ledger.join(0, 1)
    assert result == [(2, 2, 3), (4,), (5, 5, 2)]
    assert ledger.tally.merges_tried == 5
    everywhere = sorted(pair for each in comm.collect(weighed) for pair in each)
    assert everywhere == sorted([(step, 3) for step in range(8) if step != 4] + [(step, 2) for step in (3, 5, 6, 7)])


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_bits_differ_where_a_part_of_q_is_lost():
    comm = world()
    starts = Posterior(CASES["cat6"]).draw(np.random.Generator(np.random.Philox(seed(60))), 4)
    with wrong_moves.guided_alone(SCANS=0, **EVEN), wrong_moves.q_of_root_alone():
        result = [
            production.digest(
                production.sampler(where, CASES["cat6"], 6, seed(61), kind=production.MovesAlone, split_merge=1),
                starts,
                12,
            )
            for where in (comm, *([serial()] if comm.rank == 0 else []))
        ]
    assert comm.share(result[0] != result[-1])


@pytest.mark.thorough
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("wrong", [None, wrong_moves.without_q], ids=["right", "without q"])
def test_law_of_moves_on_ranks(wrong):
    """The law of guided moves on real ranks; as many replicates reject moves without q."""
    comm = world()
    with wrong_moves.guided_alone(SCANS=0, **EVEN), wrong() if wrong else contextlib.nullcontext():
        result = alone(comm, "cat6", 6, 30, 62)
    result = comm.share(result)
    assert result.passed == (wrong is None), f"{result} (seed {seed(62)})"


@pytest.mark.thorough
@pytest.mark.mpi(min_size=2)
def test_posterior_law_on_ranks():
    comm = world()
    with wrong_moves.constants(SCANS=1, **OFTEN):
        result = cycles(comm, "miss6", 6, "one", 24, 5, 63)
    result = comm.share(result)
    assert result.passed, f"{result} (seed {seed(63)})"


@pytest.mark.quick("1.0-0.3")
@pytest.mark.mpi(size=4)
@pytest.mark.parametrize("alpha, d", [(2.0, 0.0), (1.0, 0.3)])
def test_number_of_clusters_on_four_ranks(alpha, d):
    comm = world()
    with wrong_moves.constants(SCANS=2, INFORMED=2, INFORMED_SPLITS=0.25):
        result = comm.share(clusters_verdict(comm, 2000, alpha, d, 4, 15, 3, 64))
    assert result[0] >= LEVEL, f"{result[1]} (seed {seed(64)})"
