"""The outcome's arrays in checkpoints and kept draws, under prefixed names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mpibayes.hpc.outcome.outcome import Outcome

PREFIX = "outcome_"
NAMES = ("theta", "beta", "law")


def arrays_of(outcome: Outcome | None) -> dict[str, np.ndarray]:
    """Return the arrays of the present state; empty without an outcome."""
    return {} if outcome is None else {PREFIX + name: of for name, of in outcome.state().items()}


def taken(arrays: dict[str, Any]) -> dict[str, np.ndarray] | None:
    """Remove the outcome's arrays from those of a draw and return them; None without an outcome."""
    return {name: arrays.pop(PREFIX + name) for name in NAMES} if PREFIX + NAMES[0] in arrays else None


def restore(outcome: Outcome | None, shared: Mapping[str, Any]) -> None:
    """Restore an outcome's state from a checkpoint."""
    if outcome is not None:
        outcome.restore(**{name: shared[PREFIX + name] for name in NAMES})
