"""`python -m mpibayes` is the command `mpibayes`."""

import os
import resource
import signal
import sys


def main() -> int:
    """The command. Ctrl-C while its modules are loaded ends it without a traceback.

    Under a launcher no process leaves alone: signals are noted until the run can act on them, and a process that cannot
    load the program ends the others too.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(threads, "1")  # ranks share the work; threads beside them would wait for cores
    os.environ.setdefault("HDF5_PLUGIN_PRELOAD", "::")  # no code from folders of plug-ins, whatever a file asks for
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # it would look for them in every installed package
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # the others reserve 1 GB of addresses at once
    if not os.environ.get("SOURCE_DATE_EPOCH", "0").isdecimal():
        del os.environ["SOURCE_DATE_EPOCH"]  # NumPy cannot be imported in full with one that is no number
    from mpibayes.hpc.parallel.launcher import launcher_size
    from mpibayes.hpc.run import signals

    if launcher_size() > 1:
        signals.note()
    from mpibayes.hpc.cli import main as command

    if launcher_size() == 1:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = command()
    if code and "pyarrow" in sys.modules and "mpi4py.MPI" not in sys.modules:
        _leave_at_once(code)
    return code


def _leave_at_once(code: int) -> None:
    """End the process without taking the interpreter apart.

    After an error in a file pyarrow's threads may still be reading it, by way of Python; one that comes back while the
    interpreter ends aborts the process ("terminate called without an active exception"), now and then.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
