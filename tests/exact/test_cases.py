"""A pattern that counts w has the posterior of w equal rows (docs/weights.md), by enumeration, and on three ranks the
bits of one. A weight that is a power of the likelihood, and one draw for all equal rows, are rejected.

Each test of a law rejects a right program with probability at most LEVEL (tests/exact/compare.py); there are three.
"""

import contextlib
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.io.ingest import import_table
from mpibayes.kernels import mixture as kernels
from tests.exact import production
from tests.exact.compare import judge_history, seed
from tests.exact.enumerate import Case, Posterior, log_eppf, log_marginal

LEVEL, CYCLES, REPLICATES = 1e-4, 12, 60
PATTERNS = "a,b,n\nu,x,4\nv,y,2\n"  # three shards of two equal rows
PRIORS = {"a": {"dirichlet": (0.5, 0.8)}, "b": {"dirichlet": (0.3, 0.7)}}
CASE = Case(
    "cases",
    (
        ("a", "categorical", (0, 0, 0, 0, 1, 1), ("u", "v")),
        ("b", "categorical", (0, 0, 0, 0, 1, 1), ("x", "y")),
    ),
    PRIORS,
    1.5,
    0.2,
)


def sampler(comm, folder, n_shards):
    """The program on a table of patterns, imported on root."""
    path = folder / "counted.h5"
    (folder / "counted.csv").write_text(PATTERNS)
    table = import_table(folder / "counted.csv", path, count="n", kinds=dict.fromkeys("ab", "categorical")).table
    settings = Settings(
        seed=seed(71), shards=n_shards, concentration=CASE.concentration, discount=CASE.discount, priors=PRIORS,
        split_merge=0,
    )  # fmt: skip
    assert table.n_rows == CASE.n_rows == 4 + 2
    return Mixture(comm, table.columns, table.read, table.n_rows, settings)


def verdict(mixture):
    return production.verdict(mixture, Posterior(CASE), REPLICATES, CYCLES, seed(72), LEVEL)


@pytest.mark.parametrize("n_shards", [1, 3])
def test_w_copies(n_shards, tmp_path):
    result = verdict(sampler(serial(), tmp_path, n_shards))
    assert result.passed, f"{result} (seed {seed(71)})"


def test_one_draw_for_equal_rows_is_rejected(tmp_path):
    """Equal rows of a shard without a tail all take the label that the first one draws."""
    sweep = kernels.sweep

    def wrong(rows, z, row0, *args, **options):
        moved = sweep(rows, z, row0, *args, **options)
        if args[5] is None:
            z[1:] = z[0]
        return moved

    with mock.patch.object(kernels, "sweep", wrong), contextlib.suppress(FloatingPointError):
        result = verdict(sampler(serial(), tmp_path, 3))
        assert not result.passed, str(result)


def test_weights_as_powers_are_rejected():
    """Two rows with their likelihoods to the powers 4 and 2: exact draws of that law, in the form of histories."""
    of_rows = {name: np.array(values, float) for name, _, values, _ in CASE.columns}
    law = []
    for sizes, blocks in (((2,), [slice(0, 6)]), ((1, 1), [slice(0, 4), slice(4, 6)])):
        log_p = log_eppf(np.array(sizes), CASE.concentration, CASE.discount)
        for part in blocks:
            log_p += sum(log_marginal("categorical", x[part].astype(int), PRIORS[name]) for name, x in of_rows.items())
        law.append(float(log_p))
    apart = 1.0 / (1.0 + np.exp(law[0] - law[1]))
    draws = np.random.Generator(np.random.Philox(seed(73))).random((REPLICATES, CYCLES, 1)) < apart
    labels = np.where(draws, [0, 0, 0, 0, 1, 1], 0)
    posterior = Posterior(CASE)
    result = judge_history(posterior.index(labels), posterior, LEVEL)
    assert not result.passed, str(result)


@pytest.mark.mpi(min_size=2)
def test_same_bits_on_ranks(tmp_path):
    comm = world()
    starts = Posterior(CASE).draw(np.random.Generator(np.random.Philox(seed(74))), 3)
    together = production.digest(sampler(comm, tmp_path, 3), starts, 6)
    (tmp_path / "alone").mkdir()
    alone = production.digest(sampler(serial(), tmp_path / "alone", 3), starts, 6) if comm.rank == 0 else None
    assert comm.share(together) == comm.share(alone)
