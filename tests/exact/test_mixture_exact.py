"""The program has the exact posterior, on every number of shards, and on every number of ranks the same bits.

Replicates start at exact draws of the posterior (tests/exact/compare.py says why that makes the draws independent) and
run a dozen cycles each.  Every test of a law rejects a right program with probability at most LEVEL; there are about
60, so a change of seeds raises a false alarm once in 160 times.  Seeds are fixed; MPIBAYES_TEST_SEED overrides them and
every failure prints the seed.  Wrong versions of the program's own functions must be rejected by the same tests; their
measured power is in tests/exact/README.md.

The law is tested on one rank, where cycles are cheap, for each number of shards; on 2 to 4 ranks the chain must equal
the one-rank chain bit by bit, and one law is tested there on its own.  The full matrix is
`python -m tests.exact.full_matrix`.
"""

import contextlib

import numpy as np
import pytest

from mpibayes.hpc.parallel.comm import serial, world
from tests.exact import production, wrong_cycles
from tests.exact.compare import LOOKS, judge_joint, replicate_means, seed
from tests.exact.enumerate import CASES, Grids, Posterior, expected_clusters, log_law_of_clusters
from tests.exact.on_ranks import require_the_same

LEVEL = 1e-4
CYCLES = 12
CONFIGURATIONS = [
    (name, s or case.n_rows, opening)
    for name, case in CASES.items()
    for s in (1, 2, 3, 0)
    for opening in (("one", "all") if case.discount == 0 and s != 1 else ("one",))
]
JOINT = production.Joint(
    CASES["miss6"],
    concentration=[0.1, 10.0],
    discount=[0.0, 0.8],
    columns={
        "c": {"grid": [0.2, 1.0, 4.0]},
        "x": {"mean": [-0.5, 0.8], "kappa": [0.3], "nu": [2.5], "variance": [0.3, 1.5]},
        "n": {"shape": [0.6, 2.0], "rate": [0.3, 1.0]},
    },
)

BASED = production.Joint(
    CASES["miss6"], [0.9], [0.25], {**CASES["miss6"].priors, "c": {"grid": [0.1, 6.0], "base": [0.1, 2.4, 0.5]}}
)

PROCESS = production.Joint(CASES["miss6"], [0.1, 10.0], [0.0, 0.8], columns=dict(CASES["miss6"].priors))


def verdict(comm, name, n_shards, opening, n_replicates, default_seed, looks=1):
    """The program against the enumeration; None off root."""
    posterior = Posterior(CASES[name])
    mixture = production.sampler(comm, CASES[name], n_shards, seed(default_seed), opening)
    return production.verdict(mixture, posterior, n_replicates, CYCLES, seed(default_seed) + 1, LEVEL, looks)


@pytest.mark.quick("cat6py-6-one")
@pytest.mark.parametrize("name, n_shards, opening", CONFIGURATIONS[::2])
def test_posterior_law(name, n_shards, opening):
    result = verdict(serial(), name, n_shards, opening, 50, 31)
    assert result.passed, f"{result} (seed {seed(31)})"


@pytest.mark.quick("no anchors, cat6py")
@pytest.mark.parametrize(
    "wrong, name, n_shards, n_replicates",
    [
        (wrong_cycles.no_anchors, "count5", 2, 200),
        (wrong_cycles.no_anchors, "cat6py", 6, 30),
        (lambda: wrong_cycles.tail_over_rows(6), "cat6", 2, 50),
        (lambda: wrong_cycles.tail_over_rows(6), "miss6", 3, 100),
        (wrong_cycles.heavy_new_cluster, "cat6", 2, 1200),
        # The smallest of the five errors: it takes up to 13,000 cycles.
        (wrong_cycles.nothing_private, "count5", 2, 1100),
    ],
    ids=[
        "no anchors, count5",
        "no anchors, cat6py",
        "tail over N, cat6",
        "tail over N, miss6",
        "heavy new cluster",
        "nothing private",
    ],
)
def test_wrong_programs_are_rejected(wrong, name, n_shards, n_replicates):
    """The right program passes at the size at which a wrong one is rejected; and so do, for the wrong kernel 'tail over
    N', the kernels' Python twins, which it changes."""
    with wrong():
        result = verdict(serial(), name, n_shards, "one", n_replicates, 31, LOOKS)
    assert not result.passed, str(result)
    plain = wrong not in (wrong_cycles.no_anchors, wrong_cycles.heavy_new_cluster, wrong_cycles.nothing_private)
    with wrong_cycles.plain_kernels() if plain else contextlib.nullcontext():
        result = verdict(serial(), name, n_shards, "one", result.size, 31)
    assert result.passed, f"{result} (seed {seed(31)})"


@pytest.mark.thorough
def test_every_row_moves():
    """If nothing moved, exact starts would pass: from each start some cycle changes the partition."""
    posterior = Posterior(CASES["miss6"])
    mixture = production.sampler(serial(), CASES["miss6"], 6, seed(32))
    history = production.partition_history(mixture, posterior, 50, 30, seed(33))
    assert np.all((history[:, 1:] != history[:, :-1]).any(axis=1))
    assert len(np.unique(history)) > 100


# ---- hyperparameters -------------------------------------------------------------------------------------------------


def joint_verdicts(joint, n_shards, n_replicates, context=contextlib.nullcontext, looks=1):
    with context():
        mixture = joint.sampler(serial(), n_shards, seed(34))
        return joint.verdicts(mixture, n_replicates, CYCLES, seed(35), LEVEL, looks)


@pytest.mark.quick("2")
@pytest.mark.parametrize("n_shards", [1, 2, 6])
def test_joint_law_with_hyperparameters(n_shards):
    """Partition with (alpha, d), and with the grids of a categorical, a real and a count column, all with holes."""
    result = joint_verdicts(JOINT, n_shards, 100)
    assert all(v.passed for v in result), f"{[str(v) for v in result]} (seed {seed(34)})"


@pytest.mark.quick("True")
@pytest.mark.parametrize("right", [True, False])
def test_joint_law_with_a_base(right):
    """A column whose levels have a base; with its multiplier scored as if they had none, it is rejected."""
    wrong = contextlib.nullcontext if right else wrong_cycles.scored_without_base
    result = joint_verdicts(BASED, 2, 60, wrong)
    assert all(v.passed for v in result) == right, f"{[str(v) for v in result]} (seed {seed(34)})"


@pytest.mark.thorough
def test_hyperparameters_before_weights():
    """(alpha, d) drawn after w, keeping w_*, is rejected; drawn before w it passes at that size (columns' priors
    fixed)."""
    result = joint_verdicts(PROCESS, 2, 350, wrong_cycles.hypers_after_weights, LOOKS)
    assert not result.passed, [str(v) for v in result]
    result = joint_verdicts(PROCESS, 2, result[0].size)
    assert result.passed, f"{[str(v) for v in result]} (seed {seed(34)})"


def gamma_posterior(name, shape, rate):
    """The posterior under concentration ~ Gamma(shape, rate), on 600 points spaced evenly in the logarithm."""
    points = np.geomspace(1e-4, 60.0, 600)
    return Posterior(CASES[name], Grids((tuple((a, 0.0) for a in points), shape * np.log(points) - rate * points)))


@pytest.mark.thorough
def test_escobar_west():
    """Concentration ~ Gamma(2, 1.5) (Escobar & West 1995); the test rejects a posterior under another gamma prior."""
    from dataclasses import replace

    posterior = gamma_posterior("cat6", 2.0, 1.5)
    mixture = production.sampler(serial(), CASES["cat6"], 2, seed(36), concentration={"gamma": (2.0, 1.5)})
    generator = np.random.Generator(np.random.Philox(seed(37)))
    starts = generator.choice(len(posterior.p), size=150, p=posterior.p / posterior.p.sum())
    alphas = np.array([a for a, _ in posterior.grids.process[0]])
    hypers = []
    for b in starts:
        p = posterior.process[:, b]
        hypers.append(replace(mixture.view.hyper, concentration=float(generator.choice(alphas, p=p / p.sum()))))
    tenths = alphas[np.searchsorted(np.cumsum(posterior.process.sum(axis=1)), np.arange(0.1, 0.95, 0.1))]

    def record(m, labels):
        return posterior.index(labels), int(np.searchsorted(tenths, m.view.hyper.concentration, side="left"))

    seen = np.array(production.replicates(mixture, posterior.partitions[starts], CYCLES, record, hypers))

    def joint(law):
        which = np.searchsorted(tenths, alphas, side="left")
        return np.array([law.process[which == t].sum(axis=0) for t in range(len(tenths) + 1)])

    result = judge_joint(seen[..., 0], seen[..., 1], joint(posterior), posterior, LEVEL)
    assert result.passed, f"{result} (seed {seed(36)})"
    other = gamma_posterior("cat6", 2.0, 1.0)
    assert not judge_joint(seen[..., 0], seen[..., 1], joint(other), other, LEVEL).passed


# ---- ranks -----------------------------------------------------------------------------------------------------------


@pytest.mark.quick("a third", ranks=(2, 4))
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("third", range(3), ids=["a third", "another", "the last"])
def test_same_bits_on_every_number_of_ranks(third):
    """Labels and hyperparameters after every cycle equal those of one process, for every case, cut and opening."""
    generator = np.random.Generator(np.random.Philox(seed(38)))
    for name, n_shards, opening in CONFIGURATIONS[third::6]:
        case = CASES[name]
        starts = Posterior(case).draw(generator, 2)

        def digest(where, case=case, n_shards=n_shards, opening=opening, starts=starts):
            return production.digest(production.sampler(where, case, n_shards, seed(39), opening), starts, 4)

        require_the_same(digest, name, n_shards, opening, seed(39))
    for n_shards in (2, 6):
        starts, hypers = JOINT.draw(generator, 2, JOINT.sampler(serial(), n_shards, 0).view.hyper)

        def joint(where, n_shards=n_shards, starts=starts, hypers=hypers):
            return production.digest(JOINT.sampler(where, n_shards, seed(39)), starts, 4, hypers)

        require_the_same(joint, "joint", n_shards, seed(39))


@pytest.mark.quick("cat6py-6-one", ranks=2)
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name, n_shards, opening", [("cat6py", 6, "one"), ("nix5", 4, "all")])
def test_posterior_law_on_ranks(name, n_shards, opening):
    """The law on real ranks; as many replicates reject a program without anchors (next test)."""
    comm = world()
    result = comm.share(verdict(comm, name, n_shards, opening, 25, 40))
    assert result.passed, f"{result} (seed {seed(40)})"


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_no_anchors_on_ranks_is_rejected():
    comm = world()
    with wrong_cycles.no_anchors():
        result = verdict(comm, "cat6py", 6, "one", 25, 40)
    result = comm.share(result)
    assert not result.passed, str(result)


# ---- the law of K without likelihood ---------------------------------------------------------------------------------


def clusters_verdict(comm, n_rows, alpha, d, n_shards, opening, n_replicates, cycles, default_seed):
    """(p, text) of a t-test of E[K] and one of P(K = its mode), with Bonferroni, on root; None elsewhere."""
    case = production.prior_case(n_rows, alpha, d)
    mixture = production.sampler(comm, case, n_shards, seed(default_seed), opening, likelihood=False)
    k = production.prior_history(mixture, alpha, d, n_replicates, cycles, seed(default_seed) + 1)
    if k is None:
        return None
    law = np.exp(log_law_of_clusters(n_rows, alpha, d))
    mode = int(law.argmax()) + 1
    means = np.column_stack([k.mean(axis=1), (k <= mode).mean(axis=1)])
    exact = np.array([expected_clusters(n_rows, alpha, d), law[:mode].sum()])
    # Scaled to (0, 1) for replicate_means, which leaves rare events out.
    scale = np.array([2.0 * exact[0], 1.0])
    p, z = replicate_means(means / scale, exact / scale)
    text = f"N {n_rows}, alpha {alpha}, d {d}, S {n_shards} {opening}: E[K] {k.mean():.3f}, exact {exact[0]:.3f}, z {z}"
    return float(min(1.0, 2.0 * p.min())), text


PRIOR_LAWS = [
    (2.0, 0.0, "one", 1), (2.0, 0.0, "all", 4), (2.0, 0.0, "one", 16), (1.0, 0.3, "one", 16), (-0.2, 0.5, "one", 4),
]  # fmt: skip


@pytest.mark.quick("2.0-0.0-all-4")
@pytest.mark.parametrize("alpha, d, opening, n_shards", PRIOR_LAWS)
def test_number_of_clusters_without_likelihood(alpha, d, opening, n_shards):
    p, text = clusters_verdict(serial(), 60, alpha, d, n_shards, opening, 24, 20, 41)
    assert p >= LEVEL, f"{text} (seed {seed(41)})"


def test_number_of_clusters_rejects_wrong_programs():
    for wrong in (wrong_cycles.no_anchors, lambda: wrong_cycles.tail_over_rows(60)):
        with wrong():
            p, text = clusters_verdict(serial(), 60, 2.0, 0.0, 4, "one", 12, 20, 41)
        assert p < LEVEL, text


@pytest.mark.quick("60-2.0-0.0-one-20-12")
@pytest.mark.mpi(size=4)
@pytest.mark.parametrize(
    "n_rows, alpha, d, opening, n_replicates, cycles",
    [
        (60, 2.0, 0.0, "one", 20, 12),
        (2000, 2.0, 0.0, "all", 20, 8),
        (2000, 1.0, 0.3, "one", 20, 8),
    ],
)
def test_number_of_clusters_on_four_ranks(n_rows, alpha, d, opening, n_replicates, cycles):
    comm = world()
    result = comm.share(clusters_verdict(comm, n_rows, alpha, d, 4, opening, n_replicates, cycles, 42))
    assert result[0] >= LEVEL, f"{result[1]} (seed {seed(42)})"
