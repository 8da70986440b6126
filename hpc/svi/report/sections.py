"""The report of variational inference as the terminal and the page open it: the verdict, which says first that this is
an approximation, the components, and sections to look them up in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mpibayes.hpc.report.document import Browse, Details, Field, Numbers, Section, Verdict, pictured
from mpibayes.hpc.report.drawing import Picture
from mpibayes.hpc.report.tables import plain_table
from mpibayes.hpc.svi.report import shared, tables
from mpibayes.hpc.svi.report.summarise import ComponentLine, RunSummary
from mpibayes.hpc.svi.scalars import SCALARS
from mpibayes.text import counted, percent

TOP = 12  # components on the terminal
NAMED = 3  # columns of a component
TELLING = 0.5  # standard deviations: a mean that is nearer to that of all rows tells nothing
PICTURES = {
    **shared.PICTURES,
    "components.png": "Rows and components in the two columns in which the components differ most",
}
OF_COMPONENTS = (
    Field("#", "whole"), Field("component", "text", "the columns whose means are farthest from all rows"),
    Field("weight", "share"), Field("rows", "whole", "of which it is the most probable component"),
    Field("share", "share", "of the rows"), Field("sure", "share", "how probable it is for these rows, on average"),
)  # fmt: skip


def verdict(p: RunSummary) -> Verdict:
    """Verdict: the result, whether the restarts agree, and what to do next."""
    best, used = p.best_chain, sum(c.rows > 0 for c in p.components)
    result = [
        f"{counted(used, 'component')} with rows, of {len(p.components)}, in {counted(p.run.n_rows, 'row')}.",
    ]
    if np.isfinite(best.heldout):
        result.append(f"Held-out rows score {best.heldout:.4f} nats a row.")
    return shared.verdict(p, result)


def top(p: RunSummary) -> list[Any]:
    """The heaviest components."""
    from mpibayes.terminal import Text

    used = [c for c in p.components if c.rows]
    table = plain_table("#", "weight", "rows", "share", "")
    table.columns[0].justify, table.columns[-1].header = "right", "heaviest components"
    for c in used[:TOP]:
        table.add_row(
            str(c.number), f"{c.weight:.4f}", f"{c.rows:,}", percent(c.rows / p.run.n_rows), Text(_title(p, c))
        )
    if len(used) > TOP:
        table.caption, table.caption_justify = f"{len(used) - TOP:,} more", "left"
    return [table]


def sections(p: RunSummary, pictures: Mapping[str, Picture]) -> list[Section]:
    """Sections of the page below the verdict, in order."""
    shown = pictured(pictures, PICTURES, "bound.png")
    return [
        Section("components", "Components", [*_components(p), *pictured(pictures, PICTURES, "components.png")]),
        *shared.last_sections(p, tables.about(p), tables.chain_lines(p), shown, SCALARS),
    ]


def _apart(p: RunSummary, c: ComponentLine) -> np.ndarray:
    """Distances of a component's means from the means of all rows, (D,), in standard deviations of the columns."""
    mean, sd = _overall(p)
    return np.abs(c.mean - mean) / sd


def _overall(p: RunSummary) -> tuple[np.ndarray, np.ndarray]:
    columns = p.run.cells.columns
    return np.array([c.center for c in columns]), np.array([c.scale for c in columns])


def _title(p: RunSummary, c: ComponentLine) -> str:
    """The means that are farthest from those of all rows."""
    apart = _apart(p, c)
    most = [d for d in np.argsort(-apart, kind="stable")[:NAMED].tolist() if apart[d] >= TELLING]
    return ", ".join(f"{p.run.cells.columns[d].name} {c.mean[d]:.3g}" for d in most) or "near the middle of all rows"


def _components(p: RunSummary) -> list[Any]:
    used = [c for c in p.components if c.rows]
    rows = [[c.number, _title(p, c), c.weight, c.rows, c.rows / p.run.n_rows, c.sure] for c in used]
    means, sds, apart = (
        np.array(x) for x in ([c.mean for c in used], [c.sd for c in used], [_apart(p, c) for c in used])
    )
    columns = [
        Numbers(c.name, (float(c.center), float(c.scale)), means[:, d], sds[:, d], apart[:, d])
        for d, c in enumerate(p.run.cells.columns)
    ]
    order = "how far the mean is from that of all rows, in standard deviations of the column"
    titles = [f"Component {c.number} (weight {c.weight:.4f}, {c.rows:,} rows)" for c in used]
    words = "An approximation. Choose a component to see all its columns against all rows."
    details = Details(columns, order, here="this component")
    empty = len(p.components) - len(used)
    caption = f"{counted(empty, 'component')} without a row" if empty else ""
    return [words, Browse("component", OF_COMPONENTS, rows, details, titles, caption)]
