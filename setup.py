"""Builds the extension modules; everything else about the package is in pyproject.toml.

Environment variables read here:
  MPIBAYES_NATIVE=1  adds -march=native. Not for what is shipped: such a build dies on an older processor. Results keep
                     their bits (-ffp-contract=off), and the hot loops choose their instructions at run time anyway.
  MPIBAYES_CHECKS=1  turns index checks on in the kernels, for tests, and compiles fast.
"""

import glob
import os

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = "src/mpibayes/kernels"
SHARED = "mpibayes.kernels.shared"  # what Cython would otherwise put into each module, most of what is compiled
checks = os.environ.get("MPIBAYES_CHECKS") == "1"
together = len(os.sched_getaffinity(0))  # compilers at a time
flags = ["-O1" if checks else "-O3", "-ffp-contract=off", "-fno-math-errno", "-g0", "-Wno-psabi"]
if os.environ.get("MPIBAYES_NATIVE") == "1":
    flags.append("-march=native")


def extension(source):
    """kernels/FOLDER/NAME.pyx is mpibayes.kernels.FOLDER.NAME; its headers lie beside it, or in kernels/common."""
    folder = os.path.dirname(source)
    headers = [folder, f"{KERNELS}/common"]
    return Extension(
        f"mpibayes.kernels.{os.path.basename(folder)}.{os.path.basename(source)[: -len('.pyx')]}",
        [source],
        include_dirs=headers,
        depends=sorted(header for place in headers for header in glob.glob(f"{place}/*.h")),
        define_macros=[("MPIBAYES_CHECKS", "1")] if checks else [],
        extra_compile_args=flags,
    )


shared = Extension(SHARED, [f"{KERNELS}/shared.c"], extra_compile_args=flags)
setup(
    ext_modules=cythonize(
        [*map(extension, sorted(glob.glob(f"{KERNELS}/*/*.pyx"))), shared],
        build_dir="build/cython",
        nthreads=together,
        shared_utility_qualified_name=SHARED,
        compiler_directives={
            "language_level": 3,
            "boundscheck": checks,
            "wraparound": False,
            "initializedcheck": checks,
            "cdivision": True,
        },
    ),
    options={"build_ext": {"parallel": together}},
)
