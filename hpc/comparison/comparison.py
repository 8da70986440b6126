"""Runs on one table whose models differ, side by side: held-out scores paired by row, and the findings of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpibayes.errors import DataError
from mpibayes.hpc.comparison.common import Columns, HeldOutRows, NotComparable, columns_of, rows_of
from mpibayes.hpc.comparison.groupings import Pair, compared
from mpibayes.hpc.comparison.paired import Difference, difference
from mpibayes.hpc.comparison.scores import log_scores
from mpibayes.hpc.config.resolved import as_dict, changed
from mpibayes.hpc.report.document import Document
from mpibayes.hpc.report.findings import Findings
from mpibayes.hpc.run.identity import read_provenance


@dataclass(frozen=True)
class Side:
    """One run, or several that are chains of one posterior. name: distinguishes its directory from the other runs'
    (`homes`, as the user gave them); made: its own report."""

    name: str
    homes: Sequence[str]
    run: Any
    made: Document

    @property
    def model(self) -> str:
        return self.run.chains[0].config.kind


@dataclass
class Scores:
    """values (R, n): log score of each row under each run, in nats; number (n,): the row's number in the table or file,
    from 0. left_out: number of rows without a score in some run. ranking: runs, best first; below: for each run, the
    paired difference of the best run's scores from its own, None for the best itself."""

    values: np.ndarray
    number: np.ndarray
    left_out: int
    ranking: list[int] = field(default_factory=list)
    below: list[Difference | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ranking = np.argsort(-self.values.mean(axis=1), kind="stable").tolist()
        best = self.ranking[0]
        self.below = [None if r == best else difference(self.values[best], v) for r, v in enumerate(self.values)]

    @property
    def gaps(self) -> np.ndarray:
        """Scores of the rows under the best run minus those under the second, (n,) nats."""
        best, second = self.ranking[:2]
        return self.values[best] - self.values[second]

    @property
    def next(self) -> Difference:
        """Difference between the best run and the second."""
        return self.below[self.ranking[1]]


@dataclass
class Comparison:
    """Contents of the comparison's page. refused: why there are no scores. pairs: what the groupings of two runs have
    in common, by the runs' indices, of which the first is the best run (or, without scores, the first named)."""

    sides: Sequence[Side]
    rows: HeldOutRows | None = None
    columns: Columns = field(default_factory=lambda: Columns(()))
    scores: Scores | None = None
    refused: NotComparable | None = None
    settings: Sequence[tuple[str, Sequence[Any]]] = ()
    findings: Sequence[Findings | None] = ()
    pairs: dict[tuple[int, int], Pair] = field(default_factory=dict)


def same_table(homes: Sequence[Any]) -> None:
    """Raise DataError if runs, given by a directory of each, are on different tables."""
    fingerprints = [read_provenance(home)["fingerprint"] for home in homes]
    for home, fingerprint in zip(homes, fingerprints):
        if fingerprint != fingerprints[0]:
            raise DataError(
                f"{home}: on another table than {homes[0]} (fingerprint {fingerprint[:12]}, not "
                f"{fingerprints[0][:12]}): their held-out rows are not the same rows, and nothing can be paired. Run "
                "one of them again on the other's table, or report on each by itself"
            )


def compare(sides: Sequence[Side]) -> Comparison:
    """Compare two or more runs on one table, each with its report."""
    c = Comparison(sides, settings=_settings(sides), findings=[side.made.findings for side in sides])
    runs, names = [side.run for side in sides], [side.name for side in sides]
    try:
        c.rows = rows_of(runs, names)
        c.columns = columns_of(runs, names)
        c.scores = _scores(c)
    except NotComparable as refused:
        c.refused = refused
    first = c.scores.ranking[0] if c.scores is not None else 0
    for other in range(len(sides)):
        findings = [c.findings[first], c.findings[other]]
        if other != first and None not in findings:
            c.pairs[first, other] = compared([runs[first], runs[other]], findings)
    return c


def _scores(c: Comparison) -> Scores:
    every = [log_scores(side.run, side.name, c.rows, c.columns, of) for side, of in zip(c.sides, c.columns.log_width)]
    values = np.stack(every)
    number = np.arange(values.shape[1]) if c.rows.numbers is None else c.rows.numbers
    there = np.isfinite(values).all(axis=0)
    if there.sum() < 2:
        raise NotComparable(
            f"{there.sum():,} held-out rows have a score in every run, and a difference needs two at least",
            "Hold out more rows (data.heldout) in new runs.",
        )
    return Scores(values[:, there], number[there], int((~there).sum()))


def _settings(sides: Sequence[Side]) -> list[tuple[str, list[Any]]]:
    """Keys that differ between runs, with each run's value: the model's, or the sampler's if no others differ. None: a
    run has no such key, or it is not set."""
    first, *others = [as_dict(side.run.chains[0].config) for side in sides]
    settings: dict[str, list[Any]] = {}
    for model_alone in (True, False):
        for r, document in enumerate(others, 1):
            for key, was, now in changed(first, document, same_table=True, model_alone=model_alone):
                settings.setdefault(key, [was] * len(sides))[r] = now
        if settings:
            break
    if len({side.model for side in sides}) > 1:  # drop keys that one of the families ignores
        settings = {
            key: of for key, of in settings.items() if all(_has(document, key) for document in (first, *others))
        }
    return list(settings.items())


def _has(document: dict[str, Any], key: str) -> bool:
    section, _, name = key.partition(".")
    return section == "columns" or section == "blocks" or name in document.get(section, {})
