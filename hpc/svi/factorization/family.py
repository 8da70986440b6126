"""A factorization under the run loop: its settings from a configuration, and a chain with its scores and kept
states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.sparse import SparseData
from mpibayes.hpc.family import Info
from mpibayes.hpc.parallel.shards import default_count
from mpibayes.hpc.svi import family as svi
from mpibayes.hpc.svi.factorization import keys
from mpibayes.hpc.svi.factorization.chain import Kind, RatingsAscent
from mpibayes.hpc.svi.factorization.law import HeldOut
from mpibayes.hpc.svi.factorization.ratings import Ratings, split
from mpibayes.hpc.svi.factorization.scalars import SCALARS
from mpibayes.hpc.svi.likelihood import arrays_of
from mpibayes.text import counted

PARTS = 10  # number of kept states unless output.kept is given


def kind_of(config: Config) -> Kind:
    """Form of the configured model."""
    model, step = config.of(keys.Model), config.of(keys.Step)
    given = model.prior_variance != "auto"
    fixed = 0.5 if given and not model.learn else None  # as in Paisley, Fazelnia & Barr
    variance = fixed if model.variance == "auto" else model.variance
    own_count, stepped = step.count == "own", step.users == "stepped"
    return Kind(
        model.rank, model.biases, model.learn, model.center, variance, model.prior_variance if given else None,
        own_count, stepped,
    )  # fmt: skip


class Family(svi.Approximated):
    """See `hpc.family.Family`."""

    data: SparseData

    default_shards = staticmethod(default_count)

    @staticmethod
    def cycle_s(n_cells: int) -> float:
        return 2e-3 + 1e-7 * n_cells

    @staticmethod
    def decided(config: Config, n_training: int) -> dict[str, dict[str, Any]]:
        return svi.decided(config, n_training, PARTS)

    def chain(self, config: Config, number: int) -> FactorizationChain:
        return FactorizationChain(self, config, number)


class FactorizationChain(svi.Ascending):
    """See `hpc.family.Chain`: a chain of variational inference, its held-out scores, and its kept states."""

    scalars = SCALARS

    def __init__(self, family: Family, config: Config, number: int):
        self.comm, self.config = family.comm, config
        data, table, fraction = family.data, family.data.table, config.data.heldout
        held: list[Ratings] = []

        def ratings_of(start: int, stop: int) -> Ratings:
            train, out = split(data.rows_of(start, stop), np.arange(start, stop), table.n_columns, fraction)
            held.append(Ratings.of(out))
            return Ratings.of(train)

        self.ascent = RatingsAscent(
            self.comm, kind_of(config), table.n_columns, ratings_of, data.n_rows, svi.settings_of(config), number,
        )  # fmt: skip
        self.every = config.of(keys.Output).kept
        self.heldout = HeldOut(self.comm, self.ascent, held) if fraction is not None else None

    def advance(self, word: Sequence[int], limit: int) -> Info:
        """Run a cycle; or once nothing changes any more, all cycles up to the next kept state."""
        n, result, keeps = svi.advanced(self.ascent, word, limit, self.every)
        bound, scores = self.ascent.bound, (np.nan, np.nan)
        if keeps:
            bound = self.ascent.evaluate()
            scores = self.heldout.score() if self.heldout is not None else scores
        if self.comm.rank == 0:
            ascent = self.ascent
            values = {
                "bound": bound, "bound_of_batch": ascent.bound_of_batch,
                "rating_sd": float(ascent.q.variance[0] ** 0.5), "step_size": ascent.rate(), "guarded": ascent.guarded,
            }  # fmt: skip
            result.values = {name: np.full(n, value, np.float64) for name, value in values.items()}
            for name, score in zip(("rmse", "heldout_lpd"), scores):
                result.values[name] = np.append(np.full(n - 1, np.nan), score)
            result.draw = {**arrays_of(ascent.q), "bound": bound} if keeps else None
            result.problem = svi.problem_of(ascent)
        return result

    def state(self) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, Any]]:
        """Return q of the items, and of users that take steps. Sums are recomputed from these."""
        ascent = self.ascent
        shared = {**arrays_of(ascent.q), "gain": ascent.gain, "guarded": ascent.guarded}
        of_shards = {i: {"users": x.stepped.now} if x.stepped else {} for i, x in zip(self.shards, ascent.rows)}
        return of_shards, shared

    def restore(self, shared: Mapping[str, Any], shards: Mapping[int, Mapping[str, np.ndarray]]) -> None:
        for i, x in zip(self.shards, self.ascent.rows):
            if x.stepped:
                x.stepped.now = np.ascontiguousarray(shards[i]["users"], np.float64)
        super().restore(shared, shards)

    def in_words(self) -> list[str]:
        ascent = self.ascent
        lines = [model_in_words(self.config, ascent.model.n_items, ascent.n_rows, ascent.n_ratings)]
        lines.append(step_in_words(self.config))
        if self.cycles:
            lines = [f"continues from cycle {self.cycles}"]
        return [*lines, svi.APPROXIMATION]


def model_in_words(config: Config, n_items: int, n_users: int, n_ratings: int | None = None) -> str:
    """Describe the model in one line."""
    model = config.of(keys.Model)
    ratings = "" if n_ratings is None else f"{counted(n_ratings, 'rating')} of "
    words = f"factorization of rank {model.rank}{' with biases' if model.biases else ''}, {ratings}"
    words += f"{counted(n_users, 'user')} and {counted(n_items, 'item')}, "
    return words + f"variance and priors {'learned' if model.learn else 'fixed'}"


def step_in_words(config: Config) -> str:
    """Describe a cycle in one line."""
    step = config.of(keys.Step)
    words = svi.step_in_words(config, "users", "ratings")
    if step.noise != "none":
        words += " of each user's and item's own" if step.count == "own" else " of the batch"
    return words + (", users stepped" if step.users == "stepped" else "")
