"""Exports of a regression besides its trace: none, since the trace has all coefficients."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.regression.draws import Posterior
from mpibayes.io.trace import Axes

FORMS = ()
LINES = NEEDS = TEXTS = {}


def parameters(run: Posterior) -> tuple[list[dict[str, np.ndarray]], Axes]:
    return [], {}
