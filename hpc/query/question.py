"""A question as data, made from options by the command line or from arguments by Python, and its answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from mpibayes.errors import ConfigError
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.new_rows import NewRows, rows_of


@dataclass(frozen=True, eq=False, kw_only=True)
class Question(ABC):
    """A question to the kept draws of a run; ranks receive it unchanged.

    rows: the rows it is about, a `new_rows.Source`, or None. unseen: treatment of levels that the run's table lacks,
    "missing" or "error". weighted: True if the answer is about the population, see `Asking.weigh`; None: if the
    question names no rows.
    """

    rows: Any = None
    unseen: str = "missing"
    weighted: bool | None = False
    FROM: ClassVar[tuple[str, ...]] = ("rows",)  # fields that hold rows
    NUMBERED: ClassVar[bool] = False  # True if these may be row numbers of the table
    HAS_PICTURE: ClassVar[bool] = False
    KNOWS_OUTCOME: ClassVar[bool] = False  # True if it can be about the outcome of a mixture's rows

    @property
    def pictured(self) -> bool:
        """True if the answer has a picture."""
        return self.HAS_PICTURE

    @property
    def reads(self) -> Sequence[Path]:
        """Files that the question reads."""
        given = (getattr(self, name) for name in self.FROM)
        return [Path(rows.removeprefix("@")) if isinstance(rows, str) else rows for rows in given if rows is not None]

    @abstractmethod
    def answer(self, asking: Asking, rows: NewRows | None = None) -> Answer:
        """Answer from an opened run. rows: `self.rows`, read. Collective. Raises ConfigError, DataError."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RowsQuestion(Question):
    """A question that needs rows."""

    @abstractmethod
    def answer_rows(self, asking: Asking, rows: NewRows) -> Answer:
        """Answer about these rows, as `answer`."""

    def answer(self, asking: Asking, rows: NewRows | None = None) -> Answer:
        if rows is None:
            raise ConfigError("rows: name those that the question is about")
        return self.answer_rows(asking, rows)


def ask(question: Question, asking: Asking) -> Answer:
    """Read the rows that a question is about, and answer it. Collective; all ranks find the same mistakes or agree on
    them. Raises ConfigError, DataError, CheckpointError."""
    asking.take_outcome(question.KNOWS_OUTCOME)
    of_rows = question.rows is not None and not question.NUMBERED
    asking.weigh(False if question.weighted is None and of_rows else question.weighted)
    rows = None if question.rows is None else rows_of(asking, question.rows, question.unseen)
    notes = () if rows is None else rows.notes
    return replace(question.answer(asking, rows), of_whom=asking.of_whom, about_rows=notes)
