"""Exports of a factorization besides its trace: the factors of users and items."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mpibayes.hpc.svi.factorization.draws import Posterior
from mpibayes.hpc.svi.factorization.turned import Turned
from mpibayes.io.trace import Axes

FORMS = ("factors",)
USERS = 8192


def factors(run: Posterior) -> tuple[list[str], Iterator[list[list[str]]], str]:
    """For --to factors, see `Exports.LINES`. A line for each user and item: its type, id, bias and factors, under q of
    the best chain's last state."""
    best = run.best()
    turned, law = Turned.of(best.q, run.model.biased), run.law(best)
    head = ["of", "id", "bias", *(f"factor_{k + 1}" for k in range(run.model.rank))]

    def block(of: str, ids: list[str], bias: np.ndarray, factor: np.ndarray) -> list[list[str]]:
        columns = [bias, *factor.T]
        return [[of] * len(ids), ids, *([f"{x:.6g}" for x in column.tolist()] for column in columns)]

    def blocks() -> Iterator[list[list[str]]]:
        user, item = run.table.names[:2]
        for start in range(0, run.n_rows, USERS):
            stop = min(start + USERS, run.n_rows)
            mean = run.model.users(best.q, run.ratings(np.arange(start, stop))[0])[0]
            yield block(user, run.table.row_ids(start, stop), *turned.users(mean))
        yield block(item, run.table.column_ids(), *turned.items(law.items.mean))

    where = f"cycle {best.cycle:,} of {run.chains[best.chain].folder}, of the best bound"
    return head, blocks(), f"means under an approximation: {where}"


def parameters(run: Posterior) -> tuple[list[dict[str, np.ndarray]], Axes]:
    """Return nothing besides the trace: states of a search are not draws."""
    return [], {}


LINES, NEEDS, TEXTS = {"factors": factors}, {}, {}
