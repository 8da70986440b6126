"""Linked pairs of columns as small tables: the most probable values of a column given its parent's most frequent
values, averaged over draws."""

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

PAIRS = 6  # pairs with a table
LINES, VALUES = 6, 3  # values of the parent in a table, and of the column in each line
INTERVALS = 4  # bins of a numeric column
LEAST = 0.005  # values with a smaller probability are not named


def linked_tables(asking: Asking, linked: Sequence[tuple[str, str]]) -> list[Any]:
    """Tables of the first (child, parent) pairs, after a line that explains them."""
    pairs = list(linked)[:PAIRS]
    if not pairs:
        return []
    asking.draws({name for pair in pairs for name in pair})  # of all columns at once
    of = counted(asking.averages.n_draws, "draw")
    words = f"The most probable values of a column given its parent, all clusters together ({of}):"
    of_pairs = [(_heading(*pair), table(asking, *pair)) for pair in pairs]
    return [words, *(part for of_pair in of_pairs for part in of_pair)]


def _heading(child: str, parent: str) -> Any:
    from mpibayes.terminal import Text

    return Text(visible(f"{cut(child)} given {cut(parent)}"), style="bold")


def table(asking: Asking, child: str, parent: str) -> Any:
    """Distribution of a column given its parent: a line per frequent value of the parent, and one for all rows."""
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
    """List the most probable values, each with its probability."""
    most = [v for v in np.argsort(-p, kind="stable")[:VALUES] if p[v] >= LEAST]
    rest = [f"others ({percent(1.0 - p[most].sum())})"] * bool(p[most].sum() < 1.0 - LEAST)
    return ", ".join([*(f"{cut(of.words[v])} ({percent(p[v])})" for v in most), *rest])
