"""One program on one table, in a process of its own; peers.py starts it, ours and the others alike.

    PYTHON peer_program.py PROGRAM TABLE.npz OUT [--marks 3 10 30] [--sweeps N] [--seed 1] [--distributions DIR]

TABLE.npz: see tables.py. Nothing of the project is imported unless PROGRAM is ours. One thread. CPU seconds count from
the table in memory and the packages loaded on: the program's own copy of the table counts, and compilation. After every
sweep (a pass over all rows) the clock stands still while the labels are looked at. Stops when the last of the marks, in
CPU seconds, is passed, or after N sweeps, or where the program ends by itself.

OUT.npz: `labels_0`, ...: those of the last state reached within each mark. OUT.json: seconds and clusters after every
sweep, peak memory in MiB and what was resident before the program began, and the versions of packages.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.metadata
import json
import os
import re
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[name] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import numpy as np  # noqa: E402


class Finished(Exception):
    """The last mark is passed."""


class Clock:
    """Called by a program after every sweep."""

    def __init__(self, marks: list[float], most_sweeps: int):
        self.marks, self.most_sweeps = list(marks), most_sweeps
        self.seconds: list[float] = []
        self.clusters: list[int] = []
        self.labels: list[np.ndarray] = []
        self._latest: np.ndarray | None = None
        self._spent = 0.0
        self.start()

    def start(self) -> None:
        """A program calls it once its packages are loaded: that does not count."""
        self._began = time.process_time()

    def __call__(self, labels: Callable[[], np.ndarray]) -> None:
        self._spent += time.process_time() - self._began
        while len(self.labels) < len(self.marks) and self._spent > self.marks[len(self.labels)]:
            self.labels.append(self._latest)
        self._latest = np.unique(np.asarray(labels()), return_inverse=True)[1]
        self.seconds.append(self._spent)
        self.clusters.append(int(self._latest.max()) + 1)
        if len(self.labels) == len(self.marks) or len(self.seconds) >= self.most_sweeps:
            raise Finished
        self._began = time.process_time()

    def close(self) -> None:
        """Later marks have what there was at the end."""
        self.labels += [self._latest] * (len(self.marks) - len(self.labels))


# --- the programs: each runs until it ends or the clock raises -------------------------------------------------------


def mpibayes(x, levels, seed, clock, full=False) -> None:
    """The default configuration, from one cluster; full: all reals in one block with a full covariance."""
    from joint import jointly

    from mpibayes.hpc.crosscat.chain import Mixture, Settings
    from mpibayes.hpc.crosscat.moves import round as split_merge
    from mpibayes.hpc.parallel.comm import serial
    from mpibayes.io.table import table_from_arrays
    from mpibayes.kernels import mixture as kernels

    spent: dict[str, list[float]] = {"sweep_seconds": [], "move_seconds": []}

    def noted(name, work):
        def timed(*given, **options):
            began = time.process_time()
            result = work(*given, **options)
            spent[name][-1] += time.process_time() - began
            return result

        return timed

    clock.start()
    if levels:
        cells = [(f"c{i}", "categorical", c, [str(v) for v in range(k)]) for i, (c, k) in enumerate(zip(x.T, levels))]
    else:
        cells = [(f"c{i}", "real", c, None) for i, c in enumerate(x.T)]
    columns, rows = table_from_arrays(cells)
    settings = {}
    if full:
        columns, rows, settings = jointly(columns, rows)
    settings = Settings(seed=seed, **settings)
    mixture = Mixture(serial(), columns, lambda a, b: rows.take(slice(a, b)), len(rows), settings)
    mixture.start("one")
    kernels.sweep = noted("sweep_seconds", kernels.sweep)
    split_merge.run = noted("move_seconds", split_merge.run)
    MORE.update(spent)
    while True:
        for seconds in spent.values():
            seconds.append(0.0)
        mixture.cycle()
        clock(mixture.view.labels)


def lace(x, levels, seed, clock, kernels=("slice",)) -> None:
    """One view of the columns; row kernels in turn, then its parameters and hyperparameters."""
    import polars
    from lace import Engine, RowKernel, StateTransition

    clock.start()
    cells = {f"c{i}": c.astype(str) if levels else c.astype(float) for i, c in enumerate(x.T)}
    frame = polars.DataFrame({"ID": np.arange(len(x)).astype(str), **cells})
    engine = Engine.from_df(frame, n_states=1, rng_seed=seed, flat_columns=True)
    del frame, cells
    steps = [StateTransition.row_assignment(getattr(RowKernel, kernel)()) for kernel in kernels]
    steps += [
        StateTransition.view_prior_process_params(),
        StateTransition.component_parameters(),
        StateTransition.feature_priors(),
    ]
    while True:
        engine.update(1, transitions=steps, quiet=True)
        clock(lambda: engine.row_assignments(0)[0])


def loom_step(x, levels, seed, clock, distributions, target) -> None:
    """The row step of loom's sampler alone (loom_step.cc), from no groups at all.

    Hyperparameters stay as they are: Pitman-Yor(2, 0.1), loom's first, and 1/2 for every level, the library's example.
    """
    if not levels or max(levels) > 256:
        raise SystemExit("only categorical columns of at most 256 levels")
    library = loom_library(distributions, target)
    MORE["versions"] = versions() | {"distributions": importlib.metadata.Distribution.at(distributions).version}
    clock.start()
    kind = np.digitize(levels, (2, 16), right=True)  # loom keeps features type by type
    order = np.argsort(kind, kind="stable")
    codes, n_levels = np.ascontiguousarray(x[:, order], np.uint8), np.array(levels, np.int32)[order]
    labels = np.empty(len(x), np.uint32)
    state = library.step_new(*codes.shape, codes.ctypes.data, n_levels.ctypes.data, 2.0, 0.1, 0.5, seed)

    def copied() -> np.ndarray:
        library.step_labels(state, labels.ctypes.data)
        return labels

    while True:
        library.step_sweep(state)
        clock(copied)


def loom_library(distributions: Path, target: tuple[str, ...]) -> ctypes.CDLL:
    """loom_step.cc and the library that it calls, built from the unpacked sources; target: flags of the processor."""
    sources = [Path(__file__).with_name("loom_step.cc")]
    sources += [distributions / "src" / f"{name}.cc" for name in ("common", "special", "random", "vector_math")]
    with tempfile.TemporaryDirectory() as folder:
        stub = Path(folder, "eigen3", "Eigen", "Cholesky")  # named by templates that are not used here
        stub.parent.mkdir(parents=True)
        stub.write_text("namespace Eigen { template <class Matrix> struct LLT; enum { Success }; }\n")
        built = Path(folder, "loom_step.so")
        flags = [*LOOM_FLAGS, *target, f"-I{folder}", f"-I{distributions / 'include'}"]
        subprocess.run([os.environ.get("CXX", "g++"), *flags, "-o", built, *sources], check=True)
        library = ctypes.CDLL(str(built))
    number, real, address = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
    library.step_new.restype = address
    library.step_new.argtypes = [number, number, address, address, real, real, real, number]
    library.step_sweep.argtypes, library.step_labels.argtypes = [address], [address, address]
    return library


def stepmix(x, levels, seed, clock, clusters=20) -> None:
    """EM of a latent class model with a given number of classes, one random start."""
    from stepmix.stepmix import StepMix

    clock.start()
    model = StepMix(
        clusters, measurement="categorical", max_iter=10**6, abs_tol=1e-3, random_state=seed, progress_bar=0
    )
    _watched(model, lambda resp: resp.argmax(axis=1), clock)
    model.fit(x.astype(float))


def sklearn_em(x, levels, seed, clock, covariance="full", clusters=20) -> None:
    """EM of a Gaussian mixture with a given number of components, one start by k-means."""
    from sklearn.mixture import GaussianMixture

    clock.start()
    model = GaussianMixture(clusters, covariance_type=covariance, max_iter=10**6, tol=1e-5, random_state=seed)
    _watched(model, lambda resp: resp.argmax(axis=1), clock)
    model.fit(x)


def sklearn_vb(x, levels, seed, clock, covariance="full", clusters=40) -> None:
    """Variational Bayes of a truncated Dirichlet process mixture of Gaussians."""
    from sklearn.mixture import BayesianGaussianMixture

    clock.start()
    model = BayesianGaussianMixture(
        n_components=clusters, covariance_type=covariance, max_iter=10**6, tol=1e-5, random_state=seed
    )
    _watched(model, lambda resp: resp.argmax(axis=1), clock)
    model.fit(x)


def _watched(model, labels_of, clock) -> None:
    """Tells the clock after every step of an EM: both programs pass the responsibilities to their step M."""
    step = model._m_step

    def noted(x, responsibilities, *more, **options):
        step(x, responsibilities, *more, **options)
        clock(lambda: labels_of(responsibilities))

    model._m_step = noted


def numpyro_map(x, levels, seed, clock, clusters=20) -> None:
    """Mode of a mixture with labels summed out, by Adam in numpyro; gradients over all rows, compiled.

    Levels have probabilities by softmax with normal logits, reals are independent normals within a cluster.
    """
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoDelta
    from numpyro.infer.initialization import init_to_sample

    clock.start()
    if levels:
        inside = np.arange(max(levels)) < np.array(levels)[:, None]  # (C, most levels)
        data = jnp.asarray(np.concatenate([np.eye(v, dtype=np.float32)[c] for v, c in zip(levels, x.T)], axis=1))
        shape = (clusters, *inside.shape)
    else:
        data, shape = jnp.asarray(x, jnp.float32), (clusters, x.shape[1])

    def scores(at):
        if levels:
            log_theta = jax.nn.log_softmax(jnp.where(inside, at["logit"], -1e9))
            return jnp.log(at["weight"]) + data @ log_theta[:, inside].T
        normal = dist.Normal(at["mean"], at["scale"])
        return jnp.log(at["weight"]) + normal.log_prob(data[:, None, :]).sum(-1)

    def model():
        at = {"weight": numpyro.sample("weight", dist.Dirichlet(jnp.full(clusters, 2.0)))}
        if levels:
            at["logit"] = numpyro.sample("logit", dist.Normal(0, 2).expand(shape).to_event(3))
        else:
            at["mean"] = numpyro.sample("mean", dist.Normal(0, data.std()).expand(shape).to_event(2))
            at["scale"] = numpyro.sample("scale", dist.HalfNormal(data.std()).expand(shape).to_event(2))
        numpyro.factor("rows", jax.nn.logsumexp(scores(at), axis=1).sum())

    guide = AutoDelta(model, init_loc_fn=init_to_sample)
    svi = SVI(model, guide, numpyro.optim.Adam(0.05), Trace_ELBO())
    state = svi.init(jax.random.PRNGKey(seed))
    update, labels = jax.jit(svi.update), jax.jit(lambda s: scores(guide.median(svi.get_params(s))).argmax(axis=1))
    while True:
        state, loss = update(state)
        loss.block_until_ready()
        clock(lambda state=state: labels(state))


LOOM = "loom's row step"
LOOM_FLAGS = ["-O3", "-ffast-math", "-std=gnu++14", "-w", "-fPIC", "-shared"]  # as loom and its library are built
PROGRAMS = {
    "mpibayes": (mpibayes, {}),
    "mpibayes, full": (mpibayes, {"full": True}),
    "lace slice": (lace, {"kernels": ("slice",)}),
    "lace slice + sams": (lace, {"kernels": ("slice", "sams")}),
    "lace Gibbs": (lace, {"kernels": ("gibbs",)}),
    LOOM: (loom_step, {"target": ("-msse4.1", "-mfpmath=sse")}),  # as its makers build it
    f"{LOOM}, native": (loom_step, {"target": ("-march=native",)}),
    "StepMix": (stepmix, {}),
    "scikit-learn EM, full": (sklearn_em, {"covariance": "full"}),
    "scikit-learn EM, diagonal": (sklearn_em, {"covariance": "diag"}),
    "scikit-learn VB, full": (sklearn_vb, {"covariance": "full"}),
    "numpyro, mode": (numpyro_map, {}),
}
PACKAGES = ("mpibayes", "pylace", "scikit-learn", "stepmix", "numpyro", "jax", "numpy")
MORE: dict = {}  # what a program wants to have noted besides


def resident_mib(field: str) -> float:
    return int(re.search(field + r":\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024


def versions() -> dict[str, str]:
    result = {}
    for package in PACKAGES:
        try:
            result[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--marks", type=float, nargs="+", default=[3.0, 10.0, 30.0])
    parser.add_argument("--sweeps", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--distributions", type=Path, help=f"unpacked sources of distributions 2.2.1, for {LOOM}")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with np.load(given.table) as arrays:
        x, levels = np.ascontiguousarray(arrays["x"]), tuple(arrays["levels"].astype(int).tolist())
    before = resident_mib("VmRSS")
    run, options = PROGRAMS[given.program]
    if given.program.startswith(LOOM):
        options = options | {
            "distributions": given.distributions or parser.error(f"{LOOM}: --distributions is missing")
        }
    clock = Clock(given.marks, given.sweeps)
    with contextlib.suppress(Finished):
        run(x, levels, given.seed, clock, **options)
    clock.close()
    result = {"program": given.program, "seconds": clock.seconds, "clusters": clock.clusters, "before_mib": before}
    result |= {"peak_mib": resident_mib("VmHWM"), "versions": versions(), **MORE}
    np.savez(given.out.with_suffix(".npz"), **{f"labels_{i}": z for i, z in enumerate(clock.labels)})
    given.out.with_suffix(".json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
