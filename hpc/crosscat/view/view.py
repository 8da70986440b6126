"""A view: one partition of the rows, and the columns whose components follow it.

State between cycles: labels and hyperparameters. A view is a Pitman-Yor mixture: given its columns, its partition is
independent of the other views'. Views share only the messages, which the chain sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.crosscat.moves import round as moves
from mpibayes.hpc.crosscat.moves.ledger import Ledger, Tally
from mpibayes.hpc.crosscat.start.subsample import Annealing
from mpibayes.hpc.crosscat.view import sync
from mpibayes.hpc.crosscat.view import update as global_update
from mpibayes.hpc.crosscat.view.pitman_yor import PitmanYor, log_eppf
from mpibayes.hpc.crosscat.view.pruning import Pruning
from mpibayes.hpc.crosscat.view.state import Partition
from mpibayes.hpc.crosscat.view.sweep import Step
from mpibayes.hpc.parallel import collapse
from mpibayes.hpc.parallel import shards as cut
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.shards import Shard
from mpibayes.hpc.parallel.streams import in_lane
from mpibayes.io.rows import Rows
from mpibayes.kernels.mixture.counts import recount

if TYPE_CHECKING:
    from mpibayes.hpc.outcome.outcome import Outcome
    from mpibayes.io.rows import Rows


@dataclass(frozen=True)
class Settings:
    """Settings of a chain, apart from the data."""

    seed: int = 0
    shards: cut.Setting = None  # None: the default for the number of rows
    concentration: object = "learn"  # for `PitmanYor.of`: a number, a list (grid), "learn" or a dictionary
    discount: object = 0.0  # a number, a list (grid) or "learn"
    sweeps_per_cycle: int = 1
    opening: str = "one"  # "all" needs discount 0
    likelihood: bool = True  # False samples the prior on partitions
    priors: Mapping[str, Mapping] = field(default_factory=dict)  # given component priors by column name
    blocks: Mapping[str, Mapping] = field(default_factory=dict)  # of full-covariance normals, see Components
    hyper_every: int = 1  # cycles between updates of hyperparameters
    split_merge: int | None = None  # cycles between rounds of moves, 0: none; None: see moves.round.due
    stray_rows: int = 0  # most rows that are swept again after each cycle, see stray_rows.py
    stray_rows_fixed: int = 0  # cycle after which these rows are chosen for the last time
    annealing: Annealing | None = None  # None: all rows from the start
    view_concentration: object = (
        None  # of the columns over views, in the form of `concentration`; None: columns stay in their views
    )
    view_discount: object = 0.0
    column_moves: int | None = None  # cycles between moves of columns, 0: none; None: see columns/round.py
    view_moves: int = 2  # splits and merges of views in each round of column moves
    columns_stay: int = 0  # first cycles in which columns stay in their views
    group_moves: int | None = 0  # cycles between moves of groups of columns, 0: none; None: `due_for_groups`
    column_powers: int = 0  # cycles between draws of a column's view by powers (columns/powers.py), 0: none
    links: str | Mapping[str, str] = "none"  # "forest": learned, "lines": learned between numbers; or parents, by name
    link_moves: int | None = None  # cycles between draws of the links, 0: none; None: see links.moves.due
    link_base: str = "uniform"  # "learned": a base in each context of a parent, see links/base.py
    contexts: Mapping[str, np.ndarray] | None = None  # of possible parents; None: from counts
    search: str = "none"  # for views: "running", "done" before the start, or "none"

    @property
    def learns_links(self) -> bool:
        """True if the links are part of the state."""
        return self.links in ("forest", "lines") and self.likelihood

    @property
    def learns_bases(self) -> bool:
        """True if the bases of linked columns are part of the state."""
        return self.link_base == "learned" and self.links not in ("none", "lines") and self.likelihood


class View:
    """One view of a chain. Collective methods say so.

    columns: names of its columns. shards: of this rank, with these columns only; z: labels of each shard, (n,) int32,
    from 0 to n_labels - 1, none empty except at the start; negative for idle rows. lane: of its random streams, unique
    among the views of the chain. observed: rows of each shard without the missing cells that are part of the state;
    None: there are none.
    """

    def __init__(
        self,
        comm: Communicator,
        columns: Sequence[str],
        components: Components,
        shards: Sequence[Shard],
        n_rows: int,
        n_shards: int,
        settings: Settings,
        chain: int = 0,
        lane: int = 0,
        observed: Sequence[Rows] | None = None,
    ):
        self.comm, self.columns, self.components, self.settings = comm, tuple(columns), components, settings
        self.shards, self.n_rows, self.n_shards = list(shards), n_rows, n_shards
        self.lane = in_lane(chain, lane)
        self.law, self.moments = PitmanYor.of(settings.concentration, settings.discount), sync.Moments(components)
        self.hyper = components.start(*self.law.start())
        self.z = [np.zeros(len(shard), np.int32) for shard in self.shards]
        self.n_labels = 1
        self.counts: sync.Counts | None = None
        self.partition: Partition | None = None
        self.strays: tuple | None = None  # stray rows, and their cells on all shards (stray_rows.py)
        self.update = global_update.Update(
            self.law, components, components.deal(comm.size), settings.opening, n_shards, n_rows
        )
        self._log_base = self._sum_log_base(observed or [shard.rows for shard in self.shards])

    def key(self, cycle: int) -> dict[str, int]:
        """Return the key of the view's random streams in a cycle, without their purpose."""
        return {"seed": self.settings.seed, "cycle": cycle, "chain": self.lane}

    def labelled(self) -> list[tuple[object, np.ndarray]]:
        """Return (rows, labels) of each of this rank's shards."""
        return [(shard.rows, z) for shard, z in zip(self.shards, self.z)]

    # --- parts of a cycle --------------------------------------------------------------------------------------------

    def begin(self, cycle: int, learn: bool) -> Step:
        """Draw hyperparameters (if `learn`), weights and parameters. Collective."""
        now, key = self.partition, self.key(cycle)
        private = collapse.private_clusters(now.size, now.owned)
        (kept,) = (~private).nonzero()
        every = int(now.size.sum()) == self.n_rows  # idle rows may have levels that are not counted
        met = self.components.categorical.met(now.statistics.levels) if every else None
        shared = self.update.run(self.comm, self.hyper, now, private, kept, key, learn=learn, met=met)
        self.hyper = shared.hyper
        s, prior = self.settings, self.components.prior(self.hyper)
        prior.met = met
        return Step(
            shared, private, kept, now.owner, now.statistics if self.n_shards == 1 else None,
            prior, self.components,
            collapse.collapsed_shards(s.opening, now.owner, self.n_shards), s.sweeps_per_cycle, key, self.pruning,
        )  # fmt: skip

    @cached_property
    def pruning(self) -> Pruning:
        """Summaries of the cells for bounds of scores, kept as long as the view's columns do not change."""
        return Pruning(self.shards, self.components.categorical.offsets)

    def owners(self, cycle: int) -> np.ndarray:
        """Return the shard that owns each cluster in a cycle, (K,) int64."""
        opening, key = self.settings.opening, self.key(cycle)
        return collapse.owners(opening, **key, n_clusters=self.n_labels, n_shards=self.n_shards)

    def renumber(self, n_kept: int, opened: Mapping[int, int]) -> dict[int, int]:
        """Number the clusters of the tails after the n_kept instantiated ones, in shard order.

        opened: number of clusters in each shard's tail. Returns the number of the first one, by shard.
        """
        after = n_kept + np.cumsum(list(opened.values()), dtype=np.int64)
        first = dict(zip(opened, (after - list(opened.values())).tolist()))
        for shard, z in zip(self.shards, self.z):
            behind = first.get(shard.index, n_kept) - n_kept
            if behind:
                z[z >= n_kept] += np.int32(behind)
        self.n_labels = int(after[-1])
        return first

    def relabel(self, after: Sequence[np.ndarray]) -> None:
        """Replace the labels of each shard by `after`, labels of present clusters; clusters left empty are removed.
        Collective."""
        if self.comm.size == 1 and all(np.array_equal(z, new) for z, new in zip(self.z, after)):
            return
        change = sync.Counts.zeros(self.components, self.n_labels)
        for shard, before, z in zip(self.shards, self.z, after):
            recount(shard.rows, before, z, self.n_labels, self.components.categorical.offsets, change)
        sync.add_up(self.comm, [change])
        for whole, part in zip(self.counts, change):
            whole += part
        self.z, used = list(after), self.counts.size > 0
        if not used.all():
            name = np.cumsum(used, dtype=np.int32) - np.int32(1)
            self.z = [np.where(z >= 0, name[np.maximum(z, 0)], z) for z in self.z]
            self.counts = sync.Counts(*(np.ascontiguousarray(a[..., used]) for a in self.counts))
            self.n_labels = int(used.sum())

    def split_and_merge(self, cycle: int, outcome: Outcome | None = None) -> tuple[Tally, bool]:
        """Run a round of moves; return its tally, and True if the partition changed. outcome: see `Ledger`.
        Collective."""
        ledger = Ledger(self, cycle, outcome)
        moves.run(ledger, quick=self.settings.search == "running")
        self.n_labels = ledger.n_labels
        return ledger.tally, ledger.changed

    # --- the state ---------------------------------------------------------------------------------------------------

    def resume(self, labels: Callable[[int], np.ndarray], n_labels: int, hyper: Hyper) -> None:
        """Restore a state; labels(i): labels of shard i."""
        for shard, z in zip(self.shards, self.z):
            z[:] = labels(shard.index)
        self.n_labels, self.hyper = n_labels, hyper

    def state(self) -> tuple[dict[int, np.ndarray], dict[str, object]]:
        """Return the labels of this rank's shards, and the state common to all ranks; for a checkpoint."""
        z = {shard.index: z for shard, z in zip(self.shards, self.z)}
        return z, {"columns": list(self.columns), "n_labels": self.n_labels, **vars(self.hyper)}

    def labels(self) -> np.ndarray | None:
        """Return the labels of all rows in table order, (n_rows,) on root, None elsewhere; in the smallest unsigned
        type, but int32 while rows are idle. Collective.
        """
        idle = int(self.partition.size.sum()) < self.n_rows
        kind = np.int32 if idle else np.min_scalar_type(max(0, self.n_labels - 1))
        mine = [z.astype(kind) for z in self.z] or [np.zeros(0, kind)]
        bounds = cut.starts(self.settings.shards, self.n_rows)
        lengths = [int(bounds[part.stop] - bounds[part.start]) for part in self._dealt()]
        return self.comm.gather_to_root(np.concatenate(mine), lengths)

    def sizes(self) -> np.ndarray:
        """Return the number of rows of each non-empty cluster, (K,) int64."""
        return self.partition.size[self.partition.size > 0]

    def log_joint(self) -> float:
        """Return log p(labels, cells) given the hyperparameters, on root; NaN elsewhere. Collective."""
        marginals = self._log_marginals()
        if self.comm.rank != 0:
            return np.nan
        prior = float(log_eppf(self.sizes(), self.hyper.concentration, self.hyper.discount))
        return prior + sum([float(kind.sum()) for kind in marginals if len(kind)]) + self._log_base

    def _log_marginals(self) -> list[np.ndarray]:
        """Return the log marginal likelihood of every column, an array per kind, on root; every rank computes its
        own."""
        dealing, comm = self.update.dealing, self.comm
        part = dealing.part(comm.rank)
        mine = self.components.log_marginal(self.hyper, self.partition.statistics, part)
        if comm.size == 1:
            return mine
        lengths = np.array(dealing.lengths)  # (kinds, ranks)
        whole = comm.gather_to_root(np.concatenate(mine), lengths.sum(axis=0).tolist())
        if whole is None:
            return mine
        pieces = np.split(whole, lengths.T.ravel().cumsum()[:-1])
        return [np.concatenate(pieces[i :: len(lengths)]) for i in range(len(lengths))]

    def _sum_log_base(self, observed: Sequence[Rows]) -> float:
        """Return the part of the log likelihood that depends on the cells alone, summed in shard order; on root."""
        parts = [sum(kind.log_base(rows) for kind in self.components.kinds) for rows in observed]
        gathered = self.comm.gather_to_root(np.array(parts, np.float64), [len(part) for part in self._dealt()])
        return float(sum(gathered)) if self.comm.rank == 0 else np.nan

    def _dealt(self) -> Iterator[range]:
        """Yield the shards of every rank."""
        return (cut.of_rank(self.n_shards, self.comm.size, rank) for rank in range(self.comm.size))
