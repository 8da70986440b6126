"""Kind of a column, decided from all its text: the first pass of the import.

Rules, in order (missing cells are set aside first; a *number* is a decimal number with or without exponent):

1.  No cell left: ignored. One level: ignored (constant); boolean where the other cells are blank (`yes_no`).
2.  The index that pandas or R write: ignored (`index_column`).
    Text of which more than 90 % of at least 100 cells differ (or all of at least 20): ignored (identifier). So are text
    and integers named id, key ... of more than 20 levels with fewer than 5 cells each.
    Text of more than 100 levels with fewer than 2 cells each on average, of more than 1,000 with fewer than 10, or of
    more than 65,535: ignored (too many levels).
    Dates and times of the day, all of them: real.
3.  Two levels that are 0/1, true/false, yes/no, t/f or y/n in any case: boolean, the false-like one first.
4.  Integers, none written with a leading zero as in 007 (the number of a unit with several rows one after another, as
    in a panel, is ignored: `units`):
    a. all different in at least 20 cells: ignored (identifier) if they count the rows, or the column's name ends in
       id, key ... (in at least 100 cells also number, index ...); else real;
    b. at most 5 different ones, or at most 20 that lie close together (range below 5 a level, two cells a level):
       categorical; so are at most 1,000 where the name ends in code, type, class, zip, id, key ..., and above 1,000 a
       column named id, key ... is ignored (identifier of something that occurs repeatedly);
    c. non-negative, none above 10^6, mean at most 20 and variance at most twice the mean: count. Larger means and wider
       spreads are served better by a normal component, whose variance is free, with atoms where values pile up: real;
    d. any other: real.
5.  Other numbers: real. Among numbers, infinite ones are missing cells.
6.  Everything else: categorical.

Afterwards weights of rows are left out (`weights`), ordered categories are sorted (`scales`), and likely counts of
cases raise a question (`patterns`).

Levels without another order are sorted by value if all are numbers and by text (code points) otherwise, so they depend
on the contents of the column and not on the order of its rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpibayes.io.clock import step_of
from mpibayes.io.dates import Dates
from mpibayes.io.encode import numbers
from mpibayes.io.index_column import is_index
from mpibayes.io.measured import (
    AS_IT_IS,
    DOUBTFUL,
    FEW_VALUES,
    Recording,
    in_words,
    missing_codes,
    rare_zeros,
    recording,
    slips,
)
from mpibayes.io.profile import Profile
from mpibayes.io.rows import MAX_LEVELS, NUMERIC
from mpibayes.io.units import rows_a_unit
from mpibayes.io.yes_no import TRUTH, is_checked, levels_of, says_no, texts_of_no
from mpibayes.text import counted, option, toml_string

FEW_INTEGERS = 20
MANY_LEVELS, CELLS_OF_MANY = 1_000, 10  # text with more levels and fewer cells per level teaches no cluster anything
MANY_NAMES, CELLS_OF_NAMES = 100, 2  # nor does text of which most levels occur once
CELLS_OF_UNIT = 5  # least cells per level of a category whose name is that of an identifier
FEW_RANGE = 5
CODE_LEVELS = 1_000
MAX_COUNT_VALUE = 1e6
MAX_COUNT_MEAN = 20.0
MAX_COUNT_DISPERSION = 2.0
CODE_NAME = re.compile(r"(code|recode|codes|type|class|category|group|zip|zipcode)$", re.IGNORECASE)
OWN_ID = r"(^p|case|subj|subject|patient|person|study|record)id$|(?-i:[a-z]I[Dd]$)"  # PID, subjid, RespondentID
OWN_ID += r"|(^|[^a-z])(id_?(no|nr|num|number)|isbn|issn|ean|gtin|upc|iban|vin)$"  # idno, textbook_isbn
KEY_NAME = re.compile(rf"(^|[^a-z])(id|ids|nbr|key|uuid|guid)$|{OWN_ID}", re.IGNORECASE)
ID_NAME = re.compile(rf"(^|[^a-z])(id|ids|nbr|key|index|idx|uuid|guid|number|nr|no|row)$|{OWN_ID}", re.IGNORECASE)


ONE_TEXT = "one text or blank, taken as yes or no; where blank does not mean no, --drop"
FEW_ZEROS = (
    "a few zeros keep the other numbers from a log scale, which would fit them better; where 0 means, or may count as, "
    'missing, say so in the schema, under [columns.NAME]: missing = ["", "0"]'
)
BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_]{2})[-\u2010-\u2015_](?=[^\W\d_]{2})")  # Post-Graduate
SHARE_ALIKE = 0.9  # of the non-numeric texts of a column
LOOK_ALIKE = {
    "numbers": re.compile(
        r"^[<>≤≥~≈±]?\s*[+\-\u2212]?[$€£¥]?\s*\d[\d.,'’\s]*([eE][+-]?\d+)?\s*([^\W\d_]{1,6}|/\d+)?[$€£¥%]?$"
    ),
    "dates": re.compile(
        r"^(\d{1,4}[-/. ]+([^\W\d_]{3,9}|\d{1,2})[-/., ]+\d{2,4}|[^\W\d_]{3,9}\.? \d{1,2}, ?\d{2,4}"
        r"|\d{1,2}[^\W\d_]{3}\d{2,4})([T ]\d.*)?$"
    ),
}


@dataclass(frozen=True)
class Decision:
    """Decision on a column: kind "ignored" or one of the table's kinds, and the reason."""

    kind: str
    levels: tuple[str, ...] = ()
    reason: str = ""
    warning: str = ""
    error: str = ""
    note: str = ""  # reason, if several columns are likely to share it
    recording: Recording = AS_IT_IS  # of a real column
    ordered: bool | None = None  # see `scales`; None: undetermined


def decide(p: Profile, keep: bool = False) -> Decision:
    """Decide kind and levels of a column from its profile, and the recording of a real one. keep: use the column even
    if it is constant or an identifier."""
    words = p.words_as_missing()
    n_infinite = p.infinite_as_missing()
    if p.n_numbers == p.n_observed and not p.leading_zero and p.levels is None:
        p.merge_equal_numbers()
    decision = _decide(p, keep)
    if words:
        listed = ", ".join(
            f"{word!r} ({n:,})" for word, n in sorted(words.items(), key=lambda item: (-item[1], item[0]))
        )
        what = "dates" if p.dates else "numbers"
        decision = replace(
            decision, warning=_joined(decision.warning, f"column '{p.name}': {listed} among {what}: taken as missing")
        )
    if n_infinite:
        text, _ = p.example_infinite
        what = f"{counted(n_infinite, 'cell is', 'cells are')} infinite or beyond 1e150, such as {text!r}"
        decision = replace(decision, warning=_joined(decision.warning, f"column '{p.name}': {what}; taken as missing"))
    if decision.kind == "count" and p.kind is None and recording(p.histogram).roughness > DOUBTFUL:
        decision = replace(decision, kind="real", reason="integers, some of them far more common than their neighbours")
    if decision.kind == "categorical" and p.kind is None and not decision.error and p.n_numbers == p.n_observed:
        return _with_codes(p, decision)
    if decision.kind != "real" or decision.error:
        return decision
    dates = p.dates
    known = {"resolution": step_of(p.histogram.merge().values), "log": False} if dates else {}
    r = recording(p.histogram, **(known | p.recorded))
    if r.few and p.kind is None and p._texts is not None and not p.recorded:
        what = "numbers" if not dates else "times" if dates.order == "clock" else "dates"
        recur = ", each ten times or more" if p.n_distinct <= FEW_VALUES else " that recur and have no common step"
        return _with_codes(p, _categorical(p, f"{p.n_distinct} different {what}{recur}"))
    warnings = [decision.warning] if decision.warning else []
    if r.suspects:
        warnings.append(_far_from_others(p, r.suspects))
    elif far := slips(p.histogram):
        warnings.append(_far_from_others(p, far, "is a slip, or means missing"))
    if r.roughness > DOUBTFUL and not dates:
        warnings.append(
            f"column '{p.name}': some of its numbers are far more common than those next to them; if they are codes: "
            f"{option('kind', p.name + '=categorical')}; if they were rounded, as to dozens, leave it as it is"
        )
    written = "" if p.form is None else p.form.in_words()
    reason = "; ".join(filter(None, [written or decision.reason, in_words(r, dates.unit if dates else "")]))
    note = FEW_ZEROS if p.kind is None and not dates and rare_zeros(p.histogram, r) else decision.note
    return replace(decision, reason=reason, warning="; ".join(warnings), note=note, recording=r)


def _with_codes(p: Profile, decision: Decision) -> Decision:
    """Add a question to the decision if some numeric levels may mean missing."""
    codes = _codes(p)
    return replace(decision, warning=_joined(decision.warning, _far_from_others(p, codes))) if codes else decision


def _codes(p: Profile) -> tuple[float, ...]:
    h = p.histogram.merge()
    return () if p.dates or not p.all_integer or p.n_distinct > FEW_INTEGERS else missing_codes(h.values, h.cells)


def _far_from_others(p: Profile, suspects: Sequence[float], likely: str = "means missing") -> str:
    written = [p.written(value) for value in suspects]
    markers = ", ".join(map(toml_string, [*p.gaps, *written]))  # the schema's markers replace the usual ones
    return (
        f"column '{p.name}': {' and '.join(written)} {'is' if len(written) == 1 else 'are'} far from all other "
        f"values; if that {likely}, say so in the schema, under [columns.{toml_string(p.name)}]: missing = "
        f"[{markers}]"
    )


def _decide(p: Profile, keep: bool) -> Decision:
    p._merge()
    if p.question and not keep:
        return Decision("ignored", reason="dates in which day and month may be exchanged", warning=p.question)
    if p.kind is not None:
        return _as_given(p)
    n = p.n_observed
    if n == 0:
        if keep:
            return Decision("real", reason="kept as asked; all cells are missing")
        return Decision("ignored", reason="all cells are missing")
    if p.n_distinct == 1 and not keep:
        return _constant(p)
    if is_index(p) and not keep:
        return _identifier(p, "the index of the rows, as pandas or R write it")
    numeric = p.n_numbers == n
    integer = numeric and p.all_integer and not p.leading_zero
    if not numeric or p.leading_zero:
        nearly_all = (n >= 100 and p.n_distinct > 0.9 * n) or (n >= 20 and p.n_distinct == n)
        if nearly_all and not keep:
            return _identifier(p, "text, nearly all of it different")
        if _names_units(p) and not keep:
            return _identifier(p, "text, and the name says so")
        if _too_many(p) and not keep:
            return _left_out(p)
    if p.dates:
        return Decision("real", reason="dates")
    if p.n_distinct == 2 and tuple(t.lower() for t in p.sorted_levels()) in TRUTH:
        return Decision("boolean", p.sorted_levels(), "two values")
    if integer:
        return _integers(p, keep)
    if numeric and not p.leading_zero:
        return Decision("real", reason="numbers")
    plain = "text" if p.n_numbers < 0.5 * n else "numbers and text"
    decision = _categorical(p, "numbers with leading zeros" if p.leading_zero else plain)
    return replace(decision, warning=_joined(_unread(p) or decision.warning, _alike(p.name, decision.levels)))


def _constant(p: Profile) -> Decision:
    """Decide on a column with one text: yes or no if the other cells are blank, else nothing to learn from."""
    text, no = p._texts[0].as_py(), texts_of_no(p.gaps)
    n_blank = sum(p.gaps[gap] for gap in no)
    if no and is_checked(text, p.n_numbers > 0 or isinstance(p.form, Dates), p.n_observed, n_blank):
        return _yes_no(p, text, no)
    also = " where it is not missing" if p.n_missing else ""
    advice = f"if blank means no: {option('kind', p.name + '=boolean')}"
    if says_no(text):
        advice = "if blank means another answer, write that one in the file"
    warning = f"column '{p.name}': left out: {text[:40]!r} or, in {counted(n_blank, 'cell')}, blank; {advice}"
    return Decision("ignored", reason=f"constant: {text[:40]!r}{also}", warning=warning if no else "")


def _yes_no(p: Profile, text: str, no: tuple[str, ...]) -> Decision:
    levels = levels_of(text)
    p.gaps_as_no(no)
    return Decision("boolean", levels, f"one text or blank: blank is {levels[0]!r}", note=ONE_TEXT)


def _integers(p: Profile, keep: bool) -> Decision:
    n, few = p.n_observed, p.n_distinct
    if p.all_different and n >= 20:
        if p.counts_rows and not keep:
            return _identifier(p, "integers that count the rows")
        if (KEY_NAME.search(p.name) or (n >= 100 and ID_NAME.search(p.name))) and not keep:
            return _identifier(p, "integers, all different, and the name says so")
        shuffled = p.maximum - p.minimum == n - 1 or (len(p.digits) == 1 and min(p.digits) >= 6)
        lost = ", beyond 2^53, so that their last digits are lost" if max(p.maximum, -p.minimum) > 2**53 else ""
        advice = f"column '{p.name}': integers, all different{lost}; if they name the rows: {option('drop', p.name)}"
        return Decision("real", reason="integers, all different", warning=advice if shuffled and not keep else "")
    if rows := 0 if keep or p.n_missing else rows_a_unit(p.runs, p.name, few, p.minimum, p.maximum):
        return _unit(p, rows)
    if _names_units(p) and not keep:
        return _identifier(p, "integers, and the name says so")
    values = np.setdiff1d(p.histogram.merge().values, _codes(p)) if few <= FEW_INTEGERS else np.zeros(0)
    close = len(values) > 0 and values[-1] - values[0] < FEW_RANGE * few
    if few <= 5 or (few <= FEW_INTEGERS and few <= n / 2 and close):
        return _categorical(p, "few different integers")
    key = bool(KEY_NAME.search(p.name))
    if few <= CODE_LEVELS and few <= n / 2 and (key or CODE_NAME.search(p.name)):
        return _categorical(p, "integers; the name says that they are codes")
    if few > CODE_LEVELS and key and not keep:
        return _identifier(p, "integers, and the name says so")
    variance = p.scatter / n
    if p.minimum < 0:
        return Decision("real", reason="integers, some negative")
    if p.maximum > MAX_COUNT_VALUE:
        return Decision("real", reason="integers, large")
    if p.mean > MAX_COUNT_MEAN:
        return Decision("real", reason=f"integers of mean {p.mean:,.3g}, above {MAX_COUNT_MEAN:g}")
    if variance > MAX_COUNT_DISPERSION * p.mean:
        spread = f"variance {variance / p.mean:,.3g} times the mean"
        return Decision("real", reason=f"integers, spread wider than counts ({spread})")
    return Decision("count", reason=f"integers of mean {p.mean:.3g}, variance {variance / p.mean:.3g} times that")


def _unit(p: Profile, rows: int) -> Decision:
    units = f"{p.counted} units of {rows:,} rows each, one after another"
    warning = (
        f"column '{p.name}': left out: it numbers {units}, as in a panel: clusters would gather each unit's rows; "
        f"if it is a quantity: {option('keep', p.name)}"
    )
    return Decision("ignored", reason=f"identifier: integers that number {units}", warning=warning)


def _names_units(p: Profile) -> bool:
    """True if the name is that of an identifier, and units have too few cells each to be categories: animals that were
    seen once to four times."""
    few = p.n_distinct > FEW_INTEGERS and p.n_observed < CELLS_OF_UNIT * p.n_distinct
    return few and KEY_NAME.search(p.name) is not None


def _identifier(p: Profile, what: str) -> Decision:
    reason = f"identifier: {what}; {p.counted} different values in {p.n_observed:,} cells"
    stray = _stray(p)
    warning = _unread(p) or (f"column '{p.name}': left out{stray}" if stray else "")
    return Decision("ignored", reason=reason + stray, warning=warning)


def _too_many(p: Profile) -> bool:
    """True if text has more levels than a categorical column can have, or than its cells can estimate."""
    return p.n_distinct > MAX_LEVELS or p.n_observed < _fewest_cells(p) * p.n_distinct


def _fewest_cells(p: Profile) -> int:
    """Cells per level that text with so many levels needs."""
    return CELLS_OF_MANY if p.n_distinct > MANY_LEVELS else CELLS_OF_NAMES if p.n_distinct > MANY_NAMES else 0


def _left_out(p: Profile) -> Decision:
    what = f"text of {p.counted} levels in {p.n_observed:,} cells"
    if p.n_distinct > MAX_LEVELS:
        advice = f"a categorical column has at most {MAX_LEVELS:,}; group them in the file to use it"
    else:
        advice = f"fewer than {_fewest_cells(p)} cells each; {option('keep', p.name)} imports it as categorical"
    stray = _stray(p)
    warning = _joined(f"column '{p.name}': left out: {what}; {advice}{stray}", _unread(p))
    return Decision("ignored", reason=f"too many levels: {what}{stray}", warning=warning)


def _stray(p: Profile) -> str:
    """Advice if a few cells keep a column from being numeric."""
    if p.example_text is None or p.n_numbers <= 0.5 * p.n_observed:
        return ""
    text = p.example_text[0][:40]
    what = "dates" if isinstance(p.form, Dates) else "numbers"
    return f"; most cells are {what}: if {text!r} means missing, say {option('missing', text)}"


def _unread(p: Profile) -> str:
    """Warning if nearly all cells of a text column look like numbers, or dates, in a form that is not read, or in
    several forms; otherwise ""."""
    if p.leading_zero or p.n_distinct <= FEW_INTEGERS or not p.words:
        return ""
    for what, pattern in LOOK_ALIKE.items():
        like = [word for word in p.words if pattern.match(word)]
        if len(like) >= SHARE_ALIKE * len(p.words):
            plain = () if p._texts is None else (t for t in p._texts[:100].to_pylist() if t not in p.words)
            examples = ", ".join(repr(text[:24]) for text in [*list(plain)[:1], *like][:3])
            how = f"look like {what}, but are not all written in one way that can be read"
            return (
                f"column '{p.name}': its cells {how} ({examples}), so that they are text; write them alike to use them"
            )
    return ""


def _alike(name: str, levels: tuple[str, ...]) -> str:
    """Warning if levels differ only in case, blanks and hyphens between letters."""
    same: dict[str, list[str]] = {}
    for level in levels:
        same.setdefault(BETWEEN_LETTERS.sub("", "".join(level.casefold().split())), []).append(level)
    groups = [", ".join(map(repr, group[:4])) for group in same.values() if len(group) > 1]
    if not groups:
        return ""
    more = f", and {counted(len(groups) - 1, 'more group')} likewise" if len(groups) > 1 else ""
    what = f"the levels {groups[0]} differ in case, blanks or hyphens alone{more}"
    return f"column '{name}': {what}; if they mean the same, write them alike in the file"


def _joined(*warnings: str) -> str:
    return "; ".join(filter(None, warnings))


def _categorical(p: Profile, reason: str) -> Decision:
    if p._texts is None or p.n_distinct > MAX_LEVELS:
        what = f"{p.counted} levels, more than the {MAX_LEVELS:,} a categorical column can have"
        error = f"column '{p.name}': {what}; leave it out ({option('drop', p.name)}){_stray(p)}"
        return Decision("categorical", error=error)
    levels = p.sorted_levels()
    warning = ""
    n_words = int(np.isnan(numbers(p._texts, p.form)).sum())
    if 1 <= n_words <= 3 and len(levels) > FEW_INTEGERS and (stray := _stray(p)):
        n = counted(p.n_observed - p.n_numbers, "cell")
        warning = f"column '{p.name}': taken as categorical ({len(levels):,} levels) because of {n} of text{stray}"
    return Decision("categorical", levels, reason, warning)


def _as_given(p: Profile) -> Decision:
    """Decide by the user's kind; levels not given are those in the data."""
    if p.unread:
        return Decision("ignored", reason=p.unread, warning=f"column '{p.name}': left out: it is {p.unread}")
    if p.kind in ("ignored", *NUMERIC) or p.levels is not None:
        return Decision(p.kind, p.levels or (), "as given")
    if p.n_observed == 0:
        what = f"given as {p.kind}, but all its cells are missing; give levels"
        return Decision(p.kind, error=f"column '{p.name}': {what}")
    if p.kind == "boolean" and p.n_distinct == 1 and p._texts is not None and (no := texts_of_no(p.gaps)):
        return _yes_no(p, p._texts[0].as_py(), no)
    decision = _categorical(p, "as given")
    if p.kind == "boolean" and not decision.error and len(decision.levels) != 2:
        few = ", ".join(repr(v) for v in decision.levels[:5])
        what = f"given as boolean, which has two levels; found {p.counted}: {few}"
        return Decision(p.kind, error=f"column '{p.name}': {what}")
    return Decision(p.kind, decision.levels, "as given", "", decision.error)
