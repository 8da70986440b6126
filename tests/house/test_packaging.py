"""The recipes in packaging/ have the version and the dependencies of pyproject.toml."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import types
from contextlib import nullcontext
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import mpibayes

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "packaging"
# The modules of EasyBuild that bring several packages; others have the package's name.
BUNDLES = {"SciPy-bundle": ["numpy", "scipy"], "Python-bundle-PyPI": ["click", "rich"], "Arrow": ["pyarrow"]}


def required():
    """{"build", "run", "report"}: names of packages, lower case, with the least version of each; python among them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = {
        "build": project["build-system"]["requires"],
        "run": [f"python{project['project']['requires-python']}", *project["project"]["dependencies"]],
        "report": project["project"]["optional-dependencies"]["report"],
    }
    return {kind: least(lines) for kind, lines in asked.items()}


def least(lines):
    result = {}
    for line in lines:
        requirement = Requirement(line)
        (bound,) = requirement.specifier
        assert bound.operator == ">=", line
        result[requirement.name.lower()] = bound.version
    return result


# --- each recipe as its version, and its packages with their least versions -------------------------------------------


def spack(place):
    """Run the file with stand-ins for the directives of Spack that it uses."""
    result, variants, conditions = {"build": {}, "run": {}, "report": {}}, [], [None]

    def depends_on(spec, type):
        name, _, bound = spec.partition("@")
        name = name.removeprefix("py-")
        if name == "c":
            return
        assert re.fullmatch(r"[\d.]+:", bound), spec
        if conditions[-1]:
            result[conditions[-1].removeprefix("+")][name] = bound[:-1]
            return
        for kind in [type] if isinstance(type, str) else type:
            result[kind][name] = bound[:-1]

    class When(nullcontext):
        def __enter__(self):
            assert self.enter_result.removeprefix("+") in variants
            conditions.append(self.enter_result)

        def __exit__(self, *error):
            conditions.pop()

    versions = []
    package = types.ModuleType("spack.package")
    directives = {
        "depends_on": depends_on, "version": versions.append, "when": When, "license": lambda name: None,
        "variant": lambda name, default, description: variants.append(name),
    }  # fmt: skip
    vars(package).update(directives)
    base = types.ModuleType("spack_repo.builtin.build_systems.python")
    base.PythonPackage = type("PythonPackage", (), {})
    stand_ins = {"spack": types.ModuleType("spack"), "spack.package": package, base.__name__: base}
    for parent in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        stand_ins[parent] = types.ModuleType(parent)
    with pytest.MonkeyPatch.context() as patch:
        for name, module in stand_ins.items():
            patch.setitem(sys.modules, name, module)
        names = {}
        exec(compile((place / "spack/py-mpibayes/package.py").read_text(), "package.py", "exec"), names)
    assert names["PyMpibayes"].url.endswith(f"/mpibayes-{versions[0]}.tar.gz")
    # Spack has what is needed to build among what is needed to run, and the other way about
    result["build"] = {name: result["build"][name] for name in required()["build"]}
    (version,) = versions
    return version, result


def conda(place):
    text = (place / "conda/recipe.yaml").read_text()
    listed = {
        kind: re.search(rf"^  {kind}:\n((?:    - .*\n)+)", text, re.M)[1].split("\n    - ") for kind in ("host", "run")
    }

    def of(lines):
        pairs = (line.removeprefix("    - ").split() for line in lines)
        return {name: bound[0].removeprefix(">=") for name, *bound in pairs if bound}

    return re.search(r"^  version: (.*)$", text, re.M)[1], {"build": of(listed["host"]), "run": of(listed["run"])}


def easybuild(place):
    """Names and versions of modules, which the bounds of pyproject.toml have to allow."""
    (path,) = (place / "easybuild").glob("*.eb")
    values = {}
    for line in ast.parse(path.read_text()).body:
        if isinstance(line, ast.Assign) and line.targets[0].id in ("name", "version", "toolchain", "dependencies"):
            values[line.targets[0].id] = ast.literal_eval(line.value)
    toolchain = "-".join(values["toolchain"][key] for key in ("name", "version"))
    assert path.name == f"{values['name']}-{values['version']}-{toolchain}.eb"
    return values["version"], dict(values["dependencies"])


def versions(place):
    """The version in each recipe, by file."""
    container = (place / "apptainer/mpibayes.def").read_text()
    (module,) = (place / "lmod/mpibayes").glob("*.lua")
    return {
        "apptainer": re.search(r"^    Version (.*)$", container, re.M)[1],
        "conda": conda(place)[0],
        "easybuild": easybuild(place)[0],
        "lmod": module.stem,
        "spack": spack(place)[0],
    }


def test_versions():
    assert set(versions(PLACE).values()) == {mpibayes.__version__}, versions(PLACE)


def test_dependencies():
    asked = required()
    assert spack(PLACE)[1] == asked
    assert conda(PLACE)[1] == {kind: asked[kind] for kind in ("build", "run")}
    modules = easybuild(PLACE)[1]
    brought = {name.lower(): of for name, of in modules.items() if name not in BUNDLES}
    assert {*brought, *(name for bundle in BUNDLES for name in BUNDLES[bundle])} == set(asked["run"])
    assert set(BUNDLES) <= set(modules)
    for name, version in {**brought, "pyarrow": modules["Arrow"]}.items():
        assert SpecifierSet(f">={asked['run'][name]}").contains(version), name


CHANGES = [
    ("apptainer/mpibayes.def", "    Version 1", "    Version 2"),
    ("conda/recipe.yaml", "version: 1", "version: 2"),
    ("easybuild/mpibayes-1.0.0-foss-2025b.eb", "version = '1", "version = '2"),
    ("spack/py-mpibayes/package.py", "1.0.0", "2.0.0"),
]


@pytest.mark.parametrize(("name", "old", "new"), CHANGES, ids=lambda text: text.split("/")[0])
def test_another_version_is_noticed(tmp_path, name, old, new):
    place = tmp_path / "packaging"
    shutil.copytree(PLACE, place)
    file = place / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    if name.endswith(".eb"):
        file.rename(file.with_name(file.name.replace("1.0.0", "2.0.0")))
    assert len(set(versions(place).values())) == 2


@pytest.mark.parametrize(
    ("name", "read", "old", "new"),
    [
        ("conda/recipe.yaml", conda, "h5py >=3.13", "h5py >=3.12"),
        ("conda/recipe.yaml", conda, "    - rich >=13\n", ""),
        ("spack/py-mpibayes/package.py", spack, "py-h5py@3.13:", "py-h5py@3.12:"),
        ("spack/py-mpibayes/package.py", spack, 'depends_on("py-rich@13:", type=("build", "run"))', "pass"),
        ("spack/py-mpibayes/package.py", spack, "py-arviz@0.20:", "py-arviz@0.19:"),
    ],
)
def test_another_dependency_is_noticed(tmp_path, name, read, old, new):
    place = tmp_path / "packaging"
    shutil.copytree(PLACE, place)
    text = (place / name).read_text()
    assert text.count(old) == 1
    (place / name).write_text(text.replace(old, new))
    asked, result = required(), read(place)[1]
    assert any(result[kind] != asked[kind] for kind in result)


def test_the_sections_of_the_container_are_shell():
    """`bash -n` reads those that are scripts; the launches name what the container has."""
    text = (PLACE / "apptainer/mpibayes.def").read_text()
    sections = dict(re.findall(r"^%(\w+)\n(.*?)(?=^%|\Z)", text, re.M | re.S))
    assert list(sections) == ["labels", "files", "post", "environment", "runscript", "test", "help"]
    for name in ("post", "environment", "runscript", "test"):
        subprocess.run(["bash", "-n"], input=sections[name], text=True, check=True, timeout=10)


@pytest.mark.skipif(shutil.which("luac") is None and shutil.which("lua") is None, reason="needs lua")
def test_the_module_is_lua():
    (module,) = (PLACE / "lmod/mpibayes").glob("*.lua")
    words = ["luac", "-p", str(module)] if shutil.which("luac") else ["lua", "-e", f"assert(loadfile('{module}'))"]
    subprocess.run(words, check=True, timeout=10)


def wheel_for_aarch64(place, **programs):
    """Run the script with these programs (name: shell) and the usual ones, in a copy; what it prints as errors."""
    (place / "bin").mkdir()
    shutil.copytree(PLACE / "aarch64", place / "packaging/aarch64")
    for name in ("bash", "dirname", "rm", "mkdir", "touch", "cat", "env"):
        (place / "bin" / name).symlink_to(shutil.which(name))
    for name, lines in programs.items():
        (place / "bin" / name).write_text(f"#!/bin/sh\n{lines}\n")
        (place / "bin" / name).chmod(0o755)
    script, path = place / "packaging/aarch64/wheel", {"PATH": str(place / "bin")}
    done = subprocess.run([script], env=path, capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    return done.stderr


def test_a_wheel_for_aarch64_needs_a_compiler_and_debian_s_python(tmp_path):
    for name in ("wheel", "check"):
        subprocess.run(["bash", "-n", PLACE / "aarch64" / name], check=True, timeout=10)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    python = {"python3": "echo 3.99"}
    assert "apt-get install gcc-aarch64-linux-gnu" in wheel_for_aarch64(tmp_path / "a", **python)
    apt = {"apt-get": "echo E: Unable to locate package python3.99; exit 100", "aarch64-linux-gnu-gcc": "exit 1"}
    errors = wheel_for_aarch64(tmp_path / "b", **python, **apt)
    assert "E: Unable to locate" in errors and "cannot fetch Python 3.99 for arm64" in errors
    assert not list((tmp_path / "b/build/aarch64").glob("python*[0-9]"))
