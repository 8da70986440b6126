"""The report of a factorization as the terminal and the page open it: verdict, what a rating is made of, and the items
to look up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mpibayes.hpc.report.document import Browse, Field, Section, Verdict, pictured
from mpibayes.hpc.report.drawing import Picture
from mpibayes.hpc.svi.factorization.report import tables
from mpibayes.hpc.svi.factorization.report.summarise import RunSummary
from mpibayes.hpc.svi.factorization.scalars import SCALARS
from mpibayes.hpc.svi.report import shared
from mpibayes.text import counted

FACTORS = 12  # on the page, the strongest
PICTURES = {
    **shared.PICTURES,
    "rmse.png": "RMSE of held-out ratings over cycles and seconds",
    "factors.png": "Items on the two strongest factors",
}


def verdict(p: RunSummary) -> Verdict:
    """Verdict: the result, whether the restarts agree, and what to do next."""
    n = int(p.ratings.sum())
    items, users = counted(len(p.names), p.run.table.names[1]), counted(p.run.n_rows, p.run.table.names[0])
    result = [f"{counted(len(p.turned.strength), 'factor')} of {n:,} ratings of {items} by {users}."]
    if np.isfinite(p.best_chain.rmse):
        result.append(f"{p.n_heldout:,} held-out ratings are off by {p.best_chain.rmse:.4f} (root mean square).")
    return shared.verdict(p, result)


def top(p: RunSummary) -> list[Any]:
    """Table of the parts of a rating, for the top of the page."""
    return [tables.share_lines(p)]


def sections(p: RunSummary, pictures: Mapping[str, Picture]) -> list[Section]:
    """Sections of the page below the verdict, in order."""
    n = min(FACTORS, p.factors.shape[1])
    fields = [Field(p.run.table.names[1]), Field("ratings", "whole")]
    fields += [Field("bias", "number", "above the mean rating")] if p.turned.biased else []
    fields += [Field(f"factor {k + 1}", "number") for k in range(n)]
    order = np.argsort(-p.ratings, kind="stable").tolist()
    rows = [
        [p.names[j], int(p.ratings[j]), *([p.bias[j]] if p.turned.biased else []), *p.factors[j, :n].tolist()]
        for j in order
    ]
    items = Browse(p.run.table.names[1], fields, rows, caption="items.csv has them all, with all factors")
    made = [tables.share_lines(p), tables.item_lines(p), *pictured(pictures, PICTURES, "factors.png")]
    shown = pictured(pictures, PICTURES, "rmse.png", "bound.png")
    return [
        Section("ratings", "What a rating is made of", ["An approximation.", *made]),
        Section("items", "Items", [items]),
        *shared.last_sections(p, tables.about(p), tables.chain_lines(p), shown, SCALARS),
    ]
