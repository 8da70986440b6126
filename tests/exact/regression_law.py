"""Tests of a regression's chain against the quadrature, at a stated false-alarm rate.

Replicates start at exact draws of (theta, z) and run some cycles each. If the program is right, every state has the
exact law, and the replicates' means are independent with known expectations (compare.py). One long chain is cut into
batches instead, which are nearly independent.

Compared are moments and events of theta, the number of bright rows and log p(theta, z). If z is sampled, so are
*residuals*: the number of bright rows, its being zero, and log p(theta, z), minus their exact means given the chain's
own theta. Their expectation is 0 and they decorrelate in a cycle or two, where theta takes tens of cycles; most wrong
z-updates are detected there first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from tests.exact.quadrature import Posterior, given_theta


@dataclass(frozen=True)
class Verdict:
    """p is below `level` with at most that probability when the chain is right."""

    p: float
    level: float
    worst: str
    z: float
    size: int

    @property
    def passed(self) -> bool:
        return self.p >= self.level

    def __str__(self) -> str:
        return f"{self.size} cycles: worst {self.worst} z {self.z:+.2f}, p {self.p:.2g} against {self.level:g}"


def of_theta(posterior: Posterior, theta):
    """(names, values (T, S), expectations (S,)) of moments and events of theta (T, P)."""
    names, values, exact = [], [], []

    def add(name, at):
        names.append(name)
        values.append(at(theta))
        exact.append(posterior.mean(at(posterior.theta)))

    for k, threshold in enumerate(posterior.case.thresholds):
        add(f"theta{k}", lambda t, k=k: t[:, k])
        add(f"theta{k} > {threshold}", lambda t, k=k, c=threshold: (t[:, k] > c).astype(float))
        for j in range(k + 1):
            add(f"theta{j} theta{k}", lambda t, j=j, k=k: t[:, j] * t[:, k])
    return names, values, exact


def of_bright(posterior: Posterior, draws, tuned_at, xi):
    """(names, values, expectations) of the number of bright rows and of log p(theta, z), with residuals."""
    theta, number = draws["theta"], np.asarray(draws["n_bright"], float)
    law, here = posterior.bright(tuned_at, xi), given_theta(posterior.case, theta, tuned_at, xi)
    centre = posterior.mean(posterior.theta[:, 0])
    residual = number - here["number"]
    rows = [
        ("bright", number, posterior.mean(law["number"])),
        ("bright^2", number**2, posterior.mean(law["square"])),
        ("bright theta0", number * theta[:, 0], posterior.mean(law["number"] * posterior.theta[:, 0])),
        ("lp", draws["lp"], posterior.mean(law["lp"])),
        ("residual bright", residual, 0.0),
        ("residual bright (theta0 - mean)", residual * (theta[:, 0] - centre), 0.0),
        ("residual bright^2", number**2 - here["square"], 0.0),
        ("residual lp", draws["lp"] - here["lp"], 0.0),
    ]
    if 0.02 < posterior.mean(law["none"]) < 0.98:
        rows.append(("residual none bright", (number == 0) - here["none"], 0.0))
    return map(list, zip(*rows))


def judge(
    posterior: Posterior, draws, batches: int, bounds="untuned", tuned_at=None, xi=1.5, q=None, level=1e-4
) -> Verdict:
    """Judge by t-tests of the means of batches of all known quantities, at `level` together (Bonferroni).

    draws: "theta" (T, P), "n_bright", "lp" (T,) of concatenated replicates, or of one chain that has forgotten its
    start; with q and n_bright_before, "queries_z" too.
    """
    names, values, exact = of_theta(posterior, draws["theta"])
    if bounds == "none":
        names, values, exact = [*names, "lp"], [*values, draws["lp"]], [*exact, posterior.mean(posterior.log_joint)]
    else:
        more = of_bright(posterior, draws, tuned_at if bounds == "tuned" else None, xi)
        names, values, exact = (a + b for a, b in zip((names, values, exact), more))
        if q is not None and "n_bright_before" in draws:  # a sweep examines each dark row with probability q
            names.append("residual queries of z")
            values.append(draws["queries_z"] - q * (posterior.case.n_rows - draws["n_bright_before"]))
            exact.append(0.0)
    p, z = batch_tests(np.column_stack(values), np.array(exact), batches)
    worst = int(p.argmin())
    return Verdict(float(min(1.0, p[worst] * len(p))), level, names[worst], float(z[worst]), len(draws["theta"]))


def batch_tests(values, exact, batches):
    """p-values and z (S,) of series (T, S) against their expectations; a series that never moves has p = 0."""
    n = len(values) // batches * batches
    means = values[:n].reshape(batches, -1, values.shape[1]).mean(axis=1) - exact
    centre, error = means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(batches)
    still = ~(error > 0.0)
    z = np.where(still, np.where(np.abs(centre) > 1e-9, np.inf, 0.0), centre / np.where(still, 1.0, error))
    return 2.0 * scipy.stats.t.sf(np.abs(z), batches - 1), z
