"""Many independent chains of one strategy, side by side in NumPy arrays; a state is the counts of balls on the left."""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from urns import EMPTY_START, STRATEGIES, Urns, log_posterior_terms, schedule

BLOCK = 4096  # chains advanced together: their arrays stay in the processor's cache


class Chains:
    """`size` chains: n balls present (the same number in all), r of them red, i red and j blue ones on the left.

    Counts are float arrays (size,), exact as integers; `g` is the source of all random numbers of these chains.
    """

    def __init__(self, urns: Urns, size: int, empty: bool, g: np.random.Generator):
        self.urns, self.g = urns, g
        self.tables = log_posterior_terms(urns)
        if empty:
            self.n = 0
            self.r, self.i, self.j = np.zeros((3, size))
        else:
            self.n = urns.total
            self.r = np.full(size, float(urns.red))
            self.i = g.binomial(urns.red, urns.p, size).astype(float)
            self.j = g.binomial(urns.blue, urns.p, size).astype(float)

    def uniform(self, scale: float = 1.0) -> np.ndarray:
        u = self.g.random(len(self.r))
        return u if scale == 1.0 else np.multiply(u, scale, out=u)

    def remove(self) -> None:
        """A random ball of the n present leaves: u falls on a red left, red right, blue right or blue left one."""
        u = self.uniform(self.n)
        self.i -= u < self.i
        self.j -= u >= self.n - self.j
        self.r -= u < self.r
        self.n -= 1

    def draw_colour(self) -> np.ndarray:
        """Whether the ball to be assigned is red: a ball chosen at random among the absent."""
        if self.n == self.urns.total - 1:
            return self.r < self.urns.red
        return self.uniform(self.urns.total - self.n) < self.urns.red - self.r

    def assign(self, beta: float = 1.0) -> None:
        """A ball chosen at random among the absent is put left or right, by p and predictive^beta."""
        p, a = self.urns.p, self.urns.a
        red = self.draw_colour()
        here = np.where(red, self.i, self.j)
        there = np.where(red, self.r, self.n - self.r)
        there -= here
        # Weights of left and right, (here + a) / (left + 2a) and so on, times both denominators.
        left = self.i + self.j
        right = (self.n + 2 * a) - left
        left += 2 * a
        here += a
        there += a
        here *= right
        there *= left
        if beta != 1.0:
            there /= here
            np.power(there, beta, out=there)
            here = 1.0
        there *= (1 - p) / p
        there += here
        there *= self.uniform()
        go_left = there < here
        self.i += go_left & red
        self.j += go_left > red
        self.r += red
        self.n += 1

    def pair(self, beta: float = 1.0) -> None:
        self.remove()
        self.assign(beta)

    def block(self, s: int) -> None:
        """Colour by its share, direction by a coin, then stay or move s balls, by the posterior of the two states."""
        of_red, of_blue, of_left = self.tables
        red = self.uniform(self.urns.total) < self.urns.red
        step = np.where(self.uniform() < 0.5, s, -s)
        i, j = self.i.astype(np.int64), self.j.astype(np.int64)
        to_i, to_j = i + step * red, j + step * ~red
        fits = (to_i >= 0) & (to_i <= self.urns.red) & (to_j >= 0) & (to_j <= self.urns.blue)
        to_i, to_j = np.where(fits, to_i, i), np.where(fits, to_j, j)
        log_ratio = of_red[to_i] + of_blue[to_j] + of_left[to_i + to_j] - of_red[i] - of_blue[j] - of_left[i + j]
        move = self.uniform() < expit(log_ratio)
        self.i += np.where(move, to_i - i, 0)
        self.j += np.where(move, to_j - j, 0)

    def run(self, steps) -> None:
        act = {"assign": self.assign, "pair": self.pair, "block": self.block}
        for step, argument in steps:
            act[step](argument)


def generator(name: str, seed: int, block: int) -> np.random.Generator:
    """The random numbers of one block of chains of one strategy."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, STRATEGIES.index(name), block])))


def sample(urns: Urns, name: str, passes: int, size: int, seed: int, chains=Chains) -> tuple[np.ndarray, np.ndarray]:
    """Final (i, j) of `size` independent chains, two int arrays (size,); `chains` is the class that makes the steps."""
    out = []
    for number, first in enumerate(range(0, size, BLOCK)):
        block = chains(urns, min(BLOCK, size - first), name in EMPTY_START, generator(name, seed, number))
        block.run(schedule(name, urns.total, passes))
        out.append(np.stack([block.i, block.j]).astype(np.int64))
    i, j = np.concatenate(out, axis=1)
    return i, j
