"""The report of an Indian buffet process as the terminal and the page open it: the verdict, the features, and sections
to look them up in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mpibayes.hpc.ibp.keys import Report as ReportKeys
from mpibayes.hpc.ibp.report import tables
from mpibayes.hpc.ibp.report.summarise import FeatureLine, RunSummary
from mpibayes.hpc.ibp.scalars import SCALARS
from mpibayes.hpc.posterior.scalars import r_hat_in_words
from mpibayes.hpc.report.document import (
    BAD,
    DOUBT,
    GOOD,
    Browse,
    Details,
    Field,
    Numbers,
    Section,
    Traces,
    Verdict,
    pictured,
)
from mpibayes.hpc.report.drawing import Picture
from mpibayes.hpc.report.tables import head, plain_table, sentence, use_it, warned
from mpibayes.text import counted, percent

TOP = 12  # features on the terminal
NAMED = 3  # columns of a feature
APART = 1.1  # R-hat of the log joint beyond which chains contradict each other
PICTURES = {
    "features.png": "Features: share of the rows, and their loadings",
    "rows.png": "Rows, and below them what their features make of them",
}
OF_FEATURES = (
    Field("#", "whole"), Field("feature", "text", "its largest loadings, in the table's units"),
    Field("rows", "whole"), Field("share", "share", "of the rows"),
    Field("in draws", "share", "share of the draws that have a match"),
    Field("same rows", "share", "of the rows that have it or its match, those that have both"),
)  # fmt: skip


def verdict(p: RunSummary) -> Verdict:
    """Verdict: the result, whether the chains agree, and what to do next."""
    several, joint = len(p.chains) > 1, p.scalars.get("log_joint")
    r_hat = joint.r_hat if joint is not None else np.nan
    if contradicted(len(p.chains), r_hat):
        sound = BAD
    else:
        sound = GOOD if several and p.settled.settled and not p.warnings else DOUBT
    if several:
        agree = "too few draws to say" if not np.isfinite(r_hat) else "Yes" if r_hat <= APART else "No"
        chains = [f"{agree}: R-hat of the log joint of {len(p.chains)} chains is {r_hat_in_words(r_hat)}."]
    else:
        chains = ["One chain only, which cannot show that it is stuck."]
    chains.append(f"Settled? {sentence(str(p.settled))} {p.settled.meaning}".rstrip())
    steps = [] if several else ["Run more than one chain (run.chains = 2), so that they can be compared."]
    steps += use_it(p.run, sound)
    return Verdict(_found(p), chains, steps, sound, warnings=warned(p.warnings))


def contradicted(n_chains: int, r_hat: float) -> bool:
    """True if chains contradict each other, by R-hat of the log joint."""
    return n_chains > 1 and r_hat > APART


def _found(p: RunSummary) -> list[str]:
    sentences = [] if p.run.likelihood else ["Draws of the prior: the cells were ignored (model.likelihood = false)."]
    sentences.append(
        f"Features of {counted(p.run.n_rows, 'row')} of {counted(len(p.run.cells), 'column')}: {tables.verdict(p)}."
    )
    for name, (label, words) in tables.AVERAGES.items():
        if name in p.averaged:
            sentences.append(f"{label}: {p.averaged[name]:.3f} ({words}).")
    return [sentence(s.removesuffix(".")) for s in sentences]


def _title(p: RunSummary, f: FeatureLine) -> str:
    """The columns of its largest loadings; of pixels nothing, for their names say little."""
    if not p.run.likelihood or p.run.chains[0].config.of(ReportKeys).image is not None:
        return f"feature {f.number}"
    columns = p.run.cells.columns
    most = np.argsort(-np.abs(f.loadings / p.run.cells.scale), kind="stable")[:NAMED]
    return ", ".join(f"{columns[d].name} {f.loadings[d]:+.3g}" for d in most)


def top(p: RunSummary) -> list[Any]:
    """The features that most rows have."""
    from mpibayes.terminal import Text

    if not p.features:
        return []
    table = plain_table("#", "rows", "share", "in draws", "")
    table.columns[0].justify, table.columns[-1].header = "right", "features of most rows"
    for f in p.features[:TOP]:
        table.add_row(str(f.number), f"{f.rows:,}", percent(f.share), percent(f.stability), Text(_title(p, f)))
    if len(p.features) > TOP:
        table.caption, table.caption_justify = f"{len(p.features) - TOP:,} more", "left"
    return [table]


def sections(p: RunSummary, pictures: Mapping[str, Picture]) -> list[Section]:
    """Sections of the page below the verdict, in order."""
    made = (
        [Section("features", "Features", [*_features(p), *pictured(pictures, PICTURES, "features.png")])]
        if p.features
        else []
    )
    if p.features:
        made.append(
            Section(
                "rows",
                "Rows",
                [tables.combination_lines(p), *pictured(pictures, PICTURES, "rows.png"), *tables.together(p)],
            )
        )
    parts = [
        Traces(p.run.chains, SCALARS),
        tables.scalar_lines(p),
        "How many features the draws have:",
        tables.counts(p),
    ]
    parts += [tables.chain_lines(p)] if len(p.chains) > 1 else []
    made.append(Section("chains", "Chains", parts))
    return [*made, Section("about", "What was run", [head(p.run.chains, tables.about(p))])]


def _features(p: RunSummary) -> list[Any]:
    r = p.representative
    words = f"Features of the representative draw (cycle {r.draw.cycle:,} of {p.run.chains[r.chain].name})."
    rows = [[f.number, _title(p, f), f.rows, f.share, f.stability, f.alike] for f in p.features]
    details = None
    if p.run.likelihood:
        loadings, errors = (np.array([getattr(f, name) for f in p.features]) for name in ("loadings", "errors"))
        columns = [
            Numbers(c.name, (0.0, c.scale), loadings[:, d], errors[:, d], np.abs(loadings[:, d]) / c.scale)
            for d, c in enumerate(p.run.cells.columns)
        ]
        order = "how large the loading is, in standard deviations of the column"
        details = Details(columns, order, "0, with the column's standard deviation", "the loading, with its error")
        words += " Choose one to see its loadings on all columns."
    titles = [f"Feature {f.number} ({f.rows:,} rows, {percent(f.share)})" for f in p.features]
    return [words, Browse("feature", OF_FEATURES, rows, details, titles)]
