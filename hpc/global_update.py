"""Root's part of a cycle (MATH 2.1, steps 1 to 5; 2.2): hyperparameters, the split, weights, parameters.

Every function is pure: partition summary in, draws out. The order is part of the algorithm: hyperparameters are drawn
with weights and parameters integrated out, then weights, then parameters.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mpibayes.hpc.models.components import Components, Hyper
from mpibayes.hpc.models.partition import PitmanYor
from mpibayes.hpc.state import Shared, Summary
from mpibayes.hpc.streams import Purpose, generator, log_dirichlet_draw


def draw_hyper(law: PitmanYor, components: Components, hyper: Hyper, summary: Summary, seed, cycle, chain) -> Hyper:
    """Step 1: hyperparameters given the partition (MATH 2.4)."""
    occupied = summary.size[summary.size > 0]
    stream = generator(seed, Purpose.CONCENTRATION, cycle, 0, chain)
    concentration, discount = law.draw(occupied, hyper.concentration, stream)
    return components.update(
        replace(hyper, concentration=concentration, discount=discount), summary.statistics, seed, cycle, chain
    )


def private_clusters(size: np.ndarray, owned: np.ndarray) -> np.ndarray:
    """Step 3: clusters with every row on their owner, (K,) bool. An empty cluster is private and so disappears."""
    return owned == size


def draw_weights(hyper: Hyper, size, private, owner, opening: str, n_shards: int, stream):
    """Step 4: weights of the instantiated clusters and of each shard's tail, in logs.

    "one": (w, w_*) ~ Dirichlet(m - d, alpha + K1 d + M).
    "all" (d = 0): (w, w_*1 .. w_*S) ~ Dirichlet(m, alpha/S + M_s).
    Returns log_weight (K1,), log_tail_weight (S,) and the concentration of a tail.
    """
    instantiated = ~private
    n_1, d = int(instantiated.sum()), hyper.discount
    shape = size[instantiated] - d
    if opening == "one":
        concentration = hyper.concentration + n_1 * d
        if n_1 == 0:
            return np.zeros(0), np.zeros(n_shards), concentration
        log_w = log_dirichlet_draw(np.append(shape, concentration + size[private].sum()), stream)
        return log_w[:n_1], np.full(n_shards, log_w[n_1]), concentration
    concentration = hyper.concentration / n_shards
    rows = np.bincount(owner[private], size[private], n_shards)
    log_w = log_dirichlet_draw(np.concatenate([shape, concentration + rows]), stream)
    return log_w[:n_1], log_w[n_1:], concentration


def instantiate(components, hyper, summary: Summary, owner, opening, n_shards, seed, cycle, chain) -> Shared:
    """Steps 3 to 5: which clusters are instantiated, their weights, their parameters, and the anchors' priorities."""
    size, private = summary.size, private_clusters(summary.size, summary.owned)
    stream = generator(seed, Purpose.WEIGHTS, cycle, 0, chain)
    weights = draw_weights(hyper, size, private, owner, opening, n_shards, stream)
    kept = np.flatnonzero(~private)
    parameters = components.draw(hyper, summary.statistics.take(kept), seed, cycle, chain)
    return Shared(hyper, summary.anchor[kept], *weights, parameters)


def update(law, components, hyper, summary, owner, opening, n_shards, seed, cycle, chain, learn=True) -> Shared:
    """All of root's work between two syncs. `learn=False` keeps the hyperparameters as they are."""
    if learn:
        hyper = draw_hyper(law, components, hyper, summary, seed, cycle, chain)
    return instantiate(components, hyper, summary, owner, opening, n_shards, seed, cycle, chain)
