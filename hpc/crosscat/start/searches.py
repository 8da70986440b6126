"""Several searches for views; a chain starts from the best one.

A search can end in views that no later move corrects. Searches are cheap compared with chains, so a chain makes
several, each on another sample of the training rows and from another start, and starts from the one that best predicts
training rows that no search has seen (the judges). The log joint is no substitute: it rewards labels of low entropy,
and chooses no better than chance on real tables. The judges then join the chain like other rows. Chains share nothing,
so they stay independent. The start of a chain is not a draw, so the choice does not affect exactness.

A chain whose table has grown may resume, or start afresh like other chains. Its views and clusters are judged like a
search: on a sample of the rows, without the judges. The judges are then new rows, since the chain was fitted to the
old ones: of 2,000 flights it predicted old rows better than searches did by 0.2 to 1.3 nats per row, and unseen rows
by 0 to 0.2. A mixture then has searches, too: chains from one cluster.

A sample shows only clusters of which it has several rows. Four or five positions of each of 650 storms do not show that
places follow from the storm; 15 do. So where clusters of the best search are small, searches are repeated on more rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.hpc.crosscat.law import Density
from mpibayes.hpc.crosscat.laws.view_density import densities
from mpibayes.hpc.crosscat.start import newcomers
from mpibayes.hpc.crosscat.start.alone import advance, chain_on, rows_of
from mpibayes.hpc.crosscat.start.evidence import log_evidence
from mpibayes.hpc.crosscat.start.once import once
from mpibayes.hpc.crosscat.start.strategy import n_judges, n_new_judges, n_probes, rows_of_search
from mpibayes.hpc.crosscat.start.subsample import IDLE
from mpibayes.hpc.crosscat.start.views import Pilot, found_by, searched
from mpibayes.hpc.crosscat.view.pitman_yor import log_eppf
from mpibayes.hpc.crosscat.view.view import Settings
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.comm import Communicator, Serial, serial
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.hpc.parallel.tasks import run_all
from mpibayes.io.finished import Finished
from mpibayes.io.rows import Rows
from mpibayes.text import counted, enumerated

CYCLES_JUDGED = 20  # of the present chain, before it is judged
CYCLES_OF_CLUSTERS = 80  # of a search of a mixture, which only has clusters to find; 40 lose up to 0.5 nats
SMALL_CLUSTER = 32.0  # rows in the cluster of a sampled row, on average: below, more rows are needed
CLOSE_PER_ROW = 0.05  # nats per row within which few judges cannot tell searches apart


@dataclass(frozen=True)
class Present:
    """The views of a chain: the columns of each, and its labels (N,), IDLE for new rows."""

    views: Sequence[Sequence[str]]
    labels: Sequence[np.ndarray]


@dataclass(frozen=True)
class Choice:
    """The best of several searches. scores (n_searches,) float64: of each, in nats per judge; empty without judges.
    gain: of the best over the chain's views, in nats per judge; None if it had none, or they cannot be judged. found:
    by every search."""

    best: Pilot
    scores: np.ndarray
    n_judges: int
    gain: float | None = None
    found: Sequence[Pilot] = ()


def ahead_in_words(
    n_rows: int, most: int, n_searches: int, judges: int | None = None, goal: str = "views", further: int = 0
) -> str:
    """Describe searches about to begin, each on at most `most` of the training rows that do not judge. judges: their
    number, if they are new rows. goal: what is looked for. further: see `best_search`."""
    rows = rows_of_search(n_rows, most, n_judges(n_rows, n_searches) if judges is None else judges)
    more = f", and {further} more if it finds several" if further else ""
    return f"searches for {goal}: {n_searches}, on {counted(rows, 'row')}{' each' * (n_searches > 1)}{more}"


def kept_in_words(n_searches: int, finished: Finished | None, first: int = 0) -> str:
    """Describe how many searches, from number `first` on, an earlier start has finished; "" if none."""
    done = sum(finished.get(str(first + i)) is not None for i in range(n_searches)) if finished else 0
    return f"; {done} of them already done" if done else ""


def small_clusters(choice: Choice, least: float = SMALL_CLUSTER) -> bool:
    """Return True if the clusters of the best search are small in one of its views of several columns. least: rows in
    the cluster of a sampled row, on average, from which on they are not."""
    sizes = [view.statistics.size for view in choice.best.views if len(view.columns) > 1]
    return any(float((size**2).sum()) < least * float(size.sum()) for size in sizes)


def best_search(
    comm: Communicator, data: Data, settings: Settings, chain: int, n_rows: int, n_views: int, n_searches: int,
    present: Present | None = None, finished: Finished | None = None, further: int = 0, first: int = 0,
) -> Choice:  # fmt: skip
    """Return the best of n_searches, on every rank. Collective. Raises Stopped if the program is asked to stop.

    n_rows: most rows of each search, fewer if the judges leave fewer; n_views: groups of columns from which it starts;
    present: views of the chain, which are judged by new rows after cycles on the rows of the best search. finished:
    searches of earlier starts of this chain, which are not repeated; those of this start are added. further: searches
    added to a single one that finds several views; the evidence for their views on all rows chooses. first: number of
    the first search, which names its rows and streams.
    """
    unseen, n = np.arange(data.n_rows), n_judges(data.n_rows, n_searches)
    if present is not None:
        unseen = np.flatnonzero(present.labels[0] == IDLE)
        n = n_new_judges(len(unseen))
    stream = generator(settings.seed, Purpose.JUDGES, chain=chain)
    judges = np.sort(stream.choice(unseen, n, replace=False, shuffle=False))
    others = np.setdiff1d(np.arange(data.n_rows), judges, assume_unique=True)
    alone = serial(comm.asked_to_stop)
    searches = [
        partial(_search, alone, data, settings, chain, number, others, judges, n_rows, n_views)
        for number in range(first, first + n_searches + further)
    ]
    tasks = [partial(once, finished, str(n), data.columns, search) for n, search in enumerate(searches, first)]
    what = f"find views on samples of {counted(n_rows, 'row')}", "search"
    result = run_all(comm, tasks[:n_searches], *what)
    if not len(judges):
        if further and len(result[0][0].views) > 1:
            result += run_all(comm, tasks[n_searches:], *what)
        best, _ = max(result, key=lambda of: of[1].sum())
        return Choice(best, np.zeros(0), 0)
    scores = np.array([score.mean() for _, score in result])
    best = int(np.argmax(scores))
    gain = None
    if present is not None:
        task = partial(_go_on, alone, data, settings, chain, first + best, others, judges, n_rows, present)
        (before,) = run_all(comm, [task], "judge the present views")
        if before is not None:
            gain = float((result[best][1] - before).mean())
    return Choice(result[best][0], scores, len(judges), gain, [pilot for pilot, _ in result])


def _search(
    alone: Serial, data: Data, settings: Settings, chain: int, number: int, others: np.ndarray, judges: np.ndarray,
    n_rows: int, n_views: int,
) -> tuple[Pilot, np.ndarray]:  # fmt: skip
    """Run one search on a sample of the `others`; return its result, and the log density of each judge, or without
    judges the log evidence for its views and for which columns they have, (1,)."""
    seed, sample, n = _sample(settings.seed, chain, number, others, n_rows)
    mine, probed, unseen = rows_of(data, [np.sort(sample[:n]), sample[n:], judges])
    settings = replace(settings, seed=seed)
    if settings.view_concentration is None:
        mixture = chain_on(alone, data.columns, mine, settings, chain)
        mixture.start("one")
        advance(mixture, CYCLES_OF_CLUSTERS)
    else:
        mixture = searched(data.columns, mine, settings, chain, n_views, alone, probed if len(probed) else None)
    return found_by(mixture), _log_density(mixture, unseen) if len(judges) else np.array([_evidence(mixture, seed)])


def _go_on(
    alone: Serial, data: Data, settings: Settings, chain: int, number: int, others: np.ndarray, judges: np.ndarray,
    n_rows: int, present: Present,
) -> np.ndarray | None:  # fmt: skip
    """Return the log density of each judge by the present views, after CYCLES_JUDGED cycles on the rows of a search;
    None if all these rows are new."""
    seed, sample, n = _sample(settings.seed, chain, number, others, n_rows)
    places = np.sort(sample[:n])
    if (present.labels[0][places] == IDLE).all():
        return None
    mine, unseen = rows_of(data, [places, judges])
    settings = replace(settings, seed=seed)
    labels = [_renumbered(z[places]) for z in present.labels]
    new = np.flatnonzero(labels[0] == IDLE)
    if newcomers.n_in_clusters(len(new), settings.likelihood):
        labels = newcomers.joined(labels, new, newcomers.clusters(alone, data, settings, present.views, places[new]))
    mixture = chain_on(alone, data.columns, mine, settings, chain, present.views)
    mixture.start(labels)
    advance(mixture, CYCLES_JUDGED)
    return _log_density(mixture, unseen)


def _sample(seed: int, chain: int, number: int, others: np.ndarray, most: int) -> tuple[int, np.ndarray, int]:
    """Return a seed for a search (its draws differ from the chain's), its rows, and n: the first n rows are searched,
    and the rest judge its trials."""
    stream = generator(seed, Purpose.PILOT, sub=number, chain=chain)
    seed = int(stream.integers(2**63))
    n_probe = n_probes(len(others), most)
    n = min(most, len(others) - n_probe)
    return seed, others[stream.choice(len(others), n + n_probe, replace=False)], n


def _log_density(mixture: Mixture, unseen: Rows) -> np.ndarray:
    """Return the log density of rows that a chain has not seen, (n,)."""
    return Density(densities(mixture.views, mixture.linking.codings), mixture.places).log_density(unseen)


def _evidence(mixture: Mixture, seed: int) -> float:
    """Estimate the log evidence for views and their columns."""
    stream = generator(seed, Purpose.JUDGES)
    law = float(log_eppf(np.bincount(mixture.view_of_unit), *mixture.process))
    return law + sum(log_evidence(view, stream) for view in mixture.views)


def _renumbered(z: np.ndarray) -> np.ndarray:
    """Renumber labels without gaps; idle rows stay idle."""
    names = np.unique(z[z != IDLE])
    return np.where(z == IDLE, IDLE, np.searchsorted(names, z))


def in_words(
    searches: Sequence[float], judges: int, gain: float | None = None, combined: float = 0.0, merged: float = 0.0
) -> str:
    """Describe how far searches with these scores agree; if the table grew, whether the chain resumes as it was.
    combined: gain of the views that all searches were combined to over those of the best; merged: of views that became
    one for the links between their columns."""
    if gain is None:
        more = f"; combined with the others', {combined:.2g} nats a row better" if combined > 0.0 else ""
        more += f"; some merged for links between their columns, {merged:.2g} nats a row better" if merged > 0.0 else ""
        return f"views: {of_chains_in_words([searches], judges)}{more}"
    scored = f"predicts {counted(judges, 'unseen row')} better than the"
    if gain > 0.0:
        return f"starts from a new search, which {scored} existing chain, by {gain:.2f} nats a row"
    return f"continues unchanged: the chain {scored} best new search, by {-gain:.2f} nats a row"


def left_present(record: Mapping[str, Any]) -> bool | None:
    """True if a chain with this `start_record` discarded its views for a search; None if there was no choice."""
    gain = record.get("gain")
    return gain > 0.0 if isinstance(gain, float) else None


def of_chains_in_words(scores: Sequence[Sequence[float]], judges: int) -> str:
    """Describe how many searches of each chain, with these scores, were close to its best one."""
    near = [others_near(of) for of in scores]
    counts = enumerated([str(n) for n in near])
    others = f"{counts} other search{'es' * (near != [1])}" if any(near) else "no other search"
    each = " of each chain" * (len(scores) > 1)
    return (
        f"the best of {len(scores[0])} searches{each}, as scored on {counted(judges, 'row')} that none of them used; "
        f"{others} within {CLOSE_PER_ROW:g} nats a row of the best"
    )


def others_near(scores: Sequence[float]) -> int:
    """Return the number of other searches whose scores are within CLOSE_PER_ROW of the best."""
    return sum(score >= max(scores) - CLOSE_PER_ROW for score in scores) - 1


def scores_in(record: Mapping[str, Any]) -> list[float]:
    """Return the scores in a chain's `start_record`; [] if it has none, or was edited."""
    scores = record.get("searches")
    return scores if isinstance(scores, list) and all(isinstance(score, float) for score in scores) else []
