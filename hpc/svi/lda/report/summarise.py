"""Summary behind the report of latent Dirichlet allocation: computed from the traces, the kept states and the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.svi import keys
from mpibayes.hpc.svi.lda.draws import Kept, Posterior
from mpibayes.hpc.svi.lda.family import local_of
from mpibayes.hpc.svi.lda.law import Law
from mpibayes.hpc.svi.lda.model import n_used
from mpibayes.hpc.svi.report import chains
from mpibayes.hpc.svi.report.chains import OfChains, last_and_best, last_score, line, step_warnings
from mpibayes.io.sparse import SparseTable

TOP = 10  # words of a topic that its coherence uses
LISTED = 50  # words per topic in topics.csv
RELEVANCE = 0.6  # weight of the log probability; the rest is that of the log lift (Sievert & Shirley 2014)


@dataclass(frozen=True)
class TopicLine:
    """A topic of the best state, numbered from 1, the largest first. share: of all words. alpha: its prior in a
    document. words, relevant: indices of its words, by probability and by relevance. coherence: mean NPMI of its TOP
    most probable words, NaN if no pair can be computed."""

    number: int
    share: float
    alpha: float
    words: np.ndarray
    relevant: np.ndarray
    coherence: float


@dataclass(frozen=True)
class ChainSummary(chains.ChainSummary):
    """Summary of a chain. topics: number in use."""

    topics: int
    perplexity: float


@dataclass
class RunSummary(OfChains):
    """Everything that a report shows. probability (V, K): of words in topics. tokens: number of words of the training
    documents."""

    run: Posterior
    best: Kept
    law: Law
    chains: list[ChainSummary]
    vocabulary: list[str]
    probability: np.ndarray
    relevance: np.ndarray
    topics: list[TopicLine]
    warnings: list[str] = field(default_factory=list)


def summarise(run: Posterior) -> RunSummary:
    """Compute everything that the report shows."""
    last, best = last_and_best(run)
    law = run.law(best)
    p = law.word_given_topic
    share = law.size / max(1e-300, law.size.sum())
    lift = np.log(p) - np.log(np.maximum(p @ share, 1e-300))[:, None]
    relevance = RELEVANCE * np.log(p) + (1.0 - RELEVANCE) * lift
    ordered, by_relevance = (np.argsort(-x, axis=0, kind="stable")[:LISTED] for x in (p, relevance))
    coherent = coherences(run.table, ordered[:TOP].T)
    topics = [
        TopicLine(k + 1, float(share[k]), float(law.q.alpha[k]), ordered[:, k], by_relevance[:, k], float(coherent[k]))
        for k in range(len(share))
    ]
    summary = RunSummary(
        run, best, law, [_chain(run, kept) for kept in last], run.table.column_ids(), p, relevance, topics
    )  # fmt: skip
    step = run.config.of(keys.Step)
    summary.warnings = step_warnings(summary.best_chain, len(last), step, _better(run.chains[best.chain].trace))
    if local_of(run.config) == "linear":
        summary.warnings.append(
            'the local step is "linear", which does not ascend the bound, and overfits where it goes on for long; '
            '"linear, then vb" ends with steps that do'
        )
    return summary


def _chain(run: Posterior, kept: Kept) -> ChainSummary:
    chain = run.chains[kept.chain]
    return ChainSummary(
        **line(chain, kept, len(kept.q.alpha)), topics=n_used(kept.q, run.eta),
        perplexity=last_score(chain, "perplexity"),
    )  # fmt: skip


def _better(t: Mapping[str, np.ndarray]) -> float:
    """Relative fall of the perplexity in the last tenth of a chain's cycles; NaN if unknown."""
    known = np.isfinite(t["perplexity"])
    cycle, perplexity = t["cycle"][known], t["perplexity"][known]
    early = perplexity[cycle <= 0.9 * t["cycle"][-1]]
    return float(1.0 - perplexity[-1] / early[-1]) if len(early) else np.nan


def coherences(table: SparseTable, words: np.ndarray) -> np.ndarray:
    """Mean normalised pointwise mutual information of all pairs of each topic's words (K, n), in documents of the
    table, in [-1, 1] (Röder, Both & Hinneburg 2015). Pairs that never occur together count -1."""
    import scipy.sparse

    used, place = np.unique(words, return_inverse=True)
    number = np.full(table.n_columns, -1, np.int64)
    number[used] = np.arange(len(used))
    both = np.zeros((len(used), len(used)))
    for _, rows in table.slices():
        kept = (number[rows.columns] >= 0) & (rows.values > 0)
        at = (rows.row_of()[kept], number[rows.columns[kept]])
        there = scipy.sparse.csr_array((np.ones(kept.sum()), at), (len(rows), len(used)))
        both += (there.T @ there).toarray()
    n, alone = table.n_rows, np.diag(both)
    i, j = np.triu_indices(words.shape[1], 1)
    if not len(i):
        return np.full(len(words), np.nan)
    place = place.reshape(words.shape)
    a, b = place[:, i], place[:, j]
    together = both[a, b] / n
    with np.errstate(divide="ignore", invalid="ignore"):
        npmi = np.log(together / (alone[a] * alone[b] / n**2)) / -np.log(together)
    npmi = np.where(together <= 0, -1.0, np.where(together >= 1, 1.0, npmi))
    return npmi.mean(axis=1)
