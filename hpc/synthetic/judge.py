"""Utility and risk of synthetic tables, each measure beside its value for real rows.

Real rows are the held-out ones, if the run has some: no model was trained on them. Without them, half of a sample of
the training rows is compared with the other half, and measures that need held-out rows are omitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.parallel.streams import Purpose, generator
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.synthetic import risk, utility
from mpibayes.hpc.synthetic.bins import Bins
from mpibayes.hpc.synthetic.rare import Merging
from mpibayes.hpc.synthetic.training import batches, cells_of
from mpibayes.io.scales import columns_in
from mpibayes.text import counted, enumerated

ROWS = 20_000  # of each kind used, at most
NEAR, AMONG = 1_000, 10_000  # rows whose closest row is sought, and number of candidates
TABLES = 5  # tables judged, at most
FEWEST = 20  # held-out rows below which they count as none

Cells = dict[str, np.ndarray]
MEANINGS = {
    "k-marginal score": "1000 less 1000 times the total variation distance between the joint distributions of three "
    "columns, the mean over sets of three (NIST's SDNist, k = 3): 1000 is the same distribution.",
    "one-way error": "Total variation distance between the distributions of one column, the mean over columns.",
    "two-way error": "The same for two columns together, the mean over pairs.",
    "propensity ratio": "Mean squared error of the propensity score over what it is when rows are shuffled (Snoke et "
    "al. 2018): 1 means indistinguishable.",
    "area": "Area under the ROC curve of a classifier that separates synthetic from real rows: 0.5 is chance.",
    "classified": "Share of real rows whose {target} a classifier predicts after training on synthetic rows; under "
    "real: on training rows.",
    "replicated uniques": "Share of rows that equal a unique training row in every column.",
    "closest training row": "Mean distance to the closest of some training rows; under real: to the closest of as many "
    "held-out rows. They are equal where nothing is copied.",
    "nearer to training": "Share of synthetic rows that are nearer to one of these training rows than to any of the "
    "held-out rows, ties half: 0.5 where nothing is copied.",
    "distance to training": "Mean distance to the closest training row, of synthetic rows and of held-out rows: far "
    "below real means rows that are near copies, or too typical.",
    "disclosed": "Share of training rows whose {target} follows from {key}, since all synthetic rows with the same key "
    "have it; under real: of held-out rows, which synthetic rows can know only in general.",
}
RISKS = ("replicated uniques", "closest training row", "nearer to training", "distance to training", "disclosed")


@dataclass(frozen=True)
class Roles:
    """target: the column that is classified, and disclosed; key: columns that an intruder knows about a person."""

    target: str
    key: Sequence[str]


def roles(asking: Asking, target: str | None, key: Sequence[str]) -> Roles:
    """Choose the columns' roles; the target is by default the last column with levels. Raises ConfigError."""
    key = columns_in(key, [c.name for c in asking.columns])
    names = [c.name for c in asking.named([*key, *([target] if target else [])])]
    levelled = [c.name for c in asking.columns if len(c.levels) > 1]
    result = target or (levelled[-1] if levelled else asking.columns[-1].name)
    if result in key:
        raise ConfigError(f"--key {result}: is also the target; name columns that somebody may know besides it")
    return Roles(result, [name for name in names if name != target])


class Judge:
    """Measures of synthetic tables of n rows. seed: of the samples."""

    def __init__(self, asking: Asking, merging: Merging, given: Roles, n: int, seed: int):
        self.columns, self._merging, self._seed = asking.columns, merging, seed
        names = [c.name for c in self.columns]
        self._target, self._key = names.index(given.target), [names.index(name) for name in given.key]
        g, training = generator(seed, Purpose.JUDGED), asking.asked.training_numbers()
        real = self._sample(asking, training, g)
        self.bins, self._places = Bins(self.columns, real), risk.Places(self.columns, real)
        others = np.setdiff1d(np.arange(asking.asked.like.n_rows), training)
        self.held_out = len(others) >= FEWEST
        if self.held_out:
            self._real, self._unseen = real, self._sample(asking, others, g)
        else:
            half = _n_rows(real) // 2
            self._real, self._unseen = _take(real, slice(half)), _take(real, slice(half, None))
        self.n = min(n, _n_rows(self._real))
        sizes = self.bins.sizes
        most = (len(sizes), utility.MOST_PAIRS, utility.MOST_TRIPLES)
        self._sets = [utility.sets_of_columns(len(sizes), k, m, seed) for k, m in enumerate(most, 1)]
        each = ({c.name: cells_of(rows, c) for c in self.columns} for rows in batches(asking))
        self._uniques = risk.uniques(np.concatenate([risk.fingerprints(self.columns, cells) for cells in each]))
        self._of_real: dict[str, float] | None = None

    def _sample(self, asking: Asking, numbers: np.ndarray, g: np.random.Generator) -> Cells:
        """Sample rows of the table in random order, with rare levels merged."""
        chosen = np.sort(g.permutation(numbers)[:ROWS])
        rows = asking.asked.recorded(chosen).take(g.permutation(len(chosen)))
        return {c.name: self._merging.coded(c.name, cells_of(rows, c)) for c in self.columns}

    def __call__(self, synthetic: Cells) -> dict[str, tuple[float, float]]:
        """Return the measures of a table from its first rows, each with its value for real rows."""
        rows = _take(synthetic, slice(self.n))
        if self._of_real is None:
            self._of_real = self._utility(_take(self._real, slice(self.n)))
        result = {name: (x, self._of_real[name]) for name, x in self._utility(rows).items()}
        return result | self._risk(rows)

    def _utility(self, cells: Cells) -> dict[str, float]:
        rows, unseen, sizes = self.bins(cells), self.bins(self._unseen), self.bins.sizes
        one, two, three = (utility.variation(rows, unseen, sizes, sets) for sets in self._sets)
        return {
            "k-marginal score": 1000.0 * (1.0 - three),
            "one-way error": one,
            "two-way error": two,
            "propensity ratio": utility.propensity_ratio(rows, unseen, sizes, self._seed),
            "area": utility.told_apart(rows, unseen, sizes, self._seed),
            "classified": utility.classified(rows, unseen, sizes, self._target),
        }

    def _risk(self, cells: Cells) -> dict[str, tuple[float, float]]:
        result = {"replicated uniques": (self._replicated(cells), np.nan)}
        if not self.held_out:
            return result
        result["replicated uniques"] = self._replicated(cells), self._replicated(self._unseen)
        rows, real, unseen = (self._places(x) for x in (cells, self._real, self._unseen))
        n = min(AMONG, len(real[0]), len(unseen[0]))
        near = _first(rows, NEAR)
        to_real, to_unseen = (risk.closest(near, _first(others, n)) for others in (real, unseen))
        result["closest training row"] = float(to_real.mean()), float(to_unseen.mean())
        result["nearer to training"] = float((to_real < to_unseen).mean() + 0.5 * (to_real == to_unseen).mean()), 0.5
        among = _first(real, AMONG)
        result["distance to training"] = tuple(
            float(risk.closest(_first(x, NEAR), among).mean()) for x in (rows, unseen)
        )
        if self._key:
            table = self.bins(cells)
            result["disclosed"] = tuple(
                risk.disclosed(self.bins(x), table, self._key, self._target) for x in (self._real, self._unseen)
            )
        return result

    def _replicated(self, cells: Cells) -> float:
        return float(np.isin(risk.fingerprints(self.columns, cells), self._uniques).mean())

    def remarks(self, n_tables: int, judged: int) -> list[str]:
        """Notes on the rows that were used."""
        of = f"each of {judged} of the {n_tables} tables, averaged"
        if judged == n_tables:
            of = "the table" if n_tables == 1 else "each table, averaged"
        real, unseen = (counted(_n_rows(cells), "row") for cells in (self._real, self._unseen))
        if not self.held_out:
            return [
                f"synthetic: {counted(self.n, 'row')} of {of}, beside {unseen} that the run was trained on, as it held "
                f"fewer than {FEWEST} out (data.heldout): utility is that of known rows, and little can be said about "
                "risk"
            ]
        return [
            f"synthetic: {counted(self.n, 'row')} of {of}, beside {unseen} that were held out; real: as many of the "
            f"{real} that the run was trained on, beside the same"
        ]


def answer(judge: Judge, given: Roles, tables: Sequence[Mapping[str, tuple[float, float]]], n_tables: int) -> Answer:
    """Tabulate the measures, each averaged over the judged tables."""
    names = list(tables[0])
    mean = np.array([[table[name] for name in names] for table in tables]).mean(axis=0)
    spread = np.array([[table[name][0] for name in names] for table in tables]).std(axis=0)
    words = {"target": given.target, "key": enumerated(list(given.key))}
    meaning = [MEANINGS[name].format(**words) for name in names]
    kinds = ["risk" if name in RISKS else "utility" for name in names]
    columns = {
        "kind": np.array(kinds, object), "measure": np.array(names, object), "synthetic": mean[:, 0],
        "real": mean[:, 1], "spread": spread, "meaning": np.array(meaning, object),
    }  # fmt: skip
    remarks = [f"{name}: {words}" for name, words in zip(names, meaning)]
    title = f"Synthetic rows beside real ones; classified: {given.target}"
    short = ["kind", "measure", "synthetic", "real"]
    return Answer(title, columns, [*remarks, *judge.remarks(n_tables, len(tables))], short=short)


def _n_rows(cells: Mapping[str, np.ndarray]) -> int:
    return len(next(iter(cells.values())))


def _take(cells: Mapping[str, np.ndarray], part: slice) -> Cells:
    return {name: x[part] for name, x in cells.items()}


def _first(rows: tuple[np.ndarray, np.ndarray], n: int) -> tuple[np.ndarray, np.ndarray]:
    return rows[0][:n], rows[1][:n]
