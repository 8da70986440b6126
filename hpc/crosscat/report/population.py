"""Population shares in the report, by survey weights, next to shares of rows, if the table has weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.posterior.chains import KeptChains
from mpibayes.hpc.report.document import PAGE, Field, Rounded
from mpibayes.hpc.report.tables import finite
from mpibayes.text import percent

HEADING = "population"
FIELDS = (
    Field(HEADING, "share", "of the population, by the weights of the rows"),
    Field("error", "share", "standard error of that: of the sample, and of the draws", PAGE),
)


def about(run: KeptChains, weights: np.ndarray | None) -> list[tuple[str, str]]:
    """Describe the weights; empty for a table without weights. weights (N,): weights in use."""
    if run.table.weight is None:
        return []
    name = f"'{run.table.weight}': the model is fitted to the rows as they are"
    if weights is None:
        return [("weights", f"{name}, and shares are of rows")]
    kish = weights.sum() ** 2 / (weights**2).sum()
    return [
        (
            "weights",
            f"{name}; population: weighted shares, with standard errors. For these the {len(weights):,} training rows "
            f"are worth about {kish:,.0f} of equal weight",
        )
    ]


def weighed(lines: Sequence) -> bool:
    """True if clusters or groups have population shares."""
    return bool(lines) and not np.isnan(lines[0].population)


def cells(line) -> list[float]:
    """Return the share of a cluster or group and its standard error; on paper "12 % ± 0.8"."""
    words = f"{percent(line.population)} ± {100.0 * line.population_error:.2g}"
    return [Rounded(line.population, words), line.population_error]


def document(line) -> dict[str, float | None]:
    """Return the shares for summary.json; {} without weights."""
    if np.isnan(line.population):
        return {}
    return {"population_share": line.population, "population_share_error": finite(line.population_error)}
