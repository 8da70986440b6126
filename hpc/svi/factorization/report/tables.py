"""The text of the report of a factorization."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.report.tables import fixed, plain_table
from mpibayes.hpc.svi.factorization.family import model_in_words, step_in_words
from mpibayes.hpc.svi.factorization.report.summarise import RunSummary, extremes
from mpibayes.hpc.svi.report import shared
from mpibayes.text import percent, visible

SHOWN = 10  # factors, the strongest
ENDS = 4  # items at each end of a factor
LETTERS = 34  # of an item's name


def parts(p: RunSummary) -> list[Any]:
    """Parts of the printed report, in order."""
    return shared.parts(p, about(p), [share_lines(p), "", item_lines(p)], chain_lines(p))


def about(p: RunSummary) -> shared.Lines:
    run, best = p.run, p.best_chain
    measures = [("mean", f"{p.turned.center:.4f}, about which are biases and factors")]
    if np.isfinite(best.rmse):
        scores = f"RMSE {best.rmse:.4f}, log density {best.heldout:.4f} nats a rating"
        measures.append(("held-out", f"{p.n_heldout:,} ratings: {scores}, under this state"))
    model = model_in_words(run.config, len(p.names), run.n_rows, int(p.ratings.sum()))
    return shared.about(p, [("model", model)], step_in_words(run.config), measures)


def share_lines(p: RunSummary) -> Any:
    """Table of the parts of a rating: their standard deviations and shares of the variance."""
    parts = p.shares()
    total = sum(sd**2 for _, sd in parts)
    table = plain_table("part of a rating", "sd", "variance", "")
    hidden = len(p.turned.strength) - SHOWN
    for name, sd in parts:
        if not (name.startswith("factor ") and int(name.split()[1]) > SHOWN):
            table.add_row(name, f"{sd:.4f}", percent(sd**2 / total), "")
    if hidden > 0:
        table.caption, table.caption_justify = f"{hidden} weaker factors in summary.json", "left"
    return table


def item_lines(p: RunSummary) -> Any:
    """The items at both ends of the biases and of each factor."""
    from rich.table import Table

    item = p.run.table.names[1]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for name in ("", f"highest {item}s", f"lowest {item}s"):
        table.add_column(name, overflow="fold")
    columns = [("bias", p.bias)] * p.turned.biased
    columns += [(f"factor {k + 1}", p.factors[:, k]) for k in range(min(SHOWN, p.factors.shape[1]))]
    for name, values in columns:
        for i, both in enumerate(zip(*(end.tolist() for end in extremes(values, min(ENDS, len(values)))))):
            table.add_row("" if i else name, *(f"{values[j]:+.2f}  {_short(p.names[j])}" for j in both))
    return table


def _short(name: str) -> str:
    name = visible(name)
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 3]}..."


def chain_lines(p: RunSummary) -> list[Any]:
    columns = {"rating sd": [fixed(c.rating_sd, 4) for c in p.chains]}
    if any(np.isfinite(c.rmse) for c in p.chains):
        columns["RMSE"] = [fixed(c.rmse, 4) for c in p.chains]
        columns["held-out"] = [fixed(c.heldout, 4) for c in p.chains]
    return shared.chain_lines(p, columns)
