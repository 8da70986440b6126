"""The chain of features has the exact posterior, on every number of shards, and on every number of ranks the same bits.

As test_mixture_exact.py: replicates start at exact draws, so they are independent draws of the posterior however long
they run, if the program is right (tests/exact/compare.py). Every test of a law rejects a right program with probability
at most LEVEL; there are about 55 of them. Seeds are fixed; MPIBAYES_TEST_SEED overrides them, and every failure prints
the seed. Wrong versions of the program must be rejected by the same tests.

The law is tested on one rank for each number of shards; on 2 to 4 ranks the chain must equal the one-rank chain bit by
bit, and one law is tested there on its own.
"""

import numpy as np
import pytest

from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.state import Settings
from mpibayes.hpc.parallel.comm import serial, world
from tests.exact import program_ibp as program
from tests.exact.compare import LOOKS, seed
from tests.exact.ibp import CASES, draw_prior
from tests.exact.on_ranks import require_the_same

LEVEL = 1e-4
CYCLES = 8
# case, shards, opening, sweeps a cycle
CONFIGURATIONS = [
    (name, n_shards, opening, 2 if n_shards == 3 and opening == "one" else 1)
    for name, case in CASES.items()
    for n_shards in range(1, len(case.x) + 1)
    for opening in (("one", "all") if n_shards > 1 else ("one",))
]
# For each case every number of shards, with the two openings in turn.
IN_TURN = [
    (name, n_shards, opening, sweeps)
    for name, n_shards, opening, sweeps in CONFIGURATIONS
    if n_shards == 1 or (opening == "all") == ((list(CASES).index(name) + n_shards) % 2 == 0)
]


def named(configurations):
    return [pytest.param(*c, id="-".join(map(str, c))) for c in configurations]


def verdict(comm, name, n_shards, opening, sweeps, n_replicates, default_seed, cycles=CYCLES, looks=1):
    return program.verdict(
        comm, name, n_shards, opening, sweeps, n_replicates, cycles, seed(default_seed), LEVEL, looks
    )


# --- the enumeration itself -------------------------------------------------------------------------------------------


def test_enumeration_of_ibp3():
    """Against a separate program's figures (docs/math.md 6.1), which omit more than eight features."""
    law = program.law("ibp3")
    assert abs(law.log_evidence + 9.554397) < 2e-5
    of_k = np.bincount(law.k, law.p[:-1])
    np.testing.assert_allclose(of_k[:7], [0.00004, 0.265897, 0.413041, 0.226356, 0.07342, 0.017342, 0.003296], 0, 5e-6)
    shared = np.einsum("c,cij->ij", law.p[:-1], law.gram)
    rounded = [1.319274, 0.838067, 1.044554, 1.293226, 0.996269, 1.687035]
    np.testing.assert_allclose(shared[np.triu_indices(3)], rounded, 0, 5e-5)
    for columns, p in (([[1], [1], [1]], 0.201611), ([[0, 1], [0, 1], [1, 1]], 0.098484)):
        assert abs(law.p[law.index(np.array(columns))] - p) < 5e-6


@pytest.mark.parametrize("name", CASES)
def test_little_is_left_out(name):
    """Classes with the largest numbers of features are so rare that larger ones cannot show."""
    law = program.law(name)
    assert law.p[:-1][law.k == law.case.most].sum() < 1e-3
    assert abs(law.p.sum() - 1.0) < 1e-12


@pytest.mark.quick("ibp3", "learned", "own noise, one column")
@pytest.mark.parametrize("name", ["ibp3", "learned", "own noise, one column", "missing, learned"])
def test_exact_draws_have_the_law(name):
    """The replicates' starting states pass the replicates' own test."""
    law = program.law(name)
    draws = law.draw(np.random.Generator(np.random.Philox(seed(230))), 400)
    result = [law.look(*draw) for draw in draws]
    made = program.judge(
        np.array([n for n, _ in result]), law.p, law.names, np.array([e for _, e in result], float), law.expected, LEVEL
    )
    assert made.passed, f"{made} (seed {seed(230)})"


# --- the posterior ----------------------------------------------------------------------------------------------------


@pytest.mark.quick("ibp3-3-one-2", "missing, learned-3-all-1")
@pytest.mark.parametrize("name, n_shards, opening, sweeps", named(IN_TURN))
def test_posterior_law(name, n_shards, opening, sweeps):
    result = verdict(serial(), name, n_shards, opening, sweeps, 100, 231)
    assert result.passed, f"{result} (seed {seed(231)})"


# wrong program, case, shards, replicates at most, cycles
WRONG = {
    "no anchors": (program.no_anchors, "ibp3", 3, 100, 10),
    "all instantiated": (program.nothing_private, "ibp3", 1, 300, 10),
    "Beta(N - m, m + c)": (program.weights_as_printed, "ibp3", 3, 40, 8),
    "Beta(m, N - m)": (program.weights_without_concentration, "c", 3, 40, 8),
    "own row counted": (program.own_row_counted, "ibp3", 1, 60, 10),
    "odds m : N - m": (program.odds_without_concentration, "c", 1, 60, 10),
    "births added": (program.births_added, "ibp3", 1, 40, 8),
    "tail ignored": (program.tail_ignored, "ibp3", 2, 600, 15),
    "exchanges by cells alone": (program.exchanged_by_cells, "ibp3", 2, 1500, 10),
    "hyperparameters last": (program.hyperparameters_last, "far c", 2, 80, 60),
    "variances last": (program.variances_last, "wide noise", 3, 150, 8),
    # Visited in stored order, new ones last: a small error. It shows if two rows want the same two features, and later
    # cycles show it far more than the first ones after an exact start.
    "fixed order": (program.fixed_order, "two", 1, 160, 200),
}


@pytest.mark.quick("no anchors", "Beta(N - m, m + c)", "Beta(m, N - m)", "own row counted", "births added")
@pytest.mark.parametrize("wrong, name, n_shards, n_replicates, cycles", WRONG.values(), ids=WRONG)
def test_wrong_programs_are_rejected(wrong, name, n_shards, n_replicates, cycles):
    """The right program passes at the size at which a wrong one is rejected. Kernels and their plain twins, which some
    of the wrong ones change, have the same draws (tests/kernels/test_ibp_twin.py)."""
    with wrong():
        result = verdict(serial(), name, n_shards, "one", 1, n_replicates, 231, cycles, LOOKS)
    assert not result.passed, str(result)
    result = verdict(serial(), name, n_shards, "one", 1, result.size, 231, cycles)
    assert result.passed, f"{result} (seed {seed(231)})"


def test_every_row_moves():
    """If nothing moved, exact starts would pass: from each start some cycle changes the class."""
    law = program.law("missing, learned")
    starts = law.draw(np.random.Generator(np.random.Philox(seed(233))), 20)
    buffet = program.chain(serial(), law.case, 3, seed(233), sweeps=2)
    seen = program.replicates(
        buffet, starts, 30, lambda *s: (law.index(s[0]), s[1].alpha, s[1].noise_sd[0], s[2][0, 1])
    )
    moved = np.array(seen)
    assert np.all((moved[:, 1:] != moved[:, :-1]).any(axis=1))
    assert len(np.unique(moved[:, :, 0])) > 30


# --- ranks ------------------------------------------------------------------------------------------------------------


@pytest.mark.quick("a quarter", ranks=(2, 4))
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("quarter", range(4), ids=["a quarter", "another", "the third", "the last"])
def test_same_bits_on_every_number_of_ranks(quarter):
    """Features, hyperparameters and filled cells after every cycle equal those of one process."""
    for name, n_shards, opening, sweeps in CONFIGURATIONS[quarter::8]:
        law = program.law(name)
        starts = law.draw(np.random.Generator(np.random.Philox(seed(234))), 3)

        def digest(where, law=law, n_shards=n_shards, opening=opening, sweeps=sweeps, starts=starts):
            return program.digest(program.chain(where, law.case, n_shards, seed(235), opening, sweeps), starts, 5)

        require_the_same(digest, name, n_shards, opening, seed(235))


def large(where, opening):
    """Digest of a chain over 500 rows in 5 shards, with more features than a word has bits, and a few missing cells."""
    g = np.random.Generator(np.random.Philox(seed(236)))
    features = g.random((500, 70)) < 0.1
    x = features @ g.standard_normal((70, 6)) + 0.3 * g.standard_normal((500, 6))
    x[g.random(x.shape) < 0.02] = np.nan
    buffet = Buffet(where, lambda a, b: x[a:b], 500, 6, Settings(seed=3, shards=5, opening=opening, c=(0.5, 2.0)))
    filled = np.zeros_like(x)
    return program.digest(buffet, [(features, buffet.hyper, filled)], 4)


@pytest.mark.quick("one")
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("opening", ["one", "all"])
def test_same_bits_of_many_features(opening):
    require_the_same(lambda where: large(where, opening))


@pytest.mark.thorough
@pytest.mark.mpi(min_size=2)
def test_posterior_law_on_ranks():
    """The law on real ranks; as many replicates reject a program without anchors (next test)."""
    comm = world()
    result = comm.share(verdict(comm, "ibp3", 3, "one", 2, 150, 237))
    assert result.passed, f"{result} (seed {seed(237)})"


@pytest.mark.thorough
@pytest.mark.mpi(min_size=2)
def test_no_anchors_on_ranks_is_rejected():
    comm = world()
    with program.no_anchors():
        result = verdict(comm, "ibp3", 3, "one", 2, 150, 237)
    result = comm.share(result)
    assert not result.passed, str(result)


# --- without likelihood -----------------------------------------------------------------------------------------------


def prior(comm, n, alpha, c, n_shards, opening, n_replicates, cycles, default_seed):
    return program.prior_verdict(comm, n, alpha, c, n_shards, opening, n_replicates, cycles, seed(default_seed), LEVEL)


PRIORS = [
    (60, 1.5, 1.0, 1, "one", 100, 10), (60, 1.5, 1.0, 4, "one", 100, 10), (60, 1.5, 2.5, 4, "all", 100, 10),
    (60, 2.0, 0.3, 15, "one", 100, 10), (2000, 1.5, 1.0, 4, "one", 60, 5), (2000, 1.0, 4.0, 4, "all", 60, 5),
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("n, alpha, c, n_shards, opening, n_replicates, cycles", named(PRIORS))
def test_buffet_without_likelihood(n, alpha, c, n_shards, opening, n_replicates, cycles):
    """K ~ Poisson(alpha H), and numbers of features by their owners."""
    result = prior(serial(), n, alpha, c, n_shards, opening, n_replicates, cycles, 238)
    assert result.passed, f"{result} (seed {seed(238)})"


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [program.no_anchors, program.weights_as_printed])
def test_buffet_without_likelihood_rejects_wrong_programs(wrong):
    with wrong():
        result = prior(serial(), 60, 1.5, 2.5, 4, "all", 100, 10, 238)
    assert not result.passed, str(result)


@pytest.mark.quick("60-1.5-1.0-4-one-20-10")
@pytest.mark.mpi(size=4)
@pytest.mark.parametrize(
    "n, alpha, c, n_shards, opening, n_replicates, cycles",
    named([(60, 1.5, 1.0, 4, "one", 20, 10), (2000, 1.0, 2.5, 4, "all", 40, 5)]),
)
def test_buffet_without_likelihood_on_four_ranks(n, alpha, c, n_shards, opening, n_replicates, cycles):
    comm = world()
    result = comm.share(prior(comm, n, alpha, c, n_shards, opening, n_replicates, cycles, 239))
    assert result.passed, f"{result} (seed {seed(239)})"


def test_prior_draws_have_the_law():
    names, p, seen = program.prior_events(60, 1.5, 2.5)
    g = np.random.Generator(np.random.Philox(seed(240)))
    hits = np.mean([seen(draw_prior(60, 1.5, 2.5, g).sum(axis=0)) for _ in range(1000)], axis=0)
    z = (hits - p) / np.sqrt(p * (1.0 - p) / 1000)
    assert np.abs(z).max() < 4.5, f"{names[int(np.abs(z).argmax())]} (seed {seed(240)})"
