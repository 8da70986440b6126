"""Exports of an Indian buffet process besides its trace: its features, and the number of rows that have them."""

from __future__ import annotations

import numpy as np

from mpibayes.hpc.ibp.draws import Posterior, iterate_draws
from mpibayes.io.trace import Axes

FORMS = ("features",)
LINES = NEEDS = TEXTS = {}
SHARES = 100  # most features whose shares are exported


def parameters(run: Posterior) -> tuple[list[dict[str, np.ndarray]], Axes]:
    """Return `share`: the share of rows with the most frequent feature, the next, and so on, for as many features as
    every draw after burn-in has, at most SHARES; None if a draw has none."""
    run.read_traces()
    draws = [[(d.cycle, np.sort(d.owned)[::-1]) for d in iterate_draws(chain.folder)] for chain in run.chains]
    later = [
        [len(owned) for cycle, owned in of if cycle > chain.burn_in] for chain, of in zip(run.chains, draws)
    ]  # fmt: skip
    most = min((min(lengths, default=0) for lengths in later), default=0)
    most = min(SHARES, most)
    if not most:
        return [], {}
    chains = []
    for of in draws:
        share = np.zeros((len(of), most))
        for row, (_, owned) in zip(share, of):
            row[: min(most, len(owned))] = owned[:most] / run.n_rows
        chains.append({"cycle": np.array([cycle for cycle, _ in of]), "share": share})
    return chains, {"share": {"feature": list(range(1, most + 1))}}
