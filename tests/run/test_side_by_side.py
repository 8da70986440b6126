"""Chains side by side on groups of ranks: the bits of chains in turns, stops and errors that all groups hear of."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from mpibayes.hpc.parallel.schedule import MOST_BYTES, decided, grouped
from mpibayes.hpc.run import loop
from mpibayes.hpc.run.chain_run import ChainRun
from tests.conftest import FOR_RANKS, exit_code, launch
from tests.run.conftest import FAULTY, command, config_text, exported, mixed_table, run, run_some

WITHIN = 60  # seconds: alone a case takes 3 to 6
SHORT = ("--set", "run.cycles=8", "--set", "run.burn_in=2", "--set", "run.until=cycles")


# --- who runs what ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_ranks, n_chains", list(itertools.product((1, 2, 3, 4, 8), (1, 2, 3, 5))))
def test_every_chain_has_one_group_and_every_rank_too(n_ranks, n_chains):
    for n_groups in range(1, min(n_ranks, n_chains) + 1):
        s = grouped(n_ranks, n_chains, n_groups)
        assert sum(s.sizes) == n_ranks and max(s.sizes) - min(s.sizes) <= 1
        assert sorted(c for g in range(n_groups) for c in s.chains_of(g)) == list(range(n_chains))
        assert all(len(s.chains_of(g)) for g in range(n_groups)) and 0 in s.chains_of(0)
        assert [s.group_of(r) for r in range(n_ranks)] == sorted(s.group_of(r) for r in range(n_ranks))


@pytest.mark.parametrize(
    "ranks, chains, shards, sizes",
    [
        (1, 4, 4, (1,)),
        (4, 1, 4, (4,)),
        (2, 2, 1, (1, 1)),
        (4, 4, 1, (1, 1, 1, 1)),  # one shard: a second rank would have nothing to do
        (4, 2, 1, (2, 2)),
        (3, 2, 1, (2, 1)),
        (2, 2, 4, (1, 1)),  # as fast as both ranks on each chain, and without messages
        (2, 3, 4, (2,)),  # in turns on both ranks: no rank is without a chain while the other has two
        (4, 3, 4, (4,)),
        (64, 4, 20, (16, 16, 16, 16)),
    ],
)
def test_the_rank_with_most_to_do_has_little(ranks, chains, shards, sizes):
    assert decided(ranks, chains, shards, 0).sizes == sizes


def test_large_tables_are_held_once():
    """Rows take the memory of all ranks together; groups would each hold all of them."""
    assert decided(4, 4, 4, MOST_BYTES).sizes == (1, 1, 1, 1)
    assert decided(4, 4, 4, 2 * MOST_BYTES).sizes == (2, 2)
    assert decided(4, 4, 4, 5 * MOST_BYTES).sizes == (4,)
    assert decided(4, 4, 4, 5 * MOST_BYTES, groups=9).sizes == (1, 1, 1, 1)  # a user who knows better
    assert decided(4, 4, 1, 5 * MOST_BYTES).sizes == (4,)


def test_it_is_said():
    assert decided(4, 4, 1, 0).in_words() == "4 chains side by side, each on 1 rank of 4"
    assert decided(3, 2, 1, 0).in_words() == "2 chains side by side, each on 1 or 2 ranks of 3"
    assert grouped(4, 4, 2).in_words() == "4 chains side by side, 2 at a time, each on 2 ranks of 4"
    assert grouped(4, 4, 1).in_words() == "4 chains in turns, each on all 4 ranks"
    assert grouped(4, 1, 1).in_words() == grouped(1, 4, 1).in_words() == ""
    assert decided(4, 2, 1, 0).idle(1) == 2 and decided(4, 4, 1, 0).idle(1) == 0


# --- the same bits ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with table.h5 and run.toml, and the exports of runs on one rank by the number of their chains."""
    place = tmp_path_factory.mktemp("side-by-side")
    mixed_table(place / "table.h5", n=300)
    (place / "run.toml").write_text(config_text(shards=3))
    known = {}

    def on_one_rank(chains):
        if chains not in known:
            assert run(place, f"one-{chains}", *chained(chains)).returncode == 0
            known[chains] = ends(place, f"one-{chains}", chains)
        return known[chains]

    return place, on_one_rank


def chained(chains, *changes):
    words = (f"run.chains={chains}", *changes)
    return (*SHORT, *(word for change in words for word in ("--set", change)))


def ends(place, out, chains):
    folders = [out] if chains == 1 else [f"{out}/chain-{i + 1}" for i in range(chains)]
    return [exported(place, folder) for folder in folders]


@pytest.mark.quick("2-2", "3-2")
@pytest.mark.parametrize("ranks, chains", list(itertools.product((2, 3, 4), (1, 2, 3, 4))))
def test_any_number_of_ranks_and_chains(folder, ranks, chains):
    place, on_one_rank = folder
    done = run(place, f"{ranks}-{chains}", *chained(chains), ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert ends(place, f"{ranks}-{chains}", chains) == on_one_rank(chains)


@pytest.mark.quick("3-2-2 at a time, each on 1 or 2 ranks")
@pytest.mark.parametrize(
    "ranks, groups, words",
    [
        (4, 1, "in turns, each on all 4 ranks"),
        (4, 2, "2 at a time, each on 2 ranks"),
        (4, 4, "side by side, each on 1 rank"),
        (3, 2, "2 at a time, each on 1 or 2 ranks"),
    ],
)
def test_any_grouping(folder, ranks, groups, words):
    place, on_one_rank = folder
    out = f"groups-{ranks}-{groups}"
    done = run(place, out, *chained(4, f"run.groups={groups}"), ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert ends(place, out, 4) == on_one_rank(4)
    assert done.stdout.count(words) == 1


@pytest.mark.thorough
def test_stopped_and_continued_on_another_number_of_ranks(folder):
    """Each piece stops in the middle of chains that are side by side."""
    place, on_one_rank = folder
    for ranks, cycles in ((3, 3), (2, 2), (4, 2)):
        changes = ("run.chains=3", "run.cycles=8", "run.burn_in=2", "run.until=cycles", "run.groups=3")
        done = run_some(place, "pieces", cycles, *changes, ranks=ranks)
        assert done.returncode == 75, done.stdout + done.stderr
        states = [state["state"] for i in (1, 2, 3) if (state := status(place / "pieces" / f"chain-{i}"))]
        assert states and not {"running", "waiting"} & set(states)
    assert run(place, "pieces", *chained(3), ranks=3).returncode == 0
    assert ends(place, "pieces", 3) == on_one_rank(3)


def status(folder):
    path = folder / "status.json"
    return json.loads(path.read_text()) if path.exists() else None


@pytest.mark.thorough
def test_chains_that_lost_their_checkpoints_are_refused_on_all_ranks(folder):
    """Each chain has its own note that it had one: several hosts do not write one file."""
    import shutil

    place, _ = folder
    words = chained(2, "run.cycles=3")
    assert run(place, "lost", *words, ranks=2).returncode == 0
    assert "checkpoints" not in json.loads((place / "lost" / "provenance.json").read_text())
    shutil.rmtree(place / "lost" / "chain-2" / "checkpoints")
    (place / "lost" / "chain-2" / "status.json").unlink()
    done = run(place, "lost", *chained(2), ranks=2)
    assert done.returncode == 4 and done.stderr.count("mpibayes: error:") == 1, done.stderr
    assert "chain-2/checkpoints: empty, but the chain had a checkpoint" in done.stderr


# --- errors -----------------------------------------------------------------------------------------------------------

# Chain 2 goes wrong on some rank in its fourth cycle; others take as long as a test would wait.
IN_A_CYCLE = """
from mpibayes.hpc.crosscat.chain import Mixture
from mpibayes.errors import NumericalError
cycle = Mixture.cycle
def not_finite(info):
    info.log_joint = float("nan")
    return info
def faulty(self, word=()):
    time.sleep(0.02)
    if rank == {rank} and self.cycles == 3:
        {what}
    return cycle(self, word)
Mixture.cycle = faulty
"""
NO_ROOM = """
from mpibayes.errors import CheckpointError
from mpibayes.io import checkpoint
write = checkpoint.write_part
def full(*words):
    if rank == {rank}:
        raise CheckpointError("a part cannot be written: No space left on device")
    return write(*words)
checkpoint.write_part = full
"""
ENDLESS = ("--set", "run.until=cycles", "--set", "run.cycles=100000", "--set", "run.burn_in=2")


def faulty(place, code, out, *words, ranks=2):
    program = [sys.executable, "-c", FAULTY, code, out, *ENDLESS, *words]
    return launch(["mpirun", "-n", ranks, *program], timeout=WITHIN, cwd=place, env=FOR_RANKS)


IN_WORDS = "not enough memory|only I know|boom|not a finite number|No space left"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "ranks, code, expected, saved",
    [
        (2, IN_A_CYCLE.format(rank=1, what='raise NumericalError("only I know")'), 5, True),
        (4, IN_A_CYCLE.format(rank=3, what='raise NumericalError("only I know")'), 5, False),
        (2, IN_A_CYCLE.format(rank=1, what='raise RuntimeError("boom")'), 70, False),
        (2, IN_A_CYCLE.format(rank=1, what="raise MemoryError"), 4, False),
        (2, IN_A_CYCLE.format(rank=1, what="return not_finite(cycle(self, word))"), 5, True),
        (4, NO_ROOM.format(rank=3), 4, True),
        (2, NO_ROOM.format(rank=1), 4, True),
    ],
    ids=["root-of-the-second", "one-of-the-second", "internal", "memory", "nan", "no-room", "no-room-alone"],
)
def test_a_fault_in_one_group_ends_the_other(place, ranks, code, expected, saved):
    """The run ends with one message. Where the failing group can say so, the other ends at a checkpoint."""
    words = ("--set", "run.chains=2", "--set", "run.groups=2", "--set", "run.checkpoint_minutes=0.001")
    done = faulty(place, code, "out", *words, ranks=ranks)
    assert exit_code(done) == expected, done.stdout + done.stderr
    reported = re.findall(r"mpibayes: error: .*", done.stderr)
    assert len(reported) == 1 and re.search(IN_WORDS, reported[0]), done.stderr
    assert not (place / "out" / "LOCK").exists() or not saved
    if saved:
        first, second = status(place / "out" / "chain-1"), status(place / "out" / "chain-2")
        assert first["state"] == "stopped" and "another chain failed" in first["message"]
        assert first["last_checkpoint"] == first["cycle"] > 0 and second["state"] == "failed"


@pytest.mark.thorough
def test_a_killed_rank_of_one_group_ends_the_other(place):
    code = IN_A_CYCLE.format(rank=1, what="os.kill(os.getpid(), 9)")
    done = faulty(place, code, "out", "--set", "run.chains=2")
    assert done.returncode in (9, 137), done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("until", ["cycles", "settled"])
def test_a_fault_while_one_group_starts(place, until):
    """Its chain cannot be opened; the other is at work by then, or ends its start."""
    code = """
from mpibayes.hpc.run import chain_run
from mpibayes.errors import DataError
def fails(*words):
    raise DataError("no start of this chain")
if rank == 1:
    chain_run.run_directory.write_training_rows = fails
"""
    done = faulty(place, code, "out", "--set", "run.chains=2", "--set", f"run.until={until}")
    assert done.returncode == 3 and done.stderr.count("mpibayes: error:") == 1, done.stdout + done.stderr
    assert "no start of this chain" in done.stderr and "rank 1" in done.stderr


# --- stops ------------------------------------------------------------------------------------------------------------


def started(place, out, *words, ranks=2):
    """A run under mpirun, and the numbers of its processes by rank, once it is at work."""
    program = command(ranks, "-c", FAULTY, SHOWS, out, *words, program=())
    process = subprocess.Popen(
        [str(word) for word in program], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, **FOR_RANKS}, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + WITHIN
    while len(result := list(place.glob("rank-*"))) < ranks:
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    return process, {int(path.name[5:]): int(path.read_text()) for path in result}


# Each rank leaves the number of its process once its chain has had some cycles.
SHOWS = """
from mpibayes.hpc.run import chain_run
keep = chain_run.ChainRun._keep
def shows(self, info, seconds):
    keep(self, info, seconds)
    if self.chain.cycles == 5:
        with open(f"rank-{rank}.tmp", "w") as file:
            file.write(str(os.getpid()))
        os.rename(f"rank-{rank}.tmp", f"rank-{rank}")
chain_run.ChainRun._keep = shows
"""


def finish(process):
    try:
        out, _ = process.communicate(timeout=WITHIN)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return out


@pytest.mark.thorough
def test_chains_of_a_large_table_all_advance_from_the_start(place, monkeypatch):
    """With the bits of chains that run from start to end, and no chain waits for the end of another one."""
    config = place / "turns.toml"
    words = 'cycles = 24\nchains = 2\nuntil = "cycles"'
    config.write_text((place / "run.toml").read_text().replace("cycles = 24", words))
    turns, seen = loop._turns, []

    def watched(chain, cycles):
        seen.append((chain.number, cycles))
        return run_chain(chain, cycles)

    run_chain = ChainRun.run
    monkeypatch.setattr(ChainRun, "run", watched)
    loop.in_process(config, place / "turns")
    assert seen == [(0, 20), (1, 20), (0, 24), (1, 24)]
    statuses = [status(place / "turns" / f"chain-{i}") for i in (1, 2)]
    assert [(s["state"], s["cycle"], s["before"]) for s in statuses] == [("finished", 24, None)] * 2
    monkeypatch.setattr(loop, "_turns", lambda numbers, places, cycles: turns(numbers, places, cycles)[-2:])
    loop.in_process(config, place / "straight")
    assert seen[4:] == [(0, 24), (1, 24)]
    for i in (1, 2):
        assert exported(place, f"straight/chain-{i}") == exported(place, f"turns/chain-{i}")
    loop.in_process(config, place / "straight")
    assert seen[6:] == [(0, 24), (1, 24)], "no early turns for chains that have their cycles"


@pytest.mark.quick("settled")
@pytest.mark.parametrize("until", ["cycles", "settled"])
def test_a_signal_to_one_rank_stops_all_groups(place, until):
    words = ("--set", "run.chains=2", "--set", f"run.until={until}", "--set", "run.cycles=100000")
    process, numbers = started(place, "out", *words)
    os.kill(numbers[1], signal.SIGUSR1)
    out = finish(process)
    assert process.returncode == 75, out
    assert out.count("stopped early (SIGUSR1) at the checkpoint") == 2, out
    for i in (1, 2):
        state = status(place / "out" / f"chain-{i}")
        assert state["state"] == "stopped" and state["last_checkpoint"] == state["cycle"] >= 5


WAITS = """
from mpibayes.hpc.crosscat.chain import Mixture
cycle = Mixture.cycle
def slow(self, word=()):
    time.sleep(0.05 * rank)
    return cycle(self, word)
Mixture.cycle = slow
import mpibayes.hpc.run.loop as loop
turns = loop._in_turns
def shows(*words):
    done = turns(*words)
    if rank == 0:
        with open("waits", "w") as file:
            file.write(str(os.getpid()))
    return done
loop._in_turns = shows
"""


@pytest.mark.thorough
def test_a_signal_to_a_rank_that_waits_is_passed_on(place):
    """Its chains have their cycles already, and those of the other group are far from it."""
    words = ("--set", "run.chains=2", "--set", "run.until=cycles", "--set", "run.cycles=100")
    program = command(2, "-c", FAULTY, WAITS, "out", *words, program=())
    process = subprocess.Popen(
        [str(word) for word in program], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, **FOR_RANKS}, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + WITHIN
    while not (place / "waits").exists() or not (place / "waits").read_text():
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    os.kill(int((place / "waits").read_text()), signal.SIGTERM)
    out = finish(process)
    assert process.returncode == 75, out
    states = [status(place / "out" / f"chain-{i}") for i in (1, 2)]
    assert [s["state"] for s in states] == ["finished", "stopped"], out
    assert states[1]["last_checkpoint"] == states[1]["cycle"] < 100


def test_ranks_that_the_command_starts_itself(place):
    """The started process gets the signal to stop, as if mpirun had been called, and its exit code is the run's."""
    words = ["run", "run.toml", "-o", "out", "--set", "run.chains=2", "--set", "run.cycles=100000", "--ranks", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "mpibayes", *words], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env={**os.environ, **FOR_RANKS}, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + WITHIN
    while not all((status(place / "out" / f"chain-{i}") or {}).get("last_checkpoint") for i in (1, 2)):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGUSR1)
    out = finish(process)
    assert process.returncode == 75 and out.startswith("2 ranks, started by "), out
    assert "2 chains side by side, each on 1 rank of 2" in out and out.count("stopped early") == 2
