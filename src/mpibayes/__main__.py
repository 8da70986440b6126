"""`python -m mpibayes` is the command `mpibayes`."""

import signal
import sys


def main() -> int:
    """The command. Ctrl-C while its modules are loaded ends it without a traceback.

    Under a launcher no process leaves alone: signals are noted until the run can act on them, and a process that cannot
    load the program ends the others too.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mpibayes.hpc.parallel.launcher import launcher_size
    from mpibayes.hpc.run import signals

    if launcher_size() > 1:
        signals.note()
    from mpibayes.hpc.cli import main as command

    if launcher_size() == 1:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return command()


if __name__ == "__main__":
    sys.exit(main())
