"""Estimates of the evidence for a view: the probability of its columns' cells, summed over the partitions of the rows.
On one rank and one shard.

    log p(cells) >= E log p(z) p(cells | z) / q(z),   z from q

where q draws every row's cluster anew from the predictive of a given partition's clusters. The better this partition
fits the columns, the tighter is the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mpibayes.hpc.crosscat.columns.proposal import Drawn
from mpibayes.hpc.crosscat.columns.scan import Rowwise, of_views
from mpibayes.hpc.crosscat.columns.subject import Subject
from mpibayes.hpc.crosscat.laws.collapsed import collapsed_clusters
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.crosscat.view.pitman_yor import PitmanYor
from mpibayes.hpc.crosscat.view.view import View
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.common.functions import gammaln

DRAWS = 2  # of a partition, of which the best counts
MIN_CLUSTER_ROWS, MAX_CLUSTERS = 3, 200  # clusters of a product that are kept
MAX_REFINEMENT = 5.0  # clusters of a product of two partitions, relative to the larger number of either


class Suited:
    """Law of partitions in which every row's cluster is drawn from the predictive of a given partition's clusters."""

    def __init__(self, subject: Subject, partition: Rowwise):
        of, rows, (concentration, discount) = subject.components, subject.cells(0), partition.process
        hyper = replace(subject.hyper, concentration=concentration, discount=discount)
        statistics = sync.statistics(subject.comm, of, [(rows, partition.z[0])], partition.n_labels, 1)
        terms = kernels.log_predictive_clusters(rows, collapsed_clusters(of, hyper, statistics))
        self._terms, self._n_labels = np.ascontiguousarray(terms[:, :-1]), partition.n_labels

    def draw(self, u: np.ndarray) -> Drawn:
        """Draw a partition with uniform numbers u (N,).

        log_q is the log probability of the labels plus the log of the number of labellings, since a partition has none.
        """
        z, log_q = kernels.take(self._terms, u)
        present = np.bincount(z, minlength=self._n_labels) > 0
        name = np.cumsum(present, dtype=np.int32) - np.int32(1)
        n_labels = int(name[-1]) + 1
        return Drawn([name[z]], n_labels, log_q + float(gammaln(float(self._n_labels + 1))))


def suited(subject: Subject, partition: Rowwise, u: np.ndarray) -> Drawn:
    """Draw a partition from `Suited` with uniform numbers u (N,)."""
    return Suited(subject, partition).draw(u)


def log_weight(law: PitmanYor, subject: Subject, drawn: Drawn) -> float:
    """Return log p(z) p(cells | z) / q(z), with concentration and discount of the rows integrated out."""
    sizes = np.bincount(drawn.z[0], minlength=drawn.n_labels)
    return law.log_prior(sizes) + subject.log_likelihood(drawn.z, drawn.n_labels) - drawn.log_q


def log_evidence(view: View, stream: np.random.Generator) -> float:
    """Estimate the log evidence of a view from its present partition."""
    rows, (partition,) = view.shards[0].rows, of_views([view])
    of = view.components, view.hyper, lambda shard, at=None: rows
    subject = Subject(view.comm, *of, view.shards, view.z, len(rows), 1)
    suits = Suited(subject, partition)
    draws = (suits.draw(stream.random(len(rows))) for _ in range(DRAWS))
    return max(log_weight(view.law, subject, drawn) for drawn in draws)


def product(a: Rowwise, b: Rowwise) -> Sequence[Rowwise]:
    """Return the common refinement of two partitions, or nothing if it has more than MAX_REFINEMENT times as many
    clusters as either."""
    cells, z = np.unique(a.z[0].astype(np.int64) * b.n_labels + b.z[0], return_inverse=True)
    if len(cells) > MAX_REFINEMENT * max(a.n_labels, b.n_labels):
        return []
    return [Rowwise([z.astype(np.int32)], len(cells), a.process)]


def dealt(subject: Subject, a: Rowwise, b: Rowwise, u: np.ndarray) -> Rowwise:
    """Draw a partition into the largest clusters of the product of two partitions: every row from the predictive of
    these clusters, with uniform numbers u (N,)."""
    cells, z, size = np.unique(a.z[0].astype(np.int64) * b.n_labels + b.z[0], return_inverse=True, return_counts=True)
    largest = np.argsort(-size, kind="stable")[:MAX_CLUSTERS]
    largest = largest[size[largest] >= min(MIN_CLUSTER_ROWS, size.max())]
    label = np.full(len(cells), -1, np.int32)
    label[largest] = np.arange(len(largest))
    drawn = suited(subject, Rowwise([label[z]], len(largest), a.process), u)
    return Rowwise(drawn.z, drawn.n_labels, a.process)
