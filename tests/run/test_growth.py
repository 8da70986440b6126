"""`mpibayes run --grow`: a run takes in the rows that came to its table, and keeps what it was so far."""

import numpy as np
import pytest

from mpibayes.errors import CheckpointError, ConfigError
from mpibayes.hpc.crosscat.draws import last_draw
from mpibayes.hpc.posterior.chains import KeptChains
from mpibayes.hpc.run import grown
from mpibayes.hpc.run.identity import read_provenance, read_resolved
from mpibayes.io.append import append_rows
from mpibayes.io.trace import read_trace
from tests.run.conftest import exported, mpibayes, run, run_some
from tests.run.test_grown import begun, csv


def contents(folder):
    """What a run directory has, its logs and its growths aside."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = {str(path.relative_to(folder)): path for path in files}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(("logs", "grown"))}


@pytest.mark.parametrize("family", ["mixture", "crosscat"])
def test_a_run_goes_on_with_new_rows(tmp_path, family):
    asked = begun(tmp_path, family)
    before = contents(tmp_path / "may")
    refused = run(tmp_path, "may")
    assert refused.returncode == 2 and "--grow (run.grow = true)" in refused.stderr
    assert contents(tmp_path / "may") == before
    done = run(tmp_path, "may", "--grow")
    assert done.returncode == 0, done.stderr
    for words in ("40 rows came to the 90", "seats 32 more training rows", "draws count from cycle 5"):
        assert words in done.stdout, done.stdout
    assert contents(tmp_path / "may" / "grown" / "1") == before
    assert mpibayes(tmp_path, "query", "may/grown/1", "logp", "--of", "p=a").stdout == asked
    assert mpibayes(tmp_path, "query", "may", "logp", "--of", "p=d").returncode == 0
    assert all(len(z) == 104 for z in last_draw(tmp_path / "may").labels)
    assert read_trace(tmp_path / "may")["cycle"].tolist() == list(range(1, 11))
    assert run(tmp_path, "may").returncode == run(tmp_path, "may", "--grow").returncode == 0  # nothing came since
    assert len(list((tmp_path / "may" / "grown").iterdir())) == 1
    assert '"grown": 1' in mpibayes(tmp_path, "status", "may", "--json").stdout
