"""The chains of a run, opened for reading, whatever their model: their settings, their table and training rows, their
traces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

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
from mpibayes.hpc.scalar import ACTIVE_ROWS
from mpibayes.io import checkpoint
from mpibayes.io.draws import FOLDER as DRAWS
from mpibayes.io.files import chain_directories, open_regular, reading, reason
from mpibayes.io.segments import list_segments, read_blocks
from mpibayes.io.tables import AnyTable, imported_from
from mpibayes.io.trace import FOLDER as TRACE
from mpibayes.io.trace import read_trace
from mpibayes.text import counted, option


@dataclass(frozen=True)
class Chain:
    """One chain's directory; `home` is the run directory that holds it.

    What `KeptChains.read_traces` adds: `trace`, every recorded cycle, {} where there is none yet; `growth`, cycles
    until every row is active, 0 where all are from the start. They are always part of the burn-in.
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
        """The last cycle that is in the trace, which was read; 0 where there is none."""
        return int(self.trace["cycle"][-1]) if self.trace else 0

    def later(self) -> dict[str, np.ndarray]:
        """The trace after burn-in."""
        keep = self.trace["cycle"] > self.burn_in
        return {name: values[keep] for name, values in self.trace.items()}

    @property
    def early(self) -> bool:
        """True if the chain is short of its end: run.cycles, or where a run until settled has settled."""
        return _is_short(self.config, self.folder, self.last)

    @property
    def seconds(self) -> np.ndarray:
        """Seconds that the chain had taken at each line of the trace, its start and its checkpoints aside."""
        cycle = self.trace["cycle"]
        return np.cumsum(self.trace["seconds"] * np.diff(cycle, prepend=0))


class KeptChains:
    """Chains of one model on one table.

    `run_dirs`: run directories; one with chain-1, chain-2, ... stands for all of them. `burn_in`: cycles to leave out
    of each chain, None for what the configuration says. `table`: where the table is now, None for where the run found
    it. Raises ConfigError (no run there, chains of different models), DataError (the table is missing or another one).
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

    weighable = False  # True where clusters have shares, which survey weights change
    weighted: bool | None = None  # whether a report has shares of a population, see `training_weights`
    grouped = False  # True where there are groups of clusters
    no_questions: str = ""  # why kept draws cannot be asked, where they cannot
    response: str = ""  # the column that a model predicts from others, given; "" where it has a law of all its columns

    @property
    def modelled(self) -> tuple[str, ...]:
        """Names of the table's columns that the model has a law of, or is given; of a sparse table none."""
        return () if self.sparse else tuple(c.name for c in self.data.stored)

    @property
    def sparse(self) -> bool:
        """True for the runs of a sparse table."""
        return self.chains[0].config.model.sparse

    def refuse_groups(self, groups: int | None) -> None:
        """Raises ConfigError where groups of clusters are asked of a model that has none."""
        if groups is not None and not self.grouped:
            raise ConfigError(f"{self.chains[0].home}: --groups is for runs of mixtures and cross-categorizations")

    def kept(self) -> list[tuple[int, int]]:
        """(number of the chain, cycle) of every kept draw after burn-in, chain by chain."""
        return [
            (i, int(cycle))
            for i, chain in enumerate(self.chains)
            for block in read_blocks(chain.folder / DRAWS, (), chain.burn_in, checkpoint.kept(chain.folder, DRAWS))
            for cycle in block["cycle"]
        ]

    @property
    def n_rows(self) -> int:
        """Training rows."""
        return self.data.n_rows

    def training_weights(self, weighted: bool | None) -> np.ndarray | None:
        """Survey weights of the training rows relative to the largest, (N,), so that equal ones are exactly 1. None of
        a table without, if `weighted` is False, and of a model without clusters. Raises ConfigError if it is True and
        there are none, and where all of them are 0."""
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
        return weights / weights.max()

    @property
    def held_out(self) -> np.ndarray:
        """True for the rows of the table that were held out, bool (rows,)."""
        where = np.zeros(self.table.n_rows, bool)
        if self.data.heldout is not None:
            where[self.data.heldout] = True
        return where

    def of_all_rows(self, training: np.ndarray, held_out: np.ndarray) -> np.ndarray:
        """Values of the rows of the table, (rows,), from those of the training and the held-out rows, in order."""
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
        """Read the whole trace of every chain, and leave its growth phase out of what counts."""
        for i, chain in enumerate(self.chains):
            trace = read_trace(chain.folder)
            growth = cycle_of_all_rows(trace, self.n_rows)
            self.chains[i] = replace(chain, trace=trace, growth=growth, burn_in=max(chain.burn_in, growth))

    def contradicted(self) -> bool:
        """True if the report advises against using the result yet, since its chains contradict each other; families
        override it. Reads the traces."""
        return False

    def require_draws(self) -> None:
        """ConfigError where a trace, which was read, has nothing after burn-in."""
        for chain in self.chains:
            t = chain.trace
            if not t:
                raise ConfigError(
                    f"{chain.folder}: nothing was kept yet; the trace is written with each checkpoint (mpibayes status "
                    f"{chain.home})"
                )
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
    """Directories of a run's chains that have cycles: one may still search while another is looked at."""
    return [folder for folder in chain_directories(home) if list_segments(folder / TRACE)]


def family_in(run_dir: str | Path) -> str:
    """The kind of a run's model. Raises ConfigError where there is no run."""
    return config_in(run_dir).kind


def of_pairs(run_dir: str | Path) -> bool:
    """True if a run's table is a sparse one. Raises ConfigError where there is no run."""
    return config_in(run_dir).model.sparse


def config_in(run_dir: str | Path) -> Config:
    """The settings of a run. Raises ConfigError where there is no run."""
    home = Path(run_dir)
    chain_directories(home)
    return load(_settings_in(home) / RESOLVED)


def by_model(run_dirs: Sequence[str | Path]) -> list[list[Path]]:
    """Run directories by their model, in the order given: those of one model are chains of one posterior.

    Raises ConfigError where there is no run.
    """
    groups: list[tuple[dict, list[Path]]] = []
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
    """The files that runs read: their tables, held-out rows and labels to start from, and the files that these tables
    were imported from, where they are near. Raises ConfigError."""
    files: list[Path] = []
    for config in map(config_in, run_dirs):
        for name, section in config.sections.items():
            named = (as_dict(config)[name].get(key) for key in marked(type(section), "path"))
            files += [Path(path) for path in named if isinstance(path, str)]
    return [*files, *(source for path in files for source in imported_from(path))]


def home_of(run_dir: str | Path, whole: bool = True) -> Path:
    """The directory with the settings of a run, which may be given as one of its chains. Raises ConfigError; where rows
    are being taken in only if the run is to be `whole`."""
    chain_directories(run_dir)
    return _settings_in(Path(run_dir), whole)


def burn_in_of(run_dir: str | Path) -> int:
    """run.burn_in of a run, in cycles. Raises ConfigError where there is no run."""
    return config_in(run_dir).burn_in


def evenly(items: Sequence, most: int) -> list:
    """Select at most `most` of the items, evenly spaced, with the last one."""
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
    """True if a chain is short of its end; last: the last cycle in its trace."""
    try:
        return read_status(folder).get("state") != "finished"
    except MpibayesError:  # a run directory can be copied without its status
        return not config.run.judged and last + config.output.thin <= config.run.cycles


def _burn_in(config: Config, folder: Path) -> int:
    """Cycles that a chain leaves out: run.burn_in, and of a run until settled half of those that are there too, since
    its end was judged by what is left; of a chain short of its end half at most, so that an early look has draws."""
    segments = list_segments(folder / TRACE)
    last = segments[-1].last if segments else 0
    half = last // 2
    whole = max(config.burn_in, half) if config.run.judged else config.burn_in
    return min(whole, half) if _is_short(config, folder, last) else whole


def _settings_in(home: Path, whole: bool = True) -> Path:
    """The directory with the settings that a run directory was given for, which may be one chain's, DIR/chain-2."""
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
    """The chains' table, recognised by its content, without rows that were appended since."""
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
