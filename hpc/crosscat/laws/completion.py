"""Draws of missing cells from one kept draw, for a filled-in copy of a table (docs/math.md 2.12).

A draw has the clusters of the training rows. Given these, the weights and parameters of clusters have conjugate
posteriors: parameters are drawn once, and all rows of the copy share them, so that the variation of estimates between
copies reflects their uncertainty (Rubin 1987). A training row keeps its clusters, which were drawn given its observed
cells; cells and parameters are then a joint posterior draw of all missing cells, if these are missing at random. Any
other row draws a cluster in each view given its observed cells, with weights and the parameters of these cells
integrated out; in a new cluster it is alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np

from mpibayes.hpc.crosscat.law import Law
from mpibayes.hpc.crosscat.laws.calibration import Calibration
from mpibayes.hpc.crosscat.laws.cell_draws import CellDraws
from mpibayes.hpc.crosscat.laws.view_law import ViewLaw
from mpibayes.hpc.data.events import Known
from mpibayes.hpc.law import PartOfTable
from mpibayes.hpc.parallel.streams import Purpose, Stream, in_lane


class Completion:
    """See `hpc.law.Completion`. law: of all columns, with the labels of all training rows; seed, copy: key of the
    streams."""

    def __init__(self, law: Law, seed: int, copy: int):
        self._seed, self._copy = seed, copy
        self._views = [[CellDraws(view, self._stream(Purpose.COPY_PARAMETERS, view))] for view in law.views]

    def calibrate(self, parts: Callable[[], Iterator[PartOfTable]], gaps: Collection[str], n_classes: int) -> None:
        for i, (draws,) in enumerate(self._views):
            if draws.levels is None or draws.view.names.isdisjoint(gaps):
                continue
            calibration, stream = Calibration(draws, gaps, n_classes), self._stream(Purpose.COPY_CELLS, draws.view)
            for known, ids, places, classes in parts():
                old = np.flatnonzero(places >= 0)
                cluster = draws.view.labels[places[old]]
                calibration.add(known.take(old), cluster, classes[old], stream, ids[old])
            self._views[i] = calibration.by_class(self._stream(Purpose.CALIBRATION, draws.view))

    def cells(
        self, known: Known, gaps: Mapping[str, np.ndarray], ids: np.ndarray, places: np.ndarray,
        classes: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        result: dict[str, np.ndarray] = {}
        for every in self._views:
            inside = {name: at for name, at in gaps.items() if name in every[0].view.names and len(at)}
            if not inside:
                continue
            if len(every) == 1:
                result |= self._in_view(every[0], known, inside, ids, places)
                continue
            result |= {name: np.empty(len(at)) for name, at in inside.items()}
            for of, draws in enumerate(every):
                rows = np.flatnonzero(classes == of)
                here = {name: np.isin(at, rows) for name, at in inside.items()}
                some = {name: np.searchsorted(rows, at[here[name]]) for name, at in inside.items() if here[name].any()}
                if some:
                    drawn = self._in_view(draws, known.take(rows), some, ids[rows], places[rows])
                    for name, x in drawn.items():
                        result[name][here[name]] = x
        return result

    def _in_view(
        self, draws: CellDraws, known: Known, gaps: Mapping[str, np.ndarray], ids: np.ndarray, places: np.ndarray
    ) -> dict[str, np.ndarray]:
        view = draws.view
        stream, cluster = self._stream(Purpose.COPY_CELLS, view), np.zeros(len(ids), np.intp)
        rows = np.unique(np.concatenate(list(gaps.values())))
        old, new = rows[places[rows] >= 0], rows[places[rows] < 0]
        cluster[old] = view.labels[places[old]]
        if len(new):
            cluster[new] = draws.clusters(known.only([*view.names, *view.outside]).take(new), stream, ids[new])
        result: dict[str, np.ndarray] = {}
        for block in [*(block.names for block in view.blocks), *([n] for n in view.names.difference(view.in_blocks))]:
            inside = [name for name in block if name in gaps]
            if inside:
                at = np.unique(np.concatenate([gaps[name] for name in inside]))
                watched = [name for name in block if name in known.of and known.of[name][0].column.kind == "survival"]
                of_block = known.only([*view.in_blocks, *watched]).only([*block, *view.outside]).take(at)
                drawn = draws.cells(inside, of_block, cluster[at], stream, ids[at])
                result |= {name: drawn[name][np.searchsorted(at, gaps[name])] for name in inside}
        return result

    def _stream(self, purpose: Purpose, view: ViewLaw) -> Stream:
        return Stream(self._seed, purpose, cycle=self._copy, chain=in_lane(0, view.number))
