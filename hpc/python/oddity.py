"""`mpibayes.sklearn.Oddity`: rows that do not fit their table, and the cells that make them odd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from mpibayes.hpc.python import frames
from mpibayes.hpc.python.estimator import InProcessEstimator
from mpibayes.hpc.python.odd_rows import OddRows

if TYPE_CHECKING:
    import pyarrow as pa

FENCE = 1.5  # interquartile ranges above the upper quartile that define an outlier (Tukey 1977)


class Oddity(OutlierMixin, InProcessEstimator):  # type: ignore[misc, unused-ignore]
    """Odd rows of tables of numbers and categories with missing cells, found by a mixture, or views, of unknown size.

    A row's score is its log probability given all other rows of the fitted table: a row of that table, recognised by
    its cells, is left out when it is scored.

    Parameters
    ----------
    contamination : the share of rows of X that are odd, above 0 and at most 0.5; "auto": those whose surprisal is more
        than 1.5 interquartile ranges above the upper quartile.
    categorical : columns of categories, as indices or names, in addition to columns of text and truth values. The
        kinds of other columns of a DataFrame are inferred as by `mpibayes import`; those of an array are numbers. NaN
        is a missing cell.
    family : "mixture", one partition of the rows; "crosscat", views of the columns with a partition each; "auto":
        "crosscat" from 40 rows and 3 columns on.
    cycles, chains : length of a chain, whose first half is left out; number of independent chains.
    draws : maximal number of kept draws to average over.
    config : further keys of the configuration, {"model.concentration": 1.0}.
    directory : where the run is kept, to continue it and for `mpibayes.open`; by default in a temporary place.
    random_state : int, RandomState or None.

    Attributes
    ----------
    offset_ : rows with a lower `score_samples` are odd.
    left_out_ : {column: reason} of uninformative columns: constants, identifiers.
    n_features_in_, feature_names_in_ : as in every estimator.

    Source: docs/oddities.md, docs/math.md 2.12.
    """

    def __init__(
        self,
        *,
        contamination: float | Literal["auto"] = "auto",
        categorical: Sequence[int | str] = (),
        family: Literal["auto", "mixture", "crosscat"] = "auto",
        cycles: int = 500,
        chains: int = 1,
        draws: int = 50,
        config: Mapping[str, Any] | None = None,
        directory: Any = None,
        random_state: Any = None,
    ) -> None:
        self.contamination = contamination
        self.categorical = categorical
        self.family = family
        super().__init__(cycles, chains, draws, config, directory, random_state)

    def fit(self, X: Any, y: Any = None) -> Oddity:
        """Fit to X (n, features): a DataFrame of pandas or polars, or an array of numbers. y is ignored. Raises
        ValueError for parameters out of range, ConfigError, DataError for tables that a run rejects."""
        share = self._share()
        if self.family not in ("auto", "mixture", "crosscat"):
            raise ValueError(f"family={self.family!r}: expected 'auto', 'mixture' or 'crosscat'")
        table = self._table(X, reset=True)
        if all(len(column.drop_null().unique()) < 2 for column in table.columns):
            raise ValueError("X has no column whose cells differ, so no row can be odd")
        settings = self._settings(
            model={"family": self.family},
            run={"burn_in": self.cycles // 2},
            output={"labels": max(1, self.cycles // 2 * self.chains // max(1, self.draws))},
        )
        self.fitted_ = OddRows(table, self._kinds(table, not _is_frame(X)), settings, self.draws, self.directory)
        self.left_out_ = self.fitted_.left_out
        surprisal = self.fitted_.oddness.rows
        if share is None:
            low, high = np.quantile(surprisal, [0.25, 0.75])
            self.offset_ = float(-(high + FENCE * (high - low)))
        else:
            self.offset_ = float(np.quantile(-surprisal, share))
        return self

    def _share(self) -> float | None:
        """Contamination; None for "auto"."""
        share = self.contamination
        if isinstance(share, str) and share == "auto":
            return None
        if isinstance(share, bool) or not isinstance(share, Real) or not 0.0 < share <= 0.5:
            raise ValueError(f"contamination must be in (0, 0.5], or 'auto': it is {share!r}")
        return float(share)

    def score_samples(self, X: Any) -> np.ndarray:
        """Log probability of each row in nats, (n,), numbers per standard deviation of their column; lower is odder."""
        return -self._of(X)[0]

    def decision_function(self, X: Any) -> np.ndarray:
        """`score_samples` less `offset_`, (n,): negative for odd rows."""
        return np.asarray(self.score_samples(X) - self.offset_)

    def predict(self, X: Any) -> np.ndarray:
        """Return -1 for odd rows, +1 for others, (n,) int64."""
        return np.where(self.decision_function(X) < 0.0, -1, 1)

    def explain(self, X: Any) -> Any:
        """Oddness of each cell in nats, (n, features), as a DataFrame of the type and with the index of X: its
        surprisal given the rest of its row, -log p, minus the average in its column. Above 0: odder than average; 0 if
        the cell is missing or its column is left out."""
        _, cells = self._of(X)
        names = self._names(X)
        explained = np.column_stack([cells.get(name, np.zeros(len(X))) for name in names])
        if not _is_frame(X):
            return explained
        import pyarrow as pa

        columns = pa.table(dict(zip(names, explained.T, strict=True)))
        return frames.from_arrow(columns, frames.kind_of(X), getattr(X, "index", None))

    def _of(self, X: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        check_is_fitted(self)
        return self.fitted_.of(self._table(X, reset=False))

    # --- tables ------------------------------------------------------------------------------------------------------

    def _table(self, X: Any, reset: bool) -> pa.Table:
        """Convert the rows to an Arrow table with the names of `_names`."""
        if _is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            table = frames.to_arrow(X)
            if table.num_rows < 1 + reset:
                raise ValueError(f"X has {table.num_rows} sample(s); a minimum of {1 + reset} is required")
            return table.rename_columns(self._names(X))
        x = validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=1 + reset
        )
        return frames.to_arrow(dict(zip(self._columns(x), np.asarray(x).T, strict=True)))

    def _names(self, X: Any) -> list[str]:
        return [str(name) for name in X.columns] if _is_frame(X) else [f"x{i}" for i in range(self.n_features_in_)]

    def _kinds(self, table: pa.Table, numbers: bool) -> dict[str, str]:
        """Kinds of columns that are not inferred by the import. numbers: all columns are numbers, from an array. Raises
        ValueError for a column that does not exist."""
        kinds = {}
        if numbers:
            for name in table.column_names:
                cells = table.column(name).drop_null()
                if len(cells) and len(cells.unique()) > 1:
                    kinds[name] = "real"
        names = table.column_names
        for column in self.categorical:
            at = isinstance(column, int | np.integer)
            if column not in (range(-len(names), len(names)) if at else names):
                raise ValueError(f"categorical: X has no column {column!r}")
            kinds[names[column] if at else column] = "categorical"
        return kinds

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _is_frame(X: Any) -> bool:
    """True for a table with column names."""
    return hasattr(X, "columns") and hasattr(X, "shape")
