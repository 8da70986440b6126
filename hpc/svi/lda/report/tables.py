"""The text of the report of latent Dirichlet allocation."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibayes.hpc.report.tables import fixed
from mpibayes.hpc.svi.lda.family import local_of, model_in_words, step_in_words
from mpibayes.hpc.svi.lda.report.summarise import RELEVANCE, TOP, RunSummary
from mpibayes.hpc.svi.report import shared
from mpibayes.text import counted, percent, visible

SHOWN = 50  # topics, the largest
WORDS = 8


def parts(p: RunSummary) -> list[Any]:
    """Parts of the printed report, in order."""
    return shared.parts(p, about(p), [_topics(p)], chain_lines(p))


def about(p: RunSummary) -> shared.Lines:
    run, best = p.run, p.best_chain
    tokens = p.law.size.sum()
    a_word = f", {best.bound / tokens:.4f} a word" if tokens > 0 else ""
    last = local_of(run.config).rpartition(" ")[2]
    level = "" if last == "vb" else f"; steps with {last} do not aim at it"
    measures = []
    if np.isfinite(best.perplexity):
        n = counted(len(run.data.heldout), "held-out document")
        how = "every other distinct word of each is seen, the others are scored"
        measures.append(("perplexity", f"{best.perplexity:,.1f} of {n}, under this state: {how}"))
    coherent = [t.coherence for t in p.topics if np.isfinite(t.coherence)]
    if coherent:
        measures.append(("coherence", f"{np.mean(coherent):.3f}, mean NPMI of pairs of a topic's {TOP} first words"))
    what = [("model", model_in_words(run.config, run.n_rows, run.table.n_columns))]
    return shared.about(p, what, step_in_words(run.config), measures, 1, a_word + level)


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


def chain_lines(p: RunSummary) -> list[Any]:
    columns = {"topics": [f"{c.topics:,}" for c in p.chains]}
    if any(np.isfinite(c.perplexity) for c in p.chains):
        columns["perplexity"] = [fixed(c.perplexity, 1) for c in p.chains]
    return shared.chain_lines(p, columns, 1)
