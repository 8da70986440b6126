"""`mpibayes submit`: check a configuration, fill one of the shipped batch scripts, and hand it to SLURM.

What is filled in is what a person would edit in slurm/*.sbatch: the options, the lines that set up the environment, the
launcher, and the arguments. The filled script lies beside the run directory and is complete: it can be read, edited and
submitted again by hand.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path

from mpibayes.hpc import check as checking
from mpibayes.hpc import config as configuration
from mpibayes.hpc import run_directory
from mpibayes.hpc.config import Config
from mpibayes.hpc.errors import ConfigError
from mpibayes.io.files import write_text
from mpibayes.io.table import Table

LAUNCHERS = ("pmix", "pmi2", "mpirun")
WARNING_S = 300  # how long before the time limit the signal comes; a quarter of a short limit
SHORTEST_S = 120.0
TYPICAL_CLUSTERS = 64  # for the memory forecast, which here is made without a trial of the sampler


@dataclass(frozen=True)
class Job:
    """What is asked of SLURM."""

    nodes: int = 1
    ntasks_per_node: int | None = None  # None: a rank for every shard
    time_s: float = 4 * 3600.0
    array: str | None = None  # "4" or what sbatch takes, "1-10%3": independent chains, seeds as numbered
    chain: bool = False  # a job after the other, where SLURM may not requeue
    partition: str | None = None
    account: str | None = None
    mpi: str | None = None  # of LAUNCHERS; None: as found out by `launcher`
    setup: tuple[str, ...] = ()  # lines of the script, such as "module load openmpi"
    sbatch: tuple[str, ...] = ()  # options as they are, such as "--qos=long"

    @property
    def template(self) -> str:
        return "array.sbatch" if self.array else "chain.sbatch" if self.chain else "run.sbatch"


def submit(config_path: Path, folder: Path, overrides: Sequence[str], job: Job, dry_run: bool = False) -> None:
    """Check, fill, write and submit; with `dry_run` only print the script. ConfigError and DataError as of `check`."""
    _check_request(job, overrides)
    found = checking.examine(config_path, overrides)
    folder = folder.absolute()
    for place, more in _places(folder, job):
        _refuse_another_run(place, configuration.load(config_path, [*overrides, *more]), found.table)
    n_shards = found.config.run.shards
    tasks = job.ntasks_per_node or -(-n_shards // job.nodes)
    ranks = job.nodes * tasks
    script = folder.with_name(folder.name + ".sbatch")
    text = filled(job, tasks, script, [str(Path(config_path).absolute()), str(folder), *_sets(overrides)])
    if ranks > n_shards:
        print(
            f"warning: {ranks} ranks, but {n_shards} shards: {ranks - n_shards} ranks would have nothing to do "
            "(run.shards, --nodes, --ntasks-per-node)",
            file=sys.stderr,
        )
    if dry_run:
        print(text, end="")
        return
    if shutil.which("sbatch") is None:
        raise ConfigError(
            "there is no sbatch here; submit from a login node of the cluster, or see the script with --dry-run"
        )
    _write(script, text)
    number = _sbatch(script)
    parts = checking.memory_per_rank(found.data.columns, found.data.n_rows, n_shards, ranks, TYPICAL_CLUSTERS)
    print(f"job {number}: {ranks} ranks on {job.nodes} node{'s' * (job.nodes > 1)}, {clock(job.time_s)} a job")
    print(f"script:  {script}")
    print(f"log:     {_log(script, job).replace('%j', number).replace('%A', number).replace('%a', 'N')}")
    print(f"memory:  about {sum(parts.values()) / checking.MIB:.0f} MiB on the busiest rank; see mpibayes check")
    if job.array:
        print(f"status:  mpibayes status {folder}/seed-N;  in the end: mpibayes report {folder}/seed-* -o {folder}/report")
    else:
        print(f"status:  mpibayes status {folder}")


# --- what is checked before one waits in a queue ----------------------------------------------------------------------


def _check_request(job: Job, overrides: Sequence[str]) -> None:
    problems = []
    if job.array and job.chain:
        problems.append("--array and --chain: a task of an array requeues itself; expected one of the two")
    if job.array and not re.fullmatch(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?", job.array):
        problems.append(f'--array {job.array}: expected a number of chains, or what sbatch takes: "1-10%3"')
    if job.array in ("0",):
        problems.append("--array 0: expected at least one chain")
    if job.array and any(item.split("=")[0].strip() == "run.seed" for item in overrides):
        problems.append("--set run.seed: in an array the number of the task is the seed; expected no run.seed")
    if job.time_s < SHORTEST_S:
        problems.append(f"--time: {job.time_s:g} seconds leave no time between start and end; expected 2 minutes or more")
    for line in job.sbatch:
        if not line.startswith("-") or "\n" in line:
            problems.append(f'--sbatch {line}: expected an option of sbatch with its dashes, such as "--qos=long"')
    problems += [f"--setup {line!r}: expected one line" for line in job.setup if "\n" in line]
    if problems:
        raise ConfigError("the job cannot be submitted as asked", problems)


def limit(text: str) -> float:
    """Seconds of a job's time limit; ValueError for a bare number, which is minutes to sbatch and seconds to others.

    >>> [limit(t) for t in ("4:00:00", "1-12", "3h50m")]
    [14400.0, 129600.0, 13800.0]
    """
    from mpibayes.hpc.config_schema import parse_duration

    if re.fullmatch(r"\s*[\d.]+\s*", text):
        raise ValueError(f"{text.strip()}: minutes or seconds? Expected 4:00:00, 1-12:00:00, 90m or 3h50m")
    try:
        return parse_duration(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time limit such as 4:00:00, 1-12:00:00, 90m or 3h50m") from None


def clock(seconds: float) -> str:
    """As sbatch takes it: days-hours:minutes:seconds.

    >>> clock(129600)
    '1-12:00:00'
    """
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    return f"{days}-{h:02d}:{m:02d}:{s:02d}" if days else f"{h:02d}:{m:02d}:{s:02d}"


def _places(folder: Path, job: Job) -> list[tuple[Path, list[str]]]:
    """The run directories that the job continues, each with the settings of its own."""
    if not job.array:
        return [(folder, [])]
    seeds = [p for p in folder.glob("seed-*") if p.name[5:].isdigit()]
    return [(p, [f"run.seed={p.name[5:]}"]) for p in sorted(seeds)]


def _refuse_another_run(folder: Path, config: Config, table: Table) -> None:
    """What `mpibayes run` would refuse after hours in the queue."""
    resolved = folder / run_directory.RESOLVED
    run_directory.require_no_strangers(folder)
    if not resolved.exists():
        return
    try:
        old = tomllib.loads(resolved.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{resolved}: cannot be read ({error}); it says what the run is") from None
    new = configuration.as_dict(configuration.continued(config, old))
    changes = configuration.difference(old, new, same_table=True)  # of the content the run itself will judge
    if changes:
        raise ConfigError(
            f"{folder}: holds a run with another configuration; what differs:", [*changes, "choose another with -o"]
        )


# --- the script -------------------------------------------------------------------------------------------------------


def launcher(mpi: str | None) -> str:
    """The words that start the ranks. The wheel of MPICH brings its own way of start-up; else the site knows best."""
    if mpi == "mpirun":
        return 'mpirun -n "$SLURM_NTASKS"'
    if mpi is None and _has_mpich_wheel():
        mpi = "pmi2"
    return "srun --kill-on-bad-exit=1" + (f" --mpi={mpi}" if mpi else "")


def _has_mpich_wheel() -> bool:
    try:
        return bool(metadata.version("mpich"))
    except metadata.PackageNotFoundError:
        return False


def filled(job: Job, tasks: int, script: Path, arguments: Sequence[str]) -> str:
    """The template of the job with everything that a person would have edited."""
    text = resources.files("mpibayes").joinpath("slurm", job.template).read_text(encoding="utf-8")
    name = re.sub(r"[^\w.+-]", "-", script.stem)
    options = {
        "job-name": name,
        "array": f"1-{job.array}" if job.array and job.array.isdigit() else job.array,
        "nodes": str(job.nodes),
        "ntasks-per-node": str(tasks),
        "time": clock(job.time_s),
        "signal": f"B:USR1@{min(WARNING_S, int(job.time_s // 4))}",
        "output": _quoted(_log(script, job)),
        "partition": job.partition,
        "account": job.account,
    }
    for option, value in options.items():
        if value is not None:
            text = _with_option(text, option, value)
    for line in job.sbatch:
        text = _after_options(text, f"#SBATCH {line}")
    setup = [*job.setup, f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"]
    text = _replaced(r"^# module load .*\n# source .*$", "\n".join(setup), text)
    text = _replaced(r"^launch=.*\n# launch=.*$", f"launch=({launcher(job.mpi)})", text)
    text = _replaced(r"^(# --- to here -.*)$", rf"\g<1>\n{_literal('set -- ' + shlex.join(arguments))}", text, raw=True)
    text = _replaced(r"^#   sbatch .*$", f"#   sbatch {shlex.quote(str(script))}", text)
    return text.replace("\n", f"\n# Written by mpibayes submit from {job.template}; may be edited.\n", 1)


def _with_option(text: str, option: str, value: str) -> str:
    line = f"#SBATCH --{option}={value}"
    if re.search(rf"^#SBATCH --{option}=", text, re.M):
        return _replaced(rf"^#SBATCH --{option}=.*$", line, text)
    return _after_options(text, line)


def _after_options(text: str, line: str) -> str:
    end = [m.end() for m in re.finditer(r"^#SBATCH .*$", text, re.M)][-1]
    return f"{text[:end]}\n{line}{text[end:]}"


def _replaced(pattern: str, new: str, text: str, raw: bool = False) -> str:
    """The text with its one match replaced; the templates and this module have to agree."""
    text, n = re.subn(pattern, new if raw else _literal(new), text, count=1, flags=re.M)
    assert n == 1, f"a template has no line like {pattern}"
    return text


def _literal(new: str) -> str:
    return new.replace("\\", r"\\")


def _log(script: Path, job: Job) -> str:
    pattern = script.stem.replace("%", "%%") + ("-%A_%a.log" if job.array else "-%j.log")
    return str(script.parent).replace("%", "%%") + "/" + pattern


def _quoted(path: str) -> str:
    """A path for a line of #SBATCH, which knows double quotes."""
    return f'"{path}"' if re.search(r"\s", path) else path


def _sets(overrides: Sequence[str]) -> list[str]:
    return [word for item in overrides for word in ("--set", item)]


def _write(script: Path, text: str) -> None:
    """Beside the run directory, which has to be new. A script that is there and differs is set aside."""
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        if script.exists() and script.read_text(encoding="utf-8", errors="replace") != text:
            n = 1
            while (aside := script.with_name(f"{script.name}.old-{n}")).exists():
                n += 1
            script.rename(aside)
            print(f"the script that was there is now {aside}")
        write_text(script, text)
    except OSError as error:
        raise ConfigError(f"{script}: cannot be written: {error.strerror}") from None


def _sbatch(script: Path) -> str:
    """The number of the job."""
    try:
        done = subprocess.run(["sbatch", "--parsable", str(script)], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"sbatch could not be run: {error}") from None
    if done.returncode != 0:
        raise ConfigError(f"sbatch refused {script}", (done.stderr or done.stdout).strip().splitlines())
    return done.stdout.strip().splitlines()[-1].split(";")[0]
