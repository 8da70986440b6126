"""What a run left behind, opened for reading: its chains, its training rows and its kept draws.

A kept draw is the labels of the training rows and the hyperparameters they were drawn under. Everything else about its
clusters is computed again from the table, read in slices.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mpibayes.hpc import config as configuration
from mpibayes.hpc.config import Config
from mpibayes.hpc.data import Data
from mpibayes.hpc.errors import ConfigError, DataError
from mpibayes.hpc.models.components import Components, Hyper
from mpibayes.hpc.models.statistics import Statistics, merge_moments
from mpibayes.hpc.records import RESOLVED, read_provenance, read_resolved
from mpibayes.hpc.run_directory import TRAINING_ROWS
from mpibayes.io import checkpoint
from mpibayes.io.files import chain_directories
from mpibayes.io.labels import FOLDER as LABELS
from mpibayes.io.labels import Draw, iterate_draws
from mpibayes.io.segments import read_blocks
from mpibayes.io.table import Rows, Table
from mpibayes.io.trace import read_trace

SLICE_ROWS = 65_536
SAME_MODEL = ("model.", "columns.", "data.heldout")  # keys in which chains of one model agree


@dataclass(frozen=True)
class Chain:
    """One chain's directory; `home` is the run directory that holds its configuration.

    What `KeptRun.read_traces` adds: `trace`, every recorded cycle, {} where there is none yet; `growth`, cycles until
    every row is active, 0 where all are from the start. They are always part of the burn-in.
    """

    name: str
    folder: Path
    home: Path
    config: Config
    burn_in: int
    growth: int = 0
    trace: dict[str, np.ndarray] = field(default_factory=dict)

    def later(self) -> dict[str, np.ndarray]:
        """The trace after burn-in."""
        keep = self.trace["cycle"] > self.burn_in
        return {name: values[keep] for name, values in self.trace.items()}

    @property
    def seconds(self) -> np.ndarray:
        """Seconds that the chain had taken at each line of the trace, its start and its checkpoints aside."""
        cycle = self.trace["cycle"]
        return np.cumsum(self.trace.get("seconds", np.zeros(len(cycle))) * np.diff(cycle, prepend=0))


class KeptRun:
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
        self.data = Data(self.table, config.unused, config.heldout_fraction)
        self._check_training_rows()
        self.likelihood = config.model.likelihood
        self.columns = self.data.columns if self.likelihood else ()
        self.components = Components(self.columns, config.priors)

    @property
    def n_rows(self) -> int:
        """Training rows."""
        return self.data.n_rows

    def _check_training_rows(self) -> None:
        for chain in self.chains:
            path = chain.folder / TRAINING_ROWS
            if not path.exists():
                continue
            try:
                stored = np.load(path)
            except (OSError, ValueError, EOFError) as error:
                raise DataError(
                    f"{path}: cannot be read ({error}); it tells which rows of the table were trained on, and the run "
                    "writes it anew when it is continued"
                ) from None
            mine = self.data.training_rows
            if mine is None or not np.array_equal(stored, mine):
                raise ConfigError(
                    f"{path}: not the rows that the settings of {self.chains[0].folder} train on. If data.heldout of "
                    "these runs differs, look at each by itself; else the file is damaged"
                )

    def slices(self) -> Iterator[tuple[int, Rows]]:
        """(first training row, Rows of the used columns), in order."""
        for start in range(0, self.n_rows, SLICE_ROWS):
            rows = self.data.rows_of(start, min(start + SLICE_ROWS, self.n_rows))
            if not self.likelihood:
                rows = type(rows)(*(np.empty((len(rows), 0), a.dtype) for a in vars(rows).values()))
            yield start, rows

    def read_traces(self) -> None:
        """Read the whole trace of every chain, and leave its growth phase out of what counts."""
        for i, chain in enumerate(self.chains):
            trace = read_trace(chain.folder)
            growth = growth_of(trace, self.n_rows)
            self.chains[i] = replace(chain, trace=trace, growth=growth, burn_in=max(chain.burn_in, growth))

    def kept(self) -> list[tuple[int, int]]:
        """(number of the chain, cycle) of every kept draw after burn-in, chain by chain."""
        return [
            (i, int(cycle))
            for i, chain in enumerate(self.chains)
            for block in read_blocks(chain.folder / LABELS, (), chain.burn_in, checkpoint.kept(chain.folder, LABELS))
            for cycle in block["cycle"]
        ]

    def draws(self, wanted: Sequence[tuple[int, int]] | None = None) -> Iterator[tuple[int, Draw]]:
        """(number of the chain, draw) of the kept draws after burn-in, of `wanted` alone when given; one at a time.

        Labels are 0..K-1, none of them empty.
        """
        chosen = None if wanted is None else set(wanted)
        for i, chain in enumerate(self.chains):
            if chosen is not None and not any(c == i for c, _ in chosen):
                continue
            for draw in iterate_draws(chain.folder, chain.burn_in + 1):
                if chosen is None or (i, draw.cycle) in chosen:
                    if len(draw.labels) != self.n_rows:
                        raise DataError(
                            f"{chain.folder}: cycle {draw.cycle} has {len(draw.labels):,} labels for {self.n_rows:,} "
                            "training rows"
                        )
                    yield i, _without_gaps(draw)

    def statistics(self, partitions: Sequence[np.ndarray]) -> list[Statistics]:
        """Statistics of the clusters of each partition, (N,) labels 0..K-1, in one pass over the table."""
        from mpibayes.kernels import mixture as kernels

        offsets = self.components.categorical.offsets
        clusters = [int(z.max()) + 1 for z in partitions]
        totals: list[Statistics | None] = [None] * len(partitions)
        for start, rows in self.slices():
            for i, z in enumerate(partitions):
                part_z = np.ascontiguousarray(z[start : start + len(rows)], np.int32)
                part = Statistics(*kernels.accumulate(rows, part_z, clusters[i], offsets))
                totals[i] = part if totals[i] is None else _add(totals[i], part)
        return totals

    def sample(self, most: int) -> Rows:
        """About `most` training rows, evenly spaced."""
        step = max(1, self.n_rows // most)
        return Rows.concatenate(
            self.columns, [r.take(np.arange(-start % step, len(r), step)) for start, r in self.slices()]
        )

    def histograms(self, z: np.ndarray, cuts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Cells of the real and count columns by interval and cluster of the partition z, (len(cuts) + 1, K) int64,
        by name."""
        k = int(z.max()) + 1
        counts = {name: np.zeros((len(at) + 1, k), np.int64) for name, at in cuts.items()}
        numeric = [c for c in self.columns if c.name in cuts]
        for start, rows in self.slices() if numeric else ():
            part_z = z[start : start + len(rows)]
            for c in numeric:
                x = getattr(rows, c.block)[:, c.index]
                seen = ~np.isnan(x)
                cell = np.searchsorted(cuts[c.name], x[seen]) * k + part_z[seen]
                counts[c.name] += np.bincount(cell, minlength=counts[c.name].size).reshape(-1, k)
        return counts

    def moments(self, z: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Mean and sum of squares about it, (K,) each, of the observed cells of real and count columns in each
        cluster of z."""
        from mpibayes.kernels import mixture as kernels

        # counts are summarised here as real numbers: their squares are no statistic of the model, but of interest to
        # a reader
        numeric = [c for c in self.columns if c.block in ("reals", "tallies")]
        k, total = int(z.max()) + 1, None
        for start, rows in self.slices() if numeric else ():
            n = len(rows)
            x = np.column_stack([getattr(rows, c.block)[:, c.index] for c in numeric])
            plain = Rows(
                np.empty((n, 0), np.uint8), np.empty((n, 0), np.uint16), np.ascontiguousarray(x), np.empty((n, 0))
            )
            part_z = np.ascontiguousarray(z[start : start + n], np.int32)
            part = Statistics(*kernels.accumulate(plain, part_z, k, np.zeros(1, np.int64)))
            total = part if total is None else _add(total, part)
        return {c.name: (total.real_mean[i], total.real_scatter[i]) for i, c in enumerate(numeric)}


def hyper_of(draw: Draw) -> Hyper:
    return Hyper(draw.concentration, draw.discount, draw.dirichlet, draw.normal, draw.gamma)


def evenly(items: Sequence, most: int) -> list:
    """At most `most` of the items, evenly spaced, the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[i] for i in np.ceil(np.arange(1, most + 1) * len(items) / most).astype(int) - 1]


def _without_gaps(draw: Draw) -> Draw:
    used = np.bincount(draw.labels) > 0
    if used.all():
        return draw
    return Draw(**{**vars(draw), "labels": (np.cumsum(used) - 1)[draw.labels]})


def _add(a: Statistics, b: Statistics) -> Statistics:
    """Statistics of the rows of both; exact parts are added, moments merged."""
    n, mean, scatter = merge_moments(
        *(np.stack([getattr(a, f), getattr(b, f)]) for f in ("real_n", "real_mean", "real_scatter"))
    )
    return Statistics(
        a.size + b.size, a.levels + b.levels, n, mean, scatter, a.tally_n + b.tally_n, a.tally_sum + b.tally_sum
    )


def _find_chains(run_dirs: list[Path], burn_in: int | None) -> list[Chain]:
    chains = []
    for home in run_dirs:
        folders = chain_directories(home)
        parent = home if (home / RESOLVED).exists() else home.parent  # DIR/chain-2 given alone
        if not (parent / RESOLVED).exists():
            raise ConfigError(
                f"{home}: no run directory (it has no {RESOLVED}). Expected the directory of a run (the -o of "
                "`mpibayes run`)."
            )
        read_resolved(parent)  # damaged settings are told as such, not as mistakes in a configuration
        config = configuration.load(parent / RESOLVED)
        for folder in folders:
            chains.append(Chain("", folder, parent, config, config.burn_in if burn_in is None else burn_in))
    common = os.path.commonpath([c.folder.resolve() for c in chains])
    names = [os.path.relpath(c.folder.resolve(), common) for c in chains]
    chains = [replace(c, name=c.folder.name if name == "." else name) for c, name in zip(chains, names)]
    first = configuration.as_dict(chains[0].config)
    for chain in chains[1:]:
        lines = configuration.difference(first, configuration.as_dict(chain.config), same_table=True)
        lines = [line for line in lines if line.startswith(SAME_MODEL)]
        if lines:
            raise ConfigError(
                f"{chain.folder}: not a chain of the same model as {chains[0].folder}; what differs:", lines
            )
    return chains


def growth_of(trace: Mapping[str, np.ndarray], n_rows: int) -> int:
    """The first recorded cycle after which every row is active; 0 where all are from the start, the last if none is."""
    (growing,) = np.nonzero(trace.get("active_rows", np.zeros(0)) < n_rows)
    return int(trace["cycle"][min(growing[-1] + 1, len(trace["cycle"]) - 1)]) if len(growing) else 0


def _open_table(chains: list[Chain], given: str | Path | None) -> Table:
    """The chains' table, recognised by its content."""
    path = chains[0].config.table if given is None else Path(given)
    if not path.exists():
        hint = "name the place where it is now with --table" if given is None else "check the path given with --table"
        raise DataError(f"{path}: the run's table is not there; {hint}")
    table = Table.open(path)
    for chain in chains:
        fingerprint = read_provenance(chain.home)["fingerprint"]
        if fingerprint != table.fingerprint:
            raise DataError(
                f"{path}: its content is not what {chain.home} was run on (fingerprint {table.fingerprint[:12]}, "
                f"expected {fingerprint[:12]}); name the original table with --table, or import it again from the "
                "same source and schema"
            )
    return table
