"""Dates and times as people and programs write them, as numbers of days: 2024-05-01, 1.5.2024, 5/1/2024 2:30 PM.

A column of dates becomes a real one in days since 1970-01-01, in UTC where zones are written; one of times of the day
in days since midnight. Its step is the day, the hour, the minute, the second or the millisecond, as all its values
have it. `Dates` is a form as `forms.Form` is: found from a column's first cells, it holds for all of it.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mpibayes.io.clock import DAYS, SINCE, as_text
from mpibayes.io.forms import Form

CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?(?: ?(?P<half>[AaPp][Mm]))?"
ZONE = r"(?: ?(?P<zone>Z|UTC|[+-]\d{2}(?::?\d{2})?))?"
DAY_AND_MONTH = {
    "ymd": r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})",
    "dmy": r"(?P<day>\d{1,2})[-/.](?P<month>\d{1,2})[-/.](?P<year>\d{4})",
    "mdy": r"(?P<month>\d{1,2})[-/](?P<day>\d{1,2})[-/](?P<year>\d{4})",
}
PATTERN = {order: rf"^{text}(?:[T ] ?{CLOCK}{ZONE})?$" for order, text in DAY_AND_MONTH.items()}
PATTERN["clock"] = rf"^{CLOCK}{ZONE}$"
ORDERS = {"day-first": "dmy", "month-first": "mdy"}  # what the user can say
PARTS = {
    "weekday": tuple(calendar.day_name),
    "month": tuple(calendar.month_name)[1:],
    "hour": tuple(str(hour) for hour in range(24)),
}
SHARE = 0.9  # of a column's first different texts that are dates if it is a column of dates


@dataclass(frozen=True)
class Dates:
    """order: "ymd", "dmy", "mdy", or "clock" for times of the day. part: "", or one of PARTS, which are categories."""

    order: str = "ymd"
    part: str = ""

    def plain(self, texts: pa.StringArray) -> pa.StringArray:
        """Days as plain numbers; "" for what is no date."""
        days, offset = self._read(texts)
        days = np.round((days - offset) * 86_400_000) / 86_400_000
        return pc.fill_null(pc.cast(pa.array(days, from_pandas=True), pa.string()), "")

    def labels(self, texts: pa.StringArray) -> pa.StringArray:
        """Which of PARTS[part] each text is, by the clock on its wall; "" for what is no date."""
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
        """Days by the clock on the wall, NaN for what is no date, and how far this clock is ahead of UTC, in days."""
        found = pc.extract_regex(texts, PATTERN[self.order])

        def number(name: str, otherwise: float = 0.0) -> np.ndarray:
            text = pc.replace_substring(pc.struct_field(found, name), ",", ".")
            text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
            values = pc.cast(text, pa.float64()).to_numpy(zero_copy_only=False)
            return np.where(np.isnan(values), otherwise, values)

        def text(name: str) -> np.ndarray:
            return pc.fill_null(pc.struct_field(found, name), "").to_numpy(zero_copy_only=False).astype(str)

        good = found.is_valid().to_numpy(zero_copy_only=False)
        hour, minute, second = number("hour"), number("minute"), number("second")
        half = np.char.lower(text("half"))
        good &= (minute < 60) & (second < 61) & np.where(half == "", hour < 24, (hour >= 1) & (hour <= 12))
        hour = np.where(half == "", hour, hour % 12 + 12 * (half == "pm"))
        days = (hour * 3600 + minute * 60 + second) / 86_400
        if self.order != "clock":
            year, month, day = number("year", 1970), number("month", 1), number("day", 1)
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
                offset[zone == z] = (1 if z[0] == "+" else -1) * (int(z[1:3]) / 24 + int(z[3:] or 0) / 1440)
        return np.where(good, days, np.nan), offset

    def written(self, plain: str) -> str:
        """A plain number of days in this form."""
        text = as_text(float(plain), self.unit)
        year, *rest = text.split(" ")[0].split("-")
        if self.order in ("ymd", "clock") or len(rest) != 2:
            return text
        month, day = rest
        date = f"{month}/{day}/{year}" if self.order == "mdy" else f"{day}/{month}/{year}"
        return date + text[10:]

    def in_words(self) -> str:
        if self.order == "clock":
            return "times of the day, in days since midnight"
        first = {"dmy": ", day first", "mdy": ", month first"}.get(self.order, "")
        return f"dates{first}, in days since 1970-01-01"

    @property
    def unit(self) -> str:
        return DAYS if self.order == "clock" else SINCE


def dates_of(texts: pa.StringArray, said: str | None = None) -> tuple[Dates, ...]:
    """The forms in which nearly all of the texts are dates: none, one, or two where day and month may be either.

    said: the order of day and month as the user gives it, one of ORDERS."""
    if not any(re.match(pattern, text) for text in texts[:10].to_pylist() for pattern in PATTERN.values()):
        return ()
    wanted = [order for order in PATTERN if said is None or order not in ORDERS.values() or order == ORDERS[said]]
    share = {order: float(np.mean(is_date(Dates(order), texts))) for order in wanted}
    best = max(share.values())
    return tuple(Dates(order) for order in wanted if share[order] == best >= SHARE)


def is_date(form: Dates, texts: pa.StringArray) -> np.ndarray:
    """Which texts are dates in this form, bool."""
    return ~np.isnan(form._read(texts)[0])


def stored(entry: Mapping[str, str]) -> Form | Dates:
    """The form that a table keeps as the fields of its class."""
    return Dates(**entry) if "order" in entry else Form(**entry)


def calendar_columns(name: str, form: Dates, step: float) -> Sequence[tuple[str, Dates]]:
    """Names and forms of the columns that `--calendar` makes of one of dates; step: of its values."""
    parts = ["hour"] if form.order == "clock" else ["weekday", "month", *(["hour"] if step < 1.0 else [])]
    return [(f"{name} {part}", Dates(form.order, part)) for part in parts]
