"""Chains of a run of any model, opened for reading: their settings, their table and training rows, their traces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mpibayes.errors import ConfigError, DataError, MpibayesError
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.load import load
from mpibayes.hpc.config.resolved import as_dict, difference
from mpibayes.hpc.config.section import marked
from mpibayes.hpc.run.annealed import cycle_of_all_rows
from mpibayes.hpc.run.directory import TRAINING_ROWS
from mpibayes.hpc.run.grown import require_whole
from mpibayes.hpc.run.identity import RESOLVED, read_provenance, read_resolved
from mpibayes.hpc.run.status import read_status
from mpibayes.hpc.run.table import data_of, opened
from mpibayes.hpc.run.unbegun import nothing_yet
from mpibayes.hpc.scalar import ACTIVE_ROWS
from mpibayes.io import generations
from mpibayes.io.draws import FOLDER as DRAWS
from mpibayes.io.files import chain_directories, open_regular, reading, reason
from mpibayes.io.segments import list_segments, read_blocks
from mpibayes.io.tables import AnyTable, imported_from
from mpibayes.io.trace import FOLDER as TRACE
from mpibayes.io.trace import read_trace
from mpibayes.text import counted, option

T = TypeVar("T")


@dataclass(frozen=True)
class Chain:
    """Directory of one chain; `home` is the run directory that holds it.

    `KeptChains.read_traces` adds `trace`, every recorded cycle, {} if there is none yet, and `growth`, the number of
    cycles until every row is active, 0 if all are active from the start. Growth cycles are always part of the burn-in.
    """

    name: str
    folder: Path
    home: Path
    config: Config
    burn_in: int
    growth: int = 0
    trace: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """Last cycle in the trace that was read; 0 if there is none."""
        return int(self.trace["cycle"][-1]) if self.trace else 0

    def later(self) -> dict[str, np.ndarray]:
        """Trace after burn-in."""
        keep = self.trace["cycle"] > self.burn_in
        return {name: values[keep] for name, values in self.trace.items()}

    @property
    def early(self) -> bool:
        """True if the chain has not reached its end: run.cycles, or settling for a run until settled."""
        return _is_short(self.config, self.folder, self.last)

    @property
    def seconds(self) -> np.ndarray:
        """Cumulative seconds of the chain at each line of the trace, without its start and its checkpoints."""
        cycle = self.trace["cycle"]
        return np.cumsum(self.trace["seconds"] * np.diff(cycle, prepend=0))


class KeptChains:
    """Chains of one model on one table.

    `run_dirs`: run directories; one with chain-1, chain-2, ... stands for all of them. `burn_in`: cycles to leave out
    of each chain, None for the configured number. `table`: current path of the table, None for the run's. Raises
    ConfigError (no run there, chains of different models), DataError (the table is missing or differs).
    """

    def __init__(self, run_dirs: Sequence[str | Path], burn_in: int | None = None, table: str | Path | None = None):
        if burn_in is not None and burn_in < 0:
            raise ConfigError(f"burn-in of {burn_in} cycles: expected a number of cycles, 0 or more")
        if not run_dirs:
            raise ConfigError("name the directory of a run (the -o of `mpibayes run`)")
        self.chains = _find_chains([Path(d) for d in run_dirs], burn_in)
        config = self.chains[0].config
        self.table = _open_table(self.chains, table)
        self.data = data_of(config, self.table)
        self._check_training_rows()

    weighable = False  # True if clusters have shares, which survey weights change
    weighted: bool | None = None  # True if a report gives shares of a population, see `training_weights`
    grouped = False  # True if there are groups of clusters
    drawn = "labels"  # a kept draw is of these
    no_questions: str = ""  # why kept draws cannot be asked, if they cannot
    response: str = ""  # column that the model predicts from others; "" if the model is a law of all its columns

    @property
    def modelled(self) -> tuple[str, ...]:
        """Names of the table's columns that the model predicts or conditions on; empty for a sparse table."""
        return () if self.sparse else tuple(c.name for c in self.data.stored)

    @property
    def sparse(self) -> bool:
        """True for the runs of a sparse table."""
        return self.chains[0].config.model.sparse

    def refuse_groups(self, groups: int | None) -> None:
        """Raise ConfigError if groups of clusters are requested from a model that has none."""
        if groups is not None and not self.grouped:
            raise ConfigError(f"{self.chains[0].home}: --groups is for runs of mixtures and cross-categorizations")

    def kept(self) -> list[tuple[int, int]]:
        """(chain number, cycle) of every kept draw after burn-in, chain by chain."""
        return [
            (i, int(cycle))
            for i, chain in enumerate(self.chains)
            for block in read_blocks(chain.folder / DRAWS, (), chain.burn_in, generations.kept(chain.folder, DRAWS))
            for cycle in block["cycle"]
        ]

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return self.data.n_rows

    def training_weights(self, weighted: bool | None) -> np.ndarray | None:
        """Survey weights of the training rows relative to the largest, (N,), so that equal weights are exactly 1. None
        if the table has no weights, if `weighted` is False, or if the model has no clusters. Raises ConfigError if
        `weighted` is True without weights, or if all weights are 0."""
        table = self.table
        if weighted and not self.weighable:
            raise ConfigError(
                f"--weighted: {self.chains[0].home}: weights count in the clusters of a mixture or a "
                "cross-categorization alone"
            )
        if table.weight is None and weighted:
            raise ConfigError(
                f"--weighted: {table.path} has no weights of its rows; import it again with "
                f"{option('weight', 'COLUMN')}, and name that table with --table"
            )
        if table.weight is None or weighted is False or not self.weighable:
            return None
        weights = table.weights() if self.data.training_rows is None else table.weights()[self.data.training_rows]
        if not weights.any():
            raise ConfigError(f"{table.path}: all rows that were trained on have weight 0; ask with --unweighted")
        relative: np.ndarray = weights / weights.max()
        return relative

    @property
    def held_out(self) -> np.ndarray:
        """Mask of the table's rows that were held out, bool (rows,)."""
        where = np.zeros(self.table.n_rows, bool)
        if self.data.heldout is not None:
            where[self.data.heldout] = True
        return where

    def of_all_rows(self, training: np.ndarray, held_out: np.ndarray) -> np.ndarray:
        """Merge values of training and held-out rows, each in order, into values of all rows of the table, (rows,)."""
        values, where = np.empty(self.table.n_rows, training.dtype), self.held_out
        values[~where], values[where] = training, held_out
        return values

    def _check_training_rows(self) -> None:
        for chain in self.chains:
            path = chain.folder / TRAINING_ROWS
            try:
                with open_regular(path) as file:
                    stored = np.load(file)
            except FileNotFoundError:
                continue
            except (OSError, ValueError, EOFError) as error:
                raise DataError(
                    f"{path}: cannot be read ({reason(error)}); it lists the rows of the table that were trained on, "
                    "and the run writes it anew when it is continued"
                ) from None
            mine = self.data.training_rows
            if mine is None or not np.array_equal(stored, mine):
                raise ConfigError(
                    f"{path}: not the rows that the settings of {self.chains[0].folder} train on. If data.heldout of "
                    "these runs differs, look at each by itself; else the file is damaged"
                )

    def read_traces(self) -> None:
        """Read the whole trace of every chain, and count its growth phase as burn-in."""
        for i, chain in enumerate(self.chains):
            trace = read_trace(chain.folder)
            growth = cycle_of_all_rows(trace, self.n_rows)
            self.chains[i] = replace(chain, trace=trace, growth=growth, burn_in=max(chain.burn_in, growth))

    def contradicted(self) -> bool:
        """True if the report advises against using the result yet because its chains contradict each other; families
        override it. Reads the traces."""
        return False

    def require_kept(self) -> list[tuple[int, int]]:
        """Return the kept draws. Raises ConfigError if there are none."""
        kept = self.kept()
        if not kept:
            self.require_begun()
            raise ConfigError(
                f"{self.chains[0].home}: no draw of the {self.drawn} was kept after burn-in; continue the run, give a "
                "smaller --burn-in, or lower output.labels"
            )
        return kept

    def require_begun(self) -> None:
        """Raise ConfigError if no chain has anything on disk yet."""
        if not any(list_segments(chain.folder / TRACE) for chain in self.chains):
            raise ConfigError(nothing_yet(home := self.chains[0].home, home))

    def require_draws(self) -> None:
        """Raise ConfigError if a trace that was read has nothing after burn-in."""
        for chain in self.chains:
            t = chain.trace
            if not t:
                raise ConfigError(nothing_yet(chain.folder, chain.home))
            last = int(t["cycle"][-1])
            if chain.growth and t[ACTIVE_ROWS][-1] < self.n_rows:
                raise ConfigError(
                    f"{chain.folder}: its subsample is still growing, with {t[ACTIVE_ROWS][-1]:,.0f} of "
                    f"{self.n_rows:,} rows after {counted(last, 'cycle')}: none of them is a draw of the posterior; "
                    "continue the run"
                )
            if last <= chain.burn_in:
                raise ConfigError(
                    f"{chain.folder}: a burn-in of {counted(chain.burn_in, 'cycle')} leaves nothing of the {last:,} "
                    "there are; give a smaller one with --burn-in, or continue the run"
                )


def begun(home: Path) -> list[Path]:
    """Directories of a run's chains that have cycles: one chain may still be searching while another is read."""
    return [folder for folder in chain_directories(home) if list_segments(folder / TRACE)]


def family_in(run_dir: str | Path) -> str:
    """Kind of a run's model. Raises ConfigError if there is no run."""
    return config_in(run_dir).kind


def of_pairs(run_dir: str | Path) -> bool:
    """True if a run's table is sparse. Raises ConfigError if there is no run."""
    return config_in(run_dir).model.sparse


def config_in(run_dir: str | Path) -> Config:
    """Settings of a run. Raises ConfigError if there is no run."""
    home = Path(run_dir)
    chain_directories(home)
    return load(_settings_in(home) / RESOLVED)


def by_model(run_dirs: Sequence[str | Path]) -> list[list[Path]]:
    """Group run directories by model, in the order given; runs of one model are chains of one posterior.

    Raises ConfigError if there is no run.
    """
    groups: list[tuple[dict[str, Any], list[Path]]] = []
    for home in map(Path, run_dirs):
        chain_directories(home)
        settings = as_dict(load(_settings_in(home) / RESOLVED))
        for of, homes in groups:
            if not difference(of, settings, same_table=True, model_alone=True):
                homes.append(home)
                break
        else:
            groups.append((settings, [home]))
    return [homes for _, homes in groups]


def files_of(run_dirs: Sequence[str | Path]) -> list[Path]:
    """Files that runs read: their tables, held-out rows and initial labels, and the source files of these tables, if
    they are nearby. Raises ConfigError."""
    files: list[Path] = []
    for config in map(config_in, run_dirs):
        for name, section in config.sections.items():
            named = (as_dict(config)[name].get(key) for key in marked(type(section), "path"))
            files += [Path(path) for path in named if isinstance(path, str)]
    return [*files, *(source for path in files for source in imported_from(path))]


def home_of(run_dir: str | Path, whole: bool = True) -> Path:
    """Directory with the settings of a run; run_dir may be one of its chains. Raises ConfigError; if rows are being
    added to the run, only with `whole`."""
    chain_directories(run_dir)
    return _settings_in(Path(run_dir), whole)


def burn_in_of(run_dir: str | Path) -> int:
    """run.burn_in of a run, in cycles. Raises ConfigError if there is no run."""
    return config_in(run_dir).burn_in


def evenly(items: Sequence[T], most: int) -> list[T]:
    """Select at most `most` items, evenly spaced, including the last one."""
    if len(items) <= most:
        return list(items)
    return [items[i] for i in np.ceil(np.arange(1, most + 1) * len(items) / most).astype(int) - 1]


def _find_chains(run_dirs: list[Path], burn_in: int | None) -> list[Chain]:
    chains = []
    for home in run_dirs:
        folders = begun(home) or chain_directories(home)
        parent = _settings_in(home)
        config = load(parent / RESOLVED)
        for folder in folders:
            of_chain = _burn_in(config, folder) if burn_in is None else burn_in
            chains.append(Chain("", folder, parent, config, of_chain))
    common = os.path.commonpath([c.folder.resolve() for c in chains])
    names = [os.path.relpath(c.folder.resolve(), common) for c in chains]
    chains = [replace(c, name=c.folder.name if name == "." else name) for c, name in zip(chains, names)]
    first = as_dict(chains[0].config)
    for chain in chains[1:]:
        lines = difference(first, as_dict(chain.config), same_table=True, model_alone=True)
        if lines:
            raise ConfigError(
                f"{chain.folder}: not a chain of the same model as {chains[0].folder} (mpibayes report compares them); "
                "what differs:",
                lines,
            )
    return chains


def _is_short(config: Config, folder: Path, last: int) -> bool:
    """True if a chain has not reached its end; last: the last cycle in its trace."""
    try:
        return read_status(folder).get("state") != "finished"
    except MpibayesError:  # a run directory can be copied without its status
        return not config.run.judged and last + config.output.thin <= config.run.cycles


def _burn_in(config: Config, folder: Path) -> int:
    """Burn-in of a chain in cycles: run.burn_in, and for a run until settled at least half of its cycles, since its end
    was judged by the rest; for an unfinished chain at most half, so that an early look has draws."""
    segments = list_segments(folder / TRACE)
    last = segments[-1].last if segments else 0
    half = last // 2
    whole = max(config.burn_in, half) if config.run.judged else config.burn_in
    return min(whole, half) if _is_short(config, folder, last) else whole


def _settings_in(home: Path, whole: bool = True) -> Path:
    """Directory with the settings of a run directory, which may be that of one chain, DIR/chain-2."""
    with reading(home, ConfigError):
        parent = home if (home / RESOLVED).exists() else home.parent
        there = (parent / RESOLVED).exists()
    if not there:
        raise ConfigError(
            f"{home}: no run directory (it has no {RESOLVED}). Expected the directory of a run (the -o of "
            "`mpibayes run`)."
        )
    if whole:
        require_whole(parent)
    read_resolved(parent)  # damaged settings are reported as such, not as mistakes in a configuration
    return parent


def _open_table(chains: list[Chain], given: str | Path | None) -> AnyTable:
    """Open the chains' table, recognised by its content, without rows appended since."""
    path = chains[0].config.table if given is None else Path(given)
    with reading(path):
        there = path.exists()
    if not there:
        hint = "name the place where it is now with --table" if given is None else "check the path given with --table"
        raise DataError(f"{path}: the run's table is not there; {hint}")
    table = opened(chains[0].config, path, read_provenance(chains[0].home)["fingerprint"])
    for chain in chains:
        fingerprint = read_provenance(chain.home)["fingerprint"]
        if fingerprint != table.fingerprint:
            raise DataError(
                f"{path}: its content is not what {chain.home} was run on (fingerprint {table.fingerprint[:12]}, "
                f"expected {fingerprint[:12]}); name the original table with --table, or import it again from the "
                "same source and schema"
            )
    return table
