"""The outcome's arrays in checkpoints and kept draws, under prefixed names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mpibayes.hpc.outcome.outcome import Outcome

PREFIX = "outcome_"
NAMES = ("theta", "beta", "law")
POINTS = PREFIX + "points"


def arrays_of(outcome: Outcome | None) -> dict[str, np.ndarray]:
    """Return the arrays of the present state; empty without an outcome."""
    return {} if outcome is None else {PREFIX + name: of for name, of in outcome.state().items()}


def taken(arrays: dict[str, Any]) -> dict[str, np.ndarray] | None:
    """Remove the outcome's arrays from those of a draw and return them; None without an outcome."""
    return {name: arrays.pop(PREFIX + name) for name in NAMES} if PREFIX + NAMES[0] in arrays else None


def points_of(outcome: Outcome | None) -> dict[int, dict[str, np.ndarray]]:
    """Return the arrays of this rank's shards: where bounds touch, once Firefly Monte Carlo has begun."""
    if outcome is None or outcome.fireflies is None or outcome.fireflies.points is None:
        return {}
    return {shard.index: {POINTS: of} for shard, of in zip(outcome.shards, outcome.fireflies.points)}


def restore(outcome: Outcome | None, shared: Mapping[str, Any], shards: Mapping[int, Mapping[str, np.ndarray]]) -> None:
    """Restore an outcome's state from a checkpoint. Ranks without a shard go by the cycle, as the others do."""
    if outcome is None:
        return
    outcome.restore(**{name: shared[PREFIX + name] for name in NAMES})
    if outcome.fireflies is not None and int(shared["cycles"]) >= outcome.fireflies.after:
        outcome.fireflies.put([shards[shard.index][POINTS] for shard in outcome.shards])
