"""Rows drawn from the posterior predictive distribution, given values of some columns.

A row first picks a draw, with probability proportional to that of the given values, then a cluster in each view, then
its cells. Row i depends only on the seed, the question and its number, so fewer rows are the first of more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.events import Known
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.hpc.parallel.together import dealt
from mpibayes.hpc.query import average
from mpibayes.hpc.query.absent import NeverThere, drawn_known
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.conditional import values
from mpibayes.hpc.query.conditions import Item
from mpibayes.hpc.query.logp import described, words
from mpibayes.hpc.query.new_rows import NewRows
from mpibayes.hpc.query.question import Question
from mpibayes.hpc.query.support import never_negative, tails
from mpibayes.text import counted


@dataclass(frozen=True, eq=False)
class Simulate(Question):
    """n rows with the given values; or `rows`, with missing cells drawn given the others. columns: to draw, all by
    default."""

    n: int = 10
    given: Sequence[Item] = ()
    columns: Sequence[str] = ()
    seed: int = 1
    KNOWS_OUTCOME = True

    def answer(self, asking: Asking, rows: NewRows | None = None) -> Answer:
        drawn_names = asking.conditions.names(self.columns) or [c.name for c in asking.columns]
        never = NeverThere(asking)
        if rows is None:
            known = described(asking, self.given, "--given", None)
            parts, first = [simulated(asking, known, drawn_names, self.n, self.seed)], self.n
        else:
            parts, first = [], 0
            for batch in rows.batches():
                known = described(asking, self.given, "--given", batch)
                known = asking.known(batch.rows, [m for m in batch.there(asking) if m not in known.of]).join(known)
                parts.append(simulated(asking, known, drawn_names, len(batch.rows), self.seed, first))
                first += len(batch.rows)
        drawn = {name: np.concatenate([part[name] for part in parts]) for name in drawn_names}
        never.look(drawn_names, drawn_known(asking, drawn))
        columns = {c.name: values(c, drawn[c.name]) for c in asking.columns if c.name in drawn}
        title = f"{counted(first, 'row')} given {words(known) or 'nothing'}, seed {self.seed}"
        below = {
            c.name: float((drawn[c.name] < 0.0).mean()) for c in asking.columns if c.name in drawn and never_negative(c)
        }
        remarks = [*(rows.notes if rows else ()), *tails(below, "values"), *never.remarks(first)]
        return Answer(title, columns, remarks, short=list(columns)[:10], shown=10)


def simulated(
    asking: Asking, known: Known, requested: Sequence[str], n: int, seed: int, first: int = 0
) -> dict[str, np.ndarray]:
    """Recorded values (n,) of each requested column, level codes or numbers: known values of each row, or of all rows
    alike, and draws given these. A known range is drawn from, too. first: number of the first row."""
    draws = asking.draws({*requested, *known.of})
    log_given = np.array(dealt(asking.comm, len(draws), lambda d: draws[d].given(known).log_p))
    if not np.isfinite(log_given).any(axis=0).all():
        raise ConfigError("the conditions have probability 0 under every draw, so no row can be drawn")
    below, ids = np.cumsum(average.weights(log_given), axis=0), first + np.arange(n)
    u = Stream(seed, Purpose.SIMULATED, cycle=0).uniforms(ids)
    chosen = np.minimum((below <= u * below[-1]).sum(axis=0), len(draws) - 1)

    def work(d: int) -> dict[str, np.ndarray]:
        at = np.flatnonzero(chosen == d)
        if not len(at):
            return {}
        part = known.take(at if known.n_rows > 1 else np.zeros(len(at), np.intp))
        return draws[d].simulate(part, requested, Stream(seed, Purpose.SIMULATED, cycle=d + 1), ids[at])

    columns = {name: np.full(n, np.nan) for name in requested}
    for d, drawn in enumerate(dealt(asking.comm, len(draws), work)):
        for name, x in drawn.items():
            columns[name][chosen == d] = x
    return columns
