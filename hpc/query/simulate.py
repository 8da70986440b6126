"""Rows drawn from the posterior predictive distribution, given values of some columns.

A row first takes a draw, in proportion to how probable what is given is in it, then a cluster in each view, then its
cells. Row i depends on the seed, the question and its number alone, so that fewer rows are the first of more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.events import Known
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.hpc.query import average
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.conditional import values
from mpibayes.hpc.query.conditions import Item
from mpibayes.hpc.query.logp import described, words
from mpibayes.hpc.query.new_rows import NewRows
from mpibayes.text import counted


def simulate(
    asking: Asking, n: int, given: Sequence[Item], names: Sequence[str], seed: int, rows: NewRows | None
) -> Answer:
    """n rows that have what is given; or the rows of a file, their missing cells drawn given the others.

    names: the columns drawn, all by default.
    """
    known = described(asking, given, "--given", rows)
    if rows is not None:
        known = asking.known(rows.rows, [m for m in rows.there(asking) if m not in known.of]).join(known)
    wanted = asking.conditions.names(names) or [c.name for c in asking.columns]
    drawn = simulated(asking, known, wanted, n if rows is None else len(rows.rows), seed)
    columns = {c.name: values(c, drawn[c.name]) for c in asking.columns if c.name in drawn}
    title = f"{counted(len(next(iter(drawn.values()))), 'row')} given {words(known) or 'nothing'}, seed {seed}"
    return Answer(title, columns, rows.notes if rows else (), short=list(columns)[:10], shown=10)


def simulated(asking: Asking, known: Known, wanted: Sequence[str], n: int, seed: int) -> dict[str, np.ndarray]:
    """Recorded values (n,) of each column wanted, level codes or numbers: what is known of each row, or of all of them
    alike, and draws given that. A range that is known is drawn from, too."""
    draws = asking.draws({*wanted, *known.of})
    log_given = np.array([draw.given(known)[0] for draw in draws])
    if not np.isfinite(log_given).any(axis=0).all():
        raise ConfigError("what is given has probability 0 under every draw, so that there is no row to draw")
    below = np.cumsum(average.weights(log_given), axis=0)
    u = Stream(seed, Purpose.SIMULATED, cycle=0).uniforms(np.arange(n))
    chosen = np.minimum((below <= u * below[-1]).sum(axis=0), len(draws) - 1)
    found = {name: np.full(n, np.nan) for name in wanted}
    for d, draw in enumerate(draws):
        at = np.flatnonzero(chosen == d)
        if len(at):
            own = known.take(at if known.n_rows > 1 else np.zeros(len(at), np.intp))
            stream = Stream(seed, Purpose.SIMULATED, cycle=d + 1)
            for name, x in draw.simulate(own, wanted, stream).items():
                found[name][at] = x
    return found
