"""Indian buffet processes under the run loop: their settings from a configuration, and a chain with its scores and kept
features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.cells import Cells
from mpibayes.hpc.data.rows import Data, digest
from mpibayes.hpc.family import Info
from mpibayes.hpc.ibp import draws, keys
from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.heldout import HeldOut, law_everywhere
from mpibayes.hpc.ibp.heldout_cells import HeldOutCells
from mpibayes.hpc.ibp.scalars import SCALARS, common_rows
from mpibayes.hpc.ibp.start.strategy import start
from mpibayes.hpc.ibp.state import Gamma, Hyper, InverseGamma, Settings
from mpibayes.hpc.ibp.update import harmonic
from mpibayes.hpc.parallel.agreement import on_root
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.shards import count, default_count
from mpibayes.hpc.run import output
from mpibayes.hpc.run.earlier import places_before
from mpibayes.io.draws import DrawWriter
from mpibayes.io.files import Guard
from mpibayes.io.finished import Finished
from mpibayes.kernels.ibp.features import Rows as Bits
from mpibayes.text import counted

GRID_OF_C = tuple(float(c) for c in np.geomspace(0.1, 100.0, 31))
MOST_FEATURES = 4096  # their matrices take some hundred MiB
READ_ROWS = 1 << 14  # rows read at a time: in float64, with copies, they take more than the shard itself
LEAST_CELLS = 20  # least expected number of withheld cells: with so many there is always one
SCORED = ("heldout_lpd", "heldout_lpd_averaged", "heldout_cell_lpd", "heldout_cell_lpd_averaged", "heldout_cell_rmse")
COLUMN_NOISE = "column_noise_sd"  # in the trace, if each column has its own


def settings_of(config: Config, cells: Cells) -> Settings:
    """Convert a configuration, in which "auto" has been resolved, to settings of the sampler.

    Learned variances have an inverse gamma prior with shape 1 and, as scale, the mean variance of a cell: 1 if cells
    are standardised. The same holds for loadings, but in units of the noise if each column has its own.
    """
    model, sampler = config.of(keys.Model), config.of(keys.Sampler)
    size = 1.0
    if not model.standardise and cells.columns:
        size = float(np.mean([c.scale**2 for c in cells.columns]))
    of_loadings = 1.0 if model.noise == "column" else size
    return Settings(
        seed=config.run.seed,
        shards=config.run.shards,
        alpha=_mass(model.alpha),
        c=GRID_OF_C if model.c == "learn" else model.c,
        noise_sd=_variance(model.noise_sd, size),
        feature_sd=_variance(model.feature_sd, of_loadings),
        noise=model.noise,
        sweeps_per_cycle=sampler.sweeps_per_cycle,
        opening="one" if sampler.opening == "auto" else sampler.opening,
        likelihood=model.likelihood,
        start=sampler.init,
        moves=None if sampler.moves == "auto" else sampler.moves,
    )


def _mass(given: str | float | keys.GammaPrior) -> float | Gamma:
    if given == "learn":
        return Gamma(1.0, 1.0)
    return given if isinstance(given, float) else Gamma(*given.gamma)


def _variance(given: str | float | keys.VariancePrior, size: float) -> float | InverseGamma:
    if given == "learn":
        return InverseGamma(1.0, size)
    return given if isinstance(given, float) else InverseGamma(*given.inverse_gamma)


class Family:
    """See `hpc.family.Family`."""

    shares_cycles = True

    def __init__(self, comm: Communicator, config: Config, data: Data):
        self.comm, self.data, self._config = comm, data, config
        self.cells = cells_of(config, data)
        self.heldout_file = None

    default_shards = staticmethod(default_count)

    @staticmethod
    def cycle_s(n_cells: int) -> float:
        return 5e-3 + 5e-8 * n_cells

    @staticmethod
    def decided(config: Config, n_training: int) -> dict[str, dict[str, Any]]:
        opening = config.of(keys.Sampler).opening
        return {
            "run": {"shards": count(config.run.shards, n_training), "burn_in": config.burn_in},
            "sampler": {"opening": "one" if opening == "auto" else opening},
        }

    @staticmethod
    def grown(config: Config) -> Config:
        return config

    def read_files(self, places: Sequence[Path], fresh: bool) -> dict[str, Any]:
        config = self._config
        on_root(self.comm, lambda: _require_few(config, self.data.n_rows))
        on_root(self.comm, lambda: _require_cells(config, self.data, self.cells))
        if config.heldout_path is not None:
            self.heldout_file, message = self.data.read_heldout_file(self.comm, config.heldout_path, config.data.unseen)
            if message:
                output.say(f"warning: {message}")
        return {"heldout": None if self.heldout_file is None else digest(self.heldout_file)}

    def load(self, places: Sequence[Path], fresh: bool) -> None:
        """Do nothing: each chain reads the rows of its own shards."""

    def chain(self, config: Config, number: int) -> FeaturesChain:
        return FeaturesChain(self, config, number)


def _require_few(config: Config, n_rows: int) -> None:
    """Raise ConfigError if a fixed mass opens more features than their matrices have room for."""
    model = config.of(keys.Model)
    if not isinstance(model.alpha, float):
        return
    c = model.c if isinstance(model.c, float) else 1.0
    expected = model.alpha * harmonic(n_rows, c)
    if expected > MOST_FEATURES:
        key = config.where(("model", "alpha"))
        most = 0.5 * MOST_FEATURES * model.alpha / expected
        raise ConfigError(
            f"{key}: got {model.alpha:g}, of which {n_rows:,} rows have {expected:,.0f} features on average, more "
            f"than there is room for ({MOST_FEATURES:,}); set at most {most:.2g}"
        )


def _require_cells(config: Config, data: Data, cells: Cells) -> None:
    """Raise ConfigError if too few cells would be withheld to be scored."""
    fraction, n_rows = config.of(keys.Data).heldout_cells, data.table.n_rows
    there = n_rows * len(cells) - sum(c.n_missing for c in cells.columns)
    expected = (fraction or 0.0) * there * data.n_rows / n_rows
    if fraction is not None and len(cells) and expected < LEAST_CELLS:
        key = config.where(("data", "heldout_cells"))
        raise ConfigError(
            f"{key}: {fraction:g} of the cells of {counted(data.n_rows, 'training row')} are about {expected:.1f}, too "
            f"few to score ({LEAST_CELLS} at least); raise it, or take it out"
        )


def cells_of(config: Config, data: Data) -> Cells:
    """Cells of the used columns as the model uses them; no columns if it samples the prior."""
    model = config.of(keys.Model)
    return Cells(data.columns if model.likelihood else (), model.standardise)


class FeaturesChain:
    """See `hpc.family.Chain`: a chain of features, the scores of its held-out rows, and its kept features."""

    scalars = SCALARS
    growing = False

    def __init__(self, family: Family, config: Config, number: int):
        self.comm, self.config, self.data, self.cells = family.comm, config, family.data, family.cells
        settings, data, cells = settings_of(config, family.cells), family.data, family.cells
        fraction = config.of(keys.Data).heldout_cells
        self.heldout_cells = None
        if fraction is not None and settings.likelihood:
            self.heldout_cells = HeldOutCells(self.comm, data, cells, fraction)

        def read(start: int, stop: int) -> np.ndarray:
            if self.heldout_cells is not None:
                return self.heldout_cells.hide(start, cells.in_single_precision(data.rows_of(start, stop)))
            x = np.empty((stop - start, len(cells)), np.float32)
            for at in range(start, stop, READ_ROWS):
                end = min(at + READ_ROWS, stop)
                x[at - start : end - start] = cells.in_single_precision(data.rows_of(at, end))
            return x

        self.buffet = Buffet(self.comm, read, data.n_rows, len(cells), settings, number)
        if self.heldout_cells is not None:
            self.heldout_cells.count()
        self._from = ""
        self.axes: Mapping[str, Mapping[str, Sequence[str]]] = {}
        self.start_record: Mapping[str, Any] = {}
        if settings.noise == "column" and settings.likelihood:
            self.axes = {COLUMN_NOISE: {"column": [c.name for c in cells.columns]}}
        self.heldout = None
        if (data.heldout is not None or config.heldout_path is not None) and settings.likelihood:
            rows = data.heldout_blocks(self.comm, self.buffet.n_shards, family.heldout_file)
            self.heldout = HeldOut(self.comm, rows, cells)

    @property
    def n_rows(self) -> int:
        return self.buffet.n_rows

    @property
    def n_shards(self) -> int:
        return self.buffet.n_shards

    @property
    def cycles(self) -> int:
        return self.buffet.cycles

    @property
    def shards(self) -> list[int]:
        return [shard.index for shard in self.buffet.shards]

    def start_from(self, place: Path, finished: Finished | None = None) -> None:
        """Start from the features of the last draw; rows appended since have none until the first cycle."""

        def last() -> tuple[np.ndarray, Any]:
            draw = draws.last_draw(place, self.buffet.settings.noise)
            where = places_before(place, self.data)
            return np.where(where[:, None] < 0, False, draw.rows()[where]), draw.hyper

        self._from = f"starts: with the features of the last draw of {place}"
        self.buffet.place(*on_root(self.comm, last, what=f"read the features of {place}"))

    def start(self, finished: Finished | None = None) -> None:
        start(self.buffet, self.buffet.settings.start, self.config.of(keys.Sampler).init_rows)

    def advance(self, word: Sequence[int], limit: int) -> Info:
        """Run one cycle, score it, and return its features if they are kept."""
        buffet, output = self.buffet, self.config.of(keys.Output)
        words = np.array(word, np.int64)
        self.comm.sum_everywhere(words)
        info = buffet.cycle()
        scores = self._scores(info.cycle) if info.cycle % output.thin == 0 else {}
        draw = draws.of_chain(buffet) if info.cycle % output.labels == 0 else None
        result = Info(range(info.cycle, info.cycle + 1), words.tolist())
        if self.comm.rank == 0:
            owned, hyper = buffet.totals.owned, info.hyper
            values = {
                "log_joint": info.log_joint, "n_features": info.n_features,
                "common_features": int((owned >= common_rows(buffet.n_rows)).sum()),
                "features_of_row": float(owned.sum()) / buffet.n_rows, "lone_features": int((owned == 1).sum()),
                "mass": hyper.alpha, "concentration": hyper.c, "noise_sd": draws.common(hyper),
                "feature_sd": hyper.feature_sd,
            } | dict.fromkeys(SCORED, np.nan) | scores  # fmt: skip
            result.values = {name: np.array([value]) for name, value in values.items()}
            if COLUMN_NOISE in self.axes:
                result.values[COLUMN_NOISE] = hyper.noise_sd[None] * self.cells.scale
            result.draw = draw
            if not np.isfinite(info.log_joint):
                result.problem = "the log joint probability is not a finite number"
            if info.n_features > MOST_FEATURES:
                result.problem = f"{info.n_features:,} features, more than there is room for; fix a lower model.alpha"
        return result

    def _scores(self, cycle: int) -> dict[str, float]:
        """Scores of held-out rows and cells under the current draw; valid on root. Collective."""
        rows, cells, average = self.heldout, self.heldout_cells, cycle > self.config.burn_in
        if rows is None and cells is None:
            return {}
        law = law_everywhere(self.buffet)
        of_rows = rows.score(law, self.n_shards, average) if rows is not None else (np.nan,) * 2
        of_cells = cells.score(self.buffet, law, average) if cells is not None else (np.nan,) * 3
        return dict(zip(SCORED, of_rows + of_cells, strict=True))

    def state(self) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, Any]]:
        """Return the state to save: the features of each row, missing cells as drawn, hyperparameters, and the running
        scores of held-out rows and cells. Sums are recomputed from these."""
        buffet, heldout, cells = self.buffet, self.heldout, self.heldout_cells
        shards = {s.index: {"z": s.rows.z, "filled": s.rows.x[s.missing]} for s in buffet.shards}
        if heldout is not None:
            for i in shards:
                shards[i]["heldout_log_sum"] = heldout.log_sums[i]
        if cells is not None:
            for i, part in zip(shards, cells.parts):
                shards[i] |= {"heldout_cells_log_sum": part.log_sum, "heldout_cells_mean_sum": part.mean_sum}
        return shards, {
            "slots": buffet.slots,
            **{name: np.asarray(value, np.float64) for name, value in vars(buffet.hyper).items() if name != "noise"},
            "heldout_draws": max((of.n_draws for of in (heldout, cells) if of is not None), default=0),
        }

    def restore(self, shared: Mapping[str, Any], shards: Mapping[int, Mapping[str, np.ndarray]]) -> None:
        buffet = self.buffet
        alpha, c, feature_sd = (float(shared[name]) for name in ("alpha", "c", "feature_sd"))
        buffet.hyper = Hyper(alpha, c, np.array(shared["noise_sd"], np.float64), feature_sd, buffet.settings.noise)
        buffet.slots = np.array(shared["slots"], np.int64)
        for shard in buffet.shards:
            held = shards[shard.index]
            shard.rows.x[shard.missing] = held["filled"]
            start, z = int(buffet.starts[shard.index]), np.array(held["z"], np.uint64, order="C")
            shard.rows = Bits(shard.rows.x, z, start)
        buffet.cycles = int(shared["cycles"])
        buffet.summarise()
        if self.heldout is not None:
            self.heldout.n_draws = int(shared["heldout_draws"])
            self.heldout.log_sums = {i: np.array(arrays["heldout_log_sum"]) for i, arrays in shards.items()}
        if self.heldout_cells is not None:
            self.heldout_cells.n_draws = int(shared["heldout_draws"])
            for shard, part in zip(buffet.shards, self.heldout_cells.parts):
                held = shards[shard.index]
                part.log_sum = np.array(held["heldout_cells_log_sum"])
                part.mean_sum = np.array(held["heldout_cells_mean_sum"])

    def draws(self, folder: Path, run: str, guard: Guard) -> DrawWriter:
        return draws.writer(folder, run, guard)

    def in_words(self) -> list[str]:
        config, cycle = self.config, self.cycles
        lines = [f"continues from cycle {cycle}"] if cycle else [model_in_words(config, self.cells)]
        lines += [self._from] if self._from and not cycle else []
        if cycle <= config.burn_in:
            last = config.run.cycles
            counts = f"draws count from cycle {config.burn_in + 1} of {last}"
            none = f"no draws count: run.burn_in = {config.burn_in} of {last}"
            lines.append(counts if config.burn_in < last else none)
        return lines


def model_in_words(config: Config, cells: Cells) -> str:
    """Describe the model in one line."""
    model = config.of(keys.Model)
    if not model.likelihood:
        return "samples the prior on features: model.likelihood = false"
    columns = counted(len(cells), "column")
    how = "centred and divided by their standard deviations" if model.standardise else "as they are in the table"
    noise = "one noise for all" if model.noise == "shared" else "a noise for each"
    return f"linear-Gaussian features of {columns}, {how}; {noise}"
