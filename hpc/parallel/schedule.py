"""Schedule of chains on ranks: groups of ranks side by side, each running its own chains in turn.

A chain on more ranks waits for messages, and if the number of shards is not a multiple of the ranks some ranks idle;
chains side by side never wait, but each group holds all rows of the table. No bit of a chain depends on the schedule.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from mpibayes.text import counted

MOST_BYTES = 512 << 20  # of rows that a rank may hold for chains side by side if the schedule is "auto"


@dataclass(frozen=True)
class Schedule:
    """Sizes of groups of consecutive ranks, larger groups first, and the number of chains they share."""

    sizes: tuple[int, ...]
    n_chains: int

    def group_of(self, rank: int) -> int:
        """Number of a rank's group, from 0."""
        return next(g for g in range(len(self.sizes)) if rank < sum(self.sizes[: g + 1]))

    def chains_of(self, group: int) -> range:
        """Numbers of a group's chains, from 0, in order."""
        return range(group, self.n_chains, len(self.sizes))

    @property
    def turns(self) -> int:
        """Largest number of chains in a group."""
        return len(self.chains_of(0))

    def cost(self, n_shards: int) -> float:
        """Work of the busiest rank, relative to a chain on one rank."""
        chains = [len(self.chains_of(g)) for g in range(len(self.sizes))]
        return max(n * -(-n_shards // size) / n_shards for n, size in zip(chains, self.sizes))

    def idle(self, n_shards: int) -> int:
        """Ranks without a shard."""
        return sum(max(0, size - n_shards) for size in self.sizes)

    def in_words(self) -> str:
        """Describe how ranks share the chains; "" if there is nothing to share."""
        n, ranks, groups = self.n_chains, sum(self.sizes), len(self.sizes)
        if n == 1 or ranks == 1:
            return ""
        if groups == 1:
            return f"{n} chains in turns, each on all {ranks} ranks"
        least, most = self.sizes[-1], self.sizes[0]
        size = f"{least} or {most} ranks" if least < most else counted(least, "rank")
        turns = "" if groups == n else f", {groups} at a time"
        return f"{n} chains side by side{turns}, each on {size} of {ranks}"


def grouped(n_ranks: int, n_chains: int, n_groups: int) -> Schedule:
    """Divide the ranks into groups of nearly equal size."""
    each, more = divmod(n_ranks, n_groups)
    return Schedule(tuple(each + (g < more) for g in range(n_groups)), n_chains)


def decided(n_ranks: int, n_chains: int, n_shards: int, row_bytes: int, groups: int | str = "auto") -> Schedule:
    """Return the schedule that minimises the work of the busiest rank; among equal ones, that with most groups.

    row_bytes: of all rows of the table in memory. groups: the maximal number of groups; "auto" also respects
    MOST_BYTES.
    """
    most = min(n_ranks, n_chains)
    if groups != "auto":
        return grouped(n_ranks, n_chains, min(most, int(groups)))
    possible = [grouped(n_ranks, n_chains, n) for n in range(1, most + 1)]
    fitting = [s for s in possible if len(s.sizes) == 1 or row_bytes <= MOST_BYTES * min(s.sizes[-1], n_shards)]
    return min(fitting, key=lambda s: (s.cost(n_shards), -len(s.sizes)))


def fewest(most: int, n_chains: int, n_shards: int, row_bytes: int, groups: int | str = "auto") -> int:
    """Return the fewest ranks for which the busiest has no more work than with `most` ranks."""

    def cost(n_ranks: int) -> float:
        return decided(n_ranks, n_chains, n_shards, row_bytes, groups).cost(n_shards)

    return 1 + bisect_left(range(1, most), -cost(most), key=lambda n: -cost(n))  # a further rank never costs more
