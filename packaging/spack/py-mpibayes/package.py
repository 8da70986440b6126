# A Spack package. Put the folder py-mpibayes (py_mpibayes in repositories of API v2) into the `packages` of a
# repository of your own, the archive of `make wheel` (dist/mpibayes-1.0.0.tar.gz) where you call Spack, and:
#
#   spack install --no-checksum py-mpibayes ^openmpi
#
# Spack itself has not read this file: it could not be had where the file was written. A test of the repository runs it
# with a stand-in for Spack's directives, and compares its version and dependencies with pyproject.toml; the packages
# that it names are in Spack's own repository. That has no pyreadstat, so there is no variant for the extra `formats`.

import os

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyMpibayes(PythonPackage):
    """Exact Bayesian mixtures and regressions of very large tables, distributed with MPI."""

    manual_download = True
    url = f"file://{os.getcwd()}/mpibayes-1.0.0.tar.gz"

    license("BSD-3-Clause")

    version("1.0.0")

    variant("report", default=True, description="Tables and pictures of a posterior")

    depends_on("c", type="build")
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-cython@3.1:", type="build")

    depends_on("py-mpi4py@4.1:", type=("build", "run"))
    depends_on("py-numpy@2:", type=("build", "run"))
    depends_on("py-scipy@1.11:", type=("build", "run"))
    depends_on("py-h5py@3.13:", type=("build", "run"))
    depends_on("py-pyarrow@16:", type=("build", "run"))
    depends_on("py-click@8.1:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-pydantic@2.7:", type=("build", "run"))

    with when("+report"):
        depends_on("py-matplotlib@3.8:", type=("build", "run"))
        depends_on("py-arviz@0.20:", type=("build", "run"))
