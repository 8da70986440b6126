"""Sweeps of stray rows: a fixed set of rows, of all shards, that are visited with all clusters collapsed.

A cluster of a few rows opens on one shard a cycle, and hardly ever closes if its rows are on several. Nearly all such
clusters are of strays: rows that no large cluster explains well, with the highest probabilities of a new cluster given
all other rows. They are chosen during burn-in. From then on they are visited after every cycle, by all ranks alike, as
on one shard: Neal's Algorithm 3 for some of the rows, beside an outcome Algorithm 8 (docs/math.md 2.17). That is exact
because the set does not depend on the present state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.errors import NumericalError
from mpibayes.hpc.crosscat import host
from mpibayes.hpc.crosscat.laws.collapsed import collapsed_clusters
from mpibayes.hpc.crosscat.view.sync import COUNTS, Counts
from mpibayes.hpc.outcome.answers import Answers
from mpibayes.hpc.parallel import shards
from mpibayes.io.rows import ARRAYS, Rows
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.mixture import response

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.chain import Mixture
    from mpibayes.hpc.crosscat.view.view import View
    from mpibayes.hpc.outcome.outcome import Outcome

SHARE = 5  # by default a fifth as many as a shard has rows
SMALL = 3  # rows in clusters of at most this size are chosen first
SLICE = 1_024  # rows scored at a time
SWEEP = 1 << 32  # number of their sweep in the random streams, above those of a cycle


def default_count(n_rows: int, n_shards: int) -> int:
    """Return the default number of stray rows; a single shard has all clusters collapsed anyway."""
    return 0 if n_shards == 1 else n_rows // n_shards // SHARE


def due(cycle: int, fixed: int) -> bool:
    """True if stray rows are chosen after a cycle: a first time halfway, and for good after cycle `fixed`."""
    return cycle in (max(1, fixed // 2), max(1, fixed))


# --- the choice -------------------------------------------------------------------------------------------------------


def choose(chain: Mixture, n: int) -> np.ndarray:
    """Return the rows that most probably are alone in their clusters, about n, ascending. Collective.

    Each view chooses the same number of them; the views share the set, since columns change views.
    """
    chosen, of_each = np.zeros(0, np.int64), -(-n // len(chain.views))
    for view in chain.views:
        best = np.zeros(0, np.int64), np.zeros(0)
        for shard, p in zip(view.shards, _alone(view)):
            most = np.argsort(-p, kind="stable")[:of_each]
            best = _most_probable([best, (shard.start + most, p[most])], of_each)
        chosen = np.union1d(chosen, _most_probable(chain.comm.collect(best), of_each)[0])
    return chain.comm.share(chosen)


def _most_probable(parts: Sequence[tuple[np.ndarray, np.ndarray]], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the n rows with the highest probabilities among parts (rows, probabilities), which come in this form."""
    rows, p = map(np.concatenate, zip(*parts))
    most = np.lexsort((rows, -p))[:n]
    return rows[most], p[most]


def _alone(view: View) -> Iterator[np.ndarray]:
    """Yield for the rows of each of this rank's shards the probability of a new cluster; 1 in small ones."""
    clusters, size = collapsed_clusters(view.components, view.hyper, view.partition.statistics), view.partition.size
    for shard, z in zip(view.shards, view.z):
        p = np.ones(len(shard))
        for start in range(0, len(shard), SLICE):
            of = slice(start, start + SLICE)
            log_p = kernels.log_predictive_clusters(shard.rows.take(of), clusters)
            p[of] = np.exp(log_p[:, -1] - np.logaddexp.reduce(log_p, axis=1))
        p[size[z] <= SMALL] = 1.0
        yield p


# --- the sweeps -------------------------------------------------------------------------------------------------------


def follow(chain: Mixture) -> None:
    """Choose the stray rows if that is due after a cycle of a chain with several shards, and visit them. Collective."""
    n = chain.settings.stray_rows if chain.n_shards > 1 and not chain.growing else 0
    if n and due(chain.cycles, chain.settings.stray_rows_fixed):
        chain.strays = choose(chain, n)
    if len(chain.strays):
        visit(chain, chain.strays)


def visit(chain: Mixture, strays: np.ndarray) -> None:
    """Sweep the stray rows in all views, with weights and parameters integrated out. Collective."""
    first = np.searchsorted(strays, chain.cut)
    here = [strays[first[s.index] : first[s.index + 1]] - s.start for s in chain.shards]
    views = zip(chain.views, host.by_view(chain))
    changed = [view for view, outcome in views if _sweep(view, strays, here, first, chain.cycles, outcome)]
    if changed:
        chain.summarise(changed)


def _sweep(
    view: View, strays: np.ndarray, here: Sequence[np.ndarray], first: np.ndarray, cycle: int, outcome: Outcome | None
) -> bool:
    """Sweep the stray rows in a view; return True if its partition changed. All ranks compute the same.

    here: stray rows among those of each of this rank's shards; first: number of the first stray row of each shard.
    """
    rows, answers = _cells(view, strays, here, outcome)
    before = _labels(view, here, first)
    clusters, key = collapsed_clusters(view.components, view.hyper, view.partition.statistics), view.key(cycle)
    prior, z, of = view.components.prior(view.hyper), before.copy(), None
    if outcome is not None:
        of = _response(outcome, answers)
        outcome.renew(of, 0, key, SWEEP)
    try:
        how = key["seed"], key["cycle"], SWEEP, key["chain"], None, clusters, prior
        kernels.sweep(rows, z, 0, *how, response=of)
    except FloatingPointError as error:
        raise NumericalError(f"cycle {cycle}: a row cannot be scored", [str(error)]) from None
    occupied = np.flatnonzero(clusters.size[: clusters.n_slots])
    if of is not None:  # a cluster of one row may have new coefficients
        outcome.theta = np.ascontiguousarray(of.slots(occupied).T)
    if np.array_equal(z, before):
        return False
    name = np.full(clusters.n_slots, -1, np.int32)
    name[occupied] = np.arange(len(occupied))
    for shard, labels, places in zip(view.shards, view.z, here):
        labels[places] = z[first[shard.index] : first[shard.index + 1]]
        if len(occupied) < len(name):
            labels[:] = name[labels]
    view.n_labels = len(occupied)
    view.counts = Counts(*(getattr(clusters, array.name).take(occupied, -1) for array in COUNTS))
    return True


def _cells(
    view: View, strays: np.ndarray, here: Sequence[np.ndarray], outcome: Outcome | None
) -> tuple[Rows, Answers | None]:
    """Return cells and outcome of the stray rows of all shards, in order. They are gathered once, and again after the
    choice or the columns have changed; where links recode cells, in every cycle. Collective."""
    kept = view.strays
    if kept is not None and kept[0] is strays and (kept[2] is None) == (outcome is None):
        return kept[1:]
    mine = [shard.rows.take(places) for shard, places in zip(view.shards, here)]
    theirs = [] if outcome is None else [a.take(places) for a, places in zip(outcome.answers, here)]
    every = view.comm.collect((mine, theirs))
    rows = [part for parts, _ in every for part in parts]
    answers = [part for _, parts in every for part in parts]
    whole = Rows(*(np.concatenate([getattr(part, name) for part in rows]) for name in ARRAYS), rows[0].widths)
    found = whole, Answers.joined(answers) if answers else None
    view.strays = (strays, *found) if view.settings.links == "none" else None
    return found


def _labels(view: View, here: Sequence[np.ndarray], first: np.ndarray) -> np.ndarray:
    """Return the labels of the stray rows of all shards, in order. Collective."""
    comm, n = view.comm, view.n_shards
    labels = np.zeros(first[-1], np.int32)
    for shard, z, places in zip(view.shards, view.z, here):
        labels[first[shard.index] : first[shard.index + 1]] = z[places]
    held = [shards.of_rank(n, comm.size, rank) for rank in range(comm.size)]
    comm.share_rows(labels, first[[*(of.start for of in held), n]])
    return labels


def _response(outcome: Outcome, a: Answers) -> response.Response:
    """Return the outcome of these rows, with the coefficients of all clusters in the slots of a tail."""
    law, theta = outcome.law, outcome.theta
    return response.Response(
        law.likelihood.code, a.y, a.u, *outcome.offsets(a), theta[:0].T, theta.T, law.nu, law.scale
    )
