"""Evidence of the links of numbers that may lean on columns with levels, from statistics in contexts and clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat import sync
from mpibayes.hpc.links.children import Cells, Children
from mpibayes.hpc.links.coding import NUMBERS, Coding
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.io.rows import Rows


def child_evidence(
    comm: Communicator, coding: Coding, plain: Components, hyper: Hyper, labelled: Sequence[tuple[Rows, np.ndarray]],
    k: int, n_shards: int,
) -> Children:  # fmt: skip
    """The columns of `coding.children`, in order. plain: the components without links, and their hyperparameters.
    labelled: rows without links, and labels 0..k-1, negative where they do not count, of each of this rank's shards.
    Collective; the same on any number of ranks."""
    columns, parents = [coding.plain[c] for c in coding.children], plain.categorical.columns
    points = [_points(plain, hyper, column.name) for column in columns]
    at = {block: [column.index for column in columns if column.block == block] for block in NUMBERS}
    chosen = [replace(column, index=at[column.block].index(column.index)) for column in columns]
    components = Components(chosen)
    kinds = [(components.normal if c.block == "reals" else components.poisson, c.index) for c in chosen]
    rows = [
        replace(rows.only(()), **{b: np.ascontiguousarray(getattr(rows, b)[:, of]) for b, of in at.items()})
        for rows, _ in (labelled if columns else ())
    ]

    def cells(groups: Sequence[np.ndarray], n: int) -> Cells:
        s = sync.statistics(comm, components, list(zip(rows, groups)), n, n_shards)
        return [tuple(a[index] for a in s.of(kind)) for kind, index in kinds]

    def under() -> Iterator[tuple[int, Cells]]:
        place = {column.name: c for c, column in enumerate(coding.plain)}
        for j, parent in enumerate(parents):
            if parent.name in coding.contexts:
                n = int(coding.contexts[parent.name].max()) + 1
                context = [coding.context(place[parent.name], of) for of, _ in labelled]
                each = zip(context, (z for _, z in labelled))
                yield j, cells([np.where((z >= 0) & (u >= 0), z * n + u, -1).astype(np.int32) for u, z in each], k * n)

    if not columns:
        return Children([], [], (), len(parents))
    return Children(points, cells([z for _, z in labelled], k), under(), len(parents))


def _points(plain: Components, hyper: Hyper, name: str) -> np.ndarray:
    kind, c = plain.kind_of(name)
    return kind.points(c, getattr(hyper, kind.hyper)[c])
