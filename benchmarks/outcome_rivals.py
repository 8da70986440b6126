"""A mixture with an outcome beside the same model by variational inference (numpyro's AutoNormal), on made tables.

    python -m venv peers && peers/bin/pip install -r benchmarks/peers.txt
    python benchmarks/outcome_rivals.py --python peers/bin/python [--rows 10000 100000] [--tables 3 1] [--keep]

Tables are those of outcome.py, whose coefficients and clusters are known. Ours is a run of the default settings. The
other has K = 50 clusters (sticks broken), the same columns (0 and 1, and two normal covariates) and the same
regression, labels summed out; a normal for each unconstrained parameter, fitted by Adam on batches of rows, from
several starts, of which the best ELBO counts. The third is a logistic regression on the true clusters, which nobody
has. Each program runs by itself, in a process with one thread; CPU seconds are of its fit alone, compilation included.

Shown are errors of the covariates' coefficients (true: 0.6, -0.4, 0.8), widths of their 90 % intervals and how many
have the truth; the same of the true clusters' log odds against those of all rows, averages over the rows of each (in
each draw, of the coefficients of the clusters that these rows are in); clusters (of the other: with 1 in 1,000 rows at
least).

--keep writes into benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import keep, markdown, peak_mib

OURS, THEIRS, TRUE = "mpibayes", "numpyro, AutoNormal", "regression on the true clusters"
ENDS, Z = (0.05, 0.95), 1.645
K, ALPHA = 50, 5.0
DRAWS, SEEN = 100, 10_000  # draws of a fitted guide, and rows whose clusters are looked at
ONE_THREAD = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}


def of_clusters(share: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Log odds of the true clusters against all rows, from the rows (true, found) that each pair has in common."""
    of_all = share.sum(axis=0) @ theta / share.sum()
    return share @ theta / share.sum(axis=1) - of_all


def summary(beta: np.ndarray, effects: np.ndarray) -> dict:
    """Means and ends of intervals of draws, (D, 3) and (D, true clusters)."""
    out = {}
    for name, draws in (("beta", beta), ("effects", effects)):
        out[name] = [np.mean(draws, axis=0).tolist(), *np.quantile(draws, ENDS, axis=0).tolist()]
    return out


def ours(cells: tuple[np.ndarray, ...], given: argparse.Namespace) -> dict:
    from outcome import CLUSTERS, chain

    with tempfile.TemporaryDirectory() as folder:
        run = chain(Path(folder), cells, given.cycles)
    began, beta, effects, k = time.process_time(), [], [], []
    run.start()
    for i in range(given.cycles):
        run.advance((0, 0, 0), 1)
        if i >= given.cycles // 3:
            z, of = run.mixture.view.labels(), run.mixture.outcome
            k.append(len(of.theta))
            share = np.bincount(cells[3] * k[-1] + z, minlength=CLUSTERS * k[-1]).reshape(CLUSTERS, -1)
            beta.append(of.beta.copy())
            effects.append(of_clusters(share, of.theta[:, 0]))
    found = summary(np.array(beta), np.array(effects))
    return found | {"seconds": time.process_time() - began, "clusters": np.mean(k)}


def by_numpyro(cells: tuple[np.ndarray, ...], given: argparse.Namespace) -> dict:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal
    from numpyro.infer.initialization import init_to_sample

    x, w, y, z, truth = cells
    n, began = len(y), time.process_time()
    whole = [np.column_stack([x, w[:, 2], w[:, :2], w[:, :2] ** 2]), w, 2.0 * y - 1.0]
    whole = [np.asarray(of, np.float32) for of in whole]
    log_sigmoid = jax.nn.log_sigmoid

    def scores(at, cells, w, sign):
        """log p(row, cluster), (rows, K), of cells 0 and 1, numbers and their squares."""
        stick, logit = at["stick"], at["logit"]
        left = jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.log1p(-stick))])
        out = left + jnp.concatenate([jnp.log(stick), jnp.zeros(1)])
        precision = at["sd"] ** -2
        of_cells = jnp.concatenate([logit, at["mean"] * precision, -0.5 * precision], axis=1)
        out = out + log_sigmoid(-logit).sum(1) - (0.5 * at["mean"] ** 2 * precision + jnp.log(at["sd"])).sum(1)
        return out + cells @ of_cells.T + log_sigmoid(sign[:, None] * (at["theta"] + (w @ at["beta"])[:, None]))

    def model(*rows):
        at = {
            "stick": numpyro.sample("stick", dist.Beta(1.0, ALPHA).expand([K - 1]).to_event(1)),
            "logit": numpyro.sample("logit", dist.Logistic(0.0, 1.0).expand([K, x.shape[1] + 1]).to_event(2)),
            "mean": numpyro.sample("mean", dist.Normal(0.0, 1.0).expand([K, 2]).to_event(2)),
            "sd": numpyro.sample("sd", dist.LogNormal(0.0, 0.5).expand([K, 2]).to_event(2)),
            "beta": numpyro.sample("beta", dist.Normal(0.0, 2.5).expand([3]).to_event(1)),
        }
        middle = numpyro.sample("middle", dist.Normal(0.0, 2.5))
        variance = numpyro.sample("variance", dist.InverseGamma(2.0, 1.0))
        prior = dist.Normal(middle, jnp.sqrt(variance)).expand([K]).to_event(1)
        at["theta"] = numpyro.sample("theta", prior)
        each = jax.nn.logsumexp(scores(at, *rows), axis=1)
        numpyro.factor("rows", n / len(rows[0]) * each.sum())

    best, losses = None, []
    for start in range(given.starts):
        rate = numpyro.optim.Adam(lambda i: 0.02 * 0.05 ** (i / given.steps))
        guide = AutoNormal(model, init_loc_fn=init_to_sample)
        svi, g = SVI(model, guide, rate, Trace_ELBO()), np.random.default_rng(start)
        batch, order, late = min(given.batch, n), np.empty(0, np.intp), []
        state = svi.init(jax.random.PRNGKey(start), *(of[:batch] for of in whole))
        update = jax.jit(svi.update)
        for i in range(given.steps):
            if len(order) < batch:
                order = g.permutation(n)
            rows, order = order[:batch], order[batch:]
            state, loss = update(state, *(of[rows] for of in whole))
            if i >= 0.9 * given.steps:
                late.append(loss)
        losses.append(float(np.mean(late)) / n)
        if losses[-1] == min(losses):
            best = guide, svi.get_params(state)
    seconds, (guide, params) = time.process_time() - began, best
    draws = guide.sample_posterior(jax.random.PRNGKey(7), params, sample_shape=(DRAWS,))
    draws = {name: np.asarray(of) for name, of in draws.items()}
    at = np.linspace(0, n - 1, min(n, SEEN)).astype(int)
    share_of = jax.jit(lambda draw: jax.nn.softmax(scores(draw, *(of[at] for of in whole)), axis=1))
    effects, members, sizes = [], np.eye(len(truth))[z[at]], 0.0
    for d in range(DRAWS):
        share = members.T @ np.asarray(share_of({name: of[d] for name, of in draws.items()}), np.float64)
        sizes = sizes + share.sum(axis=0) / DRAWS
        effects.append(of_clusters(share, draws["theta"][d]))
    found = summary(draws["beta"], np.array(effects))
    return found | {"seconds": seconds, "clusters": int((sizes > 1e-3 * len(at)).sum()), "losses": losses}


def by_true_clusters(cells: tuple[np.ndarray, ...], given: argparse.Namespace) -> dict:
    from outcome import CLUSTERS, regression

    began, share = time.process_time(), np.bincount(cells[3], minlength=CLUSTERS) / len(cells[3])
    fit, error = regression(np.concatenate([np.eye(CLUSTERS)[cells[3]], cells[1]], axis=1), cells[2])
    seconds, effects = time.process_time() - began, fit[:CLUSTERS] - share @ fit[:CLUSTERS]
    out = {"seconds": seconds, "clusters": CLUSTERS}
    for name, at, of in (("beta", fit[CLUSTERS:], error[CLUSTERS:]), ("effects", effects, error[:CLUSTERS])):
        out[name] = [at.tolist(), (at - Z * of).tolist(), (at + Z * of).tolist()]
    return out


PROGRAMS = {OURS: ours, THEIRS: by_numpyro, TRUE: by_true_clusters}


def one(program: str, table: Path, given: argparse.Namespace) -> dict:
    """The result of a program in a process of its own."""
    interpreter = given.python if program == THEIRS else sys.executable
    options = [f"--{name}={getattr(given, name)}" for name in ("cycles", "steps", "batch", "starts")]
    command = [interpreter, __file__, "--one", program, str(table), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | ONE_THREAD)
    if done.returncode:
        raise SystemExit(f"{program}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def line(program: str, results: list[dict]) -> list[str]:
    """The line of a program, over its tables."""
    from outcome import BETA

    out = [program]
    for name in ("beta", "effects"):
        mean, low, high = (np.array([r[name][i] for r in results]) for i in range(3))
        true = np.broadcast_to(BETA, mean.shape) if name == "beta" else np.array([r["truth"] for r in results])
        error = np.sqrt(np.mean((mean - true) ** 2, axis=0))
        out.append(", ".join(f"{e:.3f}" for e in error) if name == "beta" else f"{np.sqrt(np.mean(error**2)):.3f}")
        inside = (low < true) & (true < high)
        out += [f"{np.mean(high - low):.3f}", f"{inside.sum()} of {inside.size}"]
    return [*out, *(f"{np.mean([r[name] for r in results]):.0f}" for name in ("clusters", "seconds", "peak"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="interpreter of the environment with numpyro")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--tables", type=int, nargs="+", default=[3, 1], help="tables of each number of rows")
    parser.add_argument("--cycles", type=int, default=400, help="ours")
    parser.add_argument("--steps", type=int, default=4_000, help="of Adam, from each start")
    parser.add_argument("--batch", type=int, default=1_000, help="rows of a step")
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    if given.one:
        with np.load(given.one[1]) as arrays:
            cells = tuple(arrays[f"arr_{i}"] for i in range(5))
        result = PROGRAMS[given.one[0]](cells, given) | {"peak": peak_mib()}
        print(json.dumps(result, default=float))
        return
    from outcome import made

    head = ["program", "rms error of w0, w1, w2", "width", "with the truth", "rms error of clusters' log odds",
            "width", "with the truth", "clusters", "CPU s", "peak MiB"]  # fmt: skip
    tables, kept = [], []
    for rows, count in zip(given.rows, given.tables, strict=True):
        found = {program: [] for program in given.only}
        for seed in range(count):
            cells = made(rows, seed, False)
            share = np.bincount(cells[3], minlength=len(cells[4])) / rows
            truth = (cells[4] - share @ cells[4]).tolist()
            with tempfile.TemporaryDirectory() as folder:
                np.savez(Path(folder) / "t.npz", *cells)
                for program, results in found.items():
                    results.append(one(program, Path(folder) / "t.npz", given) | {"truth": truth})
                    kept.append({"program": program, "rows": rows, "table": seed, **results[-1]})
                    print(f"# {program}, {rows:,} rows, table {seed}: {results[-1]['seconds']:.0f} s", flush=True)
        title = f"{rows:,} rows, {count} table{'s' * (count > 1)}"
        tables.append({"title": title, "head": head, "lines": [line(p, r) for p, r in found.items()], "note": ""})
        print("", title, "", markdown(head, tables[-1]["lines"]), "", sep="\n", flush=True)
        if given.keep:
            words = ["PYTHON" if word == given.python else word for word in sys.argv[1:]]
            command = "python benchmarks/outcome_rivals.py " + " ".join(words)
            keep("outcome_rivals", "An outcome: beside variational inference", command, tables, runs=kept)


if __name__ == "__main__":
    main()
