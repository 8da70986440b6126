"""All hyperparameters of a view, which travel with their columns."""

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

    concentration, discount, and one array per kind under its name `hyper`, (C, *hyper_form) float64; a kind that is not
    given has no columns.
    """

    def take(self, columns: Mapping[str, np.ndarray | slice]) -> Hyper:
        """Select the hyperparameters of columns, in the order given, by the name of their kind; kinds not named get
        none."""
        chosen = {kind.hyper: getattr(self, kind.hyper)[columns.get(kind.name, slice(0))] for kind in KINDS}
        return replace(self, **chosen)


def join(parts: Sequence[Hyper]) -> Hyper:
    """Concatenate the columns of all parts within each kind; concentration and discount are those of the first part."""
    arrays = {kind.hyper: np.concatenate([getattr(p, kind.hyper) for p in parts]) for kind in KINDS}
    return replace(parts[0], **arrays)
