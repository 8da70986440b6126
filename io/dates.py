"""Dates and times as people and programs write them, as numbers of days: 2024-05-01, 1.5.2024, 5/1/2024 2:30 PM.

A column of dates becomes a real one in days since 1970-01-01, in UTC if zones are written; a column of times of day, in
days since midnight. Years of two digits, as in 5/1/24, are 1969 to 2068, as in POSIX. The step of a column is the day,
hour, minute, second or millisecond, the largest that fits all its values. `Dates` is a form like `forms.Form`: inferred
from a column's first cells, it applies to all of it.
"""

from __future__ import annotations

import calendar
import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mpibayes.io.clock import DAYS, FIRST, LAST, SINCE
from mpibayes.io.forms import Form

CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?(?: ?(?P<half>[AaPp][Mm]))?"
ZONE = r"(?: ?(?P<zone>Z|UTC|[+-]\d{2}(?::?\d{2})?))?"
DAY_AND_MONTH = {
    "ymd": r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})",
    "dmy": r"(?P<day>\d{1,2})[-/.](?P<month>\d{1,2})(?P<year>[-/.]\d{4}|/\d{2})",  # 1-2-03 may be anything
    "mdy": r"(?P<month>\d{1,2})[-/](?P<day>\d{1,2})(?P<year>[-/]\d{4}|/\d{2})",
}
PATTERN = {order: rf"^{text}(?:[T ] ?{CLOCK}{ZONE})?$" for order, text in DAY_AND_MONTH.items()}
PATTERN["compact"] = (
    r"^(?P<year>(?:1[6-9]|2[01])\d\d)(?P<month>\d\d)(?P<day>\d\d)"
    rf"(?:[T ](?P<hour>\d\d):?(?P<minute>\d\d)(?::?(?P<second>\d\d(?:[.,]\d+)?))?(?P<half>){ZONE})?$"
)
PATTERN["clock"] = rf"^{CLOCK}{ZONE}$"
ORDERS = {"day-first": "dmy", "month-first": "mdy"}  # values of the user's option
PARTS = {
    "weekday": tuple(calendar.day_name),
    "month": tuple(calendar.month_name)[1:],
    "hour": tuple(str(hour) for hour in range(24)),
}
EXAMPLES = {"ymd": "2024-05-01", "compact": "20240501", "dmy": "01/05/2024", "mdy": "05/01/2024", "clock": "12:30:00"}
CENTURY = 69  # least year of two digits that is of the last century
SHARE = 0.9  # of a column's first distinct texts that must be dates
SURE = 20  # distinct texts without separators needed, all of them dates: 20240501 may be any integer


@dataclass(frozen=True)
class Dates:
    """order: "ymd", "dmy", "mdy", "compact" (20240501), or "clock" for times of the day.
    part: "" or one of PARTS, which are categories."""

    order: str = "ymd"
    part: str = ""
    like: ClassVar[str] = ""

    def plain(self, texts: pa.StringArray) -> pa.StringArray:
        """Days as plain numbers; "" for a text that is not a date."""
        days, offset = self._read(texts)
        days = np.round((days - offset) * 86_400_000) / 86_400_000
        return pc.fill_null(pc.cast(pa.array(days, from_pandas=True), pa.string()), "")

    def labels(self, texts: pa.StringArray) -> pa.StringArray:
        """Label among PARTS[part] of each text, in local time; "" for a text that is not a date."""
        days, _ = self._read(texts)
        day = np.floor(np.nan_to_num(days))
        if self.part == "weekday":
            place = (day + 3) % 7  # 1970-01-01 was a Thursday
        elif self.part == "month":
            place = day.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
        else:
            place = np.floor((np.nan_to_num(days) - day) * 24 + 1e-6)
        names = pa.array(PARTS[self.part], pa.string())
        return pc.fill_null(names.take(pa.array(place.astype(np.int64), mask=np.isnan(days))), "")

    def _read(self, texts: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
        """Days by local clock, NaN for a text that is not a date, and the offset of this clock from UTC, in days."""
        parts = pc.extract_regex(texts, PATTERN[self.order])

        def number(name: str, otherwise: float = 0.0) -> np.ndarray:
            text = pc.utf8_ltrim(pc.struct_field(parts, name), "-/.")  # the year has its separator
            text = pc.replace_substring(text, ",", ".")
            text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
            values = pc.cast(text, pa.float64()).to_numpy(zero_copy_only=False)
            return np.where(np.isnan(values), otherwise, values)

        def text(name: str) -> np.ndarray:
            return pc.fill_null(pc.struct_field(parts, name), "").to_numpy(zero_copy_only=False).astype(str)

        good = parts.is_valid().to_numpy(zero_copy_only=False)
        hour, minute, second = number("hour"), number("minute"), number("second")
        half = np.char.lower(text("half"))
        good &= (minute < 60) & (second < 61) & np.where(half == "", hour < 24, (hour >= 1) & (hour <= 12))
        hour = np.where(half == "", hour, hour % 12 + 12 * (half == "pm"))
        days = (hour * 3600 + minute * 60 + second) / 86_400
        if self.order != "clock":
            year, month, day = number("year", 1970), number("month", 1), number("day", 1)
            short = np.char.str_len(text("year")) == len("/24")
            year += short * (1900 + 100 * (year < CENTURY))
            good &= (month >= 1) & (month <= 12) & (day >= 1)
            months = np.where(good, 12 * (year - 1970) + month - 1, 0).astype(np.int64)
            first, after = (np.array(m, "datetime64[M]").astype("datetime64[D]") for m in (months, months + 1))
            first, after = first.astype(float), after.astype(float)
            good &= day <= after - first
            days = first + day - 1 + days
        zone = np.char.replace(text("zone"), ":", "")
        offset = np.zeros(len(days))
        for z in np.unique(zone):
            if z and z[0] in "+-":
                offset[zone == z] = _ahead(z)
        return np.where(good, days, np.nan), offset

    def example(self, texts: pa.StringArray) -> str:
        """Most informative text about how the dates are written: the shortest with most parts, which shows leading
        zeros; "" if none is a date."""
        dates = set(texts.filter(pa.array(is_date(self, texts))).to_pylist())

        def parts(text: str) -> int:
            return sum(part is not None for part in re.match(PATTERN[self.order], text).groups())

        return min(dates, key=lambda text: (-parts(text), len(text), text), default="")

    def written(self, plain: str) -> str:
        """Format a plain number of days in this form, in the style and time zone of `like` if that is a date."""
        days, parts = float(plain), re.match(PATTERN[self.order], self.like)
        offset = _ahead(parts["zone"]) if parts and parts["zone"] else 0.0
        if parts is None or not FIRST <= days + offset < LAST:
            parts, offset = re.match(PATTERN[self.order], EXAMPLES[self.order]), 0.0
        if not FIRST <= days < LAST:
            return f"{days:.10g}"
        stamp = np.datetime64(0, "ms") + np.timedelta64(round((days + offset) * 86_400_000), "ms")
        text = _like(parts, stamp.item())
        clock = str(stamp)[11:].removesuffix(".000")
        return text if parts["hour"] or clock == "00:00:00" else f"{text} {clock}"

    def in_words(self) -> str:
        if self.order == "clock":
            return "times of the day, in days since midnight"
        first = {"dmy": ", day first", "mdy": ", month first"}.get(self.order, "")
        return f"dates{first}, in days since 1970-01-01"

    @property
    def unit(self) -> str:
        return DAYS if self.order == "clock" else SINCE


@dataclass(frozen=True)
class DatesLike(Dates):
    """Dates of a file that are all written in the style of one example."""

    like: str = ""


def type_of(unit: str, step: float) -> pa.DataType:
    """Arrow type of a column of days. step: of the days, 0.0 for none."""
    if unit == DAYS:
        return pa.time32("ms")
    return pa.date32() if step and step == round(step) else pa.timestamp("ms")


def as_times(days: np.ndarray, missing: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Days as dates, times or timestamps; as numbers if the calendar lacks such days. missing: mask of nulls."""
    if not ((days >= FIRST) & (days < LAST) | missing).all():
        return pa.array(days, mask=missing)
    stamps = pa.array(np.rint(np.where(missing, 0.0, days) * 86_400_000).astype(np.int64), mask=missing)
    return stamps.cast(pa.int32() if pa.types.is_time(kind) else pa.timestamp("ms")).cast(kind)


def in_milliseconds(times: pa.Array) -> pa.Array:
    """Milliseconds since 1970-01-01, or since midnight, of the result of `as_times`."""
    if pa.types.is_time(times.type):
        return times.cast(pa.int32()).cast(pa.int64())
    return times.cast(pa.timestamp("ms")).cast(pa.int64())


def of_times(kind: pa.DataType) -> DatesLike:
    """Form in which to write a column of dates, timestamps or times that has no text of its own."""
    if pa.types.is_time(kind):
        return DatesLike("clock", "", "12:30:00")
    return DatesLike("ymd", "", "2024-05-01" if pa.types.is_date(kind) else "2024-05-01 12:30:00")


def _ahead(zone: str) -> float:
    """Offset of a zone's clock from UTC, in days."""
    digits = zone.replace(":", "")
    if digits[0] not in "+-":
        return 0.0
    return (1 if digits[0] == "+" else -1) * (int(digits[1:3]) / 24 + int(digits[3:] or 0) / 1440)


def _like(match: re.Match, time: datetime.datetime) -> str:
    """Format a time in the style of an example, with its separators, leading zeros, zone and parts."""
    known = {name: text for name, text in match.groupdict().items() if text is not None}
    second = known.get("second", "")
    written = f"{time.second:02d}"
    if time.microsecond or len(second) > 2:
        fraction = f"{time.microsecond:06d}".rstrip("0")
        written += (second[2:3] or ".") + fraction.ljust(len(second) - 3, "0")
    digits = known.get("year", "").lstrip("-/.")
    of_century = len(digits) == 2 and 1900 + CENTURY <= time.year < 2000 + CENTURY
    year = f"{time.year % 100:02d}" if of_century else f"{time.year:04d}"
    new = {"year": known.get("year", "").removesuffix(digits) + year, "minute": f"{time.minute:02d}", "second": written}
    half, hour = known.get("half", ""), time.hour
    if half:
        letters = "AM" if hour < 12 else "PM"
        new["half"], hour = letters if half.isupper() else letters.lower(), (hour - 1) % 12 + 1
    short = any(len(known.get(name, "00")) == 1 for name in ("month", "day"))
    new |= {"month": str(time.month), "day": str(time.day)} if short else {}
    new |= {} if short else {"month": f"{time.month:02d}", "day": f"{time.day:02d}"}
    new["hour"] = str(hour) if len(known.get("hour", "00")) == 1 else f"{hour:02d}"
    text = match[0]
    for name in sorted(known.keys() & new.keys(), key=match.start, reverse=True):
        text = text[: match.start(name)] + new[name] + text[match.end(name) :]
    return text


def dates_of(texts: pa.StringArray, given: str | None = None) -> tuple[Dates, ...]:
    """Forms in which nearly all of the texts are dates: none, one, or two if day and month are ambiguous.

    given: the user's order of day and month, one of ORDERS."""
    if not any(re.match(pattern, text) for text in texts[:10].to_pylist() for pattern in PATTERN.values()):
        return ()
    orders = [order for order in PATTERN if given is None or order not in ORDERS.values() or order == ORDERS[given]]
    share = {order: float(np.mean(is_date(Dates(order), texts))) for order in orders}
    if share["compact"] < 1.0 or len(texts) < SURE:
        del share["compact"]
    best = max(share.values())
    return tuple(Dates(order) for order in share if share[order] == best >= SHARE)


def is_date(form: Dates, texts: pa.StringArray) -> np.ndarray:
    """Mask of the texts that are dates in this form, bool."""
    return ~np.isnan(form._read(texts)[0])


def stored(entry: Mapping[str, str]) -> Form | Dates:
    """Return the form that a table stores as the fields of its class."""
    return Dates(**entry) if "order" in entry else Form(**entry)


def calendar_columns(name: str, form: Dates, step: float) -> Sequence[tuple[str, Dates]]:
    """Names and forms of the columns that `--calendar` derives from a column of dates; step: of its values."""
    parts = ["hour"] if form.order == "clock" else ["weekday", "month", *(["hour"] if step < 1.0 else [])]
    return [(f"{name} {part}", Dates(form.order, part)) for part in parts]
