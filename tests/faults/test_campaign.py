"""Eight faults and more; `python -m tests.faults.campaign --runs 200` is the long version."""

import shutil
import sys

import pytest

from tests.faults.campaign import campaign, table
from tests.faults.growth import Growth

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun on this machine"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc"),
]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2))
def test_killed_runs_go_on_with_the_same_bits(tmp_path, seed):
    survived, wrong = campaign(4, seed, tmp_path)
    print(table(survived))
    assert not wrong, "\n".join(wrong)


@pytest.mark.thorough
def test_rows_that_come_while_starts_are_killed(tmp_path):
    survived, wrong = campaign(4, 0, tmp_path, kind=Growth)
    print(table(survived))
    assert not wrong, "\n".join(wrong)
