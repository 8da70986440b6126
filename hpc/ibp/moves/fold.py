"""Fold and unfold: a feature is absorbed by up to three others, or split off from them (docs/math.md 7.6).

Chains get stuck where features are encoded badly: {A, B, A + B} with owners each, one feature in two copies, a base
with negatives. A fold rewrites the patterns of a feature c and s helpers T as patterns of T alone; the unfold is its
reverse. Nothing is launched: the possible results of a fold are a function of the state that it leaves.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, product
from math import comb

import numpy as np
from scipy.special import gammaln

from mpibayes.hpc.ibp.moves.ledger import Columns, Ledger, log_sum
from mpibayes.hpc.parallel.streams import Purpose

UNFOLDS = 0.05  # share of unfolds among the proposals
HELPERS = 3  # most helpers
SUBSETS = 4000  # most sets of helpers compared; with many features fewer helpers are allowed
SHARPNESS = 10.0  # preference for helpers that explain the feature
MAPS = 6  # candidate maps
BETA = 0.5  # Dirichlet prior of the shares of a target's rows among the patterns mapped to it
DIGITS = 7  # distances are rounded before comparison, so that both directions break ties the same way


def bits(n: int) -> np.ndarray:
    """All patterns of n features, bool (2^n, n)."""
    return (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)


def most_helpers(n_others: int) -> int:
    """Largest number of helpers given the number of other features."""
    return max(s for s in range(HELPERS + 1) if s <= n_others and comb(n_others, s) <= max(SUBSETS, 1))


@lru_cache(maxsize=64)
def _subsets(n: int, s: int) -> np.ndarray:
    return np.array(list(combinations(range(n), s)), np.int64)


def law_of_helpers(means: np.ndarray, c: int, s: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (subsets, log p): all sets of s others, (n, s) indices in increasing order, and the log probability of
    each.

    p falls with the smallest |A_c - sum of +-A_i or nothing|^2 over |A_c|^2.
    """
    if s == 0:
        return np.zeros((1, 0), np.int64), np.zeros(1)
    subsets = _subsets(len(means) - 1, s)
    subsets = subsets + (subsets >= c)
    signs = np.array(list(product((-1.0, 0.0, 1.0), repeat=s)))
    gram = means @ means.T
    linear = gram[c][subsets] @ signs.T
    square = np.einsum("ei,nij,ej->ne", signs, gram[subsets[:, :, None], subsets[:, None, :]], signs, optimize=True)
    least = (gram[c, c] - 2.0 * linear + square).min(axis=1)
    log_p = -SHARPNESS * np.maximum(least, 0.0) / gram[c, c] if gram[c, c] > 0.0 else np.zeros(len(subsets))
    return subsets, log_p - log_sum(log_p)


def candidates(helpers: np.ndarray, feature: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Candidate maps of the patterns of (helpers, feature) to patterns of the helpers, int64 (F, 2^(s+1)), the best
    over all signs.

    helpers (s, D), feature (D,): loadings. sizes (2^(s+1),): rows of each pattern. With signs e, helper i is assumed to
    become helper i + e_i feature, and each pattern goes to the nearest target.
    """
    s = len(helpers)
    fine = bits(s + 1) @ np.vstack([helpers, feature])
    scale = max(float(feature @ feature), 1e-300)
    distortions: dict[tuple[int, ...], float] = {}
    for e in product((-1.0, 0.0, 1.0), repeat=s):
        coarse = bits(s) @ (helpers + np.outer(e, feature))
        distance = np.round(((fine[:, None] - coarse[None]) ** 2).sum(axis=2) / scale, DIGITS)
        to = distance.argmin(axis=1)
        to[0] = 0
        distortion = round(float((sizes * distance[np.arange(len(to)), to]).sum() / sizes.sum()), DIGITS)
        distortions.setdefault(tuple(to.tolist()), distortion)
    best = sorted(distortions, key=distortions.get)[:MAPS]  # stable sort: ties keep their order
    return np.array(best, np.int64)


def log_prior_of_map(to: np.ndarray, s: int) -> float:
    """Log p0(f): every pattern but the empty one keeps its helpers with probability 1/2, or goes anywhere."""
    stays = to[1:] == np.arange(1, 2 ** (s + 1)) % 2**s
    return float(np.log(0.5 * stays + 0.5 / 2**s).sum())


def log_dealt(to: np.ndarray, sizes: np.ndarray) -> float:
    """Log q_f of the rows' patterns given their targets, with Dirichlet weights integrated out."""
    total = 0.0
    for target in np.unique(to):
        n = sizes[to == target]
        total += gammaln(len(n) * BETA) - gammaln(len(n) * BETA + n.sum()) + (gammaln(BETA + n) - gammaln(BETA)).sum()
    return float(total)


def evaluate(ledger: Ledger, fine: Columns, c: int, helpers: np.ndarray, tally):
    """Return (maps, log W, log ratio of the fold), on root.

    fine: the features with c. c, helpers: indices, the latter in increasing order. tally: of the patterns of (helpers,
    c).
    """
    sizes, counts, cells = tally
    k, s = len(fine), len(helpers)
    means = ledger.means(fine)
    subsets, log_p = law_of_helpers(means, c, s)
    log_p_helpers = log_p[(subsets == helpers).all(axis=1)][0]
    maps = candidates(means[helpers], means[c], sizes)
    others = np.setdiff1d(np.arange(k), np.append(helpers, c))
    rest = fine.take(others)
    log_w = np.full(len(maps), -np.inf)
    for i, to in enumerate(maps):
        has = bits(s)[to]  # (P, s)
        together = np.zeros((k - 1, k - 1), np.int64)
        together[: len(others), : len(others)] = rest.together
        together[len(others) :, : len(others)] = has.T.astype(np.int64) @ counts
        together[: len(others), len(others) :] = together[len(others) :, : len(others)].T
        together[len(others) :, len(others) :] = (has * sizes[:, None]).T @ has
        sums = np.einsum("ps,pd->sd", has.astype(np.float64), cells)
        log_pi = ledger.log_target(np.diag(together), together, np.vstack([rest.cells, sums]))
        if np.isfinite(log_pi):
            log_w[i] = log_pi + log_dealt(to, sizes) + log_prior_of_map(to, s)
    log_ratio = log_sum(log_w) - ledger.log_target_of(fine) if np.isfinite(log_w).any() else -np.inf
    log_ratio += np.log(UNFOLDS / (1.0 - UNFOLDS)) - np.log(comb(k - 1, s)) - log_p_helpers
    return maps, log_w, log_ratio


def fold_or_unfold(ledger: Ledger, move: int) -> None:
    """Make one proposal. Collective."""
    stream = ledger.choices(move)
    if stream.random() < UNFOLDS:
        _unfold(ledger, move, stream)
    elif len(ledger.columns):
        _fold(ledger, stream)


def _fold(ledger: Ledger, stream: np.random.Generator) -> None:
    fine = ledger.columns
    c = int(stream.integers(len(fine)))
    s = int(stream.integers(most_helpers(len(fine) - 1) + 1))
    helpers = np.zeros(s, np.int64)
    if ledger.root:
        subsets, log_p = law_of_helpers(ledger.means(fine), c, s)
        helpers[:] = subsets[_choose(log_p, stream)]
    ledger.comm.broadcast(helpers)
    slots = fine.slots[np.append(helpers, c)]
    patterns = ledger.patterns(slots)
    tally = ledger.tally_patterns(patterns, 2 ** (s + 1), fine.without(slots).slots)
    to, log_ratio = np.zeros(2 ** (s + 1), np.int64), -np.inf
    if ledger.root:
        maps, log_w, log_ratio = evaluate(ledger, fine, c, helpers, tally)
        if np.isfinite(log_ratio):
            to[:] = maps[_choose(log_w - log_sum(log_w), stream)]
    if ledger.decide("folds", log_ratio, stream):
        ledger.comm.broadcast(to)
        ledger.write(slots, [to.astype(np.uint8)[pattern] for pattern in patterns])
        ledger.become(ledger.with_fresh(fine.without(slots), slots[:-1]))


def _unfold(ledger: Ledger, move: int, stream: np.random.Generator) -> None:
    coarse = ledger.columns
    s = int(stream.integers(most_helpers(len(coarse)) + 1))
    helpers = coarse.slots[np.sort(stream.permutation(len(coarse))[:s])]
    to = np.where(
        stream.random(2 ** (s + 1)) < 0.5, np.arange(2 ** (s + 1)) % 2**s, stream.integers(2**s, size=2 * 2**s)
    )
    to[0] = 0
    # A target of no pattern must have no rows. Row by row of the table: log weights of the patterns of a target.
    log_weights = np.log(stream.standard_gamma(BETA, size=2 ** (s + 1)))
    shares = np.zeros((2**s, 2 ** (s + 1)))
    if ledger.root:
        shares[to, np.arange(len(to))] = np.exp(log_weights)
        shares = np.cumsum(shares, axis=1)
    ledger.comm.broadcast(shares)
    slots = np.append(helpers, ledger.free_slots(1))
    before, after, stuck = ledger.patterns(helpers), [], np.zeros(1, np.int64)
    for shard, pattern in zip(ledger.shards, before):
        u = ledger.uniforms(shard, Purpose.DEALT_FEATURES, move)
        dealt = np.zeros(len(pattern), np.uint8)
        for target in range(2**s):
            here = pattern == target
            if shares[target, -1] > 0.0:
                dealt[here] = np.searchsorted(shares[target], u[here] * shares[target, -1], side="right")
            else:
                stuck += int(here.sum())
        after.append(dealt)
    ledger.comm.sum_everywhere(stuck)
    if stuck[0]:
        ledger.decide("unfolds", -np.inf, stream)
        return
    ledger.write(slots, after)
    fine = ledger.with_fresh(coarse.without(helpers), slots)
    log_ratio = -np.inf
    if fine.owned.min() > 0:
        order = np.argsort(fine.place(helpers))  # in the order in which a fold from here would list the helpers
        at = fine.place(helpers[order])
        slots_of_fold = np.append(helpers[order], slots[-1])
        tally = ledger.tally_patterns(ledger.patterns(slots_of_fold), 2 ** (s + 1), fine.without(slots).slots)
        if ledger.root:
            maps, log_w, log_of_fold = evaluate(ledger, fine, int(fine.place(slots[-1:])[0]), at, tally)
            same = (maps == reordered(to, order)).all(axis=1)
            if same.any() and np.isfinite(log_w[same][0]):
                log_ratio = -log_of_fold
    if ledger.decide("unfolds", log_ratio, stream):
        ledger.become(fine)
    else:
        ledger.write(slots, before)


def reordered(to: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the map with helper order[j] in position j."""
    s = len(order)
    powers = 1 << np.arange(s + 1)
    old = np.zeros((2 ** (s + 1), s + 1), np.int64)
    old[:, np.append(order, s)] = bits(s + 1)
    target = bits(s)[to[old @ powers]][:, order]
    return target.astype(np.int64) @ powers[:s]


def _choose(log_p: np.ndarray, stream: np.random.Generator) -> int:
    p = np.cumsum(np.exp(log_p - log_p.max()))
    return int(np.searchsorted(p, stream.random() * p[-1], side="right"))
