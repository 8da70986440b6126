"""Fixtures for tests of questions about linked columns; each module defines its own `run`."""

import pytest

from mpibayes.hpc.query.asking import Asking


@pytest.fixture(scope="module")
def asking(run):
    asking = Asking(run, draws=4)
    asking.draws([c.name for c in asking.columns])
    return asking
