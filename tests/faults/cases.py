"""Small tables and configurations drawn at random, and the run that nothing disturbed."""

from __future__ import annotations

import contextlib
import csv
import io
import signal
from pathlib import Path
from random import Random

from mpibayes.hpc import cli
from mpibayes.hpc.run import signals
from mpibayes.io.files import chain_directories


class Wrong(Exception):
    """A fault found by a campaign."""


def write_csv(path: Path, random: Random, n_rows: int) -> None:
    """Four clusters in columns of all kinds; a tenth of the cells are missing."""
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["colour", "member", "height", "visits"])
        for _ in range(n_rows):
            z = random.randrange(4)
            cells = [
                "abcdefg"[(z + random.randrange(3)) % 7],
                "ny"[random.random() < 0.2 * z + 0.1],
                f"{random.gauss(3 * z, 1):.3f}",
                int(random.expovariate(1 / (5 * z + 2))),
            ]
            out.writerow(["" if random.random() < 0.1 else cell for cell in cells])


def config_text(random: Random, cycles: int) -> str:
    """A configuration of the table `table.h5`: held-out rows, thinning, annealing and two chains in many."""
    lines = ["[model]", 'family = "mixture"', "[data]", 'table = "table.h5"']
    if random.random() < 0.6:
        lines.append(f"heldout = {random.choice((0.05, 0.2))}")
    if random.random() < 0.4:
        schedule = random.choice(("linear", "geometric"))
        lines += ["[sampler]", 'strategy = "anneal"', "[anneal]", f'schedule = "{schedule}"', "passes = 5.0"]
    n_chains = 2 if random.random() < 0.5 else 1
    lines += [
        "[run]",
        f"seed = {random.randrange(1000)}",
        f"shards = {random.choice((1, 3, 5, 7))}",
        f"cycles = {cycles // n_chains}",
        f"chains = {n_chains}",
        "[output]",
        f"thin = {random.choice((1, 1, 3))}",
        f"labels = {random.choice((1, 2, 5))}",
    ]
    return "\n".join(lines) + "\n"


def mpibayes(*words) -> tuple[int, str]:
    """Run the command in this process; return its exit code, and all its output. Signal handlers are restored."""
    before = {number: signal.getsignal(number) for number in signals.SIGNALS}
    text = io.StringIO()
    try:
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            code = cli.main([str(word) for word in words])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code, text.getvalue()


def exports(folder: Path, scratch: Path) -> dict[str, bytes] | str:
    """Exports that must not depend on the faults: the trace without timings and the labels; or the command's error
    message."""
    scratch.mkdir(exist_ok=True)
    for old in scratch.iterdir():
        old.unlink()
    for words in (("csv", "--no-timings", "-o", scratch / "csv"), ("labels", "-o", scratch / "labels")):
        code, text = mpibayes("export", folder, "--to", *words)
        if code:
            return text
    return {path.name: path.read_bytes() for path in sorted(scratch.iterdir())}


def places(folder: Path) -> list[Path]:
    """Directories of the existing chains; [] before the first."""
    return chain_directories(folder) if folder.is_dir() else []
