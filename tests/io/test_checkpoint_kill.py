"""kill -9 at random moments, five times in one run: a whole generation is always there, and the traces fit it."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np

from mpibayes.io import segments
from mpibayes.io.draws import DrawWriter, iterate_draws
from mpibayes.io.generations import latest
from mpibayes.io.trace import TraceWriter, read_trace

KILLS, MOST_KILLS = 5, 200
SCALARS = [f"scalar_{i}" for i in range(14)]

# A run in small: it goes on from the last checkpoint, and all it writes is a function of the cycle number.
PROGRAM = (
    f"""
SCALARS = {SCALARS}
"""
    + """
import sys
import numpy as np
from mpibayes.io import segments
from mpibayes.io.checkpoint import begin, commit, write_part
from mpibayes.io.generations import latest
from mpibayes.io.draws import DrawWriter
from mpibayes.io.inference import merge
from mpibayes.io.trace import TraceWriter

segments.MANY = 5
run, cycles = sys.argv[1], int(sys.argv[2])
generation = latest(run + "/checkpoints")
start = 0 if generation is None else generation.cycle
if generation:
    assert generation.shared()["cycle"] == start and (generation.shard(1)["labels"] == start).all()
trace, draws = TraceWriter(run, SCALARS), DrawWriter(run, whole=["labels"])
trace.truncate(start if generation else -1)
draws.truncate(start if generation else -1)
print("ready", flush=True)
for cycle in range(start + 1, cycles + 1):
    trace.append(cycle, {name: cycle + i / 8 for i, name in enumerate(SCALARS)})
    draws.append(cycle, labels=np.arange(5) * cycle, concentration=cycle, gamma=np.full((1, 2), cycle))
    if cycle % 3 == 0 or cycle == cycles:
        trace.flush()
        draws.flush()
        draft = begin(run + "/checkpoints", cycle)
        parts = [write_part(draft, i, {i: {"labels": np.full(2000, cycle)}}) for i in (0, 1)]
        commit(draft, parts, {"cycle": cycle})
        merge(run)
"""
)


def check(run, cycle):
    """The traces up to `cycle` are whole and right."""
    trace = read_trace(run)
    n = 0 if not trace else int(np.searchsorted(trace["cycle"], cycle, side="right"))
    assert n == cycle and (not trace or np.array_equal(trace["cycle"], np.arange(1, len(trace["cycle"]) + 1)))
    for i, name in enumerate(SCALARS):
        assert not trace or np.array_equal(trace[name], trace["cycle"] + i / 8)
    draws = list(iterate_draws(run))
    assert [number for number, _ in draws[:cycle]] == list(range(1, cycle + 1))
    for number, draw in draws:
        assert np.array_equal(draw["labels"], np.arange(5) * number)
        assert draw["concentration"] == draw["gamma"][0, 1] == number


def test_a_kill_at_any_moment_leaves_a_whole_generation_and_traces_that_fit(tmp_path, monkeypatch):
    seed = int(os.environ.get("MPIBAYES_TEST_SEED", "7"))
    print("MPIBAYES_TEST_SEED", seed)
    moments = random.Random(seed)
    run = str(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    reached, kinds = 0, set()
    for n in range(MOST_KILLS):
        if n >= KILLS and kinds and reached:  # some came in the middle of a write
            break
        child = subprocess.Popen([sys.executable, "-c", PROGRAM, run, "1000000"], stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0.0, 0.12 * (1 + n // KILLS)))  # a busy machine takes longer
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        child.stdout.close()
        kinds |= {p.suffix for p in tmp_path.rglob("*") if p.suffix == ".tmp"}
        generation = latest(tmp_path / "checkpoints")
        cycle = generation.cycle if generation else 0
        assert cycle >= reached and (generation is None or generation.warnings == [])
        reached = cycle
        check(run, cycle)
    assert reached > 0
    assert kinds, "no kill came in the middle of a write: the test shows nothing; widen the moments"
    # Resuming here cuts the traces to the checkpoint, and the run ends with what an uninterrupted one has.
    monkeypatch.setattr(segments, "MANY", 5)
    for writer in (TraceWriter(run, SCALARS), DrawWriter(run, whole=["labels"])):
        writer.truncate(reached)
        assert writer.last_cycle == reached
    assert len(read_trace(run)["cycle"]) == reached
    subprocess.run([sys.executable, "-c", PROGRAM, run, str(reached + 10)], check=True, stdout=subprocess.DEVNULL)
    check(run, reached + 10)
    # Killed merges leave temporary files (a reader may be merging too); opening a run removes those older than 10 min.
    left = list(tmp_path.rglob("*.tmp"))
    assert all(p.name.startswith("trace.h5.") for p in left)
    for path in left:
        os.utime(path, (0, 0))
    TraceWriter(run, SCALARS)
    assert not list(tmp_path.rglob("*.tmp"))
