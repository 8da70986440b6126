"""`python -m mpibayes` is the command `mpibayes`."""

import sys

from mpibayes.hpc.cli import main

sys.exit(main())
