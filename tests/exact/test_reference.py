"""The right cycles pass the exactness test and every wrong one fails it, on simulated shards.

This establishes what the test can detect before any of the program's code is tested.  Each right combination is
rejected with probability at most LEVEL (seeds are fixed, so the outcome is too); the measured power against each twin,
over other seeds, is in tests/exact/README.md and comes from `python -m tests.exact.full_matrix --reference`.
"""

import numpy as np
import pytest

from tests.exact.compare import judge_history, judge_joint, seed
from tests.exact.enumerate import CASES, Grids, Posterior
from tests.exact.reference import ALL, EXACT, TWINS, Reference, Scheme, Uncollapsed, contiguous, history, joint_history

LEVEL = 1e-4
PROCESS = (((0.15, 0.0), (1.0, 0.0), (6.0, 0.0), (0.3, 0.5)), np.log([1.0, 2.0, 2.0, 1.0]))
GRIDS = Grids(
    PROCESS,
    {
        "a": (tuple({"dirichlet": tuple(m * b for b in (0.5, 0.5, 1.0))} for m in (0.2, 1.0, 5.0)), np.zeros(3)),
        "b": (tuple({"dirichlet": tuple(m * b for b in (0.3, 0.7))} for m in (0.3, 3.0)), np.log([0.7, 0.3])),
    },
)


def verdict_of(name, n_shards, scheme, replicates, cycles, default_seed=20, level=LEVEL):
    case = CASES[name]
    posterior = Posterior(case)
    generator = np.random.Generator(np.random.Philox(seed(default_seed)))
    reference = Reference(case, contiguous(case.n_rows, n_shards), scheme)
    return judge_history(history(reference, posterior, replicates, cycles, generator), posterior, level)


@pytest.mark.quick(every=4)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n_shards", [1, 2, 0])
def test_one_shard_collapsed_is_exact(name, n_shards):
    n_shards = n_shards or CASES[name].n_rows
    verdict = verdict_of(name, n_shards, EXACT, 2000, 10)
    assert verdict.passed, f"{verdict} (seed {seed(20)})"


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.discount == 0])
@pytest.mark.parametrize("n_shards", [2, 0])
def test_all_shards_open_is_exact(name, n_shards):
    n_shards = n_shards or CASES[name].n_rows
    verdict = verdict_of(name, n_shards, ALL, 2000, 10)
    assert verdict.passed, f"{verdict} (seed {seed(20)})"


def test_uneven_shards_and_an_empty_one():
    case = CASES["cat6py"]
    posterior = Posterior(case)
    generator = np.random.Generator(np.random.Philox(seed(21)))
    for shard_of in ([0, 0, 0, 0, 0, 3], [2, 0, 2, 0, 2, 0], [1, 1, 1, 1, 1, 1]):
        verdict = judge_history(history(Reference(case, shard_of), posterior, 2000, 10, generator), posterior, LEVEL)
        assert verdict.passed, f"{shard_of}: {verdict} (seed {seed(21)})"


# Twin, case, shards, replicates, cycles: only where the twin differs (with one shard "no anchors" and "tail over N" are
# the right cycle: there is nothing to anchor, and the normaliser cancels).
WRONG = [
    ("no anchors", "cat6", 2, 1000, 10),
    ("no anchors", "nix5", 5, 1000, 20),
    ("nothing private", "cat6", 1, 8000, 12),
    ("nothing private", "nix5", 2, 6000, 12),
    ("tail over N", "cat6", 2, 1000, 10),
    ("tail over N", "miss6", 3, 1000, 10),
    ("tail PY(alpha, d)", "cat6py", 2, 3000, 15),
    ("published, literal", "cat6", 2, 2000, 15),
    ("published, repaired", "cat6", 2, 2000, 15),
    ("published, repaired", "cat6", 1, 8000, 12),
    ("published, all hot", "nix5", 3, 3000, 15),
]


@pytest.mark.quick(
    "no anchors-cat6-2-1000-10", "tail PY(alpha, d)-cat6py-2-3000-15", "published, repaired-cat6-2-2000-15"
)
@pytest.mark.parametrize("twin, name, n_shards, replicates, cycles", WRONG)
def test_wrong_twins_are_rejected(twin, name, n_shards, replicates, cycles):
    verdict = verdict_of(name, n_shards, TWINS[twin], replicates, cycles)
    assert not verdict.passed, str(verdict)


def test_fully_uncollapsed_sampler_is_not_exact():
    """Section 3.1 of the report, with one and with three atoms from the base measure."""
    case = CASES["nix5"]
    posterior = Posterior(case)
    for atoms in (1, 3):
        generator = np.random.Generator(np.random.Philox(seed(22)))
        verdict = judge_history(history(Uncollapsed(case, atoms), posterior, 4000, 15, generator), posterior, LEVEL)
        assert not verdict.passed, str(verdict)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "scheme, n_shards, right",
    [(EXACT, 1, True), (EXACT, 2, True), (EXACT, 6, True), (Scheme(hypers="after"), 2, False)],
)
def test_joint_law_with_hyperparameters(scheme, n_shards, right):
    """Partition with (alpha, d), and with each column's prior; a third of the level each."""
    case = CASES["cat6"]
    posterior = Posterior(case, GRIDS)
    generator = np.random.Generator(np.random.Philox(seed(23)))
    reference = Reference(case, contiguous(6, n_shards), scheme, grids=GRIDS)
    index, process, columns = joint_history(reference, posterior, 6000, 12, generator)
    verdicts = [judge_joint(index, process, posterior.process, posterior, LEVEL / 3)]
    for c, name in enumerate(("a", "b")):
        verdicts.append(judge_joint(index, columns[..., c], posterior.columns[name], posterior, LEVEL / 3))
    assert all(v.passed for v in verdicts) == right, f"{[str(v) for v in verdicts]} (seed {seed(23)})"


def test_levels_hold():
    """p-values of the right cycle are uniform: in 60 runs, at most 9 are below 0.05 (false alarm 1e-3)."""
    p = [verdict_of("nix5", 2, EXACT, 200, 4, default_seed=1000 + i).p for i in range(60)]
    assert sum(x < 0.05 for x in p) <= 9
