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


@pytest.fixture(autouse=True)
def few_pictures(monkeypatch, request):
    """Make reports without pictures in tests that do not look at them."""
    if "figures" not in request.fixturenames:
        monkeypatch.setattr("mpibayes.hpc.regression.report.report._figures", lambda posterior: [])
