"""The machine that a benchmark ran on, and the folder where results are kept with it: benchmarks/results.

A kept result is NAME.json: title, command, date, commit, machine, versions of other programs, `tables` as they were
printed ({"title", "head", "lines", "note"}), a `note`, `pictures` beside it, and whatever else the command measured,
every repeat, in DIGITS significant digits. Each key has a line, each of several records one of its own.
results/README.md has a section of each, and others.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
COMPILER = os.environ.get("CC", "cc")
DIGITS = 6  # significant, of a kept number


def machine() -> dict:
    """Processor, cores, caches, instruction set of the kernels, compiler, system, load at the moment."""
    from mpibayes.kernels.common.machine import ISA

    about = _text("/proc/cpuinfo")
    model = re.search(r"model name\s*:\s*(.*)", about)
    caches = {}
    for level in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = _text(level / "type").strip()
        name = f"L{_text(level / 'level').strip()}" + ({"Data": "d", "Instruction": "i"}.get(kind, ""))
        caches[name] = _text(level / "size").strip()
    return {
        "processor": model[1].strip() if model else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "caches": caches,
        "instruction_set": ISA,
        "compiler": _first_line([COMPILER, "--version"]),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load": round(os.getloadavg()[0], 2),
    }


def commit() -> str:
    """Of the repository, with a plus sign where files differ from it."""
    head = _first_line(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"])
    changed = _first_line(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"])
    return head + ("+" if head and changed else "")


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _first_line(command: list[str]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return result.splitlines()[0] if result else ""


def peak_mib() -> float:
    """Most memory that this process had resident; not that of the process it was started from, as getrusage may say."""
    result = re.search(r"VmHWM:\s*(\d+) kB", _text("/proc/self/status"))
    if result:
        return int(result[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def markdown(head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """A table; cells are shown as they are."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)


def keep(name: str, title: str, command: str, tables: list[dict], **measured) -> Path:
    """Write NAME.json, and its section of README.md; the file."""
    RESULTS.mkdir(exist_ok=True)
    result = {"title": title, "command": command, "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}
    result |= {"commit": commit(), "machine": machine(), "tables": tables, **measured}
    path = RESULTS / f"{name}.json"
    path.write_text(as_text(result))
    write_readme([name])
    return path


def as_text(result: dict) -> str:
    """The JSON of a result: each key on a line, each of several records on one of its own."""
    plain = json.loads(json.dumps(result, default=_plain), parse_float=_rounded)
    keys = (f"{json.dumps(key)}: {_records(value)}" for key, value in plain.items())
    return "{\n" + ",\n".join(keys) + "\n}\n"


def _records(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_records(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list) and len(value) > 1 and all(isinstance(item, dict | list) for item in value):
        return "[\n" + ",\n".join(map(_records, value)) + "\n]"
    if isinstance(value, list):
        return "[" + ", ".join(map(_records, value)) + "]"
    return json.dumps(value)


def _rounded(digits: str) -> float:
    return float(f"{float(digits):.{DIGITS}g}")


def _plain(value: object) -> object:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} in a result")


def kept() -> dict[str, dict]:
    """All kept results by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}


def prose(text: str) -> str:
    """Lines of at most 100 characters."""
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def write_readme(names: Sequence[str] | None = None) -> None:
    """Write sections of README.md anew, of kept results by name (None: of all); the others stay."""
    path = RESULTS / "README.md"
    intro, *parts = _text(path).split("\n## ")
    sections = {part.split("\n", 1)[0]: part.rstrip("\n") for part in parts}
    for name, result in kept().items():
        if names is None or name in names:
            sections[result["title"]] = _section(name, result)
    path.write_text("\n\n## ".join([intro.rstrip("\n"), *sections.values()]) + "\n")


def _section(name: str, result: dict) -> str:
    m = result["machine"]
    caches = ", ".join(f"{k} {v}" for k, v in m["caches"].items())
    about = (
        f"{m['processor']}, {m['cores']} cores ({caches}), kernels {m['instruction_set']}; {m['compiler']}; "
        f"{m['system']}; Python {m['python']}, NumPy {m['numpy']}; load {m['load']} at the end."
    )
    parts = [
        result["title"],
        prose(f"`{result['command']}`, {result['date']}, commit {result['commit']}, [{name}.json]({name}.json)."),
        prose(about),
    ]
    if result.get("versions"):
        parts.append(prose("With " + ", ".join(f"{k} {v}" for k, v in result["versions"].items()) + "."))
    for table in result["tables"]:
        parts += [f"### {table['title']}"] if table.get("title") else []
        parts += [markdown(table["head"], table["lines"])]
        parts += [prose(table["note"])] if table.get("note") else []
    parts += [prose(result["note"])] if result.get("note") else []
    parts += [f"![{p}]({p})" for p in result.get("pictures", ())]
    return "\n\n".join(parts)


if __name__ == "__main__":
    write_readme()
