"""A run's groups of rows and columns, for a comparison with other runs on the same table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)  # arrays have no one answer to ==
class GroupLevel:
    """A level of groups of clusters. labels (N,): the group of each training row, from 0. natural, usable: whether the
    chains say so; judged: False of one chain, which cannot say. words: what the report says of it."""

    n: int
    natural: bool
    usable: bool
    labels: np.ndarray
    words: str
    judged: bool = True


@dataclass(frozen=True, eq=False)
class Grouping:
    """One view: its columns, and labels (N,) of the training rows in its representative partition, from 0. level: the
    one that the report shows first, None where there is none. slight: it groups no columns, or no rows."""

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
        """The level, where it can be used."""
        return self.level if self.level is not None and (self.level.natural or self.level.usable) else None


@dataclass(frozen=True, eq=False)
class Findings:
    """All views, the only one of a mixture. together (C, C): share of the draws in which two of the columns `names`
    share a view; None of a model that does not ask."""

    groupings: Sequence[Grouping]
    names: Sequence[str] = ()
    together: np.ndarray | None = None
