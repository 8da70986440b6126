"""An opened run: its properties, and how questions reach it. `Run` (run.py) has the questions."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpibayes.errors import ChainsDisagree, ConfigError, MpibayesWarning
from mpibayes.hpc.posterior.chains import family_in, home_of, of_pairs
from mpibayes.hpc.python.ask import ask_ranks
from mpibayes.hpc.python.frames import as_kind, from_arrow
from mpibayes.hpc.python.index import kept_index
from mpibayes.hpc.python.result import Result
from mpibayes.hpc.python.rows import Handed, folder_for_files, handed, in_words_of_python, nowhere, placed
from mpibayes.hpc.query.asking import RunAt
from mpibayes.hpc.query.average import FEW
from mpibayes.hpc.query.question import ask
from mpibayes.hpc.report.advice import disagreement
from mpibayes.hpc.run.grown import place_of
from mpibayes.hpc.run.identity import GROWN, read_provenance
from mpibayes.hpc.run.status import read_status
from mpibayes.io.files import chain_directories
from mpibayes.text import counted

if TYPE_CHECKING:
    from mpibayes.hpc.query.answer import Answer
    from mpibayes.hpc.query.asking import Asking
    from mpibayes.hpc.query.question import Question

Place = str | os.PathLike[str]


class Opened:
    """One run directory, or several of one posterior. Posterior and table are read on first use."""

    def __init__(
        self, directory: Place | Sequence[Place], *, draws: int | None = None, burn_in: int | None = None,
        table: Place | None = None, frames: str = "pyarrow",
    ) -> None:  # fmt: skip
        several = [directory] if isinstance(directory, str | os.PathLike) else list(directory)
        if not several:
            raise ConfigError("no run directory was given; expected one or more")
        self.directories = [Path(place).expanduser() for place in several]
        self._draws, self._burn_in = draws, burn_in
        self._table = None if table is None else Path(table).expanduser()
        self._kind, self._said = as_kind(frames), False
        with in_words_of_python():
            self.family = family_in(self.directories[0])
            self._growths = self._grown()

    def __reduce__(self) -> tuple[Any, ...]:
        options: dict[str, Any] = {"draws": self._draws, "burn_in": self._burn_in, "table": self._table}
        return partial(type(self), frames=self._kind, **options), (self.directories,)

    @property
    def _at(self) -> RunAt:
        return RunAt(tuple(self.directories), self._draws, self._burn_in, self._table)

    @property
    def directory(self) -> Path:
        """Directory of the run, or of the first of several."""
        return self.directories[0]

    def __repr__(self) -> str:
        where = ", ".join(map(str, self.directories))
        chains = sum(len(chain_directories(directory)) for directory in self.directories)
        about = [self.family, counted(chains, "chain"), *{str(s.get("state", "unknown")) for s in self.status}]
        cycles = [s["cycle"] for s in self.status if s.get("cycle") is not None]
        about += [counted(max(cycles), "cycle")] if cycles else []
        return f"<mpibayes run {where}: {', '.join(about)}>"

    @property
    def status(self) -> list[dict[str, Any]]:
        """status.json of each chain that has started (docs/files.md)."""
        statuses = []
        for directory in self.directories:
            for place in chain_directories(directory):
                if (place / "status.json").exists():
                    statuses.append(read_status(place))
        return statuses

    @property
    def columns(self) -> dict[str, str]:
        """Modelled columns of the table, each with its kind: categorical, boolean, real or count."""
        return {c.name: c.kind for c in self._posterior.data.stored}

    def _grown(self) -> list[int]:
        """Number of times that rows were added to each run."""
        return [len(read_provenance(home_of(directory)).get(GROWN, ())) for directory in self.directories]

    def _require_as_opened(self) -> None:
        """Raise ConfigError if rows were added to a run since it was opened: the posterior has changed."""
        for directory, before, now in zip(self.directories, self._growths, self._grown()):
            if now != before:
                raise ConfigError(
                    f"{directory}: rows were appended to this run since it was opened; open it again, or the run as it "
                    f"was, {place_of(home_of(directory), before + 1)}"
                )

    @property
    def _posterior(self) -> Any:
        self._require_as_opened()
        return self._kept_asking.run if "_kept_asking" in self.__dict__ else self._kept_posterior

    @property
    def _asking(self) -> Asking:
        self._require_as_opened()
        return self._kept_asking

    @cached_property
    def _kept_posterior(self) -> Any:
        from mpibayes.hpc.registry import posterior_of

        with in_words_of_python():
            return posterior_of(self.family)(self.directories, self._burn_in, self._table)

    @cached_property
    def _kept_asking(self) -> Asking:
        with in_words_of_python():
            return self._at.open()

    @cached_property
    def _index(self) -> Any:
        """Index of the pandas DataFrame that the run was made from; None if there was none."""
        return kept_index(self.directory, self._posterior.table)

    def _result(self, answer: Answer) -> Result:
        """Wrap an answer about the run; if it names rows of the table, its pandas frame has their index."""
        return Result(answer, self._kind, lambda: self._index)

    # --- how it is asked ----------------------------------------------------------------------------------------------

    def _handed(self, rows: Any) -> Handed | None:
        return None if rows is None else handed(rows, self._kind)

    def _answer(self, question: Question, ranks: int = 1) -> Answer:
        """Answer a question in this process, or on ranks, and issue its warnings."""
        if not isinstance(ranks, int) or ranks < 1:
            raise ConfigError(f"ranks = {ranks!r}: expected a whole number, 1 or more")
        asking, pictured = self._asking, False
        with in_words_of_python(), placed(question) as asked:
            if ranks == 1:
                answer = ask(asked, asking)
            else:
                answer, pictured = ask_ranks(asked, self._at, ranks)
        if pictured:
            answer.picture = lambda: self._drawn_here(question)
        notes, effective = list(answer.about_rows), answer.columns.get("draws")
        if effective is not None and asking.averages.n_draws > FEW and (effective < FEW).any():
            rows_of = "" if len(effective) == 1 else f" in {counted(int((effective < FEW).sum()), 'row')}"
            notes.append(f"what is given fits fewer than {FEW:.0f} draws{rows_of}: errors are too small there")
        for note in notes:
            warn(note)
        self._say_once()
        return answer

    def _drawn_here(self, question: Question) -> Any:
        """Draw the picture of a question answered by ranks: it is asked again in this process."""
        with in_words_of_python(), placed(question) as asked:
            answer = ask(asked, self._asking)
        return answer.picture and answer.picture()

    def _say_once(self) -> None:
        """Warn, with the first answer, if the chains contradict each other."""
        if not self._said:
            self._said = True
            if self._posterior.contradicted():
                warn(disagreement(self._posterior.chains), ChainsDisagree)

    def _ask(self, question: Question, ranks: int = 1) -> Any:
        """Return a Result, or, for rows that were passed in, a DataFrame of their type."""
        from mpibayes.hpc.query.answer import as_table

        answer, given = self._answer(question, ranks), self._handed(question.rows)
        if given is None:
            return self._result(answer)
        numbers = answer.columns.get("row")
        return from_arrow(as_table(answer), given.kind, None if numbers is None else given.places(numbers))

    def _copied(self, rows: Any, copies: int, long: bool, seed: int, unseen: str, calibrate: bool) -> Any:
        """Completed copies as DataFrames of the type of the rows; for the table's own rows, with its index."""
        from mpibayes.hpc.python.copies import copies_of

        handed = self._handed(rows)
        of_run = self._burn_in, self._table
        tables, notes = copies_of(self.directories, handed, copies, long, seed, unseen, *of_run, calibrate)
        for note in notes:
            warn(note)
        self._say_once()
        kind, index = (self._kind, self._index) if handed is None else (handed.kind, handed.index)
        if long:
            return from_arrow(tables[0], kind)
        return [from_arrow(table, kind, index) for table in tables]

    def _predicted(self, rows: Any, unseen: str, complete: bool = False, **more: Any) -> Any:
        import pyarrow.csv
        import pyarrow.parquet

        from mpibayes.hpc.results.predict import predict

        given, pairs = handed(rows, self._kind), of_pairs(self.directories[0])
        with folder_for_files() as folder, given.file(pairs) as source:
            end = source.suffix if complete and source.suffix in (".csv", ".parquet") else ".parquet"
            out = folder / f"out{end}"
            target: dict[str, Any] = {"complete": out} if complete else {"out": out}
            done = predict(
                self.directories, source, **target, **more, unseen=unseen, draws=self._draws, burn_in=self._burn_in,
                table=self._table, console=nowhere(),
            )  # fmt: skip
            read = pyarrow.csv.read_csv if end == ".csv" else pyarrow.parquet.read_table
            frame = from_arrow(read(out), given.kind, None if pairs else given.index)
            for note in done.notes:
                warnings.warn(note.replace(str(source), given.name), MpibayesWarning, stacklevel=4)
        return frame


def warn(text: str, category: type[MpibayesWarning] = MpibayesWarning) -> None:
    """Warn at the caller's line, outside this package."""
    ours, level, frame = str(Path(__file__).parent), 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
