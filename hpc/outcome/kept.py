"""The outcome's arrays in checkpoints and kept draws, by names of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mpibayes.hpc.outcome.outcome import Outcome

PREFIX = "outcome_"
NAMES = ("theta", "beta", "law")


def arrays_of(outcome: Outcome | None) -> dict[str, np.ndarray]:
    """Arrays of the present state; none without an outcome."""
    return {} if outcome is None else {PREFIX + name: of for name, of in outcome.state().items()}


def taken(arrays: dict[str, Any]) -> dict[str, np.ndarray] | None:
    """Take the same arrays out of those of a draw; None where there are none."""
    return {name: arrays.pop(PREFIX + name) for name in NAMES} if PREFIX + NAMES[0] in arrays else None


def restore(outcome: Outcome | None, shared: Mapping[str, Any]) -> None:
    """Give an outcome its state of a checkpoint."""
    if outcome is not None:
        outcome.restore(**{name: shared[PREFIX + name] for name in NAMES})
