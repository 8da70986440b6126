import pytest

from mpibayes.hpc.report import drawing
from tests.crosscat.report.runs import make_run, write_planted

png = drawing.png


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


@pytest.fixture
def no_more_pictures(monkeypatch):
    """For tests that have looked, and go on to other claims: called, it ends the drawing."""
    return lambda: monkeypatch.setattr("mpibayes.hpc.crosscat.report.report._figures", lambda posterior: [])


@pytest.fixture(autouse=True)
def few_pictures(monkeypatch, request):
    """None where no test looks, and all but the first at a third of the resolution and without a layout."""
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("mpibayes.hpc.crosscat.report.report._figures", lambda posterior: [])
    if "whole" not in request.node.name:
        monkeypatch.setattr(drawing, "DPI", 50)
        monkeypatch.setattr(drawing, "png", lambda figure: figure.set_layout_engine("none") or png(figure))
