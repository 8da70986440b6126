-- An Lmod module for an environment of Python that has mpibayes. Copy the folder mpibayes to a place of MODULEPATH, and
-- correct the two lines below. The environment is made with the MPI module loaded, and without the extra `mpich`:
--
--   module load openmpi && python3 -m venv /opt/mpibayes/1.0.0
--   /opt/mpibayes/1.0.0/bin/pip install "$(ls dist/*.whl)[report,formats]"

local root = pathJoin("/opt/mpibayes", myModuleVersion())
local mpi = "openmpi" -- the module of the cluster's MPI

help([[
Exact Bayesian mixtures and regressions of very large tables, distributed with MPI.
    mpibayes --help            commands
    mpibayes doctor            checks this installation
    srun mpibayes run run.toml -o runs/a
]])
whatis("Name: mpibayes")
whatis("Version: " .. myModuleVersion())
whatis("Description: exact Bayesian mixtures and regressions of very large tables, with MPI")

conflict("mpibayes")
depends_on(mpi)

prepend_path("PATH", pathJoin(root, "bin"))
pushenv("OMP_NUM_THREADS", "1") -- ranks share the work
pushenv("OPENBLAS_NUM_THREADS", "1")
