"""`mpibayes.open`: open a run's directory for questions: those of `mpibayes query`, answered by the same functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.python.frames import from_arrow
from mpibayes.hpc.python.opened import Place, warn
from mpibayes.hpc.python.result import Result
from mpibayes.hpc.python.rows import Given, conditions, folder_for_files, handed, in_words_of_python, names, numbers_of
from mpibayes.hpc.python.synthetic import Synthesizer
from mpibayes.hpc.query.compare import Compare
from mpibayes.hpc.query.conditional import Conditional, Impute
from mpibayes.hpc.query.dependence import Dependence
from mpibayes.hpc.query.logp import Logp
from mpibayes.hpc.query.predictors import Predictors
from mpibayes.hpc.query.similarity import Similarity
from mpibayes.hpc.query.simulate import Simulate
from mpibayes.hpc.query.surprisal import Novelty, Surprisal
from mpibayes.hpc.synthetic.pairs import Pairs

if TYPE_CHECKING:
    from mpibayes.hpc.python.report import Report

Names = Sequence[str] | str | None


def open_run(
    directory: Place | Sequence[Place], *, draws: int | None = None, burn_in: int | None = None,
    table: Place | None = None, frames: str = "pyarrow",
) -> Run:  # fmt: skip
    """Open a run, or several of one posterior, for questions.

    directory: of a run (the -o of `mpibayes run`), or several. draws: maximal number of kept draws to average over (by
    default 100, for a regression 200). burn_in: cycles left out, by default run.burn_in. table: current path of the
    run's table, if it has been moved. frames: type of tables in answers that are not about a given table: "pandas",
    "polars" or "pyarrow". Raises ConfigError if there is no run.
    """
    return Run(directory, draws=draws, burn_in=burn_in, table=table, frames=frames)


class Run(Synthesizer):
    """A run of `mpibayes`, opened for questions; it is read on demand, and never changed.

    Answers are averages over kept draws, each with its Monte Carlo error (docs/query.md explains the numbers). A
    question about rows that are passed in is answered by a DataFrame of their type, keeping a pandas index; a question
    about the run itself by a `Result`, which prints itself, and has a `.frame` and, if there is a picture, a `.plot()`.

    `rows`, for questions that take them: a DataFrame of pandas or polars, a pyarrow Table, anything else with
    __arrow_c_stream__, a dict of columns, or the path of a file; with any number of rows; columns are matched by name,
    and absent columns are missing. Rows are numbered from 1, as in the table. `unseen`: treatment of a level unknown to
    the table, "missing" (with a warning) or "error".

    `given`, `of`: {"age": 40, "job": ["clerk", "nurse"], "income": (1000, None)}: a value, one of several levels, a
    range including both ends; or texts as on the command line, "age=40..50"; with `rows` also names of columns, whose
    cells are then used.

    `weighted`, for questions that take it: True if the answer is about the population that the survey weights of the
    table represent, False about the rows as they are. By default True, if the table has weights and no `rows` are
    given.

    `ranks`, for questions that take them: processes that share a long one, started under mpirun on this machine; the
    answer has the same bits.

    Every question raises ConfigError, with the reason, if this run cannot answer it, and DataError for rows that cannot
    be read.
    """

    # --- what there is -----------------------------------------------------------------------------------------------

    @cached_property
    def _clusters(self) -> Any:
        return self._clusters_with(None)

    def _clusters_with(self, groups: int | None) -> Any:
        with in_words_of_python():
            return self._exports().clusters(self._posterior, groups)

    def _exports(self) -> Any:
        from mpibayes.hpc.registry import exports_of

        door = exports_of(self.family)
        if "clusters" not in door.FORMS:
            raise ConfigError(f"{self.directory}: a model without clusters ({self.family})")
        return door

    @property
    def labels(self) -> np.ndarray:
        """Cluster of each row of the table, int64 (rows,), numbered from 1 as in the report, including held-out rows;
        with several views (rows, views). `clusters` gives their probabilities. Raises ConfigError if there are none."""
        labels = np.column_stack([view.cluster for view in self._clusters.views])
        return labels[:, 0] if labels.shape[1] == 1 else labels

    def clusters(self, rows: Any = None, *, groups: int | None = None, unseen: str = "missing") -> Any:
        """Cluster of every row of the table, in order, in the representative partition: a Result.

        Columns: `row`, from 1; `cluster` and its `probability`, with several views cluster_1, probability_1 and so on;
        `held_out`: rows that the run was not trained on, whose cluster is the most probable one given the draws. The
        frame has the index of the DataFrame that the run was made from, so that `frame["cluster"] =
        run.clusters().frame["cluster"]` is right. groups: add `group` beside `cluster`, one of so many groups of
        clusters, as in the report; a view without such a level has none. For other `rows`, the same as a DataFrame of
        their type, with their index.
        """
        from mpibayes.hpc.query.answer import Answer

        if rows is not None:
            return self._clusters_of(rows, unseen, groups)
        clusters = self._clusters if groups is None else self._clusters_with(groups)
        self._say_once()
        columns = clusters.columns()
        columns = {"row": np.arange(1, 1 + len(columns["held_out"])), **columns}
        return self._result(Answer("Clusters of the rows of the table", columns, [clusters.about]))

    def _clusters_of(self, rows: Any, unseen: str, groups: int | None) -> Any:
        import pyarrow as pa

        from mpibayes.io.recode import incoming

        door, run, given = self._exports(), self._posterior, handed(rows, self._kind)
        with in_words_of_python(), given.file() as source:
            like = run.table.having(run.data.stored)
            recorded, _, notes = incoming(like, source, unseen, {c.name for c in like.columns})
            parts = list(door.clusters_of(run, recorded, self._draws, groups))
        for note in notes:
            warn(note.replace(str(source), given.name))
        self._say_once()
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        row = np.arange(1, 1 + len(next(iter(columns.values()))))
        return from_arrow(pa.table({"row": row, **columns}), given.kind, given.index)

    @property
    def trace(self) -> Any:
        """DataFrame of the run's type: a line per cycle, including burn-in, and a column per scalar; `chain` first if
        there are several, seconds last."""
        import pyarrow.csv

        from mpibayes.hpc.results.export import export

        with folder_for_files() as folder:
            place = folder / "trace.csv"
            export(self.directories, "csv", place)
            return from_arrow(pyarrow.csv.read_csv(place), self._kind)

    def report(self, *, against: Run | Sequence[Run] = (), weighted: bool | None = None) -> Report:
        """Tables and pictures of the posterior, as made by `mpibayes report`; .save() writes them.

        against: other runs on the same table. The report then compares them: the paired difference of held-out scores
        with its standard error, and the findings unique to each run; `document` has the numbers. weighted: True if
        clusters also get shares of the population, by default if the table has weights. Raises ConfigError if the
        `report` extra is not installed, DataError for runs on other tables.
        """
        from mpibayes.hpc.python.report import comparison, report

        runs = [self, *([against] if isinstance(against, Run) else against)]
        with in_words_of_python():
            posteriors = [run._posterior for run in runs]
            if len(runs) > 1:
                return comparison([run.directories for run in runs], posteriors, weighted)
            return report(posteriors[0], self.directory, weighted)

    def summary(self) -> str:
        """Text of the report."""
        return self.report().text

    def to_arviz(self) -> Any:
        """Draws of all chains for ArviZ, in memory, with burn-in in separate groups. Raises ConfigError if the `report`
        extra is not installed."""
        from mpibayes.hpc.report.drawing import require_extra
        from mpibayes.hpc.results.export import export

        require_extra("arviz")
        import arviz

        with folder_for_files() as folder:
            place = folder / "trace.h5"
            done = export(self.directories, "arviz", place, self._burn_in, table=self._table)
            for note in done.notes:
                warn(note)
            draws = arviz.from_netcdf(str(place), engine="h5netcdf")
            draws.load()
            draws.close()
            return draws

    # --- questions ---------------------------------------------------------------------------------------------------

    def logp(
        self, rows: Any = None, *, of: Given = None, given: Given = None, unseen: str = "missing",
        weighted: bool | None = None, ranks: int = 1,
    ) -> Any:  # fmt: skip
        """log p(of | given) in nats, with its error: of each of `rows`, or of one described row.

        For `rows`, all columns are targets if `of` names none; if it does, the remaining columns are given, unless
        `given` names some. Columns: log_p, log_p_error, p, p_error (not for densities), draws: the effective number. A
        density is per unit of its column. Returns a DataFrame (n, ...) for rows, else a Result of one line.
        """
        question = Logp(conditions(of), conditions(given), rows=rows, unseen=unseen, weighted=weighted)
        return self._ask(question, ranks)

    def conditional(
        self, column: str, rows: Any = None, *, given: Given = None, unseen: str = "missing",
        weighted: bool | None = None, ranks: int = 1,
    ) -> Any:  # fmt: skip
        """Distribution of a column given others: a Result with .plot(), or for `rows` a DataFrame: the most probable
        level, its probability and those of all levels, or quantiles of a number."""
        return self._ask(Conditional(column, conditions(given), rows=rows, unseen=unseen, weighted=weighted), ranks)

    def simulate(
        self, n: int = 10, *, given: Given = None, columns: Names = None, seed: int = 1, rows: Any = None,
        unseen: str = "missing", weighted: bool | None = None, ranks: int = 1,
    ) -> Any:  # fmt: skip
        """DataFrame of n rows drawn from the posterior predictive distribution with the given values; or `rows` with
        their missing cells drawn, given the rest. The same seed gives the same rows; fewer rows are the first of
        more."""
        from mpibayes.hpc.python.typed import typed

        question = Simulate(n, conditions(given), names(columns), seed, rows=rows, unseen=unseen, weighted=weighted)
        table = typed(self._answer(question, ranks).columns, self._asking.columns)
        new = self._handed(rows)
        return from_arrow(table, self._kind) if new is None else from_arrow(table, new.kind, new.index)

    def impute(self, rows: Any, *, of: Names = None, unseen: str = "missing", ranks: int = 1) -> Any:
        """Missing cells of `rows`, each given the other cells of its row: a DataFrame with a line per cell.

        Columns: row, column, value (text), p and p_error (of a level, or an atom), low and high (10 and 90 % of a
        number, whose value is the median), draws. `of`: the columns to impute. For analyses use `complete`.
        """
        return self._ask(Impute(names(of), rows=rows, unseen=unseen), ranks)

    def complete(
        self, rows: Any = None, *, copies: int | None = None, long: bool = False, calibrate: bool = False,
        seed: int = 1, unseen: str = "missing",
    ) -> Any:  # fmt: skip
        """The run's table, or other `rows`, with their gaps filled.

        copies: for multiple imputation, a list of so many DataFrames, as written by `mpibayes complete`: cells are
        drawn, each copy from its own kept draw. Analyse each, and pool the results with `mpibayes.pool`. long: one
        DataFrame with the rows as they are (.imp = 0) followed by all copies, with the columns .imp and .id (the row,
        from 1). calibrate: fit the drawn levels to the observed cells of rows with about as many gaps.

        Without copies, a prediction of each missing cell of `rows`, and the certainty of each row: `predict
        --complete`."""
        if copies is not None:
            return self._copied(rows, copies, long, seed, unseen, calibrate)
        if rows is None or long or calibrate:
            raise ConfigError("complete: say how many copies to draw, or name the rows whose gaps to predict")
        return self._predicted(rows, unseen, complete=True)

    def predict(
        self, rows: Any, *, probabilities: bool = False, impute: bool = False, groups: int | None = None,
        unseen: str = "missing",
    ) -> Any:  # fmt: skip
        """Predict `rows`, a DataFrame (n, ...): for a mixture log_density, the cluster (0: a new one) and its
        probability; for a regression class probabilities, or mean, sd and quantiles of the response.

        probabilities: add a column for each cluster. impute: add the missing cells, with a measure of their certainty.
        groups: add the group of each row, of so many groups of clusters, and its probability.
        """
        return self._predicted(rows, unseen, probabilities=probabilities, impute=impute, groups=groups)

    def surprisal(
        self, rows: Any = None, *, by: Literal["cells", "rows"] = "cells", columns: Names = None, top: int = 20,
        most: int = 20_000, unseen: str = "missing", ranks: int = 1,
    ) -> Any:  # fmt: skip
        """The `top` most surprising cells, given the rest of their row, or rows, in nats: of the training table, each
        row left out of its own prediction (a Result; about `most` rows are examined), or of `rows`."""
        return self._ask(Surprisal(names(columns), by, top, most, rows=rows, unseen=unseen), ranks)

    def novelty(self, rows: Any, *, columns: Names = None, unseen: str = "missing", ranks: int = 1) -> Any:
        """Novelty of each of `rows` relative to the training rows, the most novel first: `novelty`, the share of
        training rows that are less surprising; surprisal in nats; p_new, the probability of a new cluster in some
        view."""
        return self._ask(Novelty(names(columns), rows=rows, unseen=unseen), ranks)

    def similarity(
        self, row: int | None = None, *, like: Given = None, columns: Names = None, top: int = 10,
        to: Sequence[int] = (),
    ) -> Result:  # fmt: skip
        """Training rows most likely to share a cluster with a row of the table, given by number from 1, or with one
        described by `like`; or only the rows `to`. columns: those whose views count."""
        return self._result(self._answer(Similarity(row, conditions(like), names(columns), top, list(to))))

    def dependence(self, columns: Names = None, *, weighted: bool | None = None, ranks: int = 1) -> Result:
        """Dependence between columns: mutual information of each pair in nats, and the share of draws in which the two
        share a view. Its .plot() is a heat map."""
        return Result(self._answer(Dependence(names(columns), weighted=weighted), ranks), self._kind)

    def pairs(self, columns: Names = None, *, ranks: int = 1) -> Result:
        """Pairs of columns, ranked by how much weaker their dependence is in rows drawn by the run than in the table:
        mutual information in both, in nats, and the share of draws that have as much (`synthetic/pairs.py`)."""
        return Result(self._answer(Pairs(names(columns)), ranks), self._kind)

    def predictors(
        self, column: str, columns: Names = None, *, size: int | None = None, weighted: bool | None = None,
        ranks: int = 1,
    ) -> Result:  # fmt: skip
        """Best predictors of a column, each by itself: mutual information in nats, its error, and its share of the
        column's entropy. size: the best set of up to so many columns together."""
        return Result(self._answer(Predictors(column, names(columns), size=size, weighted=weighted), ranks), self._kind)

    def compare(
        self, group: Given = None, against: Given = None, *, rows: Any = None, against_rows: Any = None,
        cluster_group: int | None = None, groups: int | None = None, view: int = 1, other: Run | None = None,
        columns: Names = None, top: int = 20, unseen: str = "missing", weighted: bool | None = None, ranks: int = 1,
    ) -> Result:  # fmt: skip
        """Compare two groups of rows: columns by the divergence of their distributions in nats, its error, and where
        most of it lies; with a .plot(). The groups are described, {"sex": "Female"} and {"sex": "Male"}; or are two
        DataFrames or files, or rows of the table by numbers from 1, [1, 5, *range(7, 21)], against all others if
        `against_rows` is not given; or a group of clusters, numbered as in the report, of `groups` (by default those
        shown first) in a view, against all others; or the tables of this run and another one."""
        listed = numbers_of(rows)
        ways = [group is not None or against is not None, rows is not None or against_rows is not None]
        if sum([*ways, cluster_group is not None, other is not None]) != 1 or (
            ways[1] and (rows is None or (against_rows is None and listed is None))
        ):
            raise ConfigError(
                "say what is compared, in one way: group and against, or rows and against_rows, or cluster_group, or "
                "another run"
            )
        if weighted is None and rows is not None and listed is None:
            weighted = False
        question = Compare(
            conditions(group), conditions(against), against_rows, cluster_group, groups, view,
            None if other is None else other._at, names(columns), top, rows=rows, unseen=unseen, weighted=weighted,
        )  # fmt: skip
        return Result(self._answer(question, ranks), self._kind)
