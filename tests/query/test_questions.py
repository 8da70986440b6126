"""Questions are data: the command line and Python make the same ones, which ranks get pickled."""

import pickle
from dataclasses import FrozenInstanceError, fields
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.cli.query import query
from mpibayes.hpc.python.result import Result
from mpibayes.hpc.python.run import Run
from mpibayes.hpc.query.answer import Answer
from mpibayes.hpc.query.asking import RunAt
from mpibayes.hpc.query.compare import Compare
from mpibayes.hpc.query.conditions import Said
from mpibayes.hpc.query.logp import Logp
from mpibayes.hpc.query.new_rows import Named
from mpibayes.hpc.query.predictors import Predictors
from mpibayes.hpc.query.question import Question, RowsQuestion
from mpibayes.hpc.query.surprisal import Surprisal

OF_EVERY_VERB = {"out", "draws", "burn_in", "table", "overwrite"}
OF_SOME = {"rows", "unseen", "weighted"}  # which questions without rows, or about draws alone, are not asked with


@pytest.mark.parametrize("name", query.commands)
def test_a_question_has_one_set_of_arguments(name):
    """An option or an argument that no question has, or a field that no option sets, is found."""
    classes = [*Question.__subclasses__(), *RowsQuestion.__subclasses__()]
    (question,) = [cls for cls in classes if cls.__name__.lower() == name]
    arguments = {field.name for field in fields(question)}
    options = {option.name for option in query.commands[name].params} - OF_EVERY_VERB
    assert options <= arguments and arguments - options <= OF_SOME
    assert set(signature(getattr(Run, name)).parameters) - {"self", "ranks"} <= arguments


def test_a_question_arrives_as_it_was():
    asked = Logp(["colour=red"], [Said("age", (40, None))], rows=Named(Path("a.parquet"), "DataFrame"), weighted=True)
    arrived = pickle.loads(pickle.dumps(asked))
    assert (arrived.of, arrived.rows, arrived.weighted) == (asked.of, asked.rows, asked.weighted)
    assert (arrived.given[0].name, arrived.given[0].value) == ("age", (40, None))
    other = Compare(other=RunAt((Path("runs/b"),), draws=8))
    assert pickle.loads(pickle.dumps(other)).other == other.other
    with pytest.raises(FrozenInstanceError):
        arrived.of = ()


def test_mistakes_in_arguments_are_met_before_a_run_is_opened():
    for wrong, words in (
        (lambda: Surprisal(by="columns"), "by = 'columns'"),
        (lambda: Predictors("a", size=1), "size"),
    ):
        with pytest.raises(ConfigError, match=words):
            wrong()


def test_files_that_a_question_reads():
    files = Compare(rows="@mine.txt", against_rows="1,5,7-20").reads
    assert files == [Path("mine.txt"), Path("1,5,7-20")] and Logp(["a=1"]).reads == []


@pytest.mark.parametrize("columns, width", [(6, 80), (6, 118), (1, 80)])
def test_wide_answers_continue_below_with_whole_headings(columns, width, monkeypatch):
    """The clusters of many views, printed by Python on a terminal of 80 columns, repeat the number of the row."""
    of = {f"{what}_{v}": np.arange(3.0) / 7 for v in range(1, 1 + columns) for what in ("cluster", "probability")}
    answer = Answer("Clusters of the rows", {"row": np.arange(1, 4), **of, "held_out": np.zeros(3, bool)})
    monkeypatch.setenv("COLUMNS", str(width))
    _, *lines = repr(Result(answer)).splitlines()
    assert max(map(len, lines)) <= width
    heads = [line.split() for line in lines if line.startswith("row ")]
    assert [name for head in heads for name in head[1:]] == [*of, "held_out"]
    assert [len(line.split()) for line in lines if line.startswith("  1")] == list(map(len, heads))
    assert (len(heads) > 1) == (columns > 1)
