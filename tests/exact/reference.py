"""The cycles of docs/math.md 2.1, 2.3 and 2.8 on simulated shards: tiny tables, many replicates at once, NumPy alone.

This is an oracle and a set of wrong twins, not a sampler for use: it shares no code with the program, looks up marginal
likelihoods of clusters in tables indexed by subset of rows, and moves thousands of independent chains in step, so that
the power of a test against each error can be measured in seconds.

A `Scheme` states which rules are kept.  The right ones are EXACT ("one" shard is collapsed) and ALL (every shard opens
clusters, discount 0).  All others in TWINS are wrong on purpose, each in one way, or are the published scheme.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.exact.enumerate import Case, Posterior, column_values, leaders, log_marginal_of_subsets


@dataclass(frozen=True)
class Scheme:
    """opening: "one" shard collapsed, "all" (an owner for each cluster), or "hot" (each shard the whole tail: wrong).

    tail: "exact"; "rows" divides by the number of rows N; "prior" uses PY(alpha, d) for PY(alpha + K1 d, d);
    "literal" is (2.10) of the report as printed: divided by N, no likelihood for a new cluster.
    """

    opening: str = "one"
    anchors: bool = True
    private: bool = True
    tail: str = "exact"


EXACT = Scheme()
ALL = Scheme(opening="all")
TWINS = {
    "no anchors": Scheme(anchors=False),
    "nothing private": Scheme(private=False),
    "tail over N": Scheme(tail="rows"),
    "tail PY(alpha, d)": Scheme(tail="prior"),
    "published, literal": Scheme(private=False, anchors=False, tail="literal"),
    "published, repaired": Scheme(private=False, anchors=False),
    "published, all hot": Scheme(opening="hot", private=False, anchors=False),
}


class Reference:
    """Chains of one case in step, with its hyperparameters.  `shard_of`: the shard of each row, int (N,)."""

    def __init__(self, case: Case, shard_of, scheme: Scheme = EXACT, sweeps: int = 2):
        self.case, self.scheme, self.sweeps = case, scheme, sweeps
        self.shard_of = np.asarray(shard_of)
        self.n_shards = int(self.shard_of.max()) + 1
        n = self.n = case.n_rows
        masks = np.arange(1 << n)
        self.members = (masks[:, None] >> np.arange(n)) & 1
        self.sizes = self.members.sum(axis=1)
        self.shard_mask = np.array([(self.shard_of == p) @ (1 << np.arange(n)) for p in range(self.n_shards)])
        self.alpha, self.d = float(case.concentration), float(case.discount)
        self.columns = [(column[1], column_values(column), case.priors[column[0]]) for column in case.columns]
        # log f(C) of the clusters, by their bit masks
        self.log_f = sum(log_marginal_of_subsets(column, case.priors[column[0]]) for column in case.columns)

    # ---- cluster parameters ------------------------------------------------------------------------------------------

    def posterior_scores(self, mask, generator) -> np.ndarray:
        """theta drawn for every (replicate, slot) given its members `mask` (R, K); log f(x_n | theta), (R, K, N)."""
        out = np.zeros((*mask.shape, self.n))
        for kind, values, prior in self.columns:
            if kind in ("categorical", "boolean"):
                beta = np.array(prior["dirichlet"], dtype=float)
                counts = self.members @ (values[:, None] == np.arange(len(beta)))
                log_gamma = log_gammas(beta + counts[mask], generator)
                log_theta = log_gamma - np.logaddexp.reduce(log_gamma, axis=-1)[..., None]
                seen = values >= 0
                out[:, :, seen] += log_theta[:, :, values[seen]]
                continue
            seen = ~np.isnan(values)
            x = np.where(seen, values, 0.0)
            n = (self.members @ seen.astype(float))[mask]
            total = (self.members @ x)[mask]
            if kind == "real":
                mean, kappa, nu, variance = (prior[k] for k in ("mean", "kappa", "nu", "variance"))
                kappa_n, nu_n = kappa + n, nu + n
                mean_n = (kappa * mean + total) / kappa_n
                centre = total / np.maximum(n, 1.0)
                scatter = (self.members @ x**2)[mask] - n * centre**2
                scale = nu * variance + scatter + n * kappa / kappa_n * (mean - centre) ** 2
                sigma2 = scale / generator.chisquare(nu_n)
                mu = mean_n + np.sqrt(sigma2 / kappa_n) * generator.standard_normal(mask.shape)
                mu, sigma2 = mu[..., None], sigma2[..., None]
                score = -0.5 * np.log(2 * np.pi * sigma2) - (x - mu) ** 2 / (2 * sigma2)
            else:
                shape, rate = prior["shape"], prior["rate"]
                lam = generator.standard_gamma(shape + total) / (rate + n)
                score = x * np.log(lam)[..., None] - lam[..., None]  # the x! cancels
                score = score - np.array([np.log(np.arange(1, v + 1)).sum() for v in x])
            out += np.where(seen, score, 0.0)
        return out

    # ---- one cycle ---------------------------------------------------------------------------------------------------

    def cycle(self, z, generator):
        """One cycle of every replicate: labels z (R, N) -> labels."""
        scheme, n, r = self.scheme, self.n, len(z)
        rows, slots = np.arange(r), 2 * n
        z = leaders(z)
        mask = np.zeros((r, slots), dtype=np.int64)
        for i in range(n):
            mask[rows, z[:, i]] |= 1 << i
        occupied = mask > 0

        alpha, d = self.alpha, self.d
        collapsed = generator.integers(self.n_shards, size=r)
        if scheme.opening == "all":
            owner = generator.integers(self.n_shards, size=(r, slots))
        else:
            owner = np.repeat(collapsed[:, None], slots, axis=1)
        off = mask & ~self.shard_mask[owner]
        private = occupied & (off == 0) if scheme.private else np.zeros_like(occupied)
        shared = occupied & ~private
        k1 = shared.sum(axis=1)

        # Weights: shared clusters, then one tail for every shard that has one.
        size = self.sizes[mask]
        tail_rows = np.array([(size * (private & (owner == p))).sum(axis=1) for p in range(self.n_shards)]).T
        has_tail = np.ones((r, self.n_shards), dtype=bool)
        if scheme.opening == "one":
            has_tail = np.arange(self.n_shards) == collapsed[:, None]
        if scheme.opening == "all":
            tail_shape = alpha / self.n_shards + tail_rows
            concentration = np.full((r, self.n_shards), alpha / self.n_shards)
        else:
            whole = alpha + k1 * d
            tail_shape = np.where(np.arange(self.n_shards) == collapsed[:, None], whole[:, None] + tail_rows, 0.0)
            given = np.full(r, alpha) if scheme.tail == "prior" else whole
            concentration = np.repeat(given[:, None], self.n_shards, axis=1)
        shapes = np.concatenate([np.where(shared, size - d, 0.0), tail_shape], axis=1)
        log_gamma = np.where(shapes > 0, log_gammas(np.where(shapes > 0, shapes, 1.0), generator), -np.inf)
        log_weight = log_gamma - np.logaddexp.reduce(log_gamma, axis=1)[:, None]
        log_weight, log_tail = log_weight[:, :slots], log_weight[:, slots:]
        if scheme.opening == "hot":
            log_tail = np.repeat(log_tail[rows, collapsed][:, None], self.n_shards, axis=1)
        scores = self.posterior_scores(mask, generator)

        priority = generator.random((r, n))
        candidates = np.where((off[:, :, None] >> np.arange(n)) & 1, priority[:, None, :], np.inf)
        anchor = candidates.argmin(axis=2)
        anchor_priority = candidates.min(axis=2)  # inf where a shared cluster has no member off its owner (a twin)

        hot = scheme.opening == "hot"
        for _ in range(self.sweeps):
            for i in range(n):
                self.visit(
                    i, z, mask, owner, private, shared, log_weight, log_tail, concentration, scores,
                    priority, anchor, anchor_priority, has_tail, hot, generator,
                )  # fmt: skip
        return z

    def visit(
        self, i, z, mask, owner, private, shared, log_weight, log_tail, concentration, scores,
        priority, anchor, anchor_priority, has_tail, hot, generator,
    ):  # fmt: skip
        """Visit row i of every replicate, in place."""
        scheme, rows, bit = self.scheme, np.arange(len(z)), 1 << i
        p = self.shard_of[i]
        now = z[:, i]
        kept = np.zeros(len(z), dtype=bool)
        if scheme.anchors:
            at_anchor = np.isfinite(anchor_priority[rows, now]) & (anchor[rows, now] == i)
            kept = shared[rows, now] & at_anchor & (owner[rows, now] != p)
        without = mask.copy()
        without[rows, now] &= ~bit
        mine = owner == p
        free = np.repeat(has_tail[:, p][:, None], mask.shape[1], axis=1) if hot else mine
        allowed = shared & (free | (anchor_priority < priority[:, i][:, None]) if scheme.anchors else True)
        logits = np.where(allowed, log_weight + scores[:, :, i], -np.inf)

        size = np.where(private & mine & (without > 0), self.sizes[without], 0)
        m, j = size.sum(axis=1), (size > 0).sum(axis=1)
        c, lt = concentration[:, p], np.where(has_tail[:, p], log_tail[:, p], -np.inf)
        total = m + c if scheme.tail in ("exact", "prior") else np.full(len(z), float(self.n))
        with np.errstate(divide="ignore", invalid="ignore"):
            old = np.log(size - self.d) + self.log_f[without | bit] - self.log_f[without]
            logits = np.where(size > 0, (lt - np.log(total))[:, None] + old, logits)
            fresh = lt + np.log(c + j * self.d) - np.log(total)
            if scheme.tail != "literal":
                fresh = fresh + self.log_f[bit]
        vacant = (~shared & (without == 0)).argmax(axis=1)
        # With one row and alpha < 0 only the new cluster can be chosen, and c <= 0.
        alone = np.isneginf(logits).all(axis=1)
        logits[rows, vacant] = np.where(alone, 0.0, np.where(has_tail[:, p], fresh, -np.inf))
        chosen = np.where(kept, now, pick(logits, generator))
        opened = ~kept & (chosen == vacant)
        private[rows[opened], chosen[opened]] = True
        owner[rows[opened], chosen[opened]] = p
        without[rows, chosen] |= bit
        mask[...] = without
        z[:, i] = chosen


class Uncollapsed(Reference):
    """Section 3.1 of the report: J atoms from the base measure, weights Dirichlet(m_1..m_K, alpha/J, ..., alpha/J)."""

    def __init__(self, case: Case, atoms: int = 1, sweeps: int = 1):
        super().__init__(case, np.zeros(case.n_rows, dtype=int), sweeps=sweeps)
        self.atoms = atoms

    def cycle(self, z, generator):
        r, n = len(z), self.n
        rows = np.arange(r)
        z = leaders(z)
        mask = np.zeros((r, n + self.atoms), dtype=np.int64)
        for i in range(n):
            mask[rows, z[:, i]] |= 1 << i
        fresh = np.arange(n + self.atoms) >= n
        shapes = np.where(fresh, self.alpha / self.atoms, self.sizes[mask])
        log_gamma = np.where(shapes > 0, log_gammas(np.where(shapes > 0, shapes, 1.0), generator), -np.inf)
        scores = self.posterior_scores(mask, generator)
        for i in range(n):
            z[:, i] = pick(log_gamma + scores[:, :, i], generator)
        return z


def log_gammas(shape, generator) -> np.ndarray:
    """Log of Gamma(shape, 1) draws, log G(a) = log G(a + 1) + log(U) / a, so that small shapes do not underflow."""
    return np.log(generator.standard_gamma(shape + 1.0)) + np.log(1.0 - generator.random(shape.shape)) / shape


def pick(logits, generator) -> np.ndarray:
    """One column for every row of unnormalised log weights (R, K)."""
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    total = np.cumsum(weights, axis=1)
    u = generator.random(len(logits)) * total[:, -1]
    return (total <= u[:, None]).sum(axis=1)


def contiguous(n_rows: int, n_shards: int) -> np.ndarray:
    """The shard of each row when rows are cut into n_shards runs of nearly equal length."""
    return np.arange(n_rows) * n_shards // n_rows


def history(reference: Reference, posterior: Posterior, replicates: int, cycles: int, generator) -> np.ndarray:
    """Replicates started at exact draws: numbers of partitions after each cycle (replicates, cycles)."""
    z, seen = posterior.draw(generator, replicates), []
    for _ in range(cycles):
        z = reference.cycle(z, generator)
        seen.append(posterior.index(z))
    return np.array(seen).T
