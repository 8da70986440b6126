"""Several searches for views, of which a chain goes on with the best.

A search can end in views that no later move mends. Searches are cheap beside chains, so a chain makes several, each on
a sample of the training rows and from a start of its own, and goes on with the one that best predicts training rows
that no search has seen (the judges). The log joint would not do: it rewards labels of low entropy, and is no better
than chance on real tables. Judges then join the chain as any other rows. Chains share nothing, so they stay
independent. A start is no draw: the choice touches no exactness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.law import Density
from mpibayes.hpc.crosscat.start.strategy import n_judges, n_probes, rows_of_search
from mpibayes.hpc.crosscat.start.views import Pilot, found_by, searched
from mpibayes.hpc.crosscat.view import Settings
from mpibayes.hpc.crosscat.view_density import densities
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.comm import Communicator, Serial, serial
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.hpc.parallel.tasks import run_all
from mpibayes.text import counted, enumerated

CLOSE = 0.05  # nats a row: searches as near as that to the best are as good, up to the noise of few judges


@dataclass(frozen=True)
class Choice:
    """The best of some searches. scores: of each, nats a judge (n_searches,) float64; none where there was one."""

    best: Pilot
    scores: np.ndarray
    n_judges: int


def ahead_in_words(n_rows: int, most: int, n_searches: int) -> str:
    """Describe searches that are about to begin, each on `most` of the training rows that do not judge, if so many."""
    rows = rows_of_search(n_rows, most, n_searches)
    return f"searches for views: {n_searches}, on {counted(rows, 'row')}{' each' * (n_searches > 1)}"


def best_search(
    comm: Communicator, data: Data, settings: Settings, chain: int, n_rows: int, n_views: int, n_searches: int
) -> Choice:
    """Return the best of n_searches, on every rank. Collective. Raises Stopped where the program is to stop before.

    n_rows: rows of each search, at most; n_views: groups of columns from which it starts. Where there are hardly more
    rows than judges, searches have what is left.
    """
    judges = np.zeros(0, np.int64)
    if n_judges(data.n_rows, n_searches):
        stream = generator(settings.seed, Purpose.JUDGES, chain=chain)
        judges = np.sort(stream.choice(data.n_rows, n_judges(data.n_rows, n_searches), replace=False, shuffle=False))
    others = np.setdiff1d(np.arange(data.n_rows), judges, assume_unique=True)
    tasks = [
        partial(_search, serial(comm.asked_to_stop), data, settings, chain, number, others, judges, n_rows, n_views)
        for number in range(n_searches)
    ]
    result = run_all(comm, tasks, f"find views on samples of {counted(n_rows, 'row')}")
    scores = np.array([score for _, score in result])
    best = int(np.argmax(scores)) if len(judges) else 0
    return Choice(result[best][0], scores if len(judges) else np.zeros(0), len(judges))


def _search(
    alone: Serial, data: Data, settings: Settings, chain: int, number: int, others: np.ndarray, judges: np.ndarray,
    n_rows: int, n_views: int,
) -> tuple[Pilot, float]:  # fmt: skip
    """Run one search on some of the `others`; its result, and its score: nats a judge."""
    stream = generator(settings.seed, Purpose.PILOT, sub=number, chain=chain)
    seed = int(stream.integers(2**63))  # the search's draws are not those of the chain
    n_probe = n_probes(len(others), n_rows)
    n = min(n_rows, len(others) - n_probe)
    sample = others[stream.choice(len(others), n + n_probe, replace=False)]
    places = np.concatenate([np.sort(sample[:n]), sample[n:], judges])
    order = np.argsort(places)
    rows = data.rows_at(places[order]).take(np.argsort(order))
    mine, probed, unseen = (rows.take(part) for part in (slice(n), slice(n, n + n_probe), slice(n + n_probe, None)))
    mixture = searched(
        data.columns, mine, replace(settings, seed=seed), chain, n_views, alone, probed if n_probe else None
    )
    if not len(judges):
        return found_by(mixture), 0.0
    parts = densities(mixture.views, mixture.linking.codings)
    return found_by(mixture), float(Density(parts, mixture.places).log_density(unseen).mean())


def in_words(searches: Sequence[float], judges: int) -> str:
    """Describe how far searches with these scores agree."""
    return f"views: {of_chains_in_words([searches], judges)}"


def of_chains_in_words(scores: Sequence[Sequence[float]], judges: int) -> str:
    """Describe how many searches of each chain, with these scores, came near to its best one."""
    near = [others_near(of) for of in scores]
    counts = enumerated([str(n) for n in near])
    others = f"{counts} other{'s' * (near != [1])}" if any(near) else "no other"
    each = " of each chain" * (len(scores) > 1)
    return (
        f"the best of {len(scores[0])} searches{each}, by the score of {counted(judges, 'row')} unseen by all; "
        f"{others} within {CLOSE:g} nats a row of it"
    )


def others_near(scores: Sequence[float]) -> int:
    """Return the number of searches that are as good as the best, up to CLOSE, without itself."""
    return sum(score >= max(scores) - CLOSE for score in scores) - 1


def scores_in(record: Mapping[str, Any]) -> list[float]:
    """Return the scores in a chain's `start_record`; [] where it has none, or was edited."""
    scores = record.get("searches")
    return scores if isinstance(scores, list) and all(isinstance(score, float) for score in scores) else []
