"""The kernels of features and their twin in plain Python decide alike on random small shards.

`make test` runs this with the widest vectors that the processor has; every width gives the same bits (test_isa.py), and
`test_every_width` says so of these very shards.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mpibayes.kernels.common.machine import ISA
from mpibayes.kernels.ibp import features as compiled
from mpibayes.kernels.ibp import twin
from tests.kernels.test_isa import WIDTHS

ROOT = Path(__file__).parents[2]
# rows, columns, instantiated features, features of the tail, mean number of births
SHARDS = {
    "nothing": (5, 2, 0, 0, 0.4),
    "one column": (9, 1, 3, 2, 0.3),
    "as wide as a vector": (8, 8, 8, 3, 0.3),
    "a lane more": (8, 9, 9, 4, 0.2),
    "many": (14, 5, 20, 6, 0.3),
    "more than a word": (6, 3, 70, 2, 0.2),
    "no tail yet": (10, 4, 5, 0, 0.8),
    "births": (6, 3, 2, 1, 6.0),
    "without likelihood": (12, 0, 4, 3, 0.5),
}


def shard(name, module, tail=True, seed=0):
    """(rows, features, anchors, tail) for one of the two modules."""
    n, d, k, part, births = SHARDS[name]
    g = np.random.default_rng([len(name), n, d, k, seed])
    words = (k + 70) // 64
    x = np.zeros((n, d), np.float32)
    slots = g.permutation(k + 5)[:k]
    loadings = 0.8 * g.standard_normal((k, d))
    bits = g.random((n, k)) < 0.4
    noise = g.uniform(0.4, 1.5, d)
    x[...] = bits @ loadings + noise * g.standard_normal((n, d)) + 1.5 * (g.random((n, 1)) < 0.4)
    z = np.zeros((n, words), np.uint64)
    for i, s in enumerate(slots.tolist()):
        z[:, s // 64] |= bits[:, i].astype(np.uint64) << np.uint64(s % 64)
    rows = module.Rows(x, z, 1000)
    features = module.Features(slots, loadings, g.uniform(0.1, 0.9, k), noise)
    owned = g.random((n, part)) < 0.5
    owned[0] |= ~owned.any(axis=0)
    # Some features are held by an anchor with a priority in the middle: rows below it keep what they have.
    anchors = np.where(g.random(k) < 0.5, g.integers(0, 2**63, k, dtype=np.uint64) * np.uint64(2), np.uint64(0))
    tail = module.Tail(rows, features, owned, n + 7, births, 1.7, 1.3) if tail else None
    return rows, features, anchors, tail


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("name", SHARDS)
@pytest.mark.parametrize("with_tail", [False, True], ids=["free", "tail"])
def test_same_decisions(name, with_tail):
    for seed in range(3):
        (rows, features, anchors, tail), other = (shard(name, module, with_tail, seed) for module in (compiled, twin))
        for sweep in range(3):
            before = rows.z.copy()
            for r, f, a, t in ((rows, features, anchors, tail), other):
                f.sweep(r, a, 5, 3, 1, sweep, t)
            assert np.array_equal(rows.z, other[0].z)
            if SHARDS[name][2] and SHARDS[name][1] and sweep == 0:
                assert (rows.z != before).any()  # otherwise nothing was compared
            if with_tail:
                assert tail.places.tolist() == other[3].places.tolist()
                assert np.array_equal(tail.owned(), other[3].owned())


@pytest.mark.parametrize("name", [name for name, made in SHARDS.items() if made[1]])
def test_tail_after_sweeps_is_what_comes_out_afresh(name):
    """V and the means of a place have gone through thousands of updates of rank one."""
    rows, features, anchors, tail = shard(name, compiled)
    for sweep in range(200):
        features.sweep(rows, anchors, 5, 3, 1, sweep, tail)
    at, held = tail.places, tail.state()
    assert len(at)
    tail.refresh(rows, features)
    for kept, fresh in zip(held, tail.state(), strict=True):
        np.testing.assert_allclose(kept, fresh, 1e-9, 1e-9)
    # and afresh is what the definition says
    d, has = SHARDS[name][1], tail.owned().astype(float)
    residual = (
        rows.x / features.noise
        - twin.Rows(rows.x, rows.z, 0).has(features.slots.tolist())
        @ twin.Features(features.slots, *loadings_of(name), features.noise).loadings
    )
    spread = np.linalg.inv(has.T @ has + np.eye(len(at)) / 1.7)
    np.testing.assert_allclose(tail.state()[0], spread, 1e-10, 1e-12)
    np.testing.assert_allclose(tail.state()[1][:, :d], spread @ (has.T @ residual), 1e-9, 1e-10)


def loadings_of(name):
    """(loadings, weights) of a shard, as its twin has them."""
    features = shard(name, twin, tail=False)[1]
    return features.loadings * features.noise, features.weights


def test_room_for_more_features():
    """A row whose births do not fit makes the tail grow; the draw is the one that did not fit."""
    n = 40
    pairs = []
    for module in (compiled, twin):
        rows = module.Rows(np.zeros((n, 0), np.float32), np.zeros((n, 1), np.uint64), 0)
        features = module.Features(np.zeros(0, int), np.zeros((0, 0)), np.zeros(0), np.zeros(0))
        tail = module.Tail(rows, features, np.zeros((n, 0), bool), n, 4.0, 1.0, 1.0)
        features.sweep(rows, np.zeros(0, np.uint64), 5, 1, 0, 0, tail)
        pairs.append(tail)
    assert len(pairs[0].places) > 64
    assert pairs[0].places.tolist() == pairs[1].places.tolist()
    assert np.array_equal(pairs[0].owned(), pairs[1].owned())


def test_too_many_births_are_refused():
    rows, features, _, _ = shard("nothing", compiled)
    with pytest.raises(ValueError, match="a row would propose 300 new features on average"):
        compiled.Tail(rows, features, np.zeros((5, 0), bool), 12, 300.0, 1.0, 1.0)


def test_priorities_and_sums():
    for name in SHARDS:
        (rows, features, *_), other = (shard(name, module, False) for module in (compiled, twin))
        ours = rows.least_priorities(features.slots, 5, 3, 1)
        assert np.array_equal(ours, other[0].least_priorities(other[1].slots, 5, 3, 1))
        for a, b in zip(rows.tally(features.slots), other[0].tally(other[1].slots), strict=True):
            np.testing.assert_allclose(a, b, 1e-12, 1e-12)


def digest():
    """sha256 of what the kernels decide and compute."""
    total = hashlib.sha256()
    for name in SHARDS:
        rows, features, anchors, tail = shard(name, compiled)
        for sweep in range(5):
            features.sweep(rows, anchors, 5, 3, 1, sweep, tail)
            for array in (rows.z, tail.places, tail.owned(), *tail.state(), *rows.tally(features.slots)):
                total.update(np.ascontiguousarray(array).tobytes())
        free, features, anchors, _ = shard(name, compiled, False)
        features.sweep(free, anchors, 5, 3, 1, 0)
        total.update(free.z.tobytes())
    return total.hexdigest()


@pytest.mark.skipif("MPIBAYES_ISA" in os.environ, reason="an instruction set is forced")
def test_every_width():
    program = "from tests.kernels.test_ibp_twin import ISA, digest; print(ISA, digest())"
    for isa in WIDTHS[: WIDTHS.index(ISA)]:
        environment = {**os.environ, "MPIBAYES_ISA": isa, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [isa, digest()]
