"""Columns and rows of a typed table in memory: each column's properties, the location of its cells, and its moments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mpibayes.errors import DataError
from mpibayes.io import recording, spells
from mpibayes.io.shape import Shape

CODES = {"codes8": np.uint8, "codes16": np.uint16}  # of levels, followed by the code of a missing cell
BLOCKS = {**CODES, "reals": np.float64, "tallies": np.float64}  # on disk
ARRAYS = {**BLOCKS, "vectors": np.float64, "spells": np.float64}  # of Rows
STORED = {"categorical": tuple(CODES), "boolean": tuple(CODES), "real": ("reals",), "count": ("tallies",)}  # by kind
STORED |= {"survival": ("reals",)}
KINDS = tuple(STORED)
LEVELLED = tuple(kind for kind, arrays in STORED.items() if arrays[0] in CODES)
NUMERIC = tuple(kind for kind in KINDS if kind not in LEVELLED)
MAX_LEVELS = 65_535
MAX_COUNT = 2.0**53  # above this float64 no longer holds every integer
MAX_REAL = 1e150  # squares of larger numbers overflow
SLICE_ROWS = 65_536
SLICE_BYTES = 16 << 20


@dataclass(frozen=True)
class Column:
    """One column of a typed table: what it is, where it lies, how it was recorded, and its summary over all rows.

    A real column was recorded in steps of `resolution` (0: exactly), and some of its values, the `atoms`, are not
    measurements but special values; on a log scale (`log`) all other values are positive. `rest_center` and
    `rest_scale` are mean and standard deviation of the cells that are not atoms, on that scale (`recording.rest`);
    `n_rest` is their number, if there are atoms or logarithms, -1 if it was not counted. `part_of`: for a column that
    only gives the atom of each cell, the column of the table that it is made from. `unit`: of dates (`clock`).
    `ordered`: the levels are a scale, least first (`order.order_of`); None if the table does not say. `shape`: the
    coordinates that a run models the column in, if it has fitted any. `contexts`: of the column that this one depends
    on in a run (docs/links.md); its cells are then codes of a context and a level, or its numbers are spread over as
    many columns, in one of which each row has its cell. `cuts`: ascending recorded values at which a run cuts a numeric
    column into the bins that other columns may depend on. `line`: True if it may depend linearly on another such
    column; `leans_on`: the one it does depend on. `second`: name of the second parent that it is given. For a
    survival column, whose cells are coded as in `spells`, center to maximum describe the times that rows were observed,
    `rest_scale` is this time per event, and `ends` are the ends of the parts of the time axis.
    """

    name: str
    kind: str
    block: str
    index: int
    levels: tuple[str, ...] = ()
    n_missing: int = 0
    center: float = 0.0
    scale: float = 1.0
    minimum: float = 0.0
    maximum: float = 0.0
    resolution: float = 0.0
    atoms: tuple[float, ...] = ()
    log: bool = False
    rest_center: float = 0.0
    rest_scale: float = 1.0
    n_rest: int = -1
    part_of: str = ""
    unit: str = ""
    ordered: bool | None = None
    shape: Shape | None = None
    contexts: int = 1
    cuts: tuple[float, ...] = ()
    line: bool = False
    leans_on: Column | None = None
    child: bool = False
    second: str = ""
    ends: tuple[float, ...] = ()

    @property
    def blank(self) -> float:
        """Code of a missing cell in memory: the last code, or NaN."""
        return self.contexts * (len(self.levels) + 1) - 1 if self.levels else np.nan

    @property
    def n_cells(self) -> int:
        """Number of cells per row in the column's array."""
        return 1 if self.levels else self.contexts

    def at(self, index: int) -> Column:
        """The column with its cells at another place; much cheaper than `dataclasses.replace`."""
        return self if index == self.index else Column(**(vars(self) | {"index": index}))

    def is_missing(self, cells: np.ndarray) -> np.ndarray:
        """Mask of the missing cells of the column (n,), bool (n,)."""
        return cells == self.blank if self.levels else np.isnan(cells)


NO_WIDTHS = np.zeros(0, np.int64)


@lru_cache(64)
def _no_cells(n: int, dtype: type) -> np.ndarray:
    """Array of n rows without columns."""
    return np.empty((n, 0), dtype)


@dataclass
class Rows:
    """Some rows of a table: C-contiguous arrays of the same length, possibly with zero columns.

    codes8 (n, C8) uint8, codes16 (n, C16) uint16, reals (n, R) float64, tallies (n, Q) float64. A run that models
    blocks of real columns jointly has these in vectors (n, sum of widths) float64, the columns of a block side by side,
    and widths (B,) int64; survival columns are in spells (n, S) float64, coded by `spells.coded`. Files have neither.
    """

    codes8: np.ndarray
    codes16: np.ndarray
    reals: np.ndarray
    tallies: np.ndarray
    vectors: np.ndarray | None = None
    spells: np.ndarray | None = None
    widths: np.ndarray | None = None

    def __post_init__(self):
        self.vectors = np.empty((len(self), 0)) if self.vectors is None else self.vectors
        self.spells = np.empty((len(self), 0)) if self.spells is None else self.spells
        self.widths = NO_WIDTHS if self.widths is None else self.widths

    def __len__(self) -> int:
        return len(self.codes8)

    def take(self, index: np.ndarray | slice) -> Rows:
        """Copy the chosen rows."""
        if isinstance(index, np.ndarray) and index.dtype.kind == "i":
            return self._alike(lambda array: array.take(index, 0))  # several times as fast
        return self._alike(lambda array: np.array(array[index], order="C"))

    def part(self, start: int, stop: int) -> Rows:
        """Return the rows from start to stop, not copied."""
        return self._alike(lambda array: array[start:stop])

    def only(self, arrays: Collection[str]) -> Rows:
        """Copy the rows, keeping only columns in `arrays`."""
        n = len(self.codes8)
        held = [getattr(self, name) if name in arrays else _no_cells(n, of) for name, of in ARRAYS.items()]
        return Rows(*held, self.widths if "vectors" in arrays else NO_WIDTHS)

    def _alike(self, change: Callable[[np.ndarray], np.ndarray]) -> Rows:
        return Rows(*(change(getattr(self, b)) for b in ARRAYS), self.widths)

    @classmethod
    def empty(cls, columns: Sequence[Column], n: int) -> Rows:
        """Arrays of the right shapes for `n` rows of `columns`; their content is arbitrary."""
        widths = block_widths(columns)
        return cls(*(np.empty((n, widths[block]), dtype) for block, dtype in BLOCKS.items()))

    @classmethod
    def missing(cls, columns: Sequence[Column], n: int) -> Rows:
        """`n` rows of `columns` with all cells missing."""
        rows = cls.empty(columns, n)
        for column in columns:
            getattr(rows, column.block)[:, column.index] = column.blank
        return rows

    @classmethod
    def concatenate(cls, columns: Sequence[Column], parts: Sequence[Rows]) -> Rows:
        if not parts:
            return cls.empty(columns, 0)
        return cls(*(np.concatenate([getattr(p, b) for p in parts]) for b in ARRAYS), parts[0].widths)


def block_widths(columns: Iterable[Column]) -> dict[str, int]:
    """Number of columns in each block."""
    widths = dict.fromkeys(BLOCKS, 0)
    for column in columns:
        widths[column.block] += 1
    return widths


def slice_rows(columns: Iterable[Column]) -> int:
    """Number of rows processed at a time: at most SLICE_ROWS, and SLICE_BYTES in a wide table."""
    return max(1, min(SLICE_ROWS, SLICE_BYTES // bytes_of_row(columns)))


def bytes_of_row(columns: Iterable[Column]) -> int:
    """Bytes per row on disk; 1 if there are no columns."""
    return max(1, sum(np.dtype(BLOCKS[c.block]).itemsize for c in columns))


def place_columns(kinds: Iterable[tuple[str, str, Sequence[str]]]) -> tuple[Column, ...]:
    """Columns from (name, kind, levels) in schema order, each with its block and position there."""
    columns: list[Column] = []
    widths = dict.fromkeys(BLOCKS, 0)
    for name, kind, levels in kinds:
        block = STORED[kind][-1 if len(levels) > 255 else 0]
        columns.append(Column(name, kind, block, widths[block], tuple(levels)))
        widths[block] += 1
    return tuple(columns)


def summarise(columns: Sequence[Column], slices: Iterable[Rows]) -> tuple[Column, ...]:
    """Add to the columns n_missing, center, scale, minimum and maximum of the observed cells of `slices`, and center
    and scale of their rests. Raises DataError if a column on a log scale has values without logarithm.

    Means and sums of squares of the slices are merged by Chan, Golub & LeVeque (1979). The result depends on how the
    rows are cut, so callers cut as in slice_rows, whatever the batches they receive.
    """
    widths = block_widths(columns)
    missing = {block: np.zeros(width, np.int64) for block, width in widths.items()}
    moments = {block: _Moments(widths[block]) for block in BLOCKS.keys() - CODES.keys()}
    blank = {
        block: np.array([len(c.levels) for c in columns if c.block == block], dtype) for block, dtype in CODES.items()
    }
    rests, watched = _Rests(columns), _Watched(columns)
    for rows in slices:
        rows = watched.times_of(rows)
        for block, code in blank.items():
            missing[block] += (getattr(rows, block) == code).sum(axis=0)
        for block, moment in moments.items():
            missing[block] += moment.add(getattr(rows, block))
        rests.add(rows)
    result = []
    for column in columns:
        change: dict[str, float] = {"n_missing": int(missing[column.block][column.index])}
        if column.block in moments:
            change |= moments[column.block].of(column.index)
        result.append(watched.of(rests.of(replace(column, **change))))
    return tuple(result)


class _Watched:
    """Time per event of survival columns, and the ends of the parts of their time axes: quantiles of event times, or of
    every second, fourth, ... event in a large table."""

    MOST = 1 << 17  # events used

    def __init__(self, columns: Sequence[Column]):
        self.columns = [c for c in columns if c.kind == "survival"]
        self._time, self._n = ({c.name: 0.0 for c in self.columns} for _ in range(2))
        self._events = {c.name: [np.zeros(0), 1, 0] for c in self.columns}  # times, step, events so far

    def times_of(self, rows: Rows) -> Rows:
        """Rows with observed times in place of the cells."""
        if not self.columns:
            return rows
        reals = rows.reals.copy()
        for c in self.columns:
            x = rows.reals[:, c.index]
            reals[:, c.index] = np.where(x == spells.AT_ONCE, 0.0, np.abs(x))
            events = x[x >= 0.0]
            self._time[c.name] += float(np.abs(x[~np.isnan(x)]).sum())
            self._n[c.name] += len(events)
            kept = self._events[c.name]
            kept[0] = np.append(kept[0], events[-kept[2] % kept[1] :: kept[1]])
            kept[2] += len(events)
            while len(kept[0]) > self.MOST:
                kept[0], kept[1] = kept[0][::2], 2 * kept[1]
        return replace(rows, reals=reals)

    def of(self, column: Column) -> Column:
        if column.kind != "survival":
            return column
        time, n = self._time[column.name], self._n[column.name]
        per_event = time / max(n, 1)
        ends = column.ends or spells.ends_of(self._events[column.name][0])
        return replace(column, rest_scale=per_event if per_event > 0.0 else 1.0, ends=ends)


class _Rests:
    """Center and scale of the cells that a mixture models as normal: those that are not atoms, on the model's scale."""

    def __init__(self, columns: Sequence[Column]):
        self.columns = [c for c in columns if c.atoms or c.log]
        self._place = {c.name: i for i, c in enumerate(self.columns)}
        self._moments = _Moments(len(self.columns))
        self._n_atoms = np.zeros(len(self.columns), np.int64)
        self._n_without = np.zeros(len(self.columns), np.int64)

    def add(self, rows: Rows) -> None:
        if self.columns:
            cells = [rows.reals[:, c.index] for c in self.columns]
            self._n_atoms += [int(np.isin(x, c.atoms).sum()) for c, x in zip(self.columns, cells)]
            y = np.column_stack([recording.rest(c, x) for c, x in zip(self.columns, cells)])
            self._n_without += self._moments.add(y)

    def of(self, column: Column) -> Column:
        """Add these statistics to a column that has all others."""
        if column.kind != "real":
            return column
        statistics = {"center": column.center, "scale": column.scale}
        i, n_rest = self._place.get(column.name), -1
        if i is not None:
            statistics = self._moments.of(i) or {"center": 0.0, "scale": 1.0}
            if self._n_without[i] > column.n_missing + self._n_atoms[i]:
                raise DataError(
                    f"column '{column.name}': has values of 0 or below that are not atoms, so it has no "
                    'logarithms; give scale = "linear" in the schema'
                )
            n_rest = int(self._moments.n[i])
        spread = 0.0 if column.log else column.resolution / np.sqrt(12.0)  # of latent values within their cells
        scale = float(np.hypot(statistics["scale"], spread))
        return replace(column, rest_center=statistics["center"], rest_scale=scale, n_rest=n_rest)


class _Moments:
    """Count, mean, sum of squares about the mean, minimum and maximum of each column; NaN cells are skipped."""

    def __init__(self, width: int):
        self.n = np.zeros(width)
        self.mean = np.zeros(width)
        self.scatter = np.zeros(width)
        self.minimum = np.full(width, np.inf)
        self.maximum = np.full(width, -np.inf)

    def add(self, x: np.ndarray) -> np.ndarray:
        """Add the rows of `x` (n, width); return the number of missing cells per column."""
        seen = ~np.isnan(x)
        n = seen.sum(axis=0).astype(float)
        if x.size:
            mean = np.where(seen, x, 0.0).sum(axis=0) / np.maximum(n, 1)
            scatter = (np.where(seen, x - mean, 0.0) ** 2).sum(axis=0)
            total = np.maximum(self.n + n, 1)
            shift = mean - self.mean
            self.scatter += scatter + shift**2 * self.n * n / total
            self.mean += shift * n / total
            self.n += n
            self.minimum = np.minimum(self.minimum, np.where(seen, x, np.inf).min(axis=0))
            self.maximum = np.maximum(self.maximum, np.where(seen, x, -np.inf).max(axis=0))
        return len(x) - n.astype(np.int64)

    def of(self, i: int) -> dict[str, float]:
        if self.n[i] == 0:
            return {}
        scale = float(np.sqrt(self.scatter[i] / self.n[i]))
        return {
            "center": float(self.mean[i]),
            "scale": scale if scale > 0 else 1.0,
            "minimum": float(self.minimum[i]),
            "maximum": float(self.maximum[i]),
        }


def check_levels(name: str, kind: str, levels: Sequence[str]) -> None:
    """Raise DataError unless `levels` are valid for a column of this kind."""
    if kind in NUMERIC:
        return
    if kind == "boolean" and len(levels) != 2:
        raise DataError(f"column '{name}': a boolean column has two levels, found {len(levels)}")
    if not levels:
        raise DataError(f"column '{name}': a categorical column needs at least one level")
    if len(levels) > MAX_LEVELS:
        raise DataError(
            f"column '{name}': {len(levels):,} levels, more than the {MAX_LEVELS:,} a categorical column can have; "
            'leave it out (kind = "ignored" in the schema)'
        )
    if len(set(levels)) != len(levels):
        raise DataError(f"column '{name}': a level is listed twice")
    if any("\0" in level for level in levels):
        raise DataError(f"column '{name}': a level contains a NUL character; is this a text file?")


def slices_of(rows: Rows, step: int) -> Iterator[Rows]:
    """Yield `rows` in slices of `step` rows (views, not copies)."""
    for start in range(0, len(rows), step):
        yield rows._alike(lambda array, start=start: array[start : start + step])
