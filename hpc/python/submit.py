"""`mpibayes.submit`: submit a run to SLURM's queue from Python, as `mpibayes submit` does, with the data and settings
of `mpibayes.fit`."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpibayes.errors import ConfigError, MpibayesError
from mpibayes.hpc.parallel.launcher import launcher_size
from mpibayes.hpc.python import frames
from mpibayes.hpc.python.child import ADVICE, in_python
from mpibayes.hpc.python.display import Display, display_for
from mpibayes.hpc.python.placed import placed
from mpibayes.hpc.python.rows import in_words_of_python
from mpibayes.hpc.python.settings import overrides
from mpibayes.hpc.run.from_file import configuration, is_data

CHOOSE = "choose another directory with directory="

if TYPE_CHECKING:
    from mpibayes.hpc.python.job import Job


def submit(
    data: Any,
    directory: str | os.PathLike[str] | None = None,
    *,
    nodes: int = 1,
    ntasks_per_node: int | None = None,
    time: str = "4:00:00",
    partition: str | None = None,
    account: str | None = None,
    mpi: str | None = None,
    setup: Sequence[str] = (),
    sbatch: Sequence[str] = (),
    chain: bool = False,
    family: str | None = None,
    likelihood: str | bool | None = None,
    response: str | None = None,
    predictors: Sequence[str] | None = None,
    cycles: int | None = None,
    chains: int | None = None,
    seed: int | None = None,
    burn_in: int | None = None,
    heldout: float | str | os.PathLike[str] | None = None,
    until_settled: bool | None = None,
    config: Mapping[str, Any] | None = None,
    kinds: Mapping[str, str] | None = None,
    schema: str | os.PathLike[str] | None = None,
    missing: Sequence[str] = (),
    weight: str | None = None,
) -> Job:
    """Submit a run, or the continuation of the run in `directory`, as a SLURM job that requeues itself.

    Configuration, table and directory are checked first; the batch script and the log lie beside the directory
    (docs/python.md). Call it on a host that has sbatch.

    data: as in `fit`. Data other than a typed table are imported first, here.
    directory: of the run, on a file system that all nodes share; by default runs/NAME beside the file. A DataFrame
        needs one.
    nodes, ntasks_per_node: of the job; by default one node, and a rank per shard.
    time: limit of one job, "12:00:00", "1-12:00:00" or "90m"; the run continues in the next.
    partition, account: as in sbatch.
    mpi: "pmix", "pmi2" or "mpirun"; by default the site's, and "pmi2" with the wheel of MPICH.
    setup: lines of the script, "module load openmpi". sbatch: other options, "--mem-per-cpu=2G".
    chain: one job after another, if jobs may not requeue themselves.
    family ... weight: as in `fit`.

    Returns a handle of the job; `submitted(directory)` makes another one, in any session.

    Raises ConfigError and DataError in the cases that `mpibayes submit` refuses: a job of this run in the queue, a
    directory that cannot be written, a host without sbatch, or a refusal of sbatch itself, with its words.
    """
    from mpibayes.hpc.python.job import Job
    from mpibayes.hpc.slurm.batch_script import LAUNCHERS, Request
    from mpibayes.hpc.slurm.queue import require_sbatch
    from mpibayes.hpc.slurm.submit import limit, prepared, send

    settings = overrides(
        {
            "family": family, "likelihood": likelihood, "response": response, "predictors": predictors,
            "cycles": cycles, "chains": chains, "seed": seed, "burn_in": burn_in, "heldout": heldout,
        },
        until_settled,
        config,
    )  # fmt: skip
    if launcher_size() > 1:
        raise ConfigError("submit asks SLURM for the ranks: call it from one process, not under mpirun")
    if directory is None and not frames.is_path(data):
        raise ConfigError(
            "directory: name one that all nodes see; that of a DataFrame would be temporary, on this host"
        )
    for name, lines in ("setup", setup), ("sbatch", sbatch):
        if isinstance(lines, str):
            raise ConfigError(f"{name} = {lines!r}: expected a list of lines, [{lines!r}]")
    for name, number in ("nodes", nodes), ("ntasks_per_node", ntasks_per_node):
        if number is not None and (not isinstance(number, int) or number < 1):
            raise ConfigError(f"{name} = {number!r}: expected a whole number, 1 or more")
    if mpi is not None and mpi not in LAUNCHERS:
        raise ConfigError(f"mpi = {mpi!r}: expected one of {', '.join(LAUNCHERS)}")
    try:
        time_s = limit(time)
    except ValueError as error:
        raise ConfigError(f"time = {error}") from None
    require_sbatch()
    request = Request(
        nodes, ntasks_per_node, time_s, None, chain, partition, account, mpi, tuple(setup), tuple(sbatch)
    )  # fmt: skip
    display = display_for(True)
    try:
        how: dict[str, Any] = {"kinds": kinds, "schema": schema, "missing": missing, "weight": weight}
        source, folder = placed(data, directory, False, display, **how)
        with _without_fresh(), in_words_of_python():
            if is_data(source):
                source = _configuration(source, folder, display)
            job = prepared(source, folder, settings, request)
            if job.warning:
                display.say(f"warning: {in_python(job.warning)}")
            submitted = send(job, display.say)
    finally:
        display.close()
    return Job(job.folder, submitted, chain=chain, frames="pyarrow" if frames.is_path(data) else frames.kind_of(data))


@contextlib.contextmanager
def _without_fresh() -> Iterator[None]:
    """Remove advice about `fresh`, which a job that restarts repeatedly cannot use."""
    try:
        yield
    except MpibayesError as error:
        texts = [
            text.replace(", or start over with fresh=True", "").replace("start over with fresh=True", CHOOSE)
            for text in (error.message, *error.problems)
        ]
        raise type(error)(texts[0], texts[1:]) from None


def _configuration(source: Path, folder: Path, display: Display) -> Path:
    """Make the configuration for a data file, beside the run directory; display the import's remarks."""
    remarks = io.StringIO()
    try:
        with contextlib.redirect_stdout(remarks):
            return configuration(source, folder, fresh=False)
    finally:
        for line in remarks.getvalue().splitlines():
            display.say(in_python(line) if line.startswith(ADVICE) else line)
