"""Memory and time that an outcome takes, for `mpibayes check`."""

from __future__ import annotations

import time

import numpy as np

from mpibayes.hpc.crosscat import host
from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.crosscat.cost.cost_model import Coefficients
from mpibayes.hpc.crosscat.with_outcome import columns_of
from mpibayes.hpc.outcome.columns import Columns
from mpibayes.hpc.outcome.keys import Outcome
from mpibayes.hpc.outcome.law import Law
from mpibayes.hpc.run.examine import Examined

TIMED = 3  # draws timed; the quickest counts


def outcome_of(examined: Examined) -> Columns | None:
    """Return the columns of the outcome, if there is one."""
    config = examined.config
    return columns_of(config, examined.data) if config.of(Outcome).column is not None else None


def law_of(outcome: Columns | None) -> Law | None:
    """Return a law with as many coefficients as the outcome's."""
    return None if outcome is None else outcome.law_of()


def has_bounds(outcome: Columns | None) -> bool:
    """Return True if coefficients are drawn by Firefly Monte Carlo."""
    return outcome is not None and outcome.keys.kernel == "firefly"


def outcome_bytes(law: Law | None, rows: int, shard: int, heldout_rows: int, bounds: bool = False) -> int:
    """Return a rank's bytes. Per row: outcome (8) and predictors (4 each), also of held-out rows; offset and odds of
    each linear predictor in sweeps (8 each); a bound (24) and where it touches (4); predictors times the root of a
    count (4 each). Per row of one shard: coefficients proposed for a new cluster with their random numbers (24 each),
    row number and choice (8 each). Of times to an event, per row: the time, and the log of its exposure (8 each)."""
    if law is None:
        return 0
    q = law.width + len(law.covariate_sd) // law.n_eta
    row = 16 * law.n_eta + 28 * bounds + 4 * q * law.likelihood.weighs_rows + 16 * (law.baseline is not None)
    return (rows + heldout_rows) * (4 + 4 * q) + row * rows + shard * (24 * law.n_fresh * law.p + 16)


def time_coefficients(mixture: Mixture) -> Coefficients:
    """Time draws of the coefficients, with all rows and with no row in a cluster; the chain is useless afterwards."""
    outcome, seconds = mixture.outcome, []
    assert outcome is not None
    labels = mixture.views[host.view_of(mixture)].z
    if outcome.fireflies is not None:
        outcome.fireflies.freeze(labels)
    for z in (labels, [np.full_like(of, -1) for of in labels]):
        took = []
        for _ in range(TIMED):
            began = time.process_time()
            outcome.draw(z, mixture.cycles)
            took.append(time.process_time() - began)
        seconds.append(min(took))
    whole, root = seconds
    row = max(whole - root, 0.0) / mixture.n_rows
    law = outcome.law
    costs = outcome.passes, row, root
    return Coefficients(law.p, len(outcome.beta), *costs, n_eta=law.n_eta, weighs_rows=law.likelihood.weighs_rows)
