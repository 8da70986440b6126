"""One draw of a mixture or cross-categorization as a law of rows (`hpc.law.Law`; docs/math.md 2.6, 2.12).

A draw is a product of views, and a view is a mixture over its columns. The known cells of a row reweight a view's
clusters: w_k times the probability of these cells in cluster k. Views without a column of the question are skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mpibayes.hpc.crosscat.laws.cell_draws import CellDraws
from mpibayes.hpc.crosscat.laws.view_density import ViewDensity
from mpibayes.hpc.crosscat.laws.view_law import Scores, ViewLaw
from mpibayes.hpc.crosscat.lines.law import LineLaw
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.data.rows import take_columns
from mpibayes.hpc.links.law import TreeLaw
from mpibayes.hpc.parallel.streams import Stream, in_lane
from mpibayes.io.rows import Rows

Places = Sequence[Mapping[str, np.ndarray]] | None  # for each view, places of its columns in each array of the rows


class Density:
    """The product of views as a density of rows. places: see `data.rows.take_columns`; None if the only view has all
    columns."""

    def __init__(self, views: Sequence[ViewDensity], places: Places = None):
        self.views: Sequence[ViewDensity] = list(views)
        self._places = places

    def log_density(self, rows: Rows) -> np.ndarray:
        """Return the log density of the observed cells of each row, (n,) float64."""
        return self.log_density_without(-1, rows)

    def log_density_without(self, view: int, rows: Rows) -> np.ndarray:
        """Return the log density of the observed cells of each row in all views but one, (n,) float64."""
        parts = (of.log_density(self.rows_of(v, rows)) for v, of in enumerate(self.views) if v != view)
        return sum(parts, np.zeros(len(rows)))

    def rows_of(self, view: int, rows: Rows) -> Rows:
        """Return the cells of a view's columns."""
        return rows if self._places is None else take_columns(rows, self._places[view])


class Law(Density):
    """One draw as a law of some columns: the product of the independent views that have any of them."""

    views: Sequence[ViewLaw]

    @property
    def width(self) -> int:
        """Number of cluster weights per row, over all views."""
        return sum(len(view.log_weight) for view in self.views)

    def given(self, known: Known) -> Given:
        """See `hpc.law.Law`."""
        return Given(self, known)

    def shared(self, names: Sequence[str], place: int | None, known: Known) -> np.ndarray:
        """Return the probability that each labelled row (N,) shares the cluster of the labelled row at `place`, or of a
        row with these known cells; averaged over the named columns, each in its view."""
        shares = []
        for view in self.views:
            n = sum(name in view.names for name in names)
            if n and place is not None:
                shares.append(n * (view.labels == view.labels[place]))
            elif n:
                shares.append(n * view.weighted(known.repeat(1))[1][0][view.labels])
        share: np.ndarray = np.asarray(sum(shares)) / len(names)
        return share

    def masses(self, events: Events) -> np.ndarray:
        """Return the probability of each event of a column in the clusters of its view, (K + 1, U)."""
        return np.ascontiguousarray(np.exp(self.view_of(events.column.name)[1].log_masses(events)).T)

    def linked_pairs(
        self, a: Sequence[str], b: Sequence[str], events: Mapping[str, Events]
    ) -> Iterator[tuple[str, str, np.ndarray, float]]:
        """Yield (x, y, table, inside) for the linked pairs of columns x in a and y in b: joint probabilities of their
        events, (U, U'), and their mutual information within clusters."""
        trees: list[tuple[np.ndarray, LineLaw | TreeLaw]] = []
        for view in self.views:
            of_view: list[LineLaw | TreeLaw] = [*view.lines, *view.trees]
            trees += [(np.exp(view.log_weight), tree) for tree in of_view]
        for weight, tree in trees:
            for x in (x for x in a if x in tree.names):
                others = {y: events[y] for y in b if y in tree.names and y != x}
                pairs = tree.joint(events[x], others, weight) if others else ()
                yield from ((x, y, table, inside) for y, table, inside in pairs)

    def weight(self, name: str) -> np.ndarray:
        """Return the weights of the clusters of a column's view, and of a new one, (K + 1,)."""
        weight: np.ndarray = np.exp(self.view_of(name)[1].log_weight)
        return weight

    def view_of(self, name: str) -> tuple[int, ViewLaw]:
        """Find the view of a column: its number in `views`, and the view."""
        return next((i, view) for i, view in enumerate(self.views) if name in view.names)

    def simulate(self, known: Known, names: Collection[str], stream: Stream, ids: np.ndarray) -> dict[str, np.ndarray]:
        """See `hpc.law.Law`."""
        drawn: dict[str, np.ndarray] = {}
        asked = [view for view in self.views if view.outcome is not None and view.outcome.name in names]
        outside = {name for view in asked for name in view.outside}
        for view in outcome_last(self.views):
            inside = view.names & {*names, *outside}
            if inside:
                draws, lane = CellDraws(view), replace(stream, chain=in_lane(stream.chain, view.number))
                of = known if view.outcome is None else view.outcome.beside(known, drawn)
                drawn |= draws.cells(inside, of, draws.clusters(of, lane, ids), lane, ids)
        return {name: x for name, x in drawn.items() if name in names}


def outcome_last(views: Sequence[ViewLaw]) -> list[ViewLaw]:
    """Return the views, that of the outcome last: the outcome depends on predictors that are drawn in others."""
    return sorted(views, key=lambda view: view.outcome is not None)


class Given:
    """See `hpc.law.Given`. weights: for each view, probabilities of its clusters, a new one last, (n, K + 1); inside:
    for each view, known cells of columns that are dependent within clusters, in blocks or by links; their scores."""

    def __init__(self, law: Law, known: Known):
        self._law, self._known = law, known
        self.log_p, self.weights, self.inside = np.zeros(known.n_rows), [], []
        self._whole: list[Scores] = [{} for _ in law.views]
        for view, whole in zip(law.views, self._whole):
            total, weight = view.weighted(known, whole=whole)
            self.log_p += total
            self.weights.append(weight)
            self.inside.append(known.only(view.in_blocks))

    def log_density(self, target: Known) -> np.ndarray:
        log_p = np.zeros(target.n_rows)
        for view, weight, inside in zip(self._law.views, self.weights, self.inside):
            if any(name in view.names for name in target.of):
                log_p += view.weighted(target, weight, inside)[0]
        return log_p

    def averaged(self, events: Events, masses: np.ndarray) -> np.ndarray:
        i, view = self._law.view_of(events.column.name)
        block = view.block_of(events.column.name)
        alone = (
            view.outcome is not None and view.outside and events.column.name == view.outcome.name
        )  # see `OutcomeLaw`
        if block is not None and (alone or block.knows(self.inside[i])):
            return block.averaged(events, self.weights[i], self.inside[i])
        p: np.ndarray = self.weights[i] @ masses
        return p

    def inverses(self) -> np.ndarray:
        inverse = np.empty((self._known.n_rows, len(self._known.of)))
        for c, (name, of) in enumerate(self._known.of.items()):
            i, view = self._law.view_of(name)
            inverse[:, c] = view.inverse(*of, self.weights[i], None, self.inside[i], self._whole[i])
        return inverse

    def opens(self) -> np.ndarray:
        """Return the probability of a new cluster in at least one view, (n,)."""
        p: np.ndarray = 1.0 - np.prod([1.0 - weight[:, -1] for weight in self.weights], axis=0)
        return p
