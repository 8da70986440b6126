"""Exact target of a tiny table with a softmax outcome: trapezoid rules over the coefficients, in each set of rows.

python -m tests.exact.softmax_target        writes it into outcome_targets.json
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.exact.enumerate import Case, Posterior, partitions

FILE = Path(__file__).parent / "outcome_targets.json"
CASE = {
    "x": [0, 0, 1, 1, 0], "dir": [0.6, 0.6], "family": "softmax", "levels": 3, "y": [0, 2, None, 1, 2],
    "u": [[1.0]] * 5, "w": [[0.9], [-0.6], [1.4], [0.1], [-1.1]], "mean": [-0.3, 0.4], "sd": [1.5, 1.2],
    "sd_b": [1.0, 1.3], "alpha": 1.0, "d": 0.2,
}  # fmt: skip
POINTS, REACH = 41, 7.0


def target(points: int = POINTS) -> dict:
    """P of each partition, E b_c and E b_c^2, E eta and E eta^2 of each row and level but the first."""
    y, w = [-1 if v is None else v for v in CASE["y"]], np.array(CASE["w"])[:, 0]
    n, grid = len(y), np.linspace(-REACH, REACH, points)
    weight = np.exp(-0.5 * grid**2) / np.exp(-0.5 * grid**2).sum()
    theta = [m + s * grid for m, s in zip(CASE["mean"], CASE["sd"])]
    beta = np.stack(np.meshgrid(*(s * grid for s in CASE["sd_b"]), indexing="ij")).reshape(2, -1)
    of_beta = np.outer(weight, weight).ravel()
    levels = np.zeros((3, points, points))
    levels[1:] = np.meshgrid(*theta, indexing="ij")
    likelihood = np.ones((n, len(of_beta), points, points))
    for i in range(n):
        for b, pair in enumerate(beta.T):
            eta = levels + np.concatenate([[0.0], w[i] * pair])[:, None, None]
            if y[i] >= 0:
                likelihood[i, b] = np.exp(eta[y[i]] - np.logaddexp.reduce(eta, axis=0))
    # of each set of rows: the integral over theta given beta, and with theta_c and theta_c^2 as factors
    factors = np.stack([np.ones((points, points)), *levels[1:], *levels[1:] ** 2]) * np.outer(weight, weight)
    of_sets = np.ones((2**n, 5, len(of_beta)))
    for s in range(1, 2**n):
        of_sets[s] = np.einsum("bjk,fjk->fb", likelihood[[i for i in range(n) if s >> i & 1]].prod(axis=0), factors)
    levels_of_x = [f"l{i}" for i in range(len(CASE["dir"]))]
    columns = (("x", "categorical", tuple(CASE["x"]), levels_of_x),)
    prior = Posterior(Case("soft5", columns, {"x": {"dirichlet": tuple(CASE["dir"])}}, CASE["alpha"], CASE["d"]))
    p, moments = {}, np.zeros(4 + 4 * n)
    for part in partitions(n).tolist():
        sets = [sum(1 << i for i in range(n) if part[i] == k) for k in range(max(part) + 1)]
        joint = prior.p[int(prior.index(part))] * of_beta * of_sets[sets, 0].prod(axis=0)
        p["".join(map(str, part))] = joint.sum()
        of = [row for b in beta for row in (b, b * b)]
        for i in range(n):
            first = of_sets[sets[part[i]], 1:] / of_sets[sets[part[i]], 0]
            for c in range(2):
                offset = w[i] * beta[c]
                of += [first[c] + offset, first[2 + c] + 2.0 * offset * first[c] + offset**2]
        moments += np.array(of) @ joint
    total, names = sum(p.values()), [f"b{c}" for c in range(2)] + [f"eta{i}{c}" for i in range(n) for c in range(2)]
    keys = [f"E {name}{power}" for name in names for power in ("", "^2")]
    return {"case": CASE, "p": {k: v / total for k, v in p.items()}} | dict(zip(keys, (moments / total).tolist()))


if __name__ == "__main__":
    targets = json.loads(FILE.read_text(encoding="utf-8")) | {"soft5": target()}
    FILE.write_text(json.dumps(targets, separators=(",", ":")), encoding="utf-8")
