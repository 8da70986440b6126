"""The doors of a family of models, the same for each; `registry.py` opens them, by the files of the family's room.

keys.py             Keys: the sections of its configuration; with rules.py, all that reading one needs; light to import
rules.py            Rules: constraints among keys, and between keys and the table
family.py           Family: everything before a chain starts; and Chain, which `run/chain_run.py` advances and stores
draws.py            Posterior: a run opened for reading
law.py              Law: one draw as a distribution over rows, see `hpc/law.py`
asked.py            Asked: its kept draws opened for questions, unless `Posterior.no_questions`
predict.py          Forecast: its predictions for new rows
exports.py          Exports: output of `mpibayes export` other than its trace
report/report.py    make(kept) -> `report.document.Document`
check.py            Check: findings of `mpibayes check` about it
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # importing a family's keys or scalars loads none of these
    import numpy as np

    from mpibayes.hpc.config.config import Config
    from mpibayes.hpc.config.places import Report
    from mpibayes.hpc.config.section import Section
    from mpibayes.hpc.data.sparse import AnyData
    from mpibayes.hpc.law import Density
    from mpibayes.hpc.parallel.comm import Communicator
    from mpibayes.hpc.scalar import Scalar
    from mpibayes.io.files import Guard
    from mpibayes.io.finished import Finished
    from mpibayes.io.rows import Column, Rows
    from mpibayes.io.sparse import SparseTable
    from mpibayes.io.table import Table
    from mpibayes.io.trace import Axes


class Keys(Protocol):
    """Sections of a family's configuration, in the order of config.resolved.toml.

    They include the sections of all families (`config/keys.py`), unchanged or extended. `Model.family` lists the names
    of the family.
    """

    SECTIONS: Mapping[str, type[Section]]
    NAMED: Mapping[str, type[Section]]  # [columns.NAME] and others with a name


class Rules(Protocol):
    """Rules between the keys of a configuration, and between keys and table."""

    def rules(
        self, sections: Mapping[str, Section], named: Mapping[str, Mapping[str, Section]], report: Report
    ) -> None:
        """Report violations that involve several keys. Sections that are invalid by themselves are absent."""

    def without_effect(self, sections: Mapping[str, Section]) -> dict[tuple[str, str], str]:
        """Keys without effect, as ("run", "seed"), each with the setting that disables it."""


class Choice(Protocol):
    """Choice of the family for a table, where `model.family` leaves it open."""

    def family_for(self, config: Config, n_rows: int, n_columns: int) -> str:
        """Return the family for a table with n_rows rows and n_columns used columns."""

    def in_words(self, family: str, n_rows: int, n_columns: int) -> str:
        """Describe the choice."""


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

    values: {name: (n,) or (n, ...)}, on root, a row per cycle; every scalar and array of the trace except `seconds`.
    draw: on root, the arrays to keep from the last cycle, if any. word: the ranks' words, summed. problem: reason why
    the values cannot come from a sound chain.
    """

    cycles: range
    word: Sequence[int]
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    draw: Mapping[str, Any] | None = None
    problem: str = ""


class Draws(Protocol):
    """Store of draws that are not rows of the trace, on root; in a separate folder of segments."""

    last_cycle: int

    def append(self, cycle: int, **draw: Any) -> None: ...

    def flush(self) -> None: ...

    def truncate(self, cycle: int) -> None: ...


class Chain(Protocol):
    """One chain on all ranks. Every method except `in_words` and `draws` is collective."""

    n_rows: int  # training rows
    n_shards: int
    cycles: int  # completed
    growing: bool  # some rows are still inactive: no draw counts
    shards: Sequence[int]  # numbers of this rank's shards
    scalars: Sequence[Scalar]  # of the trace, with `seconds`
    axes: Mapping[str, Mapping[str, Sequence[str]]]  # of the arrays of the trace (`io.trace.Axes`)
    start_record: Mapping[str, Any]  # numbers and lists about a start, for reports; kept in start.json, if any

    def start(self, finished: Finished | None = None) -> None:
        """Set the state before the first cycle. finished: parts of a long start that need not be computed again."""

    def start_from(self, place: Path, finished: Finished | None = None) -> None:
        """Set the first state from the last state of a chain, in its directory, on fewer rows of the table."""

    def advance(self, word: Sequence[int], limit: int) -> Info:
        """Run one cycle or several, `limit` at most. word: this rank's small integers, to be summed over ranks."""

    def state(self) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, Any]]:
        """State for a checkpoint: the arrays of each of this rank's shards, and the values that all ranks share."""

    def restore(self, shared: Mapping[str, Any], shards: Mapping[int, Mapping[str, np.ndarray]]) -> None:
        """Set the chain to a state returned by `state`."""

    def draws(self, folder: Path, run: str, guard: Guard) -> Draws | None:
        """Store of kept draws that are not rows of the trace; root alone. guard: see `io.segments.Segments`."""

    def in_words(self) -> list[str]:
        """Describe how the chain starts or resumes, and from which cycle its draws count; root alone."""


class Family(Protocol):
    """One kind of model with its configuration and its rows, on all ranks: everything shared by all chains of a run."""

    heldout_file: Rows | None  # on root, once read
    shares_cycles: bool  # a chain's cycle takes less time on several ranks

    def __init__(self, comm: Communicator, config: Config, data: AnyData): ...

    @staticmethod
    def default_shards(n_rows: int) -> int:
        """Number of shards of n_rows training rows if run.shards = "auto"."""

    @staticmethod
    def cycle_s(n_cells: int) -> float:
        """Seconds per cycle of a chain on one core, to an order of magnitude. n_cells: of the training rows; for a
        sparse table, entries."""

    @staticmethod
    def decided(config: Config, n_training: int) -> dict[str, dict[str, Any]]:
        """Values of "auto" keys, resolved at the first start, by section and key."""

    @staticmethod
    def grown(config: Config) -> Config:
        """The settings of chains that start by `start_from`."""

    def read_files(self, places: Sequence[Path], fresh: bool) -> dict[str, Any]:
        """Read all files other than the table that the chains in `places` start from; return what the run depends on.

        Collective. Like `load`, it raises any errors in the input before a run directory is made.
        """

    def load(self, places: Sequence[Path], fresh: bool) -> None:
        """Load the rows that all chains share, and the initial state of chains without a checkpoint. Collective."""

    def chain(self, config: Config, number: int) -> Chain:
        """Make a chain, counted from 0, before it starts; `config` has "auto" resolved. Collective."""


class Posterior(Protocol):
    """A run opened for reading. Raises ConfigError, DataError or CheckpointError if it cannot be read."""

    chains: Sequence[Any]  # `posterior.chains.Chain`: folder, configuration, trace, burn-in
    table: Any  # typed or sparse
    data: Any  # its rows as the model sees them, `data.rows.Data`
    n_rows: int  # training rows
    modelled: Sequence[str]  # the table's columns that the model predicts or conditions on
    response: str  # the only column predicted, given the rest; "" if all are predicted
    weighted: bool | None  # True if reports and exports use survey weights, see `training_weights`
    sparse: bool  # True if its table is sparse
    grouped: bool  # True if it has groups of clusters
    no_questions: str  # reason why its draws cannot be asked; "" if they can

    def __init__(self, run_dirs: Sequence[str | Path], burn_in: int | None = None, table: str | Path | None = None): ...

    def read_traces(self) -> None:
        """Read the whole trace of every chain."""

    def training_weights(self, weighted: bool | None) -> np.ndarray | None:
        """Survey weights of the training rows; see `posterior.chains.KeptChains`."""

    def require_draws(self) -> None:
        """Raise ConfigError if a trace that was read has nothing after burn-in."""

    def contradicted(self) -> bool:
        """True if the report advises against using the result yet because chains contradict each other."""

    def refuse_groups(self, groups: int | None) -> None:
        """Raise ConfigError if groups of clusters are requested from a model that has none."""


class RowPosterior(Posterior, Protocol):
    """A run on a typed table, opened for reading."""

    def draws(self, most: int) -> Iterator[Density]:
        """Yield at most `most` kept draws, evenly spaced."""


@dataclass(frozen=True)
class Request:
    """A call of `mpibayes predict`. source: the file, None if there is none. draws: maximal number of draws, None for
    the family's default. groups: number of groups of clusters. top, users: for ratings, the number of recommendations
    and the named rows. unseen: treatment of an unknown id or level, "missing" or "error"."""

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
        """Names of the requested options that may be in `Forecast.cannot`."""
        asked = {
            "probabilities": self.probabilities, "impute": self.impute, "complete": self.complete,
            "top": self.top is not None, "users": bool(self.users),
        }  # fmt: skip
        return [name for name, is_set in asked.items() if is_set]


@dataclass
class Predictions:
    """Predictions for some new rows: named output `columns`, and the log densities of rows that have one.

    To complete the rows: `cells`, by column the rows (m,) whose cells can be filled, and level codes or recorded values
    for them (m,); and `beside`, further named columns (n,), NaN for empty.
    """

    columns: dict[str, Any]
    log_density: np.ndarray
    cells: dict[str, tuple[np.ndarray, np.ndarray]]
    beside: dict[str, np.ndarray]


class AnyForecast(Protocol):
    """Predictions of one kind of model. Made before the new file is opened; raises all errors detectable by then.

    A request with groups of clusters needs a model with `Posterior.grouped`; no option of it is in `cannot`.
    """

    cannot: Mapping[str, str]  # unsupported options of a request, each with the reason

    def __init__(self, run: Posterior, request: Request): ...

    def prepare(self) -> str:
        """Do the work before the first lines; describe its outcome in words."""


class SparseForecast(AnyForecast, Protocol):
    """Predictions of a model of a sparse table for a file."""

    n_scored: int  # lines with a log density, once all is written
    log_density: float  # sum over these lines

    def blocks(self) -> Iterator[Mapping[str, Any]]:
        """Blocks of output lines, as columns by name."""

    def notes(self) -> Sequence[str]:
        """Notes for the user, once everything is written."""


class Forecast(AnyForecast, Protocol):
    """Predictions of a model of a typed table for new rows. `batch` and `n_draws` are known once `prepare` is done."""

    like: Table  # columns read from the new file
    may_lack: Collection[str]  # those of them that the file may lack
    batch: int  # rows passed at a time
    n_draws: int

    def __call__(self, rows: Rows, first_row: int) -> Predictions:
        """Predictions for rows first_row.. (from 0) of the new file."""


@dataclass(frozen=True)
class RowClusters:
    """Cluster of every row of the table in one view, in the table's order.

    cluster: int64 (rows,), numbered from 1 as in the report. probability: float64 (rows,), of that cluster. held_out:
    bool (rows,), rows that the run was not trained on; their cluster is the most probable one given the kept draws.
    group: int64 (rows,), group of clusters, numbered as in the report, if groups were requested.
    """

    cluster: np.ndarray
    probability: np.ndarray
    held_out: np.ndarray
    group: np.ndarray | None = None


@dataclass(frozen=True)
class Clusters:
    """The partition that represents the posterior, in each view, over all rows of the table. about: its choice, in
    words. weight (rows,): survey weights, if used; shares: of the population, in words."""

    views: Sequence[RowClusters]
    about: str
    weight: np.ndarray | None = None
    shares: Sequence[str] = ()

    def columns(self) -> dict[str, np.ndarray]:
        """Columns of exports and DataFrames: those of `named`, `held_out`, and `weight` if there are weights; arrays
        (rows,)."""
        columns = named([(v.cluster, v.probability) for v in self.views], [v.group for v in self.views])
        weight = {} if self.weight is None else {"weight": self.weight}
        return columns | {"held_out": self.views[0].held_out} | weight


def named(
    views: Sequence[tuple[np.ndarray, np.ndarray]], groups: Sequence[np.ndarray | None] = ()
) -> dict[str, np.ndarray]:
    """Clusters and their probabilities in each view, (n,) each, as columns: `cluster` and `probability`, or with
    several views `cluster_1`, `probability_1` and so on; `group` beside `cluster` if a view has groups."""
    ends = [f"_{v}" for v in range(1, 1 + len(views))] if len(views) > 1 else [""]
    columns = {}
    for end, (cluster, p), group in zip(ends, views, groups or [None] * len(views)):
        columns[f"cluster{end}"] = cluster
        columns |= {} if group is None else {f"group{end}": group}
        columns[f"probability{end}"] = p
    return columns


class Exports(Protocol):
    """Exports other than the trace."""

    FORMS: Collection[str]  # of its kept draws, as in --to: "labels", "clusters", "features"
    # the forms among them that it writes itself: the head of the file, its lines in blocks of columns, and their
    # description
    LINES: Mapping[str, Callable[[Any], tuple[list[str], Iterator[list[list[str]]], str]]]
    TEXTS: Mapping[str, Callable[[Any], Iterator[tuple[int, str]]]]  # other forms: chain and line of each draw
    NEEDS: Mapping[str, Callable[[Sequence[str | Path]], None]]  # by form: raises ConfigError if runs lack it

    def parameters(self, run: Posterior) -> tuple[list[dict[str, np.ndarray]], Axes]:
        """Parameters for --to arviz: for each chain `cycle` (n,), including burn-in, and arrays (n, ...) by name, none
        fixed."""


class ClusterExports(Exports, Protocol):
    """Exports of a family that has "clusters" among its FORMS."""

    def clusters(self, run: Posterior, groups: int | None = None) -> Clusters:
        """Clusters for --to clusters: of every row of the run's table. groups: add so many groups of clusters."""

    def clusters_of(
        self, run: Posterior, batches: Iterable[Rows], draws: int | None = None, groups: int | None = None
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the most probable cluster of other rows in each view, and its probability, as columns (see `named`),
        some rows at a time. batches: recorded as in the run's table. draws: maximal number to average over."""


class Check(Protocol):
    """Findings of `mpibayes check` on a configuration and its table (`run.examine.Examined`)."""

    def memory(self, examined: Any, ranks: int) -> dict[str, int]:
        """Peak resident bytes of the busiest of `ranks` ranks, by part; predicted without running a chain."""

    def findings(self, examined: Any, ranks: int) -> Iterator[tuple[str, str]]:
        """(title, text) pairs, with the time of some cycles. Raises DataError as a run would."""
