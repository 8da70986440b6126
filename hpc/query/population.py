"""Survey weights in answers: of whom a question speaks, of the population that the weights stand for or of the rows as
they are; and the line that says so."""

from __future__ import annotations

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.family import Asked, Posterior
from mpibayes.io.table import Table


def weights_of(run: Posterior, asked: Asked, weighted: bool | None) -> np.ndarray | None:
    """Weights of the training rows relative to the largest, (N,), None for answers about the rows as they are.
    weighted: see `Asking.weigh`. Raises ConfigError where answers were to be weighted and cannot be."""
    if weighted and not asked.has_clusters:
        raise ConfigError("--weighted: weights count in the clusters of a mixture or a cross-categorization alone")
    return run.training_weights(weighted) if asked.has_clusters else None


def in_words(table: Table, weighted: bool) -> str:
    """The line about the weights under an answer; "" for a table without."""
    if table.weight is None:
        return ""
    if weighted:
        return (
            f"of the population, by the weights of the rows ('{table.weight}'); --unweighted: of the rows as they are"
        )
    return f"of the rows as they are, without their weights ('{table.weight}')"
