"""Chains on some of the rows, alone in their process: searches for views, and the clusters that a chain starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.crosscat.view.view import Settings
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.comm import Serial
from mpibayes.hpc.parallel.tasks import Stopped
from mpibayes.io.rows import Column, Rows


def chain_on(
    alone: Serial, columns: Sequence[Column], rows: Rows, settings: Settings, chain: int,
    views: Sequence[Sequence[str]] | None = None,
) -> Mixture:  # fmt: skip
    """Return a chain on the given rows, which have these columns and no others, whose columns stay in their views."""
    settings = replace(settings, shards=1, annealing=None, column_moves=0, view_moves=0, group_moves=0, column_powers=0)
    recodes = settings.links != "none"  # links change cells of their rows
    own = rows.take(slice(None)) if recodes else rows
    result = Mixture(alone, columns, lambda a, b: own, len(rows), settings, chain, views)
    result.scored = False
    return result


def advance(mixture: Mixture, cycles: int) -> None:
    """Run cycles. Raises Stopped if the program is asked to stop."""
    for _ in range(cycles):
        if mixture.comm.asked_to_stop():
            raise Stopped
        mixture.cycle()


def rows_of(data: Data, places: Sequence[np.ndarray]) -> list[Rows]:
    """Read several sets of training rows in one pass; a single one in ascending order."""
    if len(places) == 1:
        return [data.rows_at(places[0])]
    every = np.concatenate(places)
    order = np.argsort(every)
    rows = data.rows_at(every[order]).take(np.argsort(order))
    ends = np.cumsum([0, *map(len, places)]).tolist()
    return [rows.take(slice(*of)) for of in pairwise(ends)]


def without_learned_links(mixture: Mixture, columns: Sequence[Column], rows: Rows) -> Mixture:
    """Return a chain with the same clusters as chains begin, which learn their own links."""
    settings, views = mixture.settings, [view.columns for view in mixture.views]
    if not (settings.likelihood and isinstance(settings.links, str) and settings.links != "none"):
        return mixture
    plain = chain_on(mixture.comm, columns, rows, replace(settings, links="none"), mixture.chain, views)
    plain.start([view.z[0] for view in mixture.views])
    return plain
