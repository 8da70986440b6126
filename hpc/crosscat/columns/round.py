"""Moves of columns at the end of a cycle: columns change views, and views split and merge (docs/math.md 2.10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.errors import NumericalError
from mpibayes.hpc.crosscat import host
from mpibayes.hpc.crosscat.columns import powers, scan, subtrees
from mpibayes.hpc.crosscat.columns.groups import Group
from mpibayes.hpc.crosscat.moves import round as moves
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.links.moves import cuts
from mpibayes.hpc.parallel.streams import Purpose, generator, in_lane

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.chain import Mixture


def move(chain: Mixture) -> dict[str, int]:
    """Draw the views' concentration and discount, and, when due, the view of every column and splits and merges of
    views. Return counts of accepted and tried moves, named as in `CycleInfo`. Collective."""
    host.draw_host(chain)
    stream = generator(purpose=Purpose.VIEWS, **chain.key)
    process = np.array(chain.law.draw(np.bincount(chain.view_of_unit), chain.process[0], stream))
    chain.comm.broadcast(process)
    chain.process = tuple(process.tolist())
    before, every, moved = chain.view_of_unit, chain.settings.column_moves, 0
    if chain.cycles <= chain.settings.columns_stay:
        every = 0
    if moves.due(every, chain.cycles, chain.n_cells, often=scan.OFTEN):
        chosen, partitions, parents, hyper = _scan(chain)
        moved = sum(a != b for a, b in zip(before, chosen))
        if parents is not None:  # links never cross views: cut every column that gets another parent before regrouping
            chain.linking.link_and_count(np.where(parents == chain.linking.coding.parents, parents, ROOT))
        if moved:
            regroup(chain, chosen, partitions, chain.units)
        if parents is not None:
            chain.linking.link_and_count(parents, hyper=hyper)
        del partitions  # free the labels of all rows
    if powers.due(chain):
        result = powers.draw(chain)
        if result is not None:
            moved += 1
            regroup(chain, *result)
            host.rate(chain)
    accepted, proposals = 0, _of_views(chain, every)
    for proposal in proposals:
        try:
            result = proposal(chain).run()
        except FloatingPointError as error:  # raised on root only: `run.loop.main` ends the other ranks
            words = f"cycle {chain.cycles}: a row cannot be scored in a move of views"
            raise NumericalError(words, [str(error)]) from None
        if result is not None:
            regroup(chain, *result)
            host.rate(chain)
            accepted += 1
    return {"columns_moved": moved, "view_moves_tried": len(proposals), "view_moves": accepted}


def _of_views(chain: Mixture, every: int | None) -> list[Callable]:
    """Return the moves of views with which this cycle ends: a group of columns, or splits and merges."""
    s, cycle, n_cells = chain.settings, chain.cycles, chain.n_cells
    if not s.likelihood or cycle <= s.columns_stay:
        return []
    result: list[Callable] = []
    if moves.due_for_groups(s.group_moves, cycle, n_cells) and not chain.growing:
        result.append(Group)
    searched = s.search == "done"
    if moves.due_for_views(every, cycle, n_cells, searched) and (s.group_moves == 0 or not searched):
        result += [partial(chain.move_of_views, number=number) for number in range(s.view_moves)]
    return result


def _scan(chain: Mixture) -> tuple[list[int], list[scan.Rowwise], np.ndarray | None, Mapping[str, np.ndarray]]:
    """Scan the columns: return the result of `scan.scan`, and with learned links the parents and hyperparameters drawn
    with it. Collective."""
    s = chain.settings
    if not s.learns_links:
        of = chain.comm, chain.views, chain.units, chain.process, chain.cycles, chain.host
        return *scan.scan(*of), None, {}
    return subtrees.scan(chain, cut=not s.learns_bases and cuts(s.link_moves, chain.cycles))


def regroup(
    chain: Mixture, chosen: Sequence[int], partitions: Sequence[scan.Rowwise],
    groups: Sequence[Sequence[str]] | None = None,
) -> None:  # fmt: skip
    """Rebuild the views from the partition chosen for each group of columns (default: the chain's bodies); partitions
    are numbered views first."""
    kind_of = {name: of for view in chain.views for name, of in view.components.by_column(view.hyper).items()}
    requested = {}
    for p in sorted(set(chosen)):
        names = {name for part, at in zip(groups or chain.bodies, chosen) if at == p for name in part}
        requested[p] = tuple(column.name for column in chain.columns if column.name in names)
    kept = {p for p, names in requested.items() if p < len(chain.views) and names == chain.views[p].columns}
    new = {p: names for p, names in requested.items() if p not in kept}
    others = [view for p, view in enumerate(chain.views) if p not in kept]
    cells = dict(zip(new, chain.take_cells(others, list(new.values()))))
    views = []
    for lane, (p, names) in enumerate(requested.items()):
        if p in kept:
            views.append(chain.views[p])
            views[-1].lane = in_lane(chain.chain, lane)
            continue
        view, of = chain.view_of_columns(names, cells[p], lane), partitions[p]
        cut = dict(zip((shard.index for shard in chain.shards), of.z))
        view.resume(cut.__getitem__, of.n_labels, view.components.hyper(*of.process, kind_of))
        views.append(view)
    changed = [view for view in views if view not in chain.views]
    chain.views = views
    sync.count(chain.comm, changed)
    chain.summarise()
