"""What a column is, decided from all its text: the first pass of the import.

Rules, in order (cells that are missing are set aside first; a *number* is a decimal number with or without exponent):

1.  No cell left: ignored. One level: ignored (constant).
2.  Text of which more than 95 % of at least 100 cells differ (or all of at least 20): ignored (identifier).
3.  Two levels that are 0/1, true/false, yes/no, t/f or y/n in any case: boolean, the false-like one first.
4.  Integers, none written with a leading zero as in 007:
    a. all different in at least 100 cells, and numbered densely (range below 10 a cell), or all of the same number of
       digits (4 or more), or in a column whose name ends in id, key, index ...: ignored (identifier);
    b. at most 5 different ones, or at most 20 that lie close together (range below 5 a level, two cells a level):
       categorical; so are at most 1,000 where the name ends in code, type, class, zip, id, key ..., and above 1,000 a
       column named id, key ... is ignored (identifier of something that comes again);
    c. non-negative, none above 10^6, mean at most 20 and variance at most 20 times the mean: count. Larger means and
       wider spreads are served better by a normal component, whose variance is free: real;
    d. any other: real.
5.  Other numbers: real.
6.  Everything else: categorical, at most 65,535 levels.

Levels are sorted by their value where all are numbers and by their text (code points) otherwise, so they depend on what
is in the column and not on the order of its rows. Up to 131,072 different texts are kept and counted exactly; beyond,
their number is estimated (k smallest hashes, Bar-Yossef et al. 2002; standard error 0.8 %).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mpibayes.io.encode import MAX_REAL, Markers, Offences, expectation, numbers, parse
from mpibayes.io.forms import Form
from mpibayes.io.measured import AS_IT_IS, CODES, DOUBTFUL, Histogram, Recording, in_words, recording
from mpibayes.io.rows import MAX_LEVELS, NUMERIC
from mpibayes.io.source import Batch, Place
from mpibayes.text import counted

MAX_TEXTS = 131_072
MAX_NUMBER_TEXTS = 16_384  # of a column of fractions: nothing but its count of different values is wanted
FEW_INTEGERS = 20
FEW_RANGE = 5
CODE_LEVELS = 1_000
MAX_COUNT_VALUE = 1e6
MAX_COUNT_MEAN = 20.0
MAX_COUNT_DISPERSION = 20.0
TRUTH = (("0", "1"), ("false", "true"), ("no", "yes"), ("f", "t"), ("n", "y"))
CODE_NAME = re.compile(r"(code|recode|codes|type|class|category|group|zip|zipcode)$", re.IGNORECASE)
KEY_NAME = re.compile(r"(^|[^a-z])(id|ids|nbr|key|uuid|guid)$|caseid$", re.IGNORECASE)
ID_NAME = re.compile(r"((^|[^a-z])(id|ids|nbr|key|index|idx|uuid|guid|number|nr|no|row)|caseid)$", re.IGNORECASE)
_SKETCH = 16_384


@dataclass(frozen=True)
class Decision:
    """What a column becomes: kind "ignored" or one of the table's kinds, and why."""

    kind: str
    levels: tuple[str, ...] = ()
    reason: str = ""
    warning: str = ""
    error: str = ""
    recording: Recording = AS_IT_IS  # of a real column


class Profile:
    """What is known of one column after the batches added so far; its size does not grow with the rows.

    kind, levels: given by the user, or None = to be inferred; of a given kind the offending cells are noted. form: how
    its numbers are written, None: plainly.
    """

    def __init__(
        self,
        name: str,
        kind: str | None,
        levels: Sequence[str] | None,
        markers: Sequence[str],
        form: Form | None = None,
    ):
        self.form = form
        self.name, self.kind, self.levels = name, kind, None if levels is None else tuple(levels)
        self.markers = tuple(markers)
        self.n_missing = self.n_observed = self.n_numbers = self.n_infinite = 0
        self.all_integer = True
        self.leading_zero = False
        self.minimum, self.maximum = np.inf, -np.inf
        self.digits: set[int] = set()
        self.mean = self.scatter = 0.0
        self.example_text: tuple[str, Place] | None = None  # the first cell that is no number
        self.example_infinite: tuple[str, Place] | None = None
        self._texts: pa.StringArray | None = pa.array([], pa.string())
        self._sketch: np.ndarray | None = None  # instead of the texts when they are too many: the smallest hashes
        self._waiting: list = []
        self._n_waiting = 0
        self._markers = Markers(markers)
        self.n_marked: dict[str, int] = {}  # cells of markers that the user gave
        self.histogram = Histogram()
        self.recorded: dict[str, Any] = {}  # what the user says of resolution, atoms and log
        self._level_array = None if levels is None else pa.array(list(levels), pa.string())

    def missing_among(self, texts: pa.StringArray) -> np.ndarray:
        """Which texts mean missing, bool."""
        return self._markers.among(texts, self.form)

    def add(self, batch: Batch, position: int, offences: Offences) -> None:
        cells = batch.columns[position]
        counts = cells.counts()
        missing = self.missing_among(cells.texts)
        self.n_missing += int(counts[missing].sum())
        for marker, n in self.n_marked.items():
            if missing.any():
                self.n_marked[marker] = n + int(counts[missing & Markers([marker]).among(cells.texts, self.form)].sum())
        if self.kind == "ignored":
            self.n_observed = self.n_observed + batch.n_rows - int(counts[missing].sum())
            return
        if self.kind in NUMERIC or self.levels is not None:
            _, bad = parse(self.kind, self._level_array, cells.texts, missing, self.form)
            offences.add(batch, self.name, cells, counts, bad, expectation(self.kind, self.levels or ()))
        present = np.flatnonzero(~missing & (counts > 0))  # a dictionary may have texts that no cell has
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
                place = Place(batch.path, batch.first_row + cells.first(i))
                setattr(self, attribute, (cells.texts[i].as_py(), place))
        if is_number.any():
            self._add_numbers(plain, values, is_number, n)
        self._add_texts(texts)

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
        """New texts wait until they are as many as those known, so that merging costs the same a text however many."""
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
        """Number of different texts, exact up to MAX_TEXTS."""
        self._merge()
        if self._texts is not None:
            return len(self._texts)
        if len(self._sketch) < _SKETCH:
            return len(self._sketch)
        return int((_SKETCH - 1) / (float(self._sketch[-1]) / 2.0**64))

    @property
    def counted(self) -> str:
        return f"{self.n_distinct:,}" if self._texts is not None else f"about {float(f'{self.n_distinct:.3g}'):,.0f}"

    def sorted_levels(self) -> tuple[str, ...]:
        texts = self._texts.to_pylist()
        if self.n_numbers == self.n_observed:
            values = numbers(self._texts, self.form).tolist()
            return tuple(text for _, text in sorted(zip(values, texts, strict=True)))
        lower = sorted(texts, key=str.lower)
        if self.kind in (None, "boolean") and tuple(t.lower() for t in lower) in TRUTH:
            return tuple(lower)
        return tuple(sorted(texts))


def _smallest(hashes: np.ndarray) -> np.ndarray:
    """The _SKETCH smallest different ones, ascending."""
    hashes = np.sort(hashes)
    return hashes[np.r_[True, hashes[1:] != hashes[:-1]]][:_SKETCH]


def text_hash(texts: pa.StringArray) -> np.ndarray:
    """A 64-bit hash of each text, the same in every process: a polynomial in its bytes, mixed as in splitmix64."""
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


def decide(p: Profile, keep: bool = False) -> Decision:
    """The kind and levels of a column from its profile, and how it was recorded where it is real; `keep`: even when it
    is constant or an identifier."""
    found = _decide(p, keep)
    if found.kind != "real" or found.error:
        return found
    r = recording(p.histogram, **p.recorded)
    if r.few and p.kind is None and p._texts is not None and not p.recorded:
        return _categorical(p, f"{len(p._texts)} different numbers, each ten times or more")
    warnings = [found.warning] if found.warning else []
    if r.suspects:
        values = " and ".join(f"{value:.10g}" for value in r.suspects)
        warnings.append(
            f"column '{p.name}': {values} {'is' if len(r.suspects) == 1 else 'are'} far from all other values; if "
            f'that means missing, say so in the schema: missing = ["{r.suspects[0]:.10g}"]'
        )
    if r.roughness > DOUBTFUL:
        sure = "its values are codes rather than measurements" if r.roughness > CODES else "its values may be codes"
        warnings.append(f"column '{p.name}': {sure}, by their histogram; if so: --kind {p.name}=categorical")
    written = "" if p.form is None else p.form.in_words()
    reason = "; ".join(filter(None, [written or found.reason, in_words(r)]))
    return replace(found, reason=reason, warning="; ".join(warnings), recording=r)


def _decide(p: Profile, keep: bool) -> Decision:
    p._merge()
    if p.kind is not None:
        return _as_given(p)
    n = p.n_observed
    if n == 0:
        if keep:
            return Decision("real", reason="kept as asked; all cells are missing")
        return Decision("ignored", reason="all cells are missing")
    if p.n_distinct == 1 and not keep:
        value = p._texts[0].as_py()
        also = " where it is not missing" if p.n_missing else ""
        return Decision("ignored", reason=f"constant: {value[:40]!r}{also}")
    if p.n_numbers + p.n_infinite == n and p.n_infinite and p.n_numbers:
        text, _ = p.example_infinite
        what = (
            f"{counted(p.n_infinite, 'cell')} {'is' if p.n_infinite == 1 else 'are'} infinite or above 1e150 ({text!r})"
        )
        return Decision("real", error=f"column '{p.name}': numbers, but {what}; should that be missing (--missing)?")
    numeric = p.n_numbers == n
    integer = numeric and p.all_integer and not p.leading_zero
    if not numeric or p.leading_zero:
        nearly_all = (n >= 100 and p.n_distinct > 0.95 * n) or (n >= 20 and p.n_distinct == n)
        if nearly_all and not keep:
            return _identifier(p)
    if p.n_distinct == 2 and tuple(t.lower() for t in p.sorted_levels()) in TRUTH:
        return Decision("boolean", p.sorted_levels())
    if integer:
        return _integers(p, keep)
    if numeric and not p.leading_zero:
        return Decision("real", reason="fractions")
    return _categorical(p, "" if not p.leading_zero else "numbers with leading zeros")


def _integers(p: Profile, keep: bool) -> Decision:
    n, few = p.n_observed, p.n_distinct
    unique = few == n if p._texts is not None else few > 0.97 * n
    if unique and n >= 100 and not keep:
        dense = p.maximum - p.minimum < 10 * n
        if dense or (len(p.digits) == 1 and min(p.digits) >= 4) or ID_NAME.search(p.name):
            return _identifier(p)
    close = p.maximum - p.minimum < FEW_RANGE * few
    if few <= 5 or (few <= FEW_INTEGERS and few <= n / 2 and close):
        return _categorical(p, "few different integers")
    key = bool(KEY_NAME.search(p.name))
    if few <= CODE_LEVELS and few <= n / 2 and (key or CODE_NAME.search(p.name)):
        return _categorical(p, "integers; the name says that they are codes")
    if few > CODE_LEVELS and key and not keep:
        return _identifier(p)
    variance = p.scatter / n
    if p.minimum < 0:
        return Decision("real", reason="integers, some negative")
    if p.maximum > MAX_COUNT_VALUE:
        return Decision("real", reason="integers, large")
    if p.mean > MAX_COUNT_MEAN:
        return Decision("real", reason=f"integers of mean {p.mean:,.3g}, above {MAX_COUNT_MEAN:g}")
    if variance > MAX_COUNT_DISPERSION * p.mean:
        return Decision("real", reason=f"integers, heavy-tailed (variance {variance / p.mean:,.3g} times the mean)")
    return Decision("count", reason=f"integers of mean {p.mean:.3g}, variance {variance / p.mean:.3g} times that")


def _identifier(p: Profile) -> Decision:
    what = "integers" if p.n_numbers == p.n_observed else "text"
    reason = f"identifier: {p.counted} different values in {p.n_observed:,} cells"
    warning = ""
    if p.n_distinct > MAX_LEVELS:
        warning = f"column '{p.name}' ({what}, {p.counted} different values) looks like an identifier and is left out"
    return Decision("ignored", reason=reason, warning=warning)


def _categorical(p: Profile, reason: str) -> Decision:
    if p._texts is None or p.n_distinct > MAX_LEVELS:
        mixed = ""
        if p.example_text is not None and p.n_numbers > 0.5 * p.n_observed:
            mixed = f"; mostly numbers: should {p.example_text[0][:40]!r} be a missing marker (--missing)?"
        return Decision(
            "categorical",
            error=f"column '{p.name}': {p.counted} levels, more than the {MAX_LEVELS:,} a categorical column can have; "
            f'leave it out (kind = "ignored" in the schema, or --drop){mixed}',
        )
    levels = p.sorted_levels()
    if any("\0" in level for level in levels):
        return Decision("categorical", error=f"column '{p.name}': contains NUL characters; expected text")
    warning = ""
    n_words = int(np.isnan(numbers(p._texts, p.form)).sum())
    if p.n_numbers > 0.5 * p.n_observed and 1 <= n_words <= 3 and len(levels) > FEW_INTEGERS:
        n = p.n_observed - p.n_numbers
        warning = (
            f"column '{p.name}' is taken as categorical ({len(levels):,} levels), but only {n:,} of {p.n_observed:,} "
            f"cells are no numbers, such as {p.example_text[0][:40]!r}; if that means missing, say so (--missing)"
        )
    return Decision("categorical", levels, reason, warning)


def _as_given(p: Profile) -> Decision:
    """The user's kind; levels that were not given are those found."""
    if p.kind in ("ignored", *NUMERIC) or p.levels is not None:
        return Decision(p.kind, p.levels or (), "as given")
    if p.n_observed == 0:
        what = f"given as {p.kind}, but all its cells are missing; give levels"
        return Decision(p.kind, error=f"column '{p.name}': {what}")
    found = _categorical(p, "as given")
    if p.kind == "boolean" and not found.error and len(found.levels) != 2:
        few = ", ".join(repr(v) for v in found.levels[:5])
        what = f"given as boolean, which has two levels; found {p.counted}: {few}"
        return Decision(p.kind, error=f"column '{p.name}': {what}")
    return Decision(p.kind, found.levels, "as given", "", found.error)
