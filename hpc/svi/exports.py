"""Exports of variational inference besides its trace: each row's most probable component, and the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from mpibayes.hpc.family import Clusters, RowClusters, named
from mpibayes.hpc.svi.draws import Posterior
from mpibayes.hpc.svi.law import Law
from mpibayes.io.rows import Rows
from mpibayes.io.trace import Axes

FORMS = ("clusters",)
LINES = NEEDS = TEXTS = {}
BATCH = 8192


def clusters(run: Posterior, groups: int | None = None) -> Clusters:
    """See `hpc.family.ClusterExports`: components of the best chain's last state, the heaviest first."""
    run.refuse_groups(groups)
    best, data = run.best(), run.data
    law = run.law(best)
    number, probability = assigned(run, law)
    if data.heldout is not None:
        others = _assigned(law, data.heldout_of, len(data.heldout))
        number, probability = map(run.of_all_rows, (number, probability), others)
    where = f"cycle {best.cycle:,} of {run.chains[best.chain].folder}, of the best bound"
    about = f"most probable components, an approximation: {where}"
    return Clusters([RowClusters(number + 1, probability, run.held_out)], about)


def clusters_of(
    run: Posterior, batches: Iterable[Rows], draws: int | None = None, groups: int | None = None
) -> Iterator[Mapping[str, np.ndarray]]:
    """See `hpc.family.ClusterExports`."""
    run.refuse_groups(groups)
    law = run.law(run.best())
    for rows in batches:
        number, probability = _assigned(law, lambda i, j, rows=rows: rows.take(slice(i, j)), len(rows))
        yield named([(number + 1, probability)])


def assigned(run: Posterior, law: Law) -> tuple[np.ndarray, np.ndarray]:
    """Most probable component of each training row, int64 (N,), from 0, and its probability, (N,)."""
    return _assigned(law, run.data.rows_of, run.n_rows)


def _assigned(law: Law, rows: Callable[[int, int], Rows], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Most probable component of n rows and its probability. rows(start, stop): reads a range of them."""
    number, probability = np.empty(n, np.int64), np.empty(n)
    for start in range(0, n, BATCH):
        stop = min(start + BATCH, n)
        p = law.members(rows(start, stop))[1]
        number[start:stop], probability[start:stop] = p.argmax(axis=1), p.max(axis=1)
    return number, probability


def parameters(run: Posterior) -> tuple[list[dict[str, np.ndarray]], Axes]:
    """Return `weight` (n, K) and `mean` (n, K, D) of the kept states, in the table's units, with components numbered as
    in the run."""
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
