"""`mpibayes run`: start or continue the chains of a run directory, until they are long enough or it is time to stop.

This file prepares the chains, assigns them to groups of ranks, and handles every way in which that can fail. A chain's
own loop is in `chain_run.py`.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mpibayes.errors import EXIT_INTERNAL, EXIT_STOPPED, CheckpointError, MpibayesError
from mpibayes.hpc.config.against_table import check_table
from mpibayes.hpc.config.load import load
from mpibayes.hpc.family import Family
from mpibayes.hpc.parallel import cores
from mpibayes.hpc.parallel.agreement import on_root
from mpibayes.hpc.parallel.comm import Communicator, end_job, names, serial, world
from mpibayes.hpc.parallel.groups import Groups
from mpibayes.hpc.parallel.heap import return_what_is_freed
from mpibayes.hpc.parallel.launcher import launcher_rank, launcher_size
from mpibayes.hpc.parallel.schedule import Schedule
from mpibayes.hpc.parallel.shards import count
from mpibayes.hpc.registry import family_of, scalars_of
from mpibayes.hpc.run import directory as run_directory
from mpibayes.hpc.run import from_file, grown, output, ranks, rounds, status
from mpibayes.hpc.run.become import words_of
from mpibayes.hpc.run.chain_run import ChainRun
from mpibayes.hpc.run.clock import Clock
from mpibayes.hpc.run.identity import HELDOUT_FILE
from mpibayes.hpc.run.lock import Lock
from mpibayes.hpc.run.plan import idle_in_words, work_of
from mpibayes.hpc.run.progress import say
from mpibayes.hpc.run.table import data_of, opened, weights_in_words, with_family, with_shapes
from mpibayes.io.files import first_line, open_regular, sha256_of
from mpibayes.memory import lack_of_memory
from mpibayes.text import visible, visible_lines


def main(
    config_path: str | Path,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    max_time_s: float | None = None,
    fresh: bool = False,
) -> int:
    """Run on all processes that the launcher started. Returns this rank's exit code: root's counts, others return 0.

    Errors that all ranks know end the program normally with the error's code; anything else ends the whole job.
    """
    comm = None
    return_what_is_freed()
    try:
        clock = Clock(max_time_s)
        clock.watch_signals()  # first: Ctrl-C while the MPI library starts asks to stop; it is no internal error
        comm = world()
        comm.asked_to_stop = lambda: clock.stop_reason() is not None
        code = _run(comm, clock, Path(config_path), out, overrides, fresh)
    except MpibayesError as error:
        code = error.exit_code
        if comm is None:
            if launcher_rank() > 0:  # if ranks do not find each other, one reports it and its exit ends the rest
                time.sleep(3.0)
            print(f"mpibayes: error: {error}", file=sys.stderr, flush=True)
            return code
        if comm.rank == 0:
            print(f"mpibayes: error: {error}", file=sys.stderr, flush=True)
        # other ranks may not know of it: do not let them wait, nor repeat what root reports
        if not comm.wait_for_all(60.0 if error.shared else 5.0):
            if comm.rank != 0:
                print(f"mpibayes: error: {names(comm, [comm.rank])}: {error}", file=sys.stderr, flush=True)
            comm.abort(code)
    except BaseException as error:
        code = _tell_internal(comm, error, run_folder(out, config_path))
        if comm is None:
            return end_job(code)
        comm.abort(code)
    if comm is not None and comm.size > 1:
        clock.leave()
    return code if comm is None or comm.rank == 0 else 0


def in_process(config_path: str | Path, out: str | Path) -> None:
    """Run within another program: in this process alone, without MPI, signals and messages on standard output, for runs
    of seconds. Raises the errors that the program would report."""
    with _without_words():
        _run(serial(), Clock(None), Path(config_path), out, (), fresh=False)


def run_folder(out: str | Path | None, config_path: str | Path) -> Path:
    """Return the run directory: `out`, or one named after the configuration or the data file."""
    if out is not None:
        return Path(out)
    path = Path(config_path)
    return Path("runs") / (from_file.stem(path) if from_file.is_data(path) else path.stem)


def _tell_internal(comm: Communicator | None, error: BaseException, folder: Path) -> int:
    """Print one line with place and error; then the traceback, unless memory is short or MPI failed. A rank's own log
    keeps both. Returns the exit code."""
    size, rank = (launcher_size(), launcher_rank()) if comm is None else (comm.size, comm.rank)
    place = f"rank {rank} ({socket.gethostname()}): " if size > 1 else ""
    memory = lack_of_memory(error)
    lost = _of_mpi(error)
    what = memory or lost or f"internal error: {type(error).__name__}: {error}"
    line = visible(f"mpibayes: error: {place}{what}; the whole job ends here")
    print(line, file=sys.stderr, flush=True)
    if memory:
        return CheckpointError.exit_code
    if not lost:
        print(visible_lines("".join(traceback.format_exception(error))), end="", file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):
        (folder / "logs").mkdir(exist_ok=True)  # in DIR even if the chains have their own folders
        with open_regular(folder / "logs" / f"rank-{rank:05d}.log", "a") as file:
            print(time.strftime("%Y-%m-%dT%H:%M:%S"), line, file=file)
            traceback.print_exception(error, file=file)
    return EXIT_INTERNAL


def _of_mpi(error: BaseException) -> str:
    """Describe a failure of MPI, "" for other errors: a rank or its node was lost, which is no fault of the program."""
    if type(error).__module__ != "mpi4py.MPI":
        return ""
    words = first_line(error).removesuffix(", error stack:")
    return f"MPI failed, as it does once another rank or its node is lost ({words}); run the same command again"


def _run(
    comm: Communicator, clock: Clock, config_path: Path, out: str | Path | None, overrides: Sequence[str], fresh: bool
) -> int:
    folder = run_folder(out, config_path)
    if from_file.is_data(config_path):
        source = config_path
        make = functools.partial(from_file.configuration, source, folder, fresh)
        config_path = on_root(comm, make, what=f"import {source}")
    config = on_root(comm, lambda: load(config_path, overrides), what=f"read {config_path}")
    warning = cores.crowded(comm)
    if warning and comm.rank == 0:
        print(visible(f"warning: {warning}"), file=sys.stderr, flush=True)
    if clock.max_time_s is None:
        clock.max_time_s = config.run.max_time
    table = on_root(comm, lambda: opened(config), what=f"open {config.table}")
    begun = on_root(comm, lambda: not fresh and run_directory.holds_run(folder))
    on_root(comm, lambda: check_table(config, table, begun))
    data = data_of(config, table)
    on_root(comm, data.check_blocks, what=f"read {config.table}")
    places = run_directory.chain_places(folder, config.run.chains)
    growth = on_root(comm, lambda: grown.planned(folder, config, table, fresh))
    # the first start's choice for "auto" decides the cut into shards
    config = on_root(comm, lambda: run_directory.as_continued(folder, config, fresh, growth))
    if growth.due:  # columns chosen because they had no missing cells may have some now
        on_root(comm, lambda: check_table(config, table, begun))
    config, about_family = with_family(config, data)
    if comm.alone:
        done = 0 if fresh or growth.anew else min(map(status.cycles_done, places))
        n_ranks, note = ranks.choose(config, data, done)
        if n_ranks > 1:
            left = None if clock.max_time_s is None else clock.max_time_s - clock.elapsed()
            ranks.hand_over(n_ranks, words_of(config_path, folder, overrides, left, fresh), clock)
        elif note:
            output.say(note)
    if comm.rank == 0:
        for note in config.notes:
            print(visible(f"warning: {note}"), file=sys.stderr, flush=True)
        if about_family:
            output.say(about_family)
    config, data = with_shapes(comm, config, data)
    # all errors in the input are found before the run directory is made
    kind = family_of(config.kind)
    if not gc.isenabled():  # all modules are loaded now: collections need not go through them
        gc.freeze()
        gc.enable()
    config = rounds.decided(config, scalars_of(config.kind), data)
    schedule = on_root(comm, lambda: work_of(config, data).schedule(comm.size))
    growth = on_root(comm, lambda: grown.with_shards(growth, folder, config, data))
    groups = Groups(comm, schedule, lambda: clock.signalled)
    clock.heard = groups.heard
    if groups.comm.rank == 0:
        clock.watch_job()

    def load_rows() -> tuple[Family, dict[str, Any]]:
        family = kind(groups.comm, growth.settings(config), data)
        with contextlib.nullcontext() if groups.number == 0 else _without_words():  # the first group prints them
            content = family.read_files(places, fresh or growth.anew)
        family.load(places, fresh or growth.anew)
        return family, content

    family, files = groups.agree(load_rows, "read its rows of the table")
    content = {"fingerprint": data.table.fingerprint, **files}
    if comm.rank == 0 and config.heldout_path is not None:
        content[HELDOUT_FILE] = sha256_of(config.heldout_path)
    lock = Lock()
    try:
        config = on_root(
            comm,
            lambda: run_directory.open_run(
                folder,
                config,
                data.table,
                content,
                family.decided(growth.settings(config), data.n_rows),
                fresh,
                lock,
                growth,
            ),
            what=f"open {folder}",
        )
        hosts = comm.collect(socket.gethostname())
        on_root(comm, lambda: run_directory.record_start(folder, hosts, lock.check))
        guard = on_root(comm, lambda: lock.hold).check
        if comm.rank == 0:
            _say_who_does_what(schedule, count(config.run.shards, data.n_rows))
            if weights := weights_in_words(data.table):
                say(f"weights: {weights}")
            if growth.due:
                say(grown.in_words(folder, data.table.n_rows))
        part = growth.settings(config)
        numbers = schedule.chains_of(groups.number)

        def chain(i: int) -> ChainRun:
            return ChainRun(groups.comm, clock, guard, config, data, family.chain(part, i), places[i], i, growth.times)

        if config.run.judged:
            return 0 if rounds.until_settled(groups, config, map(chain, numbers)) else EXIT_STOPPED
        turns = on_root(groups.comm, lambda: _turns(numbers, places, config.run.cycles))
        done = groups.all_done(lambda: _in_turns(groups.comm, clock, chain, turns), "end its chains", clock.stop_reason)
        return 0 if done else EXIT_STOPPED
    finally:
        lock.release()


@contextlib.contextmanager
def _without_words() -> Iterator[None]:
    """Suppress standard output."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _say_who_does_what(schedule: Schedule, n_shards: int) -> None:
    if words := schedule.in_words():
        say(words)
    if idle := idle_in_words(schedule, n_shards):
        say(f"warning: {idle}")


def _turns(numbers: Sequence[int], places: Sequence[Path], cycles: int) -> list[tuple[int, int]]:
    """Return the turns of a group's chains, each with the cycle at which it ends: of several, first a few cycles of
    each that has fewer, so that a report can compare them early."""
    first = rounds.EARLY[0]
    early = [i for i in numbers if status.cycles_done(places[i]) < first] if len(numbers) > 1 and cycles > first else []
    return [*((i, first) for i in early), *((i, cycles) for i in numbers)]


def _in_turns(
    comm: Communicator, clock: Clock, make: Callable[[int], ChainRun], turns: Sequence[tuple[int, int]]
) -> bool:
    """Run a group's chains in turns, each up to the cycle given; False if it was time to stop before. One chain at a
    time is in memory: each turn begins from a checkpoint."""
    for k, (number, cycles) in enumerate(turns):
        if k and any(comm.collect(clock.stop_reason() is not None)):
            return False
        if not make(number).run(cycles):
            return False
    return True
