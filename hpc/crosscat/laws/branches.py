"""Numeric columns that depend on a categorical one, for questions: a law in each of its contexts (docs/math.md 2.14).

A single column has the law of its kind there. A column with others regressed on it in lines has a multivariate normal
with them, whose parameters are drawn (`lines/law.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpibayes.hpc.components.masses import log_negative_binomial, log_real, log_t
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.single import InContexts, one_uniform
from mpibayes.hpc.crosscat.laws import reach
from mpibayes.hpc.crosscat.lines.law import LineLaw
from mpibayes.hpc.data.events import Events, Known
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.linked import Branch, Linked
from mpibayes.hpc.parallel.streams import Stream
from mpibayes.io import recording
from mpibayes.io.rows import Column, Rows


@dataclass(frozen=True)
class NumberBranch:
    """A numeric column without children. law: of its kind; parts: the contexts' places in it; drawn_parameters: True if
    the law's parameters are drawn, not integrated out."""

    node: int
    column: Column
    kind: InContexts
    law: Any
    parts: slice
    drawn_parameters: bool = False

    @property
    def names(self) -> list[str]:
        return [self.column.name]

    def log_masses(self, events: Events) -> np.ndarray:
        low, high, of = events.low[:, None, None], events.high[:, None, None], self.parts
        if self.column.kind == "real":
            a = self.law.location[of], self.law.scale[of], self.law.nu[of]
            if not self.drawn_parameters:
                return log_real(self.column, *a, low, high)
            new = log_real(self.column, *(x[:, -1:] for x in a), low, high)
            return np.concatenate([log_real(self.column, *(x[:, :-1] for x in a), low, high), new], axis=2)
        if not self.drawn_parameters:
            return log_negative_binomial(self.law.shape[of], self.law.rate[of], low, high)
        each = [self.law.log_masses(part, low[:, 0], high[:, 0]) for part in range(of.start, of.stop)]
        return np.stack(each, axis=1)

    def score(self, known: Known) -> np.ndarray:
        events, which = known.of[self.column.name]
        table = self.log_masses(events)
        return np.append(table, np.zeros((1, *table.shape[1:])), axis=0)[which]

    def averaged(self, events: Events, weight: np.ndarray, given: Known) -> np.ndarray:
        return np.einsum("nwk,uwk->nu", weight, np.exp(self.log_masses(events)))

    def together(self, one: Events, other: Events) -> np.ndarray:
        raise NotImplementedError("there is one column")

    def scored(self, rows: Rows) -> np.ndarray:
        x = getattr(rows, self.column.block)[:, self.column.index]
        there, x = ~np.isnan(x), np.nan_to_num(x)[:, None, None]
        law, of = self.law, self.parts
        if self.column.kind == "real":
            log_p = log_t(law.location[of], law.scale[of], law.nu[of], x, x)
        else:
            log_p = log_negative_binomial(law.shape[of], law.rate[of], x, x)
        return np.where(there[:, None, None], log_p, 0.0)

    def moments(self, rows: Rows, name: str, weight: np.ndarray) -> np.ndarray:
        """Return the first two moments about the center, summed over contexts and clusters with weights
        (n, W, K + 1), (n, 2)."""
        return np.einsum("nwk,mwk->nm", weight, self.law.moments(self.parts))

    def drawn(
        self, known: Known, requested: Collection[str], cluster: np.ndarray, context: np.ndarray, stream: Stream, ids
    ) -> dict[str, np.ndarray]:
        column, part = self.column, self.parts.start + context
        u = one_uniform(stream, self.kind.substreams[0], self.parts.start, ids)
        x = self.law.quantile(part, cluster, u)
        if self.drawn_parameters and column.kind == "real":
            again = replace(stream, sub=self.kind.substreams[1])
            x = reach.drawn_again(self.law, part, column, x, cluster, again, ids)
        given = np.full(len(ids), np.nan)
        if column.name in known.of:
            events, which = known.of[column.name]
            seen = np.flatnonzero(which < len(events))
            low, high = events.low[which[seen]], events.high[which[seen]]
            if events.sets is None:
                given[seen] = np.where(np.isfinite(low) & np.isfinite(high), 0.5 * (low + high), np.nan)
            if column.kind == "real":
                with np.errstate(divide="ignore", invalid="ignore"):
                    low, high = (recording.coordinate(column, np.maximum(e, 0.0) if column.log else e)
                                 for e in (low, high))  # fmt: skip
            x[seen] = self.law.within(part[seen], cluster[seen], low, high, u[seen])
        if column.kind == "real":
            x = recording.recorded(column, None, x)
        return {column.name: np.where(np.isnan(given), x, given)}


@dataclass(frozen=True)
class LineBranch:
    """Numeric columns in lines, the first of which depends on a categorical column: a law in each of its contexts.
    in_range: True if no number outside the range of the table's is drawn."""

    node: int
    laws: Sequence[LineLaw]
    in_range: bool = False

    @property
    def names(self) -> Sequence[str]:
        return self.laws[0].names

    def log_masses(self, events: Events) -> np.ndarray:
        return np.stack([law.log_masses(events) for law in self.laws], axis=1)

    def score(self, known: Known) -> np.ndarray:
        each = [law.score(known) for law in self.laws]
        return np.stack(each, axis=1)

    def averaged(self, events: Events, weight: np.ndarray, given: Known) -> np.ndarray:
        given = given.only(self.names)
        return sum(law.averaged(events, weight[:, u], given) for u, law in enumerate(self.laws))

    def together(self, one: Events, other: Events) -> np.ndarray:
        return np.stack([law.together(one, other) for law in self.laws], axis=2)

    def scored(self, rows: Rows) -> np.ndarray:
        return np.stack([law.scored(rows) for law in self.laws], axis=1)

    def moments(self, rows: Rows, name: str, weight: np.ndarray) -> np.ndarray:
        """See `NumberBranch.moments`."""
        return sum(law.moments(rows, name, weight[:, u]) for u, law in enumerate(self.laws))

    def drawn(
        self, known: Known, requested: Collection[str], cluster: np.ndarray, context: np.ndarray, stream: Stream, ids
    ) -> dict[str, np.ndarray]:
        inside, columns = set(self.names).intersection(requested), self.laws[0].columns if self.in_range else ()
        out = {name: np.empty(len(ids)) for name in inside}
        for u in np.unique(context).tolist():
            at = np.flatnonzero(context == u)
            of = known.take(at), inside, cluster[at], stream, ids[at]
            part = reach.rows_within(self.laws[u].drawn, columns, *of)
            for name, x in part.items():
                out[name][at] = x
        return out


def branches_of(
    tree: Linked, coding: Coding, components: Components, law_of: Callable[[Any], Any],
    lines: Sequence[tuple[int, Sequence[LineLaw]]], drawn: bool = False,
) -> list[Branch]:  # fmt: skip
    """Return the branches of numeric columns that depend on a tree's columns. law_of: returns a kind's law; drawn: True
    if the parameters of all kinds are drawn. lines: of all trees of lines, see `line_laws`."""
    in_lines, result = dict(lines), []
    for c in coding.in_contexts:
        parent = int(coding.parents[c])
        if parent not in tree.plain:
            continue
        node = list(tree.plain).index(parent)
        if c in in_lines:
            result.append(LineBranch(node, in_lines[c], drawn))
            continue
        kind, number = components.kind_of(coding.plain[c].name)
        parts = kind.parts(slice(number, number + 1))
        result.append(NumberBranch(node, coding.plain[c], kind, law_of(kind), parts, drawn))
    return result
