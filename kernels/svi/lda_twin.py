"""The local step of lda.pyx in plain NumPy, with the same meaning. The bits differ, since all of it is float64."""

import numpy as np

SHIFT = 6


def exp_digamma(x):
    """e^psi(x), without a logarithm: psi at x + 6 by its series, less six reciprocals."""
    x = np.asarray(x, np.float64)
    z = 1.0 / (x + SHIFT) ** 2
    series = ((z * (-1.0 / 252) + 1.0 / 120) * z - 1.0 / 12) * z - 0.5 / (x + SHIFT)
    return (x + SHIFT) * np.exp(series - sum(1.0 / (x + i) for i in range(SHIFT)))


def local_step(words, counts, weight, alpha, local, gamma, most, tolerance):
    """One document: gamma (K,), its words' shares (n, K) that sum to 1, and iterations. weight: (V, K)."""
    counts = np.asarray(counts, np.float64)
    rows, share = np.asarray(weight, np.float64)[words], np.zeros((len(words), len(alpha)))
    done = 0
    while done < most:
        done += 1
        theta = exp_digamma(gamma) if local == "vb" else gamma
        share = (theta - share if local == "cvb0" else theta) * rows
        share /= share.sum(axis=1, keepdims=True)
        before, gamma = gamma, alpha + counts @ share
        if np.abs(gamma - before).sum() <= tolerance * (counts.sum() + 1.0):
            break
    if local == "vb":
        share = exp_digamma(gamma) * rows
        share /= share.sum(axis=1, keepdims=True)
    return gamma, share, done


def local_steps(starts, words, counts, weight, alpha, local, gamma, most, tolerance):
    """All documents, from `gamma` (D, K), None for alpha + length / K. gamma, sums (V, K), iterations."""
    n, k, v = len(starts) - 1, len(alpha), len(weight)
    sums, done, found = np.zeros((v, k)), 0, np.zeros((n, k))
    for i in range(n):
        own, many = words[starts[i] : starts[i + 1]], counts[starts[i] : starts[i + 1]].astype(np.float64)
        if not len(own):
            found[i] = alpha
            continue
        first = alpha + many.sum() / k if gamma is None else gamma[i].astype(np.float64)
        found[i], share, times = local_step(own, many, weight, alpha, local, first, most, tolerance)
        np.add.at(sums, own, many[:, None] * share)
        done += times
    return found, sums, done
