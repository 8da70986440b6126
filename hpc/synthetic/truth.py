"""`mpibayes simulate`: typed tables drawn from a known mixture, for tests of speed and of recovery.

Rows are independent: a cluster z with probability w_z, then each cell from the cluster's law of its column:

    categorical  theta_k ~ Dirichlet(1 / separation, ...), for each cluster and column
    real         Normal(mu_k, 1) with mu_k ~ Normal(0, separation^2)
    count        Poisson(lambda_k) with log lambda_k ~ Normal(log 5, (separation / 4)^2)

w ~ Dirichlet(2, ..., 2). A cell is missing with the same probability everywhere. Memory holds one block of rows.
Random numbers belong to a column and a block of BLOCK rows, so the bits depend neither on how the rows are cut nor on
the other columns, and a longer table begins with the rows of a shorter one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import gammaln, logsumexp

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.io.export import canonical_labels
from mpibayes.io.files import replacing, writing
from mpibayes.io.rows import MAX_LEVELS, Column, Rows, place_columns, slice_rows
from mpibayes.io.table import Table, TableWriter, check_table_name
from mpibayes.io.target import DRAWS, TABLE, check_target, same_file
from mpibayes.text import whole_number

BLOCK = 16_384  # rows that share a random stream in each column
SCORED_ROWS = 65_536  # rows over which the best reachable score is averaged
MOST_COUNT = 1e9  # largest rate of a cluster
MEAN_COUNT = 5.0
CATEGORICAL, REAL, COUNT, CLUSTERS, WIDTHS = range(5)  # sub-streams

# The 1990 US census extract of the UCI repository (2,458,285 persons): names of the 68 columns, numbers of their codes.
CENSUS = {
    "dAge": 8, "dAncstry1": 12, "dAncstry2": 13, "iAvail": 5, "iCitizen": 5, "iClass": 10, "dDepart": 6, "iDisabl1": 3,
    "iDisabl2": 3, "iEnglish": 5, "iFeb55": 2, "iFertil": 14, "dHispanic": 10, "dHour89": 6, "dHours": 6,
    "iImmigr": 11, "dIncome1": 5, "dIncome2": 2, "dIncome3": 2, "dIncome4": 2, "dIncome5": 2, "dIncome6": 2,
    "dIncome7": 2, "dIncome8": 2, "dIndustry": 13, "iKorean": 2, "iLang1": 3, "iLooking": 3, "iMarital": 5,
    "iMay75880": 2, "iMeans": 13, "iMilitary": 5, "iMobility": 3, "iMobillim": 3, "dOccup": 9, "iOthrserv": 2,
    "iPerscare": 3, "dPOB": 7, "dPoverty": 3, "dPwgt1": 4, "iRagechld": 5, "dRearning": 6, "iRelat1": 14,
    "iRelat2": 10, "iRemplpar": 16, "iRiders": 9, "iRlabor": 7, "iRownchld": 2, "dRpincome": 6, "iRPOB": 14,
    "iRrelchld": 2, "iRspouse": 7, "iRvetserv": 12, "iSchool": 4, "iSept80": 2, "iSex": 2, "iSubfam1": 4,
    "iSubfam2": 4, "iTmpabsnt": 4, "dTravtime": 7, "iVietnam": 2, "dWeek89": 3, "iWork89": 3, "iWorklwk": 3,
    "iWWII": 2, "iYearsch": 18, "iYearwrk": 8, "dYrsserv": 3,
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """Shape of a table to be drawn."""

    categorical: Sequence[tuple[str, int]] = ()  # name and number of levels, in table order
    n_real: int = 0
    n_count: int = 0
    n_clusters: int = 20
    missing: float = 0.0
    separation: float = 1.0


def census() -> list[tuple[str, int]]:
    return list(CENSUS.items())


def categorical_columns(n: int, fewest: int, most: int, seed: int) -> list[tuple[str, int]]:
    """Make n columns c1, c2, ... with numbers of levels drawn uniformly from fewest..most."""
    widths = generator(seed, Purpose.TRUTH, chain=WIDTHS).integers(fewest, most + 1, size=n)
    return [(f"c{i}", int(v)) for i, v in enumerate(widths, 1)]


class Truth:
    """A known mixture, and the rows drawn from it. Rows are made on demand; none are kept.

    columns: as in `io.table`. weight (K,). theta: (K, V) for each categorical column; location (R, K); log_rate (Q, K).
    """

    def __init__(self, shape: Shape, seed: int):
        self.shape, self.seed = shape, seed
        k, spread = shape.n_clusters, shape.separation
        kinds = [(name, "categorical", tuple(map(str, range(v)))) for name, v in shape.categorical]
        kinds += [(f"x{i}", "real", ()) for i in range(1, shape.n_real + 1)]
        kinds += [(f"n{i}", "count", ()) for i in range(1, shape.n_count + 1)]
        self.columns: tuple[Column, ...] = place_columns(kinds)

        def stream(kind: int, column: int = 0) -> np.random.Generator:
            return generator(seed, Purpose.TRUTH, 0, column, kind)

        self.weight = stream(CLUSTERS).dirichlet(np.full(k, 2.0))
        self.theta = [
            _dirichlet(1 / spread, (k, v), stream(CATEGORICAL, c)) for c, (_, v) in enumerate(shape.categorical)
        ]
        location = [spread * stream(REAL, c).standard_normal(k) for c in range(shape.n_real)]
        log_rate = [np.log(MEAN_COUNT) + spread / 4 * stream(COUNT, c).standard_normal(k) for c in range(shape.n_count)]
        self.location = np.array(location).reshape(shape.n_real, k)
        self.log_rate = np.minimum(np.array(log_rate).reshape(shape.n_count, k), np.log(MOST_COUNT))
        self._rungs = [_rungs(theta) for theta in self.theta]
        self._weight_rungs = _rungs(self.weight[None, :])

    def labels(self, start: int, stop: int) -> np.ndarray:
        """Clusters that rows start..stop-1 were drawn from, (stop - start,) int32."""
        parts = [self._block_labels(block)[cut] for block, cut in _blocks(start, stop)]
        return np.concatenate([np.zeros(0, np.int32), *parts])

    def rows(self, start: int, stop: int) -> Rows:
        """Rows start..stop-1; independent of how rows are sliced."""
        rows, done = Rows.empty(self.columns, stop - start), 0
        for block, cut in _blocks(start, stop):
            z = self._block_labels(block)
            place = slice(done, done + cut.stop - cut.start)
            number = dict.fromkeys((CATEGORICAL, REAL, COUNT), 0)
            for column in self.columns:
                kind = {"real": REAL, "count": COUNT}.get(column.kind, CATEGORICAL)
                getattr(rows, column.block)[place, column.index] = self._cells(column, kind, number[kind], block, z)[
                    cut
                ]
                number[kind] += 1
            done = place.stop
        return rows

    def _block_labels(self, block: int) -> np.ndarray:
        u = generator(self.seed, Purpose.CELLS, block, 0, CLUSTERS).random(BLOCK)
        return _pick(self._weight_rungs, np.zeros(BLOCK, np.int32), u).astype(np.int32)

    def _cells(self, column: Column, kind: int, number: int, block: int, z: np.ndarray) -> np.ndarray:
        """Draw one column of a block. Missing cells are chosen last, so that the other cells do not depend on them."""
        stream = generator(self.seed, Purpose.CELLS, block, number, kind)
        if kind == CATEGORICAL:
            cells, blank = _pick(self._rungs[number], z, stream.random(BLOCK)), len(column.levels)
        elif kind == REAL:
            cells, blank = self.location[number, z] + stream.standard_normal(BLOCK), np.nan
        else:
            cells, blank = stream.poisson(np.exp(self.log_rate[number, z])).astype(np.float64), np.nan
        if self.shape.missing:
            cells[stream.random(BLOCK) < self.shape.missing] = blank
        return cells

    def log_density(self, rows: Rows) -> np.ndarray:
        """Log density of each row under the mixture, clusters summed out, missing cells left out, (n,) float64.

        No model can do better on rows of this table, on average.
        """
        score = np.tile(np.log(self.weight), (len(rows), 1))
        number = dict.fromkeys((CATEGORICAL, REAL, COUNT), 0)
        for column in self.columns:
            kind = {"real": REAL, "count": COUNT}.get(column.kind, CATEGORICAL)
            x, i = getattr(rows, column.block)[:, column.index], number[kind]
            if kind == CATEGORICAL:
                score += np.vstack([np.log(self.theta[i]).T, np.zeros(self.shape.n_clusters)])[x]
            elif kind == REAL:
                part = -0.5 * ((x[:, None] - self.location[i]) ** 2 + np.log(2 * np.pi))
                score += np.where(np.isnan(part), 0.0, part)
            else:
                part = x[:, None] * self.log_rate[i] - np.exp(self.log_rate[i]) - gammaln(x + 1)[:, None]
                score += np.where(np.isnan(part), 0.0, part)
            number[kind] += 1
        return logsumexp(score, axis=1)


def _blocks(start: int, stop: int) -> Iterator[tuple[int, slice]]:
    """Yield the blocks that contain rows start..stop-1, each with the slice of its rows among them."""
    for block in range(start // BLOCK, -(-stop // BLOCK)):
        first = block * BLOCK
        yield block, slice(max(start - first, 0), min(stop - first, BLOCK))


def _dirichlet(pseudo_count: float, shape: tuple[int, int], stream: np.random.Generator) -> np.ndarray:
    """Probabilities (K, V), none below 1e-9: every level can occur in every cluster."""
    gamma = stream.standard_gamma(pseudo_count, size=shape)
    theta = gamma / np.maximum(gamma.sum(axis=1, keepdims=True), 1e-300) + 1e-9
    return theta / theta.sum(axis=1, keepdims=True)


def _rungs(theta: np.ndarray) -> tuple[np.ndarray, int]:
    """Cumulative probabilities of all clusters on one ladder, those of cluster k between k and k + 1; and V."""
    ladder = np.cumsum(theta, axis=1)
    ladder[:, -1] = 1.0
    return (ladder + np.arange(len(theta))[:, None]).ravel(), theta.shape[1]


def _pick(rungs: tuple[np.ndarray, int], z: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Invert the distribution of each row's cluster at u in [0, 1): codes (n,) int64."""
    ladder, n_levels = rungs
    return np.minimum(np.searchsorted(ladder, z + u, side="right") - z * n_levels, n_levels - 1)


@dataclass(frozen=True)
class Drawn:
    """A table that was written."""

    table: Table
    used_clusters: int  # clusters with rows
    score: float  # mean log density of a row under the truth
    score_error: float  # its standard error
    scored_rows: int


def simulate(
    path: Path,
    truth: Truth,
    n_rows: int,
    *,
    labels: Path | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Drawn:
    """Write `n_rows` rows of the truth as a typed table, slice by slice, in constant memory.

    labels: a file for the rows' clusters: int32 (N,) if its name ends in .npy, else text as written by `export --to
    labels`, one line of labels numbered by first appearance. progress(rows): called as rows are written. Raises
    ConfigError if a file exists and `overwrite` is not set, DataError if one cannot be written.
    """
    path = Path(path)
    check_table_name(path)
    if labels is not None:
        labels = Path(labels)
        if same_file(labels, path):
            raise ConfigError(f"{labels}: is already the name of the table; name another file for the labels")
        check_target(labels, overwrite, DRAWS)
    check_target(path, overwrite, TABLE, otherwise=DataError)
    z = np.empty(n_rows if labels is not None else 0, np.int32)
    used, scores = np.zeros(truth.shape.n_clusters, bool), []
    step = BLOCK * max(1, slice_rows(truth.columns) // BLOCK)
    source = {"simulated": {"seed": truth.seed, "clusters": truth.shape.n_clusters}}
    with TableWriter(path, truth.columns, n_rows, overwrite, source) as writer:
        for start in range(0, n_rows, step):
            stop = min(start + step, n_rows)
            rows, mine = truth.rows(start, stop), truth.labels(start, stop)
            writer.write(rows)
            used[mine] = True
            if labels is not None:
                z[start:stop] = mine
            for first in range(start, min(stop, SCORED_ROWS), 1024):
                last = min(first + 1024, stop, SCORED_ROWS)
                scores.append(truth.log_density(rows.take(slice(first - start, last - start))))
            if progress is not None:
                progress(stop)
    if labels is not None:
        _write_labels(labels, z)
    score = np.concatenate(scores)
    error = score.std() / np.sqrt(len(score))
    return Drawn(writer.table, int(used.sum()), float(score.mean()), float(error), len(score))


def _write_labels(path: Path, z: np.ndarray) -> None:
    with writing(path), replacing(path) as file:
        if path.suffix == ".npy":
            np.save(file, z)
        else:
            words = [str(k) for k in range(int(z.max()) + 1)]
            file.write((" ".join([words[k] for k in canonical_labels(z).tolist()]) + "\n").encode())


def parse_levels(text: str) -> tuple[int, int]:
    """Parse a number or range of levels: "5" -> (5, 5), "2-18" -> (2, 18). Raises ValueError."""
    first, _, last = text.partition("-")
    fewest, most = whole_number(first), whole_number(last or first)
    if fewest is None or most is None or text.endswith("-"):
        raise ValueError(f"'{text}' is not a number of levels; expected for example 5, or 2-18 for a range")
    if not 2 <= fewest <= most <= MAX_LEVELS:
        raise ValueError(f"'{text}': a column has from 2 to {MAX_LEVELS:,} levels, the fewest first")
    return fewest, most
