"""The report of latent Dirichlet allocation as the terminal and the page open it: verdict, topics, and where to look
them up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mpibayes.hpc.report.document import Browse, Field, Section, Verdict, pictured
from mpibayes.hpc.report.drawing import Picture
from mpibayes.hpc.report.tables import plain_table
from mpibayes.hpc.svi.lda.report import tables
from mpibayes.hpc.svi.lda.report.summarise import RELEVANCE, TOP, RunSummary, TopicLine
from mpibayes.hpc.svi.lda.scalars import SCALARS
from mpibayes.hpc.svi.report import shared
from mpibayes.text import counted, percent

LARGEST, FIRST = 12, 6  # topics on the terminal, and words of each
NAMING, WORDS = 4, 20  # words in the name of a topic, and those listed on the page
PICTURES = {**shared.PICTURES, "topics.png": "Topics and their words"}
OF_TOPICS = (
    Field("#", "whole"), Field("topic", "text", "its most relevant words"), Field("share", "share", "of all words"),
    Field("NPMI", "number", f"coherence: of the pairs of its {TOP} most probable words, from -1 to 1"),
    Field("most probable words", "text"), Field("most relevant words", "text", f"weight {RELEVANCE:g}"),
)  # fmt: skip


def verdict(p: RunSummary) -> Verdict:
    """Verdict: the result, whether the restarts agree, and what to do next."""
    n, best = p.best_chain.topics, p.best_chain
    result = [f"{counted(n, 'topic')} in use, of {len(p.topics)}, in {counted(p.run.n_rows, 'document')}."]
    if np.isfinite(best.perplexity):
        result.append(f"Held-out words have a perplexity of {best.perplexity:,.1f}.")
    return shared.verdict(p, result)


def _words(p: RunSummary, t: TopicLine, most: int, relevant: bool) -> str:
    return " ".join(p.vocabulary[i] for i in (t.relevant if relevant else t.words)[:most].tolist())


def top(p: RunSummary) -> list[Any]:
    """The largest topics."""
    from mpibayes.terminal import Text

    table = plain_table("#", "share", "")
    table.columns[0].justify, table.columns[-1].header = "right", "largest topics, by their most relevant words"
    for t in p.topics[:LARGEST]:
        table.add_row(str(t.number), percent(t.share), Text(_words(p, t, FIRST, True)))
    if len(p.topics) > LARGEST:
        table.caption, table.caption_justify = f"{len(p.topics) - LARGEST:,} more", "left"
    return [table]


def sections(p: RunSummary, pictures: Mapping[str, Picture]) -> list[Section]:
    """Sections of the page below the verdict, in order."""
    rows = [
        [
            t.number, _words(p, t, NAMING, True), t.share, t.coherence, _words(p, t, WORDS, False),
            _words(p, t, WORDS, True),
        ]
        for t in p.topics
    ]  # fmt: skip
    words = "An approximation. Search for a word to see the topics that have it among their first."
    topics = [words, Browse("topic", OF_TOPICS, rows, caption="topics.csv has more words")]
    shown = pictured(pictures, PICTURES, "bound.png")
    return [
        Section("topics", "Topics", [*topics, *pictured(pictures, PICTURES, "topics.png")]),
        *shared.last_sections(p, tables.about(p), tables.chain_lines(p), shown, SCALARS),
    ]
