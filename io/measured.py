"""Recording of a real column, inferred from all its values: their step, their atoms, their scale.

The rules and their origin (docs/tables.md explains them to users):

* The resolution is the largest power of ten of which 98 % of the values are multiples; zero does not vote, and each
  value weighs at most three times the median, so that heaping does not pass for a step. Another step needs all values;
  or 95 % of the cells, if its multiples were rounded, as in degrees of another scale.
  Values of more than 7.5 digits have a step only if their differences have a common one.
* An atom is a value of at least 2 % of the cells, at least 20 of them, and at least five times the commonest of its
  four neighbours on each side. A sentinel is the least or greatest value, far from the rest and more common than its
  neighbour. Beside atoms, fewer zeros are one, too, if they keep the others from a log scale.
* Among few integers, such as answers, -99 or 9 are codes for missing if their distance to the rest exceeds the
  distances within the rest.
* Up to three cells at one end that are ten times as far from the rest as the rest is wide are likely to be slips.
* Values whose logarithms fit a normal much better are modelled on a log scale.
* At most 20 values, each ten times or more, are categories; so are at most 200 without a step, half of them ten times
  or more: they recur exactly, like ratios of small numbers, and a density would have a peak at each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mpibayes.io.clock import as_text, step_in_words

MOST_VALUES = 16_384  # distinct values kept
DIGITS = 7.5
ON_GRID = 0.98
HEAPED = 3.0  # maximal weight of a value, in medians
ON_ROUNDED_GRID, LEAST_TIMES, MOST_TIMES = 0.95, 3.0, 40.0  # a rounded step in units of the finer one
NEARLY = 0.6  # a rounded multiple is within 0.5; the steps that are tried are a bit off
HEAPS, MOST_HEAPED = 5.0, 0.9
MOST_TRIED = 1e6  # distinct values times the largest, in steps
BY_CHANCE = 1e-6  # largest probability that numbers without a rounded step seem to have one
ATOM_SHARE, ATOM_CELLS, ATOM_TIMES, NEIGHBOURS = 0.02, 20, 5.0, 4
SENTINEL_CELLS, SENTINEL_TIMES, SENTINEL_GAP = 5, 2.0, 0.25
CODES_OF_MISSING = (7, 8, 9, 77, 88, *range(95, 100), 777, 888, *range(995, 1000), 9998, 9999)
LEAST_GAP = 3.0
SLIPS, SLIP_GAP, LEAST_REST = 3, 10.0, 50  # most cells that are slips; their distance; fewest other cells
SUSPECT_SHARE = 0.25  # of the cells: a more frequent sentinel is hardly a missing cell
FEW_VALUES, FEW_CELLS, RECURRING = 20, 10, 200
LOG_RANGE, LOG_GAIN = 10.0, 0.25
MEDIAN_OF_CHI = 0.4549  # of a chi-square with one degree of freedom
ROUGH_CELLS = 12_000  # cells at which roughness is quoted
DOUBTFUL = 30.0  # roughness above which the values may be codes


class Histogram:
    """Distinct values with their numbers of cells; beyond MOST_VALUES, a sample of the rare ones by hash."""

    def __init__(self):
        self.values, self.cells = np.zeros(0), np.zeros(0, np.int64)
        self.n = 0
        self.whole = True  # no value was left out
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._n_waiting = 0
        self._limit = np.uint64(2**64 - 1)

    def add(self, values: np.ndarray, cells: np.ndarray) -> None:
        self._waiting.append((values, cells.astype(np.int64)))
        self._n_waiting += len(values)
        self.n += int(cells.sum())
        if self._n_waiting > MOST_VALUES:
            self.merge()

    def merge(self) -> Histogram:
        """Merge the waiting values into the histogram."""
        if self._waiting:
            values = np.concatenate([self.values, *(v for v, _ in self._waiting)]) + 0.0  # no -0
            cells = np.concatenate([self.cells, *(c for _, c in self._waiting)])
            self._waiting, self._n_waiting = [], 0
            self.values, place = np.unique(values, return_inverse=True)
            self.cells = np.bincount(place, cells, len(self.values)).astype(np.int64)
            self._thin()
        return self

    def _thin(self) -> None:
        common = self.cells >= 0.25 * ATOM_SHARE * self.n
        word = _hash(self.values)
        keep = common | (word <= self._limit)
        while keep.sum() > MOST_VALUES:
            self._limit >>= np.uint64(1)
            keep = common | (word <= self._limit)
        if not keep.all():
            self.whole = False
            self.values, self.cells = self.values[keep], self.cells[keep]


def _hash(values: np.ndarray) -> np.ndarray:
    """Mixed 64-bit word of each value, as in splitmix64."""
    h = values.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor)
    return h ^ (h >> np.uint64(31))


@dataclass(frozen=True)
class Recording:
    """resolution: 0 for none. suspects: sentinels of few cells. few: the values are categories. roughness: of the
    histogram, 1 if smooth; 0 if not applicable."""

    resolution: float = 0.0
    atoms: tuple[float, ...] = ()
    log: bool = False
    suspects: tuple[float, ...] = ()
    few: bool = False
    roughness: float = 0.0


AS_IT_IS = Recording()


def recording(h: Histogram, resolution: float | None = None, atoms=None, log: bool | None = None) -> Recording:
    """Infer the recording of a column from its histogram, except for the arguments given."""
    values, cells = h.merge().values, h.cells
    if not len(values):
        return Recording(resolution or 0.0, tuple(atoms or ()), bool(log))
    step = _resolution(values, cells) if resolution is None else resolution
    few = len(values) <= FEW_VALUES and cells.min() >= FEW_CELLS
    recurring = not step and len(values) <= RECURRING and np.median(cells) >= FEW_CELLS
    recording = Recording(step, few=h.whole and bool(few or recurring))
    suspects = ()
    if atoms is None:
        sentinels = _sentinels(values, cells)
        suspects = tuple(v for v in sentinels if cells[values == v][0] <= SUSPECT_SHARE * h.n)
        atoms = tuple(sorted({*_atoms(values, cells, h.n, step), *sentinels}))
        if atoms and log is None and _few_zeros(values, cells, h.n, atoms, step):
            atoms = (0.0, *atoms)
    if len(atoms) >= len(values):  # no values would be left to be normal
        atoms = ()
    rest = ~np.isin(values, atoms)
    if log is None:
        log = _is_log(values[rest], cells[rest], step) and values[-1] not in atoms
    rough = _roughness(values[rest], cells[rest], step) if h.whole else 0.0
    return replace(recording, atoms=tuple(atoms), suspects=suspects, log=log, roughness=rough)


def slips(h: Histogram) -> tuple[float, ...]:
    """Return the values of at most SLIPS cells at one end that are SLIP_GAP times as far from all others as these are
    from each other; () if values were left out of the histogram. Of all columns of pydataset's tables 3 have some."""
    values, cells = h.merge().values, h.cells
    if not h.whole or h.n < LEAST_REST or len(values) <= SLIPS + 1:
        return ()
    for n in range(1, SLIPS + 1):
        for apart, rest, gap in (
            (slice(n), values[n:], values[n] - values[n - 1]),
            (slice(-n, None), values[:-n], values[-n] - values[-n - 1]),
        ):
            if cells[apart].sum() <= SLIPS and gap > SLIP_GAP * (rest[-1] - rest[0]):
                return tuple(values[apart].tolist())
    return ()


def rare_zeros(h: Histogram, r: Recording) -> bool:
    """True if zeros keep the other numbers from a log scale, and no atom is there yet: as one, they would keep the
    column from linear links instead."""
    return not r.atoms and not r.log and _few_zeros(h.merge().values, h.cells, h.n, (), r.resolution)


def in_words(r: Recording, unit: str = "") -> str:
    """Describe a recording: "in steps of 0.1; 0 and 99 are values of their own; log scale". unit: of dates."""
    parts = [step_in_words(r.resolution) if unit else f"in steps of {r.resolution:.6g}"] if r.resolution else []
    if r.atoms:
        named = [as_text(atom, unit) if unit else f"{atom:.10g}" for atom in r.atoms[:4]]
        more = f" and {len(r.atoms) - 4} more" if len(r.atoms) > 4 else ""
        verb = "is a value of its own" if len(r.atoms) == 1 else "are values of their own"
        parts.append(f"{', '.join(named)}{more} {verb}")
    return "; ".join([*parts, *(["log scale"] if r.log else [])])


# --- resolution -------------------------------------------------------------------------------------------------------


def _resolution(values: np.ndarray, cells: np.ndarray) -> float:
    seen = values != 0
    v, w = np.abs(values[seen]), cells[seen]
    if not len(v):
        return 0.0
    w = np.minimum(w, HEAPED * np.median(w))
    largest = v.max()
    for exponent in range(int(np.floor(np.log10(largest))), int(np.ceil(np.log10(largest) - DIGITS)) - 1, -1):
        step = 10.0**exponent
        if w[_multiples(v, step)].sum() >= ON_GRID * w.sum():
            return _rounded_step(v, cells[seen], _common_step(v, step))
    return _step_of_differences(values)


def _multiples(v: np.ndarray, step: float) -> np.ndarray:
    times = v / step
    return np.abs(times - np.round(times)) <= 1e-9 * np.maximum(times, 1.0)


def _common_step(v: np.ndarray, step: float) -> float:
    """Largest multiple of `step` that divides all values, or `step` itself."""
    if not _multiples(v, step).all():
        return step
    return step * float(np.gcd.reduce(np.round(v / step).astype(np.int64)))


def _rounded_step(v: np.ndarray, w: np.ndarray, step: float) -> float:
    """Step of which nearly all values are multiples rounded to `step`, as inches in centimetres (2.54), or Fahrenheit
    in tenths of Celsius (0.556); `step` itself if there is none of LEAST_TIMES that or more, or if it may be chance."""
    x, place = np.unique(np.round(v / step), return_inverse=True)
    w = np.bincount(place, w) / w.sum()
    if len(x) <= FEW_VALUES or len(x) * x[-1] > MOST_TRIED or np.gcd.reduce(np.diff(x).astype(np.int64)) > 1:
        return step  # also for multiples that a number was added to
    beside = np.minimum(w[1:], w[:-1])[np.diff(x) == 1.0].sum()  # of two neighbours one at least is no multiple
    if 0.5 * beside > 1.0 - ON_ROUNDED_GRID:
        return step
    # the steps to try, in units of `step`, so close to each other that a multiple of one is nearly one of the next
    tried = np.exp(np.arange(np.log(LEAST_TIMES), np.log(MOST_TIMES), 0.25 / x[-1]))
    share = np.concatenate([_near_multiples(x, part) @ w for part in np.array_split(tried, len(tried) // 1_000 + 1)])
    last = len(tried) - 1 - int(np.argmax(share[::-1] >= ON_ROUNDED_GRID))  # its halves do as well
    if share[last] < ON_ROUNDED_GRID:
        return step
    near = np.flatnonzero((share >= ON_ROUNDED_GRID) & (np.abs(tried / tried[last] - 1.0) < 2.0 / x[-1]))
    best = tried[near[share[near] == share[near].max()]]
    whole = np.arange(2.0, MOST_TIMES)
    heaped = ((x % whole[:, None] == 0) @ w).max()  # such as ages that were rounded to fives
    free = x[x % HEAPS != 0]  # the others may be as they are because people round
    found, chance = _near_multiples(free, best[:1]).mean() if len(free) else 0.0, 2.0 * NEARLY / best[0]
    hits, misses = max(found, 1e-9) / chance, max(1.0 - found, 1e-9) / (1.0 - chance)
    evidence = found * np.log(hits) + (1.0 - found) * np.log(misses)
    if heaped > MOST_HEAPED or found < chance or len(free) * evidence < np.log(len(tried) / BY_CHANCE):
        return step
    return _shortest((best[0] - 0.1 / x[-1]) * step, (best[-1] + 0.1 / x[-1]) * step)


def _near_multiples(x: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """For each step the integers that are its multiples, rounded, bool (steps, n)."""
    steps = steps[:, None]
    return np.abs(x - steps * np.round(x / steps)) <= NEARLY


def _shortest(low: float, high: float) -> float:
    """Number of fewest digits in an interval."""
    middle = 0.5 * (low + high)
    return next((x for digits in range(1, 15) if low <= (x := float(f"{middle:.{digits}g}")) <= high), middle)


def _step_of_differences(values: np.ndarray) -> float:
    """Least difference of values, if all differences are multiples of it and the values have few enough digits."""
    differences = np.diff(values)
    if len(differences) < 2:
        return 0.0
    step = float(differences.min())
    span = float(values[-1] - values[0])
    # reject a step that is close to the rounding error of the values
    if span / step > 10.0**DIGITS or step < 1e-9 * np.abs(values).max():
        return 0.0
    times = differences / step
    return step if (np.abs(times - np.round(times)) <= 1e-3).all() and np.median(times) < 1e3 else 0.0


# --- atoms ------------------------------------------------------------------------------------------------------------


def _atoms(values: np.ndarray, cells: np.ndarray, n: int, step: float) -> list[float]:
    atoms = []
    for i in np.flatnonzero((cells >= ATOM_SHARE * n) & (cells >= ATOM_CELLS)):
        near = np.r_[max(i - NEIGHBOURS, 0) : i, i + 1 : min(i + 1 + NEIGHBOURS, len(values))]
        if step:
            near = near[np.abs(values[near] - values[i]) < (NEIGHBOURS + 0.5) * step]
        if cells[i] >= ATOM_TIMES * cells[near].max(initial=0):
            atoms.append(float(values[i]))
    return atoms


def _few_zeros(values: np.ndarray, cells: np.ndarray, n: int, atoms: tuple[float, ...], step: float) -> bool:
    """True if zeros, too few for an atom by themselves, keep the other numbers, all positive, from a log scale."""
    if len(values) < 2 or values[0] != 0.0 or values[0] in atoms or values[-1] in atoms or cells[0] >= ATOM_SHARE * n:
        return False
    rest = ~np.isin(values, (0.0, *atoms))
    return _is_log(values[rest], cells[rest], step)


def _sentinels(values: np.ndarray, cells: np.ndarray) -> tuple[float, ...]:
    if len(values) < 5:
        return ()
    sentinels = []  # only the two ends
    for end, next_one, others in ((0, 1, slice(1, None)), (-1, -2, slice(None, -1))):
        low, high = _quantiles(values[others], cells[others], (0.25, 0.75))
        gap = abs(values[end] - values[next_one])
        if (
            cells[end] >= SENTINEL_CELLS
            and cells[end] >= SENTINEL_TIMES * cells[next_one]
            and gap > SENTINEL_GAP * (high - low)
        ):
            sentinels.append(float(values[end]))
    return tuple(sentinels)


def missing_codes(values: np.ndarray, cells: np.ndarray) -> tuple[float, ...]:
    """Values of few integers, such as answers, that look like codes for missing: conventional codes (-99, 9, 98),
    further from the rest than the rest are from each other; in several cells, but not in most."""
    negative, codes = values < 0.0, np.isin(values, CODES_OF_MISSING)
    n_last = int(np.cumprod(codes[::-1]).sum())  # number of largest values that are codes
    for n in range(n_last, -1, -1):
        last = np.arange(len(values)) >= len(values) - n
        for outside in (negative | last, last):
            rest, cut = values[~outside], values[outside]
            if len(rest) < 2 or not SENTINEL_CELLS <= cells[outside].sum() <= SUSPECT_SHARE * cells.sum():
                continue
            gap = np.abs(rest[:, None] - cut).min()
            if gap > max(rest[-1] - rest[0], LEAST_GAP):
                return tuple(float(v) for v in cut)
    return ()


def _quantiles(values: np.ndarray, cells: np.ndarray, shares) -> list[float]:
    below = np.cumsum(cells)
    return [float(values[np.searchsorted(below, share * below[-1])]) for share in shares]


# --- scale ------------------------------------------------------------------------------------------------------------


def _is_log(values: np.ndarray, cells: np.ndarray, step: float) -> bool:
    if len(values) < 3 or values[0] <= 0.5 * step or values[0] <= 0:
        return False
    low, high = _quantiles(values, cells, (0.01, 0.99))
    if high <= LOG_RANGE * low:
        return False
    y = np.log(values)
    mean = np.average(y, weights=cells)
    spread = np.sqrt(np.average((y - mean) ** 2, weights=cells))
    x = np.exp(y - mean)  # the numbers in units that keep their squares finite and above 0
    plain = np.sqrt(np.average((x - np.average(x, weights=cells)) ** 2, weights=cells))
    return bool(np.log(plain) - np.log(spread) > LOG_GAIN)


# --- codes ------------------------------------------------------------------------------------------------------------


def _roughness(values: np.ndarray, cells: np.ndarray, step: float) -> float:
    """Typical chi-square between a value's number of cells and its neighbours' mean, at 12,000 cells; for integers
    only, and only if a good part of the grid occurs. A median, since people round: a few ages stand out."""
    if not (step == 1.0 and len(values) > FEW_VALUES):
        return 0.0
    span = values[-1] - values[0] + 1
    if span > 1_000 or len(values) < 0.3 * span or not (values == np.round(values)).all():
        return 0.0
    counts = np.zeros(int(span))
    counts[(values - values[0]).astype(np.int64)] = cells
    kernel = np.ones(2 * NEIGHBOURS + 1)
    kernel[NEIGHBOURS] = 0.0
    n_near = np.convolve(np.ones(len(counts)), kernel, "same")
    expected = np.maximum(np.convolve(counts, kernel, "same") / n_near, 0.5)
    chi = float(np.median((counts - expected) ** 2 / (expected * (1.0 + 1.0 / n_near)))) / MEDIAN_OF_CHI
    return 1.0 + (chi - 1.0) * min(1.0, ROUGH_CELLS / counts.sum())
