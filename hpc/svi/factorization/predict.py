"""Predictions of a factorization: ratings of (user, item) pairs, and the items that users would rate highest.

Columns written:

    of pairs  row, the number in the file, from 1; user, item; mean, sd of the rating; and, if the file has ratings,
              rating, log_density
    --top N   user; place, from 1; item, among those that the user has not rated; mean, sd

Users are solved from their training ratings. A user or an item that the table lacks has the prior's mean and spread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.family import Request
from mpibayes.hpc.posterior.forecast import OF_SPARSE
from mpibayes.hpc.svi.factorization.draws import Posterior
from mpibayes.hpc.svi.factorization.law import Law, log_density
from mpibayes.hpc.svi.factorization.model import Moments
from mpibayes.hpc.svi.factorization.triangles import packed
from mpibayes.io.pairs import read_pairs
from mpibayes.text import counted

USERS = 256  # users per block of recommendations


class Forecast:
    """See `hpc.family.SparseForecast`."""

    cannot = OF_SPARSE

    def __init__(self, run: Posterior, request: Request):
        source, self._top, self._named = request.source, request.top, list(request.users)
        if self._top is None and (source is None or self._named):
            raise ConfigError("name a file of (user, item) pairs; or, with --top N, users, by a file or --user")
        self._run, self._source, self._unseen = run, source, request.unseen
        self._best = run.best()
        self._names = run.table.names
        self.n_scored, self._squares, self.log_density = 0, 0.0, 0.0
        self._unknown: dict[str, set[str]] = {name: set() for name in self._names[:2]}

    def prepare(self) -> str:
        """Do the work before the first lines; return its summary in words."""
        run, best = self._run, self._best
        self._law = _with_unknown_item(run.law(best))
        self._items = run.table.column_ids()
        self._item_of = {name: j for j, name in enumerate(self._items)}
        self._users = run.table.row_ids()
        self._user_of = {name: i for i, name in enumerate(self._users)}
        return f"an approximation of rank {run.model.rank}: {run.place(best)}"

    def blocks(self) -> Iterator[dict[str, Any]]:
        """Yield blocks of output lines, as columns by name."""
        yield from self._pairs() if self._top is None else self._recommended()

    def notes(self) -> list[str]:
        """Notes for the user, printed at the end."""
        notes = []
        for name, unknown in self._unknown.items():
            if unknown:
                examples = ", ".join(sorted(unknown)[:4])
                more = ", ..." if len(unknown) > 4 else ""
                notes.append(
                    f"{counted(len(unknown), name)} not in the table ({examples}{more}): predicted by the prior"
                )
        if self.n_scored:
            rmse = np.sqrt(self._squares / self.n_scored)
            mean = self.log_density / self.n_scored
            notes.append(f"{counted(self.n_scored, 'rating')}: RMSE {rmse:.4f}, mean log density {mean:.4f} nats")
        return notes

    # --- inside -------------------------------------------------------------------------------------------------------

    def _number(self, kind: int, of: dict[str, int], ids: Sequence[str], beyond: int) -> np.ndarray:
        """Numbers of ids; `beyond` for ids that the table lacks."""
        numbers = np.fromiter((of.get(name, beyond) for name in ids), np.int64, len(ids))
        missing = {ids[i] for i in np.flatnonzero(numbers == beyond)}
        if missing and self._unseen == "error":
            name, first = self._names[kind], next(name for name in ids if name in missing)
            where = f"{self._source}: " if self._source is not None else ""
            raise DataError(f"{where}{name} '{first}' is not in the table; --unseen missing predicts it by the prior")
        self._unknown[self._names[kind]] |= missing
        return numbers

    def _moments(self, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and covariances of users by their numbers, ascending; the last may be unknown to the table."""
        known = users[users < self._run.n_rows]
        mean, covariance = self._run.model.users(self._best.q, self._run.ratings(known)[0])
        if len(known) < len(users):
            one, other = self._law.unknown_user()
            mean, covariance = np.concatenate([mean, one]), np.concatenate([covariance, other])
        return mean, covariance

    def _pairs(self) -> Iterator[dict[str, Any]]:
        import pyarrow as pa

        user_name, item_name, value_name = self._names[:3]
        row = 0
        for pairs in read_pairs(self._source, (user_name, item_name), value_name):
            ids, items, values = pairs
            user = self._number(0, self._user_of, ids, self._run.n_rows)
            item = self._number(1, self._item_of, items, len(self._items))
            users, at = np.unique(user, return_inverse=True)
            mean, variance = self._law.ratings(*self._moments(users), at, item)
            columns: dict[str, Any] = {"row": np.arange(row + 1, row + len(ids) + 1), user_name: ids, item_name: items}
            columns |= {"mean": mean, "sd": np.sqrt(variance)}
            if values is not None:
                density = log_density(values, mean, variance)
                there = np.isfinite(values)
                columns |= {value_name: pa.array(values, mask=~there), "log_density": pa.array(density, mask=~there)}
                self.n_scored += int(there.sum())
                self._squares += float(((values - mean)[there] ** 2).sum())
                self.log_density += float(density[there].sum())
            row += len(ids)
            yield columns

    def _recommended(self) -> Iterator[dict[str, Any]]:
        user_name, item_name = self._names[:2]
        n = self._run.n_rows
        if self._named:
            numbers = self._number(0, self._user_of, self._named, n)
        elif self._source is not None:
            pieces = [
                self._number(0, self._user_of, ids, n) for ids, _, _ in read_pairs(self._source, (user_name,), None)
            ]
            numbers = np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
        else:
            numbers = np.arange(n)
        numbers = np.unique(numbers[numbers < n])
        top = min(self._top or 0, len(self._items))
        for start in range(0, len(numbers), USERS):
            batch = numbers[start : start + USERS]
            mean, covariance = self._moments(batch)
            expected = self._expected(mean)
            rows = self._run.data.at(batch)
            expected[rows.row_of(), rows.columns] = -np.inf
            best = np.argsort(-expected, axis=1, kind="stable")[:, :top]
            who = np.repeat(np.arange(len(batch)), top)
            item, place = best.ravel(), np.tile(np.arange(1, top + 1), len(batch))
            there = np.isfinite(expected[who, item])
            who, item, place = who[there], item[there], place[there]
            means, variance = self._law.ratings(mean, covariance, who, item)
            yield {
                user_name: [self._users[i] for i in batch[who]], "place": place,
                item_name: [self._items[j] for j in item], "mean": means, "sd": np.sqrt(variance),
            }  # fmt: skip

    def _expected(self, mean: np.ndarray) -> np.ndarray:
        """Means of the ratings of all items by several users, (n, J)."""
        d, g = self._run.model.rank, self._law.items.mean[:-1]
        ratings = self._law.q.center[0] + mean[:, :d] @ g[:, :d].T
        return ratings + mean[:, d:] + g[:, d] if self._run.model.biased else ratings


def _with_unknown_item(law: Law) -> Law:
    """Return a copy with one more item, without ratings, at the end."""
    q, items = law.q, law.items
    mean = np.concatenate([items.mean, q.item_mean[None]])
    covariance = np.concatenate([items.covariance, packed(q.item_covariance)[None]])
    return Law(q, Moments(mean, covariance, items.log_det), law.biased)
