"""Builds the extension modules; everything else about the package is in pyproject.toml.

Environment variables read here:
  MPIBAYES_NATIVE=1  adds -march=native. Not for what is shipped: such a build dies on an older processor. Results keep
                     their bits (-ffp-contract=off), and the hot loops choose their instructions at run time anyway.
  MPIBAYES_CHECKS=1  turns index checks on in the kernels, for tests.
"""

import glob
import os

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = "src/mpibayes/kernels"
checks = os.environ.get("MPIBAYES_CHECKS") == "1"
flags = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-g0", "-Wno-psabi"]
if os.environ.get("MPIBAYES_NATIVE") == "1":
    flags.append("-march=native")

extensions = [
    Extension(
        f"mpibayes.kernels.{os.path.basename(source)[: -len('.pyx')]}",
        [source],
        include_dirs=[KERNELS],
        depends=sorted(glob.glob(f"{KERNELS}/*.h")),
        define_macros=[("MPIBAYES_CHECKS", "1")] if checks else [],
        extra_compile_args=flags,
    )
    for source in sorted(glob.glob(f"{KERNELS}/*.pyx"))
]

setup(
    ext_modules=cythonize(
        extensions,
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": checks,
            "wraparound": False,
            "initializedcheck": checks,
            "cdivision": True,
        },
    ),
)
