"""Cells drawn from a cluster's law given partial knowledge: a value, a set of levels, a range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mpibayes.hpc.components.component import Component
from mpibayes.hpc.components.single import inside
from mpibayes.hpc.crosscat.laws.view_law import ViewLaw
from mpibayes.hpc.data.events import Events
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io import recording

PART, PLACE = 2**31 + 1, 2**31 + 2  # sub-streams: which level or atom, or none; where among numbers


def draw_within(
    view: ViewLaw, events: Events, which: np.ndarray, cluster: np.ndarray, stream: Stream, ids: np.ndarray,
    law_of: Callable[[Component], Any],
) -> np.ndarray:  # fmt: skip
    """Draw a recorded value within each row's event, (n,) level codes or numbers; NaN where nothing is known. which,
    cluster, ids (n,): each row's event, cluster, and number in the stream. law_of: returns a kind's law, with the
    parameters that cells share, for times beyond their censoring."""
    column, values = events.column, np.full(len(which), np.nan)
    seen = np.flatnonzero(which < len(events))
    event, k = which[seen], cluster[seen]
    if column.levels and events.sets is None:
        values[seen] = events.codes[event]
        return values
    if column.kind == "survival":
        low, high = (end[event] for end in (events.low, events.high))
        kind, c = view.place[column.name]
        u = _uniforms(stream, PLACE, ids[seen], view.column_number(column.name))
        values[seen] = np.where(low == high, low, law_of(kind).within(c, k, low, high, u))
        return values
    single = not column.levels and events.sets is None
    if single:
        atoms = np.array([*column.atoms, np.nan])
        middle = 0.5 * (events.low[event] + events.high[event])
        values[seen] = np.where(events.codes[event] >= 0, atoms[events.codes[event]], middle)
        return values
    named = (ids[seen], view.column_number(column.name))
    u, v = (_uniforms(stream, sub, *named) for sub in (PART, PLACE))
    # a single event: a set of levels or atoms and, for numbers, a range
    codes = np.flatnonzero(events.sets[0])
    parts = [_only(events, [code]) for code in codes]
    if not column.levels:
        parts.append(Events(column, np.full(1, -1), None, events.low, events.high))
    p = np.exp(np.concatenate([view.log_masses(part)[:, k] for part in parts]))
    at = (np.cumsum(p, axis=0)[:-1] <= u * p.sum(axis=0)).sum(axis=0)
    if column.levels:
        values[seen] = codes[at]
        return values
    atoms = np.array([*(column.atoms[code] for code in codes), np.nan])
    values[seen] = np.where(at < len(codes), atoms[at], _in_range(view, events, k, v))
    return values


def number_within(
    view: ViewLaw, events: Events, which: np.ndarray, cluster: np.ndarray, stream: Stream, ids: np.ndarray
) -> np.ndarray:
    """Draw each row's number (n,) for a column with atoms, given that it is not an atom; NaN where nothing is known.
    Arguments as in `draw_within`."""
    values, seen = np.full(len(which), np.nan), np.flatnonzero(which < len(events))
    if events.sets is None:
        values[seen] = (0.5 * (events.low + events.high))[which[seen]]
    elif len(seen):
        u = _uniforms(stream, PLACE, ids[seen], view.column_number(events.column.name))
        values[seen] = _in_range(view, events, cluster[seen], u)
    return values


def _only(events: Events, codes: list[int]) -> Events:
    """Return an event of the given levels or atoms."""
    blank = np.full(len(codes), np.nan)
    return Events(events.column, np.array(codes), None, blank, blank)


def _uniforms(stream: Stream, sub: int, ids: np.ndarray, number: int) -> np.ndarray:
    return inside(replace(stream, sub=sub).uniforms(number << 32 | ids))


def _in_range(view: ViewLaw, events: Events, cluster: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Draw numbers within the range of the only event, by inversion of the distribution function."""
    column, low, high = events.column, events.low[0], events.high[0]
    kind, c = view.place[column.name]
    if column.kind == "count":
        before, last = max(low - 1.0, -1.0), high
    else:
        before, last = low, high
    # at an infinite end the distribution function is 0 or 1
    ends = [float(x > 0) if np.isinf(x) else view.below(column, x)[cluster] for x in (before, last)]
    x = view.law(kind).quantile(c, cluster, ends[0] + u * (ends[1] - ends[0]))
    x = recording.recorded(replace(column, atoms=()), None, x) if column.kind == "real" else x
    half = 0.5 * column.resolution
    return np.clip(x, low + half, high - half)
