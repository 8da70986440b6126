"""The cluster of every row of the table in each view's representative partition, and its probability.

The partition is of the training rows. In draw d row i is in cluster k, with n_k rows, of which n_rk are in cluster r of
the representative partition, and

    P(r | i) = mean_d n_rk / n_k                       a training row
    P(r | x) = sum_d p_d(x) P_d(r | x) / sum_d p_d(x)  a row that was held out, or another one (`predict.py`)

A row outside the training set gets the most probable of these clusters, even if a new cluster is more probable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.levels.grouped import grouped
from mpibayes.hpc.crosscat.predict import DRAWS
from mpibayes.hpc.crosscat.summaries.partitions import contingency
from mpibayes.hpc.crosscat.summaries.predictor import Predictor
from mpibayes.hpc.crosscat.summaries.representative import COMPARED, Representative, Representatives, representatives
from mpibayes.hpc.data.latent import OF_NEW_ROWS
from mpibayes.hpc.family import RowClusters, named
from mpibayes.hpc.posterior.asked import require_likelihood
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.io.rows import Rows

Assigned = tuple[np.ndarray, np.ndarray]  # clusters int64 (n,) from 1, their probabilities (n,)


def row_clusters(run: Posterior, groups: int | None = None) -> tuple[Representatives, list[RowClusters]]:
    """Return the representative partitions, and the cluster of every row of the table in each of their views.

    groups: number of groups of clusters to look up, too (`levels/`). Raises ConfigError if no draw of the labels was
    kept, or no view has this number of groups. Memory: labels of one draw, statistics of DRAWS draws.
    """
    run.read_traces()  # needed for the length of the burn-in
    kept = run.require_kept()
    partitions = representatives(run, kept)
    every, at = with_groups(run, kept, partitions.views, groups)
    trained = _trained(run, kept, every)
    others = run.data.heldout
    if others is None:
        return partitions, _beside([RowClusters(cluster, p, run.held_out) for cluster, p in trained], at)
    assign = _predictor(run, kept, every)
    starts = range(0, len(others), assign.batch)
    parts = [_assigned(assign, _held_out(run, i, min(i + assign.batch, len(others)))) for i in starts]
    views = []
    for v, of_trained in enumerate(trained):
        rest = (np.concatenate(values) for values in zip(*(part[v] for part in parts)))
        cluster, p = map(run.of_all_rows, of_trained, rest)
        views.append(RowClusters(cluster, p, run.held_out))
    return partitions, _beside(views, at)


def with_groups(
    run: Posterior, kept: Sequence[tuple[int, int]], views: Sequence[Representative], groups: int | None
) -> tuple[list[Representative], list[int | None]]:
    """Append to the views their copies with groups in place of clusters; return all, and the place of each view's copy
    or None."""
    other = grouped(run, kept, views, groups) if groups is not None else [None] * len(views)
    every, at = list(views), []
    for r in other:
        at.append(None if r is None else len(every))
        every += [] if r is None else [r]
    return every, at


def _beside(views: Sequence[RowClusters], at: Sequence[int | None]) -> list[RowClusters]:
    """Return the views with the groups of their rows; at: see `with_groups`."""
    return [view if i is None else replace(view, group=views[i].cluster) for view, i in zip(views, at)]


def clusters_of(
    run: Posterior, batches: Iterable[Rows], draws: int | None = None, groups: int | None = None
) -> Iterator[Mapping[str, np.ndarray]]:
    """See `hpc.family.ClusterExports`."""
    require_likelihood(run, "new rows")
    run.read_traces()
    kept = run.require_kept()
    every, at = with_groups(run, kept, representatives(run, kept).views, groups)
    assign = _predictor(run, kept, every, draws)
    n = 0
    for rows in batches:
        for start in range(0, len(rows), assign.batch):
            batch = rows.take(slice(start, start + assign.batch))
            assigned = _assigned(assign, run.data.as_modelled(batch, n + np.arange(len(batch)), OF_NEW_ROWS))
            yield named(assigned[: len(at)], [None if i is None else assigned[i][0] for i in at])
            n += len(batch)


def _trained(run: Posterior, kept: Sequence[tuple[int, int]], views: Sequence[Representative]) -> list[Assigned]:
    """Return the clusters of the training rows in each view, with their probabilities."""
    used = evenly(kept, COMPARED)
    sums = [np.zeros(run.n_rows) for _ in views]
    for _, draw in run.states(used):
        for r, total in zip(views, sums):
            z = draw.labels[r.of.nearest_view(draw)]
            together = contingency(r.labels, z)
            total += (together / together.sum(axis=0))[r.labels, z]
    return [(r.labels + 1, total / len(used)) for r, total in zip(views, sums)]


def _predictor(
    run: Posterior, kept: Sequence[tuple[int, int]], views: Sequence[Representative], draws: int | None = None
) -> Predictor:
    return Predictor(run, evenly(kept, draws or DRAWS), views)


def _held_out(run: Posterior, start: int, stop: int) -> Rows:
    """Return held-out rows as they are modelled: without cells if the prior was sampled."""
    return run.data.heldout_of(start, stop) if run.likelihood else Rows.empty((), stop - start)


def _assigned(assign: Predictor, rows: Rows) -> list[Assigned]:
    """Return the clusters of modelled rows in each view, with their probabilities."""
    return [(view.p.argmax(axis=1) + 1, view.p.max(axis=1)) for view in assign(rows).views]
