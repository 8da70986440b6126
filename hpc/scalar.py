"""A scalar of the trace: declared once, by its family, and read by whatever stores or shows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

ACTIVE_ROWS = "active_rows"  # rows that are in: fewer than all while a chain grows, and no draw counts yet
LOOKED_ROWS = "looked_rows"  # rows that the cycle looked at, of a family whose cycles take batches of them
SCORES = "scores"  # `Scalar.judged` of the scores of held-out rows


class Form(NamedTuple):
    """Format of a number: in the log, in the status, and its digits after the point in a report."""

    log: str
    status: str
    digits: int


WHOLE = Form("d", "d", 1)  # a whole number; its mean has a digit
NATS = Form(".5e", ".8g", 1)  # a log density of all rows
REAL = Form(".3g", ".4g", 2)
FINE = Form(".4f", ".6g", 3)
RATE = Form(".2f", ".2f", 2)
SHARE = Form(".1%", ".2%", 2)


@dataclass(frozen=True)
class Scalar:
    """One number a cycle. The trace has them in the order in which the family declares them.

    Where people read it, it has the name that fits there, "" where it is not shown: `log`, of a field in a line of the
    log; `status`; `label`, in a report; `title`, of a figure; `column`, in a status of several chains.
    """

    name: str
    form: Form = REAL
    unit: str = ""
    place: int = 0  # among the scalars that people are shown, in this order; 0: it is in the trace alone
    log: str = ""
    status: str = ""
    label: str = ""
    title: str = ""
    column: str = ""
    statistic: bool = False  # says how the sampler fared, rather than what it drew
    timing: bool = False  # differs from run to run of one chain, so comparisons leave it out
    judged: str = ""  # whether this has settled (`settled.py`), "clusters" or SCORES, is judged by it
    of: str = ""  # of a count of successes: the scalar that counts the tries; the log sums both over its cycles

    @property
    def whole(self) -> bool:
        """True for a whole number, although the trace stores it as float64 like all others."""
        return self.form is WHOLE


def named(scalars: Iterable[Scalar]) -> dict[str, Scalar]:
    """The scalars by name."""
    return {scalar.name: scalar for scalar in scalars}


def shown(scalars: Iterable[Scalar]) -> list[Scalar]:
    """Scalars shown to people, in order."""
    return sorted((scalar for scalar in scalars if scalar.place), key=lambda scalar: scalar.place)


def kinds(scalars: Sequence[Scalar]) -> dict[str, list[str]]:
    """The names of the scalars of each kind that a trace tells apart (`io.trace.KINDS`)."""
    return {kind: [s.name for s in scalars if getattr(s, kind)] for kind in ("whole", "statistic", "timing")}
