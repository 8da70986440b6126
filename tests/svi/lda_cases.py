"""Documents drawn from known topics, and a second implementation, word by word, of the bound of LDA."""

import numpy as np
from scipy.special import digamma, gammaln

from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.svi.lda.ascent import Ascent, Settings
from mpibayes.io.sparse import SparseRows


def corpus(d=150, v=60, k=5, seed=0, length=40, eta=0.1, alpha=0.2):
    """(rows, topics (K, V)) of documents of about `length` words; the fourth has none."""
    rng = np.random.default_rng(seed)
    beta = rng.dirichlet(np.full(v, eta), k)
    counts = np.zeros((d, v))
    for i in range(d):
        n = 0 if i == 3 else 1 + rng.poisson(length)
        counts[i] = rng.multinomial(n, rng.dirichlet(np.full(k, alpha)) @ beta)
    return sparse(counts), beta


def sparse(counts):
    i, j = np.nonzero(counts)
    starts = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=len(counts)))])
    return SparseRows(starts, j.astype(np.int32), counts[i, j].astype(np.float32))


def ascent(rows, v, settings, comm=None, chain=0):
    total = float(rows.values.sum())
    return Ascent(
        comm or serial(), lambda a, b: rows.take(slice(a, b)), len(rows), v, total, settings, chain
    )  # fmt: skip


def settings(**given):
    usual = {"topics": 5, "alpha": 0.2, "eta": 0.1, "shards": 3, "seed": 1, "tolerance": 1e-4}
    return Settings(**(usual | given))


def plain_bound(rows, lam, gamma, alpha, eta):
    """Bound with the best shares, from its definition: E log p - E log q, summed over words."""
    e_beta = digamma(lam) - digamma(lam.sum(axis=0))
    v, k = lam.shape
    total = k * (gammaln(v * eta) - v * gammaln(eta)) + ((eta - 1) * e_beta).sum()
    total -= (gammaln(lam.sum(axis=0)) - gammaln(lam).sum(axis=0)).sum() + ((lam - 1) * e_beta).sum()
    for d in range(len(rows)):
        g = gamma[d].astype(np.float64)
        e_theta = digamma(g) - digamma(g.sum())
        total += gammaln(alpha.sum()) - gammaln(alpha).sum() + ((alpha - 1) * e_theta).sum()
        total -= gammaln(g.sum()) - gammaln(g).sum() + ((g - 1) * e_theta).sum()
        for e in range(rows.starts[d], rows.starts[d + 1]):
            log = e_theta + e_beta[rows.columns[e]]
            share = np.exp(log - log.max())
            share /= share.sum()
            used = share > 0
            total += rows.values[e] * (share * (log - np.log(share, where=used, out=log.copy())))[used].sum()
    return total
