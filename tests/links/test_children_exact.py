"""Partitions and forests have their exact joint posterior where numbers may lean on columns with levels, and on each
other in lines, on any number of shards and ranks.

As tests/links/test_links_exact.py: a right program is rejected with probability at most LEVEL by each of its tests.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.lines import gaps
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays
from tests.exact.compare import LOOKS, by_looks, judge, seed
from tests.exact.enumerate import log_eppf, partitions
from tests.exact.production import STRIDE, place
from tests.links import children
from tests.links.children import ChildPosterior, Number
from tests.links.lines import log_regression
from tests.links.states import by_appearance, judged_in_parts, require_the_same_on_ranks

LEVEL, CYCLES = 1e-4, 6
X, NAN = np.array([-1.2, 0.9, 1.4, -0.7]), np.nan
FIXED = {"mean": [0.3], "kappa": [0.5], "nu": [3.0], "variance": [0.3]}
LEARNED = {"mean": [-0.5, 0.8], "kappa": [0.4], "nu": [2.0], "variance": [0.05, 0.9]}
COUNTS = {"shape": [0.5, 4.0], "rate": [0.3, 2.0]}
PLAIN = {"mean": [0.0], "kappa": [0.1], "nu": [4.0], "variance": [0.1]}
LAWS = {
    "fixed": ([[0], [1], [1], [0]], [2], 0.5, [Number(X, FIXED), Number(X + 0.3, FIXED)], 1.0, 0.0),
    "learned": (
        [[0], [1], [1], [0]], [2], 0.5,
        [Number(X, LEARNED, line=True), Number(X[[1, 0, 2, 3]], LEARNED, line=True)], 0.7, 0.25,
    ),
    "gaps": (
        [[0], [1], [-1], [0], [-1]], [2], 0.5,
        [Number(np.array([-2.2, 2.1, 2.0, -1.9, -2.1]), PLAIN), Number(np.array([NAN, 1.0, 1.2, NAN, -0.4]), LEARNED)],
        1.0, 0.0,
    ),
    "counts": (
        [[0, 1], [1, 0], [-1, 1], [0, 0]], [2, 2], 0.4, [Number(np.array([0.0, 7.0, 5.0, NAN]), COUNTS, "count")],
        1.0, 0.0,
    ),
}  # fmt: skip


@cache
def law_of(name: str) -> ChildPosterior:
    return ChildPosterior(*LAWS[name])


def judged(comm, name: str, n_shards: int, n_replicates: int, looks: int = 1, **settings):
    law = law_of(name)
    mixture = children.sampler(comm, law, n_shards, seed(91), **settings)
    replicates = children.replicates(mixture, law, n_replicates, CYCLES, seed(92))
    return judged_in_parts(replicates, lambda records: children.verdict(records, law, LEVEL), n_replicates, looks)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "n_shards"),
    [
        (name, n)
        for name, each in {"gaps": (1, 3), "learned": (1, 2), "fixed": (1, 3), "counts": (1, 2)}.items()
        for n in each
    ],
)
def test_joint_law_of_rows_and_links(name, n_shards):
    result = judged(serial(), name, n_shards, 60, split_merge=3 * (n_shards % 2))
    assert result.passed, f"{result} (seed {seed(91)})"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (children.contexts_of_other_rows, "fixed"),
        (children.sums_for_averages, "learned"),
        (children.gaps_without_numbers, "gaps"),
        (children.hyperparameters_as_they_are, "learned"),
    ],
)
def test_wrong_programs_are_rejected(wrong, name):
    with wrong():
        result = judged(serial(), name, 1, 100, LOOKS)
    assert not result.passed, str(result)


class MissingInLine:
    """Partitions of four rows where x1 leans on x0 in a line, and x0, missing in the last row, on column 0: the missing
    cell is summed out on a grid."""

    cells = np.array([0, 1, 1, 0])
    x = np.array([[-1.2, 0.9, 1.4, NAN], [-1.0, 1.1, 0.2, -0.6]]).T

    def __init__(self):
        self.partitions = partitions(4)
        points, center, scale = np.linspace(-9.0, 9.0, 241), np.nanmean(self.x[:, 0]), np.nanstd(self.x[:, 0])
        log_p = []
        for z in self.partitions:
            of_x0 = [z * 10 + self.cells == g for g in np.unique(z * 10 + self.cells)]
            of_x1 = [z == k for k in np.unique(z)]

            def scored(x0, last: bool, of_x0=of_x0, of_x1=of_x1) -> float:
                """Log evidence of the numbers in the groups that have the last row, or have it not."""
                total = 0.0
                for at in (at for at in of_x0 if at[-1] == last):
                    total += log_regression(x0[at], np.ones((at.sum(), 1)), np.array([0.5]), np.array([0.3]), 3.0, 0.3)
                for at in (at for at in of_x1 if at[-1] == last):
                    design = np.column_stack([np.ones(at.sum()), x0[at] - center])
                    prior = np.array([0.5, 0.25 * scale**2]), np.array([0.3, 0.0])
                    total += log_regression(self.x[at, 1], design, *prior, 3.0, 0.3)
                return total

            counts = [np.bincount(self.cells[at], minlength=2) for at in of_x1]
            of_cells = sum(gammaln(0.5 + n).sum() - gammaln(1.0 + n.sum()) - np.log(np.pi) for n in counts)
            each = [scored(np.append(self.x[:3, 0], v), True) for v in points]
            log_p.append(log_eppf(np.bincount(z), 1.0, 0.0) + of_cells + scored(self.x[:, 0], False) + logsumexp(each))
        self.p = np.exp(np.array(log_p) - logsumexp(log_p))


def of_missing_in_line(n_shards: int, n_replicates: int, looks: int = 1):
    law = MissingInLine()
    columns, rows = table_from_arrays(
        [("c0", "categorical", law.cells, ("a", "b")), *((f"x{j}", "real", law.x[:, j], ()) for j in range(2))]
    )
    columns = [replace(c, child=c.name == "x0", line=not c.levels) for c in columns]
    priors = {"c0": {"grid": (0.5,)}, "x0": FIXED, "x1": FIXED}
    settings = Settings(
        seed=seed(95), shards=n_shards, concentration=1.0, discount=0.0, priors=priors, split_merge=0,
        links={"x0": "c0", "x1": "x0"},
    )  # fmt: skip
    mixture = Mixture(serial(), columns, lambda start, stop: rows.take(np.arange(start, stop)), 4, settings)
    generator = np.random.Generator(np.random.Philox(seed(96)))
    number = {tuple(z): i for i, z in enumerate(law.partitions.tolist())}
    starts = generator.choice(len(law.p), size=n_replicates, p=law.p)
    pairs = [(i, j) for i in range(4) for j in range(i)]
    together = np.array([law.partitions[:, i] == law.partitions[:, j] for i, j in pairs], float)

    def more(first: int, last: int) -> list:
        result = []
        for r in range(first, last):
            place(mixture, law.partitions[starts[r]], r * STRIDE)
            seen = []
            for _ in range(14):
                mixture.cycle()
                seen.append(number[by_appearance(mixture.view.labels())])
            result.append(seen[6:])
        return result

    def judged(records: list):
        result = np.array(records)
        means = together[:, result].mean(axis=2).T
        return judge(result[:, -1], law.p, [f"rows {p}" for p in pairs], means, together @ law.p, LEVEL)

    return by_looks(more, judged, n_replicates, looks)


@pytest.mark.thorough
@pytest.mark.parametrize("n_shards", [1, 2])
def test_missing_cells_of_a_line_below_levels(n_shards):
    result = of_missing_in_line(n_shards, 150)
    assert result.passed, str(result)


@pytest.mark.thorough
def test_missing_cells_of_other_contexts_are_rejected(monkeypatch):
    right = gaps._context
    monkeypatch.setattr(gaps, "_context", lambda *of: (1 - right(*of)) * (of[2] in of[0].in_contexts))
    assert not of_missing_in_line(1, 150, LOOKS).passed


def history(comm, name: str):
    law = law_of(name)
    return children.replicates(children.sampler(comm, law, 3, seed(93), split_merge=1), law, 2, 6, seed(94))


@pytest.mark.quick(ranks=2)
@pytest.mark.mpi(min_size=2)
def test_same_states_on_every_number_of_ranks():
    require_the_same_on_ranks(history, [(name,) for name in LAWS])
