"""Kept draws of a mixture or cross-categorization, opened for questions (`hpc.law.Asked`; docs/math.md 2.12).

Laws are built from the kept labels, and from passes over the table that read only the columns in question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.keys import Model
from mpibayes.hpc.crosscat.law import Law
from mpibayes.hpc.crosscat.laws.view_law import ViewLaw
from mpibayes.hpc.data.events import Known
from mpibayes.hpc.law import EVERY, LINES
from mpibayes.hpc.links.coding import may_lean
from mpibayes.hpc.posterior.asked import AskedRun, chosen
from mpibayes.io.rows import Rows

if TYPE_CHECKING:
    from mpibayes.hpc.crosscat.laws.completion import Completion
    from mpibayes.hpc.crosscat.laws.synthesis import Synthesis

DRAWS = 100
OF_TIMES = (
    "column '{}' is of times to an event, which are censored in the table and would not be in a synthetic one; "
    "simulate draws such rows, or leave the column out (use = false)"
)


class Asked(AskedRun):
    """See `hpc.law.AskedClusters`."""

    shares = "probability of sharing a cluster in the view of a column"

    def __init__(self, run: Posterior, draws: int | None):
        self._kept, n_kept = chosen(run, draws or DRAWS)
        blocks, model = run.chains[0].config.joint, run.chains[0].config.of(Model)
        self._blocks = {name: block for block, of in blocks.items() for name in of["columns"]}
        self.joint = self._blocks | dict.fromkeys(model.lined, LINES)
        columns = [replace(c, atoms=(), log=False) if c.name in self._blocks else c for c in run.data.stored]
        super().__init__(run, run.data.stored, columns, [chain for chain, _ in self._kept], n_kept)
        if watched := [c.name for c in run.data.stored if c.kind == "survival"]:
            self.cannot = {"synthesize": OF_TIMES.format(watched[0])}
        if run.outcomes is not None:
            self._take_outcome()
        free = (c for c in run.data.stored if c.kind == "real" and c.name not in self._blocks)
        self.joinable = [c.name for c in free if not c.atoms and not c.n_missing]  # blocks: no atoms, no missing cells
        self.linked = model.parents != "none"
        may_link = run.outcomes is None  # columns are not linked in a run with an outcome
        self.link_keys = {"links": "forest"} if may_link and not model.links_levels else {}
        self.line_keys = {"links": "lines"} if may_link and not self.linked else {}

    def _take_outcome(self) -> None:
        """Admit questions about the outcome, if the mixture models its predictors."""
        of = self.run.outcomes
        what = f"column '{of.name}' is the run's outcome"
        if lacking := of.unknown:
            why = f"{what}, and its predictor '{lacking[0]}' is no column of the mixture by itself"
            self.apart = {of.name: f"{why}: `mpibayes predict` has its probabilities, the report its effects"}
            verbs = ("synthesize", "complete")
            self.cannot = dict.fromkeys(verbs, f"{why}, so that its cells are not drawn")
            return
        knowing = (
            "logp, conditional, compare, impute, simulate, complete and synthesize know it; the report its effects"
        )
        self.apart = {of.name: f"{what}, which is no column of its mixture: {knowing}"}
        self.outcome = of.coder.column
        if of.columns.likelihood.of_times:
            self.cannot = {**self.cannot, "synthesize": OF_TIMES.format(of.name)}
        self.like = self.run.table.having(of.all_columns)
        place = {c.name: c.index for c in of.all_columns}
        self.columns = [replace(c, index=place[c.name]) for c in self.columns]
        self.columns.insert(next(i for i, c in enumerate(of.all_columns) if c.name == of.name), self.outcome)
        self.explained = (of.name, *of.columns.keys.predictors)

    def recorded(self, numbers: np.ndarray) -> Rows:
        """See `hpc.law.Asked`."""
        data = self.run.data if self.outcome is None else self.run.outcomes.data
        rows: Rows = data.recorded_at(numbers)
        return rows

    def may_lean(self, child: str, parent: str) -> bool:
        """See `hpc.law.Asked`."""
        of_child, of_parent = ([c for c in self.run.columns if name in (c.name, c.part_of)] for name in (child, parent))
        return any(may_lean(c, p) for c in of_child for p in of_parent)

    def draws(self, names: Collection[str], part: slice = EVERY) -> list[Law]:
        """Return the kept draws in `part` as laws of the named columns."""
        return list(self._laws(names, part))

    def _laws(
        self, names: Collection[str], part: slice, labelled: slice | np.ndarray | None = None
    ) -> Iterator[Law]:  # fmt: skip
        names = self._whole(names)
        for group in self.run.groups(self._kept[part], names):
            for draw, law in zip(group, self.run.laws(group, names, self.weights, labelled)):
                if self.outcome is not None and self.outcome.name in names:
                    view = next(view for view in law.views if view.number == draw.outcome_view)
                    view.explain(self.run.outcomes.law_in(draw, view))
                yield law

    def _whole(self, names: Collection[str]) -> set[str]:
        """Add to the names all columns of their blocks, and the predictors if the outcome is among them."""
        if self.outcome is not None and self.outcome.name in names:
            names = {*names, *self.explained}
        blocks = {self._blocks[name] for name in names if name in self._blocks}
        return {*names, *(name for name, block in self._blocks.items() if block in blocks)}

    def labelled(self, names: Collection[str], places: np.ndarray | None = None, part: slice = EVERY) -> Iterator[Law]:
        """Yield laws of draws with the clusters of all training rows, or of those at `places`, ascending."""
        yield from self._laws(names, part, EVERY if places is None else places)

    def completions(self, seed: int, part: slice = EVERY) -> Iterator[Completion]:
        """See `hpc.law.Asked`."""
        from mpibayes.hpc.crosscat.laws.completion import Completion

        copies = range(1, 1 + len(self._kept))[part]
        laws = self.labelled([c.name for c in self.columns], part=part)
        return (Completion(law, seed, copy) for copy, law in zip(copies, laws, strict=True))

    def syntheses(
        self, seed: int, n: int, without: Mapping[str, np.ndarray], part: slice = EVERY
    ) -> Iterator[Synthesis]:
        """See `hpc.law.Asked`."""
        from mpibayes.hpc.crosscat.laws.synthesis import Synthesis

        tables = range(1, 1 + len(self._kept))[part]
        laws = self.labelled([c.name for c in self.columns], part=part)
        return (Synthesis(law, seed, table, n, without) for table, law in zip(tables, laws, strict=True))

    def left_out(self, known: Known, places: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield, for every draw, the leave-one-out log probability of the known cells of the training rows at `places`
        (ascending), (n,), and the inverse probability of each column's cell given the others, (n, C), NaN if it is
        unknown."""
        from mpibayes.hpc.crosscat.laws.left_out import LeftOut

        rows = self.modelled(places)
        for law in self.labelled(known.of, places):
            views = [LeftOut(view, self._of_view(view, rows, places), known) for view in law.views]
            log_p, weights = zip(*(view.given() for view in views))
            total: np.ndarray = np.asarray(sum(log_p))
            inverse = np.empty((known.n_rows, len(known.of)))
            for c, name in enumerate(known.of):
                i, _ = law.view_of(name)
                inverse[:, c] = views[i].inverse(name, weights[i])
            yield total, inverse

    def _of_view(self, view: ViewLaw, rows: Rows, places: np.ndarray) -> Rows:
        """Return a view's columns of training rows, with the missing cells that are part of the draw filled in."""
        of = self.run.of(view.order)
        return view.needed.filled(of.columns, of.take(rows), places)

    def views(self, names: Sequence[str]) -> np.ndarray:
        """Return the view of each named column in every draw, (D, C)."""
        place = {c.name: i for i, c in enumerate(self.run.data.stored)}
        at = [place[name] for name in names]
        result = {}
        for chain, draw in self.run.states(self._kept):
            one = len(draw.labels) == 1
            result[chain, draw.cycle] = np.zeros(len(at), np.int64) if one else draw.view_of[at]
        return np.array([result[key] for key in self._kept])

    def partition(self) -> list[np.ndarray]:
        """Return the cluster of every training row in each view of the report, in its numbering, int64 (N,)."""
        from mpibayes.hpc.crosscat.summaries.representative import representatives

        return [r.labels + 1 for r in representatives(self.run, self.run.kept()).views]

    def cluster_group(self, number: int, n: int | None, view: int) -> tuple[np.ndarray, int]:
        """See `hpc.law.Asked`."""
        from mpibayes.hpc.crosscat.levels.grouped import group_of
        from mpibayes.hpc.crosscat.summaries.representative import representatives

        kept = self.run.kept()
        places, n = group_of(self.run, kept, representatives(self.run, kept).views, number, n, view)
        return self.training_numbers()[places], n

    def modelled(self, places: np.ndarray) -> Rows:
        """Return the training rows at `places`, ascending, as they are modelled."""
        rows: Rows = self.run.data.rows_at(places)
        return rows
