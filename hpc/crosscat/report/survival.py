"""Survival curves of clusters in the report: posterior of each cluster's hazards given the representative partition, as
a picture, and a table at the times that a reader looks for first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.report.document import Field, Figure, Rounded, Section, Table, on_page, on_paper
from mpibayes.hpc.report.drawing import CHAINS, chain_colour, plot, shortened, styled
from mpibayes.io.rows import Column
from mpibayes.io.spells import tick
from mpibayes.text import percent

DRAWS, POINTS = 1_000, 161  # draws of hazards; points on the time axis
BAND = (0.05, 0.95)
PICTURED, LISTED = 6, 30  # clusters
TIMES = 3  # times in the table
NOT_REACHED = "not reached"


@dataclass(frozen=True)
class Curves:
    """Survival curves of the K clusters of a view and, last, of all rows. time (T,); mean, low, high (K + 1, T):
    posterior mean and band of the probability of no event by then. median (K + 1, 3): median time to the event, and its
    band; infinite beyond `time`. rows, events (K + 1,): numbers of rows watched, and of events."""

    column: Column
    time: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    median: np.ndarray
    rows: np.ndarray
    events: np.ndarray

    def at(self, time: float) -> np.ndarray:
        """Return mean and band at the point nearest to a time, (K + 1, 3)."""
        i = int(np.abs(self.time - time).argmin())
        return np.stack([self.mean[:, i], self.low[:, i], self.high[:, i]], axis=1)


def curves(components: Components, hyper: Hyper, statistics: Statistics) -> list[Curves]:
    """Return the curves of each survival column in the clusters of a partition."""
    kind, s = components.survival, statistics.of(components.survival)
    if not len(kind):
        return []
    s = tuple(np.column_stack([a, a.sum(axis=1)]) for a in s)  # all rows as one cluster
    (shape, rate), (events, _) = kind.posterior(hyper.hazard, s), kind.exposed(s)
    rows = s[1].reshape(events.shape).sum(axis=1)
    return [
        _curves(column, kind.starts[c], shape[c], rate[c], rows[c], events[c].sum(axis=0))
        for c, column in enumerate(kind.columns)
    ]


def _curves(column: Column, starts: np.ndarray, shape, rate, rows, events) -> Curves:
    """Draw a column's curves. starts (PARTS,): of the time axis, in ticks; shape, rate (PARTS, K): of the hazards."""
    time = np.linspace(0.0, column.maximum, POINTS)
    ends = np.append(starts[1 : len(column.ends) + 1], np.inf)
    first = starts[: len(ends)]
    exposure = np.clip(time[:, None] / tick(column), first, ends) - first  # (T, parts)
    stream, n = np.random.default_rng(0), shape.shape[1]
    summed, medians = np.empty((n, 3, POINTS)), np.empty((n, 3))
    for k in range(n):
        hazard = stream.gamma(shape[: len(ends), k], 1.0 / rate[: len(ends), k], (DRAWS, len(ends)))
        survival = np.exp(-hazard @ exposure.T)
        summed[k] = survival.mean(axis=0), *np.quantile(survival, BAND, axis=0)
        half = np.append(time, np.inf)[(survival > 0.5).sum(axis=1)]
        medians[k] = np.quantile(half, (0.5, *BAND), method="nearest")
    return Curves(column, time, summed[:, 0], summed[:, 1], summed[:, 2], medians, rows, events)


def section(of: Sequence[tuple[str, Curves, Sequence[Any]]], figures: Sequence[Figure]) -> Section:
    """Return the report's section. of: for each survival column its title, curves, and lines of its view's clusters."""
    words = (
        "The share of each cluster's rows in which the event has not come by a time: posterior mean and 90 % band of "
        "its hazards, which are constant between the cuts of the time axis, given the representative partition. "
        "Beyond the longest time observed in a cluster, its curve is the prior's."
    )
    tables = [[on_page(words), on_paper(f"{title}: {words}"), _table(c, lines)] for title, c, lines in of]
    return Section("survival", "Time to event", [*tables, *figures])


def _table(c: Curves, lines: Sequence[Any]) -> Table:
    times = [c.time[i] for i in np.linspace(0, POINTS - 1, TIMES + 2).astype(int)[1:-1]]
    by = [Field(f"beyond {time:,.4g}", "share", f"{c.column.name}: share without the event by then") for time in times]
    fields = [
        Field("#", "whole"), Field("cluster", "text"), Field("observed", "whole", "rows with a time"),
        Field("events", "whole"), *by, Field("median", "text", "time by which half have had the event, 90 % band"),
    ]  # fmt: skip
    names = [(line.number, line.name, line.number - 1) for line in lines[:LISTED]] + [(None, "all rows", -1)]
    rows, shares = [], [c.at(time) for time in times]
    for number, name, k in names:
        at = [Rounded(float(s[k, 0]), f"{percent(s[k, 0])} ({percent(s[k, 1])} to {percent(s[k, 2])})") for s in shares]
        rows.append([number, name, int(c.rows[k]), int(c.events[k]), *at, _median(c.median[k])])
    return Table("cluster", fields, rows, most=LISTED + 1)


def _median(of: np.ndarray) -> str:
    one, low, high = (NOT_REACHED if np.isinf(x) else f"{x:,.4g}" for x in of)
    return one if one == low == high else f"{one} ({low} to {high})"


@styled
def picture(title: str, c: Curves, lines: Sequence[Any]):
    """Draw the curves of the largest clusters with their bands, and the curve of all rows."""
    figure = plot(8.5, 4.6)
    axes = figure.subplots()
    for i, line in enumerate(lines[:PICTURED]):
        k = line.number - 1
        colour = chain_colour(i)
        axes.fill_between(c.time, c.low[k], c.high[k], color=colour, alpha=0.18, linewidth=0)
        axes.plot(c.time, c.mean[k], color=colour, label=f"{line.number}  {shortened(line.name, 60)}")
    axes.plot(c.time, c.mean[-1], color="#222222", linestyle=":", label="all rows")
    axes.set(ylim=(0.0, 1.0), xlim=(0.0, c.column.maximum), ylabel="share without the event")
    axes.set_xlabel(shortened(c.column.name, 100))
    axes.set_title(title)
    figure.legend(loc="outside lower center", ncols=1 if len(CHAINS) < 3 else 2, fontsize=7)
    return figure


def numbers(c: Curves, lines: Sequence[Any]) -> dict[str, Any]:
    """Return a column's curves at the cuts of the time axis, for summary.json."""

    def finite(x: np.ndarray) -> list[float | None]:
        return [float(v) if np.isfinite(v) else None for v in x]

    of = [
        {
            "cluster": line.number, "rows": int(c.rows[line.number - 1]), "events": int(c.events[line.number - 1]),
            "median": finite(c.median[line.number - 1]),
            "survival": [{"time": end, "mean_low_high": c.at(end)[line.number - 1].tolist()} for end in c.column.ends],
        }
        for line in lines
    ]  # fmt: skip
    return {"column": c.column.name, "clusters": of}
