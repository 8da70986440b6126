"""The outcome's arrays in checkpoints and kept draws, under prefixed names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mpibayes.hpc.outcome.outcome import Outcome

PREFIX = "outcome_"
NAMES = ("theta", "beta", "law")
POINTS, VIEW = PREFIX + "points", PREFIX + "view"


def arrays_of(outcome: Outcome | None, view: int | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of the present state; empty without an outcome. view: that of the outcome, of several."""
    if outcome is None:
        return {}
    of = {PREFIX + name: of for name, of in outcome.state().items()}
    return of if view is None else of | {VIEW: np.array(view)}


def taken(arrays: dict[str, Any]) -> tuple[dict[str, np.ndarray] | None, int]:
    """Remove the outcome's arrays from those of a draw and return them, and its view; None and 0 without an outcome."""
    if PREFIX + NAMES[0] not in arrays:
        return None, 0
    return {name: arrays.pop(PREFIX + name) for name in NAMES}, int(arrays.pop(VIEW, 0))


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
