"""Tests that a sample has an exactly known distribution, with a stated false-alarm rate.

*Independent draws.*  A replicate starts at an exact draw of the posterior and runs some cycles with streams of its own.
If the cycle leaves the posterior invariant, the state after every cycle is again an exact draw, and replicates are
independent.  So (1) the final partitions are independent draws: Pearson's chi-square applies; (2) the time averages of
any event over a replicate are independent between replicates and have *exactly* the posterior's mean: it can be tested
without burn-in and without an estimate of autocorrelation (`event_means`).  A wrong sampler drifts away from the exact
start; the number of cycles is chosen so that it has the time.

*One long chain.*  The usual estimate with batch means; the run length is set by the measured autocorrelation.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import scipy


def seed(default: int) -> int:
    """Return the seed of a test: fixed, or MPIBAYES_TEST_SEED if set; assertions name it in their message."""
    return int(os.environ.get("MPIBAYES_TEST_SEED", default))


@dataclass(frozen=True)
class Verdict:
    """Outcome of a comparison: p is below `level` with at most that probability when the law is right."""

    p: float
    level: float
    tv: float
    floor: float
    p_chi_square: float
    p_summaries: float
    worst: str
    worst_z: float
    size: int

    @property
    def passed(self) -> bool:
        return self.p >= self.level

    def __str__(self) -> str:
        return (
            f"{self.size} draws: TV {self.tv:.4f} (floor {self.floor:.4f}), chi-square p {self.p_chi_square:.2g}, "
            f"worst summary {self.worst} z {self.worst_z:+.2f}, summaries p {self.p_summaries:.2g}, "
            f"overall p {self.p:.2g} against {self.level:g}"
        )


def merged(counts: np.ndarray, expected: np.ndarray, least: float = 5.0) -> tuple[np.ndarray, np.ndarray]:
    """Merge cells, rarest first, until each expects at least `least`; ordered by expectation, never by count."""
    order = np.argsort(-expected, kind="stable")
    counts, expected = counts[order].astype(float), expected[order].astype(float)
    observed_cells, expected_cells, o, e = [], [], 0.0, 0.0
    for c, x in zip(counts[::-1], expected[::-1]):
        o, e = o + c, e + x
        if e >= least:
            observed_cells.append(o)
            expected_cells.append(e)
            o = e = 0.0
    if e > 0.0 or o > 0.0:
        if not expected_cells:
            return np.array([o]), np.array([e])
        observed_cells[-1] += o
        expected_cells[-1] += e
    return np.array(observed_cells), np.array(expected_cells)


def chi_square(indices: np.ndarray, p: np.ndarray, least: float = 5.0) -> float:
    """p-value of Pearson's test that independent draws `indices` (numbers of cells) have the law p."""
    counts = np.bincount(indices, minlength=len(p))
    observed, expected = merged(counts, p * len(indices), least)
    if len(observed) < 2:
        return 1.0
    return float(scipy.stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(observed) - 1))


def total_variation(counts: np.ndarray, p: np.ndarray) -> float:
    """Total variation between the empirical law of counts and p."""
    return 0.5 * float(np.abs(counts / counts.sum() - p).sum())


def variation_floor(p: np.ndarray, size: float) -> float:
    """Mean of total_variation for `size` independent draws of p itself."""
    return 0.5 * float(np.sqrt(2.0 * p * (1.0 - p) / (np.pi * size)).sum())


def replicate_means(means: np.ndarray, expected: np.ndarray, rare: float = 0.02):
    """Two-sided t-tests of replicate means (replicates, summaries) against exact expectations.

    Summaries rarer than `rare` (or than its complement) are skipped: the normal tail would not hold for them.
    Returns p-values (nan where left out) and z.
    """
    n = len(means)
    spread = means.std(axis=0, ddof=1)
    usable = (expected > rare) & (expected < 1.0 - rare)
    # A summary that never varies, though it should, is as wrong as can be.
    frozen = usable & (spread == 0.0)
    z = np.where(usable, (means.mean(axis=0) - expected) / np.where(spread > 0, spread, 1.0) * np.sqrt(n), np.nan)
    p = 2.0 * scipy.stats.t.sf(np.abs(z), n - 1)
    p[frozen] = 0.0
    return p, z


def event_means(means: np.ndarray, expected: np.ndarray, rare: float = 0.02):
    """Two-sided tests of replicate means of events, (replicates, events), against their exact probabilities.

    A replicate's mean has a variance of at most p (1 - p), that of a chain that never moves. The share of it that
    moving leaves is at least the average share over all events, or the event's own if that is larger. n / share
    independent trials have the variance of n such replicates: the tail is the binomial's at that number (made
    continuous by the incomplete beta function). A t-test would not do: an event that happened to be seen rarely also
    has a small sample variance, and for 40 to 400 replicates that rejects a right chain 10 to 1000 times too often.

    Events rarer than `rare` (or than its complement) are left out. Returns p-values (nan where left out) and z.
    """
    n = len(means)
    usable = (expected > rare) & (expected < 1.0 - rare)
    q, mean, variance = expected[usable], means.mean(axis=0)[usable], means.var(axis=0, ddof=1)[usable]
    share = np.clip(np.maximum(variance / (q * (1.0 - q)), variance.sum() / (q * (1.0 - q)).sum()), 1e-6, 1.0)
    trials = n / share
    hits, tail = trials * mean, np.ones((2, len(q)))
    subset, most = hits > 0.0, hits < trials
    tail[0, subset] = scipy.special.betainc(hits[subset], (trials - hits)[subset] + 1.0, q[subset])
    tail[1, most] = scipy.special.betainc((trials - hits)[most], hits[most] + 1.0, 1.0 - q[most])
    p, z = np.full(len(expected), np.nan), np.full(len(expected), np.nan)
    p[usable] = np.minimum(1.0, 2.0 * tail.min(axis=0))
    z[usable] = (mean - q) / np.sqrt(q * (1.0 - q) / trials)
    return p, z


def judge(final, p: np.ndarray, names, means: np.ndarray, expected: np.ndarray, level: float = 1e-4) -> Verdict:
    """Chi-square of the final draws and tests of the replicate means, together at `level` (Bonferroni, half each)."""
    p_chi = chi_square(final, p)
    p_each, z = event_means(means, expected)
    n_used = int(np.isfinite(p_each).sum())
    worst = int(np.nanargmin(p_each))
    p_summary = min(1.0, float(p_each[worst]) * n_used)
    counts = np.bincount(final, minlength=len(p))
    return Verdict(
        min(1.0, 2.0 * min(p_chi, p_summary)),
        level,
        total_variation(counts, p),
        variation_floor(p, len(final)),
        p_chi,
        p_summary,
        names[worst],
        float(z[worst]),
        len(final),
    )


LOOKS = 24  # parts of a test of a wrong program


def by_looks(more, judged, size: int, looks: int = 1) -> Verdict | None:
    """Verdict on `size` replicates examined in `looks` parts, or on the first parts alone if these are rejected.

    A test of a wrong program has LOOKS parts: it ends once the program is rejected, mostly below half of its size, and
    has the power of the full size, since an unrejected program continues. A test of a right program looks once, as
    every look is another chance of a false alarm: at the size at which the wrong one was rejected, or at a given one.

    more(first, last): records of these replicates, a list, or None off root (where looks has to be 1). judged(records):
    the Verdict on all records so far.
    """
    seen: list = []
    looks = max(1, min(looks, size // 10))
    for part in range(1, looks + 1):
        records = more(len(seen), size * part // looks)
        if records is None:
            return None
        seen += records
        result = judged(seen)
        if not result.passed:
            break
    return result


def judge_history(history: np.ndarray, posterior, level: float = 1e-4) -> Verdict:
    """`judge` for partition numbers history (replicates, cycles) of replicates that started at exact draws."""
    names, table = posterior.summaries()
    means = table.T[history].mean(axis=1)
    return judge(history[:, -1], posterior.p, names, means, table @ posterior.p, level)


def judge_joint(index: np.ndarray, points: np.ndarray, joint: np.ndarray, posterior, level: float = 1e-4) -> Verdict:
    """`judge` for partitions `index` and grid points, both (R, T), against their joint law (points, partitions)."""
    n_points, n_partitions = joint.shape
    names, table = ["always"], np.ones((1, n_partitions))
    for k in range(1, int(posterior.n_clusters.max()) + 1):
        names.append(f"K={k}")
        table = np.vstack([table, posterior.n_clusters == k])
    cells = points * n_partitions + index
    # Events: the point, by itself and together with each number of clusters.
    events = np.kron(np.eye(n_points), table)
    labels = [f"point {a}, {name}" for a in range(n_points) for name in names]
    means = events.T[cells].mean(axis=1)
    return judge(cells[:, -1], joint.ravel(), labels, means, events @ joint.ravel(), level)


# ---- one long chain --------------------------------------------------------------------------------------------------


def autocorrelation_time(x: np.ndarray, window: float = 5.0) -> float:
    """Integrated autocorrelation time of one series (Sokal's automatic window); 1 for independent draws."""
    x = np.asarray(x, dtype=float) - np.mean(x)
    n = len(x)
    if not x.any():
        return float(n)
    spectrum = np.abs(np.fft.rfft(x, 2 * n)) ** 2
    rho = np.fft.irfft(spectrum)[:n]
    tau = 2.0 * np.cumsum(rho / rho[0]) - 1.0
    ok = np.arange(n) >= window * tau
    return max(1.0, float(tau[ok.argmax() if ok.any() else n - 1]))


def batch_means_z(x: np.ndarray, expected: float, batches: int = 40) -> tuple[float, float]:
    """z (Student t, batches - 1 degrees) of a long chain's mean by batch means, and its standard error."""
    n = len(x) // batches * batches
    means = np.asarray(x[:n], dtype=float).reshape(batches, -1).mean(axis=1)
    error = means.std(ddof=1) / np.sqrt(batches)
    return float((means.mean() - expected) / error), float(error)
