"""Estimates of the evidence for a view: of the cells of its columns, whatever the clusters of the rows. On one rank and
one shard.

    log p(cells) >= E log p(z) p(cells | z) / q(z),   z from q

where q draws every row's cluster anew, given what the clusters of a partition say of the columns. That is the closer
the better the partition suits the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mpibayes.hpc.crosscat import sync
from mpibayes.hpc.crosscat.collapsed import collapsed_clusters
from mpibayes.hpc.crosscat.columns.proposal import Drawn
from mpibayes.hpc.crosscat.columns.scan import Rowwise, of_views
from mpibayes.hpc.crosscat.columns.subject import Subject
from mpibayes.hpc.crosscat.pitman_yor import PitmanYor
from mpibayes.hpc.crosscat.view import View
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.common.functions import gammaln

DRAWS = 2  # of which the best counts
FEWEST, LARGEST = 3, 200  # rows of a cluster of a product that rows are dealt to, and such clusters, at most
FINER = 5.0  # clusters of a product of two partitions over those of either, at most


class Suited:
    """Partitions whose rows are drawn anew given what the clusters of a partition say of some columns."""

    def __init__(self, subject: Subject, partition: Rowwise):
        of, rows, (concentration, discount) = subject.components, subject.cells(0), partition.process
        hyper = replace(subject.hyper, concentration=concentration, discount=discount)
        statistics = sync.statistics(subject.comm, of, [(rows, partition.z[0])], partition.n_labels, 1)
        terms = kernels.log_predictive_clusters(rows, collapsed_clusters(of, hyper, statistics))
        self._terms, self._n_labels = np.ascontiguousarray(terms[:, :-1]), partition.n_labels

    def draw(self, u: np.ndarray) -> Drawn:
        """A partition by uniforms u (N,).

        log_q is that of the names of clusters, and as much more as there are ways to name them: partitions have none.
        """
        z, log_q = kernels.take(self._terms, u)
        present = np.bincount(z, minlength=self._n_labels) > 0
        name = np.cumsum(present, dtype=np.int32) - np.int32(1)
        n_labels = int(name[-1]) + 1
        return Drawn([name[z]], n_labels, log_q + float(gammaln(float(self._n_labels + 1))))


def suited(subject: Subject, partition: Rowwise, u: np.ndarray) -> Drawn:
    """Draw such a partition by uniforms u (N,)."""
    return Suited(subject, partition).draw(u)


def log_weight(law: PitmanYor, subject: Subject, drawn: Drawn) -> float:
    """log p(z) p(cells | z) / q(z), concentration and discount of the rows integrated out by their law."""
    sizes = np.bincount(drawn.z[0], minlength=drawn.n_labels)
    return law.log_prior(sizes) + subject.log_likelihood(drawn.z, drawn.n_labels) - drawn.log_q


def log_evidence(view: View, stream: np.random.Generator) -> float:
    """For a view, from its own partition."""
    rows, (partition,) = view.shards[0].rows, of_views([view])
    of = view.components, view.hyper, lambda shard, at=None: rows
    subject = Subject(view.comm, *of, view.shards, view.z, len(rows), 1)
    suits = Suited(subject, partition)
    draws = (suits.draw(stream.random(len(rows))) for _ in range(DRAWS))
    return max(log_weight(view.law, subject, drawn) for drawn in draws)


def product(a: Rowwise, b: Rowwise) -> Sequence[Rowwise]:
    """The partition that tells rows apart as both do, where it is not much finer than they are."""
    cells, z = np.unique(a.z[0].astype(np.int64) * b.n_labels + b.z[0], return_inverse=True)
    if len(cells) > FINER * max(a.n_labels, b.n_labels):
        return []
    return [Rowwise([z.astype(np.int32)], len(cells), a.process)]


def dealt(subject: Subject, a: Rowwise, b: Rowwise, u: np.ndarray) -> Rowwise:
    """The largest clusters of the product of two partitions, to which all rows are dealt by uniforms u (N,), given what
    these clusters say of some columns."""
    cells, z, size = np.unique(a.z[0].astype(np.int64) * b.n_labels + b.z[0], return_inverse=True, return_counts=True)
    largest = np.argsort(-size, kind="stable")[:LARGEST]
    largest = largest[size[largest] >= min(FEWEST, size.max())]
    label = np.full(len(cells), -1, np.int32)
    label[largest] = np.arange(len(largest))
    drawn = suited(subject, Rowwise([label[z]], len(largest), a.process), u)
    return Rowwise(drawn.z, drawn.n_labels, a.process)
