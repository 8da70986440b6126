"""`python -m mpibayes` runs the command `mpibayes`."""

import gc
import os
import resource
import signal
import sys


def main() -> int:
    """Run the command. Ctrl-C while its modules are loaded ends it without a traceback.

    Under a launcher no process leaves alone: signals are noted until the run can act on them, and a process that fails
    to load the program ends the other ranks, too.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(threads, "1")  # ranks share the work; additional threads would compete for cores
    os.environ.setdefault("HDF5_PLUGIN_PRELOAD", "::")  # no code from plug-in folders, whatever a file requests
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # pydantic would search every installed package for plug-ins
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # others reserve 1 GB of addresses at once
    if not os.environ.get("SOURCE_DATE_EPOCH", "0").isdecimal():
        del os.environ["SOURCE_DATE_EPOCH"]  # a non-numeric value breaks parts of NumPy's import
    from mpibayes.hpc.parallel.launcher import launcher_size
    from mpibayes.hpc.run import signals
    from mpibayes.io.arrow import keep_pandas_out

    keep_pandas_out()

    if launcher_size() > 1:
        signals.note()
    gc.disable()  # modules are no garbage, and going through them again and again takes a tenth of a short command
    from mpibayes.hpc.cli import main as command

    gc.enable()
    if launcher_size() == 1:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = command()
    if code and "pyarrow" in sys.modules and "mpi4py.MPI" not in sys.modules:
        _leave_at_once(code)
    return code


def _leave_at_once(code: int) -> None:
    """End the process without finalizing the interpreter.

    After an error in a file, pyarrow's threads may still be reading it through Python; a thread that returns during
    finalization occasionally aborts the process ("terminate called without an active exception").
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
