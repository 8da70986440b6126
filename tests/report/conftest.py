import pytest

from tests.report.runs import make_run, write_planted


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    return write_planted(tmp_path_factory.mktemp("planted") / "planted.h5")


@pytest.fixture(scope="session")
def run_dir(table, tmp_path_factory):
    """A run with a held-out fraction, for tests that only read it."""
    return make_run(tmp_path_factory.mktemp("run") / "a", table, heldout=0.1)


@pytest.fixture(autouse=True)
def coarse_pictures(monkeypatch, request):
    """A third of the resolution, but for the test that looks at pictures: drawing is most of a report's time."""
    if "whole" not in request.node.name:
        monkeypatch.setattr("mpibayes.hpc.posterior.drawing.DPI", 50)
