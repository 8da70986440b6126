"""Latent Dirichlet allocation on any number of ranks: steps, each from the documents of a batch (docs/math.md 8.7).

A cycle takes a step with the expected counts computed under the current state, then computes those of the next batch.
Batch and noise are keyed by the cycle; expected counts are summed exactly (`local.unit_of`), and every rank takes the
same step: the bits do not depend on the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpibayes.hpc.parallel import shards as cut
from mpibayes.hpc.parallel.agreement import agree, broadcast_arrays
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.reduce import shard_sum_everywhere
from mpibayes.hpc.parallel.streams import Purpose, Stream, generator
from mpibayes.hpc.svi.lda import model
from mpibayes.hpc.svi.lda.local import SAMPLED, UNIT_OF_NUMBERED, Documents, Local, in_units, unit_of
from mpibayes.hpc.svi.lda.model import Evaluator, State
from mpibayes.hpc.svi.noise import Noise
from mpibayes.hpc.svi.schedule import Constant, Schedule, batch
from mpibayes.hpc.svi.step import Step
from mpibayes.io.sparse import SparseRows

WHOLE_STEP, NO_NOISE = Constant(1.0), Noise("none")
EXACTLY = Local("vb", True, 1e-3, 300)  # local step for a bound, if the cycle's does not serve


@dataclass(frozen=True)
class Settings:
    """Settings of a chain, besides the data. batch, effective: None for all documents, and for no noise. first, then:
    local steps up to cycle `switch`, and after it. warm: cycles in which the local step vb starts afresh; later ones
    continue from a document's topics, except with batches and with gibbs."""

    topics: int
    alpha: float
    eta: float
    learn_alpha: bool = False
    seed: int = 0
    shards: int | None = None
    batch: Schedule | None = None
    rate: Schedule = WHOLE_STEP
    noise: Noise = NO_NOISE
    effective: Schedule | None = None
    guard: bool = True
    first: str = "vb"
    then: str = "vb"
    switch: int = 0
    warm: int = 0
    tolerance: float = 0.01
    iterations: int = 100
    sweeps: int = 6

    def local(self, t: int, chain: int = 0) -> Local:
        """Local step of cycle t, counted from 1."""
        kind = self.first if t <= self.switch else self.then
        anew = t <= self.warm if kind == "vb" else self.batch is not None
        stream = Stream(self.seed, Purpose.TOPICS, t, chain)
        return Local(kind, anew or t == 1, self.tolerance, self.iterations, self.sweeps, stream)


@dataclass
class Found:
    """Results of a pass over a batch, on every rank. total (V, K): expected counts. noise: the noise to add to them, or
    None. log_theta (K,): mean E log theta, None if alpha is not learned. iterations: per document."""

    n_batch: int
    total: np.ndarray
    noise: np.ndarray | None
    log_theta: np.ndarray | None
    iterations: float


class Ascent:
    """One chain. Every method is collective.

    rows_of(start, stop): training documents, called for the shards of this rank. n_words: columns of the table, V.
    n_tokens: total count of the table, an upper bound of sums.
    """

    def __init__(
        self,
        comm: Communicator,
        rows_of: Callable[[int, int], SparseRows],
        n_rows: int,
        n_words: int,
        n_tokens: float,
        settings: Settings,
        chain: int = 0,
    ):
        self.comm, self.settings, self.chain = comm, settings, chain
        self.n_rows, self.n_words, self.n_tokens = n_rows, n_words, n_tokens
        self.n_shards = cut.count(settings.shards, n_rows)
        self.cycles = self.guarded = 0
        self.starts = cut.bounds(n_rows, self.n_shards)
        self.shards = cut.of_rank(self.n_shards, comm.size, comm.rank)
        read = agree(
            comm,
            lambda: [rows_of(int(self.starts[i]), int(self.starts[i + 1])) for i in self.shards],
            "read its documents of the table",
        )
        kinds, firsts = {settings.first, settings.then}, [self.starts[i] for i in self.shards]
        shares, sampled = not kinds.isdisjoint({"cvb0", SAMPLED}), SAMPLED in kinds
        self.documents = Documents(read, n_words, settings.topics, unit_of(n_tokens), shares, firsts, sampled)
        self.q: State | None = None
        self.broken = False  # True once the state is out of its domain: only without a guard
        self._found: Found | None = None

    def start(self) -> None:
        """Start from random topics."""
        s = self.settings
        rng = generator(s.seed, Purpose.FIRST_MEANS, chain=self.chain)
        q = model.first(self.n_words, s.topics, s.alpha, s.eta, self.n_tokens, rng) if self.comm.rank == 0 else None
        arrays = broadcast_arrays(self.comm, vars(q) if q is not None else None)
        self.q, self.cycles, self.guarded = State(**arrays), 0, 0
        self._look()

    def cycle(self) -> None:
        """Take one step; none if the chain has left its domain."""
        t, batch, s = self.cycles + 1, self._found, self.settings
        self.cycles, self.guarded = t, 0
        if self.broken:
            return
        step = Step(min(1.0, s.rate.at(t)), self.n_rows / batch.n_batch, s.guard)
        q, self.guarded = model.stepped(self.q, s.eta, batch.total, batch.noise, step)
        if batch.log_theta is not None:
            q = replace(q, alpha=step.to(q.alpha, model.best_alpha(q.alpha, batch.log_theta)))
        self.q = q
        self.broken = not s.guard and not model.sound(q)
        if not self.broken:
            self._look()

    def rate(self) -> float:
        """The step size of the last cycle."""
        return min(1.0, self.settings.rate.at(max(1, self.cycles)))

    @property
    def iterations(self) -> float:
        """Mean number of iterations of a document's local step in the last pass."""
        return self._found.iterations

    @property
    def looked(self) -> int:
        """Number of documents in the last pass."""
        return self._found.n_batch

    def evaluate(self) -> float:
        """Bound of the current state over all documents: with the current gamma if the last pass was vb and over all,
        otherwise with one computed for it."""
        q, documents = self.q, self.documents
        fresh = self._found.n_batch == self.n_rows and self.settings.local(self.cycles + 1).kind == "vb"
        evaluator, parts = Evaluator.of(q, self.settings.eta), []
        if not fresh:
            documents.weigh(q, EXACTLY, [None])
        for rows, text, gamma in zip(documents.shards, documents.texts, documents.gamma):
            if not fresh:
                gamma = np.zeros_like(gamma)
                documents.steps(q, EXACTLY, text, None, None, gamma)
            parts.append(np.array([evaluator.of_documents(rows, text, gamma)]))
        total = shard_sum_everywhere(self.comm, parts, (1,), self.n_shards)
        return float(total[0]) + evaluator.of_topics()

    # --- what a checkpoint holds --------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, Any]]:
        """Return gamma by shard; and what all share: q, and the results of the last pass."""
        batch = self._found
        shared = {
            "lam": self.q.lam, "alpha": self.q.alpha, "total": batch.total, "n_batch": batch.n_batch,
            "iterations": batch.iterations, "guarded": self.guarded,
            "noise": np.zeros((0, 0)) if batch.noise is None else batch.noise,
            "log_theta": np.zeros(0) if batch.log_theta is None else batch.log_theta,
        }  # fmt: skip
        return {i: {"gamma": gamma} for i, gamma in zip(self.shards, self.documents.gamma)}, shared

    def restore(self, shared: Any, shards: Any) -> None:
        """Restore a state returned by `state`."""
        self.q = State(np.array(shared["lam"], np.float64), np.array(shared["alpha"], np.float64))
        self.cycles, self.guarded = int(shared["cycles"]), int(shared["guarded"])
        noise, log_theta = np.array(shared["noise"], np.float64), np.array(shared["log_theta"], np.float64)
        self._found = Found(
            int(shared["n_batch"]), np.array(shared["total"], np.float64), noise if noise.size else None,
            log_theta if log_theta.size else None, float(shared["iterations"]),
        )  # fmt: skip
        self.documents.gamma = [np.ascontiguousarray(shards[i]["gamma"], np.float32) for i in self.shards]

    # --- inside -------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Pass over the documents of the next step's batch under the present state."""
        s, t, documents = self.settings, self.cycles + 1, self.documents
        key = {"seed": s.seed, "cycle": t, "chain": self.chain}
        n_batch, chosen = batch(s.batch, self.starts, self.shards, **key)
        ids = [
            self.starts[i] + (np.arange(len(x)) if rows is None else rows)
            for i, x, rows in zip(self.shards, documents.shards, chosen)
        ]
        numbers, effective = None, s.effective.at(t) if s.effective else np.inf
        if s.noise.at_work(n_batch, effective):
            stream = Stream(purpose=Purpose.STATISTICS_NOISE, **key)
            numbers = s.noise.numbers(self.comm, ids, n_batch, effective, stream)
        local = s.local(t, self.chain)
        sums, numbered, done = documents.look(self.q, local, chosen, numbers)
        counts = np.array([done], np.int64)
        self.comm.sum_everywhere(counts)
        total, noise = self._together(sums, documents.unit), None
        if numbers is not None:
            weighted = self._together(numbered, documents.unit * UNIT_OF_NUMBERED)
            each = shard_sum_everywhere(self.comm, [np.array([x.sum()]) for x in numbers], (1,), self.n_shards)
            noise = s.noise.deviation(total, weighted, float(each[0]), n_batch)
        log_theta = None
        if s.learn_alpha and local.kind == "vb":
            gammas = (gamma if rows is None else gamma[rows] for gamma, rows in zip(documents.gamma, chosen))
            parts = [model.mean_log_theta(gamma) for gamma in gammas]
            log_theta = shard_sum_everywhere(self.comm, parts, (s.topics,), self.n_shards) / n_batch
        self._found = Found(n_batch, total, noise, log_theta, counts[0] / n_batch)

    def _together(self, sums: np.ndarray, unit: float) -> np.ndarray:
        """Sum multiples of a unit over ranks, exactly, (V, K)."""
        if self.comm.size > 1:
            whole = in_units(sums, unit)
            self.comm.sum_everywhere(whole)
            sums = whole * unit
        return np.ascontiguousarray(sums[:, : self.settings.topics])
