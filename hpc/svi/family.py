"""Variational inference under the run loop: its settings from a configuration, and a chain with its scores and kept
states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.data.rows import Data, HeldOutRows, digest
from mpibayes.hpc.family import Info
from mpibayes.hpc.parallel import shards as cut
from mpibayes.hpc.parallel.agreement import on_root
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.run import output
from mpibayes.hpc.svi import keys
from mpibayes.hpc.svi.chain import Ascent, Settings
from mpibayes.hpc.svi.law import Students
from mpibayes.hpc.svi.likelihood import arrays_of, likelihood_of
from mpibayes.hpc.svi.noise import Noise
from mpibayes.hpc.svi.scalars import SCALARS
from mpibayes.hpc.svi.schedule import Constant, Decay, Growing, Schedule
from mpibayes.io.draws import DrawWriter, last_draw
from mpibayes.io.files import Guard
from mpibayes.io.finished import Finished
from mpibayes.io.rows import Rows
from mpibayes.text import counted

PARTS = 20  # number of kept states unless output.kept is given
APPROXIMATION = "an approximation: its bound lies below log p(table) by an unknown amount"


def settings_of(config: Config) -> Settings:
    """Settings of a chain, from a configuration in which "auto" has been resolved."""
    step, noisy = config.of(keys.Step), config.of(keys.Step).noise != "none"
    return Settings(
        seed=config.run.seed,
        shards=config.run.shards,
        batch=None if step.batch == "all" else schedule_of(step.batch),
        rate=schedule_of(step.rate),
        noise=Noise(step.noise),
        effective=schedule_of(step.effective) if noisy else None,
        guard=step.guard == "shrink",
        tolerance=step.tolerance,
    )


def schedule_of(given: Any) -> Schedule:
    """Schedule of a size or step size, as given in the configuration."""
    if isinstance(given, keys.DecayingRate):
        return Decay(given.delay, given.decay)
    return Growing(given.growing) if hasattr(given, "growing") else Constant(given)


def decided(config: Config, n_training: int, parts: int) -> dict[str, dict[str, Any]]:
    """Values of "auto" keys, resolved at the first start. parts: number of states to keep."""
    kept = config.of(keys.Output).kept
    return {
        "run": {"shards": cut.count(config.run.shards, n_training), "burn_in": 0},
        "output": {"kept": max(1, config.run.cycles // parts) if kept == "auto" else kept},
    }


def advanced(ascent: Ascent, word: Sequence[int], limit: int, every: int) -> tuple[int, Info, bool]:
    """Run a cycle; or once nothing changes any more, all cycles up to the next kept one (every `every`-th). Returns the
    number of cycles, their `Info` so far, and True if the last is kept. Collective."""
    first, words = ascent.cycles + 1, np.array(word, np.int64)
    ascent.comm.sum_everywhere(words)
    n = min(limit, every - ascent.cycles % every) if ascent.still() else 1
    for _ in range(n):
        ascent.cycle()
    return n, Info(range(first, first + n), words.tolist()), ascent.cycles % every == 0 and not ascent.broken


def problem_of(ascent: Ascent) -> str:
    """Reason why a chain cannot continue; on root."""
    if ascent.broken:
        return 'noise took a parameter out of its domain; set step.guard = "shrink"'
    if np.isfinite(ascent.bound_of_batch):
        return ""
    strong = "; the noise is too strong: raise step.effective" if ascent.settings.noise.kind != "none" else ""
    return f"the bound is not a finite number{strong}"


class Approximated:
    """Base of the families of variational inference (`hpc.family.Family`): each chain reads its own rows."""

    shares_cycles = True
    heldout_file: Rows | None = None

    def __init__(self, comm: Communicator, config: Config, data: Any):
        self.comm, self.data, self._config = comm, data, config

    @staticmethod
    def grown(config: Config) -> Config:
        return config

    def read_files(self, places: Sequence[Path], fresh: bool) -> dict[str, Any]:
        return {"heldout": None}

    def load(self, places: Sequence[Path], fresh: bool) -> None:
        """Do nothing: each chain reads the rows of its own shards."""


class Family(Approximated):
    """See `hpc.family.Family`."""

    def __init__(self, comm: Communicator, config: Config, data: Data):
        super().__init__(comm, config, data)
        self.cells = Cells(data.columns, config.of(keys.Model).standardise)

    default_shards = staticmethod(cut.default_count)

    @staticmethod
    def cycle_s(n_cells: int) -> float:
        return 1e-3 + 2e-8 * n_cells

    @staticmethod
    def decided(config: Config, n_training: int) -> dict[str, dict[str, Any]]:
        return decided(config, n_training, PARTS)

    def read_files(self, places: Sequence[Path], fresh: bool) -> dict[str, Any]:
        config = self._config
        if config.heldout_path is not None:
            self.heldout_file, message = self.data.read_heldout_file(self.comm, config.heldout_path, config.data.unseen)
            if message:
                output.say(f"warning: {message}")
        return {"heldout": None if self.heldout_file is None else digest(self.heldout_file)}

    def chain(self, config: Config, number: int) -> VariationalChain:
        return VariationalChain(self, config, number)


class HeldOut:
    """Scores of the held-out rows."""

    def __init__(self, comm: Communicator, rows: HeldOutRows, n_blocks: int, cells: Cells):
        self.comm, self.n_rows, self.n_blocks = comm, rows.n_rows, n_blocks
        self.x = [cells.of(block) for _, block in sorted(rows.blocks.items())]
        self._log_scale = [np.where(np.isnan(x), 0.0, cells.log_scale).sum() for x in self.x]

    def score(self, law: Students) -> float:
        """Mean log density per row, on root. Collective."""
        sums = [
            float(logsumexp(law.log_joint(x), axis=1).sum() - log_scale) if len(x) else 0.0
            for x, log_scale in zip(self.x, self._log_scale)
        ]
        ranks = self.comm.size
        lengths = [len(cut.of_rank(self.n_blocks, ranks, rank)) for rank in range(ranks)]
        everyone = self.comm.gather_to_root(np.array(sums), lengths)
        return sum(everyone.tolist()) / self.n_rows if self.comm.rank == 0 else np.nan


class Ascending:
    """Base of the chains of variational inference (`hpc.family.Chain`): everything comes from their ascent."""

    ascent: Any
    growing = False
    axes: Mapping[str, Mapping[str, Sequence[str]]] = {}
    start_record: Mapping[str, Any] = {}
    _from = ""

    @property
    def n_rows(self) -> int:
        return self.ascent.n_rows

    @property
    def n_shards(self) -> int:
        return self.ascent.n_shards

    @property
    def cycles(self) -> int:
        return self.ascent.cycles

    @property
    def shards(self) -> list[int]:
        return list(self.ascent.shards)

    def start(self, finished: Finished | None = None) -> None:
        self.ascent.start()

    def start_from(self, place: Path, finished: Finished | None = None) -> None:
        """Start from the last kept state."""
        of, self._from = type(self.ascent.q), f"starts: as the last state of {place}"

        def last() -> Any:
            _, arrays = last_draw(place)
            return of(**{name: np.array(arrays[name], np.float64) for name in arrays_of(self.ascent.q)})

        self.ascent.place(on_root(self.comm, last, share=False, what=f"read the last state of {place}"))

    def draws(self, folder: Path, run: str, guard: Guard) -> DrawWriter:
        return DrawWriter(folder, run, guard)

    def restore(self, shared: Mapping[str, Any], shards: Mapping[int, Mapping[str, np.ndarray]]) -> None:
        ascent = self.ascent
        q = type(ascent.q)(**{name: np.array(shared[name], np.float64) for name in arrays_of(ascent.q)})
        ascent.place(q, int(shared["cycles"]), float(shared["gain"]), int(shared["guarded"]))


class VariationalChain(Ascending):
    """See `hpc.family.Chain`: a chain of variational inference, its held-out score, and its kept states."""

    scalars = SCALARS

    def __init__(self, family: Family, config: Config, number: int):
        self.comm, self.config, self.cells = family.comm, config, family.cells
        data, cells = family.data, family.cells
        self.ascent = Ascent(
            self.comm, likelihood_of(config, len(cells)), lambda start, stop: cells.of(data.rows_of(start, stop)),
            lambda places: cells.of(data.rows_at(places)), data.n_rows, settings_of(config), number,
        )  # fmt: skip
        self.every = config.of(keys.Output).kept
        self.heldout, self._score = None, np.nan
        if data.heldout is not None or config.heldout_path is not None:
            rows = data.heldout_blocks(self.comm, self.ascent.n_shards, family.heldout_file)
            self.heldout = HeldOut(self.comm, rows, self.ascent.n_shards, cells)

    def advance(self, word: Sequence[int], limit: int) -> Info:
        """Run a cycle; or once nothing changes any more, all cycles up to the next kept state."""
        ascent = self.ascent
        n, result, keeps = advanced(ascent, word, limit, self.every)
        bound, score = ascent.bound, np.nan
        if keeps:
            bound = ascent.evaluate()
            score = self.heldout.score(Students.of(ascent.q)) if self.heldout is not None else np.nan
        if self.comm.rank == 0:
            values = {
                "bound": bound, "bound_of_batch": ascent.bound_of_batch,
                "occupied": int((ascent.model.weight(ascent.q) >= 1.0).sum()), "step_size": ascent.rate(),
                "guarded": ascent.guarded,
            }  # fmt: skip
            result.values = {name: np.full(n, value, np.float64) for name, value in values.items()}
            result.values["heldout_lpd"] = np.append(np.full(n - 1, np.nan), score)
            result.draw = {**arrays_of(ascent.q), "bound": bound} if keeps else None
            result.problem = problem_of(ascent)
        return result

    def state(self) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, Any]]:
        """Return q, and what decides whether the chain has converged. Sums are recomputed from these."""
        ascent = self.ascent
        shared = {**arrays_of(ascent.q), "gain": ascent.gain, "guarded": ascent.guarded}
        return {i: {} for i in self.shards}, shared

    def in_words(self) -> list[str]:
        lines = [model_in_words(self.config, len(self.cells)), step_in_words(self.config)]
        if self._from and not self.cycles:
            lines.append(self._from)
        if self.cycles:
            lines = [f"continues from cycle {self.cycles}"]
        return [*lines, APPROXIMATION]


def model_in_words(config: Config, n_columns: int) -> str:
    """Describe the model in one line."""
    model = config.of(keys.Model)
    of = "Gaussian mixture" if model.likelihood == "gaussian" else "finite Dirichlet mixture of Gaussians"
    how = "centred and divided by their standard deviations" if model.standardise else "as they are in the table"
    return f"{of}, {counted(model.components, 'component')} of {counted(n_columns, 'column')}, {how}"


def step_in_words(config: Config, rows: str = "rows", noisy: str = "rows") -> str:
    """Describe a cycle in one line. rows, noisy: names of the units that a cycle visits, and of those that carry
    noise."""
    step = config.of(keys.Step)

    def value(given: Any, all_of_it: str) -> str:
        if isinstance(given, keys.DecayingRate):
            return f"(t + {given.delay:g})^-{given.decay:g}"
        return f"{given.growing:g} t" if hasattr(given, "growing") else all_of_it if given == "all" else f"{given:,}"

    words = f"steps of size {value(step.rate, '')} from {value(step.batch, 'all')} {rows}"
    if step.noise == "none":
        return f"{words}, no noise added"
    guard = ', guard = "none"' if step.guard == "none" else ""
    return f"{words}, {step.noise} noise as of {value(step.effective, '')} {noisy}{guard}"
