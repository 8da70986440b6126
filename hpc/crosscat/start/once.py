"""A search for views, or for clusters, that a chain makes once, however often its start is stopped and continued."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.start.views import Found, Pilot
from mpibayes.io.finished import Finished
from mpibayes.io.rows import Column

Result = tuple[Pilot, np.ndarray]  # of a search, and the log density of each judge


def once(finished: Finished | None, part: str, columns: Sequence[Column], search: Callable[[], Result]) -> Result:
    """Return the result of a search: of an earlier start if that has finished it, else of `search`, which is kept."""
    if finished is None:
        return search()
    arrays = finished.get(part)
    if arrays is None:
        arrays = _arrays(*search(), [column.name for column in columns])
        finished.put(part, arrays)
    return _result(arrays, columns)


def _arrays(pilot: Pilot, scores: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    arrays = {"scores": scores, "process": np.array(pilot.process, np.float64), "n_views": np.array(len(pilot.views))}
    for v, view in enumerate(pilot.views):
        arrays[f"{v}-columns"] = np.array([names.index(name) for name in view.columns], np.int64)
        for of in (view.hyper, view.statistics):
            arrays |= {f"{v}-{name}": np.asarray(value) for name, value in vars(of).items()}
    return arrays


def _result(arrays: Mapping[str, np.ndarray], columns: Sequence[Column]) -> Result:
    views = []
    for v in range(int(arrays["n_views"])):
        hyper, statistics = (of(**{f.name: arrays[f"{v}-{f.name}"] for f in fields(of)}) for of in (Hyper, Statistics))
        hyper.concentration, hyper.discount = float(hyper.concentration), float(hyper.discount)
        views.append(Found(tuple(columns[i].name for i in arrays[f"{v}-columns"]), hyper, statistics))
    concentration, discount = arrays["process"].tolist()
    return Pilot(views, (concentration, discount)), arrays["scores"]
