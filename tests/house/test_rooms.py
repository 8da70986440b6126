"""Who may import whom, by rooms; a room may import itself. Kernels know NumPy alone, and a login node needs no MPI."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BELOW = {"errors", "memory", "text", "terminal"}
# room: the rooms it imports. A new room gets a line here; a new arrow is a decision.
ROOMS = {
    "errors": {"text"},
    "memory": set(),
    "text": set(),
    "terminal": {"text"},
    "io": {*BELOW},
    "kernels": set(),
    "hpc.parallel": {*BELOW, "kernels"},
    "hpc.components": {*BELOW, "io", "kernels", "hpc.parallel"},
    "hpc.config": {*BELOW, "io", "hpc.registry"},  # for the keys of the family that a file names
    "hpc.data": {*BELOW, "io", "hpc.parallel"},
    "hpc.scalar": set(),
    "hpc.convergence": set(),
    "hpc.settled": {"hpc.convergence", "hpc.scalar"},
    "hpc.law": {"io", "hpc.data", "hpc.parallel"},
    "hpc.family": {"io", "hpc.config", "hpc.data", "hpc.law", "hpc.parallel", "hpc.scalar"},
    "hpc.registry": {*BELOW, "hpc.family", "hpc.law", "hpc.scalar", "hpc.crosscat", "hpc.regression"}  # lazily
    | {"hpc.ibp", "hpc.svi"},
    "hpc.run": {*BELOW, "io", "hpc.config", "hpc.data", "hpc.family", "hpc.parallel", "hpc.registry", "hpc.scalar"}
    | {"hpc.settled"},
    "hpc.posterior": {*BELOW, "io", "hpc.config", "hpc.convergence", "hpc.data", "hpc.family", "hpc.run"}
    | {"hpc.scalar"},
    "hpc.links": {*BELOW, "io", "kernels", "hpc.components", "hpc.data", "hpc.parallel"},
    "hpc.outcome": {*BELOW, "io", "kernels", "hpc.components", "hpc.config", "hpc.data", "hpc.parallel"}
    | {"hpc.regression"},
    "hpc.crosscat": {*BELOW, "io", "kernels", "hpc.components", "hpc.config", "hpc.data", "hpc.family"}
    | {"hpc.law", "hpc.links", "hpc.outcome", "hpc.parallel", "hpc.posterior", "hpc.report", "hpc.run", "hpc.scalar"}
    | {"hpc.settled"},
    "hpc.regression": {*BELOW, "io", "kernels", "hpc.config", "hpc.data", "hpc.family"}
    | {"hpc.parallel", "hpc.posterior", "hpc.report", "hpc.run", "hpc.scalar"},
    "hpc.ibp": {*BELOW, "io", "kernels", "hpc.config", "hpc.data", "hpc.family"}
    | {"hpc.law", "hpc.parallel", "hpc.posterior", "hpc.report", "hpc.run", "hpc.scalar", "hpc.settled"},
    "hpc.svi": {*BELOW, "io", "kernels", "hpc.config", "hpc.data", "hpc.family"}
    | {"hpc.parallel", "hpc.posterior", "hpc.report", "hpc.run", "hpc.scalar"},
    "hpc.report": {*BELOW, "io", "hpc.config", "hpc.posterior", "hpc.run", "hpc.scalar", "hpc.settled"},
    "hpc.query": {*BELOW, "io", "hpc.data", "hpc.family", "hpc.law", "hpc.parallel", "hpc.posterior"}
    | {"hpc.registry", "hpc.report"},
    "hpc.synthetic": {*BELOW, "io", "hpc.law", "hpc.parallel", "hpc.query"},
    "hpc.comparison": {*BELOW, "io", "hpc.config", "hpc.data", "hpc.posterior", "hpc.query", "hpc.report", "hpc.run"},
    "hpc.results": {*BELOW, "io", "hpc.comparison", "hpc.config", "hpc.data", "hpc.family", "hpc.law", "hpc.parallel"}
    | {"hpc.posterior", "hpc.query", "hpc.registry", "hpc.report", "hpc.run", "hpc.synthetic"},
    "hpc.slurm": {*BELOW, "io", "hpc.config", "hpc.registry", "hpc.run"},
    "hpc.doctor": {*BELOW, "io", "kernels", "hpc.parallel", "hpc.run"},
    "hpc.python": {*BELOW, "io", "hpc.config", "hpc.data", "hpc.family", "hpc.parallel", "hpc.posterior"}
    | {"hpc.query", "hpc.registry", "hpc.report", "hpc.results", "hpc.run", "hpc.slurm", "hpc.synthetic"},
    "sklearn": {"hpc.python"},
    "hpc.cli": {*BELOW, "io", "hpc.config", "hpc.doctor", "hpc.parallel", "hpc.posterior", "hpc.query"}
    | {"hpc.registry", "hpc.report", "hpc.results", "hpc.run", "hpc.slurm", "hpc.synthetic"},
}
# Besides these a kernel's Python files import nothing but the standard library.
NUMERIC = {"numpy", "__future__", "mpibayes"}


def modules():
    folders = [path for name in ("hpc", "kernels", "io") for path in sorted((ROOT / name).rglob("*.py"))]
    return [*folders, *sorted((ROOT / "src" / "mpibayes").glob("*.py"))]


def name_of(path):
    """`mpibayes.hpc.run.loop` of hpc/run/loop.py."""
    place = path.relative_to(ROOT).with_suffix("")
    parts = place.parts[1:] if place.parts[0] == "src" else ("mpibayes", *place.parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported(path):
    """Yield every dotted name that a file imports, anywhere in it, with the line."""
    package = name_of(path) if path.name == "__init__.py" else name_of(path)[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            for alias in node.names:  # which may be a module, or something in one
                yield f"{module}.{alias.name}", node.lineno


def room(dotted):
    """The room of a dotted name; None outside of the package, and for what belongs to no room (the version)."""
    parts = dotted.split(".")
    if parts[0] != "mpibayes" or len(parts) < 2 or parts[1].startswith("__"):
        return None
    if parts[1] == "hpc":
        return ".".join(parts[1:3]) if len(parts) > 2 else None
    return parts[1]


def test_direction():
    """Every import is along an arrow, and every arrow has an import."""
    wrong, used = [], set()
    for path in modules():
        mine = room(".".join(name_of(path)))
        if mine is None:
            continue
        assert mine in ROOMS, f"give {mine} a line in ROOMS of {Path(__file__).name}"
        for module, line in imported(path):
            at, other, top = f"{path.relative_to(ROOT)}:{line}", room(module), module.split(".")[0]
            used.add((mine, other))
            if other not in {None, mine, *ROOMS[mine]}:
                wrong.append(f"{at}: {mine} imports {module}")
            if mine == "kernels" and top not in NUMERIC | set(sys.stdlib_module_names):
                wrong.append(f"{at}: a kernel imports {module}, but knows only NumPy")
            if top == "mpi4py" and name_of(path)[-1] != "comm":
                wrong.append(f"{at}: only hpc/parallel/comm.py imports mpi4py")
    wrong += [
        f"{mine}: no file imports {other}"
        for mine, others in ROOMS.items()
        for other in sorted(others - BELOW)
        if (mine, other) not in used
    ]
    assert not wrong, "\n".join(wrong)


def test_no_circle():
    """Rooms can be put in an order; the registry reaches up to the families when it is asked, and is left out."""
    left = {name: below - {"hpc.registry"} for name, below in ROOMS.items() if name != "hpc.registry"}
    while left:
        free = [name for name, below in left.items() if not below & set(left)]
        assert free, f"a circle among {sorted(left)}"
        for name in free:
            del left[name]


def test_the_parser_sees_what_it_should():
    """The direction test can fail: each of these lines is seen for what it is."""
    source = (
        "from mpibayes.hpc.run import loop\nfrom mpibayes import errors\nimport mpi4py.MPI\n"
        "def f():\n    from .check import check\n    import mpibayes.io.table\n"
    )
    path = ROOT / "hpc" / "report" / "example.py"

    class Fake(type(path)):
        def read_text(self, *args, **kwargs):
            return source

    result = sorted(name for name, _ in imported(Fake(path)))
    assert result == [
        "mpi4py.MPI",
        "mpibayes.errors",
        "mpibayes.hpc.report.check.check",
        "mpibayes.hpc.run.loop",
        "mpibayes.io.table",
    ]
    assert [room(name) for name in result] == [None, "errors", "hpc.report", "hpc.run", "io"]


def loaded_after(code):
    """The modules that are loaded once a fresh Python has run the code."""
    text = f"{code}\nimport sys; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


HEAVY = {"pyarrow", "matplotlib", "arviz", "scipy.stats", "pandas", "xarray"}


@pytest.mark.parametrize("module", ["run.loop", "cli", "run.examine", "run.status", "config.load"])
def test_light_imports(module):
    loaded = loaded_after(f"import mpibayes.hpc.{module}")
    assert not loaded & HEAVY, sorted(loaded & HEAVY)
    assert "mpi4py.MPI" not in loaded


def test_a_report_does_without_scipy_stats():
    """Its import takes a fifth of the time of a small report."""
    assert "scipy.stats" not in loaded_after("import mpibayes.hpc.results.report")


def test_the_command_line_is_lighter_still():
    loaded = loaded_after("import mpibayes.hpc.cli")
    assert not loaded & {"numpy", "h5py", "pydantic", "rich", "mpi4py"}


def test_import_mpibayes_loads_nothing_until_it_is_asked():
    loaded = loaded_after("import mpibayes; mpibayes.ConfigError; dir(mpibayes)")
    assert not loaded & {"numpy", "h5py", "pydantic", "rich", "mpi4py", "click", *HEAVY}
    loaded = loaded_after("import mpibayes; mpibayes.fit; mpibayes.open; mpibayes.Result")
    assert not loaded & HEAVY and "mpi4py.MPI" not in loaded and "polars" not in loaded


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
