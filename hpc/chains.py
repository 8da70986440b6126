"""How chains fared: their phases, their moves, when they settled, and whether they found the same clustering.

A chain without an annealed subsample has no growth phase. Two chains are compared by their representative partitions,
against what one chain differs from itself: the representative partitions of the two halves of its kept draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc import summary
from mpibayes.hpc.kept_draws import Chain
from mpibayes.hpc.summary import Scalar
from mpibayes.io.trace import MOVES

SUMMARISED = ("log_joint", "n_clusters", "entropy", "heldout_lpd")
FEWEST = 4  # kept draws of a chain whose halves can be compared
SLACK = 0.02  # of the adjusted Rand index: chains this much farther from each other than from themselves still agree
ALIKE = 0.9  # adjusted Rand index of partitions that differ in details


@dataclass(frozen=True)
class Course:
    """One chain in numbers. `settled`: first cycle over all rows whose log joint reaches the 5 % point of those in the
    second half after burn-in."""

    name: str
    cycles: int
    growth: int
    growth_s: float
    burn_in: int
    settled: int
    settled_s: float
    seconds: float
    n_clusters: int  # in the last cycle
    scalars: dict[str, Scalar]  # of this chain's draws after burn-in
    heldout_averaged: float  # NaN where there is none
    moves: dict[str, dict[str, int]] | None  # by phase, with the phase's `cycles`; None where the trace has no counts

    @property
    def heldout(self) -> float:
        """The averaged score, else the mean of the draws', else NaN."""
        if np.isfinite(self.heldout_averaged) or "heldout_lpd" not in self.scalars:
            return self.heldout_averaged
        return self.scalars["heldout_lpd"].mean


def course(chain: Chain) -> Course:
    """What the trace of a chain says about it; some of it lies after burn-in."""
    t, later = chain.trace, chain.later()
    level = np.quantile(later["log_joint"][len(later["cycle"]) // 2 :], 0.05)
    settled = int(np.argmax((t["cycle"] >= chain.growth) & (t["log_joint"] >= level)))
    scalars = {name: summary.scalar([later[name]]) for name in SUMMARISED if name in later}
    averaged = later.get("heldout_lpd_averaged", [np.nan])
    return Course(
        chain.name, int(t["cycle"][-1]), chain.growth,
        float(np.interp(chain.growth, t["cycle"], chain.seconds)), chain.burn_in, int(t["cycle"][settled]),
        float(chain.seconds[settled]), float(chain.seconds[-1]), int(t["n_clusters"][-1]),
        {name: s for name, s in scalars.items() if s.n_draws}, float(averaged[-1]), moves(chain),
    )  # fmt: skip


def moves(chain: Chain) -> dict[str, dict[str, int]] | None:
    """Splits and merges tried and accepted in the growth phase, the burn-in after it, and the rest."""
    t = chain.trace
    if not all(name in t for name in MOVES):
        return None
    ends = {"growth": chain.growth, "burn-in": chain.burn_in, "kept": int(t["cycle"][-1])}
    counts, start = {}, 0
    for phase, end in ends.items():
        if end > start:
            inside = (t["cycle"] > start) & (t["cycle"] <= end)
            counts[phase] = {"cycles": end - start} | {name: int(np.nansum(t[name][inside])) for name in MOVES}
            start = end
    return counts


def moves_together(courses: Sequence[Course]) -> dict[str, dict[str, int]] | None:
    """Those of all chains, summed; None where no trace has counts."""
    total: dict[str, dict[str, int]] = {}
    for counts in (c.moves for c in courses if c.moves is not None):
        for phase, some in counts.items():
            into = total.setdefault(phase, dict.fromkeys(some, 0))
            for name, n in some.items():
                into[name] += n
    order = ("growth", "burn-in", "kept")
    return {phase: total[phase] for phase in order if phase in total} or None


# --- agreement --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """How alike the chains' representative partitions are on `n_rows` rows: adjusted Rand index and variation of
    information in nats, (C, C); on the diagonal those of the two halves of a chain's kept draws. NaN: too few draws."""

    ari: np.ndarray
    vi: np.ndarray
    n_rows: int

    def between(self, values: np.ndarray) -> np.ndarray:
        """The finite values of all pairs of chains."""
        pairs = values[np.triu_indices(len(values), 1)]
        return pairs[np.isfinite(pairs)]

    def within(self, values: np.ndarray) -> np.ndarray:
        """The finite values of chains with themselves."""
        own = np.diag(values)
        return own[np.isfinite(own)]

    @property
    def groups(self) -> list[list[int]]:
        """Chains that found the same clustering, in groups, as connected by pairs that agree."""
        found: list[list[int]] = []
        for i in range(len(self.ari)):
            near = [g for g in found if any(self.ari[i, j] >= min(self.ari[i, i], self.ari[j, j]) - SLACK for j in g)]
            found = [g for g in found if g not in near] + [sorted(sum(near, [i]))]
        return sorted(found)

    @property
    def verdict(self) -> str:
        """ "same"; "nearly" (they differ in details); "different"; "spread" (no farther from one another than each from
        itself, but that is far); "unknown"."""
        if len(self.ari) < 2 or not np.all(np.isfinite(self.ari)):
            return "unknown"
        if len(self.groups) == 1:
            return "same" if self.within(self.ari).min() >= ALIKE else "spread"
        return "nearly" if self.between(self.ari).min() >= ALIKE else "different"


def agreement(n_chains: int, chain: np.ndarray, labels: np.ndarray, distances: np.ndarray) -> Agreement:
    """Of kept draws in their order: chain (D,) that each is of, labels (D, M), distances (D, D) between them."""
    whole, halves = [], []
    for i in range(n_chains):
        (own,) = np.nonzero(chain == i)
        enough = len(own) >= FEWEST
        whole.append(labels[nearest(own, distances)] if enough else None)
        halves.append([labels[nearest(half, distances)] for half in np.array_split(own, 2)] if enough else None)
    ari, vi = np.full((2, n_chains, n_chains), np.nan)
    for i in range(n_chains):
        for j in range(i + 1):
            a, b = (whole[i], whole[j]) if j < i else halves[i] or (None, None)
            if a is not None and b is not None:
                ari[i, j], vi[i, j] = ari[j, i], vi[j, i] = summary.similarity(a, b)
    return Agreement(ari, vi, labels.shape[1])


def nearest(some: np.ndarray, distances: np.ndarray) -> int:
    """Which of `some` draws is nearest to them all; the earliest on a tie."""
    return int(some[np.argmin(np.round(distances[np.ix_(some, some)].mean(axis=1), 12))])


def answer(a: Agreement, courses: Sequence[Course]) -> list[str]:
    """Whether the chains found the same clustering, in sentences; if not, which is best and what to do."""
    verdict = a.verdict
    if verdict == "unknown":
        return [f"It cannot be told: that takes at least {FEWEST} kept draws of each chain (output.labels)."]
    between, within = _range(a.between(a.ari)), _range(a.within(a.ari))
    measured = f"adjusted Rand index {between} between chains, {within} between the halves of one chain"
    if verdict == "same":
        return [f"Yes: {measured}."]
    if verdict == "spread":
        said = [
            f"As far as one chain agrees with itself: {measured}. The posterior is spread over many partitions, or the "
            "chains are too short to tell."
        ]
    elif verdict == "nearly":
        said = [f"Nearly; they agree on most rows and differ in the rest: {measured}."]
    else:
        groups = " | ".join(_names([courses[i].name for i in group]) for group in a.groups)
        said = [f"No, there are {len(a.groups)} clusterings ({groups}): {measured}."]
    return [*said, _best(a, courses), _advice(verdict, courses)]


def _names(names: Sequence[str], most: int = 4) -> str:
    if len(names) <= most:
        return ", ".join(names)
    return ", ".join(names[: most - 1]) + f" and {len(names) - most + 1} more"


def _range(values: np.ndarray) -> str:
    low, high = f"{values.min():.3f}", f"{values.max():.3f}"
    return low if low == high else f"{low} to {high}"


def _best(a: Agreement, courses: Sequence[Course]) -> str:
    """Which chain leads in log joint, and in the held-out score; by how much before chains of other clusterings."""
    leads: dict[str, list[str]] = {}
    measures = (
        ("the highest mean log joint", [c.scalars["log_joint"].mean for c in courses], 1),
        ("the best held-out score", [c.heldout for c in courses], 3),
    )
    for what, values, digits in measures:
        if np.all(np.isfinite(values)):
            best = int(np.argmax(values))
            group = next(g for g in a.groups if best in g) if len(a.groups) > 1 else [best]
            second = max(v for i, v in enumerate(values) if i not in group)
            words = f"{what} ({values[best]:,.{digits}f}; the next clustering {second:,.{digits}f})"
            leads.setdefault(courses[best].name, []).append(words)
    return "; ".join(f"{name} has {' and '.join(words)}" for name, words in leads.items()) + "."


def _advice(verdict: str, courses: Sequence[Course]) -> str:
    total = moves_together(courses) or {}
    tried = any(n["splits_tried"] + n["merges_tried"] for n in total.values())
    means = "raise run.cycles, or let moves run in every cycle (sampler.split_merge = 1)"
    if not tried:
        means = 'let split and merge moves run (sampler.split_merge = "auto"), raise run.cycles'
    if verdict == "different":
        return f"What to do: {means}. Until the chains meet, the clusters below are one answer of several."
    return f"What to do if the difference matters: {means}."
