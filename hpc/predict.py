"""`mpibayes predict`: log density, clusters and missing cells of new rows, averaged over kept draws.

Of draw d, with its clusters k (MATH 2.5), p_d(x) = sum_k p_d(x, k): w_dk f(x | rows of k) for each cluster and for a
new one, over the observed cells of x. Averages weigh the draws as the posterior does once x is known, by p_d(x):

    log_density  log of mean_d p_d(x)
    P(c | x)     sum_d p_d(x) P_d(c | x) / sum_d p_d(x)        P_d(r | x) = sum_k p_d(k | x) n_rk / n_k
    P(v | x)     sum_d sum_k p_d(x, k) f(v | rows of k) / sum_d p_d(x)

Clusters c are those of the representative partition r (as in `report`), or a new one. n_rk of the n_k training rows
in cluster k of the draw are in cluster r of the representative partition, so how a draw numbers its clusters does not
matter.

The statistics of all draws are built once; new rows then stream through in batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.hpc import summary
from mpibayes.hpc.errors import ConfigError
from mpibayes.hpc.kept_draws import KeptRun, evenly, hyper_of
from mpibayes.hpc.models import normal as normal_model
from mpibayes.hpc.models.components import Prior
from mpibayes.hpc.report import Representative, representative
from mpibayes.io.files import reason, replacing
from mpibayes.io.table import Rows, Table

DRAWS = 50
BATCH_CELLS = 4_000_000  # rows of a batch times clusters, so that a batch takes some tens of MiB
FORMS = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True)
class Predicted:
    """What a prediction wrote, and what the user should know."""

    path: Path
    n_rows: int
    n_draws: int
    log_density: float  # mean over the rows
    notes: tuple[str, ...] = ()


def predict(
    run_dir: str | Path,
    source: str | Path,
    out: str | Path,
    *,
    unseen: str = "error",
    draws: int | None = None,
    burn_in: int | None = None,
    table: str | Path | None = None,
    probabilities: bool = False,
    impute: bool = False,
    overwrite: bool = False,
    batch_rows: int | None = None,
    console: Any = None,
) -> Predicted:
    """Score the rows of `source` (CSV, Parquet or typed table) under the kept draws of all chains; write CSV or
    Parquet to `out`.

    Columns written: row (from 1), log_density, log_density_sd (over draws), cluster (number in the report, 0 = a new
    one), p_cluster, p_new; with `probabilities` p_1 ... p_R; with `impute` imputed_<name> and imputed_<name>_p
    (categorical: most probable level and its probability) or imputed_<name>_sd (mean and standard deviation) of every
    modelled column, empty where the cell was observed. draws: at most so many, evenly spaced (DRAWS). unseen: "error"
    or "missing". Raises ConfigError, DataError, CheckpointError.
    """
    from rich.console import Console

    from mpibayes.io.recode import stream_like, unseen_message

    console = console or Console(stderr=True)
    out = Path(out)
    _check_target(out, overwrite)
    if draws is not None and draws < 1:
        raise ConfigError(f"draws = {draws}: expected a whole number, 1 or more")
    run = KeptRun([run_dir], burn_in, table)
    if not run.likelihood:
        raise ConfigError(f"{run_dir}: sampled the prior (model.likelihood = false), which says nothing about new rows")
    kept = run.kept()
    if not kept:
        raise ConfigError(
            f"{run_dir}: no draw of the labels was kept after burn-in; let the run go on, give a smaller --burn-in, "
            "or lower output.labels"
        )
    like = Table(
        run.table.path, run.table.n_rows, run.columns, run.table.fingerprint, run.table.source
    )  # the used columns alone
    record: dict = {}
    rows = stream_like(like, source, unseen=unseen, record=record, **({"batch_rows": batch_rows} if batch_rows else {}))
    first = next(rows, None)  # mistakes in the new file are told before the long work
    predictor = Predictor(run, evenly(kept, draws or DRAWS), representative(run, kept), impute)
    console.print(
        f"{predictor.n_draws} of {len(kept)} kept draws, {len(predictor.representative.sizes)} clusters (cycle "
        f"{predictor.representative.cycle}); their statistics take {predictor.n_bytes / 2**20:,.1f} MiB",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    n_rows, total = 0, 0.0
    with _writer(out) as write:
        for block in _chain(first, rows):
            for start in range(0, len(block), predictor.batch):
                batch = block.take(slice(start, start + predictor.batch))
                result = predictor(batch)
                write(_columns(predictor, batch, result, n_rows, probabilities))
                n_rows += len(batch)
                total += float(result.log_density.sum())
    notes = (unseen_message(record, source),) if record else ()
    for note in notes:
        console.print(f"note: {note}", highlight=False, soft_wrap=True, markup=False)
    console.print(
        f"{n_rows:,} rows written to {out}; mean log density {total / n_rows:,.4f} nats a row",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )
    return Predicted(out, n_rows, predictor.n_draws, total / n_rows, notes)


def _chain(first: Rows | None, rest: Iterator[Rows]) -> Iterator[Rows]:
    if first is not None:
        yield first
    yield from rest


# --- the average over draws -------------------------------------------------------------------------------------------


@dataclass
class Imputed:
    """Missing cells of one column: `rows` (m,) where they are, `value` (m,) level code or mean, `spread` (m,)
    probability or sd."""

    rows: np.ndarray
    value: np.ndarray
    spread: np.ndarray


@dataclass
class Result:
    """Of n rows: log_density, log_density_sd, p_new (n,), p (n, R) probability of each representative cluster; see
    the module."""

    log_density: np.ndarray
    log_density_sd: np.ndarray
    p_new: np.ndarray
    p: np.ndarray
    imputed: dict[str, Imputed]


@dataclass
class _DrawModel:
    """One draw: its collapsed clusters, and what imputation needs of them, the new cluster last (K + 1)."""

    tail: Any
    membership: np.ndarray  # (K, R) float32, n_rk / n_k
    theta: np.ndarray | None  # (L, K + 1) float32 predictive level probabilities
    moments: dict[
        str, tuple[np.ndarray, np.ndarray]
    ]  # real and count columns: means and second moments about `centre`, (K + 1,)


class Predictor:
    """Averages over some kept draws; call it with Rows of the run's used columns.

    `wanted`: (chain, cycle) of the draws. `impute`: whether missing cells are predicted.
    """

    def __init__(
        self, run: KeptRun, wanted: Sequence[tuple[int, int]], representative: Representative, impute: bool = False
    ):
        from mpibayes.hpc.heldout import collapsed_clusters

        self.columns, self.components, self.representative, self.impute = (
            run.columns,
            run.components,
            representative,
            impute,
        )
        self.categorical = self.components.categorical_columns
        drawn = [
            (hyper_of(d), d.labels.astype(np.min_scalar_type(int(d.labels.max())))) for _, d in run.draws(wanted)
        ]  # labels in as few bytes as they need: the table is read once for all draws
        self.models: list[_DrawModel] = []
        for (hyper, z), s in zip(drawn, run.statistics([z for _, z in drawn]), strict=True):
            prior = self.components.prior(hyper)
            together = summary.contingency(representative.labels, z.astype(np.int64))
            membership = np.ascontiguousarray((together / together.sum(axis=0)).T, np.float32)
            theta, moments = (self._levels(prior, s), self._moments(prior, s)) if impute else (None, {})
            self.models.append(_DrawModel(collapsed_clusters(s, hyper, prior), membership, theta, moments))
        self.n_draws = len(self.models)
        most = max(m.tail.n_slots for m in self.models) + len(representative.sizes)
        self.batch = max(256, BATCH_CELLS // (most + 1))

    @property
    def n_bytes(self) -> int:
        """Memory of all draws' statistics."""
        total = 0
        for m in self.models:
            total += m.membership.nbytes + (0 if m.theta is None else m.theta.nbytes)
            total += (
                m.tail.n_slots * 4 * 3 * int(self.components.categorical.offsets[-1])
            )  # counts and their logarithms
        return total

    def _levels(self, prior: Prior, s) -> np.ndarray:
        k = len(s)
        theta = np.zeros((prior.offsets[-1], k + 1), np.float32)
        for c in range(len(self.categorical)):
            rows = slice(prior.offsets[c], prior.offsets[c + 1] - 1)
            count = np.repeat(prior.dirichlet[rows, None], k + 1, axis=1)
            count[:, :k] += s.levels[rows]
            theta[rows] = count / count.sum(axis=0)
        return theta

    def _moments(self, prior: Prior, s) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Means and mean squares of x - center (the column's own mean, which keeps digits), new cluster last."""
        moments = {}
        none = np.zeros(1)
        for r, column in enumerate(self.components.real_columns):
            n, mean, scatter = (np.append(a[r], none) for a in (s.real_n, s.real_mean, s.real_scatter))
            location, kappa, nu, spread = (
                a[0] for a in normal_model.posterior(prior.normal[r : r + 1], n[None], mean[None], scatter[None])
            )
            # a t with nu <= 2 has no variance: it then counts with that of nu = 3
            variance = (
                spread / nu * (1.0 + 1.0 / kappa) * np.where(nu > 2.0, nu / np.where(nu > 2.0, nu - 2.0, 1.0), 3.0)
            )
            shift = location - column.center
            moments[column.name] = shift, variance + shift**2
        for q, column in enumerate(self.components.count_columns):
            a = prior.gamma[q, 0] + np.append(s.tally_sum[q], 0.0)
            b = prior.gamma[q, 1] + np.append(s.tally_n[q], 0)
            mean = a / b
            shift = mean - column.center
            moments[column.name] = shift, mean * (1.0 + 1.0 / b) + shift**2
        return moments

    def __call__(self, rows: Rows) -> Result:
        from mpibayes.kernels import mixture as kernels

        n, n_clusters = len(rows), len(self.representative.sizes)
        holes = self._holes(rows) if self.impute else {}
        sums = {"p": np.zeros((n, n_clusters)), "new": np.zeros(n), "total": np.zeros(n)}
        cells = {name: np.zeros((len(at), self._width(name))) for name, at in holes.items()}
        largest = np.full(n, -np.inf)  # running maximum of log p_d(x): sums are kept relative to it
        log_density = np.empty((self.n_draws, n))
        for d, model in enumerate(self.models):
            terms = kernels.log_predictive_clusters(rows, model.tail)
            top = terms.max(axis=1)
            weight = np.exp(terms - top[:, None])
            total = weight.sum(axis=1)
            log_density[d] = top + np.log(total)
            weight /= total[:, None]
            above = np.maximum(largest, log_density[d])
            fade, gain = np.exp(largest - above), np.exp(log_density[d] - above)
            largest = above
            weight *= gain[:, None]
            k = len(model.membership)
            for part, add in (("p", weight[:, :k] @ model.membership), ("new", weight[:, -1]), ("total", gain)):
                sums[part] *= fade if sums[part].ndim == 1 else fade[:, None]
                sums[part] += add
            for name, at in holes.items():
                cells[name] *= fade[at, None]
                cells[name] += self._predict_cells(model, name, weight[at])
        total = sums["total"]
        spread = log_density.std(axis=0, ddof=1) if self.n_draws > 1 else np.full(n, np.nan)
        imputed = {name: self._imputed(name, at, cells[name] / total[at, None]) for name, at in holes.items()}
        return Result(
            largest + np.log(total / self.n_draws), spread, sums["new"] / total, sums["p"] / total[:, None], imputed
        )

    def _holes(self, rows: Rows) -> dict[str, np.ndarray]:
        """Rows with a missing cell, by column; columns without any are left out."""
        holes = {}
        for c in self.columns:
            x = getattr(rows, c.block)[:, c.index]
            at = np.flatnonzero(np.isnan(x) if c.block in ("reals", "tallies") else x == len(c.levels))
            if len(at):
                holes[c.name] = at
        return holes

    def _width(self, name: str) -> int:
        column = next(c for c in self.columns if c.name == name)
        return len(column.levels) or 2

    def _predict_cells(self, model: _DrawModel, name: str, weight: np.ndarray) -> np.ndarray:
        """Weighted sums over the clusters of level probabilities (m, V), or of the two moments (m, 2)."""
        if name in model.moments:
            return weight @ np.column_stack(model.moments[name])
        c = next(i for i, column in enumerate(self.categorical) if column.name == name)
        offsets = self.components.categorical.offsets
        return weight @ model.theta[offsets[c] : offsets[c + 1] - 1].T

    def _imputed(self, name: str, at: np.ndarray, average: np.ndarray) -> Imputed:
        column = next(c for c in self.columns if c.name == name)
        if column.levels:
            best = average.argmax(axis=1)
            return Imputed(at, best, average[np.arange(len(at)), best])
        mean, square = average.T
        return Imputed(at, mean + column.center, np.sqrt(np.maximum(square - mean**2, 0.0)))


# --- writing ----------------------------------------------------------------------------------------------------------


def _columns(predictor: Predictor, rows: Rows, result: Result, start: int, probabilities: bool) -> dict[str, Any]:
    """Named pyarrow arrays of one batch."""
    import pyarrow as pa

    n = len(rows)
    best = result.p.argmax(axis=1)
    p_best = result.p[np.arange(n), best]
    new = result.p_new > p_best
    spread = result.log_density_sd
    columns = {
        "row": np.arange(start + 1, start + n + 1),
        "log_density": result.log_density,
        "log_density_sd": pa.array(_short(spread), mask=np.isnan(spread)),
        "cluster": np.where(new, 0, best + 1),
        "p_cluster": _short(np.where(new, result.p_new, p_best)),
        "p_new": _short(result.p_new),
    }
    if probabilities:
        columns |= {f"p_{r + 1}": _short(result.p[:, r]) for r in range(result.p.shape[1])}
    if predictor.impute:
        for c in predictor.columns:
            cell = result.imputed.get(c.name)
            columns |= _imputed_columns(c, n, cell)
    return {
        name: value if isinstance(value, pa.Array | pa.DictionaryArray) else pa.array(value)
        for name, value in columns.items()
    }


def _short(x: np.ndarray) -> np.ndarray:
    """Probabilities in single precision: seven digits are enough, and the file is half as long."""
    return x.astype(np.float32)


def _imputed_columns(column, n: int, cell: Imputed | None) -> dict[str, Any]:
    import pyarrow as pa

    observed = np.ones(n, bool)
    value, spread = np.zeros(n), np.zeros(n)
    if cell is not None:
        observed[cell.rows] = False
        value[cell.rows], spread[cell.rows] = cell.value, cell.spread
    if not column.levels:
        return {
            f"imputed_{column.name}": pa.array(value, mask=observed),
            f"imputed_{column.name}_sd": pa.array(spread, mask=observed),
        }
    codes = pa.array(value.astype(np.int32), mask=observed)
    levels = pa.array(column.levels, pa.string()).take(codes)
    return {f"imputed_{column.name}": levels, f"imputed_{column.name}_p": pa.array(_short(spread), mask=observed)}


def _check_target(out: Path, overwrite: bool) -> None:
    """Raises ConfigError before any work is done when nothing can be written at `out`."""
    if not out.name.endswith(FORMS):
        raise ConfigError(f"{out}: the name tells the form; expected one that ends in {', '.join(FORMS)}")
    if out.is_dir():
        raise ConfigError(f"{out}: is a directory; name a file to write")
    if out.exists() and not overwrite:
        raise ConfigError(f"{out}: exists and is kept; choose another name or replace it with --force")
    if not out.parent.is_dir():
        raise ConfigError(f"{out}: cannot be written: no directory {out.parent}")


@contextmanager
def _writer(out: Path):
    """A function that appends a batch (names and arrays) to `out`, which appears whole at the end or not at all."""
    import gzip
    from contextlib import ExitStack

    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    try:
        with ExitStack() as stack:
            file = stack.enter_context(replacing(out, shared=True))
            if out.name.endswith(".gz"):
                file = stack.enter_context(
                    gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0)
                )
            writer = None

            def write(columns: dict[str, Any]) -> None:
                nonlocal writer
                batch = pa.table(columns)
                if writer is None:
                    make = pyarrow.parquet.ParquetWriter if out.suffix == ".parquet" else pyarrow.csv.CSVWriter
                    writer = stack.enter_context(make(file, batch.schema))
                writer.write_table(batch)

            yield write
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {reason(error)}") from None
