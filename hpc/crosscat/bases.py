"""The base of the pseudo-counts of categorical columns with many levels: how often each occurs in the training rows.

Most of many levels are rare. Where all have the same pseudo-count, a level that one cluster has seen once and the
others have not tells much too loudly where a row belongs, and every further cluster pays for all levels anew. With
pseudo-counts in proportion to how often a level occurs, what is rare everywhere is no news (docs/math.md 1.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.io.rows import Column, Rows

MANY = 255  # columns of more levels; with 50 it is no gain, where clusters have few of them each
UNSEEN = 0.5  # cells that a level is given besides its own


def with_bases(
    priors: Mapping[str, Mapping[str, Any]], columns: Sequence[Column], rows: Iterable[Rows], comm: Communicator
) -> dict[str, Mapping[str, Any]]:
    """The priors, with a "base" (levels,), 1 on average, for each column of many levels that has none, nor a fixed
    prior. Collective.

    rows: this rank's training rows, with these columns; gone through once, and only if there is such a column. The
    counts are whole numbers, so that the base is the same on any number of ranks.
    """
    wide = [c for c in columns if len(c.levels) > MANY and not {"dirichlet", "base"} & priors.get(c.name, {}).keys()]
    if not wide:
        return dict(priors)
    cells = np.zeros(sum(len(c.levels) + 1 for c in wide), np.int64)
    parts = np.split(cells, np.cumsum([len(c.levels) + 1 for c in wide])[:-1])
    for batch in rows:
        for column, part in zip(wide, parts):
            part += np.bincount(getattr(batch, column.block)[:, column.index], minlength=len(part))
    comm.sum_everywhere(cells)
    bases = {c.name: part[:-1] + UNSEEN for c, part in zip(wide, parts)}  # the last one counts missing cells
    return {**priors, **{name: {**priors.get(name, {}), "base": n / n.mean()} for name, n in bases.items()}}
