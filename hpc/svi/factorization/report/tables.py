"""The text of the report of a factorization."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.posterior.tables import (
    fixed,
    head,
    not_started,
    plain_table,
    shards,
    span,
    states,
    warnings_in_words,
)  # fmt: skip
from mpibayes.hpc.posterior.wide_table import chain_table
from mpibayes.hpc.svi.factorization.family import model_in_words, step_in_words
from mpibayes.hpc.svi.factorization.report.summarise import RunSummary, extremes
from mpibayes.hpc.svi.report.tables import NEAREST
from mpibayes.text import percent, took, visible

SHOWN = 10  # factors, the strongest
ENDS = 4  # items at each end of a factor
LETTERS = 34  # of an item's name


def parts(p: RunSummary) -> list[Any]:
    """What is printed, in order."""
    shown = [head(p.run.chains, about(p)), "", share_lines(p), "", item_lines(p)]
    if p.warnings:
        shown += ["", warnings_in_words(p.warnings)]
    return [*shown, "", chain_lines(p)] if len(p.chains) > 1 else shown


def about(p: RunSummary) -> list[tuple[str, str]]:
    run, best = p.run, p.best_chain
    several = f", {len(p.chains)} chains" if len(p.chains) > 1 else ""
    which = f" of {best.name}, the best of {len(p.chains)}" if several else ""
    end = f"; no gain after cycle {best.still_after:,}" if best.still_after is not None else ""
    n = int(p.ratings.sum())
    lines = [
        ("table", str(run.table.path)), ("model", model_in_words(run.config, len(p.names), run.n_rows, n)),
        ("steps", f"{step_in_words(run.config)} ({shards(run.config)})"),
        ("cycles", f"{span([c.cycles for c in p.chains])}{several}, {states(run.chains)}"),
        *not_started(run.chains),
        ("time", f"{took(sum(c.seconds for c in p.chains))}{' of all chains' if several else ''} in cycles"),
        ("bound", f"{best.bound:,.3f} nats{which}, cycle {best.kept:,}{end}"),
        ("mean", f"{p.turned.center:.4f}, about which are biases and factors"),
    ]  # fmt: skip
    if np.isfinite(best.rmse):
        scores = f"RMSE {best.rmse:.4f}, log density {best.heldout:.4f} nats a rating"
        lines.append(("held-out", f"{p.n_heldout:,} ratings: {scores}, under this state"))
    return [*lines, ("approximation", NEAREST)]


def share_lines(p: RunSummary) -> Any:
    """What a rating is made of."""
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


def chain_lines(p: RunSummary) -> Any:
    best = p.best_chain
    columns = {
        "chains": [f"{c.name}{' *' if c is best else ''}" for c in p.chains],
        "cycles": [f"{c.cycles:,}" for c in p.chains], "time": [took(c.seconds) for c in p.chains],
        "bound": [fixed(c.bound, 3) for c in p.chains],
        "below the best": [fixed(best.bound - c.bound, 3) for c in p.chains],
        "rating sd": [fixed(c.rating_sd, 4) for c in p.chains],
    }  # fmt: skip
    if any(np.isfinite(c.rmse) for c in p.chains):
        columns["RMSE"] = [fixed(c.rmse, 4) for c in p.chains]
        columns["held-out"] = [fixed(c.heldout, 4) for c in p.chains]
    if any(c.guarded for c in p.chains):
        columns["guarded"] = [percent(c.guarded) for c in p.chains]
    return chain_table(columns)
