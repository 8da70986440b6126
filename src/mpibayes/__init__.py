"""Exact Bayesian mixtures and regressions of very large tables, distributed with MPI.

    import mpibayes as mb

    run = mb.fit("people.csv", ranks=4)      # start or continue a run; or mb.open("runs/a"), one that is there
    job = mb.submit("people.csv", nodes=4)   # the same in SLURM's queue; mb.submitted("runs/people") finds it again
    run.logp(of={"income": "high"}, given={"age": (40, 50)})

Each of these names is imported on first use: this import loads no other module, so that the command, which begins with
it, soon reaches the line from which Ctrl-C ends it without a traceback.
"""

from __future__ import annotations

TYPE_CHECKING = False  # that of `typing`, for type checkers
__version__ = "1.0.0"
__all__ = [
    "ChainsDisagree",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "Interrupted",
    "Job",
    "JobStatus",
    "MpibayesError",
    "MpibayesWarning",
    "NumericalError",
    "Pooled",
    "Result",
    "Run",
    "append_rows",
    "fit",
    "import_table",
    "open",
    "pool",
    "submit",
    "submitted",
]

if TYPE_CHECKING:
    from typing import Any

    from mpibayes.errors import (
        ChainsDisagree,
        CheckpointError,
        ConfigError,
        DataError,
        Interrupted,
        MpibayesError,
        MpibayesWarning,
        NumericalError,
    )
    from mpibayes.hpc.python.append import append_rows
    from mpibayes.hpc.python.fit import fit, import_table
    from mpibayes.hpc.python.job import Job, JobStatus, submitted
    from mpibayes.hpc.python.pool import Pooled, pool
    from mpibayes.hpc.python.result import Result
    from mpibayes.hpc.python.run import Run
    from mpibayes.hpc.python.run import open_run as open
    from mpibayes.hpc.python.submit import submit

_PLACES = {
    "Job": ("hpc.python.job", "Job"),
    "JobStatus": ("hpc.python.job", "JobStatus"),
    "Pooled": ("hpc.python.pool", "Pooled"),
    "Result": ("hpc.python.result", "Result"),
    "Run": ("hpc.python.run", "Run"),
    "append_rows": ("hpc.python.append", "append_rows"),
    "fit": ("hpc.python.fit", "fit"),
    "import_table": ("hpc.python.fit", "import_table"),
    "open": ("hpc.python.run", "open_run"),
    "pool": ("hpc.python.pool", "pool"),
    "submit": ("hpc.python.submit", "submit"),
    "submitted": ("hpc.python.job", "submitted"),
}


def __getattr__(name: str) -> Any:
    import importlib

    if name not in __all__:
        hint = "; mpibayes.open(DIRECTORY) opens a run" if name in ("load", "read") else ""
        raise AttributeError(f"module 'mpibayes' has no attribute '{name}'{hint}")
    module, attribute = _PLACES.get(name, ("errors", name))
    return getattr(importlib.import_module(f"mpibayes.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
