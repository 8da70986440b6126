"""Times a Firefly cycle on one core and says where the time goes.

    python benchmarks/firefly_kernels.py [--cycles 20000] [--only TEXT] [--update hmc]

Logistic regression with tuned bounds in Laplace-whitened coordinates, q = 3 M / N, four leapfrog steps, on synthetic
rows: the shape of MNIST 7 against 9 (N = 12,214, D = 51), and N = 10^6, D = 51. One line a case, the median of five
runs, in microseconds a cycle:

  cycle       everything, `cycles` in one call
  sweep       one z sweep; ns/query: the same divided by the rows it looked at
  value       one evaluation of the target with its gradient, a call from Python (about 1 us) included
  M, queries  bright rows; gaps evaluated by sweeps and by evaluations of the target, a cycle

and min / median effective samples a second over coefficients (batch means), the number to compare with others.
MPIBAYES_ISA forces an instruction set.
"""

import argparse
import time

import numpy as np

from mpibayes.kernels.firefly import firefly

CASES = {"MNIST shape": (12_214, 51, 10.0), "N = 10^6": (1_000_000, 51, 10.0)}
UPDATES = {"hmc": firefly.HMC, "mala": firefly.MALA, "random-walk": firefly.RANDOM_WALK, "slice": firefly.SLICE}
STEPS = {"hmc": 0.3, "mala": 0.4, "random-walk": 0.3, "slice": 3.0}
PRIOR_SCALE = 2.5


def problem(n, d, strength):
    """Rows with an intercept, their bounds tuned at the MAP; (rows, target, MAP, Cholesky factor of its covariance)."""
    rng = np.random.default_rng(5)
    x = np.zeros((n, (d + 7) // 8 * 8), np.float32)
    x[:, : d - 1] = rng.normal(size=(n, d - 1))
    x[:, d - 1] = 1
    theta = strength * rng.normal(size=d) / np.sqrt(d)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-(x[:, :d].astype(float) @ theta))), 1.0, -1.0)
    rows = firefly.Rows(firefly.LOGISTIC, x, y, d)
    for _ in range(12):  # Newton
        gradient = np.empty(d)
        rows.log_likelihood(theta, gradient)
        p = 1 / (1 + np.exp(-rows.linear(theta)[:, 0]))
        hessian = rows.gram(p * (1 - p)) + np.eye(d) / PRIOR_SCALE**2
        theta = theta + np.linalg.solve(hessian, gradient - theta / PRIOR_SCALE**2)
    rows.tune(theta)
    a, s = rows.bounds[:, 0], rows.linear(theta)[:, 0]
    target = firefly.Target(
        firefly.LOGISTIC, d, 1, 4.0, 1.0, theta, rows.gram(-2 * a), np.eye(1),
        rows.combine((2 * a * s + y / 2)[:, None]), rows.log_likelihood(theta) - rows.gaps(theta).sum(),
        firefly.GAUSSIAN, np.full(d, PRIOR_SCALE),
    )  # fmt: skip
    return rows, target, theta, np.linalg.cholesky(np.linalg.inv(hessian))


def record(n, d):
    kinds = {"lp": float, "acceptance": float, "step_size": float}
    kinds |= {"bright": np.int64, "queries_theta": np.int64, "queries_z": np.int64}
    return {"theta": np.empty((n, d)), **{name: np.empty(n, dtype) for name, dtype in kinds.items()}}


def effective_size(draws, n_batches=50):
    """Of each column, by batch means."""
    means = draws[: len(draws) // n_batches * n_batches].reshape(n_batches, -1, draws.shape[1]).mean(axis=1)
    return draws.var(axis=0) / means.var(axis=0, ddof=1) * n_batches


def microseconds(call, n):
    taken = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(n):
            call()
        taken.append((time.process_time() - start) / n * 1e6)
    return float(np.median(taken))


def measure(name, update, n_cycles, q_factor, n_steps):
    n, d, strength = CASES[name]
    rows, target, centre, factor = problem(n, d, strength)
    theta = centre + factor @ np.random.default_rng(6).normal(size=d)
    lights, mover = firefly.Lights(rows), firefly.Mover(UPDATES[update], d, factor)
    lights.draw(theta, 1, 0, 0, 0)
    tuning, first = firefly.start_tuning(STEPS[update], lights.n_bright), 1
    taken, sizes = [], []
    for n_now in (3000, *[n_cycles] * 5):
        out = record(n_now, d)
        start = time.process_time()
        firefly.cycles(
            [lights], target, mover, theta, tuning, q_factor, False, n_steps, 1, first, 0, n_now, 3000, out
        )  # fmt: skip
        taken.append((time.process_time() - start) / n_now * 1e6)
        sizes.append(effective_size(out["theta"]) / n_now)
        first += n_now
    cycle, share = float(np.median(taken[1:])), np.median(sizes[1:], axis=0)
    q, keys = firefly.proposal_rate(tuning, q_factor, n), iter(range(10**9))
    sweep = microseconds(lambda: lights.sweep(theta, q, False, 2, next(keys), 0, 0), 3000)
    target.load([lights])
    gradient = np.empty(d)
    value = microseconds(lambda: target.value(theta, gradient), 3000)
    queries, least, median = out["queries_z"].mean(), 1e6 * share.min() / cycle, 1e6 * np.median(share) / cycle
    print(
        f"{name:12s} {update:11s} cycle {cycle:6.1f}  sweep {sweep:5.1f} ({1e3 * sweep / queries:3.0f} ns/query)  "
        f"value {value:5.2f}  M {out['bright'].mean():5.1f}  queries {queries:.0f} + {out['queries_theta'].mean():.0f} "
        f" accept {out['acceptance'].mean():.2f}  step {tuning[1]:.3f}  samples/s {least:,.0f} / {median:,.0f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cycles", type=int, default=20_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--update", choices=UPDATES, default="hmc")
    parser.add_argument("--q", type=float, default=3.0, help="q in units of M / N")
    parser.add_argument("--leapfrog-steps", type=int, default=4)
    arguments = parser.parse_args()
    print(f"instruction set {firefly.ISA}")
    for name in CASES:
        if arguments.only in name:
            measure(name, arguments.update, arguments.cycles, arguments.q, arguments.leapfrog_steps)


if __name__ == "__main__":
    main()
