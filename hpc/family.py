"""The doors of a family of models, the same for each; `registry.py` opens them, by the files of the family's room.

keys.py             Keys: the sections of its configuration; with rules.py all that reading one needs, and light
rules.py            Rules: what holds between keys, and between them and the table
family.py           Family: before a chain starts; and Chain, which `run/chain_run.py` advances and stores
draws.py            Posterior: a run opened for reading
predictive.py       Predictive: one draw as a distribution over rows
predict.py          Forecast: what it predicts of new rows
exports.py          Exports: what `mpibayes export` writes of it besides its trace
report/report.py    make(kept) -> `report.document.Document`
query.py            Queries: how its kept draws are asked
check.py            Check: what `mpibayes check` says of it
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:  # whoever asks the registry for a family's keys or scalars loads none of these
    import numpy as np

    from mpibayes.hpc.config.config import Config
    from mpibayes.hpc.config.places import Report
    from mpibayes.hpc.config.section import Section
    from mpibayes.hpc.data.events import Known
    from mpibayes.hpc.data.rows import Data
    from mpibayes.hpc.parallel.comm import Communicator
    from mpibayes.hpc.parallel.streams import Stream
    from mpibayes.hpc.scalar import Scalar
    from mpibayes.io.files import Guard
    from mpibayes.io.rows import Column, Rows
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

    def against_table(self, config: Config, columns: Mapping[str, Column], report: Report) -> None:
        """Report settings that do not fit the table's columns."""


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

    modelled: Sequence[str]  # the table's columns that it has a law of, or is given
    response: str  # the only one it has a law of, given the others; "" where it has one of all
    weighted: bool | None  # whether reports and exports use survey weights, see `training_weights`

    def __init__(self, run_dirs: Sequence[str | Path], burn_in: int | None = None, table: str | Path | None = None): ...

    def read_traces(self) -> None:
        """Read the whole trace of every chain."""

    def training_weights(self, weighted: bool | None) -> np.ndarray | None:
        """Survey weights of the training rows; see `posterior.chains.KeptChains`."""

    def require_draws(self) -> None:
        """ConfigError where a trace, which was read, has nothing after burn-in."""

    def contradicted(self) -> bool:
        """True if the report advises against using the result yet, since chains contradict each other."""

    def draws(self, most: int) -> Iterator[Predictive]:
        """Iterate over kept draws: at most so many, evenly spaced."""


class Predictive(Protocol):
    """One draw as a distribution over rows of the modelled columns; NaN, or the code behind the last level, is a
    missing cell. Conditionals and surprisal are differences of log densities, imputation an average of simulations."""

    def log_density(self, rows: Rows) -> np.ndarray:
        """Log density of the observed cells of each row, (n,) float64, the missing ones marginalised."""

    def simulate(self, given: Rows, columns: Sequence[Column], stream: Stream, first_row: int = 0) -> Rows:
        """`given` with the missing cells of `columns` drawn from this distribution, given the observed cells of their
        row. A row's draws depend on `stream` and its number alone, which counts from first_row."""


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


class SparseForecast(Protocol):
    """Predictions of a model of a sparse table for a file. Made before the file is opened; raises the errors known by
    then.

    source: the file, None where there is none. top: number of recommendations, None if not asked for. users: ids of the
    named rows. unseen: treatment of an id that the table does not have, "missing" or "error".
    """

    n_scored: int  # lines that have a log density, when all is written
    log_density: float  # its sum over these

    def __init__(self, run: Posterior, source: Path | None, top: int | None, users: Sequence[str], unseen: str): ...

    def prepare(self) -> str:
        """The work before the first lines; what it came to, in words."""

    def blocks(self) -> Iterator[Mapping[str, Any]]:
        """Blocks of output lines, as columns by name."""

    def notes(self) -> Sequence[str]:
        """Notes for the user, once everything is written."""


class Forecast(Protocol):
    """Predictions of one kind of model for new rows. Made before the new file is opened; raises the errors known by
    then.

    draws: most draws to use, None for all. probabilities, impute, complete: the user's requests. groups: number of
    groups of clusters; ConfigError where a model has none.
    """

    like: Table  # the columns that are read from the new file
    may_lack: Collection[str]  # those of them that the file need not have
    batch: int  # rows that are given to it at a time
    n_draws: int

    def __init__(
        self, run: Posterior, source: Path, draws: int | None, probabilities: bool, impute: bool, complete: bool,
        groups: int | None = None,
    ): ...  # fmt: skip

    def prepare(self) -> str:
        """The work before the first rows; what it came to, in words. `batch` and `n_draws` are known from then on."""

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


class Asked(Protocol):
    """Some kept draws of a run, opened for questions (`hpc/query/`)."""

    like: Table  # the columns that can be asked about, as they are recorded
    columns: Sequence[Column]  # the same
    refused: Mapping[str, str]  # those of them that cannot, each with the reason
    joint: Mapping[str, str]  # of columns that are modelled in a block its name
    linked: bool  # whether columns may lean on each other within clusters
    joinable: Collection[str]  # numbers that could be modelled together in a block, and are in none
    link_keys: Mapping[str, str]  # keys of [model] by which they would, where they do not; none where they cannot
    cannot: Mapping[str, str]  # verbs that have no answer, each with the reason
    answers: Collection[str] | None  # the columns the model can predict, given all others; None: any, given any
    shares: str  # what `DrawLaw.shared` is, in words
    chain_of: np.ndarray  # (D,) the number of the chain of each draw; draws of a chain follow each other
    n_kept: int  # draws there are
    n_rows: int  # training rows
    weights: np.ndarray | None  # (N,) of the training rows, where draws are laws of a population; may be set

    def draws(self, names: Collection[str], some: slice = slice(None)) -> Sequence[DrawLaw]:
        """The draws, or some of them, as laws of some columns; picklable."""

    def may_lean(self, child: str, parent: str) -> bool:
        """Return True if a column could lean on another by these keys."""

    def completions(self, seed: int, some: slice = slice(None)) -> Iterator[Completion]:
        """A copy of the table's missing cells from each draw, or from some of them; copies are numbered from 1. Only of
        families that do not name "complete" in `cannot`."""

    def syntheses(
        self, seed: int, n: int, without: Mapping[str, np.ndarray], some: slice = slice(None)
    ) -> Iterator[Synthesis]:
        """A synthetic table of n rows from each draw, or from some of them; tables are numbered from 1. without: mask
        of the atoms of some columns of numbers that no row is to have. Only of families that do not name "synthesize"
        in `cannot`."""

    def partition(self) -> Sequence[np.ndarray] | None:
        """Cluster of every training row in each view of the report, int64 (N,); None without clusters."""

    def cluster_group(self, number: int, n: int | None, view: int) -> tuple[np.ndarray, int] | None:
        """The rows of the table, from 0, of a group of n groups of clusters, as the report numbers them, and n: if None
        that of the level shown first. None where there are no clusters. Raises ConfigError."""


class Completion(Protocol):
    """The missing cells of any rows under one draw, whose parameters are drawn once for all of them."""

    def cells(
        self, known: Known, gaps: Mapping[str, np.ndarray], ids: np.ndarray, places: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Recorded values, level codes or numbers, of the cells that n rows lack, those of a row drawn together.

        known: of the rows' observed cells; of training rows only columns in blocks and linked ones matter. gaps: by
        column the rows (m,), ascending, to fill. ids (n,): of the rows, which name their draws. places (n,): of each
        among the training rows, -1 of another row."""


class Part(NamedTuple):
    """Columns of a synthetic table that are drawn together, independently of the others: their names; K, and the
    cluster of each training row (N,), below K; and clusters of rows of the table, (n,), from K on where it has no
    training row."""

    names: Sequence[str]
    n_clusters: int
    labels: np.ndarray
    clusters: np.ndarray


class Synthesis(Protocol):
    """A synthetic table: rows drawn from one draw of clusters' weights and parameters, given one kept draw."""

    def parts(self, ids: np.ndarray) -> list[Part]:
        """The clusters of some rows, by their numbers (n,) from 0."""

    def cells(self, ids: np.ndarray, parts: Sequence[Part]) -> dict[str, np.ndarray]:
        """Recorded values, level codes or numbers, (n,) of every column, in these clusters."""


class DrawLaw(Protocol):
    """One draw as a law of some columns."""

    width: int  # numbers of a row's state

    def given(self, known: Known) -> tuple[np.ndarray, Sequence[np.ndarray]]:
        """Log probability of what is known of each row, (n,), and what the draw makes of it, an opaque state."""

    def log_given(self, wanted: Known, state: Sequence[np.ndarray]) -> np.ndarray:
        """Log probability of what is wanted of each row given what that state knows, (n,)."""


class Queries(Protocol):
    """Door to questions about the kept draws of a run."""

    def ask(self, run: Posterior, draws: int | None) -> Asked:
        """Open at most so many of the kept draws, evenly spaced. Raises ConfigError with the reason if this kind of
        model has no answers."""


class Check(Protocol):
    """Findings of `mpibayes check` on a configuration and its table (`run.examine.Found`)."""

    def memory(self, found: Any, ranks: int) -> dict[str, int]:
        """Resident bytes at the peak of the busiest of so many ranks, by part; predicted without running a chain."""

    def findings(self, found: Any, ranks: int) -> Iterator[tuple[str, str]]:
        """(title, text) pairs, with the time of some cycles. Raises DataError as a run would."""
