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
def pictures():
    """For tests that look at a report's pictures: drawing is most of its time."""


@pytest.fixture(autouse=True)
def few_pictures(monkeypatch, request):
    """None where no test looks, and all but the first at a third of the resolution."""
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("mpibayes.hpc.crosscat.report.report._pictures", lambda posterior: {})
    if "whole" not in request.node.name:
        monkeypatch.setattr("mpibayes.hpc.posterior.drawing.DPI", 50)
