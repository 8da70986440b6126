"""Dates and times of day as numbers of days, as stored in a table; their steps, and their text."""

from __future__ import annotations

import numpy as np

from mpibayes.text import number

SINCE, DAYS = "days since 1970-01-01", "days"  # units of dates and of times of day
FIRST, LAST = -719_162, 2_932_897  # first and last day of the years with four digits
STEPS = {1: "day", 24: "hour", 1_440: "minute", 86_400: "second", 86_400_000: "millisecond"}


def as_text(days: float, unit: str) -> str:
    """Format a number of days as a date, with its time if it has one; as a time if it counts from midnight.

    >>> as_text(19844.0, "days since 1970-01-01"), as_text(0.5, "days")
    ('2024-05-01', '12:00:00')
    """
    if not FIRST <= days < LAST:
        return f"{days:.10g}"
    stamp = str(np.datetime64(0, "ms") + np.timedelta64(round(days * 86_400_000), "ms"))
    date, _, clock = stamp.partition("T")
    clock = clock.removesuffix(".000")
    return clock if unit == DAYS else date if clock == "00:00:00" else f"{date} {clock}"


def around(mean: float, sd: float, unit: str, step: float = 0.0) -> str:
    """Format a mean and standard deviation of days, to a precision that suits the deviation. step: of the values; whole
    days stay days.

    >>> around(19844.3, 9.04, SINCE), around(0.5, 0.05, DAYS), around(19844.3, 1.24, SINCE, step=1.0)
    ('2024-05-01 ± 9 days', '12:00 ± 1.2 hours', '2024-05-01 ± 1.2 days')
    """
    if unit == SINCE and step >= 1.0 and np.isfinite(mean):
        day = as_text(np.round(mean), unit)
        return f"{day} ± {number(sd)} days" if np.isfinite(sd) else day
    if not (np.isfinite(mean) and np.isfinite(sd)):
        return as_text(mean, unit) if np.isfinite(mean) else "-"
    middle = as_text(np.floor(mean) if unit == SINCE and sd >= 2 else np.round(mean * 1440) / 1440, unit)
    per_day, name = (1, "days") if sd >= 2 else (24, "hours") if sd >= 2 / 24 else (1440, "minutes")
    if unit == DAYS:
        per_day, name = (24, "hours") if sd >= 0.04 else (1440, "minutes")
    return f"{middle.removesuffix(':00')} ± {number(sd * per_day)} {name}"


def step_of(days: np.ndarray) -> float:
    """Largest of STEPS of which all days are multiples, in days; 0.0 if there is none."""
    for per_day in STEPS:
        times = days * per_day
        if (np.abs(times - np.round(times)) < 1e-2).all():
            return 1.0 / per_day
    return 0.0


def step_in_words(step: float) -> str:
    """Describe a step: "to the minute", or a number of days."""
    name = STEPS.get(round(1.0 / step)) if step else None
    return f"to the {name}" if name else f"in steps of {step:.6g} days" if step else ""
