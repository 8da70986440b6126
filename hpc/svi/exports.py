"""What is exported of variational inference besides its trace: each row's most probable component, and the weights."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.family import Clusters
from mpibayes.hpc.svi.draws import Posterior
from mpibayes.hpc.svi.predictive import responsibilities
from mpibayes.io.trace import Axes

FORMS = ("clusters",)
BATCH = 8192


def clusters(run: Posterior) -> Clusters:
    """See `Clusters`: components of the best chain's last state, the heaviest first."""
    best = run.best()
    number, probability = assigned(run, best.law())
    where = f"cycle {best.cycle:,} of {run.chains[best.chain].folder}, of the best bound"
    return Clusters([(number + 1, probability)], f"most probable components, an approximation: {where}")


def assigned(run: Posterior, law) -> tuple[np.ndarray, np.ndarray]:
    """Of each training row its most probable component, int64 (N,), from 0, and how probable that is, (N,)."""
    number, probability = np.empty(run.n_rows, np.int64), np.empty(run.n_rows)
    for start in range(0, run.n_rows, BATCH):
        stop = min(start + BATCH, run.n_rows)
        p = responsibilities(law.log_joint(run.cells.of(run.data.rows_of(start, stop))))
        number[start:stop], probability[start:stop] = p.argmax(axis=1), p.max(axis=1)
    return number, probability


def parameters(run: Posterior) -> tuple[list[dict[str, np.ndarray]], Axes]:
    """`weight` (n, K) and `mean` (n, K, D) of the kept states, in the table's units, components as they were
    numbered within the run."""
    chains = []
    for i in range(len(run.chains)):
        kept = list(run.states(i))
        if not kept:
            return [], {}
        weight = np.stack([k.q.alpha / k.q.alpha.sum() for k in kept])
        mean = np.stack([k.q.mean for k in kept]) * run.cells.scale + run.cells.center
        chains.append({"cycle": np.array([k.cycle for k in kept]), "weight": weight, "mean": mean})
    component = list(range(1, run.model.n_components + 1))
    columns = [c.name for c in run.cells.columns]
    return chains, {"weight": {"component": component}, "mean": {"component": component, "column": columns}}
