"""Latent Dirichlet allocation and its variational approximation (docs/math.md 8.7).

    beta_k ~ Dirichlet(eta, ..., eta),  theta_d ~ Dirichlet(alpha),  z ~ theta_d,  word ~ beta_z

q has Dirichlet(lambda_k) for each topic, Dirichlet(gamma_d) for each document, and shares of topics for each of its
words. Blei, Ng & Jordan (2003); Hoffman, Blei, Wang & Paisley (2013).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from mpibayes.hpc.svi.step import Step, share_of_numbers
from mpibayes.io.sparse import SparseRows
from mpibayes.kernels.svi.lda import Documents, log_probability, padded, table_of

NEWTON = 100  # most Newton steps for alpha
LEAST_ALPHA = 1e-6


@dataclass(frozen=True)
class State:
    """Variational state. lam: float64 (V, K), of the topics' words, by word. alpha: float64 (K,), of the documents'
    topics."""

    lam: np.ndarray
    alpha: np.ndarray


def first(v: int, k: int, alpha: float, eta: float, n_tokens: float, rng: np.random.Generator) -> State:
    """Initial state: each word's share of the table's tokens, with noise, so that topics differ."""
    return State(eta + rng.gamma(100.0, 0.01 * n_tokens / (v * k), (v, k)), np.full(k, alpha))


def topic_scale(lam: np.ndarray, linear: bool) -> np.ndarray:
    """Scale of the weights of words by topic, relative to the greatest, float32 (padded,): the inverse of sum_w
    lambda_wk, or e^-psi of it."""
    total = lam.sum(axis=0)
    log = np.log(total) if linear else digamma(total)
    scale = np.zeros(padded(lam.shape[1]), np.float32)
    scale[: len(log)] = np.exp(log.min() - log)
    return scale


def stepped(q: State, eta: float, total: np.ndarray, noise: np.ndarray | None, step: Step) -> tuple[State, int]:
    """Return the state after a step to expected counts `total` (V, K) plus noise, and the number of topics that the
    guard held back. A topic is one part: all its words keep the same share of the noise."""
    lam = step.to(q.lam, eta + step.scale * total)
    held = 0
    if noise is not None:
        extra = (step.rate * step.scale) * noise
        if step.guard:
            share = share_of_numbers(lam, extra).min(axis=0)
            held = int((share < 1.0).sum())
            extra *= share
        lam = lam + extra
    return State(lam, q.alpha), held


def sound(q: State) -> bool:
    """True if every parameter lies in its domain."""
    return bool(np.isfinite(q.lam).all() and q.lam.min() > 0 and q.alpha.min() > 0)


def sizes(q: State, eta: float) -> np.ndarray:
    """Expected number of words of each topic in all documents, (K,)."""
    return np.maximum(q.lam.sum(axis=0) - eta * len(q.lam), 0.0)


def n_used(q: State, eta: float) -> int:
    """Number of topics with an expected word or more."""
    return int((sizes(q, eta) >= 1.0).sum())


def log_beta(lam: np.ndarray) -> np.ndarray:
    """Expectation of log beta, (V, K)."""
    return digamma(lam) - digamma(lam.sum(axis=0))


@dataclass(frozen=True)
class Evaluator:
    """The bound under one state. most, beta: E log beta is most + log beta, word by word."""

    q: State
    eta: float
    most: np.ndarray
    beta: np.ndarray

    @classmethod
    def of(cls, q: State, eta: float) -> Evaluator:
        e = log_beta(q.lam)
        most = e.max(axis=1)
        beta = table_of(len(e), e.shape[1], np.float64)
        np.exp(e - most[:, None], out=beta[:, : e.shape[1]])
        return cls(q, eta, most, beta)

    def of_documents(self, rows: SparseRows, text: Documents, gamma: np.ndarray) -> float:
        """Documents' part of the bound, with the best shares of topics given gamma (D, K)."""
        alpha, gamma = self.q.alpha, gamma.astype(np.float64)
        total = gamma.sum(axis=1)
        e = digamma(gamma) - digamma(total)[:, None]
        top = e.max(axis=1)
        theta = table_of(len(e), e.shape[1], np.float64)
        np.exp(e - top[:, None], out=theta[:, : e.shape[1]])
        words = log_probability(text, theta, self.beta)
        lengths = np.bincount(rows.row_of(), rows.values, len(rows)) if len(rows.values) else np.zeros(len(rows))
        words += float(lengths @ top) + float(rows.values.astype(np.float64) @ self.most[rows.columns])
        prior = len(e) * (gammaln(alpha.sum()) - gammaln(alpha).sum())
        of_shares = gammaln(gamma).sum() - gammaln(total).sum() + ((alpha - gamma) * e).sum()
        return words + float(prior + of_shares)

    def of_topics(self) -> float:
        """Topics' part of the bound: minus their divergences from the prior."""
        lam, eta = self.q.lam, self.eta
        v, k = lam.shape
        e = log_beta(lam)
        prior = k * (gammaln(v * eta) - v * gammaln(eta))
        return float(prior + gammaln(lam).sum() - gammaln(lam.sum(axis=0)).sum() + ((eta - lam) * e).sum())


def mean_log_theta(gamma: np.ndarray) -> np.ndarray:
    """Sum over documents of E log theta, (K,)."""
    gamma = gamma.astype(np.float64)
    return (digamma(gamma) - digamma(gamma.sum(axis=1))[:, None]).sum(axis=0)


def best_alpha(alpha: np.ndarray, mean_log: np.ndarray) -> np.ndarray:
    """Alpha that maximises the bound given the documents' mean E log theta, (K,): Newton steps in log alpha, halved
    while they do not raise it (Minka 2000)."""

    def value(a):
        return gammaln(a.sum()) - gammaln(a).sum() + ((a - 1.0) * mean_log).sum()

    now = value(alpha)
    for _ in range(NEWTON):
        gradient = digamma(alpha.sum()) - digamma(alpha) + mean_log
        q, z = -polygamma(1, alpha), float(polygamma(1, alpha.sum()))
        b = (gradient / q).sum() / (1.0 / z + (1.0 / q).sum())
        move = -(gradient - b) / q
        size = 1.0
        while size > 1e-8:
            proposal = np.maximum(alpha * np.exp(np.clip(size * move / alpha, -2.0, 2.0)), LEAST_ALPHA)
            then = value(proposal)
            if then > now:
                break
            size *= 0.5
        else:
            return alpha
        gain, alpha, now = then - now, proposal, then
        if gain < 1e-12 * max(1.0, abs(now)):
            break
    return alpha
