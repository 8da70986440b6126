"""The doors of a family of models, the same for each; `registry.py` opens them, by the files of the family's room.

keys.py             Keys: the sections of its configuration; with rules.py all that reading one needs, and light
rules.py            Rules: what holds between keys, and between them and the table
family.py           Family: before a chain starts; and Chain, which `run/chain_run.py` advances and stores
draws.py            Posterior: a run opened for reading
law.py              Law: one draw as a distribution over rows, see `hpc/law.py`
asked.py            Asked: its kept draws opened for questions, unless `Posterior.no_questions`
predict.py          Forecast: what it predicts of new rows
exports.py          Exports: what `mpibayes export` writes of it besides its trace
report/report.py    make(kept) -> `report.document.Document`
check.py            Check: what `mpibayes check` says of it
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # whoever asks the registry for a family's keys or scalars loads none of these
    import numpy as np

    from mpibayes.hpc.config.config import Config
    from mpibayes.hpc.config.places import Report
    from mpibayes.hpc.config.section import Section
    from mpibayes.hpc.data.rows import Data
    from mpibayes.hpc.law import Density
    from mpibayes.hpc.parallel.comm import Communicator
    from mpibayes.hpc.scalar import Scalar
    from mpibayes.io.files import Guard
    from mpibayes.io.rows import Column, Rows
    from mpibayes.io.sparse import SparseTable
    from mpibayes.io.table import Table
    from mpibayes.io.trace import Axes


class Keys(Protocol):
    """The sections of its configuration, in the order of config.resolved.toml.

    Those that all families have (`config/keys.py`) are there, as they are or extended. `Model.family` has the names of
    the family.
    """

    SECTIONS: Mapping[str, type[Section]]
    NAMED: Mapping[str, type[Section]]  # [columns.NAME] and others with a name


class Rules(Protocol):
    """Rules between the keys of a configuration, and between keys and table."""

    def rules(
        self, sections: Mapping[str, Section], named: Mapping[str, Mapping[str, Section]], report: Report
    ) -> None:
        """Report violations that involve several keys. Sections that are not valid in themselves are missing."""

    def without_effect(self, sections: Mapping[str, Section]) -> dict[tuple[str, str], str]:
        """Keys, as ("run", "seed"), that nothing looks at, each with the setting that makes it so."""


class TypedRules(Rules, Protocol):
    """Rules of a model of a typed table."""

    def against_table(self, config: Config, columns: Mapping[str, Column], report: Report) -> None:
        """Report settings that do not fit the table's columns."""


class SparseRules(Rules, Protocol):
    """Rules of a model of a sparse table."""

    def against_sparse(self, config: Config, table: SparseTable, report: Report) -> None:
        """Report settings that do not fit the table."""


@dataclass
class Info:
    """Record of some consecutive cycles.

    values: {name: (n,) or (n, ...)}, on root, a row a cycle; every scalar and array of the trace but `seconds`. draw:
    on root, the arrays to keep of the last cycle, if any. word: the ranks' words, summed. problem: why the values
    cannot be those of a sound chain.
    """

    cycles: range
    word: Sequence[int]
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    draw: Mapping[str, Any] | None = None
    problem: str = ""


class Draws(Protocol):
    """Keeps draws that are no rows of the trace, on root; in a folder of segments of its own."""

    last_cycle: int

    def append(self, cycle: int, **draw: Any) -> None: ...

    def flush(self) -> None: ...

    def truncate(self, cycle: int) -> None: ...


class Chain(Protocol):
    """One chain on all ranks. Every method but `in_words` and `draws` is collective."""

    n_rows: int  # training rows
    n_shards: int
    cycles: int  # done
    growing: bool  # some rows are not in yet: no draw counts
    shards: Sequence[int]  # numbers of this rank's shards
    scalars: Sequence[Scalar]  # of the trace, with `seconds`
    axes: Mapping[str, Mapping[str, Sequence[str]]]  # of the arrays of the trace (`io.trace.Axes`)
    start_record: Mapping[str, Any]  # numbers and lists about a start, for reports; kept in start.json if there are any

    def start(self) -> None:
        """The state before the first cycle."""

    def start_from(self, place: Path) -> None:
        """The same, from the last state of a chain, in its directory, that had fewer rows of the table."""

    def advance(self, word: Sequence[int], limit: int) -> Info:
        """Run one cycle or several, `limit` at most. word: this rank's small integers, to be summed over ranks."""

    def state(self) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, Any]]:
        """State for a checkpoint: the arrays of each of this rank's shards, and the values that all ranks share."""

    def restore(self, shared: Mapping[str, Any], shards: Mapping[int, Mapping[str, np.ndarray]]) -> None:
        """Bring the chain to such a state."""

    def draws(self, folder: Path, run: str, guard: Guard) -> Draws | None:
        """Store of kept draws that are not rows of the trace; root alone. guard: see `io.segments.Segments`."""

    def in_words(self) -> list[str]:
        """Describe how the chain starts or resumes, and from which cycle its draws count; root alone."""


class Family(Protocol):
    """One kind of model with its configuration and its rows, on all ranks, as far as all chains of a run share it."""

    heldout_file: Rows | None  # on root, once read
    shares_cycles: bool  # a chain's cycle takes less time on several ranks

    def __init__(self, comm: Communicator, config: Config, data: Data): ...

    @staticmethod
    def default_shards(n_rows: int) -> int:
        """The number of shards of so many training rows where run.shards = "auto"."""

    @staticmethod
    def cycle_s(n_cells: int) -> float:
        """Seconds of a chain's cycle on one core, to an order of magnitude. n_cells: of the training rows; entries of a
        sparse table."""

    @staticmethod
    def decided(config: Config, n_training: int) -> dict[str, dict[str, Any]]:
        """Values of "auto" keys, resolved at the first start, by section and key."""

    @staticmethod
    def grown(config: Config) -> Config:
        """The settings of chains that start by `start_from`."""

    def read_files(self, places: Sequence[Path], fresh: bool) -> dict[str, Any]:
        """All files besides the table that the chains in `places` start from; what of them the run depends on.

        Collective. Like `load`, it raises what can be wrong with the input before a run directory is made.
        """

    def load(self, places: Sequence[Path], fresh: bool) -> None:
        """Load the rows that all chains share, and the initial state of chains without a checkpoint. Collective."""

    def chain(self, config: Config, number: int) -> Chain:
        """A chain, counted from 0, before it starts; `config` with "auto" decided. Collective."""


class Posterior(Protocol):
    """A run opened for reading. Raises ConfigError, DataError or CheckpointError where it cannot be."""

    chains: Sequence[Any]  # `posterior.chains.Chain`: folder, configuration, trace, burn-in
    table: Any  # a typed or a sparse one
    data: Any  # its rows as the model has them, `data.rows.Data`
    n_rows: int  # training rows
    modelled: Sequence[str]  # the table's columns that it has a law of, or is given
    response: str  # the only one it has a law of, given the others; "" where it has one of all
    weighted: bool | None  # whether reports and exports use survey weights, see `training_weights`
    sparse: bool  # whether its table is a sparse one
    grouped: bool  # whether it has groups of clusters
    no_questions: str  # why its draws cannot be asked; "" where they can

    def __init__(self, run_dirs: Sequence[str | Path], burn_in: int | None = None, table: str | Path | None = None): ...

    def read_traces(self) -> None:
        """Read the whole trace of every chain."""

    def training_weights(self, weighted: bool | None) -> np.ndarray | None:
        """Survey weights of the training rows; see `posterior.chains.KeptChains`."""

    def require_draws(self) -> None:
        """ConfigError where a trace, which was read, has nothing after burn-in."""

    def contradicted(self) -> bool:
        """True if the report advises against using the result yet, since chains contradict each other."""

    def refuse_groups(self, groups: int | None) -> None:
        """Raises ConfigError where groups of clusters are asked of a model that has none."""


class RowPosterior(Posterior, Protocol):
    """A run on a typed table, opened for reading."""

    def draws(self, most: int) -> Iterator[Density]:
        """Iterate over kept draws: at most so many, evenly spaced."""


@dataclass(frozen=True)
class Request:
    """A call of `mpibayes predict`. source: the file, None where there is none. draws: most draws to use, None for as
    many as the family takes. groups: number of groups of clusters. top, users: of ratings, the number of
    recommendations and the named rows. unseen: treatment of an id or a level that the table does not have, "missing" or
    "error"."""

    source: Path | None
    draws: int | None = None
    probabilities: bool = False
    impute: bool = False
    complete: bool = False
    groups: int | None = None
    top: int | None = None
    users: Sequence[str] = ()
    unseen: str = "missing"

    @property
    def options(self) -> list[str]:
        """Names of the options of `Forecast.cannot` that are asked for."""
        asked = {
            "probabilities": self.probabilities, "impute": self.impute, "complete": self.complete,
            "top": self.top is not None, "users": bool(self.users),
        }  # fmt: skip
        return [name for name, is_set in asked.items() if is_set]


@dataclass
class Predictions:
    """Predictions for some new rows: named output `columns`, and the log densities of the rows that have one.

    To complete the rows: `cells`, by column the rows (m,) whose cell can be filled, and level codes or recorded values
    for them (m,); and `beside`, further named columns (n,) of each row, NaN for nothing.
    """

    columns: dict[str, Any]
    log_density: np.ndarray
    cells: dict[str, tuple[np.ndarray, np.ndarray]]
    beside: dict[str, np.ndarray]


class AnyForecast(Protocol):
    """Predictions of one kind of model. Made before the new file is opened; raises the errors known by then.

    The groups of clusters that a request has are of a model with `Posterior.grouped`, its options none in `cannot`.
    """

    cannot: Mapping[str, str]  # options of a request that it does not take, each with the reason

    def __init__(self, run: Posterior, request: Request): ...

    def prepare(self) -> str:
        """The work before the first lines; what it came to, in words."""


class SparseForecast(AnyForecast, Protocol):
    """Predictions of a model of a sparse table for a file."""

    n_scored: int  # lines that have a log density, when all is written
    log_density: float  # its sum over these

    def blocks(self) -> Iterator[Mapping[str, Any]]:
        """Blocks of output lines, as columns by name."""

    def notes(self) -> Sequence[str]:
        """Notes for the user, once everything is written."""


class Forecast(AnyForecast, Protocol):
    """Predictions of a model of a typed table for new rows. `batch` and `n_draws` are known once it is prepared."""

    like: Table  # the columns that are read from the new file
    may_lack: Collection[str]  # those of them that the file need not have
    batch: int  # rows that are given to it at a time
    n_draws: int

    def __call__(self, rows: Rows, first_row: int) -> Predictions:
        """Predictions for rows first_row.. (from 0) of the new file."""


@dataclass(frozen=True)
class RowClusters:
    """The cluster of every row of the table in one view, rows in the table's order.

    cluster: int64 (rows,), numbered from 1 as in the report. probability: float64 (rows,), of that cluster. held_out:
    bool (rows,), rows that the run was not trained on; theirs is the most probable cluster given the kept draws. group:
    int64 (rows,), the group of clusters, numbered as in the report, where groups were asked for.
    """

    cluster: np.ndarray
    probability: np.ndarray
    held_out: np.ndarray
    group: np.ndarray | None = None


@dataclass(frozen=True)
class Clusters:
    """The partition that stands for the posterior, in each view, over all rows of the table. about: which one, in
    words. weight (rows,): survey weights, if they are used; shares: of the population, in words."""

    views: Sequence[RowClusters]
    about: str
    weight: np.ndarray | None = None
    shares: Sequence[str] = ()

    def columns(self) -> dict[str, np.ndarray]:
        """The columns of exports and DataFrames: those of `named`, `held_out`, and `weight` where there are weights;
        arrays (rows,)."""
        columns = named([(v.cluster, v.probability) for v in self.views], [v.group for v in self.views])
        weight = {} if self.weight is None else {"weight": self.weight}
        return columns | {"held_out": self.views[0].held_out} | weight


def named(
    views: Sequence[tuple[np.ndarray, np.ndarray]], groups: Sequence[np.ndarray | None] = ()
) -> dict[str, np.ndarray]:
    """Clusters and their probabilities in each view, (n,) each, as columns: `cluster` and `probability`, of several
    views `cluster_1`, `probability_1` and so on; `group` beside `cluster` where a view has groups."""
    ends = [f"_{v}" for v in range(1, 1 + len(views))] if len(views) > 1 else [""]
    columns = {}
    for end, (cluster, p), group in zip(ends, views, groups or [None] * len(views)):
        columns[f"cluster{end}"] = cluster
        columns |= {} if group is None else {f"group{end}": group}
        columns[f"probability{end}"] = p
    return columns


class Exports(Protocol):
    """Exports besides the trace."""

    FORMS: Collection[str]  # of its kept draws, as --to has them: "labels", "clusters", "features"
    # the forms among them that it writes itself: the head of the file, its lines block by block and column by column,
    # and what they are
    LINES: Mapping[str, Callable[[Any], tuple[list[str], Iterator[list[list[str]]], str]]]
    TEXTS: Mapping[str, Callable[[Any], Iterator[tuple[int, str]]]]  # others: of each draw its chain, and a line
    NEEDS: Mapping[str, Callable[[Sequence[str | Path]], None]]  # by form: ConfigError where runs do not have it

    def parameters(self, run: Posterior) -> tuple[list[dict[str, np.ndarray]], Axes]:
        """For --to arviz: of each chain `cycle` (n,), burn-in too, and arrays (n, ...) by name, none of them fixed."""


class ClusterExports(Exports, Protocol):
    """Exports of a family that has "clusters" among its FORMS."""

    def clusters(self, run: Posterior, groups: int | None = None) -> Clusters:
        """For --to clusters: of every row of the run's table. groups: with so many groups of clusters beside them."""

    def clusters_of(
        self, run: Posterior, batches: Iterable[Rows], draws: int | None = None, groups: int | None = None
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """The most probable cluster of other rows in each view, and its probability, as columns (see `named`), some
        rows at a time. batches: recorded as in the run's table. draws: at most so many are averaged over."""


class Check(Protocol):
    """Findings of `mpibayes check` on a configuration and its table (`run.examine.Examined`)."""

    def memory(self, examined: Any, ranks: int) -> dict[str, int]:
        """Resident bytes at the peak of the busiest of so many ranks, by part; predicted without running a chain."""

    def findings(self, examined: Any, ranks: int) -> Iterator[tuple[str, str]]:
        """(title, text) pairs, with the time of some cycles. Raises DataError as a run would."""
