"""One numpyro chain on a logistic regression, in a process of its own; firefly_speed.py calls it with --peers-python.

    PYTHON benchmarks/firefly_peers.py nuts|hmcecs TABLE.npz OUT.npz [--warmup 300] [--draws 1000] [--subsample 200]

PYTHON has numpyro and jax (CPU); nothing of the project is imported. TABLE.npz: x (N, D) float32, y (N,) -1 or +1,
prior_scale, mode (D,), covariance (D, D): Laplace's approximation, which the sampler starts from and takes its metric
from, as ours does. OUT.npz: theta (draws, D), the CPU seconds of this process (`seconds`: of the draws alone, compiled;
`seconds_all`: of a first run from the call to the draws, warm-up and compilation in it), leapfrog steps, peak memory.

hmcecs: energy-conserving subsampling with a second-order control variate about the mode (Dang et al. 2019); its target
is a perturbed posterior, so it is approximate. One thread, single precision unless --double.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import HMCECS, MCMC, NUTS, init_to_value


def logistic(x: jax.Array, y: jax.Array, prior_scale: float, subsample: int | None) -> None:
    n, d = x.shape
    theta = numpyro.sample("theta", dist.Normal(0, prior_scale).expand([d]).to_event(1))
    if subsample is None:
        numpyro.sample("y", dist.Bernoulli(logits=x @ theta), obs=y)
        return
    with numpyro.plate("rows", n, subsample_size=subsample):
        some_x, some_y = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Bernoulli(logits=some_x @ theta), obs=some_y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=["nuts", "hmcecs"])
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--subsample", type=int, default=200, help="rows of hmcecs")
    parser.add_argument("--blocks", type=int, default=20, help="parts of hmcecs's subsample, renewed one at a time")
    parser.add_argument("--double", action="store_true", help="double precision")
    parser.add_argument(
        "--once", action="store_true", help="keep the draws of the first run; the time has compilation in it"
    )
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", given.double)
    with np.load(given.table) as table:
        kind = np.float64 if given.double else np.float32
        x, y = jnp.asarray(table["x"], kind), jnp.asarray(table["y"] > 0, kind)
        prior_scale, mode, covariance = float(table["prior_scale"]), table["mode"], table["covariance"]
    start = time.process_time()
    kernel = NUTS(
        logistic,
        inverse_mass_matrix=jnp.asarray(covariance, kind),
        dense_mass=True,
        adapt_mass_matrix=False,
        init_strategy=init_to_value(values={"theta": jnp.asarray(mode, kind)}),
    )
    if given.method == "hmcecs":
        proxy = HMCECS.taylor_proxy({"theta": jnp.asarray(mode, kind)}, degree=2)
        kernel = HMCECS(kernel, num_blocks=given.blocks, proxy=proxy)
    subsample = given.subsample if given.method == "hmcecs" else None
    chain = MCMC(kernel, num_warmup=given.warmup, num_samples=given.draws, progress_bar=False)
    fields = ("num_steps",) if given.method == "nuts" else ("hmc_state.num_steps",)
    run = lambda key: chain.run(jax.random.PRNGKey(key), x, y, prior_scale, subsample, extra_fields=fields)  # noqa: E731
    run(given.seed)
    theta = np.asarray(chain.get_samples()["theta"])
    seconds = seconds_all = time.process_time() - start
    if not given.once:  # the same program again, from where it is: compiled, without warm-up
        chain.post_warmup_state = chain.last_state
        start = time.process_time()
        run(given.seed + 1)
        theta = np.asarray(chain.get_samples()["theta"])
        seconds = time.process_time() - start
    steps = np.asarray(chain.get_extra_fields()[fields[0]])
    peak = int(re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
    np.savez(given.out, theta=theta, seconds=seconds, seconds_all=seconds_all, steps=steps.mean(), peak_mib=peak)
    print(
        f"{given.method}: {len(theta)} draws, {seconds:.1f} CPU s, {seconds_all:.1f} s all in, {steps.mean():.1f} steps"
    )


if __name__ == "__main__":
    main()
