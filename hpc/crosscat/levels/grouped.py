"""The groups of a level as a partition of the training rows, in place of a representative one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.levels.level import Level, first_level
from mpibayes.hpc.crosscat.levels.of_run import ViewLevels, levels_of_views
from mpibayes.hpc.crosscat.summaries.representative import Representative
from mpibayes.text import counted


def grouped(
    run: Posterior, kept: Sequence[tuple[int, int]], views: Sequence[Representative], n: int
) -> list[Representative | None]:
    """Return each view with n groups in place of its clusters, numbered as in the report; None for a view without such
    a level. Raises ConfigError if no view has one."""
    trees = _levels(run, kept, views)
    levels = [of and of.level(n) for of in trees]
    if not any(levels):
        raise ConfigError(f"{run.chains[0].home}: no level of {counted(n, 'group')}; {_there(trees)}")
    return [_replaced(r, of, level) if level else None for r, of, level in zip(views, trees, levels)]


def group_of(
    run: Posterior,
    kept: Sequence[tuple[int, int]],
    views: Sequence[Representative],
    number: int,
    n: int | None,
    view: int,
) -> tuple[np.ndarray, int]:
    """Return the places of the training rows in group `number` of n groups of a view, and the number of groups. Group
    and view are numbered as in the report. n: None for the level that the report shows first. Raises ConfigError."""
    if not 1 <= view <= len(views):
        raise ConfigError(f"view {view}: expected 1 to {len(views)}, as the report numbers them")
    of = _levels(run, kept, [views[view - 1]])[0]
    level = of and (first_level(of.offered()) if n is None else of.level(n))
    if not level:
        what = "groups" if n is None else counted(n, "group")
        raise ConfigError(f"view {view}: no level of {what}; {_there([of])}")
    if not 1 <= number <= level.n:
        raise ConfigError(f"group {number}: expected 1 to {level.n}, as the report numbers the {level.n} groups")
    return np.flatnonzero(of.rows(level) == number - 1), level.n


def _levels(run, kept, views: Sequence[Representative]) -> list[ViewLevels | None]:
    return levels_of_views(run, [(r.of, len(r.sizes)) for r in views], kept)


def _replaced(r: Representative, of: ViewLevels, level: Level) -> Representative:
    return replace(r, labels=of.rows(level), sizes=level.rows)


def _there(trees: Sequence[ViewLevels | None]) -> str:
    """Describe the possible numbers of groups."""
    most = max((of.n_clusters for of in trees if of is not None), default=0)
    if not most:
        return "it has no view of several columns and clusters"
    return f"the report's clusters are {most}, so expected 2 to {most}" if most > 2 else "expected 2"
