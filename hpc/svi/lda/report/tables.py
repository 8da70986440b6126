"""The text of the report of latent Dirichlet allocation."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.posterior.tables import fixed, head, not_started, shards, span, states, warnings_in_words
from mpibayes.hpc.posterior.wide_table import chain_table
from mpibayes.hpc.svi.lda.family import local_of, model_in_words, step_in_words
from mpibayes.hpc.svi.lda.report.summarise import RELEVANCE, TOP, RunSummary
from mpibayes.hpc.svi.report.tables import NEAREST
from mpibayes.text import counted, percent, took, visible

SHOWN = 50  # topics, the largest
WORDS = 8


def parts(p: RunSummary) -> list[Any]:
    """What is printed, in order."""
    shown = [head(p.run.chains, about(p)), "", _topics(p)]
    if p.warnings:
        shown += ["", warnings_in_words(p.warnings)]
    return [*shown, "", chain_lines(p)] if len(p.chains) > 1 else shown


def about(p: RunSummary) -> list[tuple[str, str]]:
    run, best = p.run, p.best_chain
    several = f", {len(p.chains)} chains" if len(p.chains) > 1 else ""
    which = f" of {best.name}, the best of {len(p.chains)}" if several else ""
    tokens = p.law.size.sum()
    a_word = f", {best.bound / tokens:.4f} a word" if tokens > 0 else ""
    last = local_of(run.config).rpartition(" ")[2]
    level = "" if last == "vb" else f"; steps with {last} do not aim at it"
    lines = [
        ("table", str(run.table.path)), ("model", model_in_words(run.config, run.n_rows, run.table.n_columns)),
        ("steps", f"{step_in_words(run.config)} ({shards(run.config)})"),
        ("cycles", f"{span([c.cycles for c in p.chains])}{several}, {states(run.chains)}"),
        *not_started(run.chains),
        ("time", f"{took(sum(c.seconds for c in p.chains))}{' of all chains' if several else ''} in cycles"),
        ("bound", f"{best.bound:,.1f} nats{which}, cycle {best.kept:,}{a_word}{level}"),
    ]  # fmt: skip
    if np.isfinite(best.perplexity):
        n = counted(len(run.data.heldout), "held-out document")
        how = "every other distinct word of each is seen, the others are scored"
        lines.append(("perplexity", f"{best.perplexity:,.1f} of {n}, under this state: {how}"))
    coherent = [t.coherence for t in p.topics if np.isfinite(t.coherence)]
    if coherent:
        lines.append(("coherence", f"{np.mean(coherent):.3f}, mean NPMI of pairs of a topic's {TOP} first words"))
    return [*lines, ("approximation", NEAREST)]


def _topics(p: RunSummary) -> Any:
    """A line a topic."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for name in ("topic", "share", "NPMI"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("most probable words", f"most relevant words (weight {RELEVANCE:g})"):
        table.add_column(name, overflow="fold")
    for t in p.topics[:SHOWN]:
        words = (" ".join(visible(p.vocabulary[i]) for i in of[:WORDS]) for of in (t.words, t.relevant))
        table.add_row(str(t.number), percent(t.share), fixed(t.coherence, 2), *words)
    if len(p.topics) > SHOWN:
        table.caption, table.caption_justify = f"{len(p.topics) - SHOWN:,} smaller ones in topics.csv", "left"
    return table


def chain_lines(p: RunSummary) -> Any:
    best = p.best_chain
    columns = {
        "chains": [f"{c.name}{' *' if c is best else ''}" for c in p.chains],
        "cycles": [f"{c.cycles:,}" for c in p.chains], "time": [took(c.seconds) for c in p.chains],
        "bound": [fixed(c.bound, 1) for c in p.chains],
        "below the best": [fixed(best.bound - c.bound, 1) for c in p.chains],
        "topics": [f"{c.topics:,}" for c in p.chains],
    }  # fmt: skip
    if any(np.isfinite(c.perplexity) for c in p.chains):
        columns["perplexity"] = [fixed(c.perplexity, 1) for c in p.chains]
    if any(c.guarded for c in p.chains):
        columns["guarded"] = [percent(c.guarded) for c in p.chains]
    return chain_table(columns)
