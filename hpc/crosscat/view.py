"""A Pitman-Yor mixture over shards and ranks: the chain's state and its cycle.

State between cycles: the labels and the hyperparameters. One cycle leaves their posterior invariant for any number of
shards, dealt to ranks in any way (docs/math.md 2.1; 2.3 with `opening` "all").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
from scipy.special import gammaln

from mpibayes.errors import DataError, NumericalError
from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat import schedule, state, sync
from mpibayes.hpc.crosscat import sweep as shard_step
from mpibayes.hpc.crosscat import update as global_update
from mpibayes.hpc.crosscat.moves import round as split_merge
from mpibayes.hpc.crosscat.moves.ledger import Tally
from mpibayes.hpc.crosscat.pitman_yor import PitmanYor, log_eppf
from mpibayes.hpc.crosscat.start.subsample import IDLE, Annealing, Growth, load_strata
from mpibayes.hpc.parallel import shards
from mpibayes.hpc.parallel.comm import Communicator, agree, broadcast_arrays
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.kernels.mixture import mixture as kernels


@dataclass(frozen=True)
class Settings:
    """What the law of the chain depends on, besides the data."""

    seed: int = 0
    shards: int | None = None  # None: the default for the number of rows
    concentration: object = "learn"  # a number, a list (grid), "learn" or {"gamma": (shape, rate)}
    discount: object = 0.0  # a number, a list (grid) or "learn"
    sweeps_per_cycle: int = 1
    opening: str = "one"  # "all" needs discount 0
    likelihood: bool = True  # False samples the prior on partitions
    priors: Mapping[str, Mapping] = field(default_factory=dict)  # given component priors by column name
    blocks: Mapping[str, Mapping] = field(default_factory=dict)  # of full-covariance normals, see Components
    hyper_every: int = 1  # cycles between updates of hyperparameters
    split_merge: int | None = None  # cycles between rounds of moves, 0: none; None: see schedule.moves_due
    annealing: Annealing | None = None  # None: all rows from the start


@dataclass
class Info:
    """Scalars of the state at the end of a cycle. Those with a default are known on root, but for `active_rows`."""

    cycle: int
    n_clusters: int
    moved_fraction: float
    log_joint: float = np.nan
    entropy: float = np.nan
    concentration: float = np.nan
    discount: float = np.nan
    active_rows: int = 0
    splits_tried: int = 0
    splits: int = 0
    merges_tried: int = 0
    merges: int = 0
    word: Sequence[int] = ()


class Mixture:
    """One chain. Every public method is collective: all ranks call it, in the same order.

    The sum of a count column has to be below 2^53, so that it is exact (`config/against_table.py` sees to it).

    `columns`: the used columns of the table. `rows_of(start, stop)`: training rows as mpibayes.io.table.Rows with
    exactly those columns; asked only for the shards of this rank. An MpibayesError that it raises on one rank is raised
    on all. `strata_of(start, stop)`: stratum of each of these rows, int32, for a stratified subsample.
    """

    def __init__(
        self,
        comm: Communicator,
        columns: Sequence,
        rows_of: Callable[[int, int], object],
        n_rows: int,
        settings: Settings,
        chain: int = 0,
        strata_of: Callable[[int, int], np.ndarray] | None = None,
    ):
        self.comm, self.settings, self.chain, self.n_rows = comm, settings, chain, n_rows
        if n_rows >= 2**31:
            raise DataError(f"{n_rows:,} rows: a chain can have {2**31 - 1:,} at most")
        seen = (columns, settings.priors, settings.blocks) if settings.likelihood else ([],)
        self.components = Components(*seen)
        self.law = PitmanYor.of(settings.concentration, settings.discount)
        self.n_shards = min(settings.shards or shards.default_count(n_rows), n_rows)
        if settings.opening == "all" and np.any(self.law.discounts != 0):
            raise ValueError('opening "all" is exact for discount 0 alone')
        self.shards = agree(comm, lambda: self._load(rows_of), "read its rows of the table")
        self.growth = None
        if settings.annealing is not None:
            strata = None
            if strata_of is not None:
                strata = agree(comm, lambda: load_strata(self.shards, strata_of), "read the strata of its rows")
            sizes = np.diff(shards.bounds(n_rows, self.n_shards))
            self.growth = Growth(comm, settings.annealing, sizes, strata, settings.seed, chain)
        self.cycles = 0
        self.n_labels = 1  # labels run from 0 to n_labels - 1; every one has rows, but for start()
        self.hyper = self.components.start(*self.law.start())
        self.summary: state.Summary | None = None
        self.counts: sync.Counts | None = None
        self.update = global_update.Update(
            self.law, self.components, self.components.deal(comm.size), settings.opening, self.n_shards
        )
        self._constant = self._log_count_factorials()

    def _load(self, rows_of) -> list[shards.Shard]:
        cut = shards.bounds(self.n_rows, self.n_shards).tolist()
        loaded = []
        for i in shards.of_rank(self.n_shards, self.comm.size, self.comm.rank):
            rows = rows_of(cut[i], cut[i + 1])
            if not self.settings.likelihood:
                rows = rows.without_cells()
            loaded.append(shards.Shard(i, cut[i], rows, np.zeros(len(rows), np.int32)))
        return loaded

    # --- the cycle ---------------------------------------------------------------------------------------------------

    def cycle(self, word: Sequence[int] = ()) -> Info:
        """One exact cycle: the global update, sweeps on every shard without communication, one sync.

        word: small integers that the caller wants summed over ranks; the sums come back as `Info.word`.
        """
        s, cycle, comm, summary, S = self.settings, self.cycles + 1, self.comm, self.summary, self.n_shards
        key = self._key(cycle)
        private = global_update.private_clusters(summary.size, summary.owned)
        shared = self.update.run(comm, self.hyper, summary, key, learn=self.cycles % s.hyper_every == 0)
        self.hyper = shared.hyper
        step = shard_step.Step(
            shared, private, summary.owner, self.counts, self.components.prior(self.hyper), s.sweeps_per_cycle, key
        )
        changes = sync.Changes(len(step.kept), self.components.shape)
        collapsed = list(range(S)) if s.opening == "all" else [int(summary.owner[0])]
        place = {shard: i for i, shard in enumerate(collapsed)}
        target = self.growth.targets(self.growth.fraction(cycle)) if self.growing else None
        trouble, opened, moved, failed = "", np.zeros(len(collapsed), np.int64), 0, 0
        for shard in self.shards:
            steps = None if target is None else self.growth.steps(shard, int(target[shard.index]), cycle)
            try:
                n_opened, n_moved = step.run(shard, shard.index in place, changes, steps)
                moved += n_moved
                if shard.index in place:
                    opened[place[shard.index]] = n_opened
            except FloatingPointError as error:
                trouble, failed = str(error), 1
        news = np.concatenate([opened, [moved, failed, changes.bound], np.asarray(word, np.int64)])
        comm.sum_everywhere(news)
        opened, (moved, failed, bound), word = np.split(news, [len(opened), len(opened) + 3])
        if failed:
            raise NumericalError(f"cycle {cycle}: a row cannot be scored", [t for t in comm.collect(trouble) if t])
        first = dict(zip(collapsed, (len(step.kept) + np.cumsum(opened) - opened).tolist()))
        self._join_labels(len(step.kept), first)
        self.n_labels = len(step.kept) + int(opened.sum())
        self.counts = sync.carry(comm, self.counts, step.kept, changes, first, self.n_labels, int(bound))
        self.cycles = cycle
        self._summarise()
        tally = self._split_and_merge()
        info = self._info(float(moved) / (self.n_active * (s.sweeps_per_cycle if target is None else 1)), tally)
        info.word = word.tolist()
        return info

    def _key(self, cycle: int) -> dict[str, int]:
        return {"seed": self.settings.seed, "cycle": cycle, "chain": self.chain}

    @property
    def n_active(self) -> int:
        """Rows that are in the subsample; all of them, unless the chain is being annealed."""
        return int(self.summary.size.sum())

    @property
    def growing(self) -> bool:
        """Whether some rows are idle, so that what the chain has is no draw of the posterior."""
        return self.n_active < self.n_rows

    @property
    def plan(self) -> list[float]:
        """Active fraction of every growth cycle, as far as it is known; for a checkpoint."""
        return [] if self.growth is None else self.growth.plan

    def _split_and_merge(self) -> Tally:
        s = self.settings
        if not schedule.moves_due(s.split_merge, self.cycles):
            return Tally()
        moves = split_merge.Round(
            self.comm, self.shards, self.components, self.hyper, self.summary.size, self.summary.statistics,
            self.n_shards, seed=s.seed, cycle=self.cycles, chain=self.chain,
        )  # fmt: skip
        moves.run()
        if moves.changed:
            self.n_labels = moves.n_labels
            self._count()
            self._summarise()
        return moves.tally

    def _join_labels(self, n_instantiated: int, first: Mapping[int, int]) -> None:
        """Give the clusters of the shards' tails labels of their own behind the instantiated ones; first: by shard."""
        for shard in self.shards:
            behind = first.get(shard.index, n_instantiated) - n_instantiated
            if behind:
                shard.z[shard.z >= n_instantiated] += np.int32(behind)

    def _count(self) -> None:
        """The counts of all clusters, afresh: where labels came by other ways than a cycle."""
        offsets = self.components.categorical.offsets
        self.counts = sync.count(self.comm, self.shards, self.n_labels, self.components.shape, offsets)

    def _summarise(self) -> None:
        """What the coming cycle needs of the labels."""
        key = self._key(self.cycles + 1)
        owner = schedule.owners(self.settings.opening, **key, n_clusters=self.n_labels, n_shards=self.n_shards)
        self.summary = sync.summarise(
            self.comm, self.shards, self.counts, self.components.shape, owner, self.n_shards, key
        )

    def _info(self, moved: float, tally: Tally) -> Info:
        size = self.summary.size[self.summary.size > 0]
        info = Info(self.cycles, len(size), moved, active_rows=self.n_active, **vars(tally))
        marginals = self._log_marginals()
        if self.comm.rank == 0:
            share = size / self.n_active
            info.entropy = float(-(share * np.log(share)).sum())
            info.concentration, info.discount = self.hyper.concentration, self.hyper.discount
            prior = float(log_eppf(size, info.concentration, info.discount))
            info.log_joint = prior + sum(float(kind.sum()) for kind in marginals) - self._constant
        return info

    def _log_marginals(self) -> list[np.ndarray]:
        """On root, the log marginal likelihood of every column, an array a kind; every rank works out its own."""
        dealing, comm = self.update.dealing, self.comm
        part = dealing.part(comm.rank)
        mine = self.components.log_marginal(self.hyper, self.summary.statistics, part)
        starts = [of["column"] for of in dealing.starts]
        return [comm.gather_to_root(own, np.diff(of).tolist()) for own, of in zip(mine, starts) if of[-1]]

    def _log_count_factorials(self) -> float:
        """Sum of log x! over the observed count cells of all rows, summed in shard order; valid on root."""
        parts = [np.nansum(gammaln(shard.rows.tallies + 1.0)) for shard in self.shards]
        lengths = [len(shards.of_rank(self.n_shards, self.comm.size, r)) for r in range(self.comm.size)]
        gathered = self.comm.gather_to_root(np.array(parts, np.float64), lengths)
        return float(sum(gathered)) if self.comm.rank == 0 else np.nan

    # --- how a chain starts, and its state --------------------------------------------------------------------------

    def start(self, how: str | np.ndarray, n_clusters: int = 64) -> None:
        """Initial labels of all rows, or of the first subsample where the chain is annealed.

        "one" cluster, "random" (n_clusters uniformly), "overdispersed" (random, their number log-uniform, at most 256),
        "prior" (a draw of the Pitman-Yor process), "sequential", or an array of labels of all rows. Sequential: shard 0
        is seated row by row by the collapsed predictive; every other shard continues from the clusters found there, on
        its own, and may open more.
        """
        chosen = self._first_rows()
        if isinstance(how, str) and how == "sequential":
            self._seat(chosen)
        else:
            self._deal(how, n_clusters, chosen)
        self.cycles = 0
        self._count()
        self._summarise()

    def _first_rows(self) -> dict[int, np.ndarray]:
        """The rows of each shard that the chain starts with, in the order they are seated; the others become idle."""
        chosen = {}
        for shard in self.shards:
            chosen[shard.index] = np.arange(len(shard), dtype=np.int32)
            if self.growth is not None:
                shard.z[:] = IDLE
                target = int(self.growth.targets(self.growth.first)[shard.index])
                chosen[shard.index] = self.growth.steps(shard, target, 0)[1]
        return chosen

    def _deal(self, how: str | np.ndarray, n_clusters: int, chosen: dict[int, np.ndarray]) -> None:
        """Labels that do not look at the data."""
        seed, given = self.settings.seed, not isinstance(how, str)
        if not given and how == "overdispersed":
            u = generator(seed, Purpose.START, 0, self.n_shards, self.chain).random()
            how, n_clusters = "random", int(np.exp(u * np.log(max(1, min(256, self.n_rows // 8)) + 1)))
        dealt = self._prior_draw() if not given and how == "prior" else None
        everyone = how if given else dealt
        if everyone is not None:
            self.n_labels = int(everyone.max()) + 1
        else:
            self.n_labels = {"one": 1, "random": n_clusters}[how]
        for shard in self.shards:
            rows = chosen[shard.index]
            stream = generator(seed, Purpose.START, 0, shard.index, self.chain)
            shard.z[rows] = (
                everyone[shard.start + rows] if everyone is not None else stream.integers(self.n_labels, size=len(rows))
            )

    def _prior_draw(self) -> np.ndarray:
        """A partition of all rows from the Pitman-Yor process, the same on every rank: a sweep over no columns."""
        nothing = Components([], {})
        prior = nothing.prior(nothing.start(self.hyper.concentration, self.hyper.discount))
        types = {"codes8": np.uint8, "codes16": np.uint16, "reals": np.float64, "tallies": np.float64}
        blank = SimpleNamespace(
            **{block: np.empty((self.n_rows, 0), dtype) for block, dtype in types.items()}, widths=()
        )
        z = np.full(self.n_rows, -1, np.int32)
        tail = kernels.Tail(prior, self.hyper.concentration, self.hyper.discount, 0.0)
        kernels.sweep(blank, z, 0, self.settings.seed, 0, 1, self.chain, None, tail, prior)
        return z

    def _seat(self, chosen: dict[int, np.ndarray]) -> None:
        s = self.settings
        prior = self.components.prior(self.hyper)
        first = {}
        n_first = np.zeros(1, np.int64)
        opened = np.zeros(self.n_shards, np.int64)
        for turn in (0, 1):  # shard 0, then the others at once
            for shard in self.shards:
                if (shard.index > 0) != turn:
                    continue
                tail = kernels.Tail(prior, self.hyper.concentration, self.hyper.discount, 0.0)
                if turn:
                    tail.load(Statistics(**first))
                rows = chosen[shard.index]
                shard.z[:] = IDLE
                nobody = np.full(len(rows), -1, np.int32)
                kernels.sweep(
                    shard.rows, shard.z, shard.start, s.seed, 0, 0, self.chain, None, tail, prior, False, nobody, rows
                )
                opened[shard.index] = tail.n_slots - n_first[0]
            if not turn:
                if self.comm.rank == 0:
                    k = int(self.shards[0].z.max()) + 1
                    n_first[0] = k
                    seated = self.shards[0]
                    first = vars(Statistics(*kernels.accumulate(seated.rows, seated.z, k, prior.offsets)))
                first = broadcast_arrays(self.comm, first)
                self.comm.broadcast(n_first)
                opened[0] = 0
        self.comm.sum_everywhere(opened)
        self._join_labels(int(n_first[0]), dict(enumerate((n_first[0] + np.cumsum(opened) - opened).tolist())))
        self.n_labels = int(n_first[0] + opened.sum())

    def resume(
        self, cycles: int, labels: Callable[[int], np.ndarray], n_labels: int, hyper: Hyper, plan: Sequence[float] = ()
    ) -> None:
        """Continue after `cycles` cycles; `labels(i)` gives shard i's labels, `plan` is the one so far."""
        if self.growth is not None:
            self.growth.resume(plan)
        for shard in self.shards:
            shard.z[:] = labels(shard.index)
        self.cycles, self.n_labels, self.hyper = cycles, n_labels, hyper
        self._count()
        self._summarise()

    def labels(self) -> np.ndarray | None:
        """Labels of all rows in table order, (n_rows,) on root, None elsewhere; in the smallest type that holds them.

        Unsigned, but int32 while rows are idle.
        """
        kind = np.int32 if self.growing else np.min_scalar_type(max(0, self.n_labels - 1))
        mine = [s.z.astype(kind) for s in self.shards] or [np.zeros(0, kind)]
        cut = shards.bounds(self.n_rows, self.n_shards)
        ranges = (shards.of_rank(self.n_shards, self.comm.size, r) for r in range(self.comm.size))
        return self.comm.gather_to_root(np.concatenate(mine), [int(cut[r.stop] - cut[r.start]) for r in ranges])
