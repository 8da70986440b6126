"""Linked pairs of columns as small tables: the most probable values of a column given the most frequent ones of the
column that it leans on, averaged over draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.data.events import Known
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.support import Support
from mpibayes.hpc.report.drawing import cut
from mpibayes.hpc.report.tables import plain_table
from mpibayes.text import counted, percent, visible

PAIRS = 6  # that have a table
LINES, VALUES = 6, 3  # of a table: values of the parent, and of the column in each line
INTERVALS = 4  # of a column of numbers
LEAST = 0.005  # a value with a smaller probability is not named


def linked_tables(asking: Asking, linked: Sequence[tuple[str, str]]) -> list[Any]:
    """Tables of the first (child, parent), below a line that says what they are."""
    pairs = list(linked)[:PAIRS]
    if not pairs:
        return []
    asking.draws({name for pair in pairs for name in pair})  # of all of them at once
    of = counted(asking.averages.n_draws, "draw")
    words = f"The most probable values of a column given its parent, all clusters together ({of}):"
    of_pairs = [(_heading(*pair), table(asking, *pair)) for pair in pairs]
    return [words, *(part for of_pair in of_pairs for part in of_pair)]


def _heading(child: str, parent: str) -> Any:
    from mpibayes.terminal import Text

    return Text(visible(f"{cut(child)} given {cut(parent)}"), style="bold")


def table(asking: Asking, child: str, parent: str) -> Any:
    """The distribution of a column given another: a line for each of the other's most frequent values, and for all."""
    of_parent, of_child = (asking.supports([name], INTERVALS)[name] for name in (parent, child))
    shares = _given(asking, parent, Known(1, {}))[0]
    lines = np.argsort(-shares, kind="stable")[:LINES]
    if not of_parent.column.levels:
        lines = np.sort(lines)
    p = _given(asking, child, Known(len(lines), {parent: (of_parent.events, lines)}))
    made = plain_table(cut(parent), "rows", "", last=cut(child))
    for u, values in zip(lines, p):
        made.add_row(cut(of_parent.words[u]), percent(shares[u]), _in_words(of_child, values))
    made.add_row("all", "100 %", _in_words(of_child, _given(asking, child, Known(1, {}))[0]))
    return made


def _given(asking: Asking, name: str, known: Known) -> np.ndarray:
    return np.concatenate([d.p for _, d in asking.distributions(name, known, INTERVALS)])


def _in_words(of: Support, p: np.ndarray) -> str:
    """The most probable values, each with its probability."""
    most = [v for v in np.argsort(-p, kind="stable")[:VALUES] if p[v] >= LEAST]
    rest = [f"others ({percent(1.0 - p[most].sum())})"] * bool(p[most].sum() < 1.0 - LEAST)
    return ", ".join([*(f"{cut(of.words[v])} ({percent(p[v])})" for v in most), *rest])
