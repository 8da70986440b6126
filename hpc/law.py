"""Contract of one kept draw as a distribution over rows, and of a run's kept draws opened for questions.

A family's `law.py` has a class Law, the basis of predictions, held-out scores and answers; if its draws can be asked,
its `asked.py` has a class Asked. A family declares what it does not support: `Posterior.no_questions` if it has no
answers, `Asked.cannot` by verb. Each protocol below lists what callers may use:

Density        every draw that is a distribution over rows of a typed table, also an approximation
Law, Given     a density that can be asked
JointLaw       a law of all columns, each given any others: mixtures, cross-categorizations, features
Asked          some kept draws of a run, opened for questions
AskedJoint     the same for joint laws
AskedClusters  the same for mixtures and cross-categorizations, which draw whole rows
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np

    from mpibayes.hpc.data.events import Events, Known
    from mpibayes.hpc.parallel.streams import Stream
    from mpibayes.io.rows import Column, Rows
    from mpibayes.io.table import Table

LINES = "lines"  # of columns that may depend on each other linearly
EVERY = slice(None)
MOST_LEVELS = 32  # of a column whose completed cells are calibrated


class Density(Protocol):
    """One draw as a density of rows."""

    def log_density(self, rows: Rows) -> np.ndarray:
        """Log density of the modelled observed cells of each row, (n,) float64, missing cells marginalised. For a
        regression: of the response given the predictors."""


class Given(Protocol):
    """n rows under one draw, conditioned on known cells: the distribution of the rest of each row."""

    @property
    def log_p(self) -> np.ndarray:
        """Log probability of the known cells, (n,)."""

    def log_density(self, target: Known) -> np.ndarray:
        """Log probability of each row's target, (n,)."""

    def averaged(self, events: Events, masses: Any) -> np.ndarray:
        """Probabilities (n, U) of a column's events; masses: of these events, from `Law.masses`."""


class Law(Density, Protocol):
    """One draw as a law of some columns. `log_density` needs a law of all of them."""

    @property
    def width(self) -> int:
        """Numbers per row held by `given`."""

    def given(self, known: Known) -> Given:
        """Condition on the known cells of each row."""

    def masses(self, events: Events) -> Any:
        """Precompute for `Given.averaged` what depends only on a column's events, the same for all rows."""

    def simulate(self, known: Known, names: Collection[str], stream: Stream, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Recorded values (n,) of each named column, level codes or numbers: drawn within the known event, or given the
        known cells of other columns. ids (n,): of the rows, which select their draws in the stream."""


class GivenJoint(Given, Protocol):
    """Rows under one draw of a joint law."""

    def inverses(self) -> np.ndarray:
        """1 / p(known cell of a column | the rest), (n, C); NaN if nothing is known of it."""

    def opens(self) -> np.ndarray:
        """Probability of a new cluster in some view, or of a feature unique to the row, (n,)."""


class View(Protocol):
    """Columns of a joint law that depend on each other; columns of different views are independent."""

    @property
    def names(self) -> Collection[str]: ...


class JointLaw(Law, Protocol):
    """One draw as a joint law of its columns: a product of views, each a mixture of K components."""

    @property
    def views(self) -> Sequence[View]: ...

    def given(self, known: Known) -> GivenJoint: ...

    def masses(self, events: Events) -> np.ndarray:
        """Probability of each event of a column in the components of its view, (K, U)."""

    def weight(self, name: str) -> np.ndarray:
        """Weights of the components of a column's view, (K,)."""

    def linked_pairs(
        self, a: Sequence[str], b: Sequence[str], events: Mapping[str, Events]
    ) -> Iterator[tuple[str, str, np.ndarray, float]]:
        """Yield (x, y, table, inside) for pairs of linked columns, one of a and one of b: the joint probabilities of
        their events, (U, U'), and their information within clusters."""

    def shared(self, names: Sequence[str], place: int | None, known: Known) -> np.ndarray:
        """Similarity of each training row (N,) to one of them, at `place`, or to a row with these known cells, by the
        views of the columns `names`, as defined by `AskedJoint.shares`; for a law with `AskedJoint.labelled` rows."""


class Asked(Protocol):
    """Some kept draws of a run, at most `draws`, opened for questions (`hpc/query/`). Raises ConfigError if there are
    none."""

    like: Table  # the columns that can be asked about, as recorded
    columns: Sequence[Column]  # the same, as modelled
    joint: Mapping[str, str]  # for columns modelled together, the name of their block, or LINES
    linked: bool  # True if columns may depend on each other within clusters
    joinable: Collection[str]  # numbers in no block that could be modelled together in one
    link_keys: Mapping[str, str]  # keys of [model] that would enable links, if they are off; empty if there can be none
    line_keys: Mapping[str, str]  # keys of [model] that would let numbers depend on each other, if they do not
    cannot: Mapping[str, str]  # verbs without an answer, each with the reason
    apart: Mapping[str, str]  # the table's columns that cannot be asked about, each with the reason
    answers: Collection[str] | None  # the columns the model can predict, given all others; None: any, given any
    outcome: Column | None  # of the rows, among `columns`, which few verbs support
    explained: Collection[str]  # names of the outcome and its predictors
    chain_of: np.ndarray  # (D,) number of the chain of each draw; draws of a chain are consecutive
    n_kept: int  # number of kept draws
    n_rows: int  # training rows
    weights: np.ndarray | None  # (N,) of the training rows, if draws are laws of a population; may be set

    def __init__(self, run: Any, draws: int | None): ...

    def draws(self, names: Collection[str], part: slice = EVERY) -> Sequence[Law]:
        """The draws, or some of them, as laws of the columns `names`; picklable."""

    def training_numbers(self) -> np.ndarray:
        """Row numbers of the training rows in the table, from 0, int64 (N,)."""

    def recorded(self, numbers: np.ndarray) -> Rows:
        """Rows of the table with these numbers, ascending, as recorded; only `columns`."""

    def partition(self) -> Sequence[np.ndarray] | None:
        """Cluster of every training row in each view of the report, int64 (N,); None without clusters."""

    def cluster_group(self, number: int, n: int | None, view: int) -> tuple[np.ndarray, int] | None:
        """Rows of the table, from 0, in a group of n groups of clusters, numbered as in the report, and n: if None,
        that of the level shown first. None if there are no clusters. Raises ConfigError."""

    def may_lean(self, child: str, parent: str) -> bool:
        """True if a column could depend on another through `link_keys`."""


class AskedJoint(Asked, Protocol):
    """Some kept draws that are joint laws, opened for questions."""

    shares: str  # meaning of `JointLaw.shared`, in words

    def draws(self, names: Collection[str], part: slice = EVERY) -> Sequence[JointLaw]: ...

    def labelled(
        self, names: Collection[str], places: np.ndarray | None = None, part: slice = EVERY
    ) -> Iterator[JointLaw]:
        """Yield draws one by one, with the clusters or features of all training rows, or of those at `places`,
        ascending."""

    def views(self, names: Sequence[str]) -> np.ndarray:
        """View of each of these columns in every draw, (D, C)."""


class AskedClusters(AskedJoint, Protocol):
    """Some kept draws with the clusters of training rows, opened for questions."""

    def left_out(self, known: Known, places: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Leave-one-out log probabilities of the training rows at `places` (ascending) in every draw: of the known
        cells, (n,), and the inverse probability of each column's cell given the rest, (n, C), NaN if it is not
        known."""

    def completions(self, seed: int, part: slice = EVERY) -> Iterator[Completion]:
        """Yield a copy of the table's missing cells from each draw, or from some of them; copies are numbered from
        1."""

    def syntheses(
        self, seed: int, n: int, without: Mapping[str, np.ndarray], part: slice = EVERY
    ) -> Iterator[Synthesis]:
        """Yield a synthetic table of n rows from each draw, or from some of them; tables are numbered from 1. without:
        masks of the atoms of numeric columns that no row may have."""


class PartOfTable(NamedTuple):
    """Some of the table's rows: known cells, ids, places (see `Completion`) and classes."""

    known: Known
    ids: np.ndarray
    places: np.ndarray
    classes: np.ndarray


class Completion(Protocol):
    """Missing cells of any rows under one draw, whose parameters are drawn once for all of them."""

    def cells(
        self, known: Known, gaps: Mapping[str, np.ndarray], ids: np.ndarray, places: np.ndarray,
        classes: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Recorded values, level codes or numbers, of missing cells of n rows; those of a row are drawn together.

        known: observed cells of the rows; for training rows only columns in blocks and linked ones matter. gaps: by
        column, the rows (m,), ascending, to fill. ids (n,): of the rows, which select their draws. places (n,): of each
        row among the training rows, -1 if it is not one. classes (n,): of the rows, if draws are calibrated."""

    def calibrate(self, parts: Callable[[], Iterator[PartOfTable]], gaps: Collection[str], n_classes: int) -> None:
        """Calibrate the level probabilities of the columns `gaps` in each class of the table's rows, by the cells that
        these rows have. parts(): yields the table's rows, some at a time."""


class Part(NamedTuple):
    """Columns of a synthetic table drawn together, independently of the rest: their names; K; the cluster of each
    training row (N,), below K; and the clusters of rows of the table, (n,), K or above if it has no training row."""

    names: Sequence[str]
    n_clusters: int
    labels: np.ndarray
    clusters: np.ndarray


class Synthesis(Protocol):
    """A synthetic table: rows drawn from one draw of the clusters' weights and parameters, given one kept draw."""

    def parts(self, ids: np.ndarray) -> list[Part]:
        """Clusters of rows, given by numbers (n,) from 0."""

    def cells(self, ids: np.ndarray, parts: Sequence[Part]) -> dict[str, np.ndarray]:
        """Recorded values, level codes or numbers, (n,), of every column, in these clusters."""
