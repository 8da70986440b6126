"""All-categorical tables with a held-out part.

Made ones with known clusters: N x C codes of 2 to 18 levels, clusters with Zipf-like weights; in a cluster a column has
a level distribution of its own with some probability ("private"), else the one it has in most clusters. Where that
probability is small, one cluster is a deep local mode. Real ones: public tables, cut into at most 61 levels.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from public_tables import kdd_names, source
from pyarrow import csv
from scorer import adjusted_rand

from mpibayes.io.ingest import one_thread
from mpibayes.io.rows import Column, Rows
from mpibayes.io.table import table_from_arrays

HELD_OUT = 10_000
MOST_LEVELS, INTERVALS, INTERVALS_WITHOUT_TIES = 60, 12, 7
REAL_SEED = 7  # of the rows of the real tables; that of the comparison with other programs


@dataclass(frozen=True)
class Discrete:
    """x (N, C) and held (H, C): codes. z (N,): the clusters it was made from, where it was. attainable: the adjusted
    Rand index of the best guess of z from the row alone, all else known."""

    name: str
    x: np.ndarray
    held: np.ndarray
    levels: tuple[int, ...]
    z: np.ndarray | None = None
    attainable: float = 1.0

    def table(self) -> tuple[tuple[Column, ...], Rows]:
        """Columns and rows as the sampler takes them."""
        names = (f"c{i}" for i in range(len(self.levels)))
        return table_from_arrays(
            [(n, "categorical", x, [str(v) for v in range(k)]) for n, x, k in zip(names, self.x.T, self.levels)]
        )


# --- made tables -----------------------------------------------------------------------------------------------------


def made(name: str, rows: int, columns: int, clusters: int, private: float, seed: int) -> Discrete:
    """A table with known clusters; the same seed gives tables of the same clusters whatever the rows."""
    model = np.random.default_rng([seed, 0])
    levels = model.integers(2, 19, columns)
    weights = np.arange(1, clusters + 1) ** -0.7
    weights /= weights.sum()
    laws = []  # of a column: (K, V)
    for n in levels:
        common = np.broadcast_to(model.dirichlet(np.ones(n)), (clusters, n))
        part = model.dirichlet(np.ones(n), clusters)
        law = np.where(model.random((clusters, 1)) < private, part, common)
        laws.append((law + 1e-6) / (law + 1e-6).sum(axis=1, keepdims=True))
    draws = np.random.default_rng([seed, rows])
    total = rows + HELD_OUT
    z = draws.choice(clusters, total, p=weights)
    members = [np.flatnonzero(z == k) for k in range(clusters)]
    x = np.empty((total, columns), np.int8)
    for c, law in enumerate(laws):
        for k, who in enumerate(members):
            x[who, c] = draws.choice(len(law[k]), len(who), p=law[k])
    log_joint = np.log(weights) + sum(np.log(law.T)[x[:rows, c]] for c, law in enumerate(laws))
    attainable = adjusted_rand(z[:rows], log_joint.argmax(axis=1))
    return Discrete(name, x[:rows], x[rows:], tuple(levels.tolist()), z[:rows], attainable)


def from_npz(path: Path) -> Discrete:
    """NAME.npz with x, z, held, and NAME.json with levels, and k > 0 where z are the clusters it was made from."""
    arrays, about = np.load(path), json.loads(path.with_suffix(".json").read_text())
    z = arrays["z"] if about.get("k") else None
    return Discrete(path.stem, arrays["x"], arrays["held"], tuple(about["levels"]), z)


# --- real tables -----------------------------------------------------------------------------------------------------


def real(name: str, data: Path, kind: str, rows: int) -> Discrete:
    """Random rows of "income" or "kdd" (see public_tables), discretised; without instance weight and class label."""
    with one_thread():
        text = _as_text(source(data, kind), kdd_names(data) if kind == "kdd" else None)
    text = text.drop_columns([text.column_names[-1]])
    if kind == "income":
        text = text.drop_columns([text.column_names[24]])
    text = text.take(np.random.default_rng(REAL_SEED).permutation(len(text))[: rows + HELD_OUT])
    columns = [codes(column.combine_chunks()) for column in text.columns]
    columns = [(x, n) for x, n in columns if x[:rows].min() < x[:rows].max()]
    x = np.stack([x for x, _ in columns], axis=1)
    return Discrete(name, x[:rows], x[rows:], tuple(n for _, n in columns))


def _as_text(path: Path, names: list[str] | None) -> pa.Table:
    """A CSV file without a header, all columns text, blanks around cells taken off."""
    with pa.input_stream(path, compression="detect") if path.suffix != ".xz" else _unpacked(path) as raw:
        how = csv.ReadOptions(column_names=names, autogenerate_column_names=names is None, use_threads=False)
        with csv.open_csv(raw, how) as peek:
            names = peek.schema.names
    with pa.input_stream(path, compression="detect") if path.suffix != ".xz" else _unpacked(path) as raw:
        how = csv.ReadOptions(column_names=names, use_threads=False)
        kinds = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
        table = csv.read_csv(raw, how, convert_options=kinds)
    return pa.table([pc.utf8_trim_whitespace(c) for c in table.columns], names)


def _unpacked(path: Path):
    import lzma

    return lzma.open(path)


def codes(text: pa.Array) -> tuple[np.ndarray, int]:
    """Codes of a column, int8, and their number. Numbers of more than 12 values are cut into intervals at quantiles;
    otherwise levels are in order of frequency, those after the 60th pooled."""
    try:
        numbers = pc.cast(text, pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        numbers = None
    if numbers is not None and len(np.unique(numbers)) > INTERVALS:
        cuts = np.unique(np.quantile(numbers, np.arange(1, INTERVALS) / INTERVALS))
        if len(cuts) < INTERVALS // 2:  # most values are the same few: cut the others by themselves
            others = numbers[~np.isin(numbers, cuts)]
            n = INTERVALS_WITHOUT_TIES
            cuts = np.union1d(cuts, np.quantile(others, np.arange(1, n) / n))
        _, x = np.unique(np.searchsorted(cuts, numbers), return_inverse=True)
    else:
        encoded = text.dictionary_encode()
        result = encoded.indices.to_numpy()
        rank = np.empty(len(encoded.dictionary), np.int64)
        rank[np.argsort(-np.bincount(result), kind="stable")] = np.arange(len(rank))
        x = np.minimum(rank[result], MOST_LEVELS)
    return x.astype(np.int8), int(x.max()) + 1
