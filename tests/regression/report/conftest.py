import pytest

from tests.regression.report.runs import make_run, write_customers


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    return write_customers(tmp_path_factory.mktemp("customers") / "customers.h5")


@pytest.fixture(scope="session")
def runs(table, tmp_path_factory):
    """A run of each family, for tests that only read it; the logistic one has two chains."""
    folder = tmp_path_factory.mktemp("regressions")
    return {
        family: make_run(
            folder / family, table, family, cycles=8000, burn_in=1000, chains=2 if family == "logistic" else 1
        )
        for family in ("logistic", "softmax", "student-t")
    }


@pytest.fixture(autouse=True)
def coarse_pictures(monkeypatch):
    """A third of the resolution: drawing is most of a report's time."""
    monkeypatch.setattr("mpibayes.hpc.posterior.drawing.DPI", 50)
