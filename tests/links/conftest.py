"""Fixtures of tests of questions about linked columns; `run` is each module's own."""

import pytest

from mpibayes.hpc.query.asking import Asking


@pytest.fixture(scope="module")
def asking(run):
    asking = Asking(run, draws=4)
    asking.draws([c.name for c in asking.columns])
    return asking
