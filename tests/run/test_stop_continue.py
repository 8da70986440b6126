"""Start, stop, continue, extend, refuse: what the same command does to a run directory."""

import json
import os
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from mpibayes.hpc.crosscat.draws import iterate_draws
from mpibayes.io.trace import read_trace
from tests.conftest import FOR_RANKS, is_open_mpi, is_running, launch
from tests.run.conftest import command, exported, run, run_some

ENDLESS = ("--set", "run.cycles=1000000")


def start(place, out, *words, ranks, **options):
    """The command as a process, which ends by itself should the test be killed that started it."""
    words = ("run", "run.toml", "-o", out, *words, "--max-time", "3m")
    return subprocess.Popen(
        [str(w) for w in command(ranks, *words, **options)],
        cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, **FOR_RANKS},
    )  # fmt: skip


def wait_for_progress(place, out, process, seconds=60):
    limit = time.monotonic() + seconds
    while not is_running(place / out):
        assert process.poll() is None and time.monotonic() < limit, process.communicate()
        time.sleep(0.05)
    time.sleep(0.5)


@pytest.mark.quick("SIGUSR1-3")
@pytest.mark.parametrize(
    "number, ranks",
    [(signal.SIGUSR1, 3), (signal.SIGTERM, 1), (signal.SIGTERM, 3), (signal.SIGINT, 1)],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_signal_leads_to_a_checkpoint_and_75(place, ranks, number):
    if ranks > 1 and number != signal.SIGUSR1 and is_open_mpi():
        pytest.skip("Open MPI's mpirun kills its ranks a second after SIGTERM or SIGINT, and returns 1")
    process = start(place, "out", *ENDLESS, ranks=ranks)
    try:
        wait_for_progress(place, "out", process)
        process.send_signal(number)
        out, err = process.communicate(timeout=40)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 75, out + err
    status = json.loads((place / "out" / "status.json").read_text())
    assert status["state"] == "stopped" and status["last_checkpoint"] == status["cycle"] > 0
    assert "Traceback" not in out + err

    cycle = status["cycle"] + 3
    done = run(place, "out", "--set", f"run.cycles={cycle}", "--set", "run.burn_in=200000")
    assert done.returncode == 2 and "run.burn_in" in done.stderr  # the automatic burn-in was fixed at the start
    done = run(place, "out", "--set", f"run.cycles={cycle}")
    assert done.returncode == 0, done.stderr
    trace = np.genfromtxt(exported(place, "out")[0].decode().splitlines(), delimiter=",", names=True)
    assert trace["cycle"].tolist() == list(range(1, cycle + 1))  # nothing lost, nothing twice


def test_max_time(place):
    done = run(place, "out", *ENDLESS, "--max-time", "2s", ranks=2, timeout=60)
    assert done.returncode == 75, done.stderr
    assert "run the same command again" in done.stdout


@pytest.mark.alone
def test_a_plan_by_the_clock_is_replayed_and_ends_with_all_rows(place):
    """The cycles before the stop stay as they were; the growth continues from there by the clock, until all rows are
    in."""
    changes = ("sampler.strategy=anneal", "anneal.schedule=seconds", "anneal.seconds=3", "run.burn_in=auto")
    changes = (*changes, "run.cycles=1000000", "output.labels=1")
    words = [word for change in changes for word in ("--set", change)]
    done = run_some(place, "out", 6, *changes, ranks=2)
    assert done.returncode == 75, done.stderr
    assert "rows are added for about 3s; the plan follows the clock: the run is not reproducible from" in done.stdout
    before, plan = read_trace(place / "out"), plan_of(place / "out")
    status = json.loads((place / "out" / "status.json").read_text())
    assert len(plan) == 6 and plan[-1] < 1 and status["active_rows"] < status["rows"] == 630
    done = run(place, "out", *words, "--max-time", "6s")
    assert done.returncode == 75 and "continues from cycle 6; rows are added" in done.stdout, done.stdout + done.stderr
    trace = read_trace(place / "out")
    assert all(np.array_equal(trace[name][:6], before[name], equal_nan=True) for name in before)
    whole, active = plan_of(place / "out"), trace["active_rows"]
    assert whole[:6] == plan and whole == sorted(whole)
    assert active[-1] == 630 and (np.diff(active == 630) >= 0).all()
    kept = [draw.cycle for draw in iterate_draws(place / "out")]
    assert kept == trace["cycle"][active == 630].astype(int).tolist()


def plan_of(folder):
    newest = max(p for p in (folder / "checkpoints").iterdir() if p.name.isdigit())
    with h5py.File(newest / "shared.h5") as file:
        return file["arrays/plan"][:].tolist()


def test_a_chain_that_ends_before_all_rows_are_in_says_so(place):
    changes = ("sampler.strategy=anneal", "anneal.schedule=seconds", "anneal.seconds=1h", "run.cycles=5")
    done = run(place, "out", *(word for change in changes for word in ("--set", change)))
    assert done.returncode == 0 and "no draws count yet; raise run.cycles" in done.stdout


def test_killed_ranks_cost_no_more_than_the_last_checkpoint(place, straight):
    """kill -9 of one rank ends the job; the chain goes on from its checkpoint with the same bits."""
    assert run(place, "killed", "--set", "run.cycles=10").returncode == 0
    (place / "killed" / "status.json").unlink()
    process = start(place, "killed", *ENDLESS, ranks=2)
    wait_for_progress(place, "killed", process)
    status = json.loads((place / "killed" / "status.json").read_text())  # root's process number
    os.kill(status["pid"], signal.SIGKILL)
    process.communicate(timeout=30)
    assert process.returncode not in (0, 75)
    assert run(place, "killed").returncode == 0
    assert exported(place, "killed") == straight[1]


def test_a_finished_run_says_so(place):
    assert run(place, "out").returncode == 0
    before = exported(place, "out")
    again = run(place, "out")
    assert again.returncode == 0 and "has all its 24 cycles" in again.stdout
    assert exported(place, "out") == before
    status = (place / "out" / "status.json").read_bytes()
    fewer = run(place, "out", "--set", "run.cycles=10")
    assert fewer.returncode == 0 and "more than run.cycles = 10" in fewer.stdout
    assert (place / "out" / "status.json").read_bytes() == status and b'"finished"' in status


def test_another_configuration_is_refused_with_what_differs(place):
    words = ("--set", "run.seed=8", "--set", "model.discount=0.3", "--set", "columns.x.use=false")
    assert run(place, "out", "--set", "run.cycles=6").returncode == 0
    before = exported(place, "out")
    for ranks in (1, 2):
        done = run(place, "out", *words, ranks=ranks)
        assert done.returncode == 2
        for line in ("run.seed: was 5, is now 8", "model.discount: was 0.0, is now 0.3", "columns.x.use", "--fresh"):
            assert line in done.stderr
        assert done.stderr.count("mpibayes: error") == 1
    assert exported(place, "out") == before


def test_a_changed_table_is_refused(place):
    from tests.run.conftest import mixed_table

    assert run(place, "out", "--set", "run.cycles=3").returncode == 0
    (place / "table.h5").unlink()
    mixed_table(place / "table.h5", seed=4)
    done = run(place, "out")
    assert done.returncode == 2 and "content" in done.stderr and "table.h5" in done.stderr


def test_fresh_renames_and_deletes_nothing(place):
    assert run(place, "out", "--set", "run.cycles=3").returncode == 0
    old = exported(place, "out")
    assert run(place, "out", "--set", "run.seed=9", "--set", "run.cycles=3", "--fresh").returncode == 0
    assert exported(place, "out.old-1") == old != exported(place, "out")


def test_a_folder_that_is_no_run_is_left_alone(place):
    (place / "out").mkdir()
    (place / "out" / "thesis.txt").write_text("precious")
    done = run(place, "out")
    assert done.returncode == 2 and "not empty" in done.stderr
    assert [p.name for p in (place / "out").iterdir()] == ["thesis.txt"]


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(place, straight):
    for cycles, ranks in ((8, 1), (16, 2)):
        assert run(place, "out", "--set", f"run.cycles={cycles}", ranks=ranks).returncode == 0
    newest = sorted((place / "out" / "checkpoints").iterdir())[-1]
    part = next(newest.glob("part-*.h5"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 0x10
    part.write_bytes(data)
    done = run(place, "out", ranks=2)
    assert done.returncode == 0, done.stderr
    assert part.name in done.stdout and "damaged" in done.stdout and "cycle 8" in done.stdout
    assert exported(place, "out") == straight[1]


def test_when_no_checkpoint_is_usable_nothing_is_started_over(place):
    assert run(place, "out", "--set", "run.cycles=5").returncode == 0
    for manifest in (place / "out" / "checkpoints").glob("*/MANIFEST.json"):
        manifest.write_text("{")
    done = run(place, "out", ranks=2)
    assert done.returncode == 4 and "MANIFEST.json" in done.stderr
    assert done.stderr.count("mpibayes: error") == 1


def test_several_chains(place):
    words = ("--set", "run.chains=2", "--set", "run.cycles=6")
    assert run(place, "out", *words).returncode == 0
    one, two = (exported(place, f"out/chain-{i}") for i in (1, 2))
    assert one != two
    assert run(place, "single", "--set", "run.cycles=6").returncode == 0
    assert exported(place, "single") == one


def test_labels_of_another_run_start_a_chain(place):
    assert run(place, "first", "--set", "run.cycles=6").returncode == 0
    words = ("--set", "sampler.init=labels", "--set", "sampler.init_labels=first", "--set", "run.cycles=3")
    assert run(place, "second", *words).returncode == 0
    exported(place, "first")
    (place / "two.labels").write_text("0 1 2\n")
    bad = run(place, "third", "--set", "sampler.init=labels", "--set", "sampler.init_labels=two.labels", ranks=2)
    assert bad.returncode == 2 and "3 labels" in bad.stderr and "630" in bad.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
@pytest.mark.quick("1")
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_full_disk_ends_the_run_with_4_and_the_checkpoint_before_stays(place, straight, ranks):
    small = place / "small"
    small.mkdir()
    if launch(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", small]).returncode:
        pytest.skip("cannot mount a tmpfs here")
    part = {"ranks": ranks, "env": {}}  # processes of their own, which leave no file of it open
    try:
        assert run(place, "small/out", "--set", "run.cycles=6", **part).returncode == 0
        filler = small / "filler"
        with pytest.raises(OSError), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        done = run(place, "small/out", **part)
        assert done.returncode == 4, (done.returncode, done.stderr)
        assert "No space left" in done.stderr and done.stderr.count("mpibayes: error") == 1
        filler.unlink()
        done = run(place, "small/out", **part)
        assert done.returncode == 0, done.stderr
        assert exported(small, "out") == straight[1]
    finally:
        launch(["umount", small])


def test_checkpoints_that_vanished_do_not_cost_the_trace(place):
    assert run(place, "out", "--set", "run.cycles=5").returncode == 0
    before = exported(place, "out")
    (place / "out" / "checkpoints").rename(place / "elsewhere")
    done = run(place, "out", "--set", "run.cycles=7", ranks=2)
    assert done.returncode == 4 and "checkpoints" in done.stderr and "cycle 5" in done.stderr
    assert exported(place, "out") == before


def test_fresh_renames_runs_alone(place):
    (place / "precious").mkdir()
    (place / "precious" / "thesis.txt").write_text("precious")
    done = run(place, "precious", "--fresh")
    assert done.returncode == 2 and "no run directory" in done.stderr
    assert (place / "precious" / "thesis.txt").exists()


def test_an_extended_run_needs_its_first_labels_no_more(place):
    (place / "start.labels").write_text(" ".join(["0", "1"] * 315) + "\n")
    words = ("--set", "sampler.init=labels", "--set", "sampler.init_labels=start.labels")
    assert run(place, "out", *words, "--set", "run.cycles=3").returncode == 0
    (place / "start.labels").unlink()
    assert run(place, "out", *words, "--set", "run.cycles=5").returncode == 0


def test_two_runs_in_one_directory_are_refused(place):
    process = start(place, "out", *ENDLESS, ranks=1)
    try:
        wait_for_progress(place, "out", process)
        second = run(place, "out", *ENDLESS)
        assert second.returncode == 2 and f"process {process.pid}" in second.stderr
        second = run(place, "out", *ENDLESS, "--fresh")  # must not be pulled away under the first one's feet
        assert second.returncode == 2 and not (place / "out.old-1").exists()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 75


def test_a_closed_standard_output_does_not_end_a_run(place):
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(w) for w in command(1, "run", "run.toml", "-o", "out")], cwd=place, stdout=full)
    assert done.returncode == 0


SAY = "from mpibayes.hpc.run import output; output.say('one'); output.say('two'); "


@pytest.mark.parametrize("program, fails", [(SAY, False), (SAY + "print('three', flush=True)", False),
                                            ("print('one', flush=True)", True)])  # fmt: skip
def test_lines_that_cannot_be_written_are_lost(program, fails):
    """At exit, too: Python's own `print` fails."""
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True)
    assert bool(done.returncode) == bool(done.stderr) == fails
