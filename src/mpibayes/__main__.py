"""`python -m mpibayes` is the command `mpibayes`."""

import signal
import sys


def main() -> int:
    """The command. Ctrl-C while its modules are loaded ends it without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mpibayes.hpc.cli import main as command

    signal.signal(signal.SIGINT, signal.default_int_handler)
    return command()


if __name__ == "__main__":
    sys.exit(main())
