"""Common rows and columns, by which runs on one table can be compared.

A row is scored if no run was trained on it, and a column if every run models it; other columns are treated as missing.
If one run is a regression, all are compared by its response, given all other columns of each. Scores of a column are
densities in some runs, and probabilities of cells as recorded in others (`io.recording`): a density times the width of
the cell is the probability, except for its variation within the cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.hpc.report import advice
from mpibayes.hpc.report.advice import Command
from mpibayes.text import counted, enumerated

HELD_OUT = 0.1  # share of held-out rows in suggested commands


class NotComparable(Exception):
    """Held-out scores cannot be compared: the reason, in a sentence, what to do, and commands for it."""

    def __init__(self, why: str, step: str = "", commands: Sequence[Command] = ()):
        super().__init__(why)
        self.why, self.step, self.commands = why, step, tuple(commands)


@dataclass(frozen=True)
class HeldOutRows:
    """The scored rows: rows of the table by their numbers, ascending from 0, or all of a file."""

    numbers: np.ndarray | None
    path: Path | None
    words: str


@dataclass(frozen=True)
class Columns:
    """names: columns whose cells are scored. response: a regression's, "" if there is none. log_width: for each run,
    the term added to the score of each observed cell of a column. notes: what is left out, and why."""

    names: Sequence[str]
    response: str = ""
    log_width: Sequence[Mapping[str, float]] = ()
    notes: Sequence[str] = field(default_factory=tuple)


def rows_of(runs: Sequence[Any], names: Sequence[str]) -> HeldOutRows:
    """Find the rows that no run was trained on. Raises NotComparable."""
    sparse = [name for run, name in zip(runs, names) if run.sparse]
    if sparse:
        raise NotComparable(
            f"{enumerated(sparse)}: of a sparse table single entries are held out, not rows",
            "Compare the held-out numbers of the two pages; entries are held out whatever the seed.",
        )
    if all(run.data.heldout is not None for run in runs):
        held_out = [run.data.heldout for run in runs]
        numbers = held_out[0]
        for other in held_out[1:]:
            numbers = np.intersect1d(numbers, other, assume_unique=True)
        if len(numbers):
            more = " that neither was trained on" if len(runs) == 2 else " that none was trained on"
            same = all(len(of) == len(numbers) for of in held_out)
            return HeldOutRows(numbers, None, "held-out rows of the table" + more * (not same))
    paths = [run.chains[0].config.heldout_path for run in runs]
    path = next((p for p in paths if p is not None), None)
    if path is not None:
        return HeldOutRows(None, path, f"rows of {path}, which is not a part of the table")
    trained = [(run, name) for run, name in zip(runs, names) if run.data.heldout is None]
    commands = [
        advice.anew(run.chains, f"run {name} again with rows held out", data_heldout=_fraction(runs))
        for run, name in trained
    ]
    was = "was" if len(trained) == 1 else "were"
    raise NotComparable(
        f"no row is left to score: {enumerated([name for _, name in trained])} {was} trained on every row of the table",
        "Run again with rows held out (data.heldout), then compare; rows are chosen whatever the seed.",
        commands,
    )


def _fraction(runs: Sequence[Any]) -> float:
    """Held-out share of a run that has one: runs with the same share hold out the same rows."""
    given = [run.chains[0].config.heldout_fraction for run in runs]
    return next((fraction for fraction in given if fraction is not None), HELD_OUT)


def columns_of(runs: Sequence[Any], names: Sequence[str]) -> Columns:
    """Find the columns that all runs model. Raises NotComparable."""
    without = [name for run, name in zip(runs, names) if not run.modelled]
    if without:
        raise NotComparable(
            f"{enumerated(without)} sampled the prior (model.likelihood = false), which predicts no row"
        )
    responses = list(dict.fromkeys(run.response for run in runs if run.response))
    if len(responses) > 1:
        raise NotComparable(f"the regressions explain different columns: {enumerated(responses)}")
    every = [c for c in runs[0].modelled if all(c in run.modelled for run in runs)]
    common = [c for c in every if not responses or c in responses]
    if not common:
        what = f"'{responses[0]}', which a regression explains, is not modelled by all" if responses else ""
        raise NotComparable(what or "they have no column in common")
    kept, log_width, notes = _in_one_unit(runs, common)
    if not kept:
        raise NotComparable("the columns in common have no scores that compare", notes[0] if notes else "")
    all_names = dict.fromkeys(c for run in runs for c in run.modelled)
    rest = [c for c in all_names if c not in every]
    if rest and not responses:
        notes = [f"Scored by the {counted(len(kept), 'column')} of all; not by {_listed(rest)}.", *notes]
    if responses:
        notes = [f"Scored by '{responses[0]}' alone, given all other columns that each has.", *notes]
    return Columns(kept, responses[0] if responses else "", log_width, notes)


def _in_one_unit(runs: Sequence[Any], names: Sequence[str]) -> tuple[list[str], list[dict[str, float]], list[str]]:
    """Return the columns whose scores are comparable, log widths for each run, and notes."""
    kept, left_out = [], []
    log_width: list[dict[str, float]] = [{} for _ in runs]
    widened = False
    for name in names:
        widths = [run.data.latent.widths.get(name, 0.0) for run in runs]
        if not any(widths) and len({name in run.data.latent.which for run in runs}) > 1:
            left_out.append(name)  # an atom has a probability in one run, and a density in another
            continue
        kept.append(name)
        for of, width in zip(log_width, widths):
            if any(widths) and not width:
                of[name], widened = float(np.log(max(widths))), True
    notes = []
    if widened:
        notes.append("Densities are taken as probabilities of the values as recorded: times the column's step.")
    if left_out:
        notes.append(
            f"Not scored: {_listed(left_out)}; single values of it have a probability in one run and a density in "
            "another."
        )
    return kept, log_width, notes


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}" if more else enumerated(list(names))
