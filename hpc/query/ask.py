"""A question to a run, answered: by one process, or by all ranks, which share the work."""

from __future__ import annotations

from dataclasses import replace

from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.query.new_rows import rows_of
from mpibayes.hpc.query.question import Question


def ask(question: Question, asking: Asking) -> Answer:
    """Read the rows that a question is about, and answer it. Collective; mistakes are found by all ranks alike, or
    agreed on. Raises ConfigError, DataError, CheckpointError."""
    asking.weigh(question.weigh)
    rows = None if question.rows is None else rows_of(asking, question.rows, question.unseen)
    notes = () if rows is None else rows.notes
    return replace(question.answer(asking, rows), of_whom=asking.of_whom, about_rows=notes)
