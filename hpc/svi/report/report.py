"""Report of variational inference on a table of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.report.document import Details, Document, Field, Figure, Numbers, Section, Table, on_page, on_paper
from mpibayes.hpc.report.tables import finite, fixed, rows_in_words
from mpibayes.hpc.report.wide_table import Group, WideTable
from mpibayes.hpc.svi import keys
from mpibayes.hpc.svi.draws import Posterior
from mpibayes.hpc.svi.family import model_in_words, step_in_words
from mpibayes.hpc.svi.report.shared import Likelihood, document
from mpibayes.hpc.svi.report.summarise import ComponentLine, RunSummary, summarise
from mpibayes.hpc.svi.scalars import SCALARS
from mpibayes.io.export import csv_line
from mpibayes.text import counted, visible

TOP = 12  # components on the terminal
SHOWN = 30  # components on paper, heaviest first
SHOWN_COLUMNS = 60  # most columns of the table of means; beyond, components.csv
SHOWN_ROWS = 4000  # rows in the picture
NAMED = 3  # columns that name a component
MIN_DISTANCE = 0.5  # standard deviations: a mean closer to that of all rows is not reported
FIELDS = (
    Field("#", "whole"), Field("component", "text", "the columns whose means are farthest from all rows"),
    Field("weight", "share", digits=4), Field("rows", "whole", "of which it is the most probable component"),
    Field("share", "share", "of the rows"), Field("sure", "share", "how probable it is for these rows, on average"),
)  # fmt: skip


def make(run: Posterior) -> Document:
    """See `report.report`."""
    p = summarise(run)
    best, used, model = p.best_chain, [c for c in p.components if c.rows], run.config.of(keys.Model)
    result = [f"{counted(len(used), 'component')} with rows, of {len(p.components)}, in {counted(run.n_rows, 'row')}."]
    columns = {"in use": [f"{c.in_use:,}" for c in p.chains]}
    scored = []
    if np.isfinite(best.heldout):
        result.append(f"Held-out rows score {best.heldout:.4f} nats a row.")
        scored = [("held-out", f"{best.heldout:.4f} nats a row, under this state")]
    if any(np.isfinite(c.heldout) for c in p.chains):
        columns["held-out"] = [fixed(c.heldout, 4) for c in p.chains]
    components, figures = _components(p, used), _figures(p)
    words = "An approximation. Choose a component to see all its columns against all rows."
    parts = [on_page(words), components, *figures[1:], on_paper(*_means(p, used[:SHOWN]))]
    return document(p, Likelihood(
        found=result, what=[("rows", rows_in_words(run)), ("model", model_in_words(run.config, len(run.cells)))],
        steps=step_in_words(run.config), measures=scored, columns=columns, scalars=SCALARS,
        sections=[Section("components", "Components", parts)],
        top=[components.brief(TOP, ("#", "weight", "rows", "share", "component"), "heaviest components")],
        figures=figures, of_chains=["bound.png"], files={"components.csv": _csv(p)},
        model={"likelihood": model.likelihood, "standardise": model.standardise},
        table={"training_rows": run.n_rows, "columns": [c.name for c in run.cells.columns]},
        results={"heldout_lpd": finite(best.heldout), "components": [_machine(c) for c in p.components]},
    ))  # fmt: skip


def _components(p: RunSummary, used: list[ComponentLine]) -> Table:
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
    empty = len(p.components) - len(used)
    return Table(
        "component", FIELDS, rows, Details(columns, order, here="this component"), titles,
        f"{counted(empty, 'component')} without a row" if empty else "", SHOWN, "more in components.csv",
    )  # fmt: skip


def _apart(p: RunSummary, c: ComponentLine) -> np.ndarray:
    """Distances of a component's means from the means of all rows, (D,), in standard deviations of the columns."""
    columns = p.run.cells.columns
    return np.abs(c.mean - [column.center for column in columns]) / [column.scale for column in columns]


def _title(p: RunSummary, c: ComponentLine) -> str:
    """Name a component by the means farthest from those of all rows."""
    apart = _apart(p, c)
    most = [d for d in np.argsort(-apart, kind="stable")[:NAMED].tolist() if apart[d] >= MIN_DISTANCE]
    return ", ".join(f"{p.run.cells.columns[d].name} {c.mean[d]:.3g}" for d in most) or "near the middle of all rows"


def _means(p: RunSummary, shown: list[ComponentLine]) -> list[Any]:
    cells = p.run.cells
    if len(cells) > SHOWN_COLUMNS:
        return [f"Means of {len(cells):,} columns are in components.csv"]

    def group(c: ComponentLine) -> Group:
        return Group((f"comp. {c.number}", "sd"), [(f"{m:.3g}", f"{s:.2g}") for m, s in zip(c.mean, c.sd)])

    title = "Means and standard deviations of the components, in the table's units"
    return [title, WideTable([visible(c.name) for c in cells.columns], [group(c) for c in shown], "column")]


def _figures(p: RunSummary) -> list[Figure]:
    from mpibayes.hpc.svi.report import figures

    run = p.run
    made = [figures.bound(p)]
    if len(run.cells) > 1:
        at = np.unique(np.linspace(0, run.n_rows - 1, min(run.n_rows, SHOWN_ROWS)).astype(np.int64))
        x = run.cells.of(run.data.rows_at(at)) * run.cells.scale + run.cells.center
        names = [c.name for c in run.cells.columns]
        picture = figures.scatter(x, p.labels[at], p.components, apart(p), names)
        words = "Rows and components in the two columns in which the components differ most"
        made.append(Figure("components.png", picture, words))
    return made


def apart(p: RunSummary) -> tuple[int, int]:
    """The two columns in which the components' means vary most, relative to the column's standard deviation."""
    spread = p.law.weight @ (p.law.mean - p.law.weight @ p.law.mean) ** 2
    spread = spread * p.run.cells.scale**2 / np.array([c.scale**2 for c in p.run.cells.columns])
    first, other = np.sort(np.argsort(-spread, kind="stable")[:2]).tolist()
    return first, other


def _csv(p: RunSummary) -> str:
    """Write one line per component and column."""
    lines = [csv_line(["component", "weight", "rows", "column", "mean", "sd"])]
    for c in p.components:
        for column, mean, sd in zip(p.run.cells.columns, c.mean.tolist(), c.sd.tolist()):
            lines.append(csv_line([c.number, repr(c.weight), c.rows, column.name, repr(mean), repr(sd)]))
    return "".join(lines)


def _machine(c: ComponentLine) -> dict[str, Any]:
    """Entry of a component in summary.json."""
    return {
        "component": c.number, "weight": c.weight, "rows": c.rows, "sure": c.sure, "mean": c.mean.tolist(),
        "sd": [finite(s) for s in c.sd.tolist()], "correlation": c.correlation.tolist(),
    }  # fmt: skip
