"""The report of latent Dirichlet allocation: its text, its pictures, topics.csv and summary.json."""

from __future__ import annotations

from typing import Any

from mpibayes.hpc.report.drawing import Picture
from mpibayes.hpc.report.tables import Report, finite
from mpibayes.hpc.svi.lda import keys
from mpibayes.hpc.svi.lda.draws import Posterior
from mpibayes.hpc.svi.lda.report.sections import sections, top, verdict
from mpibayes.hpc.svi.lda.report.summarise import TOP, RunSummary, summarise
from mpibayes.hpc.svi.lda.report.tables import parts
from mpibayes.hpc.svi.report import shared
from mpibayes.io.export import csv_line


def make(run: Posterior) -> Report:
    """See `report.report`."""
    summary = summarise(run)
    pictures = _pictures(summary)
    return Report(
        lambda: parts(summary), _machine(summary, list(pictures)), pictures, {"topics.csv": _csv(summary)},
        verdict=verdict(summary), top=lambda: top(summary), sections=lambda: sections(summary, pictures),
        chains=run.chains,
    )  # fmt: skip


def _pictures(p: RunSummary) -> dict[str, Picture]:
    """File names and PNG bytes."""
    from mpibayes.hpc.svi.lda.report.figures import topics
    from mpibayes.hpc.svi.report.figures import bounds

    return {"bound.png": bounds(p.run.chains, p.best.chain), "topics.png": topics(p)}


def _csv(p: RunSummary) -> str:
    """A line for each topic and each of its first words."""
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


def _machine(p: RunSummary, pictures: list[str]) -> dict[str, Any]:
    """summary.json."""
    topics = [
        {
            "topic": t.number, "share": t.share, "alpha": t.alpha, "coherence": finite(t.coherence),
            "words": [p.vocabulary[i] for i in t.words[:TOP].tolist()],
            "relevant": [p.vocabulary[i] for i in t.relevant[:TOP].tolist()],
        }
        for t in p.topics
    ]  # fmt: skip
    of_model = {"likelihood": p.run.config.of(keys.Model).likelihood}
    table = {"training_documents": p.run.n_rows, "words": len(p.vocabulary)}
    results = {"perplexity": finite(p.best_chain.perplexity), "topics": topics}
    return shared.document(p, pictures, of_model, table, results)
