"""Report of a factorization."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.report.document import PAGE, Document, Field, Figure, Section, Table, drawn, on_page
from mpibayes.hpc.report.tables import captioned, finite, fixed, plain_table
from mpibayes.hpc.svi.factorization import keys
from mpibayes.hpc.svi.factorization.draws import Posterior
from mpibayes.hpc.svi.factorization.family import model_in_words, step_in_words
from mpibayes.hpc.svi.factorization.report.summarise import RunSummary, extremes, summarise
from mpibayes.hpc.svi.factorization.scalars import SCALARS
from mpibayes.hpc.svi.report.shared import Likelihood, document
from mpibayes.io.export import csv_line
from mpibayes.text import counted, percent, visible

SHOWN, BROWSED = 10, 12  # factors in tables, and in the page's table of items, strongest first
NAMED, LISTED = 4, 10  # items at each end of a factor in the table, and in summary.json
LETTERS = 34  # of an item's name


def make(run: Posterior) -> Document:
    """See `report.report`."""
    p = summarise(run)
    best, model, n = p.best_chain, run.config.of(keys.Model), int(p.ratings.sum())
    user, item = run.table.names[:2]
    items = counted(len(p.names), item)
    result = [
        f"{counted(len(p.turned.strength), 'factor')} of {n:,} ratings of {items} by {counted(run.n_rows, user)}."
    ]
    measures = [("mean", f"{p.turned.center:.4f}, about which are biases and factors")]
    if np.isfinite(best.rmse):
        result.append(f"{p.n_heldout:,} held-out ratings are off by {best.rmse:.4f} (root mean square).")
        scores = f"RMSE {best.rmse:.4f}, log density {best.heldout:.4f} nats a rating"
        measures.append(("held-out", f"{p.n_heldout:,} ratings: {scores}, under this state"))
    columns = {"rating sd": [fixed(c.rating_sd, 4) for c in p.chains]}
    if any(np.isfinite(c.rmse) for c in p.chains):
        columns["RMSE"] = [fixed(c.rmse, 4) for c in p.chains]
        columns["held-out"] = [fixed(c.heldout, 4) for c in p.chains]
    figures, parts = _figures(p), _parts_of_a_rating(p)
    of_ratings = [on_page("An approximation."), parts, _ends(p), *drawn(figures, "factors.png")]
    return document(p, Likelihood(
        found=result, what=[("model", model_in_words(run.config, len(p.names), run.n_rows, n))],
        steps=step_in_words(run.config), measures=measures, columns=columns, scalars=SCALARS,
        sections=[
            Section("ratings", "What a rating is made of", of_ratings), Section("items", "Items", [_items(p)], PAGE),
        ],
        top=[parts], figures=figures, of_chains=["rmse.png", "bound.png"], files={"items.csv": _csv(p)},
        model={"likelihood": model.likelihood, "rank": model.rank},
        table={
            "users": run.n_rows, "items": len(p.names), "training_ratings": n, "heldout_ratings": p.n_heldout,
        },
        results=_results(p),
    ))  # fmt: skip


def _parts_of_a_rating(p: RunSummary) -> Any:
    """Table of the parts of a rating: their standard deviations and shares of the variance."""
    parts = p.shares()
    total = sum(sd**2 for _, sd in parts)
    table = plain_table("part of a rating", "sd", "variance", "")
    hidden = len(p.turned.strength) - SHOWN
    for name, sd in parts:
        if not (name.startswith("factor ") and int(name.split()[1]) > SHOWN):
            table.add_row(name, f"{sd:.4f}", percent(sd**2 / total), "")
    return captioned(table, f"{hidden} weaker factors in summary.json" if hidden > 0 else "")


def _ends(p: RunSummary) -> Any:
    """Table of the items at both ends of the biases and of each factor."""
    item = p.run.table.names[1]
    table = plain_table("", f"highest {item}s", f"lowest {item}s")
    for column in table.columns:
        column.justify, column.no_wrap = "left", False
    columns = [("bias", p.bias)] * p.turned.biased
    columns += [(f"factor {k + 1}", p.factors[:, k]) for k in range(min(SHOWN, p.factors.shape[1]))]
    for name, values in columns:
        for i, both in enumerate(zip(*(end.tolist() for end in extremes(values, min(NAMED, len(values)))))):
            table.add_row("" if i else name, *(f"{values[j]:+.2f}  {_short(p.names[j])}" for j in both))
    return table


def _short(name: str) -> str:
    name = visible(name)
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 3]}..."


def _items(p: RunSummary) -> Table:
    n, biased = min(BROWSED, p.factors.shape[1]), p.turned.biased
    fields = [Field(p.run.table.names[1]), Field("ratings", "whole")]
    fields += [Field("bias", "number", "above the mean rating")] if biased else []
    fields += [Field(f"factor {k + 1}", "number") for k in range(n)]
    rows = [
        [p.names[j], int(p.ratings[j]), *([p.bias[j]] if biased else []), *p.factors[j, :n].tolist()]
        for j in np.argsort(-p.ratings, kind="stable").tolist()
    ]
    return Table(p.run.table.names[1], fields, rows, caption="items.csv has them all, with all factors")


def _figures(p: RunSummary) -> list[Figure]:
    from mpibayes.hpc.svi.factorization.report import figures
    from mpibayes.hpc.svi.report.figures import bound

    made = [bound(p)]
    if p.n_heldout:
        picture = figures.scores(p.run.chains, p.best.chain)
        made.append(Figure("rmse.png", picture, "RMSE of held-out ratings over cycles and seconds"))
    if p.factors.shape[1] > 1:
        picture = figures.factors(p.factors[:, :2], p.ratings, p.names)
        made.append(Figure("factors.png", picture, "Items on the two strongest factors"))
    return made


def _csv(p: RunSummary) -> str:
    """Write one line per item."""
    lines = [csv_line([p.run.table.names[1], "ratings", "bias", *(f"factor_{k + 1}" for k in range(p.run.model.rank))])]
    for name, n, bias, factors in zip(p.names, p.ratings.tolist(), p.bias.tolist(), p.factors.tolist()):
        lines.append(csv_line([name, n, f"{bias:.6g}", *(f"{x:.6g}" for x in factors)]))
    return "".join(lines)


def _results(p: RunSummary) -> dict[str, Any]:
    """Result in summary.json."""

    def ends(values: np.ndarray) -> dict[str, list[dict[str, Any]]]:
        both = extremes(values, min(LISTED, len(values)))
        named = [[{"item": p.names[j], "value": float(values[j])} for j in end.tolist()] for end in both]
        return dict(zip(("highest", "lowest"), named))

    return {
        "rmse": finite(p.best_chain.rmse),
        "heldout_lpd": finite(p.best_chain.heldout),
        "mean": p.turned.center,
        "rating_sd": float(p.best.q.variance[0] ** 0.5),
        "parts": [{"part": name, "sd": sd} for name, sd in p.shares()],
        "biases": ends(p.bias) if p.turned.biased else None,
        "factors": [
            {"factor": k + 1, "sd": float(s), **ends(p.factors[:, k])} for k, s in enumerate(p.turned.strength)
        ],
    }
