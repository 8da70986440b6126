"""Predictors and response of imported tables, and every way in which a table can fail to fit."""

import dataclasses

import numpy as np
import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.hpc.regression.design import MAX_PARAMETERS, Design
from mpibayes.hpc.regression.mode.identifiable import check_training
from mpibayes.hpc.regression.settings import Settings
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table, table_from_arrays, write_table
from tests.regression.problems import dealt

PATIENTS = """age,visits,job,smoker,sick,cost
31.5,0,clerk,no,yes,10.5
48.25,3,cook,yes,no,20.0
,1,clerk,no,no,12.25
60.0,7,smith,yes,yes,99.5
22.75,2,,no,no,3.0
35.0,1,cook,yes,,7.5
51.5,4,smith,no,yes,45.0
44.0,0,clerk,yes,no,
"""


@pytest.fixture
def patients(tmp_path) -> Table:
    """Imported, as a user does."""
    (tmp_path / "patients.csv").write_text(PATIENTS)
    schema = tmp_path / "schema.toml"
    schema.write_text(
        "\n".join(
            f'[columns.{name}]\nkind = "{kind}"'
            for name, kind in (("age", "real"), ("visits", "count"), ("job", "categorical"), ("cost", "real"))
        )
    )
    return import_table(tmp_path / "patients.csv", tmp_path / "patients.h5", schema=schema).table


def settings(**changes) -> Settings:
    return Settings(**{"likelihood": "logistic", "response": "sick", "predictors": ("age", "job", "smoker"), **changes})


def made(tmp_path, *columns) -> tuple[Table, object]:
    """A table written to disk and read again, and its rows."""
    table = write_table(tmp_path / "table.h5", *table_from_arrays(columns))
    return table, table.read()


def checked(rows_and_table, comm=None, **changes) -> list[str]:
    """Warnings of a design's training rows."""
    table, rows = rows_and_table
    given = Settings(**{"likelihood": "logistic", "response": "y", **changes})
    design = Design.of(given, table.columns)
    built = design.build(rows)
    likelihood = design.likelihood(design.n_predictors, design.n_classes)
    comm = comm or serial()
    shards = dealt(comm, likelihood, built.x, built.y)
    return check_training(comm, design, shards, 5, given.prior == "flat")


def problems(call, *args, **changes) -> list[str]:
    with pytest.raises(DataError) as caught:
        call(*args, **changes)
    return list(caught.value.problems)


class TestBuild:
    def test_predictors_of_every_kind(self, patients):
        design = Design.of(settings(missing="drop", predictors=("age", "visits", "job", "smoker")), patients.columns)
        assert design.names == ["(intercept)", "age", "visits", "job[cook]", "job[smith]", "smoker[yes]"]
        assert design.classes == ("no", "yes") and design.response == "sick"
        assert (design.n_predictors, design.width, design.n_parameters) == (6, 8, 6)
        built = design.build(patients.read())
        assert built.kept.tolist() == [0, 1, 3, 6, 7]
        assert built.x.dtype == np.float32 and built.x.flags.c_contiguous and built.x.shape == (5, 8)
        assert built.y.tolist() == [1.0, -1.0, 1.0, 1.0, -1.0]
        age = np.array([31.5, 48.25, 60.0, 22.75, 35.0, 51.5, 44.0])  # the whole table's mean and deviation
        visits = np.array([0, 3, 1, 7, 2, 1, 4, 0])
        np.testing.assert_allclose(built.x[:, 1], (age[[0, 1, 2, 5, 6]] - age.mean()) / age.std(), rtol=1e-6)
        np.testing.assert_allclose(built.x[:, 2], (visits[built.kept] - visits.mean()) / visits.std(), rtol=1e-6)
        assert built.x[:, [0, 3, 4, 5, 6, 7]].tolist() == [
            [1, 0, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0], [1, 0, 1, 1, 0, 0], [1, 0, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0],
        ]  # fmt: skip

    def test_missing_indicators(self, patients):
        design = Design.of(settings(missing="indicator", intercept=False, standardise=False), patients.columns)
        assert design.names == ["age", "age[missing]", "job[cook]", "job[smith]", "job[missing]", "smoker[yes]"]
        built = design.build(patients.read())
        assert built.kept.tolist() == [0, 1, 2, 3, 4, 6, 7]  # a missing response says nothing
        mean = np.mean([31.5, 48.25, 60.0, 22.75, 35.0, 51.5, 44.0])
        np.testing.assert_allclose(built.x[2, :6], [mean, 1, 0, 0, 0, 0], rtol=1e-6)
        assert built.x[4, :6].tolist() == [22.75, 0, 0, 0, 1, 0]

    def test_responses(self, patients):
        rows = patients.read()
        soft = Design.of(
            settings(likelihood="softmax", response="job", predictors=("age",), missing="drop"), patients.columns
        )
        assert soft.classes == ("clerk", "cook", "smith") and soft.n_parameters == 6
        assert soft.build(rows).y.tolist() == [0, 1, 2, 1, 2, 0]
        given = settings(likelihood="student-t", response="cost", predictors=("visits",), missing="drop")
        t = Design.of(given, patients.columns)
        cost = np.array([10.5, 20.0, 12.25, 99.5, 3.0, 7.5, 45.0])
        np.testing.assert_allclose(t.build(rows).y, (cost - cost.mean()) / cost.std(), rtol=1e-12)
        assert (t.center, t.scale) == (cost.mean(), pytest.approx(cost.std()))
        raw = Design.of(dataclasses.replace(given, standardise=False), patients.columns)
        assert raw.build(rows).y.tolist() == cost.tolist() and (raw.center, raw.scale) == (0.0, 1.0)

    def test_slices_make_the_whole(self, patients):
        design = Design.of(settings(missing="drop"), patients.columns)
        parts = [design.build(patients.read(start, start + 3), start) for start in (0, 3)]
        whole = design.build(patients.read(0, 6))
        assert np.array_equal(np.concatenate([p.x for p in parts]), whole.x)
        assert np.array_equal(np.concatenate([p.y for p in parts]), whole.y)

    def test_new_rows_need_no_response(self, patients):
        design = Design.of(settings(missing="indicator"), patients.columns)
        built = design.build(patients.read(), response=False)
        assert built.kept is None and len(built.x) == 8 and np.isnan(built.y).all()

    def test_all_used_columns_are_predictors(self, patients):
        design = Design.of(settings(predictors=None, missing="drop"), patients.columns)
        assert [t.column.name for t in design.terms] == ["age", "visits", "job", "smoker", "cost"]


class TestTableDoesNotFit:
    def test_missing_cells_are_counted_by_column(self, patients):
        given = settings(predictors=None)
        (result,) = problems(Design.of, given, patients.columns)
        assert result.startswith("missing cells ('sick': 1, 'age': 1, 'job': 1, 'cost': 1)")

    def test_constants(self, tmp_path):
        table, _ = made(
            tmp_path,
            ("y", "real", [2.0, 2.0, 2.0], None), ("a", "real", [1.5, 1.5, np.nan], None),
            ("b", "categorical", [0, 0, 0], ["only"]), ("c", "real", [1.0, 2.0, 3.0], None),
        )  # fmt: skip
        given = Settings("student-t", "y", missing="drop")
        assert problems(Design.of, given, table.columns) == [
            "predictor 'a' is constant (1.5); leave it out",
            "predictor 'b' is constant ('only'); leave it out",
        ]

    def test_too_many_coefficients(self, tmp_path):
        levels = [f"town {i}" for i in range(MAX_PARAMETERS)]
        codes = np.arange(MAX_PARAMETERS)
        table, _ = made(
            tmp_path, ("y", "boolean", codes % 2, ["no", "yes"]), ("town", "categorical", codes, levels),
            ("size", "real", codes * 1.0, None),
        )  # fmt: skip
        (result,) = problems(Design.of, Settings("logistic", "y"), table.columns)
        assert result.startswith("4,097 predictors; at most 4,096") and "'town': 4,095" in result
        three = settings(likelihood="softmax", response="y", predictors=("town",))
        (result,) = problems(Design.of, three, table.columns)
        assert "for each of 2 classes" in result

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the table's own summary
    def test_infinite_cells(self):
        """Tables with infinite cells are refused when they are read; these are rows of other origin."""
        columns, rows = table_from_arrays(
            [
                ("y", "real", np.arange(6.0), None),
                ("a", "real", [1.0, 2, 3, 4, 5, 6], None),
                ("b", "real", np.arange(6.0), None),
            ]
        )
        rows.reals[4, 0], rows.reals[2:4, 1], rows.reals[5, 2] = -np.inf, np.inf, 1e39
        design = Design.of(Settings("student-t", "y", standardise=False), columns)
        assert problems(design.build, rows, 10)[:3] == [
            "'y': 1 infinite or too large value, the first in row 15",
            "'a': 2 infinite or too large values, the first in row 13",
            "'b': 1 infinite or too large value, the first in row 16",
        ]
        (result, _) = problems(design.build, rows.take(slice(3, 4)), np.array([41]))
        assert result.endswith("in row 42")

    def test_new_rows_with_cells_missing_that_never_were(self, patients, tmp_path):
        rows = patients.read()
        for missing, advice in (("error", 'missing = "drop"'), ("indicator", "had no missing cells")):
            design = Design.of(settings(predictors=("visits",), response="smoker", missing=missing), patients.columns)
            rows.tallies[5, 0] = np.nan
            result = problems(design.build, rows, response=False)
            assert result[0] == "'visits': 1 missing cell, the first in row 6" and advice in result[1]


class TestTrainingRows:
    rng = np.random.default_rng(11)
    x, z = rng.normal(size=(2, 60))
    y = rng.integers(2, size=60)

    def table(self, tmp_path, *more, y=None):
        y = ("y", "boolean", self.y if y is None else y, ["no", "yes"])
        return made(tmp_path, y, ("x", "real", self.x, None), *more)

    def test_nothing_to_say(self, tmp_path):
        table = self.table(tmp_path)
        assert checked(table) == checked(table, prior="flat") == []

    @pytest.mark.parametrize("missing_level, named", [(0, "'a'"), (1, "'b'"), (3, "'d'")])
    def test_a_level_that_never_occurs(self, tmp_path, missing_level, named):
        codes = np.array([c for c in range(4) if c != missing_level])[np.arange(60) % 3]
        table = self.table(tmp_path, ("k", "categorical", codes, list("abcd")))
        (warning,) = checked(table)
        assert warning == f"predictor 'k': no training row has {named}; the prior decides about it"
        result = problems(checked, table, prior="flat")
        assert result == [f"predictor 'k': no training row has {named}", result[1]] and "gaussian prior" in result[1]

    @pytest.mark.parametrize("likelihood", ["logistic", "softmax"])
    def test_a_class_that_never_occurs(self, tmp_path, likelihood):
        table = self.table(tmp_path, y=np.ones(60, int))
        (result,) = problems(checked, table, likelihood=likelihood)
        assert result.startswith("response 'y': no training row has 'no'")

    def test_collinear_predictors(self, tmp_path):
        total = ("total", "real", 3 * self.x - self.z + 7, None)
        table = self.table(tmp_path, ("z", "real", self.z, None), total)
        (result, _) = problems(checked, table, prior="flat", standardise=False)
        assert result == "collinear predictors: 'total' is a combination of 7 '(intercept)', 3 'x', -1 'z'"
        (warning,) = checked(table)
        assert "'total' is a combination of" in warning and warning.endswith("the prior decides about it")

    def test_columns_that_are_missing_together(self, tmp_path):
        blank = np.where(np.arange(60) < 5, np.nan, 1.0)
        table = self.table(tmp_path, ("u", "real", self.z * blank, None), ("v", "real", self.z**2 * blank, None))
        (result, _) = problems(checked, table, prior="flat", missing="indicator")
        assert result == "collinear predictors: 'v[missing]' is a combination of 1 'u[missing]'"

    def test_fewer_rows_than_predictors(self, tmp_path):
        many = [(f"x{i}", "real", self.rng.normal(size=60), None) for i in range(70)]
        table = self.table(tmp_path, *many)
        (result, _) = problems(checked, table, prior="flat")
        assert result == "60 training rows, fewer than the 72 predictors"
        (warning,) = checked(table)
        assert warning.endswith("the prior decides about it")

    def test_nothing_left(self, tmp_path):
        table = self.table(tmp_path, ("u", "real", np.where(np.arange(60) % 2, np.nan, self.z), None),
                           ("v", "real", np.where(np.arange(60) % 2, self.z, np.nan), None))  # fmt: skip
        (result,) = problems(checked, table, missing="drop")
        assert result.startswith("no training rows")

    def test_training_rows_without_variation(self, tmp_path):
        """The table varies, its training rows do not: the held-out rows have the rest."""
        half = np.arange(60) < 30
        table, rows = self.table(tmp_path, ("u", "real", np.where(half, 2.0, self.z), None))
        given = (table, rows.take(half))
        (warning,) = checked(given)
        assert warning.startswith("predictor 'u' is constant in the training rows")
        assert problems(checked, given, prior="flat")[0] == "predictor 'u' is constant in the training rows"

    @pytest.mark.mpi
    def test_every_rank_hears_the_same(self, tmp_path):
        comm = world()
        columns, rows = table_from_arrays(
            [("y", "boolean", self.y, None), ("x", "real", self.x, None), ("twin", "real", 2 * self.x, None)]
        )
        table = Table(tmp_path, 60, columns, "", {})
        assert checked((table, rows), comm) == checked((table, rows))
        assert problems(checked, (table, rows), comm, prior="flat") == problems(checked, (table, rows), prior="flat")


def test_settings_say_all_that_is_wrong():
    with pytest.raises(ConfigError) as caught:
        Settings(
            "probit", "y", predictors=("a", "y", "a"), missing="ignore", prior="cauchy", prior_scale=0.0,
            degrees_of_freedom=-1, scale="best",
        )  # fmt: skip
    assert len(caught.value.problems) == 8
    with pytest.raises(ConfigError, match="softmax with a flat prior"):
        Settings("softmax", "y", prior="flat")
    with pytest.raises(ConfigError, match="nothing to estimate"):
        Settings("logistic", "y", predictors=(), intercept=False)
    assert Settings("student-t", "y", predictors=(), prior_scale="heldout", scale="auto").predictors == ()
