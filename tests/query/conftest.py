import pytest

from mpibayes.hpc.query.asking import Asking
from tests.query import runs


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return runs.tiny_run(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session", params=["mixture", "crosscat"])
def people(request, tmp_path_factory):
    """A run of two chains on people, of one view or of several."""
    return runs.people_run(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture
def asking(people):
    return Asking(people)
