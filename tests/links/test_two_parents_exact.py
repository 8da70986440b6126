"""Partitions, and missing cells of a parent, have their exact joint posterior where a number, by its bins, is the
second parent of one column and the first of another, on one and three shards.

Columns c and e depend on a, of which cells are missing, and on the bins of x.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.data.bins import cuts_of, most_contexts
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.gaps import Gaps
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.rows import Column
from mpibayes.io.table import table_from_arrays
from tests.exact.enumerate import log_eppf, partitions
from tests.links.enumerate import Number
from tests.links.states import require_the_same_on_ranks

ERRORS = 5.0  # of 32 batches: 12 statistics, so about one false alarm in 4,000 seeds
BETA, ALPHA, D, NORMAL = 0.5, 1.0, 0.25, (0.0, 0.5, 2.0, 0.5)
X, CUTS = np.array([-1.2, 0.3, 1.4, -0.8, 0.9, 0.4]), (-0.5, 0.8)
A, C, E = [0, -1, 1, 1, -1, 0], [0, 1, 0, 1, 0, 1], [0, 1, -1, 1, 1, 1]
PAIRS = list(itertools.combinations(range(len(X)), 2))
CYCLES, BATCHES = 1_600, 32


def log_evidence(x, group) -> float:
    """Log evidence of cells of two levels with separate probabilities in each group; -1 for a missing one."""
    total = 0.0
    for g in set(group):
        n = np.bincount([v for v, of in zip(x, group) if of == g and v >= 0], minlength=2)
        total += float(gammaln(2 * BETA) - gammaln(2 * BETA + n.sum()) + (gammaln(BETA + n) - gammaln(BETA)).sum())
    return total


def truth() -> np.ndarray:
    """Probabilities that pairs of rows are together, and that missing cells of a have its second level."""
    bins, holes = np.searchsorted(CUTS, X), [i for i, v in enumerate(A) if v < 0]
    number, log_p, events = Number(X, CUTS, NORMAL), [], []
    for z in partitions(len(X)):
        log_prior = log_eppf(np.bincount(z), ALPHA, D) + number.log_evidence(z)
        for levels in itertools.product(range(2), repeat=len(holes)):
            a = np.array(A)
            a[holes] = levels
            both = list(zip(z.tolist(), a.tolist(), bins.tolist()))
            of_levels = log_evidence(a, z.tolist()) + log_evidence(C, both) + log_evidence(E, both)
            log_p.append(log_prior + of_levels)
            events.append([*(z[i] == z[j] for i, j in PAIRS), *levels])
    return np.exp(np.array(log_p) - logsumexp(log_p)) @ np.array(events, float)


def sampler(comm, seed: int, n_shards: int) -> Mixture:
    cells = [("a", "boolean", np.array(A), ("0", "1")), ("x", "real", X, None)]
    cells += [(name, "boolean", np.array(of), ("0", "1")) for name, of in (("c", C), ("e", E))]
    columns, rows = table_from_arrays(cells)
    second = {"c": "x", "e": "a"}
    columns = [replace(c, second=second.get(c.name, ""), cuts=CUTS if c.name == "x" else ()) for c in columns]
    priors = {name: {"dirichlet": [BETA, BETA]} for name in "ace"}
    priors["x"] = dict(zip(("mean", "kappa", "nu", "variance"), NORMAL))
    settings = Settings(
        seed=seed, shards=n_shards, concentration=ALPHA, discount=D, links={"c": "a", "e": "x"}, priors=priors,
        split_merge=4,
    )  # fmt: skip
    mixture = Mixture(comm, columns, lambda first, end: rows.take(np.arange(first, end)), len(X), settings)
    mixture.start("one")
    return mixture


def records(comm, cycles: int, seed: int = 3, n_shards: int = 1):
    """Yield the events of `truth` after each cycle on root, None elsewhere."""
    mixture = sampler(comm, seed, n_shards)
    for _ in range(cycles):
        mixture.cycle()
        z, levels = mixture.view.labels(), mixture.linking.gap_levels()
        yield None if comm.rank else [*(z[i] == z[j] for i, j in PAIRS), *levels]


def off(events) -> float:
    """Return the largest error of the shares of the events, over what it may be."""
    seen = np.array(list(events), float)[CYCLES // 16 :]
    batches = seen[: len(seen) // BATCHES * BATCHES].reshape(BATCHES, -1, seen.shape[1]).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(BATCHES)
    return float((np.abs(batches.mean(axis=0) - truth()) / (ERRORS * error + 1e-9)).max())


@pytest.mark.thorough
@pytest.mark.parametrize("n_shards", [1, 3])
def test_joint_law_of_rows_and_missing_parents(n_shards):
    assert off(records(serial(), CYCLES, n_shards=n_shards)) < 1.0


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_same_states_on_every_number_of_ranks():
    require_the_same_on_ranks(lambda comm, n: ([of] for of in records(comm, 30, n_shards=n) if of is not None), [(3,)])


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", ["ignored", "first"])
def test_wrong_programs_are_rejected(wrong, monkeypatch):
    """Contexts that ignore the second parent, and missing cells that are drawn in the number's first bin."""
    if wrong == "ignored":
        monkeypatch.setattr(Coding, "crossed", lambda self, place, contexts: contexts[0])
    else:
        of = Gaps._crossed

        def first_bin(self, rows, child, c, at, contexts):
            in_bins = of(self, rows, child, c, at, contexts)
            return in_bins // 3 * 3 if self.coding.second[child] == 1 else in_bins % 2

        monkeypatch.setattr(Gaps, "_crossed", first_bin)
    assert off(records(serial(), CYCLES)) > 1.0


def test_bins_leave_at_most_32_pairs():
    """A second parent has fewer bins beside a first one of many levels; of two numbers the first keeps its eight."""
    levels = {"a": 6, "b": 2, "wide": 40}
    columns = [Column(name, "categorical", "codes8", 0, tuple(map(str, range(n)))) for name, n in levels.items()]
    columns += [Column(name, "real", "reals", 0) for name in "xyz"] + [Column("t", "real", "reals", 0, atoms=(0.0,))]

    def most(*pairs):
        return most_contexts(columns, pairs)

    assert most(("a", "x")) == {"x": 5} and most(("x", "a")) == {"x": 5}
    assert most(("b", "x"), ("a", "x")) == {"x": 5} and most(("b", "x")) == {"x": 8}
    assert most(("x", "y")) == {"x": 8, "y": 4} and most(("x", "y"), ("y", "z")) == {"x": 8, "y": 4, "z": 8}
    assert most(("wide", "x")) == {"x": 1} and most(("b", "t")) == {"t": 9} and most(("a", "t")) == {"t": 5}
    x = np.arange(100.0)
    assert [len(cuts_of(columns[3], x, n)) for n in (8, 5, 2, 1)] == [7, 4, 1, 0]
