"""Exact targets of tiny tables with a softmax or Poisson outcome, or times to an event: trapezoid rules over the
coefficients, in each set of rows.

python -m tests.exact.outcome_target        writes them into outcome_targets.json
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from scipy.special import gammaln

from tests.exact.enumerate import Case, Posterior, partitions

FILE = Path(__file__).parent / "outcome_targets.json"
CASES = {
    "soft5": {
        "x": [0, 0, 1, 1, 0], "dir": [0.6, 0.6], "family": "softmax", "levels": 3, "y": [0, 2, None, 1, 2],
        "u": [[1.0]] * 5, "w": [[0.9], [-0.6], [1.4], [0.1], [-1.1]], "mean": [-0.3, 0.4], "sd": [1.5, 1.2],
        "sd_b": [1.0, 1.3], "alpha": 1.0, "d": 0.2,
    },
    "count5": {
        "x": [0, 0, 1, 1, 0], "dir": [0.6, 0.6], "family": "poisson", "y": [0, 3, None, 1, 6],
        "u": [[1.0]] * 5, "w": [[0.4], [-0.6], [2.5], [0.1], [-1.1]], "mean": [0.3], "sd": [1.2], "sd_b": [0.8],
        "alpha": 1.0, "d": 0.2,
    },
    "times4": {
        "x": [0, 0, 1, 1], "dir": [0.6, 0.6], "family": "survival", "y": [3.0, -7.0, 5.0, 9.0], "ends": [4.0],
        "shape": 2.0, "rate": 10.0, "u": [[1.0]] * 4, "w": [[0.9], [-0.6], [1.4], [-1.1]], "mean": [0.0], "sd": [1.1],
        "sd_b": [0.9], "alpha": 1.0, "d": 0.2,
    },
}  # fmt: skip
POINTS, REACH = {"soft5": 41, "count5": 161, "times4": 75}, 7.0
LOW, HIGH = -14.0, 4.0  # log hazards of `times4`, from the log of their prior mean on


def likelihood_of(family: str, y: int, eta: np.ndarray) -> np.ndarray:
    """Probability of an outcome under linear predictors (C, ...), of a softmax those of all levels but the first."""
    if family == "poisson":
        return np.exp(y * eta[0] - np.exp(eta[0]) - gammaln(y + 1.0))
    every = np.concatenate([np.zeros_like(eta[:1]), eta])
    return np.exp(every[y] - np.logaddexp.reduce(every, axis=0))


def target(name: str, points: int | None = None) -> dict:
    """P of each partition, E b_c and E b_c^2, E eta and E eta^2 of each row, of a softmax by level but the first."""
    case, points = CASES[name], points or POINTS[name]
    y, w, n_eta = case["y"], np.array(case["w"])[:, 0], case.get("levels", 2) - 1
    n, grid = len(y), np.linspace(-REACH, REACH, points)
    weight = np.exp(-0.5 * grid**2) / np.exp(-0.5 * grid**2).sum()
    theta = np.stack(np.meshgrid(*(m + s * grid for m, s in zip(case["mean"], case["sd"])), indexing="ij"))
    beta = np.stack(np.meshgrid(*(s * grid for s in case["sd_b"]), indexing="ij")).reshape(n_eta, -1)
    of_theta = weight if n_eta == 1 else np.outer(weight, weight)
    of_beta, theta = of_theta.ravel(), theta.reshape(n_eta, -1)
    likelihood = np.ones((n, len(of_beta), theta.shape[1]))
    for i in range(n):
        for b, of in enumerate(beta.T):
            if y[i] is not None:
                likelihood[i, b] = likelihood_of(case["family"], y[i], theta + w[i] * of[:, None])
    # of each set of rows: the integral over theta given beta, and with theta_c and theta_c^2 as factors
    factors = np.concatenate([np.ones((1, theta.shape[1])), theta, theta**2]) * of_theta.ravel()
    of_sets = np.ones((2**n, len(factors), len(of_beta)))
    for s in range(1, 2**n):
        of_sets[s] = factors @ likelihood[[i for i in range(n) if s >> i & 1]].prod(axis=0).T
    levels_of_x = [f"l{i}" for i in range(len(case["dir"]))]
    columns = (("x", "categorical", tuple(case["x"]), levels_of_x),)
    prior = Posterior(Case(name, columns, {"x": {"dirichlet": tuple(case["dir"])}}, case["alpha"], case["d"]))
    p, moments = {}, np.zeros(2 * n_eta * (1 + n))
    for part in partitions(n).tolist():
        sets = [sum(1 << i for i in range(n) if part[i] == k) for k in range(max(part) + 1)]
        joint = prior.p[int(prior.index(part))] * of_beta * of_sets[sets, 0].prod(axis=0)
        p["".join(map(str, part))] = joint.sum()
        of = [row for b in beta for row in (b, b * b)]
        for i in range(n):
            first = of_sets[sets[part[i]], 1:] / np.maximum(of_sets[sets[part[i]], 0], 1e-300)
            for c in range(n_eta):
                offset = w[i] * beta[c]
                of += [first[c] + offset, first[n_eta + c] + 2.0 * offset * first[c] + offset**2]
        moments += np.array(of) @ joint
    each = [""] if n_eta == 1 else [str(c) for c in range(n_eta)]
    total, names = sum(p.values()), [f"b{c}" for c in range(n_eta)] + [f"eta{i}{c}" for i in range(n) for c in each]
    keys = [f"E {name}{power}" for name in names for power in ("", "^2")]
    return {"case": case, "p": {k: v / total for k, v in p.items()}} | dict(zip(keys, (moments / total).tolist()))


def target_of_times(name: str, points: int | None = None) -> dict:
    """As `target`, and E log h and E (log h)^2 of the hazard of each of two parts of the time axis."""
    case, points = CASES[name], points or POINTS[name]
    times, w, grid = np.array(case["y"]), np.array(case["w"])[:, 0], np.linspace(-REACH, REACH, points)
    n, weight = len(times), np.exp(-0.5 * grid**2) / np.exp(-0.5 * grid**2).sum()
    theta, of_theta = case["sd"][0] * grid, weight * np.stack([np.ones(points), case["sd"][0] * grid,
                                                               (case["sd"][0] * grid) ** 2])  # fmt: skip
    log_h = np.log(case["shape"] / case["rate"]) + np.linspace(LOW, HIGH, points)
    prior = np.exp(case["shape"] * log_h - case["rate"] * np.exp(log_h))
    one, two = (x.ravel() for x in np.meshgrid(log_h, log_h, indexing="ij"))
    of_h = np.outer(prior, prior).ravel() / prior.sum() ** 2
    first = np.minimum(np.abs(times), case["ends"][0])
    exposed = np.exp(one)[:, None] * first + np.exp(two)[:, None] * (np.abs(times) - first)  # (H, n)
    at_event = np.where(np.abs(times) <= case["ends"][0], one[:, None], two[:, None])
    columns = (("x", "categorical", tuple(case["x"]), [f"l{i}" for i in range(len(case["dir"]))]),)
    law = Posterior(Case(name, columns, {"x": {"dirichlet": tuple(case["dir"])}}, case["alpha"], case["d"]))
    parts, p, moments = partitions(n).tolist(), {}, np.zeros(2 * (1 + n) + 4)
    for beta, of_beta in zip(case["sd_b"][0] * grid, weight):
        of_sets = np.ones((2**n, 3, len(of_h)))
        each = []
        for i in range(n):
            eta = theta + w[i] * beta
            of = -np.exp(eta)[:, None] * exposed[:, i]
            each.append(np.exp(of + (eta[:, None] + at_event[:, i] if times[i] >= 0 else 0.0)))  # (T, H)
        for s in range(1, 2**n):
            of_sets[s] = of_theta @ np.prod([each[i] for i in range(n) if s >> i & 1], axis=0)
        for part in parts:
            sets = [sum(1 << i for i in range(n) if part[i] == k) for k in range(max(part) + 1)]
            joint = law.p[int(law.index(part))] * of_beta * of_h * of_sets[sets, 0].prod(axis=0)
            key = "".join(map(str, part))
            p[key] = p.get(key, 0.0) + joint.sum()
            of = [np.full(len(of_h), beta), np.full(len(of_h), beta * beta)]
            for i in range(n):
                mean, square = of_sets[sets[part[i]], 1:] / np.maximum(of_sets[sets[part[i]], 0], 1e-300)
                offset = w[i] * beta
                of += [mean + offset, square + 2.0 * offset * mean + offset**2]
            moments += np.array([*of, one, one**2, two, two**2]) @ joint
    total, names = sum(p.values()), ["b0", *(f"eta{i}" for i in range(n)), "log h0", "log h1"]
    keys = [f"E {name}{power}" for name in names for power in ("", "^2")]
    return {"case": case, "p": {k: v / total for k, v in p.items()}} | dict(zip(keys, (moments / total).tolist()))


def target_of(name: str, points: int | None = None) -> dict:
    """Target of a case."""
    return (target_of_times if CASES[name]["family"] == "survival" else target)(name, points)


if __name__ == "__main__":
    targets = json.loads(FILE.read_text(encoding="utf-8")) | {name: target_of(name) for name in CASES}
    FILE.write_text(json.dumps(targets, separators=(",", ":")), encoding="utf-8")
