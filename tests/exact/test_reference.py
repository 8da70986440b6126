"""The right cycles pass the exactness test and the published schemes fail it, on simulated shards.

This establishes what the test can detect before any of the program's code is tested.  Each right combination is
rejected with probability at most LEVEL (seeds are fixed, so the outcome is too); the measured power against each twin,
over other seeds, is in tests/exact/README.md and comes from `python -m tests.exact.full_matrix --reference`.
"""

import numpy as np
import pytest

from tests.exact.compare import judge_history, seed
from tests.exact.enumerate import CASES, Posterior
from tests.exact.reference import ALL, EXACT, TWINS, Reference, Uncollapsed, contiguous, history

LEVEL = 1e-4


def verdict_of(name, n_shards, scheme, replicates, cycles, default_seed=20, level=LEVEL):
    case = CASES[name]
    posterior = Posterior(case)
    generator = np.random.Generator(np.random.Philox(seed(default_seed)))
    reference = Reference(case, contiguous(case.n_rows, n_shards), scheme)
    return judge_history(history(reference, posterior, replicates, cycles, generator), posterior, level)


@pytest.mark.quick("cat6-1", "nix5-2")
@pytest.mark.parametrize("name, n_shards", [("cat6", 1), ("count5", 5), ("miss6", 2), ("cat6neg", 2), ("nix5", 2)])
def test_one_shard_collapsed_is_exact(name, n_shards):
    verdict = verdict_of(name, n_shards, EXACT, 2000, 10)
    assert verdict.passed, f"{verdict} (seed {seed(20)})"


@pytest.mark.parametrize("name, n_shards", [("cat6", 2), ("count5", 5)])
def test_all_shards_open_is_exact(name, n_shards):
    verdict = verdict_of(name, n_shards, ALL, 2000, 10)
    assert verdict.passed, f"{verdict} (seed {seed(20)})"


def test_uneven_shards_and_an_empty_one():
    case = CASES["cat6py"]
    posterior = Posterior(case)
    generator = np.random.Generator(np.random.Philox(seed(21)))
    for shard_of in ([0, 0, 0, 0, 0, 3], [2, 0, 2, 0, 2, 0], [1, 1, 1, 1, 1, 1]):
        verdict = judge_history(history(Reference(case, shard_of), posterior, 2000, 10, generator), posterior, LEVEL)
        assert verdict.passed, f"{shard_of}: {verdict} (seed {seed(21)})"


# Twin, case, shards, replicates, cycles: the tail of another process, and the published scheme. That the program
# without one of its other rules is rejected, is tested in test_mixture_exact.py.
WRONG = [
    ("tail PY(alpha, d)", "cat6py", 2, 3000, 15),
    ("published, literal", "cat6", 2, 2000, 15),
    ("published, repaired", "cat6", 2, 2000, 15),
    ("published, repaired", "cat6", 1, 8000, 12),
    ("published, all hot", "nix5", 3, 3000, 15),
]


@pytest.mark.quick("published, repaired-cat6-2-2000-15")
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


def test_levels_hold():
    """p-values of the right cycle are uniform: in 60 runs, at most 9 are below 0.05 (false alarm 1e-3)."""
    p = [verdict_of("nix5", 2, EXACT, 200, 4, default_seed=1000 + i).p for i in range(60)]
    assert sum(x < 0.05 for x in p) <= 9
