"""Exact posterior of features of tiny tables: the classes of Z are enumerated, hyperparameters integrated by
quadrature.

A class of Z is the number of columns with each history (the rows that have the feature). Given hyperparameters the
numbers of columns are independent Poissons, and the loadings integrate out: docs/math.md 7.1. Classes with more than
`most` columns are omitted; in these cases they are negligible. No code is shared with the program: likelihoods come
from eigenvalues of Z Z', the program's from sums over features.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property
from math import comb

import numpy as np
import scipy
from scipy.special import gammaln, logsumexp

from mpibayes.hpc.ibp.state import Gamma, Hyper, InverseGamma


@dataclass(frozen=True)
class Case:
    """A table, (N, D) with NaN for missing cells, the settings of its model, and the quadrature's size."""

    x: np.ndarray
    settings: dict = field(default_factory=dict)
    most: int = 8
    points: int = 48


def case(rows, most=8, points=48, **settings) -> Case:
    return Case(np.array(rows, np.float32).astype(np.float64), settings, most, points)


THREE = [(1.2, -0.3), (0.9, 0.8), (2.3, 0.4)]
NAN = np.nan
FIXED = {"alpha": 0.8, "noise_sd": 0.5, "feature_sd": 1.0}
# priors under which more than seven features are too rare for the tests to detect
LEARNED = {"alpha": Gamma(6.0, 20.0), "noise_sd": InverseGamma(5.0, 2.0), "feature_sd": InverseGamma(5.0, 6.0)}
WIDE = np.random.Generator(np.random.Philox(7)).standard_normal((3, 20)).round(2)
WIDE[:2] += 2.0 * np.random.Generator(np.random.Philox(8)).standard_normal(20).round(2)  # of the first two rows
CASES = {
    "ibp3": case(THREE, 9, **FIXED),
    "c": case(THREE, **{**FIXED, "alpha": 0.6, "c": 2.5}),
    "learned": case(THREE, 7, 32, **LEARNED),
    "grid of c": case(THREE, 7, **{**LEARNED, "noise_sd": 0.5, "c": (0.3, 1.0, 6.0)}),
    "missing": case([(1.2, NAN), (NAN, 0.8), (2.3, 0.4)], **FIXED),
    "missing, learned": case([(1.2, NAN, 0.4), (NAN, NAN, NAN), (2.3, 0.4, NAN)], 6, 20, **LEARNED),
    "own noise": case([(1.2, -0.6), (0.9, 1.6), (2.3, 0.8)], 7, **{**LEARNED, "noise": "column"}),
    "own noise, one column": case([(1.2,), (NAN,), (2.3,)], 7, **{**LEARNED, "alpha": 0.4, "noise": "column"}),
    "own noise, fixed": case(THREE, **{**FIXED, "noise": "column", "feature_sd": 1.5}),
    "four": case([*THREE, (-0.7, 0.9)], 6, **{**FIXED, "alpha": 0.5, "c": 0.6}),
    # a weak likelihood, concentrations far apart, and two rows, whose features change in every cycle: most
    # sensitive to weights drawn with another concentration
    "far c": case([(0.1,), (0.2,)], 12, alpha=1.0, noise_sd=10.0, feature_sd=0.01, c=(0.1, 1.0, 10.0)),
    # columns with a nearly flat noise prior, and a feature that affects them all: most sensitive to loadings drawn
    # with other noises
    "wide noise": case(WIDE, 7, alpha=0.4, noise_sd=InverseGamma(0.1, 0.1), feature_sd=1.0, noise="column"),
    # two rows that ask for the same two features: most sensitive to the order of visits
    "two": case([(2.4, 0.3), (2.2, -0.2)], 12, alpha=1.5, noise_sd=0.5, feature_sd=1.0),
}


def log_rates(n: int, c: float) -> np.ndarray:
    """Log of the mean number of columns with m owners, each such history, per unit of mass: (n + 1,), -inf at 0."""
    m = np.arange(1, n + 1)
    return np.concatenate([[-np.inf], np.log(c) + gammaln(m) + gammaln(n - m + c) - gammaln(n + c)])


def harmonic(n: int, c: float) -> float:
    return float(sum(c / (c + i) for i in range(n)))


def draw_prior(n: int, alpha: float, c: float, g: np.random.Generator) -> np.ndarray:
    """Features (n, K) from the two-parameter buffet: row after row, in random order of columns."""
    columns = np.zeros((n, 0), bool)
    for i in range(n):
        columns[i] = g.random(columns.shape[1]) < columns[:i].sum(axis=0) / (i + c)
        fresh = np.zeros((n, g.poisson(alpha * c / (i + c))), bool)
        fresh[i] = True
        columns = np.hstack([columns, fresh])
    return columns[:, g.permutation(columns.shape[1])]


class Law:
    """Distribution of (class of Z, hyperparameters, missing cells) of a case.

    p (C + 1,): of each class; the last, 0, is for omitted classes. names, expected: of events of a state, and their
    probabilities; `look` returns the events of a state.
    """

    def __init__(self, case: Case):
        self.case, self.x = case, case.x
        self.n, self.d = case.x.shape
        s = case.settings
        self.alpha, self.noise = s["alpha"], s.get("noise", "shared")
        self.cs = np.atleast_1d(np.asarray(s.get("c", 1.0), float))
        self.histories = np.array(list(itertools.product((0, 1), repeat=self.n)))[1:]
        self._enumerate(case.most)
        prior = np.stack([self._log_prior(c) for c in self.cs], axis=1)
        fit = self._log_fit(s["noise_sd"], s["feature_sd"], case.points)
        log_p = logsumexp(prior, axis=1) - np.log(len(self.cs)) + logsumexp(fit, axis=1)
        self.log_evidence = float(logsumexp(log_p))
        self.p = np.append(np.exp(log_p - self.log_evidence), 0.0)
        self.of_c = np.exp(prior - logsumexp(prior, axis=1, keepdims=True))
        self.of_point = np.exp(fit - logsumexp(fit, axis=1, keepdims=True))

    @cached_property
    def _table(self):
        """(names, seen, expected) of the events; computed on first use."""
        self._found = []
        self._events()
        names, given, seen = zip(*self._found)
        return list(names), seen, np.array(given) @ self.p

    @property
    def names(self):
        return self._table[0]

    @property
    def expected(self):
        return self._table[2]

    # --- classes ---

    def _enumerate(self, most: int) -> None:
        """Set counts (C, histories), the number of columns with each history; k, features."""
        h = len(self.histories)
        rows = [np.zeros((1, h), np.int64)]
        for k in range(1, most + 1):
            chosen = np.array(list(itertools.combinations_with_replacement(range(h), k)))
            rows.append(np.stack([(chosen == i).sum(axis=1) for i in range(h)], axis=1))
            assert len(rows[-1]) == comb(h + k - 1, k)
        self.counts = np.concatenate(rows)
        self.k = self.counts.sum(axis=1)
        self.base = (most + 1) ** np.arange(h, dtype=np.int64)
        keys = self.counts @ self.base
        self.order = np.argsort(keys)
        self.keys = keys[self.order]
        h_h = self.histories[:, :, None] * self.histories[:, None, :]
        self.gram = np.einsum("ch,hij->cij", self.counts, h_h).astype(float)  # Z Z'

    def index(self, features: np.ndarray) -> int:
        """Number of the class of features (N, K); the last one if it was omitted."""
        used = np.asarray(features)[:, np.asarray(features).any(axis=0)].astype(np.int64)
        if used.shape[1] > self.case.most:
            return len(self.counts)
        code = used.T @ (1 << np.arange(self.n)[::-1]) - 1
        key = int(self.base[code].sum())
        return int(self.order[np.searchsorted(self.keys, key)])

    def features(self, number: int, g: np.random.Generator) -> np.ndarray:
        """Features (N, K) of a class, their columns in random order."""
        columns = np.repeat(self.histories, self.counts[number], axis=0).T.astype(bool)
        return columns[:, g.permutation(columns.shape[1])]

    # --- the two factors ---

    def _log_prior(self, c: float) -> np.ndarray:
        """Log p(class | c), with the mass integrated out if it is learned."""
        each = log_rates(self.n, c)[self.histories.sum(axis=1)]
        out, h = self.counts @ each - gammaln(self.counts + 1.0).sum(axis=1), harmonic(self.n, c)
        if isinstance(self.alpha, Gamma):
            a, b = self.alpha.shape, self.alpha.rate
            return out + a * np.log(b) - gammaln(a) + gammaln(a + self.k) - (a + self.k) * np.log(b + h)
        return out + self.k * np.log(self.alpha) - self.alpha * h

    def _log_fit(self, noise_sd, feature_sd, points: int) -> np.ndarray:
        """Log of p(x | class, point) times the point's prior mass, (C, points).

        A point is (noise, ratio): variances of the noise and of a loading; with noise per column, only the variance of
        a loading over it, the noise being integrated out in closed form if it is learned.
        """
        axes = [self._axis(prior, points) for prior in (noise_sd, feature_sd)]
        if self.noise == "column":
            axes[0] = (np.ones(1), np.zeros(1), 0.0)
        (v, w, self.step_noise), (f, u, self.step_feature) = axes
        self.v, self.f = np.repeat(v, len(f)), np.tile(f, len(v))
        out = np.tile(np.repeat(w, len(f)) + np.tile(u, len(v)), (len(self.counts), 1))
        self.parts = []  # (columns, eigenvalues (C, rows), squares (C, rows, columns)) by pattern of missing rows
        seen = np.isfinite(self.x)
        for pattern in np.unique(seen.T, axis=0):
            columns = np.flatnonzero((pattern == seen.T).all(axis=1))
            if not pattern.any():
                continue
            values, vectors = np.linalg.eigh(self.gram[:, pattern][:, :, pattern])
            squares = np.einsum("crs,rd->csd", vectors, self.x[np.ix_(pattern, columns)]) ** 2
            self.parts.append((columns, np.maximum(values, 0.0), squares))
            for start in range(0, len(out) if self.noise == "shared" else 0, 64):  # blocks that stay in the cache
                subset = slice(start, start + 64)
                for i in range(pattern.sum()):
                    variance = self.v + self.f * self.parts[-1][1][subset, i, None]
                    out[subset] -= 0.5 * len(columns) * np.log(2.0 * np.pi * variance)
                    out[subset] -= 0.5 * squares[subset, i].sum(axis=1)[:, None] / variance
            if self.noise == "column":
                for j in range(len(columns)):
                    log_det, q = self._own_noise(self.parts[-1], j)
                    a, b = self._noise_prior()
                    n = pattern.sum()
                    out -= 0.5 * n * np.log(2.0 * np.pi) + 0.5 * log_det
                    if b is None:
                        out -= n * np.log(a) + 0.5 * q / a**2
                    else:
                        out += a * np.log(b) - gammaln(a) + gammaln(a + 0.5 * n) - (a + 0.5 * n) * np.log(b + 0.5 * q)
        return out

    def _noise_prior(self):
        """(shape, scale) of each column's noise; (standard deviation, None) if it is fixed."""
        given = self.case.settings["noise_sd"]
        return (given.shape, given.scale) if isinstance(given, InverseGamma) else (given, None)

    def _own_noise(self, part, j):
        """Log determinant of I + f Z Z' and x' (I + f Z Z')^-1 x for the j-th column of a part, (C, points) each."""
        _, values, squares = part
        scale = 1.0 + self.f * values[:, :, None]
        return np.log(scale).sum(axis=1), (squares[:, :, j, None] / scale).sum(axis=1)

    @staticmethod
    def _axis(given, points):
        """(variances, log masses, step in the logarithm); one point if it is fixed."""
        if not isinstance(given, InverseGamma):
            return np.array([given**2]), np.zeros(1), 0.0
        law = scipy.stats.invgamma(given.shape, scale=given.scale)
        low, high = np.log(law.ppf([1e-5, 1.0 - 1e-5]))
        step = (high - low) / points
        at = low + step * (np.arange(points) + 0.5)
        return np.exp(at), law.logpdf(np.exp(at)) + at + np.log(step), step

    # --- what a state shows ---

    def _add(self, name, given, seen):
        """Add an event: its probability given each class, and its indicator for a state (see `look`)."""
        self._found.append((name, np.append(np.broadcast_to(given, (len(self.counts),)), 0.0), seen))

    def _events(self):
        k, p = self.k, self.p[:-1]
        for value in range(self.case.most + 1):
            self._add(f"K = {value}", k == value, lambda s, value=value: s["k"] == value)
        for i, j in itertools.combinations_with_replacement(range(self.n), 2):
            for least in (1, 2):
                on = self.gram[:, i, j] >= least
                self._add(
                    f"rows {i}, {j} share {least}", on, lambda s, on=on: s["number"] < len(on) and on[s["number"]]
                )
        for number in np.argsort(-p)[:12]:
            name = " ".join("".join(map(str, h)) for h in self.features(number, np.random.default_rng(0)).T.astype(int))
            on = np.arange(len(p)) == number
            self._add(f"class [{name}]", on, lambda s, number=number: s["number"] == number)
        middle = int(k[np.argsort(k, kind="stable")][np.searchsorted(np.cumsum(p[np.argsort(k, kind="stable")]), 0.5)])
        few = k <= middle
        for name, given, seen in [*self._of_mass(), *self._of_variances(), *self._of_cells()]:
            self._add(name, given, seen)
            self._add(f"{name}, K <= {middle}", given * few, lambda s, seen=seen: seen(s) and s["k"] <= middle)
        shared = np.append(self.gram[:, 0, 1] > 0, False)  # c acts through the weights here
        for name, given, seen in self._of_concentration():
            joint = lambda s, seen=seen: seen(s) and shared[s["number"]]  # noqa: E731
            self._add(f"{name}, rows 0, 1 share", given * shared[:-1], joint)

    def _of_concentration(self):
        for i, c in enumerate(self.cs if len(self.cs) > 1 else []):
            yield f"c = {c:g}", self.of_c[:, i], lambda s, c=c: abs(s["hyper"].c - c) < 1e-12

    def _of_mass(self):
        yield from self._of_concentration()
        if not isinstance(self.alpha, Gamma):
            return
        gamma = scipy.stats.gamma
        for bound in gamma(self.alpha.shape, scale=1.0 / self.alpha.rate).ppf([0.2, 0.5, 0.8]):
            below = sum(
                self.of_c[:, i]
                * scipy.stats.gamma(self.alpha.shape + self.k, scale=1.0 / (self.alpha.rate + h)).cdf(bound)
                for i, h in enumerate(harmonic(self.n, c) for c in self.cs)
            )
            yield f"alpha < {bound:.3g}", below, lambda s, bound=bound: s["hyper"].alpha < bound

    def _quarters(self, values, step):
        """Edges between points near the quartiles of the posterior of a variance."""
        mass = self.p[:-1] @ self.of_point
        points = np.unique(values)
        cumulative = np.cumsum([mass[values == v].sum() for v in points])
        return [points[np.searchsorted(cumulative, q)] * np.exp(0.5 * step) for q in (0.25, 0.5, 0.75)]

    def _of_variances(self):
        s = self.case.settings
        if isinstance(s["noise_sd"], InverseGamma) and self.noise == "shared":
            for bound in self._quarters(self.v, self.step_noise):
                given = self.of_point @ (self.v < bound)
                yield f"noise < {bound:.3g}", given, lambda s, bound=bound: s["hyper"].noise_sd[0] ** 2 < bound
        if isinstance(s["feature_sd"], InverseGamma):
            for bound in self._quarters(self.f, self.step_feature):
                given = self.of_point @ (self.f < bound)
                yield f"loadings' < {bound:.3g}", given, lambda s, bound=bound: s["hyper"].feature_sd ** 2 < bound
        a, b = self._noise_prior()
        if b is None or self.noise == "shared":
            return
        for part in self.parts:
            for j, column in enumerate(part[0].tolist()):
                n, q = part[1].shape[1], self._own_noise(part, j)[1]
                laws = scipy.stats.invgamma(a + 0.5 * n, scale=b + 0.5 * q)
                start = float(self.p[:-1] @ (self.of_point * laws.median()).sum(axis=1))
                for bound in (0.6 * start, start, 1.7 * start):
                    given = (self.of_point * laws.cdf(bound)).sum(axis=1)
                    seen = lambda s, bound=bound, column=column: s["hyper"].noise_sd[column] ** 2 < bound  # noqa: E731
                    yield f"noise of {column} < {bound:.3g}", given, seen

    def _of_cells(self):
        """Add events that a missing cell is below a bound; only with shared or fixed noise, where it is normal given
        the point."""
        if self.noise == "column" and self._noise_prior()[1] is not None:
            return
        for row, column in np.argwhere(~np.isfinite(self.x)).tolist():
            mean, sd = self._cell(row, column)
            for bound in (-0.5, 0.5, 1.5):
                given = (self.of_point * scipy.stats.norm.cdf(bound, mean, sd)).sum(axis=1)
                yield (
                    f"cell ({row}, {column}) < {bound}",
                    given,
                    lambda s, row=row, column=column, bound=bound: s["cells"][row, column] < bound,
                )

    def _cell(self, row, column):
        """Mean and standard deviation of a missing cell, (C, points), given the observed ones of its column."""
        on = np.flatnonzero(np.isfinite(self.x[:, column]))
        mean, sd = np.zeros((2, len(self.counts), len(self.v)))
        fixed = self._noise_prior()[0] ** 2 if self.noise == "column" else None
        for g in range(len(self.v)):
            v, f = (fixed, fixed * self.f[g]) if fixed else (self.v[g], self.f[g])
            cross, part = f * self.gram[:, row, on], v + f * self.gram[:, row, row]
            if len(on):
                solved = np.linalg.solve(v * np.eye(len(on)) + f * self.gram[:, on][:, :, on], cross[:, :, None])[
                    ..., 0
                ]
                mean[:, g], part = solved @ self.x[on, column], part - (solved * cross).sum(axis=1)
            sd[:, g] = np.sqrt(part)
        return mean, sd

    def look(self, features, hyper, cells) -> tuple[int, np.ndarray]:
        """(number of the class, indicators of the events in a state)."""
        number = self.index(features)
        state = {"number": number, "k": int(np.asarray(features).any(axis=0).sum()), "hyper": hyper, "cells": cells}
        return number, np.array([bool(seen(state)) for seen in self._table[1]])

    # --- exact draws ---

    def draw(self, g: np.random.Generator, size: int):
        """Exact draws of the state between cycles: a list of (features, hyper, cells).

        Learned variances are spread evenly over the cell of their point, with an error of second order in the
        quadrature's step.
        """
        out = []
        for number in g.choice(len(self.p), size=size, p=self.p / self.p.sum()).tolist():
            c = float(self.cs[g.choice(len(self.cs), p=self.of_c[number])])
            alpha = self.alpha
            if isinstance(alpha, Gamma):
                alpha = float(g.gamma(alpha.shape + self.k[number]) / (alpha.rate + harmonic(self.n, c)))
            point = g.choice(len(self.v), p=self.of_point[number])
            v = self.v[point] * np.exp(self.step_noise * (g.random() - 0.5))
            f = self.f[point] * np.exp(self.step_feature * (g.random() - 0.5))
            noise = np.full(self.d, v)
            if self.noise == "column":
                noise = self._draw_noise(number, f, g)
                feature = np.full(self.d, f) * noise
            else:
                feature = np.full(self.d, f)
            cells = self.x.copy()
            for column in range(self.d):
                on = np.isfinite(self.x[:, column])
                cover = noise[column] * np.eye(self.n) + feature[column] * self.gram[number]
                if not on.all():
                    gain = cover[np.ix_(~on, on)] @ np.linalg.inv(cover[np.ix_(on, on)]) if on.any() else None
                    mean = gain @ self.x[on, column] if on.any() else np.zeros(self.n)
                    left = cover[np.ix_(~on, ~on)] - (gain @ cover[np.ix_(on, ~on)] if on.any() else 0.0)
                    cells[~on, column] = g.multivariate_normal(mean, left)
            hyper = Hyper(float(alpha), c, np.sqrt(noise), float(np.sqrt(f)), self.noise)
            out.append((self.features(number, g), hyper, cells))
        return out

    def _draw_noise(self, number, f, g):
        a, b = self._noise_prior()
        if b is None:
            return np.full(self.d, a**2)
        noise = b / g.gamma(a, size=self.d)
        for columns, values, squares in self.parts:
            q = (squares[number] / (1.0 + f * values[number])[:, None]).sum(axis=0)
            noise[columns] = (b + 0.5 * q) / g.gamma(a + 0.5 * values.shape[1], size=len(columns))
        return noise
