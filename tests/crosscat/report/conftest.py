import pytest

from tests.crosscat.report.runs import make_run, write_planted


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    return write_planted(tmp_path_factory.mktemp("planted") / "planted.h5")


@pytest.fixture(scope="session")
def run_dir(table, tmp_path_factory):
    """A run with a held-out fraction, for tests that only read it."""
    return make_run(tmp_path_factory.mktemp("run") / "a", table, heldout=0.1)


@pytest.fixture
def no_more_pictures(monkeypatch):
    """Return a function that ends the drawing, for tests that have looked and go on to other claims."""
    return lambda: monkeypatch.setattr("mpibayes.hpc.crosscat.report.report._figures", lambda posterior: [])


@pytest.fixture
def named_pictures():
    """Name the pictures of a report without drawing them, for tests of which there are."""


@pytest.fixture(autouse=True)
def few_pictures(monkeypatch, request):
    """Make reports without pictures in tests that do not look at them."""
    if not {"figures", "named_pictures"} & set(request.fixturenames):
        monkeypatch.setattr("mpibayes.hpc.crosscat.report.report._figures", lambda posterior: [])
