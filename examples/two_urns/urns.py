"""Two urns: the model, its posterior and prior, and the strategies as schedules of removing and assigning balls.

R red and B blue balls; each lies in the left urn with known probability p.  An urn's share of red is Beta(a, a) and is
integrated out.  The state is (i, j), the red and the blue balls on the left; balls of one colour are alike.  A ball
is assigned by the prior of the urn times the urn's predictive of its colour, counting only the balls that lie there:

    red, left:  p (i + a) / (i + j + 2a)      red, right:  (1 - p) (r - i + a) / (n - i - j + 2a)

where r of the n balls that are present are red.  Obermeyer, Glidden and Jonas (2014), section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, gammaln, logsumexp, xlog1py, xlogy

STRATEGIES = (
    "prior",
    "sequential",
    "gibbs",
    "sequential+gibbs",
    "anneal_energy",
    "anneal_stepsize",
    "anneal_subsample",
)
EMPTY_START = ("sequential", "sequential+gibbs", "anneal_subsample")


@dataclass(frozen=True)
class Urns:
    """R red and B blue balls, prior p of the left urn, Beta(a, a) for the share of red in each urn."""

    red: int
    blue: int
    p: float = 0.45
    a: float = 0.5

    @property
    def total(self) -> int:
        return self.red + self.blue


def log_posterior_terms(urns: Urns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three tables with log P(i, j) = red[i] + blue[j] + left[i + j] + constant.

    From P(i, j) ∝ C(R, i) C(B, j) p^{i+j} (1-p)^{R+B-i-j} B(i+a, j+a) B(R-i+a, B-j+a), with the beta functions
    written as gamma functions.
    """

    def of_colour(n):
        k = np.arange(n + 1)
        return -gammaln(k + 1) - gammaln(n - k + 1) + gammaln(k + urns.a) + gammaln(n - k + urns.a)

    left = np.arange(urns.total + 1)
    right = urns.total - left
    of_left = xlogy(left, urns.p) + xlog1py(right, -urns.p)
    of_left -= gammaln(left + 2 * urns.a) + gammaln(right + 2 * urns.a)
    return of_colour(urns.red), of_colour(urns.blue), of_left


def posterior(urns: Urns) -> np.ndarray:
    """P(i, j | colours), (R + 1, B + 1)."""
    red, blue, left = log_posterior_terms(urns)
    i, j = np.ogrid[: urns.red + 1, : urns.blue + 1]
    log_p = red[i] + blue[j] + left[i + j]
    return np.exp(log_p - logsumexp(log_p))


def prior_of_colour(urns: Urns, n: int) -> np.ndarray:
    """Binomial(n, p), (n + 1,)."""
    k = np.arange(n + 1)
    log_choose = -betaln(n - k + 1, k + 1) - np.log(n + 1)
    return np.exp(log_choose + xlogy(k, urns.p) + xlog1py(n - k, -urns.p))


def prior(urns: Urns) -> np.ndarray:
    """P(i, j) of balls thrown in blindly: i ~ Binomial(R, p) and j ~ Binomial(B, p), (R + 1, B + 1)."""
    return np.outer(prior_of_colour(urns, urns.red), prior_of_colour(urns, urns.blue))


def total_variation(p: np.ndarray, q: np.ndarray) -> float:
    return 0.5 * float(np.abs(p - q).sum())


# --- laws in cells x cells squares of the shares x = i/R, y = j/B, for N where (R + 1)(B + 1) numbers are too many ----


def cell_numbers(n: int, cells: int) -> np.ndarray:
    """The cell of the share k/n for k = 0..n: equal widths, closed on the left, the last one on both sides."""
    return np.minimum(np.arange(n + 1) * cells // n, cells - 1)


def in_cells(urns: Urns, i: np.ndarray, j: np.ndarray, cells: int) -> np.ndarray:
    """Share of the states (i, j) in each cell, (cells, cells)."""
    number = cell_numbers(urns.red, cells)[i] * cells + cell_numbers(urns.blue, cells)[j]
    return np.bincount(number, minlength=cells**2).reshape(cells, cells) / len(number)


def prior_in_cells(urns: Urns, cells: int) -> np.ndarray:
    each = [np.bincount(cell_numbers(n, cells), prior_of_colour(urns, n), cells) for n in (urns.red, urns.blue)]
    return np.outer(*each)


def posterior_in_cells(urns: Urns, cells: int) -> np.ndarray:
    """The posterior in cells, one row of the table P(i, j) at a time: it has 96 million numbers for (8000, 12000)."""
    red, blue, left = log_posterior_terms(urns)

    def log_row(i):
        return red[i] + blue + left[i : i + urns.blue + 1]

    top = max(log_row(i).max() for i in range(urns.red + 1))
    column = cell_numbers(urns.blue, cells)
    out = np.zeros((cells, cells))
    for i, row in enumerate(cell_numbers(urns.red, cells)):
        out[row] += np.bincount(column, np.exp(log_row(i) - top), cells)
    return out / out.sum()


def coarser(grid: np.ndarray, cells: int) -> np.ndarray:
    """A law in cells summed into fewer, larger ones that hold a whole number of them."""
    k = len(grid) // cells
    return grid.reshape(cells, k, cells, k).sum(axis=(1, 3))


def schedule(name: str, total: int, passes: int):
    """The steps of a strategy after its start: pairs (step, argument), in all passes * total assignments.

    assign 1     seat a ball chosen at random among those that are absent
    pair beta    remove a random ball; assign a random absent one, the removed included, with predictive^beta
    block s      move s balls of one colour together, or leave them

    Sequential alone stops after its first pass; prior makes no step.  With all balls present, "pair 1" is a Gibbs step.
    """
    if name not in STRATEGIES:
        raise ValueError(f"unknown strategy {name!r}; known: {', '.join(STRATEGIES)}")
    steps = passes * total
    if name == "gibbs":
        yield from (("pair", 1.0) for _ in range(steps))
    elif name == "anneal_energy":
        yield from (("pair", t / steps) for t in range(1, steps + 1))
    elif name == "anneal_stepsize":
        yield from (("block", round(steps / t)) for t in range(1, steps + 1))
    elif name == "anneal_subsample":
        for _ in range(total):
            yield "assign", 1.0
            yield from (("pair", 1.0) for _ in range(passes - 1))
    elif name != "prior":
        yield from (("assign", 1.0) for _ in range(total))
        if name == "sequential+gibbs":
            yield from (("pair", 1.0) for _ in range(steps - total))
