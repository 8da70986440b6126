"""Random streams keyed by their purpose, never by the process that draws from them.

Every draw comes from NumPy's counter-based Philox4x64-10 with key (seed, purpose) and counter (block, sub, cycle,
chain). There is no generator state to save, and the same run gives the same bits on any number of ranks. Draws per
row (priorities and assignments) are made inside the kernels from the same generator, with `sub` the sweep and the
block counting rows in fours.

What a chain does several times in a cycle, such as once per view, it does in lanes: `in_lane` puts the lane into the
upper half of the counter's `chain`. Everything here and in the kernels treats the two as one number.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from mpibayes.kernels.mixture import split, updates


class Purpose(IntEnum):
    PRIORITY = 1  # rows' priorities, which choose the anchors (kernels)
    ASSIGN = 2  # a row's new cluster (kernels)
    COLLAPSED = 3  # which shard is collapsed, or which shard owns a cluster
    WEIGHTS = 4  # cluster weights given the partition
    PARAMETERS = 5  # component parameters given the partition; sub = block of columns
    CONCENTRATION = 6  # (concentration, discount) given the partition
    COMPONENTS = 7  # component hyperparameters given the partition; sub = block of columns
    START = 8  # initial labels; sub = shard
    HELDOUT = 9  # which rows are held out
    SEEDS = 10  # words that choose the seed rows of split and merge moves
    VISIT = 11  # a row's new cluster in a step of a list of visits; sub = sweep, and the list's pass above it (kernels)
    SIDES = 12  # a row's side of a guided split; sub = scan
    SUBSET = 13  # which rows of a large cluster shape the launch of a split
    GUIDED = 14  # which splits and merges are proposed to all clusters, and accepted; sub = use
    SUBSAMPLE = 15  # which rows leave and enter the active ones; sub = shard, and the sweep above it (kernels)
    INFORMED = 17  # which informed merge or split is proposed, and whether it is accepted; sub = step
    RECALLED = 18  # rows whose sides an informed step recalls; sub = step
    DEALT = 19  # sides that an informed split gives these rows; sub = step
    REST = 20  # sides of the other rows; sub = step
    BRIGHTNESS = 21  # a sweep of z, Firefly Monte Carlo; sub = shard (kernels)
    FIRST_LIGHT = 22  # z of all rows at once; sub = shard (kernels)
    THETA = 23  # an update of the coefficients of a regression (kernels)
    LAPLACE = 24  # draws of Laplace's approximation
    TRUTH = 25  # the mixture that a simulated table is drawn from; chain = kind of column, sub = column
    CELLS = 26  # cells of a simulated table; cycle = block of rows, chain = kind of column, sub = column
    SIMULATED = 27  # missing cells of rows, drawn from the predictive of a draw; sub = kind of column
    RECORDED = 28  # latent numbers of recorded values; seed = the table's, sub = column, chain = whose rows
    COLUMNS = 29  # views that columns move to, and the order in which columns are visited
    RESTAURANT = 30  # partitions of all rows from the prior; sub = index of the partition (kernels)
    PROCESS = 31  # concentration and discount of these partitions; sub = index
    VIEWS = 32  # concentration and discount of the views, given the partition of columns
    VIEW_MOVES = 33  # which views are split or merged, and whether the move is accepted; sub = move
    CORE = 34  # which rows shape a proposal for a view's rows; sub = proposal
    SEATED = 35  # clusters of these rows; sub = proposal
    TAKEN = 36  # clusters of the remaining rows; sub = proposal
    LATE = 37  # rows that take no proposed cluster; sub = proposal
    SIDES_OF_COLUMNS = 38  # rows that shape the split of a view's columns, and the sides; sub = move
    DEALT_COLUMNS = 39  # initial views of columns
    PILOT = 40  # rows and seed of the chain on a sample that finds the first views; sub = search
    ALIKE_VIEWS = 41  # rows on which views are compared; sub = move
    LAUNCHED = 42  # columns that separate the core of a proposal at first; sub = proposal
    FLIP = 43  # whether a row has an instantiated feature, or swaps it for a similar one; sub = sweep (kernels)
    TAIL = 44  # features of a collapsed shard that a row has; sub = sweep (kernels)
    FEATURES = 45  # weights of features, the order of their visits, and the law's parameters; sub = which
    LOADINGS = 46  # loadings of features, given the rows
    NEW_CELLS = 47  # missing cells of rows, given their features; cycle 0: of the start, sub = its sweep
    FEATURE_MOVES = 48  # which moves on features are proposed, and accepted; sub = move
    SHAPING = 49  # rows that shape a proposal; sub = move
    DEALT_FEATURES = 50  # features of rows in a proposal; sub = move
    FIRST_FEATURES = 51  # rows that the search for features uses, and rows left out of it; sub = use
    SEARCH = 52  # seed of that search
    BY_LEVEL = 54  # which cluster is split by a column's levels, or which two are joined; sub = step
    SHARED_OUT = 55  # sides of the rows of such a split; sub = step
    BY_PATTERN = 56  # steps on a table of rows by pattern and cluster, and each shard's share of the result
    DEALT_BY_PATTERN = 57  # which of a shard's rows go to which of these clusters
    COPY_PARAMETERS = 64  # parameters of clusters in a filled-in copy of a table; cycle = copy, sub = kind of column
    CALIBRATION = 63  # shifts of level probabilities by class of rows, in such a copy; sub = by the column's name
    COPY_CELLS = 65  # clusters and missing cells of its rows; sub = kind of column
    LINES = 66  # parameters of columns in lines, for questions; seed = by a draw's clusters, sub = by the column's name
    LINE_PARAMETERS = 67  # parameters for drawing missing cells of such columns; sub = by the column's name
    FILLED_NUMBERS = 68  # these cells; sub = column
    FIRST_NUMBERS = 69  # initial values of these cells; sub = column
    BATCH = 70  # rows of an iteration of variational inference
    STATISTICS_NOISE = 71  # noise in a batch's sums: the weight of each row
    FIRST_MEANS = 72  # rows that the first components are found on, and rows that are their centers; sub = use
    TOPICS = 73  # topics of a document's words; sub = document (kernels)
    TRIALS = 74  # proposals at the end of a search for views
    JUDGES = 75  # rows that judge several searches for views
    COMPARED = 76  # rows by which those appended to a run are compared with its earlier ones
    SAMPLE = 77  # rows and seed of the chain on a sample that finds the first clusters
    TABLE_PARAMETERS = (
        78  # weights and parameters of clusters of a synthetic table; cycle = table, sub = kind of column
    )
    TABLE_ROWS = 79  # clusters, cells and gaps of its rows; sub = kind of column, or use
    JUDGED = 80  # rows, triples of columns and folds by which a synthetic table is judged; sub = use
    LINKS = 81  # the forest of links between columns, given the rows
    FILLED_PARAMETERS = 82  # level probabilities for drawing missing cells that other columns depend on
    FILLED = 83  # these cells; sub = column
    COMPLETED_PARAMETERS = 84  # level probabilities for all other missing cells with levels, before links are drawn
    COMPLETED = 85  # these cells; sub = column
    FIRST_FILLED = 86  # initial levels of needed cells; sub = column
    LINE_OTHERS = 88  # parameters of other columns, and weights, for drawing labels of rows that lack numbers
    LINE_MOVES = 89  # whether these rows accept their labels
    POWERS = 90  # column whose view is drawn under powers of its likelihood, and that view
    TABLES = 91  # tables of levels in contexts given the base of a column; sub = by the column's name
    BASES = 92  # these bases, given tables; sub = by the column's name, and above it whether for a draw of a link
    BASE_CONCENTRATION = 93  # their concentrations; sub as for bases
    LINK_TABLES = 94  # tables of each link in a draw of the forest; sub = link and use
    OUTCOME = 101  # coefficients of an outcome's regression, their prior and scale
    OUTCOME_FRESH = 102  # coefficients offered to new clusters; sub = sweep
    OUTCOME_PICK = 103  # choice among them for a new cluster; sub = sweep
    OUTCOME_MOVES = 104  # coefficients of split or merged clusters, and acceptance; sub = judgement of the cycle
    OUTCOME_PREDICTORS = 105  # cells of an outcome's predictors that an answer averages over; sub = kind of column
    OUTCOME_CELLS = 106  # outcomes of simulated rows; sub = use
    OUTCOME_LIGHT = 107  # bright rows of an outcome; sub = shard, and the step of the cycle above it
    OUTCOME_VIEW = 108  # view of an outcome, with coefficients proposed in the others
    OUTCOME_HOST = 109  # column of that view that stays while the others change views
    COMBINED = 110  # rows, folds and seed of the chains that score views of several searches
    GROUPS = 111  # columns that go to another view together, that view, and whether they do
    GROUP_ROWS = 112  # rows on which their dependence is measured (sub = 0), and how
    GROWN = 87  # seed of the chains of a run to which rows were added; cycle = number of times


def in_lane(chain: int, lane: int) -> int:
    """Return the `chain` of the streams of one lane of a chain; both are below 2^32; lane 0 gives the chain's
    number."""
    if not (0 <= chain < 1 << 32 and 0 <= lane < 1 << 32):
        raise ValueError(f"chain {chain}, lane {lane}: a stream has no room for them")
    return chain | lane << 32


class Key(ISeedSequence):
    """Two words used as Philox's key unchanged. Given no seed at all, Philox would first ask the system for one."""

    def __init__(self, *words: int):
        self.words = words

    def generate_state(self, n_words: int, dtype: type = np.uint32) -> np.ndarray:
        return np.array(self.words, dtype)


def generator(seed: int, purpose: Purpose, cycle: int = 0, sub: int = 0, chain: int = 0) -> np.random.Generator:
    """Return a separate generator for one purpose in one cycle. Streams with different arguments never overlap."""
    counter = np.array([0, sub, cycle, chain], np.uint64)
    return np.random.Generator(np.random.Philox(Key(seed, purpose), counter=counter))


@dataclass(frozen=True)
class Stream:
    """Draws with ids: each depends only on the stream and its id, so they can be dealt to ranks in any way."""

    seed: int
    purpose: Purpose
    cycle: int
    chain: int = 0
    sub: int = 0

    def at(self, sub: int) -> Stream:
        """The stream with another `sub`; much cheaper than `dataclasses.replace`."""
        return Stream(self.seed, self.purpose, self.cycle, self.chain, sub)

    def uniforms(self, ids: np.ndarray) -> np.ndarray:
        """Uniform draws in [0, 1), float64 of the shape of `ids` (one axis)."""
        return (split.words(np.asarray(ids, np.int64), **vars(self)) >> np.uint64(11)) * 2.0**-53

    def log_gammas(self, shape: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Logarithms of Gamma(shape, 1) draws, float64; nothing underflows (docs/math.md 2.1)."""
        return updates.log_gammas(shape, ids, **vars(self))

    def normals(self, ids: np.ndarray) -> np.ndarray:
        """Standard normal draws, float64 of the shape of `ids`."""
        return updates.normals(ids, **vars(self))

    def log_dirichlet(self, shape: np.ndarray) -> np.ndarray:
        """Logarithm of one Dirichlet(shape) draw, (K,) float64."""
        log_gamma = self.log_gammas(shape, np.arange(len(shape)))
        largest = log_gamma.max()
        return log_gamma - (largest + np.log(np.exp(log_gamma - largest).sum()))


def cells(first: int, n_columns: int, n_clusters: int) -> np.ndarray:
    """Ids of draws, one per column and cluster, (n_columns, n_clusters) int64; first: number of the first column."""
    return ((first + np.arange(n_columns, dtype=np.int64)) << 32)[:, None] | np.arange(n_clusters, dtype=np.int64)
