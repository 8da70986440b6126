"""Chains in numbers: phases and moves, agreement on a clustering, and the best chain.

A chain without an annealed subsample has no growth phase. Two chains are compared by their representative partitions,
against the difference of each chain from itself: the representative partitions of the two halves of its kept draws.
Where a posterior is spread over many partitions, representatives differ by chance; so chains also agree if their draws
are no farther from each other's than from their own. A chain that climbs differs from itself as well, so log joints are
compared first: chains with different log joints disagree. `answers.py` has the words, `remedies.py` the remedies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.hpc.crosscat.moves.round import due as moves_due
from mpibayes.hpc.crosscat.sampler_keys import Sampler
from mpibayes.hpc.crosscat.scalars import MOVES, OF_COLUMNS, SCALARS
from mpibayes.hpc.crosscat.summaries.best_chain import late_log_joint, order
from mpibayes.hpc.crosscat.summaries.partitions import nearest
from mpibayes.hpc.crosscat.summaries.representative import FEWEST
from mpibayes.hpc.posterior.chains import Chain
from mpibayes.hpc.posterior.scalars import ScalarSummary, summary_of
from mpibayes.hpc.posterior.similarity import similarity
from mpibayes.hpc.run.status import is_stopped
from mpibayes.hpc.scalar import SCORES, Scalar
from mpibayes.hpc.settled import Judgement

SLACK = 0.02  # in adjusted Rand index: chains that differ this much more from each other than from themselves agree
FARTHER = 1.02  # chains also agree if their draws are at most this factor farther from each other's than from their own
ALIKE = 0.9  # adjusted Rand index of partitions that differ only in details
WORST_FIRST = ("different", "apart", "unknown", "spread", "nearly", "same")  # verdicts
APART_R_HAT = 1.1  # chains disagree if R-hat of the log joint is above this and their means differ by APART_NATS,
APART_NATS = 100.0  # more than a few rows more or less in small clusters explain


@dataclass(frozen=True)
class ChainSummary:
    """One chain in numbers. `reached`: first cycle over all rows with a log joint at least the 5 % point of the second
    half after burn-in. `late`: mean log joint of that half. `climbed`: see `climb`."""

    name: str
    cycles: int
    growth: int
    growth_s: float
    burn_in: int
    reached: int
    late: float
    climbed: float
    seconds: float
    n_clusters: int  # in the last cycle
    scalars: dict[str, ScalarSummary]  # of this chain's draws after burn-in
    heldout_averaged: float  # NaN where there is none
    moves: dict[str, dict[str, int]]  # by phase, with the phase's `cycles`
    moves_in_every_cycle: bool  # by its settings
    stopped: bool = False  # before its last cycle

    @property
    def heldout(self) -> float:
        """Averaged held-out score, else the mean of the draws' scores, else NaN."""
        if np.isfinite(self.heldout_averaged) or "heldout_lpd" not in self.scalars:
            return self.heldout_averaged
        return self.scalars["heldout_lpd"].mean


def summarise_chain(chain: Chain, scalars: Sequence[Scalar] = SCALARS) -> ChainSummary:
    """Summarise a chain by its trace, which must extend past burn-in."""
    t, later = chain.trace, chain.later()
    late = late_log_joint(later)
    reached = int(np.argmax((t["cycle"] >= chain.growth) & (t["log_joint"] >= np.quantile(late, 0.05))))
    summaries = {s.name: summary_of([later[s.name]]) for s in scalars if s.title}
    cycles, every = int(t["cycle"][-1]), chain.config.of(Sampler).split_merge
    of_any_table = 0  # number of cells: later rounds of "auto" skip cycles on all
    due = (moves_due(None if every == "auto" else every, cycle + 1, of_any_table) for cycle in range(cycles))
    return ChainSummary(
        chain.name, cycles, chain.growth, float(np.interp(chain.growth, t["cycle"], chain.seconds)), chain.burn_in,
        int(t["cycle"][reached]), float(late.mean()), climb(later["log_joint"]), float(chain.seconds[-1]),
        int(t["n_clusters"][-1]), {name: s for name, s in summaries.items() if s.n_draws},
        float(later["heldout_lpd_averaged"][-1]), moves(chain), all(due), is_stopped(chain.folder),
    )  # fmt: skip


def climb(log_joint: np.ndarray) -> float:
    """Return the nats by which the second half is above the first on average: a chain that climbs is too short. 0 if
    the rise is small, if the halves' 5 to 95 % intervals overlap, or if draws are few."""
    early, late = np.array_split(log_joint, 2)
    if len(late) < FEWEST or np.quantile(late, 0.05) <= np.quantile(early, 0.95):
        return 0.0
    rise = float(late.mean() - early.mean())
    return rise if rise > APART_NATS else 0.0


def moves(chain: Chain) -> dict[str, dict[str, int]]:
    """Count splits and merges tried and accepted in the growth phase, the rest of burn-in, and after it; with several
    views, also moves of views and columns that changed views."""
    t = chain.trace
    ends = {"growth": chain.growth, "burn-in": chain.burn_in, "kept": int(t["cycle"][-1])}
    counts, start = {}, 0
    names = [name for name in (*MOVES, *OF_COLUMNS) if name in t]
    for phase, end in ends.items():
        if end > start:
            inside = (t["cycle"] > start) & (t["cycle"] <= end)
            counts[phase] = {"cycles": end - start} | {name: int(np.nansum(t[name][inside])) for name in names}
            start = end
    return counts


def moves_together(summaries: Sequence[ChainSummary]) -> dict[str, dict[str, int]]:
    """Sum the moves of all chains."""
    total: dict[str, dict[str, int]] = {}
    for counts in (c.moves for c in summaries):
        for phase, counted in counts.items():
            into = total.setdefault(phase, dict.fromkeys(counted, 0))
            for name, n in counted.items():
                into[name] += n
    order = ("growth", "burn-in", "kept")
    return {phase: total[phase] for phase in order if phase in total}


# --- agreement --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """Similarity of the chains' representative partitions of `n` rows or columns: adjusted Rand index and variation of
    information in nats, (C, C); the diagonal compares the two halves of a chain's kept draws. NaN: too few draws.
    farther (C, C): mean distance between draws of two chains over that within a chain, averaged over the two; 1 if
    draws do not reveal their chain. None: unknown.

    gap: nats between the largest and the smallest mean log joint, 0 if `r_hat` of the log joint or the gap itself is
    small. climbing: chains whose log joint still rises."""

    ari: np.ndarray
    vi: np.ndarray
    n: int
    r_hat: float = np.nan
    gap: float = 0.0
    climbing: tuple[int, ...] = ()
    farther: np.ndarray | None = None

    def between(self, values: np.ndarray) -> np.ndarray:
        """Return the finite values for pairs of chains."""
        pairs = values[np.triu_indices(len(values), 1)]
        return pairs[np.isfinite(pairs)]

    def within(self, values: np.ndarray) -> np.ndarray:
        """Return the finite values on the diagonal, of chains with themselves."""
        diagonal = np.diag(values)
        return diagonal[np.isfinite(diagonal)]

    @property
    def groups(self) -> list[list[int]]:
        """Groups of chains with the same clustering: connected components of pairs that agree."""
        groups: list[list[int]] = []
        for i in range(len(self.ari)):
            near = [g for g in groups if any(self._agree(i, j) for j in g)]
            groups = [g for g in groups if g not in near] + [sorted(sum(near, [i]))]
        return sorted(groups)

    def _agree(self, i: int, j: int) -> bool:
        """True if two chains found the same clustering."""
        close = self.ari[i, j] >= min(self.ari[i, i], self.ari[j, j]) - SLACK
        return bool(close or (self.farther is not None and self.farther[i, j] <= FARTHER))

    @property
    def verdict(self) -> str:
        """ "different"; "apart" (not known to be different, but log joints differ or climb); "same"; "nearly" (chains
        differ in details); "spread" (chains differ as much from themselves as from each other, and a lot);
        "unknown"."""
        several, known = len(self.ari) > 1, bool(np.all(np.isfinite(self.ari)))
        one = len(self.groups) == 1
        if several and known and not one and self.between(self.ari).min() < ALIKE:
            return "different"
        if several and not self.met:
            return "apart"
        if not (several and known):
            return "unknown"
        if one:
            return "same" if self.within(self.ari).min() >= ALIKE else "spread"
        return "nearly"

    @property
    def met(self) -> bool:
        """True unless log joints differ or climb, so that the chains cannot have converged to one mode."""
        return not (self.gap or self.climbing)


def agreement(
    summaries: Sequence[ChainSummary], r_hat: float, chain: np.ndarray, labels: np.ndarray, distances: np.ndarray
) -> Agreement:
    """Compare chains by kept draws, in order: chain (D,) of each, labels (D, M), distances (D, D). r_hat: of the log
    joint."""
    n_chains = len(summaries)
    gap = gap_of(summaries, r_hat)
    climbing = tuple(i for i, c in enumerate(summaries) if c.climbed)
    whole, halves = [], []
    for i in range(n_chains):
        (draws,) = np.nonzero(chain == i)
        enough = len(draws) >= FEWEST
        whole.append(labels[nearest(draws, distances)] if enough else None)
        halves.append([labels[nearest(half, distances)] for half in np.array_split(draws, 2)] if enough else None)
    ari, vi = np.full((2, n_chains, n_chains), np.nan)
    for i in range(n_chains):
        for j in range(i + 1):
            a, b = (whole[i], whole[j]) if j < i else halves[i] or (None, None)
            if a is not None and b is not None:
                ari[i, j], vi[i, j] = ari[j, i], vi[j, i] = similarity(a, b)
    return Agreement(ari, vi, labels.shape[1], r_hat, gap, climbing, _farther(n_chains, chain, distances))


def _farther(n_chains: int, chain: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Return `Agreement.farther`; NaN with fewer than FEWEST draws of a chain, 1 where all draws are equal."""
    of = (chain[:, None] == np.arange(n_chains)).astype(float)
    n = of.sum(axis=0)
    pairs = np.outer(n, n) - np.diag(n)  # without a draw's distance 0 from itself
    enough = np.minimum.outer(n, n) >= FEWEST
    mean = np.divide(of.T @ distances @ of, pairs, out=np.full(pairs.shape, np.nan), where=enough)
    within = 0.5 * np.add.outer(np.diag(mean), np.diag(mean))
    without = np.where(mean > 0.0, np.inf, np.where(mean == 0.0, 1.0, np.nan))
    return np.divide(mean, within, out=without, where=within > 0.0)


def gap_of(summaries: Sequence[ChainSummary], r_hat: float) -> float:
    """Return `Agreement.gap`: chains with a gap disagree, whatever their partitions are."""
    gap = float(np.ptp([c.scalars["log_joint"].mean for c in summaries]))
    return gap if gap > APART_NATS and r_hat > APART_R_HAT and len(summaries) > 1 else 0.0


def worst(of: Sequence[Agreement]) -> str:
    """Return the worst verdict."""
    return min((a.verdict for a in of), key=WORST_FIRST.index)


def ranked(summaries: Sequence[ChainSummary]) -> tuple[list[ChainSummary], bool]:
    """Return the chains, the best first, and True if ranked by held-out score (`best_chain.order`)."""
    places, by_score = order([c.heldout for c in summaries], [c.late for c in summaries])
    return [summaries[i] for i in places], by_score


def moves_in(summaries: Sequence[ChainSummary], phase: str | None = None) -> tuple[int, int]:
    """Count splits and merges tried and accepted in a phase; None: in all phases."""
    chosen = [n for name, n in moves_together(summaries).items() if phase in (None, name)]
    tried, done = (("splits_tried", "merges_tried"), ("splits", "merges"))
    return tuple(sum(n[name] for n in chosen for name in names) for names in (tried, done))


def contradicted(summaries: Sequence[ChainSummary], on: Sequence[Agreement]) -> bool:
    """True if chains contradict each other or themselves, so that the result cannot be used yet. on: agreement on the
    columns and on the rows of each view, or on the rows of a mixture."""
    return any(c.climbed for c in summaries) or bool(on and worst(on) in ("different", "apart"))


def predicts(summaries: Sequence[ChainSummary], settled: Judgement) -> bool:
    """True if predictions of several chains can be used, whatever their clusters: their held-out scores agree and have
    settled, and no chain climbs."""
    return len(summaries) > 1 and settled.has(SCORES) and not any(c.climbed for c in summaries)
