"""The levels of each view of a run, from a few kept draws of every chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.levels.cells import Tally, for_tree, tally
from mpibayes.hpc.crosscat.levels.level import Level, Part, judged
from mpibayes.hpc.crosscat.levels.tree import Tree, grow, joined
from mpibayes.hpc.crosscat.levels.votes import Patterns, patterns
from mpibayes.hpc.crosscat.summaries.of_columns import OfColumns
from mpibayes.hpc.crosscat.summaries.representative import SAMPLED
from mpibayes.hpc.crosscat.summaries.tallies import cuts
from mpibayes.hpc.posterior.chains import evenly

MOST_DRAWS, FEWEST_DRAWS = 5, 3  # draws used of each chain
MANY = 500  # clusters in all draws of a view above which only FEWEST_DRAWS are used
MOST_LEAVES = 1000  # of a tree; smaller clusters join the nearest larger one
OFFERED = (*range(2, 21), 25, 30, 40, 50, 75, 100, 150, 200, 300, 500)  # numbers of groups that a report offers


@dataclass
class ViewLevels:
    """The tree over the clusters of several draws of a view. n_clusters: of the representative partition, the largest
    number of groups. tallies: of the view's columns in the leaves. chain_trees, half_trees: see `level.judged`."""

    n_clusters: int
    patterns: Patterns
    tree: Tree
    chain_trees: Sequence[Part]
    half_trees: Sequence[Part]
    tallies: Sequence[Tally]
    _known: dict[int, Level | None] = field(default_factory=dict)

    def level(self, n: int) -> Level | None:
        """Return the level of n groups, 2 to the number of clusters; None if the tree has none."""
        if n not in self._known:
            possible = 2 <= n <= self.n_clusters
            trees = self.tree, self.chain_trees, self.half_trees
            self._known[n] = judged(self.patterns, *trees, n) if possible else None
        return self._known[n]

    def offered(self) -> list[Level]:
        """Return the levels that a report shows, few groups first: all small numbers of groups, then a selection."""
        return [level for level in map(self.level, OFFERED) if level is not None]

    def rows(self, level: Level) -> np.ndarray:
        """Return the group of every training row, int64 (N,), 0..n-1."""
        return level.groups[self.patterns.of]

    def cells(self, level: Level) -> list[Tally]:
        """Return tallies of the view's columns in the groups, averaged over the draws."""
        share = 1.0 / self.patterns.leaves.shape[1]
        return [t.merged(level.branch, share) for t in self.tallies]


def levels_of_views(
    run: Posterior, views: Sequence[tuple[OfColumns, int]], kept: Sequence[tuple[int, int]]
) -> list[ViewLevels | None]:
    """Return the levels of each view, given as its columns and the number of clusters of its representative partition.

    None for a view of one cluster, or of one column, whose clusters are its histogram, and if the run sampled the
    prior. Makes one pass over the table.
    """
    levels: list[ViewLevels | None] = [None] * len(views)
    chosen = [i for i, (view, k) in enumerate(views) if k > 1 and len(view.names) > 1]
    if not (chosen and run.likelihood):
        return levels
    columns = [views[i][0] for i in chosen]
    chain, labels = _draws(run, columns, kept)
    cells, of_each = run.sample(SAMPLED), []
    at = {c.name: cuts(c, getattr(cells, c.block)[:, c.index]) for c in run.columns if not c.levels}
    for of in labels:
        few = _few(chain, of)
        of_each.append(([chain[d] for d in few], [of[d] for d in few]))
    tallies = tally(columns, [of for _, of in of_each], at)
    for i, (chains, of), t in zip(chosen, of_each, tallies):
        levels[i] = _of_view(views[i][1], chains, of, t)
    return levels


def _draws(run: Posterior, columns: Sequence[OfColumns], kept: Sequence[tuple[int, int]]):
    """Return (chain of each draw, labels by view and draw) for MOST_DRAWS evenly spaced draws of each chain."""
    chains = sorted({i for i, _ in kept})
    pairs = [pair for i in chains for pair in evenly([pair for pair in kept if pair[0] == i], MOST_DRAWS)]
    chain, labels = [], [[] for _ in columns]
    for i, draw in run.states(pairs):
        chain.append(i)
        for view, of in zip(columns, labels):
            z = draw.labels[view.nearest_view(draw)]
            of.append(z.astype(np.min_scalar_type(int(z.max()))))
    return chain, labels


def _few(chain: Sequence[int], labels: Sequence[np.ndarray]) -> list[int]:
    """Return the places of the draws to use: all, or FEWEST_DRAWS of each chain if they have many clusters."""
    every = list(range(len(chain)))
    if sum(int(z.max()) + 1 for z in labels) <= MANY:
        return every
    return [d for i in dict.fromkeys(chain) for d in evenly([d for d in every if chain[d] == i], FEWEST_DRAWS)]


def _of_view(n_clusters: int, chain: Sequence[int], labels: Sequence[np.ndarray], tallies: Sequence[Tally]):
    sizes = [int(z.max()) + 1 for z in labels]
    first = np.cumsum([0, *sizes])
    p = patterns([z.astype(np.int64) + start for z, start in zip(labels, first)], chain)
    counts, offsets = for_tree(tallies)
    tree, leaf = _tree(counts, offsets)
    folded = Patterns(leaf[p.leaves], p.rows, p.of, p.chain)
    of_chains = [[d for d, c in enumerate(chain) if c == i] for i in dict.fromkeys(chain)]
    chain_trees, half_trees = [(tree, folded.leaves)], []

    def part(its: Sequence[int]) -> Part:
        """Return the tree over the clusters of some draws."""
        clusters = np.concatenate([np.arange(first[d], first[d + 1]) for d in its])
        of_part, of_each = _tree(counts[:, clusters], offsets)
        return of_part, of_each[np.searchsorted(clusters, p.leaves[:, its])]

    if len(of_chains) > 1:
        chain_trees = [part(its) for its in of_chains]
        if min(map(len, of_chains)) > 1:
            earlier = [d for its in of_chains for d in its[: len(its) // 2]]
            later = [d for its in of_chains for d in its[-(len(its) // 2) :]]
            half_trees = [part(sorted(earlier)), part(sorted(later))]
    return ViewLevels(n_clusters, folded, tree, chain_trees, half_trees, [t.merged(leaf, 1.0) for t in tallies])


def _tree(counts: np.ndarray, offsets: np.ndarray) -> tuple[Tree, np.ndarray]:
    """Return the tree over clusters, and the leaf of each cluster."""
    leaf = joined(counts, offsets, MOST_LEAVES)
    if leaf.max(initial=0) + 1 < len(leaf):
        into = np.zeros((len(leaf), MOST_LEAVES))
        into[np.arange(len(leaf)), leaf] = 1.0
        counts = counts @ into
    return grow(counts, offsets), leaf
