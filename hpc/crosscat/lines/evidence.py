"""Evidence for links of numeric columns given labels: links in lines between numbers, from moments in clusters, and
links on columns with levels, from statistics in contexts and clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat.lines.moments import line_moments
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.links.children import Cells, Children
from mpibayes.hpc.links.coding import NUMBERS, Coding
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.links.lines import Lines
from mpibayes.hpc.links.numbers import Numbers
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.io.rows import Column, Rows

Labelled = Sequence[tuple[Rows, np.ndarray]]


def number_evidence(
    comm: Communicator, coding: Coding, priors: Mapping[str, Mapping], plain: Components, hyper: Hyper,
    labelled: Labelled, k: int, n_shards: int,
) -> Numbers:  # fmt: skip
    """Return the evidence for links of the columns of `coding.leaning`. plain, hyper: components without links, under
    `priors`, and their hyperparameters. labelled: rows without links and labels 0..k-1, negative where rows do not
    count, for each of this rank's shards. Collective; the same on any number of ranks."""
    of_column, columns = plain.by_column(hyper), [coding.plain[c] for c in coding.lines]
    in_lines = np.array([of_column[column.name] for column in columns]).reshape(-1, 4)
    moments = line_moments(comm, columns, labelled, k if columns else 0, n_shards)
    lines = Lines(columns, moments, priors, in_lines)
    return Numbers(coding, lines, child_evidence(comm, coding, plain, hyper, labelled, k, n_shards))


def child_evidence(
    comm: Communicator, coding: Coding, plain: Components, hyper: Hyper, labelled: Labelled, k: int, n_shards: int
) -> Children:
    """Return the evidence for links of the columns of `coding.children`; arguments as in `number_evidence`."""
    columns, parents = [coding.plain[c] for c in coding.children], plain.categorical.columns
    place = {column.name: c for c, column in enumerate(coding.plain)}

    def statistics(j: int, subset: list[int]) -> Cells | None:
        chosen = [columns[c] for c in subset]
        if j == ROOT:
            return _cells(comm, chosen, labelled, [z for _, z in labelled], k, n_shards)
        of = coding.contexts.get(parents[j].name)
        if of is None:
            return None
        n = int(of.max()) + 1
        each = [(coding.context(place[parents[j].name], rows), z) for rows, z in labelled]
        groups = [np.where((z >= 0) & (u >= 0), z * n + u, -1).astype(np.int32) for u, z in each]
        return _cells(comm, chosen, labelled, groups, k * n, n_shards)

    return Children([_points(plain, hyper, column.name) for column in columns], statistics, len(parents))


def _cells(
    comm: Communicator, columns: Sequence[Column], labelled: Labelled, groups: Sequence[np.ndarray], n: int,
    n_shards: int,
) -> Cells:  # fmt: skip
    """Return statistics of numeric columns in n groups of rows; rows with a negative group do not count. Collective."""
    at = {block: [column.index for column in columns if column.block == block] for block in NUMBERS}
    chosen = [replace(column, index=at[column.block].index(column.index)) for column in columns]
    rows = [
        replace(rows.only(()), **{b: np.ascontiguousarray(getattr(rows, b)[:, of]) for b, of in at.items()})
        for rows, _ in labelled
    ]
    components = Components(chosen)
    s = sync.statistics(comm, components, list(zip(rows, groups)), n, n_shards)
    kinds = [(components.normal if c.block == "reals" else components.poisson, c.index) for c in chosen]
    return [tuple(a[index] for a in s.of(kind)) for kind, index in kinds]


def _points(plain: Components, hyper: Hyper, name: str) -> np.ndarray:
    kind, c = plain.kind_of(name)
    return kind.points(c, getattr(hyper, kind.hyper)[c])
