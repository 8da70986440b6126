"""Two columns of a source as one: time observed, and whether the event occurred (`--survival TIME,EVENT`).

The pair is read as text in the notation of `spells`: the time, followed by + if the event had not come. So all code
that reads a text column reads a survival column, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mpibayes.errors import ConfigError, DataError
from mpibayes.io.cells import Batch, Cells
from mpibayes.io.header import MISSING
from mpibayes.text import enumerated, near, option

CAME, NOT, UNKNOWN, UNCLEAR = range(4)
MOST_SEEN = 8
YES, NO = {"1", "1.0", "true", "t", "yes", "y"}, {"0", "0.0", "false", "f", "no", "n"}


@dataclass(frozen=True)
class Pair:
    """time, event: names of columns. value: the text of `event` if it occurred, "" for yes or 1. missing: texts of
    missing cells. seen: the first distinct texts read, and all those of the event and of missing cells. censored: texts
    that mean it did not come, if a table has such texts beside `value`; others are then refused."""

    time: str
    event: str
    value: str = ""
    missing: tuple[str, ...] = tuple(MISSING)
    seen: set[str] = field(default_factory=set, compare=False)
    censored: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, names: Collection[str]) -> Pair:
        """Pair named by TIME,EVENT or TIME,EVENT=VALUE. Raises ConfigError if there are no such columns."""
        for comma in (i for i, c in enumerate(text) if c == ","):
            time, rest = text[:comma].strip(), text[comma + 1 :].strip()
            for cut in (len(rest), *(i for i, c in enumerate(rest) if c == "=")):
                event, value = rest[:cut].strip(), rest[cut + 1 :].strip()
                if time in names and event in names and time != event:
                    return cls(time, event, value)
        time, _, rest = text.partition(",")
        named = [name.strip() for name in (time, rest.partition("=")[0])]
        wrong = [f"no column '{name}'{near(name, names)}" for name in named if name and name not in names]
        has = ", ".join(list(names)[:12]) + (" ..." if len(names) > 12 else "")
        raise ConfigError(
            f"--survival {text}: expected two columns, TIME,EVENT or TIME,EVENT=VALUE; "
            + ("; ".join(wrong) if all(named) and wrong else f"there are {has}")
        )

    @property
    def text(self) -> str:
        return f"{self.time},{self.event}" + (f"={self.value}" if self.value else "")

    def cells(self, batch: Batch, time: int, event: int) -> Cells:
        """Cells of the pair in a batch with its columns at these positions. Raises DataError for an unclear event."""
        times, events = batch.columns[time], batch.columns[event]
        state = np.array([self._state(text) for text in events.texts.to_pylist()], np.int64)
        for i in np.unique(events.codes):
            if len(self.seen) < MOST_SEEN or state[i] in (CAME, UNKNOWN):
                self.seen.add(events.texts[int(i)].as_py())
        unclear = np.flatnonzero(state[events.codes] == UNCLEAR)
        if len(unclear):
            found = events.texts[int(events.codes[unclear[0]])].as_py()
            if self.value:
                raise DataError(
                    f"{batch.path} row {batch.row(int(unclear[0])):,}, column '{self.event}': found {found!r}, which "
                    f"the table never had: it is neither the event, {self.value!r}, nor one of its other values, "
                    f"{enumerated(list(map(repr, self.censored)))}; write one of these where the event did not come"
                )
            advice = option("survival", f"{self.time},{self.event}={found}")
            raise DataError(
                f"{batch.path} row {batch.row(int(unclear[0])):,}, column '{self.event}': found {found!r}, expected 1 "
                f"or 0, yes or no: whether the event occurred. If {found!r} is the event, and all else is not: {advice}"
            )
        pairs, codes = np.unique(times.codes.astype(np.int64) * 4 + state[events.codes], return_inverse=True)
        texts = times.texts.to_pylist()
        for i in (i for i, text in enumerate(texts) if text.endswith("+") and (times.codes == i).any()):
            raise DataError(
                f"{batch.path} row {batch.row(times.first(i)):,}, column '{self.time}': found {texts[i]!r}, expected a "
                f"number: '{self.event}' says whether the event occurred"
            )
        read = ("{}", "{}+", "")
        merged = [read[pair % 4].format(texts[pair // 4]) if texts[pair // 4] else "" for pair in pairs.tolist()]
        return Cells(pa.array(merged, pa.string()), codes.ravel().astype(np.int32), times.original)

    def _state(self, text: str) -> int:
        if any(text == marker or _same_number(text, marker) for marker in self.missing):
            return UNKNOWN
        if self.value:
            if text == self.value or _same_number(text, self.value):
                return CAME
            known = not self.censored or any(text == other or _same_number(text, other) for other in self.censored)
            return NOT if known else UNCLEAR
        return CAME if text.lower() in YES else NOT if text.lower() in NO else UNCLEAR

    def is_censored(self, text: str) -> bool:
        return self._state(text) == NOT

    def require_events(self, path: Path) -> str:
        """Warning if no cell read has the event, otherwise "". Raises DataError if none has the given value."""
        if any(self._state(text) == CAME for text in self.seen):
            return ""
        has = ", ".join(map(repr, sorted(t for t in self.seen if t)[:MOST_SEEN])) or "none"
        if self.value:
            raise DataError(
                f"{path}, column '{self.event}': no cell is {self.value!r}, the event by "
                f"{option('survival', self.text)}; it has {has}"
            )
        return f"column '{self.time}': the event occurred in no row ('{self.event}' has {has}), so it teaches little"


def _same_number(a: str, b: str) -> bool:
    try:
        return float(a) == float(b)
    except ValueError:
        return False


def pairs_of(texts: Sequence[str], names: Sequence[str]) -> list[Pair]:
    """Parse pairs from texts. Raises ConfigError, also for a column that is in two pairs."""
    pairs = [Pair.of(text, names) for text in texts]
    each = [name for pair in pairs for name in (pair.time, pair.event)]
    for name in each:
        if each.count(name) > 1:
            raise ConfigError(f"--survival: column '{name}' is in two pairs")
    return pairs


def stored(pairs: Sequence[Pair]) -> dict[str, dict[str, list[str]]]:
    """Pairs as a table stores them: by time, the event, its value and the texts of missing cells; and all censored
    texts of the event, if it has a single value and they are few."""
    result = {"survival": {p.time: [p.event, p.value, *p.missing] for p in pairs}}
    few = [p for p in pairs if p.value and len(p.seen) < MOST_SEEN]
    result["censored"] = {p.time: sorted(text for text in p.seen if p.is_censored(text)) for p in few}
    return {key: of for key, of in result.items() if of}


def pairs_there(
    about: Mapping[str, Mapping], names: Collection[str], path: Path, missing: Sequence[str] = ()
) -> list[Pair]:
    """Pairs of a table's source whose time is in a later file. about: see `stored`; missing: further texts of missing
    cells. Raises DataError if the file has the time without its event, which makes it ambiguous."""
    pairs = []
    for time, (event, value, *usual) in (about.get("survival") or {}).items():
        if time in names and event not in names:
            raise DataError(f"{path}: has '{time}', but no column '{event}', which says whether the event occurred")
        if time in names:
            censored = tuple((about.get("censored") or {}).get(time, ()))
            pairs.append(Pair(time, event, value, (*usual, *(m.strip() for m in missing)), censored=censored))
    return pairs


def with_pairs(batch: Batch, pairs: Mapping[tuple[int, int], Pair], kept: Collection[int]) -> Batch:
    """Batch in which the time column of each pair, given by positions, holds the pair's cells; columns that are not
    `kept` are dropped."""
    if not pairs:
        return batch
    columns = dict(batch.columns)
    for (time, event), pair in pairs.items():
        columns[time] = pair.cells(batch, time, event)
    return replace(batch, columns={i: cells for i, cells in columns.items() if i in kept})


# --- their texts ------------------------------------------------------------------------------------------------------


def parse(texts: pa.StringArray) -> tuple[pa.StringArray, np.ndarray]:
    """Numbers in texts such as `1010+`, as text, and a mask of the censored ones."""
    censored = pc.ends_with(texts, "+").to_numpy(zero_copy_only=False)
    return pc.utf8_trim_whitespace(pc.utf8_rtrim(texts, "+")), censored


def times(texts: pa.StringArray, kind: str) -> pa.StringArray:
    """Times without censoring marks in the texts of a survival column; texts of other kinds unchanged."""
    return parse(texts)[0] if kind == "survival" else texts
