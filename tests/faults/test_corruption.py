"""Damaged files. `python -m tests.faults.corruption --cases 500` is the long version."""

import importlib.util
import shutil
from random import Random

import pytest

from tests.faults.corruption import Case, Victim, campaign, table, without_pictures

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None or importlib.util.find_spec("arviz") is None,
    reason="the report needs matplotlib and arviz: pip install '.[report]'",
)

# What the campaign found: damage that was not noticed, or not told with the file's name.
FOUND = [
    ("run/trace/seg-N-N.h5", "other run"),  # exported as if it were this run's
    ("run/trace/seg-N-N.h5", "remove"),  # its cycles were missing in the exports, without a warning
    ("run/labels/seg-N-N.h5", "remove"),
    ("run/labels/seg-N-N.h5", "other run"),
    ("table.h5", "flip"),  # other data, and so another chain
    ("run/config.resolved.toml", "flip"),
    ("run/config.resolved.toml", "truncate"),  # "run.seed: was 0"
    ("run/config.resolved.toml", "other run"),
    ("run/provenance.json", "other run"),
    ("run/training_rows.npy", "empty"),  # the report said "interrupted"
    ("run/training_rows.npy", "flip"),  # told without the file's name
    ("run/checkpoints/N/MANIFEST.json", "other run"),  # of the same sizes: the others were blamed
]
ONE_CHAIN = """[data]
table = "table.h5"
heldout = 0.2
[model]
family = "mixture"
[run]
seed = 7
shards = 3
cycles = 44
[output]
labels = 2
"""


@pytest.fixture(scope="module")
def victim(tmp_path_factory) -> Victim:
    return Victim(tmp_path_factory.mktemp("found") / "victim", Random(1), ONE_CHAIN)


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "damage"), FOUND, ids=lambda word: word.rpartition("/")[2])
def test_what_was_found(victim, tmp_path, monkeypatch, kind, damage):
    without_pictures(monkeypatch.setattr)
    case = Case(victim, tmp_path / "case", Random(1), kind, damage)  # raises what is wrong
    assert case.run() in ("detected", "warned") or damage == "flip" or "MANIFEST" in kind


@pytest.mark.thorough
def test_a_segment_that_is_missing_is_not_hidden_by_joining(victim, tmp_path, monkeypatch):
    """A run that joins its small segments leaves them as they are when one is missing, and goes on."""
    from mpibayes.errors import CheckpointError
    from mpibayes.io import segments
    from mpibayes.io.trace import TraceWriter, read_trace

    run = tmp_path / "run"
    shutil.copytree(victim.whole / "run", run)
    _, *scalars = read_trace(run)
    monkeypatch.setattr(segments, "MANY", 4)
    sorted((run / "trace").iterdir())[1].unlink()
    writer = TraceWriter(run, scalars)
    for cycle in range(33, 45):
        writer.append(cycle, dict.fromkeys(writer.scalars, 0.0))
        writer.flush()
    assert len(list((run / "trace").iterdir())) == 14
    with pytest.raises(CheckpointError, match=r"seg-\*-000000024\.h5: is missing"):
        read_trace(run)


@pytest.mark.thorough
@pytest.mark.parametrize("tens", range(5))
def test_damaged_files_are_told_or_do_no_harm(victim, tmp_path, monkeypatch, tens):
    without_pictures(monkeypatch.setattr)
    outcomes, _, wrong = campaign(range(10 * tens, 10 * tens + 10), 4, tmp_path, victim=victim)
    print(table(outcomes))
    assert not wrong, "\n".join(wrong)
