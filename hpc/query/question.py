"""A question as data: made by the command line of its options, by Python of arguments; ranks get it as it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from mpibayes.hpc.query.answer import Answer
    from mpibayes.hpc.query.asking import Asking
    from mpibayes.hpc.query.new_rows import NewRows


@dataclass(frozen=True, eq=False, kw_only=True)
class Question(ABC):
    """A question to the kept draws of a run; `ask` answers it.

    rows: those it is about, a `new_rows.Source`, or None. unseen: what a level of these is that the run's table does
    not have, "missing" or an "error". weighted: whether the answer is of the population, see `Asking.weigh`; None: if
    the question names no rows.
    """

    rows: Any = None
    unseen: str = "missing"
    weighted: bool | None = False
    FROM: ClassVar[tuple[str, ...]] = ("rows",)  # fields that are rows
    NUMBERED: ClassVar[bool] = False  # whether these may be numbers of rows of the table

    @property
    def pictured(self) -> bool:
        """True if the answer has a picture."""
        return False

    @property
    def weigh(self) -> bool | None:
        """The weights that count, as `Asking.weigh` takes them."""
        return False if self.weighted is None and self.rows is not None else self.weighted

    @property
    def reads(self) -> Sequence[Path]:
        """Files that are read."""
        given = (getattr(self, name) for name in self.FROM)
        return [Path(rows.removeprefix("@")) if isinstance(rows, str) else rows for rows in given if rows is not None]

    @abstractmethod
    def answer(self, asking: Asking, rows: NewRows | None = None) -> Answer:
        """The answer of an opened run. rows: `self.rows`, read. Collective. Raises ConfigError, DataError."""
