"""The ranks that a run starts itself: how many, where none, and that it ends as in one process."""

import os
import signal
import subprocess
import sys
import time

import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.config.load import load
from mpibayes.hpc.parallel import control_groups, launcher, meeting
from mpibayes.hpc.parallel.schedule import MOST_BYTES, decided, fewest
from mpibayes.hpc.run import become, loop, ranks
from mpibayes.hpc.run.plan import RANK_BYTES, Work
from mpibayes.hpc.run.ranks import Machine, decide
from tests.conftest import FOR_RANKS, is_open_mpi, is_running
from tests.run.conftest import config_text, exported, in_process, mixed_table, mpibayes

WORK = Work(n_chains=2, n_shards=1, row_bytes=1000, groups="auto", cycle_s=0.01)
LONG = 1000  # cycles
MACHINE = Machine(cores=8, memory=None, batch=False, program="/opt/mpirun", meeting=lambda program, n: "MPICH")


def changed(thing, **values):
    return type(thing)(**{**vars(thing), **values})


@pytest.mark.parametrize(
    "n, work, cycles, machine",
    [
        (2, {}, LONG, {}),
        (1, {"n_chains": 1}, LONG, {}),  # one chain on one shard
        (4, {"n_chains": 1, "n_shards": 4}, LONG, {}),
        (8, {"n_shards": 4}, LONG, {}),
        (2, {"n_chains": 1, "n_shards": 4}, LONG, {"cores": 3}),  # of three ranks one would have two shards as well
        (3, {"n_chains": 5}, LONG, {"cores": 4}),  # two turns, as with four
        (4, {"n_chains": 100}, LONG, {"cores": 4}),
        (4, {"n_chains": 2, "n_shards": 4, "groups": 1}, LONG, {}),
        (2, {"n_shards": 4, "shared": False}, LONG, {}),  # a regression: more ranks shorten no cycle
        (1, {}, LONG, {"cores": 1}),
        (1, {}, 0, {}),  # it has its cycles already
        (1, {}, 249, {}),  # seconds
        (2, {}, 250, {}),
        (1, {}, LONG, {"program": None}),
        (1, {}, LONG, {"batch": True}),
        (1, {}, LONG, {"meeting": lambda program, n: None}),
        (1, {}, LONG, {"meeting": lambda program, n: "Open"}),
        (2, {}, LONG, {"memory": 2 * RANK_BYTES + 4000}),  # for another rank, and another copy of the rows
        (1, {}, LONG, {"memory": 2 * RANK_BYTES + 3999}),
        (4, {"n_shards": 4}, LONG, {"memory": 7 * RANK_BYTES}),  # as many as there is memory for
        (2, {"n_shards": 4}, LONG, {"memory": 5 * RANK_BYTES}),  # which is three, and the third would not help
        (4, {"n_shards": 4, "row_bytes": 10**12}, LONG, {"memory": 20 * RANK_BYTES}),  # which share the rows
    ],
)
def test_the_number_of_ranks(n, work, cycles, machine):
    assert decide(changed(WORK, **work), cycles, changed(MACHINE, **machine))[0] == n


@pytest.mark.parametrize(
    "machine, words",
    [
        ({}, ""),
        ({"cores": 1}, ""),
        ({"program": None}, ""),
        ({"batch": True}, "a batch system allocates the cores here; --ranks 2 starts 2"),
        ({"meeting": lambda program, n: None}, "2 ranks of /opt/mpirun cannot connect; `mpirun -n 2 mpibayes"),
        ({"meeting": lambda program, n: "Open"}, "--ranks 2 is faster, but its mpirun ends it on Ctrl-C without"),
    ],
)
def test_where_ranks_would_help_a_note_says_why_there_are_none(machine, words):
    note = decide(WORK, LONG, changed(MACHINE, **machine))[1]
    assert words in note and (note.startswith("note: one process") or not words)


def test_ranks_are_not_tried_where_they_have_nothing_to_do():
    def never(program, n):
        raise AssertionError

    for work, cycles in (({"n_chains": 1}, LONG), ({}, 10)):
        decide(changed(WORK, **work), cycles, changed(MACHINE, meeting=never))


def test_a_further_rank_never_has_more_to_do():
    """The cost falls with ranks, as `fewest` supposes, which looks at few numbers of them."""
    for chains in (1, 2, 3, 5, 8):
        for shards in (1, 2, 4, 7):
            for size in (0, 3 * MOST_BYTES):
                for groups in ("auto", 1, 2):
                    costs = [decided(n, chains, shards, size, groups).cost(shards) for n in range(1, 20)]
                    assert costs == sorted(costs, reverse=True)
                    for most in (1, 3, 19):
                        assert fewest(most, chains, shards, size, groups) == 1 + costs.index(costs[most - 1])


# --- what the user says -----------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path):
    (tmp_path / "run.toml").write_text(config_text())
    return lambda *changes: load(tmp_path / "run.toml", changes)


def test_the_configuration_comes_before_the_environment(config, monkeypatch):
    monkeypatch.setattr(ranks, "work_of", lambda *given: WORK)
    monkeypatch.setattr(ranks, "this_machine", lambda: MACHINE)
    changes = ("run.cycles=1000", "model.family=mixture")
    for text in (None, "auto"):
        monkeypatch.delenv("MPIBAYES_RANKS", raising=False)
        if text:
            monkeypatch.setenv("MPIBAYES_RANKS", text)
        assert ranks.choose(config(*changes), None) == (2, "")
        assert ranks.choose(config(*changes), None, done=900) == (1, "")
    monkeypatch.setenv("MPIBAYES_RANKS", "5")
    assert ranks.choose(config(*changes), None) == (5, "")
    assert ranks.choose(config(*changes, "run.ranks=3"), None) == (3, "")


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "1.5"])
def test_a_variable_that_is_no_number_is_named(config, monkeypatch, text):
    monkeypatch.setenv("MPIBAYES_RANKS", text)
    with pytest.raises(ConfigError, match=f'MPIBAYES_RANKS = "{text}": expected "auto" or a whole number'):
        ranks.choose(config(), None)


def test_the_batch_system_of_a_host(monkeypatch, tmp_path):
    for name in launcher.JOB_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not launcher.batch_system()
    (tmp_path / "sbatch").write_text("#!/bin/sh\n")
    (tmp_path / "sbatch").chmod(0o755)
    assert launcher.batch_system()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PBS_JOBID", "3")
    assert launcher.batch_system()


# --- what the machine gives -------------------------------------------------------------------------------------------


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Writes files of control groups: `groups({"a/cpu.max": "..."})`; this process is in `own`."""
    monkeypatch.setattr(control_groups, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(control_groups, "OWN", tmp_path / "own")
    monkeypatch.setattr(control_groups, "MEMORY_NOW", tmp_path / "meminfo")

    def write(own, files, meminfo="MemTotal: 9 kB\nMemAvailable: 1000 kB\n"):
        (tmp_path / "own").write_text(own)
        (tmp_path / "meminfo").write_text(meminfo)
        for name, text in files.items():
            place = tmp_path / "cgroup" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

    return write


def test_limits_of_control_groups(groups):
    groups("0::/\n", {})
    assert control_groups.quota() is None and control_groups.free_memory() == 1000 << 10
    groups("0::/a/b\n", {"cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n", "a/b/cpu.max": "max 100000\n"})
    assert control_groups.quota() == 1.5  # of the group above
    groups("0::/a/b\n", {"a/memory.max": "max\n", "a/memory.current": "7\n"})
    assert control_groups.free_memory() == 1000 << 10
    groups("0::/a/b\n", {"a/memory.max": "900\n", "a/memory.current": "700\n"})
    assert control_groups.free_memory() == 200
    groups("0::/a/b\n", {"a/memory.stat": "anon 600\ninactive_file 100\n"})
    assert control_groups.free_memory() == 300


def test_limits_of_control_groups_of_version_1(groups):
    part = "4:memory:/x\n1:cpu,cpuacct:/docker/1\n"  # a container sees its group as the root
    groups(part, {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"})
    assert control_groups.quota() == 2.0
    groups(part, {"memory/memory.limit_in_bytes": "500\n", "memory/memory.usage_in_bytes": "600\n"})
    assert control_groups.free_memory() == 0
    groups(part, {"cpu/cpu.cfs_quota_us": "-1\n"})
    assert control_groups.quota() is None


def test_a_host_without_such_files(groups, tmp_path):
    assert control_groups.quota() is None and control_groups.free_memory() is None


@pytest.mark.parametrize(
    "script, name",
    [
        ("echo 2 MPICH", "MPICH"),
        ("echo 2 Open", "Open"),
        ("echo 1 MPICH; echo 1 MPICH", None),  # two copies that do not find each other
        ("echo 2 MPICH; exit 1", None),
        ("echo refused for root >&2; exit 1", None),
        ("sleep 60", None),
        (None, None),
    ],
)
def test_ranks_are_tried(tmp_path, monkeypatch, capfd, script, name):
    if script == "sleep 60":
        monkeypatch.setattr(meeting, "LIMIT_S", 0.3)
    program = tmp_path / "mpirun"
    if script is not None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    began = time.monotonic()
    assert meeting.meeting(str(program), 2) == name
    assert time.monotonic() - began < 20 and capfd.readouterr() == ("", "")


# --- runs -------------------------------------------------------------------------------------------------------------

# The command on a machine of two cores without a batch system, where no run is too short for ranks.
ALONE = """
import sys
from mpibayes.hpc.parallel import launcher
from mpibayes.hpc.run import ranks
launcher.SUBMITTERS = ()
ranks.WORTH_S, ranks.program_cores = 0.0, lambda: 2
from mpibayes.__main__ import main
sys.argv[0] = "mpibayes"
sys.exit(main())
"""
TWO = ("--set", "run.chains=2", "--set", "run.until=cycles")


def start(place, *words, **options):
    return subprocess.Popen(
        [sys.executable, "-c", ALONE, *map(str, words)], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env={**os.environ, **FOR_RANKS, "MPIBAYES_RANKS": "auto"}, start_new_session=True, **options,
    )  # fmt: skip


def finish(process):
    try:
        return process.communicate(timeout=100)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def test_ranks_go_on_with_the_table_that_was_imported(tmp_path, monkeypatch):
    """The import is not repeated: mpirun is given the configuration beside the run directory."""
    (tmp_path / "few.csv").write_text("a,b\n" + "\n".join(f"{i % 3},{i * 0.37 % 1:.2f}" for i in range(30)) + "\n")
    calls = []
    monkeypatch.setattr(loop.ranks, "choose", lambda config, data, done: (calls.append(done), (2, ""))[1])
    monkeypatch.setattr(loop.ranks, "hand_over", lambda n, words, clock: calls.append((n, words)))
    words = ["run", "few.csv", "-o", "runs/a", "--set", "run.cycles=3", "--set", "run.until=cycles"]
    done = in_process(tmp_path, *words, "--max-time", "1h")  # it goes on alone where it is not replaced
    assert done.returncode == 0, done.stderr
    n, (verb, *options, _, place) = calls[1]
    time_s = float(options.pop(3).removeprefix("--max-time="))
    assert (n, verb, place) == (2, "run", "runs/a.toml") and 3000 < time_s < 3600
    assert options == ["--out=runs/a", "--set=run.cycles=3", "--set=run.until=cycles"]
    assert in_process(tmp_path, *words).returncode == 0 and calls[2] == 3  # cycles that it has
    assert in_process(tmp_path, *words, "--fresh").returncode == 0 and calls[4] == 0
    assert calls[5][1][-3:] == ["--fresh", "--", "runs/a.toml"]


def test_a_note_is_said_where_there_are_no_ranks(tmp_path, monkeypatch):
    mixed_table(tmp_path / "table.h5")
    (tmp_path / "run.toml").write_text(config_text(cycles=2))
    monkeypatch.setattr(loop.ranks, "choose", lambda *given: (1, "note: one process, for a reason"))
    assert in_process(tmp_path, "run", "run.toml", "-o", "a").stdout.startswith("note: one process, for a reason\n")
    assert "note: one process" not in mpibayes(tmp_path, "run", "run.toml", "-o", "b", ranks=2).stdout


def test_a_signal_before_mpirun_starts_stops_the_run(monkeypatch):
    """The run goes on alone, and ends at its first checkpoint."""
    monkeypatch.setattr(ranks, "become_mpirun", lambda *given: pytest.fail("mpirun was started"))
    before = {number: signal.getsignal(number) for number in ranks.signals.SIGNALS}
    try:
        clock = ranks.Clock(None)
        clock.watch_signals()
        signal.raise_signal(signal.SIGTERM)
        ranks.hand_over(2, [], clock)
        assert clock.stop_reason() == "SIGTERM" and signal.getsignal(signal.SIGTERM) == clock._on_signal
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_ranks_of_the_configuration_need_mpirun(place, monkeypatch):
    monkeypatch.setattr(become, "mpirun", lambda: None)
    done = in_process(place, "run", "run.toml", "-o", "out", "--set", "run.ranks=2")
    assert done.returncode == 2 and "run.ranks = 2: there is no mpirun here" in done.stderr
    assert not (place / "out").exists()


def test_check_foretells_the_ranks(place, monkeypatch):
    monkeypatch.setenv("MPIBAYES_RANKS", "2")
    words = ["check", "run.toml", *TWO]
    out = in_process(place, *words).stdout
    assert out.startswith("started as:     2 ranks, which `mpibayes run` starts itself") and "busiest of 2 ranks" in out
    assert "chains:         2 chains side by side" in out
    out = in_process(place, *words, "--ranks", "1").stdout
    assert "started as" not in out and "busiest of 1 rank," in out


@pytest.mark.thorough
def test_a_run_that_starts_its_ranks_has_the_bits_of_one_process(place, mpirun):
    if is_open_mpi():
        pytest.skip("its mpirun kills ranks on Ctrl-C")
    assert mpibayes(place, "run", "run.toml", "-o", "one", *TWO).returncode == 0
    read, write = os.pipe()
    os.write(write, b"for another program")
    os.close(write)
    process = start(place, "run", "run.toml", "-o", "two", *TWO, stdin=read)
    out = finish(process)
    assert process.returncode == 0 and out.startswith("2 ranks, started by "), out
    assert "2 chains side by side, each on 1 rank of 2" in out
    assert os.read(read, 99) == b"for another program"
    os.close(read)
    for chain in ("chain-1", "chain-2"):
        assert exported(place, f"one/{chain}") == exported(place, f"two/{chain}")


@pytest.mark.thorough
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_signals_end_a_run_that_started_its_ranks_at_a_checkpoint(place, mpirun, number):
    """Ctrl-C is for all processes of a terminal, a signal for the one that was started."""
    if is_open_mpi():
        pytest.skip("its mpirun kills ranks on Ctrl-C")
    process = start(place, "run", "run.toml", "-o", "out", *TWO, "--set", "run.cycles=100000")
    until = time.monotonic() + 60
    while not all(is_running(place / "out" / f"chain-{i}") for i in (1, 2)):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.1)
    (os.killpg if number == "SIGINT" else os.kill)(process.pid, signal.Signals[number])
    out = finish(process)
    assert process.returncode == 75 and out.count("stopped early") == 2, out
    assert all(list((place / "out" / f"chain-{i}" / "checkpoints").glob("*/MANIFEST.json")) for i in (1, 2))
