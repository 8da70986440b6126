"""The command `mpibayes` with heartbeats every 0.2 s, a one-second limit on missing ones, and without hard links.

python program.py WORDS: for campaigns, which cannot wait for the program's own limits.
"""

import os
import sys

from mpibayes.__main__ import main
from mpibayes.hpc.run import lock


def no_links(*words, **more):
    raise PermissionError(1, "Operation not permitted")


if __name__ == "__main__":
    lock.RENEWED_S, lock.SILENT_S = 0.2, 1.0
    os.link = no_links
    sys.exit(main())
