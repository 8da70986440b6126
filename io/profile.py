"""Profile of one column in the first pass of the import: its distinct texts, its numbers, their histogram.

Up to 131,072 distinct texts are kept and counted exactly; beyond, their number is estimated (k smallest hashes,
Bar-Yossef et al. 2002; standard error 0.8 %).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mpibayes.io import watched
from mpibayes.io.cells import Batch, Place
from mpibayes.io.clock import as_text
from mpibayes.io.dates import Dates
from mpibayes.io.encode import Markers, Offences, expectation, in_single_precision, known_numbers, numbers, parse
from mpibayes.io.forms import Form
from mpibayes.io.measured import Histogram
from mpibayes.io.rows import MAX_REAL, NUMERIC
from mpibayes.io.units import Runs
from mpibayes.io.yes_no import TRUTH, with_level

MAX_TEXTS = 131_072
MAX_NUMBER_TEXTS = 16_384  # of a column of fractions, where only the number of distinct values matters
MOST_WORDS = 50  # distinct non-numeric texts that are counted
NO_VALUE = (  # missing among numbers; among text "none" may be an answer
    "-", "--", "---", ".", "..", "...", "*", "na", "n/a", "n.a.", "n.d.", "n/d", "k.a.", "nan", "-nan", "none", "null",
    "nil", "missing", "<na>", "(blank)", "(null)", "(missing)", "#n/a", "#na", "#nv", "#div/0!", "#value!", "#ref!",
    "#num!", "#name?", "#null!",
)  # fmt: skip
_SKETCH = 16_384


class Profile:
    """Summary of one column over the batches added so far; its size does not grow with the rows.

    kind, levels: given by the user, or None = to be inferred; with a given kind, offending cells are noted. form: of
    its numbers, None: plain. no: texts of cells that mean the first level.
    """

    def __init__(
        self,
        name: str,
        kind: str | None,
        levels: Sequence[str] | None,
        markers: Sequence[str],
        form: Form | Dates | None = None,
        no: Sequence[str] = (),
    ):
        self.form = form
        self.no = tuple(no)
        self.name, self.kind, self.levels = name, kind, None if levels is None else tuple(levels)
        self.markers = tuple(markers)
        self.n_missing = self.n_observed = self.n_numbers = self.n_infinite = 0
        self.all_integer = True
        self.leading_zero = False
        self.minimum, self.maximum = np.inf, -np.inf
        self.digits: set[int] = set()
        self.mean = self.scatter = 0.0
        self.example_text: tuple[str, Place] | None = None  # first non-numeric cell
        self.example_infinite: tuple[str, Place] | None = None
        self.words: dict[str, int] = {}  # cells of the first MOST_WORDS non-numeric texts
        self._texts: pa.StringArray | None = pa.array([], pa.string())
        self._sketch: np.ndarray | None = None  # smallest hashes, replacing the texts if there are too many
        self._waiting: list = []
        self._n_waiting = 0
        self._markers = Markers.of(markers)
        self.n_marked: dict[str, int] = {}  # number of cells with each of the user's markers
        self.asked_missing: Sequence[str] = ()  # markers that the user's schema gives for this column
        self.gaps: dict[str, int] = {}  # missing cells by their text, except the user's markers
        self.histogram = Histogram()
        self.order: Sequence[str] = ()  # of its levels, if the file gives one; other levels follow
        self.ordered = False  # True if the file declares its categories ordered
        self.recorded: dict[str, Any] = {}  # user's settings of resolution, atoms and log
        self.cuts: Sequence[float] = ()  # user's ends of the parts of a survival column's time axis
        self.question = ""  # to the user: does the day or the month come first?
        self.unread = ""  # reason why its cells cannot be read
        self.counts_rows = True  # each cell is the integer after the one above it
        self.ascending = True  # each cell is a number above the one before it
        self.runs = Runs()  # of equal cells
        self.unnamed = self.usual_index = False  # properties of its name: see `index_column`
        self._last: float | None = None
        self._level_array = None if levels is None else pa.array(list(levels), pa.string())

    def missing_among(self, texts: pa.StringArray) -> np.ndarray:
        """Mask of the texts that mean missing, bool."""
        return self._markers.among(texts, self.form)

    def add(self, batch: Batch, position: int, offences: Offences) -> None:
        cells = batch.columns[position]
        if self.kind == "survival":
            cells = replace(cells, texts=watched.times(cells.texts, self.kind))
        counts = cells.counts()
        missing = self.missing_among(cells.texts)
        self.n_missing += int(counts[missing].sum())
        for marker, n in self.n_marked.items():
            if missing.any():
                self.n_marked[marker] = n + int(
                    counts[missing & Markers.of([marker]).among(cells.texts, self.form)].sum()
                )
        for i in np.flatnonzero(missing & (counts > 0)) if len(self.gaps) < MOST_WORDS else ():
            text = cells.texts[int(i)].as_py()
            if text not in self.n_marked and text not in self.asked_missing:
                self.gaps[text] = self.gaps.get(text, 0) + int(counts[i])
        if self.kind == "ignored":
            self.n_observed = self.n_observed + batch.n_rows - int(counts[missing].sum())
            return
        if self.kind in NUMERIC or self.levels is not None:
            texts = with_level(cells.texts, self.no, self.levels[0]) if self.no else cells.texts
            values, bad = parse(self.kind, self._level_array, texts, missing, self.form)
            if self.kind in NUMERIC:
                bad &= ~(np.abs(values) > MAX_REAL)  # infinite: see infinite_as_missing
            offences.add(batch, self.name, cells, counts, bad, expectation(self.kind, self.levels or ()))
        if self.kind is None:
            self.runs.add(cells.texts, cells.codes)
        present = np.flatnonzero(~missing & (counts > 0))  # a dictionary may have unused texts
        texts, n = cells.texts, counts
        if len(present) < len(counts):
            texts, n = texts.take(pa.array(present)), counts[present]
        if not len(texts):
            return
        self.n_observed += int(n.sum())
        plain = texts if self.form is None else self.form.plain(texts)
        values = numbers(plain)
        is_number, is_infinite = np.abs(values) <= MAX_REAL, np.abs(values) > MAX_REAL
        self.n_infinite += int(n[is_infinite].sum())
        for flag, attribute in ((np.isnan(values), "example_text"), (is_infinite, "example_infinite")):
            if getattr(self, attribute) is None and flag.any():
                i = int(present[np.flatnonzero(flag)[0]])
                place = Place(batch.path, batch.row(cells.first(i)))
                setattr(self, attribute, (cells.texts[i].as_py(), place))
        for i in np.flatnonzero(np.isnan(values))[: MOST_WORDS + 1] if len(self.words) <= MOST_WORDS else ():
            word = texts[int(i)].as_py()
            self.words[word] = self.words.get(word, 0) + int(n[i])
        if is_number.any():
            self._add_numbers(plain, values, is_number, n)
        if self.ascending:
            self._count_rows(values, cells.codes if len(texts) == len(cells.texts) == batch.n_rows else None)
        self._add_texts(texts)

    def _count_rows(self, values: np.ndarray, codes: np.ndarray | None) -> None:
        """Update the row-counting checks. values: of the distinct texts; codes: of the cells, None if some are equal or
        missing."""
        self.ascending = codes is not None and bool(np.isfinite(values).all())
        if self.ascending:
            x = values[codes]
            before = x[0] - 1.0 if self._last is None else self._last
            steps = np.diff(x, prepend=before)
            self.ascending = bool((steps > 0.0).all())
            self.counts_rows = self.counts_rows and bool((steps == 1.0).all())
            self._last = float(x[-1])
        self.counts_rows = self.counts_rows and self.ascending

    def infinite_as_missing(self) -> int:
        """Count infinite numbers as missing if all other cells are numbers; return the number of these cells."""
        among_numbers = self.kind in NUMERIC or (self.kind is None and self.n_numbers)
        if not among_numbers or self.n_numbers + self.n_infinite != self.n_observed or not self.n_infinite:
            return 0
        n, self.n_infinite = self.n_infinite, 0
        self.n_missing += n
        self.n_observed -= n
        self._take_for_missing("inf", "-inf")
        return n

    def words_as_missing(self) -> dict[str, int]:
        """Count texts such as "n/a" as missing if all other cells are numbers; return the number of cells of each."""
        words, n = self.words, sum(self.words.values())
        known = words and len(words) <= MOST_WORDS and all(word.lower() in NO_VALUE for word in words)
        if self.kind is not None or not known or n > self.n_numbers:
            return {}
        if n + self.n_numbers + self.n_infinite != self.n_observed:
            return {}
        self.n_missing += n
        self.n_observed -= n
        self.example_text, self.words = None, {}
        self._take_for_missing(*words)
        return words

    def gaps_as_no(self, no: tuple[str, ...]) -> None:
        """Count missing cells with these texts as cells of the first level."""
        n = sum(self.gaps[text] for text in no)
        self.n_missing -= n
        self.n_observed += n
        self.no = no
        self.markers = tuple(marker for marker in self.markers if marker not in no)
        self._markers = Markers.of(self.markers)

    def merge_equal_numbers(self) -> None:
        """Keep one text of each number, where 1 is also written 1.0; of integers that are all written so, as pandas
        writes them in a column with missing cells, the plain one; and of single precision the shortest."""
        self._merge()
        if self._texts is None or not len(self._texts):
            return
        if self.all_integer and self.form is None and pc.all(pc.ends_with(self._texts, ".0")).as_py():
            self._texts = pc.replace_substring_regex(self._texts, r"\.0$", "")
        elif not self.all_integer and self.form is None:
            texts = in_single_precision(self._texts)
            if not np.isnan(known_numbers(texts)).any():  # else a later file's texts could not be compared with them
                self._texts = texts
        values = known_numbers(self._texts, self.form)
        if len(np.unique(values[~np.isnan(values)])) == np.count_nonzero(~np.isnan(values)):
            return
        length = pc.utf8_length(self._texts).to_numpy(zero_copy_only=False)
        texts = np.array(self._texts.to_pylist(), object)
        order = np.lexsort((texts, length, values))
        again = np.diff(values[order], prepend=np.nan) == 0.0
        self._texts = pa.array(texts[np.sort(order[~again])].tolist(), pa.string())

    def _take_for_missing(self, *markers: str) -> None:
        self.markers = (*self.markers, *markers)
        self._markers = Markers.of(self.markers)
        self._merge()
        if self._texts is not None:
            self._texts = self._texts.filter(pa.array(~self.missing_among(self._texts)))

    def _add_numbers(self, texts: pa.StringArray, values: np.ndarray, is_number: np.ndarray, n: np.ndarray) -> None:
        x, n = values[is_number], n[is_number].astype(float)
        if self.kind in (None, "real"):
            self.histogram.add(x, n)
        total = self.n_numbers + n.sum()
        mean = float(np.average(x, weights=n))
        self.scatter += float((n * (x - mean) ** 2).sum()) + (mean - self.mean) ** 2 * self.n_numbers * n.sum() / total
        self.mean += (mean - self.mean) * n.sum() / total
        self.n_numbers = int(total)
        self.minimum, self.maximum = min(self.minimum, float(x.min())), max(self.maximum, float(x.max()))
        self.all_integer = self.all_integer and bool((x == np.floor(x)).all())
        if self.all_integer:
            written = texts if is_number.all() else texts.filter(pa.array(is_number))
            self.all_integer = pc.all(pc.match_substring_regex(written, r"^[+-]?\d+(\.0)?$")).as_py()
        if self.all_integer and not self.leading_zero:
            self.leading_zero = pc.any(pc.match_substring_regex(written, r"^[+-]?0\d")).as_py()
            if len(self.digits) < 2:
                self.digits |= set(pc.unique(pc.utf8_length(written)).to_pylist())

    def _add_texts(self, texts: pa.StringArray) -> None:
        """Queue new texts until they are as many as the known ones, so that merging has constant cost per text."""
        if self._sketch is not None:
            hashes = text_hash(texts)
            texts = hashes[hashes < self._sketch[-1]] if len(self._sketch) == _SKETCH else hashes
        elif 0 < len(self._texts) <= 256:
            texts = texts.filter(pc.invert(pc.is_in(texts, value_set=self._texts)))
        if len(texts):
            self._waiting.append(texts)
            self._n_waiting += len(texts)
        known = self._texts if self._sketch is None else self._sketch
        if self._n_waiting > max(1024, len(known)):
            self._merge()

    def _merge(self) -> None:
        waiting, self._waiting, self._n_waiting = self._waiting, [], 0
        if not waiting:
            return
        if self._sketch is None:
            self._texts = pc.unique(pa.concat_arrays([self._texts, *waiting]))
            only_fractions = self.example_text is None and not self.all_integer and self.kind in (None, "real", "count")
            if len(self._texts) > (MAX_NUMBER_TEXTS if only_fractions else MAX_TEXTS):
                self._sketch = _smallest(text_hash(self._texts))
                self._texts = None
        else:
            self._sketch = _smallest(np.concatenate([self._sketch, *waiting]))

    @property
    def n_distinct(self) -> int:
        """Number of distinct texts, exact up to MAX_TEXTS."""
        self._merge()
        if self._texts is not None:
            return len(self._texts)
        if len(self._sketch) < _SKETCH:
            return len(self._sketch)
        return int((_SKETCH - 1) / (float(self._sketch[-1]) / 2.0**64))

    @property
    def all_different(self) -> bool:
        """True if no text occurs twice; if there are very many, if nearly none does."""
        n = self.n_distinct
        return n == self.n_observed if self._texts is not None else n > 0.97 * self.n_observed

    @property
    def counted(self) -> str:
        return f"{self.n_distinct:,}" if self._texts is not None else f"about {float(f'{self.n_distinct:.3g}'):,.0f}"

    @property
    def dates(self) -> Dates | None:
        """Form of its cells, if all are dates or times of day."""
        only = isinstance(self.form, Dates) and self.n_numbers == self.n_observed > 0
        return self.form if only else None

    def written(self, value: float) -> str:
        """Format a number as in a cell."""
        if isinstance(self.form, Dates) and self._texts is not None:
            return self._texts[int(np.argmax(numbers(self._texts, self.form) == value))].as_py()
        return as_text(value, self.form.unit) if isinstance(self.form, Dates) else f"{value:.10g}"

    def sorted_levels(self) -> tuple[str, ...]:
        texts = self._texts.to_pylist()
        if self.n_numbers == self.n_observed:
            values = numbers(self._texts, self.form).tolist()
            return tuple(text for _, text in sorted(zip(values, texts, strict=True)))
        lower = sorted(texts, key=str.lower)
        if self.kind in (None, "boolean") and tuple(t.lower() for t in lower) in TRUTH:
            return tuple(lower)
        place = {text: i for i, text in enumerate(self.order)}
        return tuple(sorted(texts, key=lambda text: (place.get(text, len(place)), text)))


def _smallest(hashes: np.ndarray) -> np.ndarray:
    """The _SKETCH smallest distinct hashes, ascending."""
    hashes = np.sort(hashes)
    return hashes[np.r_[True, hashes[1:] != hashes[:-1]]][:_SKETCH]


def text_hash(texts: pa.StringArray) -> np.ndarray:
    """64-bit hash of each text, the same in every process: a polynomial in its bytes, mixed as in splitmix64."""
    _, offsets, data = texts.buffers()
    start = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    raw = np.frombuffer(data, np.uint8)[start[0] : start[-1]].astype(np.uint64) + np.uint64(1)
    length = np.diff(start)
    place = np.arange(len(raw)) - np.repeat(start[:-1] - start[0], length)
    longest = int(length.max(initial=1))
    power = np.cumprod(np.full(longest, 0x9E3779B97F4A7C15 | 1, np.uint64))
    sums = np.concatenate([[np.uint64(0)], np.cumsum(raw * power[place], dtype=np.uint64)])
    h = sums[start[1:] - start[0]] - sums[start[:-1] - start[0]]
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor)
    return h ^ (h >> np.uint64(31))
