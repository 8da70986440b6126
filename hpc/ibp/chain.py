"""A chain of the Indian buffet process: linear-Gaussian features, on any number of ranks (docs/math.md 7.1).

Features with owners on several shards are instantiated, with a weight and loadings known to all ranks; the others
belong to the collapsed shard, where both are integrated out and new features appear.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mpibayes.errors import NumericalError
from mpibayes.hpc.ibp import update
from mpibayes.hpc.ibp.moves import round as moves
from mpibayes.hpc.ibp.moves.ledger import Ledger
from mpibayes.hpc.ibp.state import WORD, Hyper, InverseGamma, Settings, Totals
from mpibayes.hpc.parallel import collapse
from mpibayes.hpc.parallel import shards as cut
from mpibayes.hpc.parallel.agreement import agree
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import shard_sum
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator
from mpibayes.kernels.ibp.features import Features, Rows, Tail, most_births

LAW, WEIGHTS, ORDER = range(3)  # streams of Purpose.FEATURES
NO_INVERSE = "features cannot be told apart in float64; bound the variances' priors (model.noise_sd, model.feature_sd)"


@dataclass
class Slice:
    """A shard of this rank: its index, its rows, and its missing cells, by row and column."""

    index: int
    rows: Rows
    missing: tuple[np.ndarray, np.ndarray]


@dataclass
class CycleInfo:
    """Scalars of the state at the end of a cycle; log_joint on root."""

    cycle: int
    n_features: int
    log_joint: float
    hyper: Hyper


class Buffet:
    """One chain. Every method is collective.

    cells_of(start, stop): float32 or float64 (rows, D), NaN for a missing cell; called for the shards of this rank.
    """

    def __init__(
        self,
        comm: Communicator,
        cells_of: Callable[[int, int], np.ndarray],
        n_rows: int,
        n_columns: int,
        settings: Settings,
        chain: int = 0,
    ):
        self.comm, self.settings, self.chain = comm, settings, chain
        self.n_rows, self.n_columns = n_rows, n_columns if settings.likelihood else 0
        self.cycles = 0
        self.slots = np.zeros(0, np.int64)  # slots of the current features
        self.starts = cut.starts(settings.shards, n_rows)
        self.n_shards = len(self.starts) - 1
        self.shards = agree(comm, lambda: [self._load(cells_of, i) for i in self._own()], "read its rows of the table")
        self.hyper = Hyper(
            settings.alpha if isinstance(settings.alpha, float) else settings.alpha.shape / settings.alpha.rate,
            settings.c if isinstance(settings.c, float) else float(settings.c[len(settings.c) // 2]),
            np.full(self.n_columns, _first(settings.noise_sd)),
            _first(settings.feature_sd),
            settings.noise,
        )
        self.loadings = np.zeros((0, self.n_columns))
        self.summarise()

    def _own(self) -> range:
        return cut.of_rank(self.n_shards, self.comm.size, self.comm.rank)

    def _load(self, cells_of, i: int) -> Slice:
        start, stop = self.starts[i], self.starts[i + 1]
        x = np.zeros((stop - start, self.n_columns), np.float32)
        missing = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        if self.settings.likelihood:
            x[...] = cells_of(start, stop)
            missing = np.nonzero(np.isnan(x))
            x[missing] = 0.0
        z = np.zeros((stop - start, 1), np.uint64)
        return Slice(i, Rows(x, z, start), missing)

    def key(self) -> dict[str, int]:
        return {"seed": self.settings.seed, "cycle": self.cycles + 1, "chain": self.chain}

    def place(
        self, features: np.ndarray, hyper: Hyper | None = None, cells: np.ndarray | None = None, cycles: int = 0
    ) -> None:
        """Set the chain's state to these features after `cycles` cycles; all arguments are the same on every rank.

        features: (N, K), in table order. hyper: None keeps the current ones. cells: float64 (N, D), values for the
        cells that the table lacks; None keeps the current values.
        """
        features = np.asarray(features, bool)
        k = features.shape[1]
        self.slots, self.cycles = np.arange(k), cycles
        self.hyper = self.hyper if hyper is None else hyper
        for shard in self.shards:
            start, stop = self.starts[shard.index], self.starts[shard.index + 1]
            z = np.zeros((stop - start, max(k - 1, 0) // WORD + 1), np.uint64)
            give(z, self.slots, features[start:stop])
            shard.rows = Rows(shard.rows.x, z, int(start))
            if cells is not None:
                row, column = shard.missing
                shard.rows.x[row, column] = cells[start + row, column]
        self.summarise()

    # --- the cycle ---------------------------------------------------------------------------------------------------

    def cycle(self) -> CycleInfo:
        """Run one cycle. Raises NumericalError, on all ranks or (in a move) on root, if a matrix of features has no
        inverse."""
        try:
            return self._cycle()
        except np.linalg.LinAlgError as error:
            raise NumericalError(f"cycle {self.key()['cycle']}: {NO_INVERSE}", [str(error)]) from None

    def _cycle(self) -> CycleInfo:
        s, key = self.settings, self.key()
        self._drop()
        self._learn(key)
        self.fill(key)
        k = len(self.slots)
        owner = collapse.owners(s.opening, **key, n_clusters=max(1, k), n_shards=self.n_shards)
        private = collapse.private_clusters(self.totals.owned, self._owned_by(owner[:k]))
        at, weights = self._weights(key, private)
        anchors = self._anchors(key, at, owner)
        features = Features(self.slots[at], self.loadings[at], weights, self.hyper.noise_sd)
        new, births = {}, np.zeros(self.n_shards, np.int64)
        for shard in self.shards:
            tail, i = None, shard.index
            if i in collapse.collapsed_shards(s.opening, owner, self.n_shards):
                tail = self._tail(shard, features, self.slots[private & (owner[:k] == i)])
            until = np.where(owner[at] == i, np.uint64(0), anchors[i]) if tail is not None else anchors[i]
            for sweep in range(s.sweeps_per_cycle):
                if tail is not None and sweep:
                    tail.refresh(shard.rows, features)
                features.sweep(shard.rows, until, key["seed"], key["cycle"], key["chain"], sweep, tail)
            if tail is not None:
                new[i] = self._write_back(shard, tail, owner, private)
                births[i] = new[i].shape[1]
        self.comm.sum_everywhere(births)
        self._number(births, new)
        self.cycles += 1
        self.summarise()
        if moves.due(s.moves, self.cycles):
            moves.run(Ledger(self))
        return CycleInfo(self.cycles, int((self.totals.owned > 0).sum()), self.log_joint(), self.hyper)

    def _drop(self) -> None:
        """Drop features without owners. Their slots are free: no row has the bit set."""
        kept = np.flatnonzero(self.totals.owned > 0)
        if len(kept) < len(self.slots):
            self.slots = self.slots[kept]
            self.totals.owned = self.totals.owned[kept]
            if self.comm.rank == 0:
                self.totals.together = self.totals.together[np.ix_(kept, kept)]
                self.totals.cells = self.totals.cells[kept]

    def _learn(self, key: dict[str, int]) -> None:
        k, d = len(self.slots), self.n_columns
        message = np.full(3 + d + k * d, np.nan)
        if self.comm.rank == 0:
            law = generator(purpose=Purpose.FEATURES, sub=LAW, **key)
            with contextlib.suppress(np.linalg.LinAlgError):
                hyper, loadings = update.learn(
                    self.settings, self.totals, self.n_rows, self.hyper, law, generator(purpose=Purpose.LOADINGS, **key)
                )
                message[:] = [hyper.alpha, hyper.c, hyper.feature_sd, *hyper.noise_sd, *loadings.ravel()]
        self.comm.broadcast(message)
        if not np.isfinite(message).all():
            raise NumericalError(f"cycle {key['cycle']}: {NO_INVERSE}")
        self.hyper = Hyper(
            float(message[0]), float(message[1]), message[3 : 3 + d].copy(), float(message[2]), self.settings.noise
        )
        self.loadings = message[3 + d :].reshape(k, d).copy()
        if not self._births() <= most_births:
            raise NumericalError(
                f"cycle {key['cycle']}: a row would propose {self._births():g} new features on average, of at most "
                f"{most_births}; fix the mass (model.alpha), or give it a prior that bounds it"
            )

    def _births(self) -> float:
        """Mean number of new features that a row of the collapsed shard proposes."""
        h = self.hyper
        openers = self.n_shards if self.settings.opening == "all" else 1
        return h.alpha * h.c / (self.n_rows - 1 + h.c) / openers

    def fill(self, key: dict[str, int]) -> None:
        """Draw missing cells given the features of their rows. key: names the stream."""
        stream = Stream(purpose=Purpose.NEW_CELLS, **key)
        for shard in self.shards:
            row, column = shard.missing
            if len(row) == 0:
                continue
            mean = np.zeros(len(row))
            for slot, loading in zip(self.slots.tolist(), self.loadings):
                mean += loading[column] * (shard.rows.z[row, slot // WORD] >> np.uint64(slot % WORD) & np.uint64(1))
            ids = (self.starts[shard.index] + row) * self.n_columns + column
            shard.rows.x[row, column] = mean + stream.normals(ids) * self.hyper.noise_sd[column]

    def _owned_by(self, owner: np.ndarray) -> np.ndarray:
        """Number of rows on each feature's owning shard that have the feature."""
        owned = np.zeros(len(owner), np.int64)
        for shard in self.shards:
            here = owner == shard.index
            owned[here] = self.counts[shard.index][self._places()][here]
        self.comm.sum_everywhere(owned)
        return owned

    def _places(self) -> np.ndarray:
        """Positions of the current features among those counted in `summarise`."""
        return np.searchsorted(self.counted, self.slots)

    def _weights(self, key: dict[str, int], private: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the instantiated features, in the order in which rows visit them, and their weights."""
        at = np.flatnonzero(~private)
        generator(purpose=Purpose.FEATURES, sub=ORDER, **key).shuffle(at)
        m = self.totals.owned[at]
        weights = np.zeros(len(at))
        if self.comm.rank == 0:
            stream = generator(purpose=Purpose.FEATURES, sub=WEIGHTS, **key)
            weights = stream.beta(*update.weight_shapes(m, self.n_rows, self.hyper.c)) if len(at) else weights
            weights = np.clip(weights, 1e-300, 1.0 - 2.0**-53)
        self.comm.broadcast(weights)
        return at, weights

    def _anchors(self, key: dict[str, int], at: np.ndarray, owner: np.ndarray) -> dict[int, np.ndarray]:
        """Priority of each feature's anchor, by shard: rows of the shard with priorities up to it keep the feature
        unchanged."""
        least = np.full(len(at), 2**64 - 1, np.uint64)
        for shard in self.shards:
            priorities = shard.rows.least_priorities(self.slots[at], key["seed"], key["cycle"], key["chain"])
            least = np.where(owner[at] == shard.index, least, np.minimum(least, priorities))
        self.comm.least_everywhere(least)
        return {shard.index: least for shard in self.shards}

    def _tail(self, shard: Slice, features: Features, slots: np.ndarray) -> Tail:
        owned, h = held(shard.rows.z, slots), self.hyper
        return Tail(shard.rows, features, owned, self.n_rows, self._births(), update.prior_variance(h), h.c)

    def _write_back(self, shard: Slice, tail: Tail, owner: np.ndarray, private: np.ndarray) -> np.ndarray:
        """Write the tail's features into the rows' bits, except new ones; return the owners of these, bool (n, B)."""
        slots = self.slots[private & (owner[: len(private)] == shard.index)]
        bits, places = tail.owned(), tail.places
        take_away(shard.rows.z, slots)
        old = places < len(slots)
        give(shard.rows.z, slots[places[old]], bits[:, old])
        return bits[:, ~old]

    def _number(self, births: np.ndarray, new: dict[int, np.ndarray]) -> None:
        """Assign slots to the new features, in the order of the shards. new: their owners in each shard, bool (n,
        B)."""
        if not births.any():
            return
        free = self.free_slots(int(births.sum()), self.slots)
        first = np.concatenate([[0], np.cumsum(births)])
        for shard in self.shards:
            if shard.index in new:
                give(shard.rows.z, free[first[shard.index] : first[shard.index + 1]], new[shard.index])
        self.slots = np.sort(np.concatenate([self.slots, free]))

    def free_slots(self, n: int, taken: np.ndarray) -> np.ndarray:
        """The n lowest slots not in `taken`, (n,) int64; extends the rows' words to hold them."""
        free = np.setdiff1d(np.arange(len(taken) + n), taken)[:n]
        self.make_room(int(free.max(initial=-1)) + 1)
        return free

    def make_room(self, n_slots: int) -> None:
        """Extend the rows' words to hold the slots below n_slots."""
        words = max(n_slots - 1, 0) // WORD + 1
        for shard in self.shards:
            z = shard.rows.z
            if z.shape[1] < words:
                wide = np.zeros((len(z), words), np.uint64)
                wide[:, : z.shape[1]] = z
                shard.rows = Rows(shard.rows.x, wide, int(self.starts[shard.index]))

    def summarise(self) -> None:
        """Recompute the sums over all rows for the current features."""
        k, d = len(self.slots), self.n_columns
        tallies = [shard.rows.tally(self.slots) for shard in self.shards]
        together = np.zeros((k, k), np.int64)
        for owners, _ in tallies:
            together += owners
        self.comm.sum_everywhere(together)
        sums = shard_sum(self.comm, [s for _, s in tallies], (k + 1, d), self.n_shards)
        self.counted = self.slots
        self.counts = {shard.index: np.diag(owners) for shard, (owners, _) in zip(self.shards, tallies)}
        self.totals = Totals(np.diag(together).copy())
        if self.comm.rank == 0:
            self.totals = Totals(self.totals.owned, together, sums[:k], sums[k])

    def log_joint(self) -> float:
        """Log of p(features, cells) given the hyperparameters, on root; for features in a given order."""
        if self.comm.rank != 0:
            return np.nan
        prior = update.log_prior(self.totals.owned, self.n_rows, self.hyper.alpha, self.hyper.c)
        return prior + (update.log_likelihood(self.totals, self.n_rows, self.hyper) if self.n_columns else 0.0)

    def features(self) -> np.ndarray | None:
        """Feature indicators of all rows, uint8 (N, K), in table order, on root."""
        bits = [held(shard.rows.z, self.slots).astype(np.uint8) for shard in self.shards]
        lengths = [
            int(self.starts[shards.stop] - self.starts[shards.start])
            for shards in (cut.of_rank(self.n_shards, self.comm.size, r) for r in range(self.comm.size))
        ]
        mine = np.concatenate(bits or [np.zeros((0, len(self.slots)), np.uint8)])
        return self.comm.gather_to_root(mine, lengths)


def held(z: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Feature indicators bool (n, K) of rows with bits z, uint64 (n, W), for the given slots."""
    out = np.empty((len(z), len(slots)), bool, order="F")
    for k, slot in enumerate(slots.tolist()):
        out[:, k] = z[:, slot // WORD] >> np.uint64(slot % WORD) & np.uint64(1)
    return out


def give(z: np.ndarray, slots: np.ndarray, has: np.ndarray) -> None:
    """Set the bits of these slots in the rows where `has`, bool (n, K), is true."""
    for slot, column in zip(slots.tolist(), has.T, strict=True):
        z[:, slot // WORD] |= column.astype(np.uint64) << np.uint64(slot % WORD)


def take_away(z: np.ndarray, slots: np.ndarray) -> None:
    """Clear the bits of these slots in all rows."""
    for slot in slots.tolist():
        z[:, slot // WORD] &= ~(np.uint64(1) << np.uint64(slot % WORD))


def _first(given: float | InverseGamma) -> float:
    """Initial value of a standard deviation."""
    return given if isinstance(given, float) else float(np.sqrt(given.scale / given.shape))
