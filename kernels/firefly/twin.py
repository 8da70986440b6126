"""The kernels of this folder in plain Python and NumPy: slow, and their specification.

Same classes, arguments and random words. Values agree to rounding, so the same rows are lit and the same proposals
accepted, unless a uniform falls within about 1e-13 of its boundary.
"""

from __future__ import annotations

from math import ceil, exp, floor, inf, isfinite, lgamma, log, log1p, nan, pi, sqrt

import numpy as np

LOGISTIC, SOFTMAX, STUDENT = 0, 1, 2
HMC, MALA, RANDOM_WALK, SLICE = 0, 1, 2, 3
FLAT, GAUSSIAN, LAPLACE = 0, 1, 2
GOALS = (0.8, 0.574, 0.234, 0.0)
BRIGHTNESS, FIRST_LIGHT, THETA = 21, 22, 23  # purposes of random words
SLICE_STEPS, SLICE_SHRINKS = 100, 200


class Words:
    """The random words of one (seed, purpose, sub, cycle, chain), in sequence."""

    def __init__(self, seed, purpose, sub, cycle, chain):
        # NumPy adds one to the counter before its first block
        counter = (((sub << 64) + (cycle << 128) + (chain << 192)) - 1) % 2**256
        self.bits = np.random.Philox(key=seed + (purpose << 64), counter=counter)

    def next(self):
        return int(self.bits.random_raw())

    def uniform(self):
        return (self.next() >> 11) * 2.0**-53

    def short_uniform(self):
        return (self.next() >> 12) * 2.0**-52

    def normals(self, n):
        out = []
        while len(out) < n:
            x, y = 2 * self.uniform() - 1, 2 * self.uniform() - 1
            if 0 < x * x + y * y < 1:
                scale = sqrt(-2 * log(x * x + y * y) / (x * x + y * y))
                out += [x * scale, y * scale]
        return np.array(out[:n])


def log_two_cosh(s):
    """log 2 cosh(s/2)"""
    return np.logaddexp(s / 2, -s / 2)


def log_sum_exp(eta):
    return np.logaddexp.reduce(eta, axis=1)


# ---- rows ------------------------------------------------------------------------------------------------------------


class Rows:
    def __init__(self, likelihood, x, y, n_predictors, n_classes=1, nu=4.0, scale=1.0):
        self.likelihood, self.y, self.n_predictors, self.n_classes = (
            likelihood,
            np.asarray(y, float),
            n_predictors,
            n_classes,
        )
        self.nu, self.scale2, self.x = nu, scale**2, x[:, :n_predictors].astype(float)
        self.n, self.n_parameters = len(x), n_predictors * n_classes
        self.bounds = None
        self._touch(np.zeros((self.n, n_classes)) + (self.y[:, None] if likelihood == STUDENT else 0))

    def _touch(self, eta):
        if self.likelihood == LOGISTIC:
            xi = np.abs(eta[:, 0])
            near = np.where(xi > 1e-3, xi, 1.0)
            a = np.where(xi > 1e-3, -np.tanh(near / 2) / (4 * near), -0.125 * (1 - xi**2 / 12 + xi**4 / 120))
            self.bounds = np.column_stack([a, -a * xi**2 - log_two_cosh(xi)])
        elif self.likelihood == SOFTMAX:
            log_g = eta - log_sum_exp(eta)[:, None]
            self.bounds = np.column_stack([log_g, np.exp(log_g)])
        else:
            self.bounds = (self.y[:, None] - eta) ** 2

    def tune(self, theta):
        self._touch(self.linear(theta))

    def untune(self, xi=0.0):
        at = {LOGISTIC: xi, SOFTMAX: 0.0, STUDENT: self.y[:, None] - xi}[self.likelihood]
        self._touch(np.zeros((self.n, self.n_classes)) + at)

    def linear(self, theta):
        return self.x @ np.reshape(theta, (self.n_classes, -1)).T

    def gram(self, weights):
        return (self.x * np.asarray(weights)[:, None]).T @ self.x

    def combine(self, v):
        return np.asarray(v).T @ self.x

    def gaps_and_slopes(self, theta, which=slice(None)):
        """(gap (n,), slope (n, K)): log L - log B, its derivative by each linear predictor (docs/math.md 4.1, 4.2)."""
        eta, bounds = self.linear(theta)[which], self.bounds[which]
        if self.likelihood == LOGISTIC:
            s, (a, c) = eta[:, 0], bounds.T
            gap, slope = -log_two_cosh(s) - a * s**2 - c, (-np.tanh(s / 2) / 2 - 2 * a * s)[:, None]
        elif self.likelihood == SOFTMAX:
            log_g, g = bounds[:, : self.n_classes], bounds[:, self.n_classes :]
            d, lse = eta - log_g, log_sum_exp(eta)
            centred = d - d.mean(axis=1, keepdims=True)
            gap = (centred**2).sum(axis=1) / 4 - (lse - (g * d).sum(axis=1))
            slope = centred / 2 - (np.exp(eta - lse[:, None]) - g)
        else:
            r, xi2 = self.y[which] - eta[:, 0], bounds[:, 0]
            u = (r**2 - xi2) / (self.nu * self.scale2 + xi2)
            gap = (self.nu + 1) / 2 * (u - np.log1p(u))
            slope = (-(self.nu + 1) * u * r / (self.nu * self.scale2 + xi2) / (1 + u))[:, None]
        return np.maximum(gap, 0), slope

    def gaps(self, theta):
        return self.gaps_and_slopes(theta)[0]

    def log_likelihood(self, theta, gradient=None):
        eta, y = self.linear(theta), self.y
        if self.likelihood == LOGISTIC:
            s = eta[:, 0]
            value, slope = y * s / 2 - log_two_cosh(s), (y / 2 - np.tanh(s / 2) / 2)[:, None]
        elif self.likelihood == SOFTMAX:
            part, lse = np.arange(self.n_classes) == y[:, None], log_sum_exp(eta)
            value, slope = (part * eta).sum(axis=1) - lse, part - np.exp(eta - lse[:, None])
        else:
            r, spread = y - eta[:, 0], self.nu * self.scale2
            constant = lgamma((self.nu + 1) / 2) - lgamma(self.nu / 2) - log(pi * spread) / 2
            value = constant - (self.nu + 1) / 2 * np.log1p(r**2 / spread)
            slope = ((self.nu + 1) * r / (spread + r**2))[:, None]
        if gradient is not None:
            gradient[:] = (slope.T @ self.x).ravel()
        return value.sum()


class Lights:
    def __init__(self, rows):
        self.rows, self.bright, self.gap = rows, np.empty(0, np.int32), np.empty(0)

    @property
    def n_bright(self):
        return len(self.bright)

    def set_bright(self, bright):
        self.bright, self.gap = np.array(bright, np.int32), np.full(len(bright), nan)

    def set_gap(self, gap):
        self.gap = np.array(gap)

    def refresh(self, theta):
        self.gap = self.rows.gaps(theta)[self.bright]

    def draw(self, theta, seed, cycle, chain, shard):
        words, gap = Words(seed, FIRST_LIGHT, shard, cycle, chain), self.rows.gaps(theta)
        self.set_bright([n for n in range(self.rows.n) if words.short_uniform() < -np.expm1(-gap[n])])
        self.set_gap(gap[self.bright])

    def sweep(self, theta, q, explicit, seed, cycle, chain, shard):
        words, gap = Words(seed, BRIGHTNESS, shard, cycle, chain), self.rows.gaps(theta)
        gap[self.bright] = self.gap  # known, from the last evaluation at theta
        start = set(self.bright.tolist())
        bright = set(start)
        if not explicit:  # bright rows go dark with probability min(1, q / L~)
            for n in sorted(start):
                if words.short_uniform() * -np.expm1(-gap[n]) < q * exp(-gap[n]):
                    bright.discard(n)
            for _ in range(-len(start) % 4):
                words.next()
        queries, n, hits = 0, -1, []
        while q > 0:  # positions met by Geometric(q) skips; words for eight of them, then for what they decide
            if not hits:
                hits = [words.short_uniform() for _ in range(16)]
            u = hits.pop(len(hits) // 2)
            skip = log(1 - hits.pop(0)) / (log1p(-q) if q < 1 else -inf)
            n += 1 + floor(min(skip, self.rows.n))
            if n >= self.rows.n:
                break
            queries += n not in start
            if explicit:  # anew
                (bright.add if u < -np.expm1(-gap[n]) else bright.discard)(n)
            elif n not in start and u * q * exp(-gap[n]) < -np.expm1(-gap[n]):  # min(1, L~ / q)
                bright.add(n)
        self.set_bright(sorted(bright))
        self.set_gap(gap[self.bright])
        return queries

    def gather(self):
        x = np.zeros((self.n_bright, ceil(self.rows.n_predictors / 8) * 8), np.float32)
        x[:, : self.rows.n_predictors] = self.rows.x[self.bright]
        return x, self.rows.y[self.bright], self.rows.bounds[self.bright]


# ---- the density that theta sees -------------------------------------------------------------------------------------


class Target:
    def __init__(self, likelihood, n_predictors, n_classes, nu, scale, theta0, S, A, G, c0, prior, prior_scale):
        self.model = likelihood, n_predictors, n_classes, nu, scale
        self.centre, self.S, self.A, self.G, self.c0 = np.array(theta0), S, np.array(A), np.ravel(G), c0
        self.prior, self.prior_scale, self.n_classes = np.asarray(prior), np.array(prior_scale), n_classes
        self.remote, self.shards, self.gap, self.log_density = None, [], np.empty(0), nan

    def load(self, lights):
        self.shards = list(lights)
        self.n_rows, self.gap = sum(one.n_bright for one in lights), np.concatenate([one.gap for one in lights])

    def load_full(self, rows):
        self.shards, self.n_rows, self.gap = list(rows), sum(one.n for one in rows), np.empty(0)

    def load_arrays(self, x, y, bounds, lengths):
        likelihood, n_predictors, n_classes, nu, scale = self.model
        shards, stop = [], np.cumsum(lengths)
        for first, last in zip(stop - lengths, stop, strict=True):
            one = Lights(Rows(likelihood, x[first:last], y[first:last], n_predictors, n_classes, nu, scale))
            one.rows.bounds = np.array(bounds[first:last])
            one.set_bright(np.arange(last - first))
            shards.append(one)
        self.load(shards)

    def partial(self, shard, theta, gradient=None):
        if isinstance(shard, Rows):
            return shard.log_likelihood(theta, gradient)
        gap, slope = shard.rows.gaps_and_slopes(theta, shard.bright)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if gradient is not None:
                gradient[:] = ((slope / -np.expm1(-gap)[:, None]).T @ shard.rows.x[shard.bright]).ravel()
            return float(np.sum(gap + np.log(-np.expm1(-gap))))  # log(e^gap - 1)

    def rows_value(self, theta, gradient=None):
        if self.remote is not None:
            return self.remote(theta, gradient)
        total, part = 0.0, None if gradient is None else np.zeros_like(gradient)
        if gradient is not None:
            gradient[:] = 0
        for shard in self.shards:
            total += self.partial(shard, theta, part)
            if gradient is not None:
                gradient += part
        return total

    def value(self, theta, gradient=None):
        part = None if gradient is None else np.zeros_like(gradient)
        value, proper, scale = self.rows_value(theta, part), np.isfinite(self.prior_scale), self.prior_scale
        laws = [proper & (self.prior == GAUSSIAN), proper & (self.prior == LAPLACE)]  # else flat
        normal = -((theta / scale) ** 2) / 2 - np.log(scale) - log(2 * pi) / 2
        value += np.sum(np.select(laws, [normal, -np.abs(theta) / scale - np.log(2 * scale)]))
        slope = np.select(laws, [-theta / scale**2, -np.sign(theta) / scale])
        if not (self.shards and isinstance(self.shards[0], Rows)):
            phi = np.reshape(theta - self.centre, (self.n_classes, -1))
            value += self.c0 + self.G @ phi.ravel() - np.sum(phi * (self.A @ phi @ self.S)) / 2
            slope = slope + self.G - (self.A @ phi @ self.S).ravel()
        if gradient is not None:
            gradient[:] = slope + part
        return value

    def accept(self, theta, log_density):
        """theta is the state from now on."""
        self.log_density = log_density
        local = self.remote is None and not (self.shards and isinstance(self.shards[0], Rows))
        if local and self.shards:
            self.gap = np.concatenate([one.rows.gaps(theta)[one.bright] for one in self.shards])


# ---- updates of theta ------------------------------------------------------------------------------------------------


def acceptance(x):
    return 1.0 if x >= 0 else exp(x) if x > -708 else 0.0


class Mover:
    def __init__(self, kind, n_parameters, whitening=None):
        self.kind, self.goal = kind, GOALS[kind]
        self.W = np.eye(n_parameters) if whitening is None else np.float32(whitening).astype(float)

    def step(self, target, theta, step_size, n_steps, seed, cycle, chain):
        words = Words(seed, THETA, 0, cycle, chain)
        if self.kind == HMC:
            step_size *= 1 + 0.2 * (2 * words.uniform() - 1)
        if self.kind in (HMC, MALA):
            return self.hamiltonian(target, theta, step_size, n_steps if self.kind == HMC else 1, words)
        return (self.slice if self.kind == SLICE else self.random_walk)(target, theta, step_size, words)

    def hamiltonian(self, target, theta, step, n_steps, words):
        """Leapfrog steps in u, theta = W u; one of them is MALA."""
        p, gradient, place = words.normals(len(theta)), np.empty(len(theta)), theta.copy()
        kinetic = p @ p / 2
        before = target.value(theta, gradient)
        target.accept(theta, before)
        for i in range(n_steps):
            p = p + step / 2 * (self.W.T @ gradient)
            place += step * (self.W @ p)
            after = target.value(place, gradient)
            if not isfinite(after):
                return 0.0, i + 2
            p = p + step / 2 * (self.W.T @ gradient)
        accept = acceptance(after - p @ p / 2 - (before - kinetic))
        if words.uniform() < accept:
            theta[:] = place
            target.accept(theta, after)
        return accept, n_steps + 1

    def random_walk(self, target, theta, step, words):
        place = theta + step * (self.W @ words.normals(len(theta)))
        before, after = target.value(theta), target.value(place)
        target.accept(theta, before)
        if not isfinite(after):
            return 0.0, 2
        accept = acceptance(after - before)
        if words.uniform() < accept:
            theta[:] = place
            target.accept(theta, after)
        return accept, 2

    def slice(self, target, theta, width, words):
        """Neal (2003), Figures 3 and 5, along a random direction of length 1 in u."""
        direction = words.normals(len(theta))
        along = self.W @ (direction / np.linalg.norm(direction))
        before, evaluations = target.value(theta), 1
        target.accept(theta, before)
        level = before + log(1 - words.uniform())
        ends = [-width * words.uniform(), 0.0]
        ends[1] = ends[0] + width
        left = floor(SLICE_STEPS * words.uniform())
        for end, steps in enumerate((left, SLICE_STEPS - 1 - left)):
            for _ in range(steps):
                evaluations += 1
                if not target.value(theta + ends[end] * along) > level:
                    break
                ends[end] += width if end else -width
        for _ in range(SLICE_SHRINKS):
            at = ends[0] + (ends[1] - ends[0]) * words.uniform()
            value = target.value(theta + at * along)
            evaluations += 1
            if isfinite(value) and value > level:
                theta += at * along
                target.accept(theta, value)
                return 1.0, evaluations
            ends[int(at >= 0)] = at
        return 0.0, evaluations


def start_tuning(step_size, n_bright):
    return np.array([step_size, step_size, 0.0, n_bright, log(step_size), log(step_size)])


def adapt(tuning, accept, n_bright, goal):
    tuning[2] += 1
    count = tuning[2]
    tuning[3] += 2 / (count + 1) * (n_bright - tuning[3])
    if goal > 0:
        tuning[4] += (count + 1) ** -0.6 * ((accept if accept >= 0 else 0) - goal)
        tuning[5] += count**-0.75 * (tuning[4] - tuning[5])
        tuning[:2] = np.exp(tuning[4:])


def proposal_rate(tuning, q_factor, n_rows):
    return min(1.0, -q_factor if q_factor < 0 else max(q_factor * tuning[3] / n_rows, 1 / n_rows))


def cycles(
    lights, target, mover, theta, tuning, q_factor, explicit, n_steps, seed, first_cycle, chain, n_cycles,
    adapting_until, out,
):  # fmt: skip
    n_rows = sum(one.rows.n for one in lights)
    for c, cycle in enumerate(range(first_cycle, first_cycle + n_cycles)):
        step, queries = tuning[0 if cycle <= adapting_until else 1], 0
        for shard, one in enumerate(lights):
            queries += one.sweep(theta, proposal_rate(tuning, q_factor, n_rows), explicit, seed, cycle, chain, shard)
        if lights:
            target.load(lights)
        accept, evaluations = mover.step(target, theta, step, n_steps, seed, cycle, chain)
        for one in lights:
            one.refresh(theta)
        if cycle <= adapting_until:
            adapt(tuning, accept, target.n_rows, mover.goal)
        out["theta"][c], out["lp"][c], out["acceptance"][c] = theta, target.log_density, accept
        out["step_size"][c], out["bright"][c], out["queries_z"][c] = step, target.n_rows, queries
        out["queries_theta"][c] = evaluations * target.n_rows
