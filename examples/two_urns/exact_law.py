"""The exact law of a strategy's final state, without sampling: probabilities pushed through every step.

With n balls present, r of them red, the state is (r, i, j).  Only the r that are possible at this n are kept: two or
three of them when nearly all balls are present, so that a Gibbs step at full size costs a few grids of (R+1)(B+1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from urns import EMPTY_START, Urns, log_posterior_terms, prior, schedule


@dataclass
class Law:
    """P(r, i, j) with n balls present; p[r - low, i, j], where low is the least r that is possible."""

    urns: Urns
    n: int
    p: np.ndarray

    @property
    def low(self) -> int:
        return max(0, self.n - self.urns.blue)

    def counts(self):
        """r, i, j as arrays that broadcast against p."""
        rows, i, j = np.ogrid[: self.p.shape[0], : self.p.shape[1], : self.p.shape[2]]
        return rows + self.low, i, j

    def resized(self, n: int) -> Law:
        """An empty law of the same urns with n balls present."""
        low, high = max(0, n - self.urns.blue), min(self.urns.red, n)
        return Law(self.urns, n, np.zeros((high - low + 1, self.urns.red + 1, self.urns.blue + 1)))

    def moved(self, to: Law, flow: np.ndarray, red: int, i: int, j: int) -> None:
        """Adds the flow out of each state to the state with red, i, j changed by that much."""

        def cut(size_from, size_to, shift):
            first, last = max(0, -shift), min(size_from, size_to - shift)
            return slice(first, last), slice(first + shift, last + shift)

        shifts = (red + self.low - to.low, i, j)
        pairs = [cut(a, b, s) for a, b, s in zip(flow.shape, to.p.shape, shifts)]
        to.p[tuple(t for _, t in pairs)] += flow[tuple(f for f, _ in pairs)]


def start(urns: Urns, name: str) -> Law:
    empty = Law(urns, 0, np.zeros((1, urns.red + 1, urns.blue + 1)))
    if name in EMPTY_START:
        empty.p[0, 0, 0] = 1.0
        return empty
    return Law(urns, urns.total, prior(urns)[None])


def remove(law: Law) -> Law:
    """A ball chosen at random among the n present leaves."""
    r, i, j = law.counts()
    to = law.resized(law.n - 1)
    law.moved(to, law.p * i / law.n, -1, -1, 0)
    law.moved(to, law.p * (r - i) / law.n, -1, 0, 0)
    law.moved(to, law.p * j / law.n, 0, 0, -1)
    law.moved(to, law.p * (law.n - r - j) / law.n, 0, 0, 0)
    return to


def assign(law: Law, beta: float = 1.0) -> Law:
    """A ball chosen at random among the absent is put left or right, by p and predictive^beta."""
    urns, n = law.urns, law.n
    r, i, j = law.counts()
    to = law.resized(n + 1)
    left, right = i + j + 2 * urns.a, np.maximum(n - i - j, 0) + 2 * urns.a

    def go_left(here, there):
        """P(left) for a colour with so many balls here (left) and there; impossible states are kept finite."""
        this = urns.p * ((here + urns.a) / left) ** beta
        other = (1 - urns.p) * ((np.maximum(there, 0) + urns.a) / right) ** beta
        return this / (this + other)

    of_red = law.p * (urns.red - r) / (urns.total - n)
    of_blue = law.p * (urns.blue - (n - r)) / (urns.total - n)
    red_left, blue_left = go_left(i, r - i), go_left(j, n - r - j)
    law.moved(to, of_red * red_left, 1, 1, 0)
    law.moved(to, of_red * (1 - red_left), 1, 0, 0)
    law.moved(to, of_blue * blue_left, 0, 0, 1)
    law.moved(to, of_blue * (1 - blue_left), 0, 0, 0)
    return to


def block(law: Law, s: int) -> Law:
    """All balls present.  A colour by its share, a direction, and then one of two states by their posterior weights:

    as it is, or with s balls of that colour moved in that direction (as it is, where there are fewer).  Each of the two
    proposes the other with the same probability, so the posterior is invariant for every s.
    """
    urns = law.urns
    red, blue, left = log_posterior_terms(urns)
    i, j = np.ogrid[: urns.red + 1, : urns.blue + 1]
    log_p = red[i] + blue[j] + left[i + j]
    p, out = law.p[0], law.p[0].copy()
    for axis, size in ((0, urns.red), (1, urns.blue)):
        if s <= size:
            low = tuple(slice(None, -s) if k == axis else slice(None) for k in (0, 1))
            high = tuple(slice(s, None) if k == axis else slice(None) for k in (0, 1))
            chance = 0.5 * size / urns.total
            up = 1.0 / (1.0 + np.exp(log_p[low] - log_p[high]))
            flow = chance * (p[low] * up - p[high] * (1.0 - up))
            out[low] -= flow
            out[high] += flow
    return Law(urns, law.n, out[None])


def final_law(urns: Urns, name: str, passes: int) -> np.ndarray:
    """P(i, j) after the last step of a strategy, (R + 1, B + 1)."""
    law = start(urns, name)
    for step, argument in schedule(name, urns.total, passes):
        if step == "block":
            law = block(law, argument)
        else:
            law = assign(remove(law) if step == "pair" else law, argument)
    return law.p[0]
