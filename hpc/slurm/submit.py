"""Submission to SLURM: check a configuration, fill one of the shipped batch scripts, and submit it.

The filled script lies beside the run directory and is complete: it can be read, edited and submitted again by hand.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mpibayes.errors import ConfigError, MpibayesError
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.load import load
from mpibayes.hpc.config.resolved import as_dict, continued, difference
from mpibayes.hpc.config.section import parse_duration
from mpibayes.hpc.registry import check_of
from mpibayes.hpc.run import directory as run_directory
from mpibayes.hpc.run import identity as records
from mpibayes.hpc.run.examine import examine
from mpibayes.hpc.run.plan import idle_in_words
from mpibayes.hpc.slurm.batch_script import Request, filled, folder_of_python
from mpibayes.hpc.slurm.job_record import Record, read_record, write_record
from mpibayes.hpc.slurm.queue import sbatch, waiting_or_running
from mpibayes.io.files import make_directory, read_regular, set_aside, write_text, writing
from mpibayes.text import visible, whole_number

SHORTEST_S = 120.0
LONGEST_NAME = 200  # bytes; file systems allow 255, and numbers and suffixes are added for script and log
# Unicode categories of characters that end a line somewhere, are invisible or cannot be written.
UNFIT = {
    "Cc": "a control character",
    "Cf": "an invisible character",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
    "Cs": "bytes that are not UTF-8",
}


@dataclass(frozen=True)
class Prepared:
    """A job ready to be submitted. ranks: in all; warning: about ranks that would be idle, "" for none; memory: bytes
    of the busiest rank."""

    request: Request
    folder: Path
    text: str
    ranks: int
    warning: str
    memory: int

    @property
    def script(self) -> Path:
        return self.folder.with_name(self.folder.name + ".sbatch")


def prepared(config_path: Path, folder: Path, overrides: Sequence[str], request: Request) -> Prepared:
    """Check the request, configuration, table and run directory, and fill the script. Raises ConfigError, DataError."""
    folder = folder.absolute()
    _check_request(config_path.absolute(), folder, overrides, request)
    examined = examine(config_path, overrides)
    for place, more in _places(folder, request):
        _refuse_another_run(place, load(config_path, [*overrides, *more]))
    n_shards = examined.config.run.shards
    tasks = request.ntasks_per_node or -(-n_shards // request.nodes)
    ranks = request.nodes * tasks
    idle = idle_in_words(examined.schedule(ranks), n_shards) or ""
    job = Prepared(
        request, folder, "", ranks,
        idle.replace("(run.shards)", "(run.shards, --nodes, --ntasks-per-node)"),
        int(sum(check_of(examined.config.kind).memory(examined, ranks).values())),
    )  # fmt: skip
    arguments = [str(config_path.absolute()), str(folder), *_sets(overrides)]
    return replace(job, text=filled(request, tasks, job.script, arguments))


def send(job: Prepared, say: Callable[[str], None] = print) -> str:
    """Write the script, submit it, record its number and return it. say: receives remarks for the user.

    Raises ConfigError if a job of this run is already waiting or running, or if sbatch refuses; CheckpointError if the
    disk is full.
    """
    _refuse_a_second_job(job)
    _write(job.script, job.text, say)
    number = sbatch(job.script)
    try:
        write_record(job.folder, Record(number, job.request.array, job.request.chain))
    except MpibayesError as error:
        say(f"warning: job {number} was submitted, but not recorded: {error}")
    return number


def _refuse_a_second_job(job: Prepared) -> None:
    """Raise ConfigError if the directory has a job already, unless the new one waits for it."""
    last = read_record(job.folder)
    if last is None or any(line.startswith(("--dependency", "-d")) for line in job.request.sbatch):
        return
    if state := waiting_or_running(last.job):
        raise ConfigError(
            f"{job.folder}: job {last.job} of this run is in the queue ({state}); wait for it, or scancel {last.job}"
        )


# --- what is checked before the job waits in a queue ------------------------------------------------------------------


def _check_request(config_path: Path, folder: Path, overrides: Sequence[str], request: Request) -> None:
    problems = [*_unfit(config_path, folder, overrides, request), *_unusable(folder)]
    if request.array and request.chain:
        problems.append("--array and --chain: a task of an array requeues itself; expected one of the two")
    if request.array and not re.fullmatch(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?", request.array, re.ASCII):
        problems.append(f'--array {request.array!r}: expected a number of chains, or what sbatch takes: "1-10%3"')
    if request.array == "0":
        problems.append("--array 0: expected at least one chain")
    if request.array and any(item.split("=")[0].strip() == "run.seed" for item in overrides):
        problems.append("--set run.seed: in an array the number of the task is the seed; expected no run.seed")
    if request.time_s < SHORTEST_S:
        problems.append(f"--time: {request.time_s:g} seconds are too short to start a run; expected 2m or more")
    for line in request.setup:
        if line.endswith("\\"):
            problems.append(f"--setup {line!r}: the backslash would join it to the next line; expected a whole line")
    for line in request.sbatch:
        if not line.startswith("-"):
            problems.append(f'--sbatch {line!r}: expected an option of sbatch with its dashes, such as "--qos=long"')
    if problems:
        raise ConfigError("the job cannot be submitted as asked", problems)


def _unfit(config_path: Path, folder: Path, overrides: Sequence[str], request: Request) -> Iterator[str]:
    """Report texts that would not stay on their line of the script: anything after a line break would be executed."""
    texts = [("CONFIG", config_path), ("-o", folder), ("the folder of Python", folder_of_python())]
    texts += [("--partition", request.partition), ("--account", request.account)]
    for option, several in ("--set", overrides), ("--setup", request.setup), ("--sbatch", request.sbatch):
        texts += [(option, text) for text in several]
    for what, text in texts:
        if categories := {unicodedata.category(character) for character in str(text or "")} & UNFIT.keys():
            kinds = " and ".join(UNFIT[kind] for kind in sorted(categories))
            yield f"{what} {str(text)!r}: has {kinds}; expected one line of printable text"


def _unusable(folder: Path) -> Iterator[str]:
    """Report paths that fit on a line, but that sbatch or PATH would misread."""
    if "\\" in str(folder):
        yield f"-o {str(folder)!r}: has a backslash, which sbatch takes out of a log's name; choose another with -o"
    if folder.name in ("", ".."):
        yield f"-o {str(folder)!r}: has no name to call the script and the log by; choose another with -o"
    if len(folder.name.encode(errors="replace")) > LONGEST_NAME:
        yield f"-o: the name of the run directory has more than {LONGEST_NAME} bytes; choose another with -o"
    if ":" in str(folder_of_python()):
        yield f"the folder of Python {str(folder_of_python())!r}: has a colon, which separates folders in PATH"


def limit(text: str) -> float:
    """Parse a job's time limit to seconds; ValueError for a bare number, which means minutes to sbatch, seconds
    elsewhere.

    >>> [limit(t) for t in ("4:00:00", "1-12", "3h50m")]
    [14400.0, 129600.0, 13800.0]
    """
    if re.fullmatch(r"\s*[\d.]+\s*", text):
        raise ValueError(f"{text.strip()}: minutes or seconds? Expected 4:00:00, 1-12:00:00, 90m or 3h50m")
    try:
        return parse_duration(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time limit such as 4:00:00, 1-12:00:00, 90m or 3h50m") from None


def _places(folder: Path, request: Request) -> list[tuple[Path, list[str]]]:
    """Run directories that the job continues, each with its own settings."""
    if not request.array:
        return [(folder, [])]
    seeds = [p for p in folder.glob("seed-*") if whole_number(p.name[5:]) is not None]
    return [(p, [f"run.seed={p.name[5:]}"]) for p in sorted(seeds)]


def _refuse_another_run(folder: Path, config: Config) -> None:
    """Refuse a directory now that `mpibayes run` would refuse after hours in the queue."""
    if not run_directory.holds_run(folder):
        run_directory.require_no_strangers(folder)
        return
    old = records.read_resolved(folder)
    new = as_dict(continued(config, old))
    changes = difference(old, new, same_table=True)  # the run itself compares the contents
    if config.heldout_path is not None:
        changes = [c for c in changes if not c.startswith("data.heldout:")]
    if changes:
        raise ConfigError(
            f"{folder}: holds a run with another configuration; what differs:", [*changes, "choose another with -o"]
        )


# --- writing and submitting -------------------------------------------------------------------------------------------


def _sets(overrides: Sequence[str]) -> list[str]:
    return [word for item in overrides for word in ("--set", item)]


def _write(script: Path, text: str, say: Callable[[str], None]) -> None:
    """Write the script beside the run directory. A different existing script is renamed."""
    with writing(script):
        make_directory(script.parent)
        if script.exists() and read_regular(script) != text.encode():
            say(f"the script that was there is now {visible(set_aside(script))}")
        write_text(script, text)
