"""Exports of latent Dirichlet allocation besides its trace: the words of topics."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mpibayes.hpc.svi.lda.draws import Posterior
from mpibayes.io.trace import Axes

FORMS = ("topics",)


def topics(run: Posterior) -> tuple[list[str], Iterator[list[list[str]]], str]:
    """For --to topics, see `Exports.LINES`. A line for each topic and word: both, and the mean probability of the word
    in the topic; a topic's words are sorted by it."""
    best = run.best()
    law, words = run.law(best), run.table.column_ids()

    def blocks() -> Iterator[list[list[str]]]:
        share = law.size / max(1e-300, law.size.sum())
        for k, p in enumerate(law.word_given_topic.T):
            order = np.argsort(-p, kind="stable").tolist()
            n = len(order)
            yield [
                [str(k + 1)] * n, [f"{share[k]:.6g}"] * n, [words[i] for i in order],
                [f"{x:.6g}" for x in p[order].tolist()],
            ]  # fmt: skip

    where = f"cycle {best.cycle:,} of {run.chains[best.chain].folder}, of the best bound"
    return ["topic", "share", "word", "probability"], blocks(), f"means under an approximation: {where}"


def parameters(run: Posterior) -> tuple[list[dict[str, np.ndarray]], Axes]:
    """Return nothing besides the trace: states of a search are not draws."""
    return [], {}


LINES, NEEDS, TEXTS = {"topics": topics}, {}, {}
