"""A filled batch script: one of slurm/*.sbatch with all the edits that a person would make.

These are the options, the lines that set up the environment, the launcher, and the arguments.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path

LAUNCHERS = ("pmix", "pmi2", "mpirun")
WARNING_S = 300  # how long before the time limit the signal comes; a quarter of a short limit


@dataclass(frozen=True)
class Request:
    """Request to SLURM."""

    nodes: int = 1
    ntasks_per_node: int | None = None  # None: a rank per shard
    time_s: float = 4 * 3600.0
    array: str | None = None  # "4" or sbatch's "1-10%3": independent chains, seeds as numbered
    chain: bool = False  # one job after another, if SLURM may not requeue
    partition: str | None = None
    account: str | None = None
    mpi: str | None = None  # one of LAUNCHERS; None: `launcher` decides
    setup: tuple[str, ...] = ()  # lines of the script, such as "module load openmpi"
    sbatch: tuple[str, ...] = ()  # options passed on unchanged, such as "--qos=long"

    @property
    def template(self) -> str:
        return "array.sbatch" if self.array else "chain.sbatch" if self.chain else "run.sbatch"


def clock(seconds: float) -> str:
    """Format a length of time for sbatch: days-hours:minutes:seconds.

    >>> clock(129600)
    '1-12:00:00'
    """
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    return f"{days}-{h:02d}:{m:02d}:{s:02d}" if days else f"{h:02d}:{m:02d}:{s:02d}"


def launcher(mpi: str | None) -> str:
    """Command that starts the ranks. The MPICH wheel needs its own start-up method; otherwise the site's default is
    best."""
    if mpi == "mpirun":
        return 'mpirun -n "$SLURM_NTASKS"'
    if mpi is None and _has_mpich_wheel():
        mpi = "pmi2"
    return "srun --kill-on-bad-exit=1" + (f" --mpi={mpi}" if mpi else "")


def folder_of_python() -> Path:
    """Folder of this program's command `mpibayes`."""
    return Path(sys.executable).parent


def _has_mpich_wheel() -> bool:
    try:
        return bool(metadata.version("mpich"))
    except metadata.PackageNotFoundError:
        return False


def filled(request: Request, tasks: int, script: Path, arguments: Sequence[str]) -> str:
    """Return the job's template with all the edits that a person would make."""
    text = resources.files("mpibayes").joinpath("slurm", request.template).read_text(encoding="utf-8")
    name = re.sub(r"[^\w.+-]", "-", script.stem)
    options = {
        "job-name": name,
        "array": f"1-{request.array}" if request.array and request.array.isdigit() else request.array,
        "nodes": str(request.nodes),
        "ntasks-per-node": str(tasks),
        "time": clock(request.time_s),
        "signal": f"B:USR1@{min(WARNING_S, int(request.time_s // 4))}",
        "output": _log_file(script, request),
        "partition": request.partition,
        "account": request.account,
    }
    for option, value in options.items():
        if value is not None:
            text = _with_option(text, option, value)
    for line in request.sbatch:
        text = _after_options(text, f"#SBATCH {line}")
    setup = [*request.setup, f"export PATH={shlex.quote(str(folder_of_python()))}:$PATH"]
    if request.mpi in (None, "pmi2") and _has_mpich_wheel():
        setup.append("export MPIR_CVAR_CH4_NETMOD=ofi # the long addresses of UCX were seen to hang srun --mpi=pmi2")
    text = _replaced(r"^# module load .*\n# source .*$", "\n".join(setup), text)
    text = _replaced(r"^launch=.*\n# launch=.*$", f"launch=({launcher(request.mpi)})", text)
    text = _replaced(r"^(# --- to here -.*)$", rf"\g<1>\n{_literal('set -- ' + shlex.join(arguments))}", text, raw=True)
    text = _replaced(r"^#   sbatch .*$", f"#   sbatch {shlex.quote(str(script))}", text)
    return text.replace("\n", f"\n# Written by mpibayes submit from {request.template}; may be edited.\n", 1)


def _with_option(text: str, option: str, value: str) -> str:
    line = f"#SBATCH --{option}={_quoted(value)}"
    if re.search(rf"^#SBATCH --{option}=", text, re.M):
        return _replaced(rf"^#SBATCH --{option}=.*$", line, text)
    return _after_options(text, line)


def _after_options(text: str, line: str) -> str:
    end = [m.end() for m in re.finditer(r"^#SBATCH .*$", text, re.M)][-1]
    return f"{text[:end]}\n{line}{text[end:]}"


def _replaced(pattern: str, new: str, text: str, raw: bool = False) -> str:
    """Replace the single match in a text; the templates and this module have to agree."""
    text, n = re.subn(pattern, new if raw else _literal(new), text, count=1, flags=re.M)
    assert n == 1, f"a template has no line like {pattern}"
    return text


def _literal(new: str) -> str:
    return new.replace("\\", r"\\")


def _log_file(script: Path, request: Request) -> str:
    """Path of the log beside the script, as a pattern for sbatch, in which % is special."""
    pattern = script.stem.replace("%", "%%") + ("-%A_%a.log" if request.array else "-%j.log")
    return str(script.parent).replace("%", "%%") + "/" + pattern


def _quoted(value: str) -> str:
    """Quote a value for a line of #SBATCH, where # starts a comment even within a word, and \\ escapes even within
    quotes.

    >>> print(_quoted("long"), _quoted('run "#1"'))
    long "run \\"#1\\""
    """
    if re.fullmatch(r"[\w%+,./:@-]+", value, re.ASCII):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'
