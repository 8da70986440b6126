"""Report of latent Dirichlet allocation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpibayes.hpc.report.document import PAGE, Document, Field, Figure, Section, Table, on_page
from mpibayes.hpc.report.tables import finite, fixed
from mpibayes.hpc.svi.lda import keys
from mpibayes.hpc.svi.lda.draws import Posterior
from mpibayes.hpc.svi.lda.family import local_of, model_in_words, step_in_words
from mpibayes.hpc.svi.lda.report.summarise import RELEVANCE, TOP, RunSummary, TopicLine, summarise
from mpibayes.hpc.svi.lda.scalars import SCALARS
from mpibayes.hpc.svi.report.shared import Likelihood, document
from mpibayes.io.export import csv_line
from mpibayes.text import counted

LARGEST, SHOWN = 12, 50  # topics on the terminal, and on paper
NAMING, ON_PAPER, LISTED = 6, 8, 20  # words in the name of a topic, on paper, and on the page


def _first(n: int) -> Callable[[str], str]:
    return lambda words: " ".join(words.split(" ")[:n])


FIELDS = (
    Field("#", "whole"), Field("topic", "text", "its most relevant words", PAGE),
    Field("share", "share", "of all words"),
    Field("NPMI", "number", f"coherence: of the pairs of its {TOP} most probable words, from -1 to 1", digits=2),
    Field("most probable words", "text", brief=_first(ON_PAPER)),
    Field("most relevant words", "text", f"weight {RELEVANCE:g}", brief=_first(ON_PAPER)),
)  # fmt: skip


def make(run: Posterior) -> Document:
    """See `report.report`."""
    p = summarise(run)
    best = p.best_chain
    result = [f"{counted(best.topics, 'topic')} in use, of {len(p.topics)}, in {counted(run.n_rows, 'document')}."]
    columns = {"topics": [f"{c.topics:,}" for c in p.chains]}
    measures = []
    if np.isfinite(best.perplexity):
        result.append(f"Held-out words have a perplexity of {best.perplexity:,.1f}.")
        n = counted(len(run.data.heldout), "held-out document")
        how = "every other distinct word of each is seen, the others are scored"
        measures.append(("perplexity", f"{best.perplexity:,.1f} of {n}, under this state: {how}"))
    if any(np.isfinite(c.perplexity) for c in p.chains):
        columns["perplexity"] = [fixed(c.perplexity, 1) for c in p.chains]
    coherent = [t.coherence for t in p.topics if np.isfinite(t.coherence)]
    if coherent:
        measures.append(("coherence", f"{np.mean(coherent):.3f}, mean NPMI of pairs of a topic's {TOP} first words"))
    topics, figures = _topics(p), _figures(p)
    words = "An approximation. Search for a word to see the topics that have it among their first."
    return document(p, Likelihood(
        found=result, what=[("model", model_in_words(run.config, run.n_rows, run.table.n_columns))],
        steps=step_in_words(run.config), measures=measures, after_bound=_after_bound(p), digits=1, columns=columns,
        scalars=SCALARS, sections=[Section("topics", "Topics", [on_page(words), topics, *figures[1:]])],
        top=[topics.brief(LARGEST, ("#", "share", "topic"), "largest topics, by their most relevant words")],
        figures=figures, of_chains=["bound.png"], files={"topics.csv": _csv(p)},
        model={"likelihood": run.config.of(keys.Model).likelihood},
        table={"training_documents": run.n_rows, "words": len(p.vocabulary)},
        results={"perplexity": finite(best.perplexity), "topics": [_machine(p, t) for t in p.topics]},
    ))  # fmt: skip


def _after_bound(p: RunSummary) -> str:
    tokens = p.law.size.sum()
    a_word = f", {p.best_chain.bound / tokens:.4f} a word" if tokens > 0 else ""
    last = local_of(p.run.config).rpartition(" ")[2]
    return a_word + ("" if last == "vb" else f"; steps with {last} do not aim at it")


def _topics(p: RunSummary) -> Table:
    def first(words: np.ndarray, n: int) -> str:
        return " ".join(p.vocabulary[i] for i in words[:n].tolist())

    rows = [
        [t.number, first(t.relevant, NAMING), t.share, t.coherence, first(t.words, LISTED), first(t.relevant, LISTED)]
        for t in p.topics
    ]
    return Table("topic", FIELDS, rows, caption="topics.csv has more words", most=SHOWN, more="smaller ones")


def _figures(p: RunSummary) -> list[Figure]:
    from mpibayes.hpc.svi.lda.report.figures import topics
    from mpibayes.hpc.svi.report.figures import bound

    return [bound(p), Figure("topics.png", topics(p), "Topics and their words")]


def _csv(p: RunSummary) -> str:
    """Write one line per topic and each of its first words."""
    lines = [csv_line(["topic", "share", "coherence", "place", "word", "probability", "relevant_word", "relevance"])]
    for t in p.topics:
        for place, (i, j) in enumerate(zip(t.words.tolist(), t.relevant.tolist()), 1):
            k = t.number - 1
            lines.append(
                csv_line([
                    t.number, f"{t.share:.6g}", f"{t.coherence:.4f}", place, p.vocabulary[i],
                    f"{p.probability[i, k]:.6g}", p.vocabulary[j], f"{p.relevance[j, k]:.4f}",
                ])
            )  # fmt: skip
    return "".join(lines)


def _machine(p: RunSummary, t: TopicLine) -> dict:
    """Entry of a topic in summary.json."""
    return {
        "topic": t.number, "share": t.share, "alpha": t.alpha, "coherence": finite(t.coherence),
        "words": [p.vocabulary[i] for i in t.words[:TOP].tolist()],
        "relevant": [p.vocabulary[i] for i in t.relevant[:TOP].tolist()],
    }  # fmt: skip
