"""Two modes and a barrier between them, both energies proportional to N: cold inference against annealing.

x is the mass in the favoured mode, the one of lower energy.  At inverse temperature b (Obermeyer, Glidden and Jonas
2014, equation 1)

    dx/dt = exp(-b delta N) [sigma(b gamma N) - x],     x(0) = 0, the worst start that knows nothing of the data

with sigma(u) = 1 / (1 + exp(-u)); gamma N is the energy gap and delta N the barrier.  Cold inference has b = 1,
annealing b = t/T.  The error is the total variation sigma(gamma N) - x(T).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import expit


@dataclass(frozen=True)
class Bimodal:
    n: float
    delta: float
    gamma: float


def cold_error(system: Bimodal, duration: float) -> float:
    """sigma(gamma N) exp(-T exp(-delta N)), the solution of (1) at b = 1."""
    return expit(system.gamma * system.n) * np.exp(-duration * np.exp(-system.delta * system.n))


def cold_duration(system: Bimodal, error: float) -> float:
    """The T at which cold inference has this error: exp(delta N) log(sigma(gamma N) / error)."""
    return np.exp(system.delta * system.n) * np.log(expit(system.gamma * system.n) / error)


def annealed_error(system: Bimodal, duration: float) -> float:
    """sigma(gamma N) - x(T) for b = t/T.

    (1) is linear: x(T) = ∫ sigma(b gamma N) d tau, where tau(b) = exp(-w(b)) and
    w(b) = (T / N delta) [exp(-N delta b) - exp(-N delta)] is the number of jumps still to come at b.  Integrating over
    log w leaves

        sigma(gamma N) exp(-w(0)) + ∫ [sigma(gamma N) - sigma(b(w) gamma N)] exp(-w) w d log w
    """
    barrier, gap = system.delta * system.n, system.gamma * system.n
    per_jump = barrier / duration
    jumps = -np.expm1(-barrier) / per_jump

    def integrand(log_w):
        w = np.exp(log_w)
        b = -np.log(w * per_jump + np.exp(-barrier)) / barrier
        return (expit(-b * gap) - expit(-gap)) * np.exp(-w) * w

    # Below exp(-60) and above w = 700 nothing is left in double precision.
    top = np.log(min(jumps, 700.0))
    points = [v for v in (-20.0, -8.0, -3.0, 0.0, 1.5, 3.0) if v < top]
    edges = [-60.0, *points, top]
    late = sum(quad(integrand, low, high, epsabs=1e-12)[0] for low, high in pairwise(edges))
    return expit(gap) * np.exp(-jumps) + late


def annealed_duration(system: Bimodal, error: float) -> float:
    """The T at which annealing has this error; more time never hurts here, so there is one."""

    def excess(log_duration):
        return annealed_error(system, np.exp(log_duration)) - error

    low, high = -3.0, 3.0
    while excess(high) > 0:
        high += 2.0
    return float(np.exp(brentq(excess, low, high, xtol=1e-10)))


def annealed_bound(system: Bimodal, error: float) -> float:
    """Theorem 4: this T is enough. N delta log(2/error) / [(error/2)^(delta/gamma) - exp(-N delta)].

    Infinite unless N > log(2/error) / gamma, when the data can tell the modes apart at this error.
    """
    room = (error / 2) ** (system.delta / system.gamma) - np.exp(-system.n * system.delta)
    return system.n * system.delta * np.log(2 / error) / room if room > 0 else np.inf
