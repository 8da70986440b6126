"""Imports run one way, and the heavy ones wait until they are needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("hpc", "kernels", "io")

# A module of hpc may import its own level and those below. A new module has to be placed here.
LEVELS = [
    {"errors", "words", "terminal", "heap", "launcher", "signals", "waiting", "cost_constants", "cost_model"},
    {"kernels"},
    {"mixture", "models", "state", "shards", "streams", "comm", "global_update", "shard_step", "schedule", "sync"}
    | {
        "annealing",
        "growth",
        "grouping",
        "cluster_book",
        "guided_moves",
        "informed_moves",
        "launch_scans",
        "split_odds",
        "split_merge",
    },
    {
        "clock",
        "batch_script",
        "lock",
        "log",
        "config",
        "config_schema",
        "data",
        "heldout",
        "records",
        "run_directory",
        "strata",
        "strategy",
        "status",
        "kept_draws",
        "chains",
        "summary",
        "figures",
        "io",
        "drawing",
        "kept_chains",
        "report_text",
        "regression",
        "sampler",
        "speed",
    },
    {"families", "mixture_run", "regression_run", "kept_regression"},
    {"mixture_report", "mixture_predict"}
    | {"kept_regression", "regression_posterior", "regression_predict", "regression_report", "regression_tables"},
    {"run", "resume", "check", "mixture_check", "regression_check", "submit", "report", "predict"}
    | {"doctor", "doctor_checks", "doctor_mpi", "simulate"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
NUMERIC = {
    "numpy",
    "__future__",
    "mpibayes",
}  # besides these a kernel's Python files import nothing but the standard library


def modules():
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def name_of(path):
    parts = ("mpibayes", *path.relative_to(ROOT).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported(path):
    """Every dotted module that a file imports, anywhere in it, with the line."""
    package = name_of(path) if path.name == "__init__.py" else name_of(path)[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            if module in ("mpibayes", "mpibayes.hpc"):  # `from mpibayes.hpc import shards` names modules
                for alias in node.names:
                    yield f"{module}.{alias.name}", node.lineno
            else:
                yield module, node.lineno


def unit(dotted):
    """The name in LEVELS of a module of the package, or None."""
    parts = dotted.split(".")
    if parts[0] != "mpibayes" or len(parts) < 2 or parts[1].startswith("__"):
        return None
    return parts[1] if parts[1] != "hpc" else (parts[2] if len(parts) > 2 else None)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_direction(path):
    mine = unit(".".join(name_of(path)))
    if mine is None:
        return
    assert mine in LEVEL, f"place hpc/{mine}.py in LEVELS of {Path(__file__).name}"
    wrong = []
    for module, line in imported(path):
        other = unit(module)
        where = f"{path.relative_to(ROOT)}:{line}"
        if other is not None and other not in LEVEL:
            wrong.append(f"{where}: {module} is not in LEVELS")
        elif other is not None and LEVEL[other] > LEVEL[mine]:
            wrong.append(f"{where}: {mine} (level {LEVEL[mine]}) imports {module} (level {LEVEL[other]})")
        if mine == "io" and other not in (None, "io", "errors", "words", "terminal"):
            wrong.append(f"{where}: io imports {module}, but knows only io, hpc.errors, hpc.words and hpc.terminal")
        if mine == "kernels":
            top = module.split(".")[0]
            if other not in (None, "kernels") or top not in NUMERIC | set(sys.stdlib_module_names):
                wrong.append(f"{where}: a kernel imports {module}, but knows only NumPy")
        if module.split(".")[0] == "mpi4py" and mine != "comm":
            wrong.append(f"{where}: only hpc/parallel/comm.py imports mpi4py")
    assert not wrong, "\n".join(wrong)


def test_the_parser_sees_what_it_should(tmp_path):
    """The direction test can fail: each of these lines is seen for what it is."""
    path = ROOT / "hpc" / "example.py"
    source = (
        "from mpibayes.hpc import run, errors\nimport mpi4py.MPI\n"
        "def f():\n    from .check import check\n    import mpibayes.io.table\n"
    )
    tree = tmp_path / "hpc" / "example.py"
    tree.parent.mkdir()
    tree.write_text(source)

    class Fake(type(path)):
        def read_text(self, *args, **kwargs):
            return source

    found = {name for name, _ in imported(Fake(path))}
    assert found == {
        "mpibayes.hpc.run.loop",
        "mpibayes.errors",
        "mpi4py.MPI",
        "mpibayes.hpc.commands.check",
        "mpibayes.io.table",
    }
    assert [unit(n) for n in sorted(found)] == [None, "check", "errors", "run", "io"]


def loaded_after(code):
    """The modules that are loaded once a fresh Python has run the code."""
    text = f"{code}\nimport sys; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


HEAVY = {"pyarrow", "matplotlib", "arviz", "scipy.stats", "pandas", "xarray"}


@pytest.mark.parametrize("module", ["run", "cli", "check", "status", "config"])
def test_light_imports(module):
    loaded = loaded_after(f"import mpibayes.hpc.{module}")
    assert not loaded & HEAVY, sorted(loaded & HEAVY)
    assert "mpi4py.MPI" not in loaded


def test_the_command_line_is_lighter_still():
    loaded = loaded_after("import mpibayes.hpc.cli")
    assert not loaded & {"numpy", "h5py", "pydantic", "rich", "mpi4py"}


def test_help_needs_no_mpi(tmp_path):
    """A machine without MPI, and without mpi4py: a package that cannot be imported stands in for it."""
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('no MPI on this login node')\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from mpibayes.hpc.cli import main; sys.exit(main(['--help']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "import people.csv" in done.stdout, done.stderr
