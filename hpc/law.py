"""Contract of one kept draw as a distribution over rows, and of a run's kept draws opened for questions.

A family's `law.py` has a class Law, from which predictions, held-out scores and answers are worked out, and, where its
draws can be asked, `asked.py` a class Asked. What a family cannot say is declared: `Posterior.no_questions` of one that
has no answers, `Asked.cannot` by verb. Each protocol below says what callers may use:

Density        every draw that is a distribution over rows of a typed table, also an approximation
Law, Given     and that can be asked
JointLaw       a law of all columns, each given any others: mixtures, cross-categorizations, features
Asked          some kept draws of a run, opened for questions
AskedJoint     of joint laws
AskedClusters  of mixtures and cross-categorizations, which draw whole rows
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np

    from mpibayes.hpc.data.events import Events, Known
    from mpibayes.hpc.parallel.streams import Stream
    from mpibayes.io.rows import Column, Rows
    from mpibayes.io.table import Table

LINES = "lines"  # of columns that may lean on each other in lines
EVERY = slice(None)


class Density(Protocol):
    """One draw as a density of rows."""

    def log_density(self, rows: Rows) -> np.ndarray:
        """Log density of the observed cells of each row, as it is modelled, (n,) float64, the missing ones
        marginalised. Of a regression: of the response given the predictors."""


class Given(Protocol):
    """n rows under one draw, given what is known of each: the distribution of the rest of each row."""

    @property
    def log_p(self) -> np.ndarray:
        """Log probability of what is known, (n,)."""

    def log_density(self, target: Known) -> np.ndarray:
        """Log probability of what is wanted of each row, (n,)."""

    def averaged(self, events: Events, masses: Any) -> np.ndarray:
        """Probabilities (n, U) of a column's events; masses: theirs, of `Law.masses`."""


class Law(Density, Protocol):
    """One draw as a law of some columns. `log_density` is of a law of all of them."""

    @property
    def width(self) -> int:
        """Numbers that a row takes in `given`."""

    def given(self, known: Known) -> Given:
        """Condition on what is known of each row."""

    def masses(self, events: Events) -> Any:
        """Work out what `Given.averaged` needs of a column's events besides, the same for all rows."""

    def simulate(self, known: Known, names: Collection[str], stream: Stream, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Recorded values (n,) of each named column, level codes or numbers: one of what is known, or drawn given what
        is known of other columns. ids (n,): of the rows, which name their draws in the stream."""


class GivenJoint(Given, Protocol):
    """Rows under one draw of a joint law."""

    def inverses(self) -> np.ndarray:
        """1 / p(what is known of a column | of the others), (n, C); NaN where nothing is known of it."""

    def opens(self) -> np.ndarray:
        """Probability of a new cluster in some view, or of a feature of its own, (n,)."""


class View(Protocol):
    """Columns of a joint law that depend on each other; those of different views are independent."""

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
        """Yield (x, y, table, inside) for the pairs of two columns, one of a and one of b, that depend on each other by
        links: the probabilities of their events together, (U, U'), and their information within clusters."""

    def shared(self, names: Sequence[str], place: int | None, known: Known) -> np.ndarray:
        """Similarity of each training row (N,) and one of them, by its place, or a row of which this is known, by the
        views of some columns, as `AskedJoint.shares` says; of a law with `AskedJoint.labelled` rows."""


class Asked(Protocol):
    """Some kept draws of a run, at most `draws`, opened for questions (`hpc/query/`). Raises ConfigError where there
    are none."""

    like: Table  # the columns that can be asked about, as they are recorded
    columns: Sequence[Column]  # the same, as they are modelled
    joint: Mapping[str, str]  # of columns that are modelled together the name of their block, or LINES
    linked: bool  # whether columns may lean on each other within clusters
    joinable: Collection[str]  # numbers that could be modelled together in a block, and are in none
    link_keys: Mapping[str, str]  # keys of [model] by which they would, where they do not; none where they cannot
    line_keys: Mapping[str, str]  # keys of [model] by which numbers would lean on each other, where they do not
    cannot: Mapping[str, str]  # verbs that have no answer, each with the reason
    apart: Mapping[str, str]  # the table's columns that cannot be asked about, each with the reason
    answers: Collection[str] | None  # the columns the model can predict, given all others; None: any, given any
    outcome: Column | None  # of the rows, among `columns`, which few verbs know
    explained: Collection[str]  # names of it and its predictors
    chain_of: np.ndarray  # (D,) the number of the chain of each draw; draws of a chain follow each other
    n_kept: int  # draws there are
    n_rows: int  # training rows
    weights: np.ndarray | None  # (N,) of the training rows, where draws are laws of a population; may be set

    def __init__(self, run: Any, draws: int | None): ...

    def draws(self, names: Collection[str], part: slice = EVERY) -> Sequence[Law]:
        """The draws, or some of them, as laws of some columns; picklable."""

    def training_numbers(self) -> np.ndarray:
        """Row numbers of the training rows in the table, from 0, int64 (N,)."""

    def recorded(self, numbers: np.ndarray) -> Rows:
        """Rows of the table by their numbers, ascending, as they are recorded; `columns` alone."""

    def partition(self) -> Sequence[np.ndarray] | None:
        """Cluster of every training row in each view of the report, int64 (N,); None without clusters."""

    def cluster_group(self, number: int, n: int | None, view: int) -> tuple[np.ndarray, int] | None:
        """The rows of the table, from 0, of a group of n groups of clusters, as the report numbers them, and n: if None
        that of the level shown first. None where there are no clusters. Raises ConfigError."""

    def may_lean(self, child: str, parent: str) -> bool:
        """Return True if a column could lean on another by `link_keys`."""


class AskedJoint(Asked, Protocol):
    """Some kept draws that are joint laws, opened for questions."""

    shares: str  # what `JointLaw.shared` is, in words

    def draws(self, names: Collection[str], part: slice = EVERY) -> Sequence[JointLaw]: ...

    def labelled(
        self, names: Collection[str], places: np.ndarray | None = None, part: slice = EVERY
    ) -> Iterator[JointLaw]:
        """Draws one by one, with the clusters or features of training rows: of all, or of those at `places`,
        ascending."""

    def views(self, names: Sequence[str]) -> np.ndarray:
        """View of each of these columns in every draw, (D, C)."""


class AskedClusters(AskedJoint, Protocol):
    """Some kept draws with the clusters of training rows, opened for questions."""

    def left_out(self, known: Known, places: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Leave-one-out log probabilities of the training rows at `places` (ascending) in every draw: of the known
        cells, (n,), and the inverse of the probability of each column's cell given the others, (n, C), NaN where it is
        not known."""

    def completions(self, seed: int, part: slice = EVERY) -> Iterator[Completion]:
        """A copy of the table's missing cells from each draw, or from some of them; copies are numbered from 1."""

    def syntheses(
        self, seed: int, n: int, without: Mapping[str, np.ndarray], part: slice = EVERY
    ) -> Iterator[Synthesis]:
        """A synthetic table of n rows from each draw, or from some of them; tables are numbered from 1. without: mask
        of the atoms of some columns of numbers that no row is to have."""


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
