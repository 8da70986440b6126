"""What is exported of a regression besides its trace: nothing, since the trace has all its coefficients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from mpibayes.hpc.family import Clusters
from mpibayes.hpc.regression.draws import Posterior
from mpibayes.io.rows import Rows
from mpibayes.io.trace import Axes

FORMS = ()


def clusters(run: Posterior, groups: int | None = None) -> Clusters:
    raise NotImplementedError("a regression has no clusters")


def clusters_of(
    run: Posterior, batches: Iterable[Rows], draws: int | None = None, groups: int | None = None
) -> Iterator[Mapping[str, np.ndarray]]:
    raise NotImplementedError("a regression has no clusters")


def parameters(run: Posterior) -> tuple[list[dict[str, np.ndarray]], Axes]:
    return [], {}
