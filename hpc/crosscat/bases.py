"""Base of the pseudo-counts of categorical columns with many levels: the levels' frequencies in the training rows.

Most of many levels are rare. With equal pseudo-counts, a level that occurs once in one cluster and in no other is far
too strong evidence for that cluster, and every further cluster pays for all levels again. With pseudo-counts in
proportion to a level's frequency, a level that is rare everywhere is weak evidence (docs/math.md 1.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.io.rows import Column, Rows

MANY = 255  # a column with more levels gets a base; with 50 there is no gain where clusters have few levels each
UNSEEN = 0.5  # added to each level's count


def with_bases(
    priors: Mapping[str, Mapping[str, Any]], columns: Sequence[Column], rows: Iterable[Rows], comm: Communicator
) -> dict[str, Mapping[str, Any]]:
    """Return the priors, with a "base" (levels,), 1 on average, for each column of many levels that has neither a base
    nor a fixed prior. Collective.

    rows: this rank's training rows, with these columns; iterated once, and only if there is such a column. The counts
    are integers, so that the base is the same on any number of ranks.
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
