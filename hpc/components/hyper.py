"""All hyperparameters of a view, and how they travel with their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, make_dataclass, replace

import numpy as np

from mpibayes.hpc.components.component import Component
from mpibayes.hpc.components.kinds import KINDS


def _array(kind: type[Component]):
    return kind.hyper, np.ndarray, field(default_factory=lambda: np.zeros((0, *kind.hyper_form)))


class Hyper(make_dataclass("Arrays", [("concentration", float), ("discount", float), *map(_array, KINDS)])):
    """All hyperparameters of a view. With the labels they are the whole state of a chain.

    concentration, discount, and the array of each kind by its `hyper`, (C, *hyper_form) float64; a kind that is not
    given has no columns.
    """

    def take(self, columns: Mapping[str, np.ndarray | slice]) -> Hyper:
        """Take the hyperparameters of some columns, in the order given, by the name of their kind; of kinds not named,
        none."""
        chosen = {kind.hyper: getattr(self, kind.hyper)[columns.get(kind.name, slice(0))] for kind in KINDS}
        return replace(self, **chosen)


def join(parts: Sequence[Hyper]) -> Hyper:
    """The columns of all parts, within a kind one part after another; concentration and discount are the first's."""
    arrays = {kind.hyper: np.concatenate([getattr(p, kind.hyper) for p in parts]) for kind in KINDS}
    return replace(parts[0], **arrays)
