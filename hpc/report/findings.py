"""A run's groups of rows and columns, for a comparison with other runs on the same table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)  # == of arrays has no single truth value
class GroupLevel:
    """A level of groups of clusters. labels (N,): the group of each training row, from 0. natural, usable: the chains'
    verdicts; judged: False for a single chain, which has no verdict. words: the report's text about it."""

    n: int
    natural: bool
    usable: bool
    labels: np.ndarray
    words: str
    judged: bool = True


@dataclass(frozen=True, eq=False)
class Grouping:
    """One view: its columns, and labels (N,) of the training rows in its representative partition, from 0. level: the
    one that the report shows first, None if there is none. slight: True if it groups no columns, or no rows."""

    number: int
    columns: Sequence[str]
    labels: np.ndarray
    level: GroupLevel | None = None
    slight: bool = False

    @property
    def n_clusters(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def usable_level(self) -> GroupLevel | None:
        """The level if it is usable, else None."""
        return self.level if self.level is not None and (self.level.natural or self.level.usable) else None


@dataclass(frozen=True, eq=False)
class Findings:
    """All views, a mixture's only one included. together (C, C): share of the draws in which two of the columns `names`
    share a view; None for a model without views."""

    groupings: Sequence[Grouping]
    names: Sequence[str] = ()
    together: np.ndarray | None = None
