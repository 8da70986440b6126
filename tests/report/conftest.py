import pytest

from tests.report.runs import make_run, write_planted


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    return write_planted(tmp_path_factory.mktemp("planted") / "planted.h5")


@pytest.fixture(scope="session")
def run_dir(table, tmp_path_factory):
    """A run with a held-out fraction, for tests that only read it."""
    return make_run(tmp_path_factory.mktemp("run") / "a", table, heldout=0.1)
