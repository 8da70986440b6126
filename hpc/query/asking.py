"""A run opened for questions: its kept draws, its columns, and averages over the draws.

Every question is about a target given known values. A draw d gives p_d(target | known) and p_d(known); the answer is
the average of the first, weighted by the second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.data.events import Known, known_of
from mpibayes.hpc.family import Posterior
from mpibayes.hpc.law import LINES, Asked, AskedClusters, AskedJoint, JointLaw, Law
from mpibayes.hpc.parallel.agreement import agree, on_root
from mpibayes.hpc.parallel.comm import Communicator, serial
from mpibayes.hpc.parallel.together import dealt
from mpibayes.hpc.posterior.chains import family_in
from mpibayes.hpc.query import average
from mpibayes.hpc.query.average import Averages
from mpibayes.hpc.query.conditions import Conditions
from mpibayes.hpc.query.support import Support, supports
from mpibayes.hpc.registry import asked_of, posterior_of
from mpibayes.io.rows import Column, Rows
from mpibayes.text import counted

SAMPLE = 50_000  # training rows from which a column's cells are chosen
BYTES = 128 << 20  # of sums over draws held at a time
LOST = 0.01  # largest probability lost to rounding
HELD = 256 << 20  # of a column's probabilities in the clusters of all draws, kept between blocks
BLOCK = 2_048  # rows, at most, that a rank works on at a time
T = TypeVar("T")


@dataclass(frozen=True)
class Distributions:
    """Distributions of a column in n rows: p (n, U), the probability of each cell; error (n, U); effective (n,), the
    number of draws; sums: the sums they are computed from."""

    support: Support
    p: np.ndarray
    error: np.ndarray
    effective: np.ndarray
    sums: Sums


def opened_for_questions(run: Posterior, draws: int | None) -> Asked:
    """Open at most `draws` kept draws of a run. Raises ConfigError if there are none, or if they cannot be asked."""
    if run.no_questions:
        raise ConfigError(f"{run.chains[0].home}: {run.no_questions}")
    return asked_of(run.chains[0].config.kind)(run, draws)


class Asking:
    """run_dir: a run's directory, or several of one posterior. draws: maximal number of kept draws. burn_in, table: see
    `posterior.chains.KeptChains`. comm: ranks that share the work; all ask the same questions, and methods marked
    "Collective" need all of them. Raises ConfigError, DataError, CheckpointError."""

    def __init__(
        self,
        run_dir: str | Path | Sequence[str | Path],
        draws: int | None = None,
        burn_in: int | None = None,
        table: str | Path | None = None,
        comm: Communicator | None = None,
    ):
        if draws is not None and draws < 1:
            raise ConfigError(f"draws = {draws}: expected a whole number, 1 or more")
        run_dirs = [run_dir] if isinstance(run_dir, str | Path) else list(run_dir)
        self.comm = comm or serial()
        self._options = draws, burn_in
        family = on_root(self.comm, lambda: family_in(run_dirs[0]))

        def opened() -> tuple[Posterior, Asked]:
            run = posterior_of(family)(run_dirs, burn_in, table)
            return run, opened_for_questions(run, draws)

        self._begin(*agree(self.comm, opened, f"open {run_dirs[0]}"))

    @classmethod
    def of_run(cls, run: Posterior, draws: int | None = None, comm: Communicator | None = None) -> Asking:
        """Open a run that is already read. Raises ConfigError."""
        self = cls.__new__(cls)
        self.comm, self._options = comm or serial(), (draws, None)
        self._begin(run, agree(self.comm, lambda: opened_for_questions(run, draws), "look for its draws"))
        return self

    def _begin(self, run: Posterior, asked: Asked) -> None:
        self.run, self.asked = run, asked
        self.take_outcome(False)
        self.averages = Averages(self.asked.chain_of)
        self._supports: dict[tuple[str, int], Support] = {}
        self._draws: tuple[frozenset[str], Sequence[Law]] = frozenset(), ()
        self._masses: dict[tuple[str, int], list[np.ndarray]] = {}  # of these draws
        self._beside: dict[RunAt, Asking] = {}
        # population or rows that answers describe; "" if the table has no weights
        self.of_whom = self._whom()

    def take_outcome(self, taken: bool) -> None:
        """Include the rows' outcome in the columns, if the run has one, or exclude it."""
        outcome = self.asked.outcome
        self.columns = [c for c in self.asked.columns if taken or outcome is None or c.name != outcome.name]
        self.conditions = Conditions(self.asked.like, self.columns, self.asked.apart)

    @property
    def in_blocks(self) -> set[str]:
        """Columns in blocks: rows cannot be left out of these, and they have no sets of predictors."""
        return {name for name, block in self.asked.joint.items() if block != LINES}

    def beside(self, run: RunAt | Path) -> Asking:
        """Open another run once, or return it; a directory is opened with this run's options. Collective. Raises the
        same errors as opening it."""
        run = run if isinstance(run, RunAt) else RunAt((run,), *self._options)
        if run not in self._beside:
            self._beside[run] = run.open(self.comm)
        return self._beside[run]

    def weigh(self, weighted: bool | None) -> None:
        """Ask about the population that the table's survey weights represent, or, with False, about the rows as they
        are; None: about the population if the table has weights and the model has clusters. From then on the draws are
        laws of that population, and rows drawn from them are rows of it. Collective. Raises ConfigError."""
        weights = agree(self.comm, lambda: self.run.training_weights(weighted), "read the weights of the rows")
        if (weights is None) != (self.asked.weights is None):
            self._draws, self._masses = (frozenset(), ()), {}
        self.asked.weights = weights
        self.of_whom = self._whom()

    def _whom(self) -> str:
        name = self.run.table.weight
        if name is None:
            return ""
        if self.weighted:
            return f"of the population, by the weights of the rows ('{name}'); --unweighted: of the rows as they are"
        return f"of the rows as they are, without their weights ('{name}')"

    @property
    def weighted(self) -> bool:
        """True if answers are about the population."""
        return self.asked.weights is not None

    @property
    def answerable(self) -> list[str]:
        """Names of the columns that the model can predict."""
        law = self.asked.answers
        return [c.name for c in self.columns if law is None or c.name in law]

    def require(self, verb: str) -> None:
        """Raise ConfigError, with the reason, if this kind of model cannot answer `verb`."""
        if verb in self.asked.cannot:
            raise ConfigError(f"{verb}: {self.asked.cannot[verb]}")

    def require_draws(self, n: int, what: str) -> None:
        """Raise ConfigError unless each of n tables can come from a different kept draw."""
        if self.asked.n_kept < n:
            raise ConfigError(
                f"{n} {what}: each is of a kept draw of its own, and the run has "
                f"{counted(self.asked.n_kept, 'draw')} after burn-in; ask for fewer (--copies), or continue the run"
            )

    def joint(self, verb: str) -> AskedJoint:
        """Return the draws as joint laws of their columns. Raises ConfigError like `require`."""
        self.require(verb)
        return cast(AskedJoint, self.asked)

    def clusters(self, verb: str) -> AskedClusters:
        """Return the draws with their clusters of training rows. Raises ConfigError like `require`."""
        self.require(verb)
        return cast(AskedClusters, self.asked)

    def named(self, names: Sequence[str]) -> list[Column]:
        """Columns with these names, in the order given."""
        return [self.conditions.column(name) for name in names]

    def known(self, rows: Rows, names: Collection[str] | None = None) -> Known:
        """Known cells of recorded rows (all used columns of the table), restricted to `names` if given."""
        return known_of(rows, [c for c in self.columns if names is None or c.name in names])

    def draws(self, names: Collection[str]) -> Sequence[Law]:
        """Return the kept draws as laws of at least the columns `names`; reuse the last question's draws if they cover
        these. Each rank makes a share of them. Collective."""
        if not self._draws[1] or not self._draws[0].issuperset(names):
            size, rank = self.comm.size, self.comm.rank
            mine = agree(self.comm, lambda: self.asked.draws(names, slice(rank, None, size)), "look at its draws")
            of_ranks = self.comm.collect(mine)
            laws = [of_ranks[d % size][d // size] for d in range(self.averages.n_draws)]
            self._draws, self._masses = (frozenset(names), laws), {}
        return self._draws[1]

    def joint_draws(self, names: Collection[str]) -> Sequence[JointLaw]:
        """`draws` of a model that `joint` accepted. Collective."""
        return cast(Sequence[JointLaw], self.draws(names))

    def supports(self, names: Sequence[str], most: int) -> dict[str, Support]:
        """Support of each column; numeric columns in at most `most` bins."""
        lacking = [c for c in self.named(names) if (c.name, most) not in self._supports]
        if lacking:
            new = supports(lacking, self.sample(SAMPLE) if any(not c.levels for c in lacking) else None, most)
            self._supports |= {(name, most): s for name, s in new.items()}
        return {name: self._supports[name, most] for name in names}

    def sample(self, most: int) -> Rows:
        """About `most` training rows, evenly spaced, as recorded."""
        return self.asked.recorded(self.asked.training_numbers()[self.sample_places(most)])

    def sample_places(self, most: int) -> np.ndarray:
        """Places of the `sample` among the training rows."""
        return np.arange(0, self.asked.n_rows, max(1, self.asked.n_rows // most))

    # --- averages ----------------------------------------------------------------------------------------------------

    def log_p(self, target: Known, given: Known) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log probability of each row's target given its known cells, its error, and the effective number of draws,
        (n,) each."""
        n = max(target.n_rows, given.n_rows)
        target, given = target.repeat(n), given.repeat(n)
        draws = self.draws({*target.of, *given.of})
        blocks = average.in_blocks(n, self._block(draws, 40))

        def work(i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            known, more = given.block(blocks[i]), target.block(blocks[i])
            log_given, log_r = np.zeros((len(draws), known.n_rows)), np.zeros((len(draws), known.n_rows))
            for d, draw in enumerate(draws):
                on_them = draw.given(known)
                log_given[d], log_r[d] = on_them.log_p, on_them.log_density(more)
            w = average.weights(log_given)
            log, error = average.log_average(log_r, w, self.averages)
            return log, error, average.effective(w)

        parts = dealt(self.comm, len(blocks), work) or [(np.zeros(0),) * 3]
        log, error, effective = (np.concatenate(a) for a in zip(*parts))
        return log, error, effective

    def distributions(self, name: str, given: Known, most: int) -> Iterator[tuple[slice, Distributions]]:
        """Yield the distribution of a column given each row's known cells, a block of rows at a time; not shared by
        ranks."""
        self.draws({name, *given.of})
        blocks, work = self._distributions(name, given, most)
        yield from ((rows, work(rows)) for rows in blocks)

    def of_distributions(
        self, name: str, given: Known, most: int, made: Callable[[slice, Distributions], T]
    ) -> list[T]:
        """Apply `made` to the distributions of each block of rows and return the results in order; ranks share the
        work. Collective."""
        self.draws({name, *given.of})
        blocks, work = self._distributions(name, given, most)
        return dealt(self.comm, len(blocks), lambda i: made(blocks[i], work(blocks[i])))

    def _distributions(
        self, name: str, given: Known, most: int
    ) -> tuple[Sequence[slice], Callable[[slice], Distributions]]:
        """Blocks of rows, and a function that computes the distributions of one block; the draws must have been
        made."""
        cells = self.supports([name], most)[name]
        draws = self.draws({name, *given.of})
        masses = self._masses.get((name, most))
        if masses is None and 8 * len(cells) * sum(draw.width for draw in draws) <= HELD:
            masses = [draw.masses(cells.events) for draw in draws]
            self._masses = {(name, most): masses}  # of the last column only
        n_sums = len(self.averages.batches) + len(self.averages.chains)

        def work(rows: slice) -> Distributions:
            known = given.block(rows)
            log_given, parts = np.zeros((len(draws), known.n_rows)), Sums(self.averages, known.n_rows, len(cells))
            for d, draw in enumerate(draws):
                mass = masses[d] if masses else draw.masses(cells.events)
                on_them = draw.given(known)
                log_given[d] = on_them.log_p
                parts.add(d, log_given[d], on_them.averaged(cells.events, mass))
            p, error = parts.result()
            if not (np.abs(p.sum(axis=1) - 1.0) < LOST).all():
                raise ConfigError(
                    f"{name}: its distribution cannot be computed in float64 given values so far from the table's; "
                    "check the units of what is given"
                )
            return Distributions(cells, p, error, average.effective(average.weights(log_given)), parts)

        return average.in_blocks(given.n_rows, self._block(draws, 8 * len(cells) * n_sums / len(draws))), work

    def _block(self, draws: Sequence[Law], width: float) -> int:
        """Number of rows in a block; width: bytes per row and draw."""
        state = 16 * max(draw.width for draw in draws)
        return max(16, min(BLOCK, int(BYTES / (width * len(draws))), BYTES // state))


@dataclass(frozen=True)
class RunAt:
    """A run to be opened: its directory, or several of one posterior, and the options of `Asking`."""

    directories: tuple[Path, ...]
    draws: int | None = None
    burn_in: int | None = None
    table: Path | None = None

    def open(self, comm: Communicator | None = None) -> Asking:
        """Open the run for questions. Collective. Raises ConfigError, DataError, CheckpointError."""
        return Asking(self.directories, self.draws, self.burn_in, self.table, comm)


class Sums:
    """Weighted sums over draws of r (n, U), by batches of draws, relative to the largest weight so far."""

    def __init__(self, averages: Averages, n: int, width: int):
        self._starts = averages.batches, averages.chains
        self._sums = [np.zeros((len(s), n, width)) for s in self._starts]
        self._weights = [np.zeros((len(s), n)) for s in self._starts]
        self._top = np.full(n, -np.inf)

    def add(self, d: int, log_weight: np.ndarray, r: np.ndarray) -> None:
        """Add draw d, with log weights (n,) and r (n, U)."""
        up = np.flatnonzero(log_weight > self._top)
        with np.errstate(invalid="ignore"):
            fade = np.exp(self._top[up] - log_weight[up])
        self._top[up] = log_weight[up]
        top = np.where(np.isfinite(self._top), self._top, 0.0)
        gain = np.exp(log_weight - top)
        weighted = r * gain[:, None]
        for starts, sums, weights in zip(self._starts, self._sums, self._weights):
            at = int(np.searchsorted(starts, d, side="right")) - 1
            if d:
                sums[: at + 1, up] *= fade[:, None]
                weights[: at + 1, up] *= fade
            sums[at] += weighted
            weights[at] += gain

    def result(self, by: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the averages (n, U) and their errors; with `by` (U, V), those of the sums over U that it defines."""
        total = self._weights[0].sum(axis=0)
        p = self._sums[0].sum(axis=0) / total[:, None]
        residuals = [(s - w[:, :, None] * p) / total[:, None] for s, w in zip(self._sums, self._weights)]
        if by is not None:
            p, residuals = p @ by, [r @ by for r in residuals]
        return p, Averages.error_of_sums(*residuals)

    def without_each(self) -> Iterator[np.ndarray]:
        """Yield the averages (n, U) without each batch of draws in turn: for the jackknife."""
        sums, weights = self._sums[0].sum(axis=0), self._weights[0].sum(axis=0)
        for s, w in zip(self._sums[0], self._weights[0]):
            rest = np.maximum(weights - w, 0.0)
            yield (sums - s) / np.where(rest > 0.0, rest, 1.0)[:, None]
