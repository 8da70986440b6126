"""Schedules over the iterations t = 1, 2, ...: the step size, the batch, the effective batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Schedule(Protocol):
    def at(self, t: int) -> float:
        """The value in iteration t, counted from 1."""


@dataclass(frozen=True)
class Constant:
    value: float

    def at(self, t: int) -> float:
        return self.value


@dataclass(frozen=True)
class Decay:
    """(t + delay)^-decay, the step size of Robbins & Monro (1951) for a decay in (0.5, 1]."""

    delay: float
    decay: float

    def at(self, t: int) -> float:
        return (t + self.delay) ** -self.decay


@dataclass(frozen=True)
class Growing:
    """by t: the effective batch size of Paisley, Fazelnia & Barr's factorization has by = 50."""

    by: float

    def at(self, t: int) -> float:
        return self.by * t
