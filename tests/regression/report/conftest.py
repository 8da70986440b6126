import pytest

from tests.regression.report.runs import make_run, write_customers


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    return write_customers(tmp_path_factory.mktemp("customers") / "customers.h5")


@pytest.fixture(scope="session")
def runs(table, tmp_path_factory):
    """A run of each likelihood, for tests that only read it; the logistic one has two chains."""
    folder = tmp_path_factory.mktemp("regressions")
    return {
        likelihood: make_run(
            folder / likelihood,
            table,
            likelihood,
            cycles=8000,
            burn_in=1000,
            chains=2 if likelihood == "logistic" else 1,
        )
        for likelihood in ("logistic", "softmax", "student-t")
    }


@pytest.fixture
def pictures():
    """Enable drawing in tests that look at a report's pictures: drawing takes most of the time."""


@pytest.fixture(autouse=True)
def few_pictures(monkeypatch, request):
    """Draw no pictures unless a test looks at them, and at a third of the resolution elsewhere."""
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("mpibayes.hpc.regression.report.report._figures", lambda posterior: [])
    monkeypatch.setattr("mpibayes.hpc.report.drawing.DPI", 50)
