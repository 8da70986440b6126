"""The local steps of lda.pyx in plain NumPy, with the same meaning. The bits differ, since all of it is float64,
but for the laws that "gibbs" draws from."""

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
    sums, done, result = np.zeros((v, k)), 0, np.zeros((n, k))
    for i in range(n):
        part, many = words[starts[i] : starts[i + 1]], counts[starts[i] : starts[i + 1]].astype(np.float64)
        if not len(part):
            result[i] = alpha
            continue
        first = alpha + many.sum() / k if gamma is None else gamma[i].astype(np.float64)
        result[i], share, times = local_step(part, many, weight, alpha, local, first, most, tolerance)
        np.add.at(sums, part, many[:, None] * share)
        done += times
    return result, sums, done


def picked(p, u):
    """The topic where the running sum of p (K,), lane by lane of 16, passes u of it; and its sum. float32."""
    blocks = np.zeros((-(-len(p) // 16), 16), np.float32)
    blocks.reshape(-1)[: len(p)] = p
    levels = [np.zeros(16, np.float32)]
    for block in blocks:
        levels[0] = levels[0] + block
    while len(levels[-1]) > 1:
        half = len(levels[-1]) // 2
        levels.append(levels[-1][:half] + levels[-1][half:])
    total, lane = levels[-1][0], 0
    u = np.float32(u) * total
    for level in reversed(levels[:-1]):
        if u >= level[lane]:
            u, lane = u - level[lane], lane + len(level) // 2
    h = 0
    while h < len(blocks) - 1 and u >= blocks[h, lane]:
        u, h = u - blocks[h, lane], h + 1
    k, flat = h * 16 + lane, blocks.reshape(-1)
    while not flat[k] > 0:
        k = k - 1 if k else len(p) - 1
    return k, total


def sampled_step(words, counts, weight, alpha, uniforms, sweeps, left_in=False):
    """Gibbs' sampler of one document: gamma (K,), and its words' shares (n, K). uniforms: of each word in each sweep.
    left_in: wrong, a word's own topic counts when it is drawn anew."""
    count, alpha, topic = np.zeros(len(alpha), np.float32), np.float32(alpha), {}
    share, place = np.zeros((len(words), len(alpha))), np.repeat(np.arange(len(words)), np.asarray(counts, int))
    draws = iter(np.floor(np.asarray(uniforms) * 2.0**24) * 2.0**-24)
    for sweep in range(sweeps):
        for i, at in enumerate(place):
            if sweep and not left_in:
                count[topic[i]] -= 1
            p = (count + alpha) * np.float32(weight[words[at]])
            if sweep and left_in:
                count[topic[i]] -= 1
            topic[i], total = picked(p, next(draws))
            count[topic[i]] += 1
            if sweep >= sweeps // 3:
                share[at] += p / total
    share /= np.asarray(counts, np.float64)[:, None] * (sweeps - sweeps // 3)
    return alpha + np.asarray(counts, np.float64) @ share, share
